"""The `headrace` command. Every other module of this package is the sub-command of that name: it
has a click command called `command`, and is imported only when it's used.
"""

import importlib
import pkgutil
import sys
from typing import Any

import click

import headrace

__all__ = ["main"]


class _Room(click.Group):
    def main(self, args: Any = None, *rest: Any, **kwargs: Any) -> Any:
        words = list(sys.argv[1:] if args is None else args)
        if words[:1] == ["run"]:  # whose exceptions and arguments are the program's
            return importlib.import_module(f"{__name__}.run").start(words[1:])
        return super().main(args, *rest, **kwargs)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(m.name for m in pkgutil.iter_modules(__path__))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        return importlib.import_module(f"{__name__}.{cmd_name}").command


@click.command(cls=_Room)
@click.version_option(headrace.HEADRACE_VERSION, prog_name="headrace")
def main() -> None:
    """Deferred dataflow graphs, compiled."""
