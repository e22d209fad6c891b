"""Ops that change parts of a variable, by index, coordinates or slice, by reference or handle."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from headrace._src.core.errors import UnimplementedError
from headrace._src.core.tensor_shape import TensorShape, show_shape
from headrace._src.graph.definition import NOT_DIFFERENTIABLE, Effect, Sample
from headrace._src.lowering import row_anchors
from headrace._src.lowering.rules import Anchor
from headrace._src.ops.array.scatter_kernels import scatter, scatter_nd
from headrace._src.ops.array.slicing import MASKS, resolve_strided_slice
from headrace._src.ops.base import infer
from headrace._src.ops.base.define import define
from headrace._src.ops.base.samples import r, typed
from headrace._src.ops.state.ref_variable_ops import equal_shapes, state_of
from headrace._src.ops.state.resource_variable_ops import handle_data, handle_shape, on_variable

__all__ = ["resource_scatter_add", "scatter_add_op", "scatter_nd_add_op"]


# -- By index -------------------------------------------------------------------------------------


def _check_rows(params: TensorShape, indices: TensorShape, updates: TensorShape) -> None:
    """updates must be a scalar, or have the shape indices.shape + params.shape[1:]."""
    if params.sizes is not None and not params.sizes:
        raise ValueError("Shape must be at least rank 1 but is rank 0")
    if updates.sizes == () or indices.sizes is None or params.sizes is None:
        return
    equal_shapes(updates, TensorShape.of(indices.sizes + params.sizes[1:]))


def _scatter_infer(c: Any, ref: TensorShape, indices: TensorShape, updates: TensorShape) -> Any:
    _check_rows(ref, indices, updates)
    return ref


def _resource_scatter_infer(
    c: Any, handle: TensorShape, indices: TensorShape, updates: TensorShape
) -> Any:
    _check_handle_dtype(c, "dtype")
    _check_rows(handle_shape(c), indices, updates)
    return []


def _check_handle_dtype(c: Any, attribute: str) -> None:
    found = handle_data(c.op._inputs[0])
    if found is not None and found.dtype is not c.attrs[attribute]:
        raise ValueError(
            f"the variable is {found.dtype.name}, but the updates are {c.attrs[attribute].name}"
        )


# Positive, because some ops divide.
_ROWS = [
    Sample(r(4, 2, low=1, high=4), [0, 2], r(2, 2, low=1, high=4)),
    Sample(r(4, low=1, high=4), [[1], [1]], r(2, 1, low=1, high=4)),
]


def _scatter_anchor(how: str) -> Anchor | None:
    if how == "Div":
        return None  # a step must fail where an integer is divided by 0
    return Anchor("scatter", lambda site: row_anchors.scatter(site, how))


def _reference(
    op_type: str,
    types: str,
    locking: bool,
    prefix: str = "Scatter",
    change: Callable[..., Any] = scatter,
    rule: Callable[..., Any] = _scatter_infer,
    samples: list[Sample] = _ROWS,
) -> Callable[..., Any]:
    """Define the op `<prefix><how>` on references."""
    how = op_type.removeprefix(prefix)

    def kernel(ref, indices, updates):
        state = state_of(ref)
        with state.lock:
            change(state.writable(), indices, updates, how)
        return state

    return define(
        op_type,
        "ref: Ref(T), indices: Tindices, updates: T -> output_ref: Ref(T)",
        f"T: {types}; Tindices: {{index}}; use_locking: bool = {locking}",
        infer=rule,
        kernel=kernel,
        gradient=NOT_DIFFERENTIABLE,
        effect=Effect.WRITES,
        samples=samples,
        lower=_scatter_anchor(how) if change is scatter else None,
    )


def _resource(op_type: str, types: str) -> Callable[..., Any]:
    """Define the op `ResourceScatter<how>` on handles."""
    how = op_type.removeprefix("ResourceScatter")

    @on_variable
    def kernel(state, indices, updates):
        with state.lock:
            scatter(state.writable(), indices, updates, how)

    return define(
        op_type,
        "resource: resource, indices: Tindices, updates: dtype ->",
        f"dtype: {types}; Tindices: {{index}}",
        infer=_resource_scatter_infer,
        kernel=kernel,
        gradient=NOT_DIFFERENTIABLE,
        effect=Effect.WRITES,
        samples=_ROWS,
        lower=_scatter_anchor(how),
    )


@_reference("ScatterUpdate", "type", locking=True)
def scatter_update_op(ref, indices, updates, use_locking=True, name=None):
    """Replace rows of a variable; if a row has several updates, the last one wins."""


@_reference("ScatterAdd", "{numbers}", locking=False)
def scatter_add_op(ref, indices, updates, use_locking=False, name=None):
    """Add to rows of a variable."""


@_reference("ScatterSub", "{numbers}", locking=False)
def scatter_sub_op(ref, indices, updates, use_locking=False, name=None):
    """Subtract from rows of a variable."""


@_reference("ScatterMul", "{numbers}", locking=False)
def scatter_mul_op(ref, indices, updates, use_locking=False, name=None):
    """Multiply rows of a variable."""


@_reference("ScatterDiv", "{numbers}", locking=False)
def scatter_div_op(ref, indices, updates, use_locking=False, name=None):
    """Divide rows of a variable; integers are rounded toward zero."""


@_reference("ScatterMin", "{float16|bfloat16|float32|float64|int32|int64}", locking=False)
def scatter_min_op(ref, indices, updates, use_locking=False, name=None):
    """Keep the smaller of a variable's rows and `updates`."""


@_reference("ScatterMax", "{float16|bfloat16|float32|float64|int32|int64}", locking=False)
def scatter_max_op(ref, indices, updates, use_locking=False, name=None):
    """Keep the larger of a variable's rows and `updates`."""


@_resource("ResourceScatterUpdate", "type")
def resource_scatter_update(resource, indices, updates, name=None):
    """Replace rows of the variable behind a handle; if a row has several updates, the last one
    wins.
    """


@_resource("ResourceScatterAdd", "{numbers}")
def resource_scatter_add(resource, indices, updates, name=None):
    """Add to rows of the variable behind a handle."""


@_resource("ResourceScatterSub", "{numbers}")
def resource_scatter_sub(resource, indices, updates, name=None):
    """Subtract from rows of the variable behind a handle."""


@_resource("ResourceScatterMul", "{numbers}")
def resource_scatter_mul(resource, indices, updates, name=None):
    """Multiply rows of the variable behind a handle."""


@_resource("ResourceScatterDiv", "{numbers}")
def resource_scatter_div(resource, indices, updates, name=None):
    """Divide rows of the variable behind a handle; integers are rounded toward zero."""


@_resource("ResourceScatterMin", "{numbers}")
def resource_scatter_min(resource, indices, updates, name=None):
    """Keep the smaller of the rows of the variable behind a handle and `updates`."""


@_resource("ResourceScatterMax", "{numbers}")
def resource_scatter_max(resource, indices, updates, name=None):
    """Keep the larger of the rows of the variable behind a handle and `updates`."""


# -- By coordinates -------------------------------------------------------------------------------


def _check_slices(params: TensorShape, indices: TensorShape, updates: TensorShape) -> None:
    """updates must have the shape indices.shape[:-1] + params.shape[indices.shape[-1]:]."""
    if indices.sizes is None or updates.sizes is None:
        return
    if not indices.sizes:
        raise ValueError("Shape must be at least rank 1 but is rank 0")
    outer = len(indices.sizes) - 1
    _match(
        f"The outer {outer} dimensions of indices.shape={show_shape(indices)} must match the outer "
        f"{outer} dimensions of updates.shape={show_shape(updates)}",
        indices[:outer],
        updates[:outer],
    )
    depth = indices.sizes[-1]
    if depth is None or params.sizes is None:
        return
    inner = max(len(params.sizes) - depth, 0)
    _match(
        f"The inner {inner} dimensions of input.shape={show_shape(params)} must match the inner "
        f"{len(updates.sizes) - outer} dimensions of updates.shape={show_shape(updates)}",
        params[depth:],
        updates[outer:],
    )


def _match(what: str, a: TensorShape, b: TensorShape) -> None:
    try:
        equal_shapes(a, b)
    except ValueError as error:
        raise ValueError(f"{what}: {error}") from None


def _nd_infer(c: Any, ref: TensorShape, indices: TensorShape, updates: TensorShape) -> Any:
    _check_slices(ref, indices, updates)
    return ref


def _resource_nd_infer(
    c: Any, handle: TensorShape, indices: TensorShape, updates: TensorShape
) -> Any:
    _check_handle_dtype(c, "T")
    _check_slices(handle_shape(c), indices, updates)
    return []


_PLACES = [
    Sample(r(4), [[0], [2]], r(2)),
    Sample(r(3, 2), [[1, 1], [2, 0]], r(2)),
    Sample(r(3, 2), [[2], [2]], r(2, 2)),
]
_reference_nd = partial(
    _reference, prefix="ScatterNd", change=scatter_nd, rule=_nd_infer, samples=_PLACES
)


def _resource_nd(op_type: str) -> Callable[..., Any]:
    """Define the op `ResourceScatterNd<how>` on handles."""
    how = op_type.removeprefix("ResourceScatterNd")

    @on_variable
    def kernel(state, indices, updates):
        with state.lock:
            scatter_nd(state.writable(), indices, updates, how)

    return define(
        op_type,
        "ref: resource, indices: Tindices, updates: T ->",
        "T: type; Tindices: {index}; use_locking: bool = True",
        infer=_resource_nd_infer,
        kernel=kernel,
        gradient=NOT_DIFFERENTIABLE,
        effect=Effect.WRITES,
        samples=typed(_PLACES, "float32", "float64", "int32", "int64"),
    )


@_reference_nd("ScatterNdUpdate", "type", locking=True)
def scatter_nd_update_op(ref, indices, updates, use_locking=True, name=None):
    """Replace slices of a variable."""


@_resource_nd("ResourceScatterNdUpdate")
def resource_scatter_nd_update(ref, indices, updates, use_locking=True, name=None):
    """Replace slices of the variable behind a handle."""


@_reference_nd("ScatterNdAdd", "{numbers}", locking=False)
def scatter_nd_add_op(ref, indices, updates, use_locking=False, name=None):
    """Add to slices of a variable."""


@_resource_nd("ResourceScatterNdAdd")
def resource_scatter_nd_add(ref, indices, updates, use_locking=True, name=None):
    """Add to slices of the variable behind a handle."""


@_reference_nd("ScatterNdSub", "{numbers}", locking=False)
def scatter_nd_sub_op(ref, indices, updates, use_locking=False, name=None):
    """Subtract from slices of a variable."""


@_resource_nd("ResourceScatterNdSub")
def resource_scatter_nd_sub(ref, indices, updates, use_locking=True, name=None):
    """Subtract from slices of the variable behind a handle."""


# -- By slice --------------------------------------------------------------------------------------

_SLICE = "T: type; Index: {index}; " + "; ".join(f"{name}: int = 0" for name in MASKS)


def _slice_infer(c: Any, ref: TensorShape, *rest: TensorShape) -> TensorShape:
    return ref


def _assign_slice(
    array: np.ndarray, ends: tuple[Any, ...], value: Any, masks: tuple[int, int, int, int, int]
) -> None:
    if any(np.ndim(v) != 1 for v in ends):
        raise ValueError("begin, end and strides must be vectors")
    begin, end, strides = (np.asarray(v).tolist() for v in ends)
    index, wanted = resolve_strided_slice(array.shape, begin, end, strides, masks)
    if 0 in wanted:
        return  # the slice is empty, whatever the value's shape
    if np.shape(value) != wanted:
        raise UnimplementedError(
            None,
            None,
            f"sliced l-value shape {show_shape(wanted)} does not match r-value shape "
            f"{show_shape(np.shape(value))}. Automatic broadcasting not yet implemented: "
            "broadcast it to the slice first.",
        )
    array[index] = value


def _slice_kernel(
    ref,
    begin,
    end,
    strides,
    value,
    *,
    begin_mask,
    end_mask,
    ellipsis_mask,
    new_axis_mask,
    shrink_axis_mask,
):
    masks = (begin_mask, end_mask, ellipsis_mask, new_axis_mask, shrink_axis_mask)
    state = state_of(ref)
    with state.lock:
        _assign_slice(state.writable(), (begin, end, strides), value, masks)
    return state


@on_variable
def _resource_slice_kernel(
    state,
    begin,
    end,
    strides,
    value,
    *,
    begin_mask,
    end_mask,
    ellipsis_mask,
    new_axis_mask,
    shrink_axis_mask,
):
    masks = (begin_mask, end_mask, ellipsis_mask, new_axis_mask, shrink_axis_mask)
    with state.lock:
        _assign_slice(state.writable(), (begin, end, strides), value, masks)


@define(
    "StridedSliceAssign",
    "ref: Ref(T), begin: Index, end: Index, strides: Index, value: T -> output_ref: Ref(T)",
    _SLICE,
    infer=_slice_infer,
    kernel=_slice_kernel,
    gradient=NOT_DIFFERENTIABLE,
    effect=Effect.WRITES,
    samples=[Sample(r(4, 2), [1, 0], [3, 2], [1, 1], r(2, 2)), Sample(r(4), [3], [0], [-2], r(2))],
)
def strided_slice_assign(
    ref,
    begin,
    end,
    strides,
    value,
    begin_mask=0,
    end_mask=0,
    ellipsis_mask=0,
    new_axis_mask=0,
    shrink_axis_mask=0,
    name=None,
):
    """Replace a slice of a variable and return its reference."""


@define(
    "ResourceStridedSliceAssign",
    "ref: resource, begin: Index, end: Index, strides: Index, value: T ->",
    _SLICE,
    infer=infer.no_outputs,
    kernel=_resource_slice_kernel,
    gradient=NOT_DIFFERENTIABLE,
    effect=Effect.WRITES,
    samples=[Sample(r(4, 2), [1, 0], [3, 2], [1, 1], r(2, 2)), Sample(r(4), [3], [0], [-2], r(2))],
)
def resource_strided_slice_assign(
    ref,
    begin,
    end,
    strides,
    value,
    begin_mask=0,
    end_mask=0,
    ellipsis_mask=0,
    new_axis_mask=0,
    shrink_axis_mask=0,
    name=None,
):
    """Replace a slice of the variable behind a handle."""
