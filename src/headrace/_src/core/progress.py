"""Show the progress of long work. In: work that is announced and counted. Out: a line on the
terminal.

Work that ends within `PATIENCE` seconds shows nothing. A terminal shows a bar, which is erased at
the end; elsewhere, if HEADRACE_PROGRESS asks for it, a line appears every few seconds. Nested
counts are part of the outer count and aren't shown.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from headrace._src.core.config import settings

__all__ = ["PATIENCE", "announced", "counted"]

PATIENCE = 3.0  # seconds

Item = TypeVar("Item")
_current = threading.local()


@contextmanager
def announced(what: str) -> Iterator[None]:
    """Show the progress of the with-block if it takes long. Only the outermost block counts."""
    wanted = settings().progress
    shown = wanted == "on" or (wanted == "auto" and _is_terminal())
    if not shown or getattr(_current, "work", None) is not None:
        yield
        return
    work = _Work(what)
    _current.work = work
    try:
        yield
    finally:
        _current.work = None
        work.end()


def counted(phase: str, items: Sequence[Item]) -> Iterator[Item]:
    """Yield the items; the announced work of this thread shows how many are done."""
    work: _Work | None = getattr(_current, "work", None)
    if work is None or work.phase:
        yield from items
        return
    try:
        for number, item in enumerate(items):
            work.reach(phase, number, len(items))
            yield item
    finally:
        work.phase = ""


def _is_terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()


class _Work:
    """Announced work: its current phase and its start time. A thread shows the work once it has
    taken long; `_lock` guards the fields that the thread reads.
    """

    def __init__(self, what: str) -> None:
        self.phase = ""
        self._what = what
        self._done, self._total = 0, 0
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="headrace-progress", daemon=True)
        self._thread.start()

    def reach(self, phase: str, done: int, total: int) -> None:
        with self._lock:
            self.phase, self._done, self._total = phase, done, total

    def end(self) -> None:
        self._over.set()
        self._thread.join()

    def _state(self) -> tuple[str, int, int]:
        with self._lock:
            text = f"{self._what}: {self.phase}" if self.phase else self._what
            return text, self._done, self._total

    def _watch(self) -> None:
        if self._over.wait(PATIENCE):
            return
        if _is_terminal():
            self._show_bar()
        else:
            self._show_lines()

    def _show_bar(self) -> None:
        from rich.console import Console  # loaded here: few programs ever need it
        from rich.progress import Progress, TimeElapsedColumn  # likewise

        columns: Any = (*Progress.get_default_columns()[:-1], TimeElapsedColumn())
        console = Console(stderr=True)
        with Progress(*columns, console=console, transient=True) as bar:
            task = bar.add_task(self._what, total=None)
            while True:
                text, done, total = self._state()
                bar.update(task, description=text, completed=done, total=total or None)
                if self._over.wait(0.1):
                    return

    def _show_lines(self) -> None:
        while True:
            text, done, total = self._state()
            count = f" {done} of {total}" if total else ""
            seconds = time.monotonic() - self._began
            print(f"headrace: {text}{count} ({seconds:.0f} s)", file=sys.stderr, flush=True)
            if self._over.wait(PATIENCE):
                return
