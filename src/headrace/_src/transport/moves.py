"""Addresses that have moved. In: the address of a task in the cluster's specification. Out: where
that task is now.

A task that is started again on another host has another address. The specification keeps the first
one, as the task's name, so that all processes go on agreeing about it; each process that is told of
the move connects to the new one. State: the moves that this process was told of.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["current_address", "set_moves"]

_moves: dict[str, str] = {}


def set_moves(moves: Mapping[str, str]) -> list[str]:
    """Learn where tasks are now, given their addresses in the specification; return those for which
    that is new.
    """
    new = [first for first, now in moves.items() if _moves.get(first) != now]
    _moves.update(moves)
    return new


def current_address(address: str) -> str:
    """Return the address at which the task with this address is now."""
    return _moves.get(address, address)
