"""Barriers: the ops, and the class Barrier."""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace._src.core.errors import InvalidArgumentError, UnimplementedError
from headrace._src.core.tensor_shape import TensorShape, show_shape
from headrace._src.devices.barrier import BarrierState
from headrace._src.devices.batches import rows
from headrace._src.graph.definition import NOT_DIFFERENTIABLE, Effect, Sample
from headrace._src.graph.inference import constant_value
from headrace._src.graph.operation import Operation, Tensor
from headrace._src.ops.base import infer
from headrace._src.ops.base.define import define
from headrace._src.ops.state.queue_classes import shape_list, type_list
from headrace._src.ops.state.shared_state import find_state, on, reference_infer

__all__ = ["Barrier"]


def _make_kernel(*, ctx, component_types, shapes, capacity, container, shared_name):
    if capacity != -1:
        raise InvalidArgumentError(
            None,
            None,
            f"Barrier only accepts capacity=-1.  Feed the inputs to your Barrier "
            f"through a queue to enforce a limited capacity. Got {capacity}",
        )
    handle, found, _ = find_state(
        ctx,
        BarrierState,
        (container, shared_name),
        lambda name: BarrierState(name, component_types, shapes),
    )
    if found.types != component_types:
        raise InvalidArgumentError(
            None, None, f"Shared barrier '{found.name}' has other component types"
        )
    return handle


@define(
    "Barrier",
    "-> handle: Ref(string)",
    "component_types: list(type) >= 1; shapes: list(shape) >= 0 = []; capacity: int = -1; "
    "container: string = ''; shared_name: string = ''",
    infer=reference_infer,
    kernel=_make_kernel,
    gradient=NOT_DIFFERENTIABLE,
    effect=Effect.READS,
    samples=[Sample(component_types=["float32"])],
)
def barrier(component_types, shapes=(), capacity=-1, container="", shared_name="", name=None):
    """Return a barrier: it collects the components of tuples until the tuples are complete."""


def _insert_kernel(barrier, keys, values, *, component_index):
    if np.ndim(keys) != 1 or np.shape(values)[:1] != np.shape(keys):
        raise InvalidArgumentError(
            None,
            None,
            f"keys and values must have equally many rows, but have shapes "
            f"{show_shape(np.shape(keys))} and {show_shape(np.shape(values))}",
        )
    held = [row for (row,) in rows([values])]
    barrier.insert(component_index, keys.tolist(), held)


@define(
    "BarrierInsertMany",
    "handle: Ref(string), keys: string, values: T ->",
    "T: type; component_index: int",
    infer=infer.no_outputs,
    kernel=on(BarrierState, _insert_kernel),
    effect=Effect.BLOCKS,
)
def barrier_insert_many(handle, keys, values, component_index, name=None):
    """Add a component of some tuples to a barrier."""


def _take_kernel(
    barrier, num_elements, *, component_types, allow_small_batch, wait_for_incomplete, timeout_ms
):
    if timeout_ms != -1:
        raise InvalidArgumentError(None, None, "Timeout not supported yet.")
    if wait_for_incomplete:
        raise UnimplementedError(None, None, "wait_for_incomplete is not supported")
    if np.ndim(num_elements) or num_elements < 0:
        raise InvalidArgumentError(None, None, "num_elements must be a scalar, and not negative")
    return barrier.take(int(num_elements), allow_small_batch)


@define(
    "BarrierTakeMany",
    "handle: Ref(string), num_elements: int32 -> indices: int64, keys: string, "
    "values: *component_types",
    "component_types: list(type) >= 1; allow_small_batch: bool = False; "
    "wait_for_incomplete: bool = False; timeout_ms: int = -1",
    infer=infer.unknown,
    kernel=on(BarrierState, _take_kernel),
    gradient=NOT_DIFFERENTIABLE,
    effect=Effect.BLOCKS,
)
def barrier_take_many(
    handle,
    num_elements,
    component_types,
    allow_small_batch=False,
    wait_for_incomplete=False,
    timeout_ms=-1,
    name=None,
):
    """Take complete tuples from a barrier; block until there are enough."""


@define(
    "BarrierClose",
    "handle: Ref(string) ->",
    "cancel_pending_enqueues: bool = False",
    infer=infer.no_outputs,
    kernel=on(
        BarrierState,
        lambda barrier, *, cancel_pending_enqueues: barrier.close(cancel_pending_enqueues),
    ),
    effect=Effect.BLOCKS,
)
def barrier_close(handle, cancel_pending_enqueues=False, name=None):
    """Close a barrier to new tuples."""


@define(
    "BarrierReadySize",
    "handle: Ref(string) -> size: int32",
    infer=infer.scalar,
    kernel=on(BarrierState, lambda barrier: np.int32(barrier.ready_size())),
    effect=Effect.BLOCKS,
)
def barrier_ready_size(handle, name=None):
    """Return the number of complete tuples in a barrier."""


@define(
    "BarrierIncompleteSize",
    "handle: Ref(string) -> size: int32",
    infer=infer.scalar,
    kernel=on(BarrierState, lambda barrier: np.int32(barrier.incomplete_size())),
    effect=Effect.BLOCKS,
)
def barrier_incomplete_size(handle, name=None):
    """Return the number of incomplete tuples in a barrier."""


class Barrier:
    """Tuples by key whose components arrive one by one; complete tuples can be taken.

    types and shapes: of the components. shared_name: barriers of this name are one barrier.
    """

    def __init__(
        self,
        types: Any,
        shapes: Any = None,
        shared_name: str | None = None,
        name: str = "barrier",
    ) -> None:
        self._types = type_list(types)
        if shapes is not None:
            shapes = shape_list(shapes)
            assert shapes is not None
            if len(shapes) != len(self._types):
                raise ValueError("Barrier shapes must be the same length as types")
            if any(0 in (s.sizes or ()) for s in shapes):
                raise ValueError("Empty tensors are not supported, but received shapes with zeros")
            self._shapes = shapes
        else:
            self._shapes = [TensorShape(None)] * len(self._types)
        self._barrier_ref: Tensor = barrier(self._types, shapes, -1, None, shared_name, name=name)
        self._name = self._barrier_ref.op.name.rpartition("/")[2]

    @property
    def barrier_ref(self) -> Tensor:
        """The handle, in the form that the ops take."""
        return self._barrier_ref

    @property
    def name(self) -> str:
        return self._barrier_ref.op.name

    def insert_many(
        self, component_index: int, keys: Any, values: Any, name: str | None = None
    ) -> Operation:
        """Add component `component_index`, the rows of `values`, to the tuples with these
        `keys`.
        """
        name = name or f"{self._name}_BarrierInsertMany"
        return barrier_insert_many(self._barrier_ref, keys, values, component_index, name=name)

    def take_many(
        self,
        num_elements: Any,
        allow_small_batch: bool = False,
        timeout: int | None = None,
        name: str | None = None,
    ) -> Any:
        """Return the indices, keys and components of complete tuples; block until there are
        `num_elements`. After `close`, `allow_small_batch` accepts fewer.
        """
        found = barrier_take_many(
            self._barrier_ref,
            num_elements,
            self._types,
            allow_small_batch,
            timeout_ms=timeout,
            name=name or f"{self._name}_BarrierTakeMany",
        )
        known = None if allow_small_batch else constant_value(found.indices.op.inputs[1])
        count = None if known is None else int(known)
        found.indices.set_shape([count])
        found.keys.set_shape([count])
        for tensor, shape in zip(found.values, self._shapes, strict=True):
            tensor.set_shape(TensorShape([count]).concatenate(shape))
        return found

    def close(self, cancel_pending_enqueues: bool = False, name: str | None = None) -> Operation:
        """Accept no new keys; with `cancel_pending_enqueues`, also drop the incomplete tuples."""
        return barrier_close(
            self._barrier_ref, cancel_pending_enqueues, name=name or f"{self._name}_BarrierClose"
        )

    def ready_size(self, name: str | None = None) -> Tensor:
        """Return the number of complete tuples."""
        return barrier_ready_size(self._barrier_ref, name=name or f"{self._name}_BarrierReadySize")

    def incomplete_size(self, name: str | None = None) -> Tensor:
        """Return the number of incomplete tuples."""
        return barrier_incomplete_size(
            self._barrier_ref, name=name or f"{self._name}_BarrierIncompleteSize"
        )
