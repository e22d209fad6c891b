"""Shared memory: allocation, leases that end with the receiver's last array, killed processes."""

import fcntl
import gc
import itertools
import os
import queue
import signal
import socket
import subprocess
import sys
from array import array as machine_array

import numpy as np
import pytest

from headrace._src.transport import slabs
from headrace._src.transport.connect import Connection
from headrace._src.transport.frame import Frame, Placed, ProtocolError
from headrace._src.transport.pool import MemoryOwner, Pool, when_unused
from headrace._src.transport.slabs import MappedSlabs, Slabs, shared_slabs
from headrace._src.transport.stream import FrameStream
from tests.unit.transport.peers import (
    CLIENT,
    WAIT,
    channel_to,
    eventually,
    serving,
)

MB = 1 << 20


def test_blocks_are_aligned_and_do_not_overlap():
    slabs = Slabs(64 * MB, slab_bytes=MB)
    random = np.random.default_rng(1)
    arrays = []
    for i in range(400):
        if arrays and random.random() < 0.45:
            arrays.pop(random.integers(len(arrays)))
        array = slabs.allocate(int(random.integers(0, 200_000)))
        assert array.ctypes.data % 64 == 0
        array[:] = i % 251
        arrays.append(array)
    spans = sorted((a.ctypes.data, a.ctypes.data + a.nbytes) for a in arrays)
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))
    for array in arrays:
        assert array.size == 0 or (array == array[0]).all()
    del arrays, array
    assert slabs.allocate(0).size == 0
    sizes = sorted((slab.size for slab in slabs._slabs), reverse=True)
    whole = [slabs.allocate(size) for size in sizes]  # what is free can be one block again
    assert len(slabs._slabs) == len(whole)


def test_blocks_of_the_same_sizes_stay_where_they_were():
    """Steps that allocate the same find it in the same places, whatever is freed first."""
    slabs = Slabs(64 * MB, warm=4 * MB)

    def step(order):
        arrays = [slabs.allocate(size) for size in (MB, 100_000, MB // 2)]
        places = [a.ctypes.data for a in arrays]
        for i in order:
            arrays[i] = None
        return places

    assert len({tuple(step(order)) for order in ([0, 1, 2], [2, 1, 0], [1, 2, 0])}) == 1
    assert slabs._warm == sum(block.size for spare in slabs._spare.values() for block in spare)


def test_memory_is_used_again_when_the_last_view_is_gone():
    slabs = Slabs(64 * MB)
    array = slabs.allocate(MB)
    start, view = array.ctypes.data, array.view(np.float32)[5:10]
    del array
    other = slabs.allocate(MB)
    assert other.ctypes.data != start
    del view
    assert slabs.allocate(MB).ctypes.data == start


def test_leased_memory_is_not_used_again():
    slabs = Slabs(64 * MB)
    array = slabs.allocate(MB)
    block, offset = slabs.lease(array[100:])
    assert slabs.leased(array) and offset == block.start + 100
    start = array.ctypes.data
    del array
    other = slabs.allocate(MB)
    assert other.ctypes.data != start
    slabs.release([block])
    assert not slabs.leased(other)
    assert slabs.allocate(MB).ctypes.data == start


def test_memory_of_others_and_parts_that_are_not_contiguous_have_no_place():
    slabs = Slabs(64 * MB)
    array = slabs.allocate(MB)
    assert slabs.lease(np.zeros(MB, np.uint8)) is None
    assert slabs.lease(array[::2]) is None
    assert not slabs.leased(np.zeros(10))


def test_the_limit_is_kept_and_memory_beyond_the_warm_part_is_returned():
    slabs = Slabs(4 * MB, slab_bytes=2 * MB, warm=0)
    array = slabs.allocate(2 * MB)
    array[:] = 1
    fd = slabs._slabs[0].fd
    assert os.fstat(fd).st_blocks > 0
    with pytest.raises(MemoryError):
        slabs.allocate(4 * MB)
    del array
    assert os.fstat(fd).st_blocks == 0
    assert (slabs.allocate(2 * MB) == 0).all()


def test_a_pool_uses_memory_again():
    pool = Pool()
    array = np.ndarray((MB,), np.uint8, pool.take(2 * MB))
    start, view = array.ctypes.data, array[3:5]
    del array
    assert np.ndarray((1,), np.uint8, pool.take(2 * MB)).ctypes.data != start
    gc.collect()
    del view
    starts = {np.ndarray((1,), np.uint8, pool.take(2 * MB)).ctypes.data for _ in range(3)}
    assert start in starts


def test_a_pool_keeps_a_limited_amount():
    pool = Pool(kept=5 * MB)
    buffers = [pool.take(2 * MB) for _ in range(4)]
    del buffers
    assert pool._kept == 4 * MB


def test_the_end_of_a_buffer_is_told_after_its_last_view():
    ended = []
    buffer = np.ndarray.__new__(MemoryOwner, (10,), np.uint8)
    when_unused(buffer, lambda: ended.append(1))
    view = np.ndarray((5,), np.uint16, buffer).reshape(5, 1)[1:3].T
    del buffer
    assert not ended
    del view
    assert ended == [1]


# -- Over a link -----------------------------------------------------------------------------------


@pytest.fixture
def pair():
    """A server that keeps its links and frames, and a channel to it."""
    frames = queue.Queue()

    def keep(link, frame):
        frames.put((link, frame))

    with serving(keep) as server, channel_to(server) as channel:
        yield channel, frames


def read_on(link, channel):
    """Let a channel read what its peer has sent so far."""
    number = channel.next_number()
    link.send(Frame(2, number))
    return channel.wait(number)


def test_a_tensor_in_a_slab_is_not_copied(pair):
    channel, frames = pair
    array = shared_slabs().allocate(MB).view(np.float32).reshape(512, -1)
    array[:] = 3
    channel.send(Frame(1, 1, b"", (array, array[10:300])))
    link, frame = frames.get(timeout=WAIT)
    assert (frame.tensors[0] == 3).all() and not frame.tensors[0].flags.writeable
    assert shared_slabs().leased(array)
    array[:] = 4  # the same memory
    assert (frame.tensors[0] == 4).all() and (frame.tensors[1] == 4).all()
    first, part = frame.tensors[0], frame.tensors[1].T[5:]
    del frame
    read_on(link, channel)
    assert shared_slabs().leased(array)
    del first
    read_on(link, channel)
    assert shared_slabs().leased(array)  # by the part
    del part
    assert eventually(lambda: read_on(link, channel) and not shared_slabs().leased(array))


def test_other_large_tensors_are_copied_once_and_freed(pair):
    channel, frames = pair
    array = np.arange(MB, dtype=np.int16).reshape(1024, -1).T
    channel.send(Frame(1, 1, b"", (array,)))
    link, frame = frames.get(timeout=WAIT)
    assert np.array_equal(frame.tensors[0], array)
    assert frame.tensors[0].flags.c_contiguous
    assert len(channel._stream._leases) == 1
    del frame
    assert eventually(lambda: read_on(link, channel) and not channel._stream._leases)


def test_a_channel_releases_without_being_used(pair):
    channel, frames = pair
    channel.send(Frame(1, 1))
    link, _ = frames.get(timeout=WAIT)
    array = shared_slabs().allocate(MB)
    link.send(Frame(1, 1, b"", (array,)))
    answer = channel.wait(1)
    assert shared_slabs().leased(array)
    del answer
    assert eventually(lambda: not shared_slabs().leased(array))


def test_leases_of_a_closed_link_end_at_once(pair):
    channel, frames = pair
    array = shared_slabs().allocate(MB)
    channel.send(Frame(1, 1, b"", (array,)))
    _link, frame = frames.get(timeout=WAIT)
    assert shared_slabs().leased(array)
    channel.close()
    assert not shared_slabs().leased(array)
    assert (frame.tensors[0] == array).all()  # the mapping lives as long as the view


def test_peers_cannot_make_us_read_beyond_a_slab():
    mapped = MappedSlabs(lambda lease: None)
    slab = Slabs(4 * MB, slab_bytes=2 * MB)
    slab.allocate(10)
    (one,) = slab._slabs
    mapped.add(1, os.dup(one.fd))
    assert mapped.resolve(Placed(1, 100, 1), 2 * MB - 100).nbytes == 2 * MB - 100
    for placed, size in ((Placed(2, 0, 1), 1), (Placed(1, 2 * MB, 1), 1), (Placed(1, 2**63, 1), 1)):
        with pytest.raises(ProtocolError):
            mapped.resolve(placed, size)
    with pytest.raises(ProtocolError, match="twice"):
        mapped.add(1, os.dup(one.fd))


def test_files_that_could_shrink_are_refused():
    mapped = MappedSlabs(lambda lease: None)
    unsealed = os.memfd_create("test", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.truncate(unsealed, MB)
    fcntl.fcntl(unsealed, fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW)
    with pytest.raises(ProtocolError, match="sealed"):
        mapped.add(1, unsealed)
    read, write = os.pipe()
    os.close(write)
    with pytest.raises(ProtocolError, match="mapped"):
        mapped.add(2, read)


def test_descriptors_that_nobody_asked_for_are_closed():
    ours, theirs = socket.socketpair()
    stream = FrameStream(Connection(ours, CLIENT, "test", True))
    name = os.readlink(f"/proc/self/fd/{theirs.fileno()}")
    rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, machine_array("i", [theirs.fileno()]))
    with pytest.raises(ProtocolError, match="descriptors"):
        for _ in range(100):
            theirs.sendmsg([b"H"], [rights])
            stream.decoder._end = 0
            stream.read()
    stream.end(ProtocolError())
    opened = [os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")]
    assert sum(path.endswith(name) for path in opened) == 1
    ours.close()
    theirs.close()


_CHILD = """
import os, sys, numpy as np
from headrace._src.transport.channel import Channel
from headrace._src.transport.connect import connect
from headrace._src.transport.frame import Frame
from headrace._src.transport.handshake import Hello
channel = Channel(connect(sys.argv[1], Hello("client", process=os.getpid()), None, 60))
answer = channel.request(Frame(1, 0, b"", (np.full(3 << 20, 7, np.uint8),)))
print(int(answer.tensors[0].sum()), flush=True)
sys.stdin.read()
"""


def test_a_killed_process_leaves_nothing_behind():
    array = shared_slabs().allocate(2 * MB)
    array[:] = 1
    received = []

    def on_frame(link, frame):
        received.append(frame)
        link.send(Frame(1, frame.number, b"", (array,)))

    with serving(on_frame) as server:
        child = subprocess.Popen(
            [sys.executable, "-c", _CHILD, server.address],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        with child:
            assert int(child.stdout.readline()) == 2 * MB
            assert shared_slabs().leased(array)
            child.send_signal(signal.SIGKILL)
            child.wait(WAIT)
            link, error = server.closed.get(timeout=WAIT)
        assert link.peer.process == child.pid and error is not None
        assert not shared_slabs().leased(array)
        assert (received[0].tensors[0] == 7).all()  # its memory lives as long as we read it
    assert not any("headrace" in name for name in os.listdir("/dev/shm"))


def test_a_slab_that_cannot_be_mapped_is_closed_once(monkeypatch):
    gc.collect()  # what other tests have left may complain
    monkeypatch.setattr(slabs.mmap, "mmap", lambda *_: 1 / 0)
    complaints = []
    monkeypatch.setattr(sys, "unraisablehook", lambda found: complaints.append(found.exc_value))
    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            slabs.Slab(1, MB)
        gc.collect()
    assert not complaints


_LATE = """
import gc
from headrace._src.{} import {} as module
late = module.{}
module.__dict__.clear()  # as Python does at its end
del late
gc.collect()
"""


@pytest.mark.parametrize(
    "late",
    [
        ("transport", "slabs", "Slab(1, 1 << 20)"),
        ("transport", "loop", "Loop()"),
        ("collectives", "streams", "Streams(0.0)"),
        ("collectives", "page_pipe", "PagePipe(-1)"),
    ],
    ids=lambda late: late[1],
)
def test_what_outlives_its_module_ends_quietly(late):
    program = _LATE.format(*late)
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")
