"""Touch a cluster's memory while its step is compiled. In: a flow. Out: a block whose pages exist.

The system clears a page when it is first written, and a virtual machine may first have to get it
from its host: for a gigabyte that takes a second or more, longer than all passes over a large
step. So a thread writes to each page while Python plans. How much memory a step needs is known
only at the end; the cache says how much the same step needed in an earlier process.

Invariants: a block is used only after its thread has ended; a block of another size than the plan's
is dropped. State: per thread, what the step that it compiles has ahead.
"""

from __future__ import annotations

import contextlib
import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from headrace._src.compile.native import code_cache
from headrace._src.devices.blocks import block, has_near_memory_only
from headrace._src.devices.target import host
from headrace._src.graph.dataflow import Dataflow

__all__ = ["TouchedMemory", "claim", "touching"]

_LEAST = 2**26  # bytes: less takes as long as starting a thread and looking into the cache
_STRETCH = 2**25  # bytes that are touched between two looks at whether to stop
_PAGE = 2**12


class TouchedMemory:
    """A block that a thread touches, page by page, until it is taken."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._memory = block(size)
        self._taken = False
        self._thread = threading.Thread(target=self._touch, name="headrace-touch", daemon=True)
        self._thread.start()

    def _touch(self) -> None:
        # Not madvise, during which no other thread can map memory.
        for start in range(0, self.size, _STRETCH):
            if self._taken:
                break
            self._memory[start : start + _STRETCH : _PAGE] = 0

    def take(self) -> np.ndarray:
        """Stop touching; return the block."""
        self._taken = True
        self._thread.join()
        return self._memory


class _Ahead:
    """The memory that a step has ahead, and the most that its clusters wanted."""

    def __init__(self, memory: TouchedMemory | None) -> None:
        self.memory = memory
        self.wanted = 0


_local = threading.local()


@contextmanager
def touching(flow: Dataflow) -> Iterator[None]:
    """Touch memory for the largest cluster of a flow, which this thread compiles inside the
    with-block. Nothing is touched where that could take a core from the passes, or where the core
    that first writes a page decides how near it is to others.
    """
    if host().cores < 2 or not has_near_memory_only():
        yield
        return
    question = _question(flow)
    size = code_cache.recall(question)
    memory = None
    if size is not None:
        with contextlib.suppress(MemoryError):
            memory = TouchedMemory(size)
    outer = getattr(_local, "ahead", None)
    _local.ahead = ahead = _Ahead(memory)
    try:
        yield
        if ahead.wanted >= _LEAST and ahead.wanted != size:
            code_cache.remember(question, ahead.wanted)
    finally:
        _local.ahead = outer
        if ahead.memory is not None:
            ahead.memory.take()


def claim(size: int) -> TouchedMemory | None:
    """Return the memory of this size that is being touched for the step that this thread compiles;
    None if there is none.
    """
    ahead: _Ahead | None = getattr(_local, "ahead", None)
    if ahead is None:
        return None
    ahead.wanted = max(ahead.wanted, size)
    memory = ahead.memory
    if memory is None or memory.size != size:
        return None
    ahead.memory = None
    return memory


def _question(flow: Dataflow) -> str:
    """Return a name for what a step computes: its ops and shapes."""
    nodes = [(n.definition.op_type, [t.sizes for t in n.types]) for n in flow.nodes]
    return f"memory {hashlib.blake2b(repr(nodes).encode(), digest_size=20).hexdigest()}"
