"""A cluster of machines without sockets: messages are delivered one by one, in an order that a test
chooses. Steps do nothing but end when the test says so.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from headrace._src.core.proto import ConfigProto
from headrace._src.distributed import instructions as do
from headrace._src.distributed import messages as say
from headrace._src.distributed.instructions import Peer
from headrace._src.distributed.master import Master
from headrace._src.distributed.sessions import Divided
from headrace._src.distributed.worker import Worker

CLIENT = Peer("client", 1)


class FakeTask:
    """A server: a worker and a master. started: the steps that run; cancelled: of these."""

    def __init__(self, cluster: FakeCluster, name: str, incarnation: int) -> None:
        self.cluster = cluster
        self.me = Peer(name, incarnation)
        self.worker = Worker(name, incarnation)
        self.master = Master(
            name, incarnation, cluster.addresses, lambda tensors: len(tensors), lambda: 0
        )
        self.started: dict[int, do.Start] = {}
        self.cancelled: dict[int, do.CancelStep] = {}
        self.delivered: list[tuple[int, Any]] = []
        self.builds: deque[do.Build] = deque()
        self.done: list[Any] = []
        self.stopped = False

    def perform(self, instructions: list[Any]) -> None:
        for each in instructions:
            self.done.append(each)
            match each:
                case do.Send(peer, message):
                    self.cluster.post(self.me, peer, message)
                case do.Connect(task):
                    self.cluster.connect(self.me.name, task)
                case do.OpenState(session, request):
                    devices = [[f"{self.me.name}/device:CPU:0", "CPU", 0, self.me.incarnation]]
                    self.perform(self.worker.opened(session, request.number, devices, 0))
                case do.Build(graph):
                    if self.cluster.builds_at_once:
                        self.perform(self.worker.built(graph, None))
                    else:
                        self.builds.append(each)
                case do.Start(step):
                    self.started[step] = each
                case do.CancelStep(step):
                    self.cancelled[step] = each
                case do.Deliver(step, message):
                    self.delivered.append((step, message))
                case do.Extend(_, request):
                    self.perform(self.master.extended(request, None))
                case do.Divide(_, graph):
                    found = self.cluster.divided
                    self.perform(self.master.divided(graph, found, None, self.cluster.now))
                case do.Stop():
                    self.stopped = True

    def end(
        self,
        step: int,
        fetches: Any = (),
        error: BaseException | None = None,
        elements: int = 0,
    ) -> None:
        """Let a step end."""
        del self.started[step]
        self.perform(self.worker.ended(step, fetches, error, elements=elements))

    def receive(self, peer: Peer, message: Any) -> None:
        kind = type(message).__name__
        to_worker = {"OpenWorkerSession", "CloseWorkerSession", "RegisterGraph", "DeregisterGraph"}
        to_worker |= {"RunGraph", "AbortStep", "SettleStep", "Tensor"}
        if kind in to_worker or (kind == "ResetContainers" and peer != CLIENT):
            self.perform(self.worker.received(peer, message))
        else:
            self.perform(self.master.received(peer, message, self.cluster.now))


class FakeCluster:
    """Tasks and the network between them."""

    builds_at_once = True

    def __init__(self, *names: str) -> None:
        self.now = 0.0
        self.addresses = {name: f"host-of-{name}:1" for name in names}
        self.tasks: dict[str, FakeTask] = {}
        self.wanted: set[tuple[str, str]] = set()  # connections that are tried
        self.mail: deque[tuple[Peer, Peer, Any]] = deque()
        self.answers: list[Any] = []  # to the client
        self._incarnation = 0
        each = {name: ({}, b"") for name in names}
        self.divided = Divided(each, dict.fromkeys(names, ()), ())

    def start(self, name: str) -> FakeTask:
        """Start a task, or restart it as another process."""
        self._incarnation += 1
        task = self.tasks[name] = FakeTask(self, name, self._incarnation)
        task.perform(task.master.connected(task.me, self.now))
        for other, wanted in list(self.wanted):
            if wanted == name and other in self.tasks:
                self.connect(other, name)
        return task

    def kill(self, name: str) -> None:
        """End a task; the others notice."""
        gone = self.tasks.pop(name)
        for task in list(self.tasks.values()):
            task.perform(task.worker.lost(gone.me))
            task.perform(task.master.lost(gone.me, self.now))

    def connect(self, source: str, task: str) -> None:
        self.wanted.add((source, task))
        if task in self.tasks:
            one, two = self.tasks[source], self.tasks[task]
            one.perform(one.master.connected(two.me, self.now))
            two.perform(two.master.connected(one.me, self.now))

    def post(self, source: Peer, target: Peer, message: Any) -> None:
        self.mail.append((source, target, say.decode(*say.encode(message))))

    def deliver(self) -> None:
        """Deliver all messages, in order."""
        while self.mail:
            source, target, message = self.mail.popleft()
            if target == CLIENT:
                self.answers.append(message)
            elif target.name in self.tasks and self.tasks[target.name].me == target:
                self.tasks[target.name].receive(source, message)

    def ask(self, master: str, message: Any) -> Any:
        """Send a client's message, deliver all, and return the answer, if there is one."""
        self.tasks[master].receive(CLIENT, message)
        self.deliver()
        return self.answer(message.number)

    def answer(self, number: int) -> Any:
        found = [each for each in self.answers if each.number == number]
        assert len(found) < 2, "each request is answered once"
        return found[0] if found else None

    def open(self, master: str, number: int = 1, **config: Any) -> int:
        """Open a session; return its number."""
        message = say.OpenSession(number, ConfigProto(**config).SerializeToString())
        return self.ask(master, message).session

    def prepare(self, master: str, session: int, number: int = 2) -> int:
        return self.ask(master, say.Prepare(number, session, [], [], [], 0)).step

    def tick(self, seconds: float) -> None:
        self.now += seconds
        for task in list(self.tasks.values()):
            task.perform(task.master.tick(self.now))
        self.deliver()
