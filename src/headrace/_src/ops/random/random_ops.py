"""Random numbers: the same as TensorFlow 1.15's for the same seeds.

A stateful op has two seeds as attributes and a Philox generator per session, made from them by the
first step that runs the op. A stateless op is a pure function of its seed input. The kernels are in
`philox` and `distributions`, the public functions in `random_functions`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace._src.core import dtypes
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.devices.room import check_room
from headrace._src.graph.definition import NOT_DIFFERENTIABLE, Effect, Sample
from headrace._src.lowering import anchors
from headrace._src.lowering.rules import Anchor
from headrace._src.ops.base import infer
from headrace._src.ops.base.counted import counted
from headrace._src.ops.base.define import define
from headrace._src.ops.base.samples import r
from headrace._src.ops.math.special_kernels import random_gamma_grad as gamma_grad_kernel
from headrace._src.ops.random import distributions, philox
from headrace._src.ops.random.philox import PhiloxState

# Stateful ops ----------------------------------------------------------------------------------


def _state(ctx: Any, seed: int, seed2: int) -> PhiloxState:
    return ctx.state(PhiloxState, lambda: PhiloxState(seed, seed2))


def _sizes(shape: np.ndarray, dtype: np.dtype, each: int = 1) -> list[int]:
    """Return the sizes in `shape`, after checking that memory can hold `each` numbers
    per element.
    """
    if shape.ndim != 1:
        raise ValueError(f"shape must be a vector of integers, got shape {list(shape.shape)}")
    check_room((*shape, each), dtype, "shape", spelled=True)
    return shape.tolist()


def _shape_infer(c: Any, shape: TensorShape, *others: TensorShape) -> TensorShape:
    infer.with_rank(shape, 1)
    return c.shape_from(0)


def _shape_and_scalars_infer(c: Any, shape: TensorShape, *scalars: TensorShape) -> TensorShape:
    for scalar in scalars:
        infer.with_rank(scalar, 0)
    return _shape_infer(c, shape)


def _shape_then_input_infer(c: Any, shape: TensorShape, parameter: TensorShape) -> TensorShape:
    """The draws of each parameter come first: [*shape, *parameter.shape]."""
    return _shape_infer(c, shape).concatenate(parameter)


def _drawn(op_type: str, draw: Any, distribution: str) -> Any:
    """Define an op that fills an array of a given shape by `draw(state, sizes, dtype)`."""

    def kernel(shape, *, seed, seed2, dtype, ctx):
        return draw(_state(ctx, seed, seed2), _sizes(shape, dtype.numpy), dtype.numpy)

    return define(
        op_type,
        "shape: T -> output: dtype",
        "seed: int = 0; seed2: int = 0; dtype: {floats}; T: {index}",
        infer=_shape_infer,
        kernel=kernel,
        gradient=NOT_DIFFERENTIABLE,
        effect=Effect.RANDOM,
        fresh=True,
        samples=[Sample([2, 3]), Sample([], seed=1, seed2=2), Sample([0, 2])],
        lower=Anchor("random", lambda site: anchors.random(site, distribution)),
    )


@_drawn("RandomUniform", philox.uniform, "uniform")
def random_uniform_op(shape, dtype, seed=0, seed2=0, name=None):
    """Return floats from [0, 1)."""


def _random_uniform_int(shape, minval, maxval, *, seed, seed2, Tout, ctx):
    if np.ndim(minval) or np.ndim(maxval):
        which, found = ("minval", minval) if np.ndim(minval) else ("maxval", maxval)
        raise ValueError(f"{which} must be 0-D, got shape {list(np.shape(found))}")
    state = _state(ctx, seed, seed2)
    sizes = _sizes(shape, Tout.numpy)
    return philox.uniform_int(state, sizes, int(minval), int(maxval), Tout.numpy)


@define(
    "RandomUniformInt",
    "shape: T, minval: Tout, maxval: Tout -> output: Tout",
    "seed: int = 0; seed2: int = 0; Tout: {index}; T: {index}",
    infer=_shape_and_scalars_infer,
    kernel=_random_uniform_int,
    fresh=True,
    effect=Effect.RANDOM,
    samples=[Sample([2, 3], -1, 4), Sample([], 0, 1, seed=1)],
    lower=Anchor("random", anchors.random_integers),
)
def random_uniform_int(shape, minval, maxval, seed=0, seed2=0, name=None):
    """Return integers from [minval, maxval)."""


@_drawn("RandomStandardNormal", philox.standard_normal, "normal")
def random_standard_normal(shape, dtype, seed=0, seed2=0, name=None):
    """Return normal numbers of mean 0 and standard deviation 1."""


@_drawn("TruncatedNormal", philox.truncated_normal, "truncated")
def truncated_normal_op(shape, dtype, seed=0, seed2=0, name=None):
    """Return standard normal numbers; those beyond two standard deviations are redrawn."""


def _parameterized_truncated_normal(
    shape, means, stdevs, minvals, maxvals, *, seed, seed2, dtype, ctx
):
    state = _state(ctx, seed, seed2)
    if dtype is dtypes.bfloat16:  # drawn with float32 arithmetic, then rounded
        means, stdevs, minvals, maxvals = (
            np.asarray(p, np.float32) for p in (means, stdevs, minvals, maxvals)
        )
    numbers = distributions.parameterized_truncated_normal(
        state, _sizes(shape, means.dtype), means, stdevs, minvals, maxvals
    )
    return numbers.astype(dtype.numpy, copy=False)


def _parameterized_infer(c: Any, shape: TensorShape, *parameters: TensorShape) -> TensorShape:
    for parameter in parameters:
        if parameter.sizes is not None and len(parameter.sizes) > 1:
            raise ValueError(f"Shape must be at most rank 1 but is rank {len(parameter.sizes)}")
    return _shape_infer(c, shape)


@define(
    "ParameterizedTruncatedNormal",
    "shape: T, means: dtype, stdevs: dtype, minvals: dtype, maxvals: dtype -> output: dtype",
    "seed: int = 0; seed2: int = 0; dtype: {floats}; T: {index}",
    infer=_parameterized_infer,
    kernel=_parameterized_truncated_normal,
    gradient=NOT_DIFFERENTIABLE,
    effect=Effect.RANDOM,
    samples=[
        Sample([2, 3], 0.0, 1.0, -1.0, 1.0),
        Sample([2, 3], [0.0, 1.0], 1.0, [-1.0, 0.5], 2.0, seed=1),
    ],
)
def parameterized_truncated_normal(
    shape, means, stdevs, minvals, maxvals, seed=0, seed2=0, name=None
):
    """Return normal numbers within bounds; each parameter is one number, or one per row."""


def _random_shuffle(value, *, seed, seed2, ctx):
    return distributions.shuffle(_state(ctx, seed, seed2), np.asarray(value))


@define(
    "RandomShuffle",
    "value: T -> output: T",
    "seed: int = 0; seed2: int = 0; T: type",
    infer=infer.same_as(0),
    kernel=_random_shuffle,
    gradient=NOT_DIFFERENTIABLE,
    effect=Effect.RANDOM,
    samples=[Sample(r(5, 2)), Sample(r(), seed=3), Sample(r(0, 2))],
)
def random_shuffle_op(value, seed=0, seed2=0, name=None):
    """Return `value` with its first dimension permuted."""


def _multinomial(logits, num_samples, *, seed, seed2, output_dtype, ctx):
    state, count = _state(ctx, seed, seed2), _count(num_samples, logits)
    return distributions.multinomial(state, logits, count, output_dtype.numpy)


def _count(num_samples: np.ndarray, logits: np.ndarray) -> int:
    if np.ndim(num_samples):
        raise ValueError(f"num_samples should be a scalar, got shape {list(num_samples.shape)}")
    check_room((*logits.shape[:1], num_samples), np.float64, "num_samples")
    return int(num_samples)


def _multinomial_infer(c: Any, logits: TensorShape, count: TensorShape, *seed: TensorShape) -> Any:
    infer.with_rank(count, 0)
    if seed:
        _check_seed_shape(seed[0])
    number = c.value(1)
    if number is not None and number < 0:
        raise ValueError(f"Dimension size, given by scalar input 1, must be non-negative: {number}")
    rows = infer.with_rank(logits, 2).as_list()[0]
    return rows, None if number is None else int(number)


@define(
    "Multinomial",
    "logits: T, num_samples: int32 -> output: output_dtype",
    "seed: int = 0; seed2: int = 0; T: {reals}; output_dtype: {index} = int64",
    infer=_multinomial_infer,
    kernel=_multinomial,
    effect=Effect.RANDOM,
    samples=[Sample(r(2, 3), 4), Sample(r(2, 3), 0, seed=1)],
)
def multinomial_op(logits, num_samples, seed=0, seed2=0, output_dtype=None, name=None):
    """Return class indices; each row's probabilities are given by its logits."""


def _random_gamma(shape, alpha, *, seed, seed2, ctx):
    sizes = _sizes(shape, alpha.dtype, np.size(alpha))
    return distributions.random_gamma(_state(ctx, seed, seed2), sizes, np.asarray(alpha))


@counted(20)
def _random_gamma_gradient(b, op, grad):
    """The sample as a function of alpha; the gradient is summed over the draws of each alpha."""
    shape, alpha = op.inputs
    draws = b.size(shape)
    leading = b.ones_like(shape)
    by_draw = b.reshape(alpha, b.concat([leading, b.shape(alpha, out_type=shape.dtype)], 0))
    slope = b.random_gamma_grad(by_draw, op.outputs[0])
    return None, b.reduce_sum(b.multiply(grad, slope), axis=b.range(draws))


@define(
    "RandomGamma",
    "shape: S, alpha: T -> output: T",
    "seed: int = 0; seed2: int = 0; S: {index}; T: {float16|float32|float64}",
    infer=_shape_then_input_infer,
    kernel=_random_gamma,
    gradient=_random_gamma_gradient,
    effect=Effect.RANDOM,
    samples=[Sample([2], r(3, low=0.5, high=4)), Sample([], r(low=1, high=2), seed=1)],
)
def random_gamma_op(shape, alpha, seed=0, seed2=0, name=None):
    """Return Gamma(alpha, 1) numbers, `shape` draws for each alpha."""


@define(
    "RandomGammaGrad",
    "alpha: T, sample: T -> output: T",
    "T: {float32|float64}",
    infer=infer.broadcasting,
    kernel=gamma_grad_kernel,
    gradient=NOT_DIFFERENTIABLE,
    samples=[Sample(r(3, low=0.5, high=4), r(2, 3, low=0.5, high=4)), Sample(r(0), r(0))],
)
def random_gamma_grad(alpha, sample, name=None):
    """Return d sample / d alpha of Gamma(alpha, 1) samples."""


def _random_poisson(shape, rate, *, seed, seed2, dtype, ctx):
    state = _state(ctx, seed, seed2)
    sizes = _sizes(shape, dtype.numpy, np.size(rate))
    return distributions.random_poisson_v2(state, sizes, np.asarray(rate), dtype.numpy)


@define(
    "RandomPoisson",
    "shape: S, rate: dtype -> output: dtype",
    "seed: int = 0; seed2: int = 0; S: {index}; dtype: {float16|float32|float64}",
    infer=_shape_then_input_infer,
    kernel=_random_poisson,
    gradient=NOT_DIFFERENTIABLE,
    effect=Effect.RANDOM,
    samples=[Sample([2], r(3, low=0.5, high=20))],
)
def random_poisson_op(shape, rate, seed=0, seed2=0, name=None):
    """Return Poisson counts in the dtype of `rate`."""


@define(
    "RandomPoissonV2",
    "shape: S, rate: R -> output: dtype",
    "seed: int = 0; seed2: int = 0; S: {index}; "
    "R: {float16|float32|float64|int32|int64} = float64; "
    "dtype: {float16|float32|float64|int32|int64} = int64",
    infer=_shape_then_input_infer,
    kernel=_random_poisson,
    gradient=NOT_DIFFERENTIABLE,
    effect=Effect.RANDOM,
    samples=[Sample([2], r(3, low=1, high=20)), Sample([], r(low=1, high=3), seed=2)],
)
def random_poisson_v2(shape, rate, seed=0, seed2=0, dtype=None, name=None):
    """Return Poisson counts, `shape` draws for each rate."""


# Stateless ops ---------------------------------------------------------------------------------


def _check_seed_shape(seed: TensorShape) -> None:
    size = infer.with_rank(seed, 1).as_list()[0]
    if size not in (None, 2):
        raise ValueError(f"Dimension must be 2 but is {size}")


def _stateless_infer(c: Any, shape: TensorShape, seed: TensorShape, *bounds: TensorShape) -> Any:
    _check_seed_shape(seed)
    return _shape_and_scalars_infer(c, shape, *bounds)


def _decided(op_type: str, draw: Any, distribution: str) -> Any:
    """Define an op that fills an array of a given shape by `draw(seeds, sizes, dtype)`."""
    return define(
        op_type,
        "shape: T, seed: Tseed -> output: dtype",
        "dtype: {floats} = float32; T: {index} = int32; Tseed: {index} = int64",
        infer=_stateless_infer,
        kernel=lambda shape, seed, *, dtype: draw(seed, _sizes(shape, dtype.numpy), dtype.numpy),
        gradient=NOT_DIFFERENTIABLE,
        samples=[Sample([2, 3], [1, 2]), Sample([], [3, 4]), Sample([0, 2], [5, 6])],
        lower=Anchor("random", lambda site: anchors.random(site, distribution)),
    )


@_decided("StatelessRandomUniform", philox.stateless_uniform, "uniform")
def stateless_random_uniform_op(shape, seed, dtype=None, name=None):
    """Return floats from [0, 1), determined by two seeds."""


def _stateless_uniform_int(shape, seed, minval, maxval, *, dtype):
    if np.ndim(minval) or np.ndim(maxval):
        raise ValueError("minval and maxval must be scalars")
    low, high = int(minval), int(maxval)
    return philox.stateless_uniform_int(seed, _sizes(shape, dtype.numpy), low, high, dtype.numpy)


@define(
    "StatelessRandomUniformInt",
    "shape: T, seed: Tseed, minval: dtype, maxval: dtype -> output: dtype",
    "dtype: {index}; T: {index}; Tseed: {index} = int64",
    infer=_stateless_infer,
    kernel=_stateless_uniform_int,
    samples=[Sample([2, 3], [1, 2], -3, 9)],
    lower=Anchor("random", anchors.random_integers),
)
def stateless_random_uniform_int(shape, seed, minval, maxval, name=None):
    """Return integers from [minval, maxval), determined by two seeds."""


@_decided("StatelessRandomNormal", philox.stateless_normal, "normal")
def stateless_random_normal_op(shape, seed, dtype=None, name=None):
    """Return standard normal numbers, determined by two seeds."""


@_decided("StatelessTruncatedNormal", philox.stateless_truncated_normal, "truncated")
def stateless_truncated_normal_op(shape, seed, dtype=None, name=None):
    """Return standard normal numbers within two standard deviations, determined by two seeds."""


def _stateless_multinomial(logits, num_samples, seed, *, output_dtype):
    count = _count(num_samples, logits)
    return distributions.stateless_multinomial(seed, logits, count, output_dtype.numpy)


@define(
    "StatelessMultinomial",
    "logits: T, num_samples: int32, seed: Tseed -> output: output_dtype",
    "T: {reals}; Tseed: {index} = int64; output_dtype: {index} = int64",
    infer=_multinomial_infer,
    kernel=_stateless_multinomial,
    samples=[Sample(r(2, 3), 4, [1, 2]), Sample(r(2, 3), 0, [1, 2])],
)
def stateless_multinomial_op(logits, num_samples, seed, output_dtype=None, name=None):
    """Return class indices, determined by logits and two seeds."""
