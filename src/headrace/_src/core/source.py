"""The user's source lines. In: the running stack. Out: the frames that made an operation, as text.

Invariants:
- Frames of Headrace itself, of contextlib and of the interpreter's frozen modules never appear.
- Frames are kept innermost first; `extract_stack` turns them around, as Python's tracebacks do.
- Capturing is cheap, since it happens for every operation: it keeps code objects and instruction
  offsets. Line numbers and the text of lines are looked up only when they are read.
"""

import contextlib
import linecache
import os
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from types import CodeType, TracebackType
from typing import Any, overload

# All of headrace, of which this file is _src/core/source.py.
_PACKAGE = os.path.join(os.path.abspath(__file__).rsplit(os.sep, 3)[0], "")
_CONTEXTS = contextlib.__file__  # its frames lie between ours and the user's with-blocks
# File name -> whether the user wrote it. Bounded by the number of source files of the process.
_is_user_file: dict[str, bool] = {}
# The code that runs the program: frames outside of it are not the user's.
_runner: CodeType | None = None


class StackFrame:
    """One call on the stack: where in which function of which file."""

    __slots__ = ("_code", "_offset")

    def __init__(self, code: CodeType, offset: int):
        self._code = code
        self._offset = offset

    @property
    def filename(self) -> str:
        """The file as Python knows it: a path, or a name such as `<stdin>`."""
        return self._code.co_filename

    @property
    def function(self) -> str:
        """The name of the function, `<module>` at the top of a file."""
        return self._code.co_name

    @property
    def first_lineno(self) -> int:
        """The number of the line on which the function begins."""
        return self._code.co_firstlineno

    @property
    def lineno(self) -> int:
        """The number of the line that was running."""
        for start, end, line in self._code.co_lines():
            if start <= self._offset < end and line is not None:
                return line
        return self._code.co_firstlineno

    @property
    def line(self) -> str:
        """The text of the line, empty when the source is not at hand."""
        return linecache.getline(self.filename, self.lineno).strip()

    def __repr__(self) -> str:
        return f"Frame({self.filename!r}, {self.lineno}, {self.function!r})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, StackFrame):
            return NotImplemented
        return self._code is other._code and self._offset == other._offset

    def __hash__(self) -> int:
        return hash((id(self._code), self._offset))


class Stack(Sequence[StackFrame]):
    """Captured frames, innermost first: behaves as a tuple of Frames, which it makes when read."""

    __slots__ = ("_pairs",)

    def __init__(self, pairs: list[Any]):
        # code, offset, code, offset, ...: one flat list costs half as much as small objects.
        self._pairs = pairs

    def __len__(self) -> int:
        return len(self._pairs) // 2

    @overload
    def __getitem__(self, index: int) -> StackFrame: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[StackFrame, ...]: ...
    def __getitem__(self, index: int | slice) -> StackFrame | tuple[StackFrame, ...]:
        return tuple(map(StackFrame, self._pairs[::2], self._pairs[1::2]))[index]

    def __repr__(self) -> str:
        return f"Stack({list(self)})"


def _judge_file(filename: str) -> bool:
    """Decide, once per file, whether its frames are the user's."""
    path = os.path.abspath(filename)
    ours = path.startswith(_PACKAGE) or filename.startswith("<frozen ") or path == _CONTEXTS
    _is_user_file[filename] = not ours
    return not ours


def capture(limit: int = 20) -> Stack:
    """The user's frames on the stack, innermost first, at most `limit` of them."""
    pairs = []
    known = _is_user_file
    frame = sys._getframe(1)
    while frame is not None and limit > 0:
        code = frame.f_code
        if code is _runner:
            break
        try:
            is_user = known[code.co_filename]
        except KeyError:
            is_user = _judge_file(code.co_filename)
        if is_user:
            pairs.append(code)
            pairs.append(frame.f_lasti)
            limit -= 1
        frame = frame.f_back
    return Stack(pairs)


def set_runner(code: CodeType) -> None:
    """Let captured stacks begin inside of the function that runs the program."""
    global _runner
    _runner = code


def captured(traceback: TracebackType | None) -> Stack:
    """The user's frames of an exception's traceback, innermost first."""
    calls = []
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if _judge_file(code.co_filename):
            calls.append((code, traceback.tb_lasti))
        traceback = traceback.tb_next
    return Stack([part for call in reversed(calls) for part in call])


def user_line(frames: Sequence[StackFrame]) -> str:
    """The innermost user line as `train.py:41   h = tf.matmul(x, w)`, or "" if there is none."""
    return _show(frames[0]) if frames else ""


def user_lines(frames: Sequence[StackFrame], what: str, most: int = 5) -> list[str]:
    """The calls that led to a place, innermost first, one line each and at most `most`:

        made at layers.py:12   h = tf.matmul(x, w)
          called from train.py:41   logits = dense(images)

    The outermost frames are left out where they belong to the program's runner (the standard
    library, or an installed tool such as pytest or a notebook's kernel).
    """
    calls = list(frames)
    while calls and _is_installed(calls[-1].filename):
        calls.pop()
    shown = [_show(frame) for frame in (calls or list(frames))[:most]]
    return [f"  called from {line}" if i else f"{what} {line}" for i, line in enumerate(shown)]


def trail(frames: Sequence[StackFrame], what: str, most: int = 5) -> str:
    """`user_lines` as text for the end of a message."""
    return "".join(f"\n  {line}" for line in user_lines(frames, what, most))


def here(what: str) -> str:
    """The user's calls that are running now, as text for the end of a message."""
    return trail(capture(), what)


@contextlib.contextmanager
def naming(**functions: Any) -> Iterator[None]:
    """Add to an error where the user's functions are defined, as `body: train.py:41   def f(i):`,
    and where they were passed to us.
    """
    try:
        yield
    except (TypeError, ValueError) as error:
        lines = [f"\n  {key}: {line}" for key, f in functions.items() if (line := _definition(f))]
        raise type(error)(f"{error}{''.join(lines)}{here('called at')}") from None


def _definition(function: Any) -> str:
    """The first line of a user's function, "" if it has none."""
    code = getattr(getattr(function, "func", function), "__code__", None)  # a partial's function
    if code is None or not _judge_file(code.co_filename):
        return ""
    return _show(StackFrame(code, -1))


def _show(frame: StackFrame) -> str:
    return f"{short_path(frame.filename)}:{frame.lineno}   {frame.line}".rstrip()


@cache
def _is_installed(filename: str) -> bool:
    """Whether a file came with Python or with an installed package."""
    import sysconfig  # for messages alone

    paths = sysconfig.get_paths()
    homes = {paths[key] for key in ("stdlib", "platstdlib", "purelib", "platlib", "scripts")}
    path = os.path.abspath(filename)
    installed = any(path.startswith(os.path.join(home, "")) for home in homes)
    return installed or "site-packages" in path or "dist-packages" in path


def is_user_file(filename: str) -> bool:
    """Return whether a file is not Headrace's."""
    known = _is_user_file.get(filename)
    return _judge_file(filename) if known is None else known


def is_own_file(filename: str) -> bool:
    """Return whether the user wrote a file: it is neither Headrace's nor installed."""
    return _judge_file(filename) and not _is_installed(filename)


def short_path(filename: str) -> str:
    """Return a path relative to the working directory for files below it; any other name
    unchanged.
    """
    try:
        here = os.path.join(os.getcwd(), "")
    except OSError:  # the working directory was removed
        return filename
    return filename.removeprefix(here)


def extract_stack(frames: Sequence[StackFrame]) -> list[tuple[str, int, str, str]]:
    """(filename, lineno, function, line) of each frame, outermost first: TF's `op.traceback`."""
    return [(f.filename, f.lineno, f.function, f.line) for f in reversed(frames)]
