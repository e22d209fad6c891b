"""Notices: a line on stderr for each kind of mending. In: a kind and a sentence. Out: at most one
line for each kind in a process.
"""

from __future__ import annotations

import sys

from headrace._src.core import source

__all__ = ["notice"]

_said: set[str] = set()


def notice(kind: str, sentence: str, located: bool = True) -> None:
    """Write a sentence about a kind of mending, the first time that this kind occurs. `located`:
    begin with the line of the program that is running.
    """
    if kind in _said:
        return
    _said.add(kind)
    where = ""
    if located:
        where = source.user_line(source.capture(1)).split("   ")[0]
    if sys.stderr is not None:
        print(f"headrace: {where + ': ' if where else ''}{sentence}", file=sys.stderr)
