"""The door to the compiler, which may be absent. In: a Dataflow. Out: the same, with the regions
that the compiler takes as single nodes whose kernels are native code.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache
from importlib import import_module

from headrace.core.config import settings
from headrace.graph.dataflow import Dataflow

__all__ = ["cluster", "find_compiler"]

_COMPILER = "headrace.compile.cluster"


def cluster(flow: Dataflow) -> Dataflow:
    """Compile what can be compiled, if there is a compiler."""
    compiler = find_compiler()
    if compiler is None:
        return flow
    try:
        return compiler(flow)
    except Exception as error:
        if settings().verify:
            raise
        # A fault of the compiler costs speed, never a result.
        logging.getLogger("headrace").warning("a step is not compiled: %s", error)
        return flow


@cache
def find_compiler() -> Callable[[Dataflow], Dataflow] | None:
    """The compiler's entry; None, with one line of notice, if it or what it needs is missing."""
    try:
        return import_module(_COMPILER).cluster
    except ImportError as error:
        if error.name != _COMPILER:  # an installation without the compiler says nothing
            logging.getLogger("headrace").warning("steps are not compiled: %s", error)
        return None
