"""Load GNU OpenMP's runtime, whose threads oneDNN uses. In: settings. Out: the library, and the
number of threads.

The library is loaded at the first use, never at import, with a limit on how long its waiting
threads spin. Compiled clusters have as many helpers of their own
(`compile/run/helper_threads.py`), which sleep while oneDNN works. A cluster doesn't wait for a
helper that the system hasn't scheduled, but an OpenMP team waits for each of its threads.

State: `_threads`, the number requested before the first use; `_forked`, whether this process is
the child of one that had loaded the library. Invariant: such a child never enters a parallel
region: libgomp's threads do not survive the fork, and the child would wait for them forever.
"""

import contextlib
import ctypes
import os
from collections.abc import Iterator

from headrace._src.core.config import settings
from headrace._src.core.once import once
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

# Waiting threads of GNU OpenMP spin before they sleep. By default they spin so long that two busy
# processes on one machine slow each other down by an order of magnitude: a spinning thread occupies
# the core that the thread it waits for needs. 1,000 rounds bridge the gap between two kernels as
# well as 5,000 do. Measured with clusters on OpenMP's threads, beside one busy process: a step of
# the MLP of bench/training.py takes 2.3 times as long, and 3.2 times with 5,000 rounds.
_SPIN_COUNT = "1000"
_NAME = "libgomp.so.1"

_threads: int | None = None
_loaded = False
_forked = False


@contextlib.contextmanager
def environment() -> Iterator[None]:
    """Limit spinning while libgomp loads and reads its variables, unless the user has set them."""
    # These variables are libgomp's own, not ours, so they are not among core's settings.
    if "GOMP_SPINCOUNT" in os.environ or "OMP_WAIT_POLICY" in os.environ:
        yield
        return
    os.environ["GOMP_SPINCOUNT"] = _SPIN_COUNT
    try:
        yield
    finally:
        del os.environ["GOMP_SPINCOUNT"]


@once
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
    """Return the loaded library; None if there is none or it must no longer be used."""
    outcome = _load()
    return None if _forked or isinstance(outcome, str) else outcome


def why_not() -> str | None:
    """Return None if this process can use teams of threads, else the reason in one line."""
    if _forked:
        return "OpenMP was loaded before this process was forked, and its threads are lost"
    outcome = _load()
    return outcome if isinstance(outcome, str) else None


def request_threads(count: int) -> None:
    """Let kernels use `count` threads. Only the first request counts, and only before the first
    use, because kernels and primitives have memory for the number of threads at their creation.
    """
    global _threads
    if not _loaded and _threads is None:
        _threads = count


def thread_count() -> int:
    """Return how many threads a kernel may use: HEADRACE_NUM_THREADS, else the requested number,
    else as many as OMP_NUM_THREADS allows of the cores that this process may use.
    """
    openmp = library()
    if openmp is None:
        return 1
    asked = settings().num_threads or _threads
    return asked or max(1, min(openmp.omp_get_max_threads(), host().cores))


def is_passive() -> bool:
    """Return whether the user wants waiting threads to sleep at once."""
    return os.environ.get("OMP_WAIT_POLICY", "").strip().lower() == "passive"


def forked() -> bool:
    """Return whether this process is a fork of one that used OpenMP, and so has a team of one."""
    return _forked


def _after_fork_in_child() -> None:
    global _forked
    _forked = _forked or _loaded


os.register_at_fork(after_in_child=_after_fork_in_child)
