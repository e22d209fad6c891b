"""The compiler's passes, as the pipeline has them. In: a Dataflow. Out: one that gives the same.

Where no machine code can be made they do nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from headrace.compile import cluster as clustering
from headrace.compile import native
from headrace.compile import recompute as recomputing
from headrace.graph.dataflow import Dataflow, Node

__all__ = ["cluster", "recompute", "rewrite"]


def rewrite(flow: Dataflow) -> Dataflow:
    """Forms that only native code profits from."""
    return clustering.rewritten(flow) if native.available() else flow


def recompute(flow: Dataflow, limit: int) -> Dataflow:
    """Cheap values again instead of kept, where a region needs more than `limit` bytes."""
    return recomputing.recompute(flow, limit) if native.available() else flow


def cluster(flow: Dataflow, tell: Callable[[Node, str], None] | None = None) -> Dataflow:
    """Every region that can be compiled as one node; `tell` hears why others aren't."""
    return clustering.cluster(flow, tell) if native.available() else flow
