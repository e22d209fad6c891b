"""Attention in tf.contrib.legacy_seq2seq: decoders over lists of tensors that look at the encoder's
outputs after each step.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

from headrace._src.core import nest
from headrace._src.core.export import export
from headrace._src.layers.recurrent.cell import RNNCell
from headrace._src.layers.recurrent.legacy_decoders import Outputs
from headrace._src.layers.recurrent.legacy_embeddings import (
    either,
    embedded_argmax,
    encoder_of,
    with_projection,
)
from headrace._src.layers.recurrent.projections import Linear
from headrace._src.layers.recurrent.static import static_rnn
from headrace._src.ops.base.define import b
from headrace._src.ops.nn.embedding import embedding_lookup
from headrace._src.variables.lookup import get_variable
from headrace._src.variables.scope import get_variable_scope, variable_scope

__all__ = ["attention_decoder", "embedding_attention_decoder", "embedding_attention_seq2seq"]


class _Attention:
    """Attention to states [batch, length, size] by `num_heads` additive heads, whose variables are
    in the scope that it's made in.
    """

    def __init__(self, states: Any, num_heads: int) -> None:
        sizes = states.shape.as_list()
        if sizes[2] is None:
            raise ValueError(f"Shape[2] of attention_states must be known: {states.shape}")
        self._size = size = sizes[2]
        self._length = b.shape(states)[1] if sizes[1] is None else sizes[1]
        self._batch = b.shape(states)[0]
        self._hidden = b.reshape(states, [-1, self._length, 1, size])
        self._heads = []
        for head in range(num_heads):
            kernel = get_variable(f"AttnW_{head}", [1, 1, size, size], dtype=states.dtype)
            features = b.conv2d(self._hidden, kernel, [1, 1, 1, 1], "SAME")
            self._heads.append((features, get_variable(f"AttnV_{head}", [size], states.dtype)))

    def none(self, dtype: Any) -> list[Any]:
        """Return zeros for each head, before the first step."""
        made = [b.zeros(b.stack([self._batch, self._size]), dtype=dtype) for _ in self._heads]
        for attention in made:
            attention.set_shape([None, self._size])
        return made

    def __call__(self, query: Any) -> list[Any]:
        """Return for each head the weighted sum of the states."""
        found = []
        if nest.is_nested(query):
            query = b.concat(nest.flatten(query), 1)
        for head, (features, v) in enumerate(self._heads):
            with variable_scope(f"Attention_{head}"):
                y = Linear([query], self._size)([query])
                y = b.cast(b.reshape(y, [-1, 1, 1, self._size]), features.dtype)
                weights = b.softmax(b.reduce_sum(v * b.tanh(features + y), [2, 3]))
                weights = b.reshape(weights, [-1, self._length, 1, 1])
                context = b.reduce_sum(weights * self._hidden, [1, 2])
                found.append(b.reshape(context, [-1, self._size]))
        return found


@export("contrib.legacy_seq2seq.attention_decoder")
def attention_decoder(
    decoder_inputs: Sequence[Any],
    initial_state: Any,
    attention_states: Any,
    cell: RNNCell,
    output_size: int | None = None,
    num_heads: int = 1,
    loop_function: Callable[[Any, int], Any] | None = None,
    dtype: Any = None,
    scope: Any = None,
    initial_state_attention: bool = False,
) -> Outputs:
    """Return the outputs of a cell with attention, one per input, and its last state.

    attention_states: [batch, length, size]. initial_state_attention: whether the first step begins
    with the attention of the initial state, else with zeros. loop_function: see rnn_decoder.
    """
    if not decoder_inputs:
        raise ValueError("Must provide at least 1 input to attention decoder.")
    if num_heads < 1:
        raise ValueError("With less than 1 heads, use a non-attention decoder.")
    with variable_scope(scope or "attention_decoder", dtype=dtype) as opened:
        size = cell.output_size if output_size is None else output_size
        attention = _Attention(attention_states, num_heads)
        state, outputs, before = initial_state, [], None
        attended = attention.none(opened.dtype)
        if initial_state_attention:
            attended = attention(initial_state)
        for i, given in enumerate(decoder_inputs):
            if i > 0:
                get_variable_scope().reuse_variables()
            if loop_function is not None and before is not None:
                with variable_scope("loop_function", reuse=True):
                    given = loop_function(before, i)
            depth = given.shape.with_rank(2).as_list()[1]
            if depth is None:
                raise ValueError(f"Could not infer input size from input: {given.name}")
            joined = [given, *attended]
            output, state = cell(Linear(joined, depth)(joined), state)
            reuses = True if i == 0 and initial_state_attention else None
            with variable_scope(get_variable_scope(), reuse=reuses):
                attended = attention(state)
            with variable_scope("AttnOutputProjection"):
                joined = [b.cast(output, opened.dtype), *attended]
                output = Linear(joined, size)(joined)
            if loop_function is not None:
                before = output
            outputs.append(output)
    return outputs, state


@export("contrib.legacy_seq2seq.embedding_attention_decoder")
def embedding_attention_decoder(
    decoder_inputs: Sequence[Any],
    initial_state: Any,
    attention_states: Any,
    cell: RNNCell,
    num_symbols: int,
    embedding_size: int,
    num_heads: int = 1,
    output_size: int | None = None,
    output_projection: Any = None,
    feed_previous: bool = False,
    update_embedding_for_previous: bool = True,
    dtype: Any = None,
    scope: Any = None,
    initial_state_attention: bool = False,
) -> Outputs:
    """Embed ids, and return the result of attention_decoder.

    feed_previous: whether each step's input is the embedding of the last step's most likely id.
    output_projection: weights and biases that make logits of outputs.
    """
    if output_size is None:
        output_size = cell.output_size
    with variable_scope(scope or "embedding_attention_decoder", dtype=dtype):
        embedding = get_variable("embedding", [num_symbols, embedding_size])
        loop_function = None
        if feed_previous:
            loop_function = embedded_argmax(
                embedding, output_projection, update_embedding_for_previous
            )
        return attention_decoder(
            [embedding_lookup(embedding, ids) for ids in decoder_inputs],
            initial_state,
            attention_states,
            cell,
            output_size=output_size,
            num_heads=num_heads,
            loop_function=loop_function,
            initial_state_attention=initial_state_attention,
        )


@export("contrib.legacy_seq2seq.embedding_attention_seq2seq")
def embedding_attention_seq2seq(
    encoder_inputs: Sequence[Any],
    decoder_inputs: Sequence[Any],
    cell: RNNCell,
    num_encoder_symbols: int,
    num_decoder_symbols: int,
    embedding_size: int,
    num_heads: int = 1,
    output_projection: Any = None,
    feed_previous: Any = False,
    dtype: Any = None,
    scope: Any = None,
    initial_state_attention: bool = False,
) -> Outputs:
    """Return the outputs and the last state of a decoder with attention to an encoder's outputs;
    both read ids. feed_previous: a bool, or a tensor of one.
    """
    with variable_scope(scope or "embedding_attention_seq2seq", dtype=dtype) as opened:
        encoder = encoder_of(copy.deepcopy(cell), num_encoder_symbols, embedding_size)
        encoded, state = static_rnn(encoder, encoder_inputs, dtype=opened.dtype)
        steps = [b.reshape(output, [-1, 1, cell.output_size]) for output in encoded]
        attention_states = b.concat(steps, 1)
        output_size = None if output_projection is not None else num_decoder_symbols
        cell = with_projection(cell, output_projection, num_decoder_symbols)

        def decode(feeds: bool) -> Outputs:
            return embedding_attention_decoder(
                decoder_inputs,
                state,
                attention_states,
                cell,
                num_decoder_symbols,
                embedding_size,
                num_heads=num_heads,
                output_size=output_size,
                output_projection=output_projection,
                feed_previous=feeds,
                update_embedding_for_previous=isinstance(feed_previous, bool),
                initial_state_attention=initial_state_attention,
            )

        return either(feed_previous, decode, state)
