"""Values that are made inside of others. In: a region and its groups. Out: where.

A piece of a join is made at its place in the join's result, if a group can do that: then nobody
copies it there. One that lies together may be read by others too: it's a part of the join's buffer.
One that lies in rows apart is made there by a map, if the join is all that reads it.

The slope of a softmax's loss takes the place of the logits, if nobody else reads these: there are
as many as words in a language, for each word of a text. No value has two homes.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import prod

from headrace.compile.groups import Group
from headrace.compile.memory import ALIGNMENT
from headrace.compile.region import Region, Source
from headrace.compile.target import SIZES
from headrace.graph.dataflow import Value
from headrace.graph.lowering import View, assembly_of, row_major

__all__ = ["Home", "homes_of"]

_KINDS = ("map", "reduce", "rows", "contraction", "join")  # of groups that can make a part


@dataclass(frozen=True, slots=True)
class Home:
    """The view of another value's buffer in which one is made."""

    whole: Value
    view: View

    @property
    def is_dense(self) -> bool:
        return _is_dense(self.view)


def homes_of(
    region: Region, groups: Sequence[Group], elsewhere: Collection[Value]
) -> dict[Value, Home]:
    """The homes of values; those of `elsewhere` have other places."""
    made = {
        v: g for g in groups if g.kind in _KINDS for n in g.nodes for v in n.outputs
        if v not in elsewhere
    }  # fmt: skip
    homes: dict[Value, Home] = {}
    for group in groups:
        join = group.head.outputs[0] if group.kind == "join" else None
        if join is None or join in elsewhere:
            continue
        assembly = assembly_of(group.head.definition.lower, group.head)  # type: ignore[arg-type]
        if assembly is None or assembly.fill is not None:  # which is stored last
            continue
        for number, view in assembly.pieces:
            source = region.source(group.head.inputs[number])
            base, home = source.base, Home(join, view)
            if base in made and base not in homes and _fits(region, made[base], source, home):
                homes[base] = home
    for group in groups:
        slope = _slope(region, group) if group.kind == "cross_entropy" else None
        logits = region.source(group.head.inputs[0]) if slope is not None else None
        if slope is None or logits is None or {slope, logits.base} & {*elsewhere, *homes}:
            continue
        if logits.base in made and _is_last(region, logits, group):
            sizes = group.space.shape
            homes[slope] = Home(logits.base, View(sizes, row_major(sizes)))
    return homes


def _slope(region: Region, group: Group) -> Value | None:
    """The array of all logits' size and type that a loss gives; None if there are several."""
    found = [
        v for n in group.nodes for v in n.outputs
        if v.type == group.result.type and not {*group.nodes}.issuperset(region.consumers[v])
    ]  # fmt: skip
    return found[0] if len(found) == 1 else None


def _is_last(region: Region, source: Source, group: Group) -> bool:
    """Whether a group's head is all that reads the whole of a source's base."""
    return source.view is None and region.consumers[source.base] == [group.head]


def _fits(region: Region, maker: Group, source: Source, home: Home) -> bool:
    """Whether a group can make all of a piece at home."""
    base, view = source.base, home.view
    if home.is_dense:
        aligned = view.offset * SIZES[base.dtype.base_dtype.name] % ALIGNMENT == 0
        return aligned and _is_whole(source)
    alone = region.consumers[base] == [home.whole.producer]
    return maker.kind == "map" and alone and source.view is None and view.strides[-1] == 1


def _is_whole(source: Source) -> bool:
    """Whether a source is all of its base, in order."""
    view, sizes = source.view, source.base.type.sizes or ()
    if view is None:
        return True
    return not view.offset and _is_dense(view) and prod(view.shape) == prod(sizes)


def _is_dense(view: View) -> bool:
    dense = row_major(view.shape)
    return all(s == d for s, d, n in zip(view.strides, dense, view.shape, strict=True) if n > 1)
