"""All-reduce in memory that processes of one host share. In: arrays. Out: the reduced arrays.

Each process puts its inputs into shared memory, where compiled steps have computed them already,
and makes room for the results there. When all have said so on their desks, each reduces its share
of the elements: it reads them from all inputs and writes them to all results, in one pass. When all
have done that, the results are complete. So a process reads and writes 2 (n - 1) / n of the
size in the memory of others, and nothing is copied. (Two processes with little data each reduce all
of it for themselves, if their cores share no cache.)

A process that has to wait looks at the others' desks for a while, without Python's global lock, and
then sleeps: it says so on its desk, and the others ring its bell. `SharedReduce` does not sleep
itself; its caller does.
"""

from __future__ import annotations

import ctypes
import os
import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import blake2b
from itertools import chain
from typing import Any

import numpy as np

from headrace._src.collectives.desk import (
    ARRIVED,
    ASLEEP,
    BUFFERS,
    DONE,
    SIGNATURE,
    Desk,
    memory_at,
)
from headrace._src.collectives.shares import ALIGN, TensorPiece, pieces, place, share
from headrace._src.compile.native.buffer_reduction import (
    MOST_SOURCES,
    TYPES,
    BufferReduction,
    reduce_by_numpy,
    reduction,
)
from headrace._src.compile.native.reduction_rounds import RoundWords, quick_round, waiter
from headrace._src.core import errors
from headrace._src.devices.buffers import address as address_of
from headrace._src.devices.target import cores_share_a_cache, host
from headrace._src.transport.pool import Pool
from headrace._src.transport.slabs import Slabs

__all__ = ["ReducePlan", "Reduced", "SharedMemory", "SharedReduce", "adder", "key_of", "prepared"]

_pool = Pool(2 << 30)  # of results that are not shared: fresh memory costs a fault for every page
Row = tuple[int, list[int], list[int]]

# Two processes with fewer bytes than this each compute the whole sum if their cores share no cache.
# That moves as many bytes as two shares, and nobody writes to lines that are in the other's cache:
# for 1 MB it takes 118 us instead of 350. Where they do share one, it takes 217 instead of 126.
_READ_ALL = 2 << 20
_CALLS = 64  # that are kept
_ROUNDS = 256  # of looking at words before the time is asked for
_LOOKS = 1024  # in a quick round, some 30 us: few ranks are later than that
_ROUND = RoundWords(ARRIVED, DONE, ASLEEP)


def key_of(name: str) -> int:
    """Return the number that stands for a collective's name: 63 bits, so none has the same."""
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "little") >> 1


class ReducePlan:
    """What all rounds with arrays of the same shapes have in common.

    starts, total: see shares.place. alone: whether each of two processes computes the whole result.
    signature: a number that all ranks have in common if they mean the same.
    """

    def __init__(self, arrays: Sequence[np.ndarray], merge: str, divisor: int) -> None:
        self.merge, self.divisor = merge, divisor
        self.dtype = arrays[0].dtype
        self.shapes = [a.shape for a in arrays]
        self.sizes = tuple([a.nbytes for a in arrays])
        self.starts, self.total = place(self.sizes)
        self.alone = self.total < _READ_ALL and not cores_share_a_cache()
        meant = f"{self.dtype.name} {merge} {divisor} {self.sizes} {self.alone}"
        self.signature = key_of(meant)
        self._shares: dict[tuple[int, int], list[TensorPiece]] = {}

    def share(self, owners: int, index: int) -> list[TensorPiece]:
        """Return the pieces that one of `owners` processes reduces."""
        found = self._shares.get((owners, index))
        if found is None:
            low, high = share(self.total, owners, index)
            found = list(pieces(self.starts, self.sizes, low, high))
            self._shares[owners, index] = found
        return found


class Reduced:
    """One round: its inputs and its results, which may be the same arrays.

    places: the offsets of the inputs and of the results in the shared memory of this process. This
    object keeps both alive: others use them until all have done their shares.
    """

    def __init__(
        self,
        plan: ReducePlan,
        arrays: Sequence[np.ndarray],
        shared: SharedMemory | None,
        in_place: bool = False,
    ) -> None:
        self.plan = plan
        self.arrays = [a if a.flags.c_contiguous else np.ascontiguousarray(a) for a in arrays]
        self.places: list[int] = []
        self._copied: list[int] = []  # the results in memory that the next round uses again
        if shared is None:
            self._make_results(_pool.take(plan.total))
            return
        self.places, copied = shared.placed(self.arrays, plan)
        if in_place:
            self.results, self._copied = self.arrays, copied
            self.places *= 2
        else:
            space = shared.slabs.allocate(max(plan.total, 1))
            self._make_results(space)
            offset = address_of(space) - shared.base
            self.places += [offset + start for start in plan.starts]

    def _make_results(self, space: Any) -> None:
        plan = self.plan
        self.results = [
            np.ndarray(shape, plan.dtype, space, start)
            for shape, start in zip(plan.shapes, plan.starts, strict=True)
        ]

    def take(self) -> list[np.ndarray]:
        """Return the results, once they are complete."""
        for i in self._copied:
            self.results[i] = self.results[i].copy()
        return self.results

    def view(self, piece: TensorPiece, results: bool) -> np.ndarray:
        """Return a piece of an input or of a result, as elements."""
        whole = (self.results if results else self.arrays)[piece.tensor].reshape(-1)
        size = self.plan.dtype.itemsize
        return whole[piece.start // size : piece.stop // size]


class SharedMemory:
    """The shared memory of this process, as one collective uses it.

    State: copies of inputs that are not in it, with their offsets; their memory is used again in
    every round of the same plan, in which the same inputs have to be copied.
    """

    def __init__(self, slabs: Slabs, base: int, size: int) -> None:
        self.slabs, self.base, self._size = slabs, base, size
        self._copies: list[tuple[np.ndarray, int]] = []
        self._copied: tuple[ReducePlan, list[int]] | None = None

    def placed(self, arrays: list[np.ndarray], plan: ReducePlan) -> tuple[list[int], list[int]]:
        """Return the arrays' offsets, and the numbers of those that are elsewhere, as small ones
        and those of NumPy's kernels are. These are copied first, and replaced in the list.
        """
        base, end = self.base, self._size
        offsets: list[int] = []
        others: list[int] = []
        for i, size in enumerate(plan.sizes):
            offset = address_of(arrays[i]) - base
            offsets.append(offset)
            if offset < 0 or offset + size > end or offset % ALIGN:
                others.append(i)
        if others and self._copied != (plan, others):
            self._make_copies(plan, others)
        for i, (copy, offset) in zip(others, self._copies, strict=False):
            np.copyto(copy, arrays[i])
            arrays[i], offsets[i] = copy, offset
        return offsets, others

    def _make_copies(self, plan: ReducePlan, others: list[int]) -> None:
        starts, total = place([plan.sizes[i] for i in others])
        room = self.slabs.allocate(max(total, 1))
        first = address_of(room) - self.base
        self._copied = plan, others
        self._copies = [
            (np.ndarray(plan.shapes[i], plan.dtype, room, start), first + start)
            for i, start in zip(others, starts, strict=True)
        ]


class _Share:
    """The work of this process in a round: what combines its pieces, and the bytes that it moves.

    quick: the address of the table of a quick_round, 0 if it can't be done so.
    """

    def __init__(self, call: Combination, moved: int) -> None:
        self.call, self.moved = call, moved
        self.quick = 0

    def make_quick(self, lines: np.ndarray, own: int, facts: Iterable[tuple[int, int]]) -> None:
        """Make the table. lines: the addresses of all processes' lines."""
        call, self._facts = self.call, array("q", chain.from_iterable(facts))
        function = ctypes.cast(call.function, ctypes.c_void_p).value or 0
        first = address_of(lines), len(lines), int(lines[own])
        (at, count), (pieces, _) = self._facts.buffer_info(), call.table.buffer_info()
        self._table = array("q", [*first, at, count // 2, function, pieces, call.count])
        self.quick = self._table.buffer_info()[0]


class SharedReduce:
    """The all-reduces of one name among the processes of this host.

    desks: those of all processes, in the order of their ranks; `index` is this process's own.
    State: how many rounds have begun, where the others' lines are, once they have them, and what
    was told and done in the last round.
    """

    def __init__(self, key: int, desks: Sequence[Desk], index: int, memory: Slabs) -> None:
        self.key = key
        self.round = 0
        self._desks, self._index = desks, index
        own = desks[index]
        self.memory = SharedMemory(memory, own.base, own.size)
        slot = desks[index].add(key)
        self._line = desks[index].line(slot)
        self._table = np.zeros(len(desks), np.uint64)
        self._lines: list[np.ndarray | None] = [None] * len(desks)
        self._lines[index] = self._line
        self._table[index] = desks[index].address(slot)
        self._missing = [i for i in range(len(desks)) if i != index]
        self._wait = waiter()
        self._again = quick_round(_ROUND)
        self._words: np.ndarray | None = None  # where this process's buffers are
        self._words_at: list[Any] = [None] * len(desks)  # offset and number of each one's, and they
        self._calls: dict[Any, _Share] = {}  # by all processes' buffers
        self._told: tuple[int, list[int]] | None = None  # the signature and the places of the last
        self._last: _Share | None = None  # round, and what was done, if it may be done again

    def begin(self, reduced: Reduced) -> int:
        """Tell the others where this process's buffers are. If they come soon, and all have the
        buffers of the last round, do as then. Return how many of the two phases are over.
        """
        self.round += 1
        told = reduced.plan.signature, reduced.places
        if told != self._told:
            self._tell(*told)
        last = self._last
        if last is None:
            self._line[ARRIVED] = self.round
            return 0
        return self._again(last.quick, self.round, _LOOKS)

    @property
    def moved(self) -> int:
        """The bytes that the last round has read and written in the memory of others."""
        return 0 if self._last is None else self._last.moved

    def _tell(self, signature: int, places: list[int]) -> None:
        """Write where this process's buffers are."""
        self._told, self._last = (signature, places), None
        line, words = self._line, self._words
        if words is None or len(words) != len(places):
            room = self.memory.slabs.allocate(8 * len(places))
            words = self._words = room.view(np.int64)
            line[BUFFERS] = address_of(room) - self.memory.base
        words[:] = places
        line[SIGNATURE] = signature

    def has_all(self, word: int, seconds: float) -> bool:
        """Return whether all processes have set a word of this round, after waiting a little."""
        if self._missing and not self._find(seconds):
            return False
        value = self.round
        wait = self._wait
        if wait is None:
            lines = self._lines
            end = time.monotonic() + seconds
            while not all(line[word] >= value for line in lines if line is not None):
                if time.monotonic() >= end:
                    return False
                os.sched_yield()
            return True
        table, count = self._table.ctypes.data, len(self._desks)
        if wait(table, count, word, value, _ROUNDS if seconds else 0):
            return True
        if not seconds:
            return False
        end = time.monotonic() + seconds
        while not wait(table, count, word, value, _ROUNDS):
            if time.monotonic() >= end:
                return False
            os.sched_yield()
        return True

    def _find(self, seconds: float) -> bool:
        """Look for the lines of others that have not begun this collective before."""
        end = time.monotonic() + seconds
        while True:
            for i in list(self._missing):
                desk = self._desks[i]
                slot = desk.find(self.key)
                if slot is not None:
                    self._table[i] = desk.address(slot)
                    self._lines[i] = desk.line(slot)
                    self._missing.remove(i)
            if not self._missing or time.monotonic() >= end:
                return not self._missing
            os.sched_yield()

    def absent(self, word: int) -> list[int]:
        """Return the processes that have not set a word of this round."""
        return [i for i, line in enumerate(self._lines) if line is None or line[word] < self.round]

    def differing(self) -> list[int]:
        """Return the processes whose arrays have other types or sizes, once all have arrived."""
        mine = self._line[SIGNATURE]
        return [i for i, line in enumerate(self._lines) if line[SIGNATURE] != mine]  # type: ignore[index]

    def reduce(self, reduced: Reduced, owners: int, to_all: bool) -> int:
        """Reduce this process's share, one of `owners`; write it to the results of all processes,
        or to its own ones alone. Return the bytes read and written in the memory of others.
        """
        if self._index >= owners:
            return 0
        plan = reduced.plan
        words = [self._words_of(i, plan) for i in range(len(self._desks))]
        # Memory comes back in the same places, so most rounds do what another one has done.
        key = plan.signature, owners, to_all, *[each.tobytes() for each in words]
        found = self._calls.get(key)
        if found is None:
            found = self._prepare([each.tolist() for each in words], plan, owners, to_all)
            if len(self._calls) >= _CALLS:
                self._calls.clear()
            self._calls[key] = found
        found.call()
        self._last = found if found.quick else None
        return found.moved

    def _prepare(
        self, words: list[list[int]], plan: ReducePlan, owners: int, to_all: bool
    ) -> _Share:
        """Prepare this process's share of the work."""
        buffers = [self._addresses(i, found, plan) for i, found in enumerate(words)]
        results = buffers if to_all else [buffers[self._index]]
        share = plan.share(owners, self._index)
        if to_all and len(buffers) == 2 and plan.alone:
            results, share = [buffers[self._index]], plan.share(1, 0)
        others = len(buffers) + len(results) - 2
        rows = []
        for tensor, start, stop in share:
            sources = [given[tensor] + start for given, _ in buffers]
            rows.append((stop - start, sources, [made[tensor] + start for _, made in results]))
        call = prepared(plan, rows, plan.divisor if to_all else 1)
        share = _Share(call, others * sum(nbytes for nbytes, _, _ in rows))
        if to_all and self._again is not None and call.function is not None:
            share.make_quick(self._table, self._index, self._facts(words, plan))
        return share

    def _facts(self, words: list[list[int]], plan: ReducePlan) -> Iterator[tuple[int, int]]:
        """Yield the addresses of what the others have told, and the words there."""
        for i, (known, line) in enumerate(zip(self._words_at, self._lines, strict=True)):
            if i != self._index:
                assert line is not None
                own = int(self._table[i])
                yield own + 8 * SIGNATURE, plan.signature
                yield own + 8 * BUFFERS, int(line[BUFFERS])
                start = address_of(known[1])
                yield from ((start + 8 * k, word) for k, word in enumerate(words[i]))

    def spread(self, reduced: Reduced, owners: int) -> int:
        """Copy this process's share of its own results to the others'."""
        if self._index >= owners:
            return 0
        plan = reduced.plan
        places = [
            self._addresses(i, self._words_of(i, plan).tolist(), plan)[1]
            for i in range(len(self._desks))
        ]
        own = places.pop(self._index)
        rows = []
        for tensor, start, stop in plan.share(owners, self._index):
            targets = [each[tensor] + start for each in places]
            rows.append((stop - start, [own[tensor] + start], targets))
        prepared(plan, rows, 1)()
        return len(places) * sum(nbytes for nbytes, _, _ in rows)

    def _words_of(self, i: int, plan: ReducePlan) -> np.ndarray:
        """Return where a process says that its inputs and its results are."""
        line = self._lines[i]
        assert line is not None
        offset, count = int(line[BUFFERS]), 2 * len(plan.sizes)
        known = self._words_at[i]
        if known is None or known[0] != (offset, count):
            known = self._words_at[i] = (offset, count), self._desks[i].words(offset, count)
        return known[1]

    def _addresses(self, i: int, words: list[int], plan: ReducePlan) -> tuple[list[int], list[int]]:
        """Return the addresses of a process's inputs and of its results."""
        limit, base = self._desks[i].size, self._desks[i].base
        for offset, size in zip(words, plan.sizes * 2, strict=True):
            if offset < 0 or offset + size > limit:
                raise errors.InternalError(None, None, f"no {size} bytes at {offset} of a process")
        found, count = [base + offset for offset in words], len(plan.sizes)
        return found[:count], found[count:]

    def finish(self) -> None:
        """Tell the others that this process has done its share."""
        self._line[DONE] = self.round

    def sleep(self, asleep: bool) -> None:
        """Tell the others whether this process has to be woken."""
        self._line[ASLEEP] = self.round if asleep else 0

    def sleepers(self) -> list[int]:
        """Return the processes that wait for a bell."""
        return [
            i
            for i, line in enumerate(self._lines)
            if line is not None and i != self._index and line[ASLEEP] >= self.round
        ]


class Combination:
    """Combines pieces of memory when it is called.

    function: that of the native code, None if there is none. table: its argument, with `count`
    pieces.
    """

    def __init__(self, dtype: np.dtype, spec: BufferReduction, rows: Sequence[Row]) -> None:
        self._dtype, self._spec, self._rows = dtype, spec, rows
        self.function = _native(dtype, spec)
        self.table, self.count = array("Q"), len(rows)
        for nbytes, sources, destinations in rows:
            self.table.extend((nbytes // dtype.itemsize, *sources, *destinations))
        self.moves = sum(nbytes for nbytes, _, _ in rows)

    def __call__(self) -> None:
        if self.function is None:
            _by_numpy(self._dtype, self._spec, self._rows)
        else:
            self.function(self.table.buffer_info()[0], self.count)


def prepared(plan: ReducePlan, rows: Sequence[Row], divisor: int) -> Combination:
    """Return what combines pieces of memory: the bytes of each, the addresses of its sources, and
    those of its destinations. Those of large pieces are aligned to 64 bytes.
    """
    count, targets = (len(rows[0][1]), len(rows[0][2])) if rows else (1, 1)
    large = sum(row[0] for row in rows) * (count + targets) >= host().streamed
    spec = BufferReduction(plan.dtype.name, plan.merge, count, targets, divisor, large)
    return Combination(plan.dtype, spec, rows)


def adder(plan: ReducePlan, divisor: int) -> Callable[[int, int, int, int], Any]:
    """Return a function of a number of bytes, the addresses of two sources, and that of the result,
    which may be one of them.
    """
    spec = BufferReduction(plan.dtype.name, plan.merge, 2, 1, divisor)
    native = _native(plan.dtype, spec)
    if native is None:
        return lambda nbytes, x, y, z: _by_numpy(plan.dtype, spec, [(nbytes, [x, y], [z])])
    table, size = array("Q", [0] * 4), plan.dtype.itemsize
    where = table.buffer_info()[0]

    def add(nbytes: int, x: int, y: int, z: int) -> None:
        table[0], table[1], table[2], table[3] = nbytes // size, x, y, z
        native(where, 1)

    return add


def _native(dtype: np.dtype, spec: BufferReduction) -> Any:
    """Return the native function, None if there is none."""
    return reduction(spec) if dtype.name in TYPES and spec.sources <= MOST_SOURCES else None


def _by_numpy(dtype: np.dtype, spec: BufferReduction, rows: Sequence[Row]) -> None:
    for nbytes, sources, destinations in rows:
        given = [memory_at(a, nbytes).view(dtype) for a in sources]
        made = [memory_at(a, nbytes).view(dtype) for a in destinations]
        reduce_by_numpy(spec, given, made)
