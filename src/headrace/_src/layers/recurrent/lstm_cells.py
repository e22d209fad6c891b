"""Long short-term memory: cells with a memory c beside their output h."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

from headrace._src.core import dtypes
from headrace._src.core.export import export
from headrace._src.layers.activations import activation_name, get_activation
from headrace._src.layers.input_spec import InputSpec
from headrace._src.layers.recurrent.cell import LayerRNNCell, check_floating, known_depth
from headrace._src.ops.base.define import b
from headrace._src.ops.base.to_tensor import constant
from headrace._src.variables.initializers import Zeros
from headrace._src.variables.partition import fixed_size_partitioner

__all__ = ["BasicLSTMCell", "LSTMCell", "LSTMStateTuple"]


@export("nn.rnn_cell.LSTMStateTuple", "contrib.rnn.LSTMStateTuple")
class LSTMStateTuple(namedtuple("LSTMStateTuple", ("c", "h"))):
    """The state of an LSTM cell (or its sizes): the memory c and the output h."""

    __slots__ = ()

    @property
    def dtype(self) -> Any:
        if self.c.dtype != self.h.dtype:
            raise TypeError(f"Inconsistent internal state: {self.c.dtype} vs {self.h.dtype}")
        return self.c.dtype


def unpack_state(state: Any) -> tuple[Any, Any]:
    """Return c and h of a state, which must be a pair."""
    if not isinstance(state, tuple | list) or len(state) != 2:
        raise TypeError(f"the state of an LSTM cell is a pair (c, h), not {state}")
    return state[0], state[1]


@export("nn.rnn_cell.BasicLSTMCell", "contrib.rnn.BasicLSTMCell")
class BasicLSTMCell(LayerRNNCell):
    """c' = sigmoid(f + forget_bias) c + sigmoid(i) act(j), h' = sigmoid(o) act(c'), where
    i, j, f, o = [input, h] kernel + bias.

    Without state_is_tuple, the state is one tensor, c and h concatenated.
    """

    def __init__(
        self,
        num_units: int,
        forget_bias: float = 1.0,
        state_is_tuple: bool = True,
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
        self._forget_bias = forget_bias
        self._state_is_tuple = state_is_tuple
        self._activation = get_activation(activation or "tanh")

    @property
    def state_size(self) -> Any:
        if self._state_is_tuple:
            return LSTMStateTuple(self._num_units, self._num_units)
        return 2 * self._num_units

    @property
    def output_size(self) -> int:
        return self._num_units

    def build(self, input_shape: Any) -> None:
        """Make `kernel` and `bias`."""
        rows, columns = known_depth(input_shape) + self._num_units, 4 * self._num_units
        self._kernel = self.add_variable("kernel", shape=[rows, columns])
        self._bias = self.add_variable(
            "bias", shape=[columns], initializer=Zeros(dtype=self.dtype or "float32")
        )
        self.built = True

    def call(self, inputs: Any, state: Any) -> Any:
        """Return (h', (c', h'))."""
        check_floating(inputs, state)
        one = constant(1, dtype=dtypes.int32)
        if self._state_is_tuple:
            c, h = unpack_state(state)
        else:
            c, h = b.split(value=state, num_or_size_splits=2, axis=one)
        sums = b.bias_add(b.matmul(b.concat([inputs, h], 1), self._kernel), self._bias)
        i, j, f, o = b.split(value=sums, num_or_size_splits=4, axis=one)
        forget_bias = constant(self._forget_bias, dtype=f.dtype)
        kept = b.multiply(c, b.sigmoid(b.add(f, forget_bias)))
        new_c = b.add(kept, b.multiply(b.sigmoid(i), self._activation(j)))
        new_h = b.multiply(self._activation(new_c), b.sigmoid(o))
        if self._state_is_tuple:
            return new_h, LSTMStateTuple(new_c, new_h)
        return new_h, b.concat([new_c, new_h], 1)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "num_units": self._num_units,
            "forget_bias": self._forget_bias,
            "state_is_tuple": self._state_is_tuple,
            "activation": activation_name(self._activation),
            "reuse": self._reuse,
        }


@export("nn.rnn_cell.LSTMCell", "contrib.rnn.LSTMCell")
class LSTMCell(LayerRNNCell):
    """An LSTM (Sak et al., 2014) with optional peepholes, clipping and projection.

    use_peepholes: the gates also see the memory, element by element. cell_clip: the memory is
    clipped to [-cell_clip, cell_clip]. num_proj: the output is projected to this size, and clipped
    by proj_clip. num_unit_shards, num_proj_shards: the number of parts of the kernels (a
    partitioner of the variable scope does the same).
    """

    def __init__(
        self,
        num_units: int,
        use_peepholes: bool = False,
        cell_clip: float | None = None,
        initializer: Any = None,
        num_proj: int | None = None,
        proj_clip: float | None = None,
        num_unit_shards: int | None = None,
        num_proj_shards: int | None = None,
        forget_bias: float = 1.0,
        state_is_tuple: bool = True,
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
        self._use_peepholes = use_peepholes
        self._cell_clip = cell_clip
        self._initializer = initializer
        self._num_proj = num_proj
        self._proj_clip = proj_clip
        self._num_unit_shards = num_unit_shards
        self._num_proj_shards = num_proj_shards
        self._forget_bias = forget_bias
        self._state_is_tuple = state_is_tuple
        self._activation = get_activation(activation or "tanh")

    @property
    def state_size(self) -> Any:
        if self._state_is_tuple:
            return LSTMStateTuple(self._num_units, self.output_size)
        return self._num_units + self.output_size

    @property
    def output_size(self) -> int:
        return self._num_units if self._num_proj is None else self._num_proj

    def build(self, input_shape: Any) -> None:
        """Make `kernel`, `bias`, and the variables of peepholes (`w_f_diag`...) and the
        projection.
        """
        units = self._num_units
        rows = known_depth(input_shape) + self.output_size
        self._kernel = self.add_variable(
            "kernel",
            shape=[rows, 4 * units],
            initializer=self._initializer,
            partitioner=_shards(self._num_unit_shards),
        )
        zeros = Zeros() if self.dtype is None else Zeros(dtype=self.dtype)
        self._bias = self.add_variable("bias", shape=[4 * units], initializer=zeros)
        if self._use_peepholes:
            self._w_f_diag, self._w_i_diag, self._w_o_diag = (
                self.add_variable(f"w_{gate}_diag", shape=[units], initializer=self._initializer)
                for gate in "fio"
            )
        if self._num_proj is not None:
            self._proj_kernel = self.add_variable(
                "projection/kernel",
                shape=[units, self._num_proj],
                initializer=self._initializer,
                partitioner=_shards(self._num_proj_shards),
            )
        self.built = True

    def call(self, inputs: Any, state: Any) -> Any:
        """Return (h', (c', h'))."""
        check_floating(inputs, state)
        c, h = unpack_state(state) if self._state_is_tuple else self._halves(state)
        sums = b.bias_add(b.matmul(b.concat([inputs, h], 1), self._kernel), self._bias)
        i, j, f, o = b.split(value=sums, num_or_size_splits=4, axis=1)
        new_c = self._memory(c, i, j, f)
        if self._use_peepholes:
            o = o + self._w_o_diag * new_c
        new_h = b.sigmoid(o) * self._activation(new_c)
        if self._num_proj is not None:
            new_h = _clipped(b.matmul(new_h, self._proj_kernel), self._proj_clip)
        if self._state_is_tuple:
            return new_h, LSTMStateTuple(new_c, new_h)
        return new_h, b.concat([new_c, new_h], 1)

    def _halves(self, state: Any) -> tuple[Any, Any]:
        c = b.slice(state, [0, 0], [-1, self._num_units])
        return c, b.slice(state, [0, self._num_units], [-1, self.output_size])

    def _memory(self, c: Any, i: Any, j: Any, f: Any) -> Any:
        f = f + self._forget_bias
        if self._use_peepholes:
            kept = b.sigmoid(f + self._w_f_diag * c) * c
            new = b.sigmoid(i + self._w_i_diag * c) * self._activation(j)
        else:
            kept = b.sigmoid(f) * c
            new = b.sigmoid(i) * self._activation(j)
        return _clipped(kept + new, self._cell_clip)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "num_units": self._num_units,
            "use_peepholes": self._use_peepholes,
            "cell_clip": self._cell_clip,
            "initializer": self._initializer,
            "num_proj": self._num_proj,
            "proj_clip": self._proj_clip,
            "num_unit_shards": self._num_unit_shards,
            "num_proj_shards": self._num_proj_shards,
            "forget_bias": self._forget_bias,
            "state_is_tuple": self._state_is_tuple,
            "activation": activation_name(self._activation),
            "reuse": self._reuse,
        }


def _shards(count: int | None) -> Any:
    return fixed_size_partitioner(count) if count else None


def _clipped(x: Any, limit: float | None) -> Any:
    return x if limit is None else b.clip_by_value(x, -limit, limit)
