"""python -m headrace: the `headrace` command, for where it is not on the path."""

from headrace._src.cli import main

main(prog_name="headrace")
