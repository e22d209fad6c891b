"""Malformed frames and handshakes: no crash, no hang, no growth of memory."""

import contextlib
import logging
import socket

import numpy as np

from headrace._src.transport.connect import connect, split_address
from headrace._src.transport.frame import Frame
from headrace._src.transport.handshake import Handshake
from tests.unit.transport import fuzz
from tests.unit.transport.peers import CLIENT, WAIT, channel_to, eventually, serving


def test_the_decoder_survives_malformed_frames():
    fuzz.run(2_000, 1)
    before = fuzz.memory()
    outcomes = fuzz.run(20_000, 2)
    assert sum(outcomes.values()) == 20_000
    assert len(outcomes) > 12 and outcomes["valid"] and outcomes["waiting"]
    assert fuzz.memory() - before < 64 << 20


def test_links_survive_malformed_frames():
    random = np.random.default_rng(3)
    originals = fuzz.seeds()
    with serving() as server, channel_to(server) as other:
        for i in range(200):
            sock = connect(server.address, CLIENT, None, WAIT).socket
            with sock:
                data = fuzz.mutate(*originals[i % len(originals)], random)
                with contextlib.suppress(OSError):  # refused before all of it was sent
                    sock.sendall(data)
        assert other.request(Frame(1, 0, b"x"), WAIT).head == b"x"
        assert eventually(lambda: len(server.loop._links) == 1)


def test_listeners_survive_malformed_handshakes(caplog):
    random = np.random.default_rng(4)
    with (
        caplog.at_level(logging.CRITICAL, "headrace"),
        serving(key=b"k" * 32) as server,
        channel_to(server, b"k" * 32) as other,
    ):
        for _ in range(200):
            with socket.create_connection(split_address(server.address)) as sock:
                data = bytearray(Handshake(CLIENT, b"k" * 32, False).start())
                for _ in range(1 + random.integers(4)):
                    data[random.integers(len(data))] = random.integers(256)
                with contextlib.suppress(OSError):
                    sock.sendall(bytes(data) + random.bytes(random.integers(200)))
        assert other.request(Frame(1, 0, b"x"), WAIT).head == b"x"
        assert eventually(lambda: not server.loop._greetings)
        assert server.connections.qsize() == 1
