"""Normalizers of tf.contrib.layers (and tf.contrib.slim): batch_norm and layer_norm, as layers, and
as the `normalizer_fn` of others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from headrace.core.export import export
from headrace.graph.default import get_default_graph
from headrace.graph.keys import GraphKeys
from headrace.layers.arg_scope import add_arg_scope
from headrace.layers.base import Layer
from headrace.layers.contrib_layers import (
    channels_order,
    collect_outputs,
    collect_variables,
    scope_of,
)
from headrace.layers.normalization import BatchNormalization
from headrace.ops.convert import convert_to_tensor
from headrace.ops.define import b
from headrace.ops.source_ops import identity
from headrace.variables.initializers import Ones, Zeros
from headrace.variables.lookup import get_variable

__all__ = ["batch_norm", "layer_norm"]


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
) -> Any:
    """Return the inputs, normalized per channel by the moments of the batch or, if not in training,
    by their moving averages, which fade by `decay`.

    center, scale         whether there are `beta` and `gamma`
    updates_collections   where the updates of the averages go; None: they run with the outputs
    param_initializers, param_regularizers   by the variables' names

    batch_weights and zero_debias_moving_mean aren't supported.
    """
    if batch_weights is not None or zero_debias_moving_mean:
        raise NotImplementedError(
            "batch_norm supports neither batch_weights nor zero_debias_moving_mean"
        )
    order = channels_order(data_format)
    started = dict(param_initializers or {})
    penalties = dict(param_regularizers or {})
    with scope_of(scope, "BatchNorm", inputs, reuse) as opened:
        inputs = convert_to_tensor(inputs)
        # Moments of a matrix's columns, too, are those of the fused op: the variance is unbiased.
        flat = inputs.shape.ndims == 2 and fused is not False and not renorm
        layer = BatchNormalization(
            axis=1 if order == "channels_first" and not flat else -1,
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
        given = b.expand_dims(b.expand_dims(inputs, 1), 1) if flat else inputs
        outputs, updates = _without_updates(layer, given, is_training)
        outputs = b.reshape(outputs, b.shape(inputs)) if flat else outputs
        outputs.set_shape(inputs.shape)
        made = (layer.moving_mean, layer.moving_variance, layer.beta, layer.gamma)
        collect_variables([v for v in made if v is not None], variables_collections)
        outputs = _with_updates(outputs, updates, updates_collections)
        if activation_fn is not None:
            outputs = activation_fn(outputs)
        return collect_outputs(outputs, outputs_collections)


def _without_updates(layer: Layer, inputs: Any, is_training: Any) -> tuple[Any, list[Any]]:
    """A layer's outputs, and its updates, which don't go where layers put them by themselves."""
    kept = get_default_graph().get_collection_ref(GraphKeys.UPDATE_OPS)
    before = len(kept)
    outputs = layer.apply(inputs, training=is_training)
    updates = kept[before:]
    del kept[before:]
    return outputs, updates


def _with_updates(outputs: Any, updates: list[Any], collections: Any) -> Any:
    graph = get_default_graph()
    if collections is not None:
        for update in updates:
            graph.add_to_collections(collections, update)
        return outputs
    if not updates:
        return outputs
    with graph.control_dependencies(updates):
        return identity(outputs)


@export("contrib.layers.layer_norm", "contrib.slim.layer_norm")
@add_arg_scope
def layer_norm(
    inputs: Any,
    center: bool = True,
    scale: bool = True,
    activation_fn: Callable[..., Any] | None = None,
    reuse: Any = None,
    variables_collections: Any = None,
    outputs_collections: Any = None,
    trainable: bool = True,
    begin_norm_axis: int = 1,
    begin_params_axis: int = -1,
    scope: Any = None,
) -> Any:
    """Return the inputs, normalized per example by the moments over the axes from begin_norm_axis
    on, then scaled and moved by `gamma` and `beta`, whose axes are those from begin_params_axis on.
    """
    with scope_of(scope, "LayerNorm", inputs, reuse):
        inputs = convert_to_tensor(inputs)
        sizes = inputs.shape.as_list()
        rank = len(sizes)
        first = begin_norm_axis + rank if begin_norm_axis < 0 else begin_norm_axis
        if begin_params_axis >= rank or first >= rank:
            raise ValueError(
                f"begin_params_axis ({begin_params_axis}) and begin_norm_axis ({first}) must be < "
                f"rank(inputs) ({rank})"
            )
        shape = sizes[begin_params_axis:]
        if None in shape:
            raise ValueError(
                f"Inputs {inputs.name}: shape(inputs)[{begin_params_axis}:] is not fully defined: "
                f"{inputs.shape}"
            )
        dtype = inputs.dtype.base_dtype
        made = {
            name: get_variable(name, shape, dtype, initializer=initializer, trainable=trainable)
            for name, initializer, wanted in (("beta", Zeros(), center), ("gamma", Ones(), scale))
            if wanted
        }
        collect_variables(made.values(), variables_collections)
        mean, variance = b.moments(inputs, list(range(first, rank)), keep_dims=True)
        epsilon = 1e-3 if dtype.name == "float16" else 1e-12
        outputs = b.batch_normalization(
            inputs, mean, variance, made.get("beta"), made.get("gamma"), epsilon
        )
        outputs.set_shape(inputs.shape)
        if activation_fn is not None:
            outputs = activation_fn(outputs)
        return collect_outputs(outputs, outputs_collections)
