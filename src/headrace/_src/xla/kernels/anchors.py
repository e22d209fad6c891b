"""Anchors as JAX functions. In: a geometry (lowering.anchors and its neighbours) and the op's
inputs. Out: arrays; the caller gives them their shapes.

The geometry determines the result, as in compile.reference. 16-bit floats are summed in float32 and
rounded once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from headrace._src.lowering.anchors import (
    BatchNorm,
    Contraction,
    CrossEntropy,
    Divisor,
    Largest,
    LocalResponse,
    Random,
    Scan,
    Softmax,
    SparseCrossEntropy,
)
from headrace._src.lowering.row_anchors import Cut, Gather, GatherPoints, SegmentSum
from headrace._src.lowering.window_anchors import Convolution, Pooling, Pooling3D
from headrace._src.xla.kernels import philox, rows, windows
from headrace._src.xla.kernels.faults import check, check_indices
from headrace._src.xla.kernels.pointwise import numpy_type
from headrace._src.xla.kernels.windows import wide

__all__ = ["run_anchor"]

Arrays = list[Any]


def run_anchor(geometry: Any, inputs: Sequence[Any]) -> Arrays | None:
    """The outputs of an anchor that writes no state; None if there is no function for its kind."""
    run = _RUN.get(type(geometry))
    if run is None:
        return None
    results = run(geometry, *(jnp.asarray(inputs[i]) for i in geometry.operands))
    # Statistics of 16-bit data stay float32: they come after the first result.
    return [results[0].astype(numpy_type(geometry.dtype)), *results[1:]]


def _contraction(g: Contraction, x: Any, y: Any) -> Arrays:
    if g.rounds_x:
        x = x.astype(numpy_type(g.precision)).astype(x.dtype)
    if g.rounds_y:
        y = y.astype(numpy_type(g.precision)).astype(y.dtype)
    x = jnp.swapaxes(x, -1, -2) if g.transpose_x else x
    y = jnp.swapaxes(y, -1, -2) if g.transpose_y else y
    return [jnp.matmul(x, y, preferred_element_type=wide(x.dtype))]


# ---- Rows ---------------------------------------------------------------------------------------


def _shifted(x: Any) -> tuple[Any, Any]:
    """Rows less their maximum, and the sums of the exponentials of that."""
    x = x.astype(wide(x.dtype))
    shifted = x - x.max(-1, keepdims=True)
    return shifted, jnp.exp(shifted).sum(-1, keepdims=True)


def _softmax(g: Softmax, x: Any) -> Arrays:
    shifted, total = _shifted(x)
    return [shifted - jnp.log(total) if g.log else jnp.exp(shifted) / total]


def _cross_entropy(g: CrossEntropy, x: Any, labels: Any) -> Arrays:
    shifted, total = _shifted(x)
    labels = labels.astype(shifted.dtype)
    loss = ((jnp.log(total) - shifted) * labels).sum(-1)
    return [loss, (jnp.exp(shifted) / total - labels).astype(x.dtype)]


def _sparse_cross_entropy(g: SparseCrossEntropy, x: Any, labels: Any) -> Arrays:
    check_indices(labels, g.classes)
    shifted, total = _shifted(x)
    hot = labels[:, None] == jnp.arange(g.classes, dtype=labels.dtype)
    chosen = jnp.take_along_axis(shifted, labels[:, None], -1, mode="clip")
    loss = (jnp.log(total) - chosen).reshape(-1)
    return [loss, (jnp.exp(shifted) / total - hot).astype(x.dtype)]


def _local_response(g: LocalResponse, *operands: Any) -> Arrays:
    images = [x.astype(wide(x.dtype)).reshape(g.rows, g.channels) for x in operands]

    def near(x: Any) -> Any:
        """The sums over neighbouring channels."""
        sides = [(0, 0), (g.radius, g.radius)]
        zero = np.zeros((), x.dtype)
        return jax.lax.reduce_window(x, zero, jax.lax.add, (1, 2 * g.radius + 1), (1, 1), sides)

    x = images[0] if g.direction == "forward" else images[1]
    scale = g.bias + g.alpha * near(x * x)
    if g.direction == "forward":
        return [x * scale**-g.beta]
    dy, _, y = images
    return [dy * scale**-g.beta - 2 * g.alpha * g.beta * x * near(dy * y / scale)]


def _scan(g: Scan, x: Any) -> Arrays:
    lines = x.astype(wide(x.dtype)).reshape(g.outer, g.length, g.inner)
    lines = lines[:, ::-1] if g.reverse else lines
    accumulate, first = {"sum": (jnp.cumsum, 0), "prod": (jnp.cumprod, 1)}[g.combine]
    if g.exclusive:
        start = jnp.full((g.outer, 1, g.inner), first, lines.dtype)
        lines = jnp.concatenate([start, lines[:, :-1]], 1)
    result = accumulate(lines, 1, lines.dtype)
    return [result[:, ::-1] if g.reverse else result]


def _largest(g: Largest, x: Any) -> Arrays:
    values, places = jax.lax.top_k(x.reshape(g.rows, g.length), g.k)
    return [values, places.astype(np.int32)]


def _divisor(g: Divisor, x: Any) -> Arrays:
    check(jnp.any(x == 0))
    return [x]


def _random(g: Random, *given: Any) -> Arrays | None:
    stream = given[0] if g.source == "stream" else philox.stateless_stream(given[0])
    return [philox.draw(g.distribution, stream, g.count, numpy_type(g.dtype), g.bounds)]


# ---- Batch normalisation ------------------------------------------------------------------------


def _batch_norm(g: BatchNorm, *operands: Any) -> Arrays:
    axes, along = ((0, 2), (1, g.c, 1)) if g.data_format == "NCHW" else ((0, 1), (1, 1, g.c))
    sizes = (g.n, g.c, g.pixels) if g.data_format == "NCHW" else (g.n, g.pixels, g.c)
    count = g.n * g.pixels
    epsilon = np.float32(g.epsilon)
    if g.direction == "forward":
        x, scale, offset, *moments = (v.astype(wide(v.dtype)) for v in operands)
        x = x.reshape(sizes)
        if g.training:
            mean = x.mean(axes)
            moments = [mean, jnp.square(x - mean.reshape(along)).mean(axes)]
        mean, variance = moments
        unbiased = variance * np.float32(count / max(count - 1, 1)) if g.training else variance
        factor = (scale * jax.lax.rsqrt(variance + epsilon)).reshape(along)
        y = (x - mean.reshape(along)) * factor + offset.reshape(along)
        zeros = [jnp.zeros((), np.float32)] * (g.outputs - 5)
        return [y, mean, unbiased, mean, variance, *zeros]
    dy, x, scale, mean, variance = (v.astype(wide(v.dtype)) for v in operands)
    dy, x = dy.reshape(sizes), x.reshape(sizes)
    inverse = jax.lax.rsqrt(variance + epsilon)
    normal = (x - mean.reshape(along)) * inverse.reshape(along)
    doffset, dscale = dy.sum(axes), (dy * normal).sum(axes)
    inner = dy
    if g.training:
        inner = dy - (doffset.reshape(along) + normal * dscale.reshape(along)) / count
    dx = inner * (scale * inverse).reshape(along)
    return [dx, dscale, doffset, *[jnp.zeros((), np.float32)] * 2]


_RUN: dict[type, Callable[..., Any]] = {
    BatchNorm: _batch_norm,
    Contraction: _contraction,
    Convolution: windows.convolution,
    CrossEntropy: _cross_entropy,
    Cut: rows.cut,
    Divisor: _divisor,
    Gather: rows.gather,
    GatherPoints: rows.gather_points,
    Largest: _largest,
    LocalResponse: _local_response,
    Pooling: windows.pooling,
    Pooling3D: windows.pooling_3d,
    Random: _random,
    Scan: _scan,
    SegmentSum: rows.segment_sum,
    Softmax: _softmax,
    SparseCrossEntropy: _sparse_cross_entropy,
}
