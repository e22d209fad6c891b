"""tf.get_variable and similar functions: create or reuse variables by name, as the scope says."""

from __future__ import annotations

from typing import Any

from headrace._src.core import dtypes
from headrace._src.core.dtypes import as_dtype
from headrace._src.core.export import export
from headrace._src.graph.keys import GraphKeys
from headrace._src.ops.base.conversion_registry import is_tensor
from headrace._src.ops.base.to_tensor import as_array
from headrace._src.variables.options import VariableAggregation, VariableSynchronization
from headrace._src.variables.scope import get_variable_scope, variable_scope
from headrace._src.variables.store import default_variable_store
from headrace._src.variables.variable import Variable

__all__ = ["create_partitioned_variables", "get_local_variable", "get_variable"]


@export("get_variable")
def get_variable(
    name: str,
    shape: Any = None,
    dtype: Any = None,
    initializer: Any = None,
    regularizer: Any = None,
    trainable: bool | None = None,
    collections: Any = None,
    caching_device: Any = None,
    partitioner: Any = None,
    validate_shape: bool = True,
    use_resource: bool | None = None,
    custom_getter: Any = None,
    constraint: Any = None,
    synchronization: VariableSynchronization = VariableSynchronization.AUTO,
    aggregation: VariableAggregation = VariableAggregation.NONE,
) -> Variable:
    """Return the variable `name` of the current variable scope; create or reuse it as the scope
    says.

    Arguments that aren't given come from the scope. Without any initializer, floats get the Glorot
    uniform initializer and other types zeros.
    """
    return get_variable_scope().get_variable(
        default_variable_store(),
        name,
        shape=shape,
        dtype=dtype,
        initializer=initializer,
        regularizer=regularizer,
        trainable=trainable,
        collections=collections,
        caching_device=caching_device,
        partitioner=partitioner,
        validate_shape=validate_shape,
        use_resource=use_resource,
        custom_getter=custom_getter,
        constraint=constraint,
        synchronization=synchronization,
        aggregation=aggregation,
    )


@export("get_local_variable")
def get_local_variable(
    name: str,
    shape: Any = None,
    dtype: Any = None,
    initializer: Any = None,
    regularizer: Any = None,
    trainable: bool = False,
    collections: Any = None,
    caching_device: Any = None,
    partitioner: Any = None,
    validate_shape: bool = True,
    use_resource: bool | None = None,
    custom_getter: Any = None,
    constraint: Any = None,
    synchronization: VariableSynchronization = VariableSynchronization.AUTO,
    aggregation: VariableAggregation = VariableAggregation.NONE,
) -> Variable:
    """Return a variable as `get_variable` does; a new one is local and isn't trained."""
    if trainable:
        raise ValueError(f"the local variable {name} can't be trainable")
    return get_variable(
        name,
        shape=shape,
        dtype=dtype,
        initializer=initializer,
        regularizer=regularizer,
        trainable=False,
        collections=[*(collections or ()), GraphKeys.LOCAL_VARIABLES],
        caching_device=caching_device,
        partitioner=partitioner,
        validate_shape=validate_shape,
        use_resource=use_resource,
        custom_getter=custom_getter,
        constraint=constraint,
        synchronization=synchronization,
        aggregation=aggregation,
    )


@export("create_partitioned_variables")
def create_partitioned_variables(
    shape: Any,
    slicing: list[int],
    initializer: Any,
    dtype: Any = dtypes.float32,
    trainable: bool = True,
    collections: Any = None,
    name: str | None = None,
    reuse: Any = None,
) -> list[Any]:
    """Return the parts of a new variable of `shape`, sliced into `slicing[i]` pieces along axis i.

    `initializer` is a function of a shape and a dtype, or the value of the whole; a tensor keeps
    its own dtype.
    """
    if len(shape) != len(slicing):
        raise ValueError(
            "The 'shape' and 'slicing' of a partitioned Variable must have the length: shape: "
            f"{shape}, slicing: {slicing}"
        )
    if len(shape) < 1:
        raise ValueError(f"A partitioned Variable must have rank at least 1: shape: {shape}")
    if not callable(initializer):
        if not is_tensor(initializer):
            initializer = as_array(initializer, as_dtype(dtype))
        dtype = None
    with variable_scope(name, "PartitionedVariable", reuse=reuse):
        partitioned = get_variable(
            "",
            shape=shape,
            dtype=dtype,
            initializer=initializer,
            trainable=trainable,
            partitioner=lambda **unused: slicing,
            collections=collections,
        )
    return list(partitioned)
