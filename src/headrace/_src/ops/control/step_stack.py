"""Stacks that live in one step: a loop saves values on them for its gradient loop.

A stack is in its step's container and is dropped when the step ends. A value that is pushed with
`swap_memory` is kept in a file, if there is a folder for that (`devices.swap_files`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace._src.core.dtypes import DType
from headrace._src.core.errors import InvalidArgumentError
from headrace._src.core.locks import Lock
from headrace._src.core.tensor_shape import TensorShape, show_shape
from headrace._src.devices.swap_files import swaps
from headrace._src.graph.definition import NOT_DIFFERENTIABLE, Effect
from headrace._src.lowering import list_anchors
from headrace._src.ops.base import infer
from headrace._src.ops.base.define import define
from headrace._src.ops.state.shared_state import keep_in_step, on

__all__ = ["StackState"]

_HANDLE = TensorShape.of((2,))  # as TensorFlow has it


class StackState:
    """A last-in, first-out stack of values; `limit` is its capacity, negative for no limit."""

    __slots__ = ("_closed", "_lock", "_values", "dtype", "limit", "name")

    def __init__(self, name: str, dtype: DType, limit: int = -1) -> None:
        self.name = name
        self.dtype = dtype
        self.limit = limit
        self._values: list[Any] = []
        self._closed = False
        self._lock = Lock()

    def push(self, value: Any, dtype: DType) -> None:
        with self._lock:
            self._check(dtype)
            if 0 <= self.limit <= len(self._values):
                raise _invalid(f"Stack[{self.name}] overflowed its max_size ({self.limit})")
            self._values.append(value)

    def pop(self, dtype: DType) -> Any:
        with self._lock:
            self._check(dtype)
            if not self._values:
                raise _invalid(f"Stack[{self.name}] is empty when calling Pop().")
            return self._values.pop()

    def close(self) -> None:
        """Drop the values and close the stack."""
        with self._lock:
            self._closed = True
            self._values.clear()

    def _check(self, dtype: DType) -> None:
        if self._closed:
            raise _invalid(f"Stack[{self.name}] has already been closed.")
        if dtype is not self.dtype:
            raise _invalid(
                f"Must have type {self.dtype.name}, but Stack[{self.name}] was given {dtype.name}"
            )

    def __repr__(self) -> str:
        return f"<StackState {self.name} of {len(self._values)} {self.dtype.name}>"


def _invalid(message: str) -> InvalidArgumentError:
    return InvalidArgumentError(None, None, message)


def _stack_infer(c: Any, *limit: TensorShape) -> TensorShape:
    for shape in limit:
        infer.with_rank(shape, 0)
    return _HANDLE


def _stack_kernel(limit, *, ctx, step, elem_type, stack_name):
    if np.ndim(limit):
        raise _invalid(f"Stack size must be a scalar, but had shape: {show_shape(limit.shape)}")
    name = stack_name or ctx.name
    return keep_in_step(ctx, step, name, StackState(name, elem_type, int(limit)))


@define(
    "StackV2",
    "max_size: int32 -> handle: resource",
    "elem_type: type; stack_name: string = ''",
    infer=_stack_infer,
    kernel=_stack_kernel,
    effect=Effect.LOCAL,
    lower=list_anchors.STACK,
)
def stack_v2(max_size, elem_type, stack_name="", name=None):
    """Make a stack with room for `max_size` values, or for any number if that is negative."""


@define(
    "Stack",
    "-> handle: Ref(string)",
    "elem_type: type; stack_name: string = ''",
    infer=lambda c: (2,),
    kernel=lambda *, ctx, step, elem_type, stack_name: _stack_kernel(
        -1, ctx=ctx, step=step, elem_type=elem_type, stack_name=stack_name
    ),
    effect=Effect.LOCAL,
)
def stack_v1(elem_type, stack_name="", name=None):
    """Make a stack without a size limit, in the form of older graphs."""


def _push_kernel(stack, elem, *, T, swap_memory, ctx):
    stack.push(ctx.device.allocator.swapped(elem) if swap_memory and swaps() else elem, T)
    return elem


def _push(op_type: str, handle: str) -> Any:
    return define(
        op_type,
        f"handle: {handle}, elem: T -> output: T",
        "T: type; swap_memory: bool = False",
        infer=infer.same_as(1),
        kernel=on(StackState, _push_kernel),
        gradient=NOT_DIFFERENTIABLE,
        effect=Effect.LOCAL,
        lower=list_anchors.PUSH,
    )


@_push("StackPushV2", "resource")
def stack_push_v2(handle, elem, swap_memory=False, name=None):
    """Push `elem` on a stack and pass it on."""


@_push("StackPush", "Ref(string)")
def stack_push_v1(handle, elem, swap_memory=False, name=None):
    """Push `elem` on a stack and pass it on, in the form of older graphs."""


def _pop(op_type: str, handle: str) -> Any:
    return define(
        op_type,
        f"handle: {handle} -> elem: elem_type",
        "elem_type: type",
        infer=infer.unknown,
        kernel=on(StackState, lambda stack, *, elem_type: stack.pop(elem_type)),
        gradient=NOT_DIFFERENTIABLE,
        effect=Effect.LOCAL,
        lower=list_anchors.POP,
    )


@_pop("StackPopV2", "resource")
def stack_pop_v2(handle, elem_type, name=None):
    """Pop the top value of a stack."""


@_pop("StackPop", "Ref(string)")
def stack_pop_v1(handle, elem_type, name=None):
    """Pop the top value of a stack, in the form of older graphs."""


def _close(op_type: str, handle: str) -> Any:
    return define(
        op_type,
        f"handle: {handle} ->",
        infer=infer.no_outputs,
        kernel=on(StackState, lambda stack: stack.close()),
        effect=Effect.LOCAL,
    )


@_close("StackCloseV2", "resource")
def stack_close_v2(handle, name=None):
    """Drop the values of a stack before the step ends."""


@_close("StackClose", "Ref(string)")
def stack_close_v1(handle, name=None):
    """Drop the values of a stack before the step ends, in the form of older graphs."""
