"""The ops of lookup tables. A handle leads to a table of devices.tables, in a container.

Each op is defined twice: on a resource handle (V2), and on the reference that older graphs have.
What is known of a table before a step runs is the `TableData` of its handle.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from headrace.core import dtypes
from headrace.core.errors import InvalidArgumentError, NotFoundError
from headrace.core.shapes import TensorShape
from headrace.devices.resources import ResourceHandle
from headrace.devices.tables import DenseTable, LookupTable, MutableTable, StaticTable
from headrace.graph.definition import NOT_DIFFERENTIABLE, Effect
from headrace.ops import infer
from headrace.ops.define import define
from headrace.ops.resource_state import HandleData, handle_data

__all__ = ["LINE_NUMBER", "WHOLE_LINE"]

WHOLE_LINE = -2  # as a column of a text file
LINE_NUMBER = -1


@dataclass(frozen=True)
class TableData(HandleData):
    """What is known of the table behind a handle: its values' type, and the shape of a key."""

    key_shape: TensorShape = infer.SCALAR


# -- Tables ----------------------------------------------------------------------------------------

_SHARED = (
    "container: string = ''; shared_name: string = ''; use_node_name_sharing: bool = False; "
    "key_dtype: type; value_dtype: type"
)
_DENSE = (
    "; value_shape: shape = []; initial_num_buckets: int = 131072; max_load_factor: float = 0.8"
)


def _table_infer(c: Any, *key_shapes: TensorShape) -> TensorShape:
    if c.op.type.endswith("V2"):
        if not c.settled:
            key_shape = key_shapes[0] if key_shapes else infer.SCALAR
            shape = c.attrs.get("value_shape", infer.SCALAR)
            c.op._outputs[0]._handle_data = TableData(c.attrs["value_dtype"], shape, key_shape)
        return infer.SCALAR
    return infer.UNKNOWN  # a reference of a known shape would be a variable's


def _handle(ctx: Any, container: str, shared_name: str, make: Any) -> ResourceHandle:
    name = shared_name or ctx.name
    ctx.resources.get_or_create(container, name, LookupTable, make)
    return ResourceHandle(ctx.resources, container, name, LookupTable)


def _static_kernel(*, ctx, container, shared_name, key_dtype, value_dtype):
    return _handle(ctx, container, shared_name, lambda: StaticTable(key_dtype, value_dtype))


def _mutable_kernel(*, ctx, container, shared_name, key_dtype, value_dtype):
    return _handle(ctx, container, shared_name, lambda: MutableTable(key_dtype, value_dtype))


def _sizes(shape: TensorShape) -> tuple[int, ...]:
    if not shape.is_fully_defined():
        raise InvalidArgumentError(None, None, f"value_shape must be known, not {shape}")
    return tuple(shape.as_list())  # type: ignore[arg-type]


def _of_tensors_kernel(*, ctx, container, shared_name, key_dtype, value_dtype, value_shape):
    sizes = _sizes(value_shape)
    if len(sizes) > 1:
        raise InvalidArgumentError(
            None, None, f"Default value must be a vector, got shape {value_shape}"
        )
    make = lambda: MutableTable(key_dtype, value_dtype, sizes)  # noqa: E731
    return _handle(ctx, container, shared_name, make)


def _dense_kernel(
    empty_key,
    deleted_key=None,
    *,
    ctx,
    container,
    shared_name,
    key_dtype,
    value_dtype,
    value_shape,
    initial_num_buckets,
    max_load_factor,
):
    buckets = initial_num_buckets
    if buckets < 4 or buckets & (buckets - 1):
        raise InvalidArgumentError(
            None, None, f"Number of buckets must be at least 4 and a power of 2, got: {buckets}"
        )
    if not 0 < max_load_factor < 1:
        raise InvalidArgumentError(
            None, None, f"max_load_factor must be between 0 and 1, got: {max_load_factor}"
        )
    sizes = _sizes(value_shape)
    make = lambda: DenseTable(key_dtype, value_dtype, sizes, empty_key, deleted_key)  # noqa: E731
    return _handle(ctx, container, shared_name, make)


def _table(op_type: str, handle: str, kernel: Any, inputs: str = "", more: str = "") -> Any:
    return define(
        op_type,
        f"{inputs} -> table_handle: {handle}",
        _SHARED + more,
        infer=_table_infer,
        kernel=kernel,
        effect=Effect.READS,
    )


@_table("HashTableV2", "resource", _static_kernel)
def hash_table_v2(
    key_dtype,
    value_dtype,
    container="",
    shared_name="",
    use_node_name_sharing=False,
    name=None,
):
    """Return a handle to a table that is filled once."""


@_table("HashTable", "Ref(string)", _static_kernel)
def hash_table(
    key_dtype,
    value_dtype,
    container="",
    shared_name="",
    use_node_name_sharing=False,
    name=None,
):
    """Return a reference to a table that is filled once."""


@_table("MutableHashTableV2", "resource", _mutable_kernel)
def mutable_hash_table_v2(
    key_dtype,
    value_dtype,
    container="",
    shared_name="",
    use_node_name_sharing=False,
    name=None,
):
    """Return a handle to a table that can be changed."""


@_table("MutableHashTable", "Ref(string)", _mutable_kernel)
def mutable_hash_table(
    key_dtype,
    value_dtype,
    container="",
    shared_name="",
    use_node_name_sharing=False,
    name=None,
):
    """Return a reference to a table that can be changed."""


_VALUE_SHAPE = "; value_shape: shape = []"


@_table("MutableHashTableOfTensorsV2", "resource", _of_tensors_kernel, more=_VALUE_SHAPE)
def mutable_hash_table_of_tensors_v2(
    key_dtype,
    value_dtype,
    container="",
    shared_name="",
    use_node_name_sharing=False,
    value_shape=None,
    name=None,
):
    """Return a handle to a table of vectors that can be changed."""


@_table("MutableHashTableOfTensors", "Ref(string)", _of_tensors_kernel, more=_VALUE_SHAPE)
def mutable_hash_table_of_tensors(
    key_dtype,
    value_dtype,
    container="",
    shared_name="",
    use_node_name_sharing=False,
    value_shape=None,
    name=None,
):
    """Return a reference to a table of vectors that can be changed."""


@_table(
    "MutableDenseHashTableV2",
    "resource",
    _dense_kernel,
    "empty_key: key_dtype, deleted_key: key_dtype",
    _DENSE,
)
def mutable_dense_hash_table_v2(
    empty_key,
    deleted_key,
    value_dtype,
    container="",
    shared_name="",
    use_node_name_sharing=False,
    value_shape=None,
    initial_num_buckets=131072,
    max_load_factor=0.8,
    name=None,
):
    """Return a handle to a table that can be changed, and holds neither of two keys."""


# -- Looking up and changing -----------------------------------------------------------------------


def _behind(handle: Any, key_dtype: Any = None, value_dtype: Any = None) -> Any:
    """The table of a handle; its types must be these."""
    try:
        table = handle.get()
    except NotFoundError as error:
        raise NotFoundError(None, None, f"Table not found: {error.message}") from None
    if key_dtype is not None:
        table.check_types(key_dtype, value_dtype)
    return table


def _known(c: Any) -> TableData | None:
    found = handle_data(c.op._inputs[0])
    return found if isinstance(found, TableData) else None


def _leading(keys: TensorShape, key_shape: TensorShape) -> TensorShape:
    """The shape of `keys` without that of one key."""
    if keys.sizes is None or key_shape.sizes is None:
        return infer.UNKNOWN
    kept = len(keys.sizes) - len(key_shape.sizes)
    if kept < 0:
        raise ValueError(f"keys have shape {keys}, but one key has {key_shape}")
    return keys[:kept]


def _find_infer(c: Any, handle: Any, keys: TensorShape, default: TensorShape) -> TensorShape:
    data = _known(c)
    if data is None:
        return infer.UNKNOWN
    data.shape.merge_with(default)
    return _leading(keys, data.key_shape).concatenate(data.shape)


def _find(op_type: str, handle: str) -> Any:
    return define(
        op_type,
        f"table_handle: {handle}, keys: Tin, default_value: Tout -> values: Tout",
        "Tin: type; Tout: type",
        infer=_find_infer,
        kernel=lambda handle, keys, default, *, Tin, Tout: _behind(handle, Tin, Tout).find(
            keys, default
        ),
        gradient=NOT_DIFFERENTIABLE,
        effect=Effect.READS,
    )


@_find("LookupTableFindV2", "resource")
def lookup_table_find_v2(table_handle, keys, default_value, name=None):
    """Return the values of keys, a default for those that aren't there."""


@_find("LookupTableFind", "Ref(string)")
def lookup_table_find(table_handle, keys, default_value, name=None):
    """Return the values of keys in the table of a reference."""


def _pairs_infer(c: Any, handle: Any, keys: TensorShape, values: TensorShape) -> list[Any]:
    data = _known(c)
    if data is not None:
        _leading(keys, data.key_shape).concatenate(data.shape).merge_with(values)
    return []


def _changing(op_type: str, handle: str, types: tuple[str, str], change: Any) -> Any:
    key, value = types
    return define(
        op_type,
        f"table_handle: {handle}, keys: {key}, values: {value} ->",
        f"{key}: type; {value}: type",
        infer=_pairs_infer,
        kernel=change,
        effect=Effect.WRITES,
    )


def _insert_kernel(handle, keys, values, *, Tin, Tout):
    _behind(handle, Tin, Tout).insert(keys, values)


def _import_kernel(handle, keys, values, *, Tin, Tout):
    _behind(handle, Tin, Tout).load(keys, values)


def _initialize_kernel(handle, keys, values, *, Tkey, Tval):
    table = _behind(handle, Tkey, Tval)
    if not isinstance(table, StaticTable):
        raise InvalidArgumentError(None, None, f"{table!r} can't be initialized, only inserted to")
    if np.ndim(keys) != 1:
        raise InvalidArgumentError(None, None, "Keys must be a vector")
    table.initialize(lambda: (keys, values))


_IN_OUT = ("Tin", "Tout")
_KEY_VALUE = ("Tkey", "Tval")


@_changing("LookupTableInsertV2", "resource", _IN_OUT, _insert_kernel)
def lookup_table_insert_v2(table_handle, keys, values, name=None):
    """Give keys their values."""


@_changing("LookupTableInsert", "Ref(string)", _IN_OUT, _insert_kernel)
def lookup_table_insert(table_handle, keys, values, name=None):
    """Give keys their values in the table of a reference."""


@_changing("LookupTableImportV2", "resource", _IN_OUT, _import_kernel)
def lookup_table_import_v2(table_handle, keys, values, name=None):
    """Replace all that is in a table."""


@_changing("LookupTableImport", "Ref(string)", _IN_OUT, _import_kernel)
def lookup_table_import(table_handle, keys, values, name=None):
    """Replace all that is in the table of a reference."""


@_changing("InitializeTableV2", "resource", _KEY_VALUE, _initialize_kernel)
def initialize_table_v2(table_handle, keys, values, name=None):
    """Fill a table that is filled once."""


@_changing("InitializeTable", "Ref(string)", _KEY_VALUE, _initialize_kernel)
def initialize_table(table_handle, keys, values, name=None):
    """Fill the table of a reference, once."""


@define(
    "LookupTableRemoveV2",
    "table_handle: resource, keys: Tin ->",
    "Tin: type",
    infer=infer.no_outputs,
    kernel=lambda handle, keys, *, Tin: _behind(handle, Tin).remove(keys),
    effect=Effect.WRITES,
)
def lookup_table_remove_v2(table_handle, keys, name=None):
    """Remove keys from a table."""


def _size(op_type: str, handle: str) -> Any:
    return define(
        op_type,
        f"table_handle: {handle} -> size: int64",
        infer=infer.scalar,
        kernel=lambda handle: np.int64(_behind(handle).size),
        effect=Effect.READS,
    )


@_size("LookupTableSizeV2", "resource")
def lookup_table_size_v2(table_handle, name=None):
    """Return the number of keys in a table."""


@_size("LookupTableSize", "Ref(string)")
def lookup_table_size(table_handle, name=None):
    """Return the number of keys in the table of a reference."""


def _export_infer(c: Any, handle: Any) -> list[TensorShape]:
    data = _known(c)
    if data is None:
        return [infer.UNKNOWN, infer.UNKNOWN]
    one = TensorShape.of((None,))
    return [one.concatenate(data.key_shape), one.concatenate(data.shape)]


def _export(op_type: str, handle: str) -> Any:
    return define(
        op_type,
        f"table_handle: {handle} -> keys: Tkeys, values: Tvalues",
        "Tkeys: type; Tvalues: type",
        infer=_export_infer,
        kernel=lambda handle, *, Tkeys, Tvalues: _behind(handle, Tkeys, Tvalues).export(),
        gradient=NOT_DIFFERENTIABLE,
        effect=Effect.READS,
    )


@_export("LookupTableExportV2", "resource")
def lookup_table_export_v2(table_handle, Tkeys, Tvalues, name=None):
    """Return all keys of a table and their values."""


@_export("LookupTableExport", "Ref(string)")
def lookup_table_export(table_handle, Tkeys, Tvalues, name=None):
    """Return all keys and values of the table of a reference."""


# -- Text files ------------------------------------------------------------------------------------


def _text_file_kernel(handle, filename, *, key_index, value_index, vocab_size, delimiter):
    table = _behind(handle)
    if not isinstance(table, StaticTable):
        raise InvalidArgumentError(None, None, f"{table!r} can't be initialized, only inserted to")
    path = filename if isinstance(filename, bytes) else np.asarray(filename).item()
    if len(delimiter) != 1:
        raise InvalidArgumentError(
            None, None, f"delimiter should be only 1 char, not {delimiter!r}"
        )
    separator = delimiter.encode() if isinstance(delimiter, str) else delimiter

    def entries() -> tuple[np.ndarray, np.ndarray]:
        name = path.decode(errors="surrogateescape")
        lines = _lines(name, vocab_size)
        keys = _column(name, lines, key_index, separator, table.key_dtype)
        return keys, _column(name, lines, value_index, separator, table.value_dtype)

    table.initialize(entries)


def _lines(name: str, limit: int) -> list[bytes]:
    try:
        with open(name, "rb") as file:
            lines = file.read().split(b"\n")
    except FileNotFoundError:
        raise NotFoundError(None, None, f"{name}; No such file or directory") from None
    except OSError as error:
        raise InvalidArgumentError(None, None, f"{name}; {error.strerror}") from None
    if lines and not lines[-1]:
        lines.pop()  # what follows the last line's end
    lines = [line[:-1] if line.endswith(b"\r") else line for line in lines]
    for i, line in enumerate(lines):
        if not line and (limit < 0 or i < limit):
            raise InvalidArgumentError(
                None, None, f"Invalid content in {name}: empty line found at line {i}."
            )
    if limit > len(lines):
        raise InvalidArgumentError(
            None, None, f"Invalid vocab_size in {name}: expected {limit} but got {len(lines)}"
        )
    return lines if limit < 0 else lines[:limit]


def _column(
    name: str, lines: list[bytes], index: int, separator: bytes, dtype: dtypes.DType
) -> np.ndarray:
    """What a column of a file says, as an array."""
    if index == LINE_NUMBER:
        if dtype not in (dtypes.int64, dtypes.int32):
            raise InvalidArgumentError(None, None, f"line numbers are int64, not {dtype.name}")
        return np.arange(len(lines), dtype=dtype.numpy)
    if index == WHOLE_LINE:
        fields = lines
        if dtype is not dtypes.string:
            raise InvalidArgumentError(None, None, f"whole lines are strings, not {dtype.name}")
    else:
        fields = [_field(name, i, line, index, separator) for i, line in enumerate(lines)]
    found = np.empty(len(fields), dtype.numpy)
    for i, text in enumerate(fields):
        found[i] = text if dtype is dtypes.string else _number(text, i, dtype)
    return found


def _field(name: str, number: int, line: bytes, index: int, separator: bytes) -> bytes:
    fields = line.split(separator)
    if index >= len(fields):
        raise InvalidArgumentError(
            None,
            None,
            f"Invalid number of columns in {name} line {number} ({line.decode(errors='replace')}) "
            f": expected {index + 1} got {len(fields)}",
        )
    return fields[index]


def _number(text: bytes, line: int, dtype: dtypes.DType) -> Any:
    try:
        return int(text) if dtype.is_integer else float(text)
    except ValueError:
        raise InvalidArgumentError(
            None,
            None,
            f"Field {text.decode(errors='replace')} in line {line} is not a valid {dtype.name}.",
        ) from None


def _text_file_infer(c: Any, handle: TensorShape, filename: TensorShape) -> list[Any]:
    infer.with_rank(filename, 0)
    return []


def _text_file(op_type: str, handle: str) -> Any:
    return define(
        op_type,
        f"table_handle: {handle}, filename: string ->",
        "key_index: int >= -2; value_index: int >= -2; vocab_size: int >= -1 = -1; "
        r"delimiter: string = '\t'",
        infer=_text_file_infer,
        kernel=_text_file_kernel,
        effect=Effect.WRITES,
    )


@_text_file("InitializeTableFromTextFileV2", "resource")
def initialize_table_from_text_file_v2(
    table_handle,
    filename,
    key_index,
    value_index,
    vocab_size=-1,
    delimiter="\t",
    name=None,
):
    """Fill a table that is filled once from columns of a text file."""


@_text_file("InitializeTableFromTextFile", "Ref(string)")
def initialize_table_from_text_file(
    table_handle,
    filename,
    key_index,
    value_index,
    vocab_size=-1,
    delimiter="\t",
    name=None,
):
    """Fill the table of a reference from columns of a text file, once."""
