"""Tensor arrays: rows that one step writes and reads one by one. In: arrays. Out: the same arrays,
alone or stacked.

An array is in its step's container and is dropped when the step ends.
Writing and reading copy no row, because no kernel writes to an array that others hold. Rows that
were written as one block are read as that block, as long as none of them has been touched.
A row may be a reference variable; its value is the variable's at the time of the read.

State of a row, besides its value: not written yet, or cleared by a read. `_shapes` keeps the shapes
of cleared rows: in a gradient's array, a row that was not written is zeros of the row's shape.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from headrace._src.core.dtypes import DType, string
from headrace._src.core.errors import InvalidArgumentError, UnimplementedError
from headrace._src.core.locks import RLock
from headrace._src.core.tensor_shape import TensorShape, show_shape
from headrace._src.devices.room import check_room, check_rows
from headrace._src.devices.variable_state import VariableState

__all__ = ["TensorArrayState"]

_UNWRITTEN: Any = type("_Unwritten", (), {})()
_CLEARED: Any = type("_Cleared", (), {})()
_numbers = itertools.count()


def _now(row: Any) -> Any:
    """Return the current value of a row."""
    return row.read() if isinstance(row, VariableState) else row


class TensorArrayState:
    """The rows of one tensor array.

    adds: whether a second write to a row adds to it, as gradients need. element_shape: the static
    shape of every row. identical: whether the first row determines its unknown sizes.
    """

    def __init__(
        self,
        name: str,
        dtype: DType,
        size: int,
        element_shape: TensorShape,
        *,
        identical: bool = False,
        grows: bool = False,
        clears: bool = True,
        adds: bool = False,
    ) -> None:
        if size < 0:
            raise _invalid("Size should be >= 0.")
        check_rows(size, "size")
        self.name = name
        self.dtype = dtype
        self.element_shape = element_shape
        self._identical = identical
        self._grows = grows
        self._clears = clears
        self._adds = adds
        self._rows: list[Any] = [_UNWRITTEN] * size
        self._shapes: list[tuple[int, ...] | None] = [None] * size
        self._block: np.ndarray | None = None  # all rows as one array, while none has changed
        self._gradients: dict[str, TensorArrayState] = {}
        self._closed = False
        self._lock = RLock()

    @staticmethod
    def unique_name(name: str) -> str:
        """Return a name for messages that no other array of the process has."""
        return f"{name}_{next(_numbers)}"

    @property
    def size(self) -> int:
        return len(self._rows)

    def close(self) -> None:
        """Drop the rows and refuse later reads and writes."""
        with self._lock:
            self._closed = True
            self._rows = [_UNWRITTEN] * len(self._rows)
            self._block = None

    # -- Writing -----------------------------------------------------------------------------------

    def write(self, index: int, value: Any, dtype: DType) -> None:
        """Set the value of row `index`, or add to it."""
        with self._lock:
            self._check(dtype, "is trying to write")
            self._write(index, value)

    def scatter(self, indices: np.ndarray, value: np.ndarray, dtype: DType) -> None:
        """Write value[k] to row indices[k]."""
        with self._lock:
            self._check(dtype, "is trying to write")
            if np.ndim(indices) != 1:
                raise _invalid(
                    f"Expected indices to be a vector, but received shape: "
                    f"{show_shape(np.shape(indices))}"
                )
            if not np.ndim(value):
                raise _invalid("Input value for unpack must be at least a vector, but is a scalar")
            if len(indices) != len(value):
                raise _invalid(
                    f"Expected len(indices) == values.shape[0], but saw: {len(indices)} vs. "
                    f"{len(value)}"
                )
            highest = int(indices.max()) if len(indices) else -1
            if highest >= self.size:
                if not self._grows:
                    raise _invalid(
                        f"Max scatter index must be < array size ({highest} vs. {self.size})"
                    )
                self._grow(highest + 1)
            if self._takes_block(indices):
                self._fit(0, value.shape[1:])
                self._rows = list(value)
                self._shapes = [value.shape[1:]] * len(value)
                self._block = value
            else:
                for index, row in zip(indices.tolist(), value, strict=True):
                    self._write(index, row)

    def split(self, value: np.ndarray, lengths: np.ndarray, dtype: DType) -> None:
        """Cut `value` into pieces of these lengths, one for each row."""
        with self._lock:
            self._check(dtype, "is trying to write")
            if np.ndim(lengths) != 1:
                raise _invalid(
                    f"Expected lengths to be a vector, received shape: "
                    f"{show_shape(np.shape(lengths))}"
                )
            if not np.ndim(value):
                raise _invalid("Expected value to be at least a vector, but received shape: []")
            if len(lengths) and lengths.min() < 0:
                raise _invalid(f"lengths must not be negative, but are {lengths.tolist()}")
            total = int(lengths.sum())
            if total != len(value):
                raise _invalid(
                    f"Expected sum of lengths to be equal to values.shape[0], but sum of lengths "
                    f"is {total} and value's shape is: {show_shape(value.shape)}"
                )
            if len(lengths) > self.size and self._grows:
                self._grow(len(lengths))
            if len(lengths) != self.size:
                raise _invalid(
                    f"TensorArray's size is not equal to the size of lengths ({self.size} vs. "
                    f"{len(lengths)}), and the TensorArray is not marked as dynamically resizeable"
                )
            ends = np.cumsum(lengths)
            for index, (end, length) in enumerate(zip(ends.tolist(), lengths.tolist())):
                self._write(index, value[end - length : end])

    def _takes_block(self, indices: np.ndarray) -> bool:
        """Return whether `indices` are those of all rows, in order, and no row was written yet."""
        if len(indices) != self.size or not len(indices):
            return False
        if any(row is not _UNWRITTEN for row in self._rows):
            return False
        return bool((indices == np.arange(len(indices))).all())

    def _write(self, index: int, value: Any) -> None:
        rows = self._rows
        if not 0 <= index < len(rows):
            if index < 0 or not self._grows:
                raise self._refuse(
                    f": Tried to write to index {index} but array is not resizeable and size is: "
                    f"{len(rows)}"
                )
            self._grow(index + 1)
            rows = self._rows
        shape = () if type(value) is bytes else _now(value).shape
        held = rows[index]
        if held is _UNWRITTEN:
            self._fit(index, shape)
            rows[index] = value
            self._shapes[index] = shape
        elif held is _CLEARED:
            raise self._refuse(
                f": Could not write to TensorArray index {index} because it has already been read."
            )
        elif not self._adds:
            raise self._refuse(
                f": Could not write to TensorArray index {index} because it has already been "
                "written to."
            )
        elif self._shapes[index] != shape:
            raise self._refuse(
                f": Could not aggregate to TensorArray index {index} because the existing shape is "
                f"{show_shape(_now(held).shape)} but the new input shape is {show_shape(shape)}."
            )
        else:
            rows[index] = _now(held) + _now(value)
        self._block = None

    def _fit(self, index: int, shape: tuple[int, ...]) -> None:
        """Check a new row's shape against the element shape, or let it become that."""
        expected = self.element_shape
        if expected.sizes == shape:
            return
        if not expected.is_compatible_with(shape):
            raise self._refuse(
                f": Could not write to TensorArray index {index} because the value shape is "
                f"{show_shape(shape)} which is incompatible with the TensorArray's inferred "
                f"element shape: {show_shape(expected)} (consider setting infer_shape=False)."
            )
        if self._identical:
            self.element_shape = TensorShape.of(shape)

    def _grow(self, size: int) -> None:
        check_rows(size, "an index")
        more = size - len(self._rows)
        self._rows += [_UNWRITTEN] * more
        self._shapes += [None] * more
        self._block = None

    # -- Reading -----------------------------------------------------------------------------------

    def read(self, index: int, dtype: DType) -> Any:
        """Return row `index`, and clear it unless the array keeps its rows."""
        with self._lock:
            self._check(dtype, "requested")
            return self._read(index)

    def gather(self, indices: np.ndarray, dtype: DType, element_shape: TensorShape) -> np.ndarray:
        """Return the rows with these indices, stacked."""
        with self._lock:
            self._check(dtype, "requested")
            if np.ndim(indices) != 1:
                raise _invalid(
                    f"Expected indices to be a vector, but received shape: "
                    f"{show_shape(np.shape(indices))}"
                )
            self._expect(element_shape)
            if not len(indices):
                shape = self.element_shape.merge_with(element_shape)
                if not shape.is_fully_defined():
                    raise UnimplementedError(
                        None,
                        None,
                        f"TensorArray has size zero, but element shape {show_shape(shape)} is not "
                        "fully defined. Currently only static shapes are supported when packing "
                        "zero-size TensorArrays.",
                    )
                return np.empty((0, *_known(shape)), dtype.numpy)
            block = self._block
            if block is not None and self._is_everything(indices):
                if self._clears:
                    self._rows = [_CLEARED] * len(self._rows)
                    self._block = None
                return block
            return _stacked([self._read(i) for i in indices.tolist()], dtype)

    def concat(self, dtype: DType, except_first: TensorShape) -> tuple[np.ndarray, np.ndarray]:
        """Return all rows joined along their first axis, and their lengths."""
        with self._lock:
            self._check(dtype, "requested")
            if not self._rows:
                if not except_first.is_fully_defined():
                    raise UnimplementedError(
                        None,
                        None,
                        f"TensorArray has size zero, but element_shape_except0 "
                        f"{show_shape(except_first)} is not fully defined. Currently only static "
                        "shapes are supported when concatenating zero-size TensorArrays.",
                    )
                return np.empty((0, *_known(except_first)), dtype.numpy), np.empty(0, np.int64)
            rows = [self._read(i) for i in range(len(self._rows))]
            for i, row in enumerate(rows):
                if not np.ndim(row):
                    raise _invalid(
                        f"Concat saw a scalar shape at index {i} but requires at least vectors.  "
                        "Did you mean to call pack?"
                    )
                if row.shape[1:] != rows[0].shape[1:]:
                    raise _invalid(
                        "TensorArray has inconsistent shapes.  Index 0 has (excepting dimension 0) "
                        f"shape: {show_shape(rows[0].shape[1:])} but index {i} has (excepting "
                        f"dimension 0) shape: {show_shape(row.shape[1:])}"
                    )
            if not except_first.is_compatible_with(rows[0].shape[1:]):
                raise _invalid(
                    f"TensorArray rows have shape {show_shape(rows[0].shape[1:])} (excepting "
                    f"dimension 0), not element_shape_except0 {show_shape(except_first)}"
                )
            return np.concatenate(rows), np.array([len(row) for row in rows], np.int64)

    def _is_everything(self, indices: np.ndarray) -> bool:
        count = len(indices)
        return count == len(self._rows) and bool((indices == np.arange(count)).all())

    def _expect(self, element_shape: TensorShape) -> None:
        """Merge the element shape that a caller expects into the array's; refuse another one."""
        if not self.element_shape.is_compatible_with(element_shape):
            raise _invalid(
                f"the TensorArray's element shape is {show_shape(self.element_shape)}, but the op "
                f"expects {show_shape(element_shape)}: Incompatible shapes during merge"
            )
        self.element_shape = self.element_shape.merge_with(element_shape)

    def _read(self, index: int) -> Any:
        rows = self._rows
        if not 0 <= index < len(rows):
            raise _invalid(f"Tried to read from index {index} but array size is: {len(rows)}")
        value = rows[index]
        if value is _UNWRITTEN:
            value = self._zeros(index)
        elif value is _CLEARED:
            raise self._refuse(
                f": Could not read index {index} twice because it was cleared after a previous "
                "read (perhaps try setting clear_after_read = false?)."
            )
        if self._clears:
            rows[index] = _CLEARED
            self._block = None
        return _now(value)

    def _zeros(self, index: int) -> np.ndarray:
        shape = self._shapes[index]
        if shape is None:
            if not self.element_shape.is_fully_defined():
                raise self._refuse(
                    f": Could not read from TensorArray index {index}.  Furthermore, the element "
                    f"shape is not fully defined: {show_shape(self.element_shape)}. Nothing was "
                    "written there; a row like this is zeros if the array has a full element_shape."
                )
            shape = _known(self.element_shape)
        if self.dtype is string:
            raise _invalid("a row of strings that was not written has no value to stand for it")
        check_room(shape, self.dtype.numpy, "element_shape", spelled=True)
        return np.zeros(shape, self.dtype.numpy)

    # -- Gradients ---------------------------------------------------------------------------------

    def gradient(self, source: str, prepended: tuple[int, ...] = ()) -> TensorArrayState:
        """Return the array that collects the rows' gradients for one call of tf.gradients
        (`source`).

        It has this array's current size, and this array can't grow from now on. `prepended` are
        the leading sizes that its rows have in addition to those of this array's rows.
        """
        with self._lock:
            self._check_open()
            found = self._gradients.get(source)
            if found is None:
                self._grows = False
                found = self._gradients[source] = TensorArrayState(
                    f"{self.name}@{source}",
                    self.dtype,
                    self.size,
                    TensorShape.of(prepended).concatenate(self.element_shape),
                    identical=self._identical,
                    # Each write that was added to a row reads the row's gradient.
                    clears=not self._adds,
                    adds=True,
                )
                found._shapes = [None if s is None else (*prepended, *s) for s in self._shapes]
            return found

    # -- Errors ------------------------------------------------------------------------------------

    def _check(self, dtype: DType, action: str) -> None:
        self._check_open()
        if dtype is not self.dtype:
            raise _invalid(
                f"TensorArray dtype is {self.dtype.name} but Op {action} dtype {dtype.name}."
            )

    def _check_open(self) -> None:
        if self._closed:
            raise self._refuse(" has already been closed.")

    def _refuse(self, what: str) -> InvalidArgumentError:
        return _invalid(f"TensorArray {self.name}{what}")

    def __repr__(self) -> str:
        return f"<TensorArrayState {self.name} {self.dtype.name} of {self.size} rows>"


def _stacked(rows: Sequence[Any], dtype: DType) -> np.ndarray:
    """Return the rows as one array. Concatenation is NumPy's fastest way to copy many arrays."""
    first = np.shape(rows[0])
    if dtype is string:
        block = np.empty((len(rows), *first), object)
        for i, row in enumerate(rows):
            _check_same(first, i, np.shape(row))
            block[i, ...] = row  # copies a scalar row's value, not the array that holds it
        return block
    for i, row in enumerate(rows):
        if row.shape != first:
            _check_same(first, i, row.shape)
    if not first:
        return np.array(rows, dtype.numpy)
    return np.concatenate(rows).reshape(len(rows), *first)


def _check_same(first: tuple[int, ...], index: int, shape: tuple[int, ...]) -> None:
    if shape != first:
        raise _invalid(
            f"TensorArray has inconsistent shapes.  Index 0 has shape: {show_shape(first)} but "
            f"index {index} has shape: {show_shape(shape)}"
        )


def _known(shape: TensorShape) -> tuple[int, ...]:
    return tuple(shape.as_list())  # type: ignore[arg-type]


def _invalid(message: str) -> InvalidArgumentError:
    return InvalidArgumentError(None, None, message)
