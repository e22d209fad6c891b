"""More cells of tf.contrib.rnn: an LSTM with normalised gates, and the NAS cell."""

from __future__ import annotations

from typing import Any

from headrace._src.core.export import export
from headrace._src.layers.activations import get_activation
from headrace._src.layers.input_spec import InputSpec
from headrace._src.layers.recurrent.cell import LayerRNNCell, RNNCell, known_depth
from headrace._src.layers.recurrent.lstm_cells import LSTMStateTuple, unpack_state
from headrace._src.ops.base.define import b
from headrace._src.variables.initializers import Constant, Zeros
from headrace._src.variables.lookup import get_variable
from headrace._src.variables.scope import variable_scope

__all__ = ["LayerNormBasicLSTMCell", "NASCell"]

_EPSILON = 1e-12
_HALF_EPSILON = 1e-3


@export("contrib.rnn.LayerNormBasicLSTMCell")
class LayerNormBasicLSTMCell(RNNCell):
    """An LSTM whose gates and memory are normalised over the units (Ba et al., 2016), with dropout
    of the new memory (Semeniuta et al., 2016).

    norm_gain and norm_shift are the initial scales and offsets. input_size is optional; inputs must
    have that size.
    """

    def __init__(
        self,
        num_units: int,
        forget_bias: float = 1.0,
        input_size: int | None = None,
        activation: Any = b.tanh,
        layer_norm: bool = True,
        norm_gain: float = 1.0,
        norm_shift: float = 0.0,
        dropout_keep_prob: Any = 1.0,
        dropout_prob_seed: int | None = None,
        reuse: Any = None,
    ) -> None:
        super().__init__(_reuse=reuse)
        self.input_spec = InputSpec(axes={-1: input_size})
        self._num_units = num_units
        self._forget_bias = forget_bias
        self._activation = get_activation(activation)
        self._layer_norm = layer_norm
        self._norm_gain = norm_gain
        self._norm_shift = norm_shift
        self._keep_prob = dropout_keep_prob
        self._seed = dropout_prob_seed

    @property
    def state_size(self) -> LSTMStateTuple:
        return LSTMStateTuple(self._num_units, self._num_units)

    @property
    def output_size(self) -> int:
        return self._num_units

    def call(self, inputs: Any, state: Any) -> Any:
        """Return (h', (c', h'))."""
        c, h = unpack_state(state)
        sums = self._linear(b.concat([inputs, h], 1))
        i, j, f, o = b.split(value=sums, num_or_size_splits=4, axis=1)
        if self._layer_norm:
            gates = zip((i, j, f, o), ("input", "transform", "forget", "output"), strict=True)
            i, j, f, o = (self._norm(gate, name) for gate, name in gates)
        g = self._activation(j)
        if not isinstance(self._keep_prob, float) or self._keep_prob < 1:
            g = b.dropout(g, self._keep_prob, seed=self._seed)
        new_c = c * b.sigmoid(f + self._forget_bias) + b.sigmoid(i) * g
        if self._layer_norm:
            new_c = self._norm(new_c, "state")
        new_h = self._activation(new_c) * b.sigmoid(o)
        return new_h, LSTMStateTuple(new_c, new_h)

    def _linear(self, values: Any) -> Any:
        columns = 4 * self._num_units
        kernel = get_variable("kernel", [known_depth(values.shape), columns], values.dtype)
        sums = b.matmul(values, kernel)
        if self._layer_norm:
            return sums
        return b.bias_add(sums, get_variable("bias", [columns], values.dtype))

    def _norm(self, x: Any, name: str) -> Any:
        shape = x.shape.as_list()[-1:]
        with variable_scope(name):
            gamma = get_variable("gamma", shape, x.dtype, Constant(self._norm_gain))
            beta = get_variable("beta", shape, x.dtype, Constant(self._norm_shift))
        with variable_scope(name):
            mean, variance = b.moments(x, [1], keepdims=True)
            epsilon = _HALF_EPSILON if x.dtype.size == 2 else _EPSILON
            return b.batch_normalization(x, mean, variance, beta, gamma, epsilon)


@export("contrib.rnn.NASCell")
class NASCell(LayerRNNCell):
    """The cell found by neural architecture search (Zoph and Le, 2016): eight products of gates,
    combined in three layers. num_proj: the output is projected to this size.
    """

    def __init__(
        self,
        num_units: int,
        num_proj: int | None = None,
        use_bias: bool = False,
        reuse: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(_reuse=reuse, **kwargs)
        self._num_units = num_units
        self._num_proj = num_proj
        self._use_bias = use_bias
        self.input_spec = InputSpec(ndim=2)

    @property
    def state_size(self) -> LSTMStateTuple:
        return LSTMStateTuple(self._num_units, self.output_size)

    @property
    def output_size(self) -> int:
        return self._num_units if self._num_proj is None else self._num_proj

    def build(self, inputs_shape: Any) -> None:
        """Make `recurrent_kernel`, `kernel`, and the variables of the bias and the projection."""
        columns = 8 * self._num_units
        depth = known_depth(inputs_shape)
        self._recurrent = self.add_variable("recurrent_kernel", [self.output_size, columns])
        self._kernel = self.add_variable("kernel", [depth, columns])
        if self._use_bias:
            self._bias = self.add_variable("bias", [columns], initializer=Zeros())
        if self._num_proj is not None:
            shape = [self._num_units, self._num_proj]
            self._projection = self.add_variable("projection_weights", shape)
        self.built = True

    def call(self, inputs: Any, state: Any) -> Any:
        """Return (h', (c', h'))."""
        c, h = unpack_state(state)
        past = b.matmul(h, self._recurrent)
        now = b.matmul(inputs, self._kernel)
        if self._use_bias:
            past = b.bias_add(past, self._bias)
        past = b.split(axis=1, num_or_size_splits=8, value=past)
        now = b.split(axis=1, num_or_size_splits=8, value=now)
        gates = []
        for number, function in enumerate(_NAS_FUNCTIONS):
            x, y = now[number], past[number]
            gates.append(getattr(b, function)(x * y if number == _NAS_PRODUCT else x + y))
        first = b.tanh(gates[0] * gates[1])
        second = b.tanh(gates[2] + gates[3])
        third = b.tanh(gates[4] * gates[5])
        fourth = b.sigmoid(gates[6] + gates[7])
        new_c = b.tanh(first + c) * second
        new_h = b.tanh(new_c * b.tanh(third + fourth))
        if self._num_proj is not None:
            new_h = b.matmul(new_h, self._projection)
        return new_h, LSTMStateTuple(new_c, new_h)


# Each of the eight gates is a function of the sum of its two products; the fourth, of their
# product.
_NAS_FUNCTIONS = ("sigmoid", "relu", "sigmoid", "relu", "tanh", "sigmoid", "tanh", "sigmoid")
_NAS_PRODUCT = 3
