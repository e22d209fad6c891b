"""Faults in a training cluster, one after the other, from a seed. In: a seed and a number of
faults. Out: figures; an AssertionError if something was lost or left behind.

Two parameter servers and two workers train all the time. A fault is armed in one of them, and
happens when it reaches that point. Its process is started again if it died, nothing else is done:
training has to go on by itself. At the end the parameters have to be those that a single process
computes from the log of the updates that survived.
"""

import os
import random
import re
import signal
import sys
import tempfile
import time
from dataclasses import dataclass, field

import numpy as np

from headrace._src.core.faults import KINDS, POINTS
from tests.faults.clusters import training
from tests.faults.clusters.processes import Cluster, segments

PS, WORKERS = 2, 2
CHIEF = "worker", 0
_LEFT = re.compile(r"_temp_")  # drafts of single files go with the first save after a minute
_RARE = ("save", "restore", "register")  # points that are reached once per session or checkpoint


@dataclass
class Fault:
    """What is to happen: where, what, in which task, the how manieth time it gets there; and
    whether a stopped process is continued (or killed).
    """

    point: str
    kind: str
    victim: tuple[str, int]
    count: int
    resumed: bool

    def __str__(self):
        job, index = self.victim
        return f"{self.point}:{self.kind}:{self.count} in {job} {index}"


@dataclass
class Report:
    """detected, recovered: seconds, for each fault that a session noticed, and for all."""

    seed: int
    faults: list[Fault] = field(default_factory=list)
    detected: dict[str, list[float]] = field(default_factory=dict)
    recovered: dict[str, list[float]] = field(default_factory=dict)
    lost: list[int] = field(default_factory=list)
    updates: int = 0
    seconds: float = 0.0

    def __str__(self):
        def show(found):
            each = [f"{kind} {np.mean(s):.2f}" for kind, s in sorted(found.items()) if s]
            every = [t for s in found.values() for t in s]
            return f"{np.mean(every or [0]):.2f} s ({', '.join(each)})"

        return (
            f"seed {self.seed}: {len(self.faults)} faults in {self.seconds:.0f} s, "
            f"{self.updates} updates survive\n"
            f"  mean time to detect  {show(self.detected)}\n"
            f"  mean time to recover {show(self.recovered)}\n"
            f"  steps lost           {np.mean(self.lost or [0]):.1f} per fault, "
            f"{sum(self.lost)} in all"
        )


def plan(seed, count):
    """Return `count` faults. All points and kinds occur, if there are enough; delays are rare: each
    takes 5 s.
    """
    rng = random.Random(seed)
    pairs = [(p, k) for p in POINTS for k in KINDS if k != "half" or p == "mid-frame"]
    rng.shuffle(pairs)
    pairs.sort(key=lambda pair: pair[1] != "half")  # the only one of its kind is never left out
    brief = [pair for pair in pairs if pair[1] != "delay"]
    delays = [pair for pair in pairs if pair[1] == "delay"]
    wanted = []
    while len(wanted) < count:
        few = max(1, count // 10)
        some = brief[: count - few] + delays[:few]
        rng.shuffle(some)
        wanted += some
        brief, delays = brief[1:] + brief[:1], delays[1:] + delays[:1]
    faults = []
    for point, kind in wanted[:count]:
        ps = point in _RARE or rng.random() < 0.5
        victim = ("ps", rng.randrange(PS)) if ps else ("worker", rng.randrange(WORKERS))
        times = 1 if point in _RARE else rng.randint(1, 12)
        faults.append(Fault(point, kind, victim, times, rng.random() < 0.5))
    assert count < len(POINTS) * 3 or {f.point for f in faults} == set(POINTS)
    return faults


class Chaos:
    """A cluster that trains, and the faults that happen to it."""

    def __init__(self, cluster, seed):
        self.cluster = cluster
        self.report = Report(seed)
        self.healthy = time.monotonic()

    def begin(self):
        for ps in range(PS):
            self.cluster.start("ps", ps)
        for worker in range(WORKERS):
            self.cluster.start("worker", worker)
        self.cluster.wait_applied(5, self.healthy, limit=120)

    def suffer(self, fault):
        """Let a fault happen and wait until training goes on."""
        cluster = self.cluster
        self.report.faults.append(fault)
        victim = cluster.tasks[fault.victim]
        armed, known = len(victim.of("armed")), len(victim.struck())
        before = self._last_step()
        victim.tell(f"arm {fault.point}:{fault.kind}:{fault.count}")
        cluster.wait(lambda: len(victim.of("armed")) > armed, f"{fault}: the answer")
        if fault.point in ("restore", "register"):
            cluster.tasks[CHIEF].tell("break")  # it makes a new session
        _, at = cluster.wait(lambda: victim.struck()[known:], f"{fault}: it happens")[0]
        if fault.kind == "kill":
            victim.process.wait()
            cluster.start(*fault.victim)
        elif fault.kind == "stop":
            self._detect(fault, at, limit=5.0)
            if fault.resumed:
                os.kill(victim.pid, signal.SIGCONT)
            else:
                os.kill(victim.pid, signal.SIGKILL)
                victim.process.wait()
                cluster.start(*fault.victim)
        cluster.wait_applied(3, at)
        self._measure(fault, at, before)

    def _lost_after(self, at):
        return [t - at for t, _, e in self.cluster.events("lost") if t > at]

    def _detect(self, fault, at, limit):
        """Wait until a session notices; the loss of a worker concerns no other session."""
        if fault.victim[0] == "ps":
            self.cluster.wait(lambda: self._lost_after(at), f"{fault}: somebody notices", 30.0)
            return
        until = time.monotonic() + limit / 3
        while time.monotonic() < until and not self._lost_after(at):
            time.sleep(0.01)

    def _last_step(self):
        return self.cluster.events("applied")[-1][2]["step"]

    def _measure(self, fault, at, before):
        report = self.report
        noticed = self._lost_after(at)
        if noticed and fault.point not in ("restore", "register"):  # there, the trigger is noticed
            report.detected.setdefault(fault.kind, []).append(min(noticed))
        since = max([at, *(t for t, _, _ in self.cluster.events("created") if t > at)])
        firsts = []
        for worker in range(WORKERS):
            found = [e["t"] for e in self.cluster.tasks["worker", worker].of("applied")]
            firsts.append(min((t for t in found if t >= since), default=since))
        report.recovered.setdefault(fault.kind, []).append(max(firsts) - at)
        restored = [
            e["step"]
            for t, task, e in self.cluster.events("created")
            if t > at and (task.job, task.index) == CHIEF
        ]
        report.lost.append(max([0, *(before - step for step in restored)]))

    def end(self):
        """Let the workers end by themselves, the chief last; the parameter servers follow."""
        cluster = self.cluster
        for worker in reversed(range(WORKERS)):
            task = cluster.tasks["worker", worker]
            task.tell("stop")
            cluster.wait(lambda task=task: task.of("ended"), f"the end of {task.name}")
            assert task.process.wait() == 0, cluster.report()
        for ps in range(PS):
            task = cluster.tasks["ps", ps]
            ended = task.process.poll
            cluster.wait(lambda ended=ended: ended() is not None, f"the end of {task.name}")
            assert task.process.returncode == 0, cluster.report()

    # -- Checks ------------------------------------------------------------------------------------

    def check(self):
        self._check_points()
        self._check_checkpoints()
        self._check_state()
        self._check_left_over()

    def _check_points(self):
        struck = {f.partition(":")[0] for task in self.cluster.all for f, _ in task.struck()}
        wanted = {fault.point for fault in self.report.faults}
        assert struck >= wanted, f"never hit: {sorted(wanted - struck)}"

    def _check_checkpoints(self):
        """A chief goes on at the last checkpoint that was acknowledged, or later."""
        saved = 0
        for _, task, event in self.cluster.events():
            if event["event"] == "saved":
                saved = event["step"]
            elif event["event"] == "created" and (task.job, task.index) == CHIEF:
                assert event["step"] >= saved, f"the checkpoint of step {saved} was lost"

    def _check_state(self):
        with np.load(os.path.join(self.cluster.directory, "final.npz")) as file:
            *states, _ = [file[name] for name in file.files]
        chiefs = [t for t, task, _ in self.cluster.events("created") if task.index == 0]
        for ps, state in enumerate(states):
            log = state[training.PARAMETERS :].reshape(WORKERS, -1, training.WIDTH)
            counts = {}
            for worker, batch in np.argwhere(log[:, :, 0]):
                times = log[worker, batch, 0]
                assert log[worker, batch, 2] == times * batch, (ps, worker, batch)
                assert log[worker, batch, 3] == times * worker, (ps, worker, batch)
                counts[int(worker), int(batch)] = int(times)
            replayed = training.replay(counts, ps)
            wrong = np.flatnonzero(state[: training.PARAMETERS] != replayed)
            assert not wrong.size, f"ps {ps}: {wrong.size} parameters differ from the log's"
            for task in self.cluster.all:
                begun = None
                for event in task.events:
                    if event["event"] == "begun":
                        begun = event["t"]
                    elif event["event"] == "applied" and begun > chiefs[-1]:
                        assert (task.index, event["batch"]) in counts, (ps, task.name, event)
            self.report.updates = max(self.report.updates, sum(counts.values()))

    def _check_left_over(self):
        deadline = time.monotonic() + 5.0
        while self.cluster.left_over() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not self.cluster.left_over(), self.cluster.report()
        left = [n for n in os.listdir(self.cluster.directory) if _LEFT.search(n)]
        assert not left, left

    def check_segments(self):
        """Processes that have seen many sessions have no more shared memory or sockets for it."""
        for task in self.cluster.tasks.values():
            count, files = segments(task.pid), len(os.listdir(f"/proc/{task.pid}/fd"))
            assert count <= 4 * (PS + WORKERS) and files <= 100, (task.name, count, files)


def run(seed, count, directory, tell=None, **environment):
    """Run `count` faults; return the report."""
    began = time.monotonic()
    options = {"batches": 2000 + 400 * count}
    with Cluster(directory, PS, WORKERS, options, **environment) as cluster:
        chaos = Chaos(cluster, seed)
        chaos.begin()
        for number, fault in enumerate(plan(seed, count), 1):
            before = time.monotonic()
            chaos.suffer(fault)
            if tell is not None:
                tell(f"{number:3} {time.monotonic() - before:5.1f} s  {fault}")
        chaos.check_segments()
        chaos.end()
        chaos.check()
        chaos.report.seconds = time.monotonic() - began
        return chaos.report


def main():
    """Run the faults, half of them over Unix sockets with shared memory and half over TCP."""
    seed, count = int(sys.argv[1]), int(sys.argv[2])

    def tell(line):
        print(line, flush=True)

    for number, transport in ((count - count // 2, "auto"), (count // 2, "tcp")):
        tell(f"HEADRACE_TRANSPORT={transport}")
        with tempfile.TemporaryDirectory() as directory:
            tell(str(run(seed, number, directory, tell, HEADRACE_TRANSPORT=transport)))
        seed += 1


if __name__ == "__main__":
    main()
