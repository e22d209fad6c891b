"""Compile a region with JAX. In: an XlaCluster. Out: a jitted function of its inputs and variables,
and whether what it returns must be checked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from headrace._src.xla.jax_arrays import wide
from headrace._src.xla.kernels.faults import any_of, collected
from headrace._src.xla.trace import Trace

__all__ = ["compiled", "traced"]


def traced(cluster: Any) -> Callable[..., Any]:
    """The region as a function that JAX can trace: (outputs, new values of variables, fault)."""
    count = len(cluster.inputs)

    def run(*arguments: Any) -> Any:
        values = dict(zip(cluster.inputs, arguments[:count], strict=True))
        states = dict(zip(cluster.references, arguments[count:], strict=True))
        with collected() as faults:
            trace = Trace(values, states, cluster.lists)
            trace.run(cluster.nodes)
            outputs = [jnp.asarray(trace.value(v)) for v in cluster.outputs]
        new = [trace.states[cluster.references[i]] for i in cluster.written]
        return outputs, new, any_of(faults) if faults else None

    return run


def compiled(cluster: Any) -> tuple[Callable[..., Any], bool]:
    """Return the function, and whether it reports faults: then it keeps its arguments."""
    run = traced(cluster)
    count = len(cluster.inputs)
    with wide():
        arguments = [jax.ShapeDtypeStruct(s, t) for s, t in cluster.argument_types()]
        checks = jax.eval_shape(run, *arguments)[2] is not None
    given = () if checks else tuple(count + i for i in cluster.written)
    jitted = jax.jit(run, donate_argnums=given)

    def call(*arguments: Any) -> Any:
        with wide():
            return jitted(*arguments)

    return call, checks
