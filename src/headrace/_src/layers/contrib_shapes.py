"""Layers of tf.contrib.layers (and tf.contrib.slim) without weights: pools, dropout, flatten,
one-hot; and those that apply a layer several times.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from headrace._src.core.dtypes import int64
from headrace._src.core.export import export
from headrace._src.graph.operation import Tensor
from headrace._src.layers.arg_scope import add_arg_scope
from headrace._src.layers.contrib_layers import channels_order
from headrace._src.layers.core import Dropout, Flatten
from headrace._src.layers.named_outputs import collect_named_outputs, last_dimension
from headrace._src.layers.pooling import AveragePooling2D, MaxPooling2D
from headrace._src.ops.base.define import b
from headrace._src.ops.base.to_tensor import convert_to_tensor, name_scope
from headrace._src.variables.scope import variable_scope

__all__ = [
    "avg_pool2d",
    "dropout",
    "flatten",
    "max_pool2d",
    "maxout",
    "one_hot_encoding",
    "repeat",
    "softmax",
    "stack",
]


@export("contrib.layers.max_pool2d", "contrib.slim.max_pool2d")
@add_arg_scope
def max_pool2d(
    inputs: Any,
    kernel_size: Any,
    stride: Any = 2,
    padding: str = "VALID",
    data_format: str | None = "NHWC",
    outputs_collections: Any = None,
    scope: Any = None,
) -> Tensor:
    """Return the largest element of each window of images."""
    return _pool(MaxPooling2D, "MaxPool2D", inputs, kernel_size, stride, padding, data_format,
                 outputs_collections, scope)  # fmt: skip


@export("contrib.layers.avg_pool2d", "contrib.slim.avg_pool2d")
@add_arg_scope
def avg_pool2d(
    inputs: Any,
    kernel_size: Any,
    stride: Any = 2,
    padding: str = "VALID",
    data_format: str | None = "NHWC",
    outputs_collections: Any = None,
    scope: Any = None,
) -> Tensor:
    """Return the mean of each window of images."""
    return _pool(AveragePooling2D, "AvgPool2D", inputs, kernel_size, stride, padding, data_format,
                 outputs_collections, scope)  # fmt: skip


def _pool(
    kind: Any,
    default: str,
    inputs: Any,
    kernel_size: Any,
    stride: Any,
    padding: str,
    data_format: str | None,
    outputs_collections: Any,
    scope: Any,
) -> Any:
    order = channels_order(data_format)
    with name_scope(scope, default, [inputs]) as opened:
        layer = kind(kernel_size, strides=stride, padding=padding, data_format=order, _scope=opened)
        outputs = layer.apply(convert_to_tensor(inputs))
        return collect_named_outputs(outputs_collections, opened, outputs)


@export("contrib.layers.flatten", "contrib.slim.flatten")
@add_arg_scope
def flatten(inputs: Any, outputs_collections: Any = None, scope: Any = None) -> Tensor:
    """Return the inputs with all axes but the first merged into one."""
    with name_scope(scope, "Flatten", [inputs]) as opened:
        inputs = convert_to_tensor(inputs)
        return collect_named_outputs(outputs_collections, opened, Flatten().apply(inputs))


@export("contrib.layers.dropout", "contrib.slim.dropout")
@add_arg_scope
def dropout(
    inputs: Any,
    keep_prob: Any = 0.5,
    noise_shape: Any = None,
    is_training: Any = True,
    outputs_collections: Any = None,
    scope: Any = None,
    seed: int | None = None,
) -> Tensor:
    """Return the inputs; in training, set random elements to zero and divide the rest by
    `keep_prob`, the probability of keeping an element.
    """
    with variable_scope(scope, "Dropout", [inputs]) as opened:
        layer = Dropout(
            rate=1 - keep_prob, noise_shape=noise_shape, seed=seed, name=opened.name, _scope=opened
        )
        outputs = layer.apply(convert_to_tensor(inputs), training=is_training)
        return collect_named_outputs(outputs_collections, opened.name, outputs)


@export("contrib.layers.one_hot_encoding", "contrib.slim.one_hot_encoding")
@add_arg_scope
def one_hot_encoding(
    labels: Any,
    num_classes: int,
    on_value: float = 1.0,
    off_value: float = 0.0,
    outputs_collections: Any = None,
    scope: Any = None,
) -> Tensor:
    """Return `on_value` at the class of each label, `off_value` elsewhere."""
    with name_scope(scope, "OneHotEncoding", [labels, num_classes]) as opened:
        outputs = b.one_hot(b.cast(labels, int64), num_classes, on_value, off_value)
        return collect_named_outputs(outputs_collections, opened, outputs)


@export("contrib.layers.repeat", "contrib.slim.repeat")
@add_arg_scope
def repeat(
    inputs: Any, repetitions: int, layer: Callable[..., Any], *args: Any, **kwargs: Any
) -> Tensor:
    """Apply a layer `repetitions` times, in scopes <scope>/<scope>_1 and so on."""
    scope = kwargs.pop("scope", None)
    with variable_scope(scope, "Repeat", [inputs]):
        name = scope or _name_of(layer)
        for i in range(repetitions):
            inputs = layer(inputs, *args, **{**kwargs, "scope": f"{name}_{i + 1}"})
        return inputs


@export("contrib.layers.stack", "contrib.slim.stack")
@add_arg_scope
def stack(
    inputs: Any, layer: Callable[..., Any], stack_args: Sequence[Any], **kwargs: Any
) -> Tensor:
    """Apply a layer once for each of `stack_args`: an argument, or a list of them."""
    scope = kwargs.pop("scope", None)
    if not isinstance(stack_args, list | tuple):
        raise ValueError("stack_args need to be a list or tuple")
    with variable_scope(scope, "Stack", [inputs]):
        name = scope or _name_of(layer)
        for i, given in enumerate(stack_args, 1):
            own = given if isinstance(given, list | tuple) else [given]
            inputs = layer(inputs, *own, **{**kwargs, "scope": f"{name}_{i}"})
        return inputs


def _name_of(layer: Any) -> str:
    """Return the name of a function, or of a partial's function."""
    return getattr(layer, "__name__", None) or _name_of(layer.func)


@export("contrib.layers.softmax", "contrib.slim.softmax")
@add_arg_scope
def softmax(logits: Any, scope: Any = None) -> Tensor:
    """Return the softmax over the last axis of logits of any rank."""
    with variable_scope(scope, "softmax", [logits]):
        logits = convert_to_tensor(logits)
        flat = b.reshape(logits, [-1, last_dimension(logits.shape, min_rank=2)])
        outputs = b.reshape(b.softmax(flat), b.shape(logits))
        outputs.set_shape(logits.shape)
        return outputs


@export("contrib.layers.maxout", "contrib.slim.maxout")
@add_arg_scope
def maxout(inputs: Any, num_units: int, axis: int = -1, scope: Any = None) -> Tensor:
    """Return the largest of each group of channels: `num_units` groups of equal size."""
    with variable_scope(scope, "MaxOut", [inputs]):
        inputs = convert_to_tensor(inputs)
        sizes = inputs.shape.as_list()
        channels = sizes[axis]
        if channels is None:
            raise ValueError("`MaxOut` needs to know the number of channels")
        if channels % num_units:
            raise ValueError(
                f"number of features({channels}) is not a multiple of num_units({num_units})"
            )
        place = axis % len(sizes)
        known = b.shape(inputs)
        whole = [known[i] if size is None else size for i, size in enumerate(sizes)]
        groups = [*whole[:place], num_units, channels // num_units, *whole[place + 1 :]]
        outputs = b.reduce_max(b.reshape(inputs, groups), axis=place + 1)
        outputs.set_shape([*sizes[:place], num_units, *sizes[place + 1 :]])
        return outputs
