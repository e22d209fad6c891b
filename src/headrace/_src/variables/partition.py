"""Partitioned variables: the number and sizes of the parts, and the whole that they represent."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from headrace._src.core.dtypes import DType, as_dtype, string
from headrace._src.core.export import export
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.graph.default import get_default_graph
from headrace._src.graph.operation import Tensor
from headrace._src.ops.array.constants_and_placeholders import identity
from headrace._src.ops.base.define import b
from headrace._src.ops.base.to_tensor import name_scope, register_tensor_conversion_function
from headrace._src.ops.control.grouping import group

__all__ = ["PartitionInfo", "PartitionedVariable", "partition_sizes"]


class PartitionInfo:
    """Tells an initializer which part of a variable it initialises."""

    def __init__(self, full_shape: Sequence[int], var_offset: Sequence[int]) -> None:
        if len(full_shape) != len(var_offset):
            raise ValueError(f"shape {full_shape} and offset {var_offset} differ in rank")
        for offset, size in zip(var_offset, full_shape, strict=True):
            if not 0 <= offset < size:
                raise ValueError(
                    f"Expected 0 <= offset < shape but found offset={offset}, shape={size} for "
                    f"var_offset={list(var_offset)}, full_shape={list(full_shape)}"
                )
        self.full_shape = list(full_shape)
        self.var_offset = list(var_offset)

    def single_offset(self, shape: Sequence[int]) -> int:
        """Return the offset along the only axis in which a part of `shape` is sliced; 0 if there's
        none.
        """
        axis = self.single_slice_dim(shape)
        return 0 if axis is None else self.var_offset[axis]

    def single_slice_dim(self, shape: Sequence[int]) -> int | None:
        """Return the only axis in which a part of `shape` is sliced, or None."""
        if len(shape) != len(self.full_shape):
            raise ValueError(f"a part of shape {shape} is not of the rank of {self.full_shape}")
        sliced = [i for i, n in enumerate(shape) if n != self.full_shape[i]]
        for i, n in enumerate(shape):
            if self.var_offset[i] + n > self.full_shape[i]:
                raise ValueError(
                    f"offset {self.var_offset} plus shape {shape} exceeds the whole, "
                    f"{self.full_shape}"
                )
        if len(sliced) > 1:
            raise ValueError(f"a part of shape {shape} is sliced in several axes of the whole")
        return sliced[0] if sliced else None


def partition_sizes(
    shape: Sequence[int], partitions: Sequence[int]
) -> Iterator[tuple[list[int], list[int]]]:
    """Return the (offset, shape) of each part; the first parts are longer if the sizes can't be
    equal.
    """
    axis = next((i for i, n in enumerate(partitions) if n > 1), 0)
    count = partitions[axis] if partitions else 1
    if not shape:
        yield [], []
        return
    length, longer = divmod(shape[axis], count)
    start = 0
    for i in range(count):
        size = length + (i < longer)
        offset = [0] * len(shape)
        offset[axis] = start
        yield offset, [*shape[:axis], size, *shape[axis + 1 :]]
        start += size


class PartitionedVariable:
    """A variable whose value is stored in several variables, sliced along one axis.

    As a tensor, it is the concatenation of the parts; tf.nn.embedding_lookup uses the parts.
    """

    def __init__(
        self,
        name: str,
        shape: Any,
        dtype: Any,
        variable_list: Sequence[Any],
        partitions: Sequence[int],
    ) -> None:
        if not isinstance(variable_list, list | tuple) or not isinstance(partitions, list | tuple):
            raise TypeError("variable_list and partitions must be lists or tuples")
        if any(p < 1 for p in partitions):
            raise ValueError(f"partition values must be positive: {partitions}")
        if not variable_list:
            raise ValueError("variable_list may not be empty")
        for variable in variable_list:
            if variable._get_save_slice_info() is None:
                raise ValueError(f"all parts must have a save_slice_info, {variable} has none")
        self._name = name
        self._shape = TensorShape(shape)
        self._dtype = as_dtype(dtype).base_dtype
        self._variable_list = sorted(
            variable_list, key=lambda v: v._get_save_slice_info().var_offset
        )
        self._partitions = list(partitions)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._variable_list)

    def __len__(self) -> int:
        axes = self._partition_axes()
        if len(axes) > 1:
            raise ValueError(f"Cannot get a length for {len(axes)} > 1 partition axes")
        return len(self._variable_list)

    @property
    def name(self) -> str:
        return self._name

    @property
    def dtype(self) -> DType:
        return self._dtype

    @property
    def shape(self) -> TensorShape:
        return self._shape

    def get_shape(self) -> TensorShape:
        """Return the shape of the whole."""
        return self._shape

    def _get_variable_list(self) -> list[Any]:
        return self._variable_list

    def _get_partitions(self) -> list[int]:
        return self._partitions

    def _partition_axes(self) -> list[int]:
        """The axes that are sliced; the first one if none is."""
        return [i for i, n in enumerate(self._partitions) if n > 1] or [0]

    def as_tensor(self) -> Tensor:
        """Return the whole as one tensor, made outside any loop that it's used in."""
        with get_default_graph().control_dependencies(None), name_scope(None):
            if len(self._variable_list) == 1:
                return identity(self._variable_list[0], name=self._name)
            axes = self._partition_axes()
            if len(axes) > 1:
                raise NotImplementedError(f"{self._name} is partitioned along {len(axes)} axes")
            with name_scope(f"{self._name}/ConcatPartitions/"):
                whole = b.concat(self._variable_list, axes[0])
            return identity(whole, name=self._name)

    # -- Changing it -------------------------------------------------------------------------------

    def _apply(self, method: str, value: Any, *args: Any) -> list[Any]:
        axis = self._partition_axes()[0]
        sizes = [v.shape.as_list()[axis] for v in self._variable_list]
        count = len(self._variable_list)
        whole = isinstance(value, list | tuple) and len(value) == count
        if whole or isinstance(value, PartitionedVariable):
            pieces = list(value)
        else:
            pieces = b.split(value, sizes, axis=axis)
        pairs = zip(self._variable_list, pieces, strict=True)
        return [getattr(v, method)(piece, *args) for v, piece in pairs]

    def _assign(
        self, method: str, value: Any, use_locking: bool, name: str | None, read_value: bool
    ) -> Any:
        changed = self._apply(method, value, use_locking, name, read_value)
        return changed if read_value else group(*changed)

    def assign(
        self,
        value: Any,
        use_locking: bool = False,
        name: str | None = None,
        read_value: bool = True,
    ) -> Any:
        """Assign the parts their pieces of `value` (a tensor of the whole, or one piece per
        part).
        """
        return self._assign("assign", value, use_locking, name, read_value)

    def assign_add(
        self,
        value: Any,
        use_locking: bool = False,
        name: str | None = None,
        read_value: bool = True,
    ) -> Any:
        """Add to the parts their pieces of `value`."""
        return self._assign("assign_add", value, use_locking, name, read_value)

    def assign_sub(
        self,
        value: Any,
        use_locking: bool = False,
        name: str | None = None,
        read_value: bool = True,
    ) -> Any:
        """Subtract from the parts their pieces of `value`."""
        return self._assign("assign_sub", value, use_locking, name, read_value)


def _convert(
    value: PartitionedVariable,
    dtype: DType | None = None,
    name: str | None = None,
    as_ref: bool = False,
) -> Tensor:
    if dtype is not None and not dtype.is_compatible_with(value.dtype):
        raise ValueError(
            f"Incompatible type conversion requested to type {dtype.name!r} for variable of type "
            f"{value.dtype.name!r}"
        )
    if as_ref:
        raise NotImplementedError("PartitionedVariable doesn't support being used as a reference.")
    return value.as_tensor()


register_tensor_conversion_function(PartitionedVariable, _convert)


# -- Partitioners ----------------------------------------------------------------------------------

Partitioner = Callable[..., list[int]]


@export("fixed_size_partitioner")
def fixed_size_partitioner(num_shards: int, axis: int = 0) -> Partitioner:
    """Return a partitioner into `num_shards` parts along `axis`, or fewer if it's shorter."""

    def partitioner(shape: TensorShape, **unused_kwargs: Any) -> list[int]:
        partitions = [1] * len(shape)
        partitions[axis] = min(num_shards, shape.as_list()[axis] or 0)
        return partitions

    return partitioner


@export("variable_axis_size_partitioner")
def variable_axis_size_partitioner(
    max_shard_bytes: int,
    axis: int = 0,
    bytes_per_string_element: int = 16,
    max_shards: int | None = None,
) -> Partitioner:
    """Return a partitioner into parts of at most `max_shard_bytes`, at most `max_shards`."""
    if max_shard_bytes < 1 or bytes_per_string_element < 1:
        raise ValueError("Both max_shard_bytes and bytes_per_string_element must be positive.")
    if max_shards is not None and max_shards < 1:
        raise ValueError("max_shards must be positive.")

    def partitioner(shape: TensorShape, dtype: Any) -> list[int]:
        sizes = _known_sizes(shape, axis)
        row = _row_bytes(sizes, axis, dtype, bytes_per_string_element)
        rows = max(max_shard_bytes // row, 1) if row else sizes[axis] or 1
        count = math.ceil(sizes[axis] / rows)
        if max_shards is not None:
            count = min(max_shards, count)
        return _along(axis, len(sizes), count)

    return partitioner


@export("min_max_variable_partitioner")
def min_max_variable_partitioner(
    max_partitions: int = 1,
    axis: int = 0,
    min_slice_size: int = 256 << 10,
    bytes_per_string_element: int = 16,
) -> Partitioner:
    """Return a partitioner into up to `max_partitions` parts of `min_slice_size` bytes or more."""
    if max_partitions < 1 or min_slice_size < 1 or bytes_per_string_element < 1:
        raise ValueError(
            "max_partitions, min_slice_size, bytes_per_string_element must be positive"
        )

    def partitioner(shape: TensorShape, dtype: Any) -> list[int]:
        if axis >= len(shape):
            raise ValueError(
                f"Can not partition variable along axis {axis} when shape is only {shape}"
            )
        sizes = _known_sizes(shape, axis)
        total = _row_bytes(sizes, axis, dtype, bytes_per_string_element) * sizes[axis]
        count = max(1, math.ceil(total / min_slice_size))
        return _along(axis, len(sizes), min(count, max_partitions, sizes[axis]))

    return partitioner


def _known_sizes(shape: Any, axis: int) -> list[int]:
    if not isinstance(shape, TensorShape):
        raise ValueError(f"shape is not a TensorShape: {shape}")
    if not shape.is_fully_defined():
        raise ValueError(f"shape is not fully defined: {shape}")
    if not -len(shape) <= axis < len(shape):
        raise IndexError(f"there is no axis {axis} in the shape {shape}")
    return [int(n) for n in shape.as_list() if n is not None]


def _row_bytes(sizes: list[int], axis: int, dtype: Any, bytes_per_string: int) -> int:
    """Return the number of bytes of one slice along `axis`."""
    dtype = as_dtype(dtype).base_dtype
    element = bytes_per_string if dtype is string else dtype.size
    return element * math.prod(n for i, n in enumerate(sizes) if i != axis % len(sizes))


def _along(axis: int, rank: int, count: int) -> list[int]:
    partitions = [1] * rank
    partitions[axis] = count
    return partitions
