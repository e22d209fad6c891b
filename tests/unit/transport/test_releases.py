"""The end of a lease travels before the frame that is sent after it."""

import socket

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
