"""VariableStore: the variables that tf.get_variable made in one graph, by name.

In: a full name and the requested properties. Out: the variable of that name, created if `reuse`
allows, or an error that says where the existing one was created.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any

from headrace._src.core.dtypes import DType, as_dtype
from headrace._src.core.source import user_lines
from headrace._src.core.tensor_shape import TensorShape, as_shape
from headrace._src.graph.default import get_default_graph
from headrace._src.graph.graph import Graph
from headrace._src.graph.keys import GraphKeys
from headrace._src.graph.operation import made_at
from headrace._src.ops.base.define import b
from headrace._src.ops.base.to_tensor import as_array, name_scope
from headrace._src.variables.initializers import GlorotUniform, Zeros
from headrace._src.variables.options import replication, resource_variables_enabled
from headrace._src.variables.partition import PartitionedVariable, PartitionInfo, partition_sizes
from headrace._src.variables.slice_info import SaveSliceInfo
from headrace._src.variables.variable import Variable

__all__ = ["AUTO_REUSE", "ReuseMode", "VariableStore", "default_variable_store"]

_KEY = ("__variable_store",)


class ReuseMode(Enum):
    """The type of AUTO_REUSE: reuse a variable if it exists, else make it."""

    AUTO_REUSE = 1


AUTO_REUSE = ReuseMode.AUTO_REUSE


def default_variable_store(graph: Graph | None = None) -> VariableStore:
    """Return the store of `graph` (or of the default graph), made on first use."""
    kept = (graph or get_default_graph()).get_collection_ref(_KEY)
    if not kept:
        kept.append(VariableStore())
    return kept[0]


class VariableStore:
    """The variables made by tf.get_variable: `_vars` by name, `_partitioned` by the name of the
    whole.

    `scope_counts` counts the openings of each variable scope, which makes default names unique.
    """

    def __init__(self) -> None:
        self._vars: dict[str, Any] = {}
        self._partitioned: dict[str, PartitionedVariable] = {}
        self.scope_counts: dict[str, int] = {}

    # -- Scopes ------------------------------------------------------------------------------------

    def open_scope(self, name: str) -> None:
        """Count an opening of the scope `name`."""
        self.scope_counts[name] = self.scope_counts.get(name, 0) + 1

    def close_subscopes(self, name: str) -> None:
        """Reset the counts of scopes inside `name`: their default names start over."""
        for key in self.scope_counts:
            if not name or key.startswith(f"{name}/"):
                self.scope_counts[key] = 0

    # -- Variables ---------------------------------------------------------------------------------

    def get_variable(
        self,
        name: str,
        shape: Any = None,
        dtype: Any = None,
        initializer: Any = None,
        regularizer: Any = None,
        reuse: Any = None,
        trainable: bool | None = None,
        collections: Any = None,
        caching_device: Any = None,
        partitioner: Any = None,
        validate_shape: bool = True,
        use_resource: bool | None = None,
        custom_getter: Callable[..., Any] | None = None,
        constraint: Any = None,
        synchronization: Any = None,
        aggregation: Any = None,
    ) -> Any:
        """Return the variable `name`, through `custom_getter(getter, name, ...)` if given."""
        if custom_getter is not None and not callable(custom_getter):
            raise ValueError(f"Passed a custom_getter which is not callable: {custom_getter}")
        modes = replication(synchronization, aggregation, trainable)
        settings = {
            "shape": shape,
            "dtype": as_dtype(dtype if dtype is not None else "float32").base_dtype,
            "initializer": initializer,
            "regularizer": regularizer,
            "reuse": reuse,
            "trainable": modes[2],
            "collections": collections,
            "caching_device": caching_device,
            "partitioner": partitioner,
            "validate_shape": validate_shape,
            "use_resource": use_resource,
            "synchronization": modes[0],
            "aggregation": modes[1],
        }
        if custom_getter is None:
            return self._get(name, **settings, constraint=constraint)
        if _takes(custom_getter, "constraint"):
            settings["constraint"] = constraint
        return custom_getter(getter=self._get, name=name, **settings)

    def _get(
        self,
        name: str,
        shape: Any = None,
        dtype: Any = "float32",
        initializer: Any = None,
        regularizer: Any = None,
        reuse: Any = None,
        trainable: bool | None = None,
        collections: Any = None,
        caching_device: Any = None,
        partitioner: Any = None,
        validate_shape: bool = True,
        use_resource: bool | None = None,
        constraint: Any = None,
        synchronization: Any = None,
        aggregation: Any = None,
    ) -> Any:
        """Return the variable `name` without custom getters; this is the getter that they call."""
        shape = None if shape is None else as_shape(shape)
        modes = replication(synchronization, aggregation, trainable)
        if use_resource is None:
            use_resource = resource_variables_enabled()
        settings = {
            "collections": collections,
            "caching_device": caching_device,
            "validate_shape": validate_shape,
            "use_resource": use_resource,
            "constraint": constraint,
            "trainable": modes[2],
            "synchronization": modes[0],
            "aggregation": modes[1],
        }
        what = (shape, as_dtype(dtype).base_dtype, initializer, regularizer, reuse)
        if partitioner is not None and not (shape is not None and shape.sizes == ()):
            if not callable(partitioner):
                raise ValueError(f"Partitioner must be callable, but received: {partitioner}")
            with name_scope(None):
                return self._get_partitioned(name.rstrip("/"), partitioner, *what, settings)
        if f"{name}/part_0" in self._vars:
            if reuse is True:
                return self._reuse_partitioned(name, shape, what[1], None, reuse)
            raise ValueError(
                "No partitioner was provided, but a partitioned version of the variable was found: "
                f"{name}/part_0. Perhaps a variable of the same name was already created with "
                "partitioning?"
            )
        return self._get_single(name, *what, None, settings)

    def _get_single(
        self,
        name: str,
        shape: TensorShape | None,
        dtype: DType,
        initializer: Any,
        regularizer: Any,
        reuse: Any,
        partition_info: PartitionInfo | None,
        settings: dict[str, Any],
    ) -> Any:
        from_value = initializer is not None and not callable(initializer)
        if from_value and shape is not None:
            raise ValueError("If initializer is a constant, do not specify shape.")
        found = self._vars.get(name)
        if found is not None:
            if reuse is False or reuse is None:
                raise ValueError(
                    f"Variable {name} already exists, disallowed. Did you mean to set reuse=True "
                    "or reuse=tf.AUTO_REUSE in VarScope? Originally defined at:\n\n  "
                    + "\n  ".join(user_lines(found.op.traceback_frames, "")).lstrip()
                )
            return _checked(found, name, shape, dtype)
        if reuse is True:
            raise ValueError(
                f"Variable {name} does not exist, or was not created with tf.get_variable(). Did "
                "you mean to set reuse=tf.AUTO_REUSE in VarScope?"
            )
        if initializer is None:
            initializer = _default_initializer(name, dtype)
        with get_default_graph().control_dependencies(None):
            if from_value:
                value, kind = initializer, None
            else:
                value, kind = _initial_value(initializer, shape, dtype, partition_info)
            variable = Variable(initial_value=value, name=name, dtype=kind, **settings)
        self._vars[name] = variable
        if regularizer:
            _regularize(variable, name, regularizer)
        return variable

    # -- Partitioned variables ---------------------------------------------------------------------

    def _get_partitioned(
        self,
        name: str,
        partitioner: Callable[..., Any],
        shape: TensorShape | None,
        dtype: DType,
        initializer: Any,
        regularizer: Any,
        reuse: Any,
        settings: dict[str, Any],
    ) -> PartitionedVariable:
        from_value = initializer is not None and not callable(initializer)
        if name in self._vars:
            raise ValueError(
                "A partitioner was provided, but an unpartitioned version of the variable was "
                f"found: {name}.  Perhaps a variable of the same name was already created without "
                "partitioning?"
            )
        if from_value:
            whole: Any = initializer if hasattr(initializer, "shape") else as_array(initializer)
            shape = as_shape(shape).merge_with(as_shape(whole.shape))
        shape = as_shape(shape)
        if not shape.is_fully_defined():
            raise ValueError(
                "Shape of a new partitioned variable must be fully defined, but instead was "
                f"{shape}."
            )
        partitions = _checked_partitions(partitioner, shape, dtype)
        if from_value:  # the partitioner gets the requested shape, as in TensorFlow
            dtype = as_dtype(whole.dtype).base_dtype
        if name in self._partitioned:
            return self._reuse_partitioned(name, shape, dtype, partitions, reuse)
        if reuse is True:
            raise ValueError(
                f"PartitionedVariable {name} does not exist, or was not created with "
                "tf.get_variable(). Did you mean to set reuse=False or reuse=tf.AUTO_REUSE in "
                "VarScope?"
            )
        parts = []
        full: list[Any] = shape.as_list()
        for i, (offset, sizes) in enumerate(partition_sizes(full, partitions)):
            part_name = f"{name}/part_{i}"
            if from_value:
                with name_scope(f"{part_name}/PartitionedInitializer/"):
                    value = b.slice(initializer, offset, sizes)
                part_shape = None
            else:
                value, part_shape = initializer, TensorShape(sizes)
            info = PartitionInfo(full_shape=full, var_offset=offset)
            part = self._get_single(
                part_name, part_shape, dtype, value, regularizer, reuse, info, settings
            )
            part._set_save_slice_info(SaveSliceInfo(name, full, offset, sizes))
            parts.append(part)
        whole = PartitionedVariable(name, shape, dtype, parts, partitions)
        self._partitioned[name] = whole
        return whole

    def _reuse_partitioned(
        self,
        name: str,
        shape: TensorShape | None,
        dtype: DType,
        partitions: Sequence[int] | None,
        reuse: Any,
    ) -> PartitionedVariable:
        """Return the variable `name` if it has the given shape and partitions."""
        found = self._partitioned[name]
        if not reuse:
            raise ValueError(
                f"Partitioned variable with name {name} already exists. Did you mean to set "
                "reuse=True or reuse=tf.AUTO_REUSE in VarScope?"
                + made_at(*(part.op for part in list(found)[:1]))
            )
        for what, asked, has in (
            ("shape", shape, found.get_shape()),
            ("dtype", dtype.name, found.dtype.name),
            ("partitions", partitions, list(found._get_partitions())),
        ):
            if asked is not None and asked != has:
                raise ValueError(
                    f"Trying to reuse partitioned variable {name}, but specified {what} {asked} "
                    f"and found {what} {has}."
                )
        return found


def _takes(function: Callable[..., Any], argument: str) -> bool:
    """Return whether a function accepts `argument` by name."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # a built-in function, whose arguments are unknown
        return False
    return any(p.name == argument or p.kind is p.VAR_KEYWORD for p in parameters)


def _checked(found: Any, name: str, shape: TensorShape | None, dtype: DType) -> Any:
    if shape is not None and not shape.is_compatible_with(found.shape):
        raise ValueError(
            f"Trying to share variable {name}, but specified shape {shape} and found shape "
            f"{found.shape}."
        )
    if not dtype.is_compatible_with(found.dtype):
        raise ValueError(
            f"Trying to share variable {name}, but specified dtype {dtype.name} and found dtype "
            f"{found.dtype.name}."
        )
    return found


def _default_initializer(name: str, dtype: DType) -> Any:
    if dtype.is_floating:
        return GlorotUniform()
    if dtype.is_integer or dtype.is_bool or dtype.name == "string":
        return Zeros()
    raise ValueError(f"An initializer for variable {name} of {dtype} is required")


def _initial_value(
    initializer: Any, shape: TensorShape | None, dtype: DType, info: PartitionInfo | None
) -> tuple[Callable[[], Any], DType | None]:
    """Return a function that makes the initial value, and the dtype to pass to it."""
    if inspect.isclass(initializer):
        initializer = initializer()
    if shape is not None and shape.is_fully_defined():
        sizes = shape.as_list()
        if _takes(initializer, "partition_info"):
            return lambda: initializer(sizes, dtype=dtype, partition_info=info), dtype
        return lambda: initializer(sizes, dtype=dtype), dtype
    if _needs_nothing(initializer):
        return initializer, None
    raise ValueError(
        "The initializer passed is not valid. It should be a callable with no arguments and the "
        "shape should not be provided or an instance of `tf.keras.initializers.*' and `shape` "
        "should be fully defined."
    )


def _needs_nothing(function: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    optional = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return all(p.default is not p.empty or p.kind in optional for p in parameters)


def _regularize(variable: Any, name: str, regularizer: Callable[[Any], Any]) -> None:
    graph = variable.graph
    with graph.colocate_with(variable.op), name_scope(f"{name}/Regularizer/"):
        loss = regularizer(variable)
    if loss is not None:
        graph.add_to_collection(GraphKeys.REGULARIZATION_LOSSES, loss)


def _checked_partitions(
    partitioner: Callable[..., Any], shape: TensorShape, dtype: DType
) -> list[int]:
    partitions = partitioner(shape=shape, dtype=dtype)
    if not isinstance(partitions, Sequence):
        raise ValueError(f"Partitioner must return a sequence, but saw: {partitions}")
    if len(partitions) != shape.ndims:
        raise ValueError(
            "Partitioner returned a partition list that does not match the Variable's rank: "
            f"{partitions} vs. {shape}"
        )
    if any(p < 1 for p in partitions):
        raise ValueError(f"Partitioner returned zero partitions for some axes: {partitions}")
    if sum(p > 1 for p in partitions) > 1:
        raise ValueError(
            f"Can only slice a variable along one dimension: shape: {shape}, partitioning: "
            f"{partitions}"
        )
    return list(partitions)
