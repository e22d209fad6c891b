"""Decide which nodes the compiler can lower. In: a node. Out: the reason why it can't, or None.

A node is lowerable if its op has a lowering rule that covers this use of it, all sizes are known
before the step runs, and native code has the types. A loop or branch is lowerable if all nodes of
its parts are.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from headrace._src.compile.build.families import FAMILIES, Family
from headrace._src.compile.build.tensor_list_buffers import list_use
from headrace._src.compile.regions.region import (
    constant_of,
    index_bases,
    is_constant,
    is_reference,
    limits_of,
    operands_of,
)
from headrace._src.devices.room import fits
from headrace._src.graph.dataflow import Dataflow, Node, Value, ValueType, is_local, variable_type
from headrace._src.graph.definition import Definition, Effect
from headrace._src.graph.structured import is_undefined, parts_of
from headrace._src.lowering.anchors import Advance, Divisor
from headrace._src.lowering.list_anchors import row_kept
from headrace._src.lowering.row_anchors import Cut, Gather, RowUpdate, Scatter
from headrace._src.lowering.rules import (
    COMPILED,
    Anchor,
    Elementwise,
    Join,
    Move,
    Read,
    Reduce,
    Update,
    assembly_of,
    pointwise_of,
    reduction_of,
    update_of,
    views_of,
)
from headrace._src.ops.control.loops_and_branches import Structure

__all__ = ["is_lowerable", "why_not"]

_LOOKING = (Gather, Scatter, RowUpdate)  # in loops, their kernels check their indices

_OTHER_USE = "its lowering rule is not for these types, shapes or attributes"


def is_lowerable(
    node: Node, families: Mapping[str, Family] = FAMILIES, inside: bool = False
) -> bool:
    """Return whether the compiler can lower a node, given the anchors that it has kernels for.
    `inside`: the node is in a part of a loop or branch.
    """
    return why_not(node, families, inside) is None


def why_not(
    node: Node, families: Mapping[str, Family] = FAMILIES, inside: bool = False
) -> str | None:
    """Return the reason why the compiler can't lower a node; None if it can."""
    rule = node.definition.lower
    if rule is None:
        return _without_rule(node.definition)
    if node.definition.is_overridden:
        return "a kernel was registered for it"
    if node.constant is not None:
        return "a constant"
    for v in (*node.inputs, *node.outputs):
        if is_reference(v):
            continue
        if v.type.sizes is None:
            return f"the shape of {v.name} is not known before it runs: {v.type}"
        if not fits(v.type.sizes, v.dtype.base_dtype.numpy):
            return f"there is no room for {v.name} {v.type}"  # which its kernel says
    reason = _why_no_rule(node, families, inside)
    if reason is not None:
        values = [v for v in (*node.inputs, *node.outputs) if not (is_reference(v) or is_local(v))]
        strange = [v for v in values if v.dtype.base_dtype.name not in COMPILED]
        return _why_not_type(strange[0]) if reason is _OTHER_USE and strange else reason
    for v in (*operands_of(node), *(v for v in node.outputs if not is_reference(v))):
        if not is_local(v) and not _is_compiled(v.type):
            return _why_not_type(v)
    return None


def _without_rule(definition: Definition) -> str:
    if definition.calls_python:
        return "no lowering rule: it calls Python"
    if definition.may_wait:
        return "no lowering rule: it may block"
    if definition.effect is Effect.WRITES:
        return "no lowering rule: it has side effects"
    return "no lowering rule"


def _why_no_rule(node: Node, families: Mapping[str, Family], inside: bool) -> str | None:
    """The reason why a node's rule isn't for this use of the op."""
    rule = node.definition.lower
    if isinstance(rule, Read | Update) and node.variable_type(0) is None:
        return f"the shape of variable {node.inputs[0].name} is not known"
    kept = row_kept(node.definition)
    if kept is not None and is_reference(node.inputs[kept]):
        return f"it keeps a row of {node.inputs[kept].name} that changes with the variable"
    if isinstance(rule, Elementwise):
        return None if pointwise_of(rule, node) is not None else _OTHER_USE
    if isinstance(rule, Update):
        return None if update_of(rule, node) is not None else _OTHER_USE
    if isinstance(rule, Reduce):
        return None if reduction_of(rule, node) is not None else _OTHER_USE
    if isinstance(rule, Move):
        return None if views_of(rule, node) is not None else _OTHER_USE
    if isinstance(rule, Join):
        return None if assembly_of(rule, node) is not None else _OTHER_USE
    if isinstance(rule, Anchor):
        return _why_no_kernel(node, rule, families, inside)
    return None


def _why_no_kernel(
    node: Node, rule: Anchor, families: Mapping[str, Family], inside: bool
) -> str | None:
    """The reason why an anchor's kernels aren't for this use of the op."""
    family = families.get(rule.family)
    if family is None:
        return f"there are no kernels for a {rule.family}"
    geometry = node.geometry
    if geometry is None:
        return _OTHER_USE
    if not family.supports(geometry):
        return f"no {rule.family} kernel is for this use: {geometry}"
    if isinstance(geometry, Structure):
        for v in node.inputs:
            if is_reference(v) and not variable_type(v):
                return f"the shape of variable {v.name} is not known"
        for name, part in parts_of(node).items():
            reason = _why_not_part(part, families)
            if reason is not None:
                return f"in its {name}: {reason}"
        return None
    if isinstance(geometry, Cut | Divisor):
        # Elsewhere the interpreter is as fast, and reports errors.
        return None if inside else "it is compiled in loops and branches only"
    if inside and isinstance(geometry, _LOOKING):
        return None
    return next((r for v, limit in limits_of(node) if (r := _why_unchecked(v, limit))), None)


def _why_not_part(part: Dataflow, families: Mapping[str, Family]) -> str | None:
    """The reason why a part of a loop or branch can't be compiled with it: all of it must be, and
    nothing in it may have to be checked or reserved before. It may read and write variables, and
    gives no references.
    """
    given = [f.value for f in part.feeds if not is_reference(f.value)]
    for value in part.fetches:
        if is_reference(value):
            return f"{value.name}, which it gives, is a reference"
    for value in (*given, *part.fetches):
        if not (is_undefined(value.producer) or is_local(value) or _is_compiled(value.type)):
            return _why_not_type(value)
    for node in part.nodes:
        if node.constant is not None or is_undefined(node):
            continue
        reason = _why_not_quiet(node)
        use = list_use(node)
        if reason is None and use is not None and use.makes and use.kind != "list":
            reason = "it makes a tensor array or a stack"
        if reason is None:
            reason = why_not(node, families, inside=True)
        if reason is not None:
            return f"{node.name} ({node.type}): {reason}"
    return None


def _why_not_quiet(node: Node) -> str | None:
    """Return None if a node of a part writes only variables that the loop or branch was given, and
    checks its own indices; else the reason why it can't be compiled.
    """
    if isinstance(node.geometry, Structure):
        return None  # its own parts tell
    lowerable = partial(is_lowerable, inside=True)
    bases = [b for v, _ in limits_of(node) for b in index_bases(v, lowerable)]
    if not all(map(is_constant, bases)):
        looking = isinstance(node.geometry, _LOOKING)
        return None if looking else "its indices can't be checked before the loop or branch runs"
    effect, rule = node.definition.effect, node.definition.lower
    known = isinstance(rule, Read | Update) or isinstance(node.geometry, (*_LOOKING, Advance))
    if effect in (Effect.PURE, Effect.LOCAL) or known:
        return None
    return _without_rule(node.definition) if rule is None else f"its effect: it {effect.value}"


def _why_unchecked(indices: Value, limit: int) -> str | None:
    """The reason why indices can't be checked before a cluster runs: they come from inside, or are
    wrong.
    """
    for base in index_bases(indices, is_lowerable):
        if is_constant(base):
            array = constant_of(base)
            if array.size and not (array.min() >= 0 and array.max() < limit):
                return f"an index of {indices.name} is not in [0, {limit})"
        elif isinstance(base.producer, Node) and is_lowerable(base.producer):
            return f"its indices {indices.name} are computed, and can't be checked before"
    return None


def _is_compiled(t: ValueType) -> bool:
    return t.sizes is not None and 0 not in t.sizes and t.dtype.base_dtype.name in COMPILED


def _why_not_type(value: Value) -> str:
    t = value.type
    if t.sizes is None:
        return f"the shape of {value.name} is not known before it runs: {t}"
    if 0 in t.sizes:
        return f"{value.name} has no elements: {t}"
    return f"native code has no {t.dtype.base_dtype.name}: {value.name}"
