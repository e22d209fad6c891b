"""The ring without sockets: members whose segments are delivered in any order that links allow."""

import random
from collections import deque

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace._src.collectives.ring import PARTIAL, TOTAL, Ring
from headrace._src.collectives.shares import cut, pieces, place, share
from headrace._src.core.errors import InternalError


class Member:
    """A member with bytes as its tensors, which runs several all-reduces."""

    def __init__(self, index, members, sizes, names):
        self.index = index
        starts, total = place(sizes)
        ranges = [share(total, members, i) for i in range(members)]
        segments = [cut(pieces(starts, sizes, low, high), 128) for low, high in ranges]
        self.values = {n: [np.full(s, index + 1 + len(n), int) for s in sizes] for n in names}
        self.results = {n: [np.zeros(s, int) for s in sizes] for n in names}
        self.rings = {n: Ring(index, segments) for n in names}
        self.early = {n: [] for n in names}
        self.started = set()
        self.sent = 0

    def start(self, name):
        self.started.add(name)
        out = [self.follow(name, do, None) for do in self.rings[name].start()]
        for message in self.early.pop(name, ()):
            out += self.receive(message)
        return [each for each in out if each]

    def receive(self, message):
        name, phase, chunk, segment, data = message
        if name not in self.started:
            self.early[name].append(message)
            return []
        do = self.rings[name].received(phase, chunk, segment)
        return [each for each in [self.follow(name, do, data)] if each]

    def follow(self, name, do, data):
        tensor, start, stop = do.piece
        own = self.values[name][tensor][start:stop]
        if data is None:
            made = own
        else:
            made = data + own if do.combine else data
            if do.store or do.last:
                self.results[name][tensor][start:stop] = made
        if do.send is None:
            return None
        self.sent += stop - start
        return name, do.send, do.chunk, do.segment, made.copy()


def run(members, sizes, names, seed):
    """Let members start their collectives in orders of their own, and deliver as links do."""
    choose = random.Random(seed)
    found = [Member(i, members, sizes, names) for i in range(members)]
    links = [deque() for _ in found]  # to each member
    waiting = {i: choose.sample(names, len(names)) for i in range(members)}
    while any(waiting.values()) or any(links):
        choices = [("start", i) for i in waiting if waiting[i]]
        choices += [("deliver", i) for i, link in enumerate(links) if link]
        what, i = choose.choice(choices)
        if what == "start":
            out = found[i].start(waiting[i].pop())
        else:
            out = found[i].receive(links[i].popleft())
        links[(i + 1) % members].extend(out)
    return found


@given(
    st.integers(2, 6),
    st.lists(st.integers(0, 700), min_size=1, max_size=4),
    st.integers(0, 1 << 30),
)
def test_different_schedules_do_not_deadlock(members, sizes, seed):
    names = ["a", "bc", "def"]
    for member in run(members, sizes, names, seed):
        for name in names:
            assert member.rings[name].is_over
            wanted = sum(i + 1 + len(name) for i in range(members))
            assert all((result == wanted).all() for result in member.results[name])


@pytest.mark.parametrize("members", [2, 3, 4, 7])
def test_each_member_sends_twice_its_part(members):
    size = 64 * 1000
    for member in run(members, [size], ["x"], 5):
        assert member.sent <= 2.1 * (members - 1) / members * size
        assert member.rings["x"].is_over


def test_foreign_segments_are_refused():
    ring = Ring(0, [cut(pieces([0], [256], 0, 128), 128), cut(pieces([0], [256], 128, 256), 128)])
    for phase, chunk, segment in [(PARTIAL, 0, 0), (TOTAL, 1, 0), (PARTIAL, 1, 1), (2, 1, 0)]:
        with pytest.raises(InternalError, match="does not belong here"):
            ring.received(phase, chunk, segment)
    ring.received(PARTIAL, 1, 0)
    with pytest.raises(InternalError, match="does not belong here"):
        ring.received(PARTIAL, 1, 0)
