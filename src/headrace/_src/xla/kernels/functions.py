"""Find the function of an op by its name. In: an op type. Out: a function as a kernel is: of its
inputs, with attributes by keyword; constants are NumPy arrays. None if the op's rule serves.

A function returns NotImplemented for uses that it leaves to the rule.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

from headrace._src.xla.table import FUNCTIONS

__all__ = ["function_of"]


@cache
def function_of(op_type: str) -> Callable[..., Any] | None:
    """The function that computes an op, if it has one of its own."""
    module = FUNCTIONS.get(op_type)
    if module is None:
        return None
    return import_module(f"headrace._src.xla.kernels.{module}").KERNELS[op_type]
