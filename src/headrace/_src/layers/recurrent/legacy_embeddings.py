"""Encoders and decoders of ids in tf.contrib.legacy_seq2seq, over lists with a tensor per step;
and models with buckets of lengths.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from headrace._src.core import nest
from headrace._src.core.dtypes import float32
from headrace._src.core.export import export
from headrace._src.layers.recurrent.cell import RNNCell
from headrace._src.layers.recurrent.legacy_decoders import Outputs, rnn_decoder, tied_rnn_seq2seq
from headrace._src.layers.recurrent.projections import EmbeddingWrapper, OutputProjectionWrapper
from headrace._src.layers.recurrent.static import static_rnn
from headrace._src.layers.sequence_losses import (
    legacy_sequence_loss,
    sequence_loss_by_example,
)
from headrace._src.ops.base.define import b
from headrace._src.ops.base.to_tensor import convert_to_tensor, name_scope
from headrace._src.ops.control.cond import cond
from headrace._src.ops.nn.embedding import embedding_lookup
from headrace._src.variables.lookup import get_variable
from headrace._src.variables.scope import get_variable_scope, variable_scope

__all__ = ["either", "embedded_argmax", "encoder_of", "with_projection"]


def embedded_argmax(embedding: Any, projection: Any, updates: bool = True) -> Any:
    """Return a loop function that embeds the most likely id of the last output. updates: whether
    gradients flow into the embedding through it.
    """

    def following(before: Any, _: int) -> Any:
        if projection is not None:
            before = b.xw_plus_b(before, projection[0], projection[1])
        embedded = embedding_lookup(embedding, b.argmax(before, 1))
        return embedded if updates else b.stop_gradient(embedded)

    return following


def encoder_of(cell: Any, symbols: int, size: int) -> Any:
    """Return a cell that reads ids."""
    return EmbeddingWrapper(cell, embedding_classes=symbols, embedding_size=size)


def with_projection(cell: Any, projection: Any, symbols: int) -> Any:
    """Return a cell that emits logits, unless a projection is given."""
    return OutputProjectionWrapper(cell, symbols) if projection is None else cell


def either(feed_previous: Any, decode: Callable[[bool], Outputs], state: Any) -> Outputs:
    """Return the decoder's result with or without feeding its outputs; a tensor is asked when the
    graph runs.
    """
    if isinstance(feed_previous, bool):
        return decode(feed_previous)

    def branch(feeds: bool) -> list[Any]:
        with variable_scope(get_variable_scope(), reuse=None if feeds else True):
            outputs, last = decode(feeds)
            return [*outputs, *nest.flatten(last)]

    found = cond(feed_previous, lambda: branch(True), lambda: branch(False))
    count = len(found) - len(nest.flatten(state))
    return found[:count], nest.pack_sequence_as(state, found[count:])


def _check_projection(projection: Any, size: int, symbols: int) -> None:
    if projection is not None:
        weights = convert_to_tensor(projection[0], dtype=float32)
        biases = convert_to_tensor(projection[1], dtype=float32)
        weights.shape.assert_is_compatible_with([size, symbols])
        biases.shape.assert_is_compatible_with([symbols])


@export("contrib.legacy_seq2seq.embedding_rnn_decoder")
def embedding_rnn_decoder(
    decoder_inputs: Sequence[Any],
    initial_state: Any,
    cell: RNNCell,
    num_symbols: int,
    embedding_size: int,
    output_projection: Any = None,
    feed_previous: bool = False,
    update_embedding_for_previous: bool = True,
    scope: Any = None,
) -> Outputs:
    """Embed ids, and return the result of rnn_decoder.

    feed_previous: whether each step's input is the embedding of the last step's most likely id.
    output_projection: weights and biases that make logits of outputs.
    """
    with variable_scope(scope or "embedding_rnn_decoder") as opened:
        if output_projection is not None:
            biases = convert_to_tensor(output_projection[1], dtype=opened.dtype)
            biases.shape.assert_is_compatible_with([num_symbols])
        embedding = get_variable("embedding", [num_symbols, embedding_size])
        loop_function = None
        if feed_previous:
            loop_function = embedded_argmax(
                embedding, output_projection, update_embedding_for_previous
            )
        inputs = [embedding_lookup(embedding, ids) for ids in decoder_inputs]
        return rnn_decoder(inputs, initial_state, cell, loop_function=loop_function)


@export("contrib.legacy_seq2seq.embedding_rnn_seq2seq")
def embedding_rnn_seq2seq(
    encoder_inputs: Sequence[Any],
    decoder_inputs: Sequence[Any],
    cell: RNNCell,
    num_encoder_symbols: int,
    num_decoder_symbols: int,
    embedding_size: int,
    output_projection: Any = None,
    feed_previous: Any = False,
    dtype: Any = None,
    scope: Any = None,
) -> Outputs:
    """Return the outputs and the last state of a decoder that starts from an encoder's last state;
    both read ids. feed_previous: a bool, or a tensor of one.
    """
    with variable_scope(scope or "embedding_rnn_seq2seq", dtype=dtype) as opened:
        encoder = encoder_of(copy.deepcopy(cell), num_encoder_symbols, embedding_size)
        _, state = static_rnn(encoder, encoder_inputs, dtype=opened.dtype)
        cell = with_projection(cell, output_projection, num_decoder_symbols)

        def decode(feeds: bool) -> Outputs:
            return embedding_rnn_decoder(
                decoder_inputs,
                state,
                cell,
                num_decoder_symbols,
                embedding_size,
                output_projection=output_projection,
                feed_previous=feeds,
                update_embedding_for_previous=isinstance(feed_previous, bool),
            )

        return either(feed_previous, decode, state)


@export("contrib.legacy_seq2seq.embedding_tied_rnn_seq2seq")
def embedding_tied_rnn_seq2seq(
    encoder_inputs: Sequence[Any],
    decoder_inputs: Sequence[Any],
    cell: RNNCell,
    num_symbols: int,
    embedding_size: int,
    num_decoder_symbols: int | None = None,
    output_projection: Any = None,
    feed_previous: Any = False,
    dtype: Any = None,
    scope: Any = None,
) -> Outputs:
    """As embedding_rnn_seq2seq; encoder and decoder share the embedding and the cell's weights."""
    with variable_scope(scope or "embedding_tied_rnn_seq2seq", dtype=dtype) as opened:
        _check_projection(output_projection, cell.output_size, num_decoder_symbols or num_symbols)
        embedding = get_variable("embedding", [num_symbols, embedding_size], opened.dtype)
        encoded = [embedding_lookup(embedding, ids) for ids in encoder_inputs]
        inputs = [embedding_lookup(embedding, ids) for ids in decoder_inputs]
        cell = with_projection(cell, output_projection, num_decoder_symbols or num_symbols)
        updates = isinstance(feed_previous, bool)

        def decode(feeds: bool) -> Outputs:
            loop = embedded_argmax(embedding, output_projection, updates) if feeds else None
            return tied_rnn_seq2seq(encoded, inputs, cell, loop_function=loop, dtype=opened.dtype)

        return either(feed_previous, decode, cell.zero_state(1, opened.dtype))


@export("contrib.legacy_seq2seq.one2many_rnn_seq2seq")
def one2many_rnn_seq2seq(
    encoder_inputs: Sequence[Any],
    decoder_inputs_dict: Mapping[str, Sequence[Any]],
    enc_cell: RNNCell,
    dec_cells_dict: Mapping[str, RNNCell],
    num_encoder_symbols: int,
    num_decoder_symbols_dict: Mapping[str, int],
    embedding_size: int,
    feed_previous: Any = False,
    dtype: Any = None,
    scope: Any = None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the outputs and the last states of several decoders of one encoder's last state."""
    outputs, states = {}, {}
    with variable_scope(scope or "one2many_rnn_seq2seq", dtype=dtype) as opened:
        encoder = encoder_of(enc_cell, num_encoder_symbols, embedding_size)
        _, state = static_rnn(encoder, encoder_inputs, dtype=opened.dtype)
        for name, inputs in decoder_inputs_dict.items():
            symbols = num_decoder_symbols_dict[name]
            with variable_scope(f"one2many_decoder_{name}"):
                cell = OutputProjectionWrapper(dec_cells_dict[name], symbols)

                def decode(
                    feeds: bool, inputs: Any = inputs, cell: Any = cell, symbols: int = symbols
                ) -> Outputs:
                    return embedding_rnn_decoder(
                        inputs, state, cell, symbols, embedding_size, feed_previous=feeds
                    )

                outputs[name], states[name] = either(feed_previous, decode, state)
    return outputs, states


@export("contrib.legacy_seq2seq.model_with_buckets")
def model_with_buckets(
    encoder_inputs: Sequence[Any],
    decoder_inputs: Sequence[Any],
    targets: Sequence[Any],
    weights: Sequence[Any],
    buckets: Sequence[tuple[int, int]],
    seq2seq: Callable[[Any, Any], Any],
    softmax_loss_function: Callable[..., Any] | None = None,
    per_example_loss: bool = False,
    name: str | None = None,
) -> tuple[list[Any], list[Any]]:
    """Return the outputs and the loss of each bucket: `seq2seq` applied to the first inputs, of the
    two lengths that the bucket gives.
    """
    for title, given, least in (
        ("encoder_inputs", encoder_inputs, buckets[-1][0]),
        ("targets", targets, buckets[-1][1]),
        ("weights", weights, buckets[-1][1]),
    ):
        if len(given) < least:
            raise ValueError(
                f"Length of {title} ({len(given)}) must be at least that of last bucket ({least})."
            )
    outputs, losses = [], []
    loss = sequence_loss_by_example if per_example_loss else legacy_sequence_loss
    given = [*encoder_inputs, *decoder_inputs, *targets, *weights]
    with name_scope(name, "model_with_buckets", given):
        for j, (encoded, decoded) in enumerate(buckets):
            with variable_scope(get_variable_scope(), reuse=True if j > 0 else None):
                found, _ = seq2seq(encoder_inputs[:encoded], decoder_inputs[:decoded])
                outputs.append(found)
                losses.append(
                    loss(
                        found,
                        targets[:decoded],
                        weights[:decoded],
                        softmax_loss_function=softmax_loss_function,
                    )
                )
    return outputs, losses
