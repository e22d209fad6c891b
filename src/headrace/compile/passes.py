"""The compiler's passes, as the pipeline has them. In: a Dataflow. Out: one that gives the same.

Where no machine code can be made they do nothing.
"""

from __future__ import annotations

from headrace.compile import cluster as clustering
from headrace.compile import native
from headrace.compile import recompute as recomputing
from headrace.graph.dataflow import Dataflow

__all__ = ["cluster", "recompute", "rewrite"]


def rewrite(flow: Dataflow) -> Dataflow:
    """Forms that only native code profits from."""
    return clustering.rewritten(flow) if native.available() else flow


def recompute(flow: Dataflow, limit: int) -> Dataflow:
    """Cheap values again instead of kept, where a region needs more than `limit` bytes."""
    return recomputing.recompute(flow, limit) if native.available() else flow


def cluster(flow: Dataflow) -> Dataflow:
    """Every region that can be compiled as one node."""
    return clustering.cluster(flow) if native.available() else flow
