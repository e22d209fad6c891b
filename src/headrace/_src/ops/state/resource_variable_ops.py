"""Resource variables: a handle identifies the variable; reading and writing are separate ops.

The runtime value of a handle is a ResourceHandle. A variable is created when it is first assigned.
Its static dtype and shape are the `handle_data` of the handle's tensor.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from headrace._src.core import dtypes
from headrace._src.core.dtypes import DType
from headrace._src.core.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError
from headrace._src.core.tensor_shape import TensorShape, show_shape
from headrace._src.devices.resources import ResourceHandle
from headrace._src.devices.variable_state import UNINITIALIZED_HINT, VariableState
from headrace._src.graph.composite import IndexedSlices
from headrace._src.graph.definition import NOT_DIFFERENTIABLE, Effect, Sample
from headrace._src.graph.operation import Tensor
from headrace._src.lowering import row_anchors
from headrace._src.lowering.rules import Anchor, Read, Update
from headrace._src.ops.array.index_checks import check_indices, row_numbers, take
from headrace._src.ops.base import infer
from headrace._src.ops.base.builder import OpBuilder
from headrace._src.ops.base.counted import counted
from headrace._src.ops.base.define import define
from headrace._src.ops.base.samples import r, typed
from headrace._src.ops.state.ref_variable_ops import count_up, equal_shapes, update_dense
from headrace._src.ops.state.shared_state import on

__all__ = [
    "HandleData",
    "handle_data",
    "handle_shape",
    "on_variable",
    "read_variable_op",
    "variable_behind",
]


@dataclass(frozen=True)
class HandleData:
    """The static dtype and shape of the variable behind a handle."""

    dtype: DType
    shape: TensorShape


def handle_data(handle: Tensor) -> HandleData | None:
    """Return what is known of the variable behind `handle`, which other ops may have passed on."""
    while True:
        found = getattr(handle, "_handle_data", None)
        if found is not None:
            return found
        passed = [t for t in handle.op._inputs if t.dtype.base_dtype is dtypes.resource]
        if len(passed) != 1:
            return None
        handle = passed[0]


def handle_shape(c: Any, index: int = 0) -> TensorShape:
    """For shape rules: the shape of the variable behind the handle at input `index`."""
    found = handle_data(c.op._inputs[index])
    return infer.UNKNOWN if found is None else found.shape


def variable_behind(ctx: Any, handle: ResourceHandle) -> VariableState:
    """Return the variable behind a handle; NotFoundError before it is initialised."""
    try:
        return ctx.find(handle)
    except NotFoundError:
        raise NotFoundError(
            None,
            None,
            f"Could not find resource: {handle}",
            hint="the variable has no value yet: run its initializer",
        ) from None


def on_variable(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """A kernel whose first input is a handle, made of one on the variable behind it."""
    return on(VariableState, kernel, variable_behind)


def _check_dtype(state: VariableState, dtype: DType, action: str) -> None:
    if state.dtype is not dtype:
        raise InvalidArgumentError(
            None,
            None,
            _wrong_dtype(action, state.dtype, dtype),
        )


def _expect_dtype(c: Any, action: str) -> None:
    """For shape rules: check that the `dtype` attribute is that of the variable behind
    the handle.
    """
    found = handle_data(c.op._inputs[0])
    dtype = c.attrs["dtype"]
    if found is not None and found.dtype is not dtype:
        raise ValueError(_wrong_dtype(action, found.dtype, dtype))


def _wrong_dtype(action: str, expected: DType, found: DType) -> str:
    return (
        f"Trying to {action} variable with wrong dtype. Expected {expected.name} got {found.name}"
    )


# -- Handles --------------------------------------------------------------------------------------


def _handle_infer(c: Any) -> TensorShape:
    c.op._outputs[0]._handle_data = HandleData(c.attrs["dtype"], c.attrs["shape"])
    return infer.SCALAR


def _handle_kernel(*, ctx, container, shared_name):
    return ctx.handle(container, shared_name or ctx.name, VariableState)


@define(
    "VarHandleOp",
    "-> resource: resource",
    "container: string = ''; shared_name: string = ''; dtype: type; shape: shape",
    infer=_handle_infer,
    kernel=_handle_kernel,
    effect=Effect.READS,
    samples=[Sample(shape=[2, 3], dtype="float32")],
)
def var_handle_op(dtype, shape, container="", shared_name="", name=None):
    """Return a handle to a variable."""


def _is_initialized(handle, *, ctx):
    found = ctx.resources.peek(handle)
    return np.bool_(found is not None and found.is_initialized)


@define(
    "VarIsInitializedOp",
    "resource: resource -> is_initialized: bool",
    infer=infer.scalar,
    kernel=_is_initialized,
    effect=Effect.READS,
    asks=True,
    samples=[Sample(r(2, 3))],
)
def var_is_initialized_op(resource, name=None):
    """Return whether the variable behind a handle has a value."""


def _shape_infer(c: Any, handle: TensorShape) -> Any:
    shape = handle_shape(c)
    return (None if shape.sizes is None else len(shape.sizes),)


def _shape_fold(op: Any) -> Any:
    found = handle_data(op._inputs[0])
    if found is None or found.shape.sizes is None:
        return None
    if found.shape.is_fully_defined():
        return [np.array(found.shape.sizes, op._attrs["out_type"].numpy)]
    return [np.array([*found.shape.sizes], object)]


@define(
    "VariableShape",
    "input: resource -> output: out_type",
    "out_type: {index} = int32",
    infer=_shape_infer,
    kernel=on_variable(lambda state, *, out_type: np.array(state.read().shape, out_type.numpy)),
    effect=Effect.READS,
    fold=_shape_fold,
    samples=[Sample(r(2, 3)), Sample(r())],
)
def variable_shape(input, out_type=None, name=None):
    """Return the shape of the variable behind a handle."""


def _destroy_kernel(handle, *, ctx, ignore_lookup_error):
    found = ctx.resources.delete(handle.device, handle.container, handle.name)
    if not found and not ignore_lookup_error:
        raise NotFoundError(None, None, f"Could not find resource: {handle}")


@define(
    "DestroyResourceOp",
    "resource: resource ->",
    "ignore_lookup_error: bool = True",
    infer=infer.no_outputs,
    kernel=_destroy_kernel,
    effect=Effect.WRITES,
    samples=[Sample(r(2, 3))],
)
def destroy_resource_op(resource, ignore_lookup_error=True, name=None):
    """Delete the resource behind a handle."""


# -- Reading --------------------------------------------------------------------------------------


def _read_infer(c: Any, handle: TensorShape) -> TensorShape:
    _expect_dtype(c, "read")
    return handle_shape(c)


def _read_kernel(handle, *, ctx, dtype):
    if type(handle) is ResourceHandle:
        state = ctx.resources.peek(handle)
        if type(state) is VariableState is handle.kind and state.dtype is dtype:
            return state.read()
    try:
        state = ctx.find(handle)
    except NotFoundError:
        raise FailedPreconditionError(
            None,
            None,
            f"Error while reading resource variable {handle.name} from Container: "
            f"{handle.container or 'localhost'}. This could mean that the variable was "
            f"uninitialized. Not found: {handle} does not exist.",
            hint=UNINITIALIZED_HINT,
        ) from None
    _check_dtype(state, dtype, "read")
    return state.read()


@define(
    "ReadVariableOp",
    "resource: resource -> value: dtype",
    "dtype: type",
    infer=_read_infer,
    kernel=_read_kernel,
    gradient=lambda b, op, dvalue: dvalue,
    effect=Effect.READS,
    samples=[Sample(r(2, 3))],
    lower=Read(),
)
def read_variable_op(resource, dtype, name=None):
    """Return the value of the variable behind a handle."""


def _gather_infer(c: Any, handle: TensorShape, indices: TensorShape) -> Any:
    _expect_dtype(c, "gather from")
    batch = c.attrs["batch_dims"]
    shape = handle_shape(c)
    if batch < 0:
        raise ValueError(f"batch_dims is negative ({batch})")
    if shape.sizes is None or indices.sizes is None:
        return None
    if len(shape.sizes) < batch + 1:
        raise ValueError(f"Shape must be at least rank {batch + 1} but is rank {len(shape.sizes)}")
    return (*shape.sizes[:batch], *indices.sizes[batch:], *shape.sizes[batch + 1 :])


@on_variable
def _gather_kernel(state, indices, *, dtype, batch_dims):
    _check_dtype(state, dtype, "gather from")
    params, indices = state.read(), np.asarray(indices)
    if params.ndim <= batch_dims:
        raise ValueError(f"params must be at least {batch_dims + 1} dimensional")
    indices = check_indices(indices, params.shape[batch_dims])
    if not batch_dims:
        return take(params, indices)
    if params.shape[:batch_dims] != indices.shape[:batch_dims]:
        raise ValueError(
            f"the first {batch_dims} dimensions of params.shape {show_shape(params.shape)} and "
            f"indices.shape {show_shape(indices.shape)} must be equal"
        )
    batches = int(np.prod(params.shape[:batch_dims], dtype=np.int64))
    tables = params.reshape(batches, *params.shape[batch_dims:])
    rows = indices.reshape(batches, -1)
    found = tables[np.arange(batches)[:, None], rows]
    return found.reshape(indices.shape + params.shape[batch_dims + 1 :])


@counted(12)
def _gather_gradient(b, op, doutput):
    handle, indices = op.inputs
    shape = b.variable_shape(handle)
    batch = op._attrs["batch_dims"]
    flat = b.reshape(indices, [-1])
    values_shape = b.concat([b.shape(flat), shape[batch + 1 :]], 0)
    values = b.reshape(doutput, values_shape)
    if not batch:
        return IndexedSlices(values, flat, shape), None
    # Number the rows of all batches consecutively, sum the gradients of each, and restore the
    # shape.
    length = b.cast(shape[batch], flat.dtype)
    batches = b.cast(b.reduce_prod(shape[:batch]), flat.dtype)
    first = b.expand_dims(b.range(batches) * length, 1)
    rows = b.reshape(b.reshape(flat, b.stack([batches, -1])) + first, [-1])
    sums = b.unsorted_segment_sum(values, rows, batches * length)
    return b.reshape(sums, shape), None


@define(
    "ResourceGather",
    "resource: resource, indices: Tindices -> output: dtype",
    "batch_dims: int = 0; validate_indices: bool = True; dtype: type; Tindices: {index}",
    infer=_gather_infer,
    kernel=_gather_kernel,
    fresh=True,
    gradient=_gather_gradient,
    effect=Effect.READS,
    samples=[Sample(r(4, 2), [0, 3, 1]), Sample(r(4), [[0], [2]])],
    lower=Anchor("gather", row_anchors.gather_variable),
)
def resource_gather(resource, indices, dtype, batch_dims=0, validate_indices=True, name=None):
    """Return rows of the variable behind a handle; indices are always checked."""


def _gather_nd_infer(c: Any, handle: TensorShape, indices: TensorShape) -> Any:
    _expect_dtype(c, "gather from")
    shape = handle_shape(c)
    if shape.sizes is None or indices.sizes is None:
        return None
    if not indices.sizes:
        raise ValueError("Shape must be at least rank 1 but is rank 0")
    depth = indices.sizes[-1]
    if depth is None:
        return None
    if depth > len(shape.sizes):
        raise ValueError(f"indices.shape[-1] must be <= params.rank, but saw {depth}")
    return (*indices.sizes[:-1], *shape.sizes[depth:])


@on_variable
def _gather_nd_kernel(state, indices, *, dtype):
    _check_dtype(state, dtype, "gather from")
    params, indices = state.read(), np.asarray(indices)
    depth = indices.shape[-1]
    if depth > params.ndim:
        raise ValueError(f"index innermost dimension length must be <= params rank; saw: {depth}")
    rows, count = row_numbers(indices, params.shape, "param shape")
    tail = params.shape[depth:]
    return params.reshape(count, *tail)[rows].reshape(indices.shape[:-1] + tail)


def _gather_nd_gradient(b: OpBuilder, op: Any, doutput: Any) -> Any:
    handle, indices = op.inputs
    shape = b.variable_shape(handle, out_type=indices.dtype.base_dtype)
    if indices.shape.rank == 2 and indices.shape[-1].value == 1:
        return IndexedSlices(doutput, b.squeeze(indices, -1), shape), None
    return b.scatter_nd(indices, doutput, shape), None


@define(
    "ResourceGatherNd",
    "resource: resource, indices: Tindices -> output: dtype",
    "dtype: type; Tindices: {index}",
    infer=_gather_nd_infer,
    kernel=_gather_nd_kernel,
    gradient=_gather_nd_gradient,
    effect=Effect.READS,
    samples=[Sample(r(3, 2), [[0, 1], [2, 0]]), Sample(r(3, 2), [[1]])],
)
def resource_gather_nd(resource, indices, dtype, name=None):
    """Return slices of the variable behind a handle, one per row of coordinates."""


# -- Writing --------------------------------------------------------------------------------------


def _write_infer(c: Any, handle: TensorShape, value: TensorShape) -> list[TensorShape]:
    _expect_dtype(c, "assign")
    equal_shapes(handle_shape(c), value)
    return []


def _assign_reshapes(node: Any) -> bool:
    declared, given = handle_data(node._inputs[0]), node._inputs[1].shape
    sizes = given.sizes
    return declared is None or sizes is None or None in sizes or declared.shape.sizes != sizes


def _assign_kernel(handle, value, *, ctx, dtype):
    state = ctx.resources.get_or_create(
        handle.device,
        handle.container,
        handle.name,
        VariableState,
        lambda: ctx.resources.device(handle.device).variable(handle.name, dtype, infer.UNKNOWN),
    )
    _check_dtype(state, dtype, "assign")
    state.assign(value)


@define(
    "AssignVariableOp",
    "resource: resource, value: dtype ->",
    "dtype: type",
    infer=_write_infer,
    kernel=_assign_kernel,
    gradient=NOT_DIFFERENTIABLE,
    effect=Effect.WRITES,
    reshapes=_assign_reshapes,
    samples=[Sample(r(2, 3), r(2, 3))],
    lower=Update(lambda e, old, value: value, initializes=True),
)
def assign_variable_op(resource, value, name=None):
    """Assign a value to the variable behind a handle."""


_UNEQUAL = (
    "Cannot update variable with shape {} using a Tensor with shape {}, shapes must be equal."
)


def _updating(function: Any) -> Any:
    @on_variable
    def kernel(state, value, *, dtype):
        _check_dtype(state, dtype, "assign")
        update_dense(state, function, value, _UNEQUAL)

    return kernel


@define(
    "AssignAddVariableOp",
    "resource: resource, value: dtype ->",
    "dtype: type",
    infer=_write_infer,
    kernel=_updating(np.add),
    gradient=NOT_DIFFERENTIABLE,
    effect=Effect.WRITES,
    samples=typed([Sample(r(2, 3), r(2, 3))], "float32", "float64", "int32", "int64", attr="dtype"),
    lower=Update(lambda e, old, value: old + value),
)
def assign_add_variable_op(resource, value, name=None):
    """Add to the variable behind a handle."""


@define(
    "AssignSubVariableOp",
    "resource: resource, value: dtype ->",
    "dtype: type",
    infer=_write_infer,
    kernel=_updating(np.subtract),
    gradient=NOT_DIFFERENTIABLE,
    effect=Effect.WRITES,
    samples=typed([Sample(r(2, 3), r(2, 3))], "float32", "float64", "int32", "int64", attr="dtype"),
    lower=Update(lambda e, old, value: old - value),
)
def assign_sub_variable_op(resource, value, name=None):
    """Subtract from the variable behind a handle."""


@define(
    "ResourceCountUpTo",
    "resource: resource -> output: T",
    "limit: int; T: {index}",
    infer=lambda c, handle: handle_shape(c).with_rank(0),
    kernel=on_variable(lambda state, *, limit: count_up(state, limit)),
    effect=Effect.WRITES,
    samples=[Sample(1, limit=5)],
)
def resource_count_up_to(resource, limit, T, name=None):
    """Return the value of the variable behind a handle and add 1 to it, until it is `limit`."""
