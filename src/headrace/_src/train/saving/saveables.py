"""The objects that savers store. In: variables, in a list or by name. Out: saveable objects, sorted
by name.

A saveable has a `name`, the `op` that it represents, `specs` (tensors to store, each with its own
name and slice) and `restore(tensors, shapes)`, which restores the stored tensors. Tables define
their own saveables; those of variables are here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from headrace._src.core.device_names import DeviceSpec
from headrace._src.core.dtypes import DType
from headrace._src.core.tensor_shape import TensorShape, as_shape
from headrace._src.graph.default import get_default_graph
from headrace._src.graph.operation import Operation, Tensor, made_at
from headrace._src.ops.array.constants_and_placeholders import identity
from headrace._src.ops.base.define import b
from headrace._src.ops.base.to_tensor import convert_to_tensor
from headrace._src.ops.state import ref_variable_ops, resource_variable_ops
from headrace._src.ops.state.table_classes import LookupInterface
from headrace._src.variables.partition import PartitionedVariable
from headrace._src.variables.resource_variable import ResourceVariable
from headrace._src.variables.variable import Variable

__all__ = ["SaveSpec", "SaveableObject", "by_name", "name_and_value", "on_cpu", "saveables_of"]


def on_cpu(device: str) -> str:
    """Return the CPU of the machine that a device belongs to."""
    spec = DeviceSpec.from_string(device)
    return spec.replace(device_type="CPU", device_index=0).to_string()


class SaveSpec:
    """A tensor to store (or a function that makes it), with its name and slice."""

    def __init__(
        self,
        tensor: Tensor | Callable[[], Tensor],
        slice_spec: str,
        name: str,
        dtype: DType,
    ) -> None:
        self._tensor = tensor
        self.slice_spec = slice_spec
        self.name = name
        self.dtype = dtype

    @property
    def tensor(self) -> Tensor:
        """The tensor; a function makes a new one each time."""
        return self._tensor if isinstance(self._tensor, Tensor) else self._tensor()


class SaveableObject:
    """An object stored as one or several tensors; subclasses say how it's restored."""

    def __init__(self, op: Any, specs: Iterable[Any], name: str) -> None:
        self.op = op
        self.specs = list(specs)
        self.name = name

    def restore(self, restored_tensors: Any, restored_shapes: Any) -> Operation:
        """Return the operation that restores it; the tensors are reshaped first if shapes are
        given.
        """
        raise NotImplementedError(f"{type(self).__name__} doesn't say how it is restored")


class _Reference(SaveableObject):
    """A reference variable."""

    def __init__(self, reference: Tensor, value: Tensor, slice_spec: str, name: str) -> None:
        dtype = reference.dtype.base_dtype
        super().__init__(reference, [SaveSpec(value, slice_spec, name, dtype)], name)

    def restore(self, restored_tensors: Any, restored_shapes: Any) -> Operation:
        (value,) = restored_tensors
        if restored_shapes is not None:
            value = b.reshape(value, restored_shapes[0])
        check = restored_shapes is None and self.op.shape.is_fully_defined()
        return ref_variable_ops.assign_op(self.op, value, validate_shape=check, use_locking=True)


class _Resource(SaveableObject):
    """A resource variable."""

    def __init__(
        self, handle: Tensor, shape: TensorShape, value: Any, dtype: DType, spec: str, name: str
    ) -> None:
        self._handle, self._shape = handle, shape
        super().__init__(handle, [SaveSpec(value, spec, name, dtype)], name)

    def restore(self, restored_tensors: Any, restored_shapes: Any) -> Operation:
        (value,) = restored_tensors
        if restored_shapes is not None:
            value = b.reshape(value, restored_shapes[0])
        with get_default_graph().device(self._handle.device):
            value = identity(value)
            self._shape.assert_is_compatible_with(value.shape)
            return resource_variable_ops.assign_variable_op(self._handle, value)


# -- From variables --------------------------------------------------------------------------------


def saveables_of(items: Mapping[str, Any] | Iterable[Any]) -> list[Any]:
    """Return the saveables of variables: in a dict, by the names to store them under, or in a list,
    by their own names.
    """
    named = dict(items) if isinstance(items, Mapping) else by_name(items)
    found: list[Any] = []
    seen: set[Any] = set()
    for name in sorted(named, key=_checked_name):
        for saveable in _saveables(name, named[name]):
            if saveable.op in seen:
                raise ValueError(f"The same saveable will be restored with two names: {name}")
            seen.add(saveable.op)
            found.append(saveable)
    return found


def _checked_name(name: Any) -> str:
    if not isinstance(name, str):
        raise TypeError(
            "names_to_saveables must be a dict mapping string names to trackable operations. Name "
            f"is not a string: {name}"
        )
    return name


def by_name(items: Any) -> dict[str, Any]:
    """Return variables by the names that they are stored under; a partitioned one as a list of
    parts.
    """
    if isinstance(items, str) or not isinstance(items, Iterable):
        raise TypeError(f"Variables to save should be passed in a dict or a list: {items}")
    found: dict[str, Any] = {}
    for item in items:
        name, value = name_and_value(item)
        if isinstance(value, list) and isinstance(found.get(name), list):
            found[name] += value  # another part
        elif name in found:
            ops = [v.op for v in (found[name], value) if isinstance(v, Variable)]
            raise ValueError(
                f"At least two variables have the same name: {name}{made_at(*dict.fromkeys(ops))}"
            )
        else:
            found[name] = value
    return found


def name_and_value(item: Any) -> tuple[str, Any]:
    """Return the name that a variable is stored under, and the variable, or a list of its parts."""
    if _is_saveable(item):
        return item.name, item
    if isinstance(item, LookupInterface):
        return item.name, item
    if isinstance(item, PartitionedVariable):
        return item.name, list(item)
    part = item._get_save_slice_info() if isinstance(item, Variable) else None
    if part is not None:
        return part.full_name or "", [item]
    if isinstance(item, Variable) or _is_reference(item):
        return item.op.name, item
    raise TypeError(f"Variable to save is not a Variable: {item}")


def _saveables(name: str, value: Any) -> list[Any]:
    if _is_saveable(value):
        return [value]
    if isinstance(value, LookupInterface):
        return value._saveables(name)
    if isinstance(value, PartitionedVariable | list | tuple):
        parts = [_of_part(part, name) for part in value]
        _check_same_whole(value)
        return parts
    if isinstance(value, ResourceVariable):
        read = value._as_graph_element()
        return [_Resource(value.handle, value.shape, read, value.dtype, "", name)]
    if isinstance(value, Variable):
        value = value._as_graph_element()
    if not _is_reference(value):
        raise TypeError(
            "names_to_saveables must be a dict mapping string names to Tensors/Variables. Not a "
            f"variable: {value}"
        )
    return [_Reference(value, value, "", name)]


def _of_part(variable: Any, name: str) -> SaveableObject:
    """A part of a partitioned variable."""
    if not isinstance(variable, Variable):
        raise ValueError(f"Slices must all be Variables: {variable}")
    info = variable._get_save_slice_info()
    if info is None:
        raise ValueError(f"Slices must all be slices: {variable}")
    if isinstance(variable, ResourceVariable):
        read = _reader(variable)
        return _Resource(variable.handle, variable.shape, read, variable.dtype, info.spec, name)
    reference = variable._as_graph_element()
    return _Reference(reference, convert_to_tensor(variable), info.spec, name)


def _check_same_whole(parts: Iterable[Any]) -> None:
    names = [part._get_save_slice_info().full_name for part in parts]
    for name in names:
        if name != names[0]:
            raise ValueError(f"Slices must all be from the same tensor: {names[0]} != {name}")


def _reader(variable: ResourceVariable) -> Callable[[], Tensor]:
    """Reads a variable on its own device, for storing on that machine's CPU."""

    def read() -> Tensor:
        graph = variable.graph
        with graph.device(variable.device):
            value = variable.read_value()
            with graph.device("/device:CPU:0"):
                return identity(value)

    return read


def _is_saveable(item: Any) -> bool:
    return hasattr(item, "specs") and hasattr(item, "restore")


def _is_reference(item: Any) -> bool:
    return isinstance(item, Tensor) and item.dtype._is_ref_dtype


def static_or_dynamic_shape(spec: Any) -> Any:
    """Return the shape to give a restored tensor, for savers that reshape."""
    tensor = spec.tensor
    shape = as_shape(tensor.shape)
    return shape if shape.is_fully_defined() else b.shape(tensor)
