"""Run a program and record its steps. In: a script and its arguments. Out: a Capture, with a record
of each step that sessions prepared.

A step is identified by its graph and the names of its fetches, targets and feeds; sessions that
prepare it again add to the same record. Runs are counted in all threads.
"""

from __future__ import annotations

import contextlib
import runpy
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from headrace._src.compat.activation import activate, imports_tensorflow
from headrace._src.graph.dataflow import Dataflow, Node
from headrace._src.graph.operation import Operation, Tensor
from headrace._src.pipeline import PASSES, Options, finish
from headrace._src.session.watching import observed_by

__all__ = ["Capture", "Ending", "CapturedStep", "Variant", "count_nodes", "run_script"]

_STAGES = {each.name: each.stage for each in PASSES}

Forms = list[tuple[str, Any]]  # the name of each pass, and its result


def count_nodes(lines: Iterable[str]) -> int:
    """Return how many nodes a printed form has, not counting those inside loops and branches."""
    return sum(not line.startswith(("feed ", "fetch ", "run ", " ")) for line in lines)


@dataclass
class Variant:
    """A step for one combination of feed shapes, or a loop of one that was compiled while it ran.

    `forms` are the results of the optimiser's passes; `interpreted` and `compiled` are the forms
    from there to a program. `refused`: which nodes were not compiled, and why.
    """

    shapes: tuple[str, ...]
    is_loop: bool = False
    forms: Forms = field(default_factory=list)
    interpreted: Forms = field(default_factory=list)
    compiled: Forms = field(default_factory=list)
    refused: list[tuple[Node, str]] = field(default_factory=list)

    @property
    def flow(self) -> Dataflow | None:
        """The optimised step."""
        return self.forms[-1][1] if self.forms else None


class CapturedStep:
    """The record of one step: a watch of headrace._src.session.watching."""

    def __init__(
        self,
        capture: Capture,
        fetches: Sequence[Tensor],
        targets: Sequence[Operation],
        feeds: Sequence[Tensor],
        options: Options,
    ) -> None:
        self.fetches = [t.name for t in fetches]
        self.targets = [op.name for op in targets]
        self.feeds = [t.name for t in feeds]
        self.options = options
        self.runs = 0
        self.seconds = 0.0
        self.least = float("inf")  # the seconds of the quickest run
        self.prepared: Forms = []
        self.variants: dict[tuple[str, ...], Variant] = {}
        self.as_is: list[str] = []  # the reasons why some runs interpret it unoptimised
        self._capture = capture
        self._current = threading.local()

    @property
    def names(self) -> list[str]:
        """The names of its fetches and targets."""
        return [*self.fetches, *self.targets]

    @property
    def nodes(self) -> int:
        """How many operations it needs."""
        return count_nodes(str(self.prepared[-1][1]).splitlines()) if self.prepared else 0

    def gives(self, name: str) -> bool:
        """Return whether it fetches or runs a tensor or operation."""
        return name in self.names or f"{name}:0" in self.fetches

    def passed(self, name: str, form: Any) -> None:
        stage = _STAGES[name]
        if stage == "prepare":
            if any(name == known for known, _ in self.prepared):  # another session prepares it
                self.prepared = []
            self.prepared.append((name, form))
        elif stage in ("raise", "transfer", "read"):
            self._current.raised = [*getattr(self._current, "raised", ()), (name, form)]
        elif stage == "optimise":
            self._variant(form, name).forms.append((name, form))
        elif stage == "compile":
            variant = self._variant(form)
            if any(name == known for known, _ in variant.compiled):  # another session too
                variant.compiled, variant.refused = [], []
            variant.compiled.append((name, form))
        else:
            variant = self._current.variant
            (variant.compiled or variant.interpreted).append((name, form))

    def _variant(self, flow: Dataflow, begins: str = "") -> Variant:
        """Return the variant that a flow belongs to, and make it this thread's current variant."""
        shapes = tuple(f"{f.value.name} {f.type}" for f in flow.feeds)
        found = self.variants.get(shapes)
        again = found is not None and any(begins == name for name, _ in found.forms)
        if found is None or again:
            found = Variant(shapes, is_loop=not begins)
            found.forms += getattr(self._current, "raised", ())
            self.variants[shapes] = found
        if begins:
            self._current.raised = []
        self._current.variant = found
        return found

    def told(self, node: Node, reason: str) -> None:
        self._current.variant.refused.append((node, reason))

    def runs_as_is(self, reason: str) -> None:
        if reason not in self.as_is:
            self.as_is.append(reason)

    def ran(self, seconds: float) -> None:
        with self._capture.lock:
            self.runs += 1
            self.seconds += seconds
            self.least = min(self.least, seconds)
        self._capture.count()

    def complete(self, variant: Variant) -> None:
        """Compile a variant that hasn't run often enough to be compiled."""
        assert variant.flow is not None
        options = replace(self.options, watch=self.passed, tell=self.told)
        finish(variant.flow, options, compiled=True)


class Capture:
    """The steps of a program, in the order in which they were prepared, and how many runs there
    were. `most`: the number of runs after which the program is stopped. `progress` is called after
    each run. `running`: whether the program's main thread may be interrupted.
    """

    def __init__(self, most: int | None, progress: Callable[[Capture], None]) -> None:
        self.steps: list[CapturedStep] = []
        self.runs = 0
        self.running = False
        self.lock = threading.Lock()
        self._most = most
        self._progress = progress
        self._known: dict[Any, CapturedStep] = {}

    def __call__(
        self,
        fetches: Sequence[Tensor],
        targets: Sequence[Operation],
        feeds: Sequence[Tensor],
        options: Options,
    ) -> CapturedStep:
        key = (*fetches, None, *targets, None, *feeds)
        with self.lock:
            if key not in self._known:
                self._known[key] = CapturedStep(self, fetches, targets, feeds, options)
                self.steps.append(self._known[key])
            return self._known[key]

    def count(self) -> None:
        """Count a finished run; end the program if it was the last."""
        with self.lock:
            self.runs += 1
        self._progress(self)
        if self._most is None or self.runs < self._most:
            return
        if threading.current_thread() is not threading.main_thread():
            with self.lock:
                if self.running:  # the main thread may be waiting for this one: wake it up
                    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
                self.running = False
        raise _Enough

    @property
    def is_full(self) -> bool:
        return self._most is not None and self.runs >= self._most


class _Enough(SystemExit):
    """Ends a program after the requested number of runs."""


@dataclass(frozen=True)
class Ending:
    """How a program ended: a line about it ("" if it ended normally), whether the program failed,
    and the exception that ended it.
    """

    text: str = ""
    failed: bool = False
    error: BaseException | None = None


def run_script(script: Path, arguments: Sequence[str], capture: Capture) -> Ending:
    """Run a script as Python would, with its output on stderr; record its steps in the capture. In
    one that imports tensorflow, that means Headrace.
    """
    if imports_tensorflow(script.read_text(errors="replace")):
        activate()
    try:
        with _as_main(script, arguments), observed_by(capture), _interruptible(capture):
            runpy.run_path(str(script), run_name="__main__")
    except _Enough:
        return Ending(f"stopped after {_runs(capture.runs)}")
    except SystemExit as error:
        failed = error.code not in (None, 0)
        return Ending(f"{script.name} ended with status {error.code}" if failed else "", failed)
    except KeyboardInterrupt:
        how = "stopped" if capture.is_full else "interrupted"
        return Ending(f"{how} after {_runs(capture.runs)}")
    except BaseException as error:
        return Ending(f"{script.name} failed after {_runs(capture.runs)}", True, error)
    return Ending()


@contextlib.contextmanager
def _interruptible(capture: Capture) -> Iterator[None]:
    """Let `Capture.count` interrupt the main thread, also if this process ignores Ctrl-C, as one
    does that a shell has started in the background.
    """
    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    capture.running = True
    try:
        yield
    finally:
        with capture.lock:
            capture.running = False
        if before is signal.SIG_IGN:
            signal.signal(signal.SIGINT, before)


def _runs(count: int) -> str:
    return "1 run" if count == 1 else f"{count:,} runs"


@contextlib.contextmanager
def _as_main(script: Path, arguments: Sequence[str]) -> Iterator[None]:
    """Set up the script's environment: its arguments, and its directory on the path."""
    argv, path = sys.argv, sys.path[:]
    sys.argv = [str(script), *arguments]
    sys.path.insert(0, str(script.resolve().parent))
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        sys.argv, sys.path[:] = argv, path
