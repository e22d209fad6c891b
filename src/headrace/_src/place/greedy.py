"""Place a step by simulated execution. In: a Problem. Out: an assignment.

This is the white paper's greedy (2015, section 3.2.1): from the sources on, each item is tried on
every device that its group may be on, and goes where it would complete first, with the transfers of
its inputs. A group is placed when its first item is reached; its other items follow it.

Completion time alone is short-sighted, so there is a second variant: it takes the items with the
longest paths first, and adds to an item's completion time the shortest possible way from there to
the end (a table of optimistic costs). Everything on one device, as far as it may be there, is a
variant too, so that the result is never slower than a single device that may run it all. The best
variant under the simulator counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from headrace._src.place.cost_graph import Assignment, Problem
from headrace._src.place.simulate import Score, score

__all__ = ["greedy", "variants"]


def greedy(problem: Problem, clustered: bool = False) -> Assignment:
    """Return a good assignment. clustered: items will run in clusters (see place.coarsen)."""
    return variants(problem, clustered)[0][1]


def variants(problem: Problem, clustered: bool = False) -> list[tuple[Score, Assignment]]:
    """Return different assignments with their scores, the best one first."""
    devices = range(len(problem.cluster.devices))
    tried: dict[Assignment, None] = dict.fromkeys(_together(problem))
    if len(devices) > 1:
        lengths = _mean_lengths(problem)
        by_length = sorted(range(len(lengths)), key=lambda i: (-lengths[i], i))
        nothing = [[0.0] * len(devices)] * len(lengths)
        tried[_Greedy(problem, nothing).run(list(range(len(lengths))))] = None
        tried[_Greedy(problem, _optimistic(problem)).run(by_length)] = None
    scores = [(score(problem, assignment, clustered), assignment) for assignment in tried]
    return sorted(scores, key=lambda scored: scored[0])


def _together(problem: Problem) -> Iterator[Assignment]:
    """Yield everything on one device, as far as it may be there, for each device; if it may all be
    anywhere, for one of those that are alike.
    """
    devices = problem.cluster.devices
    free = all(len(able) == len(devices) for able in problem.feasible)
    seen = set()
    for d, device in enumerate(devices):
        like = (device.type, device.speed, device.memory) if free else d
        if like not in seen:
            seen.add(like)
            yield tuple(d if d in able else able[0] for able in problem.feasible)


def _mean_link(problem: Problem) -> tuple[float, float]:
    """Return the mean seconds per tensor and per byte between two different devices."""
    numbers = range(len(problem.cluster.devices))
    pairs = [problem.links[a][b] for a in numbers for b in numbers if a != b]
    return tuple(math.fsum(column) / len(pairs) for column in zip(*pairs, strict=True))  # type: ignore[return-value]


def _mean_lengths(problem: Problem) -> list[float]:
    """Return each item's longest path to the end, with mean costs of devices and links."""
    latency, per_byte = _mean_link(problem)
    lengths = [0.0] * len(problem.group)
    for i in range(len(lengths) - 1, -1, -1):
        able = problem.feasible[problem.group[i]]
        longest = 0.0
        for output in problem.makes[i]:
            sending = latency + problem.size[output] * per_byte
            for reader in problem.readers[output]:
                longest = max(longest, lengths[reader] + sending)
        lengths[i] = longest + math.fsum(problem.seconds[i][d] for d in able) / len(able)
    return lengths


def _optimistic(problem: Problem) -> list[list[float]]:
    """Return for each item and device the least seconds from the item's end there to the end of the
    step, if every later item could choose its device without waiting.
    """
    devices = range(len(problem.cluster.devices))
    links = problem.links
    table = [[0.0] * len(devices) for _ in problem.group]
    for i in range(len(table) - 1, -1, -1):
        row = table[i]
        for output in problem.makes[i]:
            size = problem.size[output]
            for reader in problem.readers[output]:
                later, seconds = table[reader], problem.seconds[reader]
                able = problem.feasible[problem.group[reader]]
                ways = [(b, later[b] + seconds[b]) for b in able]
                for a in problem.feasible[problem.group[i]]:
                    from_a = links[a]
                    best = min(
                        way if a == b else way + from_a[b][0] + size * from_a[b][1]
                        for b, way in ways
                    )
                    row[a] = max(row[a], best)
    return table


class _Greedy:
    """A simulated execution that places groups as it reaches them.

    State: the device of each group (-1: none yet), when each item ends and each processor and lane
    is free, when an output is on a device, the memory that is left on each device.

    A cheap source (a variable, a constant) has no inputs to follow, and waits for its first reader:
    it is placed with it.
    """

    def __init__(self, problem: Problem, ahead: list[list[float]]) -> None:
        self.problem = problem
        self.ahead = ahead
        self.where = [-1] * len(problem.feasible)
        self.ends = [-1.0] * len(problem.group)
        self.free = [0.0] * len(problem.processors)
        self.lane_free = [0.0] * len(problem.lane_names)
        self.there: dict[tuple[int, int], float] = {}
        self.left = [math.inf if d.memory is None else d.memory for d in problem.cluster.devices]
        self.latency, self.per_byte = _mean_link(problem)

    def run(self, order: list[int]) -> Assignment:
        late = []
        for i in order:
            if self._may_wait(i):
                late.append(i)
            else:
                self._place(i)
        for i in late:
            if self.ends[i] < 0:
                self._place(i)
        return tuple(self.where)

    def _may_wait(self, item: int) -> bool:
        """Return whether an item is a source that costs less than sending what it makes."""
        problem = self.problem
        if self.where[problem.group[item]] >= 0:
            return False
        if any(self.ends[problem.producer[o]] >= 0 for o in problem.reads[item]):
            return False
        sending = sum(self.latency + problem.size[o] * self.per_byte for o in problem.makes[item])
        able = problem.feasible[problem.group[item]]
        return bool(problem.makes[item]) and min(problem.seconds[item][d] for d in able) < sending

    def _place(self, item: int) -> None:
        problem = self.problem
        group = problem.group[item]
        device = self.where[group]
        if device < 0:
            able = problem.feasible[group]
            state = problem.state[group]
            fitting = [d for d in able if state <= self.left[d]]
            able = fitting or [max(able, key=lambda d: self.left[d])]
            device = min(able, key=lambda d: (self._completion(item, d) + self.ahead[item][d], d))
            self._settle(group, device)
        self._execute(item, device)

    def _settle(self, group: int, device: int) -> None:
        self.where[group] = device
        self.left[device] -= self.problem.state[group]

    def _completion(self, item: int, device: int) -> float:
        """Return when an item would end on a device."""
        problem = self.problem
        start = self.free[problem.processor[device]]
        lane_free: dict[int, float] = {}
        for output in problem.reads[item]:
            producer = problem.producer[output]
            if self.ends[producer] >= 0:
                start = max(start, self._arrival(output, device, lane_free))
            else:  # its cheap source would come along, if it may
                group = problem.group[producer]
                if device not in problem.feasible[group]:
                    a = problem.feasible[group][0]
                    latency, per_byte = problem.links[a][device]
                    start = max(start, latency + problem.size[output] * per_byte)
        return start + problem.seconds[item][device]

    def _arrival(self, output: int, device: int, lane_free: dict[int, float]) -> float:
        """Return when an output would be on a device; transfers that it needs delay later ones, as
        `lane_free` tells.
        """
        problem = self.problem
        producer = problem.producer[output]
        a, end = self.where[problem.group[producer]], self.ends[producer]
        if a == device:
            return end
        found = self.there.get((output, device))
        if found is not None:
            return found
        lanes = problem.lanes[a][device]
        for lane in lanes:
            end = max(end, lane_free.get(lane, self.lane_free[lane]))
        latency, per_byte = problem.links[a][device]
        end += latency + problem.size[output] * per_byte
        for lane in lanes:
            lane_free[lane] = end
        return end

    def _execute(self, item: int, device: int) -> None:
        """Let an item run on its device, after the sources that waited for it."""
        problem = self.problem
        stack = [(item, device)]
        while stack:
            i, d = stack[-1]
            missing = [
                problem.producer[o] for o in problem.reads[i] if self.ends[problem.producer[o]] < 0
            ]
            if missing:
                stack += [(m, self._follow(m, d)) for m in missing]
                continue
            stack.pop()
            if self.ends[i] >= 0:
                continue
            start = self.free[problem.processor[d]]
            for output in problem.reads[i]:
                lane_free: dict[int, float] = {}
                arrival = self._arrival(output, d, lane_free)
                start = max(start, arrival)
                for lane, free in lane_free.items():
                    self.lane_free[lane] = free
                self.there[output, d] = arrival
            self.ends[i] = self.free[problem.processor[d]] = start + problem.seconds[i][d]

    def _follow(self, item: int, device: int) -> int:
        """Return the device of a source that waited for a reader on `device`."""
        group = self.problem.group[item]
        if self.where[group] < 0:
            able = self.problem.feasible[group]
            fits = device in able and self.problem.state[group] <= self.left[device]
            self._settle(group, device if fits else max(able, key=lambda d: self.left[d]))
        return self.where[group]
