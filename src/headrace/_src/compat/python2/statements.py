"""Translate the grammar of Python 2. In: text that Python 3 does not parse. Out: text with the same
lines in which the statements that changed are Python 3's.

Each rule edits the texts of tokens in place. A rule that does not recognise a statement leaves it:
Python 3 then reports its own error. `Translation.unpacked` has the tuples among parameters, which
are replaced in the syntax tree: `def f(a, (b, c))` becomes `def f(a, _headrace_tuple_0)`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from headrace._src.compat.python2.lexer import BLANK, Token, tokens

__all__ = ["Translation", "translate"]

_BLOCKS = frozenset(
    ["if", "elif", "else", "while", "for", "try", "except", "finally", "with", "def", "class"]
)
_ASSIGNS = frozenset(["=", ".", "+=", "-=", "*=", "/=", ",", ":"])


@dataclass
class Translation:
    """A translated text, and what was changed.

    kinds: names of the changes; "async" and "tabs" also occur in Python 3 sources of their time.
    unpacked: a parameter's name -> the tuple of parameters that it stands for.
    """

    text: str
    kinds: set[str] = field(default_factory=set)
    unpacked: dict[str, str] = field(default_factory=dict)

    @property
    def is_python2(self) -> bool:
        """Whether only Python 2 could run the text."""
        return bool(self.kinds - {"async", "tabs"})


def translate(text: str) -> Translation:
    """Translate a Python 2 source."""
    found = Translation(text)
    pieces = tokens(text)
    _literals(pieces, found)
    _indentation(pieces, found)
    functions = "print_function" in text
    for start, end in list(_statements(pieces)):
        word = pieces[start].text
        if word == "print" and not functions:
            _print(pieces, start, end, found)
        elif word == "exec":
            _exec(pieces, start, end, found)
        elif word == "raise":
            _raise(pieces, start, end, found)
        elif word == "except":
            _except(pieces, start, end, found)
    _parameters(pieces, found)
    found.text = "".join(piece.text for piece in pieces)
    return found


# -- Finding ---------------------------------------------------------------------------------------


def _statements(pieces: list[Token]) -> Iterator[tuple[int, int]]:
    """Yield the first token of each simple statement or header of a block, and its end."""
    start, block, lambdas = None, False, 0
    for i, piece in enumerate(pieces):
        if piece.kind in BLANK:
            continue
        ends = piece.kind == "newline" or (piece.text == ";" and not piece.depth)
        if piece.text == ":" and not piece.depth and block and start is not None:
            if lambdas:
                lambdas -= 1
            else:
                ends = True
        if ends:
            if start is not None:
                yield start, _trimmed(pieces, start, i)
            start, block, lambdas = None, False, 0
            continue
        if start is None:
            start, block = i, piece.text in _BLOCKS
        if piece.text == "lambda" and not piece.depth:
            lambdas += 1
    if start is not None:
        yield start, _trimmed(pieces, start, len(pieces))


def _trimmed(pieces: list[Token], start: int, end: int) -> int:
    while end > start + 1 and pieces[end - 1].kind in BLANK:
        end -= 1
    return end


def _following(pieces: list[Token], i: int, end: int) -> int:
    """The next token that is no space, or `end`."""
    i += 1
    while i < end and pieces[i].kind in BLANK:
        i += 1
    return i


def _commas(pieces: list[Token], start: int, end: int) -> list[int]:
    depth = pieces[start].depth
    return [i for i in range(start, end) if pieces[i].text == "," and pieces[i].depth == depth]


def _close(pieces: list[Token], start: int, end: int) -> int:
    """The bracket that closes the one at `start`."""
    depth = pieces[start].depth
    closes = (i for i in range(start + 1, end) if pieces[i].depth == depth)
    return next((i for i in closes if pieces[i].text in ")]}"), end)


# -- Rules -----------------------------------------------------------------------------------------


def _literals(pieces: list[Token], found: Translation) -> None:
    ticks = 0
    for i, piece in enumerate(pieces):
        text = piece.text
        if piece.kind == "number":
            if text[-1] in "lL":
                piece.text = text = text[:-1]
                found.kinds.add("long integers")
            if re.fullmatch(r"0[0-7]+", text) and text.strip("0"):
                piece.text = f"0o{text[1:]}"
                found.kinds.add("octal literals")
        elif piece.kind == "string" and text[:2].lower() == "ur":
            piece.text = text[1:]
            found.kinds.add("ur'' strings")
        elif text == "<>":
            piece.text = "!="
            found.kinds.add("<>")
        elif text == "`":
            piece.text = ")" if ticks % 2 else "repr("
            ticks += 1
            found.kinds.add("backticks")
        elif text == "async":
            after = _following(pieces, i, len(pieces))
            if after == len(pieces) or pieces[after].text not in ("def", "for", "with"):
                piece.text = "async_"
                found.kinds.add("async")


def _indentation(pieces: list[Token], found: Translation) -> None:
    """Replace tabs by spaces, eight columns each, if a line's indentation has both."""
    fresh = True
    mixed: list[tuple[Token, str]] = []
    styles = set()
    for piece in pieces:
        if fresh and piece.kind == "space" and "\t" in piece.text and "\n" not in piece.text:
            mixed.append((piece, piece.text.expandtabs(8)))
            styles.add("\t")
        elif fresh and piece.kind == "space" and " " in piece.text:
            styles.add(" ")
        fresh = piece.kind == "newline"
    if len(styles) == 2:
        for piece, text in mixed:
            piece.text = text
        found.kinds.add("tabs")


def _print(pieces: list[Token], start: int, end: int, found: Translation) -> None:
    first = _following(pieces, start, end)
    if first == end:
        pieces[start].text = "print()"
    elif pieces[first].text in _ASSIGNS:
        return
    elif pieces[first].text == "(" and _close(pieces, first, end) == end - 1:
        return  # already a call
    else:
        extra = ""
        commas = _commas(pieces, first, end)
        if commas and _following(pieces, commas[-1], end) == end:
            pieces[commas.pop()].text = ""
            extra = ', end=" "'
        if pieces[first].text == ">>":
            stop = commas[0] if commas else end
            file = "".join(p.text for p in pieces[first + 1 : stop]).strip()
            for p in pieces[first : min(stop + 1, end)]:
                p.text = "\n" * p.text.count("\n")
            extra += f", file={file}" if commas else f"file={file}"
        pieces[start].text = "print("
        if pieces[start + 1].kind == "space" and "\n" not in pieces[start + 1].text:
            pieces[start + 1].text = ""
        pieces[end - 1].text += f"{extra})"
    found.kinds.add("print statements")


def _exec(pieces: list[Token], start: int, end: int, found: Translation) -> None:
    first = _following(pieces, start, end)
    if first == end or pieces[first].text in _ASSIGNS:
        return
    depth = pieces[start].depth
    spaces = [i for i in range(first, end) if pieces[i].text == "in" and pieces[i].depth == depth]
    if not spaces and pieces[first].text == "(" and _close(pieces, first, end) == end - 1:
        return
    if spaces:
        pieces[spaces[0]].text = ","
    pieces[start].text = "exec("
    pieces[end - 1].text += ")"
    found.kinds.add("exec statements")


def _raise(pieces: list[Token], start: int, end: int, found: Translation) -> None:
    first = _following(pieces, start, end)
    if first == end:
        return
    commas = _commas(pieces, first, end)
    if not 1 <= len(commas) <= 2:
        return
    pieces[commas[0]].text = "("
    after = commas[0] + 1
    if after < end and pieces[after].kind == "space" and "\n" not in pieces[after].text:
        pieces[after].text = ""
    if len(commas) == 2:
        pieces[commas[1]].text = ").with_traceback("
    pieces[end - 1].text += ")"
    found.kinds.add("raise statements")


def _except(pieces: list[Token], start: int, end: int, found: Translation) -> None:
    first = _following(pieces, start, end)
    commas = _commas(pieces, first, end) if first < end else []
    if len(commas) == 1:
        pieces[commas[0]].text = " as"
        found.kinds.add("except statements")


def _parameters(pieces: list[Token], found: Translation) -> None:
    """Replace tuples among the parameters of functions and lambdas."""
    for i, piece in enumerate(pieces):
        if piece.kind != "name" or piece.text not in ("def", "lambda"):
            continue
        if piece.text == "def":
            opened = next((j for j in range(i, len(pieces)) if pieces[j].text == "("), None)
            if opened is None:
                continue
            end = _close(pieces, opened, len(pieces))
            depth = pieces[opened].depth + 1
            begin = opened + 1
        else:
            depth, begin = piece.depth, i + 1
            colons = (
                j
                for j in range(begin, len(pieces))
                if pieces[j].text == ":" and pieces[j].depth == depth
            )
            end = next(colons, begin)
        expected = True
        j = begin
        while j < end:
            if expected and pieces[j].text == "(" and pieces[j].depth == depth:
                close = _close(pieces, j, end)
                name = f"_headrace_tuple_{len(found.unpacked)}"
                found.unpacked[name] = "".join(p.text for p in pieces[j : close + 1])
                for p in pieces[j : close + 1]:
                    p.text = "\n" * p.text.count("\n")
                pieces[j].text = f" {name}" if piece.text == "lambda" else name
                found.kinds.add("tuples as parameters")
                j = close
            if pieces[j].kind not in BLANK:
                expected = pieces[j].text == "," and pieces[j].depth == depth
            j += 1
