"""Reports to users about their steps. In: the findings of a pass. Out: one warning for each."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from weakref import WeakSet

from headrace._src.graph.operation import Operation, made_at
from headrace._src.optimize.races import Race

__all__ = ["report_races"]

_LISTED = 3  # further variables that a warning names
_told: WeakSet[Operation] = WeakSet()  # the writes that were reported


def report_races(races: Sequence[Race], remote: bool = False) -> None:
    """Warn of variables that a step reads and writes in no order, once for each write and once for
    all variables: a step that updates one layer's weights like this does so with all layers'.
    `remote`: tasks of a cluster run the step.
    """
    new = [race for race in races if race.write not in _told]
    if not new:
        return
    _told.update(race.write for race in new)
    (variable, read, write), *others = new
    first = "read" if read._id < write._id else "write"
    order = f"that of the program, in which the {first} comes first"
    if remote:
        order += ", unless one of them has to wait for more tasks"
    logging.getLogger("headrace").warning(
        "variable '%s' is read by '%s' and written by '%s' in one step, and nothing orders the "
        "two. TensorFlow 1.15 takes either order; Headrace takes %s. Use "
        "tf.control_dependencies to choose one.%s%s",
        variable[1],
        read.name,
        write.name,
        order,
        _also([race.variable[1] for race in others]),
        made_at(read, write),
    )


def _also(names: Sequence[str]) -> str:
    """Return a sentence about further variables."""
    if not names:
        return ""
    listed = ", ".join(f"'{name}'" for name in names[:_LISTED])
    more = len(names) - _LISTED
    rest = f" and {more} more" if more > 0 else ""
    return f" The same holds for {listed}{rest}."
