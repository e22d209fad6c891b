"""tf.TensorArray: rows that a loop writes and reads one by one, with gradients.

It is a client-side object: a handle, the flow that orders the operations on the array, and what is
known of the rows' shape. A write returns a new TensorArray with a new flow; all that came from one
array share the knowledge of the rows and the colocation.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any

from headrace._src.core import dtypes
from headrace._src.core.dtypes import DType
from headrace._src.core.export import export
from headrace._src.core.tensor_shape import TensorShape, as_shape
from headrace._src.graph.default import get_default_graph
from headrace._src.graph.inference import constant_value
from headrace._src.graph.operation import Tensor
from headrace._src.graph.type_spec import TensorSpec, TypeSpec, spec_of
from headrace._src.ops.base.define import b, composed
from headrace._src.ops.base.to_tensor import convert_to_tensor, name_scope

__all__ = ["TensorArray", "TensorArraySpec", "build_ta_with_new_flow"]

_UNKNOWN = TensorShape(None)


class _Shared:
    """State shared by all TensorArrays of one array: the rows' shape, and colocation."""

    def __init__(self, shape: TensorShape, colocate: bool) -> None:
        self.shape = shape
        self.colocate = colocate
        self.beside: Any = None


@export("TensorArray")
class TensorArray:
    """An array of `size` tensors of one dtype, which is written and read by index.

    dynamic_size: it grows when a row beyond its end is written. clear_after_read: a row can be read
    only once, which frees its memory. infer_shape: all rows have the same shape. element_shape:
    what is known of it. handle, flow: those of an existing array. colocate_with_first_write_call:
    place it with the first value written.
    """

    def __init__(
        self,
        dtype: Any,
        size: Any = None,
        dynamic_size: bool | None = None,
        clear_after_read: bool | None = None,
        tensor_array_name: str | None = None,
        handle: Tensor | None = None,
        flow: Tensor | None = None,
        infer_shape: bool = True,
        element_shape: Any = None,
        colocate_with_first_write_call: bool = True,
        name: str | None = None,
    ) -> None:
        _check_arguments(handle, size, tensor_array_name, dynamic_size, clear_after_read)
        self._dtype = dtypes.as_dtype(dtype).base_dtype
        self._dynamic_size = bool(dynamic_size)
        self._infer_shape = infer_shape
        shape = _UNKNOWN if element_shape is None else as_shape(element_shape)
        self._shared = _Shared(shape, colocate_with_first_write_call)
        if handle is not None:
            self._handle = handle
            if flow is not None:
                self._flow = convert_to_tensor(flow)
            else:
                with name_scope(name, "TensorArray", [handle]), _beside(handle):
                    self._flow = convert_to_tensor(0, dtypes.float32, name="flow")
            return
        with name_scope(name, "TensorArray", [size, flow]) as scope, _anywhere():
            if colocate_with_first_write_call:
                self._make(size, clear_after_read, tensor_array_name, scope)
            else:
                with _beside_whatever(size):
                    self._make(size, clear_after_read, tensor_array_name, scope)
        if flow is not None:
            self._flow = convert_to_tensor(flow)

    def _make(self, size: Any, clear: bool | None, array_name: str | None, scope: str) -> None:
        self._handle, self._flow = b.tensor_array_v3(
            size,
            self._dtype,
            element_shape=self._shared.shape,
            dynamic_size=self._dynamic_size,
            clear_after_read=True if clear is None else clear,
            identical_element_shapes=self._infer_shape,
            tensor_array_name=array_name or "",
            name=scope,
        )

    # -- Properties --------------------------------------------------------------------------------

    @property
    def dtype(self) -> DType:
        """The dtype of the rows."""
        return self._dtype

    @property
    def handle(self) -> Tensor:
        """The tensor that is the array's handle."""
        return self._handle

    @property
    def flow(self) -> Tensor:
        """The tensor that later reads must depend on."""
        return self._flow

    @property
    def dynamic_size(self) -> bool:
        """Whether writing beyond the end makes the array grow."""
        return self._dynamic_size

    @property
    def element_shape(self) -> TensorShape:
        """What is known of the shape of a row."""
        return self._shared.shape

    @property
    def graph(self) -> Any:
        return self._handle.graph

    @property
    def _type_spec(self) -> TensorArraySpec:
        return TensorArraySpec.from_value(self)

    def size(self, name: str | None = None) -> Tensor:
        """Return the number of rows."""
        return b.tensor_array_size_v3(self._handle, self._flow, name=name)

    def close(self, name: str | None = None) -> Any:
        """Return an operation that drops the rows."""
        return b.tensor_array_close_v3(self._handle, name=name)

    def identity(self) -> TensorArray:
        """Return the same array, with a flow that depends on the current control dependencies."""
        return self._with_flow(b.identity(self._flow))

    def grad(self, source: str, flow: Any = None, name: str | None = None) -> TensorArray:
        """Return the gradient array of this one that belongs to `source`."""
        flow = self._flow if flow is None else flow
        with name_scope(name, "TensorArrayGrad", [self._handle]), _beside(self._handle):
            handle, _ = b.tensor_array_grad_v3(self._handle, flow, source, name=name)
            with handle.graph.control_dependencies([handle]):
                flow = b.identity(flow, name="gradient_flow")
        twin = TensorArray(
            self._dtype,
            handle=handle,
            flow=flow,
            infer_shape=self._infer_shape,
            colocate_with_first_write_call=False,
        )
        twin._shared = _Shared(self._shared.shape, False)
        return twin

    def _with_flow(self, flow: Tensor) -> TensorArray:
        array = TensorArray(
            self._dtype, handle=self._handle, flow=flow, infer_shape=self._infer_shape
        )
        array._dynamic_size = self._dynamic_size
        array._shared = self._shared
        return array

    # -- Rows --------------------------------------------------------------------------------------

    def read(self, index: Any, name: str | None = None) -> Tensor:
        """Return row `index`."""
        value = b.tensor_array_read_v3(self._handle, index, self._flow, self._dtype, name=name)
        value.set_shape(self._shared.shape)
        return value

    def write(self, index: Any, value: Any, name: str | None = None) -> TensorArray:
        """Return the array with `value` in row `index`."""
        with name_scope(name, "TensorArrayWrite", [self._handle, index, value]):
            value = convert_to_tensor(value, preferred_dtype=self._dtype, name="value")
            self._merge_shape(value.shape)
            with self._colocated(value):
                flow = b.tensor_array_write_v3(self._handle, index, value, self._flow, name=name)
        return self._with_flow(flow)

    def stack(self, name: str | None = None) -> Tensor:
        """Return all rows as one tensor."""
        with _beside(self._handle), name_scope(name, "TensorArrayStack", [self._handle]):
            return self.gather(b.range(0, self.size()), name=name)

    def gather(self, indices: Any, name: str | None = None) -> Tensor:
        """Return the rows at `indices` as one tensor."""
        shape = self._shared.shape
        value = b.tensor_array_gather_v3(
            self._handle, indices, self._flow, self._dtype, element_shape=shape, name=name
        )
        if shape.sizes is not None:
            value.set_shape((None, *shape.sizes))
        return value

    def concat(self, name: str | None = None) -> Tensor:
        """Return all rows concatenated along their first axis."""
        sizes = self._shared.shape.sizes
        rest = _UNKNOWN if sizes is None else TensorShape.of(sizes[1:])
        value, _ = b.tensor_array_concat_v3(
            self._handle, self._flow, self._dtype, element_shape_except0=rest, name=name
        )
        return value

    def unstack(self, value: Any, name: str | None = None) -> TensorArray:
        """Return the array with the rows of `value` as its rows."""
        with name_scope(name, "TensorArrayUnstack", [self._handle, value]):
            count = b.shape(value)[0]
            return self.scatter(b.range(0, count), value, name=name)

    def scatter(self, indices: Any, value: Any, name: str | None = None) -> TensorArray:
        """Return the array with value[k] in row indices[k]."""
        with name_scope(name, "TensorArrayScatter", [self._handle, value, indices]):
            value = convert_to_tensor(value, preferred_dtype=self._dtype, name="value")
            if self._infer_shape and value.shape.sizes:
                self._merge_shape(value.shape[1:])
            with self._colocated(value):
                flow = b.tensor_array_scatter_v3(
                    self._handle, indices, value, self._flow, name=name
                )
        return self._with_flow(flow)

    def split(self, value: Any, lengths: Any, name: str | None = None) -> TensorArray:
        """Return the array with pieces of `value` of these lengths as its rows."""
        with name_scope(name, "TensorArraySplit", [self._handle, value, lengths]):
            value = convert_to_tensor(value, preferred_dtype=self._dtype, name="value")
            with self._colocated(value):
                lengths64 = b.cast(lengths, dtypes.int64)
                if self._infer_shape:
                    self._merge_pieces(value, lengths64)
                flow = b.tensor_array_split_v3(
                    self._handle, value, lengths64, self._flow, name=name
                )
        return self._with_flow(flow)

    def _merge_pieces(self, value: Tensor, lengths: Tensor) -> None:
        known = constant_value(lengths)
        if known is not None and known.size and value.shape.sizes and (known == known[0]).all():
            self._merge_shape(TensorShape.of((int(known[0]), *value.shape.sizes[1:])))

    def _merge_shape(self, shape: TensorShape) -> None:
        """Merge a row's shape into the known one; ValueError if they differ."""
        shared = self._shared
        if not shared.shape.is_compatible_with(shape):
            raise ValueError(
                f"Inconsistent shapes: saw {shape} but expected {shared.shape}: rows of different "
                "shapes need infer_shape=False and an element_shape that allows them"
            )
        if self._infer_shape:
            shared.shape = shared.shape.merge_with(shape)

    def _colocated(self, value: Tensor) -> AbstractContextManager[Any]:
        """Return a scope that colocates writes, and the array's other ops, with the first value."""
        shared = self._shared
        if not shared.colocate:
            return nullcontext()
        if shared.beside is None:
            shared.beside = value.op
        return _beside(shared.beside)


def _check_arguments(
    handle: Any, size: Any, array_name: Any, dynamic_size: Any, clear_after_read: Any
) -> None:
    if handle is None:
        if size is None:
            raise ValueError("Size must be provided if handle is not provided")
        return
    if array_name:
        raise ValueError("Cannot construct with both handle and tensor_array_name")
    if not isinstance(handle, Tensor):
        raise TypeError("Handle must be a Tensor")
    given = {"size": size, "dynamic_size": dynamic_size, "clear_after_read": clear_after_read}
    for what, value in given.items():
        if value is not None:
            raise ValueError(f"Cannot provide both a handle and {what} at the same time")


def _beside(item: Any) -> AbstractContextManager[Any]:
    return item.graph.colocate_with(item)


def _beside_whatever(item: Any) -> AbstractContextManager[Any]:
    return _beside(item) if isinstance(item, Tensor) else nullcontext()


def _anywhere() -> AbstractContextManager[Any]:
    """Return a scope without the current devices: the first write decides where the array is."""
    graph, scopes = get_default_graph(), ExitStack()
    scopes.enter_context(graph.device(None))
    scopes.enter_context(graph.colocate_with(None, ignore_existing=True))
    return scopes


@export("TensorArraySpec")
class TensorArraySpec(TypeSpec):
    """A description of a TensorArray: its rows, and whether it may grow."""

    def __init__(
        self,
        element_shape: Any = None,
        dtype: Any = dtypes.float32,
        dynamic_size: bool = False,
        infer_shape: bool = True,
    ) -> None:
        self._element_shape = TensorShape(element_shape)
        self._dtype = dtypes.as_dtype(dtype)
        self._dynamic_size = dynamic_size
        self._infer_shape = infer_shape

    @classmethod
    def from_value(cls, value: TensorArray) -> TensorArraySpec:
        """Return the spec of a TensorArray."""
        if not isinstance(value, TensorArray):
            raise TypeError(f"Expected value to be a TensorArray, but saw: {type(value)}")
        return cls(value.element_shape, value.dtype, value.dynamic_size, value._infer_shape)

    @property
    def value_type(self) -> type:
        return TensorArray

    def is_compatible_with(self, other: Any) -> bool:
        """Whether an array, or another spec, is compatible with this spec."""
        other = spec_of(other)
        return (
            isinstance(other, TensorArraySpec)
            and self._dtype.is_compatible_with(other._dtype)
            and self._element_shape.is_compatible_with(other._element_shape)
            and self._dynamic_size == other._dynamic_size
        )

    def most_specific_compatible_type(self, other: TypeSpec) -> TensorArraySpec:
        """Return the most specific spec that is compatible with both; ValueError if
        there is none.
        """
        if not (isinstance(other, TensorArraySpec) and self.is_compatible_with(other)):
            raise ValueError(f"Types are not compatible: {self!r} vs {other!r}")
        shape = self._element_shape.most_specific_compatible_shape(other._element_shape)
        infer_shape = self._infer_shape and other._infer_shape
        return TensorArraySpec(shape, self._dtype, self._dynamic_size, infer_shape)

    def _serialize(self) -> tuple[Any, ...]:
        return self._element_shape, self._dtype, self._dynamic_size, self._infer_shape

    @property
    def _component_specs(self) -> list[TensorSpec]:
        return [TensorSpec([], dtypes.resource), TensorSpec([], dtypes.float32)]

    def _to_components(self, value: TensorArray) -> list[Tensor]:
        return [value.handle, value.flow]

    def _from_components(self, components: Any) -> TensorArray:
        handle, flow = components
        array = TensorArray(
            self._dtype,
            handle=handle,
            flow=flow,
            infer_shape=self._infer_shape,
            element_shape=self._element_shape,
        )
        array._dynamic_size = self._dynamic_size
        return array


def build_ta_with_new_flow(old_ta: TensorArray, flow: Tensor) -> TensorArray:
    """Return the same array with another flow, for arrays that loops carry."""
    return old_ta._with_flow(flow)


@composed
def tensor_array_of(handle: Tensor, flow: Tensor, dtype: Any) -> TensorArray:
    """Return the TensorArray of a handle, for gradients."""
    return TensorArray(dtype, handle=handle, flow=flow, colocate_with_first_write_call=False)
