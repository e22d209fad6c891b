"""tf.gfile and tf.io.gfile: files by TensorFlow's names. In: paths on this machine. Out: contents,
names, or errors of core/errors that name the path.

A path may begin with `file://`. Other schemes (`gs://`, `hdfs://`) name remote storage and raise
UnimplementedError. Names are sorted, whereas TensorFlow keeps the system's order.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import IO, Any

from headrace._src.core.errors import (
    AlreadyExistsError,
    InvalidArgumentError,
    NotFoundError,
    OpError,
    OutOfRangeError,
    PermissionDeniedError,
    UnimplementedError,
)
from headrace._src.core.export import export
from headrace._src.core.file_errors import file_errors
from headrace._src.core.versions_and_text import as_bytes

__all__ = ["FileStatistics", "GFile", "local_path", "matching_paths"]

AnyPath = str | bytes | os.PathLike[str]

_FILE = "file://"
_SCHEME = re.compile(r"([a-zA-Z][a-zA-Z0-9+.]*)://")
_MODES = {"r", "w", "a", "r+", "w+", "a+"}


def local_path(path: AnyPath) -> str:
    """Return the path that the system uses."""
    if not isinstance(path, str | bytes | os.PathLike):
        raise TypeError(f"Expected binary or unicode string, got {path!r}")
    text = os.fsdecode(path).removeprefix(_FILE)
    if scheme := _SCHEME.match(text):
        raise UnimplementedError(
            None,
            None,
            f"File system scheme '{scheme[1]}' not implemented (file: '{text}')",
            hint="Headrace reads and writes files of this machine: mount the storage, or copy them",
        )
    return text


# -- Files -----------------------------------------------------------------------------------------


@export("gfile.GFile", "gfile.FastGFile", "gfile.Open", "io.gfile.GFile")
class GFile:
    """A file that is opened by the first read or write, and again by one that follows `close`.

    mode: `r`, `w`, `a`, each with `+` for both ways and `b` for bytes instead of text. Text is
    UTF-8. State: a handle for reading and one for writing, each opened when it is first needed.
    """

    def __init__(self, name: AnyPath, mode: str = "r") -> None:
        self._name = name
        self._mode = mode
        plain = mode.replace("b", "")
        if plain not in _MODES:
            raise InvalidArgumentError(
                None, None, "mode is not 'r' or 'w' or 'a' or 'r+' or 'w+' or 'a+'"
            )
        self._path = local_path(name)
        self._is_binary = "b" in mode
        self._may_read = plain not in ("w", "a")
        self._may_write = plain != "r"
        self._how_to_write = "ab" if plain.startswith("a") else "wb"
        self._reading: IO[bytes] | None = None
        self._writing: IO[bytes] | None = None

    @property
    def name(self) -> AnyPath:
        return self._name

    @property
    def mode(self) -> str:
        return self._mode

    def _reader(self) -> IO[bytes]:
        if self._reading is None:
            if not self._may_read:
                raise PermissionDeniedError(None, None, "File isn't open for reading")
            with file_errors(self._path):
                self._reading = open(self._path, "rb")  # noqa: SIM115
        return self._reading

    def _writer(self) -> IO[bytes]:
        if self._writing is None:
            if not self._may_write:
                raise PermissionDeniedError(None, None, "File isn't open for writing")
            with file_errors(self._path):
                self._writing = open(self._path, self._how_to_write)  # noqa: SIM115
        return self._writing

    def _given(self, data: bytes) -> Any:
        return data if self._is_binary else data.decode("utf-8")

    # -- Reading -----------------------------------------------------------------------------------

    def read(self, n: int = -1) -> Any:
        """Return the next `n` bytes, all that are left if -1: as text, unless the mode is
        binary.
        """
        file = self._reader()
        with file_errors(self._path):
            return self._given(file.read(n))

    def readline(self) -> Any:
        """Return the next line with its newline, or an empty string at the end of the file. As in
        TensorFlow, carriage returns are dropped.
        """
        file = self._reader()
        with file_errors(self._path):
            return self._given(file.readline().replace(b"\r", b""))

    def readlines(self) -> list[Any]:
        """Return the remaining lines."""
        return list(self)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.readline, b"" if self._is_binary else "")

    def __next__(self) -> Any:
        line = self.readline()
        if not line:
            raise StopIteration
        return line

    next = __next__

    def seek(self, offset: int | None = None, whence: int = 0, position: int | None = None) -> None:
        """Read from another place: `offset` from the start, from here (whence 1) or from the end
        (2). position: the older name of `offset`.
        """
        offset = offset if position is None else position
        if offset is None:
            raise TypeError("seek(): offset argument required")
        file = self._reader()
        if whence not in (0, 1, 2):
            raise InvalidArgumentError(
                None, None, f"Invalid whence argument: {whence}. Valid values are 0, 1, or 2."
            )
        size = self.size()
        target = offset + (0, file.tell(), size)[whence]
        if target < 0:
            raise InvalidArgumentError(None, None, f"Seeking to a negative position: {target}")
        file.seek(min(target, size))
        if target > size:
            raise OutOfRangeError(None, None, "reached end of file")

    def seekable(self) -> bool:
        return True

    def size(self) -> int:
        """Return how many bytes the file has."""
        return _stat(self._path).length

    def tell(self) -> int:
        """Return where the next read begins, or in a file that is written where its end is."""
        if self._reading is None and self._writing is None and self._may_read:
            self._reader()
        return (self._reading or self._writer()).tell()

    # -- Writing -----------------------------------------------------------------------------------

    def write(self, file_content: str | bytes) -> None:
        """Append to the file; in mode `w`, the first write truncates it."""
        data = as_bytes(file_content)
        file = self._writer()
        with file_errors(self._path):
            file.write(data)

    def flush(self) -> None:
        """Hand buffered writes to the system, so that readers see them."""
        if self._writing is not None:
            with file_errors(self._path):
                self._writing.flush()

    def close(self) -> None:
        """Write buffered data and close the file."""
        reading, self._reading = self._reading, None
        writing, self._writing = self._writing, None
        if reading is not None:
            reading.close()
        if writing is not None:
            with file_errors(self._path):
                writing.close()

    def __enter__(self) -> GFile:
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_reading", None) or getattr(self, "_writing", None):
            self.close()


# -- Queries ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FileStatistics:
    """The result of `stat`: size in bytes, modification time in nanoseconds since 1970, and whether
    it's a directory.
    """

    length: int
    mtime_nsec: int
    is_directory: bool


@export("io.gfile.exists")
def exists(path: AnyPath) -> bool:
    """Whether there is a file or directory."""
    try:
        return os.path.exists(local_path(path))
    except ValueError:  # a path cannot contain a zero byte
        return False


@export("io.gfile.isdir")
def isdir(path: AnyPath) -> bool:
    """Whether there is a directory."""
    return os.path.isdir(local_path(path))


@export("io.gfile.stat")
def stat(path: AnyPath) -> FileStatistics:
    """Return a path's size, modification time, and whether it's a directory."""
    return _stat(local_path(path))


def _stat(path: str) -> FileStatistics:
    with file_errors(path):
        found = os.stat(path)
        return FileStatistics(found.st_size, found.st_mtime_ns, os.path.isdir(path))


@export("io.gfile.listdir")
def listdir(path: AnyPath) -> list[str]:
    """Return the names in a directory."""
    place = local_path(path)
    if not os.path.isdir(place):
        raise NotFoundError(None, None, f"Could not find directory {place}")
    with file_errors(place):
        return sorted(os.listdir(place))


@export("io.gfile.walk")
def walk(
    top: AnyPath, topdown: bool = True, onerror: Callable[[OpError], Any] | None = None
) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield (directory, directories in it, files in it) for a directory and all below it.

    topdown: whether a directory comes before those below it. onerror: a function to call with the
    error of each directory that can't be read; such directories are skipped.
    """
    place = os.fsdecode(top)
    try:
        names = listdir(place)
    except OpError as error:
        if onerror is not None:
            onerror(error)
        return
    inside = [name for name in names if os.path.isdir(os.path.join(local_path(place), name))]
    here = (place, inside, [name for name in names if name not in set(inside)])
    if topdown:
        yield here
    for name in inside:
        yield from walk(os.path.join(place, name), topdown, onerror)
    if not topdown:
        yield here


@export("io.gfile.glob")
def glob(pattern: Any) -> list[str]:
    """Return the paths that match a pattern, or one of several: `*` and `?` match within one part
    of a path, also at its beginning; `[a-z]` and `[!a-z]` one character.

    Raises NotFoundError if the directory that holds the first wildcard doesn't exist.
    """
    patterns = [pattern] if isinstance(pattern, str | os.PathLike) else pattern
    return [path for each in patterns for path in matching_paths(each)]


def matching_paths(pattern: AnyPath) -> list[str]:
    """The paths that match one pattern, sorted."""
    text = os.fsdecode(pattern)
    scheme = _FILE if text.startswith(_FILE) else ""
    text = local_path(pattern)
    if not text:
        return []
    wild = re.search(r"[*?\[\\]", text)
    fixed = os.path.dirname(text[: wild.start()] if wild else text)
    parts = text[len(fixed) :].lstrip("/").split("/") if fixed else text.split("/")
    if text[len(fixed) :].startswith("//"):
        return []  # no path has an empty part
    found = [fixed or "."]
    for depth, part in enumerate(parts):
        expression = re.compile(_as_expression(part), re.DOTALL)
        found = [
            os.path.join(directory, name)
            for directory in found
            for name in _children(directory, must_exist=not depth)
            if expression.fullmatch(name)
        ]
    return sorted(scheme + path for path in found)


def _children(directory: str, must_exist: bool) -> list[str]:
    if not must_exist and not os.path.isdir(directory):
        return []
    with file_errors(directory):
        return os.listdir(directory)


def _as_expression(part: str) -> str:
    """A regular expression for one part of a pattern."""
    pieces = re.findall(r"\*+|\?|\[[!^]?\]?[^\]]*\]|\\.|.", part, re.DOTALL)
    return "".join(map(_piece_as_expression, pieces))


def _piece_as_expression(piece: str) -> str:
    if piece[0] == "*":
        return ".*"
    if piece == "?":
        return "."
    if piece[0] == "[" and len(piece) > 1:
        inverted = piece[1] in "!^"
        inside = re.sub(r"([\\\[\]^])", r"\\\1", piece[1 + inverted : -1])
        return f"[{'^' if inverted else ''}{inside}]"
    return re.escape(piece[1:] if len(piece) > 1 else piece)


# -- Changes ---------------------------------------------------------------------------------------


@export("io.gfile.mkdir")
def mkdir(path: AnyPath) -> None:
    """Make a directory whose parent exists; do nothing if it exists already."""
    place = local_path(path)
    if not os.path.isdir(place):
        with file_errors(place):
            os.mkdir(place)


@export("io.gfile.makedirs")
def makedirs(path: AnyPath) -> None:
    """Make a directory and its missing parents; do nothing if it exists."""
    place = local_path(path)
    if place:
        with file_errors(place):
            os.makedirs(place, exist_ok=True)


@export("io.gfile.remove")
def remove(path: AnyPath) -> None:
    """Remove a file."""
    place = local_path(path)
    with file_errors(place):
        os.unlink(place)


@export("io.gfile.rmtree")
def rmtree(path: AnyPath) -> None:
    """Remove a directory and everything in it."""
    place = local_path(path)
    if not os.path.lexists(place):
        raise NotFoundError(None, None, f"{place} not found")
    with file_errors(place):
        shutil.rmtree(place)


@export("io.gfile.copy")
def copy(src: AnyPath, dst: AnyPath, overwrite: bool = False) -> None:
    """Copy a file's contents to another file, which may already exist only with `overwrite`."""
    source, target = local_path(src), local_path(dst)
    _check_free(target, overwrite)
    with file_errors(source):
        reading = open(source, "rb")  # noqa: SIM115
    with reading, file_errors(target), open(target, "wb") as writing:
        shutil.copyfileobj(reading, writing)


@export("io.gfile.rename")
def rename(src: AnyPath, dst: AnyPath, overwrite: bool = False) -> None:
    """Move a file or directory to a path; a file may already be there only with `overwrite`."""
    source, target = local_path(src), local_path(dst)
    _check_free(target, overwrite)
    with file_errors(source):
        os.replace(source, target)


def _check_free(path: str, overwrite: bool) -> None:
    if not overwrite and os.path.exists(path):
        raise AlreadyExistsError(None, None, "file already exists")


# -- The older names -------------------------------------------------------------------------------


@export("gfile.Exists")
def Exists(filename: AnyPath) -> bool:
    """Whether there is a file or directory."""
    return exists(filename)


@export("gfile.IsDirectory")
def IsDirectory(dirname: AnyPath) -> bool:
    """Whether there is a directory."""
    return isdir(dirname)


@export("gfile.Stat")
def Stat(filename: AnyPath) -> FileStatistics:
    """Return a path's size, modification time, and whether it's a directory."""
    return stat(filename)


@export("gfile.ListDirectory")
def ListDirectory(dirname: AnyPath) -> list[str]:
    """Return the names in a directory."""
    return listdir(dirname)


@export("gfile.Walk")
def Walk(top: AnyPath, in_order: bool = True) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield (directory, directories in it, files in it) for a directory and all below it, parents
    first, or children first if not `in_order`.
    """
    return walk(top, in_order)


@export("gfile.Glob")
def Glob(filename: str | Iterable[str]) -> list[str]:
    """Return the paths that match a pattern, or one of several."""
    return glob(filename)


@export("gfile.MkDir")
def MkDir(dirname: AnyPath) -> None:
    """Make a directory whose parent exists; do nothing if it exists already."""
    mkdir(dirname)


@export("gfile.MakeDirs")
def MakeDirs(dirname: AnyPath) -> None:
    """Make a directory and its missing parents; do nothing if it exists."""
    makedirs(dirname)


@export("gfile.Remove")
def Remove(filename: AnyPath) -> None:
    """Remove a file."""
    remove(filename)


@export("gfile.DeleteRecursively")
def DeleteRecursively(dirname: AnyPath) -> None:
    """Remove a directory and everything in it."""
    rmtree(dirname)


@export("gfile.Copy")
def Copy(oldpath: AnyPath, newpath: AnyPath, overwrite: bool = False) -> None:
    """Copy a file's contents to another file, which may already exist only with `overwrite`."""
    copy(oldpath, newpath, overwrite)


@export("gfile.Rename")
def Rename(oldname: AnyPath, newname: AnyPath, overwrite: bool = False) -> None:
    """Move a file or directory to a path; a file may already be there only with `overwrite`."""
    rename(oldname, newname, overwrite)
