"""MultiRNNCell: stacked cells; the output of each is the input of the next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headrace._src.core import nest
from headrace._src.core.export import export
from headrace._src.layers.recurrent.cell import RNNCell, check_cell
from headrace._src.ops.base.define import b
from headrace._src.ops.base.to_tensor import name_scope
from headrace._src.variables.scope import variable_scope

__all__ = ["MultiRNNCell"]


@export("nn.rnn_cell.MultiRNNCell", "contrib.rnn.MultiRNNCell")
class MultiRNNCell(RNNCell):
    """A stack of cells. Its state is the tuple of their states, or, without state_is_tuple, their
    concatenation.
    """

    def __init__(self, cells: Sequence[Any], state_is_tuple: bool = True) -> None:
        super().__init__()
        if not cells:
            raise ValueError("Must specify at least one cell for MultiRNNCell.")
        if not isinstance(cells, list | tuple):
            raise TypeError(f"cells must be a list or tuple, but saw: {cells}.")
        for number, cell in enumerate(cells):
            check_cell(f"cells[{number}]", cell)
        self._cells = cells
        self._state_is_tuple = state_is_tuple
        if not state_is_tuple and any(nest.is_nested(c.state_size) for c in cells):
            raise ValueError(
                "Some cells return tuples of states, but the flag state_is_tuple is not set.  "
                f"State sizes are: {[c.state_size for c in cells]}"
            )

    @property
    def state_size(self) -> Any:
        sizes = tuple(cell.state_size for cell in self._cells)
        return sizes if self._state_is_tuple else sum(sizes)

    @property
    def output_size(self) -> Any:
        return self._cells[-1].output_size

    def zero_state(self, batch_size: Any, dtype: Any) -> Any:
        """Return a state of zeros for a batch."""
        with name_scope(f"{type(self).__name__}ZeroState", values=[batch_size]):
            if self._state_is_tuple:
                return tuple(cell.zero_state(batch_size, dtype) for cell in self._cells)
            return super().zero_state(batch_size, dtype)

    @property
    def trainable_weights(self) -> list[Any]:
        if not self.trainable:
            return []
        return [w for cell in self._cells for w in getattr(cell, "trainable_weights", [])]

    @property
    def non_trainable_weights(self) -> list[Any]:
        kept = [w for cell in self._cells for w in getattr(cell, "non_trainable_weights", [])]
        if self.trainable:
            return kept
        return [w for c in self._cells for w in getattr(c, "trainable_weights", [])] + kept

    def call(self, inputs: Any, state: Any) -> Any:
        """Return the last cell's output, and all states."""
        if self._state_is_tuple and not (nest.is_nested(state) and len(state) == len(self._cells)):
            raise ValueError(
                f"Expected state to be a tuple of length {len(self._cells)}, but received: {state}"
            )
        states: list[Any] = []
        position = 0
        for number, cell in enumerate(self._cells):
            with variable_scope(f"cell_{number}"):
                if self._state_is_tuple:
                    own = state[number]
                else:
                    own = b.slice(state, [0, position], [-1, cell.state_size])
                    position += cell.state_size
                inputs, new = cell(inputs, own)
                states.append(new)
        return inputs, tuple(states) if self._state_is_tuple else b.concat(states, 1)
