"""Run a program for a command that looks at one of its steps: watch it, find the step, end the
command as the program ended.
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

import click
from rich.console import Console

from headrace._src.cli.explain.capture import Capture, CapturedStep, Ending, run_script

__all__ = ["choose_step", "leave", "run_watched", "tell"]


def run_watched(
    script: Path, arguments: Sequence[str], steps: int | None
) -> tuple[Capture, Ending]:
    """Run a script and record its steps, and show how many runs there were."""
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


def choose_step(steps: Sequence[CapturedStep], fetch: str | None) -> CapturedStep:
    """Return the requested step: of those that fetch or run `fetch`, the one that took longest."""
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


def tell(ending: Ending) -> None:
    """Say how the program ended, unless it ended normally."""
    if ending.error is not None:
        sys.stdout.flush()
        lines = traceback.format_exception(ending.error)
        click.echo("\n" + "".join(lines).rstrip(), err=True)
    if ending.text:
        click.echo(f"\n{ending.text}", err=True)


def leave(status: int, threads: set[threading.Thread]) -> None:
    """End the command even if the program has left threads running."""
    if any(not thread.daemon for thread in threads):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    sys.exit(status)
