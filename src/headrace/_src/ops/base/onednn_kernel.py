"""oneDNN as an entry of an op's kernel table. In: a function that calls `devices.onednn`. Out: an
OpKernel that declines cases that oneDNN doesn't support, and that is skipped without the library.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from headrace._src.devices import onednn
from headrace._src.graph.definition import OpKernel

__all__ = ["onednn_kernel"]


def onednn_kernel(function: Callable[..., Any]) -> OpKernel:
    """Return the kernel that calls `function`, which may raise `onednn.Unsupported`."""

    @wraps(function)
    def run(*inputs: Any, **attributes: Any) -> Any:
        try:
            return function(*inputs, **attributes)
        except onednn.Unsupported:
            return NotImplemented

    return OpKernel(run, onednn.available)
