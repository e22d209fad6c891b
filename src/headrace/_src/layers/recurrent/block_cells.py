"""tf.contrib.rnn's cells whose step is one op: LSTMBlockCell, GRUBlockCell, LSTMBlockFusedCell."""

from __future__ import annotations

from typing import Any

from headrace._src.core import dtypes
from headrace._src.core.dtypes import as_dtype
from headrace._src.core.export import export
from headrace._src.layers.input_spec import InputSpec
from headrace._src.layers.layer import Layer
from headrace._src.layers.recurrent.cell import LayerRNNCell, known_depth
from headrace._src.layers.recurrent.lstm_cells import LSTMStateTuple, unpack_state
from headrace._src.ops.base.define import b
from headrace._src.ops.base.to_tensor import convert_to_tensor
from headrace._src.variables.initializers import Constant

__all__ = ["GRUBlockCell", "GRUBlockCellV2", "LSTMBlockCell", "LSTMBlockFusedCell"]

_NOT_CLIPPED = -1.0


class _LstmWeights:
    """The variables of a fused LSTM, named as LSTMCell's, so that checkpoints fit both."""

    def __init__(self, layer: Layer, depth: int, units: int, use_peephole: bool) -> None:
        self._units = units
        self.w = layer.add_variable("kernel", [depth + units, 4 * units])
        self.b = layer.add_variable("bias", [4 * units], initializer=Constant(0.0))
        self._peepholes = None
        if use_peephole:
            self._peepholes = [layer.add_variable(f"w_{gate}_diag", [units]) for gate in "ifo"]

    def peepholes(self, dtype: Any) -> list[Any]:
        """Return the peephole weights of the input, forget and output gates, or zeros."""
        return self._peepholes or [b.zeros([self._units], dtype)] * 3


@export("contrib.rnn.LSTMBlockCell")
class LSTMBlockCell(LayerRNNCell):
    """LSTMCell as one op; the order of its gates is input, new memory, forget, output."""

    def __init__(
        self,
        num_units: int,
        forget_bias: float = 1.0,
        cell_clip: float | None = None,
        use_peephole: bool = False,
        dtype: Any = None,
        reuse: Any = None,
        name: str | None = "lstm_cell",
    ) -> None:
        super().__init__(_reuse=reuse, dtype=dtype, name=name)
        self._num_units = num_units
        self._forget_bias = forget_bias
        self._use_peephole = use_peephole
        self._cell_clip = _NOT_CLIPPED if cell_clip is None else cell_clip
        self.input_spec = InputSpec(ndim=2)

    @property
    def state_size(self) -> LSTMStateTuple:
        return LSTMStateTuple(self._num_units, self._num_units)

    @property
    def output_size(self) -> int:
        return self._num_units

    def build(self, inputs_shape: Any) -> None:
        """Make `kernel`, `bias` and the weights of peepholes."""
        depth = known_depth(inputs_shape)
        self._weights = _LstmWeights(self, depth, self._num_units, self._use_peephole)
        self.built = True

    def call(self, inputs: Any, state: Any) -> Any:
        """Return (h', (c', h'))."""
        c, h = unpack_state(state)
        weights = self._weights
        wci, wcf, wco = weights.peepholes(self.dtype)
        step = b.lstm_block_cell(
            inputs,
            c,
            h,
            weights.w,
            wci,
            wcf,
            wco,
            weights.b,
            forget_bias=self._forget_bias,
            cell_clip=self._cell_clip,
            use_peephole=self._use_peephole,
        )
        return step.h, LSTMStateTuple(step.cs, step.h)


@export("contrib.rnn.GRUBlockCell")
class GRUBlockCell(LayerRNNCell):
    """GRUCell as one op. `cell_size` is the old name of num_units."""

    _gates, _candidate = ("w_ru", "b_ru"), ("w_c", "b_c")

    def __init__(
        self,
        num_units: int | None = None,
        cell_size: int | None = None,
        reuse: Any = None,
        name: str | None = "gru_cell",
    ) -> None:
        super().__init__(_reuse=reuse, name=name)
        if (num_units is None) == (cell_size is None):
            raise ValueError("Exactly one of num_units or cell_size must be provided.")
        self._num_units: int = num_units or cell_size or 0
        self.input_spec = InputSpec(ndim=2)

    @property
    def state_size(self) -> int:
        return self._num_units

    @property
    def output_size(self) -> int:
        return self._num_units

    def build(self, input_shape: Any) -> None:
        """Make the kernels and biases of the gates and of the candidate."""
        units = self._num_units
        rows = known_depth(input_shape) + units
        self._gate_weights = self._dense(self._gates, rows, 2 * units, 1.0)
        self._candidate_weights = self._dense(self._candidate, rows, units, 0.0)
        self.built = True

    def _dense(self, names: tuple[str, str], rows: int, columns: int, bias: float) -> tuple:
        kernel = self.add_variable(names[0], [rows, columns])
        return kernel, self.add_variable(names[1], [columns], initializer=Constant(bias))

    def call(self, inputs: Any, h_prev: Any) -> Any:
        """Return (new state, new state)."""
        (w_ru, b_ru), (w_c, b_c) = self._gate_weights, self._candidate_weights
        step = b.gru_block_cell(inputs, h_prev, w_ru, w_c, b_ru, b_c)
        return step.h, step.h


@export("contrib.rnn.GRUBlockCellV2")
class GRUBlockCellV2(GRUBlockCell):
    """GRUBlockCell with variables named as GRUCell's, so that checkpoints fit both."""

    _gates, _candidate = ("gates/kernel", "gates/bias"), ("candidate/kernel", "candidate/bias")


@export("contrib.rnn.LSTMBlockFusedCell")
class LSTMBlockFusedCell(Layer):
    """An LSTM over a whole sequence [time, batch, depth] as one op.

    It is called with (inputs, initial_state=None, dtype=None, sequence_length=None) and returns the
    outputs [time, batch, units] and the last state.
    """

    def __init__(
        self,
        num_units: int,
        forget_bias: float = 1.0,
        cell_clip: float | None = None,
        use_peephole: bool = False,
        reuse: Any = None,
        dtype: Any = None,
        name: str | None = "lstm_fused_cell",
    ) -> None:
        super().__init__(_reuse=reuse, name=name, dtype=dtype)
        self._num_units = num_units
        self._forget_bias = forget_bias
        self._cell_clip = _NOT_CLIPPED if cell_clip is None else cell_clip
        self._use_peephole = use_peephole
        self.input_spec = InputSpec(ndim=3)

    @property
    def num_units(self) -> int:
        return self._num_units

    def build(self, input_shape: Any) -> None:
        """Make `kernel`, `bias` and the weights of peepholes."""
        depth = known_depth(input_shape)
        self._weights = _LstmWeights(self, depth, self._num_units, self._use_peephole)
        self.built = True

    def call(
        self,
        inputs: Any,
        initial_state: Any = None,
        dtype: Any = None,
        sequence_length: Any = None,
    ) -> Any:
        """Return (outputs, last state); past a row's length, outputs are zeros and its state is
        kept.
        """
        steps, batch, _ = inputs.shape.as_list()
        steps = b.shape(inputs)[0] if steps is None else steps
        batch = b.shape(inputs)[1] if batch is None else batch
        if initial_state is None:
            if dtype is None:
                raise ValueError("Either initial_state or dtype needs to be specified")
            zeros = b.zeros(b.stack([batch, self._num_units]), dtype)
            c = h = zeros
        else:
            c, h = unpack_state(initial_state)
            dtype = c.dtype if dtype is None else dtype
        dtype = as_dtype(dtype)
        lengths = None
        if sequence_length is not None:
            lengths = convert_to_tensor(sequence_length)
        memory, outputs = self._run(inputs, c, h, dtype, lengths, steps)
        if lengths is None:
            return outputs, LSTMStateTuple(memory[-1], outputs[-1])
        mask = b.sequence_mask(lengths, steps, dtype=dtype)
        mask = b.tile(b.expand_dims(b.transpose(mask, [1, 0]), [-1]), [1, 1, self._num_units])
        outputs = outputs * mask
        memory = b.concat([b.expand_dims(c, [0]), memory], 0)
        all_outputs = b.concat([b.expand_dims(h, [0]), outputs], 0)
        last = [_at_lengths(states, lengths, batch) for states in (memory, all_outputs)]
        return outputs, LSTMStateTuple(*last)

    def _run(
        self, inputs: Any, c: Any, h: Any, dtype: Any, lengths: Any, steps: Any
    ) -> tuple[Any, Any]:
        weights = self._weights
        wci, wcf, wco = weights.peepholes(dtype)
        longest = b.cast(steps if lengths is None else b.reduce_max(lengths), dtypes.int64)
        made = b.block_lstm(
            longest,
            inputs,
            c,
            h,
            weights.w,
            wci,
            wcf,
            wco,
            weights.b,
            forget_bias=self._forget_bias,
            cell_clip=self._cell_clip,
            use_peephole=self._use_peephole,
        )
        return made.cs, made.h


def _at_lengths(states: Any, lengths: Any, batch: Any) -> Any:
    """Select from states [1 + time, batch, units], for each row, the one after its last step."""
    rows = b.range(0, batch)
    return b.gather_nd(states, b.stack([b.cast(lengths, dtypes.int32), rows], axis=1))
