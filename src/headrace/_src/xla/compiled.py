"""Compile a region with JAX. In: an XlaCluster. Out: a function of its inputs and variables.

The function gives variables' arrays to XLA (donation), which then updates them in place, unless a
fault may be found: the ops' own kernels would have to start from the same values. Where faults
follow from indices alone and variables are large, a function of its own looks for them first.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import jax
import jax.numpy as jnp

from headrace._src.devices.device import find_device
from headrace._src.graph.dataflow import Node, Value
from headrace._src.graph.structured import parts_of
from headrace._src.lowering.list_anchors import ListUse
from headrace._src.lowering.references import is_reference
from headrace._src.xla.jax_arrays import wide
from headrace._src.xla.kernels.faults import any_of, collected
from headrace._src.xla.table import FUNCTIONS
from headrace._src.xla.trace import Trace

__all__ = ["compiled", "traced"]

_LARGE = 1 << 22  # bytes of variables that are worth a call of their own to look for faults


def traced(cluster: Any, checked: list[Node]) -> Callable[..., Any]:
    """The region as a function that JAX can trace: (outputs, new values of variables, fault). The
    nodes that may have faults are added to `checked`.
    """
    count = len(cluster.inputs)

    def run(*arguments: Any) -> Any:
        values = dict(zip(cluster.inputs, arguments[:count], strict=True))
        states = dict(zip(cluster.references, arguments[count:], strict=True))
        with collected() as faults:
            trace = Trace(values, states, cluster.lists)
            for node in cluster.nodes:
                before = len(faults)
                trace.run([node])
                checked.extend([node] if len(faults) > before else [])
            outputs = [jnp.asarray(trace.value(v)) for v in cluster.outputs]
        new = [trace.states[cluster.references[i]] for i in cluster.written]
        return outputs, new, any_of(faults) if faults else None

    return run


def compiled(cluster: Any) -> Callable[..., Any]:
    """Return the function: (outputs, new values of variables), or None if there is a fault."""
    return _on_device(cluster, _checked(cluster))


def _on_device(cluster: Any, call: Callable[..., Any]) -> Callable[..., Any]:
    """Let a region run on its own device, where JAX would take its first one."""
    name = cluster.nodes[0].device if cluster.nodes else ""
    device = getattr(find_device(name), "jax_device", None) if name else None
    if device is None or device == jax.devices()[0]:
        return call

    def run(*arguments: Any) -> Any:
        with jax.default_device(device):
            return call(*arguments)

    return run


def _checked(cluster: Any) -> Callable[..., Any]:
    checked: list[Node] = []
    run = traced(cluster, checked)
    types = cluster.argument_types()
    count = len(cluster.inputs)
    given = tuple(count + i for i in cluster.written)
    updating = jax.jit(lambda *a: run(*a)[:2], donate_argnums=given)
    with wide():
        updating.trace(*(jax.ShapeDtypeStruct(s, t) for s, t in types))  # which its call reuses
    written = sum(prod(types[i][0]) * types[i][1].itemsize for i in given)
    if not checked:
        return _plain(updating)
    if written < _LARGE or not all(_Indices(cluster.nodes).decide(n) for n in checked):
        return _checking(jax.jit(run))
    return _looking_first(jax.jit(lambda *a: run(*a)[2]), updating)


def _plain(jitted: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        with wide():
            return jitted(*arguments)

    return call


def _checking(jitted: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        with wide():
            outputs, new, fault = jitted(*arguments)
        return None if fault else (outputs, new)

    return call


def _looking_first(looks: Callable[..., Any], jitted: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        with wide():
            return None if looks(*arguments) else jitted(*arguments)

    return call


class _Indices:
    """Which faults of a region follow from integers that are not computed from other numbers."""

    def __init__(self, nodes: list[Node]) -> None:
        self._inside = set(nodes)
        self._known: dict[Value, bool] = {}

    def decide(self, node: Node) -> bool:
        """Whether such integers alone decide on a node's faults."""
        if parts_of(node) or isinstance(node.geometry, ListUse):
            return False
        integers = [v for v in node.inputs if _is_integer(v)]
        if node.type in FUNCTIONS and len(integers) < len(node.inputs):
            return False
        return all(map(self._is_given, integers))

    def _is_given(self, value: Value) -> bool:
        producer = value.producer
        if value.constant is not None or producer not in self._inside:
            return True
        if value not in self._known:
            assert isinstance(producer, Node)
            self._known[value] = not parts_of(producer) and all(
                is_reference(v) or (_is_integer(v) and self._is_given(v)) for v in producer.inputs
            )
        return self._known[value]


def _is_integer(value: Value) -> bool:
    dtype = value.dtype.base_dtype
    return dtype.is_integer or dtype.is_bool
