"""A cluster of masters and workers under a virtual clock and a virtual network. In: a seed. Out: a
log of events; Violation if an invariant does not hold.

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
from collections.abc import Callable
from random import Random
from typing import Any

from headrace._src.core import errors
from headrace._src.distributed import instructions as do
from headrace._src.distributed import messages as say
from headrace._src.distributed.instructions import Peer
from headrace._src.distributed.simulated_client import Client, Run
from headrace._src.distributed.simulated_network import SimulatedConnection
from headrace._src.distributed.simulated_process import TASKS, Process
from headrace._src.distributed.simulated_step import StepModel, covers_in, tasks_in

__all__ = ["Violation", "World", "main", "simulate"]

_CHAOS = 6.0  # virtual seconds with faults
_END = 120.0  # virtual seconds after which everything must be quiet
_BOUND = 5.0  # within which the steps of a failed run end everywhere
_TRAPS = (
    *(say.OpenWorkerSession, say.WorkerSessionOpened, say.RegisterGraph, say.Done, say.RunGraph),
    *(say.SentTensor, say.SentTensor, say.SentTensor, say.StepDone, say.StepFailed, say.AbortStep),
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


class World:
    """The clock, the network, the processes and the clients of one seed."""

    def __init__(self, seed: int) -> None:
        self.seed, self.random = seed, Random(seed)
        self.now = 0.0
        self.calm = False
        self.log: list[tuple[float, Any, str, Any]] = []
        self.connections: list[SimulatedConnection] = []
        self.current: dict[str, Process] = {}  # the newest process of each task that is up
        self.processes: list[Process] = []
        self.runs: dict[int, Run] = {}
        self.last_step: dict[Peer, int] = {}
        self.last_request: dict[Peer, int] = {}
        self.takes_part: set[tuple[int, Peer]] = set()  # steps and the processes that run them
        self.asked: set[tuple[Peer, Peer, int]] = set()  # requests by sender and receiver
        self.trouble: set[Peer] = set()  # processes that something has happened to
        self.traps: list[tuple[type[Any], Callable[[SimulatedConnection, Any], None]]] = []
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
        return [
            f"{at:9.4f} {_short(who)} {verb} {_short(what)}" for at, who, verb, what in self.log
        ]

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

    def connect(self, source: Any, target: Process) -> SimulatedConnection:
        """Connect two parties; the one that was asked knows first."""
        made = SimulatedConnection(self, source, target)
        first = self.now + self.delay()
        made.arrivals = [first + self.delay(), first]
        for end, when in zip(made.ends, made.arrivals, strict=True):
            link = lambda end=end: end.do(lambda: end.linked(made))  # noqa: E731
            self.at(when, end.me, "is linked to", made.peer_of(end), link)
        return made

    def connections_of(self, party: Any) -> list[SimulatedConnection]:
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

    def spring(self, link: SimulatedConnection, sender: Any, message: Any) -> None:
        """Let the fault of a trap happen, if there is one for a message."""
        found = [trap for trap in self.traps if isinstance(message, trap[0])]
        if found and isinstance(sender, Process) and not self.calm:
            self.traps.remove(found[0])
            fault = found[0][1]
            self.after(0.0, "fate", "springs a trap at", message, lambda: fault(link, sender))

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

    def _cut_one(self, link: SimulatedConnection, sender: Any = None) -> None:
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

    def applied(self, process: Process, step: StepModel) -> None:
        """A step has applied its update."""
        step.run.applied.append(process.me)
        if step.run.applied.count(process.me) > 1 or process.me not in step.run.expected:
            self.violated(f"run {step.run.token} must not be applied here: {step.run.applied}")

    def succeeded(self, run: Run, fetches: Any) -> None:
        """A client was told that its run has succeeded."""
        run.succeeded = True
        if sorted(run.applied) != run.expected:
            self.violated(f"run {run.token} succeeded, but was applied at {run.applied}")
        covered = {task for tasks in covers_in(run.plan).values() for task in tasks}
        names = [task for task in tasks_in(run.plan) if task not in covered]
        if list(fetches) != [(run.token, Peer(name, run.tasks[name])) for name in names]:
            self.violated(f"run {run.token} returned {fetches}")

    def failed(self, run: Run, master: Peer | None, code: int, text: str) -> None:
        """A client was told by its master that its run has failed, or has lost its master."""
        run.failed_by, run.failed_at = master, self.now
        names = set(tasks_in(run.plan))
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
            held["steps with elements"] = len(process.keeps)
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
