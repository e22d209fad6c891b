"""The command as a module: `python -m headrace`."""

import subprocess
import sys

import headrace


def test_the_package_runs_as_the_command():
    shown = subprocess.check_output([sys.executable, "-m", "headrace", "--version"], text=True)
    assert shown == f"headrace, version {headrace.HEADRACE_VERSION}\n"
