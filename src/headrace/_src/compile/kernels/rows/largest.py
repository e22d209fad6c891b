"""The largest elements of rows, and their positions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headrace._src.compile.codegen.emit import I1, I32, I64, PTR, Function, Operand, Reg, Type
from headrace._src.compile.codegen.kernel_spec import Team
from headrace._src.compile.codegen.pointwise_code import load_value, memory_type, store_value
from headrace._src.devices.target import SIZES

__all__ = ["LargestKernel", "LargestOfAny"]


@dataclass(frozen=True)
class LargestKernel:
    """The k largest of each of `rows` rows of `length` elements, in descending order; of equal ones
    the first comes first, and a NaN is larger than any number.
    """

    rows: int
    length: int
    k: int
    dtype: str

    arguments = ("x", "out:values", "out:indices")
    counters = 0

    def scratch(self, threads: int) -> int:
        return 0

    def emit(self, team: Team) -> None:
        _emit_rows(team, self.dtype, (self.rows, self.length, self.k), team.args)


@dataclass(frozen=True)
class LargestOfAny:
    """As LargestKernel, for any sizes: `sizes` are the rows, their length and k, as int64."""

    dtype: str

    arguments = ("sizes", "x", "out:values", "out:indices")
    counters = 0

    def scratch(self, threads: int) -> int:
        return 0

    def emit(self, team: Team) -> None:
        sizes, *arrays = team.args
        rows, length, k = (team.f.load(I64, sizes, i) for i in range(3))
        _emit_rows(team, self.dtype, (rows, length, k), arrays)


def _emit_rows(
    team: Team, dtype: str, sizes: tuple[Operand, Operand, Operand], arrays: list[Reg]
) -> None:
    """Keep the elements found so far sorted in the result; a larger element moves the smaller ones
    by one place. Few elements are larger, so a vector of elements is first compared with the least
    of those found.
    """
    f = team.f
    rows, length, k = sizes
    x, values, indices = arrays
    type = memory_type(dtype)
    lanes = team.target.lanes(dtype if SIZES[dtype] >= 4 else "float32")
    element = _element(team, dtype)
    whole = f.add(k, f.mul(f.div(f.sub(length, k), lanes), lanes))

    def row(r: Reg) -> None:
        at = f.mul(r, k)
        found = f.offset(values, at, type), f.offset(indices, at, I32)
        source = f.offset(x, f.mul(r, length), type)

        def one(j: Reg) -> None:
            f.call_function(element, source, *found, j, k)

        def vector(j: Reg) -> None:
            least = load_value(f, dtype, 0, found[0], f.sub(k, 1))
            block = load_value(f, dtype, lanes, source, j)
            beats = _beats(f, dtype, block, f.splat(least, lanes))
            _for_each_lane(f, beats, lambda lane: one(f.add(j, lane)))

        f.loop(0, k, one)
        f.loop(k, whole, vector, step=lanes)
        f.loop(whole, length, one)

    f.loop(*team.share(rows), row)


def _for_each_lane(f: Function, mask: Reg, body: Callable[[Reg], None]) -> None:
    """Run body(lane) for the lanes where a mask holds."""
    bits = f.convert("zext", f.convert("bitcast", mask, Type(f"i{mask.type.lanes}")), I64)

    def lowest(bits: Reg) -> Reg:
        body(f.call("llvm.cttz.i64", I64, bits, f.const(1, I1)))
        return f.and_(bits, f.wrapping("sub", bits, 1))

    f.repeat(lambda bits: f.icmp("ne", bits, 0), lowest, [bits])


def _element(team: Team, dtype: str) -> Function:
    """Return the function that inserts one element among those found, if it is large enough."""
    f = team.helper("element", [PTR, PTR, PTR, I64, I64])
    source, values, indices, j, k = f.parameters
    value = load_value(f, dtype, 0, source, j)
    last = f.sub(k, 1)

    def goes_before(place: Reg) -> Reg:
        first = f.icmp("eq", place, 0)
        before = f.select(first, place, f.sub(place, 1))
        beaten = _beats(f, dtype, value, load_value(f, dtype, 0, values, before))
        return f.select(first, f.const(False, I1), beaten)

    def move(place: Reg) -> Reg:
        before = f.sub(place, 1)
        store_value(f, dtype, load_value(f, dtype, 0, values, before), values, place)
        f.store(f.load(I32, indices, before), indices, place)
        return before

    def insert() -> None:
        (place,) = f.repeat(goes_before, move, [f.minimum(j, last)])
        store_value(f, dtype, value, values, place)
        f.store(f.convert("trunc", j, I32), indices, place)

    least = load_value(f, dtype, 0, values, last)
    f.when(f.or_(f.icmp("slt", j, k), _beats(f, dtype, value, least)), insert)
    return f.finish()


def _beats(f: Function, dtype: str, x: Reg, y: Reg) -> Reg:
    if "float" in dtype:
        return f.and_(f.fcmp("ord", y, y), f.fcmp("ugt", x, y))
    return f.icmp("ugt" if dtype.startswith("u") else "sgt", x, y)
