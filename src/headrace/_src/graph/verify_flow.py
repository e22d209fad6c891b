"""Checkers for the forms of a step: each raises an InternalError about the first fault."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headrace._src.core.dtypes import DType
from headrace._src.core.errors import InternalError
from headrace._src.graph.control_roles import Flow
from headrace._src.graph.dataflow import Dataflow, Feed, Node, Value
from headrace._src.graph.program import Program
from headrace._src.graph.structured import is_undefined, parts_of

__all__ = ["verify_dataflow", "verify_program", "verify_reads"]


def verify_dataflow(flow: Dataflow) -> None:
    """Check that nodes come after the nodes they read and wait for; that types agree with
    definitions; that a constant has the types of its values, and reads nothing; that a Merge reads
    from the last iteration what a NextIteration passes on.
    """
    feeds: set[Any] = {*flow.feeds, *flow.returns}
    done: set[Node] = set()
    for node in flow.nodes:
        if node in done:
            raise _wrong(f"{node.name} stands twice")
        for value in node.inputs:
            _check_made(value, feeds, done, node.name)
        for c in node.controls:
            if c not in done:
                raise _wrong(f"{node.name} runs before its control {c.name}")
            if c.constant is not None:
                raise _wrong(f"{node.name} waits for the constant {c.name}")
        _check_types(node)
        _check_devices(node)
        for part in parts_of(node).values():
            verify_dataflow(part)
        done.add(node)
    for value in flow.fetches:
        _check_made(value, feeds, done, "a fetch")
    for node in flow.targets:
        if node not in done or node.constant is not None:
            raise _wrong(f"target {node.name} never runs")
    for back, value in flow.returns.items():
        _check_made(value, feeds, done, "a Backedge")
        if value.op.definition.flow is not Flow.NEXT or value.dtype != back.type.dtype:
            raise _wrong(f"{value.name} can't be passed back to {back.name} {back.type}")
    if flow.tensors and len(flow.tensors) != len(flow.fetches):
        raise _wrong(f"{len(flow.fetches)} fetches for {len(flow.tensors)} tensors")


def _check_made(value: Value, feeds: set[Any], done: set[Node], reader: str) -> None:
    producer = value.producer
    if producer not in (feeds if isinstance(producer, Feed) else done):
        raise _wrong(f"{reader} reads {value.name} before it is made")
    own = producer.value if isinstance(producer, Feed) else producer.outputs[value.index]
    if own is not value:
        raise _wrong(f"{producer.name} does not own the value that {reader} reads")


def _check_devices(node: Node) -> None:
    """Check that a node that takes a reference is on the variable's device."""
    if node.constant is not None or parts_of(node) or not node.definition.schema.has_ref_inputs:
        return
    wanted = node.definition.schema.references(node.attrs)
    for value, reference in zip(node.inputs, wanted, strict=True):
        there = getattr(value.producer, "device", "")
        if reference and node.device.startswith("/job:") and there not in ("", node.device):
            raise _wrong(
                f"{node.name} on {node.device} takes a reference to {value.name} on {there}"
            )


def _check_types(node: Node) -> None:
    schema = node.definition.schema
    expected = schema.output_types(node.attrs)
    if expected != [t.dtype for t in node.types]:
        raise _wrong(f"{node.name} has outputs {[str(t) for t in node.types]}, not {expected}")
    if node.constant is None:
        count = sum(schema.count(a, node.attrs) for a in schema.inputs)
        if count != len(node.inputs):
            raise _wrong(f"{node.name} has {len(node.inputs)} inputs, not {count}")
        return
    if node.inputs or node.controls:
        raise _wrong(f"the constant {node.name} has inputs or controls")
    for t, value in zip(node.types, node.constant, strict=True):
        if value.shape != t.sizes or value.dtype != t.dtype.numpy:
            raise _wrong(f"the constant {node.name} is {value.dtype}{list(value.shape)}, not {t}")


def verify_reads(flow: Dataflow) -> None:
    """Check that a node gets references exactly where its schema or its parts take them; likewise
    for the results of parts.
    """
    verify_dataflow(flow)
    for node in flow.nodes:
        parts = parts_of(node)
        for part in parts.values():
            verify_reads(part)
            extra = len(node.inputs) - len(part.feeds)  # an IF's predicate comes first
            _check_references(node, node.inputs[extra:], [f.type.dtype for f in part.feeds])
        if not parts and node.constant is None:
            wanted = node.definition.schema.input_types(node.attrs)
            _check_references(node, node.inputs, wanted)


def _check_references(node: Node, values: Sequence[Value], wanted: Sequence[DType]) -> None:
    for value, dtype in zip(values, wanted, strict=True):
        reference = dtype._is_ref_dtype
        fed = reference and isinstance(value.producer, Feed)  # which a kernel refuses to write
        wrong = value.dtype._is_ref_dtype != reference
        if wrong and not fed and not is_undefined(value.producer):
            kind = "a reference" if reference else "a value"
            raise _wrong(f"{node.name} wants {kind}, and is given {value.name} {value.type}")


def verify_program(program: Program) -> None:
    """Check that every slot is written once before it's read, and that nothing reads a freed
    slot.
    """
    for i in program.instructions:
        for part in parts_of(i.op).values():
            verify_program(part)
    live = {slot for slot, _ in program.constants}
    returning = {
        slot
        for i in program.instructions
        if i.op.definition.flow is Flow.NEXT
        for slot in range(i.output, i.output + i.width)
    }
    if live & {slot for _, slot in program.feeds}:
        raise _wrong("a constant has the slot of a feed")
    live |= {slot for _, slot in program.feeds}
    freed: set[int] = set()
    for k, i in enumerate(program.instructions):
        if any(not 0 <= n < k for n in i.after):
            raise _wrong(f"{i.op.name} waits for a later instruction")
        for slot in i.inputs:
            if slot not in live and slot not in returning:
                state = "freed" if slot in freed else "unwritten"
                raise _wrong(f"{i.op.name} reads {state} slot s{slot}")
        for slot in range(i.output, i.output + i.width):
            if slot in live or slot in freed:
                raise _wrong(f"{i.op.name} writes slot s{slot} again")
            live.add(slot)
        for slot in i.frees:
            if slot not in live:
                raise _wrong(f"{i.op.name} frees slot s{slot}, which is not live")
            live.discard(slot)
            freed.add(slot)
    for t, slot in program.fetches:
        if slot not in live:
            raise _wrong(f"fetch {t.name} reads slot s{slot}, which is not live")


def _wrong(message: str) -> InternalError:
    return InternalError(None, None, message)
