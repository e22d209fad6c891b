"""Functions that change variables of any kind: tf.assign, tf.scatter_add and similar ones.

Each takes a variable or a reference tensor. A reference variable is changed and its reference
returned; a resource variable is returned as it is after the change.
"""

from __future__ import annotations

from typing import Any

from headrace._src.core.export import export
from headrace._src.graph.operation import Tensor
from headrace._src.ops.base.define import b, composed
from headrace._src.ops.base.to_tensor import convert_to_tensor
from headrace._src.ops.state import ref_variable_ops, variable_scatter

__all__ = ["assign", "assign_add", "assign_sub"]


@composed
@export("assign")
def assign(
    ref: Any,
    value: Any,
    validate_shape: bool | None = None,
    use_locking: bool | None = None,
    name: str | None = None,
) -> Tensor:
    """Assign a value to a variable; with `validate_shape` (the default), its shape must not
    change.
    """
    if ref.dtype._is_ref_dtype:
        return ref_variable_ops.assign_op(
            ref, value, validate_shape=validate_shape, use_locking=use_locking, name=name
        )
    return ref.assign(value, name=name)


@composed
@export("assign_add")
def assign_add(
    ref: Any, value: Any, use_locking: bool | None = None, name: str | None = None
) -> Tensor:
    """Add to a variable. The name is for a variable with references, as in TensorFlow."""
    if ref.dtype._is_ref_dtype:
        return ref_variable_ops.assign_add_op(ref, value, use_locking=use_locking, name=name)
    return ref.assign_add(value)


@composed
@export("assign_sub")
def assign_sub(
    ref: Any, value: Any, use_locking: bool | None = None, name: str | None = None
) -> Tensor:
    """Subtract from a variable. The name is for a variable with references, as in TensorFlow."""
    if ref.dtype._is_ref_dtype:
        return ref_variable_ops.assign_sub_op(ref, value, use_locking=use_locking, name=name)
    return ref.assign_sub(value)


@composed
@export("count_up_to")
def count_up_to(ref: Any, limit: int, name: str | None = None) -> Tensor:
    """Return a variable's value and add 1 to it; OutOfRangeError once it is `limit`."""
    if ref.dtype._is_ref_dtype:
        return ref_variable_ops.count_up_to_op(ref, limit=limit, name=name)
    return b.resource_count_up_to(ref.handle, limit, T=ref.dtype, name=name)


def _scatter(
    by_reference: Any,
    by_handle: Any,
    ref: Any,
    indices: Any,
    updates: Any,
    use_locking: bool,
    name: str | None,
) -> Any:
    if ref.dtype._is_ref_dtype:
        return by_reference(ref, indices, updates, use_locking=use_locking, name=name)
    updates = convert_to_tensor(updates, ref.dtype)
    return ref._lazy_read(by_handle(ref.handle, indices, updates, name=name))


@composed
@export("scatter_update")
def scatter_update(
    ref: Any, indices: Any, updates: Any, use_locking: bool = True, name: str | None = None
) -> Tensor:
    """Replace rows of a variable; if a row occurs several times, the last update wins."""
    ops = variable_scatter.scatter_update_op, variable_scatter.resource_scatter_update
    return _scatter(*ops, ref, indices, updates, use_locking, name)


@composed
@export("scatter_add")
def scatter_add(
    ref: Any, indices: Any, updates: Any, use_locking: bool = False, name: str | None = None
) -> Tensor:
    """Add to rows of a variable."""
    ops = variable_scatter.scatter_add_op, variable_scatter.resource_scatter_add
    return _scatter(*ops, ref, indices, updates, use_locking, name)


@composed
@export("scatter_sub")
def scatter_sub(
    ref: Any, indices: Any, updates: Any, use_locking: bool = False, name: str | None = None
) -> Tensor:
    """Subtract from rows of a variable."""
    ops = variable_scatter.scatter_sub_op, variable_scatter.resource_scatter_sub
    return _scatter(*ops, ref, indices, updates, use_locking, name)


@composed
@export("scatter_mul")
def scatter_mul(
    ref: Any, indices: Any, updates: Any, use_locking: bool = False, name: str | None = None
) -> Tensor:
    """Multiply rows of a variable."""
    ops = variable_scatter.scatter_mul_op, variable_scatter.resource_scatter_mul
    return _scatter(*ops, ref, indices, updates, use_locking, name)


@composed
@export("scatter_div")
def scatter_div(
    ref: Any, indices: Any, updates: Any, use_locking: bool = False, name: str | None = None
) -> Tensor:
    """Divide rows of a variable; integers are rounded toward zero."""
    ops = variable_scatter.scatter_div_op, variable_scatter.resource_scatter_div
    return _scatter(*ops, ref, indices, updates, use_locking, name)


@composed
@export("scatter_min")
def scatter_min(
    ref: Any, indices: Any, updates: Any, use_locking: bool = False, name: str | None = None
) -> Tensor:
    """Keep the smaller of a variable's rows and `updates`."""
    ops = variable_scatter.scatter_min_op, variable_scatter.resource_scatter_min
    return _scatter(*ops, ref, indices, updates, use_locking, name)


@composed
@export("scatter_max")
def scatter_max(
    ref: Any, indices: Any, updates: Any, use_locking: bool = False, name: str | None = None
) -> Tensor:
    """Keep the larger of a variable's rows and `updates`."""
    ops = variable_scatter.scatter_max_op, variable_scatter.resource_scatter_max
    return _scatter(*ops, ref, indices, updates, use_locking, name)


@composed
@export("scatter_nd_update")
def scatter_nd_update(
    ref: Any, indices: Any, updates: Any, use_locking: bool = True, name: str | None = None
) -> Tensor:
    """Replace slices of a variable at the coordinates `indices`."""
    ops = variable_scatter.scatter_nd_update_op, variable_scatter.resource_scatter_nd_update
    return _scatter(*ops, ref, indices, updates, use_locking, name)


@composed
@export("scatter_nd_add")
def scatter_nd_add(
    ref: Any, indices: Any, updates: Any, use_locking: bool = False, name: str | None = None
) -> Tensor:
    """Add to slices of a variable at the coordinates `indices`."""
    ops = variable_scatter.scatter_nd_add_op, variable_scatter.resource_scatter_nd_add
    return _scatter(*ops, ref, indices, updates, use_locking, name)


@composed
@export("scatter_nd_sub")
def scatter_nd_sub(
    ref: Any, indices: Any, updates: Any, use_locking: bool = False, name: str | None = None
) -> Tensor:
    """Subtract from slices of a variable at the coordinates `indices`."""
    ops = variable_scatter.scatter_nd_sub_op, variable_scatter.resource_scatter_nd_sub
    return _scatter(*ops, ref, indices, updates, use_locking, name)


@composed
@export("batch_scatter_update")
def batch_scatter_update(
    ref: Any, indices: Any, updates: Any, use_locking: bool = True, name: str | None = None
) -> Tensor:
    """Replace rows of each batch of a variable: ref[i, indices[i, j]] = updates[i, j].

    All dimensions of `indices` but the last one are batch dimensions.
    """
    indices = convert_to_tensor(indices, name="indices")
    sizes = b.shape(indices)
    rank = indices.shape.ndims
    if rank is None:
        raise ValueError("batch_scatter_update needs to know the rank of indices")
    indices = b.expand_dims(indices, -1)
    columns = [_batch_numbers(sizes[axis], axis, indices) for axis in range(rank - 1)]
    coordinates = b.concat([*columns, indices], -1)
    return scatter_nd_update(ref, coordinates, updates, use_locking, name)


def _batch_numbers(size: Tensor, axis: int, like: Tensor) -> Tensor:
    """Return 0, 1, ... along `axis`, in the shape of `like`."""
    after = (like.shape.ndims or 0) - axis - 1
    numbers = b.range(0, size, 1, dtype=like.dtype.base_dtype, name="Range")
    shape = [*[1] * axis, size, *[1] * after]
    return b.reshape(numbers, shape) * b.ones_like(like, dtype=like.dtype.base_dtype)
