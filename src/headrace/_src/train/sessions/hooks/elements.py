"""The graph elements that hooks fetch, given as tensors or names."""

from __future__ import annotations

from typing import Any

from headrace._src.graph.default import get_default_graph

__all__ = ["graph_element"]


def graph_element(item: Any) -> Any:
    """Return the element of the default graph that a hook fetches: the item itself, or the one of
    that name.

    A name without ":0" means the only output of an operation.
    """
    graph = get_default_graph()
    if not isinstance(item, str):
        if getattr(item, "graph", None) is not graph:
            raise ValueError(
                f"Passed {item} should have graph attribute that is equal to current graph {graph}."
            )
        return item
    if ":" in item:
        return graph.as_graph_element(item)
    element = graph.as_graph_element(f"{item}:0")
    if len(element.op.outputs) > 1:
        raise ValueError(
            f"Name {item} is ambiguous, as this `Operation` has multiple outputs (at least 2)."
        )
    return element
