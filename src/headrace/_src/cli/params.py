"""`headrace params`: list the parameters of a model on disk, scope by scope. In: a checkpoint, or a
graph, frozen or not. Out: a tree with counts, bytes and shares.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

if TYPE_CHECKING:
    from headrace._src.train.inspect.parameters import Scope

__all__ = ["command"]

_BAR = 12  # characters of a bar for 100 %


@click.command()
@click.argument("model")
@click.option("--depth", type=click.IntRange(min=1), help="How many levels of scopes to show.")
@click.option("--trainable", is_flag=True, help="Only trainable variables.")
@click.option("--match", default="", metavar="REGEX", help="Only names that match this.")
def command(model: str, depth: int | None, trainable: bool, match: str) -> None:
    """Count the parameters of MODEL: a checkpoint's prefix or directory, a SavedModel, a meta graph
    (.meta) or a graph (.pb, .pbtxt), whose constants count if it's frozen.
    """
    from headrace._src.core.errors import OpError
    from headrace._src.train.inspect.parameters import count_parameters

    try:
        found = count_parameters(model, trainable, match)
    except (OpError, OSError, ValueError) as error:
        raise click.ClickException(str(error)) from error
    except re.error as error:
        raise click.BadParameter(f"{match!r}: {error}", param_hint="--match") from error
    if not found.parts:
        raise click.ClickException(f"no parameters found in {model}")
    console, shown = Console(soft_wrap=True), table(found, depth)
    # The table may be wider than the terminal: names are never truncated.
    width = Measurement.get(console, console.options.update(width=10_000), shown).maximum
    console.print(shown, width=width)


def table(found: Scope, depth: int | None = None) -> Table:
    """Return the tree as a table with a total in the last line."""
    result = Table(box=None, pad_edge=False, padding=(0, 1))
    for title in ("scope", "shape", "type"):
        result.add_column(title, no_wrap=True)
    for title in ("parameters", "bytes", "share"):
        result.add_column(title, justify="right", no_wrap=True)
    result.add_column("", style="green", no_wrap=True)
    for label, scope in _lines(found, depth):
        share = scope.count / found.count if found.count else 0.0
        result.add_row(
            label,
            *_type(scope),
            f"{scope.count:,}",
            _bytes(scope.size),
            f"{share:.1%}",
            "█" * round(share * _BAR) or ("▏" if scope.count else ""),
            style="" if scope.parts else "dim",
        )
    result.add_row("all", "", "", f"{found.count:,}", _bytes(found.size), style="bold")
    return result


def _lines(scope: Scope, depth: int | None, indent: str = "") -> Iterator[tuple[str, Scope]]:
    """Yield the parts of a scope down to `depth`, their names prefixed by tree lines."""
    for part in scope.parts:
        last = part is scope.parts[-1]
        yield f"{indent}{'└─ ' if last else '├─ '}{part.label}", part
        if depth is None or depth > 1:
            below = indent + ("   " if last else "│  ")
            yield from _lines(part, None if depth is None else depth - 1, below)


def _type(scope: Scope) -> tuple[str, str]:
    parameter = scope.parameter
    if parameter is None:
        return "", ""
    sizes = parameter.sizes
    shape = "?" if sizes is None else "×".join("?" if s is None else str(s) for s in sizes)
    return shape or "scalar", parameter.dtype.name


def _bytes(count: int) -> str:
    size, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if size < 1024:
            break
        size, unit = size / 1024, larger
    return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"
