"""tf.contrib.rnn's wrappers with variables: projections, embeddings, and attention to the past."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace._src.core import dtypes, nest
from headrace._src.core.export import export
from headrace._src.graph.default import get_default_graph
from headrace._src.layers.input_spec import InputSpec
from headrace._src.layers.recurrent.cell import RNNCell, check_cell
from headrace._src.ops.base.define import b
from headrace._src.ops.base.to_tensor import constant, name_scope
from headrace._src.variables.initializers import Constant, RandomUniform
from headrace._src.variables.lookup import get_variable
from headrace._src.variables.scope import get_variable_scope, variable_scope

__all__ = [
    "AttentionCellWrapper",
    "EmbeddingWrapper",
    "InputProjectionWrapper",
    "Linear",
    "OutputProjectionWrapper",
]


class Linear:
    """The map values -> [values...] kernel + bias, with variables of the scope that it's made
    in.
    """

    def __init__(self, values: list[Any], size: int) -> None:
        depths = [value.shape.with_rank(2).as_list()[1] for value in values]
        if None in depths:
            raise ValueError(f"linear is expecting known depths, but saw {depths}")
        dtype = values[0].dtype.base_dtype
        with variable_scope(get_variable_scope()) as scope:
            self._kernel = get_variable("kernel", [sum(depths), size], dtype=dtype)
            with variable_scope(scope) as inner:
                inner.set_partitioner(None)
                self._bias = get_variable("bias", [size], dtype, Constant(0.0, dtype=dtype))

    def __call__(self, values: list[Any]) -> Any:
        if len(values) == 1:
            sums = b.matmul(values[0], self._kernel)
        else:
            axis = constant(1, dtype=dtypes.int32)
            sums = b.matmul(b.concat(values, axis), self._kernel)
        return b.bias_add(sums, self._bias)


class _AroundCell(RNNCell):
    """A wrapper of a cell, whose variables are in the wrapper's scope."""

    def __init__(self, cell: Any, reuse: Any) -> None:
        super().__init__(_reuse=reuse)
        check_cell("cell", cell)
        self._cell = cell
        self._linears: dict[str, Linear] = {}

    def _linear(self, name: str, values: list[Any], size: int) -> Any:
        """Return a linear map of values; the first call makes its variables."""
        if name not in self._linears:
            self._linears[name] = Linear(values, size)
        return self._linears[name](values)

    @property
    def state_size(self) -> Any:
        return self._cell.state_size

    @property
    def output_size(self) -> Any:
        return self._cell.output_size

    def zero_state(self, batch_size: Any, dtype: Any) -> Any:
        """Return the wrapped cell's state of zeros."""
        with name_scope(f"{type(self).__name__}ZeroState", values=[batch_size]):
            return self._cell.zero_state(batch_size, dtype)


@export("contrib.rnn.OutputProjectionWrapper")
class OutputProjectionWrapper(_AroundCell):
    """Projects a cell's outputs to `output_size`, by `activation` of a linear map."""

    def __init__(
        self,
        cell: Any,
        output_size: int,
        activation: Callable[[Any], Any] | None = None,
        reuse: Any = None,
    ) -> None:
        super().__init__(cell, reuse)
        if output_size < 1:
            raise ValueError(f"Parameter output_size must be > 0: {output_size}.")
        self._output_size = output_size
        self._activation = activation

    @property
    def output_size(self) -> int:
        return self._output_size

    def call(self, inputs: Any, state: Any) -> Any:
        """Return (projected output, new state)."""
        output, new_state = self._cell(inputs, state)
        projected = self._linear("output", [output], self._output_size)
        return projected if self._activation is None else self._activation(projected), new_state


@export("contrib.rnn.InputProjectionWrapper")
class InputProjectionWrapper(_AroundCell):
    """Projects a cell's inputs to `num_proj`, by `activation` of a linear map.

    input_size is optional; inputs must have that size.
    """

    def __init__(
        self,
        cell: Any,
        num_proj: int,
        activation: Callable[[Any], Any] | None = None,
        input_size: int | None = None,
        reuse: Any = None,
    ) -> None:
        super().__init__(cell, reuse)
        self.input_spec = InputSpec(axes={-1: input_size})
        self._num_proj = num_proj
        self._activation = activation

    def call(self, inputs: Any, state: Any) -> Any:
        """Return the cell's step for projected inputs."""
        projected = self._linear("input", [inputs], self._num_proj)
        return self._cell(
            projected if self._activation is None else self._activation(projected), state
        )


@export("contrib.rnn.EmbeddingWrapper")
class EmbeddingWrapper(_AroundCell):
    """Feeds a cell with rows of a matrix [embedding_classes, embedding_size], selected by inputs.

    Its operations are placed on the CPU.
    """

    def __init__(
        self,
        cell: Any,
        embedding_classes: int,
        embedding_size: int,
        initializer: Any = None,
        reuse: Any = None,
    ) -> None:
        super().__init__(cell, reuse)
        if embedding_classes <= 0 or embedding_size <= 0:
            raise ValueError(
                "Both embedding_classes and embedding_size must be > 0: "
                f"{embedding_classes}, {embedding_size}."
            )
        self._shape = [embedding_classes, embedding_size]
        self._initializer = initializer

    def call(self, inputs: Any, state: Any) -> Any:
        """Return the cell's step for the rows that inputs select."""
        with get_default_graph().device("/cpu:0"):
            initializer = self._initializer or get_variable_scope().initializer
            if initializer is None:
                # Uniform numbers of variance 1.
                initializer = RandomUniform(-(3**0.5), 3**0.5)
            dtype = nest.flatten(state)[0].dtype
            embedding = get_variable("embedding", self._shape, dtype, initializer)
            rows = b.embedding_lookup(embedding, b.reshape(inputs, [-1]))
            return self._cell(rows, state)


@export("contrib.rnn.AttentionCellWrapper")
class AttentionCellWrapper(_AroundCell):
    """A cell that attends to its own last `attn_length` outputs (Bahdanau et al., 2014).

    attn_size: the size of the attended vectors; the cell's output_size by default. attn_vec_size:
    the size of the vectors that determine the weights. input_size: the size of the linear map of
    inputs and attention that the cell gets; the inputs' size by default.
    """

    def __init__(
        self,
        cell: Any,
        attn_length: int,
        attn_size: int | None = None,
        attn_vec_size: int | None = None,
        input_size: int | None = None,
        state_is_tuple: bool = True,
        reuse: Any = None,
    ) -> None:
        super().__init__(cell, reuse)
        if nest.is_nested(cell.state_size) and not state_is_tuple:
            raise ValueError(
                "Cell returns tuple of states, but the flag state_is_tuple is not set. State size "
                f"is: {cell.state_size}"
            )
        if attn_length <= 0:
            raise ValueError(f"attn_length should be greater than zero, got {attn_length}")
        self._length = attn_length
        self._size = cell.output_size if attn_size is None else attn_size
        self._vec_size = self._size if attn_vec_size is None else attn_vec_size
        self._input_size = input_size
        self._state_is_tuple = state_is_tuple

    @property
    def state_size(self) -> Any:
        sizes = (self._cell.state_size, self._size, self._size * self._length)
        return sizes if self._state_is_tuple else sum(sizes)

    @property
    def output_size(self) -> int:
        return self._size

    def zero_state(self, batch_size: Any, dtype: Any) -> Any:
        """Return a state of zeros: the cell's, the attention, and the last outputs."""
        return RNNCell.zero_state(self, batch_size, dtype)

    def call(self, inputs: Any, state: Any) -> Any:
        """Return the output, and (cell's state, attention, the last outputs)."""
        cell_state, attention, past = self._parts(state)
        past = b.reshape(past, [-1, self._length, self._size])
        size = self._input_size or inputs.shape.as_list()[1]
        inputs = self._linear("input", [inputs, attention], size)
        cell_output, new_state = self._cell(inputs, cell_state)
        query = b.concat(nest.flatten(new_state), 1) if self._state_is_tuple else new_state
        attention, past = self._attend(query, past)
        with variable_scope("attn_output_projection"):
            output = self._linear("output", [cell_output, attention], self._size)
        past = b.concat([past, b.expand_dims(output, 1)], 1)
        past = b.reshape(past, [-1, self._length * self._size])
        parts = (new_state, attention, past)
        return output, parts if self._state_is_tuple else b.concat(list(parts), 1)

    def _parts(self, state: Any) -> Any:
        if self._state_is_tuple:
            return state
        first = self._cell.state_size
        sizes = (first, self._size, self._size * self._length)
        starts = (0, first, first + self._size)
        return [
            b.slice(state, [0, start], [-1, size])
            for start, size in zip(starts, sizes, strict=True)
        ]

    def _attend(self, query: Any, past: Any) -> tuple[Any, Any]:
        """Return the mean of past outputs, weighted by the query, and those outputs without the
        oldest.
        """
        with variable_scope("attention"):
            w = get_variable("attn_w", [1, 1, self._size, self._vec_size])
            v = get_variable("attn_v", [self._vec_size])
            hidden = b.reshape(past, [-1, self._length, 1, self._size])
            features = b.conv2d(hidden, w, [1, 1, 1, 1], "SAME")
            asked = self._linear("attention", [query], self._vec_size)
            asked = b.reshape(asked, [-1, 1, 1, self._vec_size])
            scores = b.reduce_sum(v * b.tanh(features + asked), [2, 3])
            weights = b.reshape(b.softmax(scores), [-1, self._length, 1, 1])
            attention = b.reshape(b.reduce_sum(weights * hidden, [1, 2]), [-1, self._size])
            return attention, b.slice(past, [0, 1, 0], [-1, -1, -1])
