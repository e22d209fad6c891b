"""Beam search: the most likely sequences of ids, several at a time. In: a cell, an embedding, and a
state for each beam (tile_batch). Out: the best sequences, and the steps that lead to them.

Inside of the decoder, states have the shape [batch, beam, ...]; the cell sees [batch * beam, ...].
"""

from __future__ import annotations

from typing import Any, NamedTuple

from headrace._src.core import log, nest
from headrace._src.core.dtypes import bool as boolean
from headrace._src.core.dtypes import int32, int64
from headrace._src.core.export import export
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.graph.inference import constant_value
from headrace._src.graph.operation import Tensor
from headrace._src.layers.functional_loops import scan
from headrace._src.layers.layer import Layer
from headrace._src.layers.recurrent.cell import check_cell
from headrace._src.layers.recurrent.seq2seq.attention_wrapper import AttentionWrapperState
from headrace._src.layers.recurrent.seq2seq.decoding import StepDecoder
from headrace._src.layers.recurrent.seq2seq.helpers import embedder, next_or_zero
from headrace._src.ops.base.define import b
from headrace._src.ops.base.to_tensor import convert_to_tensor, name_scope
from headrace._src.ops.control.tensor_array import TensorArray

__all__ = ["BeamSearchDecoder", "gather_tree", "tile_batch"]


@export("contrib.seq2seq.BeamSearchDecoderState")
class BeamSearchDecoderState(NamedTuple):
    """The state of all beams."""

    cell_state: Any
    log_probs: Any
    finished: Any
    lengths: Any
    accumulated_attention_probs: Any


@export("contrib.seq2seq.BeamSearchDecoderOutput")
class BeamSearchDecoderOutput(NamedTuple):
    """What a step emits: scores, ids, and the beams that they continue."""

    scores: Any
    predicted_ids: Any
    parent_ids: Any


@export("contrib.seq2seq.FinalBeamSearchDecoderOutput")
class FinalBeamSearchDecoderOutput(NamedTuple):
    """The sequences, the best first, and what the steps emitted."""

    predicted_ids: Any
    beam_search_decoder_output: Any


@export("contrib.seq2seq.tile_batch")
def tile_batch(t: Any, multiplier: int, name: str | None = None) -> Any:
    """Repeat each row of the tensors of a nest, one row after the other."""

    def tiled(value: Any) -> Tensor:
        tensor = convert_to_tensor(value, name="t")
        if tensor.shape.ndims is None:
            raise ValueError("t must have statically known rank")
        static, shape = tensor.shape.as_list(), b.shape(tensor)
        rest = [1] * (len(static) - 1)
        repeated = b.tile(b.expand_dims(tensor, 1), [1, multiplier, *rest])
        result = b.reshape(repeated, b.concat([[shape[0] * multiplier], shape[1:]], 0))
        known = None if static[0] is None else static[0] * multiplier
        result.set_shape([known, *static[1:]])
        return result

    with name_scope(name, "tile_batch", [*nest.flatten(t), multiplier]):
        return nest.map_structure(tiled, t)


@export("contrib.seq2seq.gather_tree")
def gather_tree(
    step_ids: Any,
    parent_ids: Any,
    max_sequence_lengths: Any,
    end_token: Any,
    name: str | None = None,
) -> Tensor:
    """Return the sequences [time, batch, beam] that end in each beam: the ids of the last step, and
    of each earlier one those that the beam's parents had. After the first end token, and after the
    lengths [batch], all ids are end tokens.
    """
    with name_scope(name, "GatherTree", [step_ids, parent_ids]):
        ids = convert_to_tensor(step_ids, dtype=int32)
        parents = convert_to_tensor(parent_ids, dtype=int32)
        lengths = convert_to_tensor(max_sequence_lengths, dtype=int32)
        end = convert_to_tensor(end_token, dtype=int32)
        shape = b.shape(ids)
        rows = b.tile(b.expand_dims(b.range(shape[1]), 1), [1, shape[2]])
        start = b.tile(b.expand_dims(b.range(shape[2]), 0), [shape[1], 1])
        inside = b.expand_dims(lengths, 1) + b.zeros_like(start)

        def earlier(after: Any, step: Any) -> Any:
            beam, _ = after
            ids_here, parents_here, time = step
            places = b.stack([rows, beam], -1)
            is_inside = time < inside
            chosen = b.where(is_inside, b.gather_nd(ids_here, places), b.fill(b.shape(beam), end))
            return b.where(is_inside, b.gather_nd(parents_here, places), beam), chosen

        times = b.range(shape[0])
        _, found = scan(earlier, (ids, parents, times), (start, b.zeros_like(start)), reverse=True)
        ended = b.cumsum(b.cast(b.equal(found, end), int32), axis=0, exclusive=True) > 0
        result = b.where(ended, b.fill(shape, end), found)
        result.set_shape(ids.shape)
        return result


def _ordered_arrays(array: Tensor, parents: Tensor, lengths: Tensor) -> Tensor:
    """Return values [time, batch, beam, ...] in the order of the final sequences."""
    shape = b.shape(parents)
    times, batch, beams = shape[0], shape[1], shape[2]
    numbers = b.tile(b.reshape(b.range(beams), [1, 1, -1]), [times, batch, 1])
    inside = b.transpose(b.sequence_mask(lengths, maxlen=times), [2, 0, 1])
    beyond = beams + 1
    masked = b.where(inside, numbers, b.fill(shape, beyond))
    longest = b.cast(b.reduce_max(lengths, axis=1), int32)
    ordered = gather_tree(masked, parents, longest, beyond)
    ordered = b.where(inside, ordered, numbers)
    at_time = b.tile(b.reshape(b.range(times), [-1, 1, 1]), [1, batch, beams])
    at_row = b.tile(b.reshape(b.range(batch), [1, -1, 1]), [times, 1, beams])
    return b.gather_nd(array, b.stack([at_time, at_row, ordered], -1))


@export("contrib.seq2seq.BeamSearchDecoder")
class BeamSearchDecoder(StepDecoder):
    """Searches for the `beam_width` most likely sequences.

    initial_state: that of the cell, for batch * beam_width sequences (tile_batch).
    length_penalty_weight: 0 for none; larger values prefer longer sequences.
    coverage_penalty_weight: prefers sequences that attend to all of the memory.
    reorder_tensor_arrays: whether alignment histories are put in the order of the final sequences.
    """

    def __init__(
        self,
        cell: Any,
        embedding: Any,
        start_tokens: Any,
        end_token: Any,
        initial_state: Any,
        beam_width: int,
        output_layer: Any = None,
        length_penalty_weight: Any = 0.0,
        coverage_penalty_weight: Any = 0.0,
        reorder_tensor_arrays: bool = True,
    ) -> None:
        check_cell("cell", cell)
        if output_layer is not None and not isinstance(output_layer, Layer):
            raise TypeError(f"output_layer must be a Layer, received: {type(output_layer)}")
        self._cell = cell
        self._output_layer = output_layer
        self._reorders = reorder_tensor_arrays
        self._embedding_fn = embedder(embedding)
        tokens = convert_to_tensor(start_tokens, dtype=int32, name="start_tokens")
        if tokens.shape.ndims != 1:
            raise ValueError("start_tokens must be a vector")
        self._end_token = convert_to_tensor(end_token, dtype=int32, name="end_token")
        if self._end_token.shape.ndims != 0:
            raise ValueError("end_token must be a scalar")
        self._batch_size = b.size(tokens)
        self._beam_width = beam_width
        self._length_penalty_weight = length_penalty_weight
        self._coverage_penalty_weight = coverage_penalty_weight
        self._initial_cell_state = nest.map_structure(self._split, initial_state)
        tokens = b.tile(b.expand_dims(tokens, 1), [1, beam_width])
        self._start_inputs = self._embedding_fn(tokens)
        zeros = b.zeros([self._batch_size], int32)
        self._finished = b.one_hot(zeros, beam_width, on_value=False, off_value=True, dtype=boolean)

    @property
    def batch_size(self) -> Any:
        return self._batch_size

    @property
    def tracks_own_finished(self) -> bool:
        return True

    @property
    def output_size(self) -> Any:
        each = TensorShape([self._beam_width])
        return BeamSearchDecoderOutput(scores=each, predicted_ids=each, parent_ids=each)

    @property
    def output_dtype(self) -> Any:
        dtype = nest.flatten(self._initial_cell_state)[0].dtype
        return BeamSearchDecoderOutput(scores=dtype, predicted_ids=int32, parent_ids=int32)

    # -- Shapes ------------------------------------------------------------------------------------

    def _split(self, value: Any) -> Any:
        """Return [batch * beam, ...] as [batch, beam, ...]; other values as they are."""
        if isinstance(value, TensorArray) or value.shape.ndims == 0:
            return value
        if value.shape.ndims is None:
            raise ValueError(f"Expected tensor ({value}) to have known rank")
        rest = value.shape[1:]
        result = b.reshape(
            value, b.concat([[self._batch_size, self._beam_width], b.shape(value)[1:]], 0)
        )
        known = constant_value(self._batch_size)
        result.set_shape(
            TensorShape([None if known is None else int(known), self._beam_width]).concatenate(rest)
        )
        return result

    def _merge(self, value: Any) -> Any:
        """Return [batch, beam, ...] as [batch * beam, ...]; other values as they are."""
        if isinstance(value, TensorArray) or value.shape.ndims == 0:
            return value
        known = value.shape.as_list()[0]
        result = b.reshape(
            value,
            b.concat([[self._batch_size * self._beam_width], b.shape(value)[2:]], 0),
        )
        first = None if known is None else known * self._beam_width
        result.set_shape(TensorShape([first]).concatenate(value.shape[2:]))
        return result

    def _gather(self, value: Any, beams: Tensor) -> Any:
        """Return the values of the chosen beams [batch, beam]."""
        if isinstance(value, TensorArray) or value.shape.ndims == 0:
            return value
        rows = b.tile(b.expand_dims(b.range(self._batch_size), 1), [1, self._beam_width])
        result = b.gather_nd(value, b.stack([rows, beams], -1))
        result.set_shape(
            TensorShape([value.shape[0], self._beam_width]).concatenate(value.shape[2:])
        )
        return result

    # -- Steps -------------------------------------------------------------------------------------

    def initialize(self, name: str | None = None) -> Any:
        dtype = nest.flatten(self._initial_cell_state)[0].dtype
        log_probs = b.one_hot(
            b.zeros([self._batch_size], int32),
            self._beam_width,
            on_value=convert_to_tensor(0.0, dtype),
            off_value=convert_to_tensor(float("-inf"), dtype),
            dtype=dtype,
        )
        state = BeamSearchDecoderState(
            cell_state=self._initial_cell_state,
            log_probs=log_probs,
            finished=self._finished,
            lengths=b.zeros([self._batch_size, self._beam_width], int64),
            accumulated_attention_probs=self._no_attention(),
        )
        return self._finished, self._start_inputs, state

    def _no_attention(self) -> Any:
        if constant_value(convert_to_tensor(self._coverage_penalty_weight)) == 0.0:
            return ()
        found = _attention_probabilities(self._initial_cell_state)
        if found is None:
            raise ValueError("No attention mechanism is used for coverage penalty")
        return b.zeros_like(found)

    def step(self, time: Any, inputs: Any, state: Any, name: str | None = None) -> Any:
        with name_scope(name, "BeamSearchDecoderStep", [time, inputs, state]):
            merged = nest.map_structure(self._merge, inputs)
            cell_state = nest.map_structure(self._merge, state.cell_state)
            outputs, next_cell_state = self._cell(merged, cell_state)
            if self._output_layer is not None:
                outputs = self._output_layer(outputs)
            outputs = nest.map_structure(self._split, outputs)
            next_cell_state = nest.map_structure(self._split, next_cell_state)
            emitted, next_state = self._search(outputs, next_cell_state, state)
            ids = emitted.predicted_ids
            next_inputs = next_or_zero(
                next_state.finished, self._start_inputs, lambda: self._embedding_fn(ids)
            )
        return emitted, next_state, next_inputs, next_state.finished

    def _search(self, logits: Tensor, cell_state: Any, state: Any) -> tuple[Any, Any]:
        """Return the best continuations of all beams, and the state after them."""
        batch, width = self._batch_size, self._beam_width
        finished, lengths = state.finished, state.lengths
        classes = logits.shape.as_list()[-1]
        classes = b.shape(logits)[-1] if classes is None else classes
        log_probs = self._only_ends(b.log_softmax(logits), finished, classes)
        total = b.expand_dims(state.log_probs, 2) + log_probs
        ends = b.fill([batch, width], self._end_token)
        longer = b.one_hot(
            ends, classes, on_value=b.constant(0, int64), off_value=b.constant(1, int64)
        )
        going = b.expand_dims(b.cast(b.logical_not(finished), int64), 2)
        new_lengths = going * longer + b.expand_dims(lengths, 2)
        attended = state.accumulated_attention_probs
        if not isinstance(attended, tuple):
            now = _attention_probabilities(cell_state)
            still = b.expand_dims(b.logical_not(finished), 2)
            attended = attended + b.where(
                b.logical_and(still, b.ones_like(now, dtype=boolean)), now, b.zeros_like(now)
            )
        scores = self._scores(total, new_lengths, attended, finished)
        flat = b.reshape(scores, [batch, -1])
        best, places = b.top_k(flat, k=width)
        flat_total = b.reshape(total, [batch, -1])
        rows = b.tile(b.expand_dims(b.range(batch), 1), [1, width])
        chosen_log_probs = b.gather_nd(flat_total, b.stack([rows, places], -1))
        words = b.floormod(places, classes)
        beams = b.floordiv(places, classes)
        best.set_shape([None, width])
        chosen_log_probs.set_shape(state.log_probs.shape)
        was_finished = self._gather(finished, beams)
        next_finished = b.logical_or(was_finished, b.equal(words, self._end_token))
        added = b.cast(b.logical_not(was_finished), int64)
        next_lengths = self._gather(lengths, beams) + added
        next_attended = attended
        if not isinstance(attended, tuple):
            next_attended = self._gather(attended, beams)
        next_state = BeamSearchDecoderState(
            cell_state=nest.map_structure(lambda v: self._gather(v, beams), cell_state),
            log_probs=chosen_log_probs,
            lengths=next_lengths,
            finished=next_finished,
            accumulated_attention_probs=next_attended,
        )
        emitted = BeamSearchDecoderOutput(scores=best, predicted_ids=words, parent_ids=beams)
        return emitted, next_state

    def _only_ends(self, log_probs: Tensor, finished: Tensor, classes: Any) -> Tensor:
        """Let a beam that has ended continue only with the end token, for free."""
        ended = b.one_hot(
            self._end_token,
            classes,
            dtype=log_probs.dtype,
            on_value=convert_to_tensor(0.0, log_probs.dtype),
            off_value=convert_to_tensor(log_probs.dtype.min, log_probs.dtype),
        )
        rows = b.ones_like(log_probs) * ended
        mask = b.logical_and(b.expand_dims(finished, 2), b.ones_like(rows, dtype=boolean))
        return b.where(mask, rows, log_probs)

    def _scores(self, total: Tensor, lengths: Tensor, attended: Any, finished: Tensor) -> Tensor:
        weight = convert_to_tensor(self._length_penalty_weight, name="length_penalty_weight")
        if constant_value(weight) == 0.0:
            scores = total
        else:
            weight = b.cast(weight, total.dtype)
            six = convert_to_tensor(6.0, total.dtype)
            scores = total / ((5.0 + b.cast(lengths, total.dtype)) ** weight / six**weight)
        if isinstance(attended, tuple):
            return scores
        # What is beyond the memory's end is never attended to, and doesn't count.
        counted = b.where(b.equal(attended, 0.0), b.ones_like(attended), attended)
        penalty = b.reduce_sum(b.log(b.minimum(counted, b.ones_like(counted))), 2)
        penalty = penalty * b.cast(finished, penalty.dtype)  # of sequences that have ended
        weight = convert_to_tensor(self._coverage_penalty_weight, total.dtype)
        return scores + b.expand_dims(penalty, 2) * weight

    def finalize(self, outputs: Any, final_state: Any, sequence_lengths: Any) -> Any:
        """Return the sequences that the beams lead to."""
        longest = b.cast(b.reduce_max(final_state.lengths, axis=1), int32)
        ids = gather_tree(outputs.predicted_ids, outputs.parent_ids, longest, self._end_token)
        if self._reorders:

            def ordered(value: Any) -> Any:
                if not isinstance(value, TensorArray) or not self._is_ordered(value):
                    return value
                stacked = value.stack()
                shape = b.shape(stacked)
                split = b.reshape(
                    stacked,
                    b.concat([[shape[0], self._batch_size, self._beam_width], shape[2:]], 0),
                )
                found = _ordered_arrays(split, outputs.parent_ids, final_state.lengths)
                return b.reshape(found, shape)

            state = nest.map_structure(ordered, final_state.cell_state)
            final_state = final_state._replace(cell_state=state)
        return FinalBeamSearchDecoderOutput(ids, outputs), final_state

    def _is_ordered(self, array: Any) -> bool:
        """Whether an array's values are put in order: as in TensorFlow, only if their second
        dimension isn't known statically.
        """
        sizes = array.element_shape.sizes
        batch = constant_value(self._batch_size)
        if sizes is None or not sizes or sizes[0] is None or batch is None:
            return True
        if sizes[0] == int(batch) * self._beam_width and (len(sizes) == 1 or sizes[1] is None):
            return True
        log.warning(
            "TensorArray reordering expects elements to be reshapable to (%s, %s, ?) which is "
            "incompatible with the current shape %s. Consider setting reorder_tensor_arrays to "
            "False to disable TensorArray reordering during the beam search.",
            int(batch),
            self._beam_width,
            array.element_shape,
        )
        return False


def _attention_probabilities(state: Any) -> Tensor | None:
    """Return the mean alignments of the AttentionWrapperStates in a state, None if there are
    none.
    """
    found: list[Any] = []

    def visit(part: Any) -> None:
        if isinstance(part, AttentionWrapperState):
            listed = part.alignments if isinstance(part.alignments, tuple) else (part.alignments,)
            found.extend(listed)
        elif isinstance(part, tuple | list):
            for inner in part:
                visit(inner)

    visit(state)
    if not found:
        return None
    return found[0] if len(found) == 1 else b.reduce_mean(b.stack(found), 0)
