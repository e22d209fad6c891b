"""Describe a compiled cluster for people. In: a Compiled. Out: its groups, their calls, and the
size of each kernel's code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from headrace._src.compile.clusters.cluster_kernel import Compiled
from headrace._src.compile.native import machine_code
from headrace._src.compile.plan.plan import Call, Plan
from headrace._src.compile.regions.groups import Group, program_of
from headrace._src.compile.run import header_words
from headrace._src.compile.run.plan_segments import kind_of
from headrace._src.graph.dataflow import Node
from headrace._src.lowering.rules import Elementwise, Reduce, Update

__all__ = ["CallReport", "Section", "code_sizes", "pointwise_flops", "sections", "show_call"]


@dataclass(frozen=True, slots=True)
class CallReport:
    """A call. `number`: its number in the plan; `code`: bytes of machine code, None if we generate
    none (a jump, a call of oneDNN); `moved`: the bytes of the buffers that it works on.
    """

    number: int
    call: Call
    code: int | None
    moved: int


@dataclass(frozen=True, slots=True)
class Section:
    """The calls of one group; without a group, the calls that copy results to the outputs."""

    group: Group | None
    calls: tuple[CallReport, ...]


def sections(compiled: Compiled) -> list[Section]:
    """Return the calls of a cluster by group, in the order of each group's first call."""
    plan = compiled.plan
    sizes = code_sizes(plan)
    found: dict[int, tuple[Group | None, list[CallReport]]] = {}
    for number, (call, code) in enumerate(zip(plan.calls, sizes, strict=True)):
        moved = sum(plan.buffers[b].size for b in dict.fromkeys(call.buffers))
        _, calls = found.setdefault(id(call.group), (call.group, []))
        calls.append(CallReport(number, call, code, moved))
    return [Section(group, tuple(calls)) for group, calls in found.values()]


def code_sizes(plan: Plan) -> list[int | None]:
    """The bytes of machine code of each call's kernel."""
    known: dict[Any, int] = {}

    def size(call: Call) -> int | None:
        kind = kind_of(call)
        if kind not in (header_words.TEAM, header_words.ALONE):
            return None
        if call.kernel not in known:
            known[call.kernel] = machine_code.code_size(
                call.kernel, serial=kind == header_words.ALONE
            )
        return known[call.kernel]

    return [size(call) for call in plan.calls]


def show_call(call: Call) -> str:
    """A call in a line: its kernel's name, and the buffers that it works on."""
    names = zip(call.kernel.arguments, call.buffers, strict=True)
    target = getattr(call.kernel, "target", None)
    where = [] if target is None else [f"to {target}"]
    return " ".join([type(call.kernel).__name__, *where, *(f"{n}=b{b}" for n, b in names)])


def pointwise_flops(nodes: Sequence[Node]) -> float:
    """An estimate of the floating-point operations of element-wise nodes, updates and reductions:
    one for each step of a program and each element.
    """
    return float(sum(map(_flops, nodes)))


def _flops(node: Node) -> int:
    rule = node.definition.lower
    if isinstance(rule, Elementwise | Update):
        shape = node.output_shapes[0] if isinstance(rule, Elementwise) else _updated(node)
        return len(program_of(node).steps) * prod(shape)
    return prod(node.input_shapes[0]) if isinstance(rule, Reduce) else 0


def _updated(node: Node) -> tuple[int, ...]:
    described = node.variable_type(0)
    return () if described is None else described[1]
