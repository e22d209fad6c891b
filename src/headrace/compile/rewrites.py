"""Rewrites that only the compiler profits from. In: a Dataflow. Out: an equal one.

`mask_before_unpooling`: the gradient of relu behind the gradient of a max-pool,
relu_grad(pool_grad(x, y, dy), x), is pool_grad(x, y, relu_grad(dy, y)): a window's gradient goes to
where its maximum is, which is positive if the maximum is. The mask then works on the pool's output,
which is smaller, and the convolution's output is needed by nobody but the pool.

`join_products`: the sum of x_i^T y_i, which is how the gradients of a weight that an unrolled
network uses in every step add up, is one product of all x below each other with all y below each
other: the weight's gradient is written once instead of once per step.

`reserve_samples`: a random op with a generator of its own becomes two nodes. The first keeps the
name, by which the op's state is found, and reserves the samples of this run; the interpreter runs
it. The second, a pure function of where they start, can be compiled.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from operator import add

import numpy as np

from headrace.compile.fuse import program_of
from headrace.compile.region import pooling_of
from headrace.core.dtypes import as_dtype
from headrace.graph.anchors import Contraction, Random
from headrace.graph.dataflow import Dataflow, Node, Value, ValueType
from headrace.graph.definition import lookup
from headrace.graph.lowering import Anchor, Elementwise, pointwise_of
from headrace.graph.pointwise import record
from headrace.ops.internal import NUMBERS, RESERVE

__all__ = ["join_products", "mask_before_unpooling", "reserve_samples"]

# A node, and how often each value is used -> the nodes to put in its place; the last one's outputs
# are its outputs.
Rule = Callable[[Node, Counter[Value]], list[Node] | None]


def mask_before_unpooling(flow: Dataflow) -> Dataflow:
    """Move the masks of relu in front of the gradients of max-pools."""
    return _replace(flow, _unpool_masked)


def join_products(flow: Dataflow) -> Dataflow:
    """Make one product of sums of products that are gradients of one weight."""
    return _replace(flow, _joined)


def reserve_samples(flow: Dataflow) -> Dataflow:
    """Part random ops into what moves their generators and what draws the numbers."""
    return _replace(flow, _reserved)


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


def _joined(node: Node, uses: Counter[Value]) -> list[Node] | None:
    rule = node.definition.lower
    count = len(node.inputs)
    if not isinstance(rule, Elementwise) or count < 2 or node.constant is not None:
        return None
    products = [v.producer for v in node.inputs]
    shapes = [_outer_product(p) for p in products if isinstance(p, Node)]
    if len(shapes) < count or None in shapes or any(uses[v] > 1 for v in node.inputs):
        return None
    program = pointwise_of(rule, node)
    if program != record(lambda e, *xs: reduce(add, xs), node.input_dtypes):
        return None
    depth = sum(s.k for s in shapes if s is not None)
    m, n = node.output_shapes[0]
    if depth * (m + n) > count * m * n:
        return None  # the operands are larger than what is saved
    added: list[Node] = []
    sides = []
    for side in (0, 1):
        parts = [p.inputs[side] for p in products]  # type: ignore[union-attr]
        added += _below_each_other(parts, f"{node.name}/operand{side}")
        sides.append(added[-1].outputs[0])
    added.append(replace(products[0], name=node.name, inputs=tuple(sides), controls=node.controls))  # type: ignore[arg-type]
    return added


def _outer_product(node: Node) -> Contraction | None:
    """The geometry of x^T y; None for everything else."""
    rule = node.definition.lower
    if not isinstance(rule, Anchor) or rule.family != "contraction" or node.controls:
        return None
    g = rule.describe(node)
    return g if g is not None and not g.batch and g.transpose_x and not g.transpose_y else None


def _below_each_other(values: list[Value], name: str) -> list[Node]:
    axis = np.zeros((), np.int32)
    index = ValueType(as_dtype("int32"), ())
    attrs = {"dtype": index.dtype, "value": axis}
    zero = Node(lookup("Const"), f"{name}/axis", attrs, (), (), (index,), constant=(axis,))
    rows = sum(v.type.sizes[0] for v in values)  # type: ignore[index]
    first = values[0].type
    sizes = (rows, *first.sizes[1:])  # type: ignore[index]
    attrs = {"N": len(values), "T": first.dtype, "Tidx": index.dtype}
    result = ValueType(first.dtype, sizes)
    inputs = (*values, zero.outputs[0])
    return [zero, Node(lookup("ConcatV2"), name, attrs, inputs, (), (result,))]


def _reserved(node: Node, uses: Counter[Value]) -> list[Node] | None:
    rule = node.definition.lower
    known = node.constant is not None
    g = rule.describe(node) if isinstance(rule, Anchor) and not known else None
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
