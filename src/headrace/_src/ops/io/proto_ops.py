"""Protocol buffers in a step. In: serialised messages, or tensors with the values of fields. Out:
the fields' values as tensors, or serialised messages.
"""

from __future__ import annotations

from collections import namedtuple
from functools import lru_cache
from typing import Any

import numpy as np

from headrace._src.core import dtypes
from headrace._src.core.dtypes import DType, as_dtype
from headrace._src.core.errors import DataLossError
from headrace._src.core.export import export
from headrace._src.core.tensor_shape import show_shape
from headrace._src.devices.room import check_room
from headrace._src.graph.definition import NOT_DIFFERENTIABLE, Sample
from headrace._src.graph.operation import Tensor
from headrace._src.ops.base import infer
from headrace._src.ops.base.define import composed, define
from headrace._src.ops.io import proto_wire
from headrace._src.ops.io.proto_wire import WireField
from headrace._src.ops.strings.string_arrays import attr_bytes, of_strings, string_array

__all__ = ["decode_proto", "encode_proto"]

_LOCAL, _BYTES = b"local://", b"bytes://"
_STRINGS = ("string", "bytes", "message", "group")
# The types that the values of a field may have, by the field's type.
_TYPES: dict[str, tuple[DType, ...]] = {
    "double": (dtypes.float64,),
    "float": (dtypes.float32, dtypes.float64),
    "int64": (dtypes.int64,),
    "sfixed64": (dtypes.int64,),
    "sint64": (dtypes.int64,),
    "uint64": (dtypes.uint64,),
    "fixed64": (dtypes.uint64,),
    "int32": (dtypes.int32, dtypes.int64),
    "sfixed32": (dtypes.int32, dtypes.int64),
    "sint32": (dtypes.int32, dtypes.int64),
    "uint32": (dtypes.uint32, dtypes.uint64),
    "fixed32": (dtypes.uint32, dtypes.uint64),
    "bool": (dtypes.bool,),
    "enum": (dtypes.int32,),
    **dict.fromkeys(_STRINGS, (dtypes.string,)),
}
_KINDS = (
    *("double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string"),
    *("group", "message", "bytes", "uint32", "enum", "sfixed32", "sfixed64", "sint32", "sint64"),
)  # in the order of FieldDescriptor's constants, from 1


@lru_cache(maxsize=64)
def _message(name: str, source: bytes) -> Any:
    """Return the descriptor of a message type."""
    from google.protobuf import descriptor_pb2, descriptor_pool
    from google.protobuf.message import DecodeError

    pool = descriptor_pool.Default()
    if source in (b"", _LOCAL):
        name = _own_name(name)
    else:
        files = descriptor_pb2.FileDescriptorSet()
        try:
            if source.startswith(_BYTES):
                data = source.removeprefix(_BYTES)
            else:
                with open(source, "rb") as file:
                    data = file.read()
            files.ParseFromString(data)
        except (OSError, ValueError, RuntimeError, DecodeError):
            raise ValueError(
                "Source does not represent serialized file descriptor set proto."
            ) from None
        pool = descriptor_pool.DescriptorPool()
        try:
            for entry in files.file:
                pool.AddSerializedFile(entry.SerializeToString())
        except (TypeError, KeyError) as error:
            raise ValueError(f"Failed to build the types of the source: {error}") from None
    try:
        return pool.FindMessageTypeByName(name)
    except KeyError:
        raise ValueError(f"No descriptor found for message type {name}") from None


def _own_name(name: str) -> str:
    """Return what we call a message of TensorFlow, and see that its type is known. A message that
    the program brings keeps its name.
    """
    from google.protobuf import descriptor_pool

    from headrace._src.core import proto

    package, _, rest = name.partition(".")
    if package != "tensorflow" or rest.split(".")[0] not in dir(proto):
        return name
    try:
        descriptor_pool.Default().FindMessageTypeByName(name)
    except KeyError:
        getattr(proto, rest.split(".")[0])  # which imports its module
        return f"headrace.{rest}"
    return name


def _field(message: Any, name: str) -> Any:
    found = message.fields_by_name.get(name)
    if found is None:  # extensions go by their full name
        try:
            found = message.file.pool.FindExtensionByName(name)
        except KeyError:
            found = None
        if found is None or found.containing_type is not message:
            raise ValueError(f"Unknown field: {name} in message type {message.full_name}")
    return found


def _wire_field(field: Any) -> WireField:
    repeated = field.is_repeated
    return WireField(field.number, _KINDS[field.type - 1], repeated, repeated and field.is_packed)


def _default(field: Any, dtype: DType) -> Any:
    if dtype is dtypes.string:
        value = field.default_value
        if field.is_repeated or value is None or not isinstance(value, str | bytes):
            return b""
        return value.encode() if isinstance(value, str) else value
    return 0 if field.is_repeated else field.default_value


# -- Decoding


def _decode_kernel(
    bytes, *, message_type, field_names, output_types, descriptor_source, message_format, sanitize
):
    texts = string_array(bytes)
    message = _message(attr_bytes(message_type).decode(), attr_bytes(descriptor_source))
    names = [attr_bytes(n).decode() for n in field_names]
    kind = attr_bytes(message_format)
    if len(names) != len(output_types):
        raise ValueError("field_names and output_types attributes must have the same length")
    if kind not in (b"binary", b"text"):
        raise ValueError("format must be one of binary or text")
    fields = [_field(message, name) for name in names]
    types = [as_dtype(t) for t in output_types]
    for field, dtype in zip(fields, types, strict=True):
        if dtype not in _TYPES[_KINDS[field.type - 1]]:
            raise ValueError(
                f"Unexpected output type for {field.full_name}: {_KINDS[field.type - 1]} to "
                f"{dtype.name}"
            )
    contents = texts.ravel().tolist()
    if kind == b"text" or sanitize:
        contents = [_rewritten(message, text, kind) for text in contents]
    rows = [_field_values(text, fields) for text in contents]
    sizes = [[len(values) for values in row] for row in rows]
    results: list[Any] = [np.array(sizes, np.int32).reshape(*texts.shape, len(fields))]
    for i, (field, dtype) in enumerate(zip(fields, types, strict=True)):
        columns = [row[i] for row in rows]
        results.append(_padded(columns, field, dtype).reshape(*texts.shape, -1))
    return tuple(results)


def _padded(columns: list[list[Any]], field: Any, dtype: DType) -> np.ndarray:
    """Return values as rows, filled up with the field's default."""
    width = max(1, *map(len, columns), 1)
    fill = _default(field, dtype)
    if dtype is dtypes.string:
        flat = [v for values in columns for v in values + [fill] * (width - len(values))]
        return of_strings(flat, (len(columns), width))
    check_room((len(columns), width), dtype.as_numpy_dtype, "the longest of the fields")
    result = np.full((len(columns), width), fill, dtype.as_numpy_dtype)
    for row, values in zip(result, columns, strict=True):
        row[: len(values)] = values
    return result


def _field_values(text: bytes, fields: list[Any]) -> list[list[Any]]:
    """Return the values of some fields of a serialised message; the last one of a field that isn't
    repeated.
    """
    found: dict[int, list[Any]] = {field.number: [] for field in fields}
    wires = {field.number: _wire_field(field) for field in fields}
    try:
        for number, wire, piece in proto_wire.fields_of(text):
            if number in found:
                values = proto_wire.values_of(wires[number], wire, piece)
                if wires[number].repeated:
                    found[number] += values
                else:
                    found[number] = values
    except proto_wire.DamagedMessage as error:
        raise DataLossError(None, None, f"Unable to parse binary protobuf: {error}") from None
    return [found[field.number] for field in fields]


def _rewritten(message: Any, text: bytes, kind: bytes) -> bytes:
    """Return a message as protobuf writes it."""
    from google.protobuf import message_factory, text_format
    from google.protobuf.message import DecodeError

    made = message_factory.GetMessageClass(message)()
    try:
        if kind == b"text":
            text_format.Parse(text, made)
        else:
            made.ParseFromString(text)
    except (DecodeError, text_format.ParseError, RuntimeError, UnicodeDecodeError) as error:
        raise DataLossError(
            None, None, f"Unable to parse {kind.decode()} protobuf: {error}"
        ) from None
    return made.SerializePartialToString()


def _decode_infer(c: Any, texts: Any) -> Any:
    count = len(c.attrs["output_types"])
    if texts.sizes is None:
        return [None] * (count + 1)
    return [(*texts.sizes, count), *[(*texts.sizes, None)] * count]


_POINT = "google.protobuf.FieldDescriptorProto"


@define(
    "DecodeProtoV2",
    "bytes: string -> sizes: int32, values: *output_types",
    "message_type: string; field_names: list(string); output_types: list(type) >= 0; "
    "descriptor_source: string = 'local://'; message_format: string = 'binary'; "
    "sanitize: bool = False",
    infer=_decode_infer,
    kernel=_decode_kernel,
    gradient=NOT_DIFFERENTIABLE,
    samples=[
        Sample(
            [[b"\n\x01x\x18\x03"], [b""]],
            message_type=_POINT,
            field_names=["name", "number"],
            output_types=["string", "int32"],
        ),
        Sample(
            'name: "x"',
            message_type=_POINT,
            field_names=["name"],
            output_types=["string"],
            message_format="text",
        ),
        Sample(b"", message_type=_POINT, field_names=[], output_types=[], sanitize=True),
    ],
)
def decode_proto_v2(
    bytes,
    message_type,
    field_names,
    output_types,
    descriptor_source="local://",
    message_format="binary",
    sanitize=False,
    name=None,
):
    """Return how many values each field has in each message, and the values."""


_DecodeProto = namedtuple("DecodeProtoV2", ["sizes", "values"])


@composed
@export("io.decode_proto")
def decode_proto(
    bytes: Any,
    message_type: str,
    field_names: Any,
    output_types: Any,
    descriptor_source: str = "local://",
    message_format: str = "binary",
    sanitize: bool = False,
    name: str | None = None,
) -> _DecodeProto:
    """Return (sizes, values) of fields of serialised messages.

    sizes is int32[..., fields]: how many values each message has. values has a tensor
    [..., most values] for each field; where a message has fewer values, the field's default.

    output_types: of each field. Messages within messages are strings. descriptor_source: where the
    message type is described: "local://" (messages of TensorFlow, and what the program imported), a
    file with a serialised FileDescriptorSet, or "bytes://" and the set itself. message_format:
    "binary" or "text". sanitize: parse and write each message before its fields are read.
    """
    sizes, values = decode_proto_v2(
        bytes,
        message_type,
        field_names,
        output_types,
        descriptor_source,
        message_format,
        sanitize,
        name=name,
    )
    return _DecodeProto(sizes, values)


# -- Encoding


def _encode_kernel(sizes, values, *, field_names, message_type, descriptor_source):
    message = _message(attr_bytes(message_type).decode(), attr_bytes(descriptor_source))
    names = [attr_bytes(n).decode() for n in field_names]
    fields = [_field(message, name) for name in names]
    if len(values) != len(fields):
        raise ValueError(f"{len(fields)} field_names, but {len(values)} values")
    batch = np.shape(values[0])[:-1]
    if np.shape(sizes) != (*batch, len(fields)):
        raise ValueError(
            "sizes should be batch_size + [len(field_names)].  Saw: "
            f"{show_shape(np.shape(sizes))} but expected: {show_shape((*batch, len(fields)))}"
        )
    for name, field, value in zip(names, fields, values, strict=True):
        kind = _KINDS[field.type - 1]
        if np.shape(value)[:-1] != batch or np.ndim(value) == 0:
            raise ValueError(
                "Values must match up to the last dimension. Saw: "
                f"{show_shape(np.shape(value))} but expected: {show_shape(batch)}"
            )
        if _dtype_of(value) not in _TYPES[kind]:
            raise ValueError(
                f"Incompatible type for field {name}.  Saw dtype: {_dtype_of(value).name} but "
                f"field type is: {kind}"
            )
    counts = np.reshape(sizes, (-1, len(fields)))
    for i, value in enumerate(values):
        limit = np.shape(value)[-1]
        for row in np.flatnonzero((counts[:, i] > limit) | (counts[:, i] < 0)).tolist()[:1]:
            raise ValueError(
                f"Size to write must not be larger than value tensor; but saw: {counts[row, i]} "
                f"> {limit} at message {row} field {i}"
            )
    order = sorted(range(len(fields)), key=lambda i: fields[i].number)
    wires = [_wire_field(field) for field in fields]
    flat = [np.reshape(value, (len(counts), -1)).tolist() for value in values]
    texts = [
        b"".join(proto_wire.encoded(wires[i], flat[i][row][: counts[row, i]]) for i in order)
        for row in range(len(counts))
    ]
    return of_strings(texts, batch)


def _dtype_of(value: Any) -> DType:
    return dtypes.string if value.dtype == object else as_dtype(value.dtype)


def _encode_infer(c: Any, sizes: Any, values: Any) -> Any:
    infer.with_rank_at_least(sizes, 1)
    batch: Any = None
    for shape in values:
        infer.with_rank_at_least(shape, 2 if sizes.sizes is None else max(1, len(sizes.sizes)))
        if shape.sizes is not None:
            found = shape[:-1]
            batch = found if batch is None else batch.merge_with(found)
    return batch


@define(
    "EncodeProto",
    "sizes: int32, values: *Tinput_types -> bytes: string",
    "field_names: list(string); message_type: string; descriptor_source: string = 'local://'; "
    "Tinput_types: list(type) >= 1",
    infer=_encode_infer,
    kernel=_encode_kernel,
    samples=[
        Sample(
            [[1, 1], [0, 1]],
            [[["x"], ["y"]], [[3], [0]]],
            field_names=["name", "number"],
            message_type=_POINT,
            Tinput_types=["string", "int32"],
        ),
    ],
)
def encode_proto_op(
    sizes, values, field_names, message_type, descriptor_source="local://", name=None
):
    """Return serialised messages."""


@composed
@export("io.encode_proto")
def encode_proto(
    sizes: Any,
    values: Any,
    field_names: Any,
    message_type: str,
    descriptor_source: str = "local://",
    name: str | None = None,
) -> Tensor:
    """Return serialised messages, from what decode_proto gives: sizes int32[..., fields] says how
    many of the values [..., n] of each field belong to a message.
    """
    return encode_proto_op(sizes, values, field_names, message_type, descriptor_source, name=name)
