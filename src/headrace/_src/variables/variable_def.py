"""VariableDef: the form of variables in MetaGraphDefs. In: a variable. Out: the proto; and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headrace._src.core import proto
from headrace._src.graph.default import get_default_graph
from headrace._src.variables.options import VariableAggregation, VariableSynchronization
from headrace._src.variables.slice_info import SaveSliceInfo, with_scope, without_scope

if TYPE_CHECKING:
    from headrace._src.graph.operation import Tensor
    from headrace._src.variables.variable import Variable

__all__ = ["describe", "elements_in", "restore"]


def describe(variable: Variable, snapshot: Tensor, export_scope: str | None) -> Any:
    """Return the VariableDef of a variable whose value is first read by `snapshot`; None if it lies
    outside `export_scope`.
    """
    if export_scope is not None and not variable.name.startswith(export_scope):
        return None
    found: Any = proto.VariableDef(
        variable_name=without_scope(variable.name, export_scope),
        initializer_name=without_scope(variable.initializer.name, export_scope),
        snapshot_name=without_scope(snapshot.name, export_scope),
        trainable=bool(variable.trainable),
    )
    found.synchronization = variable.synchronization.value
    found.aggregation = variable.aggregation.value
    if variable.initial_value is not None:
        found.initial_value_name = without_scope(variable.initial_value.name, export_scope)
    part = variable._get_save_slice_info()
    part_def = part.to_proto(export_scope) if part is not None else None
    if part_def is not None:
        found.save_slice_info_def.CopyFrom(part_def)
    return found


def elements_in(import_scope: str | None) -> Callable[[str], Any]:
    """Return the function that maps names of a VariableDef to nodes of the default graph."""
    graph = get_default_graph()
    return lambda name: graph.as_graph_element(with_scope(name, import_scope))


def restore(variable: Variable, variable_def: Any, import_scope: str | None) -> None:
    """Restore the common attributes of variables from a VariableDef and the default graph."""
    element = elements_in(import_scope)
    variable._initializer_op = element(variable_def.initializer_name)
    initial = variable_def.initial_value_name
    variable._initial_value = element(initial) if initial else None
    variable._trainable = variable_def.trainable
    variable._synchronization = VariableSynchronization(variable_def.synchronization)
    variable._aggregation = VariableAggregation(variable_def.aggregation)
    variable._constraint = None
    if variable_def.HasField("save_slice_info_def"):
        variable._save_slice_info = SaveSliceInfo(
            save_slice_info_def=variable_def.save_slice_info_def, import_scope=import_scope
        )
