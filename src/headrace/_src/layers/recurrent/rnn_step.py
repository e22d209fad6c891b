"""One time step of a batch whose rows may end early, and other code that the loops share.

Past the end of a row, its outputs are zeros and its state is kept.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headrace._src.core import nest
from headrace._src.graph.default import get_default_graph
from headrace._src.graph.operation import Tensor
from headrace._src.ops.base.define import b
from headrace._src.ops.control.tensor_array import TensorArray
from headrace._src.variables.scope import VariableScope

__all__ = ["Lengths", "cache_reads", "choose", "initial_state_of"]

CallCell = Callable[[], tuple[Any, Any]]


def cache_reads(scope: VariableScope) -> None:
    """Make `scope` read its variables once, on their own device, instead of once per use elsewhere.

    Not inside a loop: an iteration must see the assignments of the previous one.
    """
    context = get_default_graph()._get_control_flow_context()
    looping = context is not None and context.GetWhileContext() is not None
    if scope.caching_device is None and not looping:
        scope.set_caching_device(lambda op: op.device)


def initial_state_of(cell: Any, batch: Any, dtype: Any) -> Any:
    """A cell's state of zeros."""
    if getattr(cell, "get_initial_state", None) is not None:
        return cell.get_initial_state(inputs=None, batch_size=batch, dtype=dtype)
    return cell.zero_state(batch, dtype)


def choose(keep_old: Tensor, old: Any, new: Any) -> Any:
    """Return the rows of `old` where `keep_old`, else those of `new`; `new` if it has no rows."""
    if isinstance(old, TensorArray) or old.shape.ndims == 0:
        return new
    with get_default_graph().colocate_with(new):
        return b.where(keep_old, old, new)


@dataclass(frozen=True)
class Lengths:
    """The lengths of a batch's rows, and the zeros to emit past their ends (a list of leaves)."""

    lengths: Tensor
    shortest: Tensor
    longest: Tensor
    zeros: list[Tensor]

    @staticmethod
    def of(lengths: Tensor, zeros: list[Tensor]) -> Lengths:
        """Return the lengths of rows, with their minimum and maximum."""
        return Lengths(lengths, b.reduce_min(lengths), b.reduce_max(lengths), zeros)

    def in_loop(self, time: Tensor, cell: Any, state: Any, call: CallCell) -> tuple[Any, Any]:
        """A step that always calls the cell, for a loop over the longest row."""
        ended = time >= self.lengths
        output, new_state = _flat_step(cell, state, call)
        return self._packed(cell, state, self._chosen(ended, state, output, new_state))

    def unrolled(self, time: int, cell: Any, state: Any, call: CallCell) -> tuple[Any, Any]:
        """A step that skips the cell when all rows have ended, and the selection when none has."""
        ended = time >= self.lengths

        def step() -> list[Any]:
            output, new_state = _flat_step(cell, state, call)
            return b.cond(
                time < self.shortest,
                lambda: output + new_state,
                lambda: self._chosen(ended, state, output, new_state),
            )

        results = b.cond(time >= self.longest, lambda: self.zeros + nest.flatten(state), step)
        return self._packed(cell, state, results)

    def _chosen(self, ended: Tensor, state: Any, output: list[Any], new: list[Any]) -> list[Any]:
        old = self.zeros + nest.flatten(state)
        return [choose(ended, o, n) for o, n in zip(old, output + new, strict=True)]

    def _packed(self, cell: Any, state: Any, results: list[Any]) -> tuple[Any, Any]:
        for known, result in zip(self.zeros + nest.flatten(state), results, strict=True):
            if not isinstance(result, TensorArray):
                result.set_shape(known.shape)
        count = len(self.zeros)
        return _pack(cell.output_size, results[:count]), _pack(state, results[count:])


def _flat_step(cell: Any, state: Any, call: CallCell) -> tuple[list[Any], list[Any]]:
    output, new_state = call()
    nest.assert_same_structure(cell.output_size, output)
    nest.assert_same_structure(state, new_state)
    return nest.flatten(output), nest.flatten(new_state)


def _pack(structure: Any, leaves: list[Any]) -> Any:
    return nest.pack_sequence_as(structure, leaves)
