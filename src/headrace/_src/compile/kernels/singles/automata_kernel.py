"""Deterministic automata run over spans of UTF-8: which ones match, and what replaces them.

An automaton is a table `following` of int16 [states, 129] (the last column is for all characters
that aren't ASCII) and `accepts`, an int8 per state: bit 0 says that a match may end here, bit 1
that one does if the text ends here. State 0 has no way out. Texts that aren't UTF-8 (or not ASCII,
if the automaton knows no other), and texts that would take much longer than their size, are left to
the caller: their answer is ASK.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace._src.compile.codegen.emit import I1, I8, I16, I64, PTR, VOID, Function, Operand, Reg
from headrace._src.compile.codegen.kernel_spec import Team
from headrace._src.compile.kernels.singles.text_spans import (
    copy_bytes,
    count_while,
    is_ascii,
    new_text,
    span_at,
)

__all__ = ["ASK", "FullMatches", "Replacements"]

ASK = 2
_PATIENCE = 16  # steps for each byte of a text
_ENDS, _ENDS_LAST = 1, 2  # the bits of `accepts`


_CHARACTERS = 129  # the columns of `following`


def _byte(f: Function, text: Reg, at: Operand) -> Reg:
    return f.convert("zext", f.load(I8, text, at), I64)


def _size(f: Function, lead: Reg) -> Reg:
    """How many bytes a character has that begins with this one."""
    sizes = [f.convert("zext", f.icmp("uge", lead, limit), I64) for limit in (0xC0, 0xE0, 0xF0)]
    return f.add(f.add(sizes[0], sizes[1]), f.add(sizes[2], 1))


def _step(f: Function, following: Reg, state: Reg, text: Reg, at: Reg) -> tuple[Reg, Reg]:
    """Read a character: where the next one begins, and the next state."""
    lead = _byte(f, text, at)
    column = f.minimum(lead, _CHARACTERS - 1)
    found = f.load(I16, following, f.add(f.mul(state, _CHARACTERS), column))
    # A branch that is foreseen: the next byte is read without waiting for this one's size.
    (after,) = f.when(
        f.icmp("ult", lead, 0x80), lambda: f.add(at, 1), lambda: f.add(at, _size(f, lead))
    )
    return after, f.convert("zext", found, I64)


def _write_is_utf8(team: Team) -> Function:
    """(text, size) -> whether it is UTF-8, without surrogates."""
    f = team.helper("is_utf8", [PTR, I64], I1)
    text, size = f.parameters

    def is_between(byte: Reg, low: Operand, high: Operand) -> Reg:
        return f.and_(f.icmp("uge", byte, low), f.icmp("ule", byte, high))

    def character(at: Reg, _: Reg) -> list[Reg]:
        lead = _byte(f, text, at)
        end = f.add(at, _size(f, lead))

        def several() -> Reg:
            # What would be too long, a surrogate or too large shows in the second byte.
            low, high = f.const(0x80, I64), f.const(0xBF, I64)
            for first, limit in ((0xE0, 0xA0), (0xF0, 0x90)):
                low = f.select(f.icmp("eq", lead, first), f.const(limit, I64), low)
            for first, limit in ((0xED, 0x9F), (0xF4, 0x8F)):
                high = f.select(f.icmp("eq", lead, first), f.const(limit, I64), high)
            second = is_between(_byte(f, text, f.add(at, 1)), low, high)
            (rest,) = f.loop(
                f.add(at, 2),
                end,
                lambda i, fits: f.and_(fits, is_between(_byte(f, text, i), 0x80, 0xBF)),
                [second],
            )
            return rest

        whole = f.and_(f.icmp("sle", end, size), is_between(lead, 0xC2, 0xF4))
        is_ascii = f.icmp("ult", lead, 0x80)
        (fits,) = f.when(whole, several, lambda: is_ascii)
        return [end, fits]

    _, fits = f.repeat(
        lambda at, fits: f.and_(fits, f.icmp("slt", at, size)),
        character,
        [f.const(0, I64), f.const(True, I1)],
    )
    return f.finish(fits)


def _is_known(f: Function, is_utf8: Function, text: Reg, size: Reg, only_ascii: Reg) -> Reg:
    """Whether an automaton can read a text."""

    def other() -> Reg:
        valid = f.call_function(is_utf8, text, size)
        return f.and_(valid, f.icmp("eq", only_ascii, 0))

    (known,) = f.when(is_ascii(f, text, size), lambda: f.const(True, I1), other)
    return known


def _has(f: Function, accepts: Reg, state: Reg, bit: int) -> Reg:
    return f.icmp("ne", f.and_(f.load(I8, accepts, state), bit), 0)


@dataclass(frozen=True)
class FullMatches:
    """answers[i] = whether span i as a whole matches (int8), or ASK.

    `sizes`: how many spans, the state to begin in, and whether texts must be ASCII.
    """

    arguments = ("sizes", "addresses", "lengths", "following", "accepts", "out:answers", "out:done")
    counters = 0

    def scratch(self, threads: int) -> int:
        return 0

    def emit(self, team: Team) -> None:
        is_utf8 = _write_is_utf8(team)
        f = team.f
        sizes, addresses, lengths, following, accepts, answers, done = team.args
        count, start, only_ascii = (f.load(I64, sizes, i) for i in range(3))

        def match(i: Reg) -> None:
            text, size = span_at(f, addresses, lengths, i)

            def walk() -> Reg:
                _, state = f.repeat(
                    lambda at, state: f.and_(f.icmp("slt", at, size), f.icmp("ne", state, 0)),
                    lambda at, state: _step(f, following, state, text, at),
                    [f.const(0, I64), start],
                )
                return f.convert("zext", _has(f, accepts, state, _ENDS_LAST), I8)

            known = _is_known(f, is_utf8, text, size, only_ascii)
            (answer,) = f.when(known, walk, lambda: f.const(ASK, I8))
            f.store(answer, answers, i)

        f.loop(0, count, match)
        f.store(count, done)


@dataclass(frozen=True)
class Replacements:
    """texts[i] = strings[i] with its matches replaced, a new object or the same; answers[i] is then
    1. Where answers[i] is ASK, there is no object.

    `sizes`: how many, the states to begin in at the first byte and at others, how many matches to
    replace at most, the size of the rewrite, the addresses of PyBytes_FromStringAndSize and
    Py_IncRef, the size of the longest text that `matches` has room for (two words a match, one
    match more than bytes), and whether texts must be ASCII. Stops, with `done` less than how many,
    when there is no memory.
    """

    bytes_at: int

    arguments = (
        "sizes", "strings", "addresses", "lengths", "following", "accepts", "rewrite",
        "out:matches", "out:texts", "out:answers", "out:done",
    )  # fmt: skip
    counters = 0

    def scratch(self, threads: int) -> int:
        return 0

    def emit(self, team: Team) -> None:
        find, is_utf8 = _find_matches(team), _write_is_utf8(team)
        f = team.f
        (sizes, strings, addresses, lengths, following, accepts, rewrite, matches, texts, answers,
         done) = team.args  # fmt: skip
        count, new, longest, only_ascii = (f.load(I64, sizes, i) for i in (0, 4, 7, 8))
        make, keep = (f.load(PTR, sizes, i) for i in (5, 6))

        def write(i: Reg) -> Reg:
            text, size = span_at(f, addresses, lengths, i)
            (plain,) = f.when(
                f.icmp("sle", size, longest),
                lambda: _is_known(f, is_utf8, text, size, only_ascii),
                lambda: f.const(False, I1),
            )
            (found,) = f.when(
                plain,
                lambda: f.call_function(find, text, size, sizes, following, accepts, matches),
                lambda: f.const(-1, I64),
            )
            known = f.icmp("sge", found, 0)
            f.store(f.select(known, f.const(1, I8), f.const(ASK, I8)), answers, i)

            def same() -> Reg:
                string = f.load(PTR, strings, i)
                f.call_pointer(keep, VOID, string)
                f.store(string, texts, i)
                return f.const(True, I1)

            def changed() -> Reg:
                (total,) = f.loop(
                    0,
                    found,
                    lambda j, total: f.add(total, f.sub(new, _length(f, matches, j))),
                    [size],
                )
                made, there = new_text(f, make, total, self.bytes_at, fill)
                f.store(made, texts, i)
                return there

            def fill(target: Reg) -> None:

                def piece(j: Reg, read: Reg, written: Reg) -> list[Reg]:
                    start, end = (f.load(I64, matches, f.add(f.mul(j, 2), k)) for k in (0, 1))
                    before = f.sub(start, read)
                    copy_bytes(f, f.offset(text, read, I8), f.offset(target, written, I8), before)
                    written = f.add(written, before)
                    copy_bytes(f, rewrite, f.offset(target, written, I8), new)
                    return [end, f.add(written, new)]

                zero = f.const(0, I64)
                read, written = f.loop(0, found, piece, [zero, zero])
                rest = f.sub(size, read)
                copy_bytes(f, f.offset(text, read, I8), f.offset(target, written, I8), rest)

            (fits,) = f.when(
                f.icmp("sgt", found, 0),
                changed,
                lambda: f.when(f.icmp("eq", found, 0), same, lambda: f.const(True, I1)),
            )
            return fits

        f.store(count_while(f, count, write), done)


def _length(f: Function, matches: Reg, j: Reg) -> Reg:
    start, end = (f.load(I64, matches, f.add(f.mul(j, 2), k)) for k in (0, 1))
    return f.sub(end, start)


def _find_matches(team: Team) -> Function:
    """The function that finds the matches of one text, and returns how many there are; -1 if it
    takes too long.
    """
    f = team.helper("find", [PTR, I64, PTR, PTR, PTR, PTR], I64)
    text, size, sizes, following, accepts, matches = f.parameters
    first, later, most = (f.load(I64, sizes, i) for i in (1, 2, 3))
    patience = f.add(f.mul(size, _PATIENCE), 64)
    none = f.const(-1, I64)

    def last_end(start: Reg, steps: Reg) -> list[Reg]:
        """Where the match that begins at `start` ends, or -1; and the steps so far."""

        def is_open(at: Reg, state: Reg, best: Reg, steps: Reg) -> Reg:
            return f.and_(f.icmp("slt", at, size), f.icmp("ne", state, 0))

        def walk(at: Reg, state: Reg, best: Reg, steps: Reg) -> list[Reg]:
            best = f.select(_has(f, accepts, state, _ENDS), at, best)
            at, state = _step(f, following, state, text, at)
            return [at, state, best, f.add(steps, 1)]

        begin = f.select(f.icmp("eq", start, 0), first, later)
        at, state, best, steps = f.repeat(is_open, walk, [start, begin, none, steps])
        at_end = f.and_(f.icmp("eq", at, size), _has(f, accepts, state, _ENDS_LAST))
        return [f.select(at_end, at, best), steps]

    def search(at: Reg, last: Reg, found: Reg, steps: Reg) -> list[Reg]:
        end, steps = last_end(at, steps)
        repeated = f.and_(f.icmp("eq", end, at), f.icmp("eq", end, last))
        missed = f.or_(f.icmp("slt", end, 0), repeated)

        def take() -> list[Reg]:
            f.store(at, matches, f.mul(found, 2))
            f.store(end, matches, f.add(f.mul(found, 2), 1))
            return [end, end, f.add(found, 1)]

        def skip() -> list[Reg]:
            (after,) = f.when(
                f.icmp("slt", at, size),
                lambda: f.add(at, _size(f, _byte(f, text, at))),
                lambda: f.add(at, 1),
            )
            return [after, last, found]

        at, last, found = f.when(missed, skip, take)
        return [at, last, found, f.add(steps, 1)]

    def is_left(at: Reg, last: Reg, found: Reg, steps: Reg) -> Reg:
        inside = f.and_(f.icmp("sle", at, size), f.icmp("slt", found, most))
        return f.and_(inside, f.icmp("slt", steps, patience))

    zero = f.const(0, I64)
    _, _, found, steps = f.repeat(is_left, search, [zero, none, zero, zero])
    return f.finish(f.select(f.icmp("slt", steps, patience), found, none))
