"""Initializers of lookup tables: the elements of two tensors, or the columns of a text file.

An initializer has the dtypes of keys and values; `initialize(table)` adds the operation that
fills the table and puts it into the graph's collection "table_initializer".
"""

from __future__ import annotations

import uuid
from typing import Any

from headrace._src.core import dtypes
from headrace._src.core.dtypes import DType
from headrace._src.core.export import export
from headrace._src.core.versions_and_text import as_str_any
from headrace._src.graph.inference import constant_value
from headrace._src.graph.keys import GraphKeys
from headrace._src.graph.operation import Operation, Tensor
from headrace._src.ops.base.define import b
from headrace._src.ops.base.to_tensor import convert_to_tensor, name_scope
from headrace._src.ops.state.table_files import LINE_NUMBER, WHOLE_LINE

__all__ = [
    "KeyValueTensorInitializer",
    "TableInitializerBase",
    "TextFileIdTableInitializer",
    "TextFileIndex",
    "TextFileInitializer",
    "TextFileStringTableInitializer",
]


@export("contrib.lookup.TableInitializerBase")
class TableInitializerBase:
    """Keys and values for a table."""

    def __init__(self, key_dtype: Any, value_dtype: Any) -> None:
        self._key_dtype = dtypes.as_dtype(key_dtype)
        self._value_dtype = dtypes.as_dtype(value_dtype)

    @property
    def key_dtype(self) -> DType:
        return self._key_dtype

    @property
    def value_dtype(self) -> DType:
        return self._value_dtype

    def initialize(self, table: Any) -> Operation:
        """Return the operation that fills `table`."""
        raise NotImplementedError

    @property
    def _shared_name(self) -> str:
        """A name shared by all tables with the same content."""
        return f"hash_table_{uuid.uuid4()}"

    def _check(self, table: Any) -> None:
        for what in ("key", "value"):
            wanted, found = getattr(table, f"{what}_dtype"), getattr(self, f"{what}_dtype")
            if wanted is not found:
                raise TypeError(f"Invalid {what} dtype, expected {found} but got {wanted}.")


@export("lookup.KeyValueTensorInitializer", "contrib.lookup.KeyValueTensorInitializer")
class KeyValueTensorInitializer(TableInitializerBase):
    """Fills a table with the elements of two tensors."""

    def __init__(
        self,
        keys: Any,
        values: Any,
        key_dtype: Any = None,
        value_dtype: Any = None,
        name: str | None = None,
    ) -> None:
        self._keys = convert_to_tensor(keys, dtype=key_dtype, name="keys")
        self._values = convert_to_tensor(values, dtype=value_dtype, name="values")
        self._name = name or "key_value_init"
        super().__init__(self._keys.dtype, self._values.dtype)

    def initialize(self, table: Any) -> Operation:
        self._check(table)
        with name_scope(self._name, values=[table.resource_handle, self._keys, self._values]):
            filled = b.lookup_table_import_v2(table.resource_handle, self._keys, self._values)
        filled.graph.add_to_collection(GraphKeys.TABLE_INITIALIZERS, filled)
        return filled


@export("lookup.TextFileIndex", "contrib.lookup.TextFileIndex")
class TextFileIndex:
    """What to take from a line instead of a column: the whole line, or its number."""

    WHOLE_LINE = WHOLE_LINE
    LINE_NUMBER = LINE_NUMBER


@export("lookup.TextFileInitializer", "contrib.lookup.TextFileInitializer")
class TextFileInitializer(TableInitializerBase):
    """Fills a table with two columns of a text file, each a number or a TextFileIndex.

    vocab_size: the number of lines to read, by default all. delimiter: separates the columns.
    """

    def __init__(
        self,
        filename: Any,
        key_dtype: Any,
        key_index: int,
        value_dtype: Any,
        value_index: int,
        vocab_size: int | None = None,
        delimiter: str = "\t",
        name: str | None = None,
    ) -> None:
        if not isinstance(filename, Tensor) and not filename:
            raise ValueError("Filename required for table initialization.")
        super().__init__(key_dtype, value_dtype)
        _check_column("Keys", "key", key_index, self.key_dtype)
        _check_column("Values", "value", value_index, self.value_dtype)
        if vocab_size is not None and vocab_size <= 0:
            raise ValueError(f"Invalid vocab_size {vocab_size}.")
        self._key_index = key_index
        self._value_index = value_index
        self._vocab_size = vocab_size
        self._delimiter = delimiter
        self._name = name or "text_file_init"
        self._given = filename
        self._filename = convert_to_tensor(filename, dtypes.string, name="asset_path")

    @property
    def _shared_name(self) -> str:
        # Tables with the same path share their content; a tensor's value may differ.
        name = as_str_any(self._given)
        size = "" if self._vocab_size is None else f"_{self._vocab_size}"
        return f"hash_table_{name}{size}_{self._key_index}_{self._value_index}"

    def initialize(self, table: Any) -> Operation:
        self._check(table)
        with name_scope(self._name, values=[table.resource_handle]):
            filled = b.initialize_table_from_text_file_v2(
                table.resource_handle,
                self._filename,
                self._key_index,
                self._value_index,
                -1 if self._vocab_size is None else self._vocab_size,
                self._delimiter,
            )
        graph = filled.graph
        graph.add_to_collection(GraphKeys.TABLE_INITIALIZERS, filled)
        if constant_value(self._filename) is not None:
            graph.add_to_collection(GraphKeys.ASSET_FILEPATHS, self._filename)
        return filled


def _check_column(what: str, short: str, index: int, dtype: DType) -> None:
    if index < WHOLE_LINE:
        raise ValueError(f"Invalid {short} index {index}.")
    if index == LINE_NUMBER and dtype is not dtypes.int64:
        raise ValueError(f"Signature mismatch. {what} must be dtype {dtypes.int64}, got {dtype}.")
    if index != WHOLE_LINE or dtype is dtypes.string:
        return
    if short == "value":
        raise ValueError(f"Signature mismatch. {what} must be dtype {dtypes.string}, got {dtype}.")
    if not dtype.is_integer:
        raise ValueError(f"Signature mismatch. {what} must be integer or string, got {dtype}.")


@export("contrib.lookup.TextFileStringTableInitializer")
class TextFileStringTableInitializer(TextFileInitializer):
    """Fills a table from ids to strings from a text file, by default from line numbers to lines."""

    def __init__(
        self,
        filename: Any,
        key_column_index: int = LINE_NUMBER,
        value_column_index: int = WHOLE_LINE,
        vocab_size: int | None = None,
        delimiter: str = "\t",
        name: str = "text_file_string_table_init",
    ) -> None:
        super().__init__(
            filename,
            dtypes.int64,
            key_column_index,
            dtypes.string,
            value_column_index,
            vocab_size,
            delimiter,
            name,
        )


@export("contrib.lookup.TextFileIdTableInitializer")
class TextFileIdTableInitializer(TextFileInitializer):
    """Fills a table from words to ids from a text file, by default from lines to their numbers."""

    def __init__(
        self,
        filename: Any,
        key_column_index: int = WHOLE_LINE,
        value_column_index: int = LINE_NUMBER,
        vocab_size: int | None = None,
        delimiter: str = "\t",
        name: str = "text_file_id_table_init",
        key_dtype: Any = dtypes.string,
    ) -> None:
        super().__init__(
            filename,
            key_dtype,
            key_column_index,
            dtypes.int64,
            value_column_index,
            vocab_size,
            delimiter,
            name,
        )
