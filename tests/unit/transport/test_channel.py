"""Channels: answers by number, from many threads, without a thread of their own."""

import queue
import signal
import threading

import numpy as np
import pytest

from headrace._src.core import errors
from headrace._src.transport.frame import Frame
from tests.unit.transport.peers import WAIT, channel_to, eventually, serving, use


@pytest.fixture(params=["auto", "tcp"])
def transport(request, monkeypatch):
    use(monkeypatch, request.param)


def test_a_request_returns_its_answer(transport):
    with serving() as server, channel_to(server) as channel:
        for size in (0, 3, 10_000, 100_000, 5_000_000):
            array = np.arange(size, dtype=np.int32)
            answer = channel.request(Frame(3, 0, b"head", (array, None, b"text")))
            assert answer.kind == 3 and answer.head == b"head"
            assert np.array_equal(answer.tensors[0], array)
            assert answer.tensors[1] is None and answer.tensors[2][()] == b"text"


def test_answers_may_come_in_any_order():
    frames = []

    def on_frame(link, frame):
        frames.append(frame)
        if len(frames) == 50:
            for other in reversed(frames):
                link.send(other)

    with serving(on_frame) as server, channel_to(server) as channel:
        for number in range(1, 51):
            channel.send(Frame(1, number, b"%d" % number))
        for number in (7, 50, 1, *range(8, 50), *range(2, 7)):
            assert channel.wait(number, WAIT).head == b"%d" % number


def test_many_threads_share_a_channel(transport):
    failures = []
    with serving() as server, channel_to(server) as channel:
        before = set(threading.enumerate())

        def work(k):
            for i in range(60):
                size = 50_000 if i % 20 == 0 else i
                answer = channel.request(Frame(k, 0, b"", (np.full(size, k),)))
                if answer.kind != k or not (answer.tensors[0] == k).all():
                    failures.append((k, i))

        threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT)
        assert not failures
        assert before.issuperset(threading.enumerate())  # others may have ended
        assert not channel._answers and not channel._waiting


def test_notices_are_frames_without_a_number():
    def on_frame(link, frame):
        link.send(Frame(9, 0, b"news"))
        link.send(frame)

    notices = []
    with serving(on_frame) as server, channel_to(server, None, notices.append) as channel:
        channel.request(Frame(1))
        channel.request(Frame(1))
    assert [(notice.kind, notice.head) for notice in notices] == [(9, b"news")] * 2


def test_a_lost_connection_names_the_address_in_every_thread(transport):
    waiting = threading.Semaphore(0)

    def on_frame(link, frame):
        waiting.release()

    found = queue.Queue()
    with serving(on_frame) as server, channel_to(server) as channel:

        def ask():
            try:
                channel.request(Frame(1))
            except errors.UnavailableError as error:
                found.put(str(error))

        threads = [threading.Thread(target=ask) for _ in range(5)]
        for thread in threads:
            thread.start()
        for _ in threads:
            assert waiting.acquire(timeout=WAIT)
        server.links.get(timeout=WAIT).close()
        for _ in threads:
            assert server.address in found.get(timeout=WAIT)
        for thread in threads:
            thread.join(WAIT)
        with pytest.raises(errors.UnavailableError, match=server.address):
            channel.request(Frame(1))


def test_a_deadline_leaves_the_channel_usable():
    answers = queue.Queue()

    def on_frame(link, frame):
        if frame.kind == 1:
            answers.put((link, frame))
        else:
            link.send(frame)

    with serving(on_frame) as server, channel_to(server) as channel:
        with pytest.raises(errors.DeadlineExceededError, match=r"in 0\.02 s"):
            channel.request(Frame(1), 0.02)
        link, frame = answers.get(timeout=WAIT)
        link.send(frame)  # too late: dropped
        assert channel.request(Frame(2, 0, b"x"), WAIT).head == b"x"
        assert not channel._answers


@pytest.mark.parametrize("reads", [True, False])
def test_control_c_interrupts_a_thread_that_waits(reads):
    class InterruptedError(Exception):
        pass

    def interrupt(*_):
        raise InterruptedError

    arrived = threading.Semaphore(0)
    hold = []

    def on_frame(link, frame):
        if frame.kind == 1:
            hold.append((link, frame))
            arrived.release()
        else:
            link.send(frame)

    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with serving(on_frame) as server, channel_to(server) as channel:
            other = threading.Thread(target=lambda: channel.request(Frame(1, 1000)))
            if not reads:  # the other thread reads, this one waits for it
                other.start()
                assert arrived.acquire(timeout=WAIT)
                assert eventually(lambda: channel._reading)

            def signal_when_arrived():
                arrived.acquire(timeout=WAIT)
                signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)

            helper = threading.Thread(target=signal_when_arrived)
            helper.start()
            with pytest.raises(InterruptedError):
                channel.request(Frame(1, 2000))
            helper.join(WAIT)
            assert channel.request(Frame(2, 0, b"goes on"), WAIT).head == b"goes on"
            for link, frame in hold:
                link.send(frame)
            if not reads:
                other.join(WAIT)
                assert not other.is_alive()
    finally:
        signal.signal(signal.SIGUSR1, before)
