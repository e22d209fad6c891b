"""tf.logging: messages of the libraries to the user. In: levels and messages. Out:
records of Python's logger "headrace".

The logger has one handler, which writes `LEVEL:headrace:message` to stderr as long as the program
has not configured logging itself. Once it has, each message goes only to the program's handlers.
Messages below WARN are hidden unless `set_verbosity` asks for them.
"""

from __future__ import annotations

import logging
import sys
from collections import Counter
from typing import Any

from headrace._src.core.export import export, export_value
from headrace._src.core.locks import Lock

__all__ = [
    "DEBUG",
    "ERROR",
    "FATAL",
    "INFO",
    "WARN",
    "TaskLevelStatusMessage",
    "debug",
    "error",
    "fatal",
    "flush",
    "get_logger",
    "get_verbosity",
    "info",
    "log",
    "log_every_n",
    "log_first_n",
    "log_if",
    "set_verbosity",
    "vlog",
    "warn",
    "warning",
]

DEBUG = logging.DEBUG
INFO = logging.INFO
WARN = logging.WARN
ERROR = logging.ERROR
FATAL = logging.FATAL

for _name in ("DEBUG", "INFO", "WARN", "ERROR", "FATAL"):
    export_value(__name__, _name, f"logging.{_name}")

_CALLER = 2  # frames from the logger's method to the caller of a function in this module


class _Console(logging.Handler):
    """Writes to the current stderr; silent if the program has its own handlers."""

    def emit(self, record: logging.LogRecord) -> None:
        if sys.stderr is None or logging.getLogger().handlers:
            return
        try:
            sys.stderr.write(self.format(record) + "\n")
        except Exception:  # a message that can't be formatted must not stop training
            self.handleError(record)

    def flush(self) -> None:
        if sys.stderr is not None and not sys.stderr.closed:
            sys.stderr.flush()


def _prepared() -> logging.Logger:
    logger = logging.getLogger("headrace")
    if not any(isinstance(handler, _Console) for handler in logger.handlers):
        console = _Console()
        console.setFormatter(logging.Formatter(logging.BASIC_FORMAT))
        logger.addHandler(console)
    return logger


_logger = _prepared()
_lock = Lock()
_calls: Counter[tuple[str, int]] = Counter()  # counts for log_every_n and log_first_n, by line


@export("get_logger")
def get_logger() -> logging.Logger:
    """Return the logger that all messages go to."""
    return _logger


@export("logging.log")
def log(level: int, msg: Any, *args: Any, **kwargs: Any) -> None:
    """Log `msg % args` at a level."""
    _logger.log(level, msg, *args, stacklevel=_CALLER, **kwargs)


@export("logging.debug")
def debug(msg: Any, *args: Any, **kwargs: Any) -> None:
    """Log `msg % args` at level DEBUG."""
    _logger.debug(msg, *args, stacklevel=_CALLER, **kwargs)


@export("logging.info")
def info(msg: Any, *args: Any, **kwargs: Any) -> None:
    """Log `msg % args` at level INFO."""
    _logger.info(msg, *args, stacklevel=_CALLER, **kwargs)


@export("logging.warn")
def warn(msg: Any, *args: Any, **kwargs: Any) -> None:
    """Log `msg % args` at level WARN."""
    _logger.warning(msg, *args, stacklevel=_CALLER, **kwargs)


@export("logging.warning")
def warning(msg: Any, *args: Any, **kwargs: Any) -> None:
    """Log `msg % args` at level WARN."""
    _logger.warning(msg, *args, stacklevel=_CALLER, **kwargs)


@export("logging.error")
def error(msg: Any, *args: Any, **kwargs: Any) -> None:
    """Log `msg % args` at level ERROR."""
    _logger.error(msg, *args, stacklevel=_CALLER, **kwargs)


@export("logging.fatal")
def fatal(msg: Any, *args: Any, **kwargs: Any) -> None:
    """Log `msg % args` at level FATAL; the program continues, as in TensorFlow."""
    _logger.fatal(msg, *args, stacklevel=_CALLER, **kwargs)


@export("logging.vlog")
def vlog(level: int, msg: Any, *args: Any, **kwargs: Any) -> None:
    """Log `msg % args` at a level: the older name of `log`."""
    _logger.log(level, msg, *args, stacklevel=_CALLER, **kwargs)


@export("logging.log_if")
def log_if(level: int, msg: Any, condition: Any, *args: Any) -> None:
    """Log `msg % args` at a level if the condition is true."""
    if condition:
        _logger.log(level, msg, *args, stacklevel=_CALLER)


@export("logging.log_every_n")
def log_every_n(level: int, msg: Any, n: int, *args: Any) -> None:
    """Log `msg % args` at the first, the n+1st, the 2n+1st, ... time that this line is reached."""
    if _times_here() % n == 0:
        _logger.log(level, msg, *args, stacklevel=_CALLER)


@export("logging.log_first_n")
def log_first_n(level: int, msg: Any, n: int, *args: Any) -> None:
    """Log `msg % args` the first n times that this line is reached."""
    if _times_here() < n:
        _logger.log(level, msg, *args, stacklevel=_CALLER)


def _times_here() -> int:
    """Return how often the line that called this function's caller has been reached before."""
    frame = sys._getframe(2)
    key = (frame.f_code.co_filename, frame.f_lineno)
    with _lock:
        count = _calls[key]
        _calls[key] += 1
    return count


@export("logging.TaskLevelStatusMessage")
def TaskLevelStatusMessage(msg: Any) -> None:
    """Log a message at level ERROR, as TensorFlow does."""
    _logger.error(msg, stacklevel=_CALLER)


@export("logging.flush")
def flush() -> None:
    """Flush the handlers."""
    for handler in (*_logger.handlers, *logging.getLogger().handlers):
        handler.flush()


@export("logging.get_verbosity")
def get_verbosity() -> int:
    """Return the lowest level whose messages are shown."""
    return _logger.getEffectiveLevel()


@export("logging.set_verbosity")
def set_verbosity(v: int | str) -> None:
    """Show messages of at least this level, a number or a name such as "INFO"."""
    _logger.setLevel(v)
