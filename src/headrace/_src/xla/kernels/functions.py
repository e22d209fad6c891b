"""Find the function of an op by its name. In: an op type. Out: a function as a kernel is: of its
inputs, with attributes by keyword; constants are NumPy arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

from headrace._src.xla.table import FUNCTIONS

__all__ = ["function_of"]


@cache
def function_of(op_type: str) -> Callable[..., Any]:
    """The function that computes an op of `FUNCTIONS`."""
    return import_module(f"headrace._src.xla.kernels.{FUNCTIONS[op_type]}").KERNELS[op_type]
