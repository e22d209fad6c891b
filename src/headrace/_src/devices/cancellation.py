"""Cancellation: the request to stop a running step. In: an error, from any thread. Out: the step
raises it at its next check.

Kernels that run long (loops, compiled clusters) check the cancellation of the step that is current
in their thread (devices.step_context). Native code checks its `word`, which is not 0 after a
cancellation.

They also check for Ctrl-C. Up to Python 3.12 the main thread doesn't see a signal that the system
delivered to another thread of the process (one of OpenBLAS's or OpenMP's, say), as long as it
neither checks nor releases the GIL. Computing with scalars in Python does neither.
"""

from __future__ import annotations

import ctypes

import numpy as np

__all__ = ["Cancellation"]


_look_at_signals = ctypes.pythonapi.PyErr_CheckSignals


class Cancellation:
    """Whether a step has been asked to stop. The request can't be withdrawn."""

    def __init__(self) -> None:
        self.word = np.zeros(1, np.int64)
        self.error: BaseException | None = None

    def cancel(self, error: BaseException) -> None:
        """Request the step to stop with an error; the first one counts."""
        self.error = self.error or error
        self.word[0] = 1

    def check(self) -> None:
        """Raise the error if there is one, or KeyboardInterrupt after Ctrl-C."""
        _look_at_signals()
        if self.error is not None:
            raise self.error
