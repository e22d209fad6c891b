"""`headrace explain`: run a program and show how one of its steps is optimised and compiled. In: a
script. Out: the step after each pass, its clusters, what was not compiled and why; with --html, a
drawing.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from headrace._src.cli.explain.capture import Capture, CapturedStep, Variant

__all__ = ["command"]


@click.command(context_settings={"ignore_unknown_options": True})
@click.option("--fetch", metavar="NAME", help="Explain the step that fetches or runs this name.")
@click.option("--full", is_flag=True, help="Show every line of every form.")
@click.option("--steps", type=click.IntRange(min=1), help="Stop after this many session runs.")
@click.option(
    "--html",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Draw the step on an HTML page.",
)
@click.argument("script", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(
    script: Path,
    arguments: tuple[str, ...],
    fetch: str | None,
    full: bool,
    steps: int | None,
    html: Path | None,
) -> None:
    """Run SCRIPT and explain a step of its sessions.

    Without --fetch that is the step that took the most time. The script's own output goes to
    stderr. Ctrl-C stops the script; the steps seen until then are explained. ARGUMENTS are passed
    to the script, and so is everything after `--`.
    """
    from headrace._src.cli.explain.running import leave, run_watched, tell

    before = set(threading.enumerate())
    capture, ending = run_watched(script, arguments, steps)
    status = 1 if ending.failed else 0
    try:
        _show(capture, fetch, full, html, script.name)
    except click.ClickException as error:
        tell(ending)
        error.show()
        status = error.exit_code
    else:
        tell(ending)
    leave(status, set(threading.enumerate()) - before)


def _show(capture: Capture, fetch: str | None, full: bool, html: Path | None, title: str) -> None:
    """Explain the requested step."""
    from headrace._src.cli.explain.explain_text import explain, steps_table
    from headrace._src.cli.explain.running import choose_step

    step = choose_step(capture.steps, fetch)
    if fetch is None:
        click.echo("\n".join(steps_table(capture.steps)))
        click.echo("\nthe step that took most of the time:\n")
    variant = _variant(step)
    click.echo("\n".join(explain(step, variant, full)))
    if html is not None:
        from headrace._src.cli.explain.page import page

        drawn = page(step, variant, title)
        try:
            html.write_text(drawn, encoding="utf-8")
        except OSError as error:
            raise click.ClickException(str(error)) from error
        click.echo(f"\n{html}: a drawing of the step")


def _variant(step: CapturedStep) -> Variant | None:
    """Return the first combination of feed shapes, compiled even if it has run only once."""
    variants = [v for v in step.variants.values() if not v.is_loop]
    if not variants:
        return None
    if not variants[0].compiled and step.options.jit != "off":
        click.echo("the step ran too seldom to be compiled; compiling it now", err=True)
        step.complete(variants[0])
    return variants[0]
