"""Choose the executable of a plan. In: the values of the feeds. Out: one for their shapes.

The first run with a new shape signature specialises the step, up to a limit per plan. Past the
limit, and after a variable was found to have another shape than declared, the step runs as it is.
Steps are interpreted until they are compiled (see pipeline.tiers); until then their executable is
in `_waiting`. Executables that no longer change are in `_settled`. Shape signatures from before a
restart of the program are `_expected`: they count towards the limit, and go on counting their runs,
so that they are compiled when they would have been.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from headrace._src.core import dtypes
from headrace._src.core.locks import Lock
from headrace._src.devices.resources import Resources
from headrace._src.graph.dataflow import Dataflow
from headrace._src.graph.operation import Tensor
from headrace._src.graph.program import Program
from headrace._src.graph.structured import Unraisable
from headrace._src.pipeline import Options, compile_at, finish, finish_as_is, optimise
from headrace._src.runtime import Executable, PartitionedExecutable, ShapesChanged, guarded
from headrace._src.runtime.shared_inputs import sharing_inputs
from headrace._src.session.watching import StepWatch

__all__ = ["Variants"]

Shapes = tuple[Any, ...]


@dataclass
class _Waiting:
    """A step that is interpreted until the run with the number `compile_at` compiles it."""

    flow: Dataflow
    executable: Executable
    compile_at: int
    runs: int


class Variants:
    """The executables of a prepared step, by the shapes of its feeds."""

    def __init__(
        self,
        step: Dataflow,
        options: Options,
        resources: Resources,
        expected: Mapping[Shapes, int | None] | None = None,
        watch: StepWatch | None = None,
    ) -> None:
        self.watch = watch
        self._step = step
        self._options = options
        self._resources = resources
        # The feeds whose shapes form a key: other feeds have a known shape, or none.
        self._varying = tuple(
            i
            for i, feed in enumerate(step.feeds)
            if _has_shape(feed.tensor) and not feed.tensor._shape.is_fully_defined()
        )
        self._settled: dict[Shapes, Executable] = {}
        self._waiting: dict[Shapes, _Waiting] = {}
        self._as_is: Any = None
        self._shared: Executable | None = None
        # Numbers are checked per operation, which requires running operations one by one.
        self._limit = 0 if options.check_numerics else options.specialisations
        self._expected = dict(expected or {})
        self._lock = Lock()
        self._compiling = threading.Lock()

    def run(self, values: list[Any]) -> list[Any]:
        """Run one step and return the values of its fetches."""
        key = tuple([values[i].shape for i in self._varying])
        executable = self._settled.get(key)
        if executable is None:
            executable = self._settle(key, values)
        try:
            return executable.run(values)
        except ShapesChanged:
            executable = self.despecialise()
        return executable.run(values)

    def choose(self, values: list[Any]) -> Executable:
        """Return the executable for these values."""
        key = tuple([values[i].shape for i in self._varying])
        return self._settled.get(key) or self._settle(key, values)

    def seen(self) -> dict[Shapes, int | None]:
        """Return the shapes that the step has run with, and for those that are still to be compiled
        how often.
        """
        with self._lock:
            waiting = {key: each.runs for key, each in self._waiting.items()}
            return self._expected | dict.fromkeys(self._settled) | waiting

    def as_is(self) -> Executable:
        """Return the executable for values of any shape."""
        if self._as_is is None:
            program = finish_as_is(self._step, self._options)
            guard = partial(guarded, self._resources) if self._options.check_numerics else None
            self._as_is = self._executable(program, guard)
        return self._as_is

    def whole(self) -> Executable:
        """Return the executable for any values that runs all devices in one program, for runs that
        are fed and fetched piece by piece.
        """
        program = finish_as_is(self._step, self._options, whole=True)
        return Executable(program, self._resources)

    def shared(self) -> Executable:
        """Return the executable whose results may share memory with variables: for reading only."""
        if self._shared is None:
            program = finish_as_is(self._step, self._options, whole=True)
            self._shared = Executable(program, self._resources, sharing=True)
        return self._shared

    def despecialise(self) -> Executable:
        """Run the step as it is from now on; return the executable for that."""
        with self._lock:
            self._limit = 0
            self._settled.clear()
            self._waiting.clear()
        return self._fallback("a variable has another shape than was declared")

    def _settle(self, key: Shapes, values: list[Any]) -> Executable:
        """Return the executable for shapes that have none yet, or whose step is to be compiled."""
        with self._lock:
            if key in self._settled:
                return self._settled[key]
            waiting = self._waiting.get(key)
            if waiting is None:
                known = self._expected.keys() | self._settled.keys() | self._waiting.keys()
                if len(known | {key}) > self._limit:
                    limit = self._limit
                    return self._fallback(f"it is specialised for {limit} shapes of feeds at most")
                return self._first(key, values)
            waiting.runs += 1
            if waiting.runs < waiting.compile_at:
                return waiting.executable
        if not self._compiling.acquire(blocking=False):
            return waiting.executable  # another thread is compiling: do not wait for it
        try:
            executable = self._compiled(waiting.flow)
        finally:
            self._compiling.release()
        with self._lock:
            if self._waiting.pop(key, None) is not None:
                self._settled[key] = executable
        return executable

    def _first(self, key: Shapes, values: list[Any]) -> Executable:
        shapes = [
            np.shape(v) if _has_shape(feed.tensor) else None
            for feed, v in zip(self._step.feeds, values, strict=True)
        ]
        try:
            flow = optimise(self._step, shapes, self._options)
        except Unraisable as error:
            self._limit = 0  # control flow that only the primitives can express
            return self._fallback(f"its control flow has no structured form: {error}")
        when = compile_at(flow, self._options.jit)
        before = self._expected.get(key, 0)  # runs before a restart of the program
        runs = when if before is None else before + 1
        if when is not None and runs is not None and runs >= when:
            self._settled[key] = executable = self._compiled(flow)
            return executable
        executable = self._executable(finish(flow, self._options))
        if when is None:
            self._settled[key] = executable
        else:
            assert runs is not None
            self._waiting[key] = _Waiting(flow, executable, when, runs)
        return executable

    def _fallback(self, reason: str) -> Executable:
        """Return the executable for values of any shape, and tell the watch the reason."""
        if self.watch is not None:
            self.watch.runs_as_is(reason)
        return self.as_is()

    def _compiled(self, flow: Dataflow) -> Executable:
        return self._executable(finish(flow, self._options, compiled=True))

    def _executable(self, program: Any, guard: Any = None) -> Any:
        if isinstance(program, Program):
            guard = guard or sharing_inputs([program])
            return Executable(program, self._resources, guard=guard)
        joined = [] if program.joined is None else [program.joined]
        guard = guard or sharing_inputs([*program.programs, *joined])
        return PartitionedExecutable(program, self._resources, guard)


def _has_shape(t: Tensor) -> bool:
    return t.dtype.base_dtype not in (dtypes.resource, dtypes.variant)
