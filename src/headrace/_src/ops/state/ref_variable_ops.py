"""Reference variables: their values live in containers and outlive steps.

The runtime value of a reference tensor (the output of VariableV2, Assign and the like) is the
VariableState itself, so that an op that takes it can change the variable. Ops that take a plain
value get the variable's value at the time they run.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace._src.core.errors import InvalidArgumentError, NotFoundError, OutOfRangeError
from headrace._src.core.tensor_shape import TensorShape, show_shape
from headrace._src.devices.room import check_room
from headrace._src.devices.variable_state import VariableState
from headrace._src.graph.definition import NOT_DIFFERENTIABLE, Effect, Sample
from headrace._src.lowering.rules import Update
from headrace._src.ops.base import infer
from headrace._src.ops.base.define import define
from headrace._src.ops.base.samples import r

__all__ = [
    "REFERENCE_VARIABLES",
    "RESOURCE_VARIABLES",
    "assign_op",
    "equal_shapes",
    "state_of",
    "variable_v2",
]

# The types of ops that make variables, for code that reads nodes from files.
REFERENCE_VARIABLES = frozenset({"Variable", "VariableV2"})
RESOURCE_VARIABLES = frozenset({"VarHandleOp"})


def equal_shapes(a: TensorShape, b: TensorShape) -> TensorShape:
    """Merge two shapes that must be equal; ValueError if they differ."""
    if a.sizes is None or b.sizes is None:
        return a if b.sizes is None else b
    if len(a.sizes) != len(b.sizes):
        raise ValueError(f"Shapes must be equal rank, but are {len(a.sizes)} and {len(b.sizes)}")
    for i, (m, n) in enumerate(zip(a.sizes, b.sizes, strict=True)):
        if m is not None and n is not None and m != n:
            raise ValueError(
                f"Dimension {i} in both shapes must be equal, but are {m} and {n}. Shapes are "
                f"{show_shape(a)} and {show_shape(b)}."
            )
    return a.merge_with(b)


def state_of(ref: Any) -> VariableState:
    """Return the variable behind a reference; a step that feeds the reference has only a value."""
    if not isinstance(ref, VariableState):
        raise InvalidArgumentError(
            None, None, "this op changes a variable, but the variable's reference was fed a value"
        )
    return ref


# -- Making variables -----------------------------------------------------------------------------


def _variable_kernel(*, ctx, shape, dtype, container, shared_name):
    name = shared_name or ctx.name
    found = ctx.find_or_make(
        container,
        name,
        VariableState,
        lambda: ctx.device.variable(name, dtype, shape),
    )
    if found.dtype is not dtype or not (
        found.shape is shape or found.shape.is_compatible_with(shape)
    ):
        raise InvalidArgumentError(
            None,
            None,
            f"Trying to share variable {container or 'localhost'}/{name}, but it exists as "
            f"{found.dtype.name}{show_shape(found.shape)}, not {dtype.name}{show_shape(shape)}",
        )
    return found


def _variable_infer(c: Any) -> TensorShape:
    return c.attrs["shape"]


_VARIABLE = "shape: shape; dtype: type; container: string = ''; shared_name: string = ''"


@define(
    "VariableV2",
    "-> ref: Ref(dtype)",
    _VARIABLE,
    infer=_variable_infer,
    kernel=_variable_kernel,
    gradient=NOT_DIFFERENTIABLE,
    effect=Effect.READS,
    samples=[Sample(shape=[2, 3], dtype="float32")],
)
def variable_v2(shape, dtype, container="", shared_name="", name=None):
    """Return a reference to a variable, which keeps its value between steps."""


@define(
    "Variable",
    "-> ref: Ref(dtype)",
    _VARIABLE,
    # This older op can't distinguish a scalar from an unknown shape.
    infer=lambda c: c.attrs["shape"] if c.attrs["shape"].sizes else None,
    kernel=_variable_kernel,
    gradient=NOT_DIFFERENTIABLE,
    effect=Effect.READS,
    samples=[Sample(shape=[2, 3], dtype="float32")],
)
def variable_v1(shape, dtype, container="", shared_name="", name=None):
    """Return a reference to a variable: the form of VariableV2 in older graphs."""


def _temporary_kernel(*, ctx, shape, dtype, var_name):
    if not shape.is_fully_defined():
        raise ValueError(f"a temporary variable needs a known shape, not {show_shape(shape)}")
    state = ctx.device.variable(var_name or ctx.name, dtype, shape)
    check_room(shape.sizes, dtype.numpy, "shape", spelled=True)
    state.assign(np.zeros(shape.sizes, dtype.numpy))
    return state


@define(
    "TemporaryVariable",
    "-> ref: Ref(dtype)",
    "shape: shape; dtype: type; var_name: string = ''",
    infer=_variable_infer,
    kernel=_temporary_kernel,
    gradient=NOT_DIFFERENTIABLE,
    effect=Effect.WRITES,
    samples=[Sample(shape=[2, 3], dtype="float32")],
)
def temporary_variable(shape, dtype, var_name="", name=None):
    """Return a reference to a variable that lives for one step; it starts as zeros."""


def _destroy_temporary_kernel(ref, *, var_name):
    state = state_of(ref)
    if state.name != var_name:
        raise NotFoundError(
            None, None, f"there is no temporary variable {var_name!r}: this one is {state.name!r}"
        )
    return state.read()


@define(
    "DestroyTemporaryVariable",
    "ref: Ref(T) -> value: T",
    "T: type; var_name: string",
    infer=infer.same_as(0),
    kernel=_destroy_temporary_kernel,
    gradient=NOT_DIFFERENTIABLE,
    effect=Effect.WRITES,
    samples=[Sample(r(2, 3), var_name="ref")],
)
def destroy_temporary_variable(ref, var_name, name=None):
    """Return the final value of a temporary variable."""


@define(
    "IsVariableInitialized",
    "ref: Ref(dtype) -> is_initialized: bool",
    "dtype: type",
    infer=infer.scalar,
    kernel=lambda ref: np.bool_(state_of(ref).is_initialized),
    effect=Effect.READS,
    accepts_uninitialized=True,
    asks=True,
    samples=[Sample(r(2, 3))],
)
def is_variable_initialized_op(ref, name=None):
    """Return whether a variable has a value."""


# -- Changing variables ---------------------------------------------------------------------------


def _assign_infer(c: Any, ref: TensorShape, value: TensorShape) -> TensorShape:
    return equal_shapes(ref, value) if c.attrs["validate_shape"] else value


def _assign_kernel(ref, value, *, validate_shape):
    state = state_of(ref)
    if validate_shape:
        with state.lock:
            expected = state.shape if state.sizes is None else TensorShape.of(state.sizes)
            if not expected.is_compatible_with(np.shape(value)):
                raise ValueError(
                    "Assign requires shapes of both tensors to match. lhs shape= "
                    f"{show_shape(expected)} rhs shape= {show_shape(np.shape(value))}"
                )
            state.assign(value)
    else:
        state.assign(value)
    return state


@define(
    "Assign",
    "ref: Ref(T), value: T -> output_ref: Ref(T)",
    "T: type; validate_shape: bool = True; use_locking: bool = True",
    infer=_assign_infer,
    kernel=_assign_kernel,
    gradient=NOT_DIFFERENTIABLE,
    effect=Effect.WRITES,
    reshapes=lambda node: not node.attrs["validate_shape"],
    accepts_uninitialized=True,
    samples=[Sample(r(2, 3), r(2, 3)), Sample(r(2), r(3), validate_shape=False)],
    lower=Update(lambda e, old, value: value, initializes=True),
)
def assign_op(ref, value, validate_shape=True, use_locking=True, name=None):
    """Assign a value to a variable and return its reference; `validate_shape` keeps its shape."""


def update_dense(state: VariableState, function: Any, value: Any, message: str) -> None:
    """Replace a variable's value by function(old, value); ValueError if their shapes differ."""
    with state.lock:
        held = state.look().shape
        if held != getattr(value, "shape", None) and held != np.shape(value):
            raise ValueError(message.format(show_shape(held), show_shape(np.shape(value))))
        state.change(function, value)


def _updating(function: Any) -> Any:
    def kernel(ref, value):
        state = state_of(ref)
        update_dense(state, function, value, "Parameters and update must be the same size")
        return state

    return kernel


def _update_infer(c: Any, ref: TensorShape, value: TensorShape) -> TensorShape:
    return equal_shapes(ref, value)


@define(
    "AssignAdd",
    "ref: Ref(T), value: T -> output_ref: Ref(T)",
    "T: {numbers}; use_locking: bool = False",
    infer=_update_infer,
    kernel=_updating(np.add),
    gradient=NOT_DIFFERENTIABLE,
    effect=Effect.WRITES,
    samples=[Sample(r(2, 3), r(2, 3)), Sample(r(), r())],
    lower=Update(lambda e, old, value: old + value),
)
def assign_add_op(ref, value, use_locking=False, name=None):
    """Add to a variable and return its reference."""


@define(
    "AssignSub",
    "ref: Ref(T), value: T -> output_ref: Ref(T)",
    "T: {numbers}; use_locking: bool = False",
    infer=_update_infer,
    kernel=_updating(np.subtract),
    gradient=NOT_DIFFERENTIABLE,
    effect=Effect.WRITES,
    samples=[Sample(r(2, 3), r(2, 3)), Sample(r(), r())],
    lower=Update(lambda e, old, value: old - value),
)
def assign_sub_op(ref, value, use_locking=False, name=None):
    """Subtract from a variable and return its reference."""


def count_up(state: VariableState, limit: int) -> Any:
    """Return an integer variable's value and add 1 to it; OutOfRangeError once it is `limit`."""
    with state.lock:
        value = state.look()[()]
        if value >= limit:
            raise OutOfRangeError(None, None, f"Reached limit of {limit}")
        state.assign(value + value.dtype.type(1))
    return value


def count_infer(c: Any, shape: TensorShape) -> TensorShape:
    """Only scalars can count."""
    return shape.with_rank(0)


@define(
    "CountUpTo",
    "ref: Ref(T) -> output: T",
    "limit: int; T: {index}",
    infer=count_infer,
    kernel=lambda ref, *, limit: count_up(state_of(ref), limit),
    effect=Effect.WRITES,
    samples=[Sample(1, limit=5)],
)
def count_up_to_op(ref, limit, name=None):
    """Return a variable's value and add 1 to it, until it is `limit`."""
