"""Queues of tuples, through which steps wait for each other. In: elements. Out: elements, or
Pendings.

An element is a tuple with one value per component. A call that is blocked becomes a waiter (a
Pending). Enqueues and dequeues wait in two lines, each of which is served in order of arrival. The
first dequeue in its line gets its elements as they come, so that it may ask for more than the queue
can hold; if it's cancelled, or the queue is closed too early, they go back.

State, behind one lock: the elements, whether the queue is closed, the two lines. Waiters are ended
after the lock is released, since their steps may continue in the same thread.
"""

from __future__ import annotations

import heapq
import itertools
import sys
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from headrace._src.core.dtypes import DType
from headrace._src.core.errors import CancelledError, InvalidArgumentError, OpError, OutOfRangeError
from headrace._src.core.locks import Lock
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.devices.batches import pad_together, stack
from headrace._src.devices.pending import Pending
from headrace._src.devices.resumable import Resumable, pack, unpack
from headrace._src.devices.step_context import Record

__all__ = [
    "FIFOQueueState",
    "PaddingFIFOQueueState",
    "PriorityQueueState",
    "Queue",
    "RandomShuffleQueueState",
]

Element = tuple[Any, ...]

# The result of `advance`: the waiter has ended, has made progress, or could do nothing.
_OVER, _FURTHER, _STUCK = range(3)


class _Waiter(Pending):
    """A waiter in a queue's line. `outcome` is its error, if it has failed."""

    __slots__ = ("outcome", "queue")

    action = "Enqueue"

    def __init__(self, queue: Queue) -> None:
        super().__init__(self.wish, queue.forget)
        self.queue = queue
        self.outcome: Any = None

    def wish(self) -> str:
        """Return what the waiter waits for, as text for messages."""
        raise NotImplementedError

    def advance(self, ended: list[_Waiter]) -> int:
        """Do what is possible now, with the queue's lock held; join `ended` when that was all."""
        raise NotImplementedError

    def value(self) -> Any:
        """Return the kernel's result."""
        return None

    def end(self, outcome: Any, ended: list[_Waiter]) -> int:
        """End the waiter with this outcome, unless it was cancelled meanwhile."""
        if self.claim():
            self.outcome = outcome
            ended.append(self)
        return _OVER

    def tell(self) -> None:
        """End the Pending, with no lock held."""
        if isinstance(self.outcome, BaseException):
            self.fail(self.outcome)
            return
        try:
            value = self.value()
        except Exception as error:  # a batch may be too large for the memory that is left
            self.fail(error)
        else:
            self.complete(value)

    def answer(self) -> Any:
        """Return the kernel's result now, or else the waiter itself, a Pending."""
        return self.result() if self._over else self

    def cancel(self, error: BaseException) -> bool:
        if type(error) is CancelledError:
            error = CancelledError(None, None, f"{self.action} operation was cancelled")
        return super().cancel(error)


class _Enqueue(_Waiter):
    """Adds elements as soon as there is room for them."""

    __slots__ = ("elements", "position")

    def __init__(self, queue: Queue, elements: Sequence[Element]) -> None:
        super().__init__(queue)
        self.elements = elements
        self.position = 0

    def wish(self) -> str:
        left = len(self.elements) - self.position
        what = "an element" if left == 1 else f"{left} elements"
        return f"room for {what} in {self.queue} (it's full: {self.queue.capacity})"

    @property
    def has_effect(self) -> bool:
        return bool(self.position) or super().has_effect

    def advance(self, ended: list[_Waiter]) -> int:
        queue = self.queue
        if queue.closed:
            return self.end(queue.closed_error(), ended)
        room = queue.capacity - len(queue.elements)
        if room <= 0:
            return _STUCK
        if room < len(self.elements) - self.position:
            queue.put(self.elements[self.position : self.position + room])
            self.position += room
            return _FURTHER
        if self.claim():
            queue.put(self.elements[self.position :] if self.position else self.elements)
            ended.append(self)
        return _OVER


class _Dequeue(_Waiter):
    """Takes exactly `lacking` elements; with `some`, it takes the rest if the queue is closed with
    fewer. `shape` makes the kernel's result from the elements. `record`: see Queue.dequeue.
    """

    __slots__ = ("lacking", "record", "shape", "some", "taken")

    action = "Dequeue"

    def __init__(
        self,
        queue: Queue,
        count: int,
        some: bool,
        shape: Callable[[list[Element]], Any],
        record: Record | None = None,
    ) -> None:
        super().__init__(queue)
        self.record = record
        self.lacking = count
        self.some = some
        self.shape = shape
        self.taken: list[Element] = []

    def wish(self) -> str:
        count = self.lacking + len(self.taken)
        what = "an element" if count == 1 else f"{count} elements"
        failed = "; its producer failed" if self.queue.failure is not None else ""
        there = len(self.taken) + len(self.queue.elements)
        return f"{what} of {self.queue} ({there} are there{failed})"

    def advance(self, ended: list[_Waiter]) -> int:
        queue = self.queue
        size = len(queue.elements)
        if queue.closed and size < self.lacking:
            wanted = self.lacking
            self.give_back()
            self.lacking = len(queue.elements)
            if not (self.some and self.lacking):
                return self.end(queue.exhausted_error(wanted, size), ended)
        count = queue.available()
        if count <= 0:
            return _STUCK
        if count < self.lacking:
            self.taken += queue.take(count)
            self.lacking -= count
            return _FURTHER
        if self.claim():
            self.taken += queue.take(self.lacking)
            ended.append(self)
        else:
            self.give_back()
        return _OVER

    def give_back(self) -> None:
        self.queue.give_back(self.taken)
        self.taken = []

    def value(self) -> Any:
        if self.record is not None:
            self.record.append((self.queue, self.taken))
        return self.shape(self.taken)


class _Close(_Waiter):
    """Closes the queue after the enqueues that came before it."""

    __slots__ = ()

    action = "Close"

    def wish(self) -> str:
        return f"the enqueues before the end of {self.queue}"

    def advance(self, ended: list[_Waiter]) -> int:
        queue = self.queue
        if queue.closed:
            message = f"Queue '{queue.name}' is already closed."
            return self.end(CancelledError(None, None, message), ended)
        if self.claim():
            queue.closed = True
            ended.append(self)
        return _OVER


class Queue(Resumable):
    """The base of all queues; subclasses decide in what order elements leave.

    types: of the components. shapes: of the components, None if unknown. capacity: the most
    elements that the queue holds; -1 for no limit.
    """

    kind: str
    elements: Any  # deque or list

    def __init__(
        self,
        name: str,
        types: tuple[DType, ...],
        shapes: tuple[TensorShape, ...] | None,
        capacity: int,
    ) -> None:
        self.name = name
        self.types = types
        self.shapes = shapes
        self.sizes = None if shapes is None else tuple(s.sizes for s in shapes)
        self.given_capacity = capacity
        self.capacity = sys.maxsize if capacity < 0 else capacity
        self.closed = False
        self._lock = Lock()
        self.failure: BaseException | None = None  # of the producer: why no more elements come
        self._adding: OrderedDict[Pending, _Waiter] = OrderedDict()
        self._resumed: list[_Waiter] = []  # restored waiters, for which no step waits
        self._taking: OrderedDict[Pending, _Waiter] = OrderedDict()

    # -- Differences between kinds; called with the lock held --------------------------------------

    def put(self, elements: Iterable[Element]) -> None:
        """Add elements, for which there is room."""
        self.elements.extend(elements)

    def take(self, count: int) -> list[Element]:
        """Remove `count` elements that are available."""
        raise NotImplementedError

    def give_back(self, elements: list[Element]) -> None:
        """Undo `take`."""
        raise NotImplementedError

    def available(self) -> int:
        """Return how many elements may be taken."""
        return len(self.elements)

    def in_order(self) -> list[Element]:
        """Return the elements in an order in which `put` makes an equal queue of them."""
        return list(self.elements)

    def batch(self, elements: list[Element]) -> list[Any]:
        """Return the components of several elements, each as one array. This needs no lock."""
        return stack(elements, self.types, self.sizes)

    # -- Operations --------------------------------------------------------------------------------

    def enqueue(self, element: Element) -> Any:
        """Add an element."""
        with self._lock:
            if not self._adding and not self.closed and len(self.elements) < self.capacity:
                self.put((element,))
                if not self._taking:
                    return None
                waiter, ended = None, self._serve()
            else:
                waiter = _Enqueue(self, (element,))
                ended = self._join(self._adding, waiter)
        _tell(ended)
        return waiter.answer() if waiter is not None else None

    def enqueue_many(self, elements: Sequence[Element]) -> Any:
        """Add elements in order, as soon as there is room for them."""
        if not elements:
            return None
        waiter = _Enqueue(self, elements)
        with self._lock:
            ended = self._join(self._adding, waiter)
        _tell(ended)
        return waiter.answer()

    def dequeue(self, record: Record | None = None) -> Any:
        """Take an element. record: gets the queue and what was taken, for `put_back`."""
        with self._lock:
            if not self._taking and self.available() > 0:
                (element,) = self.take(1)
                if record is not None:
                    record.append((self, [element]))
                if not self._adding:
                    return element
                waiter, ended = None, self._serve()
            else:
                element = None
                waiter = _Dequeue(self, 1, False, _only, record)
                ended = self._join(self._taking, waiter)
        _tell(ended)
        return waiter.answer() if waiter is not None else element

    def dequeue_many(self, count: int, some: bool = False, record: Record | None = None) -> Any:
        """Take `count` elements as one batch; with `some`, fewer if the queue is closed."""
        if self.shapes is None:
            raise InvalidArgumentError(
                None,
                None,
                f"{self.kind}'s DequeueMany and DequeueUpTo require the components to have "
                "specified shapes.",
            )
        if not count:
            return self.batch([])
        waiter = _Dequeue(self, count, some, self.batch, record)
        with self._lock:
            ended = self._join(self._taking, waiter)
        _tell(ended)
        return waiter.answer()

    def put_back(self, elements: list[Element]) -> None:
        """Undo a dequeue: the elements leave next, though the queue may be full or closed."""
        with self._lock:
            self.give_back(elements)
            ended = self._serve()
        _tell(ended)

    def close(self, cancel_pending: bool) -> Any:
        """Close the queue: after the waiting enqueues, or at once, and cancel them."""
        waiter = None
        with self._lock:
            if cancel_pending:
                ended: list[_Waiter] = []
                self.closed = True
                for pending in self._adding.values():
                    error = CancelledError(None, None, f"{pending.action} operation was cancelled")
                    pending.end(error, ended)
                self._adding.clear()
                ended += self._serve()
            else:
                waiter = _Close(self)
                ended = self._join(self._adding, waiter)
        _tell(ended)
        return waiter.answer() if waiter is not None else None

    def size(self) -> int:
        """Return how many elements the queue holds."""
        return len(self.elements)

    # -- Resuming in another process ---------------------------------------------------------------

    def saved(self) -> dict[str, np.ndarray]:
        """Return the elements, those that wait for room, and whether it is or will be closed."""
        with self._lock:
            # The elements that a waiting dequeue has got so far still belong to the queue.
            taken = [e for w in self._taking.values() if isinstance(w, _Dequeue) for e in w.taken]
            elements, waiting, closed = [*taken, *self.in_order()], [], self.closed
            for waiter in self._adding.values():
                if isinstance(waiter, _Enqueue):
                    waiting += waiter.elements[waiter.position :]
                else:
                    closed = True
        found = {f"elements/{k}": v for k, v in pack(elements, self.types).items()}
        found |= {f"waiting/{k}": v for k, v in pack(waiting, self.types).items()}
        return found | {"closed": np.array(closed)}

    def resume(self, saved: Mapping[str, np.ndarray]) -> None:
        """Restore the saved elements. Those that waited for room wait again, before all others."""

        def part(name: str) -> list[Element]:
            start = f"{name}/"
            found = {k.removeprefix(start): v for k, v in saved.items() if k.startswith(start)}
            return unpack(found, self.types)

        elements, waiting = part("elements"), part("waiting")
        with self._lock:
            self.elements.clear()
            self.put(elements)
            self.closed = False
            others = [w for w in self._adding.values() if w not in self._resumed]
            self._resumed = [_Enqueue(self, waiting)] if waiting else []
            self._resumed += [_Close(self)] if saved["closed"] else []
            self._adding = OrderedDict((w, w) for w in (*self._resumed, *others))
            ended = self._serve()
        _tell(ended)

    # -- Internals ---------------------------------------------------------------------------------

    def forget(self, pending: Pending) -> None:
        """Drop a cancelled waiter; others may proceed now."""
        with self._lock:
            line = self._taking if isinstance(pending, _Dequeue) else self._adding
            if line.pop(pending, None) is None:
                return
            if isinstance(pending, _Dequeue):
                pending.give_back()
            ended = self._serve()
        _tell(ended)

    def closed_error(self) -> OpError:
        return self._explained(CancelledError(None, None, f"{self} is closed."))

    def exhausted_error(self, wanted: int, size: int) -> OpError:
        message = (
            f"{self} is closed and has insufficient elements (requested {wanted}, current size "
            f"{size})"
        )
        return self._explained(OutOfRangeError(None, None, message))

    def _explained(self, error: OpError) -> OpError:
        """Add the producer's failure, if there is one, to an error."""
        if self.failure is not None:
            first, *rest = str(self.failure).splitlines() or [""]
            error.add_detail(f"its producer failed: {type(self.failure).__name__}: {first}")
            for line in rest:
                error.add_detail(f"  {line.removeprefix('  ')}")
            error.__cause__ = self.failure
        return error

    def __str__(self) -> str:
        return f"{self.kind} '{self.name}'"

    def _join(self, line: OrderedDict[Pending, _Waiter], waiter: _Waiter) -> list[_Waiter]:
        line[waiter] = waiter
        return self._serve() if len(line) == 1 else []

    def _serve(self) -> list[_Waiter]:
        """Serve both lines as far as possible; return the waiters that have ended."""
        ended: list[_Waiter] = []
        changed = True
        while changed:
            changed = _advance(self._adding, ended)
            changed = _advance(self._taking, ended) or changed
        return ended


def _advance(line: OrderedDict[Pending, _Waiter], ended: list[_Waiter]) -> bool:
    """Serve a line from its head on; return whether anything changed."""
    changed = False
    while line:
        state = next(iter(line)).advance(ended)  # type: ignore[attr-defined]
        changed = changed or state != _STUCK
        if state != _OVER:
            break
        line.popitem(last=False)
    return changed


def _tell(ended: list[_Waiter]) -> None:
    for waiter in ended:
        waiter.tell()


def _only(elements: list[Element]) -> Element:
    (element,) = elements
    return element


class FIFOQueueState(Queue):
    """First in, first out."""

    kind = "FIFOQueue"

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.elements: deque[Element] = deque()

    def take(self, count: int) -> list[Element]:
        pop = self.elements.popleft
        return [pop() for _ in range(count)]

    def give_back(self, elements: list[Element]) -> None:
        self.elements.extendleft(reversed(elements))


class PaddingFIFOQueueState(FIFOQueueState):
    """First in, first out. Sizes may be unknown; a batch pads shorter components with zeros."""

    kind = "PaddingFIFOQueue"

    def batch(self, elements: list[Element]) -> list[Any]:
        assert self.sizes is not None
        return pad_together(elements, self.types, self.sizes)


class RandomShuffleQueueState(Queue):
    """Elements leave in random order; at least `keep` stay until the queue is closed.

    draws: `draws.next()` returns random integers in [0, 2^32). seeds: the seeds of `draws`.
    """

    kind = "RandomShuffleQueue"

    def __init__(self, *args: Any, keep: int, seeds: tuple[int, int], draws: Any) -> None:
        super().__init__(*args)
        self.elements: list[Element] = []
        self.keep = keep
        self.seeds = seeds
        self._draws = draws

    def take(self, count: int) -> list[Element]:
        elements, draw, taken = self.elements, self._draws.next, []
        for _ in range(count):
            place = draw() % len(elements)
            taken.append(elements[place])
            last = elements.pop()
            if place < len(elements):
                elements[place] = last
        return taken

    def give_back(self, elements: list[Element]) -> None:
        self.elements.extend(elements)

    def available(self) -> int:
        return len(self.elements) - (0 if self.closed else self.keep)

    def saved(self) -> dict[str, np.ndarray]:
        found = super().saved()
        with self._lock:
            return found | self._draws.saved()

    def resume(self, saved: Mapping[str, np.ndarray]) -> None:
        with self._lock:
            self._draws.resume(saved)
        super().resume(saved)


class PriorityQueueState(Queue):
    """The element with the smallest first component leaves first; among equals, the oldest."""

    kind = "PriorityQueue"

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.elements: list[tuple[int, int, Element]] = []
        self._arrivals = itertools.count()
        self._returns = itertools.count(-1, -1)

    def in_order(self) -> list[Element]:
        return [element for *_, element in sorted(self.elements, key=lambda entry: entry[:2])]

    def put(self, elements: Iterable[Element]) -> None:
        for element in elements:
            heapq.heappush(self.elements, (int(element[0]), next(self._arrivals), element))

    def take(self, count: int) -> list[Element]:
        return [heapq.heappop(self.elements)[2] for _ in range(count)]

    def give_back(self, elements: list[Element]) -> None:
        # They were ahead of all equal elements, and must be again.
        for element in reversed(elements):
            heapq.heappush(self.elements, (int(element[0]), next(self._returns), element))
