"""Native routines for interpreted operations (see lowering.generated). In: a name and settings.
Out: a function on arrays. Those of anchors are `routine` in the files of their kernels.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from headrace._src.compile.kernels.singles.byte_strings import StringNumbers
from headrace._src.compile.kernels.singles.ctc_beam import CtcBeamSearch, beam_memory
from headrace._src.compile.kernels.singles.ctc_loss import CtcLoss, row_size, work_rows
from headrace._src.compile.native import machine_code
from headrace._src.compile.native.array_runners import team_runner
from headrace._src.compile.run.row_routines import ROW_ROUTINES
from headrace._src.compile.run.text_routines import (
    BYTES_AT,
    SIZE_AT,
    TEXT_ROUTINES,
    TYPE_AT,
    knows_bytes,
)
from headrace._src.devices import openmp
from headrace._src.devices.buffers import address, empty_aligned

__all__ = ["routine"]


def ctc_loss(dtype: str, merge: bool) -> Callable[..., Any]:
    """The function of logits [time, batch, classes], all labels, how many each sequence has, and
    the sequences' lengths, that gives losses and gradients.
    """
    run = team_runner(CtcLoss(dtype, merge))

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
    run = team_runner(CtcBeamSearch(dtype))

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


# The kernels of anchors, by the names of their files, which are loaded when they are asked for.
_ANCHORS = {"random": "random_numbers", "softmax": "softmax_rows"}

_ROUTINES: dict[str, Callable[..., Any]] = {
    "ctc_beam_search": ctc_beam_search,
    "ctc_loss": ctc_loss,
    "string_numbers": string_numbers,
    **ROW_ROUTINES,
    **TEXT_ROUTINES,
}


def routine(name: str) -> Callable[..., Any]:
    """Return the function that makes a routine from its settings."""
    if name in _ANCHORS:
        return import_module(f"headrace._src.compile.kernels.singles.{_ANCHORS[name]}").routine
    return _ROUTINES[name]
