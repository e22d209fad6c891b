"""The door to the compiler, which may be absent. In: a Dataflow. Out: the same, with the regions
that the compiler takes as single nodes whose kernels are native code.

The compiler's passes stand in the pipeline's list one by one; without a compiler, and where one of
them fails, they leave the flow as it is.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

from headrace.core.config import settings
from headrace.graph.dataflow import Dataflow, Node

__all__ = ["cluster", "find_compiler", "recompute", "rewrite"]

_COMPILER = "headrace.compile.passes"


def rewrite(flow: Dataflow) -> Dataflow:
    """Bring the flow into the forms that the compiler profits from."""
    return _run("rewrite", flow)


def recompute(flow: Dataflow, limit: int) -> Dataflow:
    """Compute cheap values again where clusters would need more than `limit` bytes."""
    return _run("recompute", flow, limit)


def cluster(flow: Dataflow, tell: Callable[[Node, str], None] | None = None) -> Dataflow:
    """Compile what can be compiled; `tell` is told of each node that isn't, and why."""
    return _run("cluster", flow) if tell is None else _run("cluster", flow, tell)


def _run(name: str, flow: Dataflow, *arguments: Any) -> Dataflow:
    compiler = find_compiler()
    if compiler is None:
        return flow
    try:
        return getattr(compiler, name)(flow, *arguments)
    except Exception as error:
        if settings().verify:
            raise
        # A fault of the compiler costs speed, never a result.
        logging.getLogger("headrace").warning("a step is not compiled: %s", error)
        return flow


@cache
def find_compiler() -> ModuleType | None:
    """The compiler's passes; None, with one line of notice, if it or what it needs is missing."""
    try:
        return import_module(_COMPILER)
    except ImportError as error:
        if error.name != _COMPILER:  # an installation without the compiler says nothing
            logging.getLogger("headrace").warning("steps are not compiled: %s", error)
        return None
