"""Cancellation: how a step that runs long is stopped. In: an error, from any thread. Out: the step
raises it at its next look.

Kernels that run long (loops, compiled clusters) look at the cancellation of the step that is
current in their thread (devices.step_context); native code looks at its `word`, which is not 0 once
it was cancelled.

They also look for Ctrl-C. Up to Python 3.12 the main thread doesn't see a signal that the system
gave to another thread of the process (one of OpenBLAS's or OpenMP's, say), as long as it neither
asks nor lets go of the GIL: and what computes with scalars in Python does neither.
"""

from __future__ import annotations

import ctypes

import numpy as np

__all__ = ["Cancellation"]


_look_at_signals = ctypes.pythonapi.PyErr_CheckSignals


class Cancellation:
    """A request to stop that has been made, or not; there is no way back."""

    def __init__(self) -> None:
        self.word = np.zeros(1, np.int64)
        self.error: BaseException | None = None

    def cancel(self, error: BaseException) -> None:
        """Ask to stop with an error; the first one counts."""
        self.error = self.error or error
        self.word[0] = 1

    def check(self) -> None:
        """Raise the error if there is one, or KeyboardInterrupt."""
        _look_at_signals()
        if self.error is not None:
            raise self.error
