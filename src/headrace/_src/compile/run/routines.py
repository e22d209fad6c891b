"""Native routines for interpreted operations that no lowering rule covers (see lowering.generated).
In: settings. Out: a function on arrays. `ROUTINES` has them by name.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from headrace._src.compile.codegen.kernel_spec import Kernel, meetings_of
from headrace._src.compile.kernels.singles.byte_strings import StringNumbers
from headrace._src.compile.kernels.singles.ctc_beam import CtcBeamSearch, beam_memory
from headrace._src.compile.kernels.singles.ctc_loss import CtcLoss, row_size, work_rows
from headrace._src.compile.kernels.singles.softmax_rows import SoftmaxOfAny
from headrace._src.compile.native import machine_code
from headrace._src.compile.run.text_routines import (
    BYTES_AT,
    SIZE_AT,
    TEXT_ROUTINES,
    TYPE_AT,
    knows_bytes,
)
from headrace._src.devices import openmp
from headrace._src.devices.buffers import address, empty_aligned
from headrace._src.devices.target import host

__all__ = ["ROUTINES"]


_SMALL = 1 << 18  # operations: one thread does fewer in less time than a team needs to start


def _team(spec: Kernel) -> Callable[..., None]:
    """Return the function that runs a kernel on contiguous arrays, by one thread if it's little."""
    (function,) = machine_code.addresses([spec])
    alone = ctypes.CFUNCTYPE(None, *machine_code.KERNEL_TYPES)(function)
    none = (ctypes.c_uint64 * 1)()  # neither scratch nor counters
    assert not spec.counters and not meetings_of(spec)

    def run(work: int, *arrays: np.ndarray) -> None:
        rest = ctypes.addressof(none)
        pointers = [*map(address, arrays), rest, rest]
        if work >= _SMALL:
            machine_code.run_team(function, pointers)
            return
        table = (ctypes.c_uint64 * len(pointers))(*pointers)
        alone(ctypes.addressof(table), 0, 1, 0)

    return run


def ctc_loss(dtype: str, merge: bool) -> Callable[..., Any]:
    """The function of logits [time, batch, classes], all labels, how many each sequence has, and
    the sequences' lengths, that gives losses and gradients.
    """
    run = _team(CtcLoss(dtype, merge))

    def call(
        logits: np.ndarray, labels: np.ndarray, counts: np.ndarray, lengths: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        steps, batch, classes = logits.shape
        row = row_size(int(counts.max(initial=0)))
        starts = np.zeros(batch + 1, np.int64)
        np.cumsum(counts, out=starts[1:])
        work = empty_aligned((openmp.thread_count() * work_rows(steps) * row,), np.float64)
        loss = np.empty(batch, logits.dtype)
        gradient = empty_aligned(logits.shape, logits.dtype)
        run(
            steps * batch * (classes + 4 * row),
            np.array([steps, batch, classes, row]),
            np.ascontiguousarray(logits),
            np.ascontiguousarray(labels, np.int32),
            starts,
            np.ascontiguousarray(lengths, np.int64),
            work,
            loss,
            gradient,
        )
        return loss, gradient

    return call


def ctc_beam_search(dtype: str) -> Callable[..., Any]:
    """The function of logits [time, batch, classes], the sequences' lengths, how wide the beam is
    and how many paths are wanted. It gives labels [batch, paths, time], how many of them count
    [batch, paths] (-1 where there are fewer paths), and log probabilities.
    """
    run = _team(CtcBeamSearch(dtype))

    def call(
        logits: np.ndarray, lengths: np.ndarray, width: int, paths: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        steps, batch, classes = logits.shape
        areas, memory = beam_memory(steps, classes, width, paths)
        labels = np.empty((batch, paths, steps), np.int64)
        counts = np.empty((batch, paths), np.int64)
        scores = np.empty((batch, paths), logits.dtype)
        run(
            batch and steps * (batch - 1) * classes * width,
            np.array([steps, batch, classes, width, paths, *areas, memory]),
            np.ascontiguousarray(logits),
            np.ascontiguousarray(lengths, np.int64),
            np.empty(openmp.thread_count() * memory, np.int64),
            labels,
            counts,
            scores,
        )
        return labels, counts, scores

    return call


def softmax(dtype: str) -> Callable[..., Any]:
    """The function of a contiguous array that gives its softmax along the last axis; None where the
    rows are too short for it.
    """
    run = _team(SoftmaxOfAny(dtype))
    least = host().lanes(dtype)

    def call(x: np.ndarray) -> np.ndarray | None:
        columns = x.shape[-1]
        if columns < least:
            return None
        y = empty_aligned(x.shape, x.dtype)
        run(x.size, np.array([x.size // columns, columns]), x, y)
        return y

    return call


def string_numbers(function: str) -> Callable[..., Any] | None:
    """The function of an array of strings, a number of buckets (0: none) and a key of two integers,
    that gives a number for each string: "size", "characters", the hashes "farm", "murmur" and "sip"
    (all int64), or what it says: "integer", "float32", "float64". None where one of the strings
    isn't `bytes`, or isn't as simple a number as most are.
    """
    if not knows_bytes():
        return None
    spec = StringNumbers(function, TYPE_AT, SIZE_AT, BYTES_AT)
    (place,) = machine_code.addresses([spec])
    # Not CFUNCTYPE, which releases the GIL: other threads might free a string.
    kernel = ctypes.PYFUNCTYPE(None, *machine_code.KERNEL_TYPES)(place)
    dtype = np.dtype(function if function.startswith("float") else np.int64)

    def call(
        strings: np.ndarray, buckets: int = 0, key: Sequence[int] = (0, 0)
    ) -> np.ndarray | None:
        count = strings.size
        result, done = np.empty(strings.shape, dtype), ctypes.c_int64()
        sizes = (ctypes.c_uint64 * 5)(count, id(bytes), buckets, *(k % 2**64 for k in key))
        texts = np.ascontiguousarray(strings)
        table = (ctypes.c_uint64 * 6)(
            ctypes.addressof(sizes), address(texts), address(result), ctypes.addressof(done)
        )
        kernel(ctypes.addressof(table), 0, 1, 0)
        return result if done.value == count else None

    return call


ROUTINES: dict[str, Callable[..., Any]] = {
    "ctc_beam_search": ctc_beam_search,
    "ctc_loss": ctc_loss,
    "softmax": softmax,
    "string_numbers": string_numbers,
    **TEXT_ROUTINES,
}
