"""The end of a lease travels before the frame that is sent after it."""

import socket
from collections import deque

import numpy as np

from headrace._src.transport.connect import Connection
from headrace._src.transport.frame import Frame
from headrace._src.transport.handshake import Hello
from headrace._src.transport.slabs import Slabs
from headrace._src.transport.stream import FrameStream


def test_memory_is_free_when_the_answer_arrives():
    ends = socket.socketpair()
    slabs = Slabs(1 << 26)
    hello = Hello("task", "w", 0, 1)
    here, there = (FrameStream(Connection(end, hello, "", True), slabs=slabs) for end in ends)
    value = slabs.allocate(1 << 20).view(np.float32)
    here.write(Frame(1, 1, b"", (value,)))
    frames = [frame for _ in range(2) for frame in there.read()]
    assert slabs.leased(value)
    del frames
    there.write(Frame(2, 1, b"done"))
    (answer,) = here.read()
    assert answer.head == b"done"
    assert not slabs.leased(value)
    for end in ends:
        end.close()


def test_another_thread_may_send_the_end_of_a_lease():
    """It comes between the look at what has ended and the taking of it."""

    class TakenByAnother(deque):
        def __bool__(self):
            there = len(self) > 0
            self.clear()
            return there

    ends = socket.socketpair()
    stream = FrameStream(Connection(ends[0], Hello("task", "w", 0, 1), "", True))
    stream._released = TakenByAnother([7])
    assert stream.send_releases()
    stream._released = TakenByAnother([7])
    assert stream.write(Frame(1, 1, b"goes on"))
    for end in ends:
        end.close()


def test_a_frame_may_wait_for_the_next_one():
    ends = socket.socketpair()
    hello = Hello("task", "w", 0, 1)
    here, there = (FrameStream(Connection(end, hello, "", True)) for end in ends)
    value = np.arange(3.0)
    for first in (Frame(1, 1, b"first"), Frame(1, 1, b"first", (value, value))):
        assert here.write(first, more=True)
        assert there.read() == []
        assert here.write(Frame(1, 2, b"second"))
        found = there.read()
        assert [frame.head for frame in found] == [b"first", b"second"]
        for tensor in found[0].tensors:
            np.testing.assert_array_equal(tensor, value)
    for end in ends:
        end.close()


def test_a_frame_does_not_wait_with_one_that_waits_for_the_peer():
    ends = socket.socketpair()
    hello = Hello("task", "w", 0, 1)
    slabs = Slabs(1 << 26)
    here, there = (FrameStream(Connection(end, hello, "", True), 1, slabs=slabs) for end in ends)
    value = slabs.allocate(1 << 20).view(np.float32)
    here.write(Frame(1, 1, b"", (value,)))
    here.write(Frame(1, 2, b"small"), more=True)
    here.write(Frame(1, 3, b"", (value,)))
    assert here.waiting == value.nbytes
    frames = [frame for _ in range(3) for frame in there.read()]
    assert [frame.number for frame in frames] == [1, 2]
    for end in ends:
        end.close()


def test_the_end_of_a_lease_takes_no_write_of_its_own():
    ends = socket.socketpair()
    hello = Hello("task", "w", 0, 1)
    slabs = Slabs(1 << 26)
    here, there = (FrameStream(Connection(end, hello, "", True), slabs=slabs) for end in ends)
    value = slabs.allocate(1 << 20).view(np.float32)
    here.write(Frame(1, 1, b"", (value,)))
    frames = [frame for _ in range(2) for frame in there.read()]
    del frames
    written = []
    there._send = lambda data: written.append(bytes(data)) or len(data)
    there.write(Frame(2, 1, b"done"))
    assert len(written) == 1
    for end in ends:
        end.close()
