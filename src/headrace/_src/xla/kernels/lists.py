"""Tensor arrays, stacks and lists in a trace. In: a node that uses one. Out: its results."""

from __future__ import annotations

from typing import Any

from headrace._src.graph.dataflow import Node
from headrace._src.lowering.list_anchors import ListUse

__all__ = ["use"]


def use(trace: Any, node: Node, use: ListUse) -> list[Any]:
    raise NotImplementedError
