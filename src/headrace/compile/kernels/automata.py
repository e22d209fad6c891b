"""Deterministic automata run over spans of ASCII text: which ones match, and what replaces them.

An automaton is a table `following` of int16 [states, 128] and `accepts`, an int8 per state: bit 0
says that a match may end here, bit 1 that one does if the text ends here. State 0 has no way out.
Texts with other bytes than ASCII, and texts that would take much longer than their size, are left
to the caller: their answer is ASK.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.compile.emit import I1, I8, I16, I64, PTR, VOID, Function, Reg
from headrace.compile.kernel import Team
from headrace.compile.kernels.text_spans import copy_bytes, count_while, is_ascii, new_text, span_at

__all__ = ["ASK", "FullMatches", "Replacements"]

ASK = 2
_PATIENCE = 16  # steps for each byte of a text
_ENDS, _ENDS_LAST = 1, 2  # the bits of `accepts`


def _step(f: Function, following: Reg, state: Reg, byte: Reg) -> Reg:
    at = f.add(f.shl(state, 7), f.convert("zext", byte, I64))
    return f.convert("zext", f.load(I16, following, at), I64)


def _has(f: Function, accepts: Reg, state: Reg, bit: int) -> Reg:
    return f.icmp("ne", f.and_(f.load(I8, accepts, state), bit), 0)


@dataclass(frozen=True)
class FullMatches:
    """answers[i] = whether span i as a whole matches (int8), or ASK.

    `sizes`: how many spans, and the state to begin in.
    """

    arguments = ("sizes", "addresses", "lengths", "following", "accepts", "out:answers", "out:done")
    counters = 0

    def scratch(self, threads: int) -> int:
        return 0

    def emit(self, team: Team) -> None:
        f = team.f
        sizes, addresses, lengths, following, accepts, answers, done = team.args
        count, start = (f.load(I64, sizes, i) for i in range(2))

        def match(i: Reg) -> None:
            text, size = span_at(f, addresses, lengths, i)

            def walk() -> Reg:
                _, state = f.repeat(
                    lambda at, state: f.and_(f.icmp("slt", at, size), f.icmp("ne", state, 0)),
                    lambda at, state: [
                        f.add(at, 1),
                        _step(f, following, state, f.load(I8, text, at)),
                    ],
                    [f.const(0, I64), start],
                )
                return f.convert("zext", _has(f, accepts, state, _ENDS_LAST), I8)

            (answer,) = f.when(is_ascii(f, text, size), walk, lambda: f.const(ASK, I8))
            f.store(answer, answers, i)

        f.loop(0, count, match)
        f.store(count, done)


@dataclass(frozen=True)
class Replacements:
    """texts[i] = strings[i] with its matches replaced, a new object or the same; answers[i] is then
    1. Where answers[i] is ASK, there is no object.

    `sizes`: how many, the states to begin in at the first byte and at others, how many matches to
    replace at most, the size of the rewrite, the addresses of PyBytes_FromStringAndSize and
    Py_IncRef, and the size of the longest text that `matches` has room for (two words a match, one
    match more than bytes). Stops, with `done` less than how many, when there is no memory.
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
        find = _find_matches(team)
        f = team.f
        (sizes, strings, addresses, lengths, following, accepts, rewrite, matches, texts, answers,
         done) = team.args  # fmt: skip
        count, new, longest = (f.load(I64, sizes, i) for i in (0, 4, 7))
        make, keep = (f.load(PTR, sizes, i) for i in (5, 6))

        def write(i: Reg) -> Reg:
            text, size = span_at(f, addresses, lengths, i)
            (plain,) = f.when(
                f.icmp("sle", size, longest),
                lambda: is_ascii(f, text, size),
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
            state = _step(f, following, state, f.load(I8, text, at))
            return [f.add(at, 1), state, best, f.add(steps, 1)]

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

        at, last, found = f.when(missed, lambda: [f.add(at, 1), last, found], take)
        return [at, last, found, f.add(steps, 1)]

    def is_left(at: Reg, last: Reg, found: Reg, steps: Reg) -> Reg:
        inside = f.and_(f.icmp("sle", at, size), f.icmp("slt", found, most))
        return f.and_(inside, f.icmp("slt", steps, patience))

    zero = f.const(0, I64)
    _, _, found, steps = f.repeat(is_left, search, [zero, none, zero, zero])
    return f.finish(f.select(f.icmp("slt", steps, patience), found, none))
