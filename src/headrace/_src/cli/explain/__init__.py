"""`headrace explain`: run a program and show how one of its steps is optimised and compiled. In: a
script. Out: the step after each pass, its clusters, what was not compiled and why; with --html, a
drawing.
"""

from __future__ import annotations

import difflib
import os
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from headrace._src.cli.explain.capture import Capture, CapturedStep, Ending, Variant

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
    before = set(threading.enumerate())
    capture, ending = _run(script, arguments, steps)
    status = 1 if ending.failed else 0
    try:
        _show(capture, fetch, full, html, script.name)
    except click.ClickException as error:
        _tell(ending)
        error.show()
        status = error.exit_code
    else:
        _tell(ending)
    _leave(status, set(threading.enumerate()) - before)


def _show(capture: Capture, fetch: str | None, full: bool, html: Path | None, title: str) -> None:
    """Explain the requested step."""
    from headrace._src.cli.explain.explain_text import explain, steps_table

    step = _choose(capture.steps, fetch)
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


def _run(script: Path, arguments: Sequence[str], steps: int | None) -> tuple[Capture, Ending]:
    from rich.console import Console

    from headrace._src.cli.explain.capture import Capture, run_script

    with Console(stderr=True).status(f"running {script}") as status:
        shown = 0.0

        def progress(capture: Capture) -> None:
            nonlocal shown
            if time.monotonic() > shown + 0.2:
                shown = time.monotonic()
                most = "" if steps is None else f" of {steps:,}"
                known = f"{capture.runs:,}{most} runs of {len(capture.steps):,} steps"
                status.update(f"running {script}: {known}")

        capture = Capture(steps, progress)
        return capture, run_script(script, arguments, capture)


def _choose(steps: Sequence[CapturedStep], fetch: str | None) -> CapturedStep:
    """Return the step to explain: of those that fetch or run `fetch`, the one that took longest."""
    if not steps:
        raise click.ClickException("no session ran a step")
    found = [s for s in steps if fetch is None or s.gives(fetch)]
    if not found:
        names = list(dict.fromkeys(n for s in steps for n in s.names))
        close = difflib.get_close_matches(fetch or "", [*names, *(n[:-2] for n in names)], n=3)
        hint = f"Did you mean {' or '.join(close)}?" if close else f"Fetched: {_few(names)}."
        raise click.ClickException(f"no step fetches or runs {fetch!r}. {hint}")
    return max(found, key=lambda step: step.seconds)


def _few(names: Sequence[str]) -> str:
    more = f" and {len(names) - 12} more" if len(names) > 12 else ""
    return ", ".join(names[:12]) + more


def _variant(step: CapturedStep) -> Variant | None:
    """Return the first combination of feed shapes, compiled even if it has run only once."""
    variants = [v for v in step.variants.values() if not v.is_loop]
    if not variants:
        return None
    if not variants[0].compiled and step.options.jit != "off":
        click.echo("the step ran too seldom to be compiled; compiling it now", err=True)
        step.complete(variants[0])
    return variants[0]


def _tell(ending: Ending) -> None:
    """Say how the program ended, unless it ended normally."""
    if ending.error is not None:
        sys.stdout.flush()
        lines = traceback.format_exception(ending.error)
        click.echo("\n" + "".join(lines).rstrip(), err=True)
    if ending.text:
        click.echo(f"\n{ending.text}", err=True)


def _leave(status: int, threads: set[threading.Thread]) -> None:
    """End the command even if the program has left threads running."""
    if any(not thread.daemon for thread in threads):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    sys.exit(status)
