"""ResourceVariable: a variable accessed through a handle; each read and write is a separate op.

`assign` and similar methods return an `_UnreadVariable`: the same variable, as it is after the
write. Used as a tensor, it reads the variable; it can also be written again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from headrace._src.core.dtypes import DType, as_dtype
from headrace._src.core.tensor_shape import TensorShape, as_shape
from headrace._src.graph.default import get_default_graph
from headrace._src.graph.operation import Operation, Tensor
from headrace._src.ops.array.constants_and_placeholders import identity
from headrace._src.ops.base.define import b
from headrace._src.ops.base.to_tensor import convert_to_tensor, name_scope
from headrace._src.ops.state import resource_variable_ops
from headrace._src.variables.guard import guarded
from headrace._src.variables.options import VariableAggregation, VariableSynchronization
from headrace._src.variables.variable import (
    Variable,
    check_expected_shape,
    initial_tensor,
)
from headrace._src.variables.variable_def import describe, elements_in, restore

__all__ = ["ResourceVariable"]


class ResourceVariable(Variable):
    """A variable behind a VarHandleOp; see Variable for the arguments."""

    def __init__(
        self,
        initial_value: Any = None,
        trainable: bool | None = None,
        collections: Any = None,
        validate_shape: bool = True,
        caching_device: Any = None,
        name: str | None = None,
        dtype: Any = None,
        variable_def: Any = None,
        import_scope: str | None = None,
        constraint: Callable[..., Any] | None = None,
        synchronization: VariableSynchronization | None = None,
        aggregation: VariableAggregation | None = None,
        shape: Any = None,
        expected_shape: Any = None,
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
        values = [] if callable(initial_value) else [initial_value]
        with graph.control_dependencies(None), name_scope(name, "Variable", values) as scope:
            self._make(initial_value, dtype, shape, validate_shape, expected_shape, scope)
            self._make_users(caching_device, scope)
        self.graph.add_to_collections(joined, self)

    def _make(
        self,
        initial_value: Any,
        dtype: Any,
        shape: Any,
        validate_shape: bool,
        expected_shape: Any,
        scope: str,
    ) -> None:
        """Make the initial value and the handle."""
        graph = get_default_graph()
        shared_name = scope.rstrip("/")
        with graph._attr_scope({"_class": [f"loc:@{shared_name}"]}):
            with name_scope("Initializer"), graph.device(None):
                value = self._initial_value = initial_tensor(initial_value, dtype)
            check_expected_shape(value, expected_shape)
            self._shape = value.shape if shape is None else as_shape(shape)
            if not value.shape.is_compatible_with(self._shape):
                raise ValueError(
                    f"The initial value's shape ({value.shape}) is not compatible with the "
                    f"explicitly supplied `shape` argument ({shape})."
                )
            if shape is None and not validate_shape:
                self._shape = value.shape
            self._dtype = (as_dtype(dtype) if dtype is not None else value.dtype).base_dtype
            self._handle: Tensor = resource_variable_ops.var_handle_op(
                self._dtype, self._shape, shared_name=shared_name, name=scope
            )

    def _make_users(self, caching_device: Any, scope: str) -> None:
        """Make the initializer, the check for it, and the read that sessions fetch."""
        graph = self.graph
        with name_scope("IsInitialized"):
            resource_variable_ops.var_is_initialized_op(self._handle)
        with (
            name_scope("Assign") as assign,
            graph.colocate_with(None, ignore_existing=True),
            graph.device(self._handle.device),
        ):
            self._initializer_op = resource_variable_ops.assign_variable_op(
                self._handle, guarded(self._initial_value, scope), name=assign
            )
        self._cached_value: Tensor | None = None
        with name_scope("Read"):
            with graph.device(self._handle.device):
                self._graph_element: Tensor = self._read()
            if caching_device is not None:
                with (
                    graph.colocate_with(None, ignore_existing=True),
                    graph.device(caching_device),
                ):
                    self._cached_value = identity(self._graph_element)

    # -- Properties --------------------------------------------------------------------------------

    @property
    def handle(self) -> Tensor:
        """The tensor that holds the variable's handle."""
        return self._handle

    @property
    def name(self) -> str:
        return self._handle.name

    @property
    def op(self) -> Operation:
        return self._handle.op

    @property
    def device(self) -> str:
        return self._handle.device

    @property
    def dtype(self) -> DType:
        return self._dtype

    @property
    def shape(self) -> TensorShape:
        return self._shape

    def set_shape(self, shape: Any) -> NoReturn:
        """Raise an error: a resource variable's shape is fixed when it's made."""
        raise NotImplementedError("ResourceVariable does not implement set_shape()")

    @property
    def create(self) -> Operation:
        """The operation that gives the variable its initial value."""
        return self._initializer_op

    def is_initialized(self, name: str | None = None) -> Tensor:
        """Return whether the variable has a value."""
        return resource_variable_ops.var_is_initialized_op(self._handle, name)

    @property
    def _unique_id(self) -> str:
        return self.op.name

    def _as_graph_element(self) -> Tensor:
        return self._graph_element

    def _gradient_source(self) -> Tensor:
        return self._handle

    def __bool__(self) -> bool:
        return bool(self.read_value())

    def __int__(self) -> int:
        if not get_default_graph().executes:
            raise TypeError(f"{self!r} has a value only in sessions: use eval() or Session.run")
        return int(self.numpy())

    def __copy__(self) -> ResourceVariable:
        return self

    def __deepcopy__(self, memo: Any) -> NoReturn:
        raise NotImplementedError(
            "__deepcopy__() is only available when eager execution is enabled."
        )

    def numpy(self) -> Any:
        """Return the value in eager code; elsewhere only sessions can evaluate it."""
        if not get_default_graph().executes:
            raise NotImplementedError("numpy() is only available when eager execution is enabled.")
        return self.read_value().numpy()  # type: ignore[attr-defined]  # it's an EagerTensor

    # -- Its value ---------------------------------------------------------------------------------

    def _read(self) -> Tensor:
        return resource_variable_ops.read_variable_op(self._handle, self._dtype)

    def value(self) -> Tensor:
        """Return a tensor that reads the value when it runs, or the cached value."""
        if self._cached_value is not None:
            return self._cached_value
        graph = self.graph
        with graph.colocate_with(None, ignore_existing=True), graph.device(self._handle.device):
            return self._read()

    def read_value(self) -> Tensor:
        """Return a tensor that reads the value when it runs."""
        with name_scope("Read"), self.graph.device(self._handle.device):
            found = self._read()
        return identity(found)

    def sparse_read(self, indices: Any, name: str | None = None) -> Tensor:
        """Return rows of the variable."""
        with name_scope("Gather" if name is None else name) as scope:
            found = resource_variable_ops.resource_gather(
                self._handle, indices, dtype=self._dtype, name=scope
            )
        return identity(found)

    def gather_nd(self, indices: Any, name: str | None = None) -> Tensor:
        """Return the slices of the variable at the coordinates `indices`."""
        with name_scope("GatherNd" if name is None else name) as scope:
            found = resource_variable_ops.resource_gather_nd(
                self._handle, indices, dtype=self._dtype, name=scope
            )
        return identity(found)

    def _lazy_read(self, op: Operation) -> _UnreadVariable:
        """Return the variable as it is after `op` has changed it."""
        return _UnreadVariable(self, op)

    def _written(self, op: Operation, read_value: bool) -> Any:
        return self._lazy_read(op) if read_value else op

    def assign(
        self,
        value: Any,
        use_locking: bool | None = None,
        name: str | None = None,
        read_value: bool = True,
    ) -> Any:
        """Assign a value; return the variable as it is after that, or the operation.

        Writes always happen one at a time; `use_locking` has no effect.
        """
        tensor = convert_to_tensor(value, self._dtype)
        self._shape.assert_is_compatible_with(tensor.shape)
        op = resource_variable_ops.assign_variable_op(self._handle, tensor, name)
        return self._written(op, read_value)

    def assign_add(
        self,
        delta: Any,
        use_locking: bool | None = None,
        name: str | None = None,
        read_value: bool = True,
    ) -> Any:
        """Add to the variable."""
        tensor = convert_to_tensor(delta, self._dtype)
        op = resource_variable_ops.assign_add_variable_op(self._handle, tensor, name)
        return self._written(op, read_value)

    def assign_sub(
        self,
        delta: Any,
        use_locking: bool | None = None,
        name: str | None = None,
        read_value: bool = True,
    ) -> Any:
        """Subtract from the variable."""
        tensor = convert_to_tensor(delta, self._dtype)
        op = resource_variable_ops.assign_sub_variable_op(self._handle, tensor, name)
        return self._written(op, read_value)

    def count_up_to(self, limit: int) -> Tensor:
        """Return the value and add 1 to it; OutOfRangeError once it is `limit`."""
        return resource_variable_ops.resource_count_up_to(self._handle, limit, T=self._dtype)

    def _strided_slice_assign(
        self, begin: Any, end: Any, strides: Any, value: Any, name: str, **masks: int
    ) -> Any:
        value = convert_to_tensor(value, self._dtype)
        op = b.resource_strided_slice_assign(
            self._handle, begin, end, strides, value, name=name, **masks
        )
        return self._lazy_read(op)

    # -- Files -------------------------------------------------------------------------------------

    def to_proto(self, export_scope: str | None = None) -> Any:
        """Return a VariableDef, or None if the variable lies outside `export_scope`."""
        cached = self._cached_value
        found = describe(self, self._graph_element if cached is None else cached, export_scope)
        if found is not None:
            found.is_resource = True
        return found

    def _find(self, variable_def: Any, import_scope: str | None) -> None:
        """Take the nodes that a VariableDef names from the default graph."""
        if not variable_def.is_resource:
            raise ValueError("Trying to restore Variable as ResourceVariable.")
        element = elements_in(import_scope)
        self._handle = element(variable_def.variable_name)
        self._shape = self._handle.op.attrs["shape"]
        self._dtype = self._handle.op.attrs["dtype"]
        snapshot = element(variable_def.snapshot_name)
        reads = snapshot.op.inputs[:1] == [self._handle]
        self._cached_value = None if reads else snapshot
        self._graph_element = snapshot if reads else snapshot.op.inputs[0]
        restore(self, variable_def, import_scope)


def _refuse(operator: str, advice: str) -> Callable[..., Any]:
    def method(self: ResourceVariable, other: Any) -> NoReturn:
        raise RuntimeError(
            f"Variable {operator} value not supported. Use {advice} to get a new Tensor object."
        )

    return method


for _name, _operator, _method in (("iadd", "+", "assign_add"), ("isub", "-", "assign_sub")):
    setattr(
        ResourceVariable,
        f"__{_name}__",
        _refuse(
            f"{_operator}=",
            f"variable.{_method}(value) to modify the variable value and variable = variable "
            f"{_operator} value",
        ),
    )
for _name, _operator in (
    *(("imul", "*"), ("idiv", "/"), ("itruediv", "/")),
    *(("irealdiv", "/"), ("ipow", "**")),
):
    setattr(
        ResourceVariable,
        f"__{_name}__",
        _refuse(
            f"{_operator}=",
            f"`var.assign(var {_operator} value)` to modify the variable or `var = var {_operator} "
            "value`",
        ),
    )

Variable._kinds["resource"] = ResourceVariable


class _UnreadVariable(ResourceVariable):
    """A resource variable as it is after an operation has changed it."""

    def __init__(self, variable: ResourceVariable, parent_op: Operation) -> None:
        self._handle = variable.handle
        self._dtype = variable.dtype
        self._shape = variable.shape
        self._initial_value = variable._initial_value
        self._initializer_op = variable._initializer_op
        self._constraint = variable.constraint
        self._trainable = variable.trainable
        self._synchronization = variable.synchronization
        self._aggregation = variable.aggregation
        self._save_slice_info = variable._save_slice_info
        self._cached_value = None
        self._parent_op = parent_op
        with self.graph.control_dependencies([parent_op]):
            self._graph_element = self._read()

    @property
    def name(self) -> str:
        return self._parent_op.name

    @property
    def op(self) -> Operation:
        return self._parent_op

    def value(self) -> Tensor:
        """Return the value after the change."""
        with self.graph.control_dependencies([self._parent_op]):
            return super().value()

    def read_value(self) -> Tensor:
        """Return the value after the change."""
        with self.graph.control_dependencies([self._parent_op]):
            return self._read()
