"""Random numbers by Philox 4x32-10, equal to those of ops.random.philox number for number.

A stream is three 64-bit words: the key and the two halves of the counter at which it starts. A
sample of the generator gives a group of four numbers (two, for 8-byte types), so group g is a pure
function of the stream and g, and threads just divide the groups. Uniform floats and integers are
equal bit for bit. So are normal numbers of up to 32 bits, whose logarithms, sines and cosines are
rounded from float64 (but for about one in 10^8, where float64's own rounding shows); those of
float64 are equal up to rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import pi
from typing import TYPE_CHECKING

import numpy as np

from headrace._src.compile.codegen import vector_angles, vector_math
from headrace._src.compile.codegen.emit import F32, F64, I32, I64, PTR, Function, Operand, Reg
from headrace._src.compile.codegen.kernel_spec import Team
from headrace._src.compile.codegen.pointwise_code import load_value, memory_type, store_value
from headrace._src.compile.kernels.anchor_kind import AnchorKind, Arrays, Family, numpy_dtype
from headrace._src.compile.native.array_runners import team_runner
from headrace._src.devices.target import SIZES
from headrace._src.lowering.anchors import Advance, Random
from headrace._src.ops.random import philox as drawn

if TYPE_CHECKING:
    from headrace._src.compile.build.plan_builder import Builder
    from headrace._src.compile.regions.groups import Group

__all__ = ["KINDS", "AdvanceStream", "RandomNumbers", "StreamOfSeed", "routine"]

_ROUNDS = 10
_MASK = 0xFFFFFFFF
_MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
_KEY_STEPS = 0x9E3779B9, 0xBB67AE85
# The key under which the seeds of a stateless op are encrypted.
_SEED_KEY = 0x02461E29_3EC8F720
_LEAST_UNIFORM = 1e-7
_TRUNCATION = 2.0
_PER_NUMBER = 8  # operations, about


@dataclass(frozen=True)
class StreamOfSeed:
    """The stream of a stateless op: its two integer seeds, encrypted."""

    dtype: str

    arguments = ("seed", "out:stream")
    counters = 0

    def scratch(self, threads: int) -> int:
        return 0

    def emit(self, team: Team) -> None:
        f = team.f
        seed, stream = team.args

        def write() -> None:
            low, high = (load_value(f, self.dtype, 0, seed, i) for i in range(2))
            if self.dtype != "int64":
                low, high = f.convert("sext", low, I64), f.convert("sext", high, I64)
            keys = round_keys(f, f.const(_SEED_KEY, I64))
            words = philox(f, keys, low, high)
            f.store(_joined(f, words[0], words[1]), stream, 0)
            f.store(f.const(0, I64), stream, 1)
            f.store(_joined(f, words[2], words[3]), stream, 2)

        f.when(f.icmp("eq", team.thread, 0), write)


@dataclass(frozen=True)
class AdvanceStream:
    """Return the current stream of a generator, and advance the generator by some samples."""

    arguments = ("inout:generator", "samples", "out:stream")
    counters = 0
    small = True

    def scratch(self, threads: int) -> int:
        return 0

    def emit(self, team: Team) -> None:
        f = team.f
        generator, samples, stream = team.args
        words = [f.load(I64, generator, i) for i in range(3)]
        for i, word in enumerate(words):
            f.store(word, stream, i)
        step = f.load(I64, samples)
        low = f.wrapping("add", words[1], step)
        carry = f.convert("zext", f.icmp("ult", low, step), I64)
        f.store(low, generator, 1)
        f.store(f.wrapping("add", words[2], carry), generator, 2)


@dataclass(frozen=True)
class RandomNumbers:
    """Floats that are "uniform" in [0, 1), "normal" or "truncated" (normal, within two deviations),
    or "integer" numbers. `limits`, as int64: the count; for integers, also the lower bound and the
    exclusive upper bound. So ops of all sizes share one piece of code.
    """

    distribution: str
    dtype: str

    arguments = ("stream", "limits", "out:result")
    counters = 0

    @property
    def group(self) -> int:
        """How many numbers a sample gives."""
        return 2 if SIZES[self.dtype] == 8 else 4

    def scratch(self, threads: int) -> int:
        return 0

    def emit(self, team: Team) -> None:
        """Blocks of as many groups as there are lanes; the last one may go beyond the end."""
        f = team.f
        lanes = max(2, team.target.lanes("float64"))
        size = lanes * self.group
        block = self._block(team, lanes)
        stream, limits, result = team.args
        keys = round_keys(f, f.load(I64, stream))
        low, high = f.load(I64, stream, 1), f.load(I64, stream, 2)
        count = f.load(I64, limits)
        whole, over = f.div(count, size), f.rem(count, size)
        start, stop = team.share(f.div(f.add(count, size - 1), size))
        type = memory_type(self.dtype)

        def make(b: Operand, target: Reg) -> None:
            f.call_function(block, keys, low, high, limits, f.mul(b, lanes), target)

        def make_last() -> None:
            make(whole, room)
            first = f.mul(whole, size)
            f.loop(0, over, lambda i: f.store(f.load(type, room, i), result, f.add(i, first)))

        f.loop(
            start,
            f.minimum(stop, whole),
            lambda b: make(b, f.offset(result, f.mul(b, size), type)),
        )
        room = f.local(type, size)
        mine = f.and_(f.icmp("sle", start, whole), f.icmp("sgt", stop, whole))
        f.when(mine, make_last)

    def _block(self, team: Team, lanes: int) -> Function:
        """The function that writes the numbers of `lanes` groups from group g on."""
        truncated = self.distribution == "truncated"
        fill = self._fill(team) if truncated else None
        f = team.helper("block", [PTR, I64, I64, PTR, I64, PTR])
        keys, low, high, limits, g, target = f.parameters
        spacing = drawn.SAMPLES_PER_OUTPUT * self.group // 4 if truncated else 1
        steps = f.consts([spacing * i for i in range(lanes)], I64)
        first = f.wrapping("mul", g, spacing)
        offsets = f.wrapping("add", f.splat(first, lanes), steps)
        numbers = self._numbers(f, _sample(f, keys, low, high, offsets), limits)
        half = lanes * self.group // 2
        for i, vector in enumerate(_interleaved(f, numbers)):
            store_value(f, self.dtype, vector, target, i * half)
        if fill is not None:
            self._refill(f, fill, numbers, keys, low, high, first, target)
        return f.finish()

    # -- Words to numbers ------------------------------------------------------------------------

    def _numbers(self, f: Function, words: list[Reg], limits: Reg) -> list[Reg]:
        if self.distribution == "integer":
            return self._integers(f, words, limits)
        uniform = self._uniform(f, words)
        if self.distribution == "uniform":
            return uniform
        numbers: list[Reg] = []
        for radius, angle in zip(uniform[::2], uniform[1::2], strict=True):
            numbers += _box_muller(f, radius, angle)
        return numbers

    def _uniform(self, f: Function, words: list[Reg]) -> list[Reg]:
        """Low bits of the words become the mantissa of a number in [1, 2), less 1."""
        if self.dtype == "float64":
            pairs = zip(words[::2], words[1::2], strict=True)
            return [_double(f, upper, lower) for upper, lower in pairs]
        bits = {"float16": 10, "bfloat16": 7}.get(self.dtype, 23)
        if bits < 23 and self.distribution == "uniform":
            return [_narrow_uniform(f, w, bits) for w in words]
        return [_single(f, w) for w in words]

    def _integers(self, f: Function, words: list[Reg], limits: Reg) -> list[Reg]:
        lanes = words[0].type.lanes
        low, high = f.load(I64, limits, 1), f.load(I64, limits, 2)
        span = f.wrapping("sub", high, low)
        if self.dtype == "int64":
            pairs = zip(words[::2], words[1::2], strict=True)
            numbers = [_joined(f, lower, upper) for lower, upper in pairs]
            divisor, origin = f.splat(span, lanes), f.splat(low, lanes)
            return [f.wrapping("add", f.rem(n, divisor), origin) for n in numbers]
        divisor = f.splat(f.and_(span, _MASK), lanes)
        origin = f.splat(low, lanes)
        rests = [_remainder(f, w, divisor) for w in words]
        return [f.convert("trunc", f.wrapping("add", r, origin), I32) for r in rests]

    # -- Truncation ------------------------------------------------------------------------------

    def _refill(
        self, f: Function, fill: Function, numbers: list[Reg], keys: Reg, low: Reg, high: Reg,
        first: Reg, target: Reg,
    ) -> None:  # fmt: skip
        """Draw groups again that have a number out of bounds."""
        inside = _within(f, numbers[0])
        for n in numbers[1:]:
            inside = f.and_(inside, _within(f, n))
        spacing = drawn.SAMPLES_PER_OUTPUT * self.group // 4
        lanes = inside.type.lanes
        flags = f.local(memory_type("bool"), lanes)
        f.store(f.convert("zext", inside, memory_type("bool")), flags)

        def group(i: Reg) -> None:
            outside = f.icmp("eq", f.load(memory_type("bool"), flags, i), 0)
            offset = f.wrapping("add", first, f.mul(i, spacing))
            at = f.offset(target, f.mul(i, self.group), memory_type(self.dtype))
            f.when(outside, lambda: f.call_function(fill, keys, low, high, offset, at))

        some = f.icmp("eq", f.reduce("and", inside), 0)
        f.when(some, lambda: f.loop(0, lanes, group))

    def _fill(self, team: Team) -> Function:
        """The function that fills one group with the first numbers inside from its samples."""
        f = team.helper("fill", [PTR, I64, I64, I64, PTR])
        keys, low, high, offset, target = f.parameters

        def sample(k: Reg, filled: Reg) -> list[Reg]:
            at = f.wrapping("add", offset, k)
            for n in self._numbers(f, _sample(f, keys, low, high, at), keys):
                wanted = f.and_(_within(f, n), f.icmp("slt", filled, self.group))
                place = filled
                f.when(
                    wanted,
                    lambda n=n, place=place: store_value(f, self.dtype, n, target, place),
                )
                filled = f.add(filled, f.convert("zext", wanted, I64))
            return [f.add(k, 1), filled]

        f.repeat(
            lambda _k, filled: f.icmp("slt", filled, self.group),
            sample,
            [f.const(0, I64), f.const(0, I64)],
        )
        return f.finish()


# -- The generator ------------------------------------------------------------------------------


def round_keys(f: Function, key: Reg) -> Reg:
    """A table of the rounds' keys, two 64-bit words of 32 bits each."""
    table = f.local(I64, 2 * _ROUNDS)
    for half, step in enumerate(_KEY_STEPS):
        word = f.and_(f.lshr(key, 32 * half), _MASK)
        for r in range(_ROUNDS):
            f.store(f.and_(f.wrapping("add", word, r * step & _MASK), _MASK), table, 2 * r + half)
    return table


def philox(f: Function, keys: Reg, low: Reg, high: Reg) -> list[Reg]:
    """The four words of samples, in i64 lanes, from the halves of their counters.

    Between the rounds the upper halves of lanes hold anything: factors are masked right before they
    are multiplied, where processors that multiply 32-bit numbers to 64 bits need no mask.
    """
    lanes = low.type.lanes
    c = [low, f.lshr(low, 32), high, f.lshr(high, 32)]
    for r in range(_ROUNDS):
        left, right = (f.wrapping("mul", f.and_(c[2 * i], _MASK), _MULTIPLIERS[i]) for i in (0, 1))
        k = [f.splat(f.load(I64, keys, 2 * r + i), lanes) for i in range(2)]
        c = [
            f.xor(f.xor(f.lshr(right, 32), c[1]), k[0]),
            right,
            f.xor(f.xor(f.lshr(left, 32), c[3]), k[1]),
            left,
        ]
    return [f.and_(word, _MASK) for word in c]


def _sample(f: Function, keys: Reg, low: Reg, high: Reg, offsets: Reg) -> list[Reg]:
    """The samples at offsets from a stream's counter, which has 128 bits."""
    lanes = offsets.type.lanes
    at = f.wrapping("add", f.splat(low, lanes), offsets)
    carry = f.convert("zext", f.icmp("ult", at, offsets), I64)
    return philox(f, keys, at, f.wrapping("add", f.splat(high, lanes), carry))


def _joined(f: Function, lower: Reg, upper: Reg) -> Reg:
    """Two 32-bit words as one of 64."""
    return f.or_(f.shl(upper, 32), lower)


def _single(f: Function, word: Reg) -> Reg:
    mantissa = f.and_(f.convert("trunc", word, I32), (1 << 23) - 1)
    bits = f.or_(mantissa, 127 << 23)
    return f.fsub(f.convert("bitcast", bits, F32.of(word.type.lanes)), 1.0)


def _double(f: Function, upper: Reg, lower: Reg) -> Reg:
    mantissa = _joined(f, lower, f.and_(upper, (1 << 20) - 1))
    bits = f.or_(mantissa, 1023 << 52)
    return f.fsub(f.convert("bitcast", bits, F64.of(upper.type.lanes)), 1.0)


def _narrow_uniform(f: Function, word: Reg, bits: int) -> Reg:
    mantissa = f.and_(f.convert("trunc", word, I32), (1 << bits) - 1)
    return f.fmul(f.convert("sitofp", mantissa, F32), 2.0**-bits)


def _remainder(f: Function, x: Reg, divisor: Reg) -> Reg:
    """x % divisor of 32-bit numbers in i64 lanes: float64 division tells quotients apart."""
    quotient = f.fdiv(f.convert("sitofp", x, F64), f.convert("sitofp", divisor, F64))
    return f.sub(x, f.wrapping("mul", f.convert("fptosi", quotient, I64), divisor))


def _box_muller(f: Function, radius: Reg, angle: Reg) -> list[Reg]:
    """Two normal numbers from two uniform ones. Every step is rounded to their type; log, sin and
    cos are computed in float64.
    """
    narrow = radius.type.scalar == F32

    def wide(x: Reg) -> Reg:
        return f.convert("fpext", x, F64) if narrow else x

    def rounded(x: Reg) -> Reg:
        return f.convert("fptrunc", x, F32) if narrow else x

    bounded = f.select(f.fcmp("ogt", radius, _LEAST_UNIFORM), radius, _LEAST_UNIFORM)
    log = rounded(vector_math.log(f, wide(bounded)))
    radius = vector_math.sqrt(f, f.fmul(log, -2.0))
    angle = rounded(f.fmul(wide(angle), 2 * pi))
    both = vector_angles.sine_and_cosine(f, wide(angle))
    return [f.fmul(rounded(v), radius) for v in both]


def _within(f: Function, x: Reg) -> Reg:
    return f.fcmp("olt", f.intrinsic("fabs", x.type, x), _TRUNCATION)


def _interleaved(f: Function, vectors: list[Reg]) -> list[Reg]:
    """Lane by lane, two or four vectors as two: all of lane 0, all of lane 1, …"""
    lanes = vectors[0].type.lanes
    pairs = [k for i in range(lanes) for k in (i, lanes + i)]
    if len(vectors) == 2:
        first, second = vectors
        return [f.shuffle(first, second, pairs[:lanes]), f.shuffle(first, second, pairs[lanes:])]
    a, b, c, d = vectors
    left, right = f.shuffle(a, b, pairs), f.shuffle(c, d, pairs)
    size = 2 * lanes
    fours = [k for i in range(0, size, 2) for k in (i, i + 1, size + i, size + i + 1)]
    return [f.shuffle(left, right, fours[:size]), f.shuffle(left, right, fours[size:])]


# -- In a cluster ----------------------------------------------------------------------------------


def _supports(g: Random) -> bool:
    """Return whether kernels draw exactly the op's numbers from operands alone. Generators are
    advanced outside (rewrites), and normal float64 numbers are left to the op, because there is no
    wider type to round their logarithms and angles from.
    """
    return g.source != "own" and (g.dtype != "float64" or g.distribution == "uniform")


def _build(builder: Builder, group: Group) -> None:
    """Random numbers of a stream, or of the stream that seeds determine."""
    node = group.head
    g: Random = node.geometry
    (operand,) = g.operands
    stream = builder.whole(node.inputs[operand])
    if g.source == "seed":
        seed, stream = stream, builder.temporary("uint64", 3, f"{node.name}/stream")
        builder.call(StreamOfSeed(node.input_dtypes[operand]), [seed, stream], node.name)
    numbers = np.array([g.count, *(g.bounds or ())])
    limits = builder.add("constant", "int64", numbers.size, f"{node.name}/limits", value=numbers)
    kernel = RandomNumbers(g.distribution, g.dtype)
    builder.call(kernel, [stream, limits, builder.result(node.outputs[0])], node.name)


def _build_advance(builder: Builder, group: Group) -> None:
    """Advance a random generator, which is a variable of three words."""
    node = group.head
    g: Advance = node.geometry
    generator = builder.variable(builder.region.variable(node.inputs[0]), "uint64", 3)
    step = np.array([g.count * drawn.SAMPLES_PER_OUTPUT])
    samples = builder.add("constant", "int64", 1, f"{node.name}/samples", value=step)
    buffers = [generator, samples, builder.result(node.outputs[0])]
    builder.call(AdvanceStream(), buffers, node.name)


# -- Interpreted, and its meaning ------------------------------------------------------------------


def routine(distribution: str, dtype: str) -> Callable[..., None]:
    """The function (stream, limits, array) that fills an array from a stream."""
    run = team_runner(RandomNumbers(distribution, dtype))

    def fill(stream: np.ndarray, limits: tuple[int, int], out: np.ndarray) -> None:
        run(_PER_NUMBER * out.size, stream, np.array([out.size, *limits]), out)

    return fill


def _meaning(g: Random, *given: np.ndarray) -> Arrays:
    if g.source == "own":
        stream = drawn.PhiloxState(*g.seeds).reserve(0)
    elif g.source == "stream":
        stream = drawn.Stream.of_words(given[0])
    else:
        stream = drawn.stateless_stream(given[0])
    return [drawn.draw(g.distribution, stream, [g.count], numpy_dtype(g.dtype), g.bounds)]


KINDS = (
    AnchorKind("random", Family(_build, _supports), meanings={Random: _meaning}),
    AnchorKind("generator", Family(_build_advance)),
)
