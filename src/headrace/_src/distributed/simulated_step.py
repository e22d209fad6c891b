"""A step of the simulator: Sends, Recvs and an update, in the order of a script.

A plan is a list of texts: "send A B", "update A", "block A". A task's script has its part of each,
in the same order, so that steps do not deadlock. The tensors say whose they are, which is checked.
"""

from __future__ import annotations

from typing import Any

from headrace._src.core import errors
from headrace._src.distributed import instructions as do
from headrace._src.distributed import messages as say
from headrace._src.distributed.instructions import Peer
from headrace._src.partition.covers import joined

__all__ = ["StepModel", "covers_in", "script_of", "tasks_in"]


def script_of(plan: list[str], task: str) -> list[list[Any]]:
    """Return a task's part of a plan, each as [what, edge, other task]."""
    found = []
    for edge, (what, first, *rest) in enumerate(each.split() for each in plan):
        if what == "send":
            if task == first:
                found.append(["send", edge, rest[0]])
            elif task == rest[0]:
                found.append(["recv", edge, first])
        elif task == first:
            found.append([what, edge, ""])
    return found


def tasks_in(plan: list[str]) -> list[str]:
    """Return the tasks that take part in a plan."""
    return sorted({name for op in plan for name in op.split()[1:]})


def covers_in(plan: list[str]) -> dict[str, tuple[str, ...]]:
    """Return for tasks the others that they cover: those whose last act is a Send to them."""
    ends = {task: script_of(plan, task)[-1] for task in tasks_in(plan)}
    return joined({task: other for task, (what, _, other) in ends.items() if what == "send"})


class StepModel:
    """A step in a process. stopped: the error that it was cancelled with; gentle: see AbortStep."""

    def __init__(self, process: Any, start: do.Start, registered: say.RegisterGraph) -> None:
        self.process, self.world = process, process.world
        self.number, self.graph = start.step, start.graph
        self.run = self.world.runs[start.request.tensors[0]]
        self.tasks = registered.tasks
        self.script = registered.about["script"]
        self.position = 0
        self.arrived: set[int] = set()
        self.waits = False
        self.stopped: BaseException | None = None
        self.gentle = False

    def __repr__(self) -> str:
        return f"step {self.number} of {self.graph} at {self.position} of {self.script}"

    def go_on(self) -> None:
        """Do the next part of the script soon."""
        self.waits = False
        random = self.world.random
        delay = random.choice((0.0, 0.001, 0.02, 0.02)) if random.random() < 0.98 else 1.5
        self.process.after(delay, "goes on with", (self.number, self.position), self._advance)

    def cancel(self, error: BaseException, gentle: bool) -> None:
        self.stopped, self.gentle = error, gentle
        if self.waits:
            self.go_on()

    def deliver(self, message: say.SentTensor) -> None:
        """Take a tensor, and check where it comes from."""
        if (
            message.tensors[0] == "stale"
            and (self.number, message.tensors[1]) in self.world.takes_part
        ):
            return  # that is not an old process, but one that lies
        wanted = [op for op in self.script if op[0] == "recv" and op[1] == message.edge]
        sender = Peer(wanted[0][2], self.tasks[wanted[0][2]]) if wanted else None
        if message.edge in self.arrived or message.tensors != (self.run.token, sender):
            self.world.violated(f"{self.process.me} delivers {message} to {self}")
        self.arrived.add(message.edge)
        if self.waits and self.script[self.position][:2] == ["recv", message.edge]:
            self.go_on()

    def _advance(self) -> None:
        if self.stopped is not None and not (self.gentle and self.position):
            self._end(self.stopped)
        elif self.position == len(self.script):
            self._end(None)
        else:
            self._do(*self.script[self.position])

    def _do(self, what: str, edge: int, other: str) -> None:
        if (what == "recv" and edge not in self.arrived) or what == "block":
            if what == "block" and self.stopped is not None:
                self._end(self.stopped)
            self.waits = True
            return
        if what == "send":
            links = self.process.links.get(Peer(other, self.tasks[other]))
            if not links:
                self._end(errors.UnavailableError(None, None, f"{other} is gone"))
                return
            tensors = self.run.token, self.process.me
            links[0].send(self.process, say.SentTensor(self.number, edge, 0, "", tensors))
        elif what == "update":
            if self.world.random.random() < 0.03:
                self._end(errors.OutOfRangeError(None, None, "the queue is empty"))
                return
            self.world.applied(self.process, self)
        self.position += 1
        self.go_on()

    def _end(self, error: BaseException | None) -> None:
        fetches = [(self.run.token, self.process.me)] if error is None else None
        self.process.ended(self, fetches, error)
