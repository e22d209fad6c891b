"""Staging areas: the ops, and the classes StagingArea and MapStagingArea.

An area has no handle: ops refer to it by container and shared name (or by their own name).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

import numpy as np

from headrace._src.core.dtypes import DType
from headrace._src.core.errors import InvalidArgumentError
from headrace._src.core.export import export
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.devices.batches import own
from headrace._src.devices.staging import MapStaging, Staging
from headrace._src.graph.default import get_default_graph
from headrace._src.graph.definition import NOT_DIFFERENTIABLE, Effect
from headrace._src.graph.operation import Operation, Tensor
from headrace._src.ops.base import infer
from headrace._src.ops.base.define import b, define
from headrace._src.ops.base.to_tensor import convert_to_tensor, name_scope
from headrace._src.ops.state.queue_classes import name_list, type_list

__all__ = ["MapStagingArea", "StagingArea"]

_LIMITS = "capacity: int >= 0 = 0; memory_limit: int >= 0 = 0"
_PLACE = "container: string = ''; shared_name: string = ''"
_SOME = f"{_LIMITS}; dtypes: list(type) >= 1; {_PLACE}"
_ANY = f"{_LIMITS}; dtypes: list(type); {_PLACE}"


def _area(ctx: Any) -> Staging:
    attrs = ctx.attrs
    name = attrs["shared_name"] or ctx.name
    return ctx.find_or_make(
        attrs["container"],
        name,
        Staging,
        lambda: Staging(name, attrs["capacity"], attrs["memory_limit"]),
    )


def _define(
    op_type: str, signature: str, attributes: str, kernel: Callable[..., Any]
) -> Callable[[Any], Any]:
    return define(
        op_type,
        signature,
        attributes,
        infer=infer.scalar if signature.endswith("size: int32") else infer.unknown,
        kernel=kernel,
        gradient=NOT_DIFFERENTIABLE,
        effect=Effect.BLOCKS,
    )


@_define(
    "Stage",
    "values: *dtypes ->",
    _SOME,
    lambda values, *, ctx: _area(ctx).put(list(map(own, values))),
)
def stage(values, capacity=0, memory_limit=0, container="", shared_name="", name=None):
    """Put values into a staging area."""


@_define("Unstage", "-> values: *dtypes", _SOME, lambda *, ctx: _area(ctx).get())
def unstage(dtypes, capacity=0, memory_limit=0, container="", shared_name="", name=None):
    """Take the oldest values from a staging area."""


@_define(
    "StagePeek",
    "index: int32 -> values: *dtypes",
    _SOME,
    lambda index, *, ctx: _area(ctx).peek(_scalar(index, "index")),
)
def stage_peek(index, dtypes, capacity=0, memory_limit=0, container="", shared_name="", name=None):
    """Return values from a staging area without removing them."""


@_define("StageSize", "-> size: int32", _ANY, lambda *, ctx: np.int32(_area(ctx).size()))
def stage_size(dtypes, capacity=0, memory_limit=0, container="", shared_name="", name=None):
    """Return the number of elements in a staging area."""


@_define("StageClear", "->", _ANY, lambda *, ctx: _area(ctx).clear())
def stage_clear(dtypes, capacity=0, memory_limit=0, container="", shared_name="", name=None):
    """Remove all elements from a staging area."""


# -- By key ----------------------------------------------------------------------------------------


def _scalar(value: Any, what: str) -> int:
    if np.ndim(value):
        raise InvalidArgumentError(None, None, f"{what} must be an integer scalar.")
    return int(value)


def _map_area(ctx: Any) -> MapStaging:
    attrs = ctx.attrs
    name = attrs["shared_name"] or ctx.name
    limits = attrs["capacity"], attrs["memory_limit"]
    ordered = ctx.op.type.startswith("Ordered")
    return ctx.find_or_make(
        attrs["container"], name, MapStaging, lambda: MapStaging(name, *limits, ordered)
    )


def _define_maps(
    op_type: str, ordered: str, signature: str, attributes: str, kernel: Callable[..., Any]
) -> Callable[[Any], Any]:
    """Define an op on a map, and the same op on an ordered one."""

    def decorate(function: Any) -> Any:
        name = f"ordered_{function.__name__}"
        again = FunctionType(function.__code__, function.__globals__, name, function.__defaults__)
        again.__doc__ = function.__doc__
        _define(ordered, signature, attributes, kernel)(again)
        return _define(op_type, signature, attributes, kernel)(function)

    return decorate


def _put_kernel(key, indices, values, *, dtypes, ctx):
    places, held = np.ravel(indices).tolist(), list(map(own, values))
    return _map_area(ctx).put(_scalar(key, "key"), places, held, len(dtypes))


@_define_maps(
    "MapStage",
    "OrderedMapStage",
    "key: int64, indices: int32, values: *fake_dtypes ->",
    f"{_LIMITS}; dtypes: list(type); fake_dtypes: list(type) >= 1; {_PLACE}",
    _put_kernel,
)
def map_stage(
    key,
    indices,
    values,
    dtypes,
    capacity=0,
    memory_limit=0,
    container="",
    shared_name="",
    name=None,
):
    """Put components of the element `key` into a staging area."""


def _get_kernel(key, indices, *, ctx):
    return _map_area(ctx).get(_scalar(key, "key"), np.ravel(indices).tolist())


@_define_maps(
    "MapUnstage",
    "OrderedMapUnstage",
    "key: int64, indices: int32 -> values: *dtypes",
    _SOME,
    _get_kernel,
)
def map_unstage(
    key, indices, dtypes, capacity=0, memory_limit=0, container="", shared_name="", name=None
):
    """Take components of the element `key` from a staging area."""


def _peek_kernel(key, indices, *, ctx):
    return _map_area(ctx).peek(_scalar(key, "key"), np.ravel(indices).tolist())


@_define_maps(
    "MapPeek",
    "OrderedMapPeek",
    "key: int64, indices: int32 -> values: *dtypes",
    _SOME,
    _peek_kernel,
)
def map_peek(
    key, indices, dtypes, capacity=0, memory_limit=0, container="", shared_name="", name=None
):
    """Return components of the element `key` of a staging area without removing them."""


def _get_any_kernel(indices, *, ctx):
    return _map_area(ctx).get_any(np.ravel(indices).tolist())


@_define_maps(
    "MapUnstageNoKey",
    "OrderedMapUnstageNoKey",
    "indices: int32 -> key: int64, values: *dtypes",
    _SOME,
    _get_any_kernel,
)
def map_unstage_no_key(
    indices, dtypes, capacity=0, memory_limit=0, container="", shared_name="", name=None
):
    """Take components of some element from a staging area, and return its key with them."""


@_define_maps(
    "MapSize",
    "OrderedMapSize",
    "-> size: int32",
    _ANY,
    lambda *, ctx: np.int32(_map_area(ctx).size()),
)
def map_size(dtypes, capacity=0, memory_limit=0, container="", shared_name="", name=None):
    """Return the number of complete elements in a staging area."""


@_define_maps(
    "MapIncompleteSize",
    "OrderedMapIncompleteSize",
    "-> size: int32",
    _ANY,
    lambda *, ctx: np.int32(_map_area(ctx).incomplete_size()),
)
def map_incomplete_size(
    dtypes, capacity=0, memory_limit=0, container="", shared_name="", name=None
):
    """Return the number of incomplete elements in a staging area."""


@_define_maps("MapClear", "OrderedMapClear", "->", _ANY, lambda *, ctx: _map_area(ctx).clear())
def map_clear(dtypes, capacity=0, memory_limit=0, container="", shared_name="", name=None):
    """Remove all elements from a staging area."""


# -- Public classes --------------------------------------------------------------------------------

_identifiers = itertools.count()


class BaseStagingArea:
    """The common base of both kinds of areas; see StagingArea."""

    def __init__(
        self,
        dtypes: Any,
        shapes: Any = None,
        names: Any = None,
        shared_name: str | None = None,
        capacity: int = 0,
        memory_limit: int = 0,
    ) -> None:
        kind = type(self).__name__
        self._name = shared_name or get_default_graph().unique_name(f"{kind}_{next(_identifiers)}")
        self._dtypes = type_list(dtypes)
        if shapes is None:
            self._shapes = [TensorShape(None)] * len(self._dtypes)
        else:
            if len(shapes) != len(self._dtypes):
                raise ValueError("StagingArea shapes must be the same length as dtypes")
            self._shapes = [TensorShape(s) for s in shapes]
        self._names = name_list(names, self._dtypes)
        self._limits = {"capacity": capacity, "memory_limit": memory_limit}
        self._place = {**self._limits, "shared_name": self._name}

    @property
    def name(self) -> str:
        return self._name

    @property
    def dtypes(self) -> list[DType]:
        return self._dtypes

    @property
    def shapes(self) -> list[TensorShape]:
        return self._shapes

    @property
    def names(self) -> list[str] | None:
        return self._names

    @property
    def capacity(self) -> int:
        return self._limits["capacity"]

    @property
    def memory_limit(self) -> int:
        return self._limits["memory_limit"]

    def _checked(
        self, values: Any, indices: Sequence[int] | None
    ) -> tuple[list[Tensor], list[int]]:
        """Return the given components as tensors, and their indices."""
        if isinstance(values, dict):
            if not self._names:
                raise ValueError("Staging areas must have names to enqueue a dictionary")
            if not set(values) <= set(self._names):
                raise ValueError(
                    f"Keys in dictionary to put do not match names of staging area. Dictionary: "
                    f"({sorted(values)}), Queue: ({sorted(self._names)})"
                )
            indices = [i for i, name in enumerate(self._names) if name in values]
            given = [values[self._names[i]] for i in indices]
        else:
            if self._names:
                raise ValueError("You must enqueue a dictionary in a staging area with names")
            given = list(values)
            if indices is None:
                raise ValueError("Indices must be supplied when inserting a list of tensors")
            indices = list(indices)
            if len(indices) != len(given):
                raise ValueError(f"Number of indices {indices} doesn't match number of values")
        if max(indices, default=-1) >= len(self._dtypes):
            raise ValueError(f"Unexpected number of inputs {len(given)} vs {len(self._dtypes)}")
        tensors = []
        for i, value in zip(indices, given, strict=True):
            tensor = convert_to_tensor(value, self._dtypes[i], name=f"component_{i}")
            if not tensor.shape.is_compatible_with(self._shapes[i]):
                raise ValueError(
                    f"Shapes of tensor {tensor.name} {tensor.shape} and component {i} of the "
                    f"staging area {self._shapes[i]} are incompatible"
                )
            tensors.append(tensor)
        return tensors, indices

    def _given(self, tensors: Sequence[Tensor], indices: Sequence[int]) -> Any:
        for tensor, i in zip(tensors, indices, strict=True):
            tensor.set_shape(self._shapes[i])
        if self._names:
            return {self._names[i]: t for i, t in zip(indices, tensors, strict=True)}
        return list(tensors)


@export("contrib.staging.StagingArea")
class StagingArea(BaseStagingArea):
    """Keeps tuples of tensors between parts of a step, or between steps, in order.

    capacity, memory_limit: the most elements, and bytes, that it holds; 0 for no limit.
    """

    def put(self, values: Any, name: str | None = None) -> Operation:
        """Add a tuple: a tensor, a list, or a dictionary by name. Block while the area is full."""
        single = not isinstance(values, list | tuple | dict)
        with name_scope(name, f"{self._name}_put", []) as scope:
            given = [values] if single else values
            tensors, _ = self._checked(
                given, None if isinstance(given, dict) else range(len(given))
            )
            if len(tensors) != len(self._dtypes):
                raise ValueError(
                    f"Unexpected number of inputs {len(tensors)} vs {len(self._dtypes)}"
                )
            return b.stage(tensors, name=scope, **self._place)

    def get(self, name: str | None = None) -> Any:
        """Take the oldest tuple; block while the area is empty."""
        name = name or f"{self._name}_get"
        found = b.unstage(self._dtypes, name=name, **self._place)
        return self._given(found, range(len(found)))

    def peek(self, index: Any, name: str | None = None) -> Any:
        """Return the tuple at `index` without removing it; block until there is one."""
        name = name or f"{self._name}_peek"
        found = b.stage_peek(index, self._dtypes, name=name, **self._place)
        return self._given(found, range(len(found)))

    def size(self, name: str | None = None) -> Tensor:
        """Return the number of tuples in the area."""
        return b.stage_size(self._dtypes, name=name or f"{self._name}_size", **self._place)

    def clear(self, name: str | None = None) -> Operation:
        """Remove all tuples."""
        return b.stage_clear(self._dtypes, name=name or f"{self._name}_clear", **self._place)


class MapStagingArea(BaseStagingArea):
    """Keeps tuples of tensors by key; the components of a tuple may arrive one by one.

    ordered: whether `get()` without a key takes the smallest key, else any.

    The other arguments are those of StagingArea.
    """

    def __init__(
        self,
        dtypes: Any,
        shapes: Any = None,
        names: Any = None,
        shared_name: str | None = None,
        ordered: bool = False,
        capacity: int = 0,
        memory_limit: int = 0,
    ) -> None:
        super().__init__(dtypes, shapes, names, shared_name, capacity, memory_limit)
        self._prefix = "ordered_map" if ordered else "map"

    def _op(self, suffix: str) -> Callable[..., Any]:
        return getattr(b, f"{self._prefix}_{suffix}")

    def put(self, key: Any, vals: Any, indices: Any = None, name: str | None = None) -> Operation:
        """Add components of the tuple `key`: all of them, those at `indices`, or a dictionary."""
        with name_scope(name, f"{self._name}_put", []) as scope:
            single = not isinstance(vals, list | tuple | dict)
            tensors, places = self._checked([vals] if single else vals, indices)
            return self._op("stage")(key, places, tensors, self._dtypes, name=scope, **self._place)

    def get(self, key: Any = None, indices: Any = None, name: str | None = None) -> Any:
        """Take the tuple `key`, or its components at `indices` (numbers or names). Without a key,
        take some tuple and return its key with it.
        """
        places, types = self._chosen(indices)
        if key is None:
            found = self._op("unstage_no_key")(places, types, name=name, **self._place)
            return found[0], self._given(found[1], places)
        found = self._op("unstage")(key, places, types, name=name, **self._place)
        return key, self._given(found, places)

    def peek(self, key: Any, indices: Any = None, name: str | None = None) -> Any:
        """Return the tuple `key`, or some of its components, without removing it."""
        places, types = self._chosen(indices)
        name = name or f"{self._name}_pop"
        found = self._op("peek")(key, places, types, name=name, **self._place)
        return self._given(found, places)

    def size(self, name: str | None = None) -> Tensor:
        """Return the number of complete tuples."""
        return self._op("size")(self._dtypes, name=name or f"{self._name}_size", **self._place)

    def incomplete_size(self, name: str | None = None) -> Tensor:
        """Return the number of incomplete tuples."""
        name = name or f"{self._name}_incomplete_size"
        return self._op("incomplete_size")(self._dtypes, name=name, **self._place)

    def clear(self, name: str | None = None) -> Operation:
        """Remove all tuples."""
        return self._op("clear")(self._dtypes, name=name or f"{self._name}_clear", **self._place)

    def _chosen(self, indices: Any) -> tuple[list[int], list[DType]]:
        places = range(len(self._dtypes)) if indices is None else indices
        if isinstance(places, str | int):
            raise TypeError(f"Invalid indices type '{type(indices)}'")
        names = self._names or []
        found = [names.index(i) if isinstance(i, str) else int(i) for i in places]
        return found, [self._dtypes[i] for i in found]
