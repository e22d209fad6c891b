"""The public functions of random numbers (tf.random_normal and others), and their ops' seeds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from headrace._src.core import dtypes
from headrace._src.core.dtypes import as_dtype
from headrace._src.core.export import export
from headrace._src.core.tensor_shape import dimension_value
from headrace._src.graph.default import get_default_graph
from headrace._src.graph.operation import Tensor
from headrace._src.ops.base.define import b, composed
from headrace._src.ops.base.to_tensor import convert_to_tensor, name_scope
from headrace._src.ops.random import random_ops as ops

__all__ = ["get_seed", "set_random_seed"]

DEFAULT_GRAPH_SEED = 87654321
_SEED_LIMIT = 2**31 - 1  # GPU kernels may read the attribute as int32


@export("set_random_seed", "random.set_random_seed")
def set_random_seed(seed: int | None) -> None:
    """Set the seed of the default graph, which ops without an own seed derive theirs from."""
    get_default_graph().seed = seed


@composed
@export("get_seed", "random.get_seed")
def get_seed(op_seed: int | None) -> tuple[int | None, int | None]:
    """Return the two seeds of a new op, from the graph's seed and the op's own.

    With only a graph seed, the op's is the number of operations made so far: each op draws
    different numbers, and running the program again draws the same ones. With neither, both are
    None.
    """
    graph = get_default_graph()
    if op_seed is None:
        if graph.seed is None:
            return None, None
        op_seed = graph.operation_seed()
    graph_seed = DEFAULT_GRAPH_SEED if graph.seed is None else graph.seed
    first, second = (int(s) % _SEED_LIMIT for s in (graph_seed, op_seed))
    # Both zero would mean "not seeded" to the kernels.
    return (0, _SEED_LIMIT) if first == second == 0 else (first, second)


def _shape_tensor(shape: Any) -> Any:
    """Return `shape` as an integer tensor; an empty list is int32, not float32."""
    dtype = None
    if isinstance(shape, list | tuple):
        dtype = None if shape else dtypes.int32
        shape = [dimension_value(n) for n in shape]
    return convert_to_tensor(shape, dtype, "shape")


def _scaled(numbers: Any, mean: Any, stddev: Any, scope: str) -> Any:
    return b.add(b.multiply(numbers, stddev, name="mul"), mean, name=scope)


def _normal(
    draw: Callable[[Any], Any], shape: Any, mean: Any, stddev: Any, dtype: Any, scope: str
) -> Any:
    """Scale the result of `draw`; the draw is added last, because seeds depend on the
    order of ops.
    """
    sizes = _shape_tensor(shape)
    mean = convert_to_tensor(mean, dtype, "mean")
    stddev = convert_to_tensor(stddev, dtype, "stddev")
    return _scaled(draw(sizes), mean, stddev, scope)


@composed
@export("random_normal", "random.normal")
def random_normal(
    shape: Any,
    mean: Any = 0.0,
    stddev: Any = 1.0,
    dtype: Any = dtypes.float32,
    seed: int | None = None,
    name: str | None = None,
) -> Tensor:
    """Return normal numbers with the given mean and standard deviation, which broadcast."""
    with name_scope(name, "random_normal", [shape, mean, stddev]) as scope:
        return _normal(
            lambda sizes: ops.random_standard_normal(sizes, dtype, *get_seed(seed)),
            shape,
            mean,
            stddev,
            dtype,
            scope,
        )


@composed
@export("truncated_normal", "random.truncated_normal")
def truncated_normal(
    shape: Any,
    mean: Any = 0.0,
    stddev: Any = 1.0,
    dtype: Any = dtypes.float32,
    seed: int | None = None,
    name: str | None = None,
) -> Tensor:
    """Return normal numbers within two standard deviations of the mean; others are redrawn."""
    with name_scope(name, "truncated_normal", [shape, mean, stddev]) as scope:
        return _normal(
            lambda sizes: ops.truncated_normal_op(sizes, dtype, *get_seed(seed)),
            shape,
            mean,
            stddev,
            dtype,
            scope,
        )


_UNIFORM_TYPES = (
    dtypes.float16,
    dtypes.bfloat16,
    dtypes.float32,
    dtypes.float64,
    dtypes.int32,
    dtypes.int64,
)


def _uniform_bounds(minval: Any, maxval: Any, dtype: Any) -> tuple[Any, Any, Any]:
    dtype = as_dtype(dtype)
    if dtype not in _UNIFORM_TYPES:
        raise ValueError(f"Invalid dtype {dtype!r}")
    if maxval is None:
        if dtype.is_integer:
            raise ValueError(f"Must specify maxval for integer dtype {dtype!r}")
        maxval = 1
    return minval, maxval, dtype


@composed
@export("random_uniform", "random.uniform")
def random_uniform(
    shape: Any,
    minval: Any = 0,
    maxval: Any = None,
    dtype: Any = dtypes.float32,
    seed: int | None = None,
    name: str | None = None,
) -> Tensor:
    """Return numbers from [minval, maxval); maxval defaults to 1, and is required for integers."""
    minval, maxval, dtype = _uniform_bounds(minval, maxval, dtype)
    with name_scope(name, "random_uniform", [shape, minval, maxval]) as scope:
        sizes = _shape_tensor(shape)
        low = convert_to_tensor(minval, dtype, "min")
        high = convert_to_tensor(maxval, dtype, "max")
        seed1, seed2 = get_seed(seed)
        if dtype.is_integer:
            return ops.random_uniform_int(sizes, low, high, seed1, seed2, name=scope)
        numbers = ops.random_uniform_op(sizes, dtype, seed1, seed2)
        return _scaled(numbers, low, b.subtract(high, low, name="sub"), scope)


@composed
@export("random_shuffle", "random.shuffle")
def random_shuffle(value: Any, seed: int | None = None, name: str | None = None) -> Tensor:
    """Return `value` with its rows along the first dimension in random order."""
    seed1, seed2 = get_seed(seed)
    return ops.random_shuffle_op(value, seed1, seed2, name=name)


@composed
@export("random_crop", "image.random_crop")
def random_crop(value: Any, size: Any, seed: int | None = None, name: str | None = None) -> Tensor:
    """Return a slice of shape `size` at a random position in `value`; fail if it doesn't fit."""
    with name_scope(name, "random_crop", [value, size]) as scope:
        value = convert_to_tensor(value, name="value")
        size = convert_to_tensor(size, dtypes.int32, "size")
        shape = b.shape(value)
        check = b.Assert(
            b.reduce_all(b.greater_equal(shape, size)),
            ["Need value.shape >= size, got ", shape, size],
            summarize=1000,
        )
        shape = b.with_dependencies([check], shape)
        limit = b.add_v2(b.subtract(shape, size, name="sub"), 1, name="add")
        draws = random_uniform(b.shape(limit), dtype=size.dtype, maxval=size.dtype.max, seed=seed)
        return b.slice(value, b.floormod(draws, limit, name="mod"), size, name=scope)


@composed
@export("multinomial", "random.multinomial")
def multinomial(
    logits: Any,
    num_samples: Any,
    seed: int | None = None,
    name: str | None = None,
    output_dtype: Any = None,
) -> Tensor:
    """Return `num_samples` class indices per row of `logits`: old name of tf.random.categorical."""
    with name_scope(name, "multinomial", [logits]):
        return _categorical(logits, num_samples, output_dtype, seed)


@composed
@export("random.categorical")
def categorical(
    logits: Any,
    num_samples: Any,
    dtype: Any = None,
    seed: int | None = None,
    name: str | None = None,
) -> Tensor:
    """Return `num_samples` class indices per row of `logits`, unnormalised log-probabilities."""
    with name_scope(name, "categorical", [logits]):
        return _categorical(logits, num_samples, dtype, seed)


def _categorical(logits: Any, num_samples: Any, dtype: Any, seed: int | None) -> Any:
    logits = convert_to_tensor(logits, name="logits")
    seed1, seed2 = get_seed(seed)
    return ops.multinomial_op(logits, num_samples, seed1, seed2, dtype)


@composed
@export("random_gamma", "random.gamma")
def random_gamma(
    shape: Any,
    alpha: Any,
    beta: Any = None,
    dtype: Any = dtypes.float32,
    seed: int | None = None,
    name: str | None = None,
) -> Tensor:
    """Return Gamma numbers of shape `alpha` and inverse scale `beta`; `shape` draws for each."""
    with name_scope(name, "random_gamma", [shape, alpha, beta]):
        sizes = convert_to_tensor(shape, dtypes.int32, "shape")
        alpha = convert_to_tensor(alpha, dtype, "alpha")
        beta = convert_to_tensor(1 if beta is None else beta, dtype, "beta")
        alpha = b.add_v2(alpha, b.zeros_like(beta), name="add")
        seed1, seed2 = get_seed(seed)
        numbers = ops.random_gamma_op(sizes, alpha, seed1, seed2)
        least = np.finfo(as_dtype(dtype).numpy).tiny
        return b.maximum(least, b.realdiv(numbers, beta, name="truediv"))


@composed
@export("random_poisson", "random.poisson")
def random_poisson(
    lam: Any,
    shape: Any,
    dtype: Any = dtypes.float32,
    seed: int | None = None,
    name: str | None = None,
) -> Tensor:
    """Return Poisson counts with mean `lam`; `shape` draws for each."""
    with name_scope(name, "random_poisson", [lam, shape]):
        sizes = convert_to_tensor(shape, dtypes.int32, "shape")
        seed1, seed2 = get_seed(seed)
        return ops.random_poisson_v2(sizes, lam, seed1, seed2, dtype)


@composed
@export("random.stateless_uniform")
def stateless_random_uniform(
    shape: Any,
    seed: Any,
    minval: Any = 0,
    maxval: Any = None,
    dtype: Any = dtypes.float32,
    name: str | None = None,
) -> Tensor:
    """Return numbers from [minval, maxval), determined by the two integers in `seed`."""
    minval, maxval, dtype = _uniform_bounds(minval, maxval, dtype)
    with name_scope(name, "stateless_random_uniform", [shape, seed, minval, maxval]) as scope:
        sizes = _shape_tensor(shape)
        low = convert_to_tensor(minval, dtype, "min")
        high = convert_to_tensor(maxval, dtype, "max")
        if dtype.is_integer:
            return ops.stateless_random_uniform_int(sizes, seed, low, high, name=scope)
        numbers = ops.stateless_random_uniform_op(sizes, seed, dtype)
        return _scaled(numbers, low, b.subtract(high, low, name="sub"), scope)


@composed
@export("random.stateless_normal")
def stateless_random_normal(
    shape: Any,
    seed: Any,
    mean: Any = 0.0,
    stddev: Any = 1.0,
    dtype: Any = dtypes.float32,
    name: str | None = None,
) -> Tensor:
    """Return normal numbers, determined by the two integers in `seed`."""
    with name_scope(name, "stateless_random_normal", [shape, seed, mean, stddev]) as scope:
        return _normal(
            lambda sizes: ops.stateless_random_normal_op(sizes, seed, dtype),
            shape,
            mean,
            stddev,
            dtype,
            scope,
        )


@composed
@export("random.stateless_truncated_normal")
def stateless_truncated_normal(
    shape: Any,
    seed: Any,
    mean: Any = 0.0,
    stddev: Any = 1.0,
    dtype: Any = dtypes.float32,
    name: str | None = None,
) -> Tensor:
    """Return normal numbers within two standard deviations, determined by the two integers in
    `seed`.
    """
    with name_scope(name, "stateless_truncated_normal", [shape, seed, mean, stddev]) as scope:
        return _normal(
            lambda sizes: ops.stateless_truncated_normal_op(sizes, seed, dtype),
            shape,
            mean,
            stddev,
            dtype,
            scope,
        )


@composed
@export("random.stateless_multinomial")
def stateless_multinomial(
    logits: Any,
    num_samples: Any,
    seed: Any,
    output_dtype: Any = dtypes.int64,
    name: str | None = None,
) -> Tensor:
    """Return class indices determined by `seed`: old name of tf.random.stateless_categorical."""
    with name_scope(name, "stateless_multinomial", [logits, seed]):
        logits = convert_to_tensor(logits, name="logits")
        return ops.stateless_multinomial_op(logits, num_samples, seed, output_dtype)


@composed
@export("random.stateless_categorical")
def stateless_categorical(
    logits: Any,
    num_samples: Any,
    seed: Any,
    dtype: Any = dtypes.int64,
    name: str | None = None,
) -> Tensor:
    """Return `num_samples` class indices per row of `logits`, determined by `seed`."""
    with name_scope(name, "stateless_categorical", [logits, seed]):
        logits = convert_to_tensor(logits, name="logits")
        return ops.stateless_multinomial_op(logits, num_samples, seed, dtype)
