"""Layers without spatial dimensions: Dense, Dropout and Flatten, and their functions."""

from __future__ import annotations

from typing import Any

from headrace._src.core.dtypes import as_dtype
from headrace._src.core.export import export
from headrace._src.core.tensor_shape import as_shape
from headrace._src.graph.operation import Tensor
from headrace._src.layers.activations import get_activation
from headrace._src.layers.input_spec import InputSpec
from headrace._src.layers.layer import Layer
from headrace._src.layers.layer_arguments import ZEROS, as_function, channels_order
from headrace._src.ops.base.define import b
from headrace._src.ops.base.to_tensor import convert_to_tensor
from headrace._src.ops.control.cond import smart_cond

__all__ = ["Dense", "Dropout", "Flatten", "dense", "dropout", "flatten"]


@export("layers.Dense")
class Dense(Layer):
    """activation(inputs kernel + bias), over the last axis of the inputs.

    units: the size of the output's last axis. Regularizers add losses to the graph; optimizers
    apply constraints.
    """

    def __init__(
        self,
        units: int,
        activation: Any = None,
        use_bias: bool = True,
        kernel_initializer: Any = None,
        bias_initializer: Any = ZEROS,
        kernel_regularizer: Any = None,
        bias_regularizer: Any = None,
        activity_regularizer: Any = None,
        kernel_constraint: Any = None,
        bias_constraint: Any = None,
        trainable: bool = True,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(trainable, name, activity_regularizer=activity_regularizer, **kwargs)
        self.units = int(units)
        self.activation = get_activation(activation)
        self.use_bias = use_bias
        self.kernel_initializer = kernel_initializer
        self.bias_initializer = bias_initializer
        self.kernel_regularizer = kernel_regularizer
        self.bias_regularizer = bias_regularizer
        self.kernel_constraint = kernel_constraint
        self.bias_constraint = bias_constraint
        self.input_spec = InputSpec(min_ndim=2)

    def build(self, input_shape: Any) -> None:
        """Make `kernel` and `bias`."""
        if not as_dtype(self.dtype or "float32").is_floating:
            raise TypeError(
                "Unable to build `Dense` layer with non-floating point dtype "
                f"{as_dtype(self.dtype)}"
            )
        depth = as_shape(input_shape).as_list()[-1]
        if depth is None:
            raise ValueError(
                "The last dimension of the inputs to `Dense` should be defined. Found `None`."
            )
        self.input_spec = InputSpec(min_ndim=2, axes={-1: depth})
        self.kernel = self.add_weight(
            "kernel",
            [depth, self.units],
            initializer=self.kernel_initializer,
            regularizer=self.kernel_regularizer,
            constraint=self.kernel_constraint,
        )
        self.bias = None
        if self.use_bias:
            self.bias = self.add_weight(
                "bias",
                [self.units],
                initializer=self.bias_initializer,
                regularizer=self.bias_regularizer,
                constraint=self.bias_constraint,
            )
        self.built = True

    def call(self, inputs: Any) -> Any:
        """Return the product with the kernel, plus the bias, activated."""
        rank = inputs.shape.ndims
        if rank > 2:
            outputs = b.tensordot(inputs, self.kernel, [[rank - 1], [0]])
            outputs.set_shape([*inputs.shape.as_list()[:-1], self.units])
        else:
            outputs = b.matmul(inputs, self.kernel)
        if self.bias is not None:
            outputs = b.bias_add(outputs, self.bias)
        return self.activation(outputs)

    def compute_output_shape(self, input_shape: Any) -> Any:
        """Return the input's shape with `units` as its last size."""
        return as_shape(input_shape).with_rank_at_least(2)[:-1].concatenate(self.units)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments; initializers and similar objects unchanged."""
        return super().get_config() | self._arguments(
            "units",
            "activation",
            "use_bias",
            "kernel_initializer",
            "bias_initializer",
            "kernel_regularizer",
            "bias_regularizer",
            "activity_regularizer",
            "kernel_constraint",
            "bias_constraint",
        )


dense = export("layers.dense")(as_function(Dense, "dense"))


@export("layers.Dropout")
class Dropout(Layer):
    """In training, drop elements with probability `rate` and scale the rest by 1 / (1 - rate).

    Elements along axes of size 1 in noise_shape are dropped together; None there means the input's
    size.
    """

    def __init__(
        self,
        rate: Any = 0.5,
        noise_shape: Any = None,
        seed: int | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name, **kwargs)
        self.rate = rate
        self.noise_shape = noise_shape
        self.seed = seed

    def call(self, inputs: Any, training: Any = False) -> Any:
        """Return inputs with elements dropped if `training` (a bool or a tensor) is true, else
        unchanged.
        """

        def dropped() -> Any:
            noise_shape = self._noise_shape(inputs)
            return b.dropout(inputs, rate=self.rate, noise_shape=noise_shape, seed=self.seed)

        return smart_cond(training, dropped, lambda: b.identity(inputs))

    def _noise_shape(self, inputs: Any) -> Any:
        if not isinstance(self.noise_shape, list | tuple):
            return self.noise_shape
        shape = b.shape(inputs)
        return convert_to_tensor(
            [shape[i] if n is None else n for i, n in enumerate(self.noise_shape)]
        )

    def compute_output_shape(self, input_shape: Any) -> Any:
        """Return the input's shape."""
        return as_shape(input_shape)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments."""
        return super().get_config() | self._arguments("rate", "noise_shape", "seed")


@export("layers.dropout")
def dropout(
    inputs: Any,
    rate: Any = 0.5,
    noise_shape: Any = None,
    seed: int | None = None,
    training: Any = False,
    name: str | None = None,
) -> Tensor:
    """Return inputs with elements dropped if `training` (a bool or a tensor) is true."""
    return Dropout(rate, noise_shape, seed, name)(inputs, training=training)


@export("layers.Flatten")
class Flatten(Layer):
    """Merge all axes but the first into one. Channels that come first are moved last before
    that.
    """

    def __init__(self, data_format: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.data_format = channels_order(data_format)
        self.input_spec = InputSpec(min_ndim=1)

    def call(self, inputs: Any) -> Any:
        """Return the inputs as a matrix."""
        shape, rank = inputs.shape, inputs.shape.ndims
        if self.data_format == "channels_first" and rank > 1:
            inputs = b.transpose(inputs, [0, *range(2, rank), 1])
        batch = shape.as_list()[0]
        outputs = b.reshape(inputs, (b.shape(inputs)[0] if batch is None else batch, -1))
        outputs.set_shape(self.compute_output_shape(shape))
        return outputs

    def compute_output_shape(self, input_shape: Any) -> Any:
        """Return [batch, the product of the other sizes, if all are known]."""
        shape = as_shape(input_shape)
        return shape[:1].concatenate(shape[1:].num_elements())

    def get_config(self) -> dict[str, Any]:
        """Return the arguments."""
        return super().get_config() | self._arguments("data_format")


@export("layers.flatten")
def flatten(inputs: Any, name: str | None = None, data_format: str = "channels_last") -> Tensor:
    """Return inputs with all axes but the first merged into one."""
    return Flatten(data_format, name=name)(inputs)
