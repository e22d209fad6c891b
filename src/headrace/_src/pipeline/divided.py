"""A step whose partitions run in several processes: the two halves of the pipeline.

    divide(step: Dataflow, options: Options, as_is: bool = False) -> Partitions
    finish_partitions(parts: Sequence[tuple[str, Dataflow]], options: Options,
                      compiled: bool = False, as_is: bool = False) -> PartitionedProgram

The master divides a step. `step` is what `optimise` returned; with `as_is` it is what `prepare`
returned, for shapes that are not specialised for and for control flow without a structured form.
The devices, of any process, are those of `options`, which also have the incarnations in the keys.
Nothing is compiled. partition.shares says what each task gets; graph.flow_def makes messages of it.

A worker finishes its partitions, each with its device, for its own processor. It sees nothing of
the others: the stages of Sends and Recvs bound its regions (ops.base.stages).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from headrace._src.core.collector import without_collector
from headrace._src.core.config import settings
from headrace._src.core.errors import InternalError
from headrace._src.core.progress import announced
from headrace._src.graph.dataflow import Dataflow
from headrace._src.graph.partition import Edge, Partition, PartitionedProgram, Partitions
from headrace._src.graph.verify_flow import verify_dataflow
from headrace._src.ops.base.stages import in_stages, keeps_stages
from headrace._src.ops.base.transfers import is_recv
from headrace._src.partition.cut import cut_all
from headrace._src.partition.shares import feeds_of
from headrace._src.partition.transfers import complete_devices
from headrace._src.partition.verify import verify_partitions, verify_programs
from headrace._src.pipeline.passes import Options, incarnations, run_stage, with_transfers
from headrace._src.pipeline.schedule import schedule_flow

__all__ = ["divide", "finish_partitions"]


@without_collector
def divide(step: Dataflow, options: Options, as_is: bool = False) -> Partitions:
    """Return the partitions of an optimised step, or of a prepared one (`as_is`); a single one if
    all of it is on one device, and none if it runs and fetches nothing.
    """
    if as_is:
        step = with_transfers(step, options)
    made = cut_all(step, incarnations(options), options.devices[0].name)
    if settings().verify:
        verify_partitions(made)
    return made


@without_collector
def finish_partitions(
    parts: Sequence[tuple[str, Dataflow]],
    options: Options,
    compiled: bool = False,
    as_is: bool = False,
) -> PartitionedProgram:
    """Return the program of some partitions of a step, each given with its device; with native code
    if `compiled`. as_is: the step was divided as it is.

    The program takes the feeds in the order of `feeds_of`, and returns the fetches of one partition
    after the other.
    """
    made = [Partition(d, _finished(flow, d, options, compiled, as_is)) for d, flow in parts]
    feeds = feeds_of(part.flow for part in made)
    position = {feed.value.name: i for i, feed in enumerate(feeds)}
    sources = ((i, k) for i, part in enumerate(made) for k in range(len(part.flow.fetches)))
    edges = tuple(edge for part in made for edge in _edges(part.flow))
    programs = [schedule_flow(part.flow) for part in made]
    program = PartitionedProgram(
        tuple(part.device for part in made),
        tuple(replace(p, specialised=not as_is) for p in programs),
        tuple(tuple(position[feed.value.name] for feed in part.flow.feeds) for part in made),
        tuple(sources),
        edges,
    )
    if settings().verify:
        verify_programs(program)
    return program


def _finished(
    flow: Dataflow, device: str, options: Options, compiled: bool, as_is: bool
) -> Dataflow:
    if flow.steers or as_is:
        return flow
    flow = replace(flow, nodes=in_stages(flow))
    changed = flow
    if compiled:
        with announced("compiling a step"):
            changed = run_stage("compile", flow, options)
    elif options.jit in ("auto", "second"):
        changed = run_stage("interpret", flow, options)
    if not keeps_stages(changed):
        message = f"the passes made a partition on {device} wait for itself"
        if settings().verify:
            raise InternalError(None, None, message)
        logging.getLogger("headrace").warning("a step is not compiled: %s", message)
        changed = flow
    changed = complete_devices(changed, device)
    changed = replace(changed, nodes=in_stages(changed))
    if settings().verify:
        verify_dataflow(changed)
    return changed


def _edges(flow: Dataflow) -> list[Edge]:
    """Return the edges that end in a partition."""
    return [
        Edge(
            n.attrs["tensor_name"], n.attrs["send_device"], n.attrs["recv_device"], n.types[0].size
        )
        for n in flow.nodes
        if is_recv(n)
    ]
