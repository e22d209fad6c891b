"""Kernels of their own, for operations that are interpreted (see devices.generated). In: settings.
Out: a function on arrays. `ROUTINES` has them by name.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from headrace.compile import native
from headrace.compile.kernel import Kernel
from headrace.compile.kernels.ctc import CtcLoss, row_size, work_rows
from headrace.devices import openmp
from headrace.devices.buffers import address, empty_aligned

__all__ = ["ROUTINES"]


def _team(spec: Kernel) -> Callable[..., None]:
    """The function that runs a kernel on contiguous arrays with all threads."""
    (function,) = native.addresses([spec])
    none = (ctypes.c_uint64 * 1)()  # neither scratch nor counters
    assert not spec.counters

    def run(*arrays: np.ndarray) -> None:
        rest = ctypes.addressof(none)
        native.run_team(function, [*map(address, arrays), rest, rest])

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


ROUTINES: dict[str, Callable[..., Any]] = {"ctc_loss": ctc_loss}
