"""Variables of tf.contrib.framework and tf.contrib.slim: create them on a device, find them by
scope and suffix, and restore them from a checkpoint.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from headrace._src.core import dtypes
from headrace._src.core.export import export
from headrace._src.graph.default import get_default_graph
from headrace._src.graph.keys import GraphKeys
from headrace._src.graph.operation import Operation
from headrace._src.layers.arg_scope import add_arg_scope
from headrace._src.ops.array.constants_and_placeholders import placeholder
from headrace._src.ops.control.grouping import group
from headrace._src.train.saving.checkpoint_reader import CheckpointReader, checkpoint_in
from headrace._src.train.saving.saver import Saver
from headrace._src.variables.lookup import get_variable
from headrace._src.variables.options import VariableAggregation, VariableSynchronization
from headrace._src.variables.partition import PartitionedVariable
from headrace._src.variables.variable import Variable

__all__ = ["assign_from_checkpoint", "assign_from_checkpoint_fn", "get_variables"]

_log = logging.getLogger("headrace")


def _published(name: str) -> Callable[[Any], Any]:
    return export(f"contrib.framework.{name}", f"contrib.slim.{name}")


# -- Making ----------------------------------------------------------------------------------------


@_published("variable")
@add_arg_scope
def variable(
    name: str,
    shape: Any = None,
    dtype: Any = None,
    initializer: Any = None,
    regularizer: Any = None,
    trainable: bool = True,
    collections: Any = None,
    caching_device: Any = None,
    device: Any = None,
    partitioner: Any = None,
    custom_getter: Any = None,
    use_resource: bool | None = None,
    synchronization: VariableSynchronization = VariableSynchronization.AUTO,
    aggregation: VariableAggregation = VariableAggregation.NONE,
) -> Variable:
    """Return the variable `name` of the current scope, as get_variable does, on a device if one is
    given. collections: all collections that it joins; GLOBAL_VARIABLES if None.
    """
    joined = list(collections) if collections is not None else [GraphKeys.GLOBAL_VARIABLES]
    with get_default_graph().device(device or ""):
        return get_variable(
            name,
            shape=shape,
            dtype=dtype,
            initializer=initializer,
            regularizer=regularizer,
            trainable=trainable,
            collections=list(dict.fromkeys(joined)),
            caching_device=caching_device,
            partitioner=partitioner,
            custom_getter=custom_getter,
            use_resource=use_resource,
            synchronization=synchronization,
            aggregation=aggregation,
        )


@_published("model_variable")
@add_arg_scope
def model_variable(
    name: str,
    shape: Any = None,
    dtype: Any = dtypes.float32,
    initializer: Any = None,
    regularizer: Any = None,
    trainable: bool = True,
    collections: Any = None,
    caching_device: Any = None,
    device: Any = None,
    partitioner: Any = None,
    custom_getter: Any = None,
    use_resource: bool | None = None,
    synchronization: VariableSynchronization = VariableSynchronization.AUTO,
    aggregation: VariableAggregation = VariableAggregation.NONE,
) -> Variable:
    """Return a variable that also joins GLOBAL_VARIABLES and MODEL_VARIABLES."""
    return variable(
        name,
        shape=shape,
        dtype=dtype,
        initializer=initializer,
        regularizer=regularizer,
        trainable=trainable,
        collections=[
            *(collections or ()),
            GraphKeys.GLOBAL_VARIABLES,
            GraphKeys.MODEL_VARIABLES,
        ],
        caching_device=caching_device,
        device=device,
        partitioner=partitioner,
        custom_getter=custom_getter,
        use_resource=use_resource,
        synchronization=synchronization,
        aggregation=aggregation,
    )


@_published("local_variable")
def local_variable(
    initial_value: Any,
    validate_shape: bool = True,
    name: str | None = None,
    use_resource: bool | None = None,
) -> Variable:
    """Return a new variable of LOCAL_VARIABLES, which isn't trained."""
    return Variable(
        initial_value,
        trainable=False,
        collections=[GraphKeys.LOCAL_VARIABLES],
        validate_shape=validate_shape,
        use_resource=use_resource,
        name=name,
    )


@_published("global_variable")
def global_variable(
    initial_value: Any,
    validate_shape: bool = True,
    name: str | None = None,
    use_resource: bool | None = None,
) -> Variable:
    """Return a new variable of GLOBAL_VARIABLES, which isn't trained."""
    return Variable(
        initial_value,
        trainable=False,
        collections=[GraphKeys.GLOBAL_VARIABLES],
        validate_shape=validate_shape,
        use_resource=use_resource,
        name=name,
    )


@_published("add_model_variable")
def add_model_variable(var: Any) -> None:
    """Add a variable to MODEL_VARIABLES, unless it's already there."""
    kept = get_default_graph().get_collection_ref(GraphKeys.MODEL_VARIABLES)
    if all(var is not known for known in kept):
        kept.append(var)


# -- Finding ---------------------------------------------------------------------------------------


@_published("get_variables")
def get_variables(
    scope: Any = None, suffix: str | None = None, collection: str = GraphKeys.GLOBAL_VARIABLES
) -> list[Any]:
    """Return the variables of a collection whose names begin with a scope and end with a suffix, or
    with "suffix:0".
    """
    if hasattr(scope, "name"):  # a VariableScope
        scope = scope.name
    if suffix is not None:
        suffix = suffix if ":" in suffix else f"{suffix}:0"
        scope = f"{scope or ''}.*{suffix}"
    return get_default_graph().get_collection(collection, scope)


@_published("get_model_variables")
def get_model_variables(scope: Any = None, suffix: str | None = None) -> list[Any]:
    """Return the variables of MODEL_VARIABLES with this scope and suffix."""
    return get_variables(scope, suffix, GraphKeys.MODEL_VARIABLES)


@_published("get_local_variables")
def get_local_variables(scope: Any = None, suffix: str | None = None) -> list[Any]:
    """Return the variables of LOCAL_VARIABLES with this scope and suffix."""
    return get_variables(scope, suffix, GraphKeys.LOCAL_VARIABLES)


@_published("get_trainable_variables")
def get_trainable_variables(scope: Any = None, suffix: str | None = None) -> list[Any]:
    """Return the variables of TRAINABLE_VARIABLES with this scope and suffix."""
    return get_variables(scope, suffix, GraphKeys.TRAINABLE_VARIABLES)


@_published("get_variables_by_suffix")
def get_variables_by_suffix(suffix: str, scope: Any = None) -> list[Any]:
    """Return the variables whose names end with a suffix."""
    return get_variables(scope=scope, suffix=suffix)


@_published("get_variables_by_name")
def get_variables_by_name(given_name: str, scope: Any = None) -> list[Any]:
    """Return the variables of this name within their scopes."""
    return get_variables(scope=scope, suffix=f"/{given_name}:|^{given_name}:")


@_published("get_unique_variable")
def get_unique_variable(var_op_name: str) -> Variable:
    """Return the variable with this full name; ValueError if there isn't exactly one."""
    found = [v for v in get_variables(scope=var_op_name) if v.op.name == var_op_name]
    if not found:
        raise ValueError(f"Couldn't find variable {var_op_name}")
    if len(found) > 1:
        raise ValueError(f"Variable {var_op_name} does not uniquely identify a variable")
    return found[0]


@_published("get_variables_to_restore")
def get_variables_to_restore(include: Any = None, exclude: Any = None) -> list[Any]:
    """Return the variables whose names begin with one of `include`, all if None, and with none of
    `exclude`.
    """
    for name, given in (("include", include), ("exclude", exclude)):
        if given is not None and not isinstance(given, list | tuple):
            raise TypeError(f"{name} is provided but is not a list or a tuple.")
    if include is None:
        found = get_variables()
    else:
        found = [v for scope in include for v in get_variables(scope)]
    left_out = {id(v) for scope in exclude or () for v in get_variables(scope)}
    return [v for v in found if id(v) not in left_out]


@_published("filter_variables")
def filter_variables(
    var_list: Iterable[Any],
    include_patterns: Iterable[str] | None = None,
    exclude_patterns: Iterable[str] | None = None,
    reg_search: bool = True,
) -> list[Any]:
    """Return the variables whose names match one of `include_patterns` (all if there are none) and
    none of `exclude_patterns`. The patterns are regular expressions; without `reg_search`, they
    must match from the start of the name.
    """
    fits = re.search if reg_search else re.match
    included, excluded = list(include_patterns or [""]), list(exclude_patterns or ())
    return [
        v
        for v in var_list
        if any(fits(p, v.op.name) for p in included)
        and not any(fits(p, v.op.name) for p in excluded)
    ]


@_published("get_variable_full_name")
def get_variable_full_name(var: Any) -> str:
    """Return the name that a variable, or the whole that it's a part of, is saved under."""
    part = var._get_save_slice_info() if isinstance(var, Variable) else None
    return var.op.name if part is None or not part.full_name else part.full_name


@export("contrib.framework.get_name_scope")
def get_name_scope() -> str:
    """Return the current name scope, or an empty string outside any scope."""
    return get_default_graph().get_name_scope()


# -- Giving values ---------------------------------------------------------------------------------


@_published("assign_from_values")
def assign_from_values(var_names_to_values: Mapping[str, Any]) -> tuple[Operation, dict[Any, Any]]:
    """Return an operation that assigns values to variables, given by name, and the feeds it
    needs.
    """
    feeds: dict[Any, Any] = {}
    assigned = [
        _assigned(name, get_unique_variable(name), np.asarray(value), feeds)
        for name, value in var_names_to_values.items()
    ]
    return group(*assigned), feeds


@_published("assign_from_values_fn")
def assign_from_values_fn(var_names_to_values: Mapping[str, Any]) -> Callable[[Any], None]:
    """Return a function of a session that assigns values to variables, given by name."""
    operation, feeds = assign_from_values(var_names_to_values)

    def assign(session: Any) -> None:
        session.run(operation, feeds)

    return assign


def _assigned(name: str, var: Any, value: np.ndarray, feeds: dict[Any, Any]) -> Any:
    shape = var.shape.as_list()
    if value.size != int(np.prod(shape)):
        raise ValueError(
            f"Total size of new array must be unchanged for {name} lh_shape: "
            f"[{value.shape}], rh_shape: [{tuple(shape)}]"
        )
    fed = placeholder(var.dtype.base_dtype, shape=shape, name=f"placeholder/{var.op.name}")
    feeds[fed] = value.reshape(shape)
    return var.assign(fed)


def _named(var_list: Any) -> dict[str, list[Any]]:
    """Return variables by their names in a checkpoint; the parts of a partitioned one are
    grouped.
    """
    found: dict[str, list[Any]] = {}
    pairs = (
        var_list.items()
        if isinstance(var_list, Mapping)
        else ((get_variable_full_name(v), v) for v in var_list)
    )
    for name, var in pairs:
        parts = var if isinstance(var, list | tuple | PartitionedVariable) else [var]
        found.setdefault(name, []).extend(parts)
    return found


@_published("assign_from_checkpoint")
def assign_from_checkpoint(
    model_path: str | os.PathLike[str], var_list: Any, ignore_missing_vars: bool = False
) -> tuple[Operation, dict[Any, Any]]:
    """Return an operation that restores variables from a checkpoint, and the feeds it needs.

    var_list: variables, or a dict of them by the names in the checkpoint. ignore_missing_vars:
    skip variables that the checkpoint lacks, with a warning instead of a ValueError.
    """
    reader = CheckpointReader(checkpoint_in(model_path))
    feeds: dict[Any, Any] = {}
    assigned = []
    for name, parts in _named(var_list).items():
        if not reader.has_tensor(name):
            if not ignore_missing_vars:
                raise ValueError(f"Checkpoint is missing variable [{name}]")
            _log.warning("Checkpoint is missing variable [%s]", name)
            continue
        whole = np.asarray(reader.get_tensor(name))
        for var in parts:
            part = var._get_save_slice_info()
            value = whole if part is None else whole[_region(part)]
            assigned.append(_assigned(name, var, value, feeds))
    return group(*assigned), feeds


def _region(part: Any) -> tuple[slice, ...]:
    sizes = zip(part.var_offset, part.var_shape, strict=True)
    return tuple(slice(start, start + size) for start, size in sizes)


@_published("assign_from_checkpoint_fn")
def assign_from_checkpoint_fn(
    model_path: str | os.PathLike[str],
    var_list: Any,
    ignore_missing_vars: bool = False,
    reshape_variables: bool = False,
) -> Callable[[Any], None] | None:
    """Return a function of a session that restores variables from a checkpoint; None if there is
    nothing to restore.

    var_list: variables, or a dict of them by the names in the checkpoint. ignore_missing_vars:
    skip variables that the checkpoint lacks. reshape_variables: reshape the checkpoint's values to
    the variables' shapes.
    """
    prefix = checkpoint_in(model_path)
    if ignore_missing_vars:
        var_list = _present(CheckpointReader(prefix), var_list)
    if not var_list:
        _log.warning("No Variables to restore")
        return None
    saver = Saver(var_list, reshape=reshape_variables)

    def restore(session: Any) -> None:
        saver.restore(session, prefix)

    return restore


def _present(reader: CheckpointReader, var_list: Any) -> dict[str, Any]:
    kept = {}
    for name, parts in _named(var_list).items():
        if reader.has_tensor(name):
            kept[name] = parts if len(parts) > 1 else parts[0]
        else:
            _log.warning("Variable %s missing in checkpoint", name)
    return kept
