"""The compiler's passes, in the form that the pipeline calls. In: a Dataflow. Out: an equal one.

Without a working code generator they return the flow as it is.
"""

from __future__ import annotations

from collections.abc import Callable

from headrace._src.compile.clusters import cluster as clustering
from headrace._src.compile.clusters import recompute as recomputing
from headrace._src.compile.native import machine_code
from headrace._src.graph.dataflow import Dataflow, Node

__all__ = ["cluster", "recompute", "rewrite"]


def rewrite(flow: Dataflow) -> Dataflow:
    """Rewrite the flow to forms that only native code profits from."""
    return clustering.rewritten(flow) if machine_code.available() else flow


def recompute(flow: Dataflow, limit: int) -> Dataflow:
    """Recompute cheap values instead of keeping them, in regions that need more than
    `limit` bytes.
    """
    return recomputing.recompute(flow, limit) if machine_code.available() else flow


def cluster(flow: Dataflow, tell: Callable[[Node, str], None] | None = None) -> Dataflow:
    """Replace every region that can be compiled by one node; `tell` gets the reasons of other
    nodes.
    """
    return clustering.cluster(flow, tell) if machine_code.available() else flow
