"""The inner loops of the convolutions' matrix products. The sums stay in registers throughout.

`emit_product`, of blocked pixels and a panel of the filter:
    sum over blocks b and channels c < lanes of
        A[b * a_block + pixel * lanes + c] * B[(b * lanes + c) * b_row + k]
`emit_short_sums`, the same with smaller rounding errors, stored in memory.
`outer_function`, of blocked pixels and blocked gradients, for the filter's gradient:
    S[c * outer + k] += sum over pixels p of  X[p * lanes + c] * Y[p * y_row + k]
`lanes` are the channels of a block, `outer` = outer_width(lanes).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from headrace._src.compile.codegen.cache_lines import prefetch
from headrace._src.compile.codegen.emit import F32, I64, PTR, Function, Operand, Reg
from headrace._src.compile.codegen.kernel_spec import Team
from headrace._src.devices.target import Target

__all__ = [
    "Panels", "channels_at_once", "emit_product", "emit_short_sums", "outer_function",
    "outer_width", "padded", "registers_of",
]  # fmt: skip

_UNROLLED = 4  # channels: as fast as all of a block, and less code


def registers_of(target: Target, lanes: int) -> int:
    """How many vectors of `lanes` elements the registers hold."""
    return target.registers * target.vector_bytes // (lanes * 4)


@dataclass(frozen=True, slots=True)
class Panels:
    """How a filter [channels, filters] is stored for products: panels [channels][width] of filters
    that are computed together, one after the other; the last may be narrower.
    """

    channels: int
    filters: int
    width: int
    pixels: int  # how many of them times a panel fit into the registers

    @staticmethod
    def on(target: Target, channels: int, filters: int, lanes: int) -> Panels:
        """The panels that suit a processor: wide ones need fewer loads per product."""
        registers = registers_of(target, lanes)
        vectors = 4 if registers >= 32 else 2
        pixels = max(1, (registers - vectors - 1) // vectors)
        return Panels(channels, filters, vectors * lanes, pixels)

    @property
    def whole(self) -> int:
        """Filters in panels of full width."""
        return self.filters // self.width * self.width

    @property
    def tail(self) -> int:
        """The width of the last panel if it's narrower, else 0."""
        return self.filters - self.whole

    def place(self, f: Function, channel: Operand, filter_: Operand) -> Operand:
        """The offset of an element."""
        start = f.mul(f.div(filter_, self.width), self.channels * self.width)
        row = f.mul(channel, self.pitch(f, filter_))
        return f.add(start, f.add(row, f.rem(filter_, self.width)))

    def pitch(self, f: Function, filter_: Operand) -> Operand:
        """The width of the panel that a filter is in."""
        if not self.tail or not self.whole:
            return self.tail or self.width
        return f.select(f.icmp("slt", f.reg(filter_), self.whole), self.width, self.tail)


def emit_product(
    f: Function,
    a: Reg,
    b: Reg,
    *,
    pixels: int,
    vectors: int,
    lanes: int,
    blocks: Operand,
    a_block: Operand,
    b_row: int,
) -> list[Reg]:
    """The sums, vector by vector of each pixel."""

    def some(_: Reg, a: Reg, b: Reg, *sums: Reg) -> list[Reg]:
        total = list(sums)
        for c in range(_UNROLLED):
            rows = [p * lanes + c for p in range(pixels)]
            total = _add_products(f, a, rows, b, c * b_row, vectors, lanes, total)
        return [f.offset(a, _UNROLLED), f.offset(b, _UNROLLED * b_row), *total]

    def block(_: Reg, a: Reg, b: Reg, *sums: Reg) -> list[Reg]:
        return [f.offset(a, a_block), *f.loop(0, lanes // _UNROLLED, some, [a, b, *sums])[1:]]

    zeros = [f.const(0.0, F32.of(lanes))] * (pixels * vectors)
    return f.loop(0, blocks, block, [a, b, *zeros])[2:]


def _add_products(
    f: Function,
    a: Reg,
    rows: Sequence[int],
    b: Reg,
    column: int,
    vectors: int,
    lanes: int,
    sums: Sequence[Reg],
) -> list[Reg]:
    """The sums, none at first, plus one channel's products: A[row] of every pixel times the vectors
    of B that begin at `column`.
    """
    columns = [f.load(F32.of(lanes), b, column + v * lanes, in_place=True) for v in range(vectors)]
    total = []
    for p, row in enumerate(rows):
        x = f.splat(f.load(F32, a, row), lanes)
        for v in range(vectors):
            at = p * vectors + v
            total.append(f.fma(x, columns[v], sums[at]) if sums else f.fmul(x, columns[v]))
    return total


_CHAIN, _GROUP, _LARGE = 8, 32, 128  # channels


def emit_short_sums(
    f: Function,
    a: Reg,
    b: Reg,
    m: Reg,
    places: Sequence[int],
    *,
    pixels: int,
    vectors: int,
    lanes: int,
    channels: int,
    a_block: int,
    b_row: int,
) -> None:
    """Store the sums at `places` of `m`. A sum of n terms loses precision with the square root of
    n, so channels are added up in chains, in registers, chains in groups and groups in large
    groups, in buffers, and these in `m`.
    """
    vector, chain = F32.of(lanes), math.gcd(_CHAIN, channels)
    buffered = [i * lanes for i in range(len(places))]
    buffer = f.local(F32, len(places) * lanes)

    def chain_from(c: Operand) -> list[Reg]:
        ac = f.offset(a, f.add(f.mul(f.div(c, lanes), a_block), f.rem(c, lanes)))
        bc = f.offset(b, f.mul(c, b_row))
        total: list[Reg] = []
        for i in range(chain):
            rows = [i // lanes * a_block + p * lanes + i % lanes for p in range(pixels)]
            total = _add_products(f, ac, rows, bc, i * b_row, vectors, lanes, total)
        return total

    def store(values: Sequence[Reg], target: Reg, at: Sequence[int]) -> None:
        for value, place in zip(values, at, strict=True):
            f.store(value, target, place)

    def plus(values: Sequence[Reg], target: Reg, at: Sequence[int]) -> list[Reg]:
        pairs = zip(values, at, strict=True)
        return [f.fadd(value, f.load(vector, target, place)) for value, place in pairs]

    def add(values: Sequence[Reg], target: Reg, at: Sequence[int]) -> None:
        store(plus(values, target, at), target, at)

    def clear(target: Reg, at: Sequence[int]) -> None:
        store([f.const(0.0, vector)] * len(places), target, at)

    def group_from(c: Operand, count: int) -> list[Reg]:
        if count == chain:
            return chain_from(c)
        store(chain_from(c), buffer, buffered)
        last = f.add(c, count - chain)
        between = f.add(c, chain)
        f.loop(between, last, lambda k: add(chain_from(k), buffer, buffered), step=chain)
        return plus(chain_from(last), buffer, buffered)

    def groups(start: Operand, stop: Operand, target: Reg, at: Sequence[int]) -> None:
        f.loop(start, stop, lambda c: add(group_from(c, _GROUP), target, at), step=_GROUP)

    rest = channels % _GROUP
    whole = channels - rest
    if rest:
        store(group_from(0, rest), m, places)
    else:
        clear(m, places)
    if whole <= _LARGE:
        groups(rest, channels, m, places)
        return
    large = f.local(F32, len(places) * lanes)

    def large_group(c: Reg) -> None:
        clear(large, buffered)
        groups(c, f.minimum(f.add(c, _LARGE), channels), large, buffered)
        add([f.load(vector, large, at) for at in buffered], m, places)

    f.loop(rest, channels, large_group, step=_LARGE)


# -- For the filter's gradient ---------------------------------------------------------------------

_AHEAD = 8  # pixels: when they are needed, they have come from the second-level cache


def outer_width(lanes: int) -> int:
    """Filters whose sums are computed together."""
    return 3 * lanes


def padded(filters: int, lanes: int) -> int:
    """`filters` in whole panels."""
    outer = outer_width(lanes)
    return -(-filters // outer) * outer


def channels_at_once(target: Target, lanes: int) -> int:
    """How many channels times a panel of filters fit into the registers; divides a block."""
    most = max(1, (registers_of(target, lanes) - 4) // 3)
    return max(d for d in (1, 2, 4, 8) if d <= most and lanes % d == 0)


def outer_function(
    team: Team,
    name: str,
    lanes: int,
    vectors: int,
    y_row: int,
    apart: int,
    images: tuple[int, int],
) -> Function:
    """(X, Y, S, count, pixels, fresh): the sums of a few channels and `vectors` vectors of filters,
    which are `apart`, over the pixels of `count` images, which are `images` apart in X and Y. They
    are added to S, or stored there if `fresh`, but summed on their own first: short sums of sums
    lose less precision.
    """
    f = team.helper(name, [PTR, PTR, PTR, I64, I64, I64])
    x, y, s, count, pixels, fresh = f.parameters
    vector, outer = F32.of(lanes), outer_width(lanes)
    channels = channels_at_once(team.target, lanes)
    zeros = [f.const(0.0, vector)] * (channels * vectors)

    def pixel(_: Reg, x: Reg, y: Reg, *sums: Reg) -> list[Reg]:
        total = list(sums)
        prefetch(f, f.offset(x, _AHEAD * lanes), next=True)
        row = [f.load(vector, y, v * apart) for v in range(vectors)]
        for c in range(channels):
            value = f.splat(f.load(F32, x, c), lanes)
            for v in range(vectors):
                at = c * vectors + v
                total[at] = f.fma(value, row[v], total[at])
        return [f.offset(x, lanes), f.offset(y, y_row), *total]

    def image(_: Reg, x: Reg, y: Reg, *sums: Reg) -> list[Reg]:
        total = f.loop(0, pixels, pixel, [x, y, *sums])[2:]
        return [f.offset(x, images[0]), f.offset(y, images[1]), *total]

    sums = f.loop(0, count, image, [x, y, *zeros])[2:]
    places = [c * outer + v * lanes for c in range(channels) for v in range(vectors)]

    def store() -> None:
        for value, at in zip(sums, places, strict=True):
            f.store(value, s, at)

    def add() -> None:
        for value, at in zip(sums, places, strict=True):
            f.store(f.fadd(value, f.load(vector, s, at)), s, at)

    f.when(f.icmp("ne", fresh, 0), store, add)
    return f.finish()
