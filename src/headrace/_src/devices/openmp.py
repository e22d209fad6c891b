"""GNU OpenMP's runtime: oneDNN's threads. In: settings. Out: the library, how many threads.

It's loaded at the first use, never at import, with a limit on how long its waiting threads spin.
Compiled clusters have helpers of their own (`compile/run/helper_threads.py`), as many as OpenMP may
have, which sleep while oneDNN works: nobody waits for a helper that the system doesn't let run, but
all wait for such a thread of OpenMP's.

State: `_threads`, the number asked for before the first use; `_forked`, whether this process is
the child of one that had loaded the library. Invariant: such a child never enters a parallel
region: libgomp's threads do not survive the fork, and the child would wait for them forever.
"""

import contextlib
import ctypes
import os
from collections.abc import Iterator
from functools import cache

from headrace._src.core.config import settings
from headrace._src.devices.target import host

__all__ = [
    "environment",
    "forked",
    "is_passive",
    "library",
    "request_threads",
    "thread_count",
    "why_not",
]

# Waiting threads of GNU OpenMP spin before they sleep. Its default spins so long that two busy
# processes on one machine slow each other down by an order of magnitude: a thread that spins keeps
# the system from running the one that it waits for in its place. 1,000 rounds bridge the gap
# between two kernels as 5,000 do. When clusters ran on OpenMP's threads, a step of the MLP of
# bench/training.py took 2.3 times as long beside one busy process, and 3.2 times with 5,000 rounds.
_SPIN_COUNT = "1000"
_NAME = "libgomp.so.1"

_threads: int | None = None
_loaded = False
_forked = False


@contextlib.contextmanager
def environment() -> Iterator[None]:
    """Limit spinning while libgomp loads (it reads its variables then), unless the user chose."""
    # These variables are libgomp's own, not ours: core's settings do not know them.
    if "GOMP_SPINCOUNT" in os.environ or "OMP_WAIT_POLICY" in os.environ:
        yield
        return
    os.environ["GOMP_SPINCOUNT"] = _SPIN_COUNT
    try:
        yield
    finally:
        del os.environ["GOMP_SPINCOUNT"]


@cache
def _load() -> ctypes.CDLL | str:
    global _loaded
    with environment():
        try:
            library = ctypes.CDLL(_NAME, mode=ctypes.RTLD_GLOBAL)
        except OSError as error:
            return f"{_NAME} cannot be loaded: {error}"
    _loaded = True
    return library


def library() -> ctypes.CDLL | None:
    """The loaded library; None where there is none, or where it must not be used any more."""
    outcome = _load()
    return None if _forked or isinstance(outcome, str) else outcome


def why_not() -> str | None:
    """None when teams of threads can be used in this process, else the reason in one line."""
    if _forked:
        return "OpenMP was loaded before this process was forked, and cannot follow"
    outcome = _load()
    return outcome if isinstance(outcome, str) else None


def request_threads(count: int) -> None:
    """Let kernels use `count` threads. The first request before the first use counts: kernels and
    primitives keep memory for as many threads as there were when they were made.
    """
    global _threads
    if not _loaded and _threads is None:
        _threads = count


def thread_count() -> int:
    """How many threads a kernel may use: HEADRACE_NUM_THREADS, or what was requested, or as many as
    OMP_NUM_THREADS allows of the cores that this process may use.
    """
    openmp = library()
    if openmp is None:
        return 1
    asked = settings().num_threads or _threads
    return asked or max(1, min(openmp.omp_get_max_threads(), host().cores))


def is_passive() -> bool:
    """Whether the user wants waiting threads to sleep at once."""
    return os.environ.get("OMP_WAIT_POLICY", "").strip().lower() == "passive"


def forked() -> bool:
    """Whether this process is a fork of one that used OpenMP: it has a team of one."""
    return _forked


def _after_fork_in_child() -> None:
    global _forked
    _forked = _forked or _loaded


os.register_at_fork(after_in_child=_after_fork_in_child)
