"""Anchors over rows and channels as Rows, Reduce and Map kernels.

In: an anchor's geometry. Out: a Recipe: kernels in order, each with the names of its buffers. Those
are "in<i>" for the anchor's operands, "out<i>" for its outputs, "status" (see gathers), and the
recipe's own temporary ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from math import prod
from operator import add
from typing import Any

from headrace.compile.combine import state_dtype
from headrace.compile.kernel import Kernel
from headrace.compile.kernels.gathers import CheckIndices
from headrace.compile.kernels.maps import Map
from headrace.compile.kernels.reductions import Reduce
from headrace.compile.kernels.rows import Rows, Stage
from headrace.compile.spaces import Access
from headrace.lowering.anchors import (
    BatchNorm,
    CrossEntropy,
    LocalResponse,
    Softmax,
    SparseCrossEntropy,
)
from headrace.lowering.pointwise import record

__all__ = [
    "Recipe", "batch_norm", "cross_entropy", "layer_norm", "layer_norm_gradient", "local_response",
    "softmax", "sparse_cross_entropy",
]  # fmt: skip


@dataclass(frozen=True)
class Recipe:
    """Kernels to run one after the other, on named buffers; the sizes (in elements) and types of
    temporary ones.
    """

    steps: tuple[tuple[Kernel, tuple[str, ...]], ...]
    temporaries: dict[str, tuple[str, int]] = field(default_factory=dict)


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


def softmax(g: Softmax) -> Recipe:
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
    return Recipe(((kernel, ("in0", "out0")),))


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


def cross_entropy(g: CrossEntropy) -> Recipe:
    """Logits and labels -> losses and gradient, in one pass."""
    wide = state_dtype(g.dtype)
    labels = Access(g.dtype, (g.classes, 1))
    kernel = _loss(g, g.dtype, labels, lambda e, label, v: v * e.cast(label, wide))
    return Recipe(((kernel, ("in0", "in1", "out0", "out1")),))


def sparse_cross_entropy(g: SparseCrossEntropy) -> Recipe:
    """Logits and the classes of rows -> losses and gradient; the classes are checked first."""
    wide = state_dtype(g.dtype)

    def weighted(e: Any, label: Any, value: Any) -> Any:
        # Chosen, not multiplied: the logit of another class may be -inf.
        hit = e.eq(e.index(1), e.cast(label, "int64"))
        return e.select(hit, value, e.const(0, wide))

    kernel = _loss(g, g.label_dtype, Access(g.label_dtype, (1, 0)), weighted)
    check = CheckIndices(g.rows, g.label_dtype, 0, g.classes)
    return Recipe(((check, ("in1", "status")), (kernel, ("in0", "in1", "out0", "out1"))))


# -- Normalisation over rows --------------------------------------------------------------------


def layer_norm(rows: int, size: int, epsilon: float, dtype: str = "float32") -> Recipe:
    """x, scale, offset -> (x - mean) / sqrt(variance + epsilon) * scale + offset, and the rows'
    means and inverse deviations (of the type that sums have).
    """
    wide = state_dtype(dtype)

    def centred(e: Any, x: Any, mean: Any) -> Any:
        d = e.cast(x, wide) - mean
        return d * d

    def scaled(e: Any, x: Any, mean: Any, inverse: Any, scale: Any, offset: Any) -> Any:
        normal = (e.cast(x, wide) - mean) * inverse
        return e.cast(normal * e.cast(scale, wide) + e.cast(offset, wide), dtype)

    def deviation(e: Any, total: Any) -> tuple[Any, Any]:
        inverse = e.rsqrt(total * (1 / size) + epsilon)
        return inverse, inverse

    stages = (
        _stage(lambda e, x: e.cast(x, wide), {"x0": dtype}, "sum s0"),
        _stage(lambda e, t: (t * (1 / size),) * 2, {"s0": wide}, "s1", "y1", scalar=True),
        _stage(centred, {"x0": dtype, "s1": wide}, "sum s2"),
        _stage(deviation, {"s2": wide}, "s3", "y2", scalar=True),
        _stage(scaled, {"x0": dtype, "s1": wide, "s3": wide, "x1": dtype, "x2": dtype}, "y0"),
    )
    whole, vector = Access(dtype, (size, 1)), Access(dtype, (0, 1))
    scalar = Access(wide, (1, 0))
    kernel = Rows((rows,), size, stages, (whole, vector, vector), (whole, scalar, scalar))
    return Recipe(((kernel, ("in0", "in1", "in2", "out0", "out1", "out2")),))


def layer_norm_gradient(rows: int, size: int, dtype: str = "float32") -> Recipe:
    """dy, x, scale, means, inverse deviations -> dx, dscale, doffset."""
    wide = state_dtype(dtype)

    def products(e: Any, dy: Any, x: Any, scale: Any, mean: Any, inverse: Any) -> tuple[Any, ...]:
        dy, normal = e.cast(dy, wide), (e.cast(x, wide) - mean) * inverse
        g = dy * e.cast(scale, wide)
        return g, g * normal, dy * normal, dy

    def result(
        e: Any, dy: Any, x: Any, scale: Any, mean: Any, inverse: Any, total: Any, slope: Any
    ) -> Any:
        normal = (e.cast(x, wide) - mean) * inverse
        g = e.cast(dy, wide) * e.cast(scale, wide)
        return e.cast((g - (total + normal * slope) * (1 / size)) * inverse, dtype)

    operands = {"x0": dtype, "x1": dtype, "x2": dtype, "x3": wide, "x4": wide}
    stages = (
        _stage(products, operands, "sum s0", "sum s1", "total y1", "total y2"),
        _stage(result, {**operands, "s0": wide, "s1": wide}, "y0"),
    )
    whole, vector = Access(dtype, (size, 1)), Access(dtype, (0, 1))
    scalar = Access(wide, (1, 0))
    kernel = Rows(
        (rows,), size, stages, (whole, whole, vector, scalar, scalar), (whole, vector, vector)
    )
    names = ("in0", "in1", "in2", "in3", "in4", "out0", "out1", "out2")
    return Recipe(((kernel, names),))


# -- Batch normalisation ------------------------------------------------------------------------


@dataclass(frozen=True)
class _Channels:
    """How an image's elements lie: extents and strides of the channels, then of everything else."""

    kept: tuple[int, ...]
    kept_strides: tuple[int, ...]
    reduced: tuple[int, ...]
    reduced_strides: tuple[int, ...]

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


def batch_norm(g: BatchNorm, layout: str | None = None) -> Recipe:
    """The anchor's outputs from its operands; `layout` is that of the image if it isn't the
    geometry's: "nChw16c" for channels in blocks of 16.
    """
    channels = _channels(g.n, g.pixels, g.c, layout or g.data_format)
    if g.direction == "gradient":
        return _batch_norm_gradient(g, channels)
    zeros = _zeros(g.outputs - 5)
    if g.training:
        return _merged(_training_statistics(g, channels), _normalised(g, channels, "out1"), zeros)
    return _merged(_given_statistics(g, channels), _normalised(g, channels, "in3"), zeros)


def _merged(*recipes: Recipe) -> Recipe:
    steps = tuple(s for r in recipes for s in r.steps)
    return Recipe(steps, {k: v for r in recipes for k, v in r.temporaries.items()})


def _zeros(count: int, first: int = 5) -> Recipe:
    """Scalar outputs that mean nothing."""
    zero = record(lambda e: e.const(0, "float32"), [])
    kernel = Map((), zero, (), (Access("float32", ()),))
    return Recipe(tuple((kernel, (f"out{first + i}",)) for i in range(count)))


def _training_statistics(g: BatchNorm, channels: _Channels) -> Recipe:
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

    kernel = Reduce(
        channels.kept,
        channels.reduced,
        record(before, [g.dtype, g.dtype]),
        ("sum", "sum"),
        record(after, ["float32", "float32", g.dtype, "float32"]),
        (channels.image(g.dtype), channels.first(g.dtype, whole=True)),
        (channels.first(g.dtype, whole=False), channels.vector(whole=False)),
        (channels.vector(whole=False),) * 5,
    )
    names = ("in0", "in0", "in0", "in1", "out1", "out2", "out3", "out4", "factor")
    return Recipe(((kernel, names),), {"factor": ("float32", g.c)})


def _given_statistics(g: BatchNorm, channels: _Channels) -> Recipe:
    def function(e: Any, scale: Any, mean: Any, variance: Any) -> tuple[Any, ...]:
        return mean, variance, mean, variance, scale * e.rsqrt(variance + g.epsilon)

    vector = channels.vector(whole=False)
    program = record(function, ["float32"] * 3)
    kernel = Map(channels.kept, program, (vector,) * 3, (vector,) * 5)
    names = ("in1", "in3", "in4", "out1", "out2", "out3", "out4", "factor")
    return Recipe(((kernel, names),), {"factor": ("float32", g.c)})


def _normalised(g: BatchNorm, channels: _Channels, mean: str) -> Recipe:
    def function(e: Any, x: Any, mean: Any, factor: Any, offset: Any) -> Any:
        return e.cast((e.cast(x, "float32") - mean) * factor + offset, g.dtype)

    program = record(function, [g.dtype, "float32", "float32", "float32"])
    image, vector = channels.image(g.dtype), channels.vector()
    extents = (*channels.kept, *channels.reduced)
    kernel = Map(extents, program, (image, vector, vector, vector), (image,))
    return Recipe(((kernel, ("in0", mean, "factor", "in2", "out0")),))


def _batch_norm_gradient(g: BatchNorm, channels: _Channels) -> Recipe:
    """dx = a dy - b (x - mean) - c per channel; b and c are 0 where the moments were given."""
    count = g.n * g.pixels

    def before(e: Any, dy: Any, x: Any, mean: Any) -> tuple[Any, Any]:
        dy = e.cast(dy, "float32")
        return dy, dy * (e.cast(x, "float32") - mean)

    def after(e: Any, total: Any, slope: Any, scale: Any, variance: Any) -> tuple[Any, ...]:
        inverse = e.rsqrt(variance + g.epsilon)
        dscale, a = slope * inverse, scale * inverse
        share = (1 / count) * g.training
        return dscale, total, a, a * inverse * dscale * share, a * total * share

    vector = channels.vector(whole=False)
    sums = Reduce(
        channels.kept,
        channels.reduced,
        record(before, [g.dtype, g.dtype, "float32"]),
        ("sum", "sum"),
        record(after, ["float32"] * 4),
        (channels.image(g.dtype), channels.image(g.dtype), channels.vector()),
        (vector, vector),
        (vector,) * 5,
    )
    names = ("in0", "in1", "in3", "in2", "in4", "out1", "out2", "a", "b", "c")
    recipe = Recipe(((sums, names),), dict.fromkeys("abc", ("float32", g.c)))
    return _merged(recipe, _image_gradient(g, channels), _zeros(g.outputs - 3, 3))


def _image_gradient(g: BatchNorm, channels: _Channels) -> Recipe:
    def function(e: Any, dy: Any, x: Any, mean: Any, a: Any, b: Any, c: Any) -> Any:
        centred = e.cast(x, "float32") - mean
        return e.cast(e.cast(dy, "float32") * a - centred * b - c, g.dtype)

    def scaled(e: Any, dy: Any, a: Any) -> Any:
        return e.cast(e.cast(dy, "float32") * a, g.dtype)

    image, vector = channels.image(g.dtype), channels.vector()
    extents = (*channels.kept, *channels.reduced)
    if not g.training:  # x counts for nothing, not even where it's no number
        program = record(scaled, [g.dtype, "float32"])
        kernel = Map(extents, program, (image, vector), (image,))
        return Recipe(((kernel, ("in0", "a", "out0")),))
    program = record(function, [g.dtype, g.dtype, *["float32"] * 4])
    kernel = Map(extents, program, (image, image, *(vector,) * 4), (image,))
    return Recipe(((kernel, ("in0", "in1", "in3", "a", "b", "c", "out0")),))


# -- Local response normalisation ---------------------------------------------------------------


@dataclass(frozen=True)
class _Near:
    """Rows with as many zeros before and after them as a window of channels reaches over: the
    window's sum at every channel then is one of neighbours.
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

    def zeros(self, name: str) -> list[tuple[Kernel, tuple[str, ...]]]:
        """What writes the zeros of the rows of this name."""
        if not self.reach:
            return []
        zero = record(lambda e: (e.const(0, self.wide),) * 2, [])
        ends = (self.at(-self.reach), self.at(self.g.channels))
        return [(Map((self.g.rows, self.reach), zero, (), ends), (name, name))]


def _inverse_power(e: Any, x: Any, exponent: float) -> Any:
    """x ** -exponent; the usual exponents are roots, which cost a tenth."""
    if exponent == 0.5:
        return e.rsqrt(x)
    if exponent == 0.75:
        root = e.rsqrt(x)
        return root * e.sqrt(root)
    return e.pow(x, -exponent)


def local_response(g: LocalResponse) -> Recipe:
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

    def last(e: Any, x: Any, direct: Any, *slopes: Any) -> Any:
        factor = 2 * g.alpha * g.beta
        return e.cast(direct - e.cast(x, wide) * reduce(add, slopes) * factor, g.dtype)

    def over(function: Callable[..., Any], *given: Access, out: tuple[Access, ...]) -> Map:
        program = record(function, [a.dtype for a in given])
        return Map(extents, program, given, out)

    image = "in0" if g.direction == "forward" else "in1"
    steps = near.zeros("squares")
    steps.append((over(square, rows, out=(near.at(0),)), (image, "squares")))
    temporaries = {"squares": (wide, near.size)}
    if g.direction == "forward":
        kernel = over(forward, rows, *near.window, out=(rows,))
        steps.append((kernel, ("in0", *["squares"] * taps, "out0")))
        return Recipe(tuple(steps), temporaries)
    plain = Access(wide, (g.channels, 1))
    kernel = over(first, rows, rows, *near.window, out=(plain, near.at(0)))
    steps += near.zeros("slopes")
    steps.append((kernel, ("in0", "in2", *["squares"] * taps, "direct", "slopes")))
    kernel = over(last, rows, plain, *near.window, out=(rows,))
    steps.append((kernel, ("in1", "direct", *["slopes"] * taps, "out0")))
    temporaries |= {"slopes": (wide, near.size), "direct": (wide, g.rows * g.channels)}
    return Recipe(tuple(steps), temporaries)
