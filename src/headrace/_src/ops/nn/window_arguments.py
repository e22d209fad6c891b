"""Window arguments of public functions. In: strides, dilations, paddings and sizes in their short
forms. Out: one entry per dimension, as the ops take them; and dilation by space_to_batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from headrace._src.core.export import export
from headrace._src.core.tensor_shape import as_shape
from headrace._src.graph.inference import constant_value
from headrace._src.graph.operation import Tensor
from headrace._src.ops.base.define import b, composed
from headrace._src.ops.base.to_tensor import convert_to_tensor

__all__ = [
    "channel_axis",
    "full_window",
    "padding_pairs",
    "strides_and_rates",
    "with_space_to_batch",
]


def full_window(value: Any, spatial: int, channel_axis: int, name: str) -> list[int]:
    """Return one entry per dimension, given a number, or 1, `spatial` or `spatial + 2` of them."""
    if value is None:
        value = [1]
    elif not isinstance(value, Sequence | np.ndarray):
        value = [value]
    values = [int(v) for v in value]
    if len(values) == spatial + 2:
        return values
    if len(values) == 1:
        values = values * spatial
    if len(values) != spatial:
        raise ValueError(
            f"{name} should be of length 1, {spatial} or {spatial + 2} but was {len(values)}"
        )
    return [1, 1, *values] if channel_axis == 1 else [1, *values, 1]


def channel_axis(data_format: str, spatial: int) -> int:
    """Return the axis of the channels in data with `spatial` spatial dimensions."""
    return 1 if data_format.startswith("NC") else spatial + 1


def padding_pairs(padding: Any) -> tuple[Any, list[int]]:
    """Return the attributes `padding` and `explicit_paddings`, given a name or a list of (before,
    after) pairs, one per dimension.
    """
    if not isinstance(padding, list | tuple):
        return padding, []
    for i, pair in enumerate(padding):
        if not isinstance(pair, list | tuple):
            raise ValueError(
                "When padding is a list, each element of padding must be a list/tuple of size 2. "
                f"Element with index {i} of padding is not a list/tuple"
            )
        if len(pair) != 2:
            raise ValueError(
                "When padding is a list, each element of padding must be a list/tuple of size 2. "
                f"Element with index {i} of padding has size {len(pair)}"
            )
    if len(padding) != 4:
        raise ValueError(
            f"When padding is a list, it must be of size 4. Got padding of size: {len(padding)}"
        )
    return "EXPLICIT", [int(n) for pair in padding for n in pair]


def strides_and_rates(spatial: int, strides: Any, rates: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return strides and dilation rates, one entry per spatial dimension; not both above 1."""
    return_values = []
    for name, given in (("dilation_rate", rates), ("strides", strides)):
        values = np.ones(spatial, np.int32) if given is None else np.asarray(given, np.int32)
        if not values.ndim:
            values = np.full(spatial, values)
        if values.shape != (spatial,):
            raise ValueError(f"len({name})={len(values)} but should be {spatial}")
        if (values < 1).any():
            raise ValueError(f"all values of {name} must be positive")
        return_values.append(values)
    rate, stride = return_values
    if (stride > 1).any() and (rate > 1).any():
        raise ValueError("strides > 1 not supported in conjunction with dilation_rate > 1")
    return stride, rate


def spatial_axes(spatial: int, data_format: str | None) -> range:
    """Return the spatial dimensions of the data."""
    first = 2 if data_format is not None and data_format.startswith("NC") else 1
    return range(first, first + spatial)


@composed
@export("nn.with_space_to_batch")
def with_space_to_batch(
    input: Any,
    dilation_rate: Any,
    padding: str,
    op: Callable[..., Tensor],
    filter_shape: Any = None,
    spatial_dims: Sequence[int] | None = None,
    data_format: str | None = None,
) -> Tensor:
    """Apply `op(input, number of spatial dimensions, padding)`, dilated: space is moved to the
    batch, so that neighbours as seen by `op` are `dilation_rate` apart.
    """
    input = input if hasattr(input, "shape") else convert_to_tensor(input, name="input")
    shape = as_shape(input.shape)
    rate = convert_to_tensor(dilation_rate, "int32", name="dilation_rate")
    count = rate.shape.with_rank(1).num_elements()
    if count is None:
        raise ValueError("rate must have known shape")
    axes = _checked_axes(spatial_dims, count, data_format)
    if shape.ndims is not None and shape.ndims <= axes[-1]:
        raise ValueError(f"input tensor must have rank {axes[-1] + 1} at least")
    known_rate = constant_value(rate)
    if known_rate is not None:
        if (known_rate < 1).any():
            raise ValueError("dilation_rate must be positive")
        if (known_rate == 1).all():
            return op(input, count, padding)
    base = _base_paddings(padding, filter_shape, count, rate if known_rate is None else known_rate)
    paddings, crops = b.required_space_to_batch_paddings(
        input_shape=_spatial_shape(input, axes), base_paddings=base, block_shape=rate
    )
    block = _widened_to_batch(rate, 1, axes)
    paddings = _widened_to_batch(paddings, 0, axes)
    crops = _widened_to_batch(crops, 0, axes)
    dealt = b.space_to_batch_nd(input, block_shape=block, paddings=paddings)
    result = op(dealt, count, "VALID")
    return b.batch_to_space_nd(result, block_shape=block, crops=crops)


def _checked_axes(
    spatial_dims: Sequence[int] | None, count: int, data_format: str | None
) -> list[int]:
    axes = list(spatial_axes(count, data_format) if spatial_dims is None else spatial_dims)
    if axes != sorted(set(axes)) or min(axes) < 1:
        raise ValueError(
            "spatial_dims must be a monotonically increasing sequence of positive integers"
        )
    return axes


def _base_paddings(padding: str, filter_shape: Any, count: int, rate: Any) -> Any:
    """Return the padding that the dilated window needs, before rounding up to whole blocks."""
    if padding == "VALID":
        return np.zeros((count, 2), np.int32)
    if padding != "SAME":
        raise ValueError(f"Invalid padding method {padding!r}")
    if filter_shape is None:
        raise ValueError("filter_shape must be specified for SAME padding")
    filter_shape = convert_to_tensor(filter_shape, name="filter_shape")
    known = constant_value(filter_shape)
    window = filter_shape if known is None else known
    pairs = []
    for i in range(count):
        extra = (window[i] - 1) * rate[i]
        before = extra // 2
        pairs.append([before, extra - before])
    return b.stack(pairs)


def _spatial_shape(x: Any, axes: list[int]) -> Any:
    sizes = as_shape(x.shape).sizes
    if sizes is not None:
        known = [sizes[axis] for axis in axes]
        if None not in known:
            return np.array(known, np.int32)
    shape = b.shape(x)
    return b.stack([shape[axis] for axis in axes])


def _widened_to_batch(values: Any, fill: int, axes: list[int]) -> Any:
    """Return `values`, one entry per spatial axis, with `fill` inserted for each non-spatial axis
    between the batch and the last spatial one.
    """
    values = convert_to_tensor(values)
    known = constant_value(values)
    parts: list[Any] = []
    previous = start = 0
    for i, axis in enumerate(axes):
        if axis > previous + 1:
            if i > start:
                parts.append((known if known is not None else values)[start:i])
            shape = (axis - previous - 1, *values.shape.as_list()[1:])
            parts.append(np.full(shape, fill, np.int32))
            start = i
        previous = axis
    parts.append((known if known is not None else values)[start : len(axes)])
    return np.concatenate(parts) if known is not None else b.concat(parts, 0)
