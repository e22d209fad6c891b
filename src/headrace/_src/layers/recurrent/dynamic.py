"""Run cells over tensors [batch, time, ...]: a graph loop as long as the longest row.

The loop counts `time` from 0; its inputs and outputs are TensorArrays over time.
"""

from __future__ import annotations

from typing import Any

from headrace._src.core import dtypes, nest
from headrace._src.core.export import export
from headrace._src.core.tensor_shape import TensorShape, as_shape
from headrace._src.graph.default import get_default_graph
from headrace._src.graph.operation import Tensor
from headrace._src.layers.recurrent.cell import check_cell
from headrace._src.layers.recurrent.rnn_step import Lengths, cache_reads, initial_state_of
from headrace._src.layers.recurrent.sizes import batch_shape, static_batch_shape
from headrace._src.ops.base.define import b
from headrace._src.ops.base.to_tensor import constant, convert_to_tensor, name_scope
from headrace._src.ops.control.tensor_array import TensorArray
from headrace._src.variables.scope import variable_scope

__all__ = [
    "best_effort_input_batch_size",
    "bidirectional_dynamic_rnn",
    "dynamic_rnn",
    "transpose_batch_time",
]

_PARALLEL_ITERATIONS = 32


@export("nn.dynamic_rnn")
def dynamic_rnn(
    cell: Any,
    inputs: Any,
    sequence_length: Any = None,
    initial_state: Any = None,
    dtype: Any = None,
    parallel_iterations: int | None = None,
    swap_memory: bool = False,
    time_major: bool = False,
    scope: Any = None,
) -> tuple[Any, Any]:
    """Return the outputs of a cell over `inputs` [batch, time, ...], and the last state.

    The state starts as `initial_state`, or as zeros of `dtype`. Past the `sequence_length` of a
    row, its outputs are zeros and its state is kept. With time_major, inputs and outputs are
    [time, batch, ...], which saves transposing them. Inputs, outputs and states may be nests.
    """
    check_cell("cell", cell)
    with variable_scope(scope or "rnn") as opened:
        cache_reads(opened)
        flat = nest.flatten(inputs)
        if not time_major:
            flat = [transpose_batch_time(convert_to_tensor(value)) for value in flat]
        lengths = None if sequence_length is None else _as_lengths(sequence_length)
        batch = best_effort_input_batch_size(flat)
        if initial_state is not None:
            state = initial_state
        elif not dtype:
            raise ValueError("If there is no initial_state, you must give a dtype.")
        else:
            state = initial_state_of(cell, batch, dtype)
        if lengths is not None:
            with get_default_graph().control_dependencies([_check_shape(lengths, [batch])]):
                lengths = b.identity(lengths, name="CheckSeqLen")
        inputs = nest.pack_sequence_as(inputs, flat)
        loop = {
            "parallel_iterations": parallel_iterations or _PARALLEL_ITERATIONS,
            "swap_memory": swap_memory,
        }
        outputs, state = _loop_over_time(cell, inputs, state, lengths, dtype, loop)
        if not time_major:
            outputs = nest.map_structure(transpose_batch_time, outputs)
    return outputs, state


def _as_lengths(sequence_length: Any) -> Tensor:
    lengths = b.cast(sequence_length, dtypes.int32)
    if lengths.shape.ndims not in (None, 1):
        raise ValueError(
            f"sequence_length must be a vector of length batch_size, but saw shape: {lengths.shape}"
        )
    return b.identity(lengths, name="sequence_length")


def _check_shape(x: Tensor, sizes: list[Any]) -> Any:
    found = b.shape(x)
    wanted = b.stack(sizes)
    return b.Assert(
        b.reduce_all(b.equal(found, wanted)),
        [f"Expected shape for Tensor {x.name} is ", wanted, " but saw shape: ", found],
    )


@export("contrib.rnn.transpose_batch_time")
def transpose_batch_time(x: Any) -> Tensor:
    """Return `x` with its first two dimensions exchanged."""
    shape = x.shape
    if shape.ndims is not None and shape.ndims < 2:
        raise ValueError(
            f"Expected input tensor {x} to have rank at least 2, but saw shape: {shape}"
        )
    turned = b.transpose(x, b.concat(([1, 0], b.range(2, b.rank(x))), axis=0))
    if shape.ndims is not None:
        sizes = shape.as_list()
        turned.set_shape([sizes[1], sizes[0], *sizes[2:]])
    return turned


@export("contrib.rnn.best_effort_input_batch_size")
def best_effort_input_batch_size(flat_input: list[Any]) -> Tensor:
    """Return the size of the second dimension of inputs [time, batch, ...]: a number if it is known
    for one of them, else a tensor.
    """
    for value in flat_input:
        sizes = value.shape.sizes
        if sizes is None or len(sizes) < 2:
            raise ValueError(
                f"Expected input tensor {value} to have rank at least 2, but saw shape: "
                f"{value.shape}"
            )
        if sizes[1] is not None:
            return sizes[1]
    return b.shape(flat_input[0])[1]


def _loop_over_time(
    cell: Any, inputs: Any, state: Any, lengths: Tensor | None, dtype: Any, loop: dict[str, Any]
) -> tuple[Any, Any]:
    flat = nest.flatten(inputs)
    steps = b.shape(flat[0])[0]
    batch = best_effort_input_batch_size(flat)
    known_steps, known_batch = _checked_sizes(flat)
    dtype = _state_dtype(dtype, state)
    sizes = nest.flatten(cell.output_size)
    zeros = [b.zeros(batch_shape(batch, size), dtype) for size in sizes]
    rows = None if lengths is None else Lengths.of(lengths, zeros)
    time = constant(0, dtype=dtypes.int32, name="time")
    with name_scope("dynamic_rnn") as prefix:
        arrays = prefix
    written = [
        _array(
            steps, dtype, TensorShape([known_batch]).concatenate(_dims(size)), f"{arrays}output_{i}"
        )
        for i, size in enumerate(sizes)
    ]
    read = [
        _array(steps, value.dtype.base_dtype, value.shape[1:], f"{arrays}input_{i}")
        for i, value in enumerate(flat)
    ]
    read = [array.unstack(value) for array, value in zip(read, flat, strict=True)]

    def step(time: Tensor, written: Any, state: Any) -> tuple[Any, Any, Any]:
        now = [array.read(time) for array in read]
        for value, whole in zip(now, flat, strict=True):
            value.set_shape(whole.shape[1:])
        now = nest.pack_sequence_as(inputs, now)

        def call() -> Any:
            return cell(now, state)

        output, new_state = call() if rows is None else rows.in_loop(time, cell, state, call)
        pairs = zip(written, nest.flatten(output), strict=True)
        written = tuple(array.write(time, value) for array, value in pairs)
        return time + 1, written, new_state

    # At least one step runs even for empty rows, so that the cell's variables are checked.
    bound = b.minimum(steps, b.maximum(1, steps if rows is None else rows.longest))
    _, written, state = b.while_loop(
        cond=lambda time, *_: time < bound,
        body=step,
        loop_vars=(time, tuple(written), state),
        maximum_iterations=steps,
        **loop,
    )
    outputs = [array.stack() for array in written]
    for output, size in zip(outputs, sizes, strict=True):
        output.set_shape(static_batch_shape([known_steps, known_batch], size))
    return nest.pack_sequence_as(cell.output_size, outputs), state


def _array(steps: Tensor, dtype: Any, shape: TensorShape, name: str) -> TensorArray:
    return TensorArray(dtype, size=steps, element_shape=shape, tensor_array_name=name)


def _dims(size: Any) -> TensorShape:
    return as_shape([size] if isinstance(size, int) else size)


def _checked_sizes(flat: list[Any]) -> tuple[int | None, int | None]:
    """Return the static numbers of steps and rows, on which all inputs must agree."""
    shapes = [value.shape.with_rank_at_least(3) for value in flat]
    steps, batch = shapes[0].as_list()[:2]
    for shape in shapes:
        found_steps, found_batch, *depth = shape.as_list()
        if None in depth:
            raise ValueError(
                "Input size (depth of inputs) must be accessible via shape inference, but saw "
                "value None."
            )
        if found_steps != steps:
            raise ValueError(
                "Time steps is not the same for all the elements in the input in a batch."
            )
        if found_batch != batch:
            raise ValueError("Batch_size is not the same for all the elements in the input.")
    return steps, batch


def _state_dtype(dtype: Any, state: Any) -> Any:
    """Return the dtype of the outputs: the given one, or that of all parts of the state."""
    if dtype is not None:
        return dtype
    found = {part.dtype.base_dtype for part in nest.flatten(state)}
    if not found:
        raise ValueError("Unable to infer dtype from empty state.")
    if len(found) > 1:
        raise ValueError(
            "State has tensors of different inferred_dtypes. Unable to infer a single "
            "representative dtype."
        )
    return found.pop()


@export("nn.bidirectional_dynamic_rnn")
def bidirectional_dynamic_rnn(
    cell_fw: Any,
    cell_bw: Any,
    inputs: Any,
    sequence_length: Any = None,
    initial_state_fw: Any = None,
    initial_state_bw: Any = None,
    dtype: Any = None,
    parallel_iterations: int | None = None,
    swap_memory: bool = False,
    time_major: bool = False,
    scope: Any = None,
) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
    """Return ((forward outputs, backward outputs), (last state of each)) of two cells; the second
    runs through each row from its end.
    """
    check_cell("cell_fw", cell_fw)
    check_cell("cell_bw", cell_bw)
    time_axis, batch_axis = (0, 1) if time_major else (1, 0)

    def turned(value: Any) -> Any:
        if sequence_length is None:
            return b.reverse(value, axis=[time_axis])
        return b.reverse_sequence(value, sequence_length, seq_axis=time_axis, batch_axis=batch_axis)

    settings = {
        "sequence_length": sequence_length,
        "dtype": dtype,
        "parallel_iterations": parallel_iterations,
        "swap_memory": swap_memory,
        "time_major": time_major,
    }
    with variable_scope(scope or "bidirectional_rnn"):
        with variable_scope("fw") as opened:
            forward, state_fw = dynamic_rnn(
                cell_fw, inputs, initial_state=initial_state_fw, scope=opened, **settings
            )
        with variable_scope("bw") as opened:
            reversed_inputs = nest.map_structure(turned, inputs)
            backward, state_bw = dynamic_rnn(
                cell_bw, reversed_inputs, initial_state=initial_state_bw, scope=opened, **settings
            )
    return (forward, nest.map_structure(turned, backward)), (state_fw, state_bw)
