"""Hints to the processor's caches. In: addresses, which need not be valid. Out: instructions that
bring their lines nearer.
"""

from __future__ import annotations

from headrace._src.compile.codegen.emit import I32, VOID, Function, Reg, Type

__all__ = ["LINE", "prefetch", "prefetch_row"]

LINE = 64  # bytes
_READ_SOON, _READ_NEXT = 2, 3  # how near: the second-level cache, the first-level one


def prefetch(f: Function, pointer: Reg, *, to_write: bool = False, next: bool = False) -> None:
    """Bring the cache line at an address into the core's own cache; to the first level if it is
    what comes `next`.
    """
    near = _READ_NEXT if next else _READ_SOON
    use, level, data = (f.const(x, I32) for x in (int(to_write), near, 1))
    f.call("llvm.prefetch.p0", VOID, pointer, use, level, data)


def prefetch_row(
    f: Function, pointer: Reg, count: int, type: Type, *, to_write: bool = False
) -> None:
    """Bring `count` elements of a row into the core's own cache."""
    for i in range(0, count, LINE * 8 // type.bits):
        prefetch(f, f.offset(pointer, i, type), to_write=to_write)
