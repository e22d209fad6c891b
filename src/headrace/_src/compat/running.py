"""Run a script or a module as the main program. In: what to run and its arguments. Out: the same
`__main__`, sys.argv, sys.path, exit status and output as under `python script.py`.

Tracebacks that end the program, or one of its threads, show the program's own frames only.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import threading
from collections.abc import Sequence
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType, TracebackType
from typing import Any

from headrace._src.compat import sources
from headrace._src.compat.activation import activate
from headrace._src.core import source
from headrace._src.core.config import settings

__all__ = ["run_module", "run_script"]


def run_script(path: str, args: Sequence[str], mend: bool = True) -> None:
    """Run a file, or the `__main__.py` of a directory."""
    script = os.path.join(path, "__main__.py") if os.path.isdir(path) else path
    folder = os.path.dirname(os.path.realpath(script)) if script == path else path
    _prepare([path, *args], folder, mend)
    try:
        data = Path(script).read_bytes()
    except OSError as error:
        reason = f"[Errno {error.errno}] {error.strerror}"
        print(f"headrace run: can't open file {script!r}: {reason}", file=sys.stderr)
        sys.exit(2)
    script = os.path.abspath(script)
    main = _main(script)
    main.__file__ = script
    _execute(sources.compiled(data, script) if mend else _plain(data, script), main)


def run_module(name: str, args: Sequence[str], mend: bool = True) -> None:
    """Run a module, or the `__main__` of a package."""
    _prepare([name, *args], os.getcwd(), mend)
    try:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            name = f"{name}.__main__"
            spec = importlib.util.find_spec(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        spec = None
    loader: Any = spec and spec.loader
    code = loader.get_code(name) if hasattr(loader, "get_code") else None
    if spec is None or code is None:
        print(f"headrace run: No module named {name}", file=sys.stderr)
        sys.exit(1)
    main = _main(spec.origin or name)
    main.__spec__, main.__package__, main.__loader__ = spec, spec.parent, loader
    main.__file__ = spec.origin
    sys.argv[0] = spec.origin or name
    _execute(code, main)


def _prepare(argv: list[str], folder: str, mend: bool) -> None:
    sys.argv = argv
    if not sys.flags.safe_path:
        sys.path[0] = folder
    activate(mend)
    if not settings().full_traceback:
        sys.excepthook = _folded_hook
        threading.excepthook = _thread_hook


def _main(path: str) -> ModuleType:
    main = ModuleType("__main__")
    vars(main).update(
        __builtins__=sys.modules["builtins"],
        __cached__=None,
        __loader__=SourceFileLoader("__main__", path),
        __annotations__={},
    )
    sys.modules["__main__"] = main
    return main


def _plain(data: bytes, path: str) -> CodeType:
    return compile(data, path, "exec", dont_inherit=True)


def _execute(code: CodeType, main: ModuleType) -> None:
    source.set_runner(_execute.__code__)
    exec(code, vars(main))


# -- Tracebacks ------------------------------------------------------------------------------------


def _folded_hook(
    kind: type[BaseException], value: BaseException, traceback: TracebackType | None
) -> None:
    fold(value)
    sys.__excepthook__(kind, value, value.__traceback__)


def _thread_hook(args: Any) -> None:
    if args.exc_value is not None:
        fold(args.exc_value)
        args = threading.ExceptHookArgs(
            (args.exc_type, args.exc_value, args.exc_value.__traceback__, args.thread)
        )
    threading.__excepthook__(args)


def fold(error: BaseException | None, seen: frozenset[int] = frozenset()) -> None:
    """Remove the frames of Headrace from the tracebacks of an error and of its causes."""
    if error is None or id(error) in seen:
        return
    seen |= {id(error)}
    kept = []
    traceback, started = error.__traceback__, False
    while traceback is not None:
        # Frames before the program begins belong to this command.
        started = started or traceback.tb_frame.f_code is _execute.__code__
        if source.is_user_file(traceback.tb_frame.f_code.co_filename):
            kept.append(traceback)
        elif started and traceback.tb_frame.f_code is _execute.__code__:
            kept.clear()
        traceback = traceback.tb_next
    folded: TracebackType | None = None
    for part in reversed(kept):
        folded = TracebackType(folded, part.tb_frame, part.tb_lasti, part.tb_lineno)
    if isinstance(error, SyntaxError) and not started:
        error.__traceback__ = None  # the program itself, which did not begin
    elif started or folded is not None:
        error.__traceback__ = folded
    fold(error.__cause__, seen)
    fold(error.__context__, seen)
