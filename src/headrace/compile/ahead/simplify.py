"""Rewrites that a frozen model allows. In: a Dataflow. Out: an equal one of simpler nodes.

Batch normalisation with known statistics is x * scale + offset per channel, which is fused into the
convolution before it. Local response normalisation needs sums over neighbouring channels: those are
a convolution of 1 x 1 whose filter is a band of ones, and the rest is fused into that.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from headrace.core.dtypes import float32
from headrace.graph.anchors import BatchNorm, LocalResponse
from headrace.graph.dataflow import Dataflow, Node, Value, ValueType
from headrace.graph.definition import Definition, lookup
from headrace.graph.lowering import Anchor, Elementwise
from headrace.graph.schema import parse_schema

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
    geometry = rule.describe(node)
    if isinstance(geometry, BatchNorm):
        return _batch_norm(node, geometry)
    return _local_response(node, geometry) if isinstance(geometry, LocalResponse) else None


def _constant(name: str, value: np.ndarray) -> Node:
    types = (ValueType(float32, value.shape),)
    return Node(lookup("Const"), name, {}, (), (), types, constant=(value,))


# -- Batch normalisation ---------------------------------------------------------------------------


def _affine(x: np.ndarray, scale: np.ndarray, offset: np.ndarray) -> np.ndarray:
    return x * scale + offset


_AFFINE = Definition(
    parse_schema("_Affine", "x: T, scale: T, offset: T -> y: T", "T: type"),
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
        _constant(f"{node.name}/{name}", value.astype(np.float32).reshape(shape))
        for name, value in (("scale", factor), ("offset", offset - mean * factor))
    ]
    inputs = (node.inputs[0], *(c.outputs[0] for c in constants))
    types = node.types[:1]
    affine = Node(_AFFINE, node.name, {"T": float32}, inputs, node.controls, types, node.origin)
    return [*constants, affine]


# -- Local response normalisation ------------------------------------------------------------------


def _respond(x: Any, sums: Any, *, bias: float, alpha: float, beta: float) -> Any:
    return x * (bias + alpha * sums) ** -beta


_RESPOND = Definition(
    parse_schema(
        "_Respond", "x: T, sums: T -> y: T", "T: type; bias: float; alpha: float; beta: float"
    ),
    infer=lambda context, x, *_: x,
    kernel=_respond,
    lower=Elementwise(
        lambda e, x, sums, *, bias, alpha, beta: x * e.pow(sums * alpha + bias, -beta)
    ),
)


def _local_response(node: Node, g: LocalResponse) -> list[Node] | None:
    x = node.inputs[0]
    if g.direction != "forward" or g.dtype != "float32" or len(x.type.sizes or ()) != 4:
        return None
    channels = np.arange(g.channels)
    near = abs(channels[:, None] - channels) <= g.radius
    band = _constant(f"{node.name}/band", near.astype(np.float32)[None, None])
    made = [band]

    def add(definition: Definition, inputs: tuple[Value, ...], **attrs: Any) -> Value:
        name = f"{node.name}/{definition.op_type}"
        attrs = {"T": float32, **attrs}
        made.append(Node(definition, name, attrs, inputs, node.controls, (x.type,), node.origin))
        return made[-1].outputs[0]

    squares = add(lookup("Square"), (x,))
    sums = add(
        lookup("Conv2D"),
        (squares, band.outputs[0]),
        strides=[1, 1, 1, 1],
        padding="VALID",
        explicit_paddings=[],
        data_format="NHWC",
        dilations=[1, 1, 1, 1],
    )
    add(_RESPOND, (x, sums), bias=g.bias, alpha=g.alpha, beta=g.beta)
    return made
