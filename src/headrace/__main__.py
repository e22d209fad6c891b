"""python -m headrace: the `headrace` command, for where it is not on the path."""

from headrace.cli import main

main(prog_name="headrace")
