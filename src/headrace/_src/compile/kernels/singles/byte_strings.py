"""Numbers of Python's strings: their sizes, hashes and values, straight from `bytes` objects.

An array of strings is an array of pointers to objects. To copy them into one buffer first takes
longer than most of what is computed of them, so the code reads the objects themselves. It must hold
Python's lock meanwhile, and so runs in one thread. Where an object has its type, its size and its
bytes is in the spec.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headrace._src.compile.codegen.emit import (
    F32,
    F64,
    I1,
    I8,
    I32,
    I64,
    PTR,
    Function,
    Operand,
    Reg,
    Type,
)
from headrace._src.compile.codegen.kernel_spec import Team
from headrace._src.ops.strings import hash_formulas as formulas

__all__ = ["FUNCTIONS", "StringNumbers"]


@dataclass(frozen=True)
class StringNumbers:
    """result[i] = function(strings[i]), until one is no `bytes` or not of the function's kind.

    `sizes`: how many, the address of the type `bytes`, the number of buckets (0: none) and the two
    words of a key. `done`: how many strings were read. Results are int64, or the float type that is
    the function's name.
    """

    function: str
    type_at: int
    size_at: int
    bytes_at: int

    arguments = ("sizes", "strings", "out:result", "out:done")
    counters = 0

    def scratch(self, threads: int) -> int:
        return 0

    def emit(self, team: Team) -> None:
        number = FUNCTIONS[self.function](team)
        f = team.f
        sizes, strings, result, done = team.args
        count, wanted, buckets = (f.load(I64, sizes, i) for i in range(3))
        keys = f.offset(sizes, 3, I64)

        def is_left(i: Reg, fits: Reg) -> Reg:
            return f.and_(fits, f.icmp("slt", i, count))

        def read(i: Reg, _: Reg) -> list[Reg]:
            text = f.load(PTR, strings, i)
            (is_bytes,) = f.when(
                f.icmp("ne", f.convert("ptrtoint", text, I64), 0),
                lambda: f.icmp("eq", f.load(I64, f.offset(text, self.type_at, I8)), wanted),
                lambda: f.const(False, I1),
            )

            def take() -> Reg:
                size = f.load(I64, f.offset(text, self.size_at, I8))
                f.store(f.const(1, I64), done)
                value = f.call_function(number, f.offset(text, self.bytes_at, I8), size, keys, done)
                f.store(_bucket(f, value, buckets), result, i)
                return f.icmp("ne", f.load(I64, done), 0)

            (fits,) = f.when(is_bytes, take, lambda: f.const(False, I1))
            return [f.add(i, f.convert("zext", fits, I64)), fits]

        read_count, _ = f.repeat(is_left, read, [f.const(0, I64), f.const(True, I1)])
        f.store(read_count, done)


def _bucket(f: Function, value: Reg, buckets: Reg) -> Reg:
    if value.type is not I64:
        return value
    (bucket,) = f.when(f.icmp("eq", buckets, 0), lambda: value, lambda: f.rem(value, buckets))
    return bucket


def _function(
    name: str, result: Type = I64
) -> Callable[[Callable[..., Reg]], Callable[[Team], Function]]:
    """Make a helper of a kernel: (bytes, size, key, fits) -> a number; *fits is 0 if it's none."""

    def decorate(body: Callable[..., Reg]) -> Callable[[Team], Function]:
        def begin(team: Team) -> Function:
            f = team.helper(name, [PTR, I64, PTR, PTR], result)
            return f.finish(body(f, *f.parameters))

        return begin

    return decorate


# -- Hashes ----------------------------------------------------------------------------------------


class _Word:
    """A register with the operators of a 64-bit unsigned integer."""

    def __init__(self, f: Function, reg: Reg) -> None:
        self.f, self.reg = f, reg

    def _with(self, opcode: str, x: Any, y: Any) -> _Word:
        first, second = (
            v.reg if isinstance(v, _Word) else self.f.const(_signed(v), I64) for v in (x, y)
        )
        return _Word(self.f, self.f.wrapping(opcode, first, second))

    def __add__(self, other: Any) -> _Word:
        return self._with("add", self, other)

    def __sub__(self, other: Any) -> _Word:
        return self._with("sub", self, other)

    def __mul__(self, other: Any) -> _Word:
        return self if other == 1 else self._with("mul", self, other)

    def __xor__(self, other: Any) -> _Word:
        return self._with("xor", self, other)

    def __or__(self, other: Any) -> _Word:
        return self._with("or", self, other)

    def __and__(self, other: Any) -> _Word:
        return self if other == formulas.MASK else self._with("and", self, other)

    def __rshift__(self, bits: Any) -> _Word:
        return self._with("lshr", self, bits)

    def __lshift__(self, bits: Any) -> _Word:
        return self._with("shl", self, bits)

    __radd__, __rmul__, __rxor__ = __add__, __mul__, __xor__
    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return self is other


def _signed(value: int) -> int:
    value %= 2**64
    return value - 2**64 if value >= 2**63 else value


class _Text:
    """One string, as the formulas want it."""

    def __init__(self, f: Function, bytes: Reg, size: Reg) -> None:
        self.f, self._bytes = f, bytes
        self.lengths = self.sizes = _Word(f, size)

    def _load(self, type: Type, offset: Any) -> _Word:
        f = self.f
        if isinstance(offset, int) and offset < 0:
            offset = self.lengths + offset
        at = offset.reg if isinstance(offset, _Word) else offset
        found = f.load(type, f.offset(self._bytes, at, I8), align=1)
        return _Word(f, found if type is I64 else f.convert("zext", found, I64))

    def word(self, offset: Any) -> _Word:
        return self._load(I64, offset)

    def half(self, offset: Any) -> _Word:
        return self._load(I32, offset)

    def byte(self, offset: Any) -> _Word:
        return self._load(I8, offset)

    def tail(self) -> _Word:
        """The bytes after the last whole word, as a little-endian number."""
        f, size = self.f, self.sizes.reg
        whole = f.and_(size, -8)

        def add(i: Reg, word: Reg) -> Reg:
            shift = f.shl(f.sub(i, whole), 3)
            return f.or_(word, f.shl(self.byte(_Word(f, i)).reg, shift))

        (word,) = f.loop(whole, size, add, [f.const(0, I64)])
        return _Word(f, word)


@_function("farm")
def _farm(f: Function, bytes: Reg, size: Reg, key: Reg, fits: Reg) -> Reg:
    text = _Text(f, bytes, size)
    ranges: list[tuple[int, Callable[[_Text], _Word]]] = [
        (0, lambda text: _Word(f, f.const(_signed(formulas.K2), I64))),
        (3, formulas.farm_1_to_3),
        (7, formulas.farm_4_to_7),
        (16, formulas.farm_8_to_16),
        (32, formulas.farm_17_to_32),
        (64, formulas.farm_33_to_64),
    ]

    def from_range(i: int) -> Reg:
        if i == len(ranges):
            return _farm_long(f, text).reg
        longest, formula = ranges[i]
        (found,) = f.when(
            f.icmp("sle", size, longest), lambda: formula(text).reg, lambda: from_range(i + 1)
        )
        return found

    return from_range(0)


def _farm_long(f: Function, text: _Text) -> _Word:
    start = [
        v.reg if isinstance(v, _Word) else f.const(_signed(v), I64)
        for v in formulas.farm_start(text)
    ]

    def block(i: Reg, *state: Reg) -> list[Reg]:
        words = [_Word(f, s) for s in state]
        return [w.reg for w in formulas.farm_block(text, _Word(f, i), words, formulas.K1, 1)]

    last = f.sub(text.sizes.reg, 1)
    end = f.and_(last, -64)
    state = f.loop(0, end, block, start, step=64)
    return formulas.farm_end(text, [_Word(f, s) for s in state])


@_function("murmur")
def _murmur(f: Function, bytes: Reg, size: Reg, key: Reg, fits: Reg) -> Reg:
    text = _Text(f, bytes, size)
    start = text.sizes * formulas.MURMUR ^ formulas.MURMUR_SEED

    def absorb(i: Reg, state: Reg) -> Reg:
        return formulas.murmur_absorb(_Word(f, state), text.word(_Word(f, i))).reg

    (state,) = f.loop(0, f.and_(size, -8), absorb, [start.reg], step=8)
    (state,) = f.when(
        f.icmp("ne", f.and_(size, 7), 0),
        lambda: ((_Word(f, state) ^ text.tail()) * formulas.MURMUR).reg,
        lambda: state,
    )
    mix = formulas.mix
    return mix(mix(_Word(f, state)) * formulas.MURMUR).reg


@_function("sip")
def _sip(f: Function, bytes: Reg, size: Reg, key: Reg, fits: Reg) -> Reg:
    text = _Text(f, bytes, size)
    k = [_Word(f, f.load(I64, key, i)) for i in range(2)]
    start = [(k[i % 2] ^ word).reg for i, word in enumerate(formulas.SIP_START)]

    def absorb(i: Reg, *state: Reg) -> list[Reg]:
        words = formulas.sip_absorb([_Word(f, s) for s in state], text.word(_Word(f, i)))
        return [w.reg for w in words]

    state = f.loop(0, f.and_(size, -8), absorb, start, step=8)
    last = text.tail() | (text.sizes << 56)
    return formulas.sip_end(formulas.sip_absorb([_Word(f, s) for s in state], last)).reg


# -- Sizes and numbers -----------------------------------------------------------------------------


@_function("size")
def _size(f: Function, bytes: Reg, size: Reg, key: Reg, fits: Reg) -> Reg:
    return size


@_function("characters")
def _characters(f: Function, bytes: Reg, size: Reg, key: Reg, fits: Reg) -> Reg:
    """How many bytes are no continuation bytes of UTF-8."""

    def count(i: Reg, n: Reg) -> Reg:
        top = f.and_(f.load(I8, bytes, i), -64)
        return f.add(n, f.convert("zext", f.icmp("ne", top, -128), I64))

    (found,) = f.loop(0, size, count, [f.const(0, I64)])
    return found


_MOST_DIGITS = 18  # of a number that is sure to fit an int64


def _digits(f: Function, bytes: Reg, start: Operand, stop: Reg, value: Reg) -> tuple[Reg, Reg]:
    """Read decimal digits: where they end, and the number that they add to."""

    def digit(i: Operand) -> Reg:
        return f.sub(f.convert("zext", f.load(I8, bytes, i), I64), ord("0"))

    def is_digit(i: Reg, _: Reg) -> Reg:
        (found,) = f.when(
            f.icmp("slt", i, stop),
            lambda: f.icmp("ult", digit(i), 10),
            lambda: f.const(False, I1),
        )
        return found

    def add(i: Reg, total: Reg) -> list[Reg]:
        return [f.add(i, 1), f.wrapping("add", f.wrapping("mul", total, 10), digit(i))]

    end, total = f.repeat(is_digit, add, [f.reg(start), value])
    return end, total


def _sign(f: Function, bytes: Reg, size: Reg) -> Reg:
    """Whether a minus comes first."""
    (minus,) = f.when(
        f.icmp("sgt", size, 0),
        lambda: f.icmp("eq", f.load(I8, bytes), ord("-")),
        lambda: f.const(False, I1),
    )
    return minus


@_function("integer")
def _integer(f: Function, bytes: Reg, size: Reg, key: Reg, fits: Reg) -> Reg:
    """A minus or none, and digits that are sure to fit; whatever else is left to others."""
    minus = _sign(f, bytes, size)
    start = f.convert("zext", minus, I64)
    end, value = _digits(f, bytes, start, size, f.const(0, I64))
    count = f.sub(end, start)
    simple = f.and_(f.icmp("eq", end, size), f.icmp("ult", f.sub(count, 1), _MOST_DIGITS))
    f.store(f.convert("zext", simple, I64), fits)
    return f.select(minus, f.sub(0, value), value)


def _decimal(type: Type, most: int, powers: int) -> Callable[..., Reg]:
    """Digits with a point among them or not: exact if all digits together are a whole number of
    this type, and the power of ten that they are divided by is one too. Others are left to others.
    """

    def body(f: Function, bytes: Reg, size: Reg, key: Reg, fits: Reg) -> Reg:
        minus = _sign(f, bytes, size)
        start = f.convert("zext", minus, I64)
        middle, whole = _digits(f, bytes, start, size, f.const(0, I64))
        (has_point,) = f.when(
            f.icmp("slt", middle, size),
            lambda: f.icmp("eq", f.load(I8, bytes, middle), ord(".")),
            lambda: f.const(False, I1),
        )
        point = f.convert("zext", has_point, I64)
        behind = f.add(middle, point)
        end, value = _digits(f, bytes, behind, size, whole)
        after = f.select(has_point, f.sub(end, behind), 0)
        digits = f.add(f.sub(middle, start), after)
        simple = f.and_(f.icmp("eq", end, size), f.icmp("ult", f.sub(digits, 1), _MOST_DIGITS))
        exact = f.and_(f.icmp("sle", value, most), f.icmp("sle", after, powers))
        f.store(f.convert("zext", f.and_(simple, exact), I64), fits)
        scale = f.module.data("powers", [10.0**i for i in range(powers + 1)], type)
        divisor = f.load(type, scale, f.minimum(after, powers))
        number = f.fdiv(f.convert("sitofp", value, type), divisor)
        return f.select(minus, f.fneg(number), number)

    return body


FUNCTIONS: dict[str, Callable[[Team], Function]] = {
    "characters": _characters,
    "farm": _farm,
    "float32": _function("float32", F32)(_decimal(F32, 2**24, 10)),
    "float64": _function("float64", F64)(_decimal(F64, 2**53, 22)),
    "integer": _integer,
    "murmur": _murmur,
    "sip": _sip,
    "size": _size,
}
