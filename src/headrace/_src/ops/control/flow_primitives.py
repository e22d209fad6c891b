"""The primitives of control flow: Switch, Merge, Enter, Exit, NextIteration and related ops.

`graph.control_roles` defines their effect on dead tensors and frames, and `runtime.iterations`
implements it; kernels only route values. The Ref forms pass on a reference, the others its value.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from headrace._src.core.errors import InvalidArgumentError
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.graph.control_roles import DEAD, Flow
from headrace._src.graph.definition import NOT_DIFFERENTIABLE, Effect, Sample
from headrace._src.lowering.rules import Pass
from headrace._src.ops.array.constants_and_placeholders import identity
from headrace._src.ops.base import infer
from headrace._src.ops.base.builder import OpBuilder
from headrace._src.ops.base.define import define
from headrace._src.ops.base.samples import r
from headrace._src.ops.base.simplify_rules import equals_input

__all__ = ["go_round", "leave", "merge", "passed"]

_UNKNOWN = TensorShape(None)
_SCALAR = TensorShape.of(())


def _scalar(what: str, shape: TensorShape) -> None:
    if not shape.is_compatible_with(_SCALAR):
        raise ValueError(f"{what} must be a scalar, but has shape {shape}")


def _border_gradient(b: OpBuilder, op: Any, dy: Any) -> Any:
    """While a branch or a loop is being built, an op that leads a value into it has the gradient of
    an Identity. `gradients` handles a finished branch or loop as a whole.
    """
    context = op.graph._get_control_flow_context()
    while context is not None and context is not op._control_flow_context:
        context = context.outer_context
    if context is None:
        raise LookupError(f"'{op.name}' has a gradient only inside its branch or loop")
    return dy


def _switch_gradient(b: OpBuilder, op: Any, on_false: Any, on_true: Any) -> list[Any]:
    branch = getattr(op._control_flow_context, "branch", None)
    if branch is None:
        raise LookupError(f"'{op.name}' has no gradient by itself: it is part of a loop")
    return [_border_gradient(b, op, on_true if branch else on_false), None]


# -- Branches --------------------------------------------------------------------------------------


def _switch_shapes(context: Any, data: TensorShape, pred: TensorShape) -> list[TensorShape]:
    _scalar("pred", pred)
    return [data, data]


def _switch_kernel(data: Any, pred: Any) -> tuple[Any, Any]:
    if np.ndim(pred):
        raise InvalidArgumentError(
            None, None, f"The second input must be a scalar, but it has shape {np.shape(pred)}"
        )
    return (DEAD, data) if pred else (data, DEAD)


@define(
    "Switch",
    "data: T, pred: bool -> output_false: T, output_true: T",
    "T: type",
    infer=_switch_shapes,
    kernel=_switch_kernel,
    gradient=_switch_gradient,
    flow=Flow.SWITCH,
)
def switch_op(data, pred, name=None):
    """Pass `data` to the output that `pred` chooses; the other one is dead."""


@define(
    "RefSwitch",
    "data: Ref(T), pred: bool -> output_false: Ref(T), output_true: Ref(T)",
    "T: type",
    infer=_switch_shapes,
    kernel=_switch_kernel,
    flow=Flow.SWITCH,
    accepts_uninitialized=True,
)
def ref_switch_op(data, pred, name=None):
    """Pass a reference to the output that `pred` chooses; the other one is dead."""


def _merge_shapes(context: Any, inputs: list[TensorShape]) -> list[TensorShape]:
    return [_common_shape(inputs), _SCALAR]


def _common_shape(shapes: list[TensorShape]) -> TensorShape:
    """Return what is known of a tensor that has any one of these shapes."""
    sizes = [s.sizes for s in shapes]
    if any(s is None for s in sizes) or len({len(s or ()) for s in sizes}) != 1:
        return _UNKNOWN
    columns = zip(*(s or () for s in sizes), strict=True)
    return TensorShape.of(tuple(c[0] if len(set(c)) == 1 else None for c in columns))


def _merge_kernel(inputs: Any) -> tuple[Any, Any]:
    for i, value in enumerate(inputs):
        if value is not DEAD:
            return value, np.int32(i)
    return DEAD, DEAD


@define(
    "Merge",
    "inputs: N*T -> output: T, value_index: int32",
    "T: type; N: int >= 1",
    infer=_merge_shapes,
    kernel=_merge_kernel,
    flow=Flow.MERGE,
)
def merge_op(inputs, name=None):
    """Pass on the input that isn't dead, and return its index."""


@define(
    "RefMerge",
    "inputs: Ref(N*T) -> output: Ref(T), value_index: int32",
    "T: type; N: int >= 1",
    infer=_merge_shapes,
    kernel=_merge_kernel,
    flow=Flow.MERGE,
)
def ref_merge_op(inputs, name=None):
    """Pass on the reference that isn't dead, and return its index."""


def merge(inputs: Sequence[Any]) -> Any:
    """Pass on the input that isn't dead, as a reference if all inputs are references."""
    if all(t.dtype._is_ref_dtype for t in inputs):
        return ref_merge_op(inputs, name="Merge")
    return merge_op(inputs)


def _ref_select_shape(context: Any, index: TensorShape, inputs: list[TensorShape]) -> TensorShape:
    _scalar("index", index)
    first, *others = inputs
    known = first.is_fully_defined() and all(s.sizes == first.sizes for s in others)
    return first if known else _UNKNOWN


def _ref_select_kernel(index: Any, inputs: Any) -> Any:
    if np.ndim(index):
        shape = ",".join(map(str, np.shape(index)))
        message = f"Index must be a scalar, but it has shape [{shape}]"
        raise InvalidArgumentError(None, None, message)
    if not 0 <= index < len(inputs):
        message = f"Index must be in the range [0, {len(inputs)}) but got {index}"
        raise InvalidArgumentError(None, None, message)
    return inputs[index]


@define(
    "RefSelect",
    "index: int32, inputs: Ref(N*T) -> output: Ref(T)",
    "T: type; N: int >= 1",
    infer=_ref_select_shape,
    kernel=_ref_select_kernel,
    gradient=NOT_DIFFERENTIABLE,
    effect=Effect.READS,
    samples=[Sample(1, [r(2), r(2)]), Sample(0, [r(2, 3)])],
)
def ref_select(index, inputs, name=None):
    """Return the reference that `index` selects."""


@define(
    "RefIdentity",
    "input: Ref(T) -> output: Ref(T)",
    "T: type",
    infer=infer.same_as(0),
    kernel=lambda input: input,
    gradient=lambda b, op, dy: dy,
    effect=Effect.READS,
    accepts_uninitialized=True,
    samples=[Sample(r(2, 3)), Sample(r())],
)
def ref_identity(input, name=None):
    """Return the same reference."""


def passed(t: Any, name: str | None = None) -> Any:
    """The same value, or the same reference."""
    return ref_identity(t, name=name) if t.dtype._is_ref_dtype else identity(t, name=name)


# -- Loops -----------------------------------------------------------------------------------------


def _enter_shapes(context: Any, data: TensorShape) -> TensorShape | None:
    """Return an invariant's shape; a variable may have another one in the next iteration."""
    return data if context.settled or context.attrs["is_constant"] else None


_FRAME = "T: type; frame_name: string; is_constant: bool = False; parallel_iterations: int = 10"


@define(
    "Enter",
    "data: T -> output: T",
    _FRAME,
    infer=_enter_shapes,
    kernel=lambda data: data,
    gradient=_border_gradient,
    flow=Flow.ENTER,
)
def enter_op(data, frame_name, is_constant=False, parallel_iterations=10, name=None):
    """Pass `data` into a frame: to its first iteration, or to all of them if `is_constant`."""


@define(
    "RefEnter",
    "data: Ref(T) -> output: Ref(T)",
    _FRAME,
    infer=_enter_shapes,
    kernel=lambda data: data,
    flow=Flow.ENTER,
)
def ref_enter_op(data, frame_name, is_constant=False, parallel_iterations=10, name=None):
    """Pass a reference into a frame: to its first iteration, or to all if `is_constant`."""


def _pass(op_type: str, ref: bool, flow: Flow) -> Any:
    t = "Ref(T)" if ref else "T"
    return define(
        op_type,
        f"data: {t} -> output: {t}",
        "T: type",
        infer=infer.same_as(0),
        kernel=lambda data: data,
        flow=flow,
    )


@_pass("Exit", False, Flow.EXIT)
def exit_op(data, name=None):
    """Pass `data` out of its frame."""


@_pass("RefExit", True, Flow.EXIT)
def ref_exit_op(data, name=None):
    """Pass a reference out of its frame."""


@_pass("NextIteration", False, Flow.NEXT)
def next_iteration_op(data, name=None):
    """Pass `data` to the next iteration of its frame."""


@_pass("RefNextIteration", True, Flow.NEXT)
def ref_next_iteration_op(data, name=None):
    """Pass a reference to the next iteration of its frame."""


def leave(t: Any) -> Any:
    """Pass a value, or a reference, out of its frame."""
    return (ref_exit_op if t.dtype._is_ref_dtype else exit_op)(t)


def go_round(t: Any) -> Any:
    """Pass a value, or a reference, to the next iteration of its frame."""
    return (ref_next_iteration_op if t.dtype._is_ref_dtype else next_iteration_op)(t)


def _loop_cond_shape(context: Any, value: TensorShape) -> TensorShape:
    _scalar("input", value)
    return _SCALAR


@define(
    "LoopCond",
    "input: bool -> output: bool",
    infer=_loop_cond_shape,
    kernel=lambda value: value,
    gradient=NOT_DIFFERENTIABLE,
    lower=Pass(),
    simplify=equals_input,
    samples=[Sample(True), Sample(False)],
)
def loop_cond_op(input, name=None):
    """Mark the value that decides whether a loop continues."""


@define(
    "ControlTrigger",
    "->",
    infer=infer.no_outputs,
    kernel=lambda: None,
    flow=Flow.TRIGGER,
    samples=[Sample()],
)
def control_trigger(name=None):
    """Do nothing; finish when all control inputs have, dead or not."""
