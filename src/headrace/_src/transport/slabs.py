"""Memory that processes of one host share. In: sizes and arrays. Out: places in slabs.

A slab is an anonymous memory file (memfd). Its descriptor is passed over a Unix socket once, and
the receiver maps it once; a tensor in it then travels as a slab, an offset and a length. There are
no names, so nothing is left behind when processes are killed.

A *lease* says that a receiver still refers to a tensor. Memory is used again when this process has
no array of it and no lease is left.

Invariants: the blocks of a slab do not overlap; a slab never shrinks (it is sealed), so that a
receiver which has mapped it can always read it.

State of `Slabs`, under `_lock`: the slabs with their free ranges and the blocks in use;
`_dropped` blocks whose arrays are gone, which come at any point of a thread's program.
"""

from __future__ import annotations

import bisect
import contextlib
import fcntl
import mmap
import os
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final

import numpy as np

from headrace._src.core.locks import RLock
from headrace._src.core.once import once
from headrace._src.transport.frame import Placed, ProtocolError
from headrace._src.transport.pool import MemoryOwner, when_unused

__all__ = ["Block", "MappedSlabs", "SLAB_TENSOR", "Slab", "Slabs", "shared_slabs"]

SLAB_TENSOR: Final = 64 << 10  # bytes: smaller tensors are copied through the socket
SLAB_BYTES: Final = 64 << 20  # of the first slab, unless one tensor needs more
WARM: Final = 512 << 20  # bytes of free memory that is not given back to the system
MAX_SLABS: Final = 4096  # that a peer may send
MAX_SLAB_BYTES: Final = 1 << 40
ALIGN: Final = 64
_PAGE: Final = 4096
_HUGE: Final = 2 << 20
_SEALS: Final = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


class Block:
    """A range of a slab that is in use."""

    __slots__ = ("held", "leases", "size", "slab", "start")

    def __init__(self, slab: Slab, start: int, size: int) -> None:
        self.slab, self.start, self.size = slab, start, size
        self.held = False  # by an array of this process
        self.leases = 0


class Slab:
    """One memory file of this process: its number, descriptor, memory and allocation."""

    __slots__ = ("_blocks", "_free", "_map", "_starts", "address", "fd", "number", "raw", "size")

    def __init__(self, number: int, size: int) -> None:
        self.number, self.size = number, size
        fd = os.memfd_create("headrace", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.truncate(fd, size)
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
            self._map = mmap.mmap(fd, size)
        except BaseException:
            os.close(fd)
            raise
        self.fd = fd  # from now on __del__ closes it
        with contextlib.suppress(OSError):  # it's only advice
            self._map.madvise(mmap.MADV_HUGEPAGE)
        self.raw: Any = np.ndarray.__new__(MemoryOwner, (size,), np.uint8, self._map)
        self.address = self.raw.ctypes.data
        self._free: list[tuple[int, int]] = [(0, size)]  # start, size; sorted
        self._starts: list[int] = []  # of the blocks in use, sorted
        self._blocks: dict[int, Block] = {}

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        try:
            close(self.fd)  # at Python's end there is no module `os` any more
        except AttributeError:
            return  # it was never opened

    def take(self, size: int) -> Block | None:
        """Use the first free range that is large enough."""
        for i, (start, free) in enumerate(self._free):
            if free >= size:
                if free == size:
                    del self._free[i]
                else:
                    self._free[i] = (start + size, free - size)
                block = self._blocks[start] = Block(self, start, size)
                bisect.insort(self._starts, start)
                return block
        return None

    def give(self, block: Block, warm: bool) -> None:
        """Make a block's range free; if it's not to stay warm, its memory goes to the system."""
        start, size = block.start, block.size
        del self._blocks[start]
        del self._starts[bisect.bisect_left(self._starts, start)]
        if not warm:
            first, last = -(-start // _PAGE) * _PAGE, (start + size) // _PAGE * _PAGE
            if first < last:
                self._map.madvise(mmap.MADV_REMOVE, first, last - first)
        i = bisect.bisect_left(self._free, (start, 0))
        if i < len(self._free) and start + size == self._free[i][0]:
            size += self._free.pop(i)[1]
        if i and sum(self._free[i - 1]) == start:
            start, before = self._free[i - 1]
            self._free[i - 1] = (start, before + size)
        else:
            self._free.insert(i, (start, size))

    def block_at(self, offset: int) -> Block | None:
        """The block in use that contains an offset."""
        i = bisect.bisect_right(self._starts, offset) - 1
        if i < 0:
            return None
        block = self._blocks[self._starts[i]]
        return block if offset < block.start + block.size else None


class Slabs:
    """The shared memory of this process. `limit` bounds the sum of the slabs' sizes."""

    def __init__(self, limit: int, slab_bytes: int = SLAB_BYTES, warm: int = WARM) -> None:
        self._limit, self._slab_bytes, self._warm_limit = limit, slab_bytes, warm
        self._lock = RLock()
        self._busy = False
        self._slabs: list[Slab] = []
        self._by_address: list[tuple[int, Slab]] = []
        self._size = 0
        self._warm = 0  # bytes of blocks that became free and were not given back
        self._spare: dict[int, list[Block]] = {}  # some of them, by size: steps use the same again
        self._dropped: deque[Block] = deque()

    def allocate(self, nbytes: int) -> np.ndarray:
        """Return an array of bytes, 64-byte aligned, that is sent to processes of this host without
        a copy. Raises MemoryError beyond the limit.
        """
        found = self.reserve(nbytes)
        if found is None:
            raise MemoryError(f"no {nbytes} bytes of shared memory are left")
        block, owner = found
        block.held = True
        block.leases -= 1
        when_unused(owner, lambda: self._drop(block))
        return np.ndarray((nbytes,), np.uint8, owner)

    def reserve(self, nbytes: int) -> tuple[Block, MemoryOwner] | None:
        """Return a new block with one lease, and its memory; None beyond the limit."""
        unit = _PAGE if nbytes >= SLAB_TENSOR else ALIGN
        size = max(1, -(-nbytes // unit)) * unit
        with self._lock:
            self._busy = True
            try:
                self._collect()
                block = self._take(size)
                if block is None:
                    return None
                block.leases = 1
            finally:
                self._busy = False
        return block, block.slab.raw[block.start : block.start + nbytes]

    def lease(self, array: np.ndarray) -> tuple[Block, int] | None:
        """Lease the block that a contiguous array lies in; returns it with the array's offset in
        the slab, None if the array's memory is not shared.
        """
        if not self._by_address or not array.flags.c_contiguous:
            return None
        with self._lock:
            found = self._find(array)
            if found is not None:
                found[0].leases += 1
            return found

    def leased(self, array: np.ndarray) -> bool:
        """True if another process may still read an array's memory."""
        with self._lock:
            found = self._find(array)
            return found is not None and found[0].leases > 0

    def release(self, blocks: Iterable[Block]) -> None:
        """End one lease of each block."""
        with self._lock:
            self._busy = True
            try:
                for block in blocks:
                    block.leases -= 1
                    self._give(block)
                self._collect()
            finally:
                self._busy = False

    def _find(self, array: np.ndarray) -> tuple[Block, int] | None:
        address = array.__array_interface__["data"][0]
        i = bisect.bisect_right(self._by_address, address, key=lambda entry: entry[0]) - 1
        if i < 0:
            return None
        slab = self._by_address[i][1]
        offset = address - slab.address
        if offset + array.nbytes > slab.size:
            return None
        block = slab.block_at(offset)
        if block is None or offset + array.nbytes > block.start + block.size:
            return None
        return block, offset

    def _take(self, size: int) -> Block | None:
        spare = self._spare.get(size)
        if spare:
            self._warm -= size
            return spare.pop()
        block = self._take_free(size)
        if block is None and self._spare:
            self._spare, given = {}, [b for blocks in self._spare.values() for b in blocks]
            for each in given:
                each.slab.give(each, True)
            block = self._take_free(size)
        if block is not None:
            self._warm = max(0, self._warm - size)
            return block
        # Each slab is as large as all before it, so that there are few: they cost descriptors.
        needed = -(-size // _HUGE) * _HUGE
        new = max(needed, min(max(self._slab_bytes, self._size), self._limit - self._size))
        if self._size + new > self._limit:
            return None
        try:
            slab = Slab(len(self._slabs) + 1, new)
        except OSError:
            return None  # no descriptor or no memory is left: the tensor goes through the socket
        self._slabs.append(slab)
        bisect.insort(self._by_address, (slab.address, slab), key=lambda entry: entry[0])
        self._size += new
        return slab.take(size)

    def _take_free(self, size: int) -> Block | None:
        return next(filter(None, (slab.take(size) for slab in self._slabs)), None)

    def _give(self, block: Block) -> None:
        if block.leases or block.held:
            return
        if self._warm + block.size <= self._warm_limit:
            self._warm += block.size
            self._spare.setdefault(block.size, []).append(block)
        else:
            block.slab.give(block, False)

    def _drop(self, block: Block) -> None:
        """The array of a block is gone; this comes at any point of a thread's program."""
        self._dropped.append(block)
        if not self._busy:
            with self._lock:
                self._collect()

    def _collect(self) -> None:
        while self._dropped:
            block = self._dropped.popleft()
            block.held = False
            self._give(block)


@once
def shared_slabs() -> Slabs:
    """The slabs of this process: at most half of the host's memory."""
    return Slabs(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2)


class MappedSlabs:
    """The slabs of one peer, as this process has mapped them: for reading, unless `writable`."""

    def __init__(self, released: Callable[[int], Any], writable: bool = False) -> None:
        self._released = released
        self._access = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
        self._slabs: dict[int, Any] = {}

    def add(self, number: int, fd: int) -> None:
        """Map a slab; the descriptor is closed."""
        try:
            size = os.fstat(fd).st_size
            if number in self._slabs or len(self._slabs) >= MAX_SLABS:
                raise ProtocolError(f"slab {number} is sent twice, or after {MAX_SLABS} others")
            # Without the seals a peer could shrink the file, and reading it would kill us.
            if fcntl.fcntl(fd, fcntl.F_GET_SEALS) & _SEALS != _SEALS:
                raise ProtocolError("a slab is not sealed")
            if not 0 < size <= MAX_SLAB_BYTES:
                raise ProtocolError(f"a slab of {size} bytes")
            mapped = mmap.mmap(fd, size, mmap.MAP_SHARED, self._access)
        except OSError as error:
            raise ProtocolError(f"a slab cannot be mapped: {error}") from None
        finally:
            os.close(fd)
        self._slabs[number] = np.ndarray.__new__(MemoryOwner, (size,), np.uint8, mapped)

    def resolve(self, placed: Placed, nbytes: int) -> Any:
        """Return the read-only memory of a tensor; its lease ends when nothing refers to it."""
        raw = self._slabs.get(placed.slab)
        if raw is None or placed.offset + nbytes > raw.nbytes:
            raise ProtocolError(f"there are no {nbytes} bytes at {placed}")
        buffer = raw[placed.offset : placed.offset + nbytes]
        released, lease = self._released, placed.lease
        when_unused(buffer, lambda: released(lease))
        return buffer
