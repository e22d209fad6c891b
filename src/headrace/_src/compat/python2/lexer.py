"""The tokens of Python 2 and 3. In: text. Out: tokens whose texts, joined, are the text again.

Python's own tokenizer refuses what only Python 2 has (0777, 10L, backticks, <>).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["BLANK", "Token", "tokens"]

_STRING = r"[bBuU]?[rR]?|[rR][bB]|[fF][rR]?|[rR][fF]"
_PATTERN = re.compile(
    rf"""
    (?P<string>(?:{_STRING})(?:
        \"\"\"(?:\\.|[^\\])*?\"\"\" | '''(?:\\.|[^\\])*?'''
        | "(?:\\.|[^\\"\n])*" | '(?:\\.|[^\\'\n])*'))
    | (?P<comment>\#[^\n]*)
    | (?P<newline>\n)
    | (?P<space>(?:[ \t\f\r]|\\\r?\n)+)
    | (?P<number>0[xX][0-9a-fA-F_]+[lL]?|0[bB][01_]+[lL]?|0[oO][0-7_]+[lL]?
        |(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[jJlL]?)
    | (?P<name>[^\W\d]\w*)
    | (?P<op><>|\*\*=|//=|>>=|<<=|\.\.\.|[-+*/%&|^=<>!:@]=|\*\*|//|>>|<<|->|.)
    """,
    re.VERBOSE | re.DOTALL,
)
BLANK = ("space", "comment")


@dataclass(slots=True)
class Token:
    """A piece of a source text. depth: the number of brackets that are open before it."""

    kind: str
    text: str
    depth: int = 0


def tokens(text: str) -> list[Token]:
    """Return the tokens of a text. A newline inside brackets is a space."""
    found = []
    depth = 0
    for match in _PATTERN.finditer(text):
        kind, piece = match.lastgroup or "op", match.group()
        if kind == "op" and piece in ")]}":
            depth = max(0, depth - 1)
        if kind == "newline" and depth:
            kind = "space"
        found.append(Token(kind, piece, depth))
        if kind == "op" and piece in "([{":
            depth += 1
    return found
