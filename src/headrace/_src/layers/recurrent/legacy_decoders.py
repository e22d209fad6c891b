"""Decoders of tf.contrib.legacy_seq2seq: recurrent networks over lists of tensors, one per time
step, whose own outputs may be their next inputs.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

from headrace._src.core.dtypes import float32
from headrace._src.core.export import export
from headrace._src.layers.recurrent.cell import RNNCell
from headrace._src.layers.recurrent.static import static_rnn
from headrace._src.variables.scope import get_variable_scope, variable_scope

__all__ = ["basic_rnn_seq2seq", "rnn_decoder", "tied_rnn_seq2seq"]

Outputs = tuple[list[Any], Any]


@export("contrib.legacy_seq2seq.rnn_decoder")
def rnn_decoder(
    decoder_inputs: Sequence[Any],
    initial_state: Any,
    cell: RNNCell,
    loop_function: Callable[[Any, int], Any] | None = None,
    scope: Any = None,
) -> Outputs:
    """Return the outputs of a cell, one per input, and its last state.

    loop_function: makes the next input from the last output and the time step; then only the first
    of the inputs is used.
    """
    with variable_scope(scope or "rnn_decoder"):
        state, outputs, before = initial_state, [], None
        for i, given in enumerate(decoder_inputs):
            if loop_function is not None and before is not None:
                with variable_scope("loop_function", reuse=True):
                    given = loop_function(before, i)
            if i > 0:
                get_variable_scope().reuse_variables()
            output, state = cell(given, state)
            outputs.append(output)
            if loop_function is not None:
                before = output
        return outputs, state


@export("contrib.legacy_seq2seq.basic_rnn_seq2seq")
def basic_rnn_seq2seq(
    encoder_inputs: Sequence[Any],
    decoder_inputs: Sequence[Any],
    cell: RNNCell,
    dtype: Any = float32,
    scope: Any = None,
) -> Outputs:
    """Return the result of a decoder that starts from an encoder's last state; each has its own
    weights.
    """
    with variable_scope(scope or "basic_rnn_seq2seq"):
        _, encoded = static_rnn(copy.deepcopy(cell), encoder_inputs, dtype=dtype)
        return rnn_decoder(decoder_inputs, encoded, cell)


@export("contrib.legacy_seq2seq.tied_rnn_seq2seq")
def tied_rnn_seq2seq(
    encoder_inputs: Sequence[Any],
    decoder_inputs: Sequence[Any],
    cell: RNNCell,
    loop_function: Callable[[Any, int], Any] | None = None,
    dtype: Any = float32,
    scope: Any = None,
) -> Outputs:
    """Return the result of a decoder that starts from the last state of an encoder with the same
    weights.
    """
    with variable_scope("combined_tied_rnn_seq2seq"):
        name = scope or "tied_rnn_seq2seq"
        _, encoded = static_rnn(cell, encoder_inputs, dtype=dtype, scope=name)
        get_variable_scope().reuse_variables()
        return rnn_decoder(decoder_inputs, encoded, cell, loop_function=loop_function, scope=name)
