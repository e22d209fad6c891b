"""Tell which steps are brief. In: a PartitionedProgram. Out: whether a server may run it in the
thread that also reads its sockets, since starting another thread would take longer.

A brief step runs on CPUs, has few elements and few floating-point operations, all of them known
before it runs, and nothing in it may be slow for another reason: no loops, no control flow
primitives, no Python functions, no strings (all ops on files take or give strings), and no effects
but on variables and on queues and the like. An op without a lowering rule is assumed to take time
with the square of its elements. An op that takes or changes rows of a table does not count the
table.

Where only the sizes are unknown or large, the step may turn out to be brief (runtime.pace).
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from headrace._src.core.device_names import DeviceSpec
from headrace._src.core.dtypes import resource, string
from headrace._src.graph.dataflow import Dataflow, Node, Value, ValueType
from headrace._src.graph.definition import HOST, Effect, Kind, RowPart
from headrace._src.graph.partition import PartitionedProgram
from headrace._src.graph.program import Program
from headrace._src.graph.structured import is_loop, parts_of
from headrace._src.lowering.rules import Read, Update
from headrace._src.lowering.work import contraction_flops
from headrace._src.ops.base.padded_rows import part_of
from headrace._src.ops.base.transfers import TRANSFER, is_recv, is_send

__all__ = ["brief", "may_turn_out_brief"]

_ELEMENTS = 2**17
_FLOPS = 2**20
_PER_NUMBER = 20  # operations for a random number
_ROWS = {RowPart.TAKES, RowPart.CHANGES}


class _NotBrief(Exception):
    """Something is too large, unknown, or may be slow."""


def brief(program: PartitionedProgram) -> bool:
    """Return whether a step is small enough to run where nothing may take long."""
    return _passes(program, _Count())


def may_turn_out_brief(program: PartitionedProgram) -> bool:
    """Return whether nothing but the sizes of its values can make a step long."""
    return _passes(program, _Count(limited=False))


def _passes(program: PartitionedProgram, count: _Count) -> bool:
    if any(DeviceSpec.from_string(name).device_type != HOST for name in program.devices):
        return False  # other devices may compile in their first run
    try:
        for part in program.programs:
            count.add_program(part)
    except _NotBrief:
        return False
    return True


class _Count:
    """The elements and floating-point operations of a step so far.

    limited: whether there may be only so many of them.
    """

    def __init__(self, limited: bool = True) -> None:
        self._limited = limited
        self._values: set[Value] = set()
        self._elements = 0
        self._flops = 0.0

    def add_program(self, program: Program) -> None:
        if program.has_loops:
            raise _NotBrief
        for instruction in program.instructions:
            self._add(instruction.op)
        made = {s: v for i in program.instructions for s, v in enumerate(i.op.outputs, i.output)}
        self._add_values(made[slot] for _, slot in program.fetches if slot in made)

    def _add(self, node: Node) -> None:
        kernel = node.definition.kernel
        if getattr(kernel, "is_silent", False):  # a compiled region
            self._values.update(kernel.inputs)  # they were counted outside
            for inner in kernel.nodes:
                self._add(inner)
            self._values.update(node.outputs)  # they were counted inside
            return
        if is_loop(node):
            raise _NotBrief
        for part in parts_of(node).values():
            self._add_part(node, part)
        if node.constant is not None:
            self._add_values(node.outputs)
            return
        _check(node)
        rule = node.definition.lower
        rows = part_of(node.definition) in _ROWS
        if not isinstance(rule, Read):  # its readers read the variable
            self._add_values(node.inputs[rows:])
        if isinstance(rule, Update):
            described = node.variable_type(0)
            self._add_elements(None if described is None else described[1])
        if not isinstance(rule, Read):
            self._add_values(v for v in node.outputs if not v.dtype._is_ref_dtype)
        if self._limited:
            self._flops += _flops(node)
            if self._flops > _FLOPS:
                raise _NotBrief

    def _add_part(self, node: Node, part: Program | Dataflow) -> None:
        """Add a branch. In a compiled region it is not scheduled, and loops are not marked."""
        if isinstance(part, Program):
            self.add_program(part)
            return
        if "body" in node._attrs:
            raise _NotBrief
        for inner in part.nodes:
            self._add(inner)

    def _add_values(self, values: Iterable[Value]) -> None:
        for value in values:
            if value not in self._values and value.dtype.base_dtype is not resource:
                self._values.add(value)
                self._add_elements(value.type.sizes)

    def _add_elements(self, sizes: tuple[int, ...] | None) -> None:
        if not self._limited:
            return
        if sizes is None:
            raise _NotBrief
        self._elements += prod(sizes)
        if self._elements > _ELEMENTS:
            raise _NotBrief


def _check(node: Node) -> None:
    """Raise _NotBrief if a node may be slow whatever its size."""
    definition = node.definition
    if is_send(node) or is_recv(node):
        slow = definition.flow is not None
    else:
        unknown = definition.effect is Effect.WRITES and definition.lower is None
        slow = unknown or definition.flow is not None or definition.calls_python
        slow = slow or definition.calls is not None or definition.is_overridden
    types = [*(v.type for v in node.inputs), *node.types]
    if slow or any(t.dtype.base_dtype is string for t in types):
        raise _NotBrief


def _flops(node: Node) -> float:
    definition = node.definition
    inputs, outputs = _sizes(v.type for v in node.inputs), _sizes(node.types)
    if definition.kind is Kind.CONTRACTION:
        return contraction_flops(inputs, outputs)
    if definition.effect is Effect.RANDOM:
        return float(_PER_NUMBER * sum(outputs))
    simple = definition.lower is not None or definition.effect is Effect.BLOCKS
    if simple or definition is TRANSFER or is_send(node) or not node.inputs:
        return 0.0
    return float(sum(inputs) + sum(outputs)) ** 2


def _sizes(types: Iterable[ValueType]) -> list[int]:
    return [prod(t.sizes or ()) for t in types if t.dtype.base_dtype is not resource]
