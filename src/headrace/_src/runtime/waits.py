"""Warn about a step that has been blocked for long. In: the blocked operations, each with what it
waits for. Out: one warning.

A step that waits for a queue that is never filled looks like a program that hangs. The usual reason
is that the program did not call tf.train.start_queue_runners.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from headrace._src.core import source
from headrace._src.graph.dataflow import origin_of
from headrace._src.graph.keys import GraphKeys

__all__ = ["report_quiet"]

_SHOWN = 3


def report_quiet(waiting: Sequence[tuple[str, Any]], seconds: float) -> None:
    """Warn that a step has been idle for `seconds`; each `op` in `waiting` waits for `what`."""
    lines = [f"a step has waited for {seconds:g} s:"]
    for what, op in waiting[:_SHOWN]:
        op = origin_of(op)
        where = source.user_line(op.traceback_frames)
        lines.append(f"  {op.type} '{op.name}'{f' made at {where}' if where else ''} for {what}")
    if len(waiting) > _SHOWN:
        lines.append(f"  and {len(waiting) - _SHOWN} more")
    graph = origin_of(waiting[0][1]).graph
    if graph.get_collection(GraphKeys.QUEUE_RUNNERS) and not graph.queue_runners_started:
        lines.append(
            "  The graph has queue runners that were never started: call "
            "tf.train.start_queue_runners(sess) before the first step."
        )
    logging.getLogger("headrace").warning("\n".join(lines))
