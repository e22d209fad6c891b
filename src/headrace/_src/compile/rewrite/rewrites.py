"""Rewrites that only the compiler profits from. In: a Dataflow. Out: an equal one.

`mask_before_unpooling`: the gradient of relu behind the gradient of a max-pool,
relu_grad(pool_grad(x, y, dy), x), is pool_grad(x, y, relu_grad(dy, y)): a window's gradient goes to
its maximum, which is positive if the maximum is. The mask then works on the pool's output, which is
smaller, and only the pool reads the convolution's output.

`join_products`: the sum of x_i^T y_i becomes one product of all x_i stacked with all y_i stacked.
Such sums are the gradients of a weight that an unrolled network uses in every step; the weight's
gradient is then written once instead of once per step.

`join_pieces`: a sum of arrays that are zero except for adjacent pieces becomes the join of these
pieces. Such sums are the gradients of slices.

`spread_products`: a matrix product whose inner dimension is 1, x y^T of two vectors, becomes
element-wise.

`sum_once`: the sum of a repeated array becomes the sum of the array times the number of
repetitions; its mean becomes the mean of the array.

`reserve_samples`: a random op with a generator of its own becomes two nodes. The first keeps the
name, by which the op's state is found, and reserves the samples of this run; the interpreter runs
it. The second is a pure function of the first sample's position and can be compiled.

`look_at_divisors`: in loops and branches, a node checks an integer divisor that the step computes
before it is used.

`cut_pieces`: an op whose views depend on numbers that the step computes becomes the node that its
rule gives for that case.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, reduce
from itertools import accumulate
from math import prod
from operator import add

import numpy as np

from headrace._src.compile.regions.groups import program_of
from headrace._src.compile.rewrite.widen import casts_to
from headrace._src.core.config import settings
from headrace._src.core.dtypes import as_dtype
from headrace._src.graph.dataflow import Dataflow, Node, Value, ValueType, map_parts
from headrace._src.graph.definition import Definition, lookup
from headrace._src.lowering.anchors import Contraction, Random, contraction_of
from headrace._src.lowering.pointwise import FLOATS, Pointwise, record
from headrace._src.lowering.rules import (
    Elementwise,
    Join,
    Move,
    Reduce,
    ReductionGeometry,
    View,
    assembly_of,
    broadcast_view,
    pointwise_of,
    reduction_of,
    row_major,
    views_of,
)
from headrace._src.lowering.window_anchors import pooling_of
from headrace._src.ops.base.internal import NUMBERS, RESERVE
from headrace._src.ops.base.simplify_rules import constant_node
from headrace._src.ops.math.division import DIVISOR

__all__ = [
    "cut_pieces", "join_pieces", "join_products", "look_at_divisors", "mask_before_unpooling",
    "reserve_samples", "spread_products", "sum_once",
]  # fmt: skip

# Types that can represent any number of repetitions, or in which it wraps as the sum does.
_SUMMED = ("float32", "float64", "int64")

# A node, and how often each value is used -> the nodes to put in its place; the last one's outputs
# are its outputs.
Rule = Callable[[Node, Counter[Value]], list[Node] | None]


def mask_before_unpooling(flow: Dataflow) -> Dataflow:
    """Move the masks of relu in front of the gradients of max-pools."""
    return _replace(flow, _unpool_masked)


def join_products(flow: Dataflow) -> Dataflow:
    """Make one product of sums of products that are gradients of one weight. Not under strict
    accuracy: the products may be on several devices, where they are added one by one.
    """
    return flow if _is_strict() else _replace(flow, _joined)


def join_pieces(flow: Dataflow) -> Dataflow:
    """Join arrays that were padded in order to be summed."""
    return _replace(flow, _put_together)


def spread_products(flow: Dataflow) -> Dataflow:
    """Multiply vectors element by element."""
    return _replace(flow, _spread)


def sum_once(flow: Dataflow) -> Dataflow:
    """Sum an array before it is broadcast, not after. Not under strict accuracy: the sum may be on
    another device than the broadcast.
    """
    return flow if _is_strict() else _replace(flow, _summed_once)


def reserve_samples(flow: Dataflow) -> Dataflow:
    """Split random ops into a node that advances the generator and one that draws the numbers."""
    return _replace(flow, _reserved)


def cut_pieces(flow: Dataflow) -> Dataflow:
    """Replace slices at computed positions by anchors whose kernels read the positions."""
    return _replace(flow, _cut)


def look_at_divisors(flow: Dataflow) -> Dataflow:
    """Make native code report a division of integers by 0 in a loop or branch."""
    return map_parts(flow, lambda part: _replace(part, _looked_at))


def _is_strict() -> bool:
    return settings().accuracy == "strict"


def _replace(flow: Dataflow, rule: Rule) -> Dataflow:
    uses: Counter[Value] = Counter(v for n in flow.nodes for v in n.inputs)
    uses.update(flow.fetches)
    values: dict[Value, Value] = {}
    nodes: dict[Node, Node] = {}
    kept: list[Node] = []
    for node in flow.nodes:
        inputs = tuple(values.get(v, v) for v in node.inputs)
        controls = tuple(dict.fromkeys(nodes.get(c, c) for c in node.controls))
        stays = node
        if inputs != node.inputs or controls != node.controls:
            stays = replace(node, inputs=inputs, controls=controls)
        known = all(v.type.sizes is not None for v in (*stays.inputs, *stays.outputs))
        added = (rule(stays, uses) if known else None) or [stays]
        kept += added
        if added[-1] is not node:
            nodes[node] = added[-1]
            values.update(zip(node.outputs, added[-1].outputs, strict=True))
            for old, new in zip(node.outputs, added[-1].outputs, strict=True):
                uses[new] = uses[old]
    return replace(
        flow,
        nodes=tuple(kept),
        fetches=tuple(values.get(v, v) for v in flow.fetches),
        targets=tuple(nodes.get(t, t) for t in flow.targets),
    )


def _unpool_masked(node: Node, uses: Counter[Value]) -> list[Node] | None:
    if not isinstance(node.definition.lower, Elementwise) or len(node.inputs) != 2:
        return None
    unpooling = node.inputs[0].producer
    if not isinstance(unpooling, Node) or uses[node.inputs[0]] > 1:
        return None
    geometry = pooling_of(unpooling)
    if geometry is None or (geometry.kind, geometry.direction) != ("max", "gradient"):
        return None
    dtype = node.output_dtypes[0]
    relu_grad = record(lambda e, dy, x: dy * e.cast(x > 0, dtype), [dtype, dtype])
    x, y, dy = unpooling.inputs
    if node.inputs[1] is not x or program_of(node) != relu_grad:
        return None
    mask = replace(node, name=f"{node.name}/pooled", inputs=(dy, y), types=(y.type,))
    return [mask, replace(unpooling, name=node.name, inputs=(x, y, mask.outputs[0]))]


def _summands(node: Node, uses: Counter[Value]) -> list[Node] | None:
    """Return the nodes whose results a node adds up, if it is their only reader; else None."""
    rule = node.definition.lower
    if not isinstance(rule, Elementwise) or len(node.inputs) < 2 or node.constant is not None:
        return None
    found = [v.producer for v in node.inputs if isinstance(v.producer, Node) and uses[v] == 1]
    if len(found) < len(node.inputs) or any(v.type != node.types[0] for v in node.inputs):
        return None  # others use them, or they are broadcast or compared
    total = record(lambda e, *xs: reduce(add, xs), node.input_dtypes)
    return found if pointwise_of(rule, node) == total else None  # type: ignore[return-value]


def _joined(node: Node, uses: Counter[Value]) -> list[Node] | None:
    # Gradients come last step first: reversed, the operands are in the order of the network.
    summands = (_summands(node, uses) or [])[::-1]
    products = [_widened(n, uses) or n for n in summands]  # of narrow numbers in mixed precision
    shapes = [_outer_product(p) for p in products]
    count = len(products)
    if not count or None in shapes or len({p.types[0] for p in products}) > 1:
        return None
    depth = sum(s.k for s in shapes if s is not None)
    m, n = node.output_shapes[0]
    if depth * (m + n) > count * m * n:
        return None  # the operands are larger than what is saved
    added: list[Node] = []
    sides = []
    for side in (0, 1):
        parts = [p.inputs[side] for p in products]
        added += _beside_each_other(parts, 0, f"{node.name}/operand{side}")
        sides.append(added[-1].outputs[0])
    operands: tuple[Value, ...] = tuple(sides)
    if products[0] is not summands[0]:
        added.append(replace(products[0], name=f"{node.name}/product", inputs=operands))
        operands = added[-1].outputs
    added.append(replace(summands[0], name=node.name, inputs=operands, controls=node.controls))
    return added


def _widened(node: Node, uses: Counter[Value]) -> Node | None:
    """Return the node whose narrow result a node only casts to float32; None for other nodes."""
    if casts_to(node) != "float32" or node.controls or uses[node.inputs[0]] != 1:
        return None
    found = node.inputs[0].producer
    return found if isinstance(found, Node) else None


def _outer_product(node: Node) -> Contraction | None:
    """The geometry of x^T y; None for everything else."""
    if node.controls or any(v.type.sizes is None for v in node.inputs):
        return None
    g = contraction_of(node)
    return g if g is not None and not g.batch and g.transpose_x and not g.transpose_y else None


def _beside_each_other(values: Sequence[Value], axis: int, name: str) -> list[Node]:
    along = constant_node(np.array(axis, np.int32), f"{name}/axis")
    first = values[0].type
    sizes = list(first.sizes or ())
    sizes[axis] = sum(v.type.sizes[axis] for v in values)  # type: ignore[index]
    attrs = {"N": len(values), "T": first.dtype, "Tidx": along.types[0].dtype}
    result = ValueType(first.dtype, tuple(sizes))
    inputs = (*values, along.outputs[0])
    return [along, Node(lookup("ConcatV2"), name, attrs, inputs, (), (result,))]


def _put_together(node: Node, uses: Counter[Value]) -> list[Node] | None:
    summands = _summands(node, uses)
    pieces = [_piece(n) for n in summands or ()]
    if not pieces or None in pieces:
        return None
    sizes = node.output_shapes[0]
    found = sorted(((view.offset, view, v) for view, v in pieces), key=lambda p: p[0])  # type: ignore[misc]
    if any(len(view.shape) != len(sizes) for _, view, _ in found):
        return None  # slices that have lost an axis
    axes = {d for _, view, _ in found for d, n in enumerate(sizes) if view.shape[d] < n}
    if len(axes) != 1 or any(view.strides != row_major(sizes) for _, view, _ in found):
        return None
    (axis,) = axes
    ends = list(accumulate((view.shape[axis] for _, view, _ in found), initial=0))
    starts = [offset // row_major(sizes)[axis] for offset, _, _ in found]
    if ends != [*starts, sizes[axis]]:
        return None
    if not _is_strict():
        added = _beside_each_other([v for _, _, v in found], axis, node.name)
        return [*added[:-1], replace(added[-1], controls=node.controls, origin=node.origin)]
    # The sum adds zeros to each piece: what was -0.0 becomes 0.0.
    added = _beside_each_other([v for _, _, v in found], axis, f"{node.name}/pieces")
    zero = constant_node(np.zeros((), node.types[0].dtype.numpy), f"{node.name}/zero")
    operands = (added[-1].outputs[0], zero.outputs[0])
    attrs = {"T": node.types[0].dtype}
    total = Node(
        lookup("AddV2"), node.name, attrs, operands, node.controls, node.types, node.origin
    )
    return [*added, zero, total]


def _piece(node: Node) -> tuple[View, Value] | None:
    """Return the array that a node pads with zeros, and its place; None for other nodes."""
    rule = node.definition.lower
    if not isinstance(rule, Join) or node.constant is not None or node.controls:
        return None
    if any(v.type.sizes is None for v in node.inputs):
        return None
    assembly = assembly_of(rule, node)
    if assembly is None or assembly.fill != 0 or len(assembly.pieces) != 1:
        return None
    ((number, view),) = assembly.pieces
    return view, node.inputs[number]


def _spread(node: Node, uses: Counter[Value]) -> list[Node] | None:
    g = contraction_of(node) if node.constant is None else None
    if g is None or g.batch or g.k != 1 or g.precision:
        return None
    if node.output_dtypes[0] not in ("float32", "float64"):
        return None
    added: list[Node] = []
    operands = []
    for number, (turned, shape) in enumerate(
        ((g.transpose_x, (g.m, 1)), (g.transpose_y, (1, g.n)))
    ):
        value = node.inputs[number]
        if turned:
            name = f"{node.name}/operand{number}"
            dims = constant_node(np.array(shape, np.int32), f"{name}/shape")
            attrs = {"T": value.dtype, "Tshape": dims.types[0].dtype}
            inputs, types = (value, dims.outputs[0]), (ValueType(value.dtype, shape),)
            added += [dims, Node(lookup("Reshape"), name, attrs, inputs, (), types, node.origin)]
            value = added[-1].outputs[0]
        operands.append(value)
    attrs = {"T": node.types[0].dtype}
    product = Node(
        lookup("Mul"), node.name, attrs, tuple(operands), node.controls, node.types, node.origin
    )
    return [*added, product]


def _summed_once(node: Node, uses: Counter[Value]) -> list[Node] | None:
    rule = node.definition.lower
    if not isinstance(rule, Reduce) or rule.combine != "sum" or node.constant is not None:
        return None
    given = _before_broadcast(node.inputs[0])
    reduction = reduction_of(rule, node) if given is not None else None
    if given is None or reduction is None or node.output_dtypes[0] not in _SUMMED:
        return None
    sizes = node.input_shapes[0]
    once = (*[1] * (len(sizes) - len(given.type.sizes or ())), *(given.type.sizes or ()))
    repeated = [d for d in reduction.axes if once[d] < sizes[d]]
    means = _is_mean(reduction, prod(sizes[d] for d in reduction.axes))
    if not repeated or not (means or _only_casts(reduction.after)):
        return None
    if not _only_casts(reduction.before):
        return None
    name, value = node.name, node.inputs[0]
    shape = [1 if d in repeated else n for d, n in enumerate(sizes)]
    dims = constant_node(np.array(shape), f"{name}/shape")
    attrs = {"T": value.dtype, "Tidx": dims.types[0].dtype}
    inputs, types = (given, dims.outputs[0]), (ValueType(value.dtype, tuple(shape)),)
    spread = Node(lookup("BroadcastTo"), f"{name}/once", attrs, inputs, (), types, node.origin)
    summed = replace(node, inputs=(spread.outputs[0], *node.inputs[1:]))
    if means:
        return [dims, spread, summed]
    summed = replace(summed, name=f"{name}/sum")
    times = np.array(prod(sizes[d] for d in repeated), node.types[0].dtype.numpy)
    often = constant_node(times, f"{name}/times")
    operands = (summed.outputs[0], often.outputs[0])
    attrs = {"T": node.types[0].dtype}
    product = Node(lookup("Mul"), name, attrs, operands, (), node.types, node.origin)
    return [dims, spread, summed, often, product]


def _before_broadcast(value: Value) -> Value | None:
    """Return the array that was broadcast to give a value; None if it wasn't broadcast."""
    source = value.producer
    rule = source.definition.lower if isinstance(source, Node) else None
    if not isinstance(source, Node) or not isinstance(rule, Move) or source.constant is not None:
        return None
    if source.controls or any(v.type.sizes is None for v in source.inputs):
        return None
    given = source.inputs[rule.operand]
    usual = broadcast_view(given.type.sizes or (), value.type.sizes or ())
    return given if usual is not None and views_of(rule, source) == (usual,) else None


def _only_casts(program: Pointwise) -> bool:
    return all(s.opcode == "cast" for s in program.steps)


def _is_mean(reduction: ReductionGeometry, count: int) -> bool:
    """Whether a sum is divided by the number of its terms, all in floating numbers."""
    steps = [s for s in reduction.after.steps if s.opcode != "cast"]
    floating = all(t in FLOATS for t in reduction.after.inputs)
    numbers = [s.immediate for s in steps if s.opcode == "const"]
    return floating and numbers == [count] and [s.opcode for s in steps] == ["const", "div"]


def _reserved(node: Node, uses: Counter[Value]) -> list[Node] | None:
    g = node.geometry if node.constant is None else None
    if not isinstance(g, Random) or g.source != "own":
        return None
    seed, seed2 = g.seeds
    attrs = {"seed": seed, "seed2": seed2, "count": g.count}
    stream = ValueType(as_dtype("uint64"), (3,))
    reserve = Node(RESERVE, node.name, attrs, (), node.controls, (stream,), node.origin)
    attrs = {
        "distribution": g.distribution,
        "shape": node.output_shapes[0],
        "bounds": g.bounds,
        "dtype": node.types[0].dtype,
    }
    name, drawn = f"{node.name}/numbers", reserve.outputs
    return [reserve, Node(NUMBERS, name, attrs, drawn, node.controls, node.types, node.origin)]


def _looked_at(node: Node, uses: Counter[Value]) -> list[Node] | None:
    rule = node.definition.lower
    if not isinstance(rule, Elementwise) or rule.divisor is None or node.constant is not None:
        return None
    divisor = node.inputs[rule.divisor]
    if not divisor.dtype.is_integer or divisor.constant is not None:
        return None
    name, attrs = f"{node.name}/divisor", {"T": divisor.dtype}
    seen = Node(DIVISOR, name, attrs, (divisor,), (), (divisor.type,), node.origin)
    inputs = [seen.outputs[0] if v is divisor else v for v in node.inputs]
    return [seen, replace(node, inputs=tuple(inputs))]


def _cut(node: Node, uses: Counter[Value]) -> list[Node] | None:
    rule = node.definition.lower
    if not isinstance(rule, Move | Join) or rule.otherwise is None or node.constant is not None:
        return None
    known = views_of(rule, node) if isinstance(rule, Move) else assembly_of(rule, node)
    if known is not None or rule.otherwise.describe(node) is None:
        return None
    return [replace(node, definition=_otherwise(node.definition))]


@cache
def _otherwise(definition: Definition) -> Definition:
    rule = definition.lower
    assert isinstance(rule, Move | Join)
    return replace(definition, lower=rule.otherwise)
