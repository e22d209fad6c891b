"""RefVariable: a variable whose tensor is a reference, which ops such as Assign change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.core import proto
from headrace.core.dtypes import DType, as_dtype
from headrace.core.shapes import TensorShape, as_shape
from headrace.graph.default import get_default_graph
from headrace.graph.operation import Operation, Tensor
from headrace.ops import scatter, state
from headrace.ops.convert import name_scope
from headrace.ops.define import b
from headrace.ops.source_ops import identity
from headrace.variables.options import (
    VariableAggregation,
    VariableSynchronization,
    replication,
)
from headrace.variables.slice_info import SaveSliceInfo, with_scope, without_scope
from headrace.variables.variable import (
    Variable,
    check_arguments,
    check_expected_shape,
    initial_tensor,
    slices,
)

__all__ = ["RefVariable"]


class RefVariable(Variable):
    """A variable made of VariableV2, Assign and Identity nodes; see Variable for the arguments."""

    def __init__(
        self,
        initial_value: Any = None,
        trainable: bool | None = None,
        collections: Any = None,
        validate_shape: bool = True,
        caching_device: Any = None,
        name: str | None = None,
        variable_def: Any = None,
        dtype: Any = None,
        expected_shape: Any = None,
        import_scope: str | None = None,
        constraint: Callable[..., Any] | None = None,
        synchronization: VariableSynchronization | None = None,
        aggregation: VariableAggregation | None = None,
        shape: Any = None,
    ) -> None:
        if variable_def is not None:
            if initial_value is not None:
                raise ValueError("variable_def and initial_value are mutually exclusive.")
            self._find(variable_def, import_scope)
            return
        modes = replication(synchronization, aggregation, trainable)
        self._synchronization, self._aggregation, self._trainable = modes
        joined = check_arguments(initial_value, collections, constraint, self._trainable)
        self._constraint = constraint
        self._caching_device = caching_device
        graph = get_default_graph()
        with graph.control_dependencies(None):
            from_function = callable(initial_value)
            values = [] if from_function else [initial_value]
            with name_scope(name, "Variable", values) as scope:
                make = self._make_from_function if from_function else self._make
                make(initial_value, dtype, shape, validate_shape, expected_shape, scope)
                self._make_initializer(validate_shape)
                self._make_snapshot(caching_device)
        self.graph.add_to_collections(joined, self)

    def _make_from_function(self, function: Any, *rest: Any) -> None:
        """Make the initial value in a scope of its own, on whatever device the variable gets."""
        graph = get_default_graph()
        group = f"loc:@{rest[-1].rstrip('/')}"
        with graph._attr_scope({"_class": [group]}):
            with name_scope("Initializer"), graph.device(None):
                value = initial_tensor(function, rest[0])
            self._make(value, *rest)

    def _make(
        self,
        initial_value: Any,
        dtype: Any,
        shape: Any,
        validate_shape: bool,
        expected_shape: Any,
        scope: str,
    ) -> None:
        value = self._initial_value = initial_tensor(initial_value, dtype)
        check_expected_shape(value, expected_shape)
        if validate_shape and not value.shape.is_fully_defined():
            raise ValueError(f"initial_value must have a shape specified: {value}")
        if shape is None:
            shape = value.shape if validate_shape else TensorShape(None)
        kind = as_dtype(dtype) if dtype is not None else value.dtype
        self._variable: Tensor = state.variable_v2(as_shape(shape), kind.base_dtype, name=scope)

    def _make_initializer(self, validate_shape: bool) -> None:
        assigned = state.assign_op(self._variable, self._initial_value, validate_shape)
        self._initializer_op = assigned.op

    def _make_snapshot(self, caching_device: Any) -> None:
        """Read once per step: all uses of the variable share this tensor."""
        if caching_device is not None:
            with self.graph.device(caching_device):
                self._snapshot: Tensor = identity(self._variable, name="read")
        else:
            with self.graph.colocate_with(self._variable.op):
                self._snapshot = identity(self._variable, name="read")

    # -- What it is --------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        return self._variable.name

    @property
    def op(self) -> Operation:
        return self._variable.op

    @property
    def dtype(self) -> DType:
        return self._variable.dtype

    @property
    def shape(self) -> TensorShape:
        return self._variable.shape

    def set_shape(self, shape: Any) -> None:
        """Merge `shape` into the static shape of the variable and of its value."""
        self._variable.set_shape(shape)
        self._snapshot.set_shape(shape)

    def _ref(self) -> Tensor:
        return self._variable

    def _as_graph_element(self) -> Tensor:
        return self._variable

    def _gradient_source(self) -> Tensor:
        return self._variable

    # -- Its value ---------------------------------------------------------------------------------

    def value(self) -> Tensor:
        """Return the value that this step read."""
        return self._snapshot

    def read_value(self) -> Tensor:
        """Return the value as of when this read runs."""
        return identity(self._variable, name="read")

    def assign(
        self,
        value: Any,
        use_locking: bool = False,
        name: str | None = None,
        read_value: bool = True,
    ) -> Any:
        """Give the variable a value; return its reference, or the operation."""
        return _result(
            state.assign_op(self._variable, value, use_locking=use_locking, name=name), read_value
        )

    def assign_add(
        self,
        delta: Any,
        use_locking: bool = False,
        name: str | None = None,
        read_value: bool = True,
    ) -> Any:
        """Add to the variable."""
        return _result(state.assign_add_op(self._variable, delta, use_locking, name), read_value)

    def assign_sub(
        self,
        delta: Any,
        use_locking: bool = False,
        name: str | None = None,
        read_value: bool = True,
    ) -> Any:
        """Subtract from the variable."""
        return _result(state.assign_sub_op(self._variable, delta, use_locking, name), read_value)

    def count_up_to(self, limit: int) -> Tensor:
        """Return the value and add 1 to it; OutOfRangeError once it is `limit`."""
        return state.count_up_to_op(self._variable, limit)

    def _scatter(self, op: Any, delta: Any, use_locking: bool, name: str | None) -> Tensor:
        delta = slices(delta)
        return op(self._variable, delta.indices, delta.values, use_locking, name)

    def scatter_add(
        self, sparse_delta: Any, use_locking: bool = False, name: str | None = None
    ) -> Tensor:
        """Add IndexedSlices to the variable."""
        return self._scatter(scatter.scatter_add_op, sparse_delta, use_locking, name)

    def scatter_sub(
        self, sparse_delta: Any, use_locking: bool = False, name: str | None = None
    ) -> Tensor:
        """Subtract IndexedSlices from the variable."""
        return self._scatter(scatter.scatter_sub_op, sparse_delta, use_locking, name)

    def scatter_mul(
        self, sparse_delta: Any, use_locking: bool = False, name: str | None = None
    ) -> Tensor:
        """Multiply rows of the variable by IndexedSlices."""
        return self._scatter(scatter.scatter_mul_op, sparse_delta, use_locking, name)

    def scatter_div(
        self, sparse_delta: Any, use_locking: bool = False, name: str | None = None
    ) -> Tensor:
        """Divide rows of the variable by IndexedSlices."""
        return self._scatter(scatter.scatter_div_op, sparse_delta, use_locking, name)

    def scatter_min(
        self, sparse_delta: Any, use_locking: bool = False, name: str | None = None
    ) -> Tensor:
        """Keep the smaller of rows of the variable and IndexedSlices."""
        return self._scatter(scatter.scatter_min_op, sparse_delta, use_locking, name)

    def scatter_max(
        self, sparse_delta: Any, use_locking: bool = False, name: str | None = None
    ) -> Tensor:
        """Keep the larger of rows of the variable and IndexedSlices."""
        return self._scatter(scatter.scatter_max_op, sparse_delta, use_locking, name)

    def scatter_update(
        self, sparse_delta: Any, use_locking: bool = False, name: str | None = None
    ) -> Tensor:
        """Replace rows of the variable by IndexedSlices."""
        return self._scatter(scatter.scatter_update_op, sparse_delta, use_locking, name)

    def batch_scatter_update(
        self, sparse_delta: Any, use_locking: bool = False, name: str | None = None
    ) -> Tensor:
        """Replace rows of each batch of the variable by IndexedSlices."""
        delta = slices(sparse_delta)
        return b.batch_scatter_update(self, delta.indices, delta.values, use_locking, name)

    def scatter_nd_add(self, indices: Any, updates: Any, name: str | None = None) -> Tensor:
        """Add to the slices of the variable at the coordinates `indices`."""
        return scatter.scatter_nd_add_op(self._variable, indices, updates, True, name)

    def scatter_nd_sub(self, indices: Any, updates: Any, name: str | None = None) -> Tensor:
        """Subtract from the slices of the variable at the coordinates `indices`."""
        return scatter.scatter_nd_sub_op(self._variable, indices, updates, True, name)

    def scatter_nd_update(self, indices: Any, updates: Any, name: str | None = None) -> Tensor:
        """Replace the slices of the variable at the coordinates `indices`."""
        return scatter.scatter_nd_update_op(self._variable, indices, updates, True, name)

    def _strided_slice_assign(
        self, begin: Any, end: Any, strides: Any, value: Any, name: str, **masks: int
    ) -> Tensor:
        return b.strided_slice_assign(
            self._variable, begin, end, strides, value, name=name, **masks
        )

    # -- Files -------------------------------------------------------------------------------------

    def to_proto(self, export_scope: str | None = None) -> Any:
        """Return a VariableDef, or None if the variable lies outside of `export_scope`."""
        if export_scope is not None and not self.name.startswith(export_scope):
            return None
        return describe(self, self._snapshot, export_scope)

    def _find(self, variable_def: Any, import_scope: str | None) -> None:
        """Take the nodes that a VariableDef names from the default graph."""

        def element(name: str) -> Any:
            return get_default_graph().as_graph_element(with_scope(name, import_scope))

        self._variable = element(variable_def.variable_name)
        self._initializer_op = element(variable_def.initializer_name)
        self._initial_value = (
            element(variable_def.initial_value_name) if variable_def.initial_value_name else None
        )
        self._snapshot = element(variable_def.snapshot_name)
        self._caching_device = None
        restore_settings(self, variable_def, import_scope)


Variable._kinds["ref"] = RefVariable


def _result(reference: Tensor, read_value: bool) -> Any:
    return reference if read_value else reference.op


def describe(variable: Variable, snapshot: Tensor, export_scope: str | None) -> Any:
    """The VariableDef of a variable whose value is first read by `snapshot`."""
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


def restore_settings(variable: Variable, variable_def: Any, import_scope: str | None) -> None:
    """Take what is not a node from a VariableDef."""
    variable._trainable = variable_def.trainable
    variable._synchronization = VariableSynchronization(variable_def.synchronization)
    variable._aggregation = VariableAggregation(variable_def.aggregation)
    variable._constraint = None
    if variable_def.HasField("save_slice_info_def"):
        variable._save_slice_info = SaveSliceInfo(
            save_slice_info_def=variable_def.save_slice_info_def, import_scope=import_scope
        )
