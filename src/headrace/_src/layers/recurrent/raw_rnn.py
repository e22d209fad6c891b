"""raw_rnn: a loop over a cell in which the user's function computes the next input and state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace._src.core import dtypes, nest
from headrace._src.core.export import export
from headrace._src.core.tensor_shape import TensorShape, as_shape
from headrace._src.graph.inference import constant_value
from headrace._src.graph.operation import Tensor
from headrace._src.layers.recurrent.cell import check_cell
from headrace._src.layers.recurrent.rnn_step import cache_reads, choose
from headrace._src.layers.recurrent.sizes import batch_shape
from headrace._src.ops.base.define import b
from headrace._src.ops.base.to_tensor import constant, convert_to_tensor
from headrace._src.ops.control.tensor_array import TensorArray
from headrace._src.variables.scope import variable_scope

__all__ = ["raw_rnn"]


@export("nn.raw_rnn")
def raw_rnn(
    cell: Any,
    loop_fn: Callable[[Any, Any, Any, Any], tuple[Any, Any, Any, Any, Any]],
    parallel_iterations: int | None = None,
    swap_memory: bool = False,
    scope: Any = None,
) -> tuple[Any, Any, Any]:
    """Return (TensorArrays of the emitted values, last state, last loop state) of a loop over a
    cell.

    `loop_fn(time, cell_output, cell_state, loop_state)` returns (elements_finished, next_input,
    next_state, emit_output, next_loop_state). It is called first with time 0 and None for the
    rest; then next_state is the initial state, and emit_output is an example of the emitted values,
    without the batch dimension (None: the cell's output). Rows that have finished emit zeros and
    keep their state. A next_loop_state of None keeps the previous one.
    """
    check_cell("cell", cell)
    if not callable(loop_fn):
        raise TypeError("loop_fn must be a callable")
    with variable_scope(scope or "rnn") as opened:
        cache_reads(opened)
        time = constant(0, dtype=dtypes.int32)
        finished, value, state, example, first_loop_state = loop_fn(time, None, None, None)
        finished = convert_to_tensor(finished)
        flat = [convert_to_tensor(v) for v in nest.flatten(value)]
        value = nest.pack_sequence_as(value, flat) if nest.is_nested(value) else flat[0]
        known, batch = _batch_size(flat)
        nest.assert_same_structure(state, cell.state_size)
        state = nest.map_structure(convert_to_tensor, state)
        loop_state = (
            constant(0, dtype=dtypes.int32) if first_loop_state is None else first_loop_state
        )
        structure = cell.output_size if example is None else example
        emitted = _emitted(cell, example, nest.flatten(state)[0].dtype)
        arrays = [
            TensorArray(
                dtype,
                size=0,
                dynamic_size=True,
                element_shape=TensorShape([known]).concatenate(_static(size)),
                name=f"rnn_output_{i}",
            )
            for i, (size, dtype) in enumerate(emitted)
        ]
        arrays = _packed(structure, arrays)
        zeros = [b.zeros(batch_shape(batch, size), dtype) for size, dtype in emitted]
        zeros = _packed(structure, zeros)

        def step(
            time: Any, finished: Any, value: Any, arrays: Any, state: Any, loop_state: Any
        ) -> tuple[Any, ...]:
            output, cell_state = cell(value, state)
            nest.assert_same_structure(state, cell_state)
            next_time = time + 1
            next_finished, next_value, next_state, emit, next_loop_state = loop_fn(
                next_time, output, cell_state, loop_state
            )
            nest.assert_same_structure(state, next_state)
            nest.assert_same_structure(value, next_value)
            nest.assert_same_structure(arrays, emit)
            if next_loop_state is None:
                next_loop_state = loop_state
            emit = nest.map_structure(lambda old, new: choose(finished, old, new), zeros, emit)
            next_state = nest.map_structure(
                lambda old, new: choose(finished, old, new), state, next_state
            )
            arrays = nest.map_structure(lambda array, new: array.write(time, new), arrays, emit)
            next_finished = b.logical_or(finished, next_finished)
            return next_time, next_finished, next_value, arrays, next_state, next_loop_state

        *_, arrays, state, loop_state = b.while_loop(
            cond=lambda time, finished, *_: b.logical_not(b.reduce_all(finished)),
            body=step,
            loop_vars=[time, finished, value, arrays, state, loop_state],
            parallel_iterations=parallel_iterations or 32,
            swap_memory=swap_memory,
        )
    return arrays, state, None if first_loop_state is None else loop_state


def _batch_size(flat: list[Tensor]) -> tuple[int | None, Any]:
    """Return the first dimension of the inputs, statically if known, and as a number or a
    tensor.
    """
    known = None
    for value in flat:
        sizes = value.shape.sizes
        if sizes is None or not sizes:
            raise ValueError(f"the input {value} of a cell must have a known rank of at least 1")
        if known is not None and sizes[0] not in (None, known):
            raise ValueError(f"Dimensions {known} and {sizes[0]} are not compatible")
        known = sizes[0] if known is None else known
    return known, b.shape(flat[0])[0] if known is None else known


def _emitted(cell: Any, example: Any, dtype: Any) -> list[tuple[Any, Any]]:
    """Return the size and dtype of all emitted values: the cell's outputs, or as in `example`."""
    if example is None:
        return [(size, dtype) for size in nest.flatten(cell.output_size)]
    return [
        (e.shape if e.shape.is_fully_defined() else b.shape(e), e.dtype)
        for e in nest.flatten(example)
    ]


def _static(size: Any) -> TensorShape:
    if isinstance(size, Tensor):
        known = constant_value(size)
        return TensorShape(None) if known is None else as_shape(known.tolist())
    return as_shape([size] if isinstance(size, int) else size)


def _packed(structure: Any, leaves: list[Any]) -> Any:
    return nest.pack_sequence_as(structure, leaves)
