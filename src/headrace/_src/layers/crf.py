"""Linear-chain conditional random fields: tf.contrib.crf. In: scores of tags [batch, time, tags],
transition scores between tags, and lengths. Out: likelihoods of tag sequences, and the best one.

The recursions over time are recurrent networks: the forward and the Viterbi algorithm are cells.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace._src.core.dtypes import int32
from headrace._src.core.export import export
from headrace._src.graph.operation import Tensor
from headrace._src.layers.recurrent.cell import RNNCell
from headrace._src.layers.recurrent.dynamic import dynamic_rnn
from headrace._src.ops.base.define import b
from headrace._src.ops.base.to_tensor import convert_to_tensor
from headrace._src.variables.lookup import get_variable

__all__ = ["crf_decode", "crf_log_likelihood", "crf_log_norm", "crf_sequence_score"]

_NEVER = float("-inf")


# -- Scores of a tagging ---------------------------------------------------------------------------


@export("contrib.crf.crf_sequence_score")
def crf_sequence_score(
    inputs: Any, tag_indices: Any, sequence_lengths: Any, transition_params: Any
) -> Tensor:
    """Return the score of the tags [batch, time]: the sum of tag scores and transition scores."""
    return crf_unary_score(tag_indices, sequence_lengths, inputs) + crf_binary_score(
        tag_indices, sequence_lengths, transition_params
    )


@export("contrib.crf.crf_unary_score")
def crf_unary_score(tag_indices: Any, sequence_lengths: Any, inputs: Any) -> Tensor:
    """Return the sum of the scores of the tags [batch, time], without transitions."""
    inputs, tags = convert_to_tensor(inputs), convert_to_tensor(tag_indices)
    chosen = b.one_hot(tags, b.shape(inputs)[2], dtype=inputs.dtype)
    scores = b.reduce_sum(inputs * chosen, axis=2)
    mask = b.sequence_mask(sequence_lengths, maxlen=b.shape(tags)[1])
    return b.reduce_sum(b.where(mask, scores, b.zeros_like(scores)), axis=1)


@export("contrib.crf.crf_binary_score")
def crf_binary_score(tag_indices: Any, sequence_lengths: Any, transition_params: Any) -> Tensor:
    """Return the sum of the scores of the transitions between tags."""
    tags, transitions = convert_to_tensor(tag_indices), convert_to_tensor(transition_params)
    tags = b.cast(tags, int32)
    pairs = tags[:, :-1] * b.shape(transitions)[0] + tags[:, 1:]
    scores = b.gather(b.reshape(transitions, [-1]), pairs)
    lengths = b.maximum(convert_to_tensor(sequence_lengths) - 1, 0)
    mask = b.sequence_mask(lengths, maxlen=b.shape(pairs)[1], dtype=scores.dtype)
    return b.reduce_sum(scores * mask, axis=1)


@export("contrib.crf.crf_multitag_sequence_score")
def crf_multitag_sequence_score(
    inputs: Any, tag_bitmap: Any, sequence_lengths: Any, transition_params: Any
) -> Tensor:
    """Return the log-sum-exp of the scores of all tag sequences whose tags are True in a bitmap
    [batch, time, tags].
    """
    inputs = convert_to_tensor(inputs)
    never = b.fill(b.shape(inputs), convert_to_tensor(_NEVER, dtype=inputs.dtype))
    return crf_log_norm(b.where(tag_bitmap, inputs, never), sequence_lengths, transition_params)


# -- All taggings together -------------------------------------------------------------------------


@export("contrib.crf.crf_log_norm")
def crf_log_norm(inputs: Any, sequence_lengths: Any, transition_params: Any) -> Tensor:
    """Return the log-sum-exp of the scores of all tag sequences."""
    inputs, lengths = convert_to_tensor(inputs), convert_to_tensor(sequence_lengths)
    _, alphas = dynamic_rnn(
        CrfForwardRnnCell(transition_params),
        inputs[:, 1:],
        sequence_length=b.maximum(lengths - 1, 0),
        initial_state=inputs[:, 0],
        dtype=inputs.dtype,
    )
    norms = b.reduce_logsumexp(alphas, axis=[1])
    return b.where(b.less_equal(lengths, 0), b.zeros_like(norms), norms)


@export("contrib.crf.crf_log_likelihood")
def crf_log_likelihood(
    inputs: Any, tag_indices: Any, sequence_lengths: Any, transition_params: Any = None
) -> tuple[Tensor, Any]:
    """Return the log likelihood of the tags of each sequence, and the transitions' scores, which
    are the variable `transitions` unless they are given.
    """
    inputs = convert_to_tensor(inputs)
    if transition_params is None:
        tags = inputs.shape[2].value
        transition_params = get_variable("transitions", [tags, tags])
    score = crf_sequence_score(inputs, tag_indices, sequence_lengths, transition_params)
    return score - crf_log_norm(inputs, sequence_lengths, transition_params), transition_params


@export("contrib.crf.CrfForwardRnnCell")
class CrfForwardRnnCell(RNNCell):
    """A step of the forward algorithm: the state is the log-sum-exp over all tag sequences so far,
    by their last tag.
    """

    def __init__(self, transition_params: Any) -> None:
        super().__init__()
        transitions = convert_to_tensor(transition_params)
        self._transition_params = b.expand_dims(transitions, 0)
        self._num_tags = transitions.shape[0].value

    @property
    def state_size(self) -> Any:
        return self._num_tags

    @property
    def output_size(self) -> Any:
        return self._num_tags

    def __call__(self, inputs: Any, state: Any, scope: Any = None) -> Any:
        scores = b.expand_dims(state, 2) + self._transition_params
        alphas = inputs + b.reduce_logsumexp(scores, [1])
        return alphas, alphas


# -- The best tagging ------------------------------------------------------------------------------


@export("contrib.crf.crf_decode")
def crf_decode(
    potentials: Any, transition_params: Any, sequence_length: Any
) -> tuple[Tensor, Tensor]:
    """Return the best tags [batch, time], zeros after a sequence's end, and their scores."""
    potentials, lengths = convert_to_tensor(potentials), convert_to_tensor(sequence_length)
    transitions = convert_to_tensor(transition_params)
    steps = b.maximum(lengths - 1, 0)
    pointers, scores = dynamic_rnn(
        CrfDecodeForwardRnnCell(transitions),
        potentials[:, 1:],
        sequence_length=steps,
        initial_state=potentials[:, 0],
        dtype=int32,  # of the outputs
    )
    last = b.expand_dims(b.cast(b.argmax(scores, axis=1), int32), -1)
    backwards, _ = dynamic_rnn(
        CrfDecodeBackwardRnnCell(transitions.shape[0].value),
        b.reverse_sequence(pointers, steps, seq_axis=1),
        sequence_length=steps,
        initial_state=last,
        dtype=int32,
    )
    # From the last tag to the first, then reversed.
    tags = b.concat([last, b.squeeze(backwards, [2])], axis=1)
    tags = b.reverse_sequence(tags, b.maximum(lengths, 1), seq_axis=1)
    return tags, b.reduce_max(scores, axis=1)


@export("contrib.crf.CrfDecodeForwardRnnCell")
class CrfDecodeForwardRnnCell(RNNCell):
    """A step of the Viterbi algorithm: the state is the score of the best tag sequence so far, by
    its last tag; the output is the tag before that.
    """

    def __init__(self, transition_params: Any) -> None:
        super().__init__()
        transitions = convert_to_tensor(transition_params)
        self._transition_params = b.expand_dims(transitions, 0)
        self._num_tags = transitions.shape[0].value

    @property
    def state_size(self) -> Any:
        return self._num_tags

    @property
    def output_size(self) -> Any:
        return self._num_tags

    def __call__(self, inputs: Any, state: Any, scope: Any = None) -> Any:
        scores = b.expand_dims(state, 2) + self._transition_params
        new_state = inputs + b.reduce_max(scores, [1])
        return b.cast(b.argmax(scores, 1), int32), new_state


@export("contrib.crf.CrfDecodeBackwardRnnCell")
class CrfDecodeBackwardRnnCell(RNNCell):
    """A backward step: from a tag to the one before it, using the outputs of the forward steps."""

    def __init__(self, num_tags: int | None) -> None:
        super().__init__()
        self._num_tags = num_tags

    @property
    def state_size(self) -> Any:
        return 1

    @property
    def output_size(self) -> Any:
        return 1

    def __call__(self, inputs: Any, state: Any, scope: Any = None) -> Any:
        rows = b.range(b.shape(inputs)[0])
        places = b.stack([rows, b.squeeze(state, [1])], axis=1)
        before = b.expand_dims(b.gather_nd(inputs, places), -1)
        return before, before


@export("contrib.crf.viterbi_decode")
def viterbi_decode(score: Any, transition_params: Any) -> tuple[list[int], Any]:
    """Return the best tags of one sequence, and their score, of NumPy arrays."""
    score, transitions = np.asarray(score), np.asarray(transition_params)
    best, before = score[0], []
    for step in score[1:]:
        through = best[:, None] + transitions
        before.append(through.argmax(0))
        best = step + through.max(0)
    tags = [int(best.argmax())]
    for pointers in reversed(before):
        tags.append(int(pointers[tags[-1]]))
    return tags[::-1], best.max()
