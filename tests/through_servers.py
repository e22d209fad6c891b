"""Sessions on servers of this process, for tests: what works in one process has to work there."""

import contextlib
import socket
from unittest import mock

import headrace as tf
from headrace._src.session.process_config import default_config
from headrace._src.session.session import BaseSession


def free_addresses(count):
    """Return addresses of this machine with ports that are free."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]


@contextlib.contextmanager
def servers(**jobs):
    """Run the servers of a cluster with so many tasks in each job; yield them by name ("ps0")."""
    addresses = iter(free_addresses(sum(jobs.values())))
    cluster = {job: [next(addresses) for _ in range(count)] for job, count in jobs.items()}
    started = {
        f"{job}{task}": tf.train.Server(cluster, job, task)
        for job, count in jobs.items()
        for task in range(count)
    }
    try:
        yield started
    finally:
        for server in started.values():
            server.stop()


@contextlib.contextmanager
def sessions_on(target):
    """Let sessions without a target use this one, each with a state of its own."""
    made = BaseSession.__init__

    def make(self, given="", graph=None, config=None):
        if not given and (config is None or hasattr(config, "isolate_session_state")):
            isolated = tf.ConfigProto()
            isolated.CopyFrom(config or default_config() or tf.ConfigProto())
            isolated.isolate_session_state = True
            given, config = target, isolated
        made(self, given, graph, config)

    with mock.patch.object(BaseSession, "__init__", make):
        yield
