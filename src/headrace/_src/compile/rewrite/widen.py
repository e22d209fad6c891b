"""Widen. In: a Dataflow with products, convolutions or pools of bfloat16 or float16. Out: an equal
one that computes in float32 and rounds.

Only the latest vector units multiply 16-bit floats, and converting them for every use costs more
than their smaller size saves. So a narrow value is held as a float32 that has the narrow type's
precision. An op on such values becomes the op in float32 with its result rounded by a cast to the
narrow type and back, which is fused into the op. Sums are therefore accumulated in float32 and
rounded once.

Variables, feeds, fetches and nodes that the compiler has no code for keep their types. A large
matrix of weights, or one that is fed, has no rounded copy: the product rounds the float32 matrix as
it reads it. One that many products share is rounded once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import replace
from functools import cache, wraps
from math import prod
from typing import Any

import numpy as np

from headrace._src.compile.regions.groups import program_of
from headrace._src.compile.regions.region import is_reference, works
from headrace._src.core import log
from headrace._src.core.dtypes import DType, as_dtype
from headrace._src.devices.target import host
from headrace._src.graph.dataflow import Dataflow, Node, Value, ValueType, is_local
from headrace._src.graph.definition import lookup
from headrace._src.graph.structured import parts_of
from headrace._src.lowering.anchors import contraction_of
from headrace._src.lowering.pointwise import Pointwise, PointwiseStep
from headrace._src.lowering.rules import Anchor, Elementwise, Join, Move, Pass, Read, Reduce
from headrace._src.lowering.window_anchors import pooling_of
from headrace._src.ops.base.simplify_rules import constant_node

__all__ = ["casts_to", "widen"]

_NARROW = ("bfloat16", "float16")
_FAMILIES = ("contraction", "convolution", "pooling")  # the anchors for which widening pays
_LARGE = 1 << 16  # elements of a matrix that is rounded as it's read ..
_MANY = 4  # .. unless so many products share it, as those of a recurrent network do
_FEW = 64  # rows, columns and sums from which on a first operand is rounded as it's read
# Opcodes whose result is an operand, its negative, or a whole number that is no larger.
_CHOOSING = {"max", "min", "neg", "abs", "sign", "floor", "ceil", "rint", "trunc"}


def widen(flow: Dataflow, is_lowerable: Callable[[Node], bool]) -> Dataflow:
    """Compute narrow products, convolutions and pools, and the nodes between them, in float32."""
    return _Widener(flow, is_lowerable).run()


@cache
def _say_that_it_saves_no_time() -> None:
    """Tell the user, once, what bfloat16 is good for on this processor."""
    log.warning(
        "This processor (%s) has no bfloat16 arithmetic: products and convolutions of bfloat16 are "
        "computed in float32 and rounded. Mixed precision only saves memory here, no time.",
        host().level or host().triple,
    )


def _is_narrow(value: Value) -> bool:
    return value.dtype.name in _NARROW


class _Widener:
    """wide: values of the old flow that exist as float32; narrow: those that exist in their own
    type. A narrow value is in one or both.
    """

    def __init__(self, flow: Dataflow, is_lowerable: Callable[[Node], bool]) -> None:
        self.flow, self.is_lowerable = flow, is_lowerable
        self.wide: dict[Value, Value] = {}
        self.narrow: dict[Value, Value] = {f.value: f.value for f in flow.feeds}
        self.nodes: dict[Node, tuple[Node, ...]] = {}
        self.kept: list[Node] = []
        self.uses = Counter(v for n in flow.nodes if _is_product(n) for v in n.inputs[:2])

    def run(self) -> Dataflow:
        worthwhile = [n for n in self.flow.nodes if self._is_worthwhile(n)]
        if not worthwhile:
            return self.flow
        types = {v.dtype.name for n in worthwhile for v in n.inputs}
        if "bfloat16" in types and not host().bfloat16:
            _say_that_it_saves_no_time()
        for node in self.flow.nodes:
            self._place(node)
        fetches = tuple(map(self._as_it_was, self.flow.fetches))
        return replace(
            self.flow,
            nodes=tuple(self.kept),
            fetches=fetches,
            targets=_unique(n for t in self.flow.targets for n in self.nodes[t]),
        )

    def _is_worthwhile(self, node: Node) -> bool:
        rule = node.definition.lower
        if not isinstance(rule, Anchor) or rule.family not in _FAMILIES:
            return False
        return any(map(_is_narrow, node.inputs)) and self._can_widen(node)

    def _can_widen(self, node: Node) -> bool:
        """Whether a node of narrow values can be compiled in float32."""
        rule = node.definition.lower
        if not isinstance(rule, Anchor | Elementwise | Join | Move | Pass | Reduce):
            return False
        values = (*node.inputs, *node.outputs)
        if node.constant is not None or any(map(is_reference, values)):
            return False
        if parts_of(node) or any(map(is_local, values)):  # parts and lists keep their types
            return False
        if any(v.type.sizes is None for v in values):
            return False
        like = [Value(v.producer, v.index, _wide_type(v.type)) for v in node.inputs]
        return self.is_lowerable(_in_float32(node, like, ()))

    # -- Values ----------------------------------------------------------------------------------

    def _as_it_was(self, value: Value) -> Value:
        """A value of the old flow in its own type."""
        if value not in self.narrow and value in self.wide:
            self.narrow[value] = self._cast(self.wide[value], value.dtype)
        return self.narrow.get(value, value)

    def _as_float32(self, value: Value) -> Value:
        """A narrow value of the old flow as float32."""
        if value not in self.wide:
            held = self._as_it_was(value)
            known = held.constant
            self.wide[value] = self._cast(held, _FLOAT32) if known is None else self._known(value)
        return self.wide[value]

    def _cast(self, value: Value, to: DType) -> Value:
        attrs = {"SrcT": value.dtype, "DstT": to, "Truncate": False}
        name = f"{value.producer.name}/{to.name}"
        node = Node(lookup("Cast"), name, attrs, (value,), (), (replace(value.type, dtype=to),))
        self.kept.append(node)
        return node.outputs[0]

    def _known(self, value: Value) -> Value:
        array = np.asarray(value.constant).astype(np.float32)
        node = constant_node(array, f"{value.producer.name}/float32")
        self.kept.append(node)
        return node.outputs[0]

    # -- Nodes -----------------------------------------------------------------------------------

    def _place(self, node: Node) -> None:
        """Add a node of the old flow to the new one."""
        if not any(map(_is_narrow, node.inputs)) or not self._can_widen(node):
            self._keep(node)
        elif _widens(node):
            value = self._as_float32(node.inputs[0])
            self.narrow[node.outputs[0]] = value
            self.nodes[node] = _unique([*_producers([value]), *self._controls(node)])
        else:
            self._compute_wide(node)

    def _controls(self, node: Node) -> tuple[Node, ...]:
        return _unique(n for c in node.controls for n in self.nodes[c])

    def _keep(self, node: Node) -> None:
        inputs = tuple(map(self._as_it_was, node.inputs))
        controls = self._controls(node)
        kept = node
        if inputs != node.inputs or controls != node.controls:
            kept = replace(node, inputs=inputs, controls=controls)
        self.kept.append(kept)
        self.nodes[node] = (kept,)
        self.narrow.update(zip(node.outputs, kept.outputs, strict=True))

    def _compute_wide(self, node: Node) -> None:
        rounded = self._rounded_by(node)
        inputs = [
            rounded[i]
            if i in rounded
            else (self._as_float32(v) if _is_narrow(v) else self._as_it_was(v))
            for i, v in enumerate(node.inputs)
        ]
        wide = _noting(_in_float32(node, inputs, self._controls(node)), node, rounded)
        self.kept.append(wide)
        self.nodes[node] = (wide,)
        given = {v.dtype for v in node.inputs if _is_narrow(v)}
        for old, new in zip(node.outputs, wide.outputs, strict=True):
            if not _is_narrow(old):
                self.narrow[old] = new
            elif given == {old.dtype} and _stays_narrow(wide, old.dtype):
                self.wide[old] = new
            else:
                self.narrow[old] = self._cast(new, old.dtype)
                self.wide[old] = self._cast(self.narrow[old], _FLOAT32)

    def _rounded_by(self, node: Node) -> dict[int, Value]:
        """Return the float32 matrices that a product rounds as it reads them, by operand. Kernels
        for few rows or columns don't round the first one, and only one that fits into a core's own
        cache is worth it: the cores needn't exchange it.
        """
        product = contraction_of(node)
        if product is None or product.batch:
            return {}
        few = min(product.m, product.n, product.k) <= _FEW
        both = not few and 4 * product.m * product.k <= host().l2
        found = {i: self._unrounded(node.inputs[i]) for i in ((0, 1) if both else (1,))}
        return {i: source for i, source in found.items() if source is not None}

    def _unrounded(self, operand: Value) -> Value | None:
        """Return the float32 matrix of which a product's operand is the rounded copy; None unless
        it's large, few products share it, and this step doesn't compute it.
        """
        if self.uses[operand] >= _MANY:
            return None
        value = self._as_it_was(operand)
        cast = value.producer
        if not isinstance(cast, Node) or not _rounds(cast) or prod(value.type.sizes or ()) < _LARGE:
            return None
        source = cast.inputs[0]
        made = isinstance(source.producer, Node) and works(source.producer)
        return None if made or cast.controls or source.constant is not None else source


_FLOAT32 = as_dtype("float32")


def _wide_type(t: ValueType) -> ValueType:
    return replace(t, dtype=_FLOAT32) if t.dtype.name in _NARROW else t


def _in_float32(node: Node, inputs: list[Value], controls: tuple[Node, ...]) -> Node:
    """The same op on these inputs; its other types are wide as well."""
    attrs = {name: _wide_attr(a) for name, a in node.attrs.items()}
    types = tuple(map(_wide_type, node.types))
    return replace(node, attrs=attrs, inputs=tuple(inputs), controls=controls, types=types)


def _wide_attr(attr: Any) -> Any:
    if isinstance(attr, DType):
        return _FLOAT32 if attr.name in _NARROW else attr
    if isinstance(attr, list | tuple):
        return type(attr)(map(_wide_attr, attr))
    return attr


def _is_product(node: Node) -> bool:
    """Whether a node is a product, of known or unknown shapes."""
    rule = node.definition.lower
    return isinstance(rule, Anchor) and rule.family == "contraction"


def _widens(node: Node) -> bool:
    """Whether a node only casts a narrow value to float32."""
    return casts_to(node) == "float32" and _is_narrow(node.inputs[0])


def _rounds(node: Node) -> bool:
    """Whether a node only casts a float32 to a narrow type."""
    return casts_to(node) in _NARROW and node.inputs[0].dtype == _FLOAT32


def casts_to(node: Node) -> str:
    """The type that a node casts to, if that is all it does."""
    if not isinstance(node.definition.lower, Elementwise) or len(node.inputs) != 1:
        return ""
    (dtype,) = node.output_dtypes
    program = Pointwise(node.input_dtypes, (PointwiseStep("cast", (0,), dtype),), (1,))
    return dtype if program_of(node) == program else ""


def _noting(wide: Node, node: Node, rounded: Collection[int]) -> Node:
    """Return a product or convolution whose geometry says that its operands are narrow, and which
    of them it rounds.
    """
    definition, rule = wide.definition, wide.definition.lower
    if not isinstance(rule, Anchor) or rule.family not in ("contraction", "convolution"):
        return wide
    dtype = node.types[0].dtype
    kernel, describe = definition.kernel, rule.describe
    rounds = {name: True for i, name in enumerate(("rounds_x", "rounds_y")) if i in rounded}
    known: dict[str, Any] = {"precision": dtype.name, **rounds}
    lower = Anchor(rule.family, lambda site: replace(describe(site), **known))

    @wraps(kernel)
    def run(*operands: Any, **attrs: Any) -> Any:
        narrow = dtype.as_numpy_dtype
        given = [
            np.asarray(x).astype(narrow).astype(np.float32) if i in rounded else x
            for i, x in enumerate(operands)
        ]
        return kernel(*given, **attrs)

    changed = replace(definition, lower=lower)
    return replace(wide, definition=replace(changed, kernel=run, kernels={}) if rounds else changed)


# -- Results that need no rounding -----------------------------------------------------------------


def _stays_narrow(node: Node, dtype: DType) -> bool:
    """Whether a node's results have the precision of its operands."""
    rule = node.definition.lower
    if isinstance(rule, Join | Move | Pass | Read):
        return True
    if isinstance(rule, Elementwise):
        return _is_exact(program_of(node), dtype)
    pool = pooling_of(node)
    if pool is None or pool.kind != "max":
        return False
    return pool.direction == "forward" or all(w.taps <= w.stride for w in (pool.h, pool.w))


def _is_exact(program: Pointwise, dtype: DType) -> bool:
    exact = [True] * len(program.inputs)
    for step in program.steps:
        exact.append(_is_exact_step(step, program, exact, dtype))
    return all(exact[i] for i in program.outputs)


def _is_exact_step(
    step: PointwiseStep, program: Pointwise, exact: list[bool], dtype: DType
) -> bool:
    if step.opcode == "const":
        value = np.asarray(step.immediate)
        return bool(value.astype(dtype.as_numpy_dtype).astype(np.float64) == value)
    operands = step.operands[1:] if step.opcode == "select" else step.operands
    if step.opcode == "cast":
        return program.dtype_of(operands[0]) in ("bool", "float32") and exact[operands[0]]
    if step.dtype == "bool":
        return True
    if step.opcode == "mul" and not any(_is_flag(program, i) for i in operands):
        return False
    return step.opcode in (*_CHOOSING, "select", "mul") and all(exact[i] for i in operands)


def _is_flag(program: Pointwise, value: int) -> bool:
    """Whether a value is 0 or 1: a condition as a number."""
    number = value - len(program.inputs)
    if number < 0 or program.steps[number].opcode != "cast":
        return False
    return program.dtype_of(program.steps[number].operands[0]) == "bool"


def _producers(values: list[Value]) -> list[Node]:
    """Return the nodes that produce values, as control inputs; constants need none."""
    made = [v.producer for v in values if isinstance(v.producer, Node)]
    return [node for node in made if node.constant is None]


def _unique(nodes: Any) -> tuple[Node, ...]:
    return tuple(dict.fromkeys(nodes))
