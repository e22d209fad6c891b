"""Batch normalisation, and its gradient, as reductions and maps over channels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from headrace._src.compile.build.compose import Composer
from headrace._src.compile.build.plan_builder import Builder, StridedOperand
from headrace._src.compile.codegen.iteration_spaces import Access
from headrace._src.compile.kernels.anchor_kind import AnchorKind, Arrays, Family, wide
from headrace._src.compile.kernels.images.conv_geometry import layout_of
from headrace._src.compile.kernels.rows.map_kernel import Map
from headrace._src.compile.kernels.rows.reduce_kernel import ReduceKernel
from headrace._src.compile.kernels.rows.row_fragments import input_of, output_of
from headrace._src.compile.plan.plan import Plan
from headrace._src.compile.plan.plan_writer import PlanWriter
from headrace._src.compile.regions.groups import Group
from headrace._src.lowering.anchors import BatchNorm
from headrace._src.lowering.pointwise import Pointwise, record

__all__ = ["KINDS", "batch_norm", "batch_norm_statistics", "normalise"]


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
    offset = input_of(plan, 2, "float32", g.c)
    plan.call(kernel, [x, mean, factor, offset, _image(plan, "output", 0, g)])
    _zeros(plan, range(5, g.outputs))
    return plan.finish()


def batch_norm_statistics(g: BatchNorm, layout: str | None = None) -> Plan:
    """All outputs of batch normalisation but the first. In the place of the image, output 0 has the
    factor for each channel: see `normalise`.
    """
    plan, channels = PlanWriter(), _channels(g.n, g.pixels, g.c, layout or g.data_format)
    x, factor = _image(plan, "input", 0, g), output_of(plan, 0, "float32", g.c)
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
        plan.call(kernel, [output_of(plan, index, "float32", 1)])


def _statistics(plan: PlanWriter, g: BatchNorm, channels: _Channels, x: int, factor: int) -> int:
    """Write outputs 1 to 4 and the factor; return the buffer of the mean."""
    scale = input_of(plan, 1, "float32", g.c)
    if not g.training:
        mean, variance = (input_of(plan, i, "float32", g.c) for i in (3, 4))
        given = [scale, mean, variance]
        kernel: Any = _given_statistics(g, channels)
    else:
        given, kernel = [x, x, x, scale], _training_statistics(g, channels)
    results = [output_of(plan, i, "float32", g.c) for i in (1, 2, 3, 4)]
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
    scale, mean, variance = (input_of(plan, i, "float32", g.c) for i in (2, 3, 4))
    dx = _image(plan, "output", 0, g)
    sums = [output_of(plan, i, "float32", g.c) for i in (1, 2)]
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


def _build(builder: Builder, group: Group) -> None:
    """Batch normalisation and its gradient, of plain or blocked images."""
    node = group.head
    g: BatchNorm = node.geometry
    block = builder.blocked.of(node.outputs[0])
    layout = layout_of(block) if block else None
    images = (0, 1) if g.direction == "gradient" else (0,)
    read = builder.blocks_of if block else builder.whole
    inputs = {i: read(node.inputs[i]) for i in images}
    inputs |= {i: builder.whole(node.inputs[i]) for i in g.operands if i not in images}
    if g.direction == "gradient" or len(group.nodes) == 1:
        outputs = {i: builder.result(v) for i, v in enumerate(node.outputs)}
        builder.splice(batch_norm(g, layout), inputs, outputs, node.name)
        return
    # The followers are computed as the image is normalised, so a map takes the place of the image.
    outputs = {i: builder.result(v) for i, v in enumerate(node.outputs) if i}
    factor = outputs[0] = builder.temporary("float32", g.c, f"{node.name}/factor")
    builder.splice(batch_norm_statistics(g, layout), inputs, outputs, node.name)
    mean = outputs[1] if g.training else inputs[3]
    space = group.space
    along = (0, block, 0, 0, 1) if block else (0, 0, 0, 1)
    image = builder.operand(node.inputs[0], space)
    vectors = [StridedOperand(b, "float32", along) for b in (mean, factor, inputs[2])]
    composer = Composer()
    given = [composer.operand(image, g.dtype), *(composer.operand(v, "float32") for v in vectors)]
    (y,) = composer.apply(normalise(g.dtype), given)
    composed = builder.compose(group, space, composer, {node.outputs[0]: y})
    operands: list[Any] = list(composer.operands)
    builder.map(space, composed.program, operands, composed.outputs, node.name)


def _meaning(g: BatchNorm, *operands: np.ndarray) -> Arrays:
    axes, along = ((0, 2), (1, g.c, 1)) if g.data_format == "NCHW" else ((0, 1), (1, 1, g.c))
    sizes = (g.n, g.c, g.pixels) if g.data_format == "NCHW" else (g.n, g.pixels, g.c)
    given = operands[0].shape
    count = g.n * g.pixels
    if g.direction == "forward":
        x, scale, offset, *moments = (wide(v) for v in operands)
        x = x.reshape(sizes)
        if g.training:
            moments = [x.mean(axes, np.float64), x.var(axes, np.float64)]
        mean, variance = (m.astype(np.float32) for m in moments)
        unbiased = variance * (count / max(count - 1, 1)) if g.training else variance
        factor = (scale / np.sqrt(variance + np.float32(g.epsilon))).reshape(along)
        y = (x - mean.reshape(along)) * factor + offset.reshape(along)
        statistics = [mean, unbiased.astype(np.float32), mean, variance]
        zeros = [np.zeros((), np.float32)] * (g.outputs - 5)
        return [y.reshape(given), *statistics, *zeros]
    dy, x, scale, mean, variance = (wide(v) for v in operands)
    dy, x = dy.reshape(sizes), x.reshape(sizes)
    inverse = 1 / np.sqrt(variance + np.float32(g.epsilon))
    normal = (x - mean.reshape(along)) * inverse.reshape(along)
    doffset, dscale = dy.sum(axes), (dy * normal).sum(axes)
    inner = dy
    if g.training:
        inner = dy - (doffset.reshape(along) + normal * dscale.reshape(along)) / count
    dx = inner * (scale * inverse).reshape(along)
    return [dx.reshape(given), dscale, doffset, *[np.zeros((), np.float32)] * 2]


KINDS = (AnchorKind("batch_norm", Family(_build), meanings={BatchNorm: _meaning}),)
