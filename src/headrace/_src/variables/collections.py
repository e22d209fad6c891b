"""Groups of variables: the graph's collections of them, and ops that initialise or check many."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from headrace._src.core.dtypes import string
from headrace._src.core.export import export
from headrace._src.graph.default import get_default_graph
from headrace._src.graph.keys import GraphKeys
from headrace._src.graph.operation import Operation, Tensor
from headrace._src.graph.proto_functions import register_proto_function
from headrace._src.ops.base.define import b, composed
from headrace._src.ops.base.to_tensor import constant, name_scope
from headrace._src.ops.control.grouping import group
from headrace._src.ops.state.ref_variable_ops import is_variable_initialized_op
from headrace._src.variables.variable import Variable

__all__ = ["global_variables", "variables_initializer"]


def _collection(key: str, scope: str | None) -> list[Any]:
    return get_default_graph().get_collection(key, scope)


@export("global_variables")
def global_variables(scope: str | None = None) -> list[Variable]:
    """Return the variables that are shared between machines: GLOBAL_VARIABLES."""
    return _collection(GraphKeys.GLOBAL_VARIABLES, scope)


@export("all_variables")
def all_variables() -> list[Variable]:
    """The old name of `global_variables`."""
    return global_variables()


@export("local_variables")
def local_variables(scope: str | None = None) -> list[Variable]:
    """Return the variables local to one process, such as counters: LOCAL_VARIABLES."""
    return _collection(GraphKeys.LOCAL_VARIABLES, scope)


@export("model_variables")
def model_variables(scope: str | None = None) -> list[Variable]:
    """Return the variables that inference needs: MODEL_VARIABLES."""
    return _collection(GraphKeys.MODEL_VARIABLES, scope)


@export("trainable_variables")
def trainable_variables(scope: str | None = None) -> list[Variable]:
    """Return the variables that optimizers change by default: TRAINABLE_VARIABLES."""
    return _collection(GraphKeys.TRAINABLE_VARIABLES, scope)


@export("moving_average_variables")
def moving_average_variables(scope: str | None = None) -> list[Variable]:
    """Return the variables that have moving averages: MOVING_AVERAGE_VARIABLES."""
    return _collection(GraphKeys.MOVING_AVERAGE_VARIABLES, scope)


# -- Initialising ----------------------------------------------------------------------------------


@export("variables_initializer", "initializers.variables")
def variables_initializer(var_list: Sequence[Any], name: str = "init") -> Operation:
    """Return an operation that runs the initializers of all of `var_list`."""
    return group(*[v.initializer for v in var_list], name=name)


@export("global_variables_initializer", "initializers.global_variables")
def global_variables_initializer() -> Operation:
    """Return an operation that initialises the global variables."""
    return variables_initializer(global_variables())


@export("local_variables_initializer", "initializers.local_variables")
def local_variables_initializer() -> Operation:
    """Return an operation that initialises the local variables."""
    return variables_initializer(local_variables())


@export("initialize_variables")
def initialize_variables(var_list: Sequence[Any], name: str = "init") -> Operation:
    """The old name of `variables_initializer`."""
    return variables_initializer(var_list, name)


@export("initialize_all_variables")
def initialize_all_variables() -> Operation:
    """The old name of `global_variables_initializer`."""
    return global_variables_initializer()


@export("initialize_local_variables")
def initialize_local_variables() -> Operation:
    """The old name of `local_variables_initializer`."""
    return local_variables_initializer()


# -- Checking --------------------------------------------------------------------------------------


@composed
def is_initialized(variable: Any, name: str | None = None) -> Tensor:
    """Return whether a variable, or the variable behind a reference, has a value."""
    if variable.dtype._is_ref_dtype:
        return is_variable_initialized_op(variable, name)
    return variable.is_initialized(name)


@composed
@export("is_variable_initialized")
def is_variable_initialized(variable: Any) -> Tensor:
    """Return whether a variable has a value."""
    return is_initialized(variable)


@export("report_uninitialized_variables")
def report_uninitialized_variables(
    var_list: Sequence[Any] | None = None, name: str = "report_uninitialized_variables"
) -> Tensor:
    """Return the names of those of `var_list` (all variables by default) that have no value."""
    variables = global_variables() + local_variables() if var_list is None else list(var_list)
    graph = get_default_graph()
    with name_scope(name):
        checks = [is_initialized(v) for v in variables]
        with graph.device("/cpu:0"):
            if not variables:
                return constant(np.empty(0, object), string)
            missing = b.logical_not(b.stack(checks))
            names = constant([v.op.name for v in variables])
            return b.boolean_mask(names, missing)


@export("assert_variables_initialized")
def assert_variables_initialized(var_list: Sequence[Any] | None = None) -> Tensor | None:
    """Return a tensor that fails a step if one of `var_list` has no value; None for none."""
    variables = global_variables() + local_variables() if var_list is None else list(var_list)
    if not variables:
        return None
    ranks = []
    for variable in variables:
        with get_default_graph().colocate_with(variable.op):
            ranks.append(b.rank_op(variable))
    return ranks[0] if len(ranks) == 1 else b.stack(ranks)


# -- Files -----------------------------------------------------------------------------------------


def _to_proto(variable: Any, export_scope: str | None = None) -> Any:
    return variable.to_proto(export_scope)


for _key in (
    GraphKeys.GLOBAL_VARIABLES,
    GraphKeys.TRAINABLE_VARIABLES,
    GraphKeys.MOVING_AVERAGE_VARIABLES,
    GraphKeys.LOCAL_VARIABLES,
    GraphKeys.MODEL_VARIABLES,
    GraphKeys.GLOBAL_STEP,
    GraphKeys.METRIC_VARIABLES,
):
    register_proto_function(_key, "VariableDef", _to_proto, Variable.from_proto)
