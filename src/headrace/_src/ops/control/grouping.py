"""Order, checks and printing: group, tuple, Assert, Print, check_numerics."""

from __future__ import annotations

import sys
import time
from functools import partial
from typing import Any

import numpy as np

from headrace._src.core import dtypes, nest
from headrace._src.core.errors import InvalidArgumentError
from headrace._src.core.export import export
from headrace._src.core.locks import Lock
from headrace._src.core.tensor_shape import show_shape
from headrace._src.graph.composite import IndexedSlices
from headrace._src.graph.default import get_default_graph
from headrace._src.graph.definition import NOT_DIFFERENTIABLE, Effect, Sample
from headrace._src.graph.operation import Operation, Tensor
from headrace._src.lowering.rules import Pass
from headrace._src.ops.array.constants_and_placeholders import identity
from headrace._src.ops.base import infer
from headrace._src.ops.base.define import b, composed, define
from headrace._src.ops.base.samples import r, unary
from headrace._src.ops.base.to_tensor import (
    convert_n_to_tensor,
    convert_to_tensor,
    graph_of,
    name_scope,
)
from headrace._src.ops.control.flow_primitives import passed
from headrace._src.ops.strings.printf import print_format

__all__ = ["group", "tuple_tensors", "with_dependencies"]


@export("no_op")
@define(
    "NoOp",
    "->",
    infer=infer.no_outputs,
    kernel=lambda: None,
    samples=[Sample()],
    lower=Pass(),
)
def no_op(name=None):
    """Do nothing; serves as an anchor for control dependencies."""


@composed
@export("group")
def group(*inputs: Any, **kwargs: Any) -> Operation:
    """Return an operation that finishes when all `inputs` (tensors, operations, nests of them) have
    finished.
    """
    name = kwargs.pop("name", None)
    if kwargs:
        raise ValueError(f"Unknown keyword arguments: {', '.join(kwargs)}")
    items = nest.flatten(inputs)
    graph = graph_of(items) or get_default_graph()
    with graph.as_default(), name_scope(name, "group_deps", items) as scope:
        by_device: dict[str, list[Operation]] = {}
        for item in items:
            op = _operation_of(item)
            by_device.setdefault(op.device, []).append(op)
        if len(by_device) <= 1:
            device, ops = next(iter(by_device.items()), ("", []))
            return _wait_for(graph, ops, device, scope)
        gates = [_wait_for(graph, ops, device, None) for device, ops in sorted(by_device.items())]
        return _wait_for(graph, gates, "", scope)


def _operation_of(item: Any) -> Operation:
    if isinstance(item, Operation):
        return item
    found = getattr(item, "op", None)
    if found is None:
        element = getattr(item, "_as_graph_element", None)
        found = element().op if element else None
    if not isinstance(found, Operation):
        raise TypeError(f"Expected tf.group() expected Tensor objects not None or {type(item)}")
    return found


def _wait_for(graph: Any, ops: list[Operation], device: str, name: str | None) -> Operation:
    with graph.control_dependencies(ops):
        if device:
            with graph.device(device):
                return no_op(name=name)
        return no_op(name=name)


@composed
def with_dependencies(dependencies: Any, output: Any, name: str | None = None) -> Any:
    """Return `output`, available only after `dependencies` have run."""
    with name_scope(name, "control_dependency", [*dependencies, output]) as scope:
        graph = get_default_graph()
        with graph.colocate_with(output), graph.control_dependencies(dependencies):
            if isinstance(output, IndexedSlices):
                values = identity(output.values, name=scope)
                return IndexedSlices(values, output.indices, output.dense_shape)
            return passed(convert_to_tensor(output), name=scope)


@composed
@export("tuple")
def tuple_tensors(tensors: Any, name: str | None = None, control_inputs: Any = None) -> list[Any]:
    """Return `tensors`; none of them is available before all of them are computed (and
    `control_inputs` have run).
    """
    tensors = list(tensors)
    real = [t for t in tensors if t is not None]
    with name_scope(name, "tuple", real):
        gates = [t if isinstance(t, Operation) else t.op for t in real]
        for c in control_inputs or ():
            if not isinstance(c, Operation | Tensor):
                raise TypeError(f"Control input must be Operation or Tensor: {c}")
            gates.append(c.op if isinstance(c, Tensor) else c)
        if not gates:
            raise ValueError(f"Must have at least one Tensor: {tensors}")
        gate = group(*sorted(dict.fromkeys(gates), key=lambda op: op._id))
        return [
            t if t is None or isinstance(t, Operation) else with_dependencies([gate], t)
            for t in tensors
        ]


# -- Checks ----------------------------------------------------------------------------------------


def _assert_kernel(condition, data, *, summarize):
    if np.ndim(condition):
        raise ValueError(f"In[0] should be a scalar: {show_shape(np.shape(condition))}")
    if not np.all(condition):
        shown = " ".join(print_format(v, summarize=summarize) for v in data)
        raise InvalidArgumentError(None, None, f"assertion failed: {shown}")


@define(
    "Assert",
    "condition: bool, data: *T ->",
    "T: list(type) >= 1; summarize: int = 3",
    infer=infer.no_outputs,
    kernel=_assert_kernel,
    effect=Effect.WRITES,
    samples=[Sample(True, [r(2)], T=["float32"])],
)
def assert_op(condition, data, summarize=3, name=None):
    """Fail the step with `data` in the message unless `condition` is true."""


@composed
@export("Assert", "debugging.Assert")
def Assert(
    condition: Any, data: Any, summarize: int | None = None, name: str | None = None
) -> Operation:
    """Fail the step, showing up to `summarize` elements of each of `data`, unless `condition` is
    true.
    """
    with name_scope(name, "Assert", [condition, data]):
        summarize = 3 if summarize is None else summarize
        kinds = {t.dtype.base_dtype for t in convert_n_to_tensor(data)}
        if kinds <= {dtypes.string, dtypes.int32}:  # always in host memory: nothing to save
            return assert_op(condition, data, summarize, name="Assert")
        # Copy the data to the host only if the condition is false.
        condition = convert_to_tensor(condition, name="Condition")
        check = partial(assert_op, condition, data, summarize, name="Assert")
        guarded = b.cond(condition, no_op, check, name="AssertGuard")
        # Where operations run as they are made, the branch that was taken is all there is.
        return guarded if isinstance(guarded, Operation) else guarded.op


def _check_numerics_kernel(tensor, *, message):
    wide = np.asarray(tensor, np.float32) if np.asarray(tensor).dtype.itemsize == 2 else tensor
    if not np.isfinite(wide).all():
        kinds = ["Inf"] * bool(np.isinf(wide).any()) + ["NaN"] * bool(np.isnan(wide).any())
        raise InvalidArgumentError(
            None, None, f"{message} : Tensor had {' and '.join(kinds)} values"
        )
    return tensor


@export("check_numerics", "debugging.check_numerics")
@define(
    "CheckNumerics",
    "tensor: T -> output: T",
    "T: {bfloat16|float16|float32|float64}; message: string",
    infer=infer.same_as(0),
    kernel=_check_numerics_kernel,
    gradient=lambda b, op, dy: b.check_numerics(
        dy,
        f"Not a number (NaN) or infinity (Inf) values detected in gradient. {op._attrs['message']}",
    ),
    effect=Effect.WRITES,
    samples=lambda: [Sample(*s.inputs, message="bad") for s in unary()],
)
def check_numerics(tensor, message, name=None):
    """Return `tensor`; fail the step with `message` if it holds NaN or infinity."""


@composed
@export("verify_tensor_all_finite", "debugging.assert_all_finite")
def verify_tensor_all_finite(
    t: Any = None,
    msg: str | None = None,
    name: str | None = None,
    x: Any = None,
    message: str | None = None,
) -> Tensor:
    """Return `t`, available only after a check that all of it is finite.

    msg: the error message if an element is infinite or NaN. x and message: other names of t and
    msg.
    """
    t = x if t is None else t
    msg = message if msg is None else msg
    if t is None or msg is None:
        raise ValueError("verify_tensor_all_finite needs a tensor and a message")
    with name_scope(name, "VerifyFinite", [t]):
        t = convert_to_tensor(t, name="t")
        with get_default_graph().colocate_with(t):
            check = check_numerics(t, message=msg)
        return with_dependencies([check], t)


@composed
@export("add_check_numerics_ops")
def add_check_numerics_ops() -> Operation:
    """Return an operation that checks every floating-point tensor of the graph, one after the other
    in the order of their creation. Raises ValueError if there are loops or branches: for these,
    `ConfigProto.experimental.check_numerics` checks every operation of a session.
    """
    last: list[Any] = []
    graph = get_default_graph()
    for op in graph.get_operations():
        for output in op.outputs:
            if output.dtype not in (dtypes.float16, dtypes.float32, dtypes.float64):
                continue
            if op._get_control_flow_context() is not None:
                raise ValueError(
                    "`tf.add_check_numerics_ops() is not compatible with TensorFlow control flow "
                    "operations such as `tf.cond()` or `tf.while_loop()`."
                )
            with graph.control_dependencies(last):
                last = [check_numerics(output, message=f"{op.name}:{output.value_index}")]
    return group(*last)


def _now() -> np.float64:
    return np.float64(time.time())


@export("timestamp")
@define(
    "Timestamp",
    "-> ts: float64",
    infer=infer.scalar,
    kernel=_now,
    gradient=NOT_DIFFERENTIABLE,
    effect=Effect.READS,
)
def timestamp(name=None):
    """Return the seconds since 1970 at the moment when the op runs."""


# -- Printing --------------------------------------------------------------------------------------


class _Counter:
    """The number of times that a Print has printed in a session."""

    def __init__(self) -> None:
        self.count = 0
        self.lock = Lock()


def _print_kernel(value, data, *, message, first_n, summarize, ctx):
    if first_n >= 0 and ctx is not None:
        counter = ctx.state(_Counter, _Counter)
        with counter.lock:
            counter.count += 1
            if counter.count > first_n:
                return value
    text = message if isinstance(message, str) else message.decode(errors="replace")
    shown = "".join(f"[{print_format(v, summarize=summarize)}]" for v in data)
    print(text + shown, file=sys.stderr, flush=True)
    return value


@define(
    "Print",
    "input: T, data: *U -> output: T",
    "T: type; U: list(type) >= 0; message: string = ''; first_n: int = -1; summarize: int = 3",
    infer=infer.same_as(0),
    kernel=_print_kernel,
    gradient=lambda b, op, dy: [dy] + [None] * (len(op.inputs) - 1),
    effect=Effect.WRITES,
    samples=[Sample(r(2), [r(3)], U=["float32"], first_n=0)],
)
def print_op(input, data, message="", first_n=-1, summarize=3, name=None):
    """Return `input` and print `data` to standard error."""


@composed
@export("Print")
def Print(
    input_: Any,
    data: Any,
    message: str | None = None,
    first_n: int | None = None,
    summarize: int | None = None,
    name: str | None = None,
) -> Tensor:
    """Return `input_`; print `data` whenever it is computed, at most `first_n` times.

    message: printed before the data. summarize: the number of elements of each tensor to print.
    """
    return print_op(
        input_,
        data,
        message="" if message is None else message,
        first_n=-1 if first_n is None else first_n,
        summarize=3 if summarize is None else summarize,
        name=name,
    )
