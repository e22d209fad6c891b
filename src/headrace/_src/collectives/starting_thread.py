"""Start all-reduces in shared memory in a thread of their own. In: all-reduces. Out: Pendings.

An all-reduce in shared memory is computed by the thread that starts it. This thread does that for
steps that have something else to do meanwhile. It never waits for long: where another rank is late,
`AllReduce.start` returns a Pending. So ranks may start theirs in different orders.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence

import numpy as np

from headrace._src.collectives.operations import AllReduce
from headrace._src.devices.pending import Pending

__all__ = ["StartingThread"]


class StartingThread:
    """The thread, which begins with its first all-reduce."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def start(
        self,
        found: AllReduce,
        arrays: Sequence[np.ndarray],
        merge: str,
        average: bool,
        in_place: bool,
    ) -> Pending:
        """Start an all-reduce soon; return a Pending for its results."""
        pending = Pending(f"all-reduce '{found.name}'", found.given_up)

        def end(inner: Pending) -> None:
            if pending.claim():
                try:
                    value = inner.result()
                except BaseException as error:
                    pending.fail(error)
                else:
                    pending.complete(value)

        def begin() -> None:
            try:
                value = found.start(arrays, merge, average, in_place)
            except BaseException as error:
                if pending.claim():
                    pending.fail(error)
            else:
                if isinstance(value, Pending):
                    value.then(end)
                elif pending.claim():
                    pending.complete(value)

        self._calls.put(begin)
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="headrace-exchange", daemon=True
                )
                self._thread.start()
        return pending

    def close(self) -> None:
        """End the thread, after what has been started."""
        self._calls.put(None)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            call()
