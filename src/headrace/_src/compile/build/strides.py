"""Strides of a loop's dimensions in memory. In: views and shapes. Out: the distance in memory, in
elements, of one step along each dimension.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace._src.lowering.rules import View, row_major

__all__ = ["broadcast", "collapse", "is_dense", "over", "split"]


def split(strides: tuple[int, ...], block: int) -> tuple[int, ...]:
    """Strides along [N, H, W, C] as strides along [N, C/block, H, W, block]; as they are if 0."""
    if not block:
        return strides
    n, h, w, c = strides
    return (n, c * block, h, w, c)


def broadcast(sizes: tuple[int, ...], to: tuple[int, ...]) -> View:
    front = len(to) - len(sizes)
    strides = [0 if n == 1 else s for n, s in zip(sizes, row_major(sizes), strict=True)]
    return View(to, (0,) * front + tuple(strides))


def is_dense(view: View) -> bool:
    """Return whether a view is contiguous and in order; strides of dimensions of size 1 don't
    count.
    """
    steps = zip(view.strides, row_major(view.shape), view.shape, strict=True)
    return view.offset == 0 and all(s == dense for s, dense, n in steps if n > 1)


def over(inner: View, outer: View, sizes: tuple[int, ...]) -> tuple[tuple[int, ...], int] | None:
    """The strides and offset of `outer`, a view of the row-major copy of `inner`, in `inner`'s own
    memory; None where that isn't affine. Broadcasts (strides of a row-major array, or 0) are.
    """
    if inner.strides == row_major(inner.shape):
        return outer.strides, outer.offset + inner.offset
    dense = {s: d for d, (s, n) in enumerate(zip(row_major(sizes), sizes, strict=True)) if n > 1}
    strides = []
    for extent, stride in zip(outer.shape, outer.strides, strict=True):
        if stride == 0 or extent == 1:
            strides.append(0)
        elif stride in dense and extent <= sizes[dense[stride]]:
            strides.append(inner.strides[dense[stride]])
        else:
            return None
    return (tuple(strides), inner.offset) if outer.offset == 0 else None


def collapse(
    extents: tuple[int, ...], strides: Sequence[tuple[int, ...]]
) -> tuple[tuple[int, ...], list[tuple[int, ...]]]:
    """Merge adjacent dimensions that are contiguous in every operand and drop those of extent 1:
    that gives fewer loops, and more shapes share a kernel.
    """
    dims = [d for d, n in enumerate(extents) if n != 1]
    if not dims:
        return (1,), [(0,) for _ in strides]
    merged: list[list[int]] = []  # [extent, stride of each operand...]
    for d in dims:
        steps = [s[d] for s in strides]
        if merged and all(
            outer == extents[d] * step for outer, step in zip(merged[-1][1:], steps, strict=True)
        ):
            merged[-1] = [merged[-1][0] * extents[d], *steps]
        else:
            merged.append([extents[d], *steps])
    columns = [tuple(m[i + 1] for m in merged) for i in range(len(strides))]
    return tuple(m[0] for m in merged), columns
