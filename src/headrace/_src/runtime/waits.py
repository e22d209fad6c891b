"""What to tell people whose step waits for long. In: what is waited for, by which operations. Out:
one warning.

A step that waits for a queue that nobody fills looks like a program that hangs; the usual reason is
that nobody called tf.train.start_queue_runners.
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
    """Warn that nothing has happened for so long while these (what, op) wait."""
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
