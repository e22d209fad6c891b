"""Moving rows by index, whatever their number, for interpreted operations: dividing rows by key,
and merging them again; and finding equal keys.

Rows are bytes: `sizes` says how many each has. A row of one element of 4 or 8 bytes is moved in one
register (`width`); other rows (0) are copied piece by piece. Each kernel works in one thread.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace._src.compile.codegen.emit import I1, I8, I32, I64, PTR, Function, Operand, Reg
from headrace._src.compile.codegen.kernel_spec import Team
from headrace._src.compile.kernels.rows.gather_rows import load_index

__all__ = ["DivideRows", "FirstPlaces", "IndexRange", "LastPlaces", "MergeRows", "UndivideRows"]

_PIECE = 32  # bytes that are copied at once
_HASH = 0x9E3779B97F4A7C15  # 2^64 divided by the golden ratio


class _Serial:
    """A kernel of one thread that needs no memory of its own."""

    counters = 0

    def scratch(self, threads: int) -> int:
        return 0


class _Rows:
    """How a kernel copies rows of `size` bytes."""

    def __init__(self, team: Team, width: int, size: Reg) -> None:
        self._f, self._width, self._size = team.f, width, size
        self._copy = None if width else _copy(team)

    def copy(self, target: Reg, to: Operand, source: Reg, at: Operand) -> None:
        """Copy row `at` of `source` to row `to` of `target`."""
        f = self._f
        if self._copy is None:
            f.store(f.load(I32 if self._width == 4 else I64, source, at), target, to)
        else:
            f.call_function(self._copy, self._row(target, to), self._row(source, at), self._size)

    def clear(self, target: Reg, row: Operand) -> None:
        """Fill a row with zeros."""
        f, start = self._f, self._row(target, row)
        f.loop(0, self._size, lambda i: f.store(f.const(0, I8), start, i))

    def _row(self, rows: Reg, number: Operand) -> Reg:
        return self._f.offset(rows, self._f.mul(number, self._size), I8)


def _copy(team: Team) -> Function:
    """(target, source, bytes): the last piece overlaps the one before."""
    f = team.helper("copy", [PTR, PTR, I64])
    target, source, size = f.parameters
    last = f.sub(size, _PIECE)

    def piece(at: Operand) -> None:
        f.store(f.load(I8.of(_PIECE), source, at, align=1), target, at, align=1)

    def in_pieces() -> None:
        f.loop(0, last, piece, step=_PIECE)
        piece(last)

    def in_bytes() -> None:
        f.loop(0, size, lambda i: f.store(f.load(I8, source, i), target, i))

    f.when(f.icmp("sge", last, 0), in_pieces, in_bytes)
    return f.finish()


@dataclass(frozen=True)
class DivideRows(_Serial):
    """Sort rows by their int32 keys in [0, parts); rows of the same key stay in order.

    `sizes`: the number of rows, the number of parts, and the bytes of a row. `ends`: where each
    part ends among the sorted rows. `done`: how many keys come before one out of range; if that is
    not all, nothing else is written.
    """

    width: int

    arguments = ("sizes", "rows", "keys", "out:result", "out:ends", "out:done")

    def emit(self, team: Team) -> None:
        f = team.f
        sizes, source, keys, result, ends, done = team.args
        count, parts, size = (f.load(I64, sizes, i) for i in range(3))
        rows = _Rows(team, self.width, size)

        def key(i: Reg) -> Reg:
            return load_index(f, "int32", keys, i)

        def is_inside(i: Reg) -> Reg:
            (inside,) = f.when(
                f.icmp("slt", i, count),
                lambda: f.icmp("ult", key(i), parts),
                lambda: f.const(False, I1),
            )
            return inside

        def count_one(i: Reg) -> Reg:
            part = key(i)
            f.store(f.add(f.load(I64, ends, part), 1), ends, part)
            return f.add(i, 1)

        def start_of(part: Reg, start: Reg) -> Reg:
            length = f.load(I64, ends, part)
            f.store(start, ends, part)
            return f.add(start, length)

        def move(i: Reg) -> None:
            part = key(i)
            place = f.load(I64, ends, part)
            rows.copy(result, place, source, i)
            f.store(f.add(place, 1), ends, part)

        def sort() -> None:
            f.loop(0, parts, start_of, [f.const(0, I64)])
            f.loop(0, count, move)

        f.loop(0, parts, lambda part: f.store(f.const(0, I64), ends, part))
        (counted,) = f.repeat(is_inside, count_one, [f.const(0, I64)])
        f.store(counted, done)
        f.when(f.icmp("eq", counted, count), sort)


@dataclass(frozen=True)
class IndexRange(_Serial):
    """The smallest and the largest of several vectors of int32 indices, together with 0 and -1.
    `parts`: the number of vectors, then the length and the address of each, and of its rows.
    """

    arguments = ("parts", "out:range")

    def emit(self, team: Team) -> None:
        f = team.f
        parts, result = team.args

        def vector(k: Reg, low: Reg, high: Reg) -> list[Reg]:
            count, indices, _ = _part(f, parts, k)

            def look(i: Reg, low: Reg, high: Reg) -> list[Reg]:
                index = load_index(f, "int32", indices, i)
                above = f.select(f.icmp("sgt", index, high), index, high)
                return [f.minimum(low, index), above]

            return f.loop(0, count, look, [low, high])

        start = [f.const(0, I64), f.const(-1, I64)]
        low, high = f.loop(0, f.load(I64, parts), vector, start)
        f.store(low, result)
        f.store(high, result, 1)


@dataclass(frozen=True)
class MergeRows(_Serial):
    """result[indices[k][i]] = rows[k][i], the last one if there are several; zeros where there is
    none. `parts` as for IndexRange. `sizes`: the number of rows of the result, and the bytes of a
    row. `seen`: a byte for each row of the result.
    """

    width: int

    arguments = ("parts", "sizes", "inout:seen", "out:result")

    def emit(self, team: Team) -> None:
        f = team.f
        parts, sizes, seen, result = team.args
        total, size = f.load(I64, sizes), f.load(I64, sizes, 1)
        rows = _Rows(team, self.width, size)
        f.loop(0, total, lambda i: f.store(f.const(0, I8), seen, i))

        def vector(k: Reg) -> None:
            count, indices, source = _part(f, parts, k)

            def move(i: Reg) -> None:
                index = load_index(f, "int32", indices, i)
                rows.copy(result, index, source, i)
                f.store(f.const(1, I8), seen, index)

            f.loop(0, count, move)

        def clear(i: Reg) -> None:
            f.when(f.icmp("eq", f.load(I8, seen, i), 0), lambda: rows.clear(result, i))

        f.loop(0, f.load(I64, parts), vector)
        f.loop(0, total, clear)


@dataclass(frozen=True)
class UndivideRows(_Serial):
    """result[i] = the next row of part keys[i]. `parts` as for IndexRange, with a place of eight
    bytes for the next row instead of indices. `sizes`: the number of rows, and the bytes of a row.
    `done`: how many keys come before one that is out of range, or whose part has no row left.
    """

    width: int

    arguments = ("inout:parts", "sizes", "keys", "out:result", "out:done")

    def emit(self, team: Team) -> None:
        f = team.f
        parts, sizes, keys, result, done = team.args
        total, count, size = f.load(I64, parts), f.load(I64, sizes), f.load(I64, sizes, 1)
        rows = _Rows(team, self.width, size)

        def key(i: Reg) -> Reg:
            return load_index(f, "int32", keys, i)

        def has_row(i: Reg) -> Reg:
            def in_part() -> Reg:
                length, _, _ = _part(f, parts, key(i))
                return f.icmp("slt", f.load(I64, parts, _next(f, key(i))), length)

            def inside() -> Reg:
                (found,) = f.when(f.icmp("ult", key(i), total), in_part, lambda: f.const(False, I1))
                return found

            (found,) = f.when(f.icmp("slt", i, count), inside, lambda: f.const(False, I1))
            return found

        def move(i: Reg) -> Reg:
            part = key(i)
            _, _, source = _part(f, parts, part)
            place = f.load(I64, parts, _next(f, part))
            rows.copy(result, i, source, place)
            f.store(f.add(place, 1), parts, _next(f, part))
            return f.add(i, 1)

        (moved,) = f.repeat(has_row, move, [f.const(0, I64)])
        f.store(moved, done)


def _next(f: Function, part: Reg) -> Reg:
    """Return the index of the place that counts the rows of a part."""
    return f.add(f.mul(part, 3), 2)


def _part(f: Function, parts: Reg, k: Reg) -> tuple[Reg, Reg, Reg]:
    """Return the length of vector k, its address, and that of its rows."""
    at = f.add(f.mul(k, 3), 1)
    return (
        f.load(I64, parts, at),
        f.load(PTR, parts, f.add(at, 1)),
        f.load(PTR, parts, f.add(at, 2)),
    )


class _Table:
    """A hash table of places of int64 keys: a word for each slot, -1 where it is free. `bits`: the
    binary logarithm of their number, of which at least half are to stay free.
    """

    def __init__(self, f: Function, slots: Reg, bits: Reg) -> None:
        self._f, self._slots = f, slots
        self._shift = f.sub(64, bits)
        size = f.shl(f.const(1, I64), bits)
        self._mask = f.sub(size, 1)
        f.loop(0, size, lambda i: f.store(f.const(-1, I64), slots, i))

    def find(self, keys: Reg, key: Reg) -> tuple[Reg, Reg]:
        """Return the slot of a key, and the place that it holds: -1 if the key is new."""
        f, slots = self._f, self._slots
        first = f.lshr(f.wrapping("mul", key, f.const(_HASH - (1 << 64), I64)), self._shift)

        def goes_on(_: Reg, place: Reg) -> Reg:
            (differs,) = f.when(
                f.icmp("sge", place, 0),
                lambda: f.icmp("ne", f.load(I64, keys, place), key),
                lambda: f.const(False, I1),
            )
            return differs

        def look_further(slot: Reg, _: Reg) -> list[Reg]:
            following = f.and_(f.add(slot, 1), self._mask)
            return [following, f.load(I64, slots, following)]

        slot, place = f.repeat(goes_on, look_further, [first, f.load(I64, slots, first)])
        return slot, place

    def put(self, slot: Reg, place: Reg) -> None:
        self._f.store(place, self._slots, slot)


@dataclass(frozen=True)
class FirstPlaces(_Serial):
    """The places at which new keys occur, in order. `sizes`: the number of keys, how many places to
    find at most, and the bits of the table. `done`: how many were found.
    """

    arguments = ("sizes", "keys", "inout:table", "out:places", "out:done")

    def emit(self, team: Team) -> None:
        f = team.f
        sizes, keys, slots, places, done = team.args
        count, limit, bits = (f.load(I64, sizes, i) for i in range(3))
        table = _Table(f, slots, bits)

        def goes_on(i: Reg, found: Reg) -> Reg:
            return f.and_(f.icmp("slt", i, count), f.icmp("slt", found, limit))

        def look(i: Reg, found: Reg) -> list[Reg]:
            slot, place = table.find(keys, f.load(I64, keys, i))

            def note() -> Reg:
                table.put(slot, i)
                f.store(i, places, found)
                return f.add(found, 1)

            (found,) = f.when(f.icmp("slt", place, 0), note, lambda: found)
            return [f.add(i, 1), found]

        _, found = f.repeat(goes_on, look, [f.const(0, I64)] * 2)
        f.store(found, done)


@dataclass(frozen=True)
class LastPlaces(_Serial):
    """places[i] = the last place of asked[i] among the keys, -1 if it is none of them. `sizes`: the
    number of keys, how many are asked for, and the bits of the table.
    """

    arguments = ("sizes", "keys", "asked", "inout:table", "out:places")

    def emit(self, team: Team) -> None:
        f = team.f
        sizes, keys, asked, slots, places = team.args
        count, queries, bits = (f.load(I64, sizes, i) for i in range(3))
        table = _Table(f, slots, bits)

        def enter(i: Reg) -> None:
            slot, _ = table.find(keys, f.load(I64, keys, i))
            table.put(slot, i)

        def look(i: Reg) -> None:
            _, place = table.find(keys, f.load(I64, asked, i))
            f.store(place, places, i)

        f.loop(0, count, enter)
        f.loop(0, queries, look)
