"""`headrace run`: run a program for TensorFlow 1 as it is. In: a script or module, and its
arguments. Out: whatever the program does, and its exit status.
"""

from __future__ import annotations

import click

__all__ = ["command", "start"]


def start(words: list[str]) -> None:
    """Run a program in this process. The arguments after the script belong to it, so that they are
    not parsed by click; and the program's exceptions are not handled by it.
    """
    mend = True
    rest = list(words)
    while rest and rest[0] == "--no-mend":
        mend = False
        rest.pop(0)
    if rest[:1] == ["-m"] and len(rest) > 1:
        from headrace._src.compat.running import run_module

        run_module(rest[1], rest[2:], mend)
    elif rest and not rest[0].startswith("-"):
        from headrace._src.compat.running import run_script

        run_script(rest[0], rest[1:], mend)
    else:
        help_only = not rest or rest[0] in ("-h", "--help")
        command.main(["--help"] if help_only else rest, prog_name="headrace run")


@click.command(context_settings={"ignore_unknown_options": False})
@click.option("-m", "module", is_flag=True, help="SCRIPT is the name of a module.")
@click.option("--no-mend", is_flag=True, help="Mend nothing outside of TensorFlow.")
@click.argument("script")
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def command(module: bool, no_mend: bool, script: str, args: tuple[str, ...]) -> None:
    """Run a TensorFlow 1 program, unmodified.

    In SCRIPT, `import tensorflow` means Headrace. Names and arguments of TensorFlow 0.8 to 1.15 are
    accepted. What has changed in Python, NumPy and other libraries since is mended in memory, with
    a line of notice for each kind; no file is changed. docs/running_tf1.md has the details.
    """
    start([*(["--no-mend"] if no_mend else []), *(["-m"] if module else []), script, *args])
