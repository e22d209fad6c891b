"""A worker process that answers each line it is sent with one line."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
from collections.abc import Mapping, Sequence


class Stopped(Exception):
    """The worker ended where an answer was due, or it was ended for taking too long."""


class Process:
    """A child that is asked and answers; its standard error goes nowhere.

    patience: seconds to wait for an answer, without end if None.
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        patience: float | None = None,
    ) -> None:
        self._patience = patience
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
        # Nothing is left in the reader's buffer here: a worker writes one line for each question.
        if not select.select([self._process.stdout], [], [], self._patience)[0]:
            self._process.kill()
            raise Stopped(f"no answer in {self._patience:g} s")
        line = self._process.stdout.readline().strip()
        if not line:
            raise Stopped("the worker stopped")
        return line

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, line: str) -> str:
        """Send a line and wait for the answer."""
        self.send(line)
        return self.read()

    def send(self, line: str) -> None:
        """Send a line."""
        try:
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise Stopped("the worker stopped") from None

    def close(self) -> None:
        """End the worker: it ends by itself when there is nothing more to read."""
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
