"""Vocabularies: tables between words and ids, with buckets for unknown words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from headrace._src.core import dtypes
from headrace._src.core.export import export, export_value
from headrace._src.graph.composite import SparseTensor
from headrace._src.graph.operation import Operation, Tensor
from headrace._src.ops.base.define import b, build
from headrace._src.ops.base.to_tensor import convert_to_tensor, name_scope
from headrace._src.ops.state.table_classes import (
    HashTable,
    LookupInterface,
    _check_key_dtype,
    _like,
)
from headrace._src.ops.state.table_files import LINE_NUMBER, WHOLE_LINE
from headrace._src.ops.state.table_initializers import (
    KeyValueTensorInitializer,
    TableInitializerBase,
    TextFileIdTableInitializer,
    TextFileStringTableInitializer,
)

__all__ = [
    "FastHashSpec",
    "HasherSpec",
    "IdTableWithHashBuckets",
    "StaticVocabularyTable",
    "StrongHashSpec",
    "index_table_from_file",
    "index_table_from_tensor",
    "index_to_string_table_from_file",
    "index_to_string_table_from_tensor",
]


@export("contrib.lookup.HasherSpec")
class HasherSpec(NamedTuple):
    """How unknown words are assigned to buckets: "fasthash", or "stronghash" with a key."""

    hasher: str
    key: Any


FastHashSpec = HasherSpec("fasthash", None)
export_value(__name__, "FastHashSpec", "contrib.lookup.FastHashSpec")


@export("contrib.lookup.StrongHashSpec")
def StrongHashSpec(key: Sequence[int]) -> HasherSpec:
    """A hash whose buckets can't be predicted without the `key`, two unsigned integers."""
    if len(key) != 2:
        raise ValueError(f"key must have size 2, got {len(key)}.")
    if not all(isinstance(k, int) and k >= 0 for k in key):
        raise TypeError(f"Invalid key {key}. Must be unsigned integer values.")
    return HasherSpec("stronghash", list(key))


@export("contrib.lookup.IdTableWithHashBuckets")
class IdTableWithHashBuckets(LookupInterface):
    """A table of ids, and `num_oov_buckets` more ids for unknown keys, selected by a hash."""

    def __init__(
        self,
        table: HashTable | None,
        num_oov_buckets: int,
        hasher_spec: HasherSpec = FastHashSpec,
        name: str | None = None,
        key_dtype: Any = None,
    ) -> None:
        if name:
            self._name = name.rstrip("/").rpartition("/")[2]
        else:
            self._name = table.name if table is not None else "hash_bucket"
        wanted = None if key_dtype is None else dtypes.as_dtype(key_dtype)
        if table is None:
            if num_oov_buckets <= 0:
                raise ValueError("oov_buckets must be > 0 if no table is supplied.")
            wanted = wanted or dtypes.string
            _check_hashed(wanted)
        else:
            wanted = wanted or table.key_dtype
            _check_hashed(wanted)
            _check_hashed(table.key_dtype)
            if table.key_dtype.is_integer != wanted.is_integer:
                raise TypeError(f"Invalid key dtype, expected {table.key_dtype}, got {wanted}.")
            if table.value_dtype is not dtypes.int64:
                raise TypeError(
                    f"Invalid value dtype, expected {dtypes.int64} but got {table.value_dtype}."
                )
        if not isinstance(hasher_spec, HasherSpec):
            raise TypeError(f"hasher_spec must be of type HasherSpec, got {hasher_spec}")
        super().__init__(wanted, dtypes.int64)
        self._table = table
        self._buckets = num_oov_buckets
        self._hasher = hasher_spec

    @property
    def name(self) -> str:
        return self._name

    @property
    def resource_handle(self) -> Any:
        return None if self._table is None else self._table.resource_handle

    @property
    def initializer(self) -> Operation:
        """The operation that fills the table."""
        return b.no_op() if self._table is None else self._table.initializer

    @property
    def init(self) -> Operation:
        """The operation that fills the table."""
        return self.initializer

    def size(self, name: str | None = None) -> Tensor:
        """Return the number of ids, including buckets."""
        with name_scope(name, f"{self.name}_Size"):
            if self._table is None:
                return convert_to_tensor(self._buckets, dtypes.int64)
            return self._table.size() + self._buckets

    def lookup(self, keys: Any, name: str | None = None) -> Any:
        """Return the ids of `keys`, a tensor or the values of a SparseTensor."""
        given = keys.values if isinstance(keys, SparseTensor) else convert_to_tensor(keys)
        _check_key_dtype(given, self.key_dtype)
        if self._table is not None and given.dtype is not self._table.key_dtype:
            given = b.cast(given, self._table.key_dtype)
        if not self._buckets:
            assert self._table is not None
            return _like(keys, self._table.lookup(given, name=name))
        with name_scope(name, f"{self.name}_Lookup"):
            text = given if given.dtype is dtypes.string else b.as_string(given)
            ids = self._bucket(text)
            if self._table is not None:
                known = self._table.lookup(given)
                bucket = build("Add", x=ids, y=self._table.size())
                is_known = b.not_equal(known, self._table.default_value)
                ids = b.select_v2(is_known, known, bucket)
        return _like(keys, ids)

    def _bucket(self, text: Tensor) -> Tensor:
        options: dict[str, Any] = {"num_buckets": self._buckets, "name": "hash_bucket"}
        if self._hasher.hasher == "fasthash":
            return build("StringToHashBucketFast", input=text, **options)
        if self._hasher.hasher == "stronghash":
            key = tuple(self._hasher.key)
            return build("StringToHashBucketStrong", input=text, key=key, **options)
        raise ValueError(f"Unknown hasher {self._hasher.hasher}")


def _check_hashed(dtype: dtypes.DType) -> None:
    if not (dtype.is_integer or dtype is dtypes.string):
        raise TypeError(f"Invalid key_dtype, expected integer or string, got {dtype}.")


@export("lookup.StaticVocabularyTable")
class StaticVocabularyTable(IdTableWithHashBuckets):
    """A table of ids that `initializer` fills, and `num_oov_buckets` more for unknown keys."""

    def __init__(
        self,
        initializer: TableInitializerBase | None,
        num_oov_buckets: int,
        lookup_key_dtype: Any = None,
        name: str | None = None,
    ) -> None:
        if num_oov_buckets <= 0:
            raise ValueError("oov_buckets must be > 0.")
        table = None if initializer is None else HashTable(initializer, -1, name=name)
        super().__init__(table, num_oov_buckets, name=name, key_dtype=lookup_key_dtype)


def _check_vocabulary(size: int | None, buckets: int, where: str = "") -> None:
    if buckets < 0:
        raise ValueError(f"num_oov_buckets must be greater or equal than 0, got {buckets}.")
    if size is not None and size < 1:
        raise ValueError(f"vocab_size must be greater than 0, got {size}.{where}")


@export("contrib.lookup.index_table_from_file")
def index_table_from_file(
    vocabulary_file: Any = None,
    num_oov_buckets: int = 0,
    vocab_size: int | None = None,
    default_value: int = -1,
    hasher_spec: HasherSpec = FastHashSpec,
    key_dtype: Any = dtypes.string,
    name: str | None = None,
    key_column_index: int = WHOLE_LINE,
    value_column_index: int = LINE_NUMBER,
    delimiter: str = "\t",
) -> Any:
    """Return a table from the words of a file (by default, its lines) to their ids.

    num_oov_buckets: the number of additional ids for unknown words; without any, they get
    default_value. key_column_index, value_column_index: a column, or a TextFileIndex.
    """
    if vocabulary_file is None or (isinstance(vocabulary_file, str) and not vocabulary_file):
        raise ValueError("vocabulary_file must be specified and must not be empty.")
    _check_vocabulary(vocab_size, num_oov_buckets, f" vocabulary_file: {vocabulary_file}")
    key_dtype = dtypes.as_dtype(key_dtype)
    _check_word_dtype(key_dtype)
    with name_scope(name, "string_to_index"):
        with name_scope(None, "hash_table"):
            initializer = TextFileIdTableInitializer(
                vocabulary_file,
                key_column_index,
                value_column_index,
                vocab_size,
                delimiter,
                "table_init",
                dtypes.int64 if key_dtype.is_integer else key_dtype,
            )
            table = HashTable(initializer, default_value)
        return _with_buckets(table, num_oov_buckets, hasher_spec, key_dtype)


def _with_buckets(table: HashTable, buckets: int, hasher: HasherSpec, key_dtype: Any) -> Any:
    if not buckets:
        return table
    return IdTableWithHashBuckets(table, buckets, hasher, key_dtype=key_dtype)


def _check_word_dtype(dtype: dtypes.DType) -> None:
    if not (dtype.is_integer or dtype is dtypes.string):
        raise TypeError("Only integer and string keys are supported.")


def index_table_from_tensor(
    vocabulary_list: Any,
    num_oov_buckets: int = 0,
    default_value: int = -1,
    hasher_spec: HasherSpec = FastHashSpec,
    dtype: Any = dtypes.string,
    name: str | None = None,
) -> Any:
    """Return a table from the strings of a vector to their indices."""
    if vocabulary_list is None:
        raise ValueError("vocabulary_list must be specified.")
    _check_vocabulary(None, num_oov_buckets)
    key_dtype = dtypes.as_dtype(dtype)
    _check_word_dtype(key_dtype)
    with name_scope(name, "string_to_index"):
        words = convert_to_tensor(vocabulary_list)
        fits = words.dtype.is_integer if key_dtype.is_integer else words.dtype is key_dtype
        if not fits:
            expected = "integer" if key_dtype.is_integer else key_dtype
            raise ValueError(f"Expected {expected}, got {words.dtype}.")
        numbers = b.cast(b.range(b.size(words)), dtypes.int64)
        with name_scope(None, "hash_table"):
            keys = b.cast(words, dtypes.int64) if words.dtype.is_integer else words
            initializer = KeyValueTensorInitializer(
                keys, numbers, keys.dtype, dtypes.int64, name="table_init"
            )
            table = HashTable(initializer, default_value)
        return _with_buckets(table, num_oov_buckets, hasher_spec, key_dtype)


@export("contrib.lookup.index_to_string_table_from_file")
def index_to_string_table_from_file(
    vocabulary_file: Any,
    vocab_size: int | None = None,
    default_value: Any = "UNK",
    name: str | None = None,
    key_column_index: int = LINE_NUMBER,
    value_column_index: int = WHOLE_LINE,
    delimiter: str = "\t",
) -> HashTable:
    """Return a table from ids to the words of a file (by default, its lines)."""
    if vocabulary_file is None or (isinstance(vocabulary_file, str) and not vocabulary_file):
        raise ValueError("vocabulary_file must be specified and must not be empty.")
    _check_vocabulary(vocab_size, 0)
    with name_scope(name, "index_to_string"):
        initializer = TextFileStringTableInitializer(
            vocabulary_file,
            key_column_index,
            value_column_index,
            vocab_size,
            delimiter,
            "table_init",
        )
        return HashTable(initializer, default_value)


def index_to_string_table_from_tensor(
    vocabulary_list: Any, default_value: Any = "UNK", name: str | None = None
) -> HashTable:
    """Return a table from indices to the strings of a vector."""
    if vocabulary_list is None:
        raise ValueError("vocabulary_list must be specified.")
    with name_scope(name, "index_to_string"):
        words = convert_to_tensor(vocabulary_list, dtypes.string)
        numbers = b.cast(b.range(b.size(words)), dtypes.int64)
        initializer = KeyValueTensorInitializer(
            numbers, words, dtypes.int64, dtypes.string, name="table_init"
        )
        return HashTable(initializer, default_value)
