"""Meetings of kernels in one step. In: a key, and how many kernels meet. Out: one value for all.

Every kernel brings a part. The last one to come combines the parts, in the order of the names that
the kernels have, and all of them get the result. State: the meetings that are not complete.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace._src.core.errors import InvalidArgumentError
from headrace._src.core.locks import Lock
from headrace._src.devices.pending import Pending

__all__ = ["meet"]


class _Meeting:
    def __init__(self, size: int) -> None:
        self.size = size
        self.parts: dict[str, Any] = {}
        self.waiting: list[Pending] = []


_lock = Lock()
_meetings: dict[tuple[Any, ...], _Meeting] = {}


def meet(
    step: Any,
    key: tuple[Any, ...],
    name: str,
    size: int,
    part: Any,
    combine: Callable[[list[Any]], Any],
) -> Any:
    """Bring a part to a meeting of `size` kernels of a step; return the result or a Pending."""
    place = (step.id, step.path, step.iteration, *key)
    with _lock:
        meeting = _meetings.setdefault(place, _Meeting(size))
        if meeting.size != size:
            raise InvalidArgumentError(
                None, None, f"{key}: members say that there are {meeting.size} and {size} of them"
            )
        if name in meeting.parts:
            raise InvalidArgumentError(None, None, f"{key}: {name or 'a device'} takes part twice")
        meeting.parts[name] = part
        if len(meeting.parts) < size:

            def forget(pending: Pending) -> None:
                _meetings.pop(place, None)

            pending = Pending(lambda: f"{key}: {len(meeting.parts)} of {size} are there", forget)
            meeting.waiting.append(pending)
            return pending
        del _meetings[place]
    try:
        result, error = combine([meeting.parts[each] for each in sorted(meeting.parts)]), None
    except Exception as found:
        result, error = None, found
    for pending in meeting.waiting:
        if pending.claim():
            if error is None:
                pending.complete(result)
            else:
                pending.fail(error)
    if error is not None:
        raise error
    return result
