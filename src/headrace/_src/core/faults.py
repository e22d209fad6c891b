"""Faults on purpose. In: named points of the program, and what is to happen there. Out: it happens.

The tests of failures arm a fault in a process of their own: with HEADRACE_FAULTS, such as
"save:kill:2,mid-frame:half:40" (at the second save, die; in the middle of the 40th frame, close all
connections), or with `arm`. At a point of the program stands

    if faults.armed:
        faults.reach("save")

so a process in which nothing is armed only tests a flag.

State: `armed` whether a fault is still due; `_due` by point the faults in their order. A fault
happens once.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import Final

from headrace._src.core.config import settings
from headrace._src.core.locks import Lock

__all__ = ["KINDS", "POINTS", "arm", "armed", "due", "reach", "set_close", "strike"]

POINTS: Final = {
    "mid-frame": "half of a frame has been sent",
    "cluster": "native code of a step is about to run, and its buffers are taken",
    "pending": "a blocked operation has been claimed and not been completed",
    "save": "half of a checkpoint's tensors have been written",
    "restore": "half of a checkpoint's tensors have been read",
    "register": "the partitions of a step are being built",
}
DELAY: Final = 5.0  # seconds


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def _delay() -> None:
    time.sleep(DELAY)


# Transport, which knows the connections of a process, says how they are closed (`set_close`). A
# `half` is a `close` in the middle of a frame.
KINDS: Final = ("kill", "stop", "close", "half", "delay")
_effects: dict[str, Callable[[], None]] = {"kill": _kill, "stop": _stop, "delay": _delay}


def set_close(close: Callable[[], None]) -> None:
    """Say how all connections of this process are closed."""
    _effects["close"] = _effects["half"] = close


armed = False
_lock = Lock()
_due: dict[str, list[tuple[int, str]]] = {}


def arm(text: str) -> None:
    """Arm faults: "point:kind:n", with commas. Each happens when its point is reached for the nth
    time from now; a `close` in the middle of a frame happens before the frame, a `half` after its
    first half.
    """
    global armed
    found: list[tuple[str, int, str]] = []
    for each in filter(None, text.split(",")):
        point, _, rest = each.partition(":")
        kind, _, count = rest.partition(":")
        if point not in POINTS or kind not in KINDS or not count.isdecimal() or not int(count):
            raise ValueError(
                f"a fault is point:kind:n, with a point of {', '.join(POINTS)} and a kind of "
                f"{', '.join(KINDS)}: {each!r}"
            )
        found.append((point, int(count), kind))
    with _lock:
        for point, count, kind in found:
            _due.setdefault(point, []).append((count, kind))
        armed = bool(_due)


def reach(point: str) -> None:
    """This point of the program is reached: if a fault is due here, let it happen."""
    kind = due(point)
    if kind is not None:
        strike(point, kind)


def due(point: str) -> str | None:
    """Count an arrival at a point; return the kind of the fault that is to happen now, if any."""
    global armed
    with _lock:
        waiting = _due.get(point)
        if not waiting:
            return None
        count, kind = waiting[0]
        if count > 1:
            waiting[0] = count - 1, kind
            return None
        del waiting[0]
        if not waiting:
            del _due[point]
            armed = bool(_due)
    return kind


def strike(point: str, kind: str) -> None:
    """Let a fault happen; say so on stderr before it does."""
    os.write(2, f"headrace: fault {point}:{kind} at {time.monotonic():.6f}\n".encode())
    _effects[kind]()


arm(settings().faults)
