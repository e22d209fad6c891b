"""Tensor arrays, stacks and lists in a trace. In: a node that uses one. Out: its results.

All of them are arrays with room for every row (list_plan). A list is a value, (rows, count), where
rows are arrays, or the parts of other lists. A tensor array is a state of the trace, (rows, which
of them are written), as a variable is; so are its gradients, and stacks. What the ops' own kernels
refuse is a fault.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from headrace._src.graph.dataflow import Node, Value
from headrace._src.lowering.list_anchors import ListUse
from headrace._src.xla.kernels.faults import check
from headrace._src.xla.list_plan import ListRows

__all__ = ["use"]


def use(trace: Any, node: Node, use: ListUse) -> list[Any]:
    """Return the results of a node that makes or uses a list; None for a handle."""
    return _USES[use.kind](trace, node, use)


def _key(trace: Any, node: Node) -> Any:
    return trace.root(node.inputs[0])


def _room(rows: ListRows) -> Any:
    """Arrays with room for all rows of a list."""
    count = max(rows.count, 1)
    if rows.lists is not None:
        return jax.tree.map(lambda x: jnp.zeros((count, *x.shape), x.dtype), _new(rows.lists))
    dtype = np.float32 if rows.dtype is None else rows.dtype.numpy
    return jnp.zeros((count, *(rows.row or ())), dtype)


def _row(tree: Any, index: Any) -> Any:
    return jax.tree.map(
        lambda x: jax.lax.dynamic_index_in_dim(x, index, keepdims=False, axis=0), tree
    )


def _with_row(tree: Any, row: Any, index: Any) -> Any:
    return jax.tree.map(
        lambda x, r: jax.lax.dynamic_update_index_in_dim(x, jnp.asarray(r, x.dtype), index, 0),
        tree,
        row,
    )


# ---- Lists --------------------------------------------------------------------------------------


def _new(rows: ListRows) -> Any:
    """An empty list: its rows, and how many there are."""
    return _room(rows), jnp.zeros((), np.int64)


def _appended(value: Any, row: Any) -> Any:
    rows, count = value
    return _with_row(rows, row, count), count + 1


def _removed(value: Any) -> tuple[Any, Any]:
    rows, count = value
    check(count <= 0)
    return (rows, count - 1), _row(rows, jnp.maximum(count - 1, 0))


def _list(trace: Any, node: Node, use: ListUse) -> list[Any]:
    return [_new(trace.lists[node])]


def _append(trace: Any, node: Node, use: ListUse) -> list[Any]:
    row = trace.value(node.inputs[1])
    return [_appended(trace.value(node.inputs[0]), row)]


def _remove(trace: Any, node: Node, use: ListUse) -> list[Any]:
    return list(_removed(trace.value(node.inputs[0])))


def _zeros(trace: Any, node: Node, use: ListUse) -> list[Any]:
    rows, count = trace.value(node.inputs[0])
    return [(jax.tree.map(jnp.zeros_like, rows), count)]


# ---- Stacks -------------------------------------------------------------------------------------


def _stack(trace: Any, node: Node, use: ListUse) -> list[Any]:
    trace.states[node.outputs[0]] = _new(trace.lists[node])
    return [None]


def _push(trace: Any, node: Node, use: ListUse) -> list[Any]:
    key, row = _key(trace, node), trace.value(node.inputs[1])
    trace.states[key] = _appended(trace.states[key], row)
    return [row]


def _pop(trace: Any, node: Node, use: ListUse) -> list[Any]:
    key = _key(trace, node)
    trace.states[key], row = _removed(trace.states[key])
    return [row]


# ---- Tensor arrays ------------------------------------------------------------------------------


def _array(trace: Any, node: Node, use: ListUse) -> list[Any]:
    handle, planned = node.outputs[0], trace.lists[node]
    rows, written = _room(planned), jnp.zeros(planned.count, bool)
    trace.states[handle] = rows, written
    if planned.declared:
        trace.declared.add(handle)
    for source in planned.sources:
        trace.states[handle, source] = rows, written
    return [None, jnp.zeros((), np.float32)]


def _gradient(trace: Any, node: Node, use: ListUse) -> list[Any]:
    key = _key(trace, node)
    trace.roots[node.outputs[0]] = (key[0] if isinstance(key, tuple) else key, use.source)
    return [None, trace.value(node.inputs[1])]


def _check_written(trace: Any, key: Any, written: Any, wanted: Any) -> None:
    """Note that rows must be written, where one that isn't is not zeros."""
    if not isinstance(key, tuple):  # the rows of a gradient are zeros at first
        check(~(jnp.any(written) if key in trace.declared else wanted))


def _index(trace: Any, value: Value, size: int) -> Any:
    index = jnp.asarray(trace.value(value)).reshape(()).astype(np.int64)
    check((index < 0) | (index >= size))
    return jnp.clip(index, 0, size - 1)


def _write(trace: Any, node: Node, use: ListUse) -> list[Any]:
    key = _key(trace, node)
    rows, written = trace.states[key]
    index, row = _index(trace, node.inputs[1], len(written)), trace.value(node.inputs[2])
    if isinstance(key, tuple):  # gradients add up
        row = jnp.asarray(row, rows.dtype) + _row(rows, index)
    else:
        check(written[index])
    trace.states[key] = _with_row(rows, row, index), written.at[index].set(True)
    return [trace.value(node.inputs[3])]


def _read(trace: Any, node: Node, use: ListUse) -> list[Any]:
    key = _key(trace, node)
    rows, written = trace.states[key]
    index = _index(trace, node.inputs[1], len(written))
    _check_written(trace, key, written, written[index])
    return [_row(rows, index)]


def _scatter(trace: Any, node: Node, use: ListUse) -> list[Any]:
    key, value = _key(trace, node), jnp.asarray(trace.value(node.inputs[2]))
    rows, written = trace.states[key]
    value = value.astype(rows.dtype).reshape(rows.shape)
    if isinstance(key, tuple):
        value = rows + value
    else:
        check(jnp.any(written))
    trace.states[key] = value, jnp.ones_like(written)
    return [trace.value(node.inputs[3])]


def _gather(trace: Any, node: Node, use: ListUse) -> list[Any]:
    key = _key(trace, node)
    rows, written = trace.states[key]
    _check_written(trace, key, written, jnp.all(written))
    return [rows]


def _size(trace: Any, node: Node, use: ListUse) -> list[Any]:
    return [jnp.asarray(np.int32(len(trace.states[_key(trace, node)][1])))]


_USES: dict[str, Callable[[Any, Node, ListUse], list[Any]]] = {
    "array": _array,
    "gradient": _gradient,
    "write": _write,
    "read": _read,
    "scatter": _scatter,
    "gather": _gather,
    "size": _size,
    "stack": _stack,
    "push": _push,
    "pop": _pop,
    "list": _list,
    "append": _append,
    "remove": _remove,
    "zeros": _zeros,
}
