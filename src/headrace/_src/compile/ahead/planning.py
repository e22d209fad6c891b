"""Plan a frozen model. In: its Dataflow. Out: a Plan whose inputs and outputs are numbered as the
feeds and fetches are.

Nothing may be left to the interpreter: a node that can't be compiled raises an error that names it.
"""

from __future__ import annotations

from dataclasses import replace

from headrace._src.compile.ahead.inference_rewrites import simplify
from headrace._src.compile.build.families import AHEAD
from headrace._src.compile.build.tensor_list_buffers import list_users, lists_fit
from headrace._src.compile.clusters.cluster_kernel import plan_region
from headrace._src.compile.clusters.lowerable import is_lowerable
from headrace._src.compile.plan.plan import Plan
from headrace._src.compile.regions.region import Region
from headrace._src.compile.rewrite.widen import widen
from headrace._src.devices.target import Target
from headrace._src.graph.dataflow import Dataflow, Node

__all__ = ["plan_flow"]


def plan_flow(flow: Dataflow, target: Target) -> Plan:
    """The plan of a model for one thread of a target; ValueError if it can't have one."""
    flow = widen(simplify(flow), _can)
    nodes = [n for n in flow.nodes if n.constant is None]
    _refuse([n for n in nodes if not _can(n)])
    _refuse([n for users in list_users(nodes) if not lists_fit(users) for n in users])
    region = Region(nodes, list(flow.fetches))
    plan = plan_region(region, target, threads=1, families=AHEAD, plain=True)
    feeds = [feed.value for feed in flow.feeds]
    numbers = {i: feeds.index(value) for i, value in enumerate(region.inputs)}
    buffers = tuple(
        replace(b, index=numbers[b.index]) if b.kind == "input" else b for b in plan.buffers
    )
    return replace(plan, buffers=buffers)


def _can(node: Node) -> bool:
    # Kernels that check indices end the call themselves if one is out of range, as in loops.
    return is_lowerable(node, AHEAD, inside=True)


def _refuse(nodes: list[Node]) -> None:
    if not nodes:
        return
    named = [f"{n.name} ({n.type} of {', '.join(str(v.type) for v in n.inputs)})" for n in nodes]
    more = f" and {len(named) - 3} more" if len(named) > 3 else ""
    raise ValueError(f"can't be compiled ahead of time: {'; '.join(named[:3])}{more}")
