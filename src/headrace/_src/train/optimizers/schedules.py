"""Learning-rate schedules. In: the global step. Out: a scalar tensor, the rate at that step.

Each is a few operations on the step as a float; arguments that aren't tensors become constants of
the rate's dtype.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from headrace._src.core.dtypes import int32, int64
from headrace._src.core.export import export
from headrace._src.graph.operation import Tensor
from headrace._src.ops.base.define import b
from headrace._src.ops.base.to_tensor import convert_to_tensor, name_scope

__all__ = [
    "cosine_decay",
    "cosine_decay_restarts",
    "exponential_decay",
    "inverse_time_decay",
    "linear_cosine_decay",
    "linear_warmup",
    "natural_exp_decay",
    "noisy_linear_cosine_decay",
    "piecewise_constant",
    "polynomial_decay",
]


def _rate(learning_rate: Any) -> Tensor:
    return convert_to_tensor(learning_rate, name="initial_learning_rate")


def _periods(step: Any, steps: Tensor, staircase: bool) -> Tensor:
    """Return the global step divided by `steps`; with `staircase`, rounded down."""
    passed = b.cast(_present(step), steps.dtype) / steps
    return b.floor(passed) if staircase else passed


def _present(step: Any) -> Any:
    if step is None:
        raise ValueError("None values not supported.")
    return step


@export("train.exponential_decay")
def exponential_decay(
    learning_rate: Any,
    global_step: Any,
    decay_steps: Any,
    decay_rate: Any,
    staircase: bool = False,
    name: str | None = None,
) -> Tensor:
    """Return learning_rate * decay_rate ** (global_step / decay_steps); with `staircase`, the
    exponent is rounded down.
    """
    given = [learning_rate, global_step, decay_steps, decay_rate]
    with name_scope(name, "ExponentialDecay", given) as scope:
        rate = _rate(learning_rate)
        steps = b.cast(decay_steps, rate.dtype)
        factor = b.cast(decay_rate, rate.dtype)
        power = b.pow(factor, _periods(global_step, steps, staircase))
        return b.multiply(rate, power, name=scope)


@export("train.natural_exp_decay")
def natural_exp_decay(
    learning_rate: Any,
    global_step: Any,
    decay_steps: Any,
    decay_rate: Any,
    staircase: bool = False,
    name: str | None = None,
) -> Tensor:
    """Return learning_rate * exp(-decay_rate * global_step / decay_steps)."""
    factor = b.exp(b.negative(decay_rate))
    return exponential_decay(learning_rate, global_step, decay_steps, factor, staircase, name)


@export("train.inverse_time_decay")
def inverse_time_decay(
    learning_rate: Any,
    global_step: Any,
    decay_steps: Any,
    decay_rate: Any,
    staircase: bool = False,
    name: str | None = None,
) -> Tensor:
    """Return learning_rate / (1 + decay_rate * global_step / decay_steps)."""
    with name_scope(name, "InverseTimeDecay", [learning_rate, global_step, decay_rate]) as scope:
        rate = _rate(learning_rate)
        steps = b.cast(decay_steps, rate.dtype)
        factor = b.cast(decay_rate, rate.dtype)
        passed = _periods(global_step, steps, staircase)
        one = b.cast(b.constant(1), rate.dtype)
        divisor = b.add(one, b.multiply(factor, passed))
        return b.divide(rate, divisor, name=scope)


@export("train.polynomial_decay")
def polynomial_decay(
    learning_rate: Any,
    global_step: Any,
    decay_steps: Any,
    end_learning_rate: Any = 0.0001,
    power: Any = 1.0,
    cycle: bool = False,
    name: str | None = None,
) -> Tensor:
    """Decay from learning_rate to end_learning_rate in `decay_steps` steps, as (1 - fraction) **
    power.

    Then stay there, or, with `cycle`, stretch the decay to the next multiple of `decay_steps`.
    """
    given = [learning_rate, global_step, decay_steps, end_learning_rate, power]
    with name_scope(name, "PolynomialDecay", given) as scope:
        rate = _rate(learning_rate)
        end = b.cast(end_learning_rate, rate.dtype)
        exponent = b.cast(power, rate.dtype)
        step = b.cast(_present(global_step), rate.dtype)
        steps = b.cast(decay_steps, rate.dtype)
        if cycle:
            times = b.cond(
                b.equal(step, 0), lambda: b.constant(1.0), lambda: b.ceil(step / decay_steps)
            )
            steps = b.multiply(steps, times)
        else:
            step = b.minimum(step, decay_steps)
        part = step / steps
        return b.add(b.multiply(rate - end, b.pow(1 - part, exponent)), end, name=scope)


@export("train.piecewise_constant", "train.piecewise_constant_decay")
def piecewise_constant(
    x: Any, boundaries: Sequence[Any], values: Sequence[Any], name: str | None = None
) -> Tensor:
    """Return values[0] if x <= boundaries[0], else values[1] if x <= boundaries[1], and so on; the
    last value beyond all boundaries.
    """
    if len(boundaries) != len(values) - 1:
        raise ValueError("The length of boundaries should be 1 less than the length of values")
    x = convert_to_tensor(_present(x))
    ends = [convert_to_tensor(e) for e in boundaries]
    pieces = [convert_to_tensor(v) for v in values]
    ends = [_comparable(e, x) for e in ends]
    for piece in pieces[1:]:
        if piece.dtype.base_dtype is not pieces[0].dtype.base_dtype:
            raise ValueError(
                f"Values must have elements all with the same dtype ({pieces[0].dtype} vs "
                f"{piece.dtype})."
            )
    if not ends:
        return pieces[0]
    with name_scope(name, "PiecewiseConstant", [x, *ends, *pieces]):
        cases = [(x <= ends[0], lambda: pieces[0]), (x > ends[-1], lambda: pieces[-1])]
        for low, high, piece in zip(ends[:-1], ends[1:], pieces[1:-1], strict=True):
            cases.append(((x > low) & (x <= high), lambda piece=piece: piece))
        return b.case(cases, lambda: pieces[0], exclusive=True)


def _comparable(boundary: Tensor, x: Tensor) -> Tensor:
    """Convert a boundary so that it can be compared with x."""
    found, wanted = boundary.dtype.base_dtype, x.dtype.base_dtype
    if found is int32 and wanted is int64:
        return b.cast(boundary, int64)
    if found is not wanted:
        raise ValueError(f"Boundaries ({found}) must have the same dtype as x ({wanted}).")
    return boundary


# -- Cosines ---------------------------------------------------------------------------------------


@export("train.cosine_decay")
def cosine_decay(
    learning_rate: Any,
    global_step: Any,
    decay_steps: Any,
    alpha: float = 0.0,
    name: str | None = None,
) -> Tensor:
    """Decay from learning_rate to alpha * learning_rate in `decay_steps`, along half a cosine."""
    with name_scope(name, "CosineDecay", [learning_rate, global_step]):
        rate = _rate(learning_rate)
        steps = b.cast(decay_steps, rate.dtype)
        step = b.minimum(b.cast(_present(global_step), rate.dtype), steps)
        part = step / steps
        cosine = 0.5 * (1.0 + b.cos(b.constant(math.pi, dtype=rate.dtype) * part))
        return b.multiply(rate, (1 - alpha) * cosine + alpha)


@export("train.cosine_decay_restarts")
def cosine_decay_restarts(
    learning_rate: Any,
    global_step: Any,
    first_decay_steps: Any,
    t_mul: Any = 2.0,
    m_mul: Any = 1.0,
    alpha: Any = 0.0,
    name: str | None = None,
) -> Tensor:
    """Decay along half a cosine from learning_rate to alpha * learning_rate, repeatedly: each
    period takes t_mul times as many steps as the previous one and starts m_mul times as high.
    """
    with name_scope(name, "SGDRDecay", [learning_rate, global_step]) as scope:
        rate = _rate(learning_rate)
        steps, floor, growth, shrinkage = (
            b.cast(x, rate.dtype) for x in (first_decay_steps, alpha, t_mul, m_mul)
        )
        passed = b.cast(_present(global_step), rate.dtype) / steps

        def equal_periods() -> tuple[Tensor, Tensor]:
            restarts = b.floor(passed)
            return restarts, passed - restarts

        def growing_periods() -> tuple[Tensor, Tensor]:
            restarts = b.floor(b.log(1.0 - passed * (1.0 - growth)) / b.log(growth))
            before = (1.0 - growth**restarts) / (1.0 - growth)
            return restarts, (passed - before) / growth**restarts

        restarts, part = b.cond(b.equal(growth, 1.0), equal_periods, growing_periods)
        cosine = (
            0.5 * shrinkage**restarts * (1.0 + b.cos(b.constant(math.pi, dtype=rate.dtype) * part))
        )
        return b.multiply(rate, (1 - floor) * cosine + floor, name=scope)


@export("train.linear_cosine_decay")
def linear_cosine_decay(
    learning_rate: Any,
    global_step: Any,
    decay_steps: Any,
    num_periods: Any = 0.5,
    alpha: Any = 0.0,
    beta: Any = 0.001,
    name: str | None = None,
) -> Tensor:
    """Return learning_rate * ((alpha + linear) * cosine + beta): a line from 1 to 0, times
    `num_periods` of a cosine from 1 to 0.
    """
    with name_scope(name, "LinearCosineDecay", [learning_rate, global_step]) as scope:
        rate = _rate(learning_rate)
        steps, periods, alpha, beta = (
            b.cast(x, rate.dtype) for x in (decay_steps, num_periods, alpha, beta)
        )
        step = b.minimum(b.cast(_present(global_step), rate.dtype), steps)
        linear = (steps - step) / steps
        return _waves(rate, linear, step, steps, periods, alpha, beta, scope)


@export("train.noisy_linear_cosine_decay")
def noisy_linear_cosine_decay(
    learning_rate: Any,
    global_step: Any,
    decay_steps: Any,
    initial_variance: Any = 1.0,
    variance_decay: Any = 0.55,
    num_periods: Any = 0.5,
    alpha: Any = 0.0,
    beta: Any = 0.001,
    name: str | None = None,
) -> Tensor:
    """As linear_cosine_decay, with normal noise of variance initial_variance / (1 + global_step) **
    variance_decay added to the line.
    """
    with name_scope(name, "NoisyLinearCosineDecay", [learning_rate, global_step]) as scope:
        rate = _rate(learning_rate)
        steps, variance, fading, periods, alpha, beta = (
            b.cast(x, rate.dtype)
            for x in (decay_steps, initial_variance, variance_decay, num_periods, alpha, beta)
        )
        step = b.minimum(b.cast(_present(global_step), rate.dtype), steps)
        linear = (steps - step) / steps
        deviation = b.sqrt(variance / b.pow(1.0 + step, fading))
        linear = linear + b.random_normal(linear.shape, stddev=deviation)
        return _waves(rate, linear, step, steps, periods, alpha, beta, scope)


def _waves(
    rate: Tensor,
    linear: Tensor,
    step: Tensor,
    steps: Tensor,
    periods: Tensor,
    alpha: Tensor,
    beta: Tensor,
    scope: str,
) -> Tensor:
    part = step / steps
    turns = 2.0 * periods * part
    cosine = 0.5 * (1.0 + b.cos(b.constant(math.pi, dtype=rate.dtype) * turns))
    return b.multiply(rate, (alpha + linear) * cosine + beta, name=scope)


# -- Warm-up ---------------------------------------------------------------------------------------


@export("train.linear_warmup")
def linear_warmup(
    learning_rate: float | Tensor | Callable[[Tensor], Any],
    global_step: Any,
    warmup_steps: Any,
    start: Any = 0.0,
    name: str | None = None,
) -> Tensor:
    """Increase the rate linearly from start * learning_rate to learning_rate in `warmup_steps`.

    learning_rate    a number; a tensor, such as a schedule's; or a function of the steps since the
                     end of the warm-up (0 during it) that returns either
    global_step      a variable, a tensor or a number

    Headrace's own: TensorFlow 1.15 has none. A schedule after a warm-up:

        rate = tf.train.linear_warmup(
            lambda step: tf.train.cosine_decay(0.1, step, 9000), global_step, 1000)
    """
    if isinstance(warmup_steps, int | float) and warmup_steps < 0:
        raise ValueError(f"warmup_steps must not be negative: {warmup_steps}")
    with name_scope(name, "LinearWarmup", [global_step, warmup_steps, start]) as scope:
        step = convert_to_tensor(_present(global_step))
        end = b.cast(warmup_steps, step.dtype.base_dtype)
        if callable(learning_rate):
            learning_rate = learning_rate(b.maximum(step - end, b.zeros_like(step)))
        rate = convert_to_tensor(learning_rate, name="learning_rate")
        dtype = rate.dtype.base_dtype
        start = b.cast(start, dtype)
        passed = b.div_no_nan(b.cast(step, dtype), b.cast(end, dtype))
        share = b.where(b.less(step, end), start + (1 - start) * passed, b.ones_like(passed))
        return b.multiply(rate, share, name=scope)
