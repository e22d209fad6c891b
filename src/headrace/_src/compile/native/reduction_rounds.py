"""Wait for words in shared memory, and run a whole round of a reduction between two such waits. In:
addresses. Out: functions that do so without Python's global lock.

A round of Python's takes longer than its 15 us of work: behind a step, nothing of Python is in the
caches. So rounds that find everything as in the round before are one native call.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any, NamedTuple

from headrace._src.compile.codegen.emit import I64, PTR, VOID, Function, Module, Reg
from headrace._src.compile.native import machine_code
from headrace._src.devices.target import Target, host

__all__ = ["RoundWords", "quick_round", "waiter"]


@cache
def waiter() -> Any:
    """Return a function that spins until all of some words have reached a value, or for a number of
    rounds: (table of addresses, how many, offset in words, value, rounds) -> whether they have.
    None if no code can be generated here.
    """
    if machine_code.why_not() is not None:
        return None
    (address,) = machine_code.link({"wait for words": lambda s: waiter_text(s, host())})
    return ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, *[ctypes.c_int64] * 4)(address)


def waiter_text(symbol: str, target: Target) -> str:
    """Write the function."""
    module = Module(target)
    f = module.function(symbol, [PTR, *[I64] * 4], I64, internal=False, noalias=False)
    f.finish(_wait(f, *f.parameters))
    return str(module)


def _wait(f: Function, table: Reg, count: Reg, offset: Any, value: Reg, rounds: Reg) -> Reg:
    """Return 1 if all words have reached the value, after looking for some rounds; else 0."""

    def again(left: Reg, found: Reg) -> list[Reg]:
        f.relax()
        return [f.sub(left, 1), _all_have(f, table, count, offset, value)]

    def goes_on(left: Reg, found: Reg) -> Reg:
        return f.and_(f.icmp("sgt", left, 0), f.icmp("eq", found, 0))

    return f.repeat(goes_on, again, [rounds, _all_have(f, table, count, offset, value)])[1]


def _all_have(f: Function, table: Reg, count: Reg, offset: Any, value: Reg) -> Reg:
    one, none = f.const(1, I64), f.const(0, I64)

    def each(i: Reg, so_far: Reg) -> list[Reg]:
        word = f.atomic_load(f.load(PTR, table, i), offset)
        return [f.select(f.icmp("slt", word, value), none, so_far)]

    return f.loop(0, count, each, [one])[0]


class RoundWords(NamedTuple):
    """The words of a process's line: its last round that has begun, and that is done; the round
    whose end it sleeps for.
    """

    arrived: int
    done: int
    asleep: int


@cache
def quick_round(words: RoundWords) -> Any:
    """Return a function that runs a round as far as it goes without anything new or sleep:
    (table, round, rounds of looking) -> how many of its two phases are over. None if no code can be
    generated here.

    The process sets its word `arrived` in any case. When all have, and if each of the facts (an
    address and the word that should be there) is right, it reduces its share and sets `done`: one
    phase is over. When all have done so, both are. It does not wait beside a process that sleeps.
    The table: the addresses of all processes' lines, their number, the address of the own line; the
    facts and their number; the function of a BufferReduction, its table, and the number of pieces.
    """
    if machine_code.why_not() is not None:
        return None
    (address,) = machine_code.link({f"round {words}": lambda s: round_text(words, s, host())})
    return ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, *[ctypes.c_int64] * 2)(address)


def round_text(words: RoundWords, symbol: str, target: Target) -> str:
    """Write the function."""
    module = Module(target)
    f = module.function(symbol, [PTR, I64, I64], I64, internal=False, noalias=False)
    table, number, rounds = f.parameters
    lines, count, own = f.load(PTR, table), f.load(I64, table, 1), f.load(PTR, table, 2)
    none = f.const(0, I64)

    def tell(word: int) -> Reg:
        """Set a word; return 1 once all have, 0 if it takes long or somebody sleeps."""
        f.atomic_store(number, own, word)
        f.fence()  # a process that falls asleep says so and then looks at this word
        sleeps = f.loop(0, count, each_sleeps, [none])[0]
        return f.when(
            f.icmp("eq", sleeps, 0), lambda: _wait(f, lines, count, word, number, rounds), _none
        )[0]

    def each_sleeps(i: Reg, so_far: Reg) -> list[Reg]:
        word = f.atomic_load(f.load(PTR, lines, i), words.asleep)
        return [f.select(f.icmp("sge", word, number), f.const(1, I64), so_far)]

    def _none() -> Reg:
        return none

    def differs() -> Reg:
        facts, many = f.load(PTR, table, 3), f.load(I64, table, 4)

        def each(i: Reg, so_far: Reg) -> list[Reg]:
            at = f.mul(i, 2)
            word = f.load(I64, f.load(PTR, facts, at))
            return [f.or_(so_far, f.xor(word, f.load(I64, facts, f.add(at, 1))))]

        return f.loop(0, many, each, [none])[0]

    def reduce() -> Reg:
        reduction, pieces = f.load(PTR, table, 5), f.load(PTR, table, 6)
        f.call_pointer(reduction, VOID, pieces, f.load(I64, table, 7))
        return f.add(tell(words.done), 1)

    def all_are_there() -> Reg:
        return f.when(f.icmp("eq", differs(), 0), reduce, _none)[0]

    found = f.when(f.icmp("eq", tell(words.arrived), 1), all_are_there, _none)[0]
    f.finish(found)
    return str(module)
