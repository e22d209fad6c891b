"""Run a compiled cluster. In: a Plan. Out: a `NativeCluster`, whose `run` is one native call.

A cluster is loaded once and run by any number of threads. Each run takes an *instance*, which has
its own arena, scratch memory, task counters and argument tables. One idle instance is kept between
runs (more if they are small). There are never more instances than the machine can use; further
threads wait for one. Constants are shared.

State: the idle instances and, weakly, all instances; one that is lost to an exception is garbage
collected. Invariants: an instance is used by one run at a time; after a fork the child's runs have
a team of one thread; a step that was cancelled or interrupted leaves its outputs and the variables
that it writes half written, and the cluster ready for the next run. In an instance, a list that
grows has room for the most rows that were ever needed. A run that needs more raises `Full`, and the
caller runs the step again.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from functools import cache
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from headrace._src.compile.codegen.kernel_spec import COUNTER_STRIDE
from headrace._src.compile.kernels.onednn_calls import Bound, is_foreign
from headrace._src.compile.kernels.rows.list_rows import HEADER
from headrace._src.compile.native import machine_code
from headrace._src.compile.plan.plan import Buffer, Call, Plan
from headrace._src.compile.run import entry, helper_threads
from headrace._src.compile.run import header_words as words
from headrace._src.compile.run.header_words import FIRST_ARRAY, Header, PhaseWord, RowWord, TeamWord
from headrace._src.compile.run.memory_ahead import TouchedMemory
from headrace._src.compile.run.phases import Phase, PhaseCall, phases_of
from headrace._src.compile.run.plan_segments import kind_of, segments
from headrace._src.core import dtypes, errors, faults
from headrace._src.core.locks import RLock
from headrace._src.devices import openmp
from headrace._src.devices.buffers import ALIGNMENT, address, empty_aligned
from headrace._src.devices.device import Device, local_devices
from headrace._src.devices.step_context import current
from headrace._src.devices.target import host

__all__ = ["Fault", "Full", "NativeCluster"]

_KEPT_BELOW = 2**24  # bytes: idle instances of smaller arenas are kept, of larger ones only one
_FIRST_ROWS = 16  # of lists that grow, ..
_GROWTH = 4  # .. each time by this factor
_HOLDS_GIL = 16  # this many small calls take less time than releasing and retaking the GIL
_C_CONTIGUOUS, _ALIGNED, _WRITEABLE = 0x1, 0x100, 0x400


class _Expected(NamedTuple):
    """The properties that an array of the caller must have."""

    what: str
    dtype: np.dtype
    size: int  # in elements
    written: bool


class NativeCluster:
    """A plan, loaded."""

    def __init__(
        self,
        plan: Plan,
        threads: int | None = None,
        limits: Sequence[tuple[int, int]] = (),
        device: Device | None = None,
        ahead: TouchedMemory | None = None,
    ) -> None:
        """Load a plan; compile its kernels that are not in the cache.

        threads: the size of its team; as many as OpenMP has if None
        limits: (input, limit): inputs that hold indices, all of which must be in [0, limit)
        device: whose memory it works in; the first CPU's if None
        ahead: memory for the arena of the first instance
        """
        self.allocator = (device or local_devices()[0]).allocator
        self.plan = plan
        self.threads = 1 if openmp.library() is None else threads or openmp.thread_count()
        self._functions = _functions(plan.calls)
        self._constants = {
            i: _aligned_copy(b) for i, b in enumerate(plan.buffers) if b.kind == "constant"
        }
        self._expected = _expectations(plan)
        self._limits = [_limit(i, self._expected[i], limit) for i, limit in limits]
        self._counts = tuple(
            sum(e.what.startswith(kind) for e in self._expected)
            for kind in ("input", "output", "variable")
        )
        self.rows = {i: _FIRST_ROWS for i, b in enumerate(plan.buffers) if b.kind == "list"}
        self._idle: deque[_Instance] = deque()
        self._instances: weakref.WeakSet[_Instance] = weakref.WeakSet()
        self._limit = max(2, host().cores)
        self._lock = RLock()
        self._changed = threading.Condition(self._lock)
        self._waiting = 0
        self._keep = self._limit if plan.arena + plan.swapped < _KEPT_BELOW else 1
        self._refusal: str | None = None
        self._ahead = ahead
        _clusters.add(self)

    def run(
        self,
        inputs: Sequence[np.ndarray],
        outputs: Sequence[np.ndarray],
        variables: Sequence[np.ndarray],
    ) -> None:
        """Run one step: read inputs, fill outputs, update variables in place.

        Raises:
          ValueError, TypeError: an array isn't what the plan expects; nothing was run.
          MemoryError: there is no room for another instance.
          Full: a list had too few rows; the next run has more.
          Fault: an index is out of range, or a kernel reports another error.
          The current cancellation's error, at the next call after it was set.
        """
        wanted = self._counts
        if len(inputs) != wanted[0] or len(outputs) != wanted[1] or len(variables) != wanted[2]:
            raise ValueError(self._miscounted(inputs, outputs, variables))
        try:
            instance = self._idle.pop()
        except IndexError:
            instance = self._another()
        running = current()
        cancellation = None if running is None else running.cancellation
        try:
            if cancellation is not None:
                cancellation.check()
                instance.words[Header.CANCEL] = address(cancellation.word)
            if faults.armed:
                faults.reach("cluster")
            status = instance.enter(*inputs, *outputs, *variables)
            if status is not None and status >= FIRST_ARRAY:
                arrays = self._fitting([*inputs, *outputs, *variables])
                status = instance.enter(*arrays)
            if status is not None:
                if cancellation is not None:
                    cancellation.check()
                raise Full if self._grow(instance) else _failure(status)
        finally:
            if cancellation is not None:
                instance.words[Header.CANCEL] = instance.zero
            self._give_back(instance)

    def profile(
        self,
        inputs: Sequence[np.ndarray],
        outputs: Sequence[np.ndarray],
        variables: Sequence[np.ndarray],
    ) -> list[tuple[Call, float]]:
        """Run one step; return the calls with the seconds that each took. Calls without a barrier
        between them overlap; their times are those of one thread.
        """
        instance = self._another()
        arrays = self._fitting([*inputs, *outputs, *variables])
        instance.words[Header.TIMED] = 1
        start = time.perf_counter()
        status = instance.enter(*arrays)
        elapsed = time.perf_counter() - start
        instance.words[Header.TIMED] = 0
        if status is not None:
            raise _failure(status)
        # The threads' shares of calls that overlap end in any order.
        ends = np.maximum.accumulate(instance.ends().astype(np.float64))
        ticks = np.diff(ends, prepend=float(instance.words[Header.STARTED]))
        self._give_back(instance)
        return list(zip(self.plan.calls, ticks * (elapsed / ticks.sum()), strict=True))

    def fill(self, byte: int) -> None:
        """Fill the memory of idle instances, for runs that are only timed."""
        for instance in self._idle:
            instance.fill(byte)

    # -- Instances -------------------------------------------------------------------------------

    def arena(self) -> np.ndarray:
        """Return memory for the arena of another instance."""
        ahead, self._ahead = self._ahead, None
        if ahead is None:
            return self.allocator.block(max(self.plan.arena, 1))
        memory = ahead.take()
        self.allocator.count(memory)
        return memory

    def _another(self) -> _Instance:
        """Return an instance for a run that found none idle: make one, or wait for one."""
        if self._refusal is not None:
            raise errors.UnavailableError(None, None, self._refusal)
        with self._lock:
            while True:
                try:
                    return self._idle.pop()
                except IndexError:
                    pass
                if len(self._instances) < self._limit:
                    try:
                        instance = _Instance(self)
                    except MemoryError as error:
                        raise MemoryError(f"{error}{_advice(self.plan)}") from None
                    self._instances.add(instance)
                    return instance
                self._waiting += 1
                try:
                    # With a limit, because an instance lost to an exception never notifies waiters.
                    self._changed.wait(1.0)
                finally:
                    self._waiting -= 1

    def _grow(self, instance: _Instance) -> bool:
        """If a failed run had too few rows in a list, give lists more from now on; return whether
        it had.
        """
        full = {i: int(words[0]) for i, words in instance.lists.items() if words[1]}
        with self._lock:
            for i, rows in full.items():
                self.rows[i] = max(self.rows[i], rows * _GROWTH)
        return bool(full)

    def _give_back(self, instance: _Instance) -> None:
        lists = instance.lists
        if lists and any(words[0] < self.rows[i] for i, words in lists.items()):
            return  # too small for the next run
        self._idle.append(instance)
        if self._waiting or len(self._idle) > self._keep:
            with self._lock:
                if self._waiting:
                    self._changed.notify()
                elif len(self._idle) > self._keep:
                    with contextlib.suppress(IndexError):  # runs take them without the lock
                        self._idle.pop()

    def _after_fork(self) -> None:
        """Adapt to a forked child, in which neither other threads nor OpenMP's team exist."""
        self._lock = RLock()
        self._changed = threading.Condition(self._lock)
        self._waiting = 0
        if any(b.swapped for b in self.plan.buffers):
            self._idle.clear()  # their files are the parent's, too
        self._instances = weakref.WeakSet(self._idle)
        if not openmp.forked():
            return
        self.threads = 1
        for instance in self._idle:
            instance.words[Header.THREADS] = 1
        if any(is_foreign(c.kernel) for c in self.plan.calls):
            self._idle.clear()
            self._refusal = f"this step calls oneDNN, and {openmp.why_not()}"

    # -- What goes wrong -------------------------------------------------------------------------

    def _miscounted(self, *groups: Sequence[Any]) -> str:
        found = ", ".join(map(str, map(len, groups)))
        wanted = ", ".join(map(str, self._counts))
        return f"the cluster takes ({wanted}) inputs, outputs and variables, not ({found})"

    def _fitting(self, arrays: list[Any]) -> list[np.ndarray]:
        """Return the arrays in the form that the driver needs; convert them, or raise."""
        return [_fit(a, e) for a, e in zip(arrays, self._expected, strict=True)]


class Fault(Exception):
    """A kernel found an error that native code cannot describe."""


class Full(Fault):
    """A list had no room for another row; the next run has more room."""


def _failure(status: int) -> Exception:
    if status in (words.FAULTED, words.OUTSIDE):
        return Fault()
    if status == words.CANCELLED:
        return errors.CancelledError(None, None, "the step was cancelled")
    if status < 0:
        return errors.InternalError(None, None, f"a native call failed with status {status}")
    return errors.InternalError(None, None, f"the native driver gave status {status}")


class _Instance:
    """Memory for one run at a time."""

    def __init__(self, cluster: NativeCluster) -> None:
        plan, threads = cluster.plan, cluster.threads
        scratch_offsets, scratch_size = _scratch(plan.calls, threads)
        block, swapped = cluster.allocator.block, cluster.allocator.swapped_block
        self._memory = cluster.arena(), block(max(scratch_size, 1))
        arena, scratch = map(address, self._memory)
        file = arena
        if plan.swapped:
            self._file = swapped(plan.swapped)
            file = address(self._file) - plan.arena
        counts = [getattr(c.kernel, "counters", 0) for c in plan.calls]
        self._counters = empty_aligned((sum(counts) * COUNTER_STRIDE,), np.int64)
        ends = accumulate(counts)
        counters = [
            address(self._counters) + 8 * COUNTER_STRIDE * (end - count)
            for end, count in zip(ends, counts, strict=True)
        ]
        fixed = {
            i: (file if b.swapped else arena) + b.offset
            for i, b in enumerate(plan.buffers)
            if b.kind == "arena"
        }
        fixed |= {i: address(value) for i, value in cluster._constants.items()}
        self.lists = {
            i: _list(plan.buffers[i], rows, swapped if plan.buffers[i].swapped else block)
            for i, rows in cluster.rows.items()
        }
        fixed |= {i: address(words) for i, words in self.lists.items()}

        # One argument table per call, end to end: buffers (0 for the caller's), scratch, counters.
        table: list[int] = []
        tables: list[int] = []
        patches: list[tuple[int, int]] = []
        positions = _positions(plan)
        for call, offset, counter in zip(plan.calls, scratch_offsets, counters, strict=True):
            tables.append(len(table))
            for b in call.buffers:
                if b in positions:
                    patches.append((positions[b], len(table)))
                table.append(fixed.get(b, 0))
            table += (scratch + offset, counter)
        self._table = np.array(table, np.int64)
        self._patches = np.array(patches, np.int64).reshape(-1, 2)
        self._patches[:, 1] = address(self._table) + 8 * self._patches[:, 1]

        self._bound = [
            c.kernel.bind(threads) if is_foreign(c.kernel) else Bound(f, 0)
            for c, f in zip(plan.calls, cluster._functions, strict=True)
        ]
        runs = segments(plan.calls)
        rows, phases = phases_of(plan.calls, [first for _, first, _ in runs])
        if len(phases) > words.IDLE:
            raise ValueError(f"a cluster has at most {words.IDLE} phases, not {len(phases)}")
        self._calls = np.array([row.call for row in rows], np.int64)
        kinds = [kind_of(c) for c in plan.calls]
        shares = [threads if kind == words.TEAM else 1 for kind in kinds]
        self._rows = _table(
            [
                (
                    self._bound[row.call].function,
                    address(self._table) + 8 * tables[row.call],
                    row.meeting if kinds[row.call] == words.TEAM else words.NO_MEETING,
                    shares[row.call],
                    self._bound[row.call].user,
                    0,
                )
                for row in rows
            ],
            RowWord.SIZE,
        )
        starts = _starts(rows, phases, len(plan.calls))
        self._phases = _table(
            [
                (p.how, p.first, p.end, sum(shares[r.call] for r in rows[p.first : p.end]))
                + (starts[p.target],)
                for p in phases
            ],
            PhaseWord.SIZE,
        )
        self._segments = _table(
            [(k, starts[first], end if k == words.JUMP else starts[end]) for k, first, end in runs],
            3,
        )
        self._claims = empty_aligned((max(1, len(rows) * threads),), np.int64)
        self._team = empty_aligned((TeamWord.SIZE,), np.int64)
        self._claims[:] = self._team[:] = 0
        self._arrays = np.array([_row(e) for e in cluster._expected], np.int64).reshape(-1, 3)
        self._limits = np.array(cluster._limits, np.int64).reshape(-1, 4)
        self.words = np.zeros(Header.SIZE, np.int64)
        self.zero = address(self.words) + 8 * Header.ZERO
        for word, value in {
            Header.SEGMENTS: address(self._segments),
            Header.SEGMENT_COUNT: len(self._segments),
            Header.ROWS: address(self._rows),
            Header.PHASES: address(self._phases),
            Header.CLAIMS: address(self._claims),
            Header.WORDS: address(self._team),
            Header.SPIN: helper_threads.spin_between_phases(threads),
            Header.COUNTERS: address(self._counters),
            Header.COUNTER_COUNT: sum(counts),
            Header.THREADS: threads,
            Header.RELEASE: _takes_long(plan.calls),
            Header.CANCEL: self.zero,
            Header.FAULT: self.zero if plan.fault is None else fixed[plan.fault],
            Header.NONE: id(None),
            Header.ARRAY_TYPE: id(np.ndarray),
            Header.ARRAYS: address(self._arrays),
            Header.ARRAY_COUNT: len(self._arrays),
            Header.PATCHES: address(self._patches),
            Header.PATCH_COUNT: len(self._patches),
            Header.LIMITS: address(self._limits),
            Header.LIMIT_COUNT: len(self._limits),
            Header.TICKS: words.TICKS,
        }.items():
            self.words[word] = value
        self.enter = _method(self.words)
        if threads > 1:
            self.words[Header.POOL] = helper_threads.helpers_for(threads)
            weakref.finalize(
                self, helper_threads.wait_until_left, address(self.words)
            ).atexit = False

    def ends(self) -> np.ndarray:
        """When each call ended, as the clock of `Header.STARTED` shows it."""
        last = np.unique(self._calls[::-1], return_index=True)[1]
        return self._rows[len(self._rows) - 1 - last, RowWord.ENDED]

    def fill(self, byte: int) -> None:
        for memory in self._memory:
            memory[:] = byte


def _table(rows: Sequence[tuple[int, ...]], words: int) -> np.ndarray:
    return np.array(rows, np.int64).reshape(-1, words)


def _starts(rows: Sequence[PhaseCall], phases: Sequence[Phase], calls: int) -> dict[int, int]:
    """Return the first phase of each call, and the end of the last."""
    found = {rows[p.first].call: i for i, p in reversed(list(enumerate(phases)))}
    return {**found, calls: len(phases)}


def _advice(plan: Plan) -> str:
    """Return what to do if there is no memory for a plan, where that may help."""
    if not plan.has_loops or any(b.swapped for b in plan.buffers):
        return ""
    return (
        ". A loop with swap_memory=True keeps what its gradient needs in a file, if "
        "HEADRACE_SWAP_DIR names a folder"
    )


def _list(buffer: Buffer, rows: int, block: Callable[[int], np.ndarray]) -> np.ndarray:
    """Allocate memory for rows; return the words of its header, which keep it alive."""
    words = block(HEADER + rows * buffer.size)[:HEADER].view(np.int64)
    words[:2] = rows, 0
    return words


def _takes_long(calls: Sequence[Call]) -> bool:
    return len(calls) > _HOLDS_GIL or any(kind_of(c) != words.ALONE for c in calls)


def _functions(calls: Sequence[Call]) -> list[int]:
    """Return the kernels' addresses; 0 for foreign calls, which are bound per instance."""
    found: dict[Any, int] = {}
    for kind in (words.TEAM, words.ALONE):
        specs = list(dict.fromkeys(c.kernel for c in calls if kind_of(c) == kind))
        found.update(
            zip(specs, machine_code.addresses(specs, serial=kind == words.ALONE), strict=True)
        )
    return [found.get(c.kernel, 0) for c in calls]


def _scratch(calls: Sequence[Call], threads: int) -> tuple[list[int], int]:
    """Return the offset of each call's scratch memory, and the size of the block. Calls with a
    barrier between them share bytes; calls without one run at the same time and do not.
    """
    offsets, size, at = [], 0, 0
    for call in calls:
        at = 0 if call.barrier else at
        offsets.append(at)
        at += -(-call.kernel.scratch(threads) // ALIGNMENT) * ALIGNMENT
        size = max(size, at)
    return offsets, size


# -- The caller's arrays ---------------------------------------------------------------------------


def _positions(plan: Plan) -> dict[int, int]:
    """Return the position of each buffer among the caller's arrays: inputs, outputs, variables."""
    start, positions = 0, {}
    for kind in ("input", "output", "variable"):
        found = {i: b.index for i, b in enumerate(plan.buffers) if b.kind == kind}
        positions.update({i: start + index for i, index in found.items()})
        if set(found.values()) != set(range(len(set(found.values())))):
            raise ValueError(f"{kind} buffers are numbered {sorted(found.values())}")
        start += len(set(found.values()))
    return positions


def _expectations(plan: Plan) -> list[_Expected]:
    written = {
        b
        for call in plan.calls
        for name, b in zip(call.kernel.arguments, call.buffers, strict=True)
        if name.startswith(("out:", "inout:"))
    }
    rows: dict[int, _Expected] = {}
    for i, position in _positions(plan).items():
        buffer = plan.buffers[i]
        dtype = np.dtype(dtypes.as_dtype(buffer.dtype).as_numpy_dtype)
        before = rows.get(position)
        rows[position] = _Expected(
            f"{buffer.kind} {buffer.index} {buffer.label}".rstrip(),
            dtype,
            buffer.size // dtype.itemsize,
            i in written or (before is not None and before.written),
        )
    return [rows[i] for i in range(len(rows))]


def _row(expected: _Expected) -> tuple[int, int, int]:
    writeable = _WRITEABLE if expected.written else 0
    return id(expected.dtype), expected.size, _C_CONTIGUOUS | _ALIGNED | writeable


def _limit(position: int, expected: _Expected, limit: int) -> tuple[int, int, int, int]:
    """A row of the driver's table of indices."""
    if expected.dtype.kind != "i" or expected.dtype.itemsize not in (4, 8):
        raise ValueError(f"indices are of int32 or int64, not {expected.dtype}")
    representable = min(limit, np.iinfo(expected.dtype).max)
    return position, expected.dtype.itemsize, expected.size, representable


def _fit(array: Any, expected: _Expected) -> np.ndarray:
    """Return the array, or an equal contiguous one of the plain type if that is enough."""
    what, dtype, size, written = expected
    if not isinstance(array, np.ndarray | np.generic):
        raise TypeError(f"{what} must be an array, not {type(array).__name__}")
    if array.dtype != dtype or array.size != size:
        raise ValueError(
            f"{what} must have {size} elements of {dtype.name}, not {array.size} of {array.dtype}"
        )
    plain = np.asarray(array)
    ready = plain.flags.c_contiguous and plain.flags.aligned
    if written and not (ready and plain.flags.writeable and isinstance(array, np.ndarray)):
        raise ValueError(f"{what} is written in place: it must be contiguous and writeable")
    plain = plain if ready else np.array(plain, order="C")
    return plain if plain.dtype is dtype else plain.view(dtype)


def _aligned_copy(buffer: Buffer) -> np.ndarray:
    value = buffer.value
    if value is None or value.nbytes != buffer.size:
        raise ValueError(f"constant buffer '{buffer}' has no value of its size")
    copy = empty_aligned(value.shape, value.dtype)
    copy[...] = value
    return copy


# -- The entry -------------------------------------------------------------------------------------


class _MethodDef(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    ]


_FASTCALL = 0x80


@cache
def _definition() -> _MethodDef:
    """The method that all instances share, with their words as its `self`."""
    _check_layout()
    for name in (
        "PyErr_CheckSignals",
        "PyEval_RestoreThread",
        "PyEval_SaveThread",
        "PyLong_FromLongLong",
        "Py_IncRef",
    ):
        machine_code.define(name, getattr(ctypes.pythonapi, name))
    (function,) = machine_code.link({"driver": lambda symbol: entry.driver_text(symbol, host())})
    return _MethodDef(b"run", function, _FASTCALL, None)


def _method(words: np.ndarray) -> Any:
    make = ctypes.pythonapi.PyCFunction_NewEx
    make.restype = ctypes.py_object
    make.argtypes = [ctypes.c_void_p, ctypes.py_object, ctypes.py_object]
    # The method points into its definition and keeps it alive as its "module": threads that ask for
    # the first definition at the same time make several, and the cache keeps only one.
    definition = _definition()
    return make(ctypes.addressof(definition), words, definition)


def _check_layout() -> None:
    """Check that objects have the memory layout that the driver assumes."""
    probe = np.zeros((3, 5), np.float32)

    def field(offset: int, type: Any) -> int:
        return type.from_address(id(probe) + offset).value

    shape = field(entry.SHAPE_FIELD, ctypes.c_void_p)
    found = (
        field(entry.TYPE_FIELD, ctypes.c_void_p) == id(np.ndarray)
        and field(entry.DATA_FIELD, ctypes.c_void_p) == probe.ctypes.data
        and field(entry.NDIM_FIELD, ctypes.c_int) == 2
        and list((ctypes.c_int64 * 2).from_address(shape)) == [3, 5]
        and field(entry.DTYPE_FIELD, ctypes.c_void_p) == id(probe.dtype)
        and field(entry.FLAGS_FIELD, ctypes.c_int) & 0x501 == 0x501
    )
    if not found:
        raise RuntimeError("compiled clusters don't know this Python's or NumPy's memory layout")


_clusters: weakref.WeakSet[NativeCluster] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for cluster in list(_clusters):
        cluster._after_fork()


os.register_at_fork(after_in_child=_after_fork_in_child)
