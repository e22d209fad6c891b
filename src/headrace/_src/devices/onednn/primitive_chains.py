"""Chains of oneDNN primitives. In: descriptors and primitives. Out: a plan that runs on arrays.

A plan (`PrimitiveChain`) is built once per shape class and run many times. It takes the caller's
arrays in the order in which their slots were declared. Values that live only inside the chain
(reordered filters, a pooling workspace, scratchpads) are in an arena of the running thread.

Invariants
- A plan never changes after it is built, so any number of threads may run it at once: everything
  that an execution writes to lives in a frame (`ExecutionMemory`: memory objects, argument lists,
  stream), and a frame is used by one execution at a time. Idle frames wait in a list, whose append
  and pop are atomic.
- Native handles are destroyed together with the Python object that owns them, but never in a forked
  child.
- Executing releases the GIL (ctypes does so around every call).

State: one cache of plans per builder function (`cached`), emptied in a forked child.
"""

import contextlib
import ctypes
import functools
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from headrace._src.devices.buffers import ALIGNMENT, address, empty_aligned
from headrace._src.devices.onednn.library import (
    ARG_DST,
    ARG_SCRATCHPAD,
    ARG_SRC,
    BF16,
    BLOCKED_TAGS,
    ELTWISE_RELU,
    F32,
    IN_ORDER,
    QUERY_NAME,
    QUERY_SCRATCHPAD,
    TAG_ANY,
    Library,
    Unsupported,
    check,
    library,
    usable_handles,
)

Shape = tuple[int, ...]
Dims = Sequence[int]

_CACHE_SIZE = 512  # plans per builder function

# Plans shorter than this run in the calling thread alone. Starting and joining a team takes 2 us on
# an idle machine; with the other core busy, 100 to 190 us were measured for tiny primitives.
_SERIAL_BELOW_NS = 20_000

_DTYPES = {np.dtype(np.float32): F32, np.dtype(ml_dtypes.bfloat16): BF16}
_caches: list[Any] = []


class Slot(NamedTuple):
    """A memory argument of the chain; `offset` is its place in the arena, None for an array."""

    index: int
    desc: int
    offset: int | None


class _Step(NamedTuple):
    name: str  # of the implementation
    primitive: int
    arguments: tuple[tuple[int, int], ...]  # (oneDNN's argument number, slot index)


class _Argument(ctypes.Structure):
    _fields_ = [("arg", ctypes.c_int), ("memory", ctypes.c_void_p)]


class _Handles:
    """Native handles, destroyed in reverse order of creation together with this object."""

    def __init__(self, lib: Library):
        self.lib = lib
        self._owned: list[tuple[str, int]] = []

    def new(self, create: str, destroy: str, *arguments: object) -> int:
        handle = self.lib.new(create, *arguments)
        self._owned.append((destroy, handle))
        return handle

    def __del__(self) -> None:
        if usable_handles is None or not usable_handles(self.lib):  # None: interpreter shutdown
            return
        for destroy, handle in reversed(self._owned):
            self.lib.functions[destroy](handle)


class _Thread(threading.local):
    """The scratch memory of a running thread: enough for the largest plan that it has run."""

    _size = -1  # so that a thread's first request always grows it
    _base = 0

    def arena(self, nbytes: int) -> int:
        """Return the address of at least `nbytes` of scratch memory."""
        if self._size < nbytes:
            self._grow(nbytes)
        return self._base

    def _grow(self, nbytes: int) -> None:
        # OpenMP keeps its limit per thread: set it on the thread's first request.
        lib = library()
        lib.functions["omp_set_num_threads"](lib.num_threads)
        self._buffer = empty_aligned((nbytes,), np.uint8)
        self._base = address(self._buffer)
        self._size = nbytes


_thread = _Thread()


@contextlib.contextmanager
def _thread_count(lib: Library, count: int) -> Iterator[None]:
    """Let the calling thread's primitives have `count` threads within the with-block."""
    lib.functions["omp_set_num_threads"](count)
    try:
        yield
    finally:
        lib.functions["omp_set_num_threads"](lib.num_threads)


def int64s(values: Dims) -> ctypes.Array:
    """Return the values as a C array of int64 (oneDNN's dnnl_dims_t)."""
    return (ctypes.c_int64 * len(values))(*values)


class PlanBuilder:
    """Collects descriptors, slots and steps, in order, and makes a plan of them."""

    def __init__(self, estimate_ns: float) -> None:
        """Begin a plan that should take `estimate_ns` nanoseconds on one thread."""
        self.lib = library()
        self._serial = estimate_ns < _SERIAL_BELOW_NS
        self._handles = _Handles(self.lib)
        self._slots: list[Slot] = []
        self._steps: list[_Step] = []
        self._arena_bytes = 0

    def dense(self, dims: Dims, order: Dims, dtype: int) -> int:
        """Describe a dense array; its dimensions lie in memory in `order`, outermost first."""
        strides = [0] * len(dims)
        step = 1
        for axis in reversed(order):
            strides[axis] = step
            step *= dims[axis]
        return self._handles.new(
            "dnnl_memory_desc_create_with_strides",
            "dnnl_memory_desc_destroy",
            len(dims),
            int64s(dims),
            dtype,
            int64s(strides),
        )

    def any_layout(self, dims: Dims, dtype: int) -> int:
        """Describe an array whose layout oneDNN may choose."""
        return self._tagged(dims, TAG_ANY, dtype)

    def blocked(self, dims: Dims, block: int, dtype: int) -> int:
        """Describe an array [N][C/block][H][W][block]; dims are (N, C, H, W)."""
        require(len(dims) == 4 and dims[1] % block == 0, f"{dims} in blocks of {block} channels")
        return self._tagged(dims, BLOCKED_TAGS[block], dtype)

    def _tagged(self, dims: Dims, tag: int, dtype: int) -> int:
        return self._handles.new(
            "dnnl_memory_desc_create_with_tag",
            "dnnl_memory_desc_destroy",
            len(dims),
            int64s(dims),
            dtype,
            tag,
        )

    def with_relu(self) -> int:
        """Return the attributes of all primitives, extended to apply max(x, 0) to the result."""
        post_ops = self._handles.new("dnnl_post_ops_create", "dnnl_post_ops_destroy")
        self.lib.call("dnnl_post_ops_append_eltwise", post_ops, ELTWISE_RELU, 0.0, 0.0)
        attr = self._handles.new(
            "dnnl_primitive_attr_clone", "dnnl_primitive_attr_destroy", self.lib.attr
        )
        self.lib.call("dnnl_primitive_attr_set_post_ops", attr, post_ops)
        return attr

    def primitive_desc(self, name: str, *arguments: object, attr: int | None = None) -> int:
        """Create a primitive descriptor; engine and attributes are put around `arguments`."""
        return self._new(
            f"dnnl_{name}_primitive_desc_create",
            "dnnl_primitive_desc_destroy",
            self.lib.engine,
            *arguments,
            attr or self.lib.attr,
        )

    def name_of(self, primitive_desc: int) -> str:
        """Return oneDNN's name for the implementation that it chose."""
        name = ctypes.c_char_p()
        self.lib.call(
            "dnnl_primitive_desc_query", primitive_desc, QUERY_NAME, 0, ctypes.byref(name)
        )
        return (name.value or b"").decode()

    def query(self, primitive_desc: int, what: int) -> int:
        """Return the memory descriptor that a primitive descriptor settled on for one argument."""
        return self.lib.functions["dnnl_primitive_desc_query_md"](primitive_desc, what, 0)

    def array(self, desc: int) -> Slot:
        """Declare the next array that the caller will pass to `PrimitiveChain.run`."""
        return self._add_slot(desc, None)

    def scratch(self, desc: int) -> Slot:
        """Declare a value that lives only inside the chain."""
        offset = self._arena_bytes
        size = self.lib.functions["dnnl_memory_desc_get_size"](desc)
        self._arena_bytes += -(-size // ALIGNMENT) * ALIGNMENT
        return self._add_slot(desc, offset)

    def as_input(self, slot: Slot, desc: int) -> Slot:
        """Return the slot's value in the layout `desc`, adding a reorder when it differs."""
        staged = self.as_output(slot, desc)
        self._reorder(slot, staged)
        return staged

    def as_output(self, slot: Slot, desc: int) -> Slot:
        """Return the slot for a value in the layout `desc` that `deliver` will bring to `slot`."""
        return slot if self._same(slot.desc, desc) else self.scratch(desc)

    def deliver(self, staged: Slot, slot: Slot) -> None:
        """Bring a value to its slot, adding a reorder when it was staged in another layout."""
        self._reorder(staged, slot)

    def execute(self, primitive_desc: int, arguments: dict[int, Slot]) -> None:
        """Append a primitive to the chain. Raise `Unsupported` if oneDNN has only a reference
        implementation for this processor, since every other kernel is faster.
        """
        name = self.name_of(primitive_desc)
        if name.startswith("ref"):
            raise Unsupported("oneDNN: only a reference implementation")
        self._append(name, primitive_desc, arguments)

    def _append(self, name: str, primitive_desc: int, arguments: dict[int, Slot]) -> None:
        primitive = self._new("dnnl_primitive_create", "dnnl_primitive_destroy", primitive_desc)
        pairs = [(number, slot.index) for number, slot in arguments.items()]
        scratchpad = self.query(primitive_desc, QUERY_SCRATCHPAD)
        if self.lib.functions["dnnl_memory_desc_get_size"](scratchpad):
            pairs.append((ARG_SCRATCHPAD, self.scratch(scratchpad).index))
        self._steps.append(_Step(name, primitive, tuple(pairs)))

    def finish(self) -> "PrimitiveChain":
        """Return the plan; the builder is not used afterwards."""
        return PrimitiveChain(
            self._handles,
            tuple(self._slots),
            tuple(self._steps),
            self._arena_bytes,
            self._serial,
        )

    def _new(self, create: str, destroy: str, *arguments: object) -> int:
        """Create a handle under the plan's thread count, which many primitives keep forever."""
        with _thread_count(self.lib, 1 if self._serial else self.lib.num_threads):
            return self._handles.new(create, destroy, *arguments)

    def _add_slot(self, desc: int, offset: int | None) -> Slot:
        slot = Slot(len(self._slots), desc, offset)
        self._slots.append(slot)
        return slot

    def _same(self, left: int, right: int) -> bool:
        return bool(self.lib.functions["dnnl_memory_desc_equal"](left, right))

    def _reorder(self, source: Slot, target: Slot) -> None:
        if source is target:
            return
        desc = self._new(
            "dnnl_reorder_primitive_desc_create",
            "dnnl_primitive_desc_destroy",
            source.desc,
            self.lib.engine,
            target.desc,
            self.lib.engine,
            self.lib.attr,
        )
        self._append("reorder", desc, {ARG_SRC: source, ARG_DST: target})


class ExecutionMemory:
    """The memory objects, argument lists and stream that one execution of a plan writes to."""

    def __init__(self, handles: _Handles, slots: Sequence[Slot], steps: Sequence[_Step]):
        lib = handles.lib
        self._handles = _Handles(lib)
        memories = [
            self._handles.new(
                "dnnl_memory_create", "dnnl_memory_destroy", slot.desc, lib.engine, None
            )
            for slot in slots
        ]
        self.arrays = [memories[slot.index] for slot in slots if slot.offset is None]
        self.scratch = [
            (memories[slot.index], slot.offset) for slot in slots if slot.offset is not None
        ]
        self.stream = self._handles.new(
            "dnnl_stream_create", "dnnl_stream_destroy", lib.engine, IN_ORDER
        )
        self.arena_base = 0
        self._lists = [
            (_Argument * len(step.arguments))(
                *((number, memories[index]) for number, index in step.arguments)
            )
            for step in steps
        ]
        self.calls = [
            (step.primitive, len(step.arguments), ctypes.addressof(arguments))
            for step, arguments in zip(steps, self._lists, strict=True)
        ]


class PrimitiveChain:
    """A finished chain: call `run` with one C-contiguous array per declared slot."""

    def __init__(
        self,
        handles: _Handles,
        slots: tuple[Slot, ...],
        steps: tuple[_Step, ...],
        arena_bytes: int,
        serial: bool,
    ):
        self._handles = handles
        self._slots = slots
        self._steps = steps
        self.arena_bytes = arena_bytes
        self.serial = serial
        self._idle: list[ExecutionMemory] = []
        self._num_threads = handles.lib.num_threads
        self._set_threads = handles.lib.functions["omp_set_num_threads"]
        self._set_data = handles.lib.functions["dnnl_memory_set_data_handle"]
        self._execute = handles.lib.functions["dnnl_primitive_execute"]

    @property
    def names(self) -> list[str]:
        """oneDNN's names for the implementations of the chain's primitives."""
        return [step.name for step in self._steps]

    def run(self, *arrays: np.ndarray) -> None:
        """Run the chain. Inputs are read, outputs written in place; nothing is kept afterwards."""
        try:
            frame = self._idle.pop()
        except IndexError:
            frame = self.frame()
        for memory, array in zip(frame.arrays, arrays, strict=True):
            self._set_data(memory, address(array))
        base = _thread.arena(self.arena_bytes)
        if frame.arena_base != base:
            for memory, offset in frame.scratch:
                self._set_data(memory, base + offset)
            frame.arena_base = base
        stream = frame.stream
        if self.serial:
            self._set_threads(1)
        try:
            for primitive, count, arguments in frame.calls:
                status = self._execute(primitive, stream, count, arguments)
                if status:
                    check(status, "dnnl_primitive_execute")
        finally:
            if self.serial:
                self._set_threads(self._num_threads)
        self._idle.append(frame)

    def frame(self) -> ExecutionMemory:
        """Return a frame for one execution at a time, for callers that run the chain themselves."""
        return ExecutionMemory(self._handles, self._slots, self._steps)


def cached(
    build: Callable[..., tuple[PrimitiveChain, Shape]],
) -> Callable[..., tuple[PrimitiveChain, Shape]]:
    """Cache the results and the refusals of `build` for the most recently used arguments."""

    @functools.lru_cache(_CACHE_SIZE)
    def attempt(*key: Any) -> tuple[PrimitiveChain, Shape] | str:
        try:
            return build(*key)
        except Unsupported as refusal:
            return str(refusal)

    @functools.wraps(build)
    def lookup(*key: Any) -> tuple[PrimitiveChain, Shape]:
        outcome = attempt(*key)
        if isinstance(outcome, str):
            raise Unsupported(outcome)
        return outcome

    _caches.append(attempt)
    return lookup


def forget_plans() -> None:
    """Empty all plan caches."""
    for cache in _caches:
        cache.cache_clear()


# Cached plans would run on the parent's OpenMP threads, which a forked child does not have.
os.register_at_fork(after_in_child=forget_plans)


def require(condition: bool, reason: str) -> None:
    """Raise `Unsupported` for the reason given unless the condition holds."""
    if not condition:
        raise Unsupported(f"oneDNN: {reason}")


def ready(array: np.ndarray) -> np.ndarray:
    """Return the array, or a copy of it that native code can read (C-contiguous, aligned)."""
    flags = array.flags
    return array if flags.c_contiguous and flags.aligned else np.array(array, order="C")


def common_dtype(first: np.ndarray, *others: np.ndarray) -> int:
    """Return oneDNN's number of the dtype that all arrays have."""
    codes = {_DTYPES.get(array.dtype) for array in (first, *others)}
    code = codes.pop()
    if code is None or codes:
        names = ", ".join(str(array.dtype) for array in (first, *others))
        raise Unsupported(f"oneDNN: operands must all be float32 or all bfloat16, not {names}")
    return code
