"""Signals that stop a launch: the tasks are stopped first, and a second signal kills them."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType

__all__ = ["caught_signals"]

_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def caught_signals() -> Iterator[list[int]]:
    """Give the signals that come to a list instead of to their handlers."""
    found: list[int] = []

    def caught(number: int, frame: FrameType | None) -> None:
        found.append(number)

    before = {number: signal.signal(number, caught) for number in _STOP_SIGNALS}
    try:
        yield found
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
