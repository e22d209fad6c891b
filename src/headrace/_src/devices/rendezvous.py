"""Rendezvous: the place where the partitions of a step hand tensors to each other. In: values, by
key. Out: the value of each key that is requested, or a Pending.

Each key is sent once and received once, in any order: a value waits for its receiver, or a receiver
for its value. A second use is an error, except that keys of loops are too many to remember once
they were used. A dead tensor is a value like any other. An error can be sent in place of a value.
`abort` ends the step: all waiting receivers get its error, and every later call raises it.

A step on several tasks has a RemoteRendezvous on each of them. What is sent to another task is
pushed over a link, and what arrives from a link meets its receiver here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from headrace._src.core.errors import InternalError
from headrace._src.core.locks import Lock
from headrace._src.devices.pending import Pending

__all__ = ["Key", "RemoteRendezvous", "Rendezvous"]


class Key(NamedTuple):
    """The identity of a tensor that is sent between two devices, in one iteration of one frame.
    The incarnation tells the sender from its successor after a restart.
    """

    sender: str
    incarnation: int
    receiver: str
    tensor: str
    frame: int | str = 0
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
        self._receivers: dict[Key, _Received] = {}
        self._over: set[Key] = set()  # keys outside loops that were received or dropped
        self._unwanted: set[Key] = set()  # keys whose receiver was cancelled
        self._error: BaseException | None = None

    def send(self, key: Key, value: Any) -> None:
        """Send the value of a key; raise the error of an aborted step."""
        if not self._put(key, _Sent(value)):
            self._check()

    def send_error(self, key: Key, error: BaseException) -> None:
        """Send an error in place of the value of a key; its receiver fails."""
        if not self._put(key, _Sent(None, error)):
            self._check()

    def recv(self, key: Key, put: Callable[[Any], Any] | None = None) -> Any:
        """Return the value of a key if it was sent, otherwise a Pending. `put` is applied to the
        value.
        """
        with self._lock:
            sent = self._sent.pop(key, None)
            if sent is not None and not key.frame:
                self._over.add(key)
        if sent is None:
            return self.recv_async(key, put)
        if sent.error is not None:
            raise sent.error
        return sent.value if put is None else put(sent.value)

    def recv_async(self, key: Key, put: Callable[[Any], Any] | None = None) -> Pending:
        """Return a Pending of the value of a key, which may be there already."""
        pending = _Received(key, self._forget, put)
        with self._lock:
            self._check()
            if key in self._receivers or key in self._over or key in self._unwanted:
                raise InternalError(None, None, f"{key} is received twice")
            sent = self._sent.pop(key, None)
            if sent is None:
                self._receivers[key] = pending
            elif not key.frame:
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

    def in_transit(self) -> list[Key]:
        """Return the keys that were sent and not yet received."""
        with self._lock:
            return list(self._sent)

    def _put(self, key: Key, sent: _Sent) -> bool:
        """Pass a value to its receiver, or keep it; return False if the step was aborted."""
        with self._lock:
            if self._error is not None:
                return False
            if key in self._sent or key in self._over:
                raise InternalError(None, None, f"{key} is sent twice")
            pending = self._receivers.pop(key, None)
            if pending is None and key not in self._unwanted:
                self._sent[key] = sent
            elif not key.frame:
                self._over.add(key)
        if pending is not None:
            _deliver(pending, sent)
        return True

    def _check(self) -> None:
        if self._error is not None:
            raise self._error

    def _forget(self, pending: Pending) -> None:
        """Drop a receiver that was cancelled, and the value that will be sent to it."""
        assert isinstance(pending, _Received)
        with self._lock:
            if self._receivers.get(pending.key) is pending:
                del self._receivers[pending.key]
                self._unwanted.add(pending.key)


class RemoteRendezvous(Rendezvous):
    """The tensors of one step that this task sends or receives.

    is_local: whether this task has the device of a name. push: called with the key, value and error
    (or None) of each tensor for another task; it must not block.
    """

    def __init__(
        self,
        is_local: Callable[[str], bool],
        push: Callable[[Key, Any, BaseException | None], None],
    ) -> None:
        super().__init__()
        self._is_local = is_local
        self._push = push
        self._offers: dict[Key, Callable[[], None]] = {}

    def arrive(self, key: Key, value: Any) -> bool:
        """Take a tensor that another task has sent, before or after it is received. Return False,
        and drop it, if the step was aborted.
        """
        self._check_arrival(key)
        return super()._put(key, _Sent(value))

    def arrive_error(self, key: Key, error: BaseException) -> bool:
        """Take an error that another task has sent in place of a tensor; see `arrive`."""
        self._check_arrival(key)
        return super()._put(key, _Sent(None, error))

    def offer(self, key: Key, ask: Callable[[], None]) -> bool:
        """Note that another task has a tensor that it sends only when asked. `ask` is called once
        the tensor is received: now, or by the thread that receives it. Return False if the step was
        aborted.
        """
        self._check_arrival(key)
        with self._lock:
            if self._error is not None:
                return False
            wanted = key in self._receivers
            if not wanted and key not in self._unwanted:
                self._offers[key] = ask
        if wanted:
            ask()
        return True

    def recv_async(self, key: Key, put: Callable[[Any], Any] | None = None) -> Pending:
        pending = super().recv_async(key, put)
        ask = self._offers.pop(key, None) if self._offers else None
        if ask is not None:
            ask()
        return pending

    def abort(self, error: BaseException) -> None:
        super().abort(error)
        self._offers.clear()

    def _put(self, key: Key, sent: _Sent) -> bool:
        if self._is_local(key.receiver):
            return super()._put(key, sent)
        with self._lock:
            if self._error is not None:
                return False
            if key in self._over:
                raise InternalError(None, None, f"{key} is sent twice")
            if not key.frame:
                self._over.add(key)
        self._push(key, sent.value, sent.error)
        return True

    def _check_arrival(self, key: Key) -> None:
        if not self._is_local(key.receiver) or self._is_local(key.sender):
            raise InternalError(None, None, f"{key} arrived from another task, but is not for here")


class _Received(Pending):
    """The Pending of a key."""

    __slots__ = ("key", "put")

    def __init__(
        self, key: Key, forget: Callable[[Pending], None], put: Callable[[Any], Any] | None
    ) -> None:
        super().__init__("", forget)
        self.key = key
        self.put = put

    @property
    def what(self) -> str:
        return f"tensor '{self.key.tensor}' of {self.key.sender}"


def _deliver(pending: _Received, sent: _Sent) -> None:
    if not pending.claim():
        return  # its step was cancelled: nothing wants the value
    error, value = sent.error, sent.value
    if error is None and pending.put is not None:
        try:
            value = pending.put(value)
        except Exception as failed:
            error = failed
    if error is None:
        pending.complete(value)
    else:
        pending.fail(error)
