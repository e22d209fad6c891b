"""Listening and connecting: addresses, Unix sockets, keys, handshakes that fail or stall."""

import logging
import os
import socket

import pytest

from headrace._src.core import errors
from headrace._src.transport import connect as connecting
from headrace._src.transport import handshake as handshakes
from headrace._src.transport import loop as loops
from headrace._src.transport.connect import connect, listen, split_address, user_of_tcp
from headrace._src.transport.frame import Frame, ProtocolError
from headrace._src.transport.handshake import Handshake, Hello, RefusedError, Service
from headrace._src.transport.keys import configured_key, read_key
from tests.unit.transport.peers import CLIENT, TASK, WAIT, channel_to, eventually, serving, use

KEY, OTHER_KEY = b"k" * 32, b"o" * 32


@pytest.fixture(autouse=True)
def quiet(caplog):
    with caplog.at_level(logging.CRITICAL, "headrace"):
        yield


def test_processes_of_one_host_use_a_unix_socket(monkeypatch):
    with serving() as server:
        with channel_to(server) as channel:
            assert channel.unix and channel.peer == TASK
        use(monkeypatch, "tcp")
        with channel_to(server) as channel:
            assert not channel.unix and channel.peer == TASK
        first, second = (server.connections.get(timeout=WAIT) for _ in range(2))
        assert first.unix and not second.unix
        assert first.peer == second.peer == CLIENT


def test_tcp_connections_within_a_host_are_not_paced(monkeypatch):
    with socket.socket() as plain:
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")
        except OSError:
            pytest.skip("this system does not let programs choose reno")
    use(monkeypatch, "tcp")
    with serving() as server:
        connection = connect(server.address, CLIENT, None, WAIT)
        accepted = server.connections.get(timeout=WAIT)
        for each in (connection, accepted):
            found = each.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
            assert found.rstrip(b"\0") == b"reno"
        connection.socket.close()


def test_localhost_is_found_by_both_its_names():
    with serving(address="localhost:0") as server:
        port = split_address(server.address)[1]
        for host in ("localhost", "127.0.0.1"):
            connection = connect(f"{host}:{port}", CLIENT, None, WAIT)
            assert connection.unix
            connection.socket.close()


def test_two_listeners_on_one_port_of_different_addresses():
    with serving(address="127.0.0.1:0") as one:
        port = split_address(one.address)[1]
        with serving(address=f"127.0.0.2:{port}") as two, channel_to(two) as channel:
            channel.request(Frame(1))
            assert one.connections.empty() and two.connections.qsize() == 1


def test_a_service_reaches_the_listener():
    with serving() as server:
        connect(server.address, CLIENT, None, WAIT, Service.HEARTBEATS).socket.close()
        assert server.connections.get(timeout=WAIT).service is Service.HEARTBEATS


@pytest.mark.parametrize("address", ["", "host", "host:", ":1", "host:x", "host:65536", "host:-1"])
def test_addresses_are_checked(address):
    with pytest.raises(errors.InvalidArgumentError, match="host:port"):
        split_address(address)


def test_an_address_in_use_and_one_without_listener_are_named():
    with serving() as server:
        with pytest.raises(errors.UnavailableError, match=f"listen on {server.address}"):
            listen(server.address)
        address = server.address
    with pytest.raises(errors.UnavailableError, match=f"cannot connect to {address}"):
        connect(address, CLIENT, None, WAIT)


def test_other_hosts_need_a_key():
    with pytest.raises(errors.FailedPreconditionError) as raised:
        listen("0.0.0.0:0")
    for part in ("head -c 32 /dev/urandom >", "chmod 600", "HEADRACE_KEY_FILE"):
        assert part in str(raised.value)
    listener = listen("0.0.0.0:0", KEY)
    listener.close()


def test_a_key_opens_the_door():
    with serving(key=KEY) as server, channel_to(server, KEY) as channel:
        assert channel.request(Frame(1, 0, b"x")).head == b"x"


@pytest.mark.parametrize(
    "of_server, of_client, reason",
    [
        (KEY, OTHER_KEY, "different keys"),
        (KEY, None, "requires a key"),
        (None, KEY, "the server has none"),
    ],
)
def test_a_wrong_key_is_refused_by_both_sides(of_server, of_client, reason):
    with serving(key=of_server) as server:
        with pytest.raises(errors.UnauthenticatedError, match=reason) as raised:
            connect(server.address, CLIENT, of_client, WAIT)
        assert server.address in str(raised.value)
        assert eventually(lambda: not server.loop._greetings)
        assert server.connections.empty()


def test_a_handshake_that_stalls_is_closed(monkeypatch):
    monkeypatch.setattr(loops, "DEADLINE", 0.05)
    with serving() as server:
        host, port = split_address(server.address)
        with socket.create_connection((host, port)) as sock:
            sock.sendall(b"\x2d")
            assert sock.recv(1) == b""
        monkeypatch.undo()
        with channel_to(server) as channel:  # others are served
            channel.request(Frame(1))


def test_a_listener_that_does_not_answer_is_reported():
    with socket.create_server(("127.0.0.1", 0)) as mute:
        address = f"127.0.0.1:{mute.getsockname()[1]}"
        with pytest.raises(errors.UnavailableError, match=r"waited 0\.05 s"):
            connect(address, CLIENT, None, 0.05)


@pytest.mark.parametrize(
    "data", [b"\0\0", b"\xff\xff", b"GET / HTTP/1.1\r\n\r\n", b"\x05\0\x02abcd", b"\x01\0\x09"]
)
def test_strangers_are_closed(data):
    with serving() as server:
        host, port = split_address(server.address)
        with socket.create_connection((host, port)) as sock:
            sock.sendall(data)
            sock.settimeout(WAIT)
            assert sock.recv(1000) == b""


def test_a_unix_socket_of_another_user_is_not_used(monkeypatch):
    with serving() as server:
        monkeypatch.setattr(connecting, "user_of", lambda sock: os.getuid() + 1)
        with channel_to(server) as channel:
            assert not channel.unix
        monkeypatch.undo()
        monkeypatch.setattr(loops, "user_of", lambda sock: os.getuid() + 1)
        with pytest.raises(errors.UnavailableError):
            connect(server.address, CLIENT, None, WAIT)


def test_the_user_of_a_local_tcp_connection_is_known():
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as client,
    ):
        accepted, _ = server.accept()
        with accepted:
            assert user_of_tcp(accepted) == user_of_tcp(client) == os.getuid()


def test_addresses_are_spelled_as_the_kernel_does():
    assert connecting._kernel_name("127.0.0.1", 80) == "0100007F:0050"
    assert connecting._kernel_name("::1", 80) == "00000000000000000000000001000000:0050"


def test_another_user_needs_a_key_on_loopback(monkeypatch):
    use(monkeypatch, "tcp")
    monkeypatch.setattr(loops, "user_of_tcp", lambda sock: os.getuid() + 1)
    with serving() as server, pytest.raises(errors.UnavailableError):
        connect(server.address, CLIENT, None, WAIT)
    with serving(key=KEY) as server, channel_to(server, KEY) as channel:
        channel.request(Frame(1))


# -- The machine -----------------------------------------------------------------------------------


def shake(client, server, spoil=None):
    """Carry the messages between two machines; `spoil` changes those of the client."""
    data = client.start()
    for _ in range(4):
        answer = server.feed(data if spoil is None else spoil(data))
        data = client.feed(answer) if answer else b""
    return client, server


def test_the_machines_meet_in_pieces_of_any_size():
    client, server = Handshake(CLIENT, KEY, False), Handshake(TASK, KEY, True)
    data = client.start()
    while server.peer is None or client.peer is None:
        answer = b"".join(server.feed(data[i : i + 1]) for i in range(len(data)))
        data = b"".join(client.feed(answer[i : i + 1]) for i in range(len(answer)))
    assert server.peer == CLIENT and client.peer == TASK


def test_bytes_after_the_handshake_are_kept():
    client, server = Handshake(CLIENT, None, False), Handshake(TASK, None, True)
    opening = server.feed(client.start())
    server.feed(client.feed(opening) + b"frames")
    assert server.rest == b"frames"


def test_a_hello_that_was_changed_on_the_way_is_refused():
    client, server = Handshake(CLIENT, KEY, False), Handshake(TASK, KEY, True)
    proved = bytearray(client.feed(server.feed(client.start())))
    proved[-1] ^= 1
    with pytest.raises(RefusedError):
        server.feed(bytes(proved))
    assert server.peer is None


def test_the_proofs_of_a_client_cannot_be_replayed():
    recorded = []

    def record(data):
        recorded.append(data)
        return data

    shake(Handshake(CLIENT, KEY, False), Handshake(TASK, KEY, True), record)
    server = Handshake(TASK, KEY, True)
    server.feed(recorded[0])
    with pytest.raises(RefusedError):
        server.feed(recorded[1])


def test_the_hello_is_not_shown_to_a_server_without_the_key():
    client, server = Handshake(CLIENT, KEY, False), Handshake(TASK, OTHER_KEY, True)
    with pytest.raises(RefusedError, match="different keys"):
        client.feed(server.feed(client.start()))


def test_versions_that_differ_are_refused(monkeypatch):
    client, server = Handshake(CLIENT, None, False), Handshake(TASK, None, True)
    opening = client.start()
    monkeypatch.setattr(handshakes, "VERSION", 2)
    with pytest.raises(RefusedError, match="version 1 and 2"):
        server.feed(opening)
    with pytest.raises(RefusedError, match="refused the connection: protocol version 1 and 2"):
        client.feed(server.refusal)


@pytest.mark.parametrize(
    "hello", [CLIENT, TASK, Hello("task", "j" * 255, 2**31 - 1, 2**64 - 1, 2**32 - 1, b"c" * 64)]
)
def test_a_hello_survives_the_wire(hello):
    assert Hello.decode(hello.encode()) == hello


def test_a_malformed_hello_is_refused():
    data = TASK.encode()
    for bad in (b"", data[:-1], data + b"x", b"\x09" + data[1:], data[:19] + b"\xff" + data[20:]):
        with pytest.raises(ProtocolError):
            Hello.decode(bad)
    with pytest.raises(ValueError, match="a task or a client"):
        Hello("boss")
    with pytest.raises(ValueError, match="cookie"):
        Hello("task", cookie=bytes(65))


# -- Keys ------------------------------------------------------------------------------------------


@pytest.fixture
def key_file(tmp_path):
    path = tmp_path / "key"
    path.write_bytes(KEY)
    path.chmod(0o600)
    return path


def test_a_key_is_read_from_a_file_of_its_owner(key_file, monkeypatch):
    assert read_key(str(key_file)) == KEY
    assert configured_key() is None


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o666])
def test_a_key_that_others_can_read_or_write_is_refused(key_file, mode):
    key_file.chmod(mode)
    with pytest.raises(errors.PermissionDeniedError, match="chmod 600"):
        read_key(str(key_file))


def test_a_missing_or_short_key_prints_how_to_make_one(key_file):
    key_file.write_bytes(b"short")
    with pytest.raises(errors.InvalidArgumentError, match="/dev/urandom"):
        read_key(str(key_file))
    with pytest.raises(errors.NotFoundError, match="/dev/urandom"):
        read_key(str(key_file) + ".none")
