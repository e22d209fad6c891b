"""Slots: variables that belong to another one, such as an optimizer's running means. In: the
primary variable. Out: a variable `<primary>/<name>`, of the same kind, placed with it.

A slot of a part of a partitioned variable is the same part of a partitioned slot, and is saved as
such.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

from headrace._src.graph.default import get_default_graph
from headrace._src.ops.base.define import b
from headrace._src.variables.initializers import Zeros
from headrace._src.variables.lookup import get_variable
from headrace._src.variables.resource_variable import ResourceVariable
from headrace._src.variables.scope import get_variable_scope, variable_scope
from headrace._src.variables.slice_info import SaveSliceInfo

__all__ = ["create_slot", "create_slot_with_initializer", "create_zeros_slot"]


def create_slot(primary: Any, val: Any, name: str, colocate_with_primary: bool = True) -> Any:
    """Return a new slot of `primary` (a variable or a tensor) whose initial value is `val`."""
    return _make(primary, val, name, colocate_with_primary, None, None, val.shape)


def create_slot_with_initializer(
    primary: Any,
    initializer: Any,
    shape: Any,
    dtype: Any,
    name: str,
    colocate_with_primary: bool = True,
) -> Any:
    """Return a new slot of `primary`, initialised by `initializer`. If its shape isn't fully known,
    it has the shape of the primary's initial value.
    """
    if callable(initializer) and not shape.is_fully_defined():
        value = initializer(b.shape(_initialized(primary)), dtype=dtype)
        return create_slot(primary, value, name, colocate_with_primary)
    return _make(primary, initializer, name, colocate_with_primary, shape, dtype, shape)


def create_zeros_slot(
    primary: Any, name: str, dtype: Any = None, colocate_with_primary: bool = True
) -> Any:
    """Return a new slot of `primary` that starts as zeros of the same shape."""
    dtype = primary.dtype.base_dtype if dtype is None else dtype
    if primary.shape.is_fully_defined():
        return create_slot_with_initializer(
            primary, Zeros(), primary.shape, dtype, name, colocate_with_primary
        )
    zeros = b.zeros(b.shape(_initialized(primary)), dtype)
    return create_slot(primary, zeros, name, colocate_with_primary)


def _initialized(primary: Any) -> Any:
    return primary.initialized_value() if hasattr(primary, "initialized_value") else primary


def _make(
    primary: Any,
    initializer: Any,
    name: str,
    colocate: bool,
    shape: Any,
    dtype: Any,
    known_shape: Any,
) -> Any:
    graph = get_default_graph()
    # The scope's partitioner was for the primary: the slot of a part is not partitioned again.
    with variable_scope(None, f"{primary.op.name}/{name}"):
        get_variable_scope().set_partitioner(None)
        with graph.colocate_with(primary.op) if colocate else nullcontext():
            slot = get_variable(
                "",
                initializer=initializer,
                trainable=False,
                use_resource=isinstance(primary, ResourceVariable),
                shape=shape,
                dtype=dtype,
                validate_shape=known_shape.is_fully_defined(),
            )
    _share_slice(primary, slot)
    return slot


def _share_slice(primary: Any, slot: Any) -> None:
    part = getattr(primary, "_save_slice_info", None)
    if part is None:
        return
    rank = len(slot.shape.sizes or ())
    own_name = slot.op.name[len(primary.op.name) + 1 :]
    slot._set_save_slice_info(
        SaveSliceInfo(
            f"{part.full_name}/{own_name}",
            part.full_shape[:rank],
            part.var_offset[:rank],
            part.var_shape[:rank],
        )
    )
