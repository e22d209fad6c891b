"""One task of a cluster in a process that Ray has started. In: a server to run, or a script. Out:
the task's address, what it reports, how it ended.

Two actors: a RayTask for each task, and one Directory, which all of them report to. Only addresses,
counts and the script's arguments pass through Ray; steps and tensors pass through our own ports.
A script runs in the main thread of its actor, as it would in a process of its own. So the actor
answers no call while it runs, and a thread beside it asks the directory twice per second what is
new.
"""

from __future__ import annotations

import _thread
import os
import runpy
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from headrace._src.core.config import set_tf_config
from headrace._src.core.proto import ServerDef
from headrace._src.server.server import Server, finished_steps, learn_moves, stop_all
from headrace._src.transport.connect import is_loopback
from headrace._src.transport.keys import give_key
from headrace._src.transport.reserve import reserve

__all__ = ["Directory", "RayTask"]

_INTERVAL = 0.5  # seconds between two reports


class Directory:
    """Where the tasks of a cluster are, and what they report. State: the moves of tasks that were
    started again, the steps of each task, and whether all are to end.
    """

    def __init__(self) -> None:
        self._moves: dict[str, str] = {}
        self._steps: dict[str, int] = {}
        self._ending = False

    def report(self, task: str, steps: int) -> tuple[dict[str, str], bool]:
        """Take the report of a task; return the moves, and whether it is to end."""
        self._steps[task] = steps
        return self._moves, self._ending

    def move(self, first: str, now: str) -> dict[str, str]:
        """Say where the task is whose first address was `first`; return all moves."""
        self._moves[first] = now
        return self._moves

    def end(self) -> None:
        """Let all tasks end, as if each had got a Ctrl-C."""
        self._ending = True

    def steps(self) -> dict[str, int]:
        """Return how many steps have ended on each task, by its name."""
        return self._steps


class RayTask:
    """A task, as a Ray actor. name: how users read it, such as "worker 1". directory: the name of
    the Directory. key: the cluster's, for tasks that other hosts connect to.
    """

    def __init__(self, name: str, directory: str, key: bytes) -> None:
        self._name = name
        self._directory = directory
        self._key = key
        self._held: Any = None
        self._server: Server | None = None
        self._ended = threading.Event()

    def __repr__(self) -> str:
        return self._name  # Ray prints it before each line of this process

    def address(self) -> str:
        """Find a free port on this host, and return the address at which the task will listen."""
        import ray

        (self._held,) = reserve(1, ray.util.get_node_ip_address())
        return self._held.address

    def serve(self, encoded: bytes, moves: Mapping[str, str]) -> int:
        """Serve a task until it is stopped. encoded: a ServerDef."""
        self._prepare(moves)
        server = Server(ServerDef.FromString(encoded))
        try:
            server.join()
        finally:
            self._ended.set()
        return 0

    def run(self, command: Sequence[str], tf_config: str, moves: Mapping[str, str]) -> int:
        """Run a program as `python COMMAND` would; return its exit code. command: a script, or -m
        and a module, and the program's arguments.
        """
        self._prepare(moves)
        set_tf_config(tf_config)
        code = 1
        try:
            _run(command)
            code = 0
        except SystemExit as ended:
            code = _exit_code(ended)
        except KeyboardInterrupt:
            code = 130
        except BaseException:
            traceback.print_exc()
        finally:
            self._ended.set()
            stop_all(clean=code == 0)
            sys.stdout.flush()
            sys.stderr.flush()
        return code

    def _prepare(self, moves: Mapping[str, str]) -> None:
        learn_moves(moves)
        if self._held is not None and not is_loopback(self._held.address):
            give_key(self._key)
        threading.Thread(target=self._watch, name="headrace directory", daemon=True).start()

    def _watch(self) -> None:
        """Report to the directory, and do as it says."""
        import ray
        from ray.exceptions import RayError

        directory = ray.get_actor(self._directory)
        while not self._ended.wait(_INTERVAL):
            try:
                moves, ending = ray.get(directory.report.remote(self._name, finished_steps()))
            except RayError:
                continue  # the directory is away: the program that started it decides
            learn_moves(moves)
            if ending:
                _thread.interrupt_main()
                return


def _run(command: Sequence[str]) -> None:
    """Run a script or a module as the main program."""
    if command[0] == "-m":
        sys.argv = [*command[1:]]
        sys.path.insert(0, os.getcwd())
        runpy.run_module(command[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = [*command]
        sys.path.insert(0, str(Path(command[0]).resolve().parent))
        runpy.run_path(command[0], run_name="__main__")


def _exit_code(ended: SystemExit) -> int:
    """Return the exit code of a process that this exception ends."""
    if ended.code is None or isinstance(ended.code, int):
        return ended.code or 0
    print(ended.code, file=sys.stderr)
    return 1
