"""Several ranks in one process: each with its own connections and its own shared memory."""

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from headrace._src.collectives import communicator
from headrace._src.collectives.communicator import Communicator
from headrace._src.collectives.coordinator import CoordinatorService
from headrace._src.horovod.process import wait

PATIENCE = 120.0  # seconds; only a hang takes that long


class Ranks:
    def __init__(self, service, count, hosts, monkeypatch):
        self.service = service
        self._hosts = hosts
        self._pool = ThreadPoolExecutor(16)
        self._local = threading.local()
        monkeypatch.setattr(communicator, "memory_name", lambda id: self._local.host or f"p{id}")
        made = [self._pool.submit(self.make, rank, count) for rank in range(count)]
        self.all = [each.result(PATIENCE) for each in made]

    def make(self, rank, count):
        self._local.host = None if self._hosts is None else self._hosts[rank]
        return Communicator(self.service.address, rank, count)

    def join(self, rank=-1):
        """Start another process; it waits for the next epoch."""
        return self._pool.submit(self.make, rank, len(self.all))

    def run(self, call, ranks=None):
        """Call a function for each rank, in threads; return the results or errors by rank."""
        found = self.all if ranks is None else ranks
        pending = [self._pool.submit(lambda each=each: wait(call(each))) for each in found]
        return [_outcome(each) for each in pending]

    def kill(self, each):
        """End a rank as a killed process ends: its connections close without a goodbye."""
        each.loop.stop()

    def close(self):
        for each in self.all:
            each.close()
        self._pool.shutdown(wait=False, cancel_futures=True)


def _outcome(future):
    try:
        return future.result(PATIENCE)
    except Exception as error:
        return error


@pytest.fixture
def ranks(monkeypatch):
    """ranks(count, hosts=["a", "a", "b"], least=None): connected communicators. Ranks on one host
    share memory; hosts=None: no two do.
    """
    with contextlib.ExitStack() as stack:

        def make(count, hosts=None, least=None):
            service = CoordinatorService("127.0.0.1:0", count, least)
            stack.callback(service.close)
            found = Ranks(service, count, hosts, monkeypatch)
            stack.callback(found.close)
            return found

        yield make
