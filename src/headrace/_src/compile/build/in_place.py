"""Choose values to compute directly into a larger buffer. In: a region and its groups. Out: the
home of each such value.

A group computes a piece of a join at its place in the join's result where it can, which saves the
copy. A contiguous piece is a part of the join's buffer and may have other readers. A strided piece
is written there by a map, if the join is its only reader.

The gradient of a softmax loss takes the place of the logits if nothing else reads them or a part of
them: in a language model both are the largest arrays. No value has two homes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from headrace._src.compile.plan.pack_arena import ALIGNMENT
from headrace._src.compile.regions.groups import Group
from headrace._src.compile.regions.region import Region, Source
from headrace._src.devices.target import SIZES
from headrace._src.graph.dataflow import Value
from headrace._src.lowering.rules import View, assembly_of, row_major

__all__ = ["Home", "homes_of"]


@dataclass(frozen=True, slots=True)
class Home:
    """The view of another value's buffer in which a value is computed."""

    whole: Value
    view: View

    @property
    def is_dense(self) -> bool:
        return _is_dense(self.view)


def homes_of(
    region: Region, groups: Sequence[Group], elsewhere: Collection[Value]
) -> dict[Value, Home]:
    """Return the homes of values; values of `elsewhere` have other places."""
    made = {v: g for g in groups if g.fills_parts for n in g.nodes for v in n.outputs}
    found = [
        pair for g in groups for pair in (*_pieces(region, g, made), *_gradients(region, g, made))
    ]
    homes: dict[Value, Home] = {}
    for value, home in found:
        if not {value, home.whole} & {*elsewhere} and value not in homes:
            homes[value] = home
    return homes


def _pieces(
    region: Region, group: Group, made: Mapping[Value, Group]
) -> Iterator[tuple[Value, Home]]:
    """Yield the pieces that can be computed in a join's result."""
    node = group.head if group.kind == "join" else None
    assembly = assembly_of(node.definition.lower, node) if node is not None else None  # type: ignore[arg-type]
    if node is None or assembly is None or assembly.fill is not None:  # which is stored last
        return
    for number, view in assembly.pieces:
        source, home = region.source(node.inputs[number]), Home(node.outputs[0], view)
        if source.base in made and _fits(region, made[source.base], source, home):
            yield source.base, home


def _gradients(
    region: Region, group: Group, made: Mapping[Value, Group]
) -> Iterator[tuple[Value, Home]]:
    """Yield the gradients that can be computed in the place of logits."""
    if group.kind != "cross_entropy":
        return
    logits, sizes = region.source(group.head.inputs[0]), group.space.shape
    last = logits.view is None and region.consumers[logits.base] == [group.head]
    gradient, maker = _gradient(region, group), made.get(logits.base)
    whole = maker is not None and maker.kind != "join"  # whose pieces others may read later
    if gradient is not None and last and whole:
        yield gradient, Home(logits.base, View(sizes, row_major(sizes)))


def _gradient(region: Region, group: Group) -> Value | None:
    """Return the loss's only result of the logits' size and type; None if there are several."""
    found = [
        v for n in group.nodes for v in n.outputs
        if v.type == group.result.type and not {*group.nodes}.issuperset(region.consumers[v])
    ]  # fmt: skip
    return found[0] if len(found) == 1 else None


def _fits(region: Region, maker: Group, source: Source, home: Home) -> bool:
    """Return whether a group can compute a whole piece in its home."""
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
