"""The pipeline: one visible list of passes, and the function that runs them.

In: fetches, targets, feeds and options. Out: a Program. With HEADRACE_VERIFY set (and always in
tests) the verifier of each form runs after each pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.core.config import settings
from headrace.graph.operation import Operation, Tensor
from headrace.graph.program import Program, StepGraph
from headrace.graph.verify import verify_program, verify_step_graph
from headrace.optimize.prune import prune
from headrace.pipeline.schedule import schedule
from headrace.place.constraints import place

__all__ = ["PASSES", "Options", "compile_step"]


@dataclass(frozen=True, slots=True)
class Options:
    """What a session's configuration says about making programs."""

    devices: tuple[str, ...] = ("/job:localhost/replica:0/task:0/device:CPU:0",)
    soft_placement: bool = False


@dataclass(frozen=True, slots=True)
class Request:
    """What a step was asked for, before any pass."""

    fetches: tuple[Tensor, ...]
    targets: tuple[Operation, ...]
    feeds: tuple[Tensor, ...]


Pass = tuple[str, Callable[[Any, Options], Any], Callable[[Any], None]]

# (name, pass, verifier of its result), in order.
PASSES: list[Pass] = [
    ("prune", lambda r, o: prune(r.fetches, r.targets, r.feeds), verify_step_graph),
    ("place", lambda s, o: place(s, o.devices, o.soft_placement), verify_step_graph),
    ("schedule", lambda s, o: schedule(s), verify_program),
]


def compile_step(
    fetches: Sequence[Tensor],
    targets: Sequence[Operation],
    feeds: Sequence[Tensor],
    options: Options | None = None,
    watch: Callable[[str, StepGraph | Program], None] | None = None,
) -> Program:
    """Run every pass; `watch` sees each pass's name and result."""
    options = options or Options()
    form: Any = Request(tuple(fetches), tuple(targets), tuple(feeds))
    for name, run, verify in PASSES:
        form = run(form, options)
        if settings().verify:
            verify(form)
        if watch is not None:
            watch(name, form)
    return form
