"""`headrace match`: run two programs and show the step at which their losses diverge. In: two
scripts, or two recorded runs. Out: a table, curves, and exit status 1 if they differ.
"""

from __future__ import annotations

import json
import math
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from headrace._src.train.inspect.matching import Match

__all__ = ["command", "picture", "sparkline"]

_WIDTH = 60  # characters of a curve
_AROUND = 3  # steps shown before and after the first difference


@click.command()
@click.argument("a")
@click.argument("b")
@click.option("--rtol", default=1e-5, show_default=True, help="The relative tolerance.")
@click.option("--atol", default=0.0, show_default=True, help="The absolute tolerance.")
@click.option("--tensor", "tensors", multiple=True, metavar="NAME", help="Follow these tensors.")
@click.option("--pair", "pairs", multiple=True, metavar="A=B", help="Names to compare.")
@click.option("--steps", type=click.IntRange(min=1), help="Stop after this many steps.")
@click.option("--same-start", is_flag=True, help="Give B the variables that A starts with.")
@click.option("--checkpoint", metavar="PREFIX", help="Start both with these variables.")
@click.option("--python-a", metavar="PATH", help="The Python that runs A (TensorFlow's, say).")
@click.option("--python-b", metavar="PATH", help="The Python that runs B.")
@click.option("--svg", type=click.Path(dir_okay=False, path_type=Path), help="Draw the curves.")
@click.option(
    "--keep", type=click.Path(file_okay=False, path_type=Path), help="Save both runs here."
)
def command(
    a: str,
    b: str,
    rtol: float,
    atol: float,
    tensors: tuple[str, ...],
    pairs: tuple[str, ...],
    steps: int | None,
    same_start: bool,
    checkpoint: str | None,
    python_a: str | None,
    python_b: str | None,
    svg: Path | None,
    keep: Path | None,
) -> None:
    """Find the step at which two programs diverge.

    A and B are scripts ("train.py --rate 0.1"), recorded runs (.jsonl) or directories of
    event files. All floating-point scalars that a script fetches from Session.run are compared, by
    name. A TensorFlow 1.15 script can be compared with its port: --python-a names TensorFlow's
    Python.
    """
    from headrace._src.core.errors import OpError
    from headrace._src.train.inspect.matching import compare_runs

    together = dict(_pair(p) for p in pairs)
    with tempfile.TemporaryDirectory(prefix="headrace-match-") as temporary:
        folder = keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        start = _start(checkpoint, folder)
        common = {"tensors": [_full(t) for t in (*tensors, *together)], "steps": steps}
        handed_on = str(folder / "start.npz") if same_start else None
        plans = [
            {**common, "load_start": start, "save_start": handed_on},
            {**common, "load_start": handed_on or start, "save_start": None},
        ]
        plans[1]["tensors"] = [_full(t) for t in (*tensors, *together.values())]
        runs = [
            _run(what, folder / f"{name}.jsonl", plan, python)
            for what, name, plan, python in zip(
                (a, b), ("a", "b"), plans, (python_a, python_b), strict=True
            )
        ]
        try:
            found = compare_runs(
                runs[0], runs[1], rtol, atol, {_full(k): _full(v) for k, v in together.items()}
            )
        except (ValueError, OpError) as error:
            raise click.ClickException(str(error)) from error
    _show(found, a, b)
    if svg is not None:
        svg.write_text(picture(found[0], a, b))
        click.echo(f"\n{svg}: the curves of {found[0].name}")
    sys.exit(0 if all(m.first is None for m in found) else 1)


def _pair(text: str) -> tuple[str, str]:
    left, equals, right = text.partition("=")
    if not (left and equals and right):
        raise click.BadParameter(f"{text!r} is not A=B", param_hint="--pair")
    return left, right


def _full(name: str) -> str:
    """Return a tensor's name; an operation's name means its first output."""
    return name if ":" in name else f"{name}:0"


# -- Running ---------------------------------------------------------------------------------------


def _start(checkpoint: str | None, folder: Path) -> str | None:
    """Write a checkpoint's floating-point tensors where the recorder finds them."""
    if checkpoint is None:
        return None
    import numpy as np

    from headrace._src.core.errors import OpError
    from headrace._src.train.saving.checkpoint_reader import load_checkpoint

    path = str(folder / "checkpoint.npz")
    try:
        reader = load_checkpoint(checkpoint)
        kinds = reader.get_variable_to_dtype_map()
        floating = [name for name, dtype in kinds.items() if dtype.is_floating]
        held: Any = {f"variable:{name}": reader.get_tensor(name) for name in floating}
    except (OpError, ValueError) as error:
        raise click.ClickException(str(error)) from error
    np.savez(path, **held)
    return path


def _run(what: str, out: Path, plan: dict[str, Any], python: str | None) -> str:
    """Run a script and return the path of its recording; anything but a script is already one."""
    words = shlex.split(what)
    if not words or not words[0].endswith(".py"):
        if not Path(what).exists():
            raise click.ClickException(f"{what} is not a script, a recorded run or a directory")
        return what
    from headrace._src.train.inspect import step_recorder

    if not Path(words[0]).is_file():
        raise click.ClickException(f"there is no {words[0]}")
    out.write_text("")
    plan_file = out.with_suffix(".json")
    plan_file.write_text(json.dumps({**plan, "program": words, "out": str(out)}))
    arguments = [python or sys.executable, str(step_recorder.__file__), str(plan_file)]
    with Console(stderr=True).status(f"running {what}"):
        done = subprocess.run(arguments, capture_output=True, text=True, errors="replace")
    if done.returncode:
        last = "\n".join((done.stderr or done.stdout).splitlines()[-15:])
        raise click.ClickException(f"{what} ended with status {done.returncode}:\n{last}")
    if not out.stat().st_size:
        raise click.ClickException(f"{what}: {_why_nothing(plan['tensors'])}")
    return str(out)


def _why_nothing(tensors: Sequence[str]) -> str:
    if tensors:
        return f"no Session.run computed what {', '.join(tensors)} needs; are the names right?"
    return "no Session.run fetched a floating-point scalar; name a tensor: --tensor loss"


# -- Showing ---------------------------------------------------------------------------------------


def _show(found: Sequence[Match], a: str, b: str) -> None:
    console = Console(soft_wrap=True)
    table = Table(box=None, pad_edge=False)
    for title in ("compared", "steps", "part at", "A", "B", "difference"):
        table.add_column(title, justify="left" if title == "compared" else "right", no_wrap=True)
    for m in found:
        step = m.first
        at = max(range(m.steps), key=m.difference, default=0) if step is None else step
        numbers = (_number(m.a[at]), _number(m.b[at]), _share(m, at)) if m.steps else ("", "", "")
        mark = "[green]never[/]" if step is None else f"[red]step {step}[/]"
        table.add_row(m.name, str(m.steps), mark, *numbers)
    console.print(f"A  {a}\nB  {b}\n", highlight=False)
    console.print(table)
    if found and found[0].first is not None:
        _show_first(console, found[0])


def _show_first(console: Console, m: Match) -> None:
    assert m.first is not None
    console.print(f"\n[bold]{m.name}[/]: {_meaning(m.first)}", highlight=False)
    table = Table(box=None, pad_edge=False)
    for title in ("step", "A", "B", "difference"):
        table.add_column(title, justify="right")
    for step in range(max(0, m.first - _AROUND), min(m.steps, m.first + _AROUND + 1)):
        style = "red" if step == m.first else "dim" if step < m.first else ""
        table.add_row(
            str(step), _number(m.a[step]), _number(m.b[step]), _share(m, step), style=style
        )
    console.print(table)
    console.print()
    curves = {"A": m.a[: m.steps], "B": m.b[: m.steps], "log difference": _logs(m)}
    for name, numbers in curves.items():
        console.print(f"{name:>14} {sparkline(numbers)}", highlight=False)


def _meaning(first: int) -> str:
    """Return the usual causes for two programs to diverge at this step."""
    if first == 0:
        return "the first step differs: parameters at the start, data, or the forward pass"
    if first == 1:
        return "the first update differs: gradients, the optimizer, or the second batch"
    return "they part later: schedules, averages, random numbers, the order of data, or rounding"


def _number(value: float) -> str:
    return f"{value:.8g}"


def _share(m: Match, step: int) -> str:
    return f"{m.difference(step):.1e}"


def _logs(m: Match) -> list[float]:
    """Return the differences' orders of magnitude, from 1e-17 (equal) to 1 (completely
    different).
    """
    return [math.log10(min(max(m.difference(i), 1e-17), 1.0)) for i in range(m.steps)]


_BARS = "▁▂▃▄▅▆▇█"


def sparkline(numbers: Sequence[float], width: int = _WIDTH) -> str:
    """Draw a curve in a line of text, scaled from lowest to highest; non-finite values are
    crosses.
    """
    finite = [v for v in numbers if math.isfinite(v)]
    low, high = (min(finite), max(finite)) if finite else (0.0, 0.0)
    scale = (len(_BARS) - 1) / (high - low) if high > low else 0.0
    count = min(width, len(numbers))
    picked = [numbers[i * len(numbers) // count] for i in range(count)]
    return "".join(_BARS[round((v - low) * scale)] if math.isfinite(v) else "×" for v in picked)


def picture(m: Match, a: str, b: str) -> str:
    """Draw the two curves (SVG), with a line where they diverge, and the difference below."""
    steps = max(m.steps, 2)
    shown = [v for v in (*m.a, *m.b) if math.isfinite(v)] or [0.0]
    low, high = min(shown), max(shown)
    parts = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 720 420" '
        'font-family="sans-serif" font-size="13">',
        '<rect width="720" height="420" fill="white"/>',
        f'<text x="60" y="24" font-weight="bold">{_escaped(m.name)}</text>',
        f'<text x="60" y="44" fill="#1f77b4">A  {_escaped(a)}</text>',
        f'<text x="60" y="62" fill="#d62728">B  {_escaped(b)}</text>',
        *_panel(m.a[: m.steps], low, high, steps, 80, 170, "#1f77b4", ""),
        *_panel(m.b[: m.steps], low, high, steps, 80, 170, "#d62728", "6 4"),
        *_axis(f"{high:.3g}", f"{low:.3g}", 80, 170),
        *_panel(_logs(m), -17.0, 0.0, steps, 290, 90, "#555555", ""),
        *_axis("1", "1e-17", 290, 90),
        '<text x="60" y="282">relative difference</text>',
        f'<text x="690" y="405" text-anchor="end">step {m.steps - 1}</text>',
        '<text x="60" y="405">step 0</text>',
    ]
    if m.first is not None:
        x = 60 + 630 * m.first / (steps - 1)
        parts.append(f'<path d="M{x:.1f} 80V380" stroke="#999999" stroke-dasharray="2 3"/>')
        parts.append(f'<text x="{min(x + 4, 600):.1f}" y="92">step {m.first}</text>')
    return "\n".join([*parts, "</svg>\n"])


def _panel(
    numbers: Sequence[float],
    low: float,
    high: float,
    steps: int,
    top: int,
    height: int,
    color: str,
    dashes: str,
) -> Iterator[str]:
    scale = height / (high - low) if high > low else 0.0
    points = [
        f"{60 + 630 * i / (steps - 1):.1f},{top + height - (v - low) * scale:.1f}"
        for i, v in enumerate(numbers)
        if math.isfinite(v)
    ]
    style = f' stroke-dasharray="{dashes}"' if dashes else ""
    yield (
        f'<polyline points="{" ".join(points)}" fill="none" stroke="{color}" '
        f'stroke-width="1.5"{style}/>'
    )


def _axis(high: str, low: str, top: int, height: int) -> Iterator[str]:
    yield f'<path d="M60 {top}V{top + height}H690" fill="none" stroke="#cccccc"/>'
    yield f'<text x="55" y="{top + 10}" text-anchor="end">{high}</text>'
    yield f'<text x="55" y="{top + height}" text-anchor="end">{low}</text>'


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
