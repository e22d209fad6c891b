"""Run anchors by their geometries, in NumPy. In: a geometry and the op's inputs. Out: arrays.

The geometry must determine the result: attributes are not looked at here. The result of a Scatter
is the variable's new value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any

import ml_dtypes
import numpy as np

from headrace._src.core.dtypes import as_dtype
from headrace._src.core.windows import Window
from headrace._src.lowering.anchors import (
    BatchNorm,
    Contraction,
    CrossEntropy,
    Largest,
    LocalResponse,
    Random,
    Scan,
    Softmax,
    SparseCrossEntropy,
)
from headrace._src.lowering.row_anchors import Gather, GatherPoints, RowUpdate, Scatter, SegmentSum
from headrace._src.lowering.window_anchors import Convolution, Pooling, Pooling3D
from headrace._src.ops.random import philox

__all__ = ["run_anchor"]

Arrays = list[np.ndarray]


def run_anchor(geometry: Any, inputs: Sequence[np.ndarray]) -> Arrays:
    """The outputs of an anchor from those inputs that are its operands."""
    dtype = _numpy(geometry.dtype)
    operands = [inputs[i] for i in geometry.operands]
    results = _RUN[type(geometry)](geometry, *operands)
    # Statistics of 16-bit data stay float32: they come after the first result.
    return [results[0].astype(dtype), *results[1:]]


def _numpy(dtype: str) -> np.dtype:
    return np.dtype(as_dtype(dtype).as_numpy_dtype)


def _wide(x: np.ndarray) -> np.ndarray:
    narrow = x.dtype in (np.float16, ml_dtypes.bfloat16)
    return x.astype(np.float32) if narrow else x


def _contraction(g: Contraction, x: np.ndarray, y: np.ndarray) -> Arrays:
    x = np.broadcast_to(_wide(x), (*g.batch, *x.shape[-2:]))
    y = np.broadcast_to(_wide(y), (*g.batch, *y.shape[-2:]))
    x = np.swapaxes(x, -1, -2) if g.transpose_x else x
    y = np.swapaxes(y, -1, -2) if g.transpose_y else y
    assert x.shape == (*g.batch, g.m, g.k) and y.shape == (*g.batch, g.k, g.n)
    y = y.astype(_numpy(g.precision)).astype(y.dtype) if g.rounds else y
    return [np.matmul(x, y)]


# ---- Windows ------------------------------------------------------------------------------------


def _taps(h: Window[int], w: Window[int]) -> Iterator[tuple[int, int, Any, Any]]:
    """For each tap in scan order: its place, which outputs see an element there, and which."""
    for a, b in product(range(h.taps), range(w.taps)):
        rows, columns = (_seen(axis, tap) for axis, tap in ((h, a), (w, b)))
        yield a, b, np.ix_(rows[0], columns[0]), np.ix_(rows[1], columns[1])


def _seen(axis: Window[int], tap: int) -> tuple[np.ndarray, np.ndarray]:
    outs = np.arange(axis.out)
    ins = outs * axis.stride + tap * axis.dilation - axis.before
    inside = (ins >= 0) & (ins < axis.size)
    return outs[inside], ins[inside]


def _channels_first(g: Convolution | Pooling, image: np.ndarray) -> np.ndarray:
    return image if g.data_format == "NCHW" else image.transpose(0, 3, 1, 2)


def _as_given(g: Convolution | Pooling, image: np.ndarray) -> np.ndarray:
    return image if g.data_format == "NCHW" else image.transpose(0, 2, 3, 1)


def _convolution(g: Convolution, first: np.ndarray, second: np.ndarray) -> Arrays:
    """Tap by tap: y[n, k, oh, ow] += x[n, c, h, w] * filter[c, k], in one of the directions."""
    first, second = _wide(first), _wide(second)
    filters = {"forward": second, "input": first}.get(g.direction)
    multiplier = g.k // g.c if g.depthwise else g.k
    if filters is None:
        result = np.zeros((g.h.taps, g.w.taps, g.c, multiplier), first.dtype)
        x, y = _channels_first(g, first), _channels_first(g, second)
    elif g.direction == "forward":
        x, y = _channels_first(g, first), np.zeros((g.n, g.k, g.h.out, g.w.out), first.dtype)
    else:
        x, y = np.zeros((g.n, g.c, g.h.size, g.w.size), first.dtype), _channels_first(g, second)
    if g.depthwise:  # y[n, c, i, oh, ow]
        y = y.reshape(g.n, g.c, multiplier, g.h.out, g.w.out)
        image, taps, output = "nchw", "ci", "ncihw"
    else:
        image, taps, output = "nchw", "ck", "nkhw"
    for a, b, outs, ins in _taps(g.h, g.w):
        seen, made = (..., *ins), (..., *outs)
        if filters is None:
            result[a, b] = np.einsum(f"{image},{output}->{taps}", x[seen], y[made])
        elif g.direction == "forward":
            y[made] += np.einsum(f"{image},{taps}->{output}", x[seen], filters[a, b])
        else:
            x[seen] += np.einsum(f"{output},{taps}->{image}", y[made], filters[a, b])
    if filters is None:
        return [result]
    if g.direction == "forward":
        return [_as_given(g, y.reshape(g.n, g.k, g.h.out, g.w.out))]
    return [_as_given(g, x)]


def _pooling(g: Pooling, *operands: np.ndarray) -> Arrays:
    images = [_channels_first(g, _wide(x)) for x in operands]
    function = {"max": _max_pool, "mean": _mean_pool}[g.kind]
    return [_as_given(g, function(g, *images))]


def _max_pool(g: Pooling, x: np.ndarray, *gradient: np.ndarray) -> np.ndarray:
    shape = (g.n, g.c, g.h.out, g.w.out)
    if not gradient:
        best = np.full(shape, ml_dtypes.finfo(_numpy(g.dtype)).min, x.dtype)
        for _, _, outs, ins in _taps(g.h, g.w):
            seen, made = x[(..., *ins)], (..., *outs)
            best[made] = np.where(seen > best[made], seen, best[made])
        return best
    best, winner = np.zeros(shape, x.dtype), np.full(shape, -1)
    for tap, (_, _, outs, ins) in enumerate(_taps(g.h, g.w)):
        seen, made = x[(..., *ins)], (..., *outs)
        wins = (winner[made] < 0) | (seen > best[made])
        best[made] = np.where(wins, seen, best[made])
        winner[made] = np.where(wins, tap, winner[made])
    dx, dy = np.zeros_like(x), gradient[1]
    for tap, (_, _, outs, ins) in enumerate(_taps(g.h, g.w)):
        dx[(..., *ins)] += np.where(winner[(..., *outs)] == tap, dy[(..., *outs)], 0)
    return dx


def _mean_pool(g: Pooling, image: np.ndarray) -> np.ndarray:
    counts = np.zeros((g.h.out, g.w.out), image.dtype)
    for _, _, outs, _ in _taps(g.h, g.w):
        counts[outs] += 1
    forward = g.direction == "forward"
    sizes = (g.h.out, g.w.out) if forward else (g.h.size, g.w.size)
    result = np.zeros((g.n, g.c, *sizes), image.dtype)
    for _, _, outs, ins in _taps(g.h, g.w):
        if forward:
            result[(..., *outs)] += image[(..., *ins)]
        else:
            result[(..., *ins)] += (image / counts)[(..., *outs)]
    return result / counts if forward else result


def _pooling_3d(g: Pooling3D, x: np.ndarray) -> Arrays:
    """Planes first, then along the depth."""
    planes = Pooling(g.kind, "forward", g.n * g.d.size, g.c, g.h, g.w, "NHWC", g.dtype)
    inner = g.h.out * g.w.out
    apart = Window(inner, 1, 1, 1, 0, 0, inner)
    depth = Pooling(g.kind, "forward", g.n, g.c, g.d, apart, "NHWC", g.dtype)
    (found,) = _pooling(planes, x.reshape(g.n * g.d.size, g.h.size, g.w.size, g.c))
    return _pooling(depth, found.reshape(g.n, g.d.size, inner, g.c))


def _largest(g: Largest, x: np.ndarray) -> Arrays:
    rows = x.reshape(g.rows, g.length)
    unordered = rows != rows if rows.dtype.kind not in "iu" else np.zeros(rows.shape, bool)
    keys = np.where(unordered, 0, rows)
    places = np.stack(
        [np.lexsort((np.arange(g.length), -_signed(k), ~u)) for k, u in zip(keys, unordered)]
    )[:, : g.k]
    return [np.take_along_axis(rows, places, 1), places.astype(np.int32)]


def _signed(x: np.ndarray) -> np.ndarray:
    """Numbers of a type in which they can be negated."""
    return x.astype(np.int64) if x.dtype.kind in "iu" else x.astype(np.float64)


# ---- Rows ---------------------------------------------------------------------------------------


def _shifted(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows less their maximum, and the sums of the exponentials of that."""
    shifted = _wide(x) - _wide(x).max(-1, keepdims=True)
    return shifted, np.exp(shifted).sum(-1, keepdims=True)


def _softmax(g: Softmax, x: np.ndarray) -> Arrays:
    shifted, total = _shifted(x.reshape(g.rows, g.classes))
    result = shifted - np.log(total) if g.log else np.exp(shifted) / total
    return [result.reshape(x.shape)]


def _cross_entropy(g: CrossEntropy, x: np.ndarray, labels: np.ndarray) -> Arrays:
    shifted, total = _shifted(x)
    labels = _wide(labels)
    loss = ((np.log(total) - shifted) * labels).sum(-1)
    return [loss, (np.exp(shifted) / total - labels).astype(x.dtype)]


def _sparse_cross_entropy(g: SparseCrossEntropy, x: np.ndarray, labels: np.ndarray) -> Arrays:
    shifted, total = _shifted(x)
    hot = labels[:, None] == np.arange(g.classes)
    loss = np.where(hot, np.log(total) - shifted, 0).sum(-1)
    return [loss, (np.exp(shifted) / total - hot).astype(x.dtype)]


def _local_response(g: LocalResponse, *operands: np.ndarray) -> Arrays:
    shape = operands[0].shape
    rows = [_wide(x).reshape(g.rows, g.channels) for x in operands]
    near = np.arange(g.channels)
    band = (np.abs(near[:, None] - near) <= g.radius).astype(rows[0].dtype)
    x = rows[0] if g.direction == "forward" else rows[1]
    scale = g.bias + g.alpha * ((x * x) @ band)
    if g.direction == "forward":
        return [(x * scale**-g.beta).reshape(shape)]
    dy, _, y = rows
    dx = dy * scale**-g.beta - 2 * g.alpha * g.beta * x * ((dy * y / scale) @ band)
    return [dx.reshape(shape)]


def _batch_norm(g: BatchNorm, *operands: np.ndarray) -> Arrays:
    axes, along = ((0, 2), (1, g.c, 1)) if g.data_format == "NCHW" else ((0, 1), (1, 1, g.c))
    sizes = (g.n, g.c, g.pixels) if g.data_format == "NCHW" else (g.n, g.pixels, g.c)
    given = operands[0].shape
    count = g.n * g.pixels
    if g.direction == "forward":
        x, scale, offset, *moments = (_wide(v) for v in operands)
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
    dy, x, scale, mean, variance = (_wide(v) for v in operands)
    dy, x = dy.reshape(sizes), x.reshape(sizes)
    inverse = 1 / np.sqrt(variance + np.float32(g.epsilon))
    normal = (x - mean.reshape(along)) * inverse.reshape(along)
    doffset, dscale = dy.sum(axes), (dy * normal).sum(axes)
    inner = dy
    if g.training:
        inner = dy - (doffset.reshape(along) + normal * dscale.reshape(along)) / count
    dx = inner * (scale * inverse).reshape(along)
    return [dx.reshape(given), dscale, doffset, *[np.zeros((), np.float32)] * 2]


# ---- Rows by index ------------------------------------------------------------------------------


def _gather(g: Gather, params: np.ndarray, indices: np.ndarray) -> Arrays:
    tables = params.reshape(g.batch, g.outer, g.size, g.inner)
    chosen = indices.reshape(g.batch, g.count)
    return [np.stack([t[:, i] for t, i in zip(tables, chosen, strict=True)])]


def _gather_points(g: GatherPoints, params: np.ndarray, indices: np.ndarray) -> Arrays:
    points = indices.reshape(g.count, len(g.sizes))
    return [params.reshape(*g.sizes, g.inner)[tuple(points.T)]]


def _segment_sum(g: SegmentSum, data: np.ndarray, ids: np.ndarray) -> Arrays:
    result = np.zeros((g.segments, g.inner), _wide(data).dtype)
    for row, segment in zip(data.reshape(g.count, g.inner), ids.reshape(-1), strict=True):
        if segment >= 0:
            result[segment] += row
    return [result]


_CHANGES: dict[str, Callable[..., Any]] = {
    "Update": lambda old, new: new,
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Min": np.minimum,
    "Max": np.maximum,
}


def _scatter(g: Scatter, old: np.ndarray, indices: np.ndarray, updates: np.ndarray) -> Arrays:
    result = old.reshape(g.rows, g.inner).copy()
    whole = np.broadcast_to(updates, (g.count, g.inner)) if g.scalar else updates
    for i, row in zip(indices.reshape(-1), whole.reshape(g.count, g.inner), strict=True):
        result[i] = _CHANGES[g.how](result[i], row)
    return [result]


def _row_update(g: RowUpdate, *inputs: np.ndarray) -> Arrays:
    variables = [x.reshape(g.rows, g.inner).copy() for x in inputs[: g.variables]]
    gradient = inputs[g.gradient].reshape(g.count, g.inner)
    number = g.count if g.length is None else int(inputs[g.length])
    taken = [i for i in g.operands[g.variables :] if i not in (g.indices, g.length)]
    for k, row in enumerate(inputs[g.indices][:number]):
        given = [gradient[k] if i == g.gradient else inputs[i] for i in taken]
        made = g.program.evaluate(*(v[row] for v in variables), *given)
        for variable, new in zip(variables, made, strict=True):
            variable[row] = new
    return list(variables)


def _scan(g: Scan, x: np.ndarray) -> Arrays:
    lines = _wide(x).reshape(g.outer, g.length, g.inner)
    lines = lines[:, ::-1] if g.reverse else lines
    accumulate, first = {"sum": (np.cumsum, 0), "prod": (np.cumprod, 1)}[g.combine]
    if g.exclusive:
        start = np.full((g.outer, 1, g.inner), first, lines.dtype)
        lines = np.concatenate([start, lines[:, :-1]], 1)
    result = accumulate(lines, 1, lines.dtype)
    return [result[:, ::-1] if g.reverse else result]


def _random(g: Random, *given: np.ndarray) -> Arrays:
    if g.source == "own":
        stream = philox.PhiloxState(*g.seeds).reserve(0)
    elif g.source == "stream":
        stream = philox.Stream.of_words(given[0])
    else:
        stream = philox.stateless_stream(given[0])
    return [philox.draw(g.distribution, stream, [g.count], _numpy(g.dtype), g.bounds)]


_RUN: dict[type, Callable[..., Arrays]] = {
    BatchNorm: _batch_norm,
    Contraction: _contraction,
    Convolution: _convolution,
    CrossEntropy: _cross_entropy,
    Gather: _gather,
    GatherPoints: _gather_points,
    Largest: _largest,
    LocalResponse: _local_response,
    Pooling: _pooling,
    Pooling3D: _pooling_3d,
    Random: _random,
    Scan: _scan,
    RowUpdate: _row_update,
    Scatter: _scatter,
    SegmentSum: _segment_sum,
    Softmax: _softmax,
    SparseCrossEntropy: _sparse_cross_entropy,
}
