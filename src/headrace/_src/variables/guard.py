"""Make initial values independent of the order of initialisation. In: an initial value. Out: one
that, for each uninitialised reference variable that it depends on, uses that variable's initial
value.

Operations that depend on such a variable are copied for this purpose, under TensorFlow's names:
`mul` for the variable `u` becomes `mul_u`. Reads through a handle are not changed, as in TensorFlow
1.15.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from headrace._src.core.dtypes import resource
from headrace._src.graph.graph import Graph
from headrace._src.graph.keys import GraphKeys
from headrace._src.graph.operation import Operation, Tensor

__all__ = ["guarded"]


def guarded(initial_value: Tensor, scope: str) -> Tensor:
    """Return the initial value of the variable that is made in `scope` (with its last slash)."""
    if _has_circle(initial_value.op):
        return initial_value  # a loop can't be copied operation by operation
    found: dict[Operation, Operation] = {}
    stack: list[tuple[Operation, Iterator[Operation]]] = []
    _open(initial_value.op, stack, found)
    while stack:
        op, remaining = stack[-1]
        following = next((o for o in remaining if o not in found), None)
        if following is not None:
            _open(following, stack, found)
        else:
            stack.pop()
            found[op] = _replaced(op, found, scope)
    return found[initial_value.op]._outputs[initial_value.value_index]


def _open(
    op: Operation,
    stack: list[tuple[Operation, Iterator[Operation]]],
    found: dict[Operation, Operation],
) -> None:
    """Visit an operation: its inputs first, unless its result is already decided."""
    if _is_variable(op):
        variable = _variable_of(op)
        found[op] = op if variable is None else variable.initialized_value().op
    elif _stays(op):
        found[op] = op
    else:
        stack.append((op, iter([t.op for t in op._inputs])))


def _is_variable(op: Operation) -> bool:
    return not op._inputs and any(t.dtype._is_ref_dtype for t in op._outputs)


def _stays(op: Operation) -> bool:
    """Return whether an operation needs no variable's value, or reads it through a handle."""
    definition = op.definition
    asks = definition.accepts_uninitialized and not any(t.dtype._is_ref_dtype for t in op._outputs)
    handles = any(t.dtype is resource for t in op._inputs)
    return asks or handles or definition.calls is not None


def _variable_of(op: Operation) -> Any:
    """Return the variable in a graph's collections whose operation this is, or None."""
    for key in (GraphKeys.GLOBAL_VARIABLES, GraphKeys.LOCAL_VARIABLES):
        for variable in op.graph.get_collection(key):
            if variable.name == f"{op.name}:0":
                return variable
    return None


def _replaced(op: Operation, found: dict[Operation, Operation], scope: str) -> Operation:
    """Return a copy of the operation for the new inputs, or itself if they are its own."""
    inputs = [found[t.op]._outputs[t.value_index] for t in op._inputs]
    if inputs == op._inputs:
        return op
    definition = op.definition
    steers = definition.flow is not None
    if not steers and definition.schema.has_ref_inputs:
        return op  # it changes the variable itself
    op_type = op.type.removeprefix("Ref") if steers else op.type
    graph: Graph = op.graph
    return graph.create_op(op_type, inputs, name=f"{op.name}_{scope}", attrs=dict(op._attrs))


def _has_circle(root: Operation) -> bool:
    """Return whether an operation is in a cycle, or depends on one."""
    done: dict[Operation, bool] = {root: False}
    stack = [(root, iter(_needs(root)))]
    while stack:
        op, remaining = stack[-1]
        for following in remaining:
            if following not in done:
                done[following] = False
                stack.append((following, iter(_needs(following))))
                break
            if not done[following]:
                return True
        else:
            stack.pop()
            done[op] = True
    return False


def _needs(op: Operation) -> list[Operation]:
    return [*(t.op for t in op._inputs), *op._control_inputs]
