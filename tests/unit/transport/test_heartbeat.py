"""Heartbeats: who is alive, suspect or dead; answers while Python is busy, none while stopped."""

import os
import queue
import signal
import socket
import subprocess
import sys

import pytest

from headrace._src.transport import beats
from headrace._src.transport.beats import MESSAGE, PING, PONG
from headrace._src.transport.connect import Connection
from headrace._src.transport.heartbeat import Answers, Health, Heartbeat, Monitor, Responder
from headrace._src.transport.loop import Loop
from tests.unit.transport.peers import TASK, WAIT, eventually

# -- The machine -----------------------------------------------------------------------------------


def test_a_process_that_answers_is_alive():
    monitor = Monitor(limit=5)
    for i in range(1, 100):
        monitor = monitor.beat(i * 0.2).hear(i)
        assert monitor.health is Health.ALIVE and monitor.missed == 0


def test_a_silent_process_is_suspect_then_dead():
    monitor = Monitor(limit=5).beat(0.0).hear(1)
    seen = []
    for i in range(1, 6):
        monitor = monitor.beat(i * 0.2)
        seen.append(monitor.health)
    assert seen == [Health.ALIVE, *[Health.SUSPECT] * 3, Health.DEAD]
    assert monitor.missed == 5 and monitor.since == 0.2


def test_one_late_answer_clears_the_suspicion():
    monitor = Monitor(limit=5)
    for i in range(4):
        monitor = monitor.beat(float(i))
    assert monitor.health is Health.SUSPECT
    assert monitor.hear(4).health is Health.ALIVE
    assert monitor.hear(3).missed == 1


def test_answers_to_nothing_are_ignored():
    monitor = Monitor(limit=5).beat(0.0).beat(0.2).hear(1)
    assert monitor.hear(7) == monitor.hear(0) == monitor.hear(1) == monitor


def test_the_end_of_the_connection_is_death():
    assert Monitor(limit=5).hear(beats.CLOSED).health is Health.DEAD


# -- Responders ------------------------------------------------------------------------------------


@pytest.fixture(params=["sidecar", pytest.param("native", marks=pytest.mark.needs_llvm)])
def kind(request):
    return request.param


def native(kind):
    if kind == "sidecar":
        return None
    from headrace._src.compile.native.heartbeat import native_responder

    address = native_responder()
    assert address is not None
    return address


@pytest.fixture
def responder(kind):
    responder = Responder(native(kind))
    yield responder
    responder.stop()


@pytest.fixture(params=["unix", "tcp"])
def pair(request):
    if request.param == "unix":
        ours, theirs = socket.socketpair()
    else:
        with socket.create_server(("127.0.0.1", 0)) as server:
            ours = socket.create_connection(server.getsockname())
            theirs, _ = server.accept()
    ours.settimeout(WAIT)
    with ours, theirs:
        yield ours, theirs


def ask(sock, number):
    sock.sendall(MESSAGE.pack(PING, number))
    assert MESSAGE.unpack(sock.recv(MESSAGE.size)) == (PONG, number)


def test_pings_are_answered_and_pongs_are_noted(responder, pair):
    ours, theirs = pair
    responder.add(theirs)
    for number in (1, 2, 2**62):
        ask(ours, number)
    assert responder.answered(theirs) == 0
    ours.sendall(MESSAGE.pack(PONG, 17))
    ask(ours, 3)  # read after the pong
    assert responder.answered(theirs) == 17


def test_a_message_in_two_pieces_is_one(responder, pair):
    ours, theirs = pair
    if ours.family == socket.AF_UNIX:
        ask_whole = MESSAGE.pack(PING, 1)
        responder.add(theirs)
        ours.sendall(ask_whole)  # Unix sockets do not divide messages of ours
    else:
        responder.add(theirs)
        ours.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        ours.sendall(MESSAGE.pack(PING, 1)[:5])
        ours.sendall(MESSAGE.pack(PING, 1)[5:])
    assert MESSAGE.unpack(ours.recv(MESSAGE.size)) == (PONG, 1)


@pytest.mark.parametrize("data", [b"", b"x" * 16])
def test_an_end_or_nonsense_is_noted_as_the_end(responder, pair, data):
    ours, theirs = pair
    responder.add(theirs)
    ask(ours, 1)
    ours.sendall(data)
    if not data:
        ours.shutdown(socket.SHUT_WR)
    assert eventually(lambda: responder.answered(theirs) == beats.CLOSED)


def test_a_socket_that_was_removed_is_not_answered_any_more(responder, pair):
    ours, theirs = pair
    other, another = socket.socketpair()
    with other, another:
        other.settimeout(WAIT)
        responder.add(theirs)
        responder.add(another)
        ask(ours, 1)
        responder.remove(theirs)
        ask(other, 1)  # the removal is done
        ours.sendall(MESSAGE.pack(PING, 2))
        ask(other, 2)
        ours.settimeout(0.01)
        with pytest.raises(TimeoutError):
            ours.recv(1)


def test_stopping_twice_is_stopping(kind):
    responder = Responder(native(kind))
    responder.stop()
    responder.stop()


_CHILD = """
import ctypes, socket, sys
from headrace._src.transport.heartbeat import Responder
fd, gate, kind = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
native = None
if kind == "native":
    from headrace._src.compile.native.heartbeat import native_responder
    native = native_responder()
sock = socket.socket(fileno=fd)
responder = Responder(native)
responder.add(sock)
print("ready", flush=True)
sys.stdin.readline()
print("holding", flush=True)
ctypes.PyDLL(None).read(gate, ctypes.create_string_buffer(1), 1)  # with Python's global lock
print("released", flush=True)
sys.stdin.readline()
responder.stop()
"""


@pytest.fixture
def child(kind):
    """A process that answers heartbeats: the process, a socket, and the gate at which it holds
    Python's global lock.
    """
    ours, theirs = socket.socketpair()
    gate, key = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-c", _CHILD, str(theirs.fileno()), str(gate), kind],
        pass_fds=(theirs.fileno(), gate),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    theirs.close()
    os.close(gate)
    ours.settimeout(WAIT)
    try:
        assert process.stdout.readline() == "ready\n"
        yield process, ours, key
    finally:
        process.kill()
        process.communicate()
        ours.close()
        os.close(key)


def test_a_process_answers_while_python_code_holds_the_lock(child):
    process, sock, key = child
    ask(sock, 1)
    process.stdin.write("hold\n")
    process.stdin.flush()
    assert process.stdout.readline() == "holding\n"
    for number in range(2, 12):
        ask(sock, number)
    os.write(key, b"x")
    assert process.stdout.readline() == "released\n"


def test_a_stopped_process_does_not_answer(child):
    process, sock, _ = child
    ask(sock, 1)
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
    sock.sendall(MESSAGE.pack(PING, 2))
    sock.settimeout(0.2)
    with pytest.raises(TimeoutError):
        sock.recv(MESSAGE.size)
    process.send_signal(signal.SIGCONT)
    sock.settimeout(WAIT)
    sock.sendall(MESSAGE.pack(PING, 3))
    while MESSAGE.unpack(sock.recv(MESSAGE.size)) != (PONG, 3):
        pass  # the native responder also answers the second


def test_a_killed_process_ends_its_connection(child):
    process, sock, _ = child
    ask(sock, 1)
    process.kill()
    process.wait(WAIT)
    assert sock.recv(1) == b""  # also its sidecar is gone


# -- On a loop -------------------------------------------------------------------------------------


@pytest.fixture
def loop():
    loop = Loop()
    loop.start()
    yield loop
    loop.stop()


def beating(sock, responder, loop, dead, limit):
    connection = Connection(sock, TASK, "somewhere", True)
    return Heartbeat(connection, responder, loop, lambda *what: dead.put(what), 0.005, limit)


def test_two_processes_watch_each_other_on_one_connection(responder, loop, kind):
    other = Responder(native(kind))
    ours, theirs = socket.socketpair()
    dead = queue.Queue()
    one = beating(ours, responder, loop, dead, 10**9)
    two = beating(theirs, other, loop, dead, 10**9)
    assert eventually(lambda: min(one.monitor.answered, two.monitor.answered) > 10)
    assert dead.empty()
    one.stop()
    peer, reason = dead.get(timeout=WAIT)  # the end of the connection
    assert peer == TASK and "ended" in reason
    other.stop()


def test_a_process_that_does_not_answer_is_declared_dead_once(responder, loop):
    ours, theirs = socket.socketpair()
    dead = queue.Queue()
    heartbeat = beating(ours, responder, loop, dead, 5)
    peer, reason = dead.get(timeout=WAIT)
    assert peer == TASK and "did not answer 5 heartbeats" in reason
    assert heartbeat.monitor.sent == 5
    assert len(theirs.recv(1000)) == 5 * MESSAGE.size
    theirs.close()
    assert dead.empty()


@pytest.mark.parametrize("when", ["before", "after"])
def test_the_end_of_the_loop_closes_the_connections(responder, when):
    """Also one that comes while the loop ends."""
    loop = Loop()
    if when == "after":
        loop.stop()
    pairs = [socket.socketpair() for _ in range(2)]
    dead = queue.Queue()
    beating(pairs[0][0], responder, loop, dead, 5)
    if when == "before":
        Answers(Connection(pairs[1][0], TASK, "somewhere", True), responder, loop)
        loop.stop()
        assert pairs[1][0].fileno() < 0
    assert pairs[0][0].fileno() < 0
    assert dead.empty()
    for pair in pairs:
        for each in pair:
            each.close()
