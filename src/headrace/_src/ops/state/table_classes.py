"""The public lookup table classes: tf.lookup.StaticHashTable, DenseHashTable and others.

A table adds its node when it is constructed; its initializer joins the graph's collection
"table_initializer", which tf.tables_initializer runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from headrace._src.core import dtypes
from headrace._src.core.dtypes import DType
from headrace._src.core.export import export
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.graph.composite import SparseTensor
from headrace._src.graph.default import get_default_graph
from headrace._src.graph.keys import GraphKeys
from headrace._src.graph.operation import Operation, Tensor
from headrace._src.ops.base.define import b, composed
from headrace._src.ops.base.to_tensor import convert_to_tensor, name_scope
from headrace._src.ops.state.table_initializers import TableInitializerBase

__all__ = [
    "ChangeableTable",
    "DenseHashTable",
    "HashTable",
    "LookupInterface",
    "MutableHashTable",
    "StaticHashTable",
    "initialize_all_tables",
    "tables_initializer",
]


@composed
@export("tables_initializer", "initializers.tables_initializer")
def tables_initializer(name: str = "init_all_tables") -> Operation:
    """Return an operation that fills all tables of the graph."""
    graph = get_default_graph()
    initializers = graph.get_collection(GraphKeys.TABLE_INITIALIZERS)
    return b.group(*initializers, name=name) if initializers else b.no_op(name=name)


@export("initialize_all_tables")
def initialize_all_tables(name: str = "init_all_tables") -> Operation:
    """Return an operation that fills all tables of the graph: old name of tf.tables_initializer."""
    return tables_initializer(name)


# -- Tables ----------------------------------------------------------------------------------------


@export("contrib.lookup.LookupInterface")
class LookupInterface:
    """A table from keys of one dtype to values of another."""

    _handle: Tensor

    def __init__(self, key_dtype: Any, value_dtype: Any) -> None:
        self._key_dtype = dtypes.as_dtype(key_dtype)
        self._value_dtype = dtypes.as_dtype(value_dtype)

    @property
    def key_dtype(self) -> DType:
        return self._key_dtype

    @property
    def value_dtype(self) -> DType:
        return self._value_dtype

    @property
    def resource_handle(self) -> Tensor:
        """The tensor that is the table's handle."""
        return self._handle

    @property
    def name(self) -> str:
        """The last component of the name of the table's operation."""
        return self._handle.op.name.rpartition("/")[2]

    def size(self, name: str | None = None) -> Tensor:
        """Return the number of keys."""
        raise NotImplementedError

    def lookup(self, keys: Any, name: str | None = None) -> Any:
        """Return the values of `keys`."""
        raise NotImplementedError

    def _saveables(self, name: str) -> list[Any]:
        """Return what a saver stores of the table under `name`: nothing if an
        initializer fills it.
        """
        return []


class _InitializableTable(LookupInterface):
    """A table that `initializer` fills once."""

    def __init__(
        self,
        initializer: TableInitializerBase,
        default_value: Any,
        name: str | None,
        shared_name: str | None = None,
    ) -> None:
        super().__init__(initializer.key_dtype, initializer.value_dtype)
        self._default_value = convert_to_tensor(default_value, dtype=self.value_dtype)
        self._default_value.shape.merge_with(TensorShape([]))
        self._handle = b.hash_table_v2(
            self.key_dtype,
            self.value_dtype,
            shared_name=shared_name or initializer._shared_name,
            name=name or "hash_table",
        )
        self._init_op = initializer.initialize(self)

    @property
    def default_value(self) -> Tensor:
        """The value of missing keys."""
        return self._default_value

    @property
    def initializer(self) -> Operation:
        """The operation that fills the table."""
        return self._init_op

    def size(self, name: str | None = None) -> Tensor:
        """Return the number of keys."""
        with name_scope(name, f"{self.name}_Size", [self._handle]):
            return b.lookup_table_size_v2(self._handle)

    def lookup(self, keys: Any, name: str | None = None) -> Any:
        """Return the values of `keys`, a tensor or the values of a SparseTensor."""
        given = keys.values if isinstance(keys, SparseTensor) else keys
        given = convert_to_tensor(given) if not isinstance(given, Tensor) else given
        _check_key_dtype(given, self.key_dtype)
        scope = [self._handle, given, self._default_value]
        with name_scope(name, f"{self.name}_Lookup", scope):
            values = b.lookup_table_find_v2(self._handle, given, self._default_value)
        values.set_shape(given.shape)
        return _like(keys, values)


def _check_key_dtype(keys: Tensor, dtype: DType) -> None:
    if keys.dtype.base_dtype is not dtype:
        raise TypeError(
            f"Signature mismatch. Keys must be dtype {dtype}, got {keys.dtype.base_dtype}."
        )


def _like(keys: Any, values: Tensor) -> Any:
    """Return `values` at the indices of sparse keys, or as they are."""
    if isinstance(keys, SparseTensor):
        return SparseTensor(keys.indices, values, keys.dense_shape)
    return values


@export("lookup.StaticHashTable")
class StaticHashTable(_InitializableTable):
    """A table that `initializer` fills once; missing keys map to `default_value`."""

    def __init__(
        self, initializer: TableInitializerBase, default_value: Any, name: str | None = None
    ) -> None:
        super().__init__(initializer, default_value, name)

    def export(self, name: str | None = None) -> tuple[Tensor, Tensor]:
        """Return all keys and their values."""
        with name_scope(name, f"{self.name}_Export", [self._handle]):
            found = b.lookup_table_export_v2(self._handle, self.key_dtype, self.value_dtype)
        return found.keys, found.values


class HashTable(StaticHashTable):
    """StaticHashTable before tf.lookup; tables of the same `shared_name` share their content."""

    def __init__(
        self,
        initializer: TableInitializerBase,
        default_value: Any,
        name: str | None = None,
        shared_name: str | None = None,
    ) -> None:
        _InitializableTable.__init__(self, initializer, default_value, name, shared_name)

    @property
    def init(self) -> Operation:
        """The operation that fills the table."""
        return self.initializer


class SavedTensor(NamedTuple):
    """A tensor that a saver stores under `name`."""

    tensor: Tensor
    slice_spec: str
    name: str
    dtype: DType


class _TableSaveable:
    """A saver's view of a table: the tensors to store, and how to restore them."""

    def __init__(self, table: LookupInterface, name: str, exported: Any) -> None:
        self.op = table
        self.name = name
        self.specs = [
            SavedTensor(exported.keys, "", f"{name}-keys", table.key_dtype),
            SavedTensor(exported.values, "", f"{name}-values", table.value_dtype),
        ]

    def restore(self, restored_tensors: Any, restored_shapes: Any = None) -> Operation:
        """Return the operation that replaces the table's content, reshaped to `restored_shapes`
        if given.
        """
        handle = self.op.resource_handle
        keys, values = restored_tensors
        if restored_shapes is not None:
            keys, values = (
                b.reshape(t, s) for t, s in zip((keys, values), restored_shapes, strict=True)
            )
        with _beside(handle):
            return b.lookup_table_import_v2(handle, keys, values)


class ChangeableTable(LookupInterface):
    """A table that can be changed at any time."""

    _default_value: Tensor
    _value_shape: TensorShape

    def _saveables(self, name: str) -> list[Any]:
        return [_TableSaveable(self, name, self._exported(None))]

    def _save_with_the_graph(self) -> None:
        (saveable,) = self._saveables(self.name)
        self._handle.graph.add_to_collection(GraphKeys.SAVEABLE_OBJECTS, saveable)

    def size(self, name: str | None = None) -> Tensor:
        """Return the number of keys."""
        with self._scope(name, "Size"):
            return b.lookup_table_size_v2(self._handle)

    def lookup(self, keys: Any, name: str | None = None) -> Tensor:
        """Return the values of `keys`, and the default for missing ones."""
        with self._scope(name, "lookup_table_find", keys, self._default_value):
            keys = convert_to_tensor(keys, dtype=self.key_dtype, name="keys")
            return b.lookup_table_find_v2(self._handle, keys, self._default_value)

    def insert(self, keys: Any, values: Any, name: str | None = None) -> Operation:
        """Return an operation that inserts `keys` with their `values`."""
        with self._scope(name, "lookup_table_insert", keys, values, colocate=False):
            keys = convert_to_tensor(keys, self.key_dtype, name="keys")
            values = convert_to_tensor(values, self.value_dtype, name="values")
            with _beside(self._handle):
                return b.lookup_table_insert_v2(self._handle, keys, values)

    def remove(self, keys: Any, name: str | None = None) -> Operation:
        """Return an operation that removes `keys`."""
        if isinstance(keys, Tensor):
            _check_key_dtype(keys, self.key_dtype)
        with self._scope(name, "lookup_table_remove", keys, colocate=False):
            keys = convert_to_tensor(keys, self.key_dtype, name="keys")
            return b.lookup_table_remove_v2(self._handle, keys)

    def export(self, name: str | None = None) -> tuple[Tensor, Tensor]:
        """Return all keys and their values, in no particular order."""
        found = self._exported(name)
        return found.keys, found.values

    def _exported(self, name: str | None) -> Any:
        with self._scope(name, "lookup_table_export_values"):
            return b.lookup_table_export_v2(self._handle, self.key_dtype, self.value_dtype)

    @contextmanager
    def _scope(
        self, name: str | None, what: str, *values: Any, colocate: bool = True
    ) -> Iterator[None]:
        parts = [v for v in values if isinstance(v, Tensor)]
        with name_scope(name, f"{self.name}_{what}", [self._handle, *parts]):
            if not colocate:
                yield
            else:
                with _beside(self._handle):
                    yield


def _beside(handle: Tensor) -> Any:
    return handle.graph.colocate_with(handle)


@export("contrib.lookup.MutableHashTable")
class MutableHashTable(ChangeableTable):
    """A mutable table, from scalars to scalars or vectors (the default value gives the shape).

    checkpoint: whether savers store it.
    """

    def __init__(
        self,
        key_dtype: Any,
        value_dtype: Any,
        default_value: Any,
        name: str = "MutableHashTable",
        checkpoint: bool = True,
    ) -> None:
        super().__init__(key_dtype, value_dtype)
        self._default_value = convert_to_tensor(default_value, self.value_dtype)
        self._value_shape = self._default_value.shape
        options: dict[str, Any] = {"use_node_name_sharing": checkpoint, "name": name}
        if self._value_shape.sizes == ():
            make = b.mutable_hash_table_v2
        else:
            make = b.mutable_hash_table_of_tensors_v2
            options["value_shape"] = self._value_shape
        self._handle = make(self.key_dtype, self.value_dtype, **options)
        if checkpoint:
            self._save_with_the_graph()


@export("lookup.experimental.DenseHashTable", "contrib.lookup.MutableDenseHashTable")
class DenseHashTable(ChangeableTable):
    """A mutable table; `empty_key` and `deleted_key` are reserved.

    These two give a key's shape, the default a value's. checkpoint: whether savers store it.

    initial_num_buckets: the capacity to start with, a power of 2; the table grows.
    """

    def __init__(
        self,
        key_dtype: Any,
        value_dtype: Any,
        default_value: Any,
        empty_key: Any,
        deleted_key: Any,
        initial_num_buckets: int | None = None,
        name: str = "MutableDenseHashTable",
        checkpoint: bool = True,
    ) -> None:
        super().__init__(key_dtype, value_dtype)
        self._default_value = convert_to_tensor(
            default_value, self.value_dtype, name="default_value"
        )
        self._value_shape = self._default_value.shape
        self._handle = b.mutable_dense_hash_table_v2(
            convert_to_tensor(empty_key, self.key_dtype, name="empty_key"),
            convert_to_tensor(deleted_key, self.key_dtype, name="deleted_key"),
            self.value_dtype,
            use_node_name_sharing=checkpoint,
            value_shape=self._value_shape,
            initial_num_buckets=131072 if initial_num_buckets is None else initial_num_buckets,
            name=name,
        )
        if checkpoint:
            self._save_with_the_graph()

    def insert_or_assign(self, keys: Any, values: Any, name: str | None = None) -> Operation:
        """Return an operation that inserts `keys` with their `values`."""
        return self.insert(keys, values, name)

    def erase(self, keys: Any, name: str | None = None) -> Operation:
        """Return an operation that removes `keys`."""
        return self.remove(keys, name)
