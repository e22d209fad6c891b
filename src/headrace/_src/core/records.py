"""Files of records, TensorFlow's TFRecords. In: strings of bytes. Out: a file of them, and back.

A record consists of its length (8 bytes), a checksum of the length, its data, and a checksum of the
data; all numbers are little-endian. A file holds records only, plain or as one compressed stream. A
reader yields a record only if its checksums match; otherwise it raises a DataLossError that names
the offset. This includes a partial record at the end of a file, where TensorFlow stops silently if
even the length is incomplete.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator
from typing import Any, BinaryIO, ClassVar

from headrace._src.core.checksum import masked
from headrace._src.core.errors import DataLossError, FailedPreconditionError
from headrace._src.core.export import export
from headrace._src.core.file_errors import file_errors

__all__ = [
    "TFRecordCompressionType",
    "TFRecordOptions",
    "TFRecordWriter",
    "decompressed",
    "frame",
    "tf_record_iterator",
]

_LENGTH = struct.Struct("<Q")
_CHECKSUM = struct.Struct("<I")
_HEADER = _LENGTH.size + _CHECKSUM.size
_BLOCK = 1 << 18  # bytes per read; a length from a file never makes us allocate more at once


def frame(data: bytes) -> bytes:
    """Return a record as it is stored in a file."""
    length = _LENGTH.pack(len(data))
    return b"".join((length, _CHECKSUM.pack(masked(length)), data, _CHECKSUM.pack(masked(data))))


# -- Options ---------------------------------------------------------------------------------------


@export("io.TFRecordCompressionType", "python_io.TFRecordCompressionType")
class TFRecordCompressionType:
    """How a file of records is compressed."""

    NONE = 0
    ZLIB = 1
    GZIP = 2


# zlib's windows: 15 bits with its own header, 16 more with gzip's.
_WINDOW = {"ZLIB": 15, "GZIP": 31}


@export("io.TFRecordOptions", "python_io.TFRecordOptions")
class TFRecordOptions:
    """How a file of records is written, and how it's to be read.

    compression_type: "GZIP", "ZLIB", "" or a TFRecordCompressionType. The other options are zlib's
    and apply only to writing a compressed file; None means zlib's default. input_buffer_size: how
    many bytes are collected before they're compressed. output_buffer_size: how many compressed
    bytes are collected before they're written.
    """

    compression_type_map: ClassVar[dict[int, str]] = {
        TFRecordCompressionType.ZLIB: "ZLIB",
        TFRecordCompressionType.GZIP: "GZIP",
        TFRecordCompressionType.NONE: "",
    }

    def __init__(
        self,
        compression_type: Any = None,
        flush_mode: int | None = None,
        input_buffer_size: int | None = None,
        output_buffer_size: int | None = None,
        window_bits: int | None = None,
        compression_level: int | None = None,
        compression_method: int | None = None,
        mem_level: int | None = None,
        compression_strategy: int | None = None,
    ) -> None:
        self.get_compression_type_string(compression_type)
        self.compression_type = compression_type
        self.flush_mode = flush_mode
        self.input_buffer_size = input_buffer_size
        self.output_buffer_size = output_buffer_size
        self.window_bits = window_bits
        self.compression_level = compression_level
        self.compression_method = compression_method
        self.mem_level = mem_level
        self.compression_strategy = compression_strategy

    @classmethod
    def get_compression_type_string(cls, options: Any) -> str:
        """Return "GZIP", "ZLIB" or "" for options, a compression type, or such a string."""
        if not options:
            return ""
        if isinstance(options, TFRecordOptions):
            return cls.get_compression_type_string(options.compression_type)
        if options in cls.compression_type_map:
            return cls.compression_type_map[options]
        if options in cls.compression_type_map.values():
            return options
        raise ValueError(f'Not a valid compression_type: "{options}"')


# -- Writing ---------------------------------------------------------------------------------------


class _Compressor:
    """A file that compresses the bytes written to it. State: the bytes to compress next."""

    def __init__(self, file: BinaryIO, kind: str, options: TFRecordOptions) -> None:
        self._file = file
        self._mode = zlib.Z_NO_FLUSH if options.flush_mode is None else options.flush_mode
        self._room = 1 if options.input_buffer_size is None else options.input_buffer_size
        self._waiting = bytearray()
        chosen = {
            "level": options.compression_level,
            "method": options.compression_method,
            "wbits": _WINDOW[kind] if options.window_bits is None else options.window_bits,
            "memLevel": options.mem_level,
            "strategy": options.compression_strategy,
        }
        given = {name: value for name, value in chosen.items() if value is not None}
        self._stream = zlib.compressobj(**given)

    def write(self, data: bytes) -> None:
        self._waiting += data
        if len(self._waiting) >= self._room:
            self._compress()
            if self._mode != zlib.Z_NO_FLUSH:
                self._file.write(self._stream.flush(self._mode))

    def _compress(self) -> None:
        self._file.write(self._stream.compress(self._waiting))
        self._waiting.clear()

    def flush(self) -> None:
        self._compress()
        self._file.write(self._stream.flush(zlib.Z_SYNC_FLUSH))
        self._file.flush()

    def close(self) -> None:
        try:
            self._compress()
            self._file.write(self._stream.flush(zlib.Z_FINISH))
        finally:
            self._file.close()


@export("io.TFRecordWriter", "python_io.TFRecordWriter")
class TFRecordWriter:
    """Writes records to a new file; `with` closes it."""

    def __init__(self, path: str | os.PathLike[str], options: Any = None) -> None:
        if not isinstance(options, TFRecordOptions):
            options = TFRecordOptions(compression_type=options)
        kind = TFRecordOptions.get_compression_type_string(options)
        self._path = os.fspath(path)
        buffer = options.output_buffer_size if kind else None
        if buffer is not None and buffer < 1:
            raise ValueError(f"output_buffer_size must be positive: {buffer}")
        with file_errors(self._path):
            file = open(self._path, "wb", -1 if buffer is None else buffer + 1)  # noqa: SIM115
        try:
            self._file: Any = _Compressor(file, kind, options) if kind else file
        except (ValueError, zlib.error) as error:
            file.close()
            raise ValueError(f"zlib refuses these TFRecordOptions: {error}") from error

    def __enter__(self) -> TFRecordWriter:
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_file", None) is not None:  # opening may have failed
            self.close()

    def _open(self) -> Any:
        if self._file is None:
            raise FailedPreconditionError(None, None, "Writer not initialized or previously closed")
        return self._file

    def write(self, record: bytes) -> None:
        """Append a record."""
        if not isinstance(record, bytes):
            raise TypeError(f"expected bytes, {type(record).__name__} found")
        file = self._open()
        with file_errors(self._path):
            file.write(frame(record))

    def flush(self) -> None:
        """Hand all records so far to the system, so that readers see them."""
        file = self._open()
        with file_errors(self._path):
            file.flush()

    def close(self) -> None:
        """Write buffered records and close the file; do nothing if it is closed."""
        file, self._file = self._file, None
        if file is not None:
            with file_errors(self._path):
                file.close()


# -- Reading ---------------------------------------------------------------------------------------


class _Plain:
    """The bytes of a file."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.is_whole = True

    def block(self, size: int) -> bytes:
        """Return up to `size` more bytes; no bytes only at the end."""
        return self._file.read(size)


class _Decompressed:
    """The bytes of a compressed file, which may consist of several concatenated streams.

    is_whole: whether every stream that was begun has ended.
    """

    def __init__(self, file: BinaryIO, kind: str) -> None:
        self._file = file
        self._window = _WINDOW[kind]
        self._stream = zlib.decompressobj(self._window)
        self._input = b""
        self.is_whole = True

    def block(self, size: int) -> bytes:
        while True:
            if not self._input:
                self._input = self._file.read(_BLOCK)
            ended = not self._input
            if self._stream.eof:
                if ended:
                    return b""
                self._stream = zlib.decompressobj(self._window)
            try:
                found = self._stream.decompress(self._input, size)
            except zlib.error as error:
                raise DataLossError(None, None, f"inflate() failed: {error}") from None
            self._input = self._stream.unconsumed_tail or self._stream.unused_data
            self.is_whole = self._stream.eof or (ended and self.is_whole)
            if found or ended:
                return found


def decompressed(file: BinaryIO, kind: str) -> bytes:
    """All bytes of a file that is compressed as "GZIP" or "ZLIB"."""
    source = _Decompressed(file, kind)
    found = b"".join(iter(lambda: source.block(_BLOCK), b""))
    if not source.is_whole:
        raise DataLossError(None, None, "the compressed file is cut off")
    return found


def _read(source: Any, size: int) -> bytes:
    """Return the next `size` bytes, fewer at the end of the file."""
    first = source.block(min(size, _BLOCK)) if size else b""
    if len(first) == size:
        return first
    parts, found = [first], len(first)
    while found < size and parts[-1]:
        parts.append(source.block(min(size - found, _BLOCK)))
        found += len(parts[-1])
    return b"".join(parts)


def _loss(what: str, offset: int) -> DataLossError:
    return DataLossError(None, None, f"{what} record at {offset}")


def _records(source: Any) -> Iterator[bytes]:
    offset = 0
    while header := _read(source, _HEADER):
        if len(header) < _HEADER:
            raise _loss("truncated", offset)
        length = header[: _LENGTH.size]
        if _CHECKSUM.unpack_from(header, _LENGTH.size)[0] != masked(length):
            raise _loss("corrupted", offset)
        size = _LENGTH.unpack(length)[0]
        body = _read(source, size + _CHECKSUM.size)
        if len(body) < size + _CHECKSUM.size:
            raise _loss("truncated", offset)
        data = body[:size]
        if _CHECKSUM.unpack_from(body, size)[0] != masked(data):
            raise _loss("corrupted", offset + _HEADER)
        yield data
        offset += _HEADER + size + _CHECKSUM.size
    if not source.is_whole:
        raise _loss("truncated", offset)


@export("io.tf_record_iterator", "python_io.tf_record_iterator")
def tf_record_iterator(path: str | os.PathLike[str], options: Any = None) -> Iterator[bytes]:
    """Yield the records of a file; raise DataLossError at a damaged or truncated one."""
    kind = TFRecordOptions.get_compression_type_string(options)
    with file_errors(path), open(path, "rb") as file:
        yield from _records(_Decompressed(file, kind) if kind else _Plain(file))
