"""Lookup tables under their tf.contrib.lookup names, which precede tf.lookup."""

from __future__ import annotations

from typing import Any

from headrace._src.core import dtypes
from headrace._src.core.export import export
from headrace._src.graph.operation import Tensor
from headrace._src.ops.state import vocabularies
from headrace._src.ops.state.table_classes import HashTable
from headrace._src.ops.state.table_initializers import TableInitializerBase
from headrace._src.ops.state.vocabularies import FastHashSpec, HasherSpec, index_table_from_file

__all__ = [
    "ContribHashTable",
    "index_table_from_tensor",
    "index_to_string",
    "index_to_string_table_from_tensor",
    "string_to_index",
    "string_to_index_table_from_file",
    "string_to_index_table_from_tensor",
]


@export("contrib.lookup.HashTable")
class ContribHashTable(HashTable):
    """A table that `initializer` fills once; tables of the same `shared_name` share their
    content.
    """

    def __init__(
        self,
        initializer: TableInitializerBase,
        default_value: Any,
        shared_name: str | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(initializer, default_value, name, shared_name)


@export("contrib.lookup.index_table_from_tensor")
def index_table_from_tensor(
    mapping: Any,
    num_oov_buckets: int = 0,
    default_value: int = -1,
    hasher_spec: HasherSpec = FastHashSpec,
    dtype: Any = dtypes.string,
    name: str | None = None,
) -> Any:
    """Return a table from the strings of a vector to their indices."""
    if mapping is None:
        raise ValueError("mapping must be specified.")
    return vocabularies.index_table_from_tensor(
        mapping, num_oov_buckets, default_value, hasher_spec, dtype, name
    )


@export("contrib.lookup.index_to_string_table_from_tensor")
def index_to_string_table_from_tensor(
    mapping: Any, default_value: Any = "UNK", name: str | None = None
) -> HashTable:
    """Return a table from indices to the strings of a vector."""
    if mapping is None:
        raise ValueError("mapping must be specified.")
    return vocabularies.index_to_string_table_from_tensor(mapping, default_value, name)


@export("contrib.lookup.string_to_index_table_from_file")
def string_to_index_table_from_file(
    vocabulary_file: Any = None,
    num_oov_buckets: int = 0,
    vocab_size: int | None = None,
    default_value: int = -1,
    hasher_spec: HasherSpec = FastHashSpec,
    name: str | None = None,
) -> Any:
    """Return a table from the lines of a file to their line numbers: index_table_from_file."""
    return index_table_from_file(
        vocabulary_file, num_oov_buckets, vocab_size, default_value, hasher_spec, name=name
    )


@export("contrib.lookup.string_to_index_table_from_tensor")
def string_to_index_table_from_tensor(
    mapping: Any,
    num_oov_buckets: int = 0,
    default_value: int = -1,
    hasher_spec: HasherSpec = FastHashSpec,
    name: str | None = None,
) -> Any:
    """Return a table from the strings of a vector to their indices: index_table_from_tensor."""
    return index_table_from_tensor(mapping, num_oov_buckets, default_value, hasher_spec, name=name)


@export("contrib.lookup.string_to_index")
def string_to_index(
    tensor: Any, mapping: Any, default_value: int = -1, name: str | None = None
) -> Tensor:
    """Return the indices in `mapping` of the strings of `tensor`."""
    table = index_table_from_tensor(mapping, default_value=default_value, name=name)
    return table.lookup(tensor)


@export("contrib.lookup.index_to_string")
def index_to_string(
    tensor: Any, mapping: Any, default_value: Any = "UNK", name: str | None = None
) -> Tensor:
    """Return the strings of `mapping` at the indices in `tensor`."""
    return index_to_string_table_from_tensor(mapping, default_value, name).lookup(tensor)
