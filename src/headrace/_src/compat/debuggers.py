"""`tensorflow.python.debug`: programs import it, and use it if a flag asks for it."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = [
    "DumpingDebugWrapperSession",
    "LocalCLIDebugHook",
    "LocalCLIDebugWrapperSession",
    "TensorBoardDebugHook",
    "TensorBoardDebugWrapperSession",
    "has_inf_or_nan",
]


def has_inf_or_nan(datum: Any, tensor: Any) -> bool:
    """Return whether a fetched tensor has an infinity or a NaN."""
    kind = getattr(getattr(tensor, "dtype", None), "kind", "")
    return kind in "fc" and not bool(np.all(np.isfinite(tensor)))


class _Lacking:
    """A debugger of TensorFlow's, which Headrace lacks."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError(
            f"{type(self).__name__} is not in Headrace: HEADRACE_CHECK_NUMERICS=1 stops at the "
            "first NaN, and headrace explain shows a step (docs/debugging.md)"
        )


class DumpingDebugWrapperSession(_Lacking):
    """A session that writes its tensors to files."""


class LocalCLIDebugHook(_Lacking):
    """A hook that opens a debugger in the terminal."""


class LocalCLIDebugWrapperSession(_Lacking):
    """A session that opens a debugger in the terminal."""


class TensorBoardDebugHook(_Lacking):
    """A hook that connects to TensorBoard's debugger."""


class TensorBoardDebugWrapperSession(_Lacking):
    """A session that connects to TensorBoard's debugger."""
