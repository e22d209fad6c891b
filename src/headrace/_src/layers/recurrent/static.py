"""Run cells over lists of inputs: the graph is unrolled, with one call of the cell per time
step.
"""

from __future__ import annotations

from typing import Any

from headrace._src.core import dtypes, nest
from headrace._src.core.export import export
from headrace._src.core.tensor_shape import unknown_shape
from headrace._src.graph.default import get_default_graph
from headrace._src.graph.operation import Tensor
from headrace._src.layers.recurrent.cell import check_cell
from headrace._src.layers.recurrent.rnn_step import Lengths, cache_reads, initial_state_of
from headrace._src.layers.recurrent.sizes import zeros_of_sizes
from headrace._src.ops.base.define import b
from headrace._src.ops.base.to_tensor import convert_to_tensor
from headrace._src.variables.scope import variable_scope

__all__ = ["static_bidirectional_rnn", "static_rnn", "static_state_saving_rnn"]


@export("nn.static_rnn", "contrib.rnn.static_rnn")
def static_rnn(
    cell: Any,
    inputs: Any,
    initial_state: Any = None,
    dtype: Any = None,
    sequence_length: Any = None,
    scope: Any = None,
) -> tuple[list[Any], Any]:
    """Return the outputs of a cell for each of a list of inputs [batch, ...], and the last state.

    The state starts as `initial_state`, or as zeros of `dtype`. Past the `sequence_length` of a
    row, its outputs are zeros and its state is kept.
    """
    check_cell("cell", cell)
    _check_list(inputs)
    with variable_scope(scope or "rnn") as opened:
        cache_reads(opened)
        first = nest.flatten(inputs)[0]
        known = _static_batch(inputs, first)
        batch = b.shape(first)[0] if known is None else known
        if initial_state is not None:
            state = initial_state
        elif not dtype:
            raise ValueError("If no initial_state is provided, dtype must be specified")
        else:
            state = initial_state_of(cell, batch, dtype)
        rows = None
        if sequence_length is not None:
            rows = _lengths(cell, sequence_length, batch, known, state)
        outputs = []
        for time, value in enumerate(inputs):
            if time > 0:
                opened.reuse_variables()

            def call(value: Any = value, state: Any = state) -> Any:
                return cell(value, state)

            output, state = call() if rows is None else rows.unrolled(time, cell, state, call)
            outputs.append(output)
    return outputs, state


def _check_list(inputs: Any) -> None:
    if not nest.is_nested(inputs):
        raise TypeError("inputs must be a sequence")
    if not inputs:
        raise ValueError("inputs must not be empty")


def _static_batch(inputs: Any, first: Any) -> int | None:
    """Return the batch size if it's known; all inputs must agree, and all other dimensions be
    known.
    """
    if first.shape.ndims == 1:
        return first.shape.as_list()[0]
    batch = first.shape.with_rank_at_least(2)[0]
    for value in nest.flatten(inputs):
        sizes = value.shape.with_rank_at_least(2)
        batch = batch.merge_with(sizes[0])
        if sizes.ndims is not None and None in sizes.as_list()[1:]:
            axis = sizes.as_list()[1:].index(None)
            raise ValueError(
                f"Input size (dimension {axis} of inputs) must be accessible via shape inference, "
                "but saw value None."
            )
    return batch.value


def _lengths(cell: Any, lengths: Any, batch: Any, known: int | None, state: Any) -> Lengths:
    lengths = convert_to_tensor(lengths, name="sequence_length")
    if lengths.shape.ndims not in (None, 1):
        raise ValueError("sequence_length must be a vector of length batch_size")
    dtype = nest.flatten(state)[0].dtype
    zeros = zeros_of_sizes(cell.output_size, batch, dtype, known_batch=known)
    return Lengths.of(b.cast(lengths, dtypes.int32), nest.flatten(zeros))


@export("nn.static_state_saving_rnn", "contrib.rnn.static_state_saving_rnn")
def static_state_saving_rnn(
    cell: Any,
    inputs: Any,
    state_saver: Any,
    state_name: Any,
    sequence_length: Any = None,
    scope: Any = None,
) -> tuple[list[Any], Any]:
    """Run static_rnn from the state `state_saver.state(state_name)`.

    The last output and the last state are available only after `state_saver.save_state(state_name,
    state)` has run. For a nested state, state_name is a nest of names.
    """
    sizes = cell.state_size
    if nest.is_nested(sizes) != nest.is_nested(state_name):
        raise ValueError(
            "state_name should be the same type as cell.state_size.  state_name: "
            f"{state_name}, cell.state_size: {sizes}"
        )
    names = nest.flatten(state_name)
    if len(names) != len(nest.flatten(sizes)):
        raise ValueError(
            f"#elems(state_name) != #elems(state_size): {len(names)} vs. {len(nest.flatten(sizes))}"
        )
    initial = nest.pack_sequence_as(sizes, [state_saver.state(name) for name in names])
    outputs, state = static_rnn(
        cell, inputs, initial_state=initial, sequence_length=sequence_length, scope=scope
    )
    saved = [
        state_saver.save_state(name, part)
        for name, part in zip(names, nest.flatten(state), strict=True)
    ]
    with get_default_graph().control_dependencies(saved):
        outputs[-1] = nest.map_structure(b.identity, outputs[-1])
        state = nest.map_structure(b.identity, state)
    return outputs, state


@export("nn.static_bidirectional_rnn", "contrib.rnn.static_bidirectional_rnn")
def static_bidirectional_rnn(
    cell_fw: Any,
    cell_bw: Any,
    inputs: Any,
    initial_state_fw: Any = None,
    initial_state_bw: Any = None,
    dtype: Any = None,
    sequence_length: Any = None,
    scope: Any = None,
) -> tuple[list[Any], Any, Any]:
    """Return the concatenated outputs of two cells, one of which runs backwards in time, and the
    last state of each.
    """
    check_cell("cell_fw", cell_fw)
    check_cell("cell_bw", cell_bw)
    _check_list(inputs)
    with variable_scope(scope or "bidirectional_rnn"):
        with variable_scope("fw") as opened:
            forward, state_fw = static_rnn(
                cell_fw, inputs, initial_state_fw, dtype, sequence_length, scope=opened
            )
        with variable_scope("bw") as opened:
            reversed_inputs = _reversed(inputs, sequence_length)
            backward, state_bw = static_rnn(
                cell_bw, reversed_inputs, initial_state_bw, dtype, sequence_length, scope=opened
            )
    backward = _reversed(backward, sequence_length)
    outputs = [
        nest.map_structure(lambda x, y: b.concat([x, y], 1), fw, bw)
        for fw, bw in zip(forward, backward, strict=True)
    ]
    return outputs, state_fw, state_bw


def _reversed(steps: Any, lengths: Any) -> list[Any]:
    """Reverse a list of nests; with `lengths`, each row only up to its end."""
    if lengths is None:
        return list(reversed(steps))
    columns = [
        _reversed_column(list(column), lengths)
        for column in zip(*(nest.flatten(step) for step in steps), strict=True)
    ]
    return [
        nest.pack_sequence_as(step, leaves)
        for step, leaves in zip(steps, zip(*columns, strict=True), strict=True)
    ]


def _reversed_column(values: list[Tensor], lengths: Any) -> list[Tensor]:
    shape = unknown_shape(values[0].shape.ndims)
    for value in values:
        shape = shape.merge_with(value.shape)
        value.set_shape(shape)
    joined = b.reverse_sequence(b.stack(values), lengths, 0, 1)
    results = b.unstack(joined)
    for result in results:
        result.set_shape(shape)
    return results
