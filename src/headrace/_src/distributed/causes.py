"""The errors behind an error, which travel with it. In: an exception with its causes. Out: JSON;
and back.

Only Python's own exceptions and those of core.errors are made again as what they were, from their
arguments. Another one becomes a RemoteError with its text: nobody's classes are looked up, and
nothing is unpickled. The lines of the traceback travel as a note.
"""

from __future__ import annotations

import builtins
import traceback
from collections.abc import Iterator, Sequence
from typing import Any

from headrace._src.core import errors

__all__ = ["RemoteError", "causes_of", "described", "rebuilt"]

_MOST = 8  # causes
_LONGEST = 20_000  # characters of a text or of the lines of a traceback


class RemoteError(Exception):
    """An exception of another process, whose type is not known in this one."""


def causes_of(error: BaseException) -> list[Any]:
    """Return the causes of an error as JSON has them."""
    return described(list(_chain(error))[1 : _MOST + 1])


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


def described(found: Sequence[BaseException]) -> list[Any]:
    """Return exceptions as JSON has them: type, arguments or None, text, code, traceback."""
    return [
        [
            type(each).__name__,
            _plain(each.args),
            str(each)[:_LONGEST],
            each.error_code if isinstance(each, errors.OpError) else -1,
            "".join(traceback.format_tb(each.__traceback__))[-_LONGEST:],
        ]
        for each in found
    ]


def _plain(arguments: tuple[Any, ...]) -> list[Any] | None:
    """Return arguments that JSON has; None if there are others."""
    plain = all(arg is None or type(arg) in (str, int, float, bool) for arg in arguments)
    return list(arguments) if plain and len(str(arguments)) < _LONGEST else None


def rebuilt(causes: Any) -> BaseException | None:
    """Return the first of these causes, with the others behind it."""
    if not isinstance(causes, list | tuple):
        return None
    made: BaseException | None = None
    for each in reversed(causes[:_MOST]):
        try:
            kind, arguments, text, code, lines = each
            error = _error(str(kind), arguments, str(text), int(code))
        except (TypeError, ValueError):
            continue
        if lines:
            error.add_note(f"in another process:\n{lines}".rstrip())
        error.__cause__, made = made, error
    return made


def _error(kind: str, arguments: Any, text: str, code: int) -> BaseException:
    if code >= 0:
        try:
            form: Any = errors.exception_type_from_error_code(code)
        except KeyError:
            form = errors.UnknownError
        return form(None, None, text)
    found = getattr(builtins, kind, None)
    if isinstance(found, type) and issubclass(found, Exception):
        try:
            return found(*(arguments if arguments is not None else [text]))
        except (TypeError, ValueError):
            pass  # it takes other arguments than text
    return RemoteError(f"{kind}: {text}")
