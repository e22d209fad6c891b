"""Read variables in each region. In: a Dataflow and its nodes as runs of regions. Out: the same, in
which a region that needs a variable's value reads the variable itself.

A step on several devices has several regions per device. If a later one needed the value that an
earlier one has read, the earlier one would have to copy the whole variable to its outputs. A second
read costs nothing. It is the same value as long as no node in between writes the variable.
"""

from __future__ import annotations

from dataclasses import replace

from headrace._src.compile.regions.region import is_reference
from headrace._src.graph.dataflow import Dataflow, Node, Value
from headrace._src.graph.definition import Effect
from headrace._src.graph.structured import parts_of
from headrace._src.lowering.rules import Read

__all__ = ["Runs", "spread_reads"]

Runs = list[tuple[bool, list[Node]]]


def spread_reads(flow: Dataflow, runs: Runs) -> tuple[Dataflow, Runs]:
    """Give each region reads of its own, where that is possible."""
    number = {node: i for i, (_, run) in enumerate(runs) for node in run}
    wanted = _further_reads(runs, number)
    return _Spreading(flow, runs, wanted).result() if wanted else (flow, runs)


def _further_reads(runs: Runs, number: dict[Node, int]) -> dict[int, dict[Node, None]]:
    """Return the reads of earlier regions that each region can repeat."""
    written = _writes(runs)
    found: dict[int, dict[Node, None]] = {}
    for here, (compiled, run) in enumerate(runs):
        for node in run if compiled else ():
            for value in node.inputs:
                read = value.producer
                if not isinstance(read, Node) or not isinstance(read.definition.lower, Read):
                    continue
                there = number.get(read)
                if there is None or there == here or not runs[there][0]:
                    continue
                source = _source(read.inputs[0])
                if not any(there <= at < here for at in written.get(source, ())):
                    found.setdefault(here, {})[read] = None
    return found


def _writes(runs: Runs) -> dict[Value, list[int]]:
    """Return the runs that write each variable."""
    found: dict[Value, list[int]] = {}
    for i, (_, run) in enumerate(runs):
        for node in run:
            if node.definition.effect is Effect.WRITES:
                for value in filter(is_reference, node.inputs):
                    found.setdefault(_source(value), []).append(i)
    return found


def _source(reference: Value) -> Value:
    """Return the reference that a variable's own node makes."""
    while isinstance(node := reference.producer, Node) and not parts_of(node):
        passed = [v for v in node.inputs if v.dtype == reference.dtype and is_reference(v)]
        if len(passed) != 1:
            break
        reference = passed[0]
    return reference


class _Spreading:
    def __init__(self, flow: Dataflow, runs: Runs, wanted: dict[int, dict[Node, None]]) -> None:
        self._flow = flow
        self._runs = runs
        self._wanted = wanted
        self._values: dict[Value, Value] = {}
        self._nodes: dict[Node, Node] = {}

    def result(self) -> tuple[Dataflow, Runs]:
        inside = {node for _, run in self._runs for node in run}
        free = [node for node in self._flow.nodes if node not in inside]
        runs = [(kind, self._run(i, run)) for i, (kind, run) in enumerate(self._runs)]
        flow = replace(
            self._flow,
            nodes=(*free, *(node for _, run in runs for node in run)),
            fetches=tuple(self._values.get(v, v) for v in self._flow.fetches),
            targets=tuple(self._nodes.get(n, n) for n in self._flow.targets),
        )
        return flow, runs

    def _run(self, number: int, run: list[Node]) -> list[Node]:
        """Return a region with the reads that it repeats at its beginning."""
        made: list[Node] = []
        again: dict[Node, Node] = {}
        for read in self._wanted.get(number, ()):
            copy = replace(read, name=f"{read.name}/again_{number}")
            copy = copy.moved(self._inputs(read, {}), self._controls(read, {}))
            again[read] = copy
            made.append(copy)
        for node in run:
            inputs, controls = self._inputs(node, again), self._controls(node, again)
            same = inputs == node.inputs and controls == node.controls
            new = self._nodes[node] = node if same else node.moved(inputs, controls)
            self._values.update(zip(node.outputs, new.outputs, strict=True))
            made.append(new)
        return made

    def _inputs(self, node: Node, again: dict[Node, Node]) -> tuple[Value, ...]:
        return tuple(
            again[v.producer].outputs[v.index]  # type: ignore[index]
            if v.producer in again
            else self._values.get(v, v)
            for v in node.inputs
        )

    def _controls(self, node: Node, again: dict[Node, Node]) -> tuple[Node, ...]:
        """Return a node's controls; one that waits for a read waits for its repetition too."""
        waits = [self._nodes.get(c, c) for c in node.controls]
        waits += [again[c] for c in node.controls if c in again]
        return tuple(dict.fromkeys(waits))
