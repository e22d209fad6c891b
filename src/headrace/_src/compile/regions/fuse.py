"""Fuse. In: a region. Out: its working nodes in groups, each of which becomes one kernel, in an
order that keeps little memory alive.

A group has an anchor or a reduction at its head (or neither: a map), and the element-wise nodes
that follow it in the same iteration space. They run on its result while that is in registers.
Updates of variables are element-wise nodes too, so an optimizer's update is fused with the gradient
it needs.

A node joins a group only if none of its other operands and controls, and no earlier reader of a
variable that it updates, depends on the group (`dependencies`). This keeps groups free of cycles.
"""

from __future__ import annotations

from math import prod

from headrace._src.compile.kernels.conv.conv_candidates import takes_pool
from headrace._src.compile.kernels.images.conv_geometry import geometry_of
from headrace._src.compile.regions.dependencies import Dependencies
from headrace._src.compile.regions.groups import (
    Group,
    Space,
    asks_position,
    has_fixed_order,
    is_again,
    program_of,
)
from headrace._src.compile.regions.layouts import Blocks
from headrace._src.compile.regions.region import (
    Region,
    Source,
    is_reference,
    operands_of,
    works,
    writes_of,
)
from headrace._src.compile.regions.schedule_groups import in_order
from headrace._src.graph.dataflow import Node, Value
from headrace._src.lowering.anchors import Contraction, contraction_of
from headrace._src.lowering.pointwise import Pointwise
from headrace._src.lowering.rules import (
    Anchor,
    Elementwise,
    Join,
    Reduce,
    Update,
    broadcast_view,
    operand_views,
    reduction_of,
    row_major,
)
from headrace._src.lowering.window_anchors import pooling_of

__all__ = ["fuse"]

_MOST_STEPS = 96  # steps of one group's program: longer ones cost compile time and registers
_HEAVY = {"exp", "log", "tanh", "sigmoid", "erf", "pow", "sin", "cos", "expm1", "log1p", "atan2"}
_FEW_ROWS, _LARGE_WEIGHTS = 32, 1 << 20  # of layers whose two gradients are one pass
_HEAVY_STEPS = 8  # what such a step counts


def fuse(region: Region, blocked: Blocks) -> list[Group]:
    """Group the region's nodes; `blocked` has the values that are kept in the blocked layout."""
    return _Fuser(region, blocked).run()


class _Fuser:
    def __init__(self, region: Region, blocked: Blocks) -> None:
        self.region = region
        self.blocked = blocked
        self.groups: list[Group] = []
        self.group_of: dict[Node, Group] = {}
        self._depends = Dependencies()
        self._bits: dict[Node, int] = {}
        self._readers: dict[int, list[Node]] = {}
        self._totals: set[Value] = set()  # sums over all rows, known when a group has ended
        self._escaping = {region.sources[v].base for v in region.outputs if v in region.sources}

    def run(self) -> list[Group]:
        for node in self.region.nodes:
            self._note_reads(node)
            if not works(node):
                self._bits[node] = self._through(node)
                continue
            group = self._place(node)
            self.group_of[node] = group
            self._bits[node] = 1 << group.number
        for group in list(self.groups):
            self._pair(group)
        live = [g for g in self.groups if not self._depends.is_gone(g.number)]
        waits = {g.number: self._depends.alive(self._depends.direct[g.number]) for g in live}
        return in_order(self.region, live, self.group_of, waits, self._escaping)

    # -- Nodes that do no work -------------------------------------------------------------------

    def _note_reads(self, node: Node) -> None:
        for value in self.region.data_inputs(node):
            source = self.region.sources.get(value)
            if source is not None and source.base in self.region.reads and works(node):
                self._readers.setdefault(self.region.reads[source.base], []).append(node)
        if isinstance(node.definition.lower, Anchor):
            for value in node.inputs:
                if is_reference(value):
                    self._readers.setdefault(self.region.variable(value), []).append(node)

    def _through(self, node: Node) -> int:
        """Return the dependencies of a node without work; the copies that it needs become
        groups.
        """
        bits = self._needs(node)
        for value in node.outputs:
            if value in self.region.copies or value in self.region.copied_reads:
                group = self._new("copy", Space(value.type.sizes or ()), bits)
                group.copied = value
                self.group_of[node] = group
                bits |= 1 << group.number
                if value in self.region.copied_reads:
                    self._readers.setdefault(self.region.reads[value], []).append(node)
        return bits

    def _needs(self, node: Node) -> int:
        bits = 0
        for value in (*node.inputs, *self.region.data_inputs(node)):
            bits |= self._bits.get(value.producer, 0)  # type: ignore[call-overload]
        for control in node.controls:
            bits |= self._bits.get(control, 0)
        for reference in writes_of(node):
            for reader in self._readers.get(self.region.variable(reference), ()):
                if reader is not node:
                    bits |= self._bits[reader]
        return self._depends.alive(bits)

    # -- Placing a node --------------------------------------------------------------------------

    def _place(self, node: Node) -> Group:
        needs = self._needs(node)
        rule = node.definition.lower
        if isinstance(rule, Elementwise | Update):
            space = self._space(node)
            cost = _cost(program_of(node))
            for group in self._hosts(node, space, cost):
                if self._depends.allows(group.number, needs):
                    self._depends.join(group.number, needs & ~self._take_maps(group, node))
                    group.nodes.append(node)
                    group.steps += cost
                    return group
            group = self._new("map", space, needs)
            group.steps = cost
        elif isinstance(rule, Reduce):
            group = self._reduce(node, needs)
        elif isinstance(rule, Join):
            group = self._new("join", Space(node.output_shapes[0]), needs)
        else:
            assert isinstance(rule, Anchor)
            host = self._before_pool(node)
            if host is not None and self._depends.allows(host.number, needs):
                self._depends.join(host.number, needs)
                host.pool = node
                host.nodes.append(node)
                return host
            group = self._new(rule.family, Space(()), needs)
            group.nodes.append(node)
            if node.outputs:
                result = group.result
                group.space = Space(result.type.sizes or (), self.blocked.of(result))
            return group
        group.nodes.append(node)
        return group

    def _before_pool(self, node: Node) -> Group | None:
        """Return the group of the convolution whose last value only this 2 x 2 max-pool reads."""
        geometry = pooling_of(node)
        if geometry is None or (geometry.kind, geometry.direction) != ("max", "forward"):
            return None
        tiles = all(
            (w.taps, w.stride, w.before) == (2, 2, 0) and w.size % 2 == 0
            for w in (geometry.h, geometry.w)
        )
        source = self.region.sources[node.inputs[0]]
        value = source.base
        group = self.group_of.get(value.producer)  # type: ignore[arg-type]
        if not tiles or source.view is not None or group is None or group.pool is not None:
            return None
        if group.kind != "convolution" or value not in self.blocked or value in self._escaping:
            return None
        convolution = group.head.geometry
        if convolution is None or convolution.direction != "forward":
            return None
        geometry = geometry_of(convolution, self.blocked.size)
        if not takes_pool(geometry) or not self._has_only(group, value):
            return None
        return group if self.region.consumers[value] == [node] else None

    def _space(self, node: Node) -> Space:
        rule = node.definition.lower
        if isinstance(rule, Update):
            found = node.variable_type(0)
            assert found is not None
            return Space(found[1])
        return Space(node.output_shapes[0], self.blocked.of(node.outputs[0]))

    def _hosts(self, node: Node, space: Space, cost: int) -> list[Group]:
        """The groups that could take an element-wise node, the best first."""
        found: dict[Group, None] = {}
        for value in operands_of(node):
            source = self.region.sources[value]
            group = self.group_of.get(source.base.producer)  # type: ignore[arg-type]
            if group is not None and (source.view is None or group.kind == "rows"):
                found[group] = None
        hosts = [
            g
            for g in found
            if g.fuses
            and g.pool is None
            and is_again(g.head) == is_again(node)
            and (g.space == space or (g.kind == "rows" and space.shape in g.row_shapes))
            and g.steps + cost <= _MOST_STEPS
            and self._fits(g, node)
        ]
        return sorted(hosts, key=lambda g: (g.kind == "map", -g.number))

    def _fits(self, group: Group, node: Node) -> bool:
        """Return whether a group's kernel can read the node's operands in its own loop."""
        if not (self._updates_safely(group, node) and self._reads_directly(group, node)):
            return False
        if group.kind == "map":
            return True
        if asks_position(node) or not _broadcasts(node):
            return False
        if group.kind == "batch_norm":  # whose last part is a map
            image = len(group.head.inputs[0].type.sizes or ()) == 4
            return image and group.head.geometry.direction == "forward"
        if group.kind == "rows":
            return not isinstance(node.definition.lower, Update)
        if group.is_anchor and not self._is_last_reader(group, node):
            return False
        if group.kind == "cross_entropy":  # whose last part goes over rows
            return not isinstance(node.definition.lower, Update)
        return all(self._is_simple(v, group.space) for v in operands_of(node))

    def _reads_directly(self, group: Group, node: Node) -> bool:
        """Return whether the node reads the group's values element by element, or one per row. They
        must have the node's own shape or, per row, a last dimension of 1. Without that dimension
        they would broadcast over columns, of which a square matrix has as many as rows.
        """
        shape = self._space(node).shape
        row = group.row_shapes[1] if shape == group.space.shape else shape
        for value in operands_of(node):
            source = self.region.sources[value]
            if self.group_of.get(source.base.producer) is not group:  # type: ignore[arg-type]
                continue
            if source.base.type.sizes != group.space.shape:
                per_row = group.kind == "rows" and source.base not in self._totals
                if not (per_row and _is_dense(source) and value.type.sizes == row):
                    return False
            elif source.view is not None or value.type.sizes != group.space.shape:
                return False
        return True

    def _updates_safely(self, group: Group, *nodes: Node) -> bool:
        """Return whether the group and the nodes read the variables that they update only at the
        elements that they write.
        """
        members = (*group.before, *group.nodes, *nodes)
        variables = {
            self.region.variable(member.inputs[i])
            for member in members
            if isinstance(rule := member.definition.lower, Update)
            for i in range(rule.variables)
        }
        if not variables:
            return True
        for member in members:
            pointwise = isinstance(member.definition.lower, Elementwise | Update)
            for value in member.inputs:
                source = self.region.sources.get(value)
                if source is None or source.base in self.region.copied_reads:
                    continue
                if self.region.reads.get(source.base) in variables and not (
                    pointwise and source.view is None and value.type.sizes == group.space.shape
                ):
                    return False
        return True

    def _is_last_reader(self, group: Group, node: Node) -> bool:
        """Return whether only its own group reads an anchor's result."""
        result = group.result
        if result in self._escaping:
            return False
        members = {*group.nodes, node}
        return all(n in members for n in self.region.consumers[result])

    def _is_simple(self, value: Value, space: Space) -> bool:
        """Return whether an epilogue can read a value: per element, per channel, or as a scalar."""
        source = self.region.sources[value]
        sizes = value.type.sizes or ()
        if not sizes or prod(sizes) == 1:
            return True
        if sizes == space.shape:
            return _is_dense(source) and self.blocked.of(source.base) == space.block
        channel = sizes[-1] == space.shape[-1] and prod(sizes) == sizes[-1]
        return channel and _is_dense(source)

    def _new(self, kind: str, space: Space, needs: int) -> Group:
        group = Group(len(self.groups), kind, space)
        self.groups.append(group)
        self._depends.add(needs)
        return group

    def _reduce(self, node: Node, needs: int) -> Group:
        """Fuse a reduction with the map that computes its input, if that has no other reader."""
        rows = self._over_rows(node, needs)
        if rows is not None:
            return rows
        shape = Space(node.output_shapes[0])
        host = self._map_for(node, node.inputs[0])
        if host is None or any(map(asks_position, host.nodes)):
            return self._new("reduce", shape, needs)
        bits = (needs & ~(1 << host.number)) | self._depends.direct[host.number]
        group = self._new("reduce", shape, bits)
        group.before = host.nodes
        self._absorb(group, host)
        return group

    def _map_for(self, node: Node, value: Value) -> Group | None:
        """Return the map that computes only `value`, and only for this node."""
        source = self.region.sources[value]
        base = source.base
        host = self.group_of.get(base.producer)  # type: ignore[arg-type]
        alone = (
            host is not None
            and source.view is None
            and host.kind == "map"
            and not is_again(host.head)
            and base not in self._escaping
            and all(n is node or n in host.nodes for n in self.region.consumers[base])
            and self._has_only(host, base)
            and not self._depends.dependents(host.number)  # such as an update of what the map reads
        )
        return host if alone else None

    def _take_maps(self, group: Group, node: Node) -> int:
        """Absorb the maps that compute the other operands of a node that joins a map; return them
        as bits.
        """
        taken = 0
        takes = group.kind == "map" and not is_again(node)
        for value in operands_of(node) if takes else ():
            host = self._map_for(node, value)
            if host is None or host is group or host.space != group.space:
                continue
            needs = self._depends.direct[host.number]
            if (
                group.steps + host.steps <= _MOST_STEPS
                and not needs >> group.number & 1
                and self._depends.allows(group.number, needs)
                and self._updates_safely(group, node, *host.nodes)
            ):
                self._depends.join(group.number, needs)
                group.nodes[:0] = host.nodes
                self._absorb(group, host)
                taken |= 1 << host.number
        return taken

    def _absorb(self, group: Group, host: Group) -> None:
        """Merge a map without dependents into `group`."""
        group.steps += host.steps
        self._depends.absorb(host.number, group.number)
        for member in host.nodes:
            self.group_of[member] = group
            self._bits[member] = 1 << group.number

    def _over_rows(self, node: Node, needs: int) -> Group | None:
        """Return the group over rows that a reduction of rows, or over all rows, can join."""
        reduction = reduction_of(node.definition.lower, node)  # type: ignore[arg-type]
        assert reduction is not None
        shape = node.input_shapes[0]
        last = len(shape) - 1
        of_rows = reduction.axes == (last,)
        total = reduction.axes == tuple(range(last)) and reduction.combine == "sum"
        total = total and not reduction.after.steps
        if last < 1 or not (of_rows or total) or reduction.combine.startswith("arg"):
            return None
        if has_fixed_order(reduction.combine, reduction.before.output_dtypes[0]):
            return None
        if not 8 <= shape[last] <= 16384 or prod(shape[:last]) < 16:
            return None
        source = self.region.sources[node.inputs[0]]
        if source.base in self.blocked or node.input_dtypes[0] not in ("float32", "float64"):
            return None
        host = self.group_of.get(source.base.producer)  # type: ignore[arg-type]
        joins = (
            host is not None
            and source.view is None
            and self._can_host_rows(host, shape, total)
            and self._depends.allows(host.number, needs)
        )
        if host is not None and joins:
            self._depends.join(host.number, needs)
            host.kind = "rows"
            if total:
                self._totals.add(node.outputs[0])
            return host
        if total or (host is not None and host.kind == "rows"):
            return None
        return self._new("rows", Space(shape), needs)

    def _can_host_rows(self, host: Group, shape: tuple[int, ...], total: bool) -> bool:
        if host.space != Space(shape) or host.kind not in ("map", "rows"):
            return False
        if is_again(host.head):
            return False
        if host.kind == "map" and (total or any(map(asks_position, host.nodes))):
            return False
        return not any(isinstance(n.definition.lower, Update) for n in host.nodes)

    def _has_only(self, group: Group, value: Value) -> bool:
        """Return whether `value` is the only value of a map that is read outside it."""
        members = set(group.nodes)
        for node in group.nodes:
            if isinstance(node.definition.lower, Update):
                return False
            for output in node.outputs:
                if output is value:
                    continue
                if output in self._escaping or any(
                    n not in members for n in self.region.consumers[output]
                ):
                    return False
        return True

    # -- Twins -----------------------------------------------------------------------------------

    def _pair(self, update: Group) -> None:
        """Join X^T dY, with the update of the weights W, to dY W^T, which reads W before."""
        product = contraction_of(update.head) if update.kind == "contraction" else None
        if product is None or (product.transpose_x, product.transpose_y) != (True, False):
            return
        if product.batch or product.k > _FEW_ROWS or product.m * product.n < _LARGE_WEIGHTS:
            return
        written = [n for n in update.nodes if isinstance(n.definition.lower, Update)]
        if len(written) != 1 or written[0].definition.lower.variables != 1:  # type: ignore[union-attr]
            return
        variable = self.region.variable(written[0].inputs[0])
        dy = self.region.sources[update.head.inputs[1]]
        for node in self._readers.get(variable, ()):
            group = self.group_of[node]
            if (
                group.head is node
                and group.kind == "contraction"
                and group.twin is None
                and self._is_input_gradient(node, dy, product)
            ):
                self._merge(group, update)
                return

    def _is_input_gradient(self, node: Node, dy: Source, product: Contraction) -> bool:
        g = contraction_of(node)
        return (
            g is not None
            and (g.transpose_x, g.transpose_y, g.batch) == (False, True, ())
            and (g.m, g.n, g.k) == (product.k, product.m, product.n)
            and self.region.sources[node.inputs[0]] == dy
        )

    def _merge(self, group: Group, update: Group) -> None:
        depends = self._depends
        needs = depends.direct[update.number] & ~(1 << group.number)
        if not depends.allows(group.number, needs) or depends.dependents(update.number) & needs:
            return
        depends.join(group.number, needs)
        depends.merge(update.number, group.number)
        group.twin = update
        for member in update.nodes:
            self.group_of[member] = group


def _broadcasts(node: Node) -> bool:
    """Return whether an element-wise node's operands broadcast to its result by NumPy's rules."""
    rule = node.definition.lower
    if not isinstance(rule, Elementwise) or rule.views is None:
        return True
    shape = node.output_shapes[0]
    usual = tuple(broadcast_view(v.type.sizes or (), shape) for v in operands_of(node))
    return operand_views(rule, node) == usual


def _cost(program: Pointwise) -> int:
    return sum(_HEAVY_STEPS if s.opcode in _HEAVY else 1 for s in program.steps)


def _is_dense(source: Source) -> bool:
    view = source.view
    return view is None or view.strides == row_major(view.shape)
