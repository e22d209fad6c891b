"""Links and loops: frames in both directions, in order, without blocking; ends and errors."""

import logging
import queue
import socket
import threading

import numpy as np
import pytest

from headrace._src.core import errors
from headrace._src.transport.connect import connect, listen
from headrace._src.transport.frame import Frame, encode
from headrace._src.transport.loop import Loop
from headrace._src.transport.stream import GATHERED
from tests.unit.transport.peers import CLIENT, TASK, WAIT, eventually, serving, use


@pytest.fixture(params=["auto", "tcp"])
def transport(request, monkeypatch):
    use(monkeypatch, request.param)
    return request.param


class Client:
    """A link to a server in a loop of its own; frames are in `frames`."""

    def __init__(self, server, budget=None):
        self.frames = queue.Queue()
        self.closed = queue.Queue()
        self.loop = Loop()
        self.loop.start()
        connection = connect(server.address, CLIENT, None, WAIT)
        self.link = self.loop.add(
            connection,
            lambda link, frame: self.frames.put(frame),
            lambda link, error: self.closed.put(error),
            budget,
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.loop.stop()


def test_frames_return_in_order(transport):
    with serving() as server, Client(server) as client:
        assert client.link.unix == (transport == "auto")
        assert client.link.peer == TASK
        for i in range(500):
            client.link.send(Frame(i % 256, i, b"h" * (i % 7), (np.full(i, i),)))
        for i in range(500):
            frame = client.frames.get(timeout=WAIT)
            assert frame[:3] == (i % 256, i, b"h" * (i % 7))
            assert frame.tensors[0].tolist() == [i] * i
        assert server.links.get(timeout=WAIT).peer == CLIENT


def test_a_frame_may_come_with_the_end_of_the_handshake():
    """Its shared memory too: the handshake must not read the bytes that the descriptor is with."""
    sent = np.arange(100_000)
    found = queue.Queue()
    loop = Loop()
    listener = listen("127.0.0.1:0")

    def accepted(connection):
        loop.add(connection, lambda link, frame: None).send(Frame(1, 0, b"", (sent,)))

    loop.listen(listener, TASK, accepted)
    loop.start()
    try:
        for _ in range(20):
            connection = connect(listener.address, CLIENT, None, WAIT)
            link = loop.add(connection, lambda link, frame: found.put(frame))
            np.testing.assert_array_equal(found.get(timeout=WAIT).tensors[0], sent)
            link.close()
    finally:
        loop.stop()


def test_frames_of_many_sizes_from_many_threads(transport):
    sizes = [0, 1, 100, 10_000, 70_000, 300_000, 2_000_000]
    with serving() as server, Client(server) as client:

        def send(thread):
            for i, size in enumerate(sizes * 3):
                array = np.full(size, (thread * 100 + i) % 256, np.uint8)
                client.link.send(Frame(thread, i, b"", (array, array[:3])))

        threads = [threading.Thread(target=send, args=(k,)) for k in range(4)]
        for thread in threads:
            thread.start()
        seen = {k: [] for k in range(4)}
        for _ in range(4 * 3 * len(sizes)):
            frame = client.frames.get(timeout=WAIT)
            seen[frame.kind].append(frame.number)
            size = sizes[frame.number % len(sizes)]
            value = (frame.kind * 100 + frame.number) % 256
            assert frame.tensors[0].shape == (size,) and (frame.tensors[0] == value).all()
        for thread in threads:
            thread.join()
        assert all(numbers == list(range(3 * len(sizes))) for numbers in seen.values())


def test_send_does_not_block_when_nobody_reads(transport):
    gate = threading.Event()
    received = queue.Queue()

    def on_frame(link, frame):
        gate.wait(WAIT)
        received.put(frame)

    with serving(on_frame) as server, Client(server) as client:
        for i in range(200):
            client.link.send(Frame(1, i, bytes(100_000)))
        assert client.link.queued_bytes > 0
        gate.set()
        assert [received.get(timeout=WAIT).number for _ in range(200)] == list(range(200))
        assert eventually(lambda: client.link.queued_bytes == 0)


def test_the_end_of_a_peer_is_told_once_and_names_it(transport):
    with serving() as server:
        with Client(server) as client:
            client.link.send(Frame(1, 1))
            client.frames.get(timeout=WAIT)
            server.links.get(timeout=WAIT).close()
            error = client.closed.get(timeout=WAIT)
            assert isinstance(error, errors.UnavailableError) and server.address in str(error)
            with pytest.raises(errors.UnavailableError, match=server.address):
                client.link.send(Frame(1, 2))
            assert client.link.closed
        _, error = server.closed.get(timeout=WAIT)
        assert error is None  # it closed the link itself
        assert client.closed.empty() and server.closed.empty()


def test_an_error_in_a_callback_closes_that_link_only(caplog):
    def on_frame(link, frame):
        if frame.kind == 13:
            raise RuntimeError("unlucky")
        link.send(frame)

    with serving(on_frame) as server, Client(server) as one, Client(server) as other:
        with caplog.at_level(logging.CRITICAL, "headrace"):
            one.link.send(Frame(13))
            assert isinstance(one.closed.get(timeout=WAIT), errors.UnavailableError)
        other.link.send(Frame(1, 5))
        assert other.frames.get(timeout=WAIT).number == 5
        assert str(server.closed.get(timeout=WAIT)[1]) == "unlucky"


def test_malformed_bytes_close_the_link():
    with serving() as server, Client(server) as other:
        connection = connect(server.address, CLIENT, None, WAIT)
        connection.socket.sendall(b"no frame at all, but longer than a header")
        assert connection.socket.recv(1) == b""
        connection.socket.close()
        assert "not a frame" in str(server.closed.get(timeout=WAIT)[1])
        other.link.send(Frame(1, 5))
        assert other.frames.get(timeout=WAIT).number == 5


def test_a_thousand_pending_requests_hold_no_thread():
    pending = []
    arrived = threading.Event()

    def on_frame(link, frame):
        pending.append((link, frame))
        if len(pending) == 1000:
            arrived.set()

    with serving(on_frame) as server, Client(server) as client:
        client.link.send(Frame(1, 0))
        assert eventually(lambda: len(pending) == 1)
        before = set(threading.enumerate())
        for i in range(1, 1000):
            client.link.send(Frame(1, i))
        assert arrived.wait(WAIT)
        assert before.issuperset(threading.enumerate())  # others may have ended
        for link, frame in pending:
            link.send(frame)
        assert [client.frames.get(timeout=WAIT).number for _ in range(1000)] == list(range(1000))


# -- The byte budget -------------------------------------------------------------------------------


def test_large_tensors_wait_until_the_receiver_has_read_others(transport):
    held = queue.Queue()

    def on_frame(link, frame):
        if frame.tensors:
            link.hold(frame)
            held.put((link, frame))
        else:
            link.send(frame)

    size = 2 << 20
    with serving(on_frame) as server, Client(server, budget=5 << 20) as client:
        for i in range(6):
            client.link.send(Frame(1, i, b"", (np.full(size, i, np.uint8),)))
        client.link.send(Frame(2, 77))  # small frames overtake
        assert client.frames.get(timeout=WAIT).number == 77
        assert held.qsize() == 2
        link = held.queue[0][0]
        assert link.unread_bytes == 2 * size
        assert client.link.queued_bytes == 4 * size
        for i in range(6):
            link, frame = held.get(timeout=WAIT)
            assert frame.number == i and (frame.tensors[0] == i).all()
            link.let_go(frame)
        assert eventually(lambda: client.link.queued_bytes == 0)
        assert link.unread_bytes == 0


def test_a_tensor_larger_than_the_budget_is_sent_alone(transport):
    with serving() as server, Client(server, budget=1 << 20) as client:
        for i in range(8):
            client.link.send(Frame(1, i, b"", (np.full((3 << 20) + i, i, np.uint8),)))
        for i in range(8):
            frame = client.frames.get(timeout=WAIT)
            assert frame.number == i and frame.tensors[0].shape == ((3 << 20) + i,)
        assert eventually(lambda: client.link.queued_bytes == 0)


# -- The loop --------------------------------------------------------------------------------------


@pytest.fixture
def loop():
    loop = Loop()
    loop.start()
    yield loop
    loop.stop()


def test_functions_are_called_in_the_loops_thread_and_in_order(loop):
    called = queue.Queue()
    for i in range(100):
        loop.call_soon(lambda i=i: called.put((i, threading.current_thread().name)))
    assert [called.get(timeout=WAIT) for _ in range(100)] == [
        (i, "headrace-loop") for i in range(100)
    ]


def test_timers_are_called_by_time_unless_cancelled(loop):
    called = queue.Queue()
    loop.call_later(0.03, lambda: called.put("c"))
    cancelled = loop.call_later(0.02, lambda: called.put("b"))
    loop.call_later(0.01, lambda: called.put("a"))
    cancelled.cancel()
    assert [called.get(timeout=WAIT) for _ in range(2)] == ["a", "c"]
    assert called.empty()


def test_an_error_in_a_function_does_not_end_the_loop(loop, caplog):
    called = queue.Queue()

    def fail():
        raise SystemExit("not so fast")

    with caplog.at_level(logging.CRITICAL, "headrace"):
        loop.call_soon(fail)
        loop.call_later(0, fail)
        loop.call_later(0.01, lambda: called.put(1))
        assert called.get(timeout=WAIT) == 1


def test_stop_closes_links_and_ends_the_thread():
    with serving() as server:
        client = Client(server)
        client.link.send(Frame(1, 1))
        client.frames.get(timeout=WAIT)
        client.loop.stop()
        assert not client.loop._thread.is_alive()
        assert client.closed.get(timeout=WAIT) is None
        assert isinstance(server.closed.get(timeout=WAIT)[1], errors.UnavailableError)


def test_a_loop_that_was_never_started_can_be_stopped():
    Loop().stop()


def test_a_connection_that_comes_after_the_loops_end_is_closed(monkeypatch):
    made, ended = queue.Queue(), threading.Event()

    def connect_late(*args):
        ended.wait(WAIT)
        made.put(connection := connect(*args))
        return connection

    monkeypatch.setattr("headrace._src.transport.loop.connect", connect_late)
    with serving() as server:
        loop = Loop()
        loop.start()
        loop.connect(server.address, CLIENT, None, WAIT, lambda found: pytest.fail("called"))
        loop.stop()
        ended.set()
        connection = made.get(timeout=WAIT)
        assert eventually(lambda: connection.socket.fileno() == -1)


def looking_loop():
    """A loop that was not started, and whose poll finds nothing at once."""
    loop = Loop()
    loop._spin = 1e-6
    return loop


def test_a_loop_looks_for_the_next_message_and_rests_after_many_misses():
    loop = looking_loop()
    for _ in range(24):
        assert loop._look(-1.0) == []
        assert not loop._rests
    loop._look(-1.0)
    assert loop._rests == 2
    for _ in range(2):  # it sleeps at once
        assert loop._look(-1.0) == []
    assert not loop._rests
    loop._signal()
    assert loop._look(-1.0) and not loop._misses
    loop.stop()


def test_a_timer_that_is_added_while_the_loop_looks_is_not_forgotten(monkeypatch):
    loop, called, looks = looking_loop(), queue.Queue(), []

    def look(pause):
        looks.append(pause)
        loop.call_later(0.0, lambda: called.put(1))  # the loop is not asleep: nobody wakes it
        return []

    monkeypatch.setattr(loop, "_look", look)
    loop.start()
    eventually(lambda: loop._asleep)
    loop.call_soon(lambda: None)  # it wakes, and then looks
    assert called.get(timeout=WAIT) == 1
    assert looks == [-1.0]
    loop.stop()


def test_connecting_from_the_loop_does_not_block_it(loop):
    results = queue.Queue()
    with serving() as server:
        loop.connect(server.address, CLIENT, None, WAIT, results.put)
        connection = results.get(timeout=WAIT)
        assert connection.peer == TASK
        connection.socket.close()
        address = server.address
    loop.connect(address, CLIENT, None, WAIT, results.put)
    assert isinstance(results.get(timeout=WAIT), errors.UnavailableError)


def test_a_large_tensor_is_read_in_large_pieces_over_tcp(monkeypatch):
    use(monkeypatch, "tcp")
    frames = queue.Queue()
    sent = np.arange(3 * GATHERED, dtype=np.uint8)
    data = b"".join(map(bytes, encode(Frame(1, 2, b"head", (sent,)))))
    with serving(lambda link, frame: frames.put(frame)) as server:
        connection = connect(server.address, CLIENT, None, WAIT)
        receiver = server.connections.get(timeout=WAIT).socket

        def awaited():
            return receiver.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT)

        connection.socket.sendall(data[:GATHERED])
        assert eventually(lambda: awaited() == GATHERED)
        connection.socket.sendall(data[GATHERED:])
        np.testing.assert_array_equal(frames.get(timeout=WAIT).tensors[0], sent)
        assert awaited() == 1
        connection.socket.close()
