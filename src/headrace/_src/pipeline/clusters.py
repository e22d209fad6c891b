"""The interface to the compiler, which may be absent. In: a Dataflow. Out: the same, with compiled
regions as single nodes whose kernels are native code.

The compiler's passes are single entries of the pipeline's list; without a compiler, or where one of
them fails, they leave the flow as it is. They choose regions for other backends too, and need LLVM
only for a CPU's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from headrace._src.core.config import settings
from headrace._src.devices.device import compiler_of
from headrace._src.graph.dataflow import Dataflow, Node
from headrace._src.lowering.backends import backend

__all__ = ["cluster", "has_compiler", "memory_ahead", "recompute", "rewrite", "separate_lists"]

_COMPILER = "headrace._src.compile"


def memory_ahead(flow: Dataflow) -> AbstractContextManager[None]:
    """Touch the memory that the flow needs while it is compiled inside the with-block."""
    if not has_compiler():
        return nullcontext()
    return import_module(f"{_COMPILER}.run.memory_ahead").touching(flow)


def rewrite(flow: Dataflow) -> Dataflow:
    """Rewrite the flow to forms that the compiler profits from."""
    return _run("clusters.cluster", "rewrite", flow)


def separate_lists(flow: Dataflow) -> Dataflow:
    """Pass lists between regions as arrays."""
    return _run("clusters.cluster", "separate_lists", flow, *_backends(flow))


def recompute(flow: Dataflow, limit: int) -> Dataflow:
    """Recompute cheap values where clusters would need more than `limit` bytes."""
    return _run("clusters.recompute", "recompute", flow, limit) if has_compiler() else flow


def cluster(flow: Dataflow, tell: Callable[[Node, str], None] | None = None) -> Dataflow:
    """Compile what can be compiled; call `tell` with each node that isn't, and the reason."""
    return _run("clusters.cluster", "cluster", flow, tell, *_backends(flow))


def _backends(flow: Dataflow) -> tuple[Any, ...]:
    """Return the backends of a flow's devices, by name; nothing if all devices are CPUs."""
    further = _further_backends(flow)
    if not further:
        return ()
    backends = {name: backend(name) for name in further}
    if has_compiler():
        backends["llvm"] = import_module(f"{_COMPILER}.clusters.backend").LLVM
    return (backends,)


def _further_backends(flow: Dataflow) -> set[str]:
    """Return the names of the backends of a flow's devices that are not CPUs."""
    compilers = {compiler_of(device) for device in flow.devices}
    return {name for name in compilers if name not in (None, "llvm")}


def _run(module: str, name: str, flow: Dataflow, *arguments: Any) -> Dataflow:
    if not has_compiler() and not (_further_backends(flow) and find_spec(_COMPILER)):
        return flow
    try:
        return getattr(import_module(f"{_COMPILER}.{module}"), name)(flow, *arguments)
    except Exception as error:
        if settings().verify:
            raise
        # A fault of the compiler costs speed, never a result.
        logging.getLogger("headrace").warning("a step is not compiled: %s", error)
        return flow


@cache
def has_compiler() -> bool:
    """Return whether steps can be compiled for CPUs; log in one line what is missing for that."""
    try:
        return import_module(f"{_COMPILER}.native.machine_code").available()
    except ImportError as error:
        if error.name != _COMPILER:  # an installation without the compiler gives no notice
            logging.getLogger("headrace").warning("steps are not compiled: %s", error)
        return False
