"""RefVariable: a variable whose tensor is a reference, which ops such as Assign change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace._src.core.dtypes import DType, as_dtype
from headrace._src.core.tensor_shape import TensorShape, as_shape
from headrace._src.graph.default import get_default_graph
from headrace._src.graph.operation import Operation, Tensor
from headrace._src.ops.array.constants_and_placeholders import identity
from headrace._src.ops.base.define import b
from headrace._src.ops.base.to_tensor import name_scope
from headrace._src.ops.state import ref_variable_ops
from headrace._src.variables.guard import guarded
from headrace._src.variables.options import VariableAggregation, VariableSynchronization
from headrace._src.variables.variable import (
    Variable,
    check_expected_shape,
    initial_tensor,
)
from headrace._src.variables.variable_def import describe, elements_in, restore

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
        joined = self._take_settings(
            initial_value, collections, constraint, trainable, synchronization, aggregation
        )
        graph = get_default_graph()
        with graph.control_dependencies(None):
            from_function = callable(initial_value)
            values = [] if from_function else [initial_value]
            with name_scope(name, "Variable", values) as scope:
                make = self._make_from_function if from_function else self._make
                make(initial_value, dtype, shape, validate_shape, expected_shape, scope)
                self._make_initializer(validate_shape, scope)
                self._make_snapshot(caching_device)
        self.graph.add_to_collections(joined, self)

    def _make_from_function(self, function: Any, *rest: Any) -> None:
        """Make the initial value in its own scope, on the variable's device."""
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
        self._variable: Tensor = ref_variable_ops.variable_v2(
            as_shape(shape), kind.base_dtype, name=scope
        )

    def _make_initializer(self, validate_shape: bool, scope: str) -> None:
        value = guarded(self._initial_value, scope)
        assigned = ref_variable_ops.assign_op(self._variable, value, validate_shape)
        self._initializer_op = assigned.op

    def _make_snapshot(self, caching_device: Any) -> None:
        """Read once per step: all uses of the variable share this tensor."""
        if caching_device is not None:
            with self.graph.device(caching_device):
                self._snapshot: Tensor = identity(self._variable, name="read")
        else:
            with self.graph.colocate_with(self._variable.op):
                self._snapshot = identity(self._variable, name="read")

    # -- Properties --------------------------------------------------------------------------------

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
        """Return the value, which is read once per step."""
        return self._snapshot

    def read_value(self) -> Tensor:
        """Return a tensor that reads the value when it runs."""
        return identity(self._variable, name="read")

    def assign(
        self,
        value: Any,
        use_locking: bool = False,
        name: str | None = None,
        read_value: bool = True,
    ) -> Any:
        """Assign a value; return the variable's reference, or the operation."""
        return _result(
            ref_variable_ops.assign_op(self._variable, value, use_locking=use_locking, name=name),
            read_value,
        )

    def assign_add(
        self,
        delta: Any,
        use_locking: bool = False,
        name: str | None = None,
        read_value: bool = True,
    ) -> Any:
        """Add to the variable."""
        return _result(
            ref_variable_ops.assign_add_op(self._variable, delta, use_locking, name), read_value
        )

    def assign_sub(
        self,
        delta: Any,
        use_locking: bool = False,
        name: str | None = None,
        read_value: bool = True,
    ) -> Any:
        """Subtract from the variable."""
        return _result(
            ref_variable_ops.assign_sub_op(self._variable, delta, use_locking, name), read_value
        )

    def count_up_to(self, limit: int) -> Tensor:
        """Return the value and add 1 to it; OutOfRangeError once it is `limit`."""
        return ref_variable_ops.count_up_to_op(self._variable, limit)

    def _strided_slice_assign(
        self, begin: Any, end: Any, strides: Any, value: Any, name: str, **masks: int
    ) -> Tensor:
        return b.strided_slice_assign(
            self._variable, begin, end, strides, value, name=name, **masks
        )

    # -- Files -------------------------------------------------------------------------------------

    def to_proto(self, export_scope: str | None = None) -> Any:
        """Return a VariableDef, or None if the variable lies outside `export_scope`."""
        return describe(self, self._snapshot, export_scope)

    def _find(self, variable_def: Any, import_scope: str | None) -> None:
        """Take the nodes that a VariableDef names from the default graph."""
        element = elements_in(import_scope)
        self._variable = element(variable_def.variable_name)
        self._snapshot = element(variable_def.snapshot_name)
        restore(self, variable_def, import_scope)


Variable._kinds["ref"] = RefVariable


def _result(reference: Tensor, read_value: bool) -> Any:
    return reference if read_value else reference.op
