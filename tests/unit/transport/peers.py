"""Pairs of connected links and channels over loopback, for tests."""

import contextlib
import os
import queue
import threading
from dataclasses import replace

from headrace._src.transport import connect as connecting
from headrace._src.transport.channel import Channel
from headrace._src.transport.connect import connect, listen
from headrace._src.transport.handshake import Hello
from headrace._src.transport.loop import Loop

WAIT = 60.0  # seconds: how long a test waits for what must happen
TASK = Hello("task", "ps", 1, 2**62, os.getpid(), b"cookie")
CLIENT = Hello("client", process=os.getpid())


class Server:
    """A loop with a listener. Each frame goes to `on_frame(link, frame)`, by default an echo."""

    def __init__(self, on_frame=None, key=None, address="127.0.0.1:0", budget=None):
        self.on_frame = on_frame or (lambda link, frame: link.send(frame))
        self.links = queue.Queue()
        self.closed = queue.Queue()
        self.connections = queue.Queue()
        self.loop = Loop()
        self.listener = listen(address, key)
        self.address = self.listener.address

        def accept(connection):
            self.connections.put(connection)
            self.links.put(self.loop.add(connection, self._frame, self._closed, budget))

        self.loop.listen(self.listener, TASK, accept)
        self.loop.start()

    def _frame(self, link, frame):
        self.on_frame(link, frame)

    def _closed(self, link, error):
        self.closed.put((link, error))


@contextlib.contextmanager
def serving(*args, **kwargs):
    """A Server that is stopped at the end."""
    server = Server(*args, **kwargs)
    try:
        yield server
    finally:
        server.loop.stop()


@contextlib.contextmanager
def channel_to(server, key=None, on_notice=None):
    """A channel to a server."""
    channel = Channel(connect(server.address, CLIENT, key, WAIT), on_notice)
    try:
        yield channel
    finally:
        channel.close()


def use(monkeypatch, transport):
    """Connect by "auto" or "tcp"."""
    changed = replace(connecting.settings(), transport=transport)
    monkeypatch.setattr(connecting, "settings", lambda: changed)


def eventually(condition):
    """Wait until a condition holds that another thread brings about."""
    pause = threading.Event()
    for _ in range(int(WAIT / 0.005)):
        if condition():
            return True
        pause.wait(0.005)
    return condition()
