"""Serialized Examples and FeatureLists: where the features are, and their values.

The code reads the wire format of both, in the order and with the fields that every writer of them
uses. It declines whatever else it meets: a field that isn't expected, a key twice or not in ASCII,
a value that is cut off. Positions count bytes from the start of a message; one below zero says that
the message was declined, and each reader checks that it stays inside of its message.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headrace._src.compile.codegen.emit import I1, I8, I32, I64, PTR, Function, Operand, Reg
from headrace._src.compile.codegen.kernel_spec import Team
from headrace._src.compile.kernels.singles.text_spans import count_while, is_ascii, span_at

__all__ = ["KINDS", "FeaturePlaces", "FeatureRowsKernel", "FeatureValues"]

KINDS = {"bytes": 1, "float": 2, "int64": 3}  # the field of a Feature that has such values
_DECLINED = -1
_EMPTY = -2  # the count of a feature that is there, but has no kind
_NUMBER, _MESSAGE, _FLOAT = 0, 2, 5  # wire types


def _tag(field: int, wire_type: int) -> int:
    return field << 3 | wire_type


def _if(f: Function, condition: Reg, body: Callable[[], Reg]) -> Reg:
    """What the body gives if the condition holds, else _DECLINED."""
    (found,) = f.when(condition, body, lambda: f.const(_DECLINED, I64))
    return found


def _byte(f: Function, message: Reg, at: Operand) -> Reg:
    return f.convert("zext", f.load(I8, message, at), I64)


def _has_tag(f: Function, message: Reg, at: Operand, stop: Reg, tag: int) -> Reg:
    (found,) = f.when(
        f.icmp("slt", at, stop),
        lambda: f.icmp("eq", _byte(f, message, at), tag),
        lambda: f.const(False, I1),
    )
    return found


class _Reader:
    """What a kernel reads messages with, and the lists of a Feature."""

    def __init__(self, team: Team) -> None:
        self.team = team
        self._number = self._write_number()
        self._size = self._write_size()

    def _write_number(self) -> Function:
        """(message, at, stop, result) -> the position behind a number of 7 bits a byte."""
        f = self.team.helper("number", [PTR, I64, I64, PTR], I64)
        message, start, stop, result = f.parameters

        def read(at: Reg, value: Reg, shift: Reg, _: Reg) -> list[Reg]:
            def take() -> list[Reg]:
                byte = _byte(f, message, at)
                bits = f.wrapping("shl", f.and_(byte, 127), shift)
                # The tenth byte has the last of 64 bits, and nothing else.
                too_large = f.and_(f.icmp("eq", shift, 63), f.icmp("ugt", byte, 1))
                position = f.select(too_large, f.const(_DECLINED, I64), f.add(at, 1))
                more = f.and_(f.icmp("uge", byte, 128), f.icmp("sge", position, 0))
                return [position, f.or_(value, bits), f.add(shift, 7), more]

            inside = f.and_(f.icmp("slt", at, stop), f.icmp("sle", shift, 63))
            outside = [f.const(_DECLINED, I64), value, shift, f.const(False, I1)]
            return f.when(inside, take, lambda: outside)

        zero = f.const(0, I64)
        first = [start, zero, zero, f.const(True, I1)]
        at, value, _, _ = f.repeat(lambda at, value, shift, more: more, read, first)
        f.store(value, result)
        return f.finish(at)

    def _write_size(self) -> Function:
        """(message, at, stop, result) -> the position behind a size that doesn't pass `stop`."""
        f = self.team.helper("size", [PTR, I64, I64, PTR], I64)
        message, start, stop, result = f.parameters
        at = f.call_function(self._number, message, start, stop, result)
        fits = f.icmp("ule", f.load(I64, result), f.sub(stop, at))
        return f.finish(_if(f, f.and_(f.icmp("sge", at, 0), fits), lambda: at))

    def part(
        self,
        f: Function,
        message: Reg,
        at: Operand,
        stop: Reg,
        tag: int,
        body: Callable[[Reg, Reg], Reg],
    ) -> Reg:
        """Read the field at a position if it has this tag: body(where it starts, where it ends)."""
        size = f.local(I64, 1)

        def read() -> Reg:
            start = f.call_function(self._size, message, f.add(at, 1), stop, size)
            within = f.icmp("sge", start, 0)
            return _if(f, within, lambda: body(start, f.add(start, f.load(I64, size))))

        return _if(f, _has_tag(f, message, at, stop, tag), read)

    def number(self, f: Function, message: Reg, at: Operand, stop: Reg, result: Reg) -> Reg:
        """The position behind a number, which is stored."""
        return f.call_function(self._number, message, at, stop, result)

    def values(self, kind: str, fill: bool) -> Function:
        """The function (list, size, target, make) that gives the number of a list's values, or
        _DECLINED. With `fill` it writes them to the target; `make` makes a string.
        """
        f = self.team.helper(f"{kind}_{fill}", [PTR, I64, PTR, PTR], I64)
        count = f.local(I64, 1)
        f.store(f.const(0, I64), count)
        read = {"bytes": self._strings, "float": self._floats, "int64": self._integers}[kind]
        (at,) = f.repeat(
            lambda at: f.icmp("ult", at, f.parameters[1]),  # which a position below zero isn't
            lambda at: read(f, at, count, fill),
            [f.const(0, I64)],
        )
        whole = f.icmp("eq", at, f.parameters[1])
        return f.finish(_if(f, whole, lambda: f.load(I64, count)))

    # Each of these reads a field of a list, adds to the count, and returns where the field ends.

    def _strings(self, f: Function, at: Reg, count: Reg, fill: bool) -> Reg:
        message, stop, target, make = f.parameters

        def one(start: Reg, end: Reg) -> Reg:
            number = f.load(I64, count)
            f.store(f.add(number, 1), count)
            if not fill:
                return end
            made = f.call_pointer(make, PTR, f.offset(message, start, I8), f.sub(end, start))
            f.store(made, target, number)
            return _if(f, f.icmp("ne", f.convert("ptrtoint", made, I64), 0), lambda: end)

        return self.part(f, message, at, stop, _tag(1, _MESSAGE), one)

    def _floats(self, f: Function, at: Reg, count: Reg, fill: bool) -> Reg:
        message, stop, target, _ = f.parameters

        def take(start: Reg, end: Reg) -> Reg:
            size = f.sub(end, start)
            number, new = f.load(I64, count), f.lshr(size, 2)
            f.store(f.add(number, new), count)

            def copy(i: Reg) -> None:
                bits = f.load(I32, f.offset(message, start, I8), i, align=1)
                f.store(bits, target, f.add(number, i))

            if fill:
                f.loop(0, new, copy)
            return _if(f, f.icmp("eq", f.and_(size, 3), 0), lambda: end)

        def single() -> Reg:
            end = f.add(at, 5)
            fits = f.icmp("sle", end, stop)
            return _if(f, fits, lambda: take(f.add(at, 1), end))

        (end,) = f.when(
            _has_tag(f, message, at, stop, _tag(1, _FLOAT)),
            single,
            lambda: self.part(f, message, at, stop, _tag(1, _MESSAGE), take),
        )
        return end

    def _integers(self, f: Function, at: Reg, count: Reg, fill: bool) -> Reg:
        message, stop, target, _ = f.parameters
        value = f.local(I64, 1)

        def one(at: Reg, stop: Reg) -> Reg:
            after = self.number(f, message, at, stop, value)

            def take() -> None:
                number = f.load(I64, count)
                f.store(f.add(number, 1), count)
                if fill:
                    f.store(f.load(I64, value), target, number)

            f.when(f.icmp("sge", after, 0), take)
            return after

        def packed(start: Reg, end: Reg) -> Reg:
            (at,) = f.repeat(lambda at: f.icmp("ult", at, end), lambda at: one(at, end), [start])
            return at

        (end,) = f.when(
            _has_tag(f, message, at, stop, _tag(1, _NUMBER)),
            lambda: one(f.add(at, 1), stop),
            lambda: self.part(f, message, at, stop, _tag(1, _MESSAGE), packed),
        )
        return end


@dataclass(frozen=True)
class FeaturePlaces:
    """Where the list of each wanted feature is in each record: an address and a size, and how many
    values it has; the arrays are [keys, records]. `counts` comes with -1 everywhere: it stays below
    zero where a record has no such feature.

    `sizes`: how many records and keys. Key k is key_bytes[key_starts[k] : key_starts[k + 1]], of
    the kind kinds[k] (see KINDS). `done`: how many records were read.
    """

    arguments = (
        "sizes", "addresses", "lengths", "key_bytes", "key_starts", "kinds", "out:places",
        "out:place_sizes", "inout:counts", "out:done",
    )  # fmt: skip
    counters = 0

    def scratch(self, threads: int) -> int:
        return 0

    def emit(self, team: Team) -> None:
        reader = _Reader(team)
        feature = _write_feature(team, reader)
        find = _write_find(team)
        f = team.f
        (sizes, addresses, lengths, key_bytes, key_starts, kinds, places, place_sizes, counts,
         done) = team.args  # fmt: skip
        records, keys = (f.load(I64, sizes, i) for i in range(2))
        guess = f.local(I64, 1)  # records have their keys in one order, mostly
        f.store(f.const(0, I64), guess)
        found = f.local(I64, 4)  # kind, start, size and count of a feature

        def entry(i: Reg, record: Reg, start: Reg, end: Reg) -> Reg:
            def key(key_start: Reg, key_end: Reg) -> Reg:
                name, size = f.offset(record, key_start, I8), f.sub(key_end, key_start)
                tag = _tag(2, _MESSAGE)
                is_last = reader.part(
                    f, record, key_end, end, tag, lambda start, stop: value(start, stop, name, size)
                )
                return _if(f, is_ascii(f, name, size), lambda: is_last)

            def value(start: Reg, stop: Reg, name: Reg, size: Reg) -> Reg:
                message = f.offset(record, start, I8)
                valid = f.call_function(feature, message, f.sub(stop, start), found)
                fits = f.and_(f.icmp("eq", stop, end), f.icmp("sge", valid, 0))
                return _if(f, fits, lambda: wanted(message, name, size))

            def wanted(message: Reg, name: Reg, size: Reg) -> Reg:
                k = f.call_function(
                    find, name, size, key_bytes, key_starts, keys, f.load(I64, guess)
                )
                (fine,) = f.when(
                    f.icmp("sge", k, 0), lambda: take(message, k), lambda: f.const(True, I1)
                )
                return _if(f, fine, lambda: end)

            def take(message: Reg, k: Reg) -> Reg:
                f.store(f.add(k, 1), guess)
                kind, begin, size, count = (f.load(I64, found, j) for j in range(4))
                at = f.add(f.mul(k, records), i)
                first = f.icmp("eq", f.load(I64, counts, at), -1)
                f.store(f.offset(message, begin, I8), places, at)
                f.store(size, place_sizes, at)
                f.store(count, counts, at)
                known = f.icmp("eq", kind, f.load(I64, kinds, k))
                return f.and_(first, f.or_(known, f.icmp("eq", count, _EMPTY)))

            return reader.part(f, record, start, end, _tag(1, _MESSAGE), key)

        def features(i: Reg, record: Reg, start: Reg, end: Reg) -> Reg:
            (at,) = f.repeat(
                lambda at: f.icmp("ult", at, end),
                lambda at: reader.part(
                    f, record, at, end, _tag(1, _MESSAGE), lambda s, e: entry(i, record, s, e)
                ),
                [start],
            )
            return at

        def read(i: Reg) -> Reg:
            record, size = span_at(f, addresses, lengths, i)
            (at,) = f.when(
                f.icmp("eq", size, 0),
                lambda: f.const(0, I64),
                lambda: reader.part(
                    f, record, 0, size, _tag(1, _MESSAGE), lambda s, e: features(i, record, s, e)
                ),
            )
            return f.icmp("eq", at, size)

        f.store(count_while(f, records, read), done)


def _write_feature(team: Team, reader: _Reader) -> Function:
    """(feature, size, found) -> 0 or _DECLINED; found = kind, start, size, count of its list."""
    count_of = {kind: reader.values(kind, fill=False) for kind in KINDS}
    f = team.helper("feature", [PTR, I64, PTR], I64)
    message, size, found = f.parameters

    def read(kind: str, start: Reg, end: Reg) -> Reg:
        length = f.sub(end, start)
        null = f.const(0, PTR)
        count = f.call_function(count_of[kind], f.offset(message, start, I8), length, null, null)
        for i, value in enumerate((f.const(KINDS[kind], I64), start, length, count)):
            f.store(value, found, i)
        fits = f.and_(f.icmp("eq", end, size), f.icmp("sge", count, 0))
        return _if(f, fits, lambda: f.const(0, I64))

    def of_kinds(kinds: Sequence[str]) -> Reg:
        if not kinds:
            return f.const(_DECLINED, I64)
        tag = _tag(KINDS[kinds[0]], _MESSAGE)
        (valid,) = f.when(
            _has_tag(f, message, 0, size, tag),
            lambda: reader.part(f, message, 0, size, tag, lambda s, e: read(kinds[0], s, e)),
            lambda: of_kinds(kinds[1:]),
        )
        return valid

    def empty() -> Reg:
        for i, value in enumerate((0, 0, 0, _EMPTY)):
            f.store(f.const(value, I64), found, i)
        return f.const(0, I64)

    (valid,) = f.when(f.icmp("eq", size, 0), empty, lambda: of_kinds(list(KINDS)))
    return f.finish(valid)


def _write_find(team: Team) -> Function:
    """(name, size, key_bytes, key_starts, keys, guess) -> which key that is, or -1."""
    f = team.helper("find", [PTR, I64, PTR, PTR, I64, I64], I64)
    name, size, key_bytes, key_starts, keys, guess = f.parameters

    def is_key(k: Reg) -> Reg:
        start = f.load(I64, key_starts, k)
        key = f.offset(key_bytes, start, I8)

        def compare() -> Reg:
            same = count_while(
                f, size, lambda i: f.icmp("eq", f.load(I8, name, i), f.load(I8, key, i))
            )
            return f.icmp("eq", same, size)

        length = f.sub(f.load(I64, key_starts, f.add(k, 1)), start)
        (found,) = f.when(f.icmp("eq", length, size), compare, lambda: f.const(False, I1))
        return found

    def differs(tried: Reg) -> Reg:
        at = f.add(guess, tried)
        k = f.select(f.icmp("sge", at, keys), f.sub(at, keys), at)
        return f.icmp("eq", is_key(k), f.const(False, I1))

    tried = count_while(f, keys, differs)
    at = f.add(guess, tried)
    k = f.select(f.icmp("sge", at, keys), f.sub(at, keys), at)
    return f.finish(f.select(f.icmp("slt", tried, keys), k, f.const(-1, I64)))


@dataclass(frozen=True)
class FeatureRowsKernel:
    """The features of one FeatureList: the kind of each (0: it has none), where its list is, and
    how many values that has (below zero where it has no kind).

    The spans are one, the message; there is room for as many features as it has pairs of bytes.
    `done`: how many features there are, or -1.
    """

    arguments = (
        "sizes", "addresses", "lengths", "out:kinds", "out:places", "out:place_sizes", "out:counts",
        "out:done",
    )  # fmt: skip
    counters = 0

    def scratch(self, threads: int) -> int:
        return 0

    def emit(self, team: Team) -> None:
        reader = _Reader(team)
        feature = _write_feature(team, reader)
        f = team.f
        _, addresses, lengths, kinds, places, place_sizes, counts, done = team.args
        message, stop = span_at(f, addresses, lengths, 0)
        found = f.local(I64, 4)

        def row(number: Reg, start: Reg, end: Reg) -> Reg:
            inner = f.offset(message, start, I8)
            valid = f.call_function(feature, inner, f.sub(end, start), found)

            def take() -> Reg:
                kind, begin, size, count = (f.load(I64, found, j) for j in range(4))
                f.store(kind, kinds, number)
                f.store(f.offset(inner, begin, I8), places, number)
                f.store(size, place_sizes, number)
                f.store(count, counts, number)
                return end

            return _if(f, f.icmp("sge", valid, 0), take)

        def read(at: Reg, number: Reg) -> list[Reg]:
            tag = _tag(1, _MESSAGE)
            after = reader.part(f, message, at, stop, tag, lambda s, e: row(number, s, e))
            return [after, f.add(number, 1)]

        at, number = f.repeat(
            lambda at, number: f.icmp("ult", at, stop), read, [f.const(0, I64), f.const(0, I64)]
        )
        f.store(_if(f, f.icmp("eq", at, stop), lambda: number), done)


@dataclass(frozen=True)
class FeatureValues:
    """All values of lists that FeaturePlaces has found, one list after the other.

    `sizes`: how many lists, the address of PyBytes_FromStringAndSize. `done`: how many were read.
    """

    kind: str

    arguments = ("sizes", "addresses", "lengths", "out:values", "out:done")
    counters = 0

    def scratch(self, threads: int) -> int:
        return 0

    def emit(self, team: Team) -> None:
        values_of = _Reader(team).values(self.kind, fill=True)
        f = team.f
        sizes, addresses, lengths, values, done = team.args
        make = f.load(PTR, sizes, 1)
        written = f.local(I64, 1)
        f.store(f.const(0, I64), written)
        element = {"bytes": PTR, "float": I32, "int64": I64}[self.kind]

        def read(i: Reg) -> Reg:
            start = f.load(I64, written)
            target = f.offset(values, start, element)
            span = span_at(f, addresses, lengths, i)
            count = f.call_function(values_of, *span, target, make)
            f.store(f.add(start, count), written)
            return f.icmp("sge", count, 0)

        f.store(count_while(f, f.load(I64, sizes), read), done)
