"""A partial run: a step that one client feeds and fetches piece by piece. In: requests of its
client, fetches that workers send, the end of the step. Out: instructions.

Invariants: each request is answered exactly once: when all its fetches have come, or when the run
has ended. A fed tensor goes to the tasks once, and is kept only until the step is started. A run
that has ended well is forgotten with its last fetch; one that has failed keeps its error for later
requests.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headrace._src.distributed import instructions as do
from headrace._src.distributed import messages as say
from headrace._src.distributed.instructions import Peer

if TYPE_CHECKING:
    from headrace._src.distributed.sessions import MasterSession, RunningStep

__all__ = ["PiecewiseRun"]

Instructions = list[Any]


@dataclass
class PiecewiseRun:
    """A partial run. requests: those that wait for fetches. feeds: what was fed before the step was
    started. run: the step, once it was started. values: the fetches that have come. error: why it
    failed.
    """

    session: MasterSession
    client: Peer
    requests: list[say.AdvanceRun] = field(default_factory=list)
    feeds: list[tuple[str, Any]] = field(default_factory=list)
    run: RunningStep | None = None
    values: dict[str, Any] = field(default_factory=dict)
    over: bool = False
    error: say.Failed | None = None

    def asked(self, message: say.AdvanceRun) -> Instructions:
        """The client has sent a request: keep it, and feed the step if that runs."""
        self.requests.append(message)
        feeds = list(zip(message.feeds, message.tensors, strict=True))
        if self.run is None and not self.over:
            self.feeds += feeds
        return [] if self.run is None else _fed(self.run, feeds)

    def started(self, run: RunningStep) -> Instructions:
        """The step runs."""
        self.run = run
        feeds, self.feeds = self.feeds, []
        return _fed(run, feeds)

    def fetched(self, name: str, value: Any) -> Instructions:
        """A worker has sent a fetch."""
        self.values[name] = value
        return self.answer()

    def ended(self) -> Instructions:
        """The step has ended well."""
        self.over, self.run = True, None
        return self.answer()

    def failed(self, error: say.Failed) -> Instructions:
        """The step has failed, or cannot be started: fail the requests."""
        self.over, self.error, self.run = True, error, None
        self.values.clear()
        requests, self.requests = self.requests, []
        return [do.Send(self.client, error._replace(number=r.number)) for r in requests]

    def answer(self) -> Instructions:
        """Answer the requests whose fetches have come."""
        found: Instructions = []
        for request in list(self.requests):
            wanted = [*request.fetches, *(f"^{name}" for name in request.targets)]
            if not self.over and not all(name in self.values for name in wanted):
                continue
            self.requests.remove(request)
            tensors = [self.values.pop(name, None) for name in wanted]
            answer = say.StepRan(request.number, 0, tuple(tensors[: len(request.fetches)]))
            found.append(do.Send(self.client, answer))
        if self.over and not self.values:
            partials = self.session.partials
            for name in [n for n, each in partials.items() if each is self]:
                del partials[name]
        return found


def _fed(run: RunningStep, feeds: list[tuple[str, Any]]) -> Instructions:
    """Send fed tensors to the tasks that wait for them."""
    divided, tasks = run.graph.divided, run.graph.session.tasks
    assert divided is not None
    return [
        do.Send(tasks[task], say.SentTensor(run.number, edge, 0, "", (tensor,)))  # type: ignore[arg-type]
        for name, tensor in feeds
        for task, edge in divided.pieces.get(name, ())
        if task in run.left
    ]
