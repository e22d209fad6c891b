"""One step of a moving average: assign_moving_average moves a variable towards a new value."""

from __future__ import annotations

from typing import Any

from headrace._src.graph.default import get_default_graph
from headrace._src.ops.base.define import b
from headrace._src.ops.base.to_tensor import convert_to_tensor, name_scope
from headrace._src.variables.initializers import Zeros
from headrace._src.variables.lookup import get_variable
from headrace._src.variables.scope import variable_scope

__all__ = ["assign_moving_average"]


def assign_moving_average(
    variable: Any, value: Any, decay: Any, zero_debias: bool = True, name: str | None = None
) -> Any:
    """Move `variable` toward `value`: variable -= (1 - decay) * (variable - value).

    With `zero_debias`, for a variable that starts at zero, the biased average is kept in a separate
    variable, and `variable` is that average divided by the sum of the weights so far.
    """
    with name_scope(name, "AssignMovingAvg", [variable, value, decay]) as scope:
        share = convert_to_tensor(1.0 - decay, name="decay")
        if share.dtype.base_dtype is not variable.dtype.base_dtype:
            share = b.cast(share, variable.dtype.base_dtype)
        if zero_debias:
            return _assign_unbiased(variable, value, share, scope)
        return b.assign_sub(variable, (variable - value) * share, name=scope)


def _assign_unbiased(variable: Any, value: Any, share: Any, name: str) -> Any:
    graph = get_default_graph()
    settings = {
        "dtype": variable.dtype.base_dtype,
        "initializer": Zeros(),
        "trainable": False,
    }
    with (
        graph.control_dependencies(None),
        variable_scope(variable.op.name, auxiliary_name_scope=False),
        graph.colocate_with(variable),
    ):
        biased = get_variable("biased", shape=variable.shape, **settings)
        count = get_variable("local_step", shape=[], **settings)
    total = b.assign_sub(biased, (biased - value) * share)
    number = b.assign_add(count, 1.0)
    return b.assign(variable, total / (1 - b.pow(1.0 - share, number)), name=name)
