"""Rewrite NCHW images to NHWC. In: a Dataflow with images in NCHW. Out: an equal one whose
convolutions and pools are in NHWC, the order that the compiler has kernels for.

An image keeps the order in which it was computed. Where a node needs the other order, one transpose
is added, which all such nodes share. Element-wise nodes and sums over pixels follow the order of
their operands. So in a network of NCHW images only its inputs and outputs are transposed. Fetches,
and nodes that the compiler has no code for, get the order that the graph says.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from headrace._src.compile.build.families import FAMILIES
from headrace._src.compile.regions.groups import asks_position
from headrace._src.graph.dataflow import Dataflow, Node, Value, ValueType
from headrace._src.graph.definition import lookup
from headrace._src.lowering.pointwise import FLOATS
from headrace._src.lowering.rules import (
    Anchor,
    Elementwise,
    Pass,
    Reduce,
    operand_views,
    pointwise_of,
    reduction_of,
)
from headrace._src.ops.base.simplify_rules import constant_node

__all__ = ["channels_last"]

_TO_LAST, _TO_FIRST = (0, 2, 3, 1), (0, 3, 1, 2)


def channels_last(flow: Dataflow) -> Dataflow:
    """Rewrite convolutions and pools of NCHW images, and the nodes between them, to NHWC."""
    return _Turner(flow).run()


class _Turner:
    """last: values of the old flow that exist with their channels last; first: those that exist in
    the old order. A value is in one or both.
    """

    def __init__(self, flow: Dataflow) -> None:
        self.flow = flow
        self.last: dict[Value, Value] = {}
        self.first: dict[Value, Value] = {f.value: f.value for f in flow.feeds}
        self.nodes: dict[Node, Node] = {}
        self.kept: list[Node] = []

    def run(self) -> Dataflow:
        if not any(_turned_geometry(n) for n in self.flow.nodes):
            return self.flow
        for node in self.flow.nodes:
            self._place(node)
        return replace(
            self.flow,
            fetches=tuple(map(self._as_it_was, self.flow.fetches)),
            targets=_unique(self.nodes[t] for t in self.flow.targets),
            nodes=tuple(self.kept),
        )

    def _place(self, node: Node) -> None:
        if self._turns(node):
            return
        inputs = tuple(map(self._as_it_was, node.inputs))
        controls = _unique(self.nodes[c] for c in node.controls)
        same = inputs == node.inputs and controls == node.controls
        placed = node if same else replace(node, inputs=inputs, controls=controls)
        self.kept.append(placed)
        self.nodes[node] = placed
        self.first.update(zip(node.outputs, placed.outputs, strict=True))

    def _turns(self, node: Node) -> bool:
        """Place the node on images with their channels last, if possible; return whether it was."""
        if node.constant is not None or not _is_known(node):
            return False
        rule = node.definition.lower
        if isinstance(rule, Anchor):
            return self._anchor(node, rule)
        if not any(map(self._is_turned, node.inputs)):
            return False
        if isinstance(rule, Pass) and len(node.inputs) == len(node.outputs) == 1:
            return self._put(node, [self.last[node.inputs[0]]])
        if isinstance(rule, Elementwise):
            return self._elementwise(node, rule)
        return isinstance(rule, Reduce) and self._reduce(node, rule)

    def _is_turned(self, value: Value) -> bool:
        return value in self.last and value not in self.first

    # -- Ops -------------------------------------------------------------------------------------

    def _anchor(self, node: Node, rule: Anchor) -> bool:
        geometry = _turned_geometry(node)
        if geometry is None:
            return False
        images = _images(node, geometry)
        if not geometry.leads and not any(self._is_turned(node.inputs[i]) for i in images):
            return False
        inputs = []
        for i, value in enumerate(node.inputs):
            if i in images:
                inputs.append(self._as_last(value))
            elif geometry.makes_image and _is_sizes(value):
                inputs.append(self._constant(np.asarray(value.constant)[[*_TO_LAST]], value))
            else:
                inputs.append(self._as_it_was(value))
        return self._put(node, inputs, images=1 if geometry.makes_image else 0)

    def _elementwise(self, node: Node, rule: Elementwise) -> bool:
        shape = node.output_shapes[0]
        whole = [v for v in node.inputs if v.type.sizes == shape]
        if len(shape) != 4 or not any(map(self._is_turned, whole)):
            return False
        if "data_format" in node.attrs:  # a bias, which is a vector
            if node.attrs["data_format"] != "NCHW":
                return False
            inputs = [self._as_last(v) if v in whole else self._as_it_was(v) for v in node.inputs]
        else:
            program = pointwise_of(rule, node)
            odd = rule.operands is not None or rule.views is not None
            if program is None or odd or operand_views(rule, node) is None or asks_position(node):
                return False
            inputs = [self._as_last(v) for v in node.inputs]
        return self._put(node, inputs)

    def _reduce(self, node: Node, rule: Reduce) -> bool:
        """A reduction whose result has its axes in the same order, or all of them."""
        reduction = reduction_of(rule, node)
        value, *others = node.inputs
        if reduction is None or rule.combine.startswith("arg") or not self._is_turned(value):
            return False
        keeps = len(node.output_shapes[0]) == 4
        left = [d for d in _TO_LAST if d not in reduction.axes]
        if not keeps and left != sorted(left):
            return False
        axes = [_TO_LAST.index(d) for d in reduction.axes]
        inputs = [self._as_last(value)]
        inputs += [self._constant(np.array(axes, v.dtype.numpy), v) for v in others]
        return self._put(node, inputs, images=1 if keeps else 0)

    def _put(self, node: Node, inputs: Sequence[Value], images: int | None = None) -> bool:
        """Place a node on turned inputs, whose first outputs (all, if not said) are images."""
        images = len(node.types) if images is None else images
        turned = replace(
            node,
            attrs=_turned_attrs(node.attrs),
            inputs=tuple(inputs),
            controls=_unique(self.nodes[c] for c in node.controls),
            types=(*map(_turn, node.types[:images]), *node.types[images:]),
        )
        self.kept.append(turned)
        self.nodes[node] = turned
        for i, (old, new) in enumerate(zip(node.outputs, turned.outputs, strict=True)):
            held = self.last if i < images else self.first
            held[old] = new
        return True

    # -- Values ----------------------------------------------------------------------------------

    def _as_it_was(self, value: Value) -> Value:
        """Return a value of the old flow in its old order."""
        if value not in self.first and value in self.last:
            self.first[value] = self._moved(self.last[value], _TO_FIRST, value.type)
        return self.first.get(value, value)

    def _as_last(self, value: Value) -> Value:
        """Return a value of the old flow, of up to 4 dimensions, with its channels last."""
        sizes = value.type.sizes or ()
        if prod(sizes) == 1 and len(sizes) < 4:
            return self._as_it_was(value)
        if value not in self.last:
            given = replace(value.type, sizes=(*[1] * (4 - len(sizes)), *sizes))
            if value.constant is not None:
                array = np.asarray(value.constant).reshape(given.sizes or ())
                self.last[value] = self._constant(array.transpose(_TO_LAST), value)
            else:
                held = self._as_it_was(value)
                held = held if given == value.type else self._reshaped(held, given)
                self.last[value] = self._moved(held, _TO_LAST, _turn(given))
        return self.last[value]

    def _moved(self, value: Value, order: tuple[int, ...], to: ValueType) -> Value:
        sizes = value.type.sizes or ()
        large = [d for d in order if sizes[d] > 1]
        if large == sorted(large):  # the elements stay in their order
            return self._reshaped(value, to)
        perm = self._constant(np.array(order, np.int32), value)
        attrs = {"T": value.dtype, "Tperm": perm.dtype}
        return self._add("Transpose", attrs, (value, perm), to)

    def _reshaped(self, value: Value, to: ValueType) -> Value:
        shape = self._constant(np.array(to.sizes, np.int32), value)
        return self._add("Reshape", {"T": value.dtype, "Tshape": shape.dtype}, (value, shape), to)

    def _constant(self, array: np.ndarray, near: Value) -> Value:
        node = constant_node(np.ascontiguousarray(array), f"{near.producer.name}/const")
        self.kept.append(node)
        return node.outputs[0]

    def _add(
        self,
        op_type: str,
        attrs: dict[str, Any],
        inputs: tuple[Value, ...],
        to: ValueType,
    ) -> Value:
        name = f"{inputs[0].producer.name}/{op_type.lower()}"
        node = Node(lookup(op_type), name, attrs, inputs, (), (to,))
        self.kept.append(node)
        return node.outputs[0]


def _is_known(node: Node) -> bool:
    return all(v.type.sizes is not None for v in (*node.inputs, *node.outputs))


def _turned_geometry(node: Node) -> Any:
    """Return an NCHW anchor's geometry in NHWC if there is a kernel for it, else None."""
    rule = node.definition.lower
    if not isinstance(rule, Anchor) or "data_format" not in node.attrs:
        return None
    if node.constant is not None or not _is_known(node):
        return None
    geometry = node.geometry
    if getattr(geometry, "data_format", "") != "NCHW":
        return None
    turned = replace(geometry, data_format="NHWC")
    narrow = geometry.dtype in FLOATS and geometry.dtype != "float64"
    computed = replace(turned, dtype="float32") if narrow else turned
    return turned if FAMILIES[rule.family].supports(computed) else None


def _images(node: Node, geometry: Any) -> list[int]:
    """The numbers of the inputs that are images."""
    return [
        i
        for i in geometry.operands
        if i not in geometry.filters and len(node.inputs[i].type.sizes or ()) == 4
    ]


def _is_sizes(value: Value) -> bool:
    """Whether an input is a shape, or a window, of an image."""
    return value.dtype.is_integer and value.type.sizes == (4,) and value.constant is not None


def _turn(t: ValueType) -> ValueType:
    sizes = t.sizes or ()
    return replace(t, sizes=tuple(sizes[d] for d in _TO_LAST))


def _turned_attrs(attrs: dict[str, Any]) -> dict[str, Any]:
    if "data_format" not in attrs:
        return attrs
    turned = {**attrs, "data_format": "NHWC"}
    for name in ("strides", "dilations", "ksize"):
        if name in attrs:
            turned[name] = [attrs[name][d] for d in _TO_LAST]
    if attrs.get("explicit_paddings"):
        pads = attrs["explicit_paddings"]
        turned["explicit_paddings"] = [p for d in _TO_LAST for p in pads[2 * d : 2 * d + 2]]
    return turned


def _unique(nodes: Iterable[Node]) -> tuple[Node, ...]:
    return tuple(dict.fromkeys(nodes))
