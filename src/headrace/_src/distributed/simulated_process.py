"""A process of the simulator: the real machines of a task, and a driver that follows their
instructions as `server.task` does. It relies on less: a replaced process may be heard for a while
after its successor, and says anything then.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from math import inf
from typing import Any, NamedTuple

from headrace._src.core import errors
from headrace._src.distributed import instructions as do
from headrace._src.distributed import messages as say
from headrace._src.distributed.instructions import Peer, Post
from headrace._src.distributed.master import Master
from headrace._src.distributed.sessions import Divided
from headrace._src.distributed.simulated_network import SimulatedConnection
from headrace._src.distributed.simulated_step import StepModel, covers_in, script_of, tasks_in
from headrace._src.distributed.worker import Worker

__all__ = ["TASKS", "Process", "Stale"]

TASKS = tuple(f"/job:{job}/replica:0/task:{i}" for job, i in [("w", 0), ("w", 1), ("ps", 0)])
_PATIENCE = 5.0  # of a build for its connections; see server.task
_TO_WORKER = (
    *(say.OpenWorkerSession, say.CloseWorkerSession, say.RegisterGraph, say.DeregisterGraph),
    *(say.RunGraph, say.AbortStep, say.SettleStep, say.SentTensor),
)


class Stale(NamedTuple):
    """A message of an old process, whose number is that of a step or request of others."""

    message: Any


class Process:
    """A task's process: the machines, and a driver that follows their instructions."""

    def __init__(self, world: Any, name: str, incarnation: int) -> None:
        self.world = world
        self.me = Peer(name, incarnation)
        self.worker = Worker(name, incarnation)
        addresses = dict.fromkeys(TASKS, "host:1")
        self.master = Master(name, incarnation, addresses, lambda t: t[1], lambda: 0)
        self.links: dict[Peer, list[SimulatedConnection]] = {}
        self.connecting: set[str] = set()
        self.alive, self.paused = True, False
        self.woke = 0.0
        self.backlog: deque[Callable[[], None]] = deque()
        self.alarm = inf
        self.states: set[Any] = set()  # of open sessions
        self.graphs: dict[Any, say.RegisterGraph] = {}  # executables
        self.keeps: set[int] = set()  # ended steps that keep elements
        self.steps: dict[int, StepModel] = {}
        self.begun: set[Any] = set()  # sessions that have run a step
        self.perform(self.master.connected(self.me, world.now))

    # -- Life --------------------------------------------------------------------------------------

    def do(self, event: Callable[[], None]) -> None:
        """Let an event happen here: now, or when the process is no longer paused."""
        if self.paused:
            self.backlog.append(event)
        elif self.alive:
            event()

    def after(self, delay: float, verb: str, what: Any, then: Callable[[], None]) -> None:
        self.world.after(delay, self.me, verb, what, lambda: self.do(then))

    def crash(self, silent: bool) -> None:
        """End at once. silent: the host is gone, so that others notice only after a while."""
        self.alive = self.paused = False
        self.backlog.clear()
        for link in self.world.connections_of(self):
            link.cut() if silent else link.close(self)

    def pause(self) -> None:
        """Stop as with SIGSTOP. The others take it for dead after a while."""
        self.paused = True
        stopped = self.world.now
        for link in self.world.connections_of(self):
            other = link.other(self)

            def give_up(link: SimulatedConnection = link, other: Any = other) -> None:
                if self.paused and self.woke < stopped and other.holds(link):
                    other._drop(link)

            delay = self.world.random.uniform(0.8, 3.0)
            if isinstance(other, Process):
                other.after(delay, "misses heartbeats of", self.me, give_up)

    def wake(self) -> None:
        """Go on after a pause, with all that has come in the meantime."""
        self.paused, self.woke = False, self.world.now
        if self.world.current.get(self.me.name) is not self:
            self._rave()
            for times in range(1, 5):
                self.after(0.2 * times, "speaks of the past", "", self._rave)
        while self.backlog and self.alive:
            self.backlog.popleft()()

    def _rave(self) -> None:
        """Send what an old process may have under way: as if its numbers were those of now."""
        for links in [self.links[peer] for peer in self.links if peer.name in TASKS]:
            for number in self.world.likely_steps():
                for edge in range(2):
                    links[0].send(
                        self, Stale(say.SentTensor(number, edge, 0, "", ("stale", self.me)))
                    )
                links[0].send(self, Stale(say.StepDone(number, 0, 0, ("stale",))))
            for number in self.world.likely_requests():
                links[0].send(self, Stale(say.Done(number)))

    # -- The driver --------------------------------------------------------------------------------

    def holds(self, link: SimulatedConnection) -> bool:
        return any(link in links for links in self.links.values())

    def linked(self, link: SimulatedConnection) -> None:
        """There is a new connection."""
        peer = link.peer_of(self)
        older = [p for p in self.links if p.name == peer.name and p.incarnation < peer.incarnation]
        self.links.setdefault(peer, []).append(link)
        self.connecting.discard(peer.name)
        for old in older:  # messages of theirs may still be under way inside the driver
            for stale in self.links[old]:
                delay = self.world.random.choice((0.0, 0.3, 3.0)) * self.world.random.random()
                self.after(delay, "drops", old, lambda link=stale: self._drop(link))
        if peer.name in TASKS:
            self.perform(self.master.connected(peer, self.world.now))

    def _drop(self, link: SimulatedConnection) -> None:
        link.close(self)
        self.unlinked(link)

    def unlinked(self, link: SimulatedConnection) -> None:
        """A connection has ended: the process at its other end is lost, with all others to it."""
        peer = link.peer_of(self)
        if not self.holds(link):
            return
        for each in self.links.pop(peer):
            if each is not link:
                each.close(self)
        self.world.note(self.me, "loses", peer)
        self.perform(self.worker.lost(peer))
        self.perform(self.master.lost(peer, self.world.now))

    def frame(self, link: SimulatedConnection, peer: Peer, message: Any) -> None:
        if not self.holds(link):
            return
        if isinstance(message, Stale):
            message = message.message
            if (self.me, peer, message.number) in self.world.asked:
                return  # that is not an old process, but one that lies
        if not self._done_again(peer, message):
            self.perform(self._received(peer, message))

    def _done_again(self, peer: Peer, message: Any) -> bool:
        """Do what the machines say of a message of a step that only runs again, in every other
        world; return whether that is all.
        """
        if self.world.seed % 2:
            return False
        posts = None
        if isinstance(message, say.RunGraph):
            graph = self.worker.run_again(peer, say.encode(message))
            if graph is not None:
                self._start(do.Start(message.number, graph, message))
                return True
        elif isinstance(message, say.RunStep):
            posts = self.master.run_again(peer, say.encode(message))
        elif isinstance(message, say.StepDone):
            posts = self.master.done_again(peer, say.encode(message))
        return self._post_all(posts)

    def _post_all(self, posts: list[Post] | None) -> bool:
        if posts is None:
            return False
        for peer, frame in posts:
            message = say.decode(*frame)
            if peer != self.me or not self._done_again(peer, self._noted(peer, message)):
                self.perform([do.Send(peer, message)])
        return True

    def _received(self, peer: Peer, message: Any) -> list[Any]:
        form = type(message)
        if form in _TO_WORKER or (form is say.ResetContainers and peer.name in TASKS):
            return self.worker.received(peer, message)
        if form is say.Fenced:
            return [do.Stop(message.reason)]
        return self.master.received(peer, message, self.world.now)

    def perform(self, instructions: list[Any]) -> None:
        """Follow instructions, and what follows from them."""
        todo = deque(instructions)
        while todo:
            each = todo.popleft()
            todo.extend(_DO[type(each)](self, each) or ())
        when = self.master.alarm
        if when < self.alarm:
            self.alarm = when
            self.after(max(0.0, when - self.world.now), "looks at the clock", "", self._ring)

    def _ring(self) -> None:
        self.alarm = inf
        self.perform(self.master.tick(self.world.now))

    def _noted(self, peer: Peer, message: Any) -> Any:
        """Take note of a message that is about to be sent, and return it."""
        if isinstance(message, say.RunGraph):
            self.world.last_step[self.me] = message.number
            self.world.takes_part.add((message.number, peer))
        elif isinstance(message, say.RegisterGraph | say.OpenWorkerSession):
            self.world.last_request[self.me] = message.number
        self.world.asked.add((self.me, peer, message.number))
        return message

    def _send(self, each: do.Send) -> list[Any]:
        self._noted(each.peer, each.message)
        if each.peer == self.me:
            return self._received(self.me, each.message)
        if each.peer in self.links:
            self.links[each.peer][0].send(self, each.message)
        return []

    def _connect(self, each: do.Connect) -> None:
        if each.task not in self.connecting:
            self.connecting.add(each.task)
            self._attempt(each.task)

    def _attempt(self, task: str) -> None:
        if task not in self.connecting:
            return
        target = self.world.current.get(task)
        if target is None or target.paused or self.world.random.random() < 0.1:
            self.after(0.2, "tries again to connect to", task, lambda: self._attempt(task))
        else:
            self.world.connect(self, target)
            self.after(1.0, "tries again to connect to", task, lambda: self._attempt(task))

    def _stop(self, each: do.Stop) -> None:
        if self.world.current.get(self.me.name) is self:
            self.world.violated(f"{self.me} has no successor and was fenced: {each.reason}")
        delay = self.world.random.random()
        self.after(delay, "stops", "", lambda: self.crash(silent=False))

    # -- The worker's work -------------------------------------------------------------------------

    def _open_state(self, each: do.OpenState) -> list[Any]:
        number = each.request.number
        if self.world.random.random() < 0.02:
            error = errors.InvalidArgumentError(None, None, "no such device")
            return self.worker.not_opened(each.session, number, error)
        self.states.add(each.session)
        devices = [[f"{self.me.name}/device:CPU:0", "CPU", 0, self.me.incarnation]]
        return self.worker.opened(each.session, number, devices, 0)

    def _close_state(self, each: do.CloseState) -> None:
        self.states.remove(each.session)
        if any(step.graph[0] == each.session for step in self.steps.values()):
            self.world.violated(f"the state of {each.session} is dropped while a step uses it")

    def _build(self, each: do.Build) -> None:
        until = self.world.now + _PATIENCE
        last = self.world.now + self.world.random.choice((0.0, 0.01, 0.5))

        def check() -> None:
            error: BaseException | None = None
            for name, incarnation in each.request.tasks.items():
                peer = Peer(name, incarnation)
                if peer == self.me or peer in self.links:
                    continue
                if any(p.name == name for p in self.links) or self.world.now > until:
                    error = errors.AbortedError(None, None, f"{name} has been restarted")
                    break
                self.perform([do.Connect(name, "host:1")])
                self.after(0.05, "waits for links to build", each.graph, check)
                return
            if error is None and self.world.random.random() < 0.02:
                error = errors.UnimplementedError(None, None, "no kernel")
            if error is None:
                self.graphs[each.graph] = each.request
            self.perform(self.worker.built(each.graph, error))

        self.after(last - self.world.now, "builds", each.graph, check)

    def _forget(self, each: do.Forget) -> None:
        self.graphs.pop(each.graph, None)

    def _start(self, each: do.Start) -> None:
        step = StepModel(self, each, self.graphs[each.graph])
        session = each.graph[0]
        if each.step in self.steps:
            self.world.violated(f"{self.me} starts step {each.step} twice")
        if session not in self.begun:
            self.begun.add(session)
            for other in self.steps.values():
                master = other.graph[0][0]
                old = master.name == session[0].name and master < session[0]
                if other.stopped is not None or old or other.run.precedes(step.run):
                    self.world.violated(f"the first step of {session} overlaps with {other}")
        self.steps[each.step] = step
        step.go_on()

    def ended(self, step: StepModel, fetches: Any, error: BaseException | None) -> None:
        """Nothing of a step runs any more."""
        del self.steps[step.number]
        elements = say.HELD if step.number % 3 == 0 else 0
        if elements:
            self.keeps.add(step.number)
        posts = None
        if error is None and not elements and not self.world.seed % 2:
            posts = self.worker.ended_again(step.number, tuple(fetches or ()))
        if not self._post_all(posts):
            self.perform(self.worker.ended(step.number, fetches, error, elements=elements))

    def _settle(self, each: do.Settle) -> None:
        if each.step not in self.keeps:
            self.world.violated(f"{self.me} settles step {each.step} twice")
        self.keeps.discard(each.step)

    def _cancel(self, each: do.CancelStep) -> None:
        self.steps[each.step].cancel(each.error, each.gentle)

    def _deliver(self, each: do.Deliver) -> None:
        self.steps[each.step].deliver(each.message)

    def _nothing(self, each: Any) -> None:
        """Containers and mirrored graphs are not simulated."""

    # -- The master's work -------------------------------------------------------------------------

    def _extend(self, each: do.Extend) -> list[Any]:
        return self.master.extended(each.request, None)

    def _divide(self, each: do.Divide) -> None:
        plan = each.step.targets
        error = found = None
        if self.world.random.random() < 0.02:
            error = errors.InvalidArgumentError(None, None, "no placement")
        else:
            tasks, covers = tasks_in(plan), covers_in(plan)
            covered = {task for each in covers.values() for task in each}
            parts = {
                task: ({"script": script_of(plan, task), "covered": task in covered}, b"")
                for task in tasks
            }
            sources = tuple((task, 0) for task in tasks if task not in covered)
            found = Divided(parts, dict.fromkeys(tasks, (0,)), sources, covers=covers)
        then = lambda: self.perform(  # noqa: E731
            self.master.divided(each.graph, found, error, self.world.now)
        )
        self.after(self.world.random.choice((0.0, 0.01, 0.3)), "divides", each.graph, then)


_DO: dict[type[Any], Any] = {
    do.Send: Process._send,
    do.Connect: Process._connect,
    do.Stop: Process._stop,
    do.OpenState: Process._open_state,
    do.CloseState: Process._close_state,
    do.Build: Process._build,
    do.Forget: Process._forget,
    do.Start: Process._start,
    do.CancelStep: Process._cancel,
    do.Settle: Process._settle,
    do.Deliver: Process._deliver,
    do.ResetState: Process._nothing,
    do.Extend: Process._extend,
    do.Drop: Process._nothing,
    do.Divide: Process._divide,
}
