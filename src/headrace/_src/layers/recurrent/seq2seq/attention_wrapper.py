"""AttentionWrapper: a cell that looks into a memory after each step. In: a cell and attention
mechanisms. Out: a cell whose inputs are joined by the last step's attention.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from headrace._src.core import nest
from headrace._src.core.dtypes import int32
from headrace._src.core.export import export
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.graph.default import get_default_graph
from headrace._src.graph.operation import Tensor
from headrace._src.layers.core import Dense
from headrace._src.layers.recurrent.cell import RNNCell, check_cell
from headrace._src.layers.recurrent.seq2seq.attention import AttentionMechanism
from headrace._src.layers.recurrent.sizes import known_size, zeros_of_sizes
from headrace._src.ops.base.define import b
from headrace._src.ops.base.to_tensor import name_scope
from headrace._src.ops.control.assertions import assert_equal
from headrace._src.ops.control.grouping import assert_op
from headrace._src.ops.control.tensor_array import TensorArray

__all__ = ["AttentionWrapper", "AttentionWrapperState"]


@export("contrib.seq2seq.AttentionWrapperState")
class AttentionWrapperState(NamedTuple):
    """The state of an AttentionWrapper: of the cell, the last attention, the number of steps; and
    of its mechanism, or a tuple of each of them: alignments, all alignments so far, state.
    """

    cell_state: Any
    attention: Any
    time: Any
    alignments: Any
    alignment_history: Any
    attention_state: Any

    def clone(self, **kwargs: Any) -> Any:
        """Return the state with some parts replaced by others of the same shapes."""

        def fitted(old: Any, new: Any) -> Any:
            if isinstance(old, Tensor) and isinstance(new, Tensor):
                if not old.shape.is_compatible_with(new.shape):
                    raise ValueError(
                        f"The shape of the AttentionWrapperState is expected to be same as the "
                        f"one to clone. self.shape: {old.shape}, input.shape: {new.shape}"
                    )
                return _of_shape(old, new)
            return new

        return nest.map_structure(fitted, self, self._replace(**kwargs))


def _of_shape(expected: Tensor, tensor: Tensor) -> Tensor:
    """Return `tensor`; the step checks what the static shapes leave open."""
    if tensor.shape.is_fully_defined() or tensor.shape.ndims is None:
        tensor.set_shape(expected.shape)
        return tensor
    with name_scope(f"{tensor.op.name}/"):
        shape = b.shape(expected, name="expected_shape")
        with name_scope("assert_shape"):
            actual = b.shape(tensor, name="actual")
            with name_scope("is_shape") as scope:
                size = b.size(shape)
                with name_scope("is_rank") as inner:
                    rank = b.equal(size, b.constant(tensor.shape.ndims, name="actual"), name=inner)
                with name_scope("shape_tensor_equal") as inner:
                    unknown = b.equal(shape, -1)
                    same = b.equal(shape, actual, name="equal_1")
                    same = b.logical_or(unknown, same, name="exclude_partial_shape")
                    equal = b.reduce_all(same, name=inner)
                right = b.logical_and(rank, equal, name=scope)
            message = f"Wrong shape for {tensor.name} [expected] [actual]."
            b.constant(message)  # unused, as in TensorFlow: later random seeds depend on the count
            check = assert_op(right, [message, shape, actual])
        with get_default_graph().control_dependencies([check]):
            checked = b.identity(tensor)
    checked.set_shape(expected.shape)
    return checked


def _attend(mechanism: Any, output: Any, state: Any, layer: Any) -> tuple[Any, Any, Any]:
    """Return the attention, the alignments and the mechanism's next state."""
    alignments, next_state = mechanism(output, state=state)
    context = b.squeeze(b.matmul(b.expand_dims(alignments, 1), mechanism.values), [1])
    attention = context if layer is None else layer(b.concat([output, context], 1))
    return attention, alignments, next_state


@export("contrib.seq2seq.AttentionWrapper")
class AttentionWrapper(RNNCell):
    """A cell with attention.

    attention_mechanism: one or a list. attention_layer_size, attention_layer: size of a Dense layer
    of the cell's output and the context, or that layer; without, the context is the attention.
    alignment_history: whether the state keeps the alignments of all steps, in a TensorArray.
    cell_input_fn: joins inputs and attention; by default, concatenated. output_attention: whether
    the wrapper's output is the attention, else the cell's. attention_fn: computes (attention,
    alignments, next_state) of (mechanism, cell_output, state, layer).
    """

    def __init__(
        self,
        cell: Any,
        attention_mechanism: Any,
        attention_layer_size: Any = None,
        alignment_history: bool = False,
        cell_input_fn: Callable[[Any, Any], Any] | None = None,
        output_attention: bool = True,
        initial_cell_state: Any = None,
        name: str | None = None,
        attention_layer: Any = None,
        attention_fn: Callable[..., Any] | None = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(name=name, dtype=dtype)
        check_cell("cell", cell)
        self._is_multi = isinstance(attention_mechanism, list | tuple)
        mechanisms = list(attention_mechanism) if self._is_multi else [attention_mechanism]
        for mechanism in mechanisms:
            if not isinstance(mechanism, AttentionMechanism):
                raise TypeError(
                    "attention_mechanism must be an AttentionMechanism or list of multiple "
                    f"AttentionMechanism instances, saw type: {type(mechanism).__name__}"
                )
        if cell_input_fn is not None and not callable(cell_input_fn):
            raise TypeError(f"cell_input_fn must be callable, saw type: {type(cell_input_fn)}")
        if attention_layer_size is not None and attention_layer is not None:
            raise ValueError("Only one of attention_layer_size and attention_layer should be set")
        self._cell = cell
        self._mechanisms = mechanisms
        self._layers = self._made_layers(attention_layer_size, attention_layer, dtype)
        self._attention_size = self._size_of_attention()
        self._cell_input_fn = cell_input_fn or (lambda x, attention: b.concat([x, attention], -1))
        self._attention_fn = attention_fn or _attend
        self._output_attention = output_attention
        self._alignment_history = alignment_history
        self._initial_cell_state = initial_cell_state

    def _made_layers(self, sizes: Any, layers: Any, dtype: Any) -> list[Any]:
        given = layers if sizes is None else sizes
        count = len(self._mechanisms)
        if given is None:
            return [None] * count
        given = list(given) if isinstance(given, list | tuple) else [given]
        if len(given) != count:
            raise ValueError(
                "If provided, attention_layer_size or attention_layer must contain exactly one "
                f"element per attention_mechanism, saw: {len(given)} vs {count}"
            )
        if sizes is None:
            return given
        return [Dense(size, name="attention_layer", use_bias=False, dtype=dtype) for size in given]

    def _size_of_attention(self) -> int:
        total = 0
        for mechanism, layer in zip(self._mechanisms, self._layers, strict=True):
            depth = mechanism.values.shape.as_list()[-1]
            if layer is not None:
                joined = self._cell.output_size + depth
                depth = layer.compute_output_shape(TensorShape([None, joined])).as_list()[-1]
            total += depth
        return total

    def _of_each(self, values: list[Any]) -> Any:
        """Return a mechanism's value, or a tuple with that of each mechanism."""
        return tuple(values) if self._is_multi else values[0]

    @property
    def output_size(self) -> Any:
        return self._attention_size if self._output_attention else self._cell.output_size

    @property
    def state_size(self) -> Any:
        return AttentionWrapperState(
            cell_state=self._cell.state_size,
            time=TensorShape([]),
            attention=self._attention_size,
            alignments=self._of_each([m.alignments_size for m in self._mechanisms]),
            attention_state=self._of_each([m.state_size for m in self._mechanisms]),
            alignment_history=self._of_each(
                [m.alignments_size if self._alignment_history else () for m in self._mechanisms]
            ),
        )

    def zero_state(self, batch_size: Any, dtype: Any) -> Any:
        """Return a state for the start: of the cell, `initial_cell_state` or zeros."""
        with name_scope(f"{type(self).__name__}ZeroState", values=[batch_size]):
            if self._initial_cell_state is None:
                cell_state = self._cell.zero_state(batch_size, dtype)
            else:
                cell_state = self._initial_cell_state
            with self._checked_batches(batch_size):
                cell_state = nest.map_structure(
                    lambda part: b.identity(part, name="checked_cell_state"), cell_state
                )
            alignments = [m.initial_alignments(batch_size, dtype) for m in self._mechanisms]
            return AttentionWrapperState(
                cell_state=cell_state,
                time=b.zeros([], int32),
                attention=zeros_of_sizes(self._attention_size, batch_size, dtype),
                alignments=self._of_each(alignments),
                attention_state=self._of_each(
                    [m.initial_state(batch_size, dtype) for m in self._mechanisms]
                ),
                alignment_history=self._of_each([self._history(a, dtype) for a in alignments]),
            )

    def _checked_batches(self, batch_size: Any) -> Any:
        """Return a context whose operations require that all memories have this batch size."""
        message = (
            f"When applying AttentionWrapper {self.name}: Non-matching batch sizes between the "
            "memory (encoder output) and the query (decoder output). Are you using the "
            "BeamSearchDecoder? Then tile the memory with tf.contrib.seq2seq.tile_batch."
        )
        checks = [assert_equal(batch_size, m.batch_size, message=message) for m in self._mechanisms]
        return get_default_graph().control_dependencies(checks)

    def _history(self, alignments: Tensor, dtype: Any) -> Any:
        if not self._alignment_history:
            return ()
        return TensorArray(dtype, size=0, dynamic_size=True, element_shape=alignments.shape)

    def call(self, inputs: Any, state: Any) -> Any:
        """Return the attention (or the cell's output) and the next state."""
        if not isinstance(state, AttentionWrapperState):
            raise TypeError(
                "Expected state to be instance of AttentionWrapperState. Received type "
                f"{type(state)} instead."
            )
        output, cell_state = self._cell(
            self._cell_input_fn(inputs, state.attention), state.cell_state
        )
        with self._checked_batches(known_size(output, 0)):
            output = b.identity(output, name="checked_cell_output")
        states = list(state.attention_state) if self._is_multi else [state.attention_state]
        histories = list(state.alignment_history) if self._is_multi else [state.alignment_history]
        found = [
            self._attention_fn(mechanism, output, before, layer)
            for mechanism, before, layer in zip(self._mechanisms, states, self._layers, strict=True)
        ]
        if self._alignment_history:
            histories = [
                history.write(state.time, alignments)
                for history, (_, alignments, _) in zip(histories, found, strict=True)
            ]
        attention = b.concat([a for a, _, _ in found], 1)
        next_state = AttentionWrapperState(
            time=state.time + 1,
            cell_state=cell_state,
            attention=attention,
            attention_state=self._of_each([s for _, _, s in found]),
            alignments=self._of_each([a for _, a, _ in found]),
            alignment_history=self._of_each(histories),
        )
        return (attention if self._output_attention else output), next_state
