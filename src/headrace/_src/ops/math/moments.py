"""Means and variances, normalisation by them, and layers of a matrix product and a bias."""

from __future__ import annotations

from typing import Any

from headrace._src.core.export import export
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.graph.operation import Tensor
from headrace._src.ops.base.define import b, composed
from headrace._src.ops.base.renamed_arguments import renamed_argument
from headrace._src.ops.base.to_tensor import convert_to_tensor, name_scope

__all__ = ["batch_normalization", "l2_normalize", "moments", "weighted_moments"]


def _keep(keepdims: bool | None, keep_dims: bool | None) -> bool:
    return bool(renamed_argument("keepdims", keepdims, "keep_dims", keep_dims))


def _finished(
    mean: Tensor, variance: Tensor, axes: Any, keep: bool, narrow: bool
) -> tuple[Tensor, Tensor]:
    """Drop the reduced axes of moments unless they are kept, and cast back to float16 if needed."""
    if not keep:
        mean, variance = b.squeeze(mean, axes), b.squeeze(variance, axes)
    if narrow:
        return b.cast(mean, "float16"), b.cast(variance, "float16")
    return mean, variance


@composed
@export("nn.moments")
def moments(
    x: Any,
    axes: Any,
    shift: Any = None,
    name: str | None = None,
    keep_dims: bool | None = None,
    keepdims: bool | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the mean and the (biased) variance of x over `axes`.

    float16 is computed in float32. `shift`, once an aid against cancellation, has no effect: the
    mean itself is subtracted before squaring.
    """
    keep = _keep(keepdims, keep_dims)
    with name_scope(name, "moments", [x, axes]):
        narrow = x.dtype == "float16"
        y = b.cast(x, "float32") if narrow else x
        mean = b.reduce_mean(y, axes, keepdims=True, name="mean")
        squares = b.squared_difference(y, b.stop_gradient(mean))
        variance = b.reduce_mean(squares, axes, keepdims=True, name="variance")
        return _finished(mean, variance, axes, keep, narrow)


@composed
@export("nn.weighted_moments")
def weighted_moments(
    x: Any,
    axes: Any,
    frequency_weights: Any,
    name: str | None = None,
    keep_dims: bool | None = None,
    keepdims: bool | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the mean and variance of x over `axes`, with each element weighted.

    frequency_weights: the weights, which broadcast with x.
    """
    keep = _keep(keepdims, keep_dims)
    with name_scope(name, "weighted_moments", [x, frequency_weights, axes]):
        x = convert_to_tensor(x, name="x")
        weights = convert_to_tensor(frequency_weights, name="frequency_weights")
        narrow = x.dtype == "float16"
        if narrow:
            x = b.cast(x, "float32")
        if weights.dtype != x.dtype:
            weights = b.cast(weights, x.dtype)
        total = b.reduce_sum(weights * x, axes, name="weighted_input_sum", keepdims=True)
        everywhere = weights + b.zeros_like(x)
        count = b.reduce_sum(everywhere, axes, name="sum_of_weights", keepdims=True)
        divisor = b.reciprocal(count, name="inv_weight_sum")
        mean = b.multiply(total, divisor)
        squares = b.reduce_sum(
            weights * b.squared_difference(x, mean), axes, name="weighted_distsq", keepdims=True
        )
        variance = b.multiply(squares, divisor)
        return _finished(mean, variance, axes, keep, narrow)


@composed
@export("nn.sufficient_statistics")
def sufficient_statistics(
    x: Any,
    axes: Any,
    shift: Any = None,
    keep_dims: bool | None = None,
    name: str | None = None,
    keepdims: bool | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Return (count, sum, sum of squares, shift) of x over `axes`, for normalize_moments.

    With a `shift` near the mean, the sums are those of x - shift, which reduces cancellation.
    """
    keep = _keep(keepdims, keep_dims)
    axes = sorted(set(axes))
    with name_scope(name, "sufficient_statistics", [x, shift]):
        x = convert_to_tensor(x, name="x")
        sizes = x.shape.sizes
        reduced = TensorShape(None if sizes is None else [sizes[d] for d in axes])
        count = reduced.num_elements()
        if count is not None:
            counts = b.constant(float(count), dtype=x.dtype)
        else:
            counts = b.reduce_prod(b.gather(b.cast(b.shape(x), x.dtype), axes), name="count")
        if shift is not None:
            shift = convert_to_tensor(shift, name="shift")
            values, squares = b.subtract(x, shift), b.squared_difference(x, shift)
        else:
            values, squares = x, b.square(x)
        sum_of_values = b.reduce_sum(values, axes, keepdims=keep, name="mean_ss")
        sum_of_squares = b.reduce_sum(squares, axes, keepdims=keep, name="var_ss")
        return counts, sum_of_values, sum_of_squares, shift


@composed
@export("nn.normalize_moments")
def normalize_moments(
    counts: Any, mean_ss: Any, variance_ss: Any, shift: Any, name: str | None = None
) -> tuple[Tensor, Tensor]:
    """Return the mean and variance, given the results of sufficient_statistics.

    counts, mean_ss, variance_ss and shift: the results of sufficient_statistics, in this order.
    """
    with name_scope(name, "normalize", [counts, mean_ss, variance_ss, shift]):
        divisor = b.reciprocal(counts, name="divisor")
        if shift is not None:
            shifted = b.multiply(mean_ss, divisor, name="shifted_mean")
            mean = b.add(shifted, shift, name="mean")
        else:
            shifted = mean = b.multiply(mean_ss, divisor, name="mean")
        mean_square = b.multiply(variance_ss, divisor)
        return mean, b.subtract(mean_square, b.square(shifted), name="variance")


@composed
@export("nn.batch_normalization")
def batch_normalization(
    x: Any,
    mean: Any,
    variance: Any,
    offset: Any,
    scale: Any,
    variance_epsilon: Any,
    name: str | None = None,
) -> Tensor:
    """Return (x - mean) / sqrt(variance + variance_epsilon) * scale + offset; scale and offset may
    be None.
    """
    with name_scope(name, "batchnorm", [x, mean, variance, scale, offset]):
        factor = b.rsqrt(variance + variance_epsilon)
        if scale is not None:
            factor = factor * scale
        scaled = x * b.cast(factor, x.dtype)
        shift = offset - mean * factor if offset is not None else -mean * factor
        return scaled + b.cast(shift, x.dtype)


@composed
@export("nn.batch_norm_with_global_normalization")
def batch_norm_with_global_normalization(
    t: Any = None,
    m: Any = None,
    v: Any = None,
    beta: Any = None,
    gamma: Any = None,
    variance_epsilon: Any = None,
    scale_after_normalization: bool | None = None,
    name: str | None = None,
    input: Any = None,
    mean: Any = None,
    variance: Any = None,
) -> Tensor:
    """Return batch_normalization of t by m and v, optionally scaled by gamma, plus beta."""
    t = renamed_argument("input", input, "t", t)
    m = renamed_argument("mean", mean, "m", m)
    v = renamed_argument("variance", variance, "v", v)
    scale = gamma if scale_after_normalization else None
    return batch_normalization(t, m, v, beta, scale, variance_epsilon, name)


@composed
@export("nn.l2_normalize", "math.l2_normalize", "linalg.l2_normalize")
def l2_normalize(
    x: Any, axis: Any = None, epsilon: float = 1e-12, name: str | None = None, dim: Any = None
) -> Tensor:
    """Return x / sqrt(max(sum of x squared over `axis`, epsilon)); `dim` is an old name of the
    axis.
    """
    axis = renamed_argument("axis", axis, "dim", dim)
    with name_scope(name, "l2_normalize", [x]) as scope:
        x = convert_to_tensor(x, name="x")
        squares = b.reduce_sum(b.square(x), axis, keepdims=True)
        return b.multiply(x, b.rsqrt(b.maximum(squares, epsilon)), name=scope)


@composed
@export("nn.xw_plus_b")
def xw_plus_b(x: Any, weights: Any, biases: Any, name: str | None = None) -> Tensor:
    """Return matmul(x, weights) + biases."""
    with name_scope(name, "xw_plus_b", [x, weights, biases]) as scope:
        x = convert_to_tensor(x, name="x")
        weights = convert_to_tensor(weights, name="weights")
        biases = convert_to_tensor(biases, name="biases")
        return b.bias_add(b.matmul(x, weights), biases, name=scope)


@composed
@export("nn.relu_layer")
def relu_layer(x: Any, weights: Any, biases: Any, name: str | None = None) -> Tensor:
    """Return relu(matmul(x, weights) + biases)."""
    with name_scope(name, "relu_layer", [x, weights, biases]) as scope:
        x = convert_to_tensor(x, name="x")
        weights = convert_to_tensor(weights, name="weights")
        biases = convert_to_tensor(biases, name="biases")
        return b.relu(b.bias_add(b.matmul(x, weights), biases), name=scope)
