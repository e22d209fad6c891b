"""Rewrites that a frozen model allows. In: a Dataflow. Out: an equal one of simpler nodes.

Batch normalisation with known statistics is x * scale + offset per channel, which is fused into the
convolution before it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from headrace._src.core.dtypes import float32
from headrace._src.graph.dataflow import Dataflow, Node, Value
from headrace._src.graph.definition import Definition
from headrace._src.graph.schema import Schema
from headrace._src.lowering.anchors import BatchNorm
from headrace._src.lowering.rules import Anchor, Elementwise
from headrace._src.ops.base.simplify_rules import constant_node

__all__ = ["simplify"]


def simplify(flow: Dataflow) -> Dataflow:
    """Replace nodes by simpler ones, where only their first output is used."""
    used = {v for node in flow.nodes for v in node.inputs} | set(flow.fetches)
    values: dict[Value, Value] = {}
    nodes: dict[Node, Node] = {}
    kept: list[Node] = []
    for node in flow.nodes:
        inputs = tuple(values.get(v, v) for v in node.inputs)
        controls = tuple(dict.fromkeys(nodes.get(c, c) for c in node.controls))
        made = [node]
        if inputs != node.inputs or controls != node.controls:
            made = [replace(node, inputs=inputs, controls=controls)]
        if used.isdisjoint(node.outputs[1:]):
            made = _simpler(made[0]) or made
        kept += made
        nodes[node] = made[-1]
        values.update(zip(node.outputs, made[-1].outputs, strict=False))
    return replace(
        flow,
        nodes=tuple(kept),
        fetches=tuple(values.get(v, v) for v in flow.fetches),
        targets=tuple(nodes[t] for t in flow.targets),
    )


def _simpler(node: Node) -> list[Node] | None:
    """Nodes whose last one computes the node's first output; None: it stays."""
    rule = node.definition.lower
    if not isinstance(rule, Anchor) or node.constant is not None:
        return None
    if any(v.type.sizes is None for v in node.inputs):
        return None
    geometry = node.geometry
    return _batch_norm(node, geometry) if isinstance(geometry, BatchNorm) else None


# -- Batch normalisation ---------------------------------------------------------------------------


def _affine(x: np.ndarray, scale: np.ndarray, offset: np.ndarray) -> np.ndarray:
    return x * scale + offset


_AFFINE = Definition(
    Schema("_Affine", "x: T, scale: T, offset: T -> y: T", "T: type"),
    infer=lambda context, x, *_: x,
    kernel=_affine,
    lower=Elementwise(lambda e, x, scale, offset: x * scale + offset),
)


def _batch_norm(node: Node, g: BatchNorm) -> list[Node] | None:
    known = [node.constant_input(i) for i in range(1, 5)]
    if g.training or g.direction != "forward" or g.dtype != "float32":
        return None
    if any(k is None for k in known):
        return None
    scale, offset, mean, variance = (np.asarray(k, np.float64) for k in known)
    factor = scale / np.sqrt(variance + g.epsilon)
    shape = (g.c, 1, 1) if g.data_format == "NCHW" else (g.c,)
    constants = [
        constant_node(value.astype(np.float32).reshape(shape), f"{node.name}/{name}")
        for name, value in (("scale", factor), ("offset", offset - mean * factor))
    ]
    inputs = (node.inputs[0], *(c.outputs[0] for c in constants))
    types = node.types[:1]
    affine = Node(_AFFINE, node.name, {"T": float32}, inputs, node.controls, types, node.origin)
    return [*constants, affine]
