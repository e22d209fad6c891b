"""RNNCell: one step of time. In: an input [batch, ...] and a state. Out: an output and a new state.

States may be nests of tensors; `state_size` and `output_size` are nests of their sizes without the
batch dimension. A cell's first call makes its variables, in the current variable scope.
"""

from __future__ import annotations

from typing import Any

from headrace._src.core import nest
from headrace._src.core.dtypes import as_dtype
from headrace._src.core.export import export
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.graph.default import get_default_graph
from headrace._src.graph.keys import GraphKeys
from headrace._src.layers.layer import Layer
from headrace._src.layers.recurrent.sizes import zeros_of_sizes
from headrace._src.ops.base.define import b
from headrace._src.ops.base.to_tensor import convert_to_tensor, name_scope
from headrace._src.variables.partition import PartitionedVariable
from headrace._src.variables.scope import get_variable_scope, variable_scope

__all__ = ["LayerRNNCell", "RNNCell", "check_cell", "check_floating", "known_depth"]


@export("nn.rnn_cell.RNNCell", "contrib.rnn.RNNCell")
class RNNCell(Layer):
    """The base of all cells. Subclasses define state_size, output_size and `call(inputs, state)`
    (or `__call__`), which may use tf.get_variable.
    """

    def __init__(
        self, trainable: bool = True, name: str | None = None, dtype: Any = None, **kwargs: Any
    ) -> None:
        super().__init__(trainable=trainable, name=name, dtype=dtype, **kwargs)
        self._outer_scope: variable_scope | None = None

    def __call__(self, inputs: Any, state: Any, scope: Any = None) -> Any:
        """Return (output, new state). `scope` names the variable scope of the first call."""
        if scope is not None:
            with variable_scope(scope, custom_getter=self._note_variable) as opened:
                return super().__call__(inputs, state, scope=opened)
        if self._outer_scope is None:
            self._outer_scope = variable_scope(
                get_variable_scope(), custom_getter=self._note_variable
            )
        with self._outer_scope:
            return super().__call__(inputs, state)

    def _note_variable(self, getter: Any, *args: Any, **kwargs: Any) -> Any:
        """A custom getter that adds the variables that `call` gets from tf.get_variable to the
        cell.
        """
        variable = getter(*args, **kwargs)
        parts = list(variable) if isinstance(variable, PartitionedVariable) else [variable]
        trained = get_default_graph().get_collection(GraphKeys.TRAINABLE_VARIABLES)
        for part in parts:
            is_trained = any(part is t for t in trained)
            kept = self._trainable_weights if is_trained else self._non_trainable_weights
            if all(part is not known for known in kept):
                kept.append(part)
        return variable

    @property
    def state_size(self) -> Any:
        """The sizes of the state: integers, TensorShapes, or a nest of them."""
        raise NotImplementedError("Abstract method")

    @property
    def output_size(self) -> Any:
        """The sizes of the output: an integer, a TensorShape, or a nest of them."""
        raise NotImplementedError("Abstract method")

    def build(self, input_shape: Any) -> None:
        """Make no variables: `call` does."""
        self.built = True

    def get_initial_state(
        self, inputs: Any = None, batch_size: Any = None, dtype: Any = None
    ) -> Any:
        """Return a state of zeros, for the batch of `inputs`, or for a batch size and dtype."""
        if inputs is not None:
            inputs = convert_to_tensor(inputs, name="inputs")
            batch_size = _agreed_batch(inputs, batch_size)
            if dtype is not None and as_dtype(dtype) != inputs.dtype:
                raise ValueError(
                    "dtype from input tensor is different from the input param. Input tensor "
                    f"dtype: {inputs.dtype}, dtype: {dtype}"
                )
            dtype = inputs.dtype
        if batch_size is None or dtype is None:
            raise ValueError(
                "batch_size and dtype cannot be None while constructing initial state: "
                f"batch_size={batch_size}, dtype={dtype}"
            )
        return self.zero_state(batch_size, dtype)

    def zero_state(self, batch_size: Any, dtype: Any) -> Any:
        """Return a state of zeros for a batch."""
        with name_scope(f"{type(self).__name__}ZeroState", values=[batch_size]):
            return zeros_of_sizes(self.state_size, batch_size, dtype)


@export("contrib.rnn.LayerRNNCell")
class LayerRNNCell(RNNCell):
    """The base of cells that make their variables in `build`, as other layers do."""

    def __call__(self, inputs: Any, state: Any, scope: Any = None, **kwargs: Any) -> Any:
        """Return (output, new state). `scope` names the variable scope of the first call."""
        return Layer.__call__(self, inputs, state, scope=scope, **kwargs)


def _agreed_batch(inputs: Any, batch_size: Any) -> Any:
    """Return the first dimension of `inputs`, which must equal batch_size if both are known."""
    known = inputs.shape.sizes[0] if inputs.shape.sizes else None
    if known is None:
        return b.shape(inputs)[0] if batch_size is None else batch_size
    if isinstance(batch_size, int) and batch_size != known:
        raise ValueError(
            "batch size from input tensor is different from the input param. Input tensor batch: "
            f"{known}, batch_size: {batch_size}"
        )
    return known


def check_cell(role: str, cell: Any) -> None:
    """Raise TypeError if `cell` lacks an attribute of cells."""
    missing = [f"'{name}' property is missing" for name in _SIZES if not _has(cell, name)]
    if not (_has(cell, "zero_state") or _has(cell, "get_initial_state")):
        missing.append("either 'zero_state' or 'get_initial_state' method is required")
    if not callable(cell):
        missing.append("is not callable")
    if missing:
        raise TypeError(f"The argument {role!r} ({cell}) is not an RNNCell: {', '.join(missing)}.")


_SIZES = ("output_size", "state_size")


def _has(cell: Any, name: str) -> bool:
    try:
        return hasattr(cell, name)
    except NotImplementedError:  # the base class's property: the subclass defines `call` alone
        return True


def check_floating(*values: Any) -> None:
    """Raise ValueError if a tensor or dtype is neither floating nor complex."""
    for value in nest.flatten(values):
        dtype = as_dtype(getattr(value, "dtype", value))
        if not (dtype.is_floating or dtype.is_complex):
            raise ValueError(
                f"RNN cell only supports floating point inputs, but saw dtype: {dtype}"
            )


def known_depth(input_shape: TensorShape) -> int:
    """Return the last dimension of inputs, which determines the shape of kernels."""
    depth = input_shape.as_list()[-1]
    if depth is None:
        shown = tuple(input_shape.as_list())
        raise ValueError(f"Expected inputs.shape[-1] to be known, saw shape: {shown}")
    return depth
