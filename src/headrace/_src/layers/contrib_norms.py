"""Normalizers of tf.contrib.layers (and tf.contrib.slim) with moments per example:
layer_norm, instance_norm, group_norm and unit_norm, as layers, and as the `normalizer_fn` of
others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from headrace._src.core.export import export
from headrace._src.graph.operation import Tensor
from headrace._src.layers.arg_scope import add_arg_scope
from headrace._src.layers.contrib_layers import (
    channels_order,
    collect_variables,
    scope_of,
)
from headrace._src.layers.named_outputs import collect_named_outputs
from headrace._src.ops.base.define import b
from headrace._src.ops.base.to_tensor import convert_to_tensor
from headrace._src.variables.initializers import Ones, Zeros
from headrace._src.variables.lookup import get_variable
from headrace._src.variables.scope import variable_scope

__all__ = ["group_norm", "instance_norm", "layer_norm", "unit_norm"]


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
) -> Tensor:
    """Return the inputs, normalized per example by the moments over the axes from begin_norm_axis
    on, then scaled by `gamma` and shifted by `beta`, whose axes are those from begin_params_axis
    on.
    """
    with scope_of(scope, "LayerNorm", inputs, reuse) as opened:
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
        made = _centered_and_scaled(
            inputs, shape, center, scale, None, trainable, variables_collections
        )
        mean, variance = b.moments(inputs, list(range(first, rank)), keep_dims=True)
        epsilon = 1e-3 if inputs.dtype.base_dtype.name == "float16" else 1e-12
        outputs = b.batch_normalization(
            inputs, mean, variance, made.get("beta"), made.get("gamma"), epsilon
        )
        outputs.set_shape(inputs.shape)
        if activation_fn is not None:
            outputs = activation_fn(outputs)
        return collect_named_outputs(outputs_collections, opened.name, outputs)


@export("contrib.layers.instance_norm", "contrib.slim.instance_norm")
@add_arg_scope
def instance_norm(
    inputs: Any,
    center: bool = True,
    scale: bool = True,
    epsilon: float = 1e-6,
    activation_fn: Callable[..., Any] | None = None,
    param_initializers: Mapping[str, Any] | None = None,
    reuse: Any = None,
    variables_collections: Any = None,
    outputs_collections: Any = None,
    trainable: bool = True,
    data_format: str = "NHWC",
    scope: Any = None,
) -> Tensor:
    """Return the inputs with each channel of each example normalized by its own moments."""
    order = channels_order(data_format)
    with scope_of(scope, "InstanceNorm", inputs, reuse) as opened:
        inputs = convert_to_tensor(inputs)
        rank = inputs.shape.ndims
        if rank is None:
            raise ValueError(f"Inputs {inputs.name} has undefined rank.")
        axis = 1 if order == "channels_first" else rank - 1
        if rank < 2:
            raise ValueError(f"Inputs {inputs.name} has undefined channels dimension {axis}.")
        channels = _known(inputs, axis)
        parameters = _centered_and_scaled(
            inputs, [channels], center, scale, param_initializers, trainable, variables_collections
        )
        if order == "channels_first":
            spread = [1, channels] + [1] * (rank - 2)
            parameters = {name: b.reshape(value, spread) for name, value in parameters.items()}
        axes = [a for a in range(1, rank) if a != axis]
        mean, variance = b.moments(inputs, axes, keep_dims=True)
        outputs = b.batch_normalization(
            *(inputs, mean, variance, parameters.get("beta"), parameters.get("gamma"), epsilon),
            name="instancenorm",
        )
        outputs.set_shape(inputs.shape)
        if activation_fn is not None:
            outputs = activation_fn(outputs)
        return collect_named_outputs(outputs_collections, opened.name, outputs)


@export("contrib.layers.group_norm", "contrib.slim.group_norm")
@add_arg_scope
def group_norm(
    inputs: Any,
    groups: int = 32,
    channels_axis: int = -1,
    reduction_axes: Sequence[int] = (-3, -2),
    center: bool = True,
    scale: bool = True,
    epsilon: float = 1e-6,
    activation_fn: Callable[..., Any] | None = None,
    param_initializers: Mapping[str, Any] | None = None,
    reuse: Any = None,
    variables_collections: Any = None,
    outputs_collections: Any = None,
    trainable: bool = True,
    scope: Any = None,
    mean_close_to_zero: bool = False,
) -> Tensor:
    """Return the inputs with each channel group of each example normalized by its own moments.

    reduction_axes       the axes of the moments beside the channels in a group
    mean_close_to_zero   whether the variance may be computed as the difference of two means
    """
    inputs = convert_to_tensor(inputs)
    rank = inputs.shape.ndims
    if rank is None:
        raise ValueError(f"Inputs {inputs.name} has undefined rank.")
    if channels_axis > rank - 1:
        raise ValueError("Axis is out of bounds.")
    axis = channels_axis + rank if channels_axis < 0 else channels_axis
    reduced = [a + rank if a < 0 else a for a in reduction_axes]
    for a in reduced:
        if a > rank:
            raise ValueError("Axis is out of bounds.")
        if a == axis:
            raise ValueError("reduction_axis must be mutually exclusive with channels_axis")
    channels = _known(inputs, axis)
    if groups > channels:
        raise ValueError(f"Invalid groups {groups} for {channels} channels.")
    if channels % groups:
        raise ValueError(f"{channels} channels is not commensurate with {groups} groups.")
    sizes = inputs.shape.as_list()
    if None in sizes:
        shape = b.shape(inputs)
        sizes = [shape[i] if size is None else size for i, size in enumerate(sizes)]
    parted = [*sizes[:axis], groups, channels // groups, *sizes[axis + 1 :]]
    # Axes after the channels' have moved by one: the channels are now two axes.
    over = [a + 1 if a > axis else a for a in reduced] + [axis + 1]
    spread = [1] * len(parted)
    spread[axis : axis + 2] = [groups, channels // groups]
    with scope_of(scope, "GroupNorm", inputs, reuse) as opened:
        grouped = b.reshape(inputs, parted)
        parameters = _centered_and_scaled(
            inputs, [channels], center, scale, param_initializers, trainable, variables_collections
        )
        parameters = {name: b.reshape(value, spread) for name, value in parameters.items()}
        if mean_close_to_zero:
            counts, mean_ss, variance_ss, _ = b.sufficient_statistics(grouped, over, keep_dims=True)
            mean, variance = b.normalize_moments(counts, mean_ss, variance_ss, None)
        else:
            mean, variance = b.moments(grouped, over, keep_dims=True)
        gain = b.rsqrt(variance + epsilon)
        offset = -mean * gain
        if "gamma" in parameters:
            gain, offset = gain * parameters["gamma"], offset * parameters["gamma"]
        if "beta" in parameters:
            offset = offset + parameters["beta"]
        outputs = b.reshape(grouped * gain + offset, sizes)
        outputs.set_shape(inputs.shape)
        if activation_fn is not None:
            outputs = activation_fn(outputs)
        return collect_named_outputs(outputs_collections, opened.name, outputs)


@export("contrib.layers.unit_norm", "contrib.slim.unit_norm")
@add_arg_scope
def unit_norm(inputs: Any, dim: int, epsilon: float = 1e-7, scope: Any = None) -> Tensor:
    """Return the inputs divided by their Euclidean norms along the axis `dim`."""
    with variable_scope(scope, "UnitNorm", [inputs]):
        inputs = convert_to_tensor(inputs)
        rank = inputs.shape.ndims
        if rank is None:
            raise ValueError("The input rank must be known.")
        if dim < 0 or dim >= rank:
            raise ValueError(f"dim must be positive but smaller than the input rank: {dim}")
        squares = b.reduce_sum(b.square(inputs), axis=dim, keepdims=True)
        return inputs / b.sqrt(epsilon + squares)


def _known(inputs: Any, axis: int) -> int:
    """The size of an axis, which must be known."""
    size = inputs.shape[axis].value
    if size is None:
        raise ValueError(
            f"Inputs {inputs.name} has undefined channel dimension: {inputs.shape.as_list()}."
        )
    return size


def _centered_and_scaled(
    inputs: Any,
    shape: list[int],
    center: bool,
    scale: bool,
    initializers: Mapping[str, Any] | None,
    trainable: bool,
    collections: Any,
) -> dict[str, Any]:
    """Return those of the variables `beta` and `gamma` that are wanted."""
    started = dict(initializers or {})
    found = {}
    for name, default, wanted in (("beta", Zeros(), center), ("gamma", Ones(), scale)):
        if wanted:
            found[name] = get_variable(
                name,
                shape,
                inputs.dtype.base_dtype,
                initializer=started.get(name, default),
                trainable=trainable,
            )
    collect_variables(found.values(), collections)
    return found
