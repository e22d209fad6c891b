"""tf.contrib.layers.batch_norm. In: inputs, and the collection for the updates of the moving
averages. Out: the inputs, normalized per channel.

If the updates go to UPDATE_OPS and all examples have equal weight, it uses the layer of tf.layers.
Otherwise, and for matrices, the variables are made here, `beta` before `gamma`, as in TensorFlow
1.15: their order is also that of an optimizer's slots.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from headrace._src.core.dtypes import float32
from headrace._src.core.export import export
from headrace._src.graph.default import get_default_graph
from headrace._src.graph.keys import GraphKeys
from headrace._src.graph.operation import Tensor
from headrace._src.graph.scoped import control_dependencies
from headrace._src.layers.arg_scope import add_arg_scope
from headrace._src.layers.contrib_layers import (
    channels_order,
    collect_variables,
    scope_of,
)
from headrace._src.layers.named_outputs import collect_named_outputs
from headrace._src.layers.normalization import BatchNormalization
from headrace._src.ops.base.define import b
from headrace._src.ops.base.to_tensor import convert_to_tensor
from headrace._src.ops.control.cond import smart_cond, smart_constant_value
from headrace._src.variables.initializers import Ones, Zeros
from headrace._src.variables.lookup import get_variable
from headrace._src.variables.moving_average import assign_moving_average
from headrace._src.variables.scope import get_variable_scope

__all__ = ["batch_norm"]


@export("contrib.layers.batch_norm", "contrib.slim.batch_norm")
@add_arg_scope
def batch_norm(
    inputs: Any,
    decay: float = 0.999,
    center: bool = True,
    scale: bool = False,
    epsilon: float = 0.001,
    activation_fn: Callable[..., Any] | None = None,
    param_initializers: Mapping[str, Any] | None = None,
    param_regularizers: Mapping[str, Any] | None = None,
    updates_collections: Any = GraphKeys.UPDATE_OPS,
    is_training: Any = True,
    reuse: Any = None,
    variables_collections: Any = None,
    outputs_collections: Any = None,
    trainable: bool = True,
    batch_weights: Any = None,
    fused: bool | None = None,
    data_format: str = "NHWC",
    zero_debias_moving_mean: bool = False,
    scope: Any = None,
    renorm: bool = False,
    renorm_clipping: dict[str, Any] | None = None,
    renorm_decay: float = 0.99,
    adjustment: Callable[[Any], Any] | None = None,
) -> Tensor:
    """Return the inputs, normalized per channel by the moments of the batch or, if not in training,
    by their moving averages, which decay by `decay`.

    center, scale         whether there are `beta` and `gamma`
    updates_collections   where the updates of the averages go; None: they run with the outputs
    param_initializers, param_regularizers   by the variables' names
    batch_weights         the weight of each example in the moments
    fused                 whether to use the fused op; None: where possible
    zero_debias_moving_mean   whether to correct the mean's average for starting at zero
    """
    order = channels_order(data_format)
    started = dict(param_initializers or {})
    penalties = dict(param_regularizers or {})
    outer_getter = get_variable_scope().custom_getter
    with scope_of(scope, "BatchNorm", inputs, reuse) as opened:
        inputs = convert_to_tensor(inputs)
        rank = inputs.shape.ndims
        plain = batch_weights is None and not renorm and adjustment is None
        one_op = fused is not False and plain and rank in (2, 4)
        usual = updates_collections == GraphKeys.UPDATE_OPS and not zero_debias_moving_mean
        if batch_weights is None and usual and not (one_op and rank == 2):
            layer = BatchNormalization(
                axis=1 if order == "channels_first" else -1,
                momentum=decay,
                epsilon=epsilon,
                center=center,
                scale=scale,
                beta_initializer=started.get("beta", Zeros()),
                gamma_initializer=started.get("gamma", Ones()),
                moving_mean_initializer=started.get("moving_mean", Zeros()),
                moving_variance_initializer=started.get("moving_variance", Ones()),
                beta_regularizer=penalties.get("beta"),
                gamma_regularizer=penalties.get("gamma"),
                renorm=renorm,
                renorm_clipping=renorm_clipping,
                renorm_momentum=renorm_decay,
                adjustment=adjustment,
                fused=fused,
                trainable=trainable,
                name=opened.name,
                _scope=opened,
                _reuse=reuse,
            )
            outputs = layer.apply(inputs, training=is_training)
            made = (layer.moving_mean, layer.moving_variance, layer.beta, layer.gamma)
            collect_variables([v for v in made if v is not None], variables_collections)
        else:
            if renorm or adjustment is not None:
                raise ValueError(
                    f"{'renorm' if renorm else 'adjustment'} is not supported with batch_weights, "
                    "updates_collections or zero_debias_moving_mean"
                )
            channels = inputs.shape[1 if order == "channels_first" else -1].value
            if channels is None:
                raise ValueError(f"Inputs {inputs.name} has undefined channels dimension.")
            parameters = _Parameters.made(
                [channels], center, scale, started, penalties, trainable, variables_collections
            )
            opened.set_custom_getter(outer_getter)  # averages aren't model variables
            averages = _Averages(parameters, decay, zero_debias_moving_mean, updates_collections)
            if one_op:
                outputs = _by_one_op(inputs, averages, data_format, epsilon, is_training)
            else:
                outputs = _by_moments(inputs, averages, order, epsilon, is_training, batch_weights)
        outputs.set_shape(inputs.shape)
        if activation_fn is not None:
            outputs = activation_fn(outputs)
        return collect_named_outputs(outputs_collections, opened.name, outputs)


@dataclass(frozen=True)
class _Parameters:
    """The variables; beta and gamma may be missing."""

    beta: Any
    gamma: Any
    moving_mean: Any
    moving_variance: Any

    @classmethod
    def made(
        cls,
        shape: list[int],
        center: bool,
        scale: bool,
        initializers: Mapping[str, Any],
        regularizers: Mapping[str, Any],
        trainable: bool,
        collections: Any,
    ) -> _Parameters:
        def variable(name: str, default: Any, trained: bool) -> Any:
            made = get_variable(
                name,
                shape,
                float32,
                initializer=initializers.get(name, default),
                regularizer=regularizers.get(name) if trained else None,
                trainable=trainable and trained,
            )
            collect_variables([made], collections)
            return made

        return cls(
            variable("beta", Zeros(), True) if center else None,
            variable("gamma", Ones(), True) if scale else None,
            variable("moving_mean", Zeros(), False),
            variable("moving_variance", Ones(), False),
        )


@dataclass(frozen=True)
class _Averages:
    """The moving averages, and how they are updated."""

    parameters: _Parameters
    decay: float
    zero_debias: bool
    collections: Any

    def moved(self, mean: Any, variance: Any) -> tuple[Any, Any]:
        """Return operations that move the averages towards a batch's moments."""
        p = self.parameters
        return (
            assign_moving_average(p.moving_mean, mean, self.decay, self.zero_debias),
            assign_moving_average(p.moving_variance, variance, self.decay, zero_debias=False),
        )

    def collect(self, mean: Any, variance: Any, is_training: Any) -> None:
        p = self.parameters
        updates = smart_cond(
            is_training,
            lambda: self.moved(mean, variance),
            lambda: (p.moving_mean, p.moving_variance),
        )
        for update in updates:
            get_default_graph().add_to_collections(self.collections, update)


def _by_one_op(
    inputs: Any, averages: _Averages, data_format: str, epsilon: float, is_training: Any
) -> Any:
    """Use FusedBatchNorm, treating a matrix as images of one pixel."""
    p = averages.parameters
    flat = inputs.shape.ndims == 2
    shape = p.moving_mean.shape.as_list()
    images = inputs
    if flat:
        images = b.reshape(inputs, [-1, 1, 1, shape[0]])
        data_format = "NHWC"
    beta = b.constant(0.0, shape=shape) if p.beta is None else p.beta
    gamma = b.constant(1.0, shape=shape) if p.gamma is None else p.gamma
    options = {"epsilon": epsilon, "data_format": data_format}

    def by_batch() -> Any:
        return b.fused_batch_norm(images, gamma, beta, **options)

    def by_averages() -> Any:
        return b.fused_batch_norm(
            images, gamma, beta, p.moving_mean, p.moving_variance, is_training=False, **options
        )

    outputs, mean, variance = smart_cond(is_training, by_batch, by_averages)

    def after_updates() -> Any:
        with control_dependencies(averages.moved(mean, variance)):
            return b.identity(outputs)

    if smart_constant_value(is_training) is not False:
        if averages.collections is None:
            outputs = smart_cond(is_training, after_updates, lambda: outputs)
        else:
            averages.collect(mean, variance, is_training)
    return b.reshape(outputs, b.shape(inputs)) if flat else outputs


def _by_moments(
    inputs: Any,
    averages: _Averages,
    order: str,
    epsilon: float,
    is_training: Any,
    batch_weights: Any,
) -> Any:
    """Compute batch normalization in separate operations, for inputs of any rank."""
    p = averages.parameters
    rank = inputs.shape.ndims
    first = order == "channels_first" and rank > 2
    axes = [axis for axis in range(rank) if axis != (1 if first else rank - 1)]
    shape = p.moving_mean.shape.as_list()
    if batch_weights is not None:
        weights = convert_to_tensor(batch_weights)
        if weights.shape.ndims != 1:
            raise ValueError(f"batch_weights must be a vector, but its shape is {weights.shape}.")
        weights = b.reshape(weights, [-1] + [1] * (rank - 1))
    mean, variance = p.moving_mean, p.moving_variance
    if smart_constant_value(is_training) is not False:
        if batch_weights is None:
            mean, variance = b.moments(inputs, axes, keep_dims=first)
        else:
            mean, variance = b.weighted_moments(inputs, axes, weights, keep_dims=first)
        if first:
            mean, variance = b.reshape(mean, shape), b.reshape(variance, shape)
        moments = mean, variance

        def after_updates() -> Any:
            with control_dependencies(averages.moved(*moments)):
                return b.identity(moments[0]), b.identity(moments[1])

        if averages.collections is None:
            by_batch = after_updates
        else:
            averages.collect(mean, variance, is_training)
            by_batch = lambda: moments  # noqa: E731
        mean, variance = smart_cond(
            is_training, by_batch, lambda: (p.moving_mean, p.moving_variance)
        )
    applied = [mean, variance, p.beta, p.gamma]
    if first:
        spread = [1, shape[0]] + [1] * (rank - 2)
        applied = [None if value is None else b.reshape(value, spread) for value in applied]
    return b.batch_normalization(inputs, *applied, epsilon)
