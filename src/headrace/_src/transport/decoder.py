"""From bytes to frames. In: bytes in pieces of any size. Out: frames.

A connection receives into the memory that is due (`target`), and says how many bytes came
(`received`). Small frames are received several at a time into one buffer and copied out of it; the
tensors of larger frames are received into their final memory.

Invariants: every length is checked before anything is allocated for it; bytes that are no valid
frame raise a ProtocolError, after which the decoder cannot be used.

State: `_view` the receive buffer with `_end` bytes in it; while a large frame arrives, `large`
with the buffers that are still to be filled.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, Final, NamedTuple

import numpy as np

from headrace._src.transport import frame as form
from headrace._src.transport.frame import Frame, Placed, ProtocolError
from headrace._src.transport.pool import receive_pool

__all__ = ["BUFFER", "Decoder"]

BUFFER: Final = 64 << 10  # the receive buffer; a frame that fits is copied out of it
_KEPT: Final = 1024  # tables whose layout is remembered
_KEPT_BYTES: Final = 1024  # of the largest such table
_HEADER: Final = form.HEADER.size

Resolve = Callable[[Placed, int], memoryview]
Allocate = Callable[[int], Any]


class TensorPlace(NamedTuple):
    """One tensor of a layout. dtype None: dead; object: strings."""

    dtype: np.dtype | None
    shape: tuple[int, ...]
    nbytes: int
    offset: int  # in the body
    placed: Placed | None


class Layout(NamedTuple):
    """What a table says: the tensors, their number, and the bytes of the body.

    numbers: shape, type and offset of each tensor if all are numbers in the body, else None
    """

    slots: tuple[TensorPlace, ...]
    count: int
    body: int
    numbers: tuple[tuple[tuple[int, ...], np.dtype, int], ...] | None


_OBJECT: Final = np.dtype(object)
_new: Final = tuple.__new__  # makes a Frame with one call less than Frame does
_unpack_header: Final = form.HEADER.unpack_from
_layouts: dict[bytes, Layout] = {}


class Decoder:
    """Decodes the frames of one connection.

    resolve: gives the memory of a tensor in a slab; None: such tensors are an error
    allocate: gives a writable buffer of that many bytes for a large tensor
    internal: takes the kind and the head of each frame of the link itself, before the frames after
        it are decoded; None: such frames are an error
    """

    __slots__ = (
        "_allocate", "_buffer", "_end", "_internal", "_resolve", "_view", "bulky", "large",
        "target",
    )  # fmt: skip

    def __init__(
        self,
        resolve: Resolve | None = None,
        allocate: Allocate = receive_pool.take,
        internal: Callable[[int, bytes], Any] | None = None,
    ) -> None:
        self._resolve = resolve
        self._allocate = allocate
        self._internal = internal
        self._buffer = bytearray(BUFFER)
        self._view = memoryview(self._buffer)
        self._end = 0
        self.large: _Large | None = None  # while a large frame is received into its own memory
        self.target = self._view  # the memory to receive the next bytes into; it's never empty
        self.bulky = False  # whether a frame with memory of its own was decoded; the user resets it

    def received(self, count: int) -> list[Frame]:
        """Take note of `count` bytes in `target`; return the frames that are complete now."""
        if self.large is not None:
            return self._fill(self.large, count)
        frames: list[Frame] = []
        view, start, end = self._view, 0, self._end + count
        while end - start >= _HEADER:
            fields = _unpack_header(view, start)
            magic, kind, flags, count, number, head, table, body = fields
            size = _HEADER + head + table + body
            if magic != form.MAGIC or flags or size > end - start:
                _check_header(fields)
            if size <= end - start:
                at = start + _HEADER
                start += size
                if count:
                    entries = at + head
                    data = entries + table
                    front = bytes(view[at:data])
                    layout = _layouts.get(front[head:])
                    if layout is None or layout.body != body or layout.count != count:
                        _check_header(fields)
                        layout = _layout(front[head:], count, body)
                    tensors = self._tensors(layout, self._buffer[data:start])
                    frames.append(_new(Frame, (kind, number, front[:head], tensors)))
                elif flags:
                    self._call_internal(kind, bytes(view[at:start]))
                else:
                    if table or body:
                        _check_header(fields)
                    frames.append(_new(Frame, (kind, number, bytes(view[at:start]), ())))
            elif size <= BUFFER:
                break
            else:
                large = _Large(kind, number, count, head, table, body, self)
                start += _HEADER
                start += large.fill(view[start:end])
                if large.complete():
                    frames.append(large.frame())
                else:
                    self.large = large
        left = end - start
        if left and start:
            view[:left] = bytes(view[start:end])
        self._end = left
        if self.large is not None:
            self.target = self.large.target()
        else:
            self.target = view[left:] if left else view
        return frames

    def _fill(self, large: _Large, count: int) -> list[Frame]:
        """Take note of `count` bytes of a large frame."""
        large.advance(count)
        if not large.complete():
            self.target = large.target()
            return []
        self.large = None
        self.target = self._view
        return [large.frame()]

    def feed(self, data: bytes | memoryview) -> list[Frame]:
        """Decode bytes that were received into other memory."""
        frames: list[Frame] = []
        rest = memoryview(data)
        while rest:
            target = self.target
            count = min(len(target), len(rest))
            target[:count] = rest[:count]
            rest = rest[count:]
            frames += self.received(count)
        return frames

    def _call_internal(self, kind: int, head: bytes) -> None:
        if self._internal is None:
            raise ProtocolError(f"an unexpected internal frame of kind {kind}")
        self._internal(kind, head)

    def _tensors(self, layout: Layout, body: bytearray) -> tuple[Any, ...]:
        found = []
        if layout.numbers is not None:
            if len(layout.numbers) == 1:
                ((shape, dtype, at),) = layout.numbers
                return (np.ndarray(shape, dtype, body, at),)
            for shape, dtype, at in layout.numbers:
                found.append(np.ndarray(shape, dtype, body, at))
        else:
            for slot in layout.slots:
                found.append(self._tensor(slot, body, slot.offset))
        return tuple(found)

    def _tensor(self, slot: TensorPlace, data: Any, offset: int) -> Any:
        dtype, shape, nbytes, _, placed = slot
        if dtype is None:
            return None
        if dtype is _OBJECT:
            return _strings(memoryview(data)[offset : offset + nbytes], shape)
        if placed is not None:
            if self._resolve is None:
                raise ProtocolError("a tensor is in shared memory, but the connection has none")
            data, offset = self._resolve(placed, nbytes), 0
            self.bulky = True
        return np.ndarray(shape, dtype, data, offset)


class _Large:
    """A frame that is received into its own memory: first head and table, then each tensor."""

    __slots__ = (
        "_body", "_buffers", "_count", "_decoder", "_done", "_front", "_goals", "_head", "_kind",
        "_layout", "_number", "_table",
    )  # fmt: skip

    def __init__(
        self, kind: int, number: int, count: int, head: int, table: int, body: int, decoder: Decoder
    ) -> None:
        self._kind, self._number, self._count = kind, number, count
        self._head, self._table, self._body = head, table, body
        self._decoder = decoder
        self._front = memoryview(_reserve(_untouched, head + table))
        self._goals = [self._front] if head + table else []
        self._done = 0  # bytes of the first goal
        self._layout: Layout | None = None
        self._buffers: list[Any] = []
        if not self._goals:
            self._plan()

    def target(self) -> memoryview:
        return self._goals[0][self._done :]

    def advance(self, count: int) -> None:
        self._done += count
        if self._done == len(self._goals[0]):
            self._done = 0
            del self._goals[0]
            if self._layout is None:
                self._plan()

    def fill(self, data: memoryview) -> int:
        """Copy what is here already; returns how many bytes that were."""
        at = 0
        while at < len(data) and not self.complete():
            target = self.target()
            count = min(len(target), len(data) - at)
            target[:count] = data[at : at + count]
            self.advance(count)
            at += count
        return at

    def complete(self) -> bool:
        return self._layout is not None and not self._goals

    def frame(self) -> Frame:
        assert self._layout is not None
        self._decoder.bulky = True
        tensors = [
            self._decoder._tensor(slot, buffer, 0)
            for slot, buffer in zip(self._layout.slots, self._buffers)
        ]
        return Frame(self._kind, self._number, bytes(self._front[: self._head]), tuple(tensors))

    def _plan(self) -> None:
        """Read the table and allocate the tensors' memory."""
        table = bytes(self._front[self._head :])
        self._layout = _layout(table, self._count, self._body)
        for slot in self._layout.slots:
            size = 0 if slot.placed else slot.nbytes + -slot.nbytes % form.ALIGN
            buffer = _reserve(self._decoder._allocate, size)
            self._buffers.append(buffer)
            if size:
                self._goals.append(memoryview(buffer).cast("B"))


def _untouched(size: int) -> Any:
    """Memory that becomes real only as it's written: a header alone must not cost us megabytes."""
    return np.empty(size, np.uint8)


def _reserve(allocate: Allocate, size: int) -> Any:
    try:
        return allocate(size)
    except MemoryError:
        raise ProtocolError(f"there is no memory for {size} bytes of a frame") from None


# -- Checks ----------------------------------------------------------------------------------------


def _check_header(fields: tuple[int, ...]) -> None:
    magic, _, flags, count, _, head, table, body = fields
    if magic != form.MAGIC:
        raise ProtocolError(f"not a frame of this protocol's version: it begins with {magic:#010x}")
    if flags & ~form.INTERNAL:
        raise ProtocolError(f"a frame has unknown flags: {flags:#x}")
    if head > form.MAX_HEAD:
        raise ProtocolError(f"a frame's head has {head} bytes, more than {form.MAX_HEAD}")
    if not count * form.ENTRY.size <= table <= count * form.MAX_ENTRY:
        raise ProtocolError(f"a table of {table} bytes cannot describe {count} tensors")
    if body > form.MAX_BODY:
        raise ProtocolError(f"a frame's body has {body} bytes, more than {form.MAX_BODY}")
    if body and not count:
        raise ProtocolError(f"a frame without tensors has a body of {body} bytes")
    if flags and (count or head > form.MAX_INTERNAL):
        raise ProtocolError(f"an internal frame has {count} tensors and a head of {head} bytes")


def _layout(table: bytes, count: int, body: int) -> Layout:
    """What a table means. Steps repeat their tables, so layouts are remembered."""
    layout = _layouts.get(table)
    if layout is None:
        layout = _read_table(table)
        if len(table) <= _KEPT_BYTES and all(slot.placed is None for slot in layout.slots):
            if len(_layouts) >= _KEPT:
                _layouts.clear()
            _layouts[table] = layout
    if layout.body != body or layout.count != count:
        raise ProtocolError(
            f"a frame announces {count} tensors in {body} bytes, but its table describes "
            f"{layout.count} in {layout.body} bytes"
        )
    return layout


def _read_table(table: bytes) -> Layout:
    slots = []
    at = offset = 0
    while at < len(table):
        if at + form.ENTRY.size > len(table):
            raise ProtocolError("a table ends inside an entry")
        code, rank, place, zero, slab, nbytes = form.ENTRY.unpack_from(table, at)
        at += form.ENTRY.size
        if rank > form.MAX_RANK:
            raise ProtocolError(f"a tensor has {rank} dimensions, more than {form.MAX_RANK}")
        if zero or place not in (form.INLINE, form.SLAB) or (slab and place != form.SLAB):
            raise ProtocolError("a tensor's place is unknown")
        end = at + 8 * rank + (form.LEASE.size if place == form.SLAB else 0)
        if end > len(table):
            raise ProtocolError("a table ends inside an entry")
        shape = form.DIMENSIONS[rank].unpack_from(table, at)
        dtype = _checked_type(code, place, shape, nbytes)
        placed = None
        if place == form.SLAB:
            placed = Placed(slab, *form.LEASE.unpack_from(table, at + 8 * rank))
        slots.append(TensorPlace(dtype, shape, nbytes, offset, placed))
        at = end
        if place == form.INLINE:
            offset += nbytes + -nbytes % form.ALIGN
            if offset > form.MAX_BODY:
                raise ProtocolError(f"tensors have more than {form.MAX_BODY} bytes together")
    return Layout(tuple(slots), len(slots), offset, _numbers(slots))


def _numbers(slots: list[TensorPlace]) -> tuple[tuple[tuple[int, ...], np.dtype, int], ...] | None:
    numbers = []
    for dtype, shape, _, offset, placed in slots:
        if dtype is None or dtype is _OBJECT or placed is not None:
            return None
        numbers.append((shape, dtype, offset))
    return tuple(numbers)


def _checked_type(code: int, place: int, shape: tuple[int, ...], nbytes: int) -> np.dtype | None:
    """The type of a tensor whose entry is consistent."""
    # Also of an empty tensor: NumPy multiplies the other dimensions.
    if prod(d for d in shape if d) > form.MAX_ELEMENTS:
        raise ProtocolError(f"a tensor has more than {form.MAX_ELEMENTS} elements: {shape}")
    if code == form.DEAD:
        if shape or nbytes or place:
            raise ProtocolError("a dead tensor has a shape, bytes or a place")
        return None
    if code == form.STRING:
        if nbytes < form.string_lengths(shape) or place == form.SLAB:
            raise ProtocolError(f"a string tensor of shape {shape} has only {nbytes} bytes")
        return _OBJECT
    dtype = form.NUMPY_OF_CODE.get(code)
    if dtype is None:
        raise ProtocolError(f"a tensor has the unknown type {code}")
    if nbytes != prod(shape) * dtype.itemsize:
        raise ProtocolError(f"a {dtype} tensor of shape {shape} cannot have {nbytes} bytes")
    return dtype


def _strings(data: memoryview, shape: tuple[int, ...]) -> np.ndarray:
    size = form.string_lengths(shape)
    lengths = np.frombuffer(data[:size], "<u4") if size else np.zeros(0, "<u4")
    if size + int(lengths.sum(dtype=np.uint64)) != len(data):
        raise ProtocolError("the lengths of a tensor's strings disagree with its size")
    flat = np.empty(len(lengths), _OBJECT)
    at = size
    for i, length in enumerate(lengths.tolist()):
        flat[i] = bytes(data[at : at + length])
        at += length
    return flat.reshape(shape)
