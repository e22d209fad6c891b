"""RE2 patterns run by Python's `re`. In: string tensors, patterns in RE2's syntax. Out: as TF 1.15.

`compile_re2` reads a pattern by RE2's grammar, refuses what RE2 refuses, and writes an equivalent
Python pattern. Flags are resolved while reading, so every piece written means the same wherever it
stands. Matching is over text: RE2 works on UTF-8 characters and no class of it matches a byte that
is not valid UTF-8, so texts are decoded with `surrogateescape` and every class excludes surrogates.
`\\C` (one byte) has no equivalent and is refused. Python backtracks: a pattern such as `(a+)+b` can
take exponential time on a text that does not match, where RE2 is linear.
"""

import functools
import re
import unicodedata
from collections.abc import Iterable
from typing import Any, NoReturn

import numpy as np

from headrace.ops.string_arrays import attr_bytes, map_numbers, map_strings, string_scalar
from headrace.ops.unicode_scripts import script_ranges

_Range = tuple[int, int]
_LAST = 0x10FFFF
_NO_BYTE = r"\ud800-\udfff"  # where surrogateescape puts the bytes that are not UTF-8

_DIGIT = ((0x30, 0x39),)
_UPPER, _LOWER = ((0x41, 0x5A),), ((0x61, 0x7A),)
_WORD = _DIGIT + _UPPER + ((0x5F, 0x5F),) + _LOWER
_PERL = {"d": _DIGIT, "s": ((0x09, 0x0A), (0x0C, 0x0D), (0x20, 0x20)), "w": _WORD}
_POSIX = {
    "alnum": _DIGIT + _UPPER + _LOWER,
    "alpha": _UPPER + _LOWER,
    "ascii": ((0x00, 0x7F),),
    "blank": ((0x09, 0x09), (0x20, 0x20)),
    "cntrl": ((0x00, 0x1F), (0x7F, 0x7F)),
    "digit": _DIGIT,
    "graph": ((0x21, 0x7E),),
    "lower": _LOWER,
    "print": ((0x20, 0x7E),),
    "punct": ((0x21, 0x2F), (0x3A, 0x40), (0x5B, 0x60), (0x7B, 0x7E)),
    "space": ((0x09, 0x0D), (0x20, 0x20)),
    "upper": _UPPER,
    "word": _WORD,
    "xdigit": _DIGIT + ((0x41, 0x46), (0x61, 0x66)),
}
_CONTROL = {"a": 7, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11}
# Python's own \B fails on an empty text, where RE2's holds.
_ASSERTIONS = {"A": r"\A", "z": r"\Z", "b": r"(?a:\b)", "B": r"(?!(?a:\b))"}
_REPEAT = re.compile(r"\{([0-9]+)(,?)([0-9]*)\}")
_MAX_REPEAT = 1000
_FLAGS = re.compile(r"\(\?([imsU]*)(?:-([imsU]+))?([:)])")
_NAMED = re.compile(r"\(\?P<\w+>", re.ASCII)
_POSIX_CLASS = re.compile(r"\[:(\^?)(\w*):\]", re.ASCII)


@functools.cache
def _category_runs() -> tuple[tuple[int, int, str], ...]:
    """Return runs of code points that share a general category: (first, last, category)."""
    names = np.array([unicodedata.category(chr(point)) for point in range(_LAST + 1)])
    starts = np.concatenate([[0], np.flatnonzero(names[1:] != names[:-1]) + 1]).tolist()
    ends = [start - 1 for start in starts[1:]] + [_LAST]
    return tuple((a, b, str(names[a])) for a, b in zip(starts, ends, strict=True))


@functools.cache
def _unicode_class(name: str) -> tuple[_Range, ...]:
    """Return the ranges of a \\p{name}: a general category, its first letter, a script, or Any."""
    if name == "Any":
        return ((0, _LAST),)
    categories = tuple((a, b) for a, b, category in _category_runs() if category.startswith(name))
    if name and len(name) <= 2 and categories:
        return categories
    return script_ranges(name)


def _spelled(point: int) -> str:
    return f"\\U{point:08x}"


def _set(ranges: Iterable[_Range], negated: bool = False) -> str:
    """Return a bracket expression that never matches an escaped byte."""
    items = "".join(f"{_spelled(first)}-{_spelled(last)}" for first, last in ranges)
    return f"[^{items}{_NO_BYTE}]" if negated else f"[{items}]"


class _Class:
    """What a bracket expression collects: ranges, and whole classes to take the negative of."""

    def __init__(self) -> None:
        self.ranges: list[_Range] = []
        self.negatives: list[tuple[_Range, ...]] = []

    def add(self, ranges: tuple[_Range, ...], negated: bool) -> None:
        if negated:
            self.negatives.append(ranges)
        else:
            self.ranges.extend(ranges)

    def write(self, negated: bool, fold: bool) -> str:
        """Return the Python form. RE2 folds case before it negates: hence the lookahead."""
        # A surrogate range would match escaped bytes; no valid text has a surrogate.
        if not self.negatives:
            return _folded(_set(self._valid(), negated), fold)
        parts = [_set(self._valid())] if self.ranges else []
        parts += [_set(negative, negated=True) for negative in self.negatives]
        either = "|".join(_folded(part, fold) for part in parts)
        return f"(?:(?!{either})[^{_NO_BYTE}])" if negated else f"(?:{either})"

    def _valid(self) -> list[_Range]:
        pieces = []
        for first, last in self.ranges:
            if first < 0xD800:
                pieces.append((first, min(last, 0xD7FF)))
            if last > 0xDFFF:
                pieces.append((max(first, 0xE000), last))
        return pieces


def _folded(piece: str, fold: bool) -> str:
    return f"(?i:{piece})" if fold else piece


class _Translator:
    """One pass over a pattern. `done` holds the pieces of the text so far, the last one repeatable.

    State: `at`, the position; `flags`, those in force; `groups`, the flags to go back to at every
    open parenthesis; `last`, what a repetition would apply to: "none", "atom" or "repeat".
    """

    def __init__(self, pattern: str):
        self.pattern, self.at = pattern, 0
        self.flags: frozenset[str] = frozenset()
        self.groups: list[tuple[frozenset[str], int]] = []
        self.done: list[str] = []
        self.last = "none"

    def translate(self) -> str:
        while self.at < len(self.pattern):
            self._step()
        if self.groups:
            self._fail("missing )")
        return "".join(self.done)

    def _fail(self, why: str) -> NoReturn:
        raise ValueError(f"Invalid pattern: {self.pattern}, error: {why} at position {self.at}")

    def _peek(self, ahead: int = 0) -> str:
        return self.pattern[self.at + ahead : self.at + ahead + 1]

    def _step(self) -> None:
        char = self._peek()
        if char in "*+?":
            self.at += 1
            self._repeat(char)
        elif char == "{" and (match := _REPEAT.match(self.pattern, self.at)):
            self.at = match.end()
            self._repeat(self._counted(match))
        elif char == "(":
            self._open()
        elif char == ")":
            self._close()
        elif char == "|":
            self.at += 1
            self.done.append("|")
            self.last = "none"
        elif char == "[":
            self._atom(self._bracket())
        elif char == "\\":
            self._escape()
        else:
            self.at += 1
            self._atom(self._plain(char))

    def _atom(self, piece: str) -> None:
        self.done.append(piece)
        self.last = "atom"

    def _plain(self, char: str) -> str:
        """Return one unescaped character: a metacharacter under the flags in force, or itself."""
        multiline = "m" in self.flags
        if char == ".":
            return _set(() if "s" in self.flags else ((10, 10),), negated=True)
        if char == "^":
            return r"(?m:^)" if multiline else r"\A"
        if char == "$":
            return r"(?m:$)" if multiline else r"\Z"
        return self._literal(ord(char))

    def _literal(self, point: int) -> str:
        if 0xD800 <= point <= 0xDFFF:
            return "(?!)"  # in no valid text, and not to be taken for an escaped byte
        return _folded(re.escape(chr(point)), "i" in self.flags)

    def _counted(self, match: re.Match[str]) -> str:
        low, comma, high = match.groups()
        if high and not comma:
            self._fail("bad repetition operator")
        counts = [int(text) for text in (low, high) if text]
        if max(counts) > _MAX_REPEAT or counts != sorted(counts):
            self._fail(f"invalid repetition size {match[0]}")
        return match[0]

    def _repeat(self, operator: str) -> None:
        if self.last == "none":
            self._fail(f"no argument for repetition operator {operator}")
        if self.last == "repeat":
            self._fail(f"bad repetition operator {operator}")
        lazy = "U" in self.flags
        if self._peek() == "?":
            self.at += 1
            lazy = not lazy
        self.done[-1] = f"(?:{self.done[-1]}){operator}{'?' if lazy else ''}"
        self.last = "repeat"

    def _open(self) -> None:
        if self._peek(1) != "?":
            self._group("(", self.flags, self.at + 1)
        elif match := _NAMED.match(self.pattern, self.at):
            self._group("(", self.flags, match.end())
        elif match := _FLAGS.match(self.pattern, self.at):
            on, off, end = match.groups()
            flags = (self.flags | set(on)) - set(off or "")
            if end == ":":
                self._group("(?:", flags, match.end())
            else:
                self.flags, self.at = flags, match.end()
                # A repetition after the flags still finds what stood before them.
                self.last = "atom" if self.last == "repeat" else self.last
        else:
            self._fail("invalid perl operator")

    def _group(self, opening: str, flags: frozenset[str], start: int) -> None:
        self.groups.append((self.flags, len(self.done)))
        self.done.append(opening)
        self.flags, self.at, self.last = flags, start, "none"

    def _close(self) -> None:
        if not self.groups:
            self._fail("missing (")
        self.flags, start = self.groups.pop()
        self.done[start:] = ["".join(self.done[start:]) + ")"]
        self.at += 1
        self.last = "atom"

    def _escape(self) -> None:
        kind = self._peek(1)
        if kind == "Q":
            end = self.pattern.find("\\E", self.at + 2)
            end = len(self.pattern) if end < 0 else end
            for char in self.pattern[self.at + 2 : end]:
                self._atom(self._literal(ord(char)))
            self.at = end + 2
        elif kind in _ASSERTIONS:
            self.at += 2
            self._atom(_ASSERTIONS[kind])
        elif kind == "C":
            self._fail(r"\C is not supported: it matches a byte, this engine matches characters")
        elif found := self._class_escape():
            members = _Class()
            members.add(*found)
            self._atom(members.write(False, "i" in self.flags))
        else:
            self._atom(self._literal(self._code_point()))

    def _class_escape(self) -> tuple[tuple[_Range, ...], bool] | None:
        """Read \\d, \\pN, ...: return the ranges and whether they are negated, or None."""
        kind = self._peek(1)
        if kind and kind in "dswDSW":
            self.at += 2
            return _PERL[kind.lower()], kind.isupper()
        if not kind or kind not in "pP":
            return None
        match = re.compile(r"\{(\^?)([^}]*)\}|(.)", re.DOTALL).match(self.pattern, self.at + 2)
        name = (match[3] or match[2]) if match else ""
        ranges = _unicode_class(name)
        if match is None or not ranges:
            self._fail(f"invalid character class range \\{kind}{name}")
        self.at = match.end()
        return ranges, (kind == "P") != bool(match[1])

    def _code_point(self) -> int:
        """Read a backslash and what stands for one character."""
        kind = self._peek(1)
        if not kind:
            self._fail("trailing \\")
        self.at += 2
        if kind in _CONTROL:
            return _CONTROL[kind]
        if kind == "x":
            return self._hexadecimal()
        # A single digit other than 0 would be a back reference, which RE2 does not have.
        if kind == "0" or (kind in "1234567" and self._peek() and self._peek() in "01234567"):
            match = re.compile("[0-7]{1,3}").match(self.pattern, self.at - 1)
            assert match is not None
            self.at = match.end()
            return int(match[0], 8)
        if ord(kind) < 0x80 and not kind.isalnum():
            return ord(kind)
        self._fail(f"invalid escape sequence \\{kind}")

    def _hexadecimal(self) -> int:
        match = re.compile(r"([0-9A-Fa-f]{2})|\{([0-9A-Fa-f]+)\}").match(self.pattern, self.at)
        if match is None or int(match[1] or match[2], 16) > _LAST:
            self._fail("invalid escape sequence \\x")
        self.at = match.end()
        return int(match[1] or match[2], 16)

    def _bracket(self) -> str:
        """Read a bracket expression and return its Python form."""
        self.at += 1
        negated = self._peek() == "^"
        self.at += negated
        members = _Class()
        first = True
        while first or self._peek() != "]":
            first = False
            if not self._peek():
                self._fail("missing ]")
            if match := _POSIX_CLASS.match(self.pattern, self.at):
                if match[2] not in _POSIX:
                    self._fail(f"invalid character class range {match[0]}")
                self.at = match.end()
                members.add(_POSIX[match[2]], bool(match[1]))
            elif self._peek() == "\\" and (found := self._class_escape()):
                members.add(*found)
            else:
                members.add((self._member_range(),), False)
        self.at += 1
        return members.write(negated, "i" in self.flags)

    def _member_range(self) -> _Range:
        low = high = self._member()
        if self._peek() == "-" and self._peek(1) not in ("]", ""):
            self.at += 1
            high = self._member()
        if low > high:
            self._fail("invalid character class range")
        return low, high

    def _member(self) -> int:
        if self._peek() == "\\":
            return self._code_point()
        if not self._peek():
            self._fail("missing ]")
        self.at += 1
        return ord(self.pattern[self.at - 1])


@functools.lru_cache(maxsize=256)
def compile_re2(pattern: bytes) -> re.Pattern[str]:
    """Return the compiled Python equivalent of an RE2 pattern; ValueError if RE2 refuses it."""
    try:
        text = pattern.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"Invalid pattern: {pattern!r}, error: invalid UTF-8") from error
    try:
        return re.compile(_Translator(text).translate())
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"Invalid pattern: {text}, error: {error}") from error


def _text(value: bytes) -> str:
    return value.decode("utf-8", "surrogateescape")


class _Rewrite:
    """A replacement text: literals and group numbers, up to the first escape that is none."""

    def __init__(self, rewrite: bytes):
        self.parts: list[str | int] = []
        self.valid = True
        for literal, escape in re.findall(r"([^\\]+)|(\\(?s:.)?)", _text(rewrite)):
            if literal or escape == "\\\\":
                self.parts.append(literal or "\\")
            elif len(escape) == 2 and escape[1] in "0123456789":
                self.parts.append(int(escape[1]))
            else:
                self.valid = False
                break

    def expand(self, match: re.Match[str]) -> str:
        """Return the replacement of one match; groups that do not exist are empty."""
        known = match.re.groups
        return "".join(
            part if isinstance(part, str) else (match[part] or "" if part <= known else "")
            for part in self.parts
        )


def _replace_all(regex: re.Pattern[str], rewrite: _Rewrite, text: str) -> str:
    """Replace every match; an empty match right at the end of the one before does not count."""
    pieces, position, last_end = [], 0, -1
    while position <= len(text) and (match := regex.search(text, position)):
        pieces.append(text[position : match.start()])
        position = match.end()
        if match.end() == match.start() == last_end:
            pieces.append(text[position : position + 1])
            position += 1
            continue
        pieces.append(rewrite.expand(match))
        last_end = position
    return "".join(pieces) + text[position:]


def _replace_first(regex: re.Pattern[str], rewrite: _Rewrite, text: str) -> str:
    """Replace the first match, or nothing if the rewrite has a bad escape."""
    match = regex.search(text)
    if match is None or not rewrite.valid:
        return text
    return text[: match.start()] + rewrite.expand(match) + text[match.end() :]


def static_regex_full_match(input: Any, *, pattern: str | bytes) -> np.ndarray:
    """Return whether each element matches the pattern as a whole."""
    regex = compile_re2(attr_bytes(pattern))
    return map_numbers(lambda s: regex.fullmatch(_text(s)) is not None, input, np.bool_)


def static_regex_replace(
    input: Any, *, pattern: str | bytes, rewrite: str | bytes, replace_global: bool = True
) -> np.ndarray:
    """Return each element with its matches (or the first one) replaced by the rewrite."""
    regex, replacement = compile_re2(attr_bytes(pattern)), _Rewrite(attr_bytes(rewrite))
    replace = _replace_all if replace_global else _replace_first
    return map_strings(
        lambda s: replace(regex, replacement, _text(s)).encode("utf-8", "surrogateescape"), input
    )


def regex_full_match(input: Any, pattern: Any) -> np.ndarray:
    """As static_regex_full_match, with the pattern from a scalar tensor."""
    return static_regex_full_match(input, pattern=string_scalar(pattern, "pattern"))


def regex_replace(
    input: Any, pattern: Any, rewrite: Any, *, replace_global: bool = True
) -> np.ndarray:
    """As static_regex_replace, with pattern and rewrite from scalar tensors."""
    return static_regex_replace(
        input,
        pattern=string_scalar(pattern, "pattern"),
        rewrite=string_scalar(rewrite, "rewrite"),
        replace_global=replace_global,
    )


KERNELS = {
    "RegexFullMatch": regex_full_match,
    "RegexReplace": regex_replace,
    "StaticRegexFullMatch": static_regex_full_match,
    "StaticRegexReplace": static_regex_replace,
}
