"""Converting Python values to tensors, by TensorFlow's rules: Python numbers become float32 or
int32, arrays keep their type.

`register_tensor_conversion_function` adds rules for new types (variables, sparse gradients); rules
with the lowest priority number are tried first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from headrace._src.core import dtypes, tensor_proto
from headrace._src.core.dtypes import DType, as_dtype
from headrace._src.core.errors import ResourceExhaustedError
from headrace._src.core.export import export
from headrace._src.core.tensor_shape import Dimension, TensorShape, as_shape
from headrace._src.graph.default import get_default_graph
from headrace._src.graph.definition import lookup
from headrace._src.graph.graph import Graph
from headrace._src.graph.operation import Tensor, made_at

__all__ = [
    "as_array",
    "constant",
    "convert_n_to_tensor",
    "convert_to_tensor",
    "graph_of",
    "name_scope",
    "register_tensor_conversion_function",
]

_LARGE = 1 << 20  # elements of a constant that may not fit into memory

Conversion = Callable[..., Any]
_conversions: list[tuple[int, Any, Conversion]] = []


@export("register_tensor_conversion_function")
def register_tensor_conversion_function(
    base_type: Any, conversion_func: Conversion, priority: int = 100
) -> None:
    """Register `conversion_func(value, dtype, name, as_ref)` with tf.convert_to_tensor for a type
    (or tuple of types).

    priority: functions with a lower number are tried first. The function may return NotImplemented.
    """
    types = base_type if isinstance(base_type, tuple) else (base_type,)
    if not all(isinstance(t, type) for t in types):
        raise TypeError("base_type must be a type or a tuple of types.")
    if not callable(conversion_func):
        raise TypeError("conversion_func must be callable.")
    _conversions.append((priority, base_type, conversion_func))
    _conversions.sort(key=lambda entry: entry[0])


@export("convert_to_tensor")
def convert_to_tensor(
    value: Any,
    dtype: Any = None,
    name: str | None = None,
    preferred_dtype: Any = None,
    dtype_hint: Any = None,
    *,
    as_ref: bool = False,
) -> Tensor:
    """Return `value` as a tensor: tensors unchanged, registered types by their rule, other values
    as constants.

    `dtype` is required of the result, `preferred_dtype` is only tried first. Raises TypeError if no
    conversion is possible.
    """
    wanted = None if dtype is None else as_dtype(dtype).base_dtype
    if isinstance(value, Tensor):
        if wanted is not None and value.dtype.base_dtype is not wanted:
            raise ValueError(
                f"Tensor conversion requested dtype {wanted.name} for Tensor with dtype "
                f"{value.dtype.name}: {value!r}"
            )
        return value
    preferred = preferred_dtype if preferred_dtype is not None else dtype_hint
    if wanted is None and preferred is not None:
        try:
            return _convert(value, as_dtype(preferred).base_dtype, name, as_ref)
        except (TypeError, ValueError):
            return _convert(value, None, name, as_ref)
    return _convert(value, wanted, name, as_ref)


def _convert(value: Any, dtype: DType | None, name: str | None, as_ref: bool) -> Tensor:
    for _, base_type, function in _conversions:
        if isinstance(value, base_type):
            result = function(value, dtype=dtype, name=name, as_ref=as_ref)
            if result is NotImplemented:
                continue
            if dtype is not None and result.dtype.base_dtype is not dtype:
                raise RuntimeError(
                    f"conversion of {type(value).__name__} returned {result.dtype.name}, not "
                    f"{dtype.name}"
                )
            return result
    return constant(value, dtype, name=name or "Const")


def convert_n_to_tensor(
    values: Iterable[Any], dtype: Any = None, name: str | None = None, preferred_dtype: Any = None
) -> list[Tensor]:
    """Convert each of `values`; if a name is given, the results are called name_0, name_1, ..."""
    return [
        convert_to_tensor(v, dtype, f"{name}_{i}" if name else None, preferred_dtype)
        for i, v in enumerate(values)
    ]


def constant(
    value: Any,
    dtype: Any = None,
    shape: Any = None,
    name: str | None = "Const",
    verify_shape: bool = False,
) -> Tensor:
    """Add a Const operation that holds `value`."""
    wanted = None if dtype is None else as_dtype(dtype).base_dtype
    array = as_array(value, wanted)
    if array is value or array.base is not None or not array.flags.owndata:
        array = np.array(array)  # the caller may still write to their array
    if shape is not None:
        array = _fill_shape(array, as_shape(shape), verify_shape)
    array.flags.writeable = False
    graph = get_default_graph()
    found = wanted or dtypes.of_array(array)
    full_name = graph.operation_name("Const" if name is None else name)
    attrs = {"value": array, "dtype": found}
    return graph.add_operation(lookup("Const"), (), attrs, full_name)._outputs[0]


def _fill_shape(array: np.ndarray, shape: TensorShape, verify: bool) -> np.ndarray:
    """Reshape `array`; TensorFlow repeats the last value when there are too few."""
    if not shape.is_fully_defined():
        raise ValueError(f"the shape of a constant must be known, not {shape}")
    sizes: Any = shape.sizes
    count = math.prod(sizes)
    if verify and array.shape != sizes:
        raise TypeError(f"Expected Tensor's shape: {sizes}, got {array.shape}.")
    if not count:
        return np.empty(sizes, array.dtype)  # an empty shape, whatever the value
    if array.size > count:
        raise ValueError(
            f"Too many elements provided. Needed at most {count}, but received {array.size}"
        )
    if array.size == count:
        return array.reshape(sizes)
    if not array.size:
        raise ValueError(f"an empty value can't fill the shape {sizes}")
    if count > _LARGE:
        _check_room(sizes, array.dtype)
    filled = np.empty(count, array.dtype)
    filled[: array.size] = array.ravel()
    filled[array.size :] = array.ravel()[-1]
    return filled.reshape(sizes)


def _check_room(sizes: Any, dtype: np.dtype) -> None:
    from headrace._src.devices.room import check_room  # few programs need it

    try:
        check_room(sizes, dtype, "the shape of a constant", spelled=True)
    except MemoryError as error:
        raise ResourceExhaustedError(None, None, str(error)) from None


def as_array(value: Any, dtype: DType | None = None) -> np.ndarray:
    """Return `value` as an array by TensorFlow's rules (see core.tensor_proto); dimensions count as
    numbers.
    """
    if isinstance(value, Dimension | TensorShape | list | tuple):
        if dtype is None and isinstance(value, list | tuple) and _holds_dimension(value):
            # As in TensorFlow, this decides which nodes tf.stack makes of such a list.
            raise TypeError(f"a list of dimensions needs a dtype to become a tensor: {value}")
        value = _plain_numbers(value)
    return tensor_proto.as_array(value, dtype)


def _holds_dimension(values: Iterable[Any]) -> bool:
    return any(
        isinstance(v, Dimension) or (isinstance(v, list | tuple) and _holds_dimension(v))
        for v in values
    )


def _plain_numbers(value: Any) -> Any:
    if isinstance(value, Dimension):
        if value.value is None:
            raise ValueError("Cannot convert a Dimension whose size is unknown to a Tensor")
        return value.value
    if isinstance(value, TensorShape):
        if not value.is_fully_defined():
            raise ValueError(f"Cannot convert a partially known TensorShape to a Tensor: {value}")
        return np.array(value.as_list(), np.int32)
    if isinstance(value, list | tuple):
        return [_plain_numbers(v) for v in value]
    return value


def graph_of(inputs: Iterable[Any]) -> Graph | None:
    """Return the graph of the tensors among `inputs`, or None; ValueError if they belong to
    different graphs.
    """
    current = get_default_graph()
    if current.building_function or current.executes:
        return current  # it captures the tensors of other graphs, or rejects them
    found: Any = None
    for value in inputs:
        for v in value if isinstance(value, list | tuple) else (value,):
            graph = getattr(v, "graph", None)
            if not isinstance(graph, Graph):
                continue
            if found is None:
                found = v
            elif found.graph is not graph:
                raise ValueError(
                    f"{v} must be from the same graph as {found}.{made_at(found.op, v.op)}"
                )
    if found is not None and found.graph.executes:
        raise RuntimeError(
            f"{found!r} is an eager tensor and belongs to no graph that a session can run: use "
            "tf.constant(tensor.numpy()) to add its value to the graph."
        )
    return None if found is None else found.graph


@export("name_scope", "keras.backend.name_scope")
class name_scope:
    """A scope for the names of the operations that a function adds: `with tf.name_scope(name,
    "dense", [x, w]) as scope`.

    `default_name` is used when `name` is None; the graph is that of the tensors among `values`.
    """

    def __init__(
        self, name: str | None, default_name: str | None = None, values: Iterable[Any] | None = None
    ) -> None:
        if not (default_name is None or isinstance(default_name, str)):
            raise TypeError(
                f"`default_name` type ({type(default_name)}) is not a string type. You likely "
                "meant to pass this into the `values` kwarg."
            )
        self._name = default_name if name is None else name
        if self._name is None and values is not None:
            raise ValueError(
                f"At least one of name ({name}) and default_name ({default_name}) must be provided."
            )
        self._values = () if values is None else list(values)

    @property
    def name(self) -> str | None:
        return self._name

    def __enter__(self) -> str:
        graph = graph_of(self._values) or get_default_graph()
        self._as_default = graph.as_default()
        self._as_default.__enter__()
        try:
            self._scope = graph.name_scope(self._name)
            return self._scope.__enter__()
        except BaseException:
            self._as_default.__exit__(None, None, None)
            raise

    def __exit__(self, *details: Any) -> None:
        self._scope.__exit__(*details)
        self._as_default.__exit__(*details)
