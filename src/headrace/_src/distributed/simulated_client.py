"""A client of the simulator: opens sessions, prepares steps, runs and cancels them, closes
sessions, and makes new ones after AbortedError and UnavailableError. It checks that each request is
answered once. When faults have ceased, it needs one more run that succeeds, and leaves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace._src.core import errors
from headrace._src.distributed import messages as say
from headrace._src.distributed.instructions import Peer

__all__ = ["Client", "Run"]

_LOST = (errors.ABORTED, errors.UNAVAILABLE)


class Client:
    """A client. pending: its requests without answers, by number. target: its master's task."""

    def __init__(self, world: Any, index: int, target: str) -> None:
        self.world, self.target = world, target
        self.index = index
        self.me = Peer(f"client{index}", 1)
        self.connections = 0
        self.link: Any = None
        self.making: Any = None  # a connection that is being made
        self.numbers = 0
        self.pending: dict[int, Any] = {}
        self.runs: dict[int, Any] = {}  # by the number of the request
        self.session: int | None = None
        self.tasks: dict[str, int] = {}
        self.steps: dict[int, list[str]] = {}  # plans of prepared steps
        self.is_content = self.is_over = False
        self._think_later()

    def do(self, event: Callable[[], None]) -> None:
        if not self.is_over:
            event()

    def die(self) -> None:
        """End at once, without a word."""
        if not self.is_over:
            self.world.note(self.me, "dies", "")
            self._leave()

    def _leave(self) -> None:
        for link in (self.link, self.making):
            if link is not None:
                link.close(self)
        self._forget()
        self.is_over = True

    # -- The connection ----------------------------------------------------------------------------

    def holds(self, link: Any) -> bool:
        return link is self.link and not self.is_over

    def linked(self, link: Any) -> None:
        self.link, self.making = link, None

    def unlinked(self, link: Any) -> None:
        if link is self.link:
            self.link = None
            self._forget()
        elif link is self.making:
            self.making = None

    def _forget(self) -> None:
        """The session is gone, with all requests."""
        for run in self.runs.values():
            self.world.failed(run, None, errors.UNKNOWN, "the connection has ended")
        self.pending.clear()
        self.runs.clear()
        self.session = None

    def _ask(self, form: type[Any], *fields: Any) -> int:
        self.numbers += 1
        message = form(self.numbers, *fields)
        if form is not say.CancelRun:
            self.pending[self.numbers] = message
        self.world.note(self.me, "asks", message)
        self.link.send(self, message)
        return self.numbers

    def frame(self, link: Any, peer: Peer, message: Any) -> None:
        """An answer has come."""
        if link is not self.link or isinstance(message, say.Notice):
            return
        request = self.pending.pop(message.number, None)
        if request is None:
            self.world.violated(f"{self.me} got {message}, but waits for {self.pending} only")
        run = self.runs.pop(message.number, None)
        if isinstance(message, say.Failed):
            self._refused(peer, request, run, message)
        elif isinstance(request, say.OpenSession):
            self.session = message.session
            self.tasks = {d[0].rpartition("/device")[0]: d[3] for d in message.devices}
            self.steps = {}
        elif isinstance(request, say.Prepare) and request.session == self.session:
            self.steps[message.step] = request.targets
        elif run is not None:
            self.world.succeeded(run, message.tensors)
            self.is_content = self.world.calm

    def _refused(self, peer: Peer, request: Any, run: Any, message: say.Failed) -> None:
        if run is not None:
            self.world.failed(run, peer, message.code, message.message)
        mine = self.session is not None and getattr(request, "session", 0) == self.session
        if message.code in _LOST and mine:
            self._close()

    # -- What it does ------------------------------------------------------------------------------

    def _think_later(self) -> None:
        delay = self.world.random.choice((0.005, 0.05, 0.3)) * self.world.random.random()
        self.world.after(delay, self.me, "thinks", "", lambda: self.do(self._think))

    def _think(self) -> None:
        self._think_later()
        random = self.world.random
        if self.link is None:
            self._connect()
        elif self.session is None:
            if self.is_content and not self.pending:
                self._leave()
            elif not any(isinstance(each, say.OpenSession) for each in self.pending.values()):
                self._ask(say.OpenSession, b"")
        elif self.is_content:
            if not self.runs:
                self._leave() if random.random() < 0.3 else self._close()
        elif not self.steps or random.random() < 0.05:
            if len(self.pending) < 4:
                self._ask(say.Prepare, self.session, [], self._plan(), [], 0)
        elif random.random() < (0.03 if not self.runs else 0.003 if not self.world.calm else 0):
            self._close()
        elif random.random() < 0.02:
            self._ask(say.ResetContainers, [], [])
        elif len(self.runs) < 2:
            self._run()

    def _connect(self) -> None:
        target = self.world.current.get(self.target)
        if self.making is None and target is not None and not target.paused:
            self.connections += 1
            self.me = Peer(f"client{self.index}-{self.connections}", 1)
            self.making = self.world.connect(self, target)

    def _close(self) -> None:
        self._ask(say.CloseSession, self.session)
        self.session = None

    def _plan(self) -> list[str]:
        random, names = self.world.random, list(self.tasks)
        chosen = random.sample(names, random.randint(1, len(names)))
        plan = [f"update {name}" for name in chosen if random.random() < 0.7]
        plan += [f"send {' '.join(random.sample(chosen, 2))}" for _ in range(3) if chosen[1:]]
        random.shuffle(plan)
        if random.random() < 0.1 and not self.world.calm:
            plan.append(f"block {random.choice(chosen)}")
        return plan

    def _run(self) -> None:
        random = self.world.random
        step, plan = random.choice(list(self.steps.items()))
        token = len(self.world.runs) + 1
        blocks = any(each.startswith("block") for each in plan)
        timeout = random.choice((50, 500, 2000)) if blocks or random.random() < 0.1 else 0
        run = self.world.runs[token] = Run(self, token, plan, dict(self.tasks))
        shape = random.choice((0, 0, random.randint(1, 9)))
        number = self._ask(say.RunStep, self.session, step, timeout, 0, (token, shape))
        self.runs[number] = run
        if random.random() < 0.1 and not self.world.calm:
            cancel = lambda: self.do(lambda: self._cancel(number))  # noqa: E731
            self.world.after(random.choice((0.0, 0.2)), self.me, "cancels", number, cancel)

    def _cancel(self, number: int) -> None:
        if number in self.runs and self.session is not None:
            self._ask(say.CancelRun, self.session, number)


class Run:
    """What is known of a client's run. applied: the processes that have applied its update."""

    def __init__(self, client: Client, token: int, plan: list[str], tasks: dict[str, int]) -> None:
        self.client, self.token, self.plan, self.tasks = client, token, plan, tasks
        self.applied: list[Peer] = []
        self.succeeded = False
        self.began = client.world.now
        self.master = client.link.peer_of(client)
        self.failed_by: Peer | None = None
        self.failed_at = 0.0

    def precedes(self, other: Run) -> bool:
        """Return whether the master of another run had answered this one, as failed, before."""
        return self.failed_by == other.master and self.failed_at < other.began

    @property
    def expected(self) -> list[Peer]:
        names = [op.split()[1] for op in self.plan if op.startswith("update")]
        return sorted(Peer(name, self.tasks[name]) for name in names)
