"""Regular expressions as deterministic automata. In: a pattern that RE2 accepts. Out: the tables of
an automaton over characters, or None where the pattern has more than is known here.

ASCII characters are told apart; all others are one, which a pattern in ASCII has in its negated
classes and in its dots.

The automaton knows no groups. A set of threads is kept in the order of preference that Perl and RE2
have, and cut after the first thread that has matched: the last state that accepts is the end of the
match that RE2 prefers. Where only a match of the whole text is asked for, order doesn't matter.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import NamedTuple

import numpy as np

__all__ = ["Automaton", "automaton"]

_MOST_STATES = 512
_MOST_NODES = 2000
_MOST_WORK = 200_000  # nodes that are looked at while states are made
_MOST_DEPTH = 50

_OTHER = 128  # any character that isn't ASCII
_ALL = frozenset(range(129))
_FOLDED_FURTHER = frozenset(b"kKsS")  # which are also cases of the Kelvin sign and the long s


def _characters(*ranges: str) -> frozenset[int]:
    return frozenset(c for first, last in ranges for c in range(ord(first), ord(last) + 1))


_DIGITS = _characters("09")
_WORD = _characters("09", "AZ", "az", "__")
_PERL = {"d": _DIGITS, "w": _WORD, "s": frozenset(b"\t\n\f\r ")}
_PERL |= {name.upper(): _ALL - characters for name, characters in _PERL.items()}
_POSIX = {
    "alnum": _characters("09", "AZ", "az"),
    "alpha": _characters("AZ", "az"),
    "blank": frozenset(b"\t "),
    "digit": _DIGITS,
    "lower": _characters("az"),
    "space": frozenset(b"\t\n\v\f\r "),
    "upper": _characters("AZ"),
    "word": _WORD,
    "xdigit": _characters("09", "AF", "af"),
}
_CONTROL = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


class Automaton(NamedTuple):
    """following[state, character] is the next state, 0 where no match can follow; character 128 is
    any that isn't ASCII. accepts[state]: bit 0 if a match may end here, bit 1 if one does where the
    text ends. A search begins in the state `first` at the beginning of a text and in `later` behind
    it. only_ascii: nothing is known of texts with other characters.
    """

    following: np.ndarray
    accepts: np.ndarray
    first: int
    later: int
    only_ascii: bool


class _UnknownError(Exception):
    """The pattern has something that is left to RE2."""


# -- Parsing: a pattern becomes a function that writes its nodes, given the node that follows ------


class _Node(NamedTuple):
    """What a thread waits for: a character of a set, or nothing but to go on."""

    kind: str  # "set", "split", "begin", "end" or "match"
    characters: frozenset[int] = frozenset()
    targets: tuple[int, ...] = ()  # in the order of preference


class _Part(NamedTuple):
    """A part of a pattern: what writes it, and whether it can match nothing."""

    write: Callable[[list[_Node], int], int]
    nullable: bool


def _add(nodes: list[_Node], node: _Node) -> int:
    if len(nodes) >= _MOST_NODES:
        raise _UnknownError
    nodes.append(node)
    return len(nodes) - 1


def _set(characters: frozenset[int]) -> _Part:
    return _Part(lambda nodes, after: _add(nodes, _Node("set", characters, (after,))), False)


def _assertion(kind: str) -> _Part:
    return _Part(lambda nodes, after: _add(nodes, _Node(kind, targets=(after,))), True)


def _sequence(parts: list[_Part]) -> _Part:
    def write(nodes: list[_Node], after: int) -> int:
        for part in reversed(parts):
            after = part.write(nodes, after)
        return after

    return _Part(write, all(part.nullable for part in parts))


def _either(parts: list[_Part]) -> _Part:
    def write(nodes: list[_Node], after: int) -> int:
        starts = tuple(part.write(nodes, after) for part in parts)
        return _add(nodes, _Node("split", targets=starts))

    return parts[0] if len(parts) == 1 else _Part(write, any(part.nullable for part in parts))


def _repeat(part: _Part, least: int, most: int | None, greedy: bool) -> _Part:
    def split(nodes: list[_Node], inside: int, after: int) -> _Node:
        return _Node("split", targets=(inside, after) if greedy else (after, inside))

    def write(nodes: list[_Node], after: int) -> int:
        if most is None:
            again = _add(nodes, _Node("split"))
            inside = part.write(nodes, again)
            nodes[again] = split(nodes, inside, after)
            start = again
        else:
            start = after
            for _ in range(most - least):
                start = _add(nodes, split(nodes, part.write(nodes, start), after))
        for _ in range(least):
            start = part.write(nodes, start)
        return start

    return _Part(write, part.nullable or not least)


_QUANTIFIER = re.compile(r"(?:([*+?])|\{([0-9]+)(,?)([0-9]*)\})(\??)")
_COUNTS: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
_FLAGS = re.compile(r"\?([is]*)([:)])|\?P<\w+>")
_POSIX_CLASS = re.compile(r"\[:(\w+):\]")
_HEXADECIMAL = re.compile(r"x(?:([0-9A-Fa-f]{2})|\{([0-9A-Fa-f]+)\})")


class _Parser:
    """Reads a pattern from left to right. `ordered`: which of several matches is preferred matters;
    RE2 has rules of its own where what is repeated can match nothing.
    """

    def __init__(self, text: str, ordered: bool):
        self.text, self.ordered = text, ordered
        self.at = self.depth = 0
        self.flags = ""
        self.only_ascii = False

    def parse(self) -> _Part:
        found = self._alternatives()
        if self.at < len(self.text):
            raise _UnknownError
        return found

    def _peek(self) -> str:
        return self.text[self.at : self.at + 1]

    def _take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        found = pattern.match(self.text, self.at)
        if found is not None:
            self.at = found.end()
        return found

    def _alternatives(self) -> _Part:
        flags = self.flags
        choices: list[list[_Part]] = [[]]
        while (char := self._peek()) and char != ")":
            if char == "|":
                self.at += 1
                choices.append([])
            else:
                choices[-1].append(self._repeated())
        self.flags = flags
        return _either([_sequence(parts) for parts in choices])

    def _repeated(self) -> _Part:
        part = self._atom()
        found = self._take(_QUANTIFIER)
        if found is None:
            return part
        sign, least, comma, most, lazy = found.groups()
        if sign:
            counts = _COUNTS[sign]
        else:
            counts = int(least), int(most) if most else None if comma else int(least)
        if part.nullable and self.ordered:
            raise _UnknownError
        return _repeat(part, *counts, greedy=not lazy)

    def _atom(self) -> _Part:
        char = self._peek()
        self.at += 1
        if char == "(":
            return self._group()
        if char == "[":
            return _set(self._bracket())
        if char == ".":
            return _set(_ALL if "s" in self.flags else _ALL - {ord("\n")})
        if char in "^$":
            return _assertion("begin" if char == "^" else "end")
        if char == "\\":
            if self._peek() in ("A", "z"):
                self.at += 1
                return _assertion("begin" if self.text[self.at - 1] == "A" else "end")
            return _set(self._folded(self._escape()))
        return _set(self._folded({ord(char)}))

    def _group(self) -> _Part:
        self.depth += 1
        flags, found = self.flags, self._take(_FLAGS)
        if (found is None and self._peek() == "?") or self.depth > _MOST_DEPTH:
            raise _UnknownError
        if found is not None and found[2]:
            self.flags += found[1]
            if found[2] == ")":
                if _QUANTIFIER.match(self.text, self.at):
                    raise _UnknownError  # RE2 repeats what stands before the flags
                self.depth -= 1
                return _sequence([])
        part = self._alternatives()
        self.at += 1  # its parenthesis
        self.depth -= 1
        self.flags = flags
        return part

    def _escape(self) -> Iterable[int]:
        """The characters that an escape stands for; the backslash was read."""
        if hexadecimal := self._take(_HEXADECIMAL):
            code = int(hexadecimal[1] or hexadecimal[2], 16)
            if code >= 128:
                raise _UnknownError
            return {code}
        char = self._peek()
        self.at += 1
        if char in _PERL:
            return _PERL[char]
        if char in _CONTROL:
            return {ord(_CONTROL[char])}
        if char.isalnum() or char == "_":
            raise _UnknownError
        return {ord(char)}

    def _folded(self, characters: Iterable[int]) -> frozenset[int]:
        found = frozenset(characters)
        if "i" in self.flags:
            found |= {c ^ 32 for c in found if c < _OTHER and chr(c).isalpha()}
            self.only_ascii |= bool(found & _FOLDED_FURTHER)
        return found

    def _bracket(self) -> frozenset[int]:
        """The characters of a bracket expression; its first bracket was read."""
        negated = self._peek() == "^"
        self.at += negated
        found: set[int] = set()
        first = True
        while first or self._peek() != "]":
            first = False
            if self.text.startswith("[:", self.at):
                posix = self._take(_POSIX_CLASS)
                if posix is None or posix[1] not in _POSIX:
                    raise _UnknownError
                found |= _POSIX[posix[1]]
                continue
            low = self._one()
            is_range = len(low) == 1 and self._peek() == "-"
            if is_range and self.text[self.at + 1 : self.at + 2] != "]":
                self.at += 1
                found |= set(range(min(low), max(self._one()) + 1))
            else:
                found |= low
        self.at += 1
        folded = self._folded(found)
        return _ALL - folded if negated else folded

    def _one(self) -> set[int]:
        char = self._peek()
        self.at += 1
        return set(self._escape()) if char == "\\" else {ord(char)}


# -- From nodes to states --------------------------------------------------------------------------


# Where threads wait, and whether one of them matches if the text ends.
_State = tuple[tuple[int, ...], bool]


class _Threads:
    """The nodes of a pattern, and which of them threads wait at."""

    def __init__(self, part: _Part, ordered: bool):
        self.nodes: list[_Node] = [_Node("match")]
        self.start = part.write(self.nodes, 0)
        self.ordered = ordered
        self.work = 0

    def waiting(self, roots: Iterable[int], begin: bool, end: bool) -> tuple[int, ...]:
        """The sets and the match that are reached without reading, the preferred ones first."""
        found: list[int] = []
        seen: set[int] = set()
        stack = list(reversed(list(roots)))
        while stack:
            index = stack.pop()
            if index in seen:
                continue
            seen.add(index)
            kind, _, targets = self.nodes[index]
            if kind in ("set", "match"):
                found.append(index)
                if kind == "match" and self.ordered:
                    break
            elif kind == "split" or (kind == "begin" and begin) or (kind == "end" and end):
                stack += reversed(targets)
        self.work += len(seen)
        if self.work > _MOST_WORK:
            raise _UnknownError
        return tuple(found) if self.ordered else tuple(sorted(found))

    def state(self, roots: Iterable[int], begin: bool) -> _State:
        roots = tuple(roots)
        return self.waiting(roots, begin, False), 0 in self.waiting(roots, begin, True)


@lru_cache(maxsize=256)
def automaton(pattern: bytes, ordered: bool) -> Automaton | None:
    """The automaton of a pattern that RE2 accepts. `ordered`: to find the match that RE2 prefers;
    otherwise only to tell whether a whole text matches.
    """
    if not pattern.isascii():
        return None
    try:
        parser = _Parser(pattern.decode("ascii"), ordered)
        return _tables(_Threads(parser.parse(), ordered), parser.only_ascii)
    except _UnknownError:
        return None


def _tables(threads: _Threads, only_ascii: bool) -> Automaton:
    sets = {node.characters for node in threads.nodes if node.kind == "set"}
    # Characters that no set tells apart lead to the same states.
    alike: dict[tuple[bool, ...], list[int]] = {}
    for character in sorted(_ALL):
        alike.setdefault(tuple(character in s for s in sets), []).append(character)
    states: list[_State] = [((), False)]
    numbers = {states[0]: 0}

    def number(state: _State) -> int:
        if state not in numbers:
            if len(states) >= _MOST_STATES:
                raise _UnknownError
            numbers[state] = len(states)
            states.append(state)
        return numbers[state]

    first, later = (number(threads.state([threads.start], begin)) for begin in (True, False))
    rows: list[np.ndarray] = []
    for waiting, _ in states:  # which grows meanwhile
        row = np.zeros(len(_ALL), np.int16)
        for members in alike.values():
            nodes = (threads.nodes[i] for i in waiting)
            targets = [t for node in nodes if members[0] in node.characters for t in node.targets]
            row[members] = number(threads.state(targets, False))
        rows.append(row)
    accepts = np.array([(0 in waiting) + 2 * at_end for waiting, at_end in states], np.int8)
    return Automaton(np.stack(rows), accepts, first, later, only_ascii)
