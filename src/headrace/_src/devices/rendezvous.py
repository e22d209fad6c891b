"""Rendezvous: the place where the partitions of a step hand tensors to each other. In: values, by
key. Out: a Pending for each key that is requested.

Each key is sent once and received once, in any order: a value waits for its receiver, or a receiver
for its value. A dead tensor is a value like any other. An error can be sent in place of a value.
`abort` ends the step: all waiting receivers get its error, and every later call raises it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from headrace._src.core.errors import InternalError
from headrace._src.core.locks import Lock
from headrace._src.devices.pending import Pending

__all__ = ["Key", "Rendezvous"]


class Key(NamedTuple):
    """The identity of a tensor that is sent between two devices, in one iteration of one frame.
    The incarnation tells the sender from its successor after a restart.
    """

    sender: str
    incarnation: int
    receiver: str
    tensor: str
    frame: int = 0
    iteration: int = 0

    def __str__(self) -> str:
        edge = f"{self.tensor};{self.frame}:{self.iteration}"
        return f"{self.sender};{self.incarnation:016x};{self.receiver};{edge}"


class _Sent(NamedTuple):
    """A value that was sent for a key, or an error in its place."""

    value: Any
    error: BaseException | None = None


class Rendezvous:
    """The tensors of one step that are in transit. Any thread may call any method."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._sent: dict[Key, _Sent] = {}
        self._receivers: dict[Key, Pending] = {}
        self._over: set[Key] = set()  # keys that were received or dropped
        self._unwanted: set[Key] = set()  # keys whose receiver was cancelled
        self._error: BaseException | None = None

    def send(self, key: Key, value: Any) -> None:
        """Send the value of a key; raise the error of an aborted step."""
        self._send(key, _Sent(value))

    def send_error(self, key: Key, error: BaseException) -> None:
        """Send an error in place of the value of a key; its receiver fails."""
        self._send(key, _Sent(None, error))

    def recv_async(self, key: Key) -> Pending:
        """Return a Pending for the value of a key."""
        pending = Pending(lambda: f"tensor '{key.tensor}' of {key.sender}", self._forget(key))
        with self._lock:
            self._check()
            if key in self._receivers or key in self._over or key in self._unwanted:
                raise InternalError(None, None, f"{key} is received twice")
            sent = self._sent.pop(key, None)
            if sent is None:
                self._receivers[key] = pending
            else:
                self._over.add(key)
        if sent is not None:
            _deliver(pending, sent)
        return pending

    def abort(self, error: BaseException) -> None:
        """End the step with an error; the first one counts."""
        with self._lock:
            if self._error is not None:
                return
            self._error = error
            waiting = list(self._receivers.values())
            self._receivers.clear()
            self._sent.clear()
        for pending in waiting:
            pending.cancel(error)

    def _send(self, key: Key, sent: _Sent) -> None:
        with self._lock:
            self._check()
            if key in self._sent or key in self._over:
                raise InternalError(None, None, f"{key} is sent twice")
            pending = self._receivers.pop(key, None)
            if pending is None and key not in self._unwanted:
                self._sent[key] = sent
            else:
                self._over.add(key)
        if pending is not None:
            _deliver(pending, sent)

    def _check(self) -> None:
        if self._error is not None:
            raise self._error

    def _forget(self, key: Key) -> Any:
        """Return a function that drops a cancelled receiver. A value sent to it is dropped, too."""

        def forget(pending: Pending) -> None:
            with self._lock:
                if self._receivers.get(key) is pending:
                    del self._receivers[key]
                    self._unwanted.add(key)

        return forget


def _deliver(pending: Pending, sent: _Sent) -> None:
    if not pending.claim():
        return  # its step was cancelled and doesn't need the value
    if sent.error is None:
        pending.complete(sent.value)
    else:
        pending.fail(sent.error)
