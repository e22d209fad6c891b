"""Max and average pooling in NumPy and by oneDNN, 2-D and 3-D. In: arrays and TF attributes. Out:
arrays of the same dtype.

`ksize` and `strides` have an entry for every axis of the data, so one code serves every layout and
dimension: a window slides over all axes, over the batch with a window of 1. TensorFlow's kernels
treat equal and NaN elements differently, and each rule is kept:

- max_pool, max_pool3d: start from the lowest value and take greater ones, so NaN never wins;
- max_pool_with_argmax, max_pool_grad: start from the window's first element and take greater ones,
  so the first of equals wins and a leading NaN stays;
- the grad_grads: the first element equal to the pooled value wins; if none is, zero;
- max_pool3d_grad: every element equal to the pooled value receives the whole gradient.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from headrace._src.core.errors import UnimplementedError
from headrace._src.core.windows import taps
from headrace._src.devices import onednn
from headrace._src.devices.onednn import Unsupported
from headrace._src.lowering.padded_windows import PoolGeometry, pool_geometry
from headrace._src.ops.math.sum_precision import lowest, require_float, widened


def max_pool(
    inputs: np.ndarray,
    *,
    ksize: Sequence[int],
    strides: Sequence[int],
    padding: str,
    data_format: str = "NHWC",
) -> np.ndarray:
    """Return the maximum of each window; as in TensorFlow, all -inf gives the lowest
    finite value.
    """
    geometry = _geometry(inputs.shape, ksize, strides, padding, data_format, rank=4)
    return _maximum(inputs, geometry, lowest(inputs.dtype))


def max_pool_grad(
    orig_input: np.ndarray,
    orig_output: np.ndarray,
    grad: np.ndarray,
    *,
    ksize: Sequence[int],
    strides: Sequence[int],
    padding: str,
    data_format: str = "NHWC",
) -> np.ndarray:
    """Send each window's gradient to its first maximum."""
    geometry = _geometry(orig_input.shape, ksize, strides, padding, data_format, rank=4)
    _check_shape("orig_output", orig_output, _outputs(geometry))
    _check_shape("grad", grad, _outputs(geometry))
    return _sent_to(_first_maximum(orig_input, geometry), grad, geometry)


def max_pool_with_positions(
    inputs: np.ndarray,
    *,
    ksize: Sequence[int],
    strides: Sequence[int],
    padding: str,
    data_format: str = "NHWC",
) -> tuple[np.ndarray, np.ndarray]:
    """Return the maximum of each window, and the tap that max_pool_grad sends its gradient to."""
    geometry = _geometry(inputs.shape, ksize, strides, padding, data_format, rank=4)
    positions = _first_maximum(inputs, geometry).astype(np.uint8)
    return _maximum(inputs, geometry, lowest(inputs.dtype)), positions


def max_pool_grad_at_positions(
    positions: np.ndarray,
    grad: np.ndarray,
    *,
    shape: Sequence[int],
    ksize: Sequence[int],
    strides: Sequence[int],
    padding: str,
    data_format: str = "NHWC",
) -> np.ndarray:
    """Send each window's gradient to the tap that max_pool_with_positions found; `shape` is that
    of its inputs.
    """
    geometry = _geometry(tuple(shape), ksize, strides, padding, data_format, rank=4)
    return _sent_to(positions, grad, geometry)


def max_pool_grad_grad(
    orig_input: np.ndarray,
    orig_output: np.ndarray,
    grad: np.ndarray,
    *,
    ksize: Sequence[int],
    strides: Sequence[int],
    padding: str,
    data_format: str = "NHWC",
) -> np.ndarray:
    """The gradient of max_pool_grad for its `grad`: read where the gradient was sent."""
    geometry = _geometry(orig_input.shape, ksize, strides, padding, data_format, rank=4)
    return _read_at_maximum(orig_input, orig_output, grad, geometry)


def max_pool_with_argmax(
    inputs: np.ndarray,
    *,
    ksize: Sequence[int],
    strides: Sequence[int],
    padding: str,
    Targmax: Any = np.int64,
    include_batch_in_index: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the maximum of each window and its flat index, in its own image or in the
    whole batch.
    """
    geometry = _geometry(inputs.shape, ksize, strides, padding, "NHWC", rank=4)
    where = _flat_index(_first_maximum(inputs, geometry), geometry)
    argmax = where if include_batch_in_index else where - _image_starts(inputs.shape)
    return inputs.reshape(-1)[where], argmax.astype(Targmax)


def max_pool_grad_with_argmax(
    inputs: np.ndarray,
    grad: np.ndarray,
    argmax: np.ndarray,
    *,
    ksize: Sequence[int],
    strides: Sequence[int],
    padding: str,
    include_batch_in_index: bool = False,
) -> np.ndarray:
    """Send each window's gradient to the element at `argmax`."""
    geometry = _geometry(inputs.shape, ksize, strides, padding, "NHWC", rank=4)
    _check_shape("grad", grad, _outputs(geometry))
    where = _checked_argmax(argmax, inputs.shape, geometry, include_batch_in_index)
    dy = widened(grad)
    dx = np.zeros(inputs.size, dy.dtype)
    np.add.at(dx, where.reshape(-1), dy.reshape(-1))
    return dx.reshape(inputs.shape).astype(grad.dtype, copy=False)


def max_pool_grad_grad_with_argmax(
    inputs: np.ndarray,
    grad: np.ndarray,
    argmax: np.ndarray,
    *,
    ksize: Sequence[int],
    strides: Sequence[int],
    padding: str,
    include_batch_in_index: bool = False,
) -> np.ndarray:
    """The gradient of max_pool_grad_with_argmax for its `grad`: read at `argmax`."""
    geometry = _geometry(inputs.shape, ksize, strides, padding, "NHWC", rank=4)
    _check_shape("grad", grad, inputs.shape)
    where = _checked_argmax(argmax, inputs.shape, geometry, include_batch_in_index)
    return grad.reshape(-1)[where]


def max_pool3d(
    inputs: np.ndarray,
    *,
    ksize: Sequence[int],
    strides: Sequence[int],
    padding: str,
    data_format: str = "NDHWC",
) -> np.ndarray:
    """Maximum of each window."""
    require_float("max_pool3d", inputs)
    geometry = _geometry(inputs.shape, ksize, strides, padding, data_format, rank=5)
    return _maximum(inputs, geometry, lowest(inputs.dtype))


def max_pool3d_grad(
    orig_input: np.ndarray,
    orig_output: np.ndarray,
    grad: np.ndarray,
    *,
    ksize: Sequence[int],
    strides: Sequence[int],
    padding: str,
    data_format: str = "NDHWC",
) -> np.ndarray:
    """Send each window's gradient, whole, to every element that equals its maximum."""
    geometry = _geometry(orig_input.shape, ksize, strides, padding, data_format, rank=5)
    _check_shape("orig_output", orig_output, _outputs(geometry))
    _check_shape("grad", grad, _outputs(geometry))
    dy = widened(grad)
    dx = np.zeros(orig_input.shape, dy.dtype)
    for _, outs, ins in taps(geometry.axes):
        dx[ins] += np.where(orig_input[ins] == orig_output[outs], dy[outs], 0)
    return dx.astype(grad.dtype, copy=False)


def max_pool3d_grad_grad(
    orig_input: np.ndarray,
    orig_output: np.ndarray,
    grad: np.ndarray,
    *,
    ksize: Sequence[int],
    strides: Sequence[int],
    padding: str,
    data_format: str = "NDHWC",
) -> np.ndarray:
    """Read `grad` at the first maximum of each window."""
    geometry = _geometry(orig_input.shape, ksize, strides, padding, data_format, rank=5)
    return _read_at_maximum(orig_input, orig_output, grad, geometry)


def avg_pool(
    value: np.ndarray,
    *,
    ksize: Sequence[int],
    strides: Sequence[int],
    padding: str,
    data_format: str = "NHWC",
) -> np.ndarray:
    """Return the mean of each window's real elements: padding is not counted."""
    return _average(value, _plane(value.shape, ksize, strides, padding, data_format, rank=4))


def avg_pool_grad(
    orig_input_shape: np.ndarray,
    grad: np.ndarray,
    *,
    ksize: Sequence[int],
    strides: Sequence[int],
    padding: str,
    data_format: str = "NHWC",
) -> np.ndarray:
    """Spread each window's gradient evenly over its real elements."""
    shape = tuple(np.asarray(orig_input_shape).tolist())
    return _spread(grad, shape, _plane(shape, ksize, strides, padding, data_format, rank=4))


def avg_pool3d(
    value: np.ndarray,
    *,
    ksize: Sequence[int],
    strides: Sequence[int],
    padding: str,
    data_format: str = "NDHWC",
) -> np.ndarray:
    """Return the mean of each window's real elements: padding is not counted."""
    return _average(value, _plane(value.shape, ksize, strides, padding, data_format, rank=5))


def avg_pool3d_grad(
    orig_input_shape: np.ndarray,
    grad: np.ndarray,
    *,
    ksize: Sequence[int],
    strides: Sequence[int],
    padding: str,
    data_format: str = "NDHWC",
) -> np.ndarray:
    """Spread each window's gradient evenly over its real elements."""
    shape = tuple(np.asarray(orig_input_shape).tolist())
    return _spread(grad, shape, _plane(shape, ksize, strides, padding, data_format, rank=5))


def _geometry(
    shape: tuple[int, ...],
    ksize: Sequence[int],
    strides: Sequence[int],
    padding: str,
    data_format: str,
    *,
    rank: int,
) -> PoolGeometry[int]:
    if len(data_format) != rank:
        raise ValueError(f"{rank - 2}-D pooling has no data_format {data_format!r}")
    return pool_geometry(
        shape, ksize=ksize, strides=strides, padding=padding, data_format=data_format
    )


def _plane(
    shape: tuple[int, ...],
    ksize: Sequence[int],
    strides: Sequence[int],
    padding: str,
    data_format: str,
    *,
    rank: int,
) -> PoolGeometry[int]:
    """Return the geometry of a pooling that doesn't support pooling over depth."""
    geometry = _geometry(shape, ksize, strides, padding, data_format, rank=rank)
    if ksize[data_format.index("C")] != 1:
        raise UnimplementedError(None, None, "Non-spatial pooling is not yet supported.")
    return geometry


def _outputs(geometry: PoolGeometry[int]) -> tuple[int, ...]:
    return geometry.output_shape


def _check_shape(what: str, array: np.ndarray, shape: tuple[int, ...]) -> None:
    if array.shape != shape:
        raise ValueError(f"{what} has shape {array.shape}, but the pooling needs {shape}")


def _maximum(inputs: np.ndarray, geometry: PoolGeometry[int], start: float) -> np.ndarray:
    best = np.full(_outputs(geometry), start, inputs.dtype)
    for _, outs, ins in taps(geometry.axes):
        seen = best[outs]
        np.fmax(seen, inputs[ins], out=seen)
    return best


def _first_maximum(inputs: np.ndarray, geometry: PoolGeometry[int]) -> np.ndarray:
    """Return the tap of each window's maximum, starting from the window's first element."""
    best = np.zeros(_outputs(geometry), inputs.dtype)
    winner = np.full(best.shape, -1, np.int32)
    for tap, (_, outs, ins) in enumerate(taps(geometry.axes)):
        candidate, seen, held = inputs[ins], best[outs], winner[outs]
        wins = (held < 0) | (candidate > seen)
        held[wins] = tap
        np.copyto(seen, candidate, where=wins)
    return winner


def _sent_to(winner: np.ndarray, grad: np.ndarray, geometry: PoolGeometry[int]) -> np.ndarray:
    """Return zeros with each window's gradient added at its winning tap."""
    dy = widened(grad)
    dx = np.zeros([axis.size for axis in geometry.axes], dy.dtype)
    for tap, (_, outs, ins) in enumerate(taps(geometry.axes)):
        dx[ins] += np.where(winner[outs] == tap, dy[outs], 0)
    return dx.astype(grad.dtype, copy=False)


def _read_at_maximum(
    orig_input: np.ndarray, orig_output: np.ndarray, grad: np.ndarray, geometry: PoolGeometry[int]
) -> np.ndarray:
    _check_shape("orig_output", orig_output, _outputs(geometry))
    _check_shape("grad", grad, orig_input.shape)
    out = np.zeros(orig_output.shape, grad.dtype)
    pending = np.ones(orig_output.shape, bool)
    for _, outs, ins in taps(geometry.axes):
        waiting = pending[outs]
        found = waiting & (orig_input[ins] == orig_output[outs])
        np.copyto(out[outs], grad[ins], where=found)
        waiting &= ~found
    return out


def _flat_index(winner: np.ndarray, geometry: PoolGeometry[int]) -> np.ndarray:
    """Return the positions of the winning taps in the flattened input."""
    windows = tuple(axis.taps for axis in geometry.axes)
    coordinates = [
        np.expand_dims(np.arange(out) * axis.stride - axis.before, others) + tap
        for out, axis, tap, others in zip(
            winner.shape,
            geometry.axes,
            np.unravel_index(winner, windows),
            _other_axes(winner.ndim),
            strict=True,
        )
    ]
    return np.ravel_multi_index(coordinates, tuple(axis.size for axis in geometry.axes))


def _other_axes(rank: int) -> list[tuple[int, ...]]:
    return [tuple(other for other in range(rank) if other != axis) for axis in range(rank)]


def _image_starts(shape: tuple[int, ...]) -> np.ndarray:
    """Return the flat index of each image's first element, shaped to broadcast over a batch."""
    return (np.arange(shape[0]) * np.prod(shape[1:], dtype=np.int64)).reshape(-1, 1, 1, 1)


def _checked_argmax(
    argmax: np.ndarray, shape: tuple[int, ...], geometry: PoolGeometry[int], include_batch: bool
) -> np.ndarray:
    _check_shape("argmax", argmax, _outputs(geometry))
    size = int(np.prod(shape if include_batch else shape[1:]))
    if argmax.size and (argmax.min() < 0 or argmax.max() >= size):
        raise ValueError(
            f"argmax must lie in [0, {size}), got values from {argmax.min()} to {argmax.max()}"
        )
    where = argmax.astype(np.int64)
    return where if include_batch else where + _image_starts(shape)


def _average(value: np.ndarray, geometry: PoolGeometry[int]) -> np.ndarray:
    require_float("average pooling", value)
    x = widened(value)
    total = np.zeros(_outputs(geometry), x.dtype)
    for _, outs, ins in taps(geometry.axes):
        total[outs] += x[ins]
    return _per_element(total, geometry).astype(value.dtype, copy=False)


def _spread(grad: np.ndarray, shape: tuple[int, ...], geometry: PoolGeometry[int]) -> np.ndarray:
    require_float("average pooling", grad)
    _check_shape("grad", grad, _outputs(geometry))
    share = _per_element(widened(grad), geometry)
    dx = np.zeros(shape, share.dtype)
    for _, outs, ins in taps(geometry.axes):
        dx[ins] += share[outs]
    return dx.astype(grad.dtype, copy=False)


def _per_element(values: np.ndarray, geometry: PoolGeometry[int]) -> np.ndarray:
    """Divide each window's value by the number of its real elements."""
    counts = np.ones((1,) * values.ndim, values.dtype)
    for axis, others in zip(geometry.axes, _other_axes(values.ndim), strict=True):
        counts = counts * np.expand_dims(axis.coverage(), others).astype(values.dtype)
    return values / counts


# ---- oneDNN, 2-D and 3-D -------------------------------------------------------------------------
# The kernels of the same names by oneDNN, which raises `Unsupported` for what it does not do.


@lru_cache(maxsize=1024)
def _window(
    input_shape: tuple[int, ...],
    ksize: tuple[int, ...],
    strides: tuple[int, ...],
    padding: str,
    data_format: str,
) -> tuple[Any, ...] | str:
    """Return the arguments of oneDNN's poolings after the arrays; raise Unsupported if it can't
    pool.
    """
    geometry = pool_geometry(
        input_shape, ksize=ksize, strides=strides, padding=padding, data_format=data_format
    )
    channel = data_format.index("C")
    if ksize[channel] != 1:
        return "oneDNN does not pool over channels"
    axes = [a for i, a in enumerate(geometry.axes) if i not in (0, channel)]
    return (
        tuple(a.taps for a in axes),
        tuple(a.stride for a in axes),
        tuple((a.before, a.after) for a in axes),
        data_format,
    )


def _pool_arguments(*key: Any) -> tuple[Any, ...]:
    found = _window(*key)
    if isinstance(found, str):
        raise Unsupported(found)
    return found


def onednn_max_pool(x, *, ksize, strides, padding, data_format):
    return onednn.max_pool(x, *_pool_arguments(x.shape, ksize, strides, padding, data_format))


def onednn_max_pool_grad(x, y, dy, *, ksize, strides, padding, data_format):
    arguments = _pool_arguments(x.shape, ksize, strides, padding, data_format)
    return onednn.max_pool_backward(x, y, dy, *arguments)


def onednn_avg_pool(x, *, ksize, strides, padding, data_format):
    return onednn.avg_pool(x, *_pool_arguments(x.shape, ksize, strides, padding, data_format))


def onednn_avg_pool_grad(sizes, dy, *, ksize, strides, padding, data_format):
    shape = tuple(sizes.tolist()) if sizes.ndim == 1 else ()
    arguments = _pool_arguments(shape, ksize, strides, padding, data_format)
    return onednn.avg_pool_backward(shape, dy, *arguments)
