"""The ops of tensor arrays, which live in their step's container (devices.tensor_arrays).

`flow`, a number without meaning that each write passes on, orders writes and reads: gradients
follow it backwards, and nothing else has to order these ops. The static dtype and shape of the rows
are the handle's `HandleData`.

TensorArrayGradV3 returns the gradient array under the name of the call of tf.gradients (`source`):
the gradient of a read writes there, that of a write reads there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from headrace._src.core.errors import InvalidArgumentError
from headrace._src.core.tensor_shape import TensorShape, show_shape, unknown_shape
from headrace._src.devices.tensor_arrays import TensorArrayState
from headrace._src.graph.dataflow import Node
from headrace._src.graph.definition import NOT_DIFFERENTIABLE, Effect
from headrace._src.graph.inference import constant_value
from headrace._src.lowering import list_anchors
from headrace._src.ops.base import infer
from headrace._src.ops.base.builder import OpBuilder
from headrace._src.ops.base.define import define
from headrace._src.ops.state.resource_variable_ops import HandleData, handle_data
from headrace._src.ops.state.shared_state import keep_in_step, on, state_behind

__all__ = ["HANDLE", "gradient_of", "on_array"]

HANDLE = TensorShape.of((2,))  # TensorFlow's, from when handles were two strings


def _define(op_type: str, signature: str, attributes: str = "", **rules: Any) -> Any:
    return define(op_type, signature, attributes, effect=Effect.LOCAL, **rules)


def on_array(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """A kernel whose first input is a handle, made of one on the array behind it."""
    return on(TensorArrayState, kernel)


def gradient_of(ctx: Any, handle: Any, source: str, prepended: tuple[int, ...] = ()) -> Any:
    """The handle of the array that collects the gradients of another, beside it."""
    array = state_behind(ctx, handle, TensorArrayState).gradient(source, prepended)
    name = f"{handle.name}@{source}"
    ctx.resources.get_or_create(
        handle.device, handle.container, name, TensorArrayState, lambda: array
    )
    return replace(handle, name=name)


def _element_shape(c: Any) -> TensorShape:
    """Return what is known of the rows of the array behind input 0."""
    found = handle_data(c.op._inputs[0])
    return infer.UNKNOWN if found is None else found.shape


# -- The array -------------------------------------------------------------------------------------


def _array_infer(c: Any, size: TensorShape) -> list[TensorShape]:
    infer.with_rank(size, 0)
    shape = c.attrs["element_shape"]
    if not c.settled and (shape.is_fully_defined() or c.attrs["identical_element_shapes"]):
        c.op._outputs[0]._handle_data = HandleData(c.attrs["dtype"], shape)
    return [HANDLE, infer.SCALAR]


def _array_kernel(
    size,
    *,
    ctx,
    step,
    dtype,
    element_shape,
    dynamic_size,
    clear_after_read,
    identical_element_shapes,
    tensor_array_name,
):
    if np.ndim(size):
        raise InvalidArgumentError(
            None, None, f"TensorArray size must be scalar, but had shape: {show_shape(size.shape)}"
        )
    array = TensorArrayState(
        TensorArrayState.unique_name(tensor_array_name or ctx.name),
        dtype,
        int(size),
        element_shape,
        identical=identical_element_shapes,
        grows=dynamic_size,
        clears=clear_after_read,
    )
    return keep_in_step(ctx, step, array.name, array), np.float32(0)


@_define(
    "TensorArrayV3",
    "size: int32 -> handle: resource, flow: float32",
    "dtype: type; element_shape: shape = <unknown>; dynamic_size: bool = False; "
    "clear_after_read: bool = True; identical_element_shapes: bool = False; "
    "tensor_array_name: string = ''",
    infer=_array_infer,
    kernel=_array_kernel,
    gradient=NOT_DIFFERENTIABLE,
    lower=list_anchors.ARRAY,
)
def tensor_array_v3(
    size,
    dtype,
    element_shape=None,
    dynamic_size=False,
    clear_after_read=True,
    identical_element_shapes=False,
    tensor_array_name="",
    name=None,
):
    """Make an array of `size` rows that lives as long as the step; return it and a flow."""


def _size_fold(op):
    """Return the size of an array that doesn't grow; as in TensorFlow, the client's graph doesn't
    know it.
    """
    maker = op._inputs[0].op
    if not isinstance(maker, Node) or maker.type != "TensorArrayV3" or maker.attrs["dynamic_size"]:
        return None
    size = constant_value(maker._inputs[0])
    return None if size is None or np.ndim(size) or size < 0 else [np.int32(size)]


@_define(
    "TensorArraySizeV3",
    "handle: resource, flow_in: float32 -> size: int32",
    infer=infer.scalar,
    kernel=on_array(lambda array, flow: np.int32(array.size)),
    fold=_size_fold,
    lower=list_anchors.SIZE,
)
def tensor_array_size_v3(handle, flow_in, name=None):
    """Return the number of rows."""


@_define(
    "TensorArrayCloseV3",
    "handle: resource ->",
    infer=infer.no_outputs,
    kernel=on_array(lambda array: array.close()),
)
def tensor_array_close_v3(handle, name=None):
    """Drop the rows before the step ends."""


# -- Rows, one by one ------------------------------------------------------------------------------


def _row_number(index: Any) -> int:
    if np.ndim(index):
        raise InvalidArgumentError(
            None,
            None,
            f"TensorArray index must be scalar, but had shape: {show_shape(np.shape(index))}",
        )
    return int(index)


def _write_infer(
    c: Any, handle: TensorShape, index: TensorShape, value: TensorShape, flow: TensorShape
) -> TensorShape:
    infer.with_rank(index, 0)
    infer.with_rank(flow, 0)
    _element_shape(c).merge_with(value)
    return infer.SCALAR


@on_array
def _write_kernel(array, index, value, flow, *, T):
    array.write(_row_number(index), value, T)
    return flow


def _write_gradient(b: OpBuilder, op: Any, dflow: Any) -> Any:
    handle, index, value, _ = op.inputs
    return None, None, _twin(b, handle, value.dtype, dflow).read(index), dflow


@_define(
    "TensorArrayWriteV3",
    "handle: resource, index: int32, value: T, flow_in: float32 -> flow_out: float32",
    "T: type",
    infer=_write_infer,
    kernel=_write_kernel,
    gradient=_write_gradient,
    lower=list_anchors.WRITE,
)
def tensor_array_write_v3(handle, index, value, flow_in, name=None):
    """Write a row."""


def _read_infer(c: Any, handle: TensorShape, index: TensorShape, flow: TensorShape) -> TensorShape:
    infer.with_rank(index, 0)
    infer.with_rank(flow, 0)
    return _element_shape(c)


def _read_gradient(b: OpBuilder, op: Any, dvalue: Any) -> Any:
    handle, index, flow = op.inputs
    return None, None, _twin(b, handle, op._attrs["dtype"], flow).write(index, dvalue).flow


@_define(
    "TensorArrayReadV3",
    "handle: resource, index: int32, flow_in: float32 -> value: dtype",
    "dtype: type",
    infer=_read_infer,
    kernel=on_array(
        lambda array, index, flow, *, dtype: array.read(_row_number(index), dtype),
    ),
    gradient=_read_gradient,
    lower=list_anchors.READ,
)
def tensor_array_read_v3(handle, index, flow_in, dtype, name=None):
    """Return a row."""


# -- Many rows -------------------------------------------------------------------------------------


def _gather_infer(
    c: Any, handle: TensorShape, indices: TensorShape, flow: TensorShape
) -> TensorShape:
    indices = infer.with_rank(indices, 1)
    infer.with_rank(flow, 0)
    rows = _element_shape(c).merge_with(c.attrs["element_shape"])
    return (indices if c.settled else TensorShape.of((None,))).concatenate(rows)


def _gather_gradient(b: OpBuilder, op: Any, dvalue: Any) -> Any:
    handle, indices, flow = op.inputs
    twin = _twin(b, handle, op._attrs["dtype"], flow)
    return None, None, twin.scatter(indices, dvalue).flow


@_define(
    "TensorArrayGatherV3",
    "handle: resource, indices: int32, flow_in: float32 -> value: dtype",
    "dtype: type; element_shape: shape = <unknown>",
    infer=_gather_infer,
    kernel=on_array(
        lambda array, indices, flow, *, dtype, element_shape: array.gather(
            indices, dtype, element_shape
        )
    ),
    gradient=_gather_gradient,
    lower=list_anchors.GATHER,
)
def tensor_array_gather_v3(handle, indices, flow_in, dtype, element_shape=None, name=None):
    """Return rows, stacked."""


def _scatter_infer(
    c: Any, handle: TensorShape, indices: TensorShape, value: TensorShape, flow: TensorShape
) -> TensorShape:
    indices = infer.with_rank(indices, 1)
    infer.with_rank(flow, 0)
    infer.with_rank_at_least(value, 1)
    if value.sizes is not None and indices.sizes is not None:
        (given,), count = indices.sizes, value.sizes[0]
        if None not in (given, count) and given != count:
            raise ValueError(f"Dimensions must be equal, but are {count} and {given}")
        _element_shape(c).merge_with(value[1:])
    return infer.SCALAR


@on_array
def _scatter_kernel(array, indices, value, flow, *, T):
    array.scatter(indices, value, T)
    return flow


def _scatter_gradient(b: OpBuilder, op: Any, dflow: Any) -> Any:
    handle, indices, value, _ = op.inputs
    return None, None, _twin(b, handle, value.dtype, dflow).gather(indices), dflow


@_define(
    "TensorArrayScatterV3",
    "handle: resource, indices: int32, value: T, flow_in: float32 -> flow_out: float32",
    "T: type",
    infer=_scatter_infer,
    kernel=_scatter_kernel,
    gradient=_scatter_gradient,
    lower=list_anchors.SCATTER,
)
def tensor_array_scatter_v3(handle, indices, value, flow_in, name=None):
    """Write the rows of a tensor."""


def _concat_infer(c: Any, handle: TensorShape, flow: TensorShape) -> list[TensorShape]:
    infer.with_rank(flow, 0)
    rest = c.attrs["element_shape_except0"]
    value = infer.UNKNOWN if rest.sizes is None else TensorShape.of((None, *rest.sizes))
    return [value, TensorShape.of((None,))]


def _concat_gradient(b: OpBuilder, op: Any, dvalue: Any, dlengths: Any) -> Any:
    handle, flow = op.inputs
    twin = _twin(b, handle, op._attrs["dtype"], flow)
    return None, twin.split(dvalue, op.outputs[1]).flow


@_define(
    "TensorArrayConcatV3",
    "handle: resource, flow_in: float32 -> value: dtype, lengths: int64",
    "dtype: type; element_shape_except0: shape = <unknown>",
    infer=_concat_infer,
    kernel=on_array(
        lambda array, flow, *, dtype, element_shape_except0: array.concat(
            dtype, element_shape_except0
        )
    ),
    gradient=_concat_gradient,
)
def tensor_array_concat_v3(handle, flow_in, dtype, element_shape_except0=None, name=None):
    """Return all rows concatenated along their first axis, and their lengths."""


def _split_infer(
    c: Any, handle: TensorShape, value: TensorShape, lengths: TensorShape, flow: TensorShape
) -> TensorShape:
    infer.with_rank(lengths, 1)
    infer.with_rank(flow, 0)
    return infer.SCALAR


@on_array
def _split_kernel(array, value, lengths, flow, *, T):
    array.split(value, lengths, T)
    return flow


def _split_gradient(b: OpBuilder, op: Any, dflow: Any) -> Any:
    handle, value, _, _ = op.inputs
    return None, _twin(b, handle, value.dtype, dflow).concat(), None, dflow


@_define(
    "TensorArraySplitV3",
    "handle: resource, value: T, lengths: int64, flow_in: float32 -> flow_out: float32",
    "T: type",
    infer=_split_infer,
    kernel=_split_kernel,
    gradient=_split_gradient,
)
def tensor_array_split_v3(handle, value, lengths, flow_in, name=None):
    """Split a tensor along its first axis into rows."""


# -- Gradients -------------------------------------------------------------------------------------


def _twin(b: OpBuilder, handle: Any, dtype: Any, flow: Any) -> Any:
    """Return the gradient array of the one behind `handle`, for the current call of
    tf.gradients.
    """
    array = b.tensor_array_of(handle, flow, dtype)
    return array.grad(handle.graph.scope.gradient_source, flow=flow)


def _grad_infer(c: Any, handle: TensorShape, flow: TensorShape, *more: Any) -> list[TensorShape]:
    infer.with_rank(flow, 0)
    found = handle_data(c.op._inputs[0])
    if found is not None and not c.settled:
        shape = found.shape
        if more:
            count = infer.with_rank(more[0], 1).as_list()[0]
            shape = unknown_shape(count).concatenate(shape)
        c.op._outputs[0]._handle_data = HandleData(found.dtype, shape)
    return [HANDLE, infer.SCALAR]


@_define(
    "TensorArrayGradV3",
    "handle: resource, flow_in: float32 -> grad_handle: resource, flow_out: float32",
    "source: string",
    infer=_grad_infer,
    kernel=lambda handle, flow, *, ctx, source: (gradient_of(ctx, handle, source), flow),
    gradient=NOT_DIFFERENTIABLE,
    lower=list_anchors.GRADIENT,
)
def tensor_array_grad_v3(handle, flow_in, source, name=None):
    """Return the array that collects the gradients of an array for one call of tf.gradients."""


def _grad_with_shape(handle, flow, sizes, *, ctx, source):
    return gradient_of(ctx, handle, source, tuple(np.asarray(sizes).tolist())), flow


@_define(
    "TensorArrayGradWithShape",
    "handle: resource, flow_in: float32, shape_to_prepend: int32 -> "
    "grad_handle: resource, flow_out: float32",
    "source: string",
    infer=_grad_infer,
    kernel=_grad_with_shape,
    gradient=NOT_DIFFERENTIABLE,
)
def tensor_array_grad_with_shape(handle, flow_in, shape_to_prepend, source, name=None):
    """As tensor_array_grad_v3, for gradients that have more dimensions than the rows."""
