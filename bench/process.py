"""A worker process that answers each line it is sent with one line."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence


class Stopped(Exception):
    """The worker ended where an answer was due."""


class Process:
    """A child that is asked and answers; its standard error goes nowhere."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, **environment},
        )

    def read(self) -> str:
        """The next line."""
        line = self._process.stdout.readline().strip()
        if not line:
            raise Stopped
        return line

    def ask(self, line: str) -> str:
        """Send a line and wait for the answer."""
        try:
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise Stopped from None
        return self.read()

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait(timeout=60)
        self._process.stdout.close()
