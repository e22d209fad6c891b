"""dynamic_decode: a decoder, step by step, until all its sequences have ended. In: a decoder. Out:
what its steps emit, its last state, and the lengths of the sequences.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from headrace._src.core import nest
from headrace._src.core.dtypes import int32
from headrace._src.core.export import export
from headrace._src.core.tensor_shape import TensorShape, as_shape
from headrace._src.graph.inference import constant_value
from headrace._src.graph.operation import Tensor
from headrace._src.layers.layer import Layer
from headrace._src.layers.recurrent.cell import check_cell
from headrace._src.layers.recurrent.dynamic import transpose_batch_time
from headrace._src.layers.recurrent.seq2seq.helpers import Helper
from headrace._src.layers.recurrent.sizes import zeros_of_sizes
from headrace._src.ops.base.define import b
from headrace._src.ops.base.to_tensor import convert_to_tensor, name_scope
from headrace._src.ops.control.tensor_array import TensorArray
from headrace._src.variables.scope import variable_scope

__all__ = [
    "BasicDecoder",
    "BasicDecoderOutput",
    "StepDecoder",
    "dynamic_decode",
    "_layer_output_size",
]


@export("contrib.seq2seq.Decoder")
class StepDecoder(ABC):
    """What dynamic_decode runs."""

    @property
    @abstractmethod
    def batch_size(self) -> Any:
        """The number of sequences."""

    @property
    @abstractmethod
    def output_size(self) -> Any:
        """The sizes of what a step emits, a nest."""

    @property
    @abstractmethod
    def output_dtype(self) -> Any:
        """The types of what a step emits, a nest."""

    @abstractmethod
    def initialize(self, name: str | None = None) -> Any:
        """Return (finished, first_inputs, initial_state)."""

    @abstractmethod
    def step(self, time: Any, inputs: Any, state: Any, name: str | None = None) -> Any:
        """Return (outputs, next_state, next_inputs, finished)."""

    def finalize(self, outputs: Any, final_state: Any, sequence_lengths: Any) -> Any:
        """Return the outputs of all steps and the last state, as they are to be returned."""
        raise NotImplementedError

    @property
    def tracks_own_finished(self) -> bool:
        """Whether sequences change places, so that one that has ended may go on."""
        return False


@export("contrib.seq2seq.BasicDecoderOutput")
class BasicDecoderOutput(NamedTuple):
    """What a BasicDecoder emits."""

    rnn_output: Any
    sample_id: Any


def _layer_output_size(cell: Any, layer: Any) -> Any:
    """Return the size of a cell's outputs after a layer, which may be None."""
    if layer is None:
        return cell.output_size

    def shape(size: Any) -> TensorShape:
        known = as_shape([size] if isinstance(size, int) else size)
        return layer.compute_output_shape(TensorShape([None]).concatenate(known))[1:]

    return nest.map_structure(shape, cell.output_size)


@export("contrib.seq2seq.BasicDecoder")
class BasicDecoder(StepDecoder):
    """Runs a cell; its helper samples ids and chooses the next inputs.

    output_layer: a layer, such as tf.layers.Dense, that makes logits of the cell's outputs.
    """

    def __init__(
        self, cell: Any, helper: Any, initial_state: Any, output_layer: Any = None
    ) -> None:
        check_cell("cell", cell)
        if not isinstance(helper, Helper):
            raise TypeError(f"helper must be a Helper, received: {type(helper)}")
        if output_layer is not None and not isinstance(output_layer, Layer):
            raise TypeError(f"output_layer must be a Layer, received: {type(output_layer)}")
        self._cell = cell
        self._helper = helper
        self._initial_state = initial_state
        self._output_layer = output_layer

    @property
    def batch_size(self) -> Any:
        return self._helper.batch_size

    @property
    def output_size(self) -> Any:
        size = _layer_output_size(self._cell, self._output_layer)
        return BasicDecoderOutput(size, self._helper.sample_ids_shape)

    @property
    def output_dtype(self) -> Any:
        dtype = nest.flatten(self._initial_state)[0].dtype
        outputs = nest.map_structure(lambda _: dtype, self.output_size.rnn_output)
        return BasicDecoderOutput(outputs, self._helper.sample_ids_dtype)

    def initialize(self, name: str | None = None) -> Any:
        return (*self._helper.initialize(), self._initial_state)

    def step(self, time: Any, inputs: Any, state: Any, name: str | None = None) -> Any:
        with name_scope(name, "BasicDecoderStep", [time, inputs, state]):
            outputs, cell_state = self._cell(inputs, state)
            if self._output_layer is not None:
                outputs = self._output_layer(outputs)
            ids = self._helper.sample(time=time, outputs=outputs, state=cell_state)
            finished, next_inputs, next_state = self._helper.next_inputs(
                time=time, outputs=outputs, state=cell_state, sample_ids=ids
            )
        return BasicDecoderOutput(outputs, ids), next_state, next_inputs, finished


@export("contrib.seq2seq.dynamic_decode")
def dynamic_decode(
    decoder: Any,
    output_time_major: bool = False,
    impute_finished: bool = False,
    maximum_iterations: Any = None,
    parallel_iterations: int = 32,
    swap_memory: bool = False,
    scope: Any = None,
    **kwargs: Any,
) -> Any:
    """Return (outputs, final_state, lengths) of a decoder's steps.

    impute_finished: emit zeros for sequences that have ended, and keep their last states.
    maximum_iterations: a limit on the number of steps. kwargs: for `decoder.initialize` and
    `decoder.step`.
    """
    if not isinstance(decoder, StepDecoder):
        raise TypeError(f"Expected decoder to be type Decoder, but saw: {type(decoder)}")
    with variable_scope(scope, "decoder"):
        if maximum_iterations is not None:
            maximum_iterations = convert_to_tensor(
                maximum_iterations, dtype=int32, name="maximum_iterations"
            )
            if maximum_iterations.shape.ndims != 0:
                raise ValueError("maximum_iterations must be a scalar")
        finished, inputs, state = decoder.initialize(**kwargs)
        batch = decoder.batch_size
        sizes, dtypes = decoder.output_size, decoder.output_dtype
        nothing = _map_sizes(partial(_zeros, batch), sizes, dtypes)
        if maximum_iterations is not None:
            finished = b.logical_or(finished, maximum_iterations <= 0)
        lengths = b.zeros_like(finished, dtype=int32)
        start = b.constant(0)
        known = constant_value(batch) if isinstance(batch, Tensor) else batch

        def array(size: Any, dtype: Any) -> Any:
            shape = TensorShape([None if known is None else int(known)])
            element = shape.concatenate(_static(size))
            return TensorArray(dtype, size=0, dynamic_size=True, element_shape=element)

        arrays = _map_sizes(array, sizes, dtypes)

        def step(
            time: Any, arrays: Any, state: Any, inputs: Any, finished: Any, lengths: Any
        ) -> tuple[Any, ...]:
            outputs, next_state, next_inputs, ended = decoder.step(time, inputs, state, **kwargs)
            if not decoder.tracks_own_finished:
                ended = b.logical_or(ended, finished)
            counted = b.where(b.logical_not(finished), b.fill(b.shape(lengths), time + 1), lengths)
            nest.assert_same_structure(state, next_state)
            nest.assert_same_structure(arrays, outputs)
            nest.assert_same_structure(inputs, next_inputs)
            emitted = outputs
            if impute_finished:
                emitted = nest.map_structure(
                    lambda out, zeros: b.where(finished, zeros, out), outputs, nothing
                )
                next_state = nest.map_structure(
                    lambda new, old: _kept(finished, new, old), next_state, state
                )
            arrays = nest.map_structure(lambda a, out: a.write(time, out), arrays, emitted)
            return time + 1, arrays, next_state, next_inputs, ended, counted

        _, arrays, state, _, _, lengths = b.while_loop(
            cond=lambda time, arrays, state, inputs, finished, lengths: b.logical_not(
                b.reduce_all(finished)
            ),
            body=step,
            loop_vars=(start, arrays, state, inputs, finished, lengths),
            parallel_iterations=parallel_iterations,
            maximum_iterations=maximum_iterations,
            swap_memory=swap_memory,
        )
        outputs = nest.map_structure(lambda a: a.stack(), arrays)
        with suppress(NotImplementedError):  # else they are as they should be
            outputs, state = decoder.finalize(outputs, state, lengths)
        if not output_time_major:
            outputs = nest.map_structure(transpose_batch_time, outputs)
    return outputs, state, lengths


def _static(size: Any) -> TensorShape:
    if isinstance(size, Tensor):
        known = constant_value(size)
        return TensorShape(None) if known is None else as_shape(known.tolist())
    return as_shape([size] if isinstance(size, int) else size)


def _zeros(batch: Any, size: Any, dtype: Any) -> Tensor:
    return zeros_of_sizes(as_shape(size) if isinstance(size, list) else size, batch, dtype)


def _map_sizes(function: Any, sizes: Any, dtypes: Any) -> Any:
    """Apply a function to sizes and dtypes, whose nest that of the dtypes is: a size may be a
    list.
    """
    flat = nest.flatten(dtypes)
    leaves = _size_leaves(sizes)
    made = [function(size, dtype) for size, dtype in zip(leaves, flat, strict=True)]
    return nest.pack_sequence_as(dtypes, made)


def _size_leaves(sizes: Any) -> list[Any]:
    if isinstance(sizes, tuple) and not isinstance(sizes, TensorShape):
        return [leaf for part in sizes for leaf in _size_leaves(part)]
    return [sizes]


def _kept(finished: Tensor, new: Any, old: Any) -> Any:
    """Return the old state of sequences that have ended. Scalars and arrays have no sequences."""
    if isinstance(new, TensorArray) or new.shape.ndims == 0:
        return new
    new.set_shape(old.shape)
    return b.where(finished, old, new)
