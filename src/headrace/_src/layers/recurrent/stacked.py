"""tf.contrib.rnn's stacked bidirectional networks: each layer sees both directions of the one
below.
"""

from __future__ import annotations

from typing import Any

from headrace._src.core.export import export
from headrace._src.layers.recurrent.dynamic import bidirectional_dynamic_rnn
from headrace._src.layers.recurrent.static import static_bidirectional_rnn
from headrace._src.ops.base.define import b
from headrace._src.variables.scope import variable_scope

__all__ = ["stack_bidirectional_dynamic_rnn", "stack_bidirectional_rnn"]


@export("contrib.rnn.stack_bidirectional_rnn")
def stack_bidirectional_rnn(
    cells_fw: Any,
    cells_bw: Any,
    inputs: Any,
    initial_states_fw: Any = None,
    initial_states_bw: Any = None,
    dtype: Any = None,
    sequence_length: Any = None,
    scope: Any = None,
) -> tuple[list[Any], tuple[Any, ...], tuple[Any, ...]]:
    """Return the outputs of the last of several static_bidirectional_rnn, and the last states of
    all, forwards and backwards.
    """
    layers = _layers(cells_fw, cells_bw, initial_states_fw, initial_states_bw)
    states = []
    with variable_scope(scope or "stack_bidirectional_rnn"):
        for number, (cell_fw, cell_bw, state_fw, state_bw) in enumerate(layers):
            with variable_scope(f"cell_{number}") as opened:
                inputs, *last = static_bidirectional_rnn(
                    cell_fw, cell_bw, inputs, state_fw, state_bw, dtype, sequence_length, opened
                )
                states.append(last)
    return inputs, tuple(fw for fw, _ in states), tuple(bw for _, bw in states)


@export("contrib.rnn.stack_bidirectional_dynamic_rnn")
def stack_bidirectional_dynamic_rnn(
    cells_fw: Any,
    cells_bw: Any,
    inputs: Any,
    initial_states_fw: Any = None,
    initial_states_bw: Any = None,
    dtype: Any = None,
    sequence_length: Any = None,
    parallel_iterations: int | None = None,
    time_major: bool = False,
    scope: Any = None,
    swap_memory: bool = False,
) -> tuple[Any, tuple[Any, ...], tuple[Any, ...]]:
    """Return the outputs of the last of several bidirectional_dynamic_rnn, both directions
    concatenated, and the last states of all, forwards and backwards.
    """
    layers = _layers(cells_fw, cells_bw, initial_states_fw, initial_states_bw)
    states = []
    with variable_scope(scope or "stack_bidirectional_rnn"):
        for number, (cell_fw, cell_bw, state_fw, state_bw) in enumerate(layers):
            with variable_scope(f"cell_{number}"):
                outputs, last = bidirectional_dynamic_rnn(
                    cell_fw,
                    cell_bw,
                    inputs,
                    initial_state_fw=state_fw,
                    initial_state_bw=state_bw,
                    sequence_length=sequence_length,
                    parallel_iterations=parallel_iterations,
                    dtype=dtype,
                    swap_memory=swap_memory,
                    time_major=time_major,
                )
                inputs = b.concat(outputs, 2)
                states.append(last)
    return inputs, tuple(fw for fw, _ in states), tuple(bw for _, bw in states)


def _layers(cells_fw: Any, cells_bw: Any, states_fw: Any, states_bw: Any) -> list[tuple]:
    """Yield for each layer its two cells and their initial states (None: zeros)."""
    if not cells_fw:
        raise ValueError("Must specify at least one fw cell for BidirectionalRNN.")
    if not cells_bw:
        raise ValueError("Must specify at least one bw cell for BidirectionalRNN.")
    if not isinstance(cells_fw, list) or not isinstance(cells_bw, list):
        raise ValueError("cells_fw and cells_bw must be lists of RNNCells (one per layer).")
    if len(cells_fw) != len(cells_bw):
        raise ValueError("Forward and Backward cells must have the same depth.")
    per_layer = []
    for role, states in (("fw", states_fw), ("bw", states_bw)):
        if states is not None and (
            not isinstance(states, list | tuple) or len(states) != len(cells_fw)
        ):
            raise ValueError(
                f"initial_states_{role} must be a list of state tensors (one per layer)."
            )
        per_layer.append([None] * len(cells_fw) if states is None else states)
    return list(zip(cells_fw, cells_bw, *per_layer, strict=True))
