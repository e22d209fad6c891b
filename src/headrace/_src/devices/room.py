"""Refuse values that this machine has no room for. In: the sizes that an op's inputs or attributes
ask for. Out: nothing, or MemoryError, which a step raises as ResourceExhaustedError with the op's
name.

A kernel whose output or working memory grows with a value, not with the sizes of its inputs, calls
these checks before it allocates. A successful allocation doesn't mean that the memory exists:
systems grant more than they have, and kill the process when it writes to such memory.

There are two limits, both relative to the most memory that the process could have
(`devices.blocks`). A value whose whole shape the program spells out (Fill, random numbers) may take
all of it. A value whose size is an index, a count or a width among the data may take a quarter of
it, since such a value lives beside its inputs and its consumers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from headrace._src.devices.blocks import memory_limit

__all__ = ["check_room", "check_rows", "check_text", "check_windows", "fits"]

_ALWAYS_FINE = 1 << 26  # bytes up to which asking the system isn't worthwhile
_PART = 4
_ROW = 64  # bytes that the entry of a row takes at least, besides the row's contents
_LONGEST_TEXT = 1 << 20  # characters of one formatted number
_MOST_EMPTY_TAPS = 1 << 20


def check_room(sizes: Sequence[Any], dtype: Any, cause: str, *, spelled: bool = False) -> None:
    """Raise MemoryError if an array of these sizes is too large for this machine.

    cause: the input or attribute that decides the sizes. spelled: whether it is the whole shape.
    """
    size = math.prod(map(int, sizes)) * np.dtype(dtype).itemsize
    if size <= _ALWAYS_FINE:
        return
    limit = memory_limit() // (1 if spelled else _PART)
    if size > limit:
        shape = ",".join(str(int(n)) for n in sizes)
        raise MemoryError(
            f"OOM when allocating tensor with shape[{shape}] and type {np.dtype(dtype).name}: "
            f"{cause} asks for {size:,} bytes, more than the {limit:,} that one value may take on "
            "this machine"
        )


def fits(sizes: Sequence[int], dtype: Any) -> bool:
    """Return whether an array of these sizes passes `check_room`, spelled or not."""
    size = math.prod(sizes) * np.dtype(dtype).itemsize
    return size <= _ALWAYS_FINE or size <= memory_limit() // _PART


def check_rows(count: Any, cause: str) -> None:
    """Raise MemoryError if this machine has no room for a list of `count` rows."""
    if count > _ALWAYS_FINE // _ROW:
        limit = memory_limit() // (_PART * _ROW)
        if count > limit:
            raise MemoryError(
                f"OOM when allocating a list: {cause} asks for {int(count):,} rows, more than the "
                f"{limit:,} that there is room for on this machine"
            )


def check_text(width: int, cause: str) -> None:
    """Raise MemoryError if one number would take absurdly many characters."""
    if width > _LONGEST_TEXT:
        raise MemoryError(
            f"{cause} asks for texts of {width:,} characters: more than the {_LONGEST_TEXT:,} that "
            "one number may take"
        )


def check_windows(windows: Sequence[int], sizes: Sequence[int], cause: str) -> None:
    """Raise MemoryError if windows have an absurd number of elements, nearly all of them outside
    the data: a kernel would spend its time on padding.
    """
    taps = math.prod(windows)
    if taps >= _MOST_EMPTY_TAPS and any(w > 2 * n for w, n in zip(windows, sizes, strict=True)):
        window, size = (",".join(map(str, ns)) for ns in (windows, sizes))
        raise MemoryError(
            f"{cause} asks for windows of [{window}] = {taps:,} elements over data of only "
            f"[{size}]: nearly all of that would be padding"
        )
