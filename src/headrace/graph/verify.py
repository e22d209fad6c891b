"""Checkers for the forms of a step: each raises InternalError with the first thing that is
wrong.
"""

from __future__ import annotations

from typing import Any

from headrace.core.errors import InternalError
from headrace.graph.dataflow import Dataflow, Feed, Node, Value
from headrace.graph.flow import Flow
from headrace.graph.program import Program, StepGraph
from headrace.graph.structured import members_of, parts_of

__all__ = ["verify_dataflow", "verify_program", "verify_step_graph"]


def verify_step_graph(step: StepGraph) -> None:
    """Every input of every operation is fed or made by an earlier operation; so is every fetch."""
    made = set(step.feeds)
    present = {m for op in step.operations for m in members_of(op)}
    done: set[Any] = set()
    for op in step.operations:
        for t in op._inputs:
            if t not in made and not _goes_back(op, t.op, present):
                raise _wrong(f"{op.name} reads {t.name} before it is made")
        for c in op._control_inputs:
            if c not in done and c in present:
                raise _wrong(f"{op.name} runs before its control input {c.name}")
        for part in parts_of(op).values():
            verify_step_graph(part)
        made.update(op._outputs)
        done.update(members_of(op))
    for t in step.fetches:
        if t not in made:
            raise _wrong(f"fetch {t.name} is never made")
    for op in step.targets:
        if op not in done:
            raise _wrong(f"target {op.name} never runs")


def _goes_back(op: Any, before: Any, present: set[Any]) -> bool:
    """Whether a Merge reads what the last iteration passes on."""
    flows = op.definition.flow, before.definition.flow
    return flows == (Flow.MERGE, Flow.NEXT) and before in present


def verify_dataflow(flow: Dataflow) -> None:
    """Nodes stand after what they read and wait for; their types are what their definitions say; a
    constant has the types of its values, and reads nothing.
    """
    feeds = set(flow.feeds)
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
        for part in parts_of(node).values():
            verify_dataflow(part)
        done.add(node)
    for value in flow.fetches:
        _check_made(value, feeds, done, "a fetch")
    for node in flow.targets:
        if node not in done or node.constant is not None:
            raise _wrong(f"target {node.name} never runs")
    if flow.tensors and len(flow.tensors) != len(flow.fetches):
        raise _wrong(f"{len(flow.fetches)} fetches for {len(flow.tensors)} tensors")


def _check_made(value: Value, feeds: set[Feed], done: set[Node], reader: str) -> None:
    producer = value.producer
    if not (producer in feeds if isinstance(producer, Feed) else producer in done):
        raise _wrong(f"{reader} reads {value.name} before it is made")
    own = producer.value if isinstance(producer, Feed) else producer.outputs[value.index]
    if own is not value:
        raise _wrong(f"{reader} reads a value that is none of {producer.name}'s")


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


def verify_program(program: Program) -> None:
    """Every slot is written once before it's read, and nothing reads a freed slot."""
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
