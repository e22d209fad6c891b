"""Layers of tf.contrib.layers (and tf.contrib.slim) that compute with weights: functions that make
variables `<scope>/weights` and `<scope>/biases`, and take the following steps as arguments: a
normalizer instead of the bias, then an activation, ReLU by default.

They are the layers of tf.layers under other names. Variables also join MODEL_VARIABLES and
`variables_collections`: collection names, or a dict of them by variable name. Results join
`outputs_collections`. All of them take defaults from an arg_scope.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from headrace._src.core.export import export
from headrace._src.graph.default import get_default_graph
from headrace._src.graph.keys import GraphKeys
from headrace._src.graph.operation import Tensor
from headrace._src.layers.arg_scope import add_arg_scope
from headrace._src.layers.core import Dense
from headrace._src.layers.fan_initializers import xavier_initializer
from headrace._src.layers.layer import Layer
from headrace._src.layers.named_outputs import collect_named_outputs, variable_collections
from headrace._src.ops.base.define import b
from headrace._src.ops.base.to_tensor import convert_to_tensor
from headrace._src.variables.initializers import Zeros
from headrace._src.variables.lookup import get_variable
from headrace._src.variables.scope import variable_scope

__all__ = ["bias_add", "fully_connected"]

_GLOROT = xavier_initializer()
_ZEROS = Zeros()
_NAMES = {
    "kernel": "weights",
    "bias": "biases",
    "depthwise_kernel": "depthwise_weights",
    "pointwise_kernel": "pointwise_weights",
}


# -- Shared code -----------------------------------------------------------------------------------


def scope_of(scope: Any, default: str, inputs: Any, reuse: Any) -> variable_scope:
    """Open a variable scope that gives variables tf.contrib.layers' names."""
    return variable_scope(scope, default, [inputs], reuse=reuse, custom_getter=_model_variable)


def _model_variable(getter: Callable[..., Any], name: str, *args: Any, **kwargs: Any) -> Any:
    """Make a layer's variable under another name, as one of the model's."""
    scope, slash, last = name.rpartition("/")
    collections = list(kwargs.pop("collections", None) or [GraphKeys.GLOBAL_VARIABLES])
    kwargs["collections"] = [*collections, GraphKeys.MODEL_VARIABLES]
    return getter(f"{scope}{slash}{_NAMES.get(last, last)}", *args, **kwargs)


def collect_variables(variables: Iterable[Any], collections: Any) -> None:
    """Add variables to their collections."""
    for variable in variables:
        name = variable.op.name.rpartition("/")[2]
        kind = "weights" if name.endswith("_weights") else name  # of separable convolutions
        chosen = variable_collections(collections, kind)
        get_default_graph().add_to_collections(chosen or [], variable)


def channels_order(data_format: str | None, spatial: int = 2) -> str:
    """Return the name that tf.layers uses for a data format: of images, sequences (1) or volumes
    (3).
    """
    sizes = {1: "W", 2: "HW", 3: "DHW"}[spatial]
    orders = {
        None: "channels_last",
        f"N{sizes}C": "channels_last",
        f"NC{sizes}": "channels_first",
    }
    if data_format not in orders:
        raise ValueError(f"data_format has to be either NC{sizes} or N{sizes}C.")
    return orders[data_format]


def applied(
    layer: Layer,
    inputs: Any,
    normalizer_fn: Callable[..., Any] | None,
    normalizer_params: Mapping[str, Any] | None,
    activation_fn: Callable[..., Any] | None,
    variables_collections: Any,
    outputs_collections: Any,
    alias: str,
) -> Any:
    """Return a layer's outputs, normalized and activated."""
    outputs = layer.apply(inputs)
    collect_variables(layer.variables, variables_collections)
    after = normalizer_fn, normalizer_params, activation_fn
    return finished(outputs, *after, outputs_collections, alias)


def finished(
    outputs: Any,
    normalizer_fn: Callable[..., Any] | None,
    normalizer_params: Mapping[str, Any] | None,
    activation_fn: Callable[..., Any] | None,
    outputs_collections: Any,
    alias: str,
) -> Any:
    """Return outputs, normalized and activated; add them to their collections under a name."""
    if normalizer_fn is not None:
        outputs = normalizer_fn(outputs, **(normalizer_params or {}))
    if activation_fn is not None:
        outputs = activation_fn(outputs)
    return collect_named_outputs(outputs_collections, alias, outputs)


# -- Layers ----------------------------------------------------------------------------------------


@export("contrib.layers.fully_connected", "contrib.slim.fully_connected")
@add_arg_scope
def fully_connected(
    inputs: Any,
    num_outputs: int,
    activation_fn: Callable[..., Any] | None = b.relu,
    normalizer_fn: Callable[..., Any] | None = None,
    normalizer_params: Mapping[str, Any] | None = None,
    weights_initializer: Any = _GLOROT,
    weights_regularizer: Any = None,
    biases_initializer: Any = _ZEROS,
    biases_regularizer: Any = None,
    reuse: Any = None,
    variables_collections: Any = None,
    outputs_collections: Any = None,
    trainable: bool = True,
    scope: Any = None,
) -> Tensor:
    """Return activation_fn(inputs weights + biases), over the last axis of the inputs."""
    if not isinstance(num_outputs, int):
        raise ValueError(f"num_outputs type should be one of [{int}], got {type(num_outputs)}.")
    with scope_of(scope, "fully_connected", inputs, reuse) as opened:
        layer = Dense(
            num_outputs,
            use_bias=normalizer_fn is None and biases_initializer is not None,
            kernel_initializer=weights_initializer,
            bias_initializer=biases_initializer,
            kernel_regularizer=weights_regularizer,
            bias_regularizer=biases_regularizer,
            trainable=trainable,
            name=opened.name,
            _scope=opened,
            _reuse=reuse,
        )
        after = normalizer_fn, normalizer_params, activation_fn
        inputs = convert_to_tensor(inputs)
        collections = variables_collections, outputs_collections
        return applied(layer, inputs, *after, *collections, opened.name)


@export("contrib.layers.linear", "contrib.slim.linear")
def linear(*args: Any, **kwargs: Any) -> Tensor:
    """Return fully_connected without an activation."""
    return fully_connected(*args, **{"activation_fn": None, **kwargs})


@export("contrib.layers.relu", "contrib.slim.relu")
def relu(*args: Any, **kwargs: Any) -> Tensor:
    """Return fully_connected, activated by ReLU."""
    return fully_connected(*args, **{"activation_fn": b.relu, **kwargs})


@export("contrib.layers.relu6", "contrib.slim.relu6")
def relu6(*args: Any, **kwargs: Any) -> Tensor:
    """Return fully_connected, activated by ReLU6."""
    return fully_connected(*args, **{"activation_fn": b.relu6, **kwargs})


@export("contrib.layers.elu", "contrib.slim.elu")
def elu(*args: Any, **kwargs: Any) -> Tensor:
    """Return fully_connected, activated by ELU."""
    return fully_connected(*args, **{"activation_fn": b.elu, **kwargs})


@export("contrib.layers.bias_add", "contrib.slim.bias_add")
@add_arg_scope
def bias_add(
    inputs: Any,
    activation_fn: Callable[..., Any] | None = None,
    initializer: Any = _ZEROS,
    regularizer: Any = None,
    reuse: Any = None,
    variables_collections: Any = None,
    outputs_collections: Any = None,
    trainable: bool = True,
    data_format: str | None = "NHWC",
    scope: Any = None,
) -> Tensor:
    """Return activation_fn(inputs + biases), a bias per channel."""
    order = channels_order(data_format)
    with scope_of(scope, "BiasAdd", inputs, reuse) as opened:
        inputs = convert_to_tensor(inputs)
        axis = 1 if order == "channels_first" else -1
        size = inputs.shape.as_list()[axis]
        if size is None:
            raise ValueError("`C` dimension must be known but is None")
        biases = get_variable(
            "biases",
            [size],
            inputs.dtype.base_dtype,
            initializer=initializer,
            regularizer=regularizer,
            trainable=trainable,
        )
        collect_variables([biases], variables_collections)
        outputs = b.bias_add(inputs, biases, data_format=data_format)
        if activation_fn is not None:
            outputs = activation_fn(outputs)
        return collect_named_outputs(outputs_collections, opened.name, outputs)


@export("contrib.layers.embed_sequence")
def embed_sequence(
    ids: Any,
    vocab_size: int | None = None,
    embed_dim: int | None = None,
    unique: bool = False,
    initializer: Any = None,
    regularizer: Any = None,
    trainable: bool = True,
    scope: Any = None,
    reuse: Any = None,
) -> Tensor:
    """Return the rows of a matrix `embeddings` [vocab_size, embed_dim] that ids [batch, time]
    select. unique: whether each id is looked up once. With `reuse`, the sizes may be left out.
    """
    if not (reuse or (vocab_size and embed_dim)):
        raise ValueError(
            "Must specify vocab size and embedding dimension when not reusing. Got "
            f"vocab_size={vocab_size} and embed_dim={embed_dim}"
        )
    with scope_of(scope, "EmbedSequence", ids, reuse):
        embeddings = get_variable(
            "embeddings",
            shape=[vocab_size, embed_dim] if vocab_size and embed_dim else None,
            initializer=initializer,
            regularizer=regularizer,
            trainable=trainable,
        )
        if not unique:
            return b.embedding_lookup(embeddings, ids)
        ids = convert_to_tensor(ids)
        distinct, places = b.unique(b.reshape(ids, [-1]))
        rows = b.gather(b.embedding_lookup(embeddings, distinct), places)
        return b.reshape(rows, b.concat([b.shape(ids), [embed_dim or embeddings.shape[1]]], 0))
