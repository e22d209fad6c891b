"""Cells whose state is their output: BasicRNNCell and GRUCell."""

from __future__ import annotations

from typing import Any

from headrace._src.core.export import export
from headrace._src.layers.activations import activation_name, get_activation
from headrace._src.layers.input_spec import InputSpec
from headrace._src.layers.recurrent.cell import LayerRNNCell, check_floating, known_depth
from headrace._src.ops.base.define import b
from headrace._src.variables.initializers import Constant, Zeros

__all__ = ["BasicRNNCell", "GRUCell"]


class _UnitsCell(LayerRNNCell):
    """A cell with one vector of `num_units` as its state and its output."""

    def __init__(
        self,
        num_units: int,
        activation: Any = None,
        reuse: Any = None,
        name: str | None = None,
        dtype: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(_reuse=reuse, name=name, dtype=dtype, **kwargs)
        check_floating(*(() if dtype is None else (dtype,)))
        self.input_spec = InputSpec(ndim=2)
        self._num_units = num_units
        self._activation = get_activation(activation or "tanh")

    @property
    def state_size(self) -> int:
        return self._num_units

    @property
    def output_size(self) -> int:
        return self._num_units

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "num_units": self._num_units,
            "activation": activation_name(self._activation),
            "reuse": self._reuse,
        }


@export("nn.rnn_cell.BasicRNNCell", "contrib.rnn.BasicRNNCell")
class BasicRNNCell(_UnitsCell):
    """output = new state = activation([input, state] kernel + bias)."""

    def build(self, input_shape: Any) -> None:
        """Make `kernel` and `bias`."""
        rows = known_depth(input_shape) + self._num_units
        self._kernel = self.add_variable("kernel", shape=[rows, self._num_units])
        self._bias = self.add_variable("bias", shape=[self._num_units], initializer=Zeros())
        self.built = True

    def call(self, inputs: Any, state: Any) -> Any:
        """Return (output, output)."""
        check_floating(inputs, state)
        sums = b.bias_add(b.matmul(b.concat([inputs, state], 1), self._kernel), self._bias)
        output = self._activation(sums)
        return output, output


@export("nn.rnn_cell.GRUCell", "contrib.rnn.GRUCell")
class GRUCell(_UnitsCell):
    """The gated recurrent unit (Cho et al., 2014): a reset gate r decides which part of the state
    the candidate c sees, an update gate u how much of the state is kept.

    kernel_initializer and bias_initializer apply to both kernels and both biases; by default, the
    gates' bias is 1 and the candidate's 0.
    """

    def __init__(
        self,
        num_units: int,
        activation: Any = None,
        reuse: Any = None,
        kernel_initializer: Any = None,
        bias_initializer: Any = None,
        name: str | None = None,
        dtype: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(num_units, activation, reuse, name, dtype, **kwargs)
        self._kernel_initializer = kernel_initializer
        self._bias_initializer = bias_initializer

    def build(self, input_shape: Any) -> None:
        """Make `gates/kernel`, `gates/bias`, `candidate/kernel` and `candidate/bias`."""
        rows, units = known_depth(input_shape) + self._num_units, self._num_units
        dtype = self.dtype or "float32"  # not known if build is called directly
        ones, zeros = Constant(1.0, dtype=dtype), Zeros(dtype=dtype)
        self._gate_kernel, self._gate_bias = self._dense("gates", rows, 2 * units, ones)
        self._candidate_kernel, self._candidate_bias = self._dense("candidate", rows, units, zeros)
        self.built = True

    def _dense(self, name: str, rows: int, columns: int, bias: Any) -> tuple[Any, Any]:
        kernel = self.add_variable(
            f"{name}/kernel", shape=[rows, columns], initializer=self._kernel_initializer
        )
        initializer = bias if self._bias_initializer is None else self._bias_initializer
        return kernel, self.add_variable(f"{name}/bias", shape=[columns], initializer=initializer)

    def call(self, inputs: Any, state: Any) -> Any:
        """Return (new state, new state)."""
        check_floating(inputs, state)
        both = b.concat([inputs, state], 1)
        gates = b.sigmoid(b.bias_add(b.matmul(both, self._gate_kernel), self._gate_bias))
        r, u = b.split(gates, num_or_size_splits=2, axis=1)
        both = b.concat([inputs, r * state], 1)
        sums = b.bias_add(b.matmul(both, self._candidate_kernel), self._candidate_bias)
        c = self._activation(sums)
        new = u * state + (1 - u) * c
        return new, new

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "kernel_initializer": self._kernel_initializer,
            "bias_initializer": self._bias_initializer,
        }
