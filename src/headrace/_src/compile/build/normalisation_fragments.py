"""Anchors over rows and channels as Rows, Reduce and Map kernels: softmax and its losses, batch and
local response normalisation.

In: an anchor's geometry. Out: a fragment, which is a small Plan that a builder splices into the
plan of a cluster. Its inputs and outputs are the anchor's operands and outputs, with the same
numbers; its arena has the temporaries.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from math import prod
from operator import add
from typing import Any

from headrace._src.compile.codegen.combine import state_dtype
from headrace._src.compile.codegen.iteration_spaces import Access
from headrace._src.compile.kernels.rows.map_kernel import Map
from headrace._src.compile.kernels.rows.reduce_kernel import ReduceKernel
from headrace._src.compile.kernels.rows.rows_kernel import Rows, Stage
from headrace._src.compile.plan.plan import Plan
from headrace._src.compile.plan.plan_writer import PlanWriter
from headrace._src.lowering.anchors import (
    BatchNorm,
    CrossEntropy,
    LocalResponse,
    Softmax,
    SparseCrossEntropy,
)
from headrace._src.lowering.pointwise import Pointwise, record

__all__ = [
    "batch_norm",
    "batch_norm_statistics",
    "cross_entropy",
    "local_response",
    "normalise",
    "softmax",
    "sparse_cross_entropy",
]


def _input(plan: PlanWriter, index: int, dtype: str, count: int) -> int:
    return plan.add("input", dtype, count, index=index)


def _output(plan: PlanWriter, index: int, dtype: str, count: int) -> int:
    return plan.add("output", dtype, count, index=index)


def _stage(
    function: Callable[..., Any],
    operands: dict[str, str],
    *results: str,
    scalar: bool = False,
) -> Stage:
    """A stage; `operands` are named with their types."""
    return Stage(record(function, list(operands.values())), tuple(operands), results, scalar)


# -- Softmax and its loss -----------------------------------------------------------------------


def _exponentials(dtype: str, wide: str) -> list[Stage]:
    """The row's maximum in s0, e^(x - max) in row0 and its sum in s1."""

    def shifted(e: Any, x: Any, top: Any) -> tuple[Any, Any]:
        power = e.exp(e.cast(x, wide) - top)
        return power, power

    return [
        _stage(lambda e, x: e.cast(x, wide), {"x0": dtype}, "max s0"),
        _stage(shifted, {"x0": dtype, "s0": wide}, "row0", "sum s1"),
    ]


def softmax(g: Softmax) -> Plan:
    """Softmax or its logarithm: x -> y."""
    wide = state_dtype(g.dtype)
    stages = _exponentials(g.dtype, wide)
    if g.log:

        def result(e: Any, x: Any, top: Any, log: Any) -> Any:
            return e.cast(e.cast(x, wide) - top - log, g.dtype)

        operands = {"x0": g.dtype, "s0": wide, "s2": wide}
        stages.append(_stage(lambda e, total: e.log(total), {"s1": wide}, "s2", scalar=True))
        stages.append(_stage(result, operands, "y0"))
    else:
        stages.append(_stage(lambda e, total: e.div(1.0, total), {"s1": wide}, "s2", scalar=True))
        operands = {"row0": wide, "s2": wide}
        stages.append(_stage(lambda e, p, r: e.cast(p * r, g.dtype), operands, "y0"))
    rows = Access(g.dtype, (g.classes, 1))
    kernel = Rows((g.rows,), g.classes, tuple(stages), (rows,), (rows,))
    plan, size = PlanWriter(), g.rows * g.classes
    plan.call(kernel, [_input(plan, 0, g.dtype, size), _output(plan, 0, g.dtype, size)])
    return plan.finish()


def _loss(
    g: CrossEntropy | SparseCrossEntropy, label: str, labels: Access, weighted: Callable[..., Any]
) -> Rows:
    """Loss and gradient, where weighted(e, label, value) is the value times the probability that
    the label gives to an element's class.
    """
    wide = state_dtype(g.dtype)

    def last(e: Any, power: Any, x: Any, found: Any, top: Any, inverse: Any, log: Any) -> Any:
        gradient = power * inverse - weighted(e, found, e.const(1, wide))
        return e.cast(gradient, g.dtype), weighted(e, found, log - (e.cast(x, wide) - top))

    stages = _exponentials(g.dtype, wide)
    stages.append(
        _stage(
            lambda e, total: (e.div(1.0, total), e.log(total)),
            {"s1": wide},
            "s2",
            "s3",
            scalar=True,
        )
    )
    operands = {"row0": wide, "x0": g.dtype, "x1": label, "s0": wide, "s2": wide, "s3": wide}
    stages.append(_stage(last, operands, "y1", "sum s4"))
    stages.append(_stage(lambda e, v: e.cast(v, g.dtype), {"s4": wide}, "y0", scalar=True))
    rows = Access(g.dtype, (g.classes, 1))
    loss = Access(g.dtype, (1, 0))
    return Rows((g.rows,), g.classes, tuple(stages), (rows, labels), (loss, rows))


def cross_entropy(g: CrossEntropy) -> Plan:
    """Logits and labels -> losses and gradient, in one pass."""
    wide = state_dtype(g.dtype)
    labels = Access(g.dtype, (g.classes, 1))
    kernel = _loss(g, g.dtype, labels, lambda e, label, v: v * e.cast(label, wide))
    return _loss_plan(g, kernel, g.dtype, g.rows * g.classes)


def sparse_cross_entropy(g: SparseCrossEntropy) -> Plan:
    """Logits and the classes of rows -> losses and gradient. The cluster's caller has checked that
    the classes are in range.
    """
    wide = state_dtype(g.dtype)

    def weighted(e: Any, label: Any, value: Any) -> Any:
        # Chosen, not multiplied: the logit of another class may be -inf.
        hit = e.eq(e.index(1), e.cast(label, "int64"))
        return e.select(hit, value, e.const(0, wide))

    kernel = _loss(g, g.label_dtype, Access(g.label_dtype, (1, 0)), weighted)
    return _loss_plan(g, kernel, g.label_dtype, g.rows)


def _loss_plan(
    g: CrossEntropy | SparseCrossEntropy, kernel: Rows, label_dtype: str, labels: int
) -> Plan:
    plan, size = PlanWriter(), g.rows * g.classes
    given = [_input(plan, 0, g.dtype, size), _input(plan, 1, label_dtype, labels)]
    plan.call(kernel, [*given, _output(plan, 0, g.dtype, g.rows), _output(plan, 1, g.dtype, size)])
    return plan.finish()


# -- Batch normalisation ------------------------------------------------------------------------


@dataclass(frozen=True)
class _Channels:
    """How an image's elements lie: extents and strides of the channels, then of everything else."""

    kept: tuple[int, ...]
    kept_strides: tuple[int, ...]
    reduced: tuple[int, ...]
    reduced_strides: tuple[int, ...]

    @property
    def extents(self) -> tuple[int, ...]:
        return (*self.kept, *self.reduced)

    def image(self, dtype: str) -> Access:
        return Access(dtype, (*self.kept_strides, *self.reduced_strides))

    def vector(self, dtype: str = "float32", *, whole: bool = True) -> Access:
        """A vector with an entry per channel, over the channels or (`whole`) over everything."""
        strides = [prod(self.kept[d + 1 :]) for d in range(len(self.kept))]
        return Access(dtype, (*strides, *([0] * len(self.reduced) * whole)))

    def first(self, dtype: str, *, whole: bool) -> Access:
        """The image's first element of each channel."""
        return Access(dtype, (*self.kept_strides, *([0] * len(self.reduced) * whole)))


def _channels(n: int, pixels: int, c: int, layout: str) -> _Channels:
    if layout == "NHWC":
        return _Channels((c,), (1,), (n, pixels), (pixels * c, c))
    if layout == "NCHW":
        return _Channels((c,), (pixels,), (n, pixels), (c * pixels, 1))
    block = int(layout.removeprefix("nChw").removesuffix("c"))
    if c % block:
        raise ValueError(f"{c} channels don't fill blocks of {block}")
    return _Channels((c // block, block), (pixels * block, 1), (n, pixels), (c * pixels, block))


def batch_norm(g: BatchNorm, layout: str | None = None) -> Plan:
    """The anchor's outputs from its operands; `layout` is that of the image if it isn't the
    geometry's: "nChw16c" for channels in blocks of 16.
    """
    plan, channels = PlanWriter(), _channels(g.n, g.pixels, g.c, layout or g.data_format)
    if g.direction == "gradient":
        _batch_norm_gradient(plan, g, channels)
        return plan.finish()
    x, factor = _image(plan, "input", 0, g), plan.temporary("float32", g.c, "factor")
    mean = _statistics(plan, g, channels, x, factor)
    image, vector = channels.image(g.dtype), channels.vector()
    kernel = Map(channels.extents, normalise(g.dtype), (image, vector, vector, vector), (image,))
    offset = _input(plan, 2, "float32", g.c)
    plan.call(kernel, [x, mean, factor, offset, _image(plan, "output", 0, g)])
    _zeros(plan, range(5, g.outputs))
    return plan.finish()


def batch_norm_statistics(g: BatchNorm, layout: str | None = None) -> Plan:
    """All outputs of batch normalisation but the first. In the place of the image, output 0 has the
    factor for each channel: see `normalise`.
    """
    plan, channels = PlanWriter(), _channels(g.n, g.pixels, g.c, layout or g.data_format)
    x, factor = _image(plan, "input", 0, g), _output(plan, 0, "float32", g.c)
    _statistics(plan, g, channels, x, factor)
    _zeros(plan, range(5, g.outputs))
    return plan.finish()


def normalise(dtype: str) -> Pointwise:
    """x, mean, factor, offset -> (x - mean) * factor + offset."""
    return record(
        lambda e, x, mean, factor, offset: e.cast(
            (e.cast(x, "float32") - mean) * factor + offset, dtype
        ),
        [dtype, "float32", "float32", "float32"],
    )


def _image(plan: PlanWriter, kind: str, index: int, g: BatchNorm) -> int:
    return plan.add(kind, g.dtype, g.n * g.pixels * g.c, index=index)


def _zeros(plan: PlanWriter, outputs: Sequence[int]) -> None:
    """Write the scalar outputs that mean nothing."""
    zero = record(lambda e: e.const(0, "float32"), [])
    kernel = Map((), zero, (), (Access("float32", ()),))
    for index in outputs:
        plan.call(kernel, [_output(plan, index, "float32", 1)])


def _statistics(plan: PlanWriter, g: BatchNorm, channels: _Channels, x: int, factor: int) -> int:
    """Write outputs 1 to 4 and the factor; return the buffer of the mean."""
    scale = _input(plan, 1, "float32", g.c)
    if not g.training:
        mean, variance = (_input(plan, i, "float32", g.c) for i in (3, 4))
        given = [scale, mean, variance]
        kernel: Any = _given_statistics(g, channels)
    else:
        given, kernel = [x, x, x, scale], _training_statistics(g, channels)
    results = [_output(plan, i, "float32", g.c) for i in (1, 2, 3, 4)]
    plan.call(kernel, [*given, *results, factor])
    return results[0] if g.training else given[1]


def _training_statistics(g: BatchNorm, channels: _Channels) -> ReduceKernel:
    """Moments about each channel's first element, so that nothing cancels."""
    count = g.n * g.pixels

    def before(e: Any, x: Any, origin: Any) -> tuple[Any, Any]:
        d = e.cast(x, "float32") - e.cast(origin, "float32")
        return d, d * d

    def after(e: Any, total: Any, squares: Any, origin: Any, scale: Any) -> tuple[Any, ...]:
        shift = total * (1 / count)
        mean = shift + e.cast(origin, "float32")
        variance = e.max(squares * (1 / count) - shift * shift, 0.0)
        factor = scale * e.rsqrt(variance + g.epsilon)
        return mean, variance * (count / max(count - 1, 1)), mean, variance, factor

    return ReduceKernel(
        channels.kept,
        channels.reduced,
        record(before, [g.dtype, g.dtype]),
        ("sum", "sum"),
        record(after, ["float32", "float32", g.dtype, "float32"]),
        (channels.image(g.dtype), channels.first(g.dtype, whole=True)),
        (channels.first(g.dtype, whole=False), channels.vector(whole=False)),
        (channels.vector(whole=False),) * 5,
    )


def _given_statistics(g: BatchNorm, channels: _Channels) -> Map:
    def function(e: Any, scale: Any, mean: Any, variance: Any) -> tuple[Any, ...]:
        return mean, variance, mean, variance, scale * e.rsqrt(variance + g.epsilon)

    vector = channels.vector(whole=False)
    return Map(channels.kept, record(function, ["float32"] * 3), (vector,) * 3, (vector,) * 5)


def _batch_norm_gradient(plan: PlanWriter, g: BatchNorm, channels: _Channels) -> None:
    """dx = a dy - b (x - mean) - c per channel; b and c are 0 where the moments were given."""
    dy, x = (_image(plan, "input", i, g) for i in (0, 1))
    scale, mean, variance = (_input(plan, i, "float32", g.c) for i in (2, 3, 4))
    dx = _image(plan, "output", 0, g)
    sums = [_output(plan, i, "float32", g.c) for i in (1, 2)]
    a, b, c = (plan.temporary("float32", g.c, name) for name in "abc")
    given = [dy, x, mean, scale, variance]
    plan.call(_gradient_sums(g, channels), [*given, *sums, a, b, c])
    # Where the moments were given, x has no effect: not even if it's a NaN.
    factors = [x, mean, a, b, c] if g.training else [a]
    plan.call(_image_gradient(g, channels), [dy, *factors, dx])
    _zeros(plan, range(3, g.outputs))


def _gradient_sums(g: BatchNorm, channels: _Channels) -> ReduceKernel:
    """dy, x, mean, scale, variance -> dscale, doffset, a, b, c."""
    count = g.n * g.pixels

    def before(e: Any, dy: Any, x: Any, mean: Any) -> tuple[Any, Any]:
        dy = e.cast(dy, "float32")
        return dy, dy * (e.cast(x, "float32") - mean)

    def after(e: Any, total: Any, product: Any, scale: Any, variance: Any) -> tuple[Any, ...]:
        inverse = e.rsqrt(variance + g.epsilon)
        dscale, a = product * inverse, scale * inverse
        share = (1 / count) * g.training
        return dscale, total, a, a * inverse * dscale * share, a * total * share

    vector = channels.vector(whole=False)
    return ReduceKernel(
        channels.kept,
        channels.reduced,
        record(before, [g.dtype, g.dtype, "float32"]),
        ("sum", "sum"),
        record(after, ["float32"] * 4),
        (channels.image(g.dtype), channels.image(g.dtype), channels.vector()),
        (vector, vector),
        (vector,) * 5,
    )


def _image_gradient(g: BatchNorm, channels: _Channels) -> Map:
    """dy, x, mean, a, b, c -> dx; dy, a -> dx where the moments were given."""

    def function(e: Any, dy: Any, x: Any, mean: Any, a: Any, b: Any, c: Any) -> Any:
        centred = e.cast(x, "float32") - mean
        return e.cast(e.cast(dy, "float32") * a - centred * b - c, g.dtype)

    def scaled(e: Any, dy: Any, a: Any) -> Any:
        return e.cast(e.cast(dy, "float32") * a, g.dtype)

    image, vector = channels.image(g.dtype), channels.vector()
    if not g.training:
        program = record(scaled, [g.dtype, "float32"])
        return Map(channels.extents, program, (image, vector), (image,))
    program = record(function, [g.dtype, g.dtype, *["float32"] * 4])
    return Map(channels.extents, program, (image, image, *(vector,) * 4), (image,))


# -- Local response normalisation ---------------------------------------------------------------


@dataclass(frozen=True)
class _Near:
    """Rows with as many zeros before and after them as a window of channels extends over the ends:
    the window's sum at every channel is then a sum of neighbours without a special case.
    """

    g: LocalResponse
    wide: str

    @property
    def reach(self) -> int:
        return min(self.g.radius, self.g.channels - 1)

    @property
    def _stride(self) -> int:
        return self.g.channels + 2 * self.reach

    @property
    def size(self) -> int:
        return self.g.rows * self._stride

    def at(self, offset: int) -> Access:
        """All channels' neighbours, `offset` away."""
        return Access(self.wide, (self._stride, 1), self.reach + offset)

    @property
    def window(self) -> tuple[Access, ...]:
        return tuple(self.at(d) for d in range(-self.reach, self.reach + 1))

    def temporary(self, plan: PlanWriter, name: str) -> int:
        """Add such rows to a plan and write their zeros."""
        rows = plan.temporary(self.wide, self.size, name)
        if self.reach:
            zero = record(lambda e: (e.const(0, self.wide),) * 2, [])
            ends = (self.at(-self.reach), self.at(self.g.channels))
            plan.call(Map((self.g.rows, self.reach), zero, (), ends), [rows, rows])
        return rows


def _inverse_power(e: Any, x: Any, exponent: float) -> Any:
    """x ** -exponent; the usual exponents are roots, which cost a tenth."""
    if exponent == 0.5:
        return e.rsqrt(x)
    if exponent == 0.75:
        root = e.rsqrt(x)
        return root * e.sqrt(root)
    return e.pow(x, -exponent)


def local_response(g: LocalResponse) -> Plan:
    """Normalisation by the squares of near channels, or its gradient."""
    wide = state_dtype(g.dtype)
    near = _Near(g, wide)
    extents, rows = (g.rows, g.channels), Access(g.dtype, (g.channels, 1))
    taps = len(near.window)

    def square(e: Any, x: Any) -> Any:
        return e.cast(x, wide) * e.cast(x, wide)

    def scale(terms: Sequence[Any]) -> Any:
        return reduce(add, terms) * g.alpha + g.bias

    def forward(e: Any, x: Any, *squares: Any) -> Any:
        return e.cast(e.cast(x, wide) * _inverse_power(e, scale(squares), g.beta), g.dtype)

    def first(e: Any, dy: Any, y: Any, *squares: Any) -> tuple[Any, Any]:
        dy, total = e.cast(dy, wide), scale(squares)
        return dy * _inverse_power(e, total, g.beta), dy * e.cast(y, wide) / total

    def last(e: Any, x: Any, direct: Any, *ratios: Any) -> Any:
        factor = 2 * g.alpha * g.beta
        return e.cast(direct - e.cast(x, wide) * reduce(add, ratios) * factor, g.dtype)

    def over(function: Callable[..., Any], *given: Access, out: tuple[Access, ...]) -> Map:
        program = record(function, [a.dtype for a in given])
        return Map(extents, program, given, out)

    plan, size = PlanWriter(), g.rows * g.channels
    if g.direction == "forward":
        x = _input(plan, 0, g.dtype, size)
    else:
        dy, x, y = (_input(plan, i, g.dtype, size) for i in range(3))
    result = _output(plan, 0, g.dtype, size)
    squares = near.temporary(plan, "squares")
    plan.call(over(square, rows, out=(near.at(0),)), [x, squares])
    if g.direction == "forward":
        plan.call(over(forward, rows, *near.window, out=(rows,)), [x, *[squares] * taps, result])
        return plan.finish()
    plain = Access(wide, (g.channels, 1))
    ratios, direct = near.temporary(plan, "ratios"), plan.temporary(wide, size, "direct")
    kernel = over(first, rows, rows, *near.window, out=(plain, near.at(0)))
    plan.call(kernel, [dy, y, *[squares] * taps, direct, ratios])
    kernel = over(last, rows, plain, *near.window, out=(rows,))
    plan.call(kernel, [x, direct, *[ratios] * taps, result])
    return plan.finish()
