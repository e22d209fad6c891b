"""Readers: tf.TextLineReader and the other reader classes. In: a queue of file names. Out: the
files' records, as keys and values. The state is in devices/readers.

A key locates a record: the file's name and, unless the file is one record, the number of the line
or record, or its offset in bytes.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from headrace._src.core import dtypes
from headrace._src.core.errors import InvalidArgumentError, OutOfRangeError
from headrace._src.core.export import export
from headrace._src.core.file_errors import file_errors
from headrace._src.core.gfile import local_path
from headrace._src.core.records import TFRecordOptions, decompressed, tf_record_iterator
from headrace._src.devices.queues import Queue
from headrace._src.devices.readers import Reader, Record
from headrace._src.graph.definition import NOT_DIFFERENTIABLE, Effect, Sample
from headrace._src.graph.operation import Operation, Tensor
from headrace._src.ops.base import infer
from headrace._src.ops.base.define import b, define
from headrace._src.ops.state.shared_state import (
    define_pair,
    find_state,
    on,
    reference_infer,
    state_behind,
)
from headrace._src.ops.strings.string_arrays import of_strings, string_scalar

__all__ = [
    "FixedLengthRecordReader",
    "IdentityReader",
    "ReaderBase",
    "TFRecordReader",
    "TextLineReader",
    "WholeFileReader",
]

_FRAME = 16  # bytes of a TFRecord besides its data


# -- Records of a file -----------------------------------------------------------------------------


def _key(file: str, place: int) -> bytes:
    return f"{file}:{place}".encode(errors="surrogateescape")


def _lines(skipped: int, file: str) -> Iterator[Record]:
    with file_errors(file), open(local_path(file), "rb") as source:
        for number, line in enumerate(source, 1):
            if number > skipped:
                yield _key(file, number), line.removesuffix(b"\n").replace(b"\r", b"")


def _tf_records(compression: str, file: str) -> Iterator[Record]:
    place = 0
    for data in tf_record_iterator(local_path(file), compression):
        yield _key(file, place), data
        place += len(data) + _FRAME


def _pieces(
    header: int, size: int, footer: int, hop: int, compression: str, file: str
) -> Iterator[Record]:
    with file_errors(file), open(local_path(file), "rb") as opened:
        source = io.BytesIO(decompressed(opened, compression)) if compression else opened
        end = source.seek(0, io.SEEK_END) - footer
        if end < header:
            raise OutOfRangeError(None, None, "reached end of file")
        for number, place in enumerate(range(header, end - size + 1, hop or size)):
            source.seek(place)
            yield _key(file, number), source.read(size)


def _whole(file: str) -> Iterator[Record]:
    with file_errors(file), open(local_path(file), "rb") as source:
        yield file.encode(errors="surrogateescape"), source.read()


def _name_itself(file: str) -> Iterator[Record]:
    name = file.encode(errors="surrogateescape")
    yield name, name


# -- Ops that create readers -----------------------------------------------------------------------

_PLACE = "container: string = ''; shared_name: string = ''"


def _make(
    ctx: Any,
    place: tuple[str, str],
    records: Callable[[str], Iterator[Record]],
    is_whole: bool = False,
) -> Any:
    kind = ctx.op.type.removesuffix("V2")
    return find_state(
        ctx, Reader, place, lambda _: Reader(ctx.name, kind, records, is_whole=is_whole)
    )[0]


def _lines_kernel(*, ctx, skip_header_lines, container, shared_name):
    if skip_header_lines < 0:
        raise InvalidArgumentError(
            None, None, f"skip_header_lines must be >= 0 not {skip_header_lines}"
        )
    return _make(ctx, (container, shared_name), partial(_lines, skip_header_lines))


def _tf_records_kernel(*, ctx, compression_type, container, shared_name):
    kind = TFRecordOptions.get_compression_type_string(_text(compression_type))
    return _make(ctx, (container, shared_name), partial(_tf_records, kind))


def _pieces_kernel(
    *, ctx, header_bytes, record_bytes, footer_bytes, hop_bytes, encoding, container, shared_name
):
    sizes = {
        "header_bytes": header_bytes,
        "record_bytes": record_bytes,
        "footer_bytes": footer_bytes,
        "hop_bytes": hop_bytes,
    }
    for name, size in sizes.items():
        if size < 0:
            raise InvalidArgumentError(None, None, f"{name} must be >= 0 not {size}")
    if not record_bytes:
        raise InvalidArgumentError(
            None, None, "record_bytes must be > 0: a file would have endlessly many empty records"
        )
    if (kind := _text(encoding)) not in ("", "ZLIB", "GZIP"):
        raise InvalidArgumentError(None, None, f"encoding must be ZLIB, GZIP or empty, not {kind}")
    return _make(ctx, (container, shared_name), partial(_pieces, *sizes.values(), kind))


def _plain_pieces_kernel(
    *, ctx, header_bytes, record_bytes, footer_bytes, hop_bytes, container, shared_name
):
    return _pieces_kernel(
        ctx=ctx,
        header_bytes=header_bytes,
        record_bytes=record_bytes,
        footer_bytes=footer_bytes,
        hop_bytes=hop_bytes,
        encoding="",
        container=container,
        shared_name=shared_name,
    )


def _text(attribute: str | bytes) -> str:
    return attribute.decode() if isinstance(attribute, bytes) else attribute


def _whole_kernel(*, ctx, container, shared_name):
    return _make(ctx, (container, shared_name), _whole, is_whole=True)


def _name_kernel(*, ctx, container, shared_name):
    return _make(ctx, (container, shared_name), _name_itself, is_whole=True)


def _define_reader(op_type: str, newer: str, attributes: str, kernel: Callable[..., Any]) -> Any:
    return define_pair(
        op_type,
        newer,
        "-> reader_handle: resource",
        attributes,
        infer=infer.scalar,
        kernel=kernel,
        effect=Effect.READS,
        samples=[Sample()],
    )


@_define_reader(
    "TextLineReader", "TextLineReaderV2", f"skip_header_lines: int = 0; {_PLACE}", _lines_kernel
)
def text_line_reader(skip_header_lines=0, container="", shared_name="", name=None):
    """Return a reader of lines."""


@_define_reader(
    "TFRecordReader",
    "TFRecordReaderV2",
    f"{_PLACE}; compression_type: string = ''",
    _tf_records_kernel,
)
def tf_record_reader(container="", shared_name="", compression_type="", name=None):
    """Return a reader of TFRecords."""


@_define_reader("WholeFileReader", "WholeFileReaderV2", _PLACE, _whole_kernel)
def whole_file_reader(container="", shared_name="", name=None):
    """Return a reader whose records are whole files."""


@_define_reader("IdentityReader", "IdentityReaderV2", _PLACE, _name_kernel)
def identity_reader(container="", shared_name="", name=None):
    """Return a reader whose records are the file names themselves."""


_SIZES = "header_bytes: int = 0; record_bytes: int; footer_bytes: int = 0; hop_bytes: int = 0"


@define(
    "FixedLengthRecordReaderV2",
    "-> reader_handle: resource",
    f"{_SIZES}; {_PLACE}; encoding: string = ''",
    infer=infer.scalar,
    kernel=_pieces_kernel,
    effect=Effect.READS,
    samples=[Sample(record_bytes=3)],
)
def fixed_length_record_reader(
    record_bytes,
    header_bytes=0,
    footer_bytes=0,
    hop_bytes=0,
    container="",
    shared_name="",
    encoding="",
    name=None,
):
    """Return a reader of fixed-length records."""


@define(
    "FixedLengthRecordReader",
    "-> reader_handle: Ref(string)",
    f"{_SIZES}; {_PLACE}",
    infer=reference_infer,
    kernel=_plain_pieces_kernel,
    gradient=NOT_DIFFERENTIABLE,
    effect=Effect.READS,
    samples=[Sample(record_bytes=3)],
)
def fixed_length_record_reader_ref(
    record_bytes,
    header_bytes=0,
    footer_bytes=0,
    hop_bytes=0,
    container="",
    shared_name="",
    name=None,
):
    """Return a reader of fixed-length records, in the form of older graphs."""


# -- Ops that use readers --------------------------------------------------------------------------


def _file_names(ctx: Any, handle: Any) -> Queue:
    queue = state_behind(ctx, handle, Queue)
    if len(queue.types) != 1:
        raise InvalidArgumentError(None, None, "Expected single component queue")
    if queue.types[0] is not dtypes.string:
        raise InvalidArgumentError(None, None, "Expected queue with single string component")
    return queue


def _one(records: list[Record]) -> tuple[np.ndarray, ...]:
    return tuple(of_strings([text], ()) for text in records[0])


def _several(records: list[Record]) -> tuple[np.ndarray, ...]:
    return tuple(of_strings([r[i] for r in records], (len(records),)) for i in range(2))


def _read_kernel(reader, queue_handle, *, ctx):
    return reader.read(_file_names(ctx, queue_handle), 1, _one)


def _read_up_to_kernel(reader, queue_handle, num_records, *, ctx):
    count = int(np.reshape(num_records, ()))
    if count < 0:
        raise InvalidArgumentError(None, None, f"num_records must be >= 0, but is {count}")
    return reader.read(_file_names(ctx, queue_handle), count, _several)


def _read_up_to_infer(c: Any, reader: Any, queue: Any, num_records: Any) -> list[Any]:
    infer.with_rank(num_records, 0)
    return [(None,), (None,)]


@define_pair(
    "ReaderRead",
    "ReaderReadV2",
    "reader_handle: resource, queue_handle: resource -> key: string, value: string",
    infer=lambda c, *handles: [(), ()],
    kernel=on(Reader, _read_kernel),
)
def reader_read(reader_handle, queue_handle, name=None):
    """Return the next record of a reader, with its key."""


@define_pair(
    "ReaderReadUpTo",
    "ReaderReadUpToV2",
    "reader_handle: resource, queue_handle: resource, num_records: int64 -> "
    "keys: string, values: string",
    infer=_read_up_to_infer,
    kernel=on(Reader, _read_up_to_kernel),
)
def reader_read_up_to(reader_handle, queue_handle, num_records, name=None):
    """Return up to `num_records` records of a reader, with their keys."""


@define_pair(
    "ReaderNumRecordsProduced",
    "ReaderNumRecordsProducedV2",
    "reader_handle: resource -> records_produced: int64",
    infer=infer.scalar,
    kernel=on(Reader, lambda reader: np.int64(reader.produced)),
)
def reader_num_records_produced(reader_handle, name=None):
    """Return the number of records that a reader has produced."""


@define_pair(
    "ReaderNumWorkUnitsCompleted",
    "ReaderNumWorkUnitsCompletedV2",
    "reader_handle: resource -> units_completed: int64",
    infer=infer.scalar,
    kernel=on(Reader, lambda reader: np.int64(reader.finished)),
)
def reader_num_work_units_completed(reader_handle, name=None):
    """Return the number of files that a reader has finished."""


@define_pair(
    "ReaderSerializeState",
    "ReaderSerializeStateV2",
    "reader_handle: resource -> state: string",
    infer=infer.scalar,
    kernel=on(Reader, lambda reader: of_strings([reader.serialize()], ())),
)
def reader_serialize_state(reader_handle, name=None):
    """Return a reader's state."""


def _restore_infer(c: Any, reader: Any, state: Any) -> None:
    infer.with_rank(state, 0)


@define_pair(
    "ReaderRestoreState",
    "ReaderRestoreStateV2",
    "reader_handle: resource, state: string ->",
    infer=_restore_infer,
    kernel=on(Reader, lambda reader, state: reader.restore(string_scalar(state, "state"))),
)
def reader_restore_state(reader_handle, state, name=None):
    """Restore a reader's state."""


@define_pair(
    "ReaderReset",
    "ReaderResetV2",
    "reader_handle: resource ->",
    infer=infer.no_outputs,
    kernel=on(Reader, lambda reader: reader.reset()),
)
def reader_reset(reader_handle, name=None):
    """Reset a reader to its initial state."""


# -- Public classes --------------------------------------------------------------------------------


@export("ReaderBase")
class ReaderBase:
    """A reader of files whose names come from a queue. Its methods build operations.

    reader_ref: the handle. supports_serialize: whether it has a state to save.
    """

    def __init__(self, reader_ref: Tensor, supports_serialize: bool = False) -> None:
        self._reader_ref = reader_ref
        self._supports_serialize = supports_serialize

    @property
    def reader_ref(self) -> Tensor:
        return self._reader_ref

    @property
    def supports_serialize(self) -> bool:
        return self._supports_serialize

    def _build(self, builder: str, *inputs: Any, name: str | None) -> Any:
        is_resource = self._reader_ref.dtype.base_dtype is dtypes.resource
        return getattr(b, builder if is_resource else f"{builder}_ref")(
            self._reader_ref, *inputs, name=name
        )

    def read(self, queue: Any, name: str | None = None) -> Any:
        """Return (key, value) of the next record. At the end of a file, dequeue the next name from
        `queue`, a queue or its handle.
        """
        return self._build("reader_read", _handle(queue), name=name)

    def read_up_to(self, queue: Any, num_records: Any, name: str | None = None) -> Any:
        """Return (keys, values) of up to `num_records` records, fewer at the end of a file."""
        return self._build("reader_read_up_to", _handle(queue), num_records, name=name)

    def num_records_produced(self, name: str | None = None) -> Tensor:
        """Return the number of records produced."""
        return self._build("reader_num_records_produced", name=name)

    def num_work_units_completed(self, name: str | None = None) -> Tensor:
        """Return the number of files finished."""
        return self._build("reader_num_work_units_completed", name=name)

    def serialize_state(self, name: str | None = None) -> Tensor:
        """Return the reader's state as a string, if it `supports_serialize`."""
        return self._build("reader_serialize_state", name=name)

    def restore_state(self, state: Any, name: str | None = None) -> Operation:
        """Restore a state that `serialize_state` returned."""
        return self._build("reader_restore_state", state, name=name)

    def reset(self, name: str | None = None) -> Operation:
        """Reset the reader to its initial state; it continues with a new file."""
        return self._build("reader_reset", name=name)


def _handle(queue: Any) -> Tensor:
    return queue if isinstance(queue, Tensor) else queue.queue_ref


@export("WholeFileReader")
class WholeFileReader(ReaderBase):
    """A reader whose records are files: the key is a file's name, the value its contents."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__(whole_file_reader(name=name), supports_serialize=True)


@export("TextLineReader")
class TextLineReader(ReaderBase):
    """A reader of lines, without their line ends.

    skip_header_lines: the number of lines to skip at the beginning of each file.
    """

    def __init__(self, skip_header_lines: int | None = None, name: str | None = None) -> None:
        super().__init__(text_line_reader(skip_header_lines=skip_header_lines or 0, name=name))


@export("FixedLengthRecordReader")
class FixedLengthRecordReader(ReaderBase):
    """A reader of records of `record_bytes` bytes.

    header_bytes, footer_bytes: bytes to skip at the beginning and the end of a file. hop_bytes: the
    distance between the starts of records; None or 0 means record_bytes. encoding: "ZLIB" or "GZIP"
    for compressed files.
    """

    def __init__(
        self,
        record_bytes: int,
        header_bytes: int | None = None,
        footer_bytes: int | None = None,
        hop_bytes: int | None = None,
        name: str | None = None,
        encoding: str | None = None,
    ) -> None:
        made = fixed_length_record_reader(
            record_bytes=record_bytes,
            header_bytes=header_bytes or 0,
            footer_bytes=footer_bytes or 0,
            hop_bytes=hop_bytes or 0,
            encoding=encoding or "",
            name=name,
        )
        super().__init__(made)


@export("TFRecordReader")
class TFRecordReader(ReaderBase):
    """A reader of TFRecords; `options` are TFRecordOptions, for compressed files."""

    def __init__(self, name: str | None = None, options: Any = None) -> None:
        kind = TFRecordOptions.get_compression_type_string(options)
        super().__init__(tf_record_reader(compression_type=kind, name=name))


@export("IdentityReader")
class IdentityReader(ReaderBase):
    """A reader whose records are the file names themselves, as both key and value."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__(identity_reader(name=name), supports_serialize=True)
