"""Compile a region with JAX. In: an XlaCluster. Out: a function of its inputs and variables.

The function gives variables' arrays to XLA (donation), which then updates them in place. If there
is a fault, the ops' own kernels have to start from the same values. So a function that may find one
gives variables their old values where it does, by a selection that XLA fuses with the updates.
Where faults follow from indices alone and variables are large, a function of its own looks for them
first, because an update of a few rows must not touch the others.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

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
_WIDE = frozenset(("int64", "uint64", "float64", "complex128"))

_Type = tuple[tuple[int, ...], np.dtype]


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
    """Return the function: (outputs, new values of variables, fault), or None if it is already
    known that there is a fault. If `fault`, a boolean scalar, holds, then variables have been given
    their old values, and outputs are not to be used. None stands for no fault.
    """
    name = cluster.nodes[0].device if cluster.nodes else ""
    device = getattr(find_device(name), "jax_device", None) if name else None
    with wide(), jax.default_device(device):
        return _checked(cluster)


def _checked(cluster: Any) -> Callable[..., Any]:
    checked: list[Node] = []
    run = traced(cluster, checked)
    types = cluster.argument_types()
    count = len(cluster.inputs)
    given = tuple(count + i for i in cluster.written)

    def keeping(*arguments: Any) -> Any:
        outputs, new, fault = run(*arguments)
        if fault is not None:
            new = [jnp.where(fault, arguments[i], x) for i, x in zip(given, new, strict=True)]
        return outputs, new, fault

    updating = _traced(keeping, types, given)
    if not checked:
        return _finished(updating, types)
    if cluster.initializes:  # a variable without a value has no old one to be given
        return _looking(_finished(_traced(run, types), types))
    written = sum(prod(types[i][0]) * types[i][1].itemsize for i in given)
    if written < _LARGE or not all(map(_Indices(cluster.nodes).decide, checked)):
        return _finished(updating, types)
    return _looking_first(
        _finished(_traced(lambda *a: run(*a)[2], types), types),
        _finished(_traced(lambda *a: (*run(*a)[:2], None), types, given), types),
    )


def _traced(run: Callable[..., Any], types: list[_Type], given: tuple[int, ...] = ()) -> Any:
    """Let JAX trace a function of arguments of these types; it may use the memory of those that
    are given to it.
    """
    jitted = jax.jit(run, donate_argnums=given)
    return jitted.trace(*(jax.ShapeDtypeStruct(s, t) for s, t in types))


def _finished(traced: Any, types: list[_Type]) -> Callable[..., Any]:
    """Compile what was traced. Its calls look up nothing: neither types nor JAX's settings."""
    call = traced.lower().compile()
    if not any(t.name in _WIDE for _, t in types):
        return call

    def run(*arguments: Any) -> Any:
        with wide():  # for NumPy arrays among the arguments
            return call(*arguments)

    return run


def _looking(call: Callable[..., Any]) -> Callable[..., Any]:
    def run(*arguments: Any) -> Any:
        outputs, new, fault = call(*arguments)
        return None if fault else (outputs, new, None)

    return run


def _looking_first(looks: Callable[..., Any], call: Callable[..., Any]) -> Callable[..., Any]:
    def run(*arguments: Any) -> Any:
        return None if looks(*arguments) else call(*arguments)

    return run


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
