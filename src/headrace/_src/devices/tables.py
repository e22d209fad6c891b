"""Lookup tables: keys to values. In: arrays of keys. Out: an array with the value of each.

A dictionary maps a key to the row of its value. Numeric keys are looked up many at a time, by
bisecting the sorted keys. They are sorted again at the first lookup after a change. A table's lock
guards all its state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from headrace._src.core.dtypes import DType, string
from headrace._src.core.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    UnimplementedError,
)
from headrace._src.core.locks import RLock
from headrace._src.core.tensor_shape import show_shape
from headrace._src.devices.room import check_rows

__all__ = ["DenseTable", "LookupTable", "MutableTable", "StaticTable"]

_FEW = 16  # up to this many keys are looked up faster one by one


class LookupTable:
    """The base of all tables: keys of `key_shape`, mostly scalars, and values of `value_shape`."""

    def __init__(
        self,
        key_dtype: DType,
        value_dtype: DType,
        value_shape: tuple[int, ...] = (),
        key_shape: tuple[int, ...] = (),
    ) -> None:
        self.key_dtype = key_dtype
        self.value_dtype = value_dtype
        self.key_shape = key_shape
        self.value_shape = value_shape
        self.lock = RLock()
        self._clear()

    def _clear(self) -> None:
        self._rows: dict[Any, int] = {}
        self._free: list[int] = []  # rows of removed keys
        self._values = np.empty((0, *self.value_shape), self.value_dtype.numpy)
        self._sorted: tuple[np.ndarray, np.ndarray] | None = None

    # -- Looking up --------------------------------------------------------------------------------

    @property
    def size(self) -> int:
        return len(self._rows)

    def find(self, keys: Any, default: Any) -> np.ndarray:
        """Return the values of `keys`, and `default` for missing keys."""
        with self.lock:
            keys = self._check_keys(keys)
            if np.shape(default) != self.value_shape:
                raise InvalidArgumentError(
                    None,
                    None,
                    f"Expected shape {show_shape(self.value_shape)} for default value, got "
                    f"{show_shape(np.shape(default))}",
                )
            leading = keys.shape[: keys.ndim - len(self.key_shape)]
            rows = self._find_rows(keys)
            found = np.empty((len(rows), *self.value_shape), self.value_dtype.numpy)
            found[...] = default
            there = rows >= 0
            found[there] = self._values[rows[there]]
            return found.reshape(leading + self.value_shape)

    def _find_rows(self, keys: np.ndarray) -> np.ndarray:
        count = keys.size // int(np.prod(self.key_shape, dtype=np.int64)) if keys.size else 0
        if self.key_shape or self.key_dtype is string or count <= _FEW:
            get = self._rows.get
            return np.fromiter((get(k, -1) for k in self._listed(keys)), np.int64, count)
        if not self._rows:
            return np.full(count, -1)
        if self._sorted is None:
            known = np.array(list(self._rows), self.key_dtype.numpy)
            rows = np.fromiter(self._rows.values(), np.int64, len(known))
            order = np.argsort(known)
            self._sorted = known[order], rows[order]
        known, rows = self._sorted
        flat = keys.ravel()
        places = np.minimum(np.searchsorted(known, flat), len(known) - 1)
        return np.where(known[places] == flat, rows[places], -1)

    def _listed(self, keys: np.ndarray) -> Iterable[Any]:
        """Return the keys in the form in which the dictionary has them."""
        if not self.key_shape:
            return np.asarray(keys).ravel().tolist()
        return map(tuple, keys.reshape(-1, int(np.prod(self.key_shape))).tolist())

    def export(self) -> tuple[np.ndarray, np.ndarray]:
        """Return all keys, in order of insertion, and their values."""
        with self.lock:
            keys = np.empty((len(self._rows), *self.key_shape), self.key_dtype.numpy)
            for i, key in enumerate(self._rows):
                keys[i] = np.reshape(key, self.key_shape) if self.key_shape else key
            rows = np.fromiter(self._rows.values(), np.int64, len(self._rows))
            return keys, self._values[rows]

    # -- Changing ----------------------------------------------------------------------------------

    def _put(self, keys: np.ndarray, values: np.ndarray) -> None:
        """Set the values of keys, new and known ones; of equal keys the last counts."""
        rows = []
        for key in self._listed(keys):
            row = self._rows.get(key)
            if row is None:
                row = self._free.pop() if self._free else len(self._rows)
                self._rows[key] = row
            rows.append(row)
        needed = len(self._rows) + len(self._free)
        if needed > len(self._values):
            more = np.empty((max(needed, 2 * len(self._values)), *self.value_shape), values.dtype)
            more[: len(self._values)] = self._values
            self._values = more
        if rows:
            self._values[rows] = values.reshape(len(rows), *self.value_shape)
        self._sorted = None

    def _check_keys(self, keys: Any) -> np.ndarray:
        keys = np.asarray(keys, self.key_dtype.numpy)
        tail = keys.shape[keys.ndim - len(self.key_shape) :]
        if tail != self.key_shape:
            raise InvalidArgumentError(
                None,
                None,
                f"Input key shape must end with {show_shape(self.key_shape)}, got "
                f"{show_shape(keys.shape)}",
            )
        return keys

    def _check_values(self, keys: np.ndarray, values: Any) -> np.ndarray:
        values = np.asarray(values, self.value_dtype.numpy)
        expected = keys.shape[: keys.ndim - len(self.key_shape)] + self.value_shape
        if values.shape != expected:
            raise InvalidArgumentError(
                None,
                None,
                f"Expected shape {show_shape(expected)} for value, got {show_shape(values.shape)}",
            )
        return values

    def check_types(self, key_dtype: DType, value_dtype: DType | None) -> None:
        """Raise InvalidArgumentError if an op's types aren't the table's."""
        value_dtype = value_dtype or self.value_dtype
        if (key_dtype, value_dtype) != (self.key_dtype, self.value_dtype):
            raise InvalidArgumentError(
                None,
                None,
                f"Signature mismatch, have: {key_dtype.name} -> {value_dtype.name} expected: "
                f"{self.key_dtype.name} -> {self.value_dtype.name}",
            )

    def insert(self, keys: Any, values: Any) -> None:
        raise NotImplementedError

    def remove(self, keys: Any) -> None:
        raise NotImplementedError

    def load(self, keys: Any, values: Any) -> None:
        """Replace all entries of the table."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.size}>"


class StaticTable(LookupTable):
    """A table that is filled once and then only read; filling it again does nothing."""

    def _clear(self) -> None:
        super()._clear()
        self.initialized = False

    @property
    def size(self) -> int:
        self._check_initialized()
        return len(self._rows)

    def find(self, keys: Any, default: Any) -> np.ndarray:
        self._check_initialized()
        return super().find(keys, default)

    def export(self) -> tuple[np.ndarray, np.ndarray]:
        self._check_initialized()
        return super().export()

    def _check_initialized(self) -> None:
        if not self.initialized:
            raise FailedPreconditionError(
                None,
                None,
                "Table not initialized.",
                hint="fill it first: session.run(tf.tables_initializer())",
            )

    def initialize(self, entries: Callable[[], tuple[Any, Any]]) -> None:
        """Fill the table with the keys and values that `entries` returns, all or nothing."""
        with self.lock:
            if self.initialized:
                return
            keys, values = entries()
            if np.size(keys) == 0:
                raise InvalidArgumentError(None, None, "keys and values cannot be empty tensors.")
            keys = self._check_keys(keys)
            values = self._check_values(keys, values)
            self._check_unambiguous(keys, values)
            self._put(keys, values)
            self.initialized = True

    def _check_unambiguous(self, keys: np.ndarray, values: np.ndarray) -> None:
        seen: dict[Any, Any] = {}
        for key, value in zip(self._listed(keys), values.ravel().tolist(), strict=True):
            held = seen.setdefault(key, value)
            if held != value:
                raise FailedPreconditionError(
                    None,
                    None,
                    f"HashTable has different value for same key. Key {_text(key)} has "
                    f"{_text(held)} and trying to add value {_text(value)}",
                )

    def load(self, keys: Any, values: Any) -> None:
        self.initialize(lambda: (keys, values))

    def insert(self, keys: Any, values: Any) -> None:
        raise UnimplementedError(
            None, None, "Insert not supported by InitializableLookupTable implementations"
        )

    def remove(self, keys: Any) -> None:
        raise UnimplementedError(
            None, None, "Remove not supported by InitializableLookupTable implementations"
        )


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


class MutableTable(LookupTable):
    """A table that can be changed at any time."""

    def insert(self, keys: Any, values: Any) -> None:
        """Set the values of keys."""
        with self.lock:
            keys = self._check_keys(keys)
            self._put(keys, self._check_values(keys, values))

    def remove(self, keys: Any) -> None:
        """Remove keys; missing ones are ignored."""
        with self.lock:
            for key in self._listed(self._check_keys(keys)):
                row = self._rows.pop(key, None)
                if row is not None:
                    self._free.append(row)
            self._sorted = None

    def load(self, keys: Any, values: Any) -> None:
        with self.lock:
            keys = self._check_keys(keys)
            values = self._check_values(keys, values)
            self._clear()
            self._put(keys, values)


class DenseTable(MutableTable):
    """A mutable table whose entries are in buckets, as in TensorFlow: exports show the buckets.

    An entry's bucket is the first free one of a sequence that begins at its key's hash and advances
    by 1, 2, 3 and so on. The number of buckets doubles when more than `max_load_factor` of them
    would be used. `empty_key` and `deleted_key` mark buckets without an entry, and can't be keys.
    `hashes` maps keys, an array of [keys, elements], to their hashes, uint64.

    State, besides LookupTable's: `_rows` maps keys to buckets; `_keys` holds each bucket's key.
    """

    def __init__(
        self,
        key_dtype: DType,
        value_dtype: DType,
        value_shape: tuple[int, ...],
        empty_key: Any,
        deleted_key: Any,
        buckets: int,
        max_load_factor: float,
        hashes: Callable[[np.ndarray], np.ndarray],
    ) -> None:
        self._initial, self._load, self._hashes = buckets, max_load_factor, hashes
        key_shape = np.shape(empty_key)
        empty, deleted = (np.asarray(mark, key_dtype.numpy) for mark in (empty_key, deleted_key))
        if np.shape(deleted_key) != key_shape:
            raise InvalidArgumentError(
                None, None, "Empty and deleted keys must have the same shape"
            )
        if np.array_equal(empty, deleted):
            raise InvalidArgumentError(None, None, "Empty and deleted keys cannot be equal")
        self._marks = empty, deleted
        super().__init__(key_dtype, value_dtype, value_shape, key_shape)

    def _clear(self) -> None:
        self._allocate(self._initial)

    def _allocate(self, buckets: int) -> None:
        """Replace all buckets by `buckets` empty ones."""
        super()._clear()
        check_rows(buckets, "the number of buckets")
        self._values = np.zeros((buckets, *self.value_shape), self.value_dtype.numpy)
        if self.value_dtype is string:
            self._values[...] = b""
        self._keys = np.empty((buckets, *self.key_shape), self.key_dtype.numpy)
        self._keys[...] = self._marks[0]
        self._taken = bytearray(buckets)  # 1 for a bucket with an entry

    def _put(self, keys: np.ndarray, values: np.ndarray) -> None:
        flat = self._flat(keys, self.key_shape)
        values = values.reshape(len(flat), *self.value_shape)
        needed, buckets = len(self._rows) + len(flat), len(self._keys)
        while needed > buckets * self._load:
            buckets *= 2
        if buckets != len(self._keys):
            self._move_to(buckets)
        self._place(flat.reshape(-1, *self.key_shape), values)

    def _move_to(self, buckets: int) -> None:
        there = np.frombuffer(bytes(self._taken), bool)
        keys, values = self._keys[there], self._values[there]
        self._allocate(buckets)
        self._place(keys, values)

    def _place(self, keys: np.ndarray, values: np.ndarray) -> None:
        if not len(keys):
            return
        mask = len(self._keys) - 1
        starts = (self._hashes(self._flat(keys, self.key_shape)) & np.uint64(mask)).tolist()
        for i, (key, bucket) in enumerate(zip(self._listed(keys), starts, strict=True)):
            held = self._rows.get(key)
            if held is None:
                probes = 0
                while self._taken[bucket]:
                    probes += 1
                    bucket = (bucket + probes) & mask
                held = self._rows[key] = bucket
                self._taken[bucket] = 1
                self._keys[bucket] = keys[i]
            self._values[held] = values[i]
        self._sorted = None

    def remove(self, keys: Any) -> None:
        with self.lock:
            for key in self._listed(self._check_keys(keys)):
                bucket = self._rows.pop(key, None)
                if bucket is not None:
                    self._keys[bucket : bucket + 1] = self._marks[1]
                    self._taken[bucket] = 0
            self._sorted = None

    def export(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the keys in all buckets, and their values: matrices of one row per bucket."""
        with self.lock:
            keys = self._flat(self._keys, self.key_shape)
            return keys.copy(), self._flat(self._values, self.value_shape).copy()

    def load(self, keys: Any, values: Any) -> None:
        """Load the buckets of an export, or entries. No entry may have a mark as its key."""
        with self.lock:
            keys = np.asarray(keys, self.key_dtype.numpy)
            values = np.asarray(values, self.value_dtype.numpy)
            count = keys.shape[0] if keys.ndim else 0
            buckets = keys.ndim == 2 and values.ndim == 2 and count >= 4 and not count & (count - 1)
            if not buckets or keys.size != count * int(np.prod(self.key_shape)):
                super().load(keys, values)
                return
            self._allocate(count)
            self._keys[...] = keys.reshape(self._keys.shape)
            self._values[...] = values.reshape(self._values.shape)
            marked = self._is_mark(self._keys, 0) | self._is_mark(self._keys, 1)
            self._taken = bytearray((~marked).astype(np.uint8).tobytes())
            for bucket, key in enumerate(self._listed(self._keys)):
                if self._taken[bucket]:
                    self._rows[key] = bucket

    def _flat(self, elements: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        """Return keys or values, each of `shape`, as the rows of a matrix."""
        size = int(np.prod(shape))
        return elements.reshape(elements.size // size if size else 0, size)

    def _is_mark(self, keys: np.ndarray, which: int) -> np.ndarray:
        """Return for each of `keys` whether it is the empty (0) or the deleted (1) key."""
        same = np.asarray(self._flat(keys, self.key_shape) == self._marks[which].ravel(), bool)
        return np.logical_and.reduce(same, axis=1)

    def _check_keys(self, keys: Any) -> np.ndarray:
        keys = super()._check_keys(keys)
        for which, what in enumerate(("empty_key", "deleted_key")):
            if self._is_mark(keys, which).any():
                raise InvalidArgumentError(
                    None, None, f"Using the {what} as a table key is not allowed"
                )
        return keys
