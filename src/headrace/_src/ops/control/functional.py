"""Ops that call functions of the graph: once, conditionally or in a loop; and their builders.

A function attribute names a function in the library of the operation's graph. Where
`optimize.inlining` hasn't replaced the op by the function's body, the kernel asks the session to
run it as a step of its own (`ctx.call`). Gradients are functions too, made by
`gradients.function_gradients`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from headrace._src.core import dtypes
from headrace._src.core.errors import InvalidArgumentError
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.graph.default import get_default_graph
from headrace._src.graph.definition import Effect
from headrace._src.graph.graph_functions import GraphFunction, function_named
from headrace._src.graph.operation import Operation, Tensor
from headrace._src.graph.structured import CALL, Called
from headrace._src.ops.base import infer
from headrace._src.ops.base.builder import OpBuilder
from headrace._src.ops.base.define import b, composed, define
from headrace._src.ops.base.to_tensor import convert_n_to_tensor, convert_to_tensor
from headrace._src.ops.control.loops_and_branches import IF, WHILE
from headrace._src.ops.state.resource_variable_ops import handle_data

__all__ = ["For", "Gradient", "If", "While", "partitioned_call", "remote_call"]


def _named(op: Operation, name: Any) -> GraphFunction:
    return function_named(op.graph, name.name)


def _function_infer(attribute: str) -> Any:
    """Return the shapes that the body's results have for any arguments."""

    def rule(c: Any, *shapes: Any) -> list[Any]:
        given = c.attrs.get("output_shapes")
        count = len(c.attrs["Tout"])
        if given:
            return list(given)
        graph = (c.op.origin if c.settled else c.op).graph
        function = graph._functions.get(c.attrs[attribute].name)
        if function is None or function._body is None:
            return [None] * count
        found = [t._shape for t in function.outputs]
        return found if len(found) == count else [None] * count

    return rule


def _output_shapes(c: Any, *shapes: Any) -> list[Any]:
    count = len(c.attrs.get("Tout", c.attrs.get("T", ())))
    return list(c.attrs.get("output_shapes") or [None] * count)


# -- Calls -----------------------------------------------------------------------------------------


def _call_kernel(args, *, ctx, op, f):
    return ctx.call(_named(op, f), args)


def _call_gradient(b: OpBuilder, op: Operation, *grads: Any) -> Any:
    return b.function_gradients(_named(op, op._attrs["f"]), op.inputs, op.outputs, grads)


_CALL = "Tin: list(type) >= 0; Tout: list(type) >= 0; f: func"
_CONFIG = "; config: string = ''; config_proto: string = ''; executor_type: string = ''"


def _partitioned(op_type: str, effect: Effect) -> Any:
    return define(
        op_type,
        "args: *Tin -> output: *Tout",
        _CALL + _CONFIG,
        infer=_function_infer("f"),
        kernel=_call_kernel,
        gradient=_call_gradient,
        effect=effect,
        calls=lambda op: Called(CALL, {"callee": _named(op, op._attrs["f"])}),
    )


@_partitioned("PartitionedCall", Effect.PURE)
def partitioned_call_op(args, Tout, f, config="", config_proto="", executor_type="", name=None):
    """Return the results of a function without effects."""


@_partitioned("StatefulPartitionedCall", Effect.WRITES)
def stateful_partitioned_call_op(
    args, Tout, f, config="", config_proto="", executor_type="", name=None
):
    """Return the results of a function."""


def _remote_kernel(target, args, *, ctx, op, f):
    place = target if isinstance(target, bytes) else np.asarray(target).item()
    return ctx.resources.functions.call(_named(op, f), args, place.decode())


def _remote_gradient(b: OpBuilder, op: Operation, *grads: Any) -> Any:
    function = _named(op, op._attrs["f"])
    return None, *b.function_gradients(function, op.inputs[1:], op.outputs, grads)


@define(
    "RemoteCall",
    "target: string, args: *Tin -> output: *Tout",
    "Tin: list(type) >= 1; Tout: list(type) >= 1; f: func",
    infer=_output_shapes,
    kernel=_remote_kernel,
    gradient=_remote_gradient,
    effect=Effect.WRITES,
)
def remote_call_op(target, args, Tout, f, name=None):
    """Return the results of a function that runs on the device `target`."""


# -- Gradients -------------------------------------------------------------------------------------


def _gradient_kernel(args, *, ctx, op, f):
    return ctx.call(ctx.gradient(_named(op, f)), args)


def _gradient_infer(c: Any, inputs: list[TensorShape]) -> list[Any]:
    return [
        infer.UNKNOWN if t.dtype.base_dtype is dtypes.resource else shape
        for t, shape in zip(c.op._inputs, inputs[: len(c.attrs["Tout"])], strict=False)
    ]


@define(
    "SymbolicGradient",
    "input: *Tin -> output: *Tout",
    "Tin: list(type) >= 1; Tout: list(type) >= 1; f: func",
    infer=_gradient_infer,
    kernel=_gradient_kernel,
    gradient=lambda b, op, *grads: b.gradient_of_function_gradients(op, *grads),
    calls=lambda op: Called(CALL, {"callee": b.derived_function(_named(op, op._attrs["f"]))}),
)
def symbolic_gradient(input, Tout, f, name=None):
    """Return the gradients of a function for its arguments, given those of its results."""


@composed
def function_gradients(
    function: GraphFunction,
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    grads: Sequence[Any],
) -> list[Any]:
    """Return the gradients of a call's inputs, given those of its outputs; None where there is
    none.
    """
    filled = [
        b.zeros_like(t) if g is None else convert_to_tensor(g)
        for t, g in zip(outputs, grads, strict=True)
    ]
    types = [_gradient_type(t) for t in inputs]
    found = symbolic_gradient([*inputs, *filled], types, function.name)
    return [g if _flows(t.dtype) else None for t, g in zip(inputs, found, strict=True)]


def _flows(dtype: dtypes.DType) -> bool:
    return dtype.is_floating or dtype.is_complex or dtype in (dtypes.resource, dtypes.variant)


def _gradient_type(t: Tensor) -> Any:
    if t.dtype.base_dtype is dtypes.resource:
        known = handle_data(t)
        return dtypes.float32 if known is None else known.dtype
    return t.dtype.base_dtype


# -- Branches --------------------------------------------------------------------------------------


def _is_true(cond: Any) -> bool:
    """A scalar is true by its number or string, another tensor if it has elements."""
    if np.ndim(cond):
        return bool(np.size(cond))
    value = np.asarray(cond).item()
    return bool(value)


def _if_kernel(cond, args, *, ctx, op, then_branch, else_branch):
    return ctx.call(_named(op, then_branch if _is_true(cond) else else_branch), args)


def _called_branches(op: Operation) -> Called | None:
    if op._inputs[0].dtype is not dtypes.bool:
        return None  # the kernel knows the rule for other types
    parts = {"then": op._attrs["then_branch"], "otherwise": op._attrs["else_branch"]}
    return Called(IF, {k: _named(op, name) for k, name in parts.items()})


def _if(op_type: str, effect: Effect) -> Any:
    return define(
        op_type,
        "cond: Tcond, input: *Tin -> output: *Tout",
        "Tcond: type; Tin: list(type) >= 0; Tout: list(type) >= 0; then_branch: func; "
        "else_branch: func; output_shapes: list(shape) = []",
        infer=_output_shapes,
        kernel=_if_kernel,
        gradient=lambda b, op, *grads: b.gradient_of_if(op, *grads),
        calls=_called_branches,
        effect=effect,
    )


@_if("If", Effect.WRITES)
def if_op(cond, input, Tout, then_branch, else_branch, output_shapes=(), name=None):
    """Return the results of one of two functions."""


@_if("StatelessIf", Effect.PURE)
def stateless_if_op(cond, input, Tout, then_branch, else_branch, output_shapes=(), name=None):
    """Return the results of one of two functions without effects."""


def _case_kernel(index, args, *, ctx, op, branches):
    number = int(np.asarray(index).item())
    if not 0 <= number < len(branches):
        number = len(branches) - 1
    return ctx.call(_named(op, branches[number]), args)


@define(
    "Case",
    "branch_index: int32, input: *Tin -> output: *Tout",
    "Tin: list(type) >= 0; Tout: list(type) >= 0; branches: list(func) >= 1; "
    "output_shapes: list(shape) = []",
    infer=_output_shapes,
    kernel=_case_kernel,
    gradient=lambda b, op, *grads: b.gradient_of_case(op, *grads),
    effect=Effect.WRITES,
)
def case_op(branch_index, input, Tout, branches, output_shapes=(), name=None):
    """Return the results of the function at that index, or of the last one if out of range."""


# -- Loops -----------------------------------------------------------------------------------------


def _while_kernel(values, *, ctx, op, cond, body):
    test, step = _named(op, cond), _named(op, body)
    values = list(values)
    while True:
        (goes_on,) = ctx.call(test, values)
        if not _is_true(goes_on):
            return values
        values = ctx.call(step, values)


def _called_loop(op: Operation) -> Called | None:
    test, step = (_named(op, op._attrs[k]) for k in ("cond", "body"))
    if test.output_types != [dtypes.bool]:
        return None
    results = {"results": tuple(range(len(op._outputs)))}
    return Called(WHILE, {"cond": test, "body": step}, results)


def _while(op_type: str, effect: Effect) -> Any:
    return define(
        op_type,
        "input: *T -> output: *T",
        "T: list(type) >= 0; cond: func; body: func; output_shapes: list(shape) = []; "
        "parallel_iterations: int = 10",
        infer=_output_shapes,
        kernel=_while_kernel,
        gradient=lambda b, op, *grads: b.gradient_of_while(op, *grads),
        calls=_called_loop,
        effect=effect,
    )


@_while("While", Effect.WRITES)
def while_op(input, cond, body, output_shapes=(), parallel_iterations=10, name=None):
    """Apply a function to its own results as long as another one returns true."""


@_while("StatelessWhile", Effect.PURE)
def stateless_while_op(input, cond, body, output_shapes=(), parallel_iterations=10, name=None):
    """As while_op, for functions without effects."""


def _for_kernel(start, limit, delta, values, *, ctx, op, body):
    first, last, by = (int(np.asarray(v).item()) for v in (start, limit, delta))
    if not by or (last - first) * by < 0:
        raise InvalidArgumentError(
            None, None, f"For from {first} to {last} by {by} would never end"
        )
    step = _named(op, body)
    values = list(values)
    for i in range(first, last, by):
        values = ctx.call(step, [np.int32(i), *values])
    return values


@define(
    "For",
    "start: int32, limit: int32, delta: int32, input: *T -> output: *T",
    "T: list(type) >= 0; body: func",
    infer=_output_shapes,
    kernel=_for_kernel,
    gradient=lambda b, op, *grads: b.gradient_of_for(op, *grads),
)
def for_op(start, limit, delta, input, body, name=None):
    """Apply a function to a number and its own results, for each number of a range."""


# -- Public functions ------------------------------------------------------------------------------


def _converted(inputs: Sequence[Any], function: Any, skip: int = 0) -> list[Tensor]:
    """Convert inputs to tensors of the types that a function expects."""
    types = function.declared_input_types[skip:]
    if len(types) != len(inputs):
        raise ValueError(f"{function.name} takes {len(types)} arguments, not {len(inputs)}")
    return [
        convert_to_tensor(value, t, name=f"input_{i}")
        for i, (value, t) in enumerate(zip(inputs, types, strict=True))
    ]


def _without_captures(*functions: Any) -> None:
    for function in functions:
        function.add_to_graph(get_default_graph())
        if function.captured_inputs:
            raise ValueError(
                f"function '{function.name}' uses {function.captured_inputs} of the graph around "
                "it: functions that are called by name must take all tensors as arguments"
            )


def If(
    cond: Any, inputs: Sequence[Any], then_branch: Any, else_branch: Any, name: str | None = None
) -> list[Tensor]:
    """Return the results of one of two functions (see Defun) applied to `inputs`."""
    _without_captures(then_branch, else_branch)
    types = then_branch.output_types
    if types != else_branch.output_types:
        raise ValueError(f"branches return {types} and {else_branch.output_types}")
    with get_default_graph().name_scope(name or "If") as scope:
        given = _converted(inputs, then_branch)
        return if_op(cond, given, types, then_branch, else_branch, name=scope)


def While(
    input_: Sequence[Any], cond: Any, body: Any, name: str | None = None, hostmem: Any = None
) -> list[Tensor]:
    """Apply `body` to `input_`, then to its own results as long as `cond` of them is true; return
    the last results. `hostmem`, the indices of the values that must be in host memory, changes
    nothing: all memory is the host's.
    """
    _without_captures(cond, body)
    if body.output_types != body.declared_input_types:
        raise ValueError(
            f"The body takes {body.declared_input_types} and returns {body.output_types}"
        )
    if len(cond.output_types) != 1:
        raise ValueError(f"The condition returns {len(cond.output_types)} results, not one")
    with get_default_graph().name_scope(name or "While") as scope:
        return while_op(_converted(input_, body), cond, body, name=scope)


def For(
    start: Any,
    limit: Any,
    delta: Any,
    inputs: Sequence[Any],
    body: Any,
    name: str | None = None,
    hostmem: Any = None,
    rewrite_with_while: bool | None = None,
) -> list[Tensor]:
    """Apply `body(i, *values)` for each i of a range, starting with `inputs`; return the last
    results. There is only one way to run it, so `rewrite_with_while` and `hostmem` change nothing.
    """
    _without_captures(body)
    if body.output_types != body.declared_input_types[1:]:
        raise ValueError(
            f"The body takes {body.declared_input_types} and returns {body.output_types}"
        )
    with get_default_graph().name_scope(name or "For") as scope:
        bounds = [
            convert_to_tensor(value, dtypes.int32, name=what)
            for what, value in (("start", start), ("limit", limit), ("delta", delta))
        ]
        return for_op(*bounds, _converted(inputs, body, skip=1), body, name=scope)


def Gradient(inputs: Sequence[Any], f: Any, name: str | None = None) -> list[Tensor]:
    """Return the gradients of the arguments of `f`; `inputs` are these arguments, then the
    gradients of its results.
    """
    _without_captures(f)
    types = [*f.declared_input_types, *f.output_types]
    if len(types) != len(inputs):
        raise ValueError(f"the gradient of {f.name} takes {len(types)} inputs, not {len(inputs)}")
    with get_default_graph().name_scope(name or "SymbolicGradient") as scope:
        given = [
            convert_to_tensor(value, t, name=f"input_{i}")
            for i, (value, t) in enumerate(zip(inputs, types, strict=True))
        ]
        return symbolic_gradient(given, list(f.declared_input_types), f, name=scope)


def remote_call(
    target: Any, args: Sequence[Any], Tout: Sequence[Any], f: Any, name: str | None = None
) -> list[Tensor]:
    """Return the results of `f`, run on the device `target`."""
    _without_captures(f)
    return remote_call_op(target, convert_n_to_tensor(args), Tout, f, name=name)


def partitioned_call(
    args: Sequence[Any],
    f: Any,
    tout: Sequence[Any] | None = None,
    executor_type: str | None = None,
) -> list[Tensor]:
    """Return the results of `f`."""
    _without_captures(f)
    types = f.output_types if tout is None else tout
    call = stateful_partitioned_call_op if f.stateful_ops else partitioned_call_op
    return call(_converted(args, f), types, f, executor_type=executor_type or "")
