"""The backend of XLA devices: which nodes their regions take, and how a region is compiled.

In: nodes of a specialised step. Out: reasons why a node stays outside, or an XlaCluster.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headrace._src.graph.dataflow import Dataflow, Node, Value, is_local, variable_type
from headrace._src.graph.definition import Definition, Effect
from headrace._src.graph.structured import is_undefined, parts_of
from headrace._src.lowering.anchors import Random
from headrace._src.lowering.references import is_reference
from headrace._src.xla.cluster import XlaCluster
from headrace._src.xla.list_plan import UnknownList, plan_lists
from headrace._src.xla.table import FUNCTIONS, IGNORED, STATIC
from headrace._src.xla.uses import by_function, by_rule

__all__ = ["BACKEND", "compile_region", "why_not", "why_not_lists"]

_TYPES = frozenset(
    ("float32", "float64", "float16", "bfloat16", "bool", "complex64", "complex128")
    + ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
)


def compile_region(nodes: list[Node], outputs: list[Value]) -> XlaCluster:
    """Return the kernel of a region: one function that JAX compiles at its first call."""
    return XlaCluster(nodes, outputs)


def why_not(node: Node) -> str | None:
    """Return the reason why a node cannot be in a region of an XLA device; None if it can."""
    definition = node.definition
    if node.constant is not None:
        return "a constant"
    if definition.calls_python:
        return "it calls Python"
    if definition.may_wait:
        return "it may block"
    if definition.lower is None and definition.op_type not in FUNCTIONS:
        return _without_kernel(definition)
    ignored = IGNORED.get(node.type, len(node.inputs))
    for i, value in enumerate((*node.inputs, *node.outputs)):
        known = ignored <= i < len(node.inputs) and value.constant is not None
        reason = None if known else _why_not_value(value)
        if reason is not None:
            return reason
    if parts_of(node):
        return _why_not_parts(node)
    return _why_not_use(node)


def why_not_lists(nodes: Sequence[Node]) -> str | None:
    """Return the reason why nodes cannot be in one region because of the tensor arrays and lists
    that they share; None if they can. All users of a list must be among them.
    """
    try:
        plan_lists(nodes)
    except UnknownList as error:
        return str(error)
    return None


def _without_kernel(definition: Definition) -> str:
    if definition.effect is Effect.WRITES:
        return "no XLA kernel: it has side effects"
    return "no XLA kernel"


def _why_not_value(value: Value) -> str | None:
    if is_local(value):
        return None
    if is_reference(value):
        known = variable_type(value)
        if known is None:
            return f"the shape of variable {value.name} is not known"
        return None if known[0] in _TYPES else f"XLA has no {known[0]}: {value.name}"
    if value.type.sizes is None:
        return f"the shape of {value.name} is not known before it runs: {value.type}"
    name = value.dtype.base_dtype.name
    return None if name in _TYPES else f"XLA has no {name}: {value.name}"


def _why_not_use(node: Node) -> str | None:
    """The reason why neither the function nor the rule of an op is for this use of it."""
    if _is_empty(node):
        return None
    if by_function(node):
        for i in STATIC.get(node.type, lambda node: ())(node):
            if node.inputs[i].constant is None:
                return f"{node.inputs[i].name} must be known when it is compiled"
        return None
    if not by_rule(node):
        return "its rule is not for these types, shapes or attributes"
    geometry = node.geometry
    if isinstance(geometry, Random) and geometry.source == "own":
        return "its generator is state of the session, until the pipeline splits it in two"
    return None


def _is_empty(node: Node) -> bool:
    """Whether a node computes nothing: its results have no elements."""
    pure = node.definition.effect is Effect.PURE and bool(node.outputs)
    return pure and all(not is_local(v) and 0 in (v.type.sizes or ()) for v in node.outputs)


def _why_not_parts(node: Node) -> str | None:
    for name, part in parts_of(node).items():
        reason = _why_not_part(part)
        if reason is not None:
            return f"in its {name}: {reason}"
    return None


def _why_not_part(part: Dataflow) -> str | None:
    for value in part.fetches:
        if is_reference(value):
            return f"{value.name}, which it gives, is a reference"
    for node in part.nodes:
        if node.constant is not None or is_undefined(node):
            continue
        reason = why_not(node)
        if reason is not None:
            return f"{node.name} ({node.type}): {reason}"
    return None


class _Xla:
    """The backend that clustering asks (see compile.clusters.backend)."""

    def why_not(self, node: Node) -> str | None:
        return why_not(node)

    def why_not_lists(self, users: Sequence[Node]) -> str | None:
        return why_not_lists(users)

    def is_worthwhile(self, nodes: Sequence[Node]) -> bool:
        return True  # a call of JAX costs much more for each single op

    def compile(self, nodes: list[Node], outputs: list[Value], crossing: Any) -> XlaCluster:
        return compile_region(nodes, outputs)


BACKEND = _Xla()
