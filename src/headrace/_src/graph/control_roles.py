"""Control-flow ops: how they treat dead tensors, frames and iterations.

A tensor is *dead* when the branch that would have made it was not taken. An op with a dead input
does not run, and its outputs are dead; the roles below are the exceptions (white paper §4.4).
"""

from __future__ import annotations

import enum

__all__ = ["DEAD", "Flow"]


class Flow(enum.Enum):
    """The role of a control-flow op; other ops have none."""

    SWITCH = "switch"  # passes its data to one of its outputs, the others are dead
    MERGE = "merge"  # runs as soon as one of its inputs is available and not dead
    ENTER = "enter"  # passes its data to the first iteration of a frame, or to all of them
    EXIT = "exit"  # passes its data out of the frame; while it's dead, the loop continues
    NEXT = "next"  # passes its data to the next iteration
    TRIGGER = "trigger"  # runs when all its control inputs are done, dead or not
    SEND = "send"  # sends its data to another device, dead or not
    RECV = "recv"  # passes on what another device has sent, which may be dead


class _Dead:
    """The value of a dead tensor, a singleton."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "DEAD"


DEAD = _Dead()
