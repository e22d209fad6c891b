"""tf.app.run: the main function of a program. In: sys.argv. Out: the exit of the process."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from absl import app, flags

from headrace._src.core.export import export
from headrace._src.core.flags import FLAGS

__all__ = ["run"]


@export("app.run")
def run(main: Callable[..., Any] | None = None, argv: list[str] | None = None) -> NoReturn:
    """Parse the command-line flags, call `main` with the remaining arguments, and exit with its
    result.

    main: the `main` of the program by default. argv: sys.argv by default. As in TensorFlow,
    undefined flags stay among the arguments.
    """
    called: Any = main or sys.modules["__main__"].main
    app.run(called, argv=argv, flags_parser=_known_flags)
    raise AssertionError("absl's run doesn't return")


def _known_flags(argv: Sequence[str]) -> list[str]:
    try:
        return FLAGS(argv, known_only=True)
    except flags.Error as error:
        print(f"FATAL Flags parsing error: {error}", file=sys.stderr)
        print("Pass --helpshort or --helpfull to see help on flags.", file=sys.stderr)
        sys.exit(1)
