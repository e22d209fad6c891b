"""The pipeline: one visible list of passes, and the functions that run its stages.

In: fetches, targets, feeds and options. Out: a Program, or one for each device. With
HEADRACE_VERIFY set (and always in tests) the verifier of each form runs after each pass.

Stages, in order: `prepare` (once per plan: the operations that the step needs, and their devices),
`raise` (if it calls functions, or has loops or branches), `transfer`, `read` and `optimise` (once
per combination of feed shapes), `compile` or `interpret` (as pipeline.tiers decides), `finish`. A
prepared step also has a generic program (`finish_as_is`), for shapes that are not specialised for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

from headrace._src.core.collector import without_collector
from headrace._src.core.config import settings
from headrace._src.core.progress import announced
from headrace._src.devices.blocks import working_memory
from headrace._src.devices.device import Device, local_devices, within
from headrace._src.graph.dataflow import Dataflow, Node, map_parts
from headrace._src.graph.operation import Operation, Tensor
from headrace._src.graph.program import Program
from headrace._src.graph.verify_flow import verify_dataflow, verify_reads
from headrace._src.optimize.common import merge_common
from headrace._src.optimize.dead import remove_dead
from headrace._src.optimize.fold import fold, hold_constants
from headrace._src.optimize.inlining import inline
from headrace._src.optimize.mixed_precision import mix_precision
from headrace._src.optimize.pad_unique_rows import pad_rows
from headrace._src.optimize.prune import prune
from headrace._src.optimize.races import find_races
from headrace._src.optimize.raising import raise_structure
from headrace._src.optimize.reads import read_variables
from headrace._src.optimize.reduce_in_place import reduce_in_place
from headrace._src.optimize.reread_references import reread
from headrace._src.optimize.simplify import simplify
from headrace._src.optimize.specialise import specialise
from headrace._src.optimize.states import verify_order
from headrace._src.partition.compress import compress_transfers
from headrace._src.partition.cut import cut
from headrace._src.partition.stages import earliest_first
from headrace._src.partition.transfers import add_transfers, settle_devices, verify_transfers
from headrace._src.partition.verify import verify_partitions, verify_programs
from headrace._src.pipeline.clusters import (
    cluster,
    memory_ahead,
    recompute,
    rewrite,
    separate_lists,
)
from headrace._src.pipeline.long_loops import count_iterations
from headrace._src.pipeline.reports import report_races
from headrace._src.pipeline.schedule import schedule, schedule_flow
from headrace._src.place.constraints import Placement, place

__all__ = [
    "PASSES",
    "Options",
    "compile_step",
    "finish",
    "finish_as_is",
    "incarnations",
    "optimise",
    "prepare",
    "run_stage",
    "with_transfers",
]

Shape = tuple[int, ...] | None
Watch = Callable[[str, Any], None]
Tell = Callable[[Node, str], None]


@dataclass(frozen=True, slots=True)
class Options:
    """A session's options for making programs.

    placement: the devices of the operations of the session's graph. jit: when steps are compiled
    (see pipeline.tiers). specialisations: for how many combinations of feed shapes a step is
    optimised. memory: the limit in bytes for a cluster. check_numerics: whether every operation is
    checked; steps are then run unoptimised. mixed: whether contractions compute in bfloat16 (None:
    as the graph of the step says). compress: whether float32 values travel between hosts in 16
    bits. watch: called with each pass's name and result. tell: called with each node that is not
    compiled, and the reason.
    """

    devices: tuple[Device, ...] = field(default_factory=local_devices)
    soft_placement: bool = False
    placement: Placement | None = field(default=None, compare=False, repr=False)
    jit: str = field(default_factory=lambda: settings().jit)
    specialisations: int = field(default_factory=lambda: settings().specialisations)
    memory: int = field(default_factory=working_memory)
    check_numerics: bool = field(default_factory=lambda: settings().check_numerics)
    mixed: bool | None = None
    compress: bool = False
    watch: Watch | None = field(default=None, compare=False, repr=False)
    tell: Tell | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Request:
    """The request for a step, before any pass."""

    fetches: tuple[Tensor, ...]
    targets: tuple[Operation, ...]
    feeds: tuple[Tensor, ...]


class PipelinePass(NamedTuple):
    """A step of the pipeline: a function of a form, and the verifier of the result.

    inside: how it reaches the flows inside loops and branches. "parts first": it runs on each of
    them, then on the flow around; "whole first": it is offered a loop as a whole, and then runs on
    the parts of those that it left; "by itself": it handles them itself.
    """

    stage: str
    name: str
    run: Callable[[Any, Options], Any]
    verify: Callable[[Any], None]
    inside: Literal["parts first", "whole first", "by itself"] = "parts first"


PASSES: list[PipelinePass] = [
    PipelinePass(
        "prepare", "prune", lambda r, o: prune(r.fetches, r.targets, r.feeds), verify_dataflow
    ),
    PipelinePass("prepare", "reread", lambda f, o: reread(f), verify_dataflow),
    PipelinePass(
        "prepare",
        "place",
        lambda f, o: place(f, o.devices, o.soft_placement, o.placement),
        verify_dataflow,
    ),
    # Functions' bodies, loops and branches become nodes that hold steps.
    PipelinePass(
        "raise",
        "inline",
        lambda f, o: inline(f, lambda body: place(body, o.devices, o.soft_placement)),
        verify_dataflow,
    ),
    PipelinePass("raise", "raise", lambda f, o: raise_structure(f), verify_dataflow),
    # Edges between devices become explicit. The later passes still see the whole step.
    PipelinePass(
        "transfer", "transfer", lambda f, o: add_transfers(f), verify_transfers, "by itself"
    ),
    # On request, float32 values travel between hosts in 16 bits.
    PipelinePass(
        "transfer",
        "compress",
        lambda f, o: compress_transfers(f) if o.compress else f,
        verify_transfers,
        "by itself",
    ),
    # Tasks must not wait for each other because of the order of effects, where that is open.
    PipelinePass("transfer", "sort", lambda f, o: earliest_first(f), verify_transfers, "by itself"),
    # Reads of variables become explicit; so do shapes, constants and the order of effects.
    PipelinePass("read", "read", lambda f, o: read_variables(f), verify_reads),
    PipelinePass("optimise", "specialise", lambda s, o: specialise(*s), verify_order),
    # On request, contractions compute in 16 bits.
    PipelinePass("optimise", "mix", lambda f, o: mix_precision(f) if o.mixed else f, verify_order),
    PipelinePass("optimise", "fold", lambda f, o: fold(f), verify_order),
    PipelinePass("optimise", "simplify", lambda f, o: simplify(f), verify_order),
    PipelinePass("optimise", "pad", lambda f, o: pad_rows(f), verify_order),
    PipelinePass("optimise", "common", lambda f, o: merge_common(f), verify_order),
    PipelinePass("optimise", "dead", lambda f, o: remove_dead(f), verify_order),
    # Regions become nodes of native code; without the compiler the flow stays as it is.
    PipelinePass("compile", "rewrite", lambda f, o: rewrite(f), verify_order),
    PipelinePass(
        "compile", "settle", lambda f, o: settle_devices(f), verify_transfers, "by itself"
    ),
    PipelinePass("compile", "merge", lambda f, o: merge_common(f), verify_order),
    # Between regions, the values that a loop has saved for its gradient loop are arrays.
    PipelinePass("compile", "separate", lambda f, o: separate_lists(f), verify_order, "by itself"),
    PipelinePass("compile", "recompute", lambda f, o: recompute(f, o.memory), verify_order),
    PipelinePass(
        "compile", "cluster", lambda f, o: cluster(f, o.tell), verify_order, "whole first"
    ),
    # Where the interpreter runs the step, loops are compiled once they are long.
    PipelinePass(
        "interpret",
        "count",
        lambda f, o: count_iterations(f, _compiling(o)),
        verify_order,
        "whole first",
    ),
    # Collectives may use the memory of inputs that nothing else reads.
    PipelinePass("finish", "in place", lambda f, o: reduce_in_place(f), verify_dataflow),
    PipelinePass(
        "finish", "cut", lambda f, o: cut(f, incarnations(o)), verify_partitions, "by itself"
    ),
    PipelinePass("finish", "schedule", lambda f, o: schedule(f), verify_programs, "by itself"),
]


def incarnations(options: Options) -> dict[str, int]:
    """Return the incarnations of a session's devices."""
    return {device.name: device.incarnation for device in options.devices}


@without_collector
def prepare(
    fetches: Sequence[Tensor],
    targets: Sequence[Operation],
    feeds: Sequence[Tensor],
    options: Options,
    report: bool = True,
) -> Dataflow:
    """Return the operations that a step needs, on their devices. `report`: whether to warn of
    accesses to variables that nothing orders.
    """
    request = Request(tuple(fetches), tuple(targets), tuple(feeds))
    step = run_stage("prepare", request, options)
    if report:
        report_races(find_races(step))
    return step


@without_collector
def optimise(step: Dataflow, shapes: Sequence[Shape], options: Options) -> Dataflow:
    """Return the step for feeds of these shapes (None: not known); Unraisable if its control flow
    has no structured form.
    """
    if step.steers or step.calls:
        step = run_stage("raise", step, options)
    step = run_stage("transfer", step, options)
    step = run_stage("read", step, options)
    return run_stage("optimise", (step, shapes), options)


@without_collector
def finish(flow: Dataflow, options: Options, compiled: bool = False) -> Any:
    """Return the Program of an optimised step, or the PartitionedProgram of one with several
    devices; with native code if `compiled`.
    """
    if compiled:
        with announced("compiling a step"), memory_ahead(flow):
            flow = run_stage("compile", flow, options)
    elif options.jit in ("auto", "second"):
        flow = run_stage("interpret", flow, options)
    return run_stage("finish", flow, options)


def _compiling(options: Options) -> Callable[[Dataflow], Program]:
    """Return the function that compiles a loop."""
    return lambda flow: finish(flow, options, compiled=True)


@without_collector
def finish_as_is(step: Dataflow, options: Options, whole: bool = False) -> Any:
    """Return the program of a prepared step that runs with any shapes, or its PartitionedProgram.
    `whole`: one Program, whatever the devices.
    """
    step = with_transfers(step, options)
    if whole:
        return replace(schedule_flow(step), specialised=False)
    made = run_stage("finish", step, replace(options, watch=None))
    if isinstance(made, Program):
        return replace(made, specialised=False)
    programs = tuple(replace(program, specialised=False) for program in made.programs)
    joined = made.joined and replace(made.joined, specialised=False)
    return replace(made, programs=programs, joined=joined)


def with_transfers(step: Dataflow, options: Options) -> Dataflow:
    """Return a prepared step that runs with any shapes, in which transfers and reads are
    explicit.
    """
    step = run_stage("transfer", hold_constants(step), replace(options, watch=None))
    step = read_variables(step, ordered=True)
    if settings().verify:
        verify_reads(step)
        verify_transfers(step)
    return step


def compile_step(
    fetches: Sequence[Tensor],
    targets: Sequence[Operation],
    feeds: Sequence[Tensor],
    shapes: Sequence[Shape],
    options: Options | None = None,
    watch: Watch | None = None,
) -> Any:
    """Run every pass; call `watch` with each pass's name and result."""
    options = replace(options or Options(), watch=watch)
    step = prepare(fetches, targets, feeds, options)
    flow = optimise(step, shapes, options)
    return finish(flow, options, options.jit != "off")


def run_stage(stage: str, form: Any, options: Options) -> Any:
    """Run the passes of a stage, each with its verifier."""
    for each in PASSES:
        if each.stage == stage:
            with within(options.devices):  # a server's are not those of the process
                form = (
                    _deeply(each, form, options)
                    if isinstance(form, Dataflow)
                    else each.run(form, options)
                )
            if settings().verify:
                each.verify(form)
            if options.watch is not None:
                options.watch(each.name, form)
    return form


def _deeply(each: PipelinePass, flow: Dataflow, options: Options) -> Any:
    """Apply a pass to a flow and the flows inside its loops and branches, as `inside` says."""

    def inside(flow: Dataflow) -> Dataflow:
        return map_parts(flow, lambda part: _deeply(each, part, options))

    if each.inside == "by itself":
        return each.run(flow, options)
    if each.inside == "whole first":
        return inside(each.run(flow, options))
    return each.run(inside(flow), options)
