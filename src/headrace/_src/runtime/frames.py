"""Split a Program into frames. In: a Program. Out: its frames, with numbered nodes and their edges.

The operations of a loop form a *frame*; operations outside all loops are in the root frame, which
has one iteration. The frames are known before a step runs: an Enter leads from its own frame into
the frame that it names, and an Exit leads back. While a step runs, each iteration of each frame has
its own values and counts (see `iterations`), so nodes and slots are numbered per frame.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

from headrace._src.core.errors import InvalidArgumentError
from headrace._src.graph.control_roles import DEAD, Flow
from headrace._src.graph.dataflow import origin_of
from headrace._src.graph.definition import Effect, asks_for_step
from headrace._src.graph.program import Instruction, Program
from headrace._src.runtime.takings import holds, uses_of

__all__ = ["CONTROL", "FrameNode", "Frames", "LoopFrame"]

CONTROL = -1  # the output number of an edge that carries no value
_NEVER = 2**60  # no node has this many dead inputs


class FrameNode:
    """An instruction in its frame.

    local: its number in its frame. inputs: slots of its frame. target: the frame that it writes to.
    output: the first slot that it writes there. edges: (output, consumer) pairs; consumers have
    their numbers in the target. merged: the number of dead inputs that make a Merge dead; 0 for
    other nodes.
    """

    __slots__ = (
        "asks",
        "constant",
        "dead",
        "edges",
        "flow",
        "inputs",
        "instruction",
        "kernel",
        "local",
        "may_be_dead",
        "merged",
        "op",
        "outlives_death",
        "output",
        "several",
        "target",
    )

    def __init__(self, instruction: Instruction, kernel: Callable[..., Any]) -> None:
        op = instruction.op
        self.instruction = instruction
        self.op = op
        self.kernel = kernel
        self.asks = asks_for_step(op)
        self.flow = op.definition.flow
        self.outlives_death = self.flow in (Flow.MERGE, Flow.TRIGGER, Flow.SEND)
        self.may_be_dead = self.flow in (Flow.MERGE, Flow.RECV)  # though its inputs are alive
        self.constant = self.flow is Flow.ENTER and op._attrs["is_constant"]
        self.several = instruction.width > 1 or op.definition.schema.has_list_outputs
        self.dead = (DEAD,) * instruction.width
        self.merged = 0
        self.local = 0
        self.inputs: tuple[int, ...] = ()
        self.output = 0
        self.edges: list[tuple[int, int]] = []
        self.target: LoopFrame | None = None


class LoopFrame:
    """The part of a loop that all its iterations share.

    pending: the number of arrivals that each node waits for. readers: the number of nodes that read
    each slot.
    """

    def __init__(self, name: str, parent: LoopFrame | None, parallel: int) -> None:
        self.name = name
        self.parent = parent
        self.parallel = parallel
        self.nodes: list[FrameNode] = []
        self.slots = 0
        self.enters = 0
        self.exits: list[FrameNode] = []
        self.pending: list[int] = []
        self.readers: list[int] = []


class Frames:
    """The frames of a program.

    root: the outermost frame. home: the frame and the slot there of each slot of the program.
    takes: whether an op takes elements from a queue or a similar resource. holds: whether a step
    can be blocked after it has taken some.
    """

    def __init__(self, program: Program, kernels: Sequence[Callable[..., Any]]) -> None:
        self.root = LoopFrame("", None, 1)
        self.home: dict[int, tuple[LoopFrame, int]] = {}
        self._children: dict[tuple[LoopFrame, str], LoopFrame] = {}
        self.nodes = [
            FrameNode(i, kernel) for i, kernel in zip(program.instructions, kernels, strict=True)
        ]
        self.takes = any(n.op.definition.effect is Effect.BLOCKS for n in self.nodes)
        self._program = program
        self.holds = holds(n.op for n in self.nodes)
        self.writer = {
            slot: n
            for n in self.nodes
            for slot in range(n.instruction.output, n.instruction.output + n.instruction.width)
        }
        self.feeds = [slot for _, slot in program.feeds]
        self.constants = dict(program.constants)
        for slot in (*self.feeds, *self.constants):
            self._settle(slot, self.root)
        self._frame: dict[FrameNode, LoopFrame] = {}
        for node in self.nodes:
            self._place(node)
        # The consumers of each feed's slot: no node writes a feed, so none has edges to them.
        self.after_feed: dict[int, list[int]] = {slot: [] for slot in self.feeds}
        for node in self.nodes:
            self._join(node)
        for _, slot in program.fetches:
            frame, local = self.home[slot]
            if frame is not self.root:
                raise InvalidArgumentError(
                    None,
                    origin_of(self.writer[slot].op),
                    f"a tensor of loop '{frame.name}' has a value for each of its iterations, and "
                    "cannot be fetched",
                )
            frame.readers[local] += 1

    @cached_property
    def uses(self) -> tuple[frozenset[FrameNode], frozenset[FrameNode]]:
        """The nodes that use what was taken: effects and Sends (see runtime.takings)."""
        found = uses_of(self._program.instructions)
        effects, sends = (frozenset(self.nodes[k] for k in each) for each in found)
        return effects, sends

    def _settle(self, slot: int, frame: LoopFrame) -> None:
        if slot not in self.home:  # a fed output keeps the feed's slot
            self.home[slot] = frame, frame.slots
            frame.slots += 1
            frame.readers.append(0)

    def _place(self, node: FrameNode) -> None:
        """Find the frame of a node. Its inputs have frames, except those from a NextIteration."""
        i = node.instruction
        found = {self.home[s][0]: s for s in i.inputs if s in self.home}
        for k in i.after:
            found.setdefault(self._reached(self.nodes[k]), -1)
        if len(found) > 1:
            raise self._torn(node, list(found))
        frame = next(iter(found), self.root)
        self._frame[node] = frame
        node.local = len(frame.nodes)
        frame.nodes.append(node)
        node.target = target = self._target(node, frame)
        for slot in range(i.output, i.output + i.width):
            self._settle(slot, target)
        node.output = self.home[i.output][1] if i.width else 0

    def _reached(self, node: FrameNode) -> LoopFrame:
        assert node.target is not None
        return node.target

    def _target(self, node: FrameNode, frame: LoopFrame) -> LoopFrame:
        """Return the frame that a node writes to."""
        if node.flow is Flow.ENTER:
            attrs = node.op._attrs
            key = frame, attrs["frame_name"]
            parallel = max(1, attrs["parallel_iterations"])
            child = self._children.setdefault(key, LoopFrame(key[1], frame, parallel))
            child.enters += 1
            return child
        if node.flow is Flow.EXIT:
            if frame.parent is None:
                raise InvalidArgumentError(
                    None, origin_of(node.op), f"Exit '{node.op.name}' is in no loop"
                )
            frame.exits.append(node)
            return frame.parent
        return frame

    def _torn(self, node: FrameNode, frames: list[LoopFrame]) -> InvalidArgumentError:
        names = " and ".join(f"'{f.name}'" for f in frames[:2])
        return InvalidArgumentError(
            None,
            origin_of(node.op),
            f"The node '{node.op.name}' has inputs from different frames: {names}",
        )

    def _join(self, node: FrameNode) -> None:
        """Add the edges to a node from its inputs and from the nodes that must run before it."""
        i, frame, local = node.instruction, self._frame[node], node.local
        waits = 0
        for slot in i.inputs:
            home, place = self.home.get(slot, (None, 0))
            if home is not frame:
                raise self._torn(node, [frame, home or self.root])
            frame.readers[place] += 1
            if slot in self.constants:
                continue
            waits += 1
            if slot in self.after_feed:
                self.after_feed[slot].append(local)
            else:
                source = self.writer[slot]
                source.edges.append((slot - source.instruction.output, local))
        for k in i.after:
            self.nodes[k].edges.append((CONTROL, local))
        node.inputs = tuple(self.home[s][1] for s in i.inputs)
        if node.flow is Flow.MERGE:
            node.merged = _NEVER if self._is_loops(node) else waits
            waits = 1 if waits == len(i.inputs) else 0  # a constant has arrived from the start
        frame.pending.append(waits + len(i.after))

    def _is_loops(self, node: FrameNode) -> bool:
        """Return whether a Merge joins iterations; each iteration then gets only one input."""
        sources = [self.writer.get(s) for s in node.instruction.inputs]
        return any(s is not None and s.flow is Flow.NEXT for s in sources)
