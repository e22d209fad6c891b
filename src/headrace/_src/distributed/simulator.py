"""A cluster of masters and workers under a virtual clock and a virtual network. In: a seed. Out: a log
of events; Violation if an invariant does not hold.

The machines are the real ones. The drivers do as `server.task` does, with as little as the machines
may rely on: messages of one connection arrive in order or, when it is cut, not at all; both ends of
a cut connection learn of it, at different times; an end that loses one connection to a process
drops its others too. Tasks crash and restart, and are paused until others replace them; then they
wake up, and say anything at all. Steps are sequences of Sends, Recvs and updates.

    python -m headrace._src.distributed.simulator 17         replay a seed and print its log
    python -m headrace._src.distributed.simulator 0 5000     run many seeds
"""

from __future__ import annotations

import heapq
import sys
from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

from headrace._src.core import errors
from headrace._src.distributed import instructions as do
from headrace._src.distributed import messages as say
from headrace._src.distributed.instructions import Peer
from headrace._src.distributed.master import Divided, Master
from headrace._src.distributed.simulated_client import Client, Run
from headrace._src.distributed.simulated_step import SimulatedStep, script_of
from headrace._src.distributed.worker import Worker

__all__ = ["Connection", "Process", "Violation", "World", "simulate"]

TASKS = tuple(f"/job:{job}/replica:0/task:{i}" for job, i in [("w", 0), ("w", 1), ("ps", 0)])
_CHAOS = 6.0  # virtual seconds with faults
_END = 120.0  # virtual seconds after which everything must be quiet
_PATIENCE = 5.0  # of a build for its connections; see server.task
_BOUND = 5.0  # within which the steps of a failed run end everywhere
_TO_WORKER = (
    *(say.OpenWorkerSession, say.CloseWorkerSession, say.RegisterGraph, say.DeregisterGraph),
    *(say.RunGraph, say.AbortStep, say.Tensor),
)
_TRAPS = (
    *(say.OpenWorkerSession, say.WorkerSessionOpened, say.RegisterGraph, say.Done, say.RunGraph),
    *(say.Tensor, say.Tensor, say.Tensor, say.StepDone, say.StepFailed, say.AbortStep),
)


class Violation(AssertionError):
    """An invariant does not hold. `log`: the events until then."""

    def __init__(self, seed: int, reason: str, log: list[str]) -> None:
        shown = "\n".join(log[-80:])
        super().__init__(
            f"seed {seed}: {reason}\n{shown}\n"
            f"replay: python -m headrace._src.distributed.simulator {seed}"
        )
        self.seed, self.reason, self.log = seed, reason, log


class Stale(NamedTuple):
    """A message of an old process, whose number is that of a step or request of others."""

    message: Any


class Connection:
    """A connection between two parties. arrivals: when the last message arrives at each end."""

    def __init__(self, world: World, one: Any, two: Any) -> None:
        self.world = world
        self.ends = one, two
        self.peers = one.me, two.me
        self.arrivals = [0.0, 0.0]
        self.is_cut = False
        world.connections.append(self)

    def other(self, party: Any) -> Any:
        return self.ends[self.ends[0] is party]

    def peer_of(self, party: Any) -> Peer:
        """Return the process at the other end."""
        return self.peers[self.ends[0] is party]

    def send(self, source: Any, message: Any) -> None:
        """Send a message; it arrives after those sent before, unless the connection is cut."""
        target = self.other(source)

        def arrive() -> None:
            if not self.is_cut:
                target.do(lambda: target.frame(self, self.peer_of(target), message))

        self._post(target, "receives", (self.peer_of(target), message), arrive)
        self.world.spring(self, source, message)

    def close(self, source: Any) -> None:
        """Close it from one end: the other learns of it after the messages under way."""
        target = self.other(source)
        self._post(target, "sees the end of", self.peer_of(target), lambda: self.tell(target))

    def cut(self) -> None:
        """Lose all messages under way; both ends learn of it, at different times."""
        self.is_cut = True
        for end, linked in zip(self.ends, self.arrivals, strict=True):
            delay = self.world.random.choice((0.001, 0.1, 1.2)) * self.world.random.random()
            when, tell = max(linked, self.world.now + delay), lambda e=end: self.tell(e)
            self.world.at(when, end.me, "sees the cut from", self.peer_of(end), tell)

    def tell(self, end: Any) -> None:
        end.do(lambda: end.unlinked(self))

    def _post(self, target: Any, verb: str, what: Any, then: Callable[[], None]) -> None:
        side = self.ends.index(target)
        when = max(self.arrivals[side], self.world.now + self.world.delay())
        self.arrivals[side] = when
        self.world.at(when, target.me, verb, what, then)


class Process:
    """A task's process: the machines, and a driver that follows their instructions."""

    def __init__(self, world: World, name: str, incarnation: int) -> None:
        self.world = world
        self.me = Peer(name, incarnation)
        self.worker = Worker(name, incarnation)
        addresses = dict.fromkeys(TASKS, "host:1")
        self.master = Master(name, incarnation, addresses, lambda t: t[1], lambda: 0)
        self.links: dict[Peer, list[Connection]] = {}
        self.connecting: set[str] = set()
        self.alive, self.paused = True, False
        self.woke = 0.0
        self.backlog: deque[Callable[[], None]] = deque()
        self.alarm: float | None = None
        self.states: set[Any] = set()  # of open sessions
        self.graphs: dict[Any, say.RegisterGraph] = {}  # executables
        self.steps: dict[int, SimulatedStep] = {}
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

            def give_up(link: Connection = link, other: Any = other) -> None:
                if self.paused and self.woke < stopped and other.holds(link):
                    link.close(other)
                    other.unlinked(link)

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
                    links[0].send(self, Stale(say.Tensor(number, edge, 0, "", ("stale", self.me))))
                links[0].send(self, Stale(say.StepDone(number, 0, ("stale",))))
            for number in self.world.likely_requests():
                links[0].send(self, Stale(say.Done(number)))

    # -- The driver --------------------------------------------------------------------------------

    def holds(self, link: Connection) -> bool:
        return any(link in links for links in self.links.values())

    def linked(self, link: Connection) -> None:
        """There is a new connection."""
        peer = link.peer_of(self)
        older = [p for p in self.links if p.name == peer.name and p.incarnation < peer.incarnation]
        self.links.setdefault(peer, []).append(link)
        self.connecting.discard(peer.name)
        for old in older:  # messages of theirs may still be under way inside the driver
            for stale in self.links[old]:
                close = lambda s=stale: (s.close(self), self.unlinked(s))  # noqa: E731
                delay = self.world.random.choice((0.0, 0.3, 3.0)) * self.world.random.random()
                self.after(delay, "drops", old, close)
        if peer.name in TASKS:
            self.perform(self.master.connected(peer, self.world.now))

    def unlinked(self, link: Connection) -> None:
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

    def frame(self, link: Connection, peer: Peer, message: Any) -> None:
        if not self.holds(link):
            return
        if isinstance(message, Stale):
            message = message.message
            if (self.me, peer, message.number) in self.world.asked:
                return  # that is not an old process, but one that lies
        self.perform(self._received(peer, message))

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
        when = self.master.next_time()
        if when is not None and (self.alarm is None or when < self.alarm):
            self.alarm = when
            self.after(max(0.0, when - self.world.now), "looks at the clock", "", self._ring)

    def _ring(self) -> None:
        self.alarm = None
        self.perform(self.master.tick(self.world.now))

    def _send(self, each: do.Send) -> list[Any]:
        if isinstance(each.message, say.RunGraph):
            self.world.last_step[self.me] = each.message.number
            self.world.takes_part.add((each.message.number, each.peer))
        elif isinstance(each.message, say.RegisterGraph | say.OpenWorkerSession):
            self.world.last_request[self.me] = each.message.number
        self.world.asked.add((self.me, each.peer, each.message.number))
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
        if target is self or any(peer.name == task for peer in self.links) and target is None:
            return
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
        step = SimulatedStep(self, each, self.graphs[each.graph])
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

    def ended(self, step: SimulatedStep, fetches: Any, error: BaseException | None) -> None:
        """Nothing of a step runs any more."""
        del self.steps[step.number]
        self.perform(self.worker.ended(step.number, fetches, error))

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
            tasks = sorted({name for op in plan for name in op.split()[1:]})
            parts = {task: ({"script": script_of(plan, task)}, b"") for task in tasks}
            sources = tuple((task, 0) for task in tasks)
            found = Divided(parts, dict.fromkeys(tasks, (0,)), sources)
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
    do.Deliver: Process._deliver,
    do.ResetState: Process._nothing,
    do.Extend: Process._extend,
    do.Drop: Process._nothing,
    do.Divide: Process._divide,
}


class World:
    """The clock, the network, the processes and the clients of one seed."""

    def __init__(self, seed: int) -> None:
        self.seed, self.random = seed, Random(seed)
        self.now = 0.0
        self.calm = False
        self.log: list[tuple[float, Any, str, Any]] = []
        self.connections: list[Connection] = []
        self.current: dict[str, Process] = {}  # the newest process of each task that is up
        self.processes: list[Process] = []
        self.runs: dict[int, Run] = {}
        self.last_step: dict[Peer, int] = {}
        self.last_request: dict[Peer, int] = {}
        self.takes_part: set[tuple[int, Peer]] = set()  # steps and the processes that run them
        self.asked: set[tuple[Peer, Peer, int]] = set()  # requests by sender and receiver
        self.trouble: set[Peer] = set()  # processes that something has happened to
        self.traps: list[tuple[type[Any], Callable[[Connection, Any], None]]] = []
        self._queue: list[Any] = []
        self._serial = 0
        self._slow = self.random.choice((0.001, 0.01, 0.1))
        for name in TASKS:
            self.start(name)
        self.clients = [Client(self, i, TASKS[i % 2]) for i in range(self.random.randint(1, 3))]

    # -- Time --------------------------------------------------------------------------------------

    def after(
        self, delay: float, who: Peer | str, verb: str, what: Any, then: Callable[[], Any]
    ) -> None:
        """Let something happen later."""
        self.at(self.now + delay, who, verb, what, then)

    def at(
        self, when: float, who: Peer | str, verb: str, what: Any, then: Callable[[], Any]
    ) -> None:
        """Let something happen at a time, after what was to happen then already."""
        self._serial += 1
        heapq.heappush(self._queue, (when, self._serial, who, verb, what, then))

    def note(self, who: Any, verb: str, what: Any) -> None:
        self.log.append((self.now, who, verb, what))

    def lines(self) -> list[str]:
        """Return the log, to be read."""
        return [f"{at:9.4f} {_short(who)} {verb} {_short(what)}" for at, who, verb, what in self.log]

    def violated(self, reason: str) -> None:
        raise Violation(self.seed, f"{reason} (at {self.now:.4f})", self.lines())

    def delay(self) -> float:
        slow = 1.0 if self.random.random() < 0.01 else self._slow
        return slow * self.random.random()

    # -- Processes ---------------------------------------------------------------------------------

    def start(self, name: str) -> Process:
        made = Process(self, name, int((self.now + 1) * 1e9) + len(self.processes))
        self.note(made.me, "starts", "")
        self.processes.append(made)
        self.current[name] = made
        if self.random.random() < 0.5:
            made.perform([do.Connect(task, "host:1") for task in TASKS if task != name])
        return made

    def connect(self, source: Any, target: Process) -> Connection:
        """Connect two parties; the one that was asked knows first."""
        made = Connection(self, source, target)
        first = self.now + self.delay()
        made.arrivals = [first + self.delay(), first]
        for end, when in zip(made.ends, made.arrivals, strict=True):
            link = lambda end=end: end.do(lambda: end.linked(made))  # noqa: E731
            self.at(when, end.me, "is linked to", made.peer_of(end), link)
        return made

    def connections_of(self, party: Any) -> list[Connection]:
        """Return the connections of a process, and those that are being made."""
        return [each for each in self.connections if party in each.ends and not each.is_cut]

    def likely_steps(self) -> list[int]:
        """Return numbers of steps that run, or run soon."""
        return [last + more for last in self.last_step.values() for more in (0, 1, 2)]

    def likely_requests(self) -> list[int]:
        return [last + more for last in self.last_request.values() for more in range(-1, 4)]

    # -- Faults ------------------------------------------------------------------------------------

    def _plan_faults(self) -> None:
        faults = [self._crash, self._pause, self._pause, self._cut, self._kill_client]
        faults += [self._set_trap] * 4
        for _ in range(self.random.randint(0, 8)):
            fault = self.random.choice(faults)
            self.after(self.random.uniform(0.2, _CHAOS - 1), "fate", fault.__name__, "", fault)

    def _set_trap(self) -> None:
        """Let a fault happen to the next message of some kind."""
        faults = [self._cut_one, self._cut_one, lambda _, sender: self._crash(sender)]
        self.traps.append((self.random.choice(_TRAPS), self.random.choice(faults)))

    def spring(self, link: Connection, sender: Any, message: Any) -> None:
        for trap in self.traps:
            if isinstance(message, trap[0]) and isinstance(sender, Process) and not self.calm:
                self.traps.remove(trap)
                self.after(0.0, "fate", "springs a trap at", message, lambda: trap[1](link, sender))
                return

    def _crash(self, process: Process | None = None) -> None:
        process = process or self.random.choice(list(self.current.values()))
        if self.current.get(process.me.name) is not process:
            return
        if process.alive and not process.paused:
            self.trouble.add(process.me)
            self.note(process.me, "crashes", "")
            process.crash(silent=self.random.random() < 0.3)
            del self.current[process.me.name]
            self._restart(process.me.name)

    def _restart(self, name: str) -> None:
        def start() -> None:
            if name not in self.current:
                self.start(name)

        delay = self.random.choice((0.001, 0.2, 1.0)) * self.random.random()
        self.after(delay, "fate", "starts", name, start)

    def _pause(self) -> None:
        process = self.random.choice(list(self.current.values()))
        name = process.me.name
        if not process.alive or process.paused:
            return
        self.note(process.me, "is paused", "")
        process.pause()
        self.trouble.add(process.me)

        def replace() -> None:
            if process.paused and self.current.get(name) is process:
                del self.current[name]
                self._restart(name)

        def wake() -> None:
            if process.paused:
                self.note(process.me, "wakes up", "")
                process.wake()

        if self.random.random() < 0.7:
            self.after(self.random.uniform(0.5, 1.5), "fate", "replaces", name, replace)
        self.after(self.random.uniform(0.1, 3.0), "fate", "wakes", process.me, wake)

    def _cut(self) -> None:
        live = [c for c in self.connections if not c.is_cut and all(e.holds(c) for e in c.ends)]
        if live:
            self._cut_one(self.random.choice(live))

    def _cut_one(self, link: Connection, sender: Any = None) -> None:
        if not link.is_cut:
            for end in link.ends:
                self.trouble.add(end.me)
            self.note("fate", "cuts", [end.me for end in link.ends])
            link.cut()

    def _kill_client(self) -> None:
        self.random.choice(self.clients).die()

    def _be_calm(self) -> None:
        self.calm = True

    # -- Invariants --------------------------------------------------------------------------------

    def applied(self, process: Process, step: SimulatedStep) -> None:
        """A step has applied its update."""
        step.run.applied.append(process.me)
        if step.run.applied.count(process.me) > 1 or process.me not in step.run.expected:
            self.violated(f"run {step.run.token} must not be applied here: {step.run.applied}")

    def succeeded(self, run: Run, fetches: Any) -> None:
        """A client was told that its run has succeeded."""
        run.succeeded = True
        if sorted(run.applied) != run.expected:
            self.violated(f"run {run.token} succeeded, but was applied at {run.applied}")
        names = sorted({name for op in run.plan for name in op.split()[1:]})
        if list(fetches) != [(run.token, Peer(name, run.tasks[name])) for name in names]:
            self.violated(f"run {run.token} returned {fetches}")

    def failed(self, run: Run, master: Peer | None, code: int, text: str) -> None:
        """A client was told by its master that its run has failed, or has lost its master."""
        run.failed_by, run.failed_at = master, self.now
        names = {name for op in run.plan for name in op.split()[1:]}
        part = {Peer(name, run.tasks[name]) for name in names} | {run.master}
        if "has been restarted" in text:  # a worker may still be connected to the old process
            part |= {peer for peer in self.trouble if peer.name in names}
        if code in (errors.ABORTED, errors.UNAVAILABLE) and not part & self.trouble:
            self.violated(f"run {run.token} failed without a reason: {text}")
        self.after(_BOUND, "the judge", "looks for", run.token, lambda: self._check_ended(run))

    def _check_ended(self, run: Run) -> None:
        for process in self.processes:
            busy = process.alive and any(step.run is run for step in process.steps.values())
            if busy and (process.paused or process.woke > self.now - _BOUND):
                self.after(_BOUND, "the judge", "looks for", "", lambda: self._check_ended(run))
            elif busy:
                self.violated(f"run {run.token} failed, but still runs at {process.me}")

    def _check_end(self) -> None:
        for client in self.clients:
            if not client.is_over:
                self.violated(f"{client.me} still waits for {client.pending} of {client.target}")
        for process in self.processes:
            if not process.alive:
                continue
            held = {**process.worker.held(), **process.master.held()}
            held |= {"states": len(process.states), "executables": len(process.graphs)}
            if any(held.values()):
                self.violated(f"{process.me} still holds {held}")

    def run(self) -> World:
        """Let everything happen, until all clients are gone."""
        self._plan_faults()
        self.after(_CHAOS, "fate", "is calm", "", self._be_calm)
        try:
            while self._queue and self.now < _END:
                self.now, _, who, verb, what, then = heapq.heappop(self._queue)
                self.log.append((self.now, who, verb, what))
                then()
            self._check_end()
        except Violation:
            raise
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise Violation(self.seed, reason, self.lines()) from error
        return self


def _short(what: Any) -> str:
    """Return a text for the log: processes as w0#2."""
    if isinstance(what, Peer):
        spec = what.name.replace("/job:", "").replace("/replica:0/task:", "")
        return f"{spec}#{what.incarnation % 1000}"
    if isinstance(what, tuple) and not hasattr(what, "_fields"):
        return "(" + ", ".join(map(_short, what)) + ")"
    return str(what)


def simulate(seed: int) -> World:
    """Simulate a cluster; Violation if an invariant does not hold."""
    return World(seed).run()


def main(arguments: list[str]) -> int:
    """Replay one seed, or run many."""
    first, *more = map(int, arguments)
    if not more:
        try:
            print("\n".join(simulate(first).lines()))
        except Violation as violation:
            print("\n".join(violation.log))
            print(violation.reason)
            return 1
        return 0
    failures = 0
    for seed in range(first, first + more[0]):
        try:
            simulate(seed)
        except Violation as violation:
            failures += 1
            print(f"seed {seed}: {violation.reason}", flush=True)
    print(f"{more[0]} seeds, {failures} failures")
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
