"""Regular expressions. In: string tensors, patterns and rewrites. Out: as TensorFlow 1.15's ops.

The engine is RE2 itself, the library that TensorFlow uses (package `google-re2`): time grows
linearly with the text, and a pattern that needs too much memory is refused. It is imported when a
pattern is first compiled. Generated code runs common patterns as automata, many texts in one call
(see `automata`). A replacement is expanded here, because RE2's own functions for it are not part of
its Python interface.
"""

import functools
import re
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from headrace._src.core.errors import UnimplementedError
from headrace._src.lowering import generated
from headrace._src.ops.strings.automata import automaton
from headrace._src.ops.strings.string_arrays import (
    attr_bytes,
    map_numbers,
    map_strings,
    of_strings,
    spans_of,
    string_array,
)

_Span = tuple[int, int]
# (text, first byte) -> the spans of a match and of its groups; (-1, -1) where there is none.
_Find = Callable[[bytes, int], list[_Span]]

# Groups with a name, where a pattern that RE2 accepts has them: not in a quotation, not escaped and
# not in a bracket expression.
_NAMED_GROUP = re.compile(
    rb"\\Q.*?(?:\\E|\Z)|\\.|\[\^?\]?(?:\[:\^?\w+:\]|\\.|[^\]\\])*\]|\(\?(<|P<[^>]*>)", re.DOTALL
)
_ASSERTION = re.compile(rb"[\^$]|\\[AzbBC]")
_ASK = 2  # the answer of an automaton that doesn't know (compile.kernels.singles.automata_kernel)
_MANY = 128  # texts, which RE2 takes as long for as it takes to make an automaton
_ALL = 1 << 62  # matches of a text
_NO_CHARACTER = b"\xff"
_PLAIN = re.compile(rb"[\w ,;:!'\"/<>=@#%&~`-]+", re.ASCII)


def _engine() -> Any:
    try:
        import re2  # some platforms have no build of it
    except ImportError as error:
        raise UnimplementedError(
            None,
            None,
            "regular expressions need the package google-re2, which is not installed "
            "(pip install google-re2)",
        ) from error
    return re2


def _refuse(pattern: bytes, why: str) -> NoReturn:
    text = pattern.decode("utf-8", "backslashreplace")
    raise ValueError(f"Invalid pattern: {text}, error: {why}")


@functools.lru_cache(maxsize=256)
def _compiled(pattern: bytes, captures: bool = True) -> Any:
    """Return RE2's program for the pattern; ValueError if TensorFlow's RE2 refuses it.

    Without captures it runs faster, and knows no groups but the whole match.
    """
    re2 = _engine()
    options = re2.Options()
    options.log_errors = False
    if not captures:
        _compiled(pattern)  # whether it is valid doesn't depend on what is asked of it
        options.never_capture = True
    try:
        program = re2.compile(pattern, options)
    except re2.error as error:
        why = error.args[0].decode("utf-8", "backslashreplace")
        # TensorFlow 1.15's RE2 has one text for both parentheses.
        _refuse(pattern, why.replace("unexpected ): ", "missing ): ", 1))
    for match in _NAMED_GROUP.finditer(pattern) if b"(?" in pattern else ():
        # Newer versions of RE2 have more names for groups than TensorFlow 1.15's.
        if match[1] == b"<":
            _refuse(pattern, "invalid perl operator: (?<")
        if match[1] and not match[1].isascii():
            _refuse(pattern, f"invalid named capture group: {match[0].decode()}")
    return program


def _search(pattern: bytes, captures: bool) -> _Find:
    # The public methods of a program wrap this one in a generator and a match object, which take
    # twice the time of a search in a short text.
    match = _compiled(pattern, captures)._regexp.Match
    anywhere = _engine()._Anchor.UNANCHORED
    return lambda text, start: match(anywhere, text, start, len(text))


class _Rewrite:
    """A replacement text: literals and group numbers, up to the first escape that is none."""

    def __init__(self, rewrite: bytes):
        self.parts: list[bytes | int] = []
        self.valid = True
        for literal, escape in re.findall(rb"([^\\]+)|(\\(?s:.)?)", rewrite):
            if literal or escape == b"\\\\":
                self.parts.append(literal or b"\\")
            elif escape[1:].isdigit():
                self.parts.append(int(escape[1:]))
            else:
                self.valid = False
                break
        self.groups = [part for part in self.parts if isinstance(part, int)]
        self.literal = (
            None if self.groups else b"".join(p for p in self.parts if isinstance(p, bytes))
        )

    def expand(self, text: bytes, spans: list[_Span]) -> bytes:
        """Return the replacement of one match; groups that do not exist are empty."""
        if self.literal is not None:
            return self.literal
        spans = spans + [(0, 0)] * 9
        return b"".join(
            part if isinstance(part, bytes) else text[slice(*spans[part])] for part in self.parts
        )


def _character(text: bytes, start: int) -> int:
    """Return how many bytes the UTF-8 character at `start` has; 1 where there is none."""
    lead = text[start]
    size = 1 + (lead >= 0xC0) + (lead >= 0xE0) + (lead >= 0xF0)
    try:
        text[start : start + size].decode("utf-8", "surrogatepass")  # RE2 lets these pass
    except UnicodeDecodeError:
        return 1
    return size


def _replace_all(find: _Find, rewrite: _Rewrite, text: bytes) -> bytes:
    """Replace every match; an empty match right at the end of the one before does not count."""
    pieces: list[bytes] = []
    position, last_end = 0, -1
    while position <= len(text):
        spans = find(text, position)
        start, end = spans[0]
        if start < 0:
            break
        if start == end == last_end:
            if end == len(text):
                break
            position = end + _character(text, end)
            pieces.append(text[end:position])
            continue
        pieces += text[position:start], rewrite.expand(text, spans)
        position = last_end = end
    return b"".join(pieces) + text[position:] if pieces else text


def _looks_around(pattern: bytes) -> bool:
    """Whether a pattern may match the empty string, match a byte that is not a character, or depend
    on what comes before or after its match; True if in doubt.
    """
    whole = _engine()._Anchor.ANCHOR_BOTH
    is_empty = _compiled(pattern, captures=False)._regexp.Match(whole, b"", 0, 0)[0] == (0, 0)
    return is_empty or _ASSERTION.search(pattern.replace(b"[^", b"[")) is not None


def _replace_joined(find: _Find, rewrite: _Rewrite, texts: list[bytes]) -> list[bytes] | None:
    """Replace every match in all texts at once, with a byte between them that no character has, or
    None where a text has such a byte. A search costs more than what it finds in a short text.
    """
    joined = _NO_CHARACTER.join(texts)
    foreign = any(_NO_CHARACTER in part for part in rewrite.parts if isinstance(part, bytes))
    if foreign or not texts or joined.count(_NO_CHARACTER) != len(texts) - 1:
        return None
    pieces: list[bytes] = []
    position = 0
    spans = find(joined, 0)
    while spans[0][0] >= 0:
        start, end = spans[0]
        pieces += joined[position:start], rewrite.expand(joined, spans)
        position = end
        spans = find(joined, end)
    return b"".join([*pieces, joined[position:]]).split(_NO_CHARACTER)


def _replace_first(find: _Find, rewrite: _Rewrite, text: bytes) -> bytes:
    """Replace the first match, or nothing if the rewrite has a bad escape."""
    spans = find(text, 0)
    start, end = spans[0]
    if start < 0 or not rewrite.valid:
        return text
    return text[:start] + rewrite.expand(text, spans) + text[end:]


def _known_matches(texts: np.ndarray, pattern: bytes) -> np.ndarray | None:
    """Return int8 answers of an automaton: 2 where it doesn't know. None if there is none."""
    spans = spans_of(texts, each=8) if texts.size >= _MANY else None
    table = None if spans is None else automaton(pattern, ordered=False)
    find = None if table is None else generated.routine("full_matches")
    if spans is None or find is None:
        return None
    return find(spans.addresses, spans.sizes, table)


def static_regex_full_match(input: Any, *, pattern: str | bytes) -> np.ndarray:
    """Return whether each element matches the pattern as a whole."""
    pattern, texts = attr_bytes(pattern), string_array(input)
    program = _compiled(pattern, captures=False)._regexp.Match
    whole = _engine()._Anchor.ANCHOR_BOTH

    def matches(text: bytes) -> bool:
        return program(whole, text, 0, len(text))[0][0] == 0

    answers = _known_matches(texts, pattern)
    if answers is None:
        return map_numbers(matches, texts, np.bool_)
    found, asked = answers == 1, answers == _ASK
    if asked.any():
        found[asked] = map_numbers(matches, texts[asked], np.bool_)
    return found


def _known_replacements(
    texts: np.ndarray, pattern: bytes, rewrite: bytes, most: int
) -> tuple[np.ndarray, np.ndarray] | None:
    """Return texts with the matches of an automaton replaced, and where it didn't know. None if
    there is none.
    """
    spans = spans_of(texts, each=8) if texts.size >= _MANY else None
    table = None if spans is None else automaton(pattern, ordered=True)
    replace = None if table is None else generated.routine("replacements")
    if spans is None or replace is None:
        return None
    found, answers = replace(spans.owner, spans.addresses, spans.sizes, table, rewrite, most)
    return found, answers == _ASK


def static_regex_replace(
    input: Any, *, pattern: str | bytes, rewrite: str | bytes, replace_global: bool = True
) -> np.ndarray:
    """Return each element with its matches (or the first one) replaced by the rewrite."""
    pattern, replacement = attr_bytes(pattern), _Rewrite(attr_bytes(rewrite))
    find = _search(pattern, captures=any(replacement.groups))
    texts = string_array(input)
    if replacement.valid and replacement.literal is not None:
        new = replacement.literal
        known = _known_replacements(texts, pattern, new, _ALL if replace_global else 1)
        if known is not None:
            found, asked = known
            if asked.any():
                found[asked] = _replace(texts[asked], pattern, find, replacement, replace_global)
            return found
        if _PLAIN.fullmatch(pattern):
            # Nothing in this pattern has a meaning: bytes know how to do this, and are faster.
            count = -1 if replace_global else 1
            return map_strings(lambda s: s.replace(pattern, new, count), texts)
    return _replace(texts, pattern, find, replacement, replace_global)


def _replace(
    texts: np.ndarray, pattern: bytes, find: _Find, rewrite: _Rewrite, replace_global: bool
) -> np.ndarray:
    """Replace matches that RE2 finds."""
    if replace_global and not _looks_around(pattern):
        found = _replace_joined(find, rewrite, texts.ravel().tolist())
        if found is not None:
            return of_strings(found, texts.shape)
    replace = _replace_all if replace_global else _replace_first
    return map_strings(lambda s: replace(find, rewrite, s), texts)


def _scalar(value: Any, name: str) -> bytes:
    array = string_array(value)
    if array.shape != ():
        raise ValueError(f"{name} must be scalar, but received {list(array.shape)}")
    return array.item()


def regex_full_match(input: Any, pattern: Any) -> np.ndarray:
    """As static_regex_full_match, with the pattern from a scalar tensor."""
    return static_regex_full_match(input, pattern=_scalar(pattern, "Pattern"))


def regex_replace(
    input: Any, pattern: Any, rewrite: Any, *, replace_global: bool = True
) -> np.ndarray:
    """As static_regex_replace, with pattern and rewrite from scalar tensors."""
    return static_regex_replace(
        input,
        pattern=_scalar(pattern, "Pattern"),
        rewrite=_scalar(rewrite, "Rewrite"),
        replace_global=replace_global,
    )


KERNELS = {
    "RegexFullMatch": regex_full_match,
    "RegexReplace": regex_replace,
    "StaticRegexFullMatch": static_regex_full_match,
    "StaticRegexReplace": static_regex_replace,
}
