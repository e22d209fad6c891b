"""Rows taken and changed by their numbers, as JAX functions. In: geometries (lowering.row_anchors)
and arrays. Out: rows, or the new values of variables.

Indices out of range are faults: what a function computes from them is not used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from headrace._src.lowering.row_anchors import (
    Cut,
    Gather,
    GatherPoints,
    RowUpdate,
    Scatter,
    SegmentSum,
)
from headrace._src.xla.kernels.faults import check, check_indices
from headrace._src.xla.kernels.pointwise import evaluate
from headrace._src.xla.kernels.views import numbers_of
from headrace._src.xla.kernels.windows import wide

__all__ = [
    "cut",
    "gather",
    "gather_points",
    "row_update",
    "scatter",
    "scatter_rows",
    "segment_sum",
]


def gather(g: Gather, params: Any, indices: Any) -> list[Any]:
    """Rows of an array."""
    check_indices(indices, g.size)
    if g.batch == 1:
        tables = params.reshape(g.outer, g.size, g.inner)
        return [jnp.take(tables, indices.reshape(-1), axis=1, mode="clip")]
    tables = params.reshape(g.batch, g.outer, g.size, g.inner)
    chosen = indices.reshape(g.batch, 1, g.count, 1)
    return [jnp.take_along_axis(tables, chosen, axis=2, mode="clip")]


def gather_points(g: GatherPoints, params: Any, indices: Any) -> list[Any]:
    """Vectors at points of an array."""
    points = indices.reshape(g.count, len(g.sizes))
    for d, size in enumerate(g.sizes):
        check_indices(points[:, d], size)
    table = params.reshape(*g.sizes, g.inner)
    return [table.at[tuple(points.T)].get(mode="clip")]


def segment_sum(g: SegmentSum, data: Any, ids: Any) -> list[Any]:
    """The sums of rows of the same number; a negative number belongs to no sum."""
    check(jnp.any(ids >= g.segments))
    data = data.astype(wide(data.dtype)).reshape(g.count, g.inner)
    places = jnp.where(ids < 0, g.segments, ids).reshape(-1)
    zeros = jnp.zeros((g.segments, g.inner), data.dtype)
    return [zeros.at[places].add(data, mode="drop")]


def cut(g: Cut, source: Any, numbers: Any) -> list[Any]:
    """A piece at a position that is computed: read, or written into zeros."""
    positions = jnp.asarray(numbers_of(g.view))
    numbers = numbers.reshape(-1).astype(np.int64)
    for entry, count, stride in g.moves:
        at = numbers[entry]
        at = jnp.where(at == -1, count - 1, at) if g.wraps else at
        check((at < 0) | (at >= count))
        positions = positions + jnp.clip(at, 0, count - 1) * stride
    if g.into:
        zeros = jnp.zeros(g.into, source.dtype)
        return [zeros.at[positions].set(source.reshape(g.view.shape), mode="drop")]
    return [source.reshape(-1).at[positions].get(mode="clip")]


def scatter_rows(how: str, old: Any, places: Any, updates: Any) -> Any:
    """`old` with the elements at `places`, an index for .at, changed; in order, if several are the
    same.
    """
    at = old.at[places]
    if how == "Add" and old.dtype == bool:
        return at.max(updates, mode="drop")
    change: dict[str, Callable[..., Any]] = {
        "Update": at.set,
        "Add": at.add,
        "Sub": lambda u, mode: at.add(-u, mode=mode),
        "Mul": at.multiply,
        "Div": at.divide,
        "Min": at.min,
        "Max": at.max,
    }
    return change[how](updates, mode="drop")


def scatter(g: Scatter, old: Any, indices: Any, updates: Any) -> list[Any]:
    """The new value of a variable of which rows are changed."""
    check_indices(indices, g.rows)
    updates = jnp.asarray(updates, old.dtype)
    whole = jnp.broadcast_to(updates, (g.count, g.inner)) if g.scalar else updates
    table = old.reshape(g.rows, g.inner)
    rows = whole.reshape(g.count, g.inner)
    return [scatter_rows(g.how, table, jnp.asarray(indices).reshape(-1), rows).reshape(old.shape)]


def row_update(g: RowUpdate, *inputs: Any) -> list[Any]:
    """The new values of variables of which rows are changed by a program, in order."""
    shape = inputs[0].shape
    tables = [x.reshape(g.rows, g.inner) for x in inputs[: g.variables]]
    gradient = jnp.asarray(inputs[g.gradient]).reshape(g.count, g.inner)
    indices = jnp.asarray(inputs[g.indices]).reshape(-1)
    number = g.count if g.length is None else jnp.asarray(inputs[g.length]).reshape(())
    used = jnp.arange(g.count) < number
    check(jnp.any(used & ((indices < 0) | (indices >= g.rows))))
    taken = [i for i in g.operands[g.variables :] if i not in (g.indices, g.length)]

    def changed(old: list[Any], rows: Any) -> list[Any]:
        given = [rows if i == g.gradient else inputs[i] for i in taken]
        return evaluate(g.program, [*old, *given])

    def at_once(tables: list[Any]) -> list[Any]:
        places = jnp.where(used, indices, g.rows)  # those that are not used are dropped
        new = changed([t.at[places].get(mode="clip") for t in tables], gradient)
        return [t.at[places].set(n, mode="drop") for t, n in zip(tables, new, strict=True)]

    def one_by_one(tables: list[Any]) -> list[Any]:
        def row(k: Any, tables: list[Any]) -> list[Any]:
            at = jnp.clip(indices[k], 0, g.rows - 1)
            new = changed([t[at] for t in tables], gradient[k])
            return [t.at[at].set(n) for t, n in zip(tables, new, strict=True)]

        return jax.lax.fori_loop(0, number, row, tables)

    order = jnp.sort(jnp.where(used, indices, -1 - jnp.arange(g.count, dtype=indices.dtype)))
    distinct = jnp.all(order[1:] != order[:-1])
    return [t.reshape(shape) for t in jax.lax.cond(distinct, at_once, one_by_one, tables)]
