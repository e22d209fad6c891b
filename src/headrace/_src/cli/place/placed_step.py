"""Find the step to place. In: a script, or a graph in a file. Out: its costs, and the devices that
its operations ask for.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import click

from headrace._src.cli.explain.capture import Ending
from headrace._src.cli.explain.running import choose_step, run_watched
from headrace._src.core import proto
from headrace._src.core.device_names import canonical_name, matches
from headrace._src.devices.device import local_devices
from headrace._src.graph.dataflow import Dataflow, Node
from headrace._src.graph.definition import HOST, Effect
from headrace._src.graph.graph import Graph
from headrace._src.graph.graph_io import read_message
from headrace._src.graph.operation import Operation, Tensor
from headrace._src.ops.base.import_graph_def import import_graph_def
from headrace._src.pipeline import Options, optimise, prepare
from headrace._src.place.cost_graph import ClusterModel, CostGraph
from headrace._src.place.estimate import Assumptions, Roofs, estimate, groups_of
from headrace._src.place.measured import calibrate

__all__ = ["StepCosts", "graph_step", "script_step"]

_ENOUGH = 3  # runs: the first ones are interpreted, and compile


@dataclass(frozen=True)
class StepCosts:
    """A step to place: what it fetches, its costs and where they come from, for each group the
    devices that it may be on, notes for the reader; for a script, how it ended.
    """

    title: str
    graph: CostGraph
    origin: str
    feasible: tuple[tuple[int, ...], ...]
    notes: tuple[str, ...] = ()
    ending: Ending | None = None


def script_step(
    script: Path,
    arguments: Sequence[str],
    fetch: str | None,
    steps: int | None,
    speed: Roofs | None,
    cluster: ClusterModel,
) -> StepCosts:
    """Run a script and return the step that ran most often (the longest of them), or the longest
    one that gives `fetch`.
    """
    capture, ending = run_watched(script, arguments, steps)
    try:
        often = max((step.runs for step in capture.steps), default=0)
        known = capture.steps if fetch else [s for s in capture.steps if s.runs == often]
        step = choose_step(known, fetch)
        flows = [v.flow for v in step.variants.values() if not v.is_loop and v.flow is not None]
        if not flows:
            raise click.ClickException(
                "the step has no optimised form: it was interpreted as it is"
            )
    except click.ClickException:
        if ending.error is not None:
            raise click.ClickException(f"{ending.text}: {ending.error}") from ending.error
        raise
    found = _costs(", ".join(step.names), flows[0], speed, cluster)
    if step.runs < _ENOUGH:
        often = "once" if step.runs == 1 else f"{step.runs} times"
        note = f"the step ran {often}: its time is estimated, not measured ({_ENOUGH} runs suffice)"
        return replace(found, notes=(*found.notes, note), ending=ending)
    return replace(
        found,
        graph=calibrate(found.graph, step.least),
        origin=f"estimated, scaled to the quickest of {step.runs} runs on this machine",
        ending=ending,
    )


def graph_step(
    path: Path,
    fetches: Sequence[str],
    batch: int,
    speed: Roofs | None,
    cluster: ClusterModel,
) -> StepCosts:
    """Read a graph and return the step that fetches or runs these names."""
    graph = Graph()
    with graph.as_default():
        import_graph_def(read_message(path, proto.GraphDef), name="")
    if not fetches:
        raise click.UsageError("a graph needs --fetch: the names of what the step computes")
    named = [_named(graph, name) for name in fetches]
    tensors = [t for t in named if isinstance(t, Tensor)]
    targets = [op for op in named if isinstance(op, Operation)]
    devices = local_devices()[:1]
    options = Options(devices, placement=_OnOne(devices[0].name), jit="off")  # type: ignore[arg-type]
    needed = prepare(tensors, targets, (), options)
    feeds = [tensor for node in needed.nodes if (tensor := _fed(node)) is not None]
    assumed = [t.name for t in feeds if t.shape.sizes is None or None in t.shape.sizes]
    shapes = [tuple(batch if n is None else n for n in t.shape.sizes or ()) for t in feeds]
    flow = optimise(prepare(tensors, targets, feeds, options), shapes, options)
    found = _costs(", ".join(fetches), flow, speed, cluster, Assumptions(size=batch))
    if assumed:
        note = f"unknown sizes of {', '.join(assumed)} are taken to be {batch} (--batch)"
        return replace(found, notes=(*found.notes, note))
    return found


class _OnOne:
    """A placement of everything on one device: the cluster's devices are not those of this process,
    and requests for them are the simulator's business.
    """

    keeps_state = False

    def __init__(self, device: str) -> None:
        self._device = device

    def has(self, node: Node) -> bool:
        return True

    def device_of(self, node: Node) -> str:
        return self._device


def _named(graph: Graph, name: str) -> Tensor | Operation:
    """Return the tensor or, if it has no outputs, the operation of this name."""
    try:
        found = graph.as_graph_element(name)
    except (KeyError, ValueError):
        close = difflib.get_close_matches(name, [op.name for op in graph.get_operations()], n=3)
        hint = f" Did you mean {' or '.join(close)}?" if close else ""
        raise click.ClickException(f"the graph has no tensor {name!r}.{hint}") from None
    if isinstance(found, Operation) and found.outputs:
        return found.outputs[0]
    return found


def _fed(node: Node) -> Tensor | None:
    """Return the tensor of a placeholder: an operation that has neither inputs nor a value."""
    definition = node.definition
    if node.inputs or node.origin is None or len(node.types) != 1:
        return None
    if definition.effect is not Effect.PURE or definition.fold is not None:
        return None
    return node.origin.outputs[0]


def _costs(
    title: str,
    flow: Dataflow,
    speed: Roofs | None,
    cluster: ClusterModel,
    assumptions: Assumptions | None = None,
) -> StepCosts:
    roofs = speed or Roofs()
    kinds = dict.fromkeys([HOST, *(d.type for d in cluster.devices)], roofs)
    groups = groups_of(flow.nodes)
    wanted = (*flow.fetches, *flow.targets)
    graph = estimate(flow.nodes, groups, kinds, assumptions, flow.feeds, wanted)
    everywhere = tuple(range(len(cluster.devices)))
    feasible = [everywhere] * len(graph.groups)
    unmet: dict[str, None] = {}
    for n, group in enumerate(groups):
        for node in group:
            asked = node.origin.device if isinstance(node, Node) and node.origin else ""
            if asked:
                able = _matching(asked, cluster)
                feasible[n] = tuple(d for d in feasible[n] if d in able) or feasible[n]
                if not able:
                    unmet[asked] = None
    notes = [f"no device of the cluster is {name}: that request is ignored" for name in unmet]
    origin = f"estimated for {roofs.flops / 1e9:.0f} GF/s and {roofs.bandwidth / 1e9:.1f} GB/s"
    if roofs.rates:
        origin += f", with {len(roofs.rates)} rates measured by short steps"
    return StepCosts(title, graph, origin, tuple(feasible), tuple(notes))


def _matching(asked: str, cluster: ClusterModel) -> set[int]:
    pattern = canonical_name(asked)
    return {n for n, device in enumerate(cluster.devices) if matches(pattern, device.name)}
