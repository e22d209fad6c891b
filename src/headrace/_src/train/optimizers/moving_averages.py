"""Moving averages of variables and tensors: shadow variables that follow them, which are often
better for inference than the final values of training.

The average is a slot of the variable that it follows: `<name>/ExponentialMovingAverage`.
"""

from __future__ import annotations

from typing import Any

from headrace._src.core import dtypes
from headrace._src.core.export import export
from headrace._src.graph.default import get_default_graph
from headrace._src.graph.keys import GraphKeys
from headrace._src.graph.operation import Operation
from headrace._src.ops.base.define import b
from headrace._src.ops.base.to_tensor import convert_to_tensor, name_scope
from headrace._src.ops.control.grouping import group
from headrace._src.train.optimizers.slots import create_slot, create_zeros_slot
from headrace._src.variables.collections import (
    global_variables,
    moving_average_variables,
    trainable_variables,
)
from headrace._src.variables.moving_average import assign_moving_average
from headrace._src.variables.variable import Variable

__all__ = ["ExponentialMovingAverage"]

_FLOATS = (dtypes.bfloat16, dtypes.float16, dtypes.float32, dtypes.float64)


@export("train.ExponentialMovingAverage")
class ExponentialMovingAverage:
    """Averages in which old values decay by `decay` per update.

    num_updates  a counter: with it, the decay is at most (1 + n) / (10 + n), to start faster
    zero_debias  whether averages of tensors, which start as zeros, are corrected for that
    """

    def __init__(
        self,
        decay: Any,
        num_updates: Any = None,
        zero_debias: bool = False,
        name: str = "ExponentialMovingAverage",
    ) -> None:
        self._decay = decay
        self._num_updates = num_updates
        self._zero_debias = zero_debias
        self._name = name
        self._averages: dict[Any, Any] = {}

    @property
    def name(self) -> str:
        """The last part of the averages' names."""
        return self._name

    def apply(self, var_list: Any = None) -> Operation:
        """Return an operation that updates the averages of variables and tensors, all trainable
        variables by default. This call creates the averages.
        """
        followed = trainable_variables() if var_list is None else list(var_list)
        for var in followed:
            if var.dtype.base_dtype not in _FLOATS:
                raise TypeError(f"The variables must be half, float, or double: {var.name}")
            if var not in self._averages:
                self._averages[var] = self._make_average(var)
        with name_scope(self._name) as scope:
            decay = convert_to_tensor(self._decay, name="decay")
            if self._num_updates is not None:
                count = b.cast(self._num_updates, dtypes.float32, name="num_updates")
                decay = b.minimum(decay, (1.0 + count) / (10.0 + count))
            updates = [self._update(var, decay) for var in followed]
            return group(*updates, name=scope)

    def _make_average(self, var: Any) -> Any:
        graph = get_default_graph()
        with graph.control_dependencies(None):
            if not isinstance(var, Variable):
                return create_zeros_slot(var, self._name, colocate_with_primary=False)
            made = create_slot(var, var.initialized_value(), self._name)
            graph.add_to_collection(GraphKeys.MOVING_AVERAGE_VARIABLES, var)
            return made

    def _update(self, var: Any, decay: Any) -> Any:
        unbiased = self._zero_debias and not isinstance(var, Variable)
        return assign_moving_average(self._averages[var], var, decay, zero_debias=unbiased)

    def average(self, var: Any) -> Any:
        """Return the variable that holds the average of `var`, or None."""
        return self._averages.get(var)

    def average_name(self, var: Any) -> str:
        """Return the name of the average of `var`, whether or not it exists."""
        if var in self._averages:
            return self._averages[var].op.name
        return get_default_graph().unique_name(f"{var.op.name}/{self._name}", mark_as_used=False)

    def variables_to_restore(self, moving_avg_variables: Any = None) -> dict[str, Any]:
        """Return a dict for a Saver that restores for inference: a variable with an average under
        the average's name, any other under its own.
        """
        if moving_avg_variables is None:
            moving_avg_variables = trainable_variables() + moving_average_variables()
        averaged = list(dict.fromkeys(moving_avg_variables))
        found = {self.average_name(v): v for v in averaged}
        for v in global_variables():
            if v not in averaged and v.op.name not in found:
                found[v.op.name] = v
        return found
