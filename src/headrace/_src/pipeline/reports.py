"""Reports to users about their steps. In: the findings of a pass. Out: one warning for each."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from weakref import WeakSet

from headrace._src.graph.operation import Operation, made_at
from headrace._src.optimize.races import Race

__all__ = ["report_races"]

_told: WeakSet[Operation] = WeakSet()  # the writes that were reported


def report_races(races: Sequence[Race], remote: bool = False) -> None:
    """Warn of variables that a step reads and writes in no order, once for each write. `remote`:
    tasks of a cluster run the step.
    """
    for variable, read, write in races:
        if write in _told:
            continue
        _told.add(write)
        first = "read" if read._id < write._id else "write"
        order = f"that of the program, in which the {first} comes first"
        if remote:
            order += ", unless one of them has to wait for more tasks"
        logging.getLogger("headrace").warning(
            "variable '%s' is read by '%s' and written by '%s' in one step, and nothing orders the "
            "two. TensorFlow 1.15 takes either order; Headrace takes %s. Use "
            "tf.control_dependencies to choose one.%s",
            variable[1],
            read.name,
            write.name,
            order,
            made_at(read, write),
        )
