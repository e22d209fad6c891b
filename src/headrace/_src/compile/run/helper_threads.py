"""The pool of helper threads, which join the thread that runs a step. In: the number of threads.
Out: the pool's words.

All clusters share the helpers (see `team`). Helpers are made when a cluster first needs them,
inherit the affinity of the thread that made them, and live as long as the process, asleep when
there is no work. No step depends on them: where the system gives no threads, or in a forked child,
the step's own thread does all shares.

State: `_words`, which helpers read as long as they live, and `_helpers`, the words of each, under
`_lock`.
"""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import time

import numpy as np

from headrace._src.compile.native import machine_code
from headrace._src.compile.run.header_words import LINE, TICKS, HelperWord, PoolWord
from headrace._src.compile.run.team_functions import helper_text
from headrace._src.core.locks import Lock
from headrace._src.devices import openmp
from headrace._src.devices.buffers import address, empty_aligned
from headrace._src.devices.target import host

__all__ = ["helpers_for", "spin_between_phases", "wait_until_left"]

_log = logging.getLogger("headrace")
_lock = Lock()
_helpers: list[np.ndarray] = []
# Microseconds for which threads look for work before they sleep: from one phase to the next, from
# one step to the next. The MLP of bench/training.py, whose steps take 0.8 ms, is 3 % slower if its
# helper sleeps between steps. Beside a busy process the opposite holds: a helper that always spins
# costs 15 % there, so a helper that has spun in vain spins for a shorter time for a while.
_PHASES, _STEPS = 20, 100
# Signals that a thread raises by its own faults; the helpers block all others.
_OWN_SIGNALS = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL}


def _immortal(words: int) -> np.ndarray:
    """Zeroed words that are never freed: helpers read them while the interpreter ends."""
    made = empty_aligned((words,), np.int64)
    made[:] = 0
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(made))
    return made


_words = _immortal(PoolWord.SIZE)


def spin_between_phases(threads: int) -> int:
    """Return for how many ticks of the clock a thread of a team spins before the next phase."""
    return _ticks(_PHASES, threads)


def spin_between_steps(threads: int) -> int:
    """Return for how many ticks a helper spins before the next step."""
    return _ticks(_STEPS, threads)


def _ticks(microseconds: float, threads: int) -> int:
    """Return the ticks of some microseconds; 0 where threads must not spin: if there are more
    threads than cores, a spinning thread keeps a working one from running.
    """
    return 0 if openmp.is_passive() or threads > host().cores else int(TICKS * microseconds / 2e5)


def helpers_for(threads: int) -> int:
    """Start as many helpers as a team of this many threads can use; return the address of the
    pool's words.
    """
    with _lock:
        while len(_helpers) < threads - 1:
            own = _immortal(LINE)
            own[HelperWord.NUMBER] = len(_helpers) + 1
            own[HelperWord.POOL] = address(_words)
            own[HelperWord.SPIN] = spin_between_steps(threads)
            code = _start(own)
            if code:
                _log.warning("a team has one thread less: %s", os.strerror(code))
                break
            _helpers.append(own)
    return address(_words)


def _start(own: np.ndarray) -> int:
    """Start a helper; return 0, or the system's error number."""
    (function,) = machine_code.link({"helper": lambda symbol: helper_text(symbol, host())})
    library, thread = ctypes.CDLL(None), ctypes.c_ulong()
    # Signals are for Python's own threads.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - _OWN_SIGNALS)
    try:
        code = library.pthread_create(
            ctypes.byref(thread), None, ctypes.c_void_p(function), ctypes.c_void_p(address(own))
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    if not code:
        library.pthread_detach(thread)
    return code


def wait_until_left(header: int) -> None:
    """Wait until no helper looks at an instance whose run has ended: a helper that was suspended
    may not have seen the end yet.
    """
    while any(own[HelperWord.INSIDE] == header for own in _helpers):
        time.sleep(0.0002)


def _after_fork_in_child() -> None:
    """Reset the pool: a forked child has no helpers, and nothing that they could look at."""
    global _lock
    _lock = Lock()
    _helpers.clear()
    _words[:] = 0


os.register_at_fork(after_in_child=_after_fork_in_child)
