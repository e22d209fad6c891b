"""Batch normalization (Ioffe and Szegedy, 2015), with renormalization (Ioffe, 2017), as a layer and
a function.

In training, inputs are normalised by the moments of their batch, and operations that move the
moving averages towards them join the collection UPDATE_OPS: the training step must run these.
Otherwise, inputs are normalised by the moving averages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from headrace._src.core.dtypes import as_dtype
from headrace._src.core.export import export
from headrace._src.core.tensor_shape import as_shape
from headrace._src.graph.operation import Tensor
from headrace._src.graph.scoped import colocate_with, control_dependencies
from headrace._src.layers.initializer_names import get_initializer
from headrace._src.layers.input_spec import InputSpec
from headrace._src.layers.layer import Layer
from headrace._src.layers.layer_arguments import ONES, ZEROS
from headrace._src.ops.base.define import b
from headrace._src.ops.base.to_tensor import convert_to_tensor, name_scope
from headrace._src.ops.control.cond import smart_cond, smart_constant_value

__all__ = ["BatchNormalization", "batch_normalization"]

_CLIPPING = ("rmax", "rmin", "dmax")


@export("layers.BatchNormalization")
class BatchNormalization(Layer):
    """gamma (x - mean) / sqrt(variance + epsilon) + beta, per index of `axis`.

    axis: one or more axes with separate moments per index, such as channels. momentum: of the
    moving averages. fused: whether to use the fused operation, for images with one axis of
    channels; None: where possible. renorm: correct the moments of a batch towards moving ones,
    within renorm_clipping ('rmin', 'rmax', 'dmax'). adjustment: a function of the input's shape
    that returns a scale and an offset for training. virtual_batch_size: how many examples of a
    batch share their moments; None: all. The moving averages follow the moments of these parts.
    """

    def __init__(
        self,
        axis: int | Sequence[int] = -1,
        momentum: float = 0.99,
        epsilon: float = 1e-3,
        center: bool = True,
        scale: bool = True,
        beta_initializer: Any = ZEROS,
        gamma_initializer: Any = ONES,
        moving_mean_initializer: Any = ZEROS,
        moving_variance_initializer: Any = ONES,
        beta_regularizer: Any = None,
        gamma_regularizer: Any = None,
        beta_constraint: Any = None,
        gamma_constraint: Any = None,
        renorm: bool = False,
        renorm_clipping: dict[str, Any] | None = None,
        renorm_momentum: float = 0.99,
        fused: bool | None = None,
        trainable: bool = True,
        virtual_batch_size: int | None = None,
        adjustment: Callable[[Any], tuple[Any, Any]] | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(trainable, name, **kwargs)
        if virtual_batch_size is not None and adjustment is not None:
            raise ValueError("When using virtual_batch_size, adjustment cannot be specified")
        if not isinstance(axis, int | list | tuple):
            raise TypeError(f"axis must be int or list, type given: {type(axis)}")
        clipping = renorm_clipping or {}
        if any(key not in _CLIPPING for key in clipping):
            raise ValueError(
                f"renorm_clipping {renorm_clipping} contains keys not in {list(_CLIPPING)}"
            )
        self.axis: Any = axis if isinstance(axis, int) else list(axis)  # once built, a list
        self.momentum = momentum
        self.epsilon = epsilon
        self.center = center
        self.scale = scale
        self.beta_initializer = beta_initializer
        self.gamma_initializer = gamma_initializer
        self.moving_mean_initializer = moving_mean_initializer
        self.moving_variance_initializer = moving_variance_initializer
        self.beta_regularizer = beta_regularizer
        self.gamma_regularizer = gamma_regularizer
        self.beta_constraint = beta_constraint
        self.gamma_constraint = gamma_constraint
        self.renorm = renorm
        self.renorm_clipping = clipping
        self.renorm_momentum = renorm_momentum
        self.fused = fused
        self.virtual_batch_size = virtual_batch_size
        self.adjustment = adjustment

    # -- Variables ---------------------------------------------------------------------------------

    def build(self, input_shape: Any) -> None:
        """Make `gamma`, `beta`, the moving averages and, for renorm, those of renormalization."""
        input_shape = as_shape(input_shape)
        if input_shape.ndims is None:
            raise ValueError(f"Input has undefined rank: {input_shape}")
        rank = input_shape.ndims
        self.axis = _axes(self.axis, rank)
        sizes = {axis: input_shape.as_list()[axis] for axis in self.axis}
        if None in sizes.values():
            raise ValueError(f"Input has undefined `axis` dimension. Input shape: {input_shape}")
        self.input_spec = InputSpec(ndim=rank, axes=sizes)
        self.fused = (
            self.fused in (None, True)
            and rank == 4
            and self.axis in ([1], [3])
            and not self.renorm
            and self.adjustment is None
            and self.virtual_batch_size is None
        )
        # Several axes keep their positions, so that the parameters can be broadcast.
        one = len(self.axis) == 1 and self.virtual_batch_size is None
        shape = [sizes[self.axis[0]]] if one else [sizes.get(i, 1) for i in range(rank)]
        if self.virtual_batch_size is not None:
            shape.insert(1, 1)  # for the parts, for which `call` adds an axis
            self.axis = [axis + 1 for axis in self.axis]
        dtype = as_dtype(self.dtype or "float32")
        self._parameter_dtype = as_dtype("float32") if dtype.size < 4 else dtype
        self.gamma = self._parameter("gamma", shape) if self.scale else None
        if self.fused and self.gamma is None:
            self._ones = b.constant(1.0, self._parameter_dtype, shape)
        self.beta = self._parameter("beta", shape) if self.center else None
        if self.fused and self.beta is None:
            self._zeros = b.constant(0.0, self._parameter_dtype, shape)
        self.moving_mean = self._average("moving_mean", shape, self.moving_mean_initializer)
        self.moving_variance = self._average(
            "moving_variance", shape, self.moving_variance_initializer
        )
        if self.renorm:
            self._build_renorm(shape)
        self.built = True

    def _parameter(self, name: str, shape: list[int]) -> Any:
        return self.add_weight(
            name,
            shape,
            dtype=self._parameter_dtype,
            initializer=getattr(self, f"{name}_initializer"),
            regularizer=getattr(self, f"{name}_regularizer"),
            constraint=getattr(self, f"{name}_constraint"),
        )

    def _average(self, name: str, shape: list[int], initializer: Any) -> Any:
        """Make a moving average, which is never partitioned, even if the scope has a
        partitioner.
        """
        add = partial(
            self.add_weight, name, shape, self._parameter_dtype, initializer, trainable=False
        )
        scope = self._scope
        if scope is None:  # in Keras's style
            return add()
        partitioner = scope.partitioner
        scope.set_partitioner(None)
        try:
            return add()
        finally:
            scope.set_partitioner(partitioner)

    def _build_renorm(self, shape: list[int]) -> None:
        start = get_initializer(self.moving_variance_initializer)

        def deviation(shape: Any, dtype: Any = None, partition_info: Any = None) -> Any:
            given = start() if isinstance(start, type) else start
            return b.sqrt(given(shape, dtype=dtype, partition_info=partition_info))

        with colocate_with(self.moving_variance):
            self.moving_stddev = self._average("moving_stddev", shape, deviation)
        with colocate_with(self.moving_mean):
            self.renorm_mean = self._average("renorm_mean", shape, self.moving_mean_initializer)
        with colocate_with(self.moving_stddev):
            self.renorm_stddev = self._average("renorm_stddev", shape, deviation)

    # -- Calling -----------------------------------------------------------------------------------

    def call(self, inputs: Any, training: Any = False) -> Any:
        """Return inputs normalised, by the batch's moments if `training` (a bool or a tensor) is
        true.
        """
        if self.fused:
            return self._fused(inputs, training)
        if self.virtual_batch_size is None:
            return self._normalised(inputs, training)
        sizes = inputs.shape.as_list()[1:]
        parts = b.reshape(inputs, [self.virtual_batch_size, -1, *sizes])
        outputs = b.reshape(self._normalised(parts, training), [-1, *sizes])
        outputs.set_shape(inputs.shape)
        return outputs

    def _normalised(self, inputs: Any, training: Any) -> Any:
        known = smart_constant_value(training)
        gamma, beta = self._aligned(self.gamma, inputs), self._aligned(self.beta, inputs)
        if known is False:
            mean, variance = self.moving_mean, self.moving_variance
        else:
            gamma, beta = self._adjusted(inputs, training, gamma, beta)
            mean, variance, gamma, beta = self._trained(inputs, training, gamma, beta)
        mean, variance, beta, gamma = (
            None if t is None else b.cast(t, inputs.dtype) for t in (mean, variance, beta, gamma)
        )
        mean, variance = self._aligned(mean, inputs), self._aligned(variance, inputs)
        outputs = b.batch_normalization(inputs, mean, variance, beta, gamma, self.epsilon)
        outputs.set_shape(inputs.shape)
        return outputs

    def _aligned(self, value: Any, inputs: Any) -> Any:
        """Reshape a parameter so that it broadcasts, unless its axis is the last one."""
        rank = inputs.shape.ndims
        if value is None or len(value.shape.as_list()) == rank or self.axis == [rank - 1]:
            return value
        sizes = self.input_spec.axes
        return b.reshape(value, [sizes.get(i, 1) for i in range(rank)])

    def _adjusted(self, inputs: Any, training: Any, gamma: Any, beta: Any) -> tuple[Any, Any]:
        if self.adjustment is None:
            return gamma, beta
        scale, offset = self.adjustment(b.shape(inputs))
        scale = smart_cond(training, lambda: scale, lambda: b.ones_like(scale))
        offset = smart_cond(training, lambda: offset, lambda: b.zeros_like(offset))
        return _composed(scale, offset, gamma, beta)

    def _trained(self, inputs: Any, training: Any, gamma: Any, beta: Any) -> tuple[Any, ...]:
        """Return moments and parameters according to `training`, and add the updates."""
        reduced = [i for i in range(inputs.shape.ndims) if i not in self.axis]
        parted = self.virtual_batch_size is not None
        if parted:
            reduced.remove(1)
        mean, variance = b.moments(inputs, reduced, keep_dims=len(self.axis) > 1 or parted)
        if mean.dtype != self._parameter_dtype:
            mean = b.cast(mean, self._parameter_dtype)
            variance = b.cast(variance, self._parameter_dtype)
        mean = _either(training, mean, self.moving_mean)
        variance = _either(training, variance, self.moving_variance)
        new_mean, new_variance = mean, variance
        if parted:
            new_mean = b.reduce_mean(mean, 1, keepdims=True)
            new_variance = b.reduce_mean(variance, 1, keepdims=True)
        if self.renorm:
            r, d, new_mean, new_variance = self._renormed(new_mean, new_variance, training)
            r, d = self._aligned(r, inputs), self._aligned(d, inputs)
            gamma, beta = _composed(r, d, gamma, beta)
        self.add_update(self._mean_update(training, new_mean))
        self.add_update(self._variance_update(training, new_variance))
        return mean, variance, gamma, beta

    def _mean_update(self, training: Any, value: Any) -> Any:
        average, momentum = self.moving_mean, self.momentum
        return smart_cond(training, lambda: _moved(average, value, momentum), lambda: average)

    def _variance_update(self, training: Any, value: Any) -> Any:
        average, momentum = self.moving_variance, self.momentum

        def renormed() -> Any:
            deviation = _moved(self.moving_stddev, b.sqrt(value + self.epsilon), momentum)
            # epsilon was added to the variance before its root was taken.
            variance = b.relu(deviation * deviation - self.epsilon)
            with name_scope("AssignNewValue") as scope, colocate_with(average):
                return b.assign(average, variance, name=scope)

        def moved() -> Any:
            return renormed() if self.renorm else _moved(average, value, momentum)

        return smart_cond(training, moved, lambda: average)

    def _renormed(self, mean: Any, variance: Any, training: Any) -> tuple[Any, Any, Any, Any]:
        """Return the correction (r, d) of a batch's moments, and the moments to average."""
        deviation = b.sqrt(variance + self.epsilon)
        floor = b.sqrt(b.constant(self.epsilon, deviation.dtype, name="Sqrt_1/x"))
        moving = b.maximum(self.renorm_stddev, floor)
        r = deviation / moving
        d = (mean - self.renorm_mean) / moving
        with control_dependencies([r, d]):  # before the averages that they depend on change
            mean, deviation = b.identity(mean), b.identity(deviation)
        r, d = self._clipped(r, d)
        r = smart_cond(training, lambda: r, lambda: b.ones_like(r))
        d = smart_cond(training, lambda: d, lambda: b.zeros_like(d))
        updates = [
            self._renorm_update(average, value, training)
            for average, value in ((self.renorm_mean, mean), (self.renorm_stddev, deviation))
        ]
        with control_dependencies(updates):
            mean, variance = b.identity(mean), b.identity(variance)
        return (
            b.stop_gradient(r, name="renorm_r"),
            b.stop_gradient(d, name="renorm_d"),
            mean,
            variance,
        )

    def _clipped(self, r: Any, d: Any) -> tuple[Any, Any]:
        rmin, rmax, dmax = (self.renorm_clipping.get(key) for key in ("rmin", "rmax", "dmax"))
        if rmin is not None:
            r = b.maximum(r, rmin)
        if rmax is not None:
            r = b.minimum(r, rmax)
        if dmax is not None:
            d = b.minimum(b.maximum(d, -dmax), dmax)
        return r, d

    def _renorm_update(self, average: Any, value: Any, training: Any) -> Any:
        value = b.identity(value)
        momentum = self.renorm_momentum
        return smart_cond(
            training,
            lambda: _moved(average, value, momentum),
            lambda: b.identity(average),
        )

    def _fused(self, inputs: Any, training: Any) -> Any:
        gamma = self._ones if self.gamma is None else self.gamma
        beta = self._zeros if self.beta is None else self.beta
        order = "NHWC" if self.axis == [3] else "NCHW"
        options = {"epsilon": self.epsilon, "data_format": order}

        def by_batch() -> Any:
            return b.fused_batch_norm(inputs, gamma, beta, **options)

        def by_averages() -> Any:
            averages = {"mean": self.moving_mean, "variance": self.moving_variance}
            return b.fused_batch_norm(inputs, gamma, beta, **averages, is_training=False, **options)

        outputs, mean, variance = smart_cond(training, by_batch, by_averages)
        # A momentum of 1 leaves an average unchanged.
        momentum = smart_cond(
            smart_constant_value(training) is not None or training,
            lambda: convert_to_tensor(self.momentum),
            lambda: convert_to_tensor(1.0),
        )
        if smart_constant_value(training) is not False:
            self.add_update(_moved(self.moving_mean, mean, momentum))
            self.add_update(_moved(self.moving_variance, variance, momentum))
        return outputs

    # -- Configuration -----------------------------------------------------------------------------

    def compute_output_shape(self, input_shape: Any) -> Any:
        """Return the input's shape."""
        return as_shape(input_shape)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments; initializers and similar objects unchanged."""
        return super().get_config() | self._arguments(
            "axis",
            "momentum",
            "epsilon",
            "center",
            "scale",
            "beta_initializer",
            "gamma_initializer",
            "moving_mean_initializer",
            "moving_variance_initializer",
            "beta_regularizer",
            "gamma_regularizer",
            "beta_constraint",
            "gamma_constraint",
            "renorm",
            "renorm_clipping",
            "renorm_momentum",
            "fused",
            "virtual_batch_size",
            "adjustment",
        )


def _axes(axis: int | list[int], rank: int) -> list[int]:
    """Return axes as non-negative numbers."""
    axes = [axis] if isinstance(axis, int) else axis
    found = [a + rank if a < 0 else a for a in axes]
    for given, a in zip(axes, found, strict=True):
        if not 0 <= a < rank:
            raise ValueError(f"Invalid axis: {given}")
    if len(set(found)) != len(found):
        raise ValueError(f"Duplicate axis: {axis}")
    return found


def _either(training: Any, batch: Any, average: Any) -> Any:
    return smart_cond(training, lambda: batch, lambda: convert_to_tensor(average))


def _composed(scale: Any, offset: Any, gamma: Any, beta: Any) -> tuple[Any, Any]:
    """Merge scale and offset, followed by gamma and beta, into one scale and one offset."""
    if gamma is not None:
        scale, offset = scale * gamma, offset * gamma
    if beta is not None:
        offset = offset + beta
    return scale, offset


def _moved(average: Any, value: Any, momentum: Any) -> Any:
    """Move an average towards a value by 1 - momentum."""
    values, dtype = [average, value, momentum], average.dtype.base_dtype
    with name_scope(None, "AssignMovingAvg", values) as scope, colocate_with(average):
        decay = convert_to_tensor(1.0 - momentum, name="decay")
        if decay.dtype != dtype:
            decay = b.cast(decay, dtype)
        delta = (average - b.cast(value, dtype)) * decay
        return b.assign_sub(average, delta, name=scope)


@export("layers.batch_normalization")
def batch_normalization(
    inputs: Any,
    axis: int | Sequence[int] = -1,
    momentum: float = 0.99,
    epsilon: float = 1e-3,
    center: bool = True,
    scale: bool = True,
    beta_initializer: Any = ZEROS,
    gamma_initializer: Any = ONES,
    moving_mean_initializer: Any = ZEROS,
    moving_variance_initializer: Any = ONES,
    beta_regularizer: Any = None,
    gamma_regularizer: Any = None,
    beta_constraint: Any = None,
    gamma_constraint: Any = None,
    training: Any = False,
    trainable: bool = True,
    name: str | None = None,
    reuse: bool | None = None,
    renorm: bool = False,
    renorm_clipping: dict[str, Any] | None = None,
    renorm_momentum: float = 0.99,
    fused: bool | None = None,
    virtual_batch_size: int | None = None,
    adjustment: Callable[[Any], tuple[Any, Any]] | None = None,
) -> Tensor:
    """Return inputs normalised as BatchNormalization does. In training, each step must run the
    operations of the collection UPDATE_OPS.
    """
    layer = BatchNormalization(
        axis,
        momentum,
        epsilon,
        center,
        scale,
        beta_initializer,
        gamma_initializer,
        moving_mean_initializer,
        moving_variance_initializer,
        beta_regularizer,
        gamma_regularizer,
        beta_constraint,
        gamma_constraint,
        renorm,
        renorm_clipping,
        renorm_momentum,
        fused,
        trainable,
        virtual_batch_size,
        adjustment,
        name,
        _reuse=reuse,
        _scope=name,
    )
    return layer(inputs, training=training)
