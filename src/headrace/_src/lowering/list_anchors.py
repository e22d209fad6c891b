"""Lists that live in one step, tensor arrays, stacks and lists, as the compiler sees them.

In: a node of an op on a list. Out: a `ListUse`, or None where native code has no place for it: a
size, a type or a shape that isn't known, rows that aren't the whole list in order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from headrace._src.core.tensor_shape import all_known
from headrace._src.graph.definition import Definition, Effect
from headrace._src.lowering.rules import COMPILED, Anchor, Site

__all__ = [
    "APPEND",
    "ARRAY",
    "GATHER",
    "GRADIENT",
    "LIST",
    "LISTS",
    "NUMBERS",
    "OF_ROWS",
    "POP",
    "PUSH",
    "READ",
    "REMOVE",
    "ROWS",
    "SCATTER",
    "SIZE",
    "STACK",
    "SWAP_MEMORY",
    "WRITE",
    "ZEROS",
    "ListUse",
    "makes",
    "row_given",
    "row_kept",
    "row_taken",
]


SWAP_MEMORY = "_swap_memory"  # the attribute of a list that a loop with swap_memory=True fills
LISTS = "variant"  # the type of lists, which may be what another list holds
NUMBERS = 1  # which input of an op on several rows has their numbers


@dataclass(frozen=True)
class ListUse:
    """What an op does to the list behind its first input, or that it makes.

    operands: the inputs that are data. Of a new array: its size, the shape of its rows (None if
    only what is written tells) and whether reading clears them. source: of a gradient's array,
    whose it is. swaps: whether its rows are to be in a file, where there is a folder for that.
    """

    kind: str
    operands: tuple[int, ...] = ()
    dtype: str = ""
    size: int = 0
    row: tuple[int, ...] | None = None
    clears: bool = False
    source: str = ""
    swaps: bool = False

    @property
    def makes(self) -> bool:
        """Whether the op makes a list."""
        return self.kind in ("array", "stack", "list", "of rows")


def _array(site: Site) -> ListUse | None:
    attrs, size = site.attrs, site.constant_input(0)
    dtype, shape = attrs["dtype"].name, attrs["element_shape"].sizes
    known = None if shape is None else all_known(shape)
    if size is None or attrs["dynamic_size"] or dtype not in COMPILED or size.ndim or size < 1:
        return None
    row = None if known is None else tuple(known)
    return ListUse("array", (), dtype, int(size), row, attrs["clear_after_read"])


def _simple(kind: str, *operands: int) -> Anchor:
    return Anchor("list", lambda site: ListUse(kind, operands))


def _all_rows(kind: str, *operands: int) -> Anchor:
    """An op on rows that must be all rows in order: how many there are, the builder checks."""

    def describe(site: Site) -> ListUse | None:
        indices = site.constant_input(NUMBERS)
        if indices is None or indices.ndim != 1 or not np.array_equal(indices, range(len(indices))):
            return None
        return ListUse(kind, operands, size=len(indices))

    return Anchor("list", describe)


def _stack(site: Site) -> ListUse | None:
    limit, dtype = site.constant_input(0), site.attrs["elem_type"].name
    unlimited = limit is not None and not limit.ndim and limit < 0
    return ListUse("stack", (), dtype) if unlimited and dtype in COMPILED else None


def _list(site: Site) -> ListUse | None:
    limit, dtype = site.constant_input(1), site.attrs["element_dtype"].name
    unlimited = limit is not None and not limit.ndim and limit < 0
    if not unlimited or dtype not in (*COMPILED, LISTS):
        return None
    return ListUse("list", (), dtype, swaps=site.attrs.get(SWAP_MEMORY, False))


def _push(site: Site) -> ListUse:
    return ListUse("push", (1,), swaps=site.attrs["swap_memory"])


def _gradient(site: Any) -> ListUse:
    return ListUse("gradient", (1,), source=site.attrs["source"])


def _rows(kind: str, *operands: int) -> Anchor:
    """An op between a list and an array that has its rows first."""

    def describe(site: Site) -> ListUse | None:
        size, *row = site.attrs["shape"].as_list()
        swaps = site.attrs.get("swaps", False)
        return ListUse(kind, operands, site.attrs["T"].name, size, tuple(row), swaps=swaps)

    return Anchor("list", describe)


ARRAY = Anchor("list", _array)
STACK = Anchor("list", _stack)
GRADIENT = Anchor("list", _gradient)
WRITE = _simple("write", 1, 2, 3)
READ = _simple("read", 1, 2)
SIZE = _simple("size", 1)
PUSH = Anchor("list", _push)
POP = _simple("pop")
LIST = Anchor("list", _list)
APPEND = _simple("append", 1)
REMOVE = _simple("remove")
ZEROS = _simple("zeros")
SCATTER = _all_rows("scatter", 2, 3)
GATHER = _all_rows("gather", 2)
ROWS = _rows("rows")
OF_ROWS = _rows("of rows", 0, 1)


class Row(NamedTuple):
    """Where an op on a list has the row that goes in or comes out; `stacked`: it has several."""

    index: int
    stacked: bool = False


_GIVEN: dict[Any, Row] = {WRITE: Row(2), SCATTER: Row(2, True), PUSH: Row(1), APPEND: Row(1)}
_TAKEN: dict[Any, Row] = {READ: Row(0), GATHER: Row(0, True), POP: Row(0), REMOVE: Row(1)}


def row_given(definition: Definition) -> Row | None:
    """The input that goes into a list; None if none does."""
    return _GIVEN.get(definition.lower) if definition.effect is Effect.LOCAL else None


def row_kept(definition: Definition) -> int | None:
    """The input that a tensor array keeps as it is, so that a variable's row shows the variable as
    it is when the row is read; None if there is none.
    """
    return _GIVEN[WRITE].index if definition.lower is WRITE else None


def row_taken(definition: Definition) -> Row | None:
    """The output that comes out of a list; None if none does."""
    return _TAKEN.get(definition.lower) if definition.effect is Effect.LOCAL else None


def makes(definition: Definition) -> bool:
    """Whether the list that an op gives is a new one: otherwise it's the one that it was given, or
    one with rows of the same shape.
    """
    passing = (APPEND, REMOVE, GRADIENT, ZEROS)
    return definition.effect is Effect.LOCAL and definition.lower not in passing
