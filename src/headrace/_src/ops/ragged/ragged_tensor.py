"""RaggedTensor: rows of different lengths. In: values, and how they are cut into rows. Out: a
composite of tensors that functions take like a tensor (see ragged_dispatch).

The values of a ragged tensor are a tensor or another ragged tensor, so several dimensions can be
ragged. The first dimension never is, and dimensions of the flat values never are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headrace._src.core import dtypes
from headrace._src.core.dtypes import DType, as_dtype
from headrace._src.core.export import export
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.graph.composite import Composite, SparseTensor
from headrace._src.graph.default import get_default_graph
from headrace._src.graph.inference import constant_value
from headrace._src.graph.operation import Operation, Tensor
from headrace._src.ops.base.define import b
from headrace._src.ops.base.to_tensor import (
    convert_to_tensor,
    name_scope,
    register_tensor_conversion_function,
)
from headrace._src.ops.ragged import ragged_dense
from headrace._src.ops.ragged.ragged_splits import (
    check_axis,
    count_splits,
    is_index_type,
    row_splits_to_segment_ids,
)
from headrace._src.ops.ragged.ragged_value import RaggedTensorValue, of_parts

__all__ = ["RaggedTensor"]


@export("RaggedTensor")
class RaggedTensor(Composite):
    """A tensor with rows of different lengths: row i is `values[row_splits[i]:row_splits[i + 1]]`.

    The factory methods make one from values and any description of the rows: row splits, the row
    of each value, starts, limits or lengths. `validate=False` omits checks of the description.
    """

    def __init__(
        self,
        values: Any,
        row_splits: Tensor,
        cached_row_lengths: Tensor | None = None,
        cached_value_rowids: Tensor | None = None,
        cached_nrows: Tensor | None = None,
        internal: bool = False,
    ) -> None:
        if not internal:
            raise ValueError(
                "RaggedTensor constructor is private; please use one of the factory methods "
                "instead (e.g., RaggedTensor.from_row_lengths())"
            )
        if not isinstance(row_splits, Tensor):
            raise TypeError(f"Row-partitioning argument must be a Tensor, got {row_splits!r}")
        if not isinstance(values, RaggedTensor | Tensor):
            raise TypeError(f"values must be a Tensor or RaggedTensor, got {values!r}")
        if not is_index_type(row_splits.dtype):
            raise ValueError("Row-partitioning argument must be int32 or int64")
        row_splits.shape.assert_has_rank(1)
        values.shape.with_rank_at_least(1)
        row_splits.set_shape([None])
        if isinstance(values, RaggedTensor) and values.row_splits.dtype != row_splits.dtype:
            raise ValueError("row_splits and values.row_splits must have the same dtype")
        self._values: Any = values
        self._row_splits = row_splits
        self._cached_row_lengths = cached_row_lengths
        self._cached_value_rowids = cached_value_rowids
        self._cached_nrows = cached_nrows

    # -- Factories ---------------------------------------------------------------------------------

    @classmethod
    def from_row_splits(
        cls, values: Any, row_splits: Any, name: str | None = None, validate: bool = True
    ) -> RaggedTensor:
        """Return rows that begin at row_splits[i] and end before row_splits[i + 1]."""
        if isinstance(row_splits, list | tuple) and not row_splits:
            raise ValueError("row_splits tensor may not be empty.")
        with name_scope(name, "RaggedFromRowSplits", [*_parts(values), row_splits]):
            values, splits = _converted(values, row_splits, "row_splits")
            splits.shape.assert_has_rank(1)
            if validate:
                said = "Arguments to from_row_splits do not form a valid RaggedTensor"
                count = _nvals(values, splits.dtype.base_dtype)
                splits = b.with_dependencies(
                    [
                        b.assert_rank(splits, 1, message=said),
                        _zero(splits[0], said),
                        _not_decreasing(splits, said),
                        b.assert_equal(splits[-1], count, message=said),
                        *_at_least_a_vector(values, said),
                    ],
                    splits,
                )
            return cls(values, splits, internal=True)

    @classmethod
    def from_value_rowids(
        cls,
        values: Any,
        value_rowids: Any,
        nrows: Any = None,
        name: str | None = None,
        validate: bool = True,
    ) -> RaggedTensor:
        """Return rows of the values with the same row number; the numbers must be sorted.

        nrows: the number of rows, by default one more than the last number.
        """
        with name_scope(name, "RaggedFromValueRowIds", [*_parts(values), value_rowids, nrows]):
            values, ids = _converted(values, value_rowids, "value_rowids")
            kind = ids.dtype.base_dtype
            last = constant_value(ids)
            least = None if last is None else (int(last.ravel()[-1]) + 1 if last.size else 0)
            if nrows is None and least is None:
                nrows = b.concat([ids[-1:], [-1]], axis=0)[0] + 1
            else:
                nrows = convert_to_tensor(least if nrows is None else nrows, kind, "nrows")
                known = constant_value(nrows)
                if known is not None and known.ndim == 0:
                    if known < 0:
                        raise ValueError(f"Expected nrows >= 0; got {known}")
                    if least is not None and known < least:
                        raise ValueError(
                            "Expected nrows >= value_rowids[-1] + 1; got "
                            f"nrows={known}, value_rowids[-1]={least - 1}"
                        )
            ids.shape.assert_has_rank(1)
            nrows.shape.assert_has_rank(0)
            values.shape[:1].assert_is_compatible_with(ids.shape)
            if validate:
                said = "Arguments to from_value_rowids do not form a valid RaggedTensor"
                sizes = _nvals(values, None), b.shape(ids)[0]
                ids = b.with_dependencies(
                    [
                        b.assert_rank(ids, 1, message=said),
                        b.assert_rank(nrows, 0, message=said),
                        b.assert_equal(*sizes, message=said),
                        b.assert_non_negative(ids[:1], message=said),
                        _not_decreasing(ids, said),
                        b.assert_less(ids[-1:], nrows, message=said),
                        *_at_least_a_vector(values, said),
                    ],
                    ids,
                )
            splits = count_splits(ids, nrows, kind)
            return cls(values, splits, cached_value_rowids=ids, cached_nrows=nrows, internal=True)

    @classmethod
    def from_row_starts(
        cls, values: Any, row_starts: Any, name: str | None = None, validate: bool = True
    ) -> RaggedTensor:
        """Return rows that begin at row_starts[i] and end where the next one begins."""
        with name_scope(name, "RaggedFromRowStarts", [*_parts(values), row_starts]):
            values, starts = _converted(values, row_starts, "row_starts")
            starts.shape.assert_has_rank(1)
            count = _nvals(values, starts.dtype.base_dtype)
            if validate:
                said = "Arguments to from_row_starts do not form a valid RaggedTensor"
                starts = b.with_dependencies(
                    [
                        b.assert_rank(starts, 1, message=said),
                        _zero(starts[:1], said),
                        _not_decreasing(starts, said),
                        b.assert_less_equal(starts[-1:], count, message=said),
                        *_at_least_a_vector(values, said),
                    ],
                    starts,
                )
            return cls(values, b.concat([starts, [count]], axis=0), internal=True)

    @classmethod
    def from_row_limits(
        cls, values: Any, row_limits: Any, name: str | None = None, validate: bool = True
    ) -> RaggedTensor:
        """Return rows that end before row_limits[i] and begin where the last one ends."""
        with name_scope(name, "RaggedFromRowLimits", [*_parts(values), row_limits]):
            values, limits = _converted(values, row_limits, "row_limits")
            limits.shape.assert_has_rank(1)
            if validate:
                said = "Arguments to from_row_limits do not form a valid RaggedTensor"
                count = _nvals(values, limits.dtype.base_dtype)
                limits = b.with_dependencies(
                    [
                        b.assert_rank(limits, 1, message=said),
                        b.assert_non_negative(limits[:1], message=said),
                        _not_decreasing(limits, said),
                        b.assert_equal(limits[-1:], count, message=said),
                        *_at_least_a_vector(values, said),
                    ],
                    limits,
                )
            splits = b.concat([b.zeros([1], limits.dtype.base_dtype), limits], axis=0)
            return cls(values, splits, internal=True)

    @classmethod
    def from_row_lengths(
        cls, values: Any, row_lengths: Any, name: str | None = None, validate: bool = True
    ) -> RaggedTensor:
        """Return rows of the given lengths."""
        with name_scope(name, "RaggedFromRowLengths", [*_parts(values), row_lengths]):
            values, lengths = _converted(values, row_lengths, "row_lengths")
            lengths.shape.assert_has_rank(1)
            if validate:
                said = "Arguments to from_row_lengths do not form a valid RaggedTensor"
                sums = b.reduce_sum(lengths), _nvals(values, lengths.dtype.base_dtype)
                lengths = b.with_dependencies(
                    [
                        b.assert_rank(lengths, 1, message=said),
                        b.assert_non_negative(lengths, message=said),
                        b.assert_equal(*sums, message=said),
                        *_at_least_a_vector(values, said),
                    ],
                    lengths,
                )
            splits = b.concat([[0], b.cumsum(lengths)], axis=0)
            return cls(values, splits, cached_row_lengths=lengths, internal=True)

    @classmethod
    def from_nested_row_splits(
        cls,
        flat_values: Any,
        nested_row_splits: Sequence[Any],
        name: str | None = None,
        validate: bool = True,
    ) -> Any:
        """Return rows of rows, by the row splits of each level, the outermost first."""
        _check_list("nested_row_splits", nested_row_splits)
        with name_scope(name, "RaggedFromNestedRowSplits", [*_parts(flat_values)]):
            for splits in reversed(nested_row_splits):
                flat_values = cls.from_row_splits(flat_values, splits, validate=validate)
            return flat_values

    @classmethod
    def from_nested_row_lengths(
        cls,
        flat_values: Any,
        nested_row_lengths: Sequence[Any],
        name: str | None = None,
        validate: bool = True,
    ) -> Any:
        """Return rows of rows, by the lengths of the rows of each level, the outermost first."""
        _check_list("nested_row_lengths", nested_row_lengths)
        with name_scope(name, "RaggedFromNestedRowlengths", [*_parts(flat_values)]):
            for lengths in reversed(nested_row_lengths):
                flat_values = cls.from_row_lengths(flat_values, lengths, validate=validate)
            return flat_values

    @classmethod
    def from_nested_value_rowids(
        cls,
        flat_values: Any,
        nested_value_rowids: Sequence[Any],
        nested_nrows: Sequence[Any] | None = None,
        name: str | None = None,
        validate: bool = True,
    ) -> Any:
        """Return rows of rows, by the row number of each value or row, the outermost level first.

        nested_nrows: the number of rows at each level.
        """
        _check_list("nested_value_rowids", nested_value_rowids)
        if nested_nrows is None:
            nested_nrows = [None] * len(nested_value_rowids)
        else:
            _check_list("nested_nrows", nested_nrows)
            if len(nested_nrows) != len(nested_value_rowids):
                raise ValueError("nested_nrows must have the same length as nested_value_rowids")
        with name_scope(name, "RaggedFromNestedValueRowIds", [*_parts(flat_values)]):
            levels = list(zip(nested_value_rowids, nested_nrows, strict=True))
            for ids, nrows in reversed(levels):
                flat_values = cls.from_value_rowids(flat_values, ids, nrows, validate=validate)
            return flat_values

    @classmethod
    def from_tensor(
        cls,
        tensor: Any,
        lengths: Any = None,
        padding: Any = None,
        ragged_rank: int = 1,
        name: str | None = None,
        row_splits_dtype: Any = dtypes.int64,
    ) -> RaggedTensor:
        """Return a dense tensor as a ragged one, without the elements behind `lengths` of each
        row, or without the `padding` at its end.

        lengths: the length of each row, or a tuple of these for several ragged dimensions.
        """
        return ragged_dense.from_tensor(
            cls, tensor, lengths, padding, ragged_rank, name, as_dtype(row_splits_dtype)
        )

    @classmethod
    def from_sparse(
        cls, st_input: SparseTensor, name: str | None = None, row_splits_dtype: Any = dtypes.int64
    ) -> RaggedTensor:
        """Return the rows of a sparse matrix whose elements stand at the beginning of each row."""
        return ragged_dense.from_sparse(cls, st_input, name, as_dtype(row_splits_dtype))

    # -- Parts -------------------------------------------------------------------------------------

    @property
    def values(self) -> Any:
        """The rows, joined along their first dimension: a tensor or a RaggedTensor."""
        return self._values

    @property
    def row_splits(self) -> Tensor:
        """Where each row begins in `values`, and where the last one ends."""
        return self._row_splits

    @property
    def flat_values(self) -> Tensor:
        """The innermost values, a tensor."""
        return _flat(self._values)

    @property
    def nested_row_splits(self) -> tuple[Tensor, ...]:
        """The row splits of all ragged dimensions, the outermost first."""
        inner = isinstance(self._values, RaggedTensor)
        return (self._row_splits, *(self._values.nested_row_splits if inner else ()))

    @property
    def ragged_rank(self) -> int:
        """The number of ragged dimensions."""
        return len(self.nested_row_splits)

    @property
    def dtype(self) -> DType:
        return self._values.dtype

    @property
    def shape(self) -> TensorShape:
        """The static shape; sizes of ragged dimensions are unknown."""
        count = self._row_splits.shape[0].value
        rows = None if count is None else count - 1
        return TensorShape([rows, None]).concatenate(self._values.shape[1:])

    @property
    def _type_spec(self) -> Any:
        from headrace._src.ops.ragged.ragged_spec import RaggedTensorSpec  # it needs this class

        return RaggedTensorSpec.from_value(self)

    def components(self) -> list[Tensor]:
        """Return the tensors that this consists of."""
        return [self.flat_values, *self.nested_row_splits]

    def with_components(self, parts: list[Tensor]) -> RaggedTensor:
        """Return a copy with other tensors in place of components()."""
        return self.from_nested_row_splits(parts[0], parts[1:], validate=False)

    def value_of(self, results: Sequence[Any]) -> RaggedTensorValue:
        """Return the value for the values of components()."""
        return of_parts(results[0], results[1:])

    def feeds(self, value: Any) -> list[tuple[Tensor, Any]]:
        """Return each component with the part of `value` that feeds it."""
        if not isinstance(value, RaggedTensorValue):
            raise TypeError(
                f"The value of a RaggedTensor is a tf.ragged.RaggedTensorValue, got {value!r}: "
                "tf.ragged.constant_value makes one of nested lists."
            )
        parts = [value.flat_values, *value.nested_row_splits]
        if value.ragged_rank != self.ragged_rank:
            raise ValueError(
                f"Cannot feed a value of ragged rank {value.ragged_rank} for {self}, whose ragged "
                f"rank is {self.ragged_rank}"
            )
        return list(zip(self.components(), parts, strict=True))

    def consumers(self) -> list[Operation]:
        """Return the operations that read a part of this."""
        return list(dict.fromkeys(op for t in self.components() for op in t.consumers()))

    # -- Rows --------------------------------------------------------------------------------------

    def value_rowids(self, name: str | None = None) -> Tensor:
        """Return the row of each element of `values`."""
        if self._cached_value_rowids is not None:
            return self._cached_value_rowids
        with name_scope(name, "RaggedValueRowIds", self.components()):
            return row_splits_to_segment_ids(self._row_splits)

    def nested_value_rowids(self, name: str | None = None) -> tuple[Tensor, ...]:
        """Return value_rowids of each ragged dimension, the outermost first."""
        with name_scope(name, "RaggedNestedValueRowIds", self.components()):
            return tuple(level.value_rowids() for level in self._levels())

    def nrows(self, out_type: Any = None, name: str | None = None) -> Tensor:
        """Return the number of rows, as out_type, by default the type of the row splits."""
        kind = self._row_splits.dtype.base_dtype if out_type is None else as_dtype(out_type)
        if self._cached_nrows is not None:
            return b.cast(self._cached_nrows, kind)
        with name_scope(name, "RaggedNRows", self.components()):
            return b.shape(self._row_splits, out_type=kind)[0] - 1

    def row_starts(self, name: str | None = None) -> Tensor:
        """Return where each row begins in `values`."""
        with name_scope(name, "RaggedRowStarts", self.components()):
            return self._row_splits[:-1]

    def row_limits(self, name: str | None = None) -> Tensor:
        """Return where each row ends in `values`."""
        with name_scope(name, "RaggedRowLimits", self.components()):
            return self._row_splits[1:]

    def row_lengths(self, axis: int = 1, name: str | None = None) -> Any:
        """Return the length of each row at an axis: a scalar for axis 0, else with a dimension for
        each axis before it.
        """
        if self._cached_row_lengths is not None and axis == 1:
            return self._cached_row_lengths
        with name_scope(name, "RaggedRowLengths", self.components()):
            axis = check_axis(axis, self.shape.ndims)
            if axis == 0:
                return self.nrows()
            if axis == 1:
                return self._row_splits[1:] - self._row_splits[:-1]
            if isinstance(self._values, RaggedTensor):
                return self.with_values(self._values.row_lengths(axis - 1))
            sizes = b.shape(self._values, out_type=self._row_splits.dtype.base_dtype)
            ones = b.ones(sizes[: axis - 1], self._row_splits.dtype.base_dtype)
            return self.with_values(ones * sizes[axis - 1])

    def nested_row_lengths(self, name: str | None = None) -> tuple[Tensor, ...]:
        """Return row_lengths of each ragged dimension, the outermost first."""
        with name_scope(name, "RaggedNestedRowLengths", self.components()):
            return tuple(level.row_lengths() for level in self._levels())

    def _levels(self) -> list[RaggedTensor]:
        """This and the ragged tensors inside it."""
        inner = isinstance(self._values, RaggedTensor)
        return [self, *(self._values._levels() if inner else ())]

    def bounding_shape(
        self, axis: Any = None, name: str | None = None, out_type: Any = None
    ) -> Tensor:
        """Return the shape of the smallest dense tensor that has room for all rows, or the sizes
        of some axes of it.
        """
        return ragged_dense.bounding_shape(self, axis, name, out_type)

    # -- Changes -----------------------------------------------------------------------------------

    def with_values(self, new_values: Any) -> RaggedTensor:
        """Return the same rows of other values."""
        if not isinstance(new_values, RaggedTensor):
            new_values = convert_to_tensor(new_values)
        new_values.shape.with_rank_at_least(1)
        self._values.shape[:1].assert_is_compatible_with(new_values.shape[:1])
        if isinstance(new_values, RaggedTensor):
            kind = new_values.row_splits.dtype
            if kind != self._row_splits.dtype:
                return self.with_row_splits_dtype(dtypes.int64).with_values(
                    new_values.with_row_splits_dtype(dtypes.int64)
                )
        return RaggedTensor(
            new_values,
            self._row_splits,
            self._cached_row_lengths,
            self._cached_value_rowids,
            self._cached_nrows,
            internal=True,
        )

    def with_flat_values(self, new_values: Any) -> RaggedTensor:
        """Return the same rows of other flat values."""
        if isinstance(self._values, RaggedTensor):
            return self.with_values(self._values.with_flat_values(new_values))
        return self.with_values(new_values)

    def with_row_splits_dtype(self, dtype: Any) -> RaggedTensor:
        """Return this with int32 or int64 row splits."""
        wanted = as_dtype(dtype)
        if not is_index_type(wanted):
            raise ValueError("dtype must be int32 or int64")
        if self._row_splits.dtype.base_dtype is wanted:
            return self
        splits = b.cast(self._row_splits, wanted)
        cached = [self._cached_row_lengths, self._cached_value_rowids, self._cached_nrows]
        cast = [None if t is None else b.cast(t, wanted) for t in cached]
        inner = isinstance(self._values, RaggedTensor)
        values = self._values.with_row_splits_dtype(wanted) if inner else self._values
        return RaggedTensor(values, splits, *cast, internal=True)

    def to_tensor(self, default_value: Any = None, name: str | None = None) -> Tensor:
        """Return a dense tensor, with short rows filled up with `default_value` (zeros)."""
        return ragged_dense.to_tensor(self, default_value, name)

    def to_sparse(self, name: str | None = None) -> SparseTensor:
        """Return a SparseTensor with the same rows."""
        with name_scope(name, "RaggedToSparse", self.components()):
            found = b.ragged_tensor_to_sparse_op(self.nested_row_splits, self.flat_values)
            return SparseTensor(*found)

    def to_list(self) -> list[Any]:
        """Return the rows as nested lists; only where operations run as they are made."""
        if not get_default_graph().executes:
            raise ValueError(
                "RaggedTensor.to_list() is only supported in eager mode; in graph mode, evaluate "
                "the RaggedTensor first and then use RaggedTensorValue.to_list()."
            )
        parts: list[Any] = self.components()
        return self.value_of([t.numpy() for t in parts]).to_list()

    def __str__(self) -> str:
        return f"tf.RaggedTensor(values={self._values}, row_splits={self._row_splits})"

    __repr__ = __str__

    def __bool__(self) -> bool:
        raise TypeError("RaggedTensor may not be used as a boolean.")

    def __iter__(self) -> Any:
        raise TypeError(
            "RaggedTensor objects are only iterable where operations run as they are made: "
            "use tf.ragged.map_flat_values or a loop of the graph."
        )

    def __getitem__(self, key: Any) -> Any:
        """Return rows or parts of rows, as NumPy does: integers, slices, `...`, tf.newaxis. A
        ragged dimension can be sliced, but not indexed.
        """
        return b.ragged_getitem(self, key)


def _flat(values: Any) -> Tensor:
    return values.flat_values if isinstance(values, RaggedTensor) else values


def _parts(values: Any) -> list[Any]:
    """The tensors of a value, for name_scope."""
    return values.components() if isinstance(values, RaggedTensor) else [values]


def _converted(values: Any, partition: Any, name: str) -> tuple[Any, Tensor]:
    """Return values and their row partition as tensors, with one type of row splits."""
    if not isinstance(values, RaggedTensor):
        values = convert_to_tensor(values, name="values")
        rows = convert_to_tensor(partition, dtype_hint=dtypes.int64, name=name)
    else:
        kind = values.row_splits.dtype.base_dtype
        if isinstance(partition, Tensor):
            rows = partition
            if is_index_type(rows.dtype) and rows.dtype.base_dtype is not kind:
                values, rows = (
                    values.with_row_splits_dtype(dtypes.int64),
                    b.cast(rows, dtypes.int64),
                )
        else:
            rows = convert_to_tensor(partition, dtype_hint=kind, name=name)
    if not is_index_type(rows.dtype):
        raise ValueError(f"{name} must have dtype int32 or int64")
    return values, rows


def _nvals(values: Any, kind: DType | None) -> Tensor:
    """Return the number of elements of `values` along its first dimension."""
    if isinstance(values, RaggedTensor):
        return values.nrows(dtypes.int32 if kind is None else kind)
    return (b.shape(values) if kind is None else b.shape(values, out_type=kind))[0]


def _zero(first: Tensor, said: str) -> Operation:
    return b.assert_equal(first, b.constant(0, first.dtype.base_dtype), message=said)


def _not_decreasing(x: Tensor, said: str) -> Operation:
    return b.assert_non_negative(x[1:] - x[:-1], message=said)


def _at_least_a_vector(values: Any, said: str) -> list[Operation]:
    if isinstance(values, RaggedTensor):
        return []
    return [b.assert_rank_at_least(values, 1, message=said)]


def _check_list(name: str, given: Any) -> None:
    if isinstance(given, Tensor):
        raise TypeError(f"{name} must be a list of Tensors")
    if not isinstance(given, list | tuple):
        raise TypeError(f"{name} must be a list of Tensors, got {given!r}")


def _refuse(value: Any, dtype: Any = None, name: str | None = None, as_ref: bool = False) -> Any:
    raise TypeError(
        f"Failed to convert object of type {type(value)} to Tensor. Contents: {value}. Consider "
        "to_tensor() or flat_values."
    )


register_tensor_conversion_function((RaggedTensor, RaggedTensorValue), _refuse)
