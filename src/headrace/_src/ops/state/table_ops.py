"""The ops of lookup tables. A handle refers to a table of devices.tables, in a container.

Each op is defined twice: on a resource handle (V2), and on the reference that older graphs use.
The static properties of a table are the `TableData` of its handle.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import wraps
from typing import Any

import numpy as np

from headrace._src.core.errors import InvalidArgumentError, NotFoundError
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.devices.resources import ResourceHandle
from headrace._src.devices.tables import DenseTable, LookupTable, MutableTable, StaticTable
from headrace._src.graph.definition import NOT_DIFFERENTIABLE, Effect
from headrace._src.ops.base import infer
from headrace._src.ops.base.define import define
from headrace._src.ops.state.resource_variable_ops import HandleData, handle_data
from headrace._src.ops.strings.fingerprints import hash64

__all__ = ["TableData", "table_behind"]


@dataclass(frozen=True)
class TableData(HandleData):
    """The static properties of the table behind a handle: its values' type, the shape of a key, and
    whether it exports its buckets, in matrices.
    """

    key_shape: TensorShape = infer.SCALAR
    exports_buckets: bool = False


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
            c.op._outputs[0]._handle_data = TableData(
                c.attrs["value_dtype"], shape, key_shape, "max_load_factor" in c.attrs
            )
        return infer.SCALAR
    return infer.UNKNOWN  # a reference of known shape would be a variable's


def _handle(ctx: Any, container: str, shared_name: str, make: Any) -> ResourceHandle:
    name = shared_name or ctx.name
    ctx.find_or_make(container, name, LookupTable, make)
    return ctx.handle(container, name, LookupTable)


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
    options = (empty_key, deleted_key, buckets, max_load_factor, _bucket_hashes)
    make = lambda: DenseTable(key_dtype, value_dtype, sizes, *options)  # noqa: E731
    return _handle(ctx, container, shared_name, make)


def _bucket_hashes(keys: np.ndarray) -> np.ndarray:
    """Return the hashes that assign keys, each a row, to buckets."""
    columns = [_hashed_scalars(keys[:, i]) for i in range(keys.shape[1])]
    if len(columns) == 1:
        return columns[0]
    combined = np.zeros(len(keys), np.uint64)
    with np.errstate(over="ignore"):
        for column in columns:
            shifted = (combined << np.uint64(10)) + (combined >> np.uint64(4))
            combined = combined ^ (column + np.uint64(0x9E3779B97F4A7800) + shifted)
    return combined


def _hashed_scalars(scalars: np.ndarray) -> np.ndarray:
    if scalars.dtype == object:
        return hash64(scalars.tolist())
    return scalars.astype(np.int64).view(np.uint64)


# -- The types of keys and values ------------------------------------------------------------------

_NUMBERS = ("int32", "int64", "float32", "float64")
_MUTABLE_TYPES = {
    "string": (*_NUMBERS, "bool"),
    "int64": (*_NUMBERS, "string"),
    "int32": ("int32", "float32", "float64"),
}
_TYPES = {
    "HashTable": _MUTABLE_TYPES
    | {
        "string": (*_NUMBERS, "bool", "string"),
        "int32": ("int32", "float32", "float64", "string"),
    },
    "MutableHashTable": _MUTABLE_TYPES,
    "MutableHashTableOfTensors": _MUTABLE_TYPES,
    "MutableDenseHashTable": _MUTABLE_TYPES | {"int64": (*_NUMBERS, "bool")},
}


def _of_known_types(op_type: str, kernel: Any) -> Any:
    """Return the kernel of a table; it rejects the types that TensorFlow has no kernel for."""
    known = _TYPES[op_type.removesuffix("V2")]

    @wraps(kernel)
    def checked(*inputs, key_dtype, value_dtype, **options):
        if value_dtype.name not in known.get(key_dtype.name, ()):
            raise InvalidArgumentError(
                None,
                None,
                f"No OpKernel was registered to support Op '{op_type}' with keys of "
                f"{key_dtype.name} and values of {value_dtype.name}",
            )
        return kernel(*inputs, key_dtype=key_dtype, value_dtype=value_dtype, **options)

    return checked


def _table(op_type: str, handle: str, kernel: Any, inputs: str = "", more: str = "") -> Any:
    return define(
        op_type,
        f"{inputs} -> table_handle: {handle}",
        _SHARED + more,
        infer=_table_infer,
        kernel=_of_known_types(op_type, kernel),
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
    """Return a handle to an immutable table, which is filled once."""


@_table("HashTable", "Ref(string)", _static_kernel)
def hash_table(
    key_dtype,
    value_dtype,
    container="",
    shared_name="",
    use_node_name_sharing=False,
    name=None,
):
    """Return a reference to an immutable table, which is filled once."""


@_table("MutableHashTableV2", "resource", _mutable_kernel)
def mutable_hash_table_v2(
    key_dtype,
    value_dtype,
    container="",
    shared_name="",
    use_node_name_sharing=False,
    name=None,
):
    """Return a handle to a mutable table."""


@_table("MutableHashTable", "Ref(string)", _mutable_kernel)
def mutable_hash_table(
    key_dtype,
    value_dtype,
    container="",
    shared_name="",
    use_node_name_sharing=False,
    name=None,
):
    """Return a reference to a mutable table."""


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
    """Return a handle to a mutable table of vectors."""


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
    """Return a reference to a mutable table of vectors."""


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
    """Return a handle to a mutable table with two reserved keys: for empty and deleted buckets."""


# -- Lookup and update -----------------------------------------------------------------------------


def table_behind(ctx: Any, handle: Any, key_dtype: Any = None, value_dtype: Any = None) -> Any:
    """Return the table of a handle; its types must match."""
    try:
        table = ctx.find(handle)
    except NotFoundError as error:
        raise NotFoundError(None, None, f"Table not found: {error.message}") from None
    if key_dtype is not None:
        table.check_types(key_dtype, value_dtype)
    return table


def _known(c: Any) -> TableData | None:
    found = handle_data(c.op._inputs[0])
    return found if isinstance(found, TableData) else None


def _leading(keys: TensorShape, key_shape: TensorShape) -> TensorShape:
    """Return the shape of `keys` without that of one key."""
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


def _find_kernel(handle, keys, default, *, ctx, Tin, Tout):
    return table_behind(ctx, handle, Tin, Tout).find(keys, default)


def _find(op_type: str, handle: str) -> Any:
    return define(
        op_type,
        f"table_handle: {handle}, keys: Tin, default_value: Tout -> values: Tout",
        "Tin: type; Tout: type",
        infer=_find_infer,
        kernel=_find_kernel,
        gradient=NOT_DIFFERENTIABLE,
        effect=Effect.READS,
    )


@_find("LookupTableFindV2", "resource")
def lookup_table_find_v2(table_handle, keys, default_value, name=None):
    """Return the values of keys, and a default for missing ones."""


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


def _insert_kernel(handle, keys, values, *, ctx, Tin, Tout):
    table_behind(ctx, handle, Tin, Tout).insert(keys, values)


def _import_kernel(handle, keys, values, *, ctx, Tin, Tout):
    table_behind(ctx, handle, Tin, Tout).load(keys, values)


def _initialize_kernel(handle, keys, values, *, ctx, Tkey, Tval):
    table = table_behind(ctx, handle, Tkey, Tval)
    if not isinstance(table, StaticTable):
        raise InvalidArgumentError(None, None, f"{table!r} can't be initialized, only inserted to")
    if np.ndim(keys) != 1:
        raise InvalidArgumentError(None, None, "Keys must be a vector")
    table.initialize(lambda: (keys, values))


_IN_OUT = ("Tin", "Tout")
_KEY_VALUE = ("Tkey", "Tval")


@_changing("LookupTableInsertV2", "resource", _IN_OUT, _insert_kernel)
def lookup_table_insert_v2(table_handle, keys, values, name=None):
    """Insert keys with their values."""


@_changing("LookupTableInsert", "Ref(string)", _IN_OUT, _insert_kernel)
def lookup_table_insert(table_handle, keys, values, name=None):
    """Insert keys with their values into the table of a reference."""


@_changing("LookupTableImportV2", "resource", _IN_OUT, _import_kernel)
def lookup_table_import_v2(table_handle, keys, values, name=None):
    """Replace the contents of a table."""


@_changing("LookupTableImport", "Ref(string)", _IN_OUT, _import_kernel)
def lookup_table_import(table_handle, keys, values, name=None):
    """Replace the contents of the table of a reference."""


@_changing("InitializeTableV2", "resource", _KEY_VALUE, _initialize_kernel)
def initialize_table_v2(table_handle, keys, values, name=None):
    """Fill an immutable table."""


@_changing("InitializeTable", "Ref(string)", _KEY_VALUE, _initialize_kernel)
def initialize_table(table_handle, keys, values, name=None):
    """Fill the immutable table of a reference."""


@define(
    "LookupTableRemoveV2",
    "table_handle: resource, keys: Tin ->",
    "Tin: type",
    infer=infer.no_outputs,
    kernel=lambda handle, keys, *, ctx, Tin: table_behind(ctx, handle, Tin).remove(keys),
    effect=Effect.WRITES,
)
def lookup_table_remove_v2(table_handle, keys, name=None):
    """Remove keys from a table."""


def _size(op_type: str, handle: str) -> Any:
    return define(
        op_type,
        f"table_handle: {handle} -> size: int64",
        infer=infer.scalar,
        kernel=lambda handle, *, ctx: np.int64(table_behind(ctx, handle).size),
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
    if data.exports_buckets and c.settled:
        # TensorFlow's static shapes are those of entries although matrices of buckets are returned;
        # clients see these shapes, while a step uses the true ones.
        return [TensorShape.of((None, s.num_elements())) for s in (data.key_shape, data.shape)]
    return [one.concatenate(data.key_shape), one.concatenate(data.shape)]


def _export_kernel(handle, *, ctx, Tkeys, Tvalues):
    return table_behind(ctx, handle, Tkeys, Tvalues).export()


def _export(op_type: str, handle: str) -> Any:
    return define(
        op_type,
        f"table_handle: {handle} -> keys: Tkeys, values: Tvalues",
        "Tkeys: type; Tvalues: type",
        infer=_export_infer,
        kernel=_export_kernel,
        gradient=NOT_DIFFERENTIABLE,
        effect=Effect.READS,
    )


@_export("LookupTableExportV2", "resource")
def lookup_table_export_v2(table_handle, Tkeys, Tvalues, name=None):
    """Return all keys of a table and their values."""


@_export("LookupTableExport", "Ref(string)")
def lookup_table_export(table_handle, Tkeys, Tvalues, name=None):
    """Return all keys and values of the table of a reference."""
