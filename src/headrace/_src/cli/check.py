"""`headrace check`: list the symbols of TensorFlow that a program uses and Headrace lacks. In:
scripts or directories. Out: a line for each, and exit status 1 if there are any.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import click

__all__ = ["command"]


@click.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
def command(paths: tuple[Path, ...]) -> None:
    """List what a TensorFlow 1 program uses and Headrace lacks.

    PATHS are scripts or directories. Nothing of the program is run. Each line names a symbol, where
    it is used, and what to do instead.
    """
    from headrace._src.compat.checking import check, python_files

    used: set[str] = set()
    missing: Counter[str] = Counter()
    failed = files = 0
    for file in [file for path in paths for file in python_files(path)]:
        files += 1
        try:
            found = check(file)
        except SyntaxError as error:
            click.echo(f"{file}:{error.lineno}: neither Python 3 nor 2: {error.msg}")
            failed += 1
            continue
        used |= found.used
        for finding in sorted(found.missing.values(), key=lambda finding: finding.lines):
            missing[finding.symbol] += len(finding.lines)
            lines = ",".join(map(str, sorted(finding.lines)))
            click.echo(f"{file}:{lines}: {finding.message}")
    count = f"{files} file{'s' * (files != 1)}"
    click.echo(f"{count}: {len(used)} symbols of TensorFlow used, {len(missing)} missing")
    sys.exit(1 if missing or failed else 0)
