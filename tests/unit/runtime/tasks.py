"""Steps on several tasks within one process, for tests: a fake server pumps the steps by hand."""

import numpy as np

from headrace._src.devices.rendezvous import RemoteRendezvous
from headrace._src.graph.partition import PartitionedProgram
from headrace._src.runtime.partitions import PartitionedExecutable
from headrace._src.runtime.served import ServedStep
from headrace._src.runtime.takings import holds


def program_of(s, fetches, feeds=(), compiled=False, spans=False):
    """Return the partitioned program of a step that a session has prepared, and the feeds. spans:
    it has loops or branches that span tasks, which run by their primitives.
    """
    plan = s._plan_for(fetches, dict(feeds) if feeds else None, None)
    values = [np.asarray(v) for v in dict(feeds).values()]
    if spans:
        found = plan.variants.as_is()
    else:
        for _ in range(1 + compiled):  # the second run is compiled
            found = plan.variants.choose(values)
    assert isinstance(found, PartitionedExecutable)
    return found.program, values


def split(program, *tasks):
    """Return the program of each task, which has the devices of these numbers: for each, the
    program, the positions of its fetches among the step's, and its devices.
    """
    found = []
    for numbers in tasks:
        names = [d for d in program.devices if int(d.rpartition(":")[2]) in numbers]
        parts = [program.devices.index(name) for name in names]
        sources = [(n, source) for n, source in enumerate(program.sources) if source[0] in parts]
        part = PartitionedProgram(
            tuple(names),
            tuple(program.programs[i] for i in parts),
            tuple(program.feeds[i] for i in parts),
            tuple((parts.index(i), position) for _, (i, position) in sources),
        )
        found.append((part, [n for n, _ in sources], set(names)))
    return found


class FakeHost:
    """A host that pumps when it is told to."""

    def __init__(self):
        self.scheduled = []

    def schedule(self, step):
        assert step not in self.scheduled, "a step was scheduled twice"
        self.scheduled.append(step)

    def pump_one(self):
        """Pump the first step that is scheduled; return whether there was one."""
        if not self.scheduled:
            return False
        self.scheduled.pop(0).pump()
        return True

    def pump_all(self):
        while self.pump_one():
            pass


class Cluster:
    """The tasks of one step. A tensor for another task is in flight until `deliver`."""

    def __init__(self, executables, feeds, count, observe=None, deadline=None):
        """`executables`: for each task its executable, the positions of its fetches, its devices"""
        self.host = FakeHost()
        self.in_flight = []
        self.steps = []
        self.outcomes = {}
        self.values = [None] * count
        self.rendezvous = []
        for number, (executable, positions, devices) in enumerate(executables):
            rendezvous = RemoteRendezvous(devices.__contains__, self.push)
            self.rendezvous.append((devices, rendezvous))
            done = self._done(number, positions)
            step = ServedStep(
                executable, rendezvous, self.host, deadline=deadline, observe=observe, done=done
            )
            self.steps.append(step)
        self.feeds = feeds

    def _done(self, number, positions):
        def done(values, error):
            assert number not in self.outcomes, "a step ended twice"
            self.outcomes[number] = error
            if error is None:
                for position, value in zip(positions, values, strict=True):
                    self.values[position] = value
            else:  # as a master does
                for step in self.steps:
                    step.abort(error)

        return done

    def push(self, key, value, error):
        self.in_flight.append((key, value, error))

    def deliver(self):
        """Deliver the first tensor that is in flight; return whether there was one."""
        if not self.in_flight:
            return False
        key, value, error = self.in_flight.pop(0)
        (there,) = [r for devices, r in self.rendezvous if key.receiver in devices]
        if error is None:
            there.arrive(key, value)
        else:
            there.arrive_error(key, error)
        return True

    def start(self):
        for step in self.steps:
            step.start(self.feeds)
            if self.steps.index(step) not in self.outcomes:
                self.host.schedule(step)
        return self

    def event(self):
        """Let one thing happen: pump a step or deliver a tensor; return whether anything could."""
        return self.host.pump_one() or self.deliver()

    def random_event(self, rng):
        """Let one thing happen, any of those that could; return whether anything could."""
        scheduled = self.host.scheduled
        if not scheduled and not self.in_flight:
            return False
        chosen = int(rng.integers(len(scheduled) + len(self.in_flight)))
        if chosen < len(scheduled):
            scheduled.pop(chosen).pump()
        else:
            self.in_flight.insert(0, self.in_flight.pop(chosen - len(scheduled)))
            self.deliver()
        return True

    def run(self):
        while self.event():
            pass
        return self

    def settle(self):
        """Put back what a cancelled step has taken, as a master lets the tasks do."""
        assert self.is_over
        if self.error is not None and not any(step.used for step in self.steps):
            for step in self.steps:
                step.context.put_back()

    @property
    def is_over(self):
        return len(self.outcomes) == len(self.steps)

    @property
    def error(self):
        """The first error of a task."""
        return next((e for e in self.outcomes.values() if e is not None), None)


def cluster(s, fetches, feeds=(), tasks=((0,), (1, 2)), spans=False, **options):
    """Return the tasks of a step, which share the state of a session."""
    program, values = program_of(s, fetches, feeds, spans=spans)
    made = executables(s, program, *tasks)
    return Cluster(made, values, len(program.sources), **options)


def executables(s, program, *tasks):
    held = holds(i.op for part in program.programs for i in part.instructions)
    return [
        (PartitionedExecutable(part, s._resources, holds=held), positions, devices)
        for part, positions, devices in split(program, *tasks)
    ]
