"""Ops on the distinct rows of a table, in a form whose sizes are known before a step runs.

An optimizer sums the gradients of a row that occurs several times: it finds the distinct rows
(Unique), sums their gradients, and updates these rows, whose number is known only in the step.
UNIQUE_ROWS finds them too, but returns as many as were given, of which the first `length` count;
ops that update rows have a form that takes this number (`counted`). So such steps can be compiled.

This module says what part each op plays; the pass is `optimize.pad_unique_rows`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import Any

import numpy as np

from headrace._src.core.dtypes import int64
from headrace._src.graph.definition import NOT_DIFFERENTIABLE, Definition, Kind, RowPart
from headrace._src.graph.internal_definitions import form, register_internal
from headrace._src.graph.schema import Argument, Schema
from headrace._src.lowering.row_anchors import row_update
from headrace._src.lowering.rules import Anchor
from headrace._src.ops.array.uniqueness import distinct

__all__ = ["UNIQUE_ROWS", "counted", "part_of"]


_SCATTERS: dict[str, Callable[..., Any]] = {
    "Update": lambda e, old, new: (new,),
    "Add": lambda e, old, new: (old + new,),
    "Sub": lambda e, old, new: (old - new,),
    "Mul": lambda e, old, new: (old * new,),
    "Min": lambda e, old, new: (e.min(old, new),),
    "Max": lambda e, old, new: (e.max(old, new),),
}
_OF_ROWS = ("indices", "grad", "updates")  # the inputs with one element per row


def part_of(definition: Definition) -> RowPart | None:
    """Return an op's part in updates of distinct rows."""
    if definition.rows is not None:
        return definition.rows
    if definition.kind is Kind.ELEMENTWISE and len(definition.schema.outputs) == 1:
        return RowPart.MAPS
    return None if counted(definition) is None else RowPart.CHANGES


def _unique_rows(x: np.ndarray, *, out_idx: Any) -> tuple[np.ndarray, np.ndarray, np.int64]:
    rows, positions, _ = distinct(x, None, out_idx)
    padded = np.zeros_like(x)
    padded[: len(rows)] = rows
    return padded, positions, np.int64(len(rows))


UNIQUE_ROWS = Definition(
    schema=Schema(
        "_UniqueRows",
        "x: T -> rows: T, positions: out_idx, length: int64",
        "T: {index}; out_idx: {index} = int32",
    ),
    infer=lambda c, x: [x, x, ()],
    kernel=_unique_rows,
    gradient=NOT_DIFFERENTIABLE,
    doc="Return the distinct elements of x, then zeros; the index of each; and their number.",
)
register_internal(UNIQUE_ROWS)


def counted(definition: Definition) -> Definition | None:
    """Return the form of an op that updates rows which takes the number of rows as its last input;
    None for all other ops.
    """
    rule = definition.lower
    if not isinstance(rule, Anchor) or rule.family not in ("row_update", "scatter"):
        return None
    return _counted(definition)


@form("counted")  # of registered ops only: a graph's function would keep the graph alive
def _counted(definition: Definition) -> Definition:
    rule = definition.lower
    assert isinstance(rule, Anchor)
    given = definition.schema.inputs
    inputs = (*given, Argument("length", int64))
    schema = definition.schema.changed(f"_Counted{definition.op_type}", inputs)
    cut = [i for i, argument in enumerate(given) if argument.name in _OF_ROWS]

    @wraps(definition.kernel)
    def kernel(*inputs: Any, **attributes: Any) -> Any:
        *rows, length = inputs
        for i in cut:
            if np.ndim(rows[i]):
                rows[i] = rows[i][:length]
        return definition.kernel(*rows, **attributes)

    def describe(site: Any) -> Any:
        plain = replace(site, definition=definition, inputs=site.inputs[:-1])
        found = _described(plain, definition)
        return None if found is None else replace(found, length=len(given))

    return replace(
        definition,
        schema=schema,
        infer=lambda c, *shapes: definition.infer(c, *shapes[:-1]),
        kernel=kernel,
        lower=Anchor("row_update", describe, rule.variables),
        samples=(),
        doc=f"{definition.doc} The last input is the number of rows to update.",
    )


def _described(site: Any, definition: Definition) -> Any:
    if site.definition.lower.family == "row_update":
        return site.geometry
    how = definition.op_type.removeprefix("Resource").removeprefix("Scatter")
    if len(site.input_shapes[1]) != 1 or not site.input_shapes[2]:
        return None
    return row_update(site, _SCATTERS[how], 1, gradient=2, indices=1)
