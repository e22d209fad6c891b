"""Readers: read files whose names come from a queue, record by record. In: a queue. Out: records,
or Pendings.

A reader reads one file at a time and asks the queue for another at the end of the file. Concurrent
reads take turns. If a read is cancelled, the records that it has taken go to the next read.

State: the file's name, its remaining records, the records that were given back; how many files were
begun and ended, and how many records were returned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from headrace._src.core import proto
from headrace._src.core.errors import CancelledError, InvalidArgumentError, UnimplementedError
from headrace._src.devices.mutex import Mutex, MutexLock
from headrace._src.devices.pending import Pending
from headrace._src.devices.queues import Queue
from headrace._src.devices.resumable import Resumable

__all__ = ["Reader", "Record"]

Record = tuple[bytes, bytes]  # key and value


class _Reading(Pending):
    """A read: wait for its turn, then take files from the queue until one has a record. `shape`
    makes the kernel's result from the records.
    """

    __slots__ = ("_count", "_inner", "_queue", "_reader", "_shape", "_turn")

    def __init__(
        self, reader: Reader, queue: Queue, count: int, shape: Callable[[list[Record]], Any]
    ) -> None:
        super().__init__(lambda: self._inner.what if self._inner else str(reader), self._stop)
        self._reader = reader
        self._queue = queue
        self._count = count
        self._shape = shape
        self._turn: MutexLock | None = None
        self._inner: Pending | None = None
        self._go_on(reader.turns.acquire(), self._begin)

    def answer(self) -> Any:
        """Return the kernel's result now: the records, or else the read itself, a Pending."""
        return self.result() if self._over else self

    def _go_on(self, found: Any, then: Callable[[Any], None]) -> None:
        """Call `then` with the value found: now, or once the Pending found has ended."""
        if isinstance(found, Pending):
            self._inner = found
            found.then(partial(self._waited, then))
        else:
            then(found)

    def _waited(self, then: Callable[[Any], None], pending: Pending) -> None:
        self._inner = None
        try:
            found = pending.result()
        except Exception as error:
            self._leave(error)
        else:
            then(found)

    def _begin(self, turn: MutexLock) -> None:
        self._turn = turn
        self._take()

    def _next_file(self, element: tuple[Any, ...]) -> None:
        self._reader.begin(element)
        self._take()

    def _take(self) -> None:
        try:
            while not self._claimed:
                records = self._reader.take(self._count)
                if records:
                    self._leave(records)
                    return
                found = self._queue.dequeue()
                if isinstance(found, Pending):
                    self._go_on(found, self._next_file)
                    return
                self._reader.begin(found)
        except Exception as error:
            self._leave(error)
        else:
            self._leave(CancelledError(None, None, "Read operation was cancelled"))

    def _leave(self, outcome: Any) -> None:
        """End this read and let the next one have its turn."""
        is_first = self.claim()
        if not is_first and isinstance(outcome, list):
            self._reader.give_back(outcome)
        turn, self._turn = self._turn, None
        if turn is not None:
            turn.release()
        if is_first:
            if isinstance(outcome, Exception):
                self.fail(outcome)
            else:
                self.complete(self._shape(outcome))

    def _stop(self, pending: Pending) -> None:
        if self._inner is not None:
            self._inner.cancel(CancelledError(None, None, "Read operation was cancelled"))


class Reader(Resumable):
    """A reader of one kind of records.

    records: returns the records of the file of a given name. is_whole: whether a file is one
    record. No file is then open between reads, so that a graph may save and restore the state.
    """

    def __init__(
        self,
        name: str,
        kind: str,
        records: Callable[[str], Iterator[Record]],
        is_whole: bool = False,
    ) -> None:
        self.name = name
        self.kind = kind
        self.turns = Mutex(name)
        self._records = records
        self._is_whole = is_whole
        self.reset()

    def __str__(self) -> str:
        return f"{self.kind} '{self.name}'"

    def reset(self) -> None:
        """Return to the initial state and drop the current file."""
        self._file = b""
        self._left: Iterator[Record] | None = None
        self._given_back: list[Record] = []
        self._taken = 0  # records of the file
        self.started = self.finished = self.produced = 0

    # -- Reading, during a turn --------------------------------------------------------------------

    def read(self, queue: Queue, count: int, shape: Callable[[list[Record]], Any]) -> Any:
        """Return `shape` of up to `count` records, all of one file, or a Pending."""
        return _Reading(self, queue, count, shape).answer() if count else shape([])

    def begin(self, element: tuple[Any, ...]) -> None:
        """Begin the file whose name is the queue's element."""
        (value,) = element
        if np.ndim(value):
            raise InvalidArgumentError(
                None,
                None,
                f"the queue gave {np.size(value)} file names at once to {self}: it must give one",
            )
        self._open(np.asarray(value, object).item())
        self.started += 1

    def _open(self, file: bytes) -> None:
        self._file, self._taken = file, 0
        self._left = self._records(file.decode(errors="surrogateescape"))

    def take(self, count: int) -> list[Record]:
        """Return up to `count` more records of the file; none if it has ended."""
        if self._left is None:
            self._file = b""
            return []
        found, self._given_back = self._given_back[:count], self._given_back[count:]
        left, self._left = self._left, None  # a file that can't be read is not tried again
        try:
            for record in islice(left, count - len(found)):
                found.append(record)
        except Exception as error:
            if not found:
                raise
            left = _failing(error)
        self._taken += len(found)
        self.produced += len(found)
        if found and not self._is_whole:
            self._left = left
        else:
            self.finished += 1
        return found

    def give_back(self, records: list[Record]) -> None:
        """Undo `take`, which returned these records."""
        if self._left is None:  # they were the whole file
            self._left = iter(())
            self.finished -= 1
        self._given_back = records + self._given_back
        self._taken -= len(records)
        self.produced -= len(records)

    # -- State, as a graph saves it ----------------------------------------------------------------

    def serialize(self) -> bytes:
        """Return the state as bytes in TensorFlow's format."""
        self._check_is_whole("SerializeState")
        found: Any = proto.ReaderBaseState(
            work_started=self.started,
            work_finished=self.finished,
            num_records_produced=self.produced,
            current_work=self._file,
        )
        return found.SerializeToString()

    def restore(self, state: bytes) -> None:
        """Restore the state that `serialize` returned."""
        self._check_is_whole("RestoreState")
        try:
            found: Any = proto.ReaderBaseState.FromString(state)
        except proto.DecodeError:
            shown = state.decode(errors="backslashreplace")
            raise InvalidArgumentError(
                None, None, f"Could not parse state for {self}: {shown}"
            ) from None
        started, finished = found.work_started, found.work_finished
        if min(started, finished, found.num_records_produced) < 0:
            raise InvalidArgumentError(
                None, None, f"Unexpected negative value when restoring in {self}: {found}"
            )
        if started not in (finished, finished + 1):
            raise InvalidArgumentError(
                None,
                None,
                f"Inconsistent work started vs. finished when restoring in {self}: {found}",
            )
        self.reset()
        if started > finished:
            self._open(found.current_work)
        self._file = found.current_work
        self.started, self.finished = started, finished
        self.produced = found.num_records_produced

    def _check_is_whole(self, what: str) -> None:
        if not self._is_whole:
            raise UnimplementedError(None, None, f"Reader {what}")

    # -- State, as a session saves it --------------------------------------------------------------

    def saved(self) -> dict[str, np.ndarray]:
        counts = (self.started, self.finished, self.produced, self._taken)
        file = np.frombuffer(self._file, np.uint8).copy()
        is_open = np.array(self._left is not None)
        return {"counts": np.array(counts, np.int64), "file": file, "is_open": is_open}

    def resume(self, saved: Mapping[str, np.ndarray]) -> None:
        self.reset()
        file = saved["file"].astype(np.uint8).tobytes()
        started, finished, produced, taken = saved["counts"].tolist()
        if saved["is_open"]:
            self._open(file)
            self._taken = len(list(islice(self._left or (), taken)))
        self._file = file
        self.started, self.finished, self.produced = started, finished, produced


def _failing(error: Exception) -> Iterator[Record]:
    """Return an iterator that raises this error at the next record."""
    raise error
    yield
