"""The global step: the one variable that counts a graph's training steps, in the collection
GLOBAL_STEP.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace._src.core import dtypes
from headrace._src.core.export import export
from headrace._src.graph.default import get_default_graph
from headrace._src.graph.graph import Graph
from headrace._src.graph.keys import GraphKeys
from headrace._src.graph.operation import Tensor, made_at
from headrace._src.variables.initializers import Zeros
from headrace._src.variables.lookup import get_variable
from headrace._src.variables.options import VariableAggregation
from headrace._src.variables.variable import Variable

__all__ = [
    "assert_global_step",
    "create_global_step",
    "get_global_step",
    "get_or_create_global_step",
    "global_step",
    "read_global_step",
]

_READ = "global_step_read_op_cache"  # the collection with the single tensor that hooks fetch


@export("train.global_step")
def global_step(sess: Any, global_step_tensor: Any) -> int:
    """Return the value of the global step, a single element, in a session."""
    found = np.asarray(sess.run(global_step_tensor))
    if found.size != 1:
        raise TypeError("only size-1 arrays can be converted to Python scalars")
    return int(found.item())


@export(
    "train.get_global_step", "contrib.framework.get_global_step", "contrib.slim.get_global_step"
)
def get_global_step(graph: Graph | None = None) -> Any:
    """Return the global step of a graph, the default one by default, or None.

    It is the item of the collection GLOBAL_STEP, or else the tensor "global_step:0".
    """
    graph = graph or get_default_graph()
    collected = graph.get_collection(GraphKeys.GLOBAL_STEP)
    if len(collected) > 1:
        raise RuntimeError("Multiple items found in collection GLOBAL_STEP.")
    if collected:
        found = collected[0]
    else:
        try:
            found = graph.get_tensor_by_name("global_step:0")
        except KeyError:
            return None
    assert_global_step(found)
    return found


@export(
    "train.create_global_step",
    "contrib.framework.create_global_step",
    "contrib.slim.create_global_step",
)
def create_global_step(graph: Graph | None = None) -> Variable:
    """Make the global step of a graph; ValueError if it has one."""
    graph = graph or get_default_graph()
    found = get_global_step(graph)
    if found is not None:
        raise ValueError(f'"global_step" already exists.{made_at(found.op)}')
    with graph.as_default(), graph.name_scope(None):
        return get_variable(
            GraphKeys.GLOBAL_STEP,
            shape=[],
            dtype=dtypes.int64,
            initializer=Zeros(),
            trainable=False,
            aggregation=VariableAggregation.ONLY_FIRST_REPLICA,
            collections=[GraphKeys.GLOBAL_VARIABLES, GraphKeys.GLOBAL_STEP],
        )


@export(
    "train.get_or_create_global_step",
    "contrib.framework.get_or_create_global_step",
    "contrib.slim.get_or_create_global_step",
)
def get_or_create_global_step(graph: Graph | None = None) -> Variable:
    """Return the global step of a graph; create it if there is none."""
    graph = graph or get_default_graph()
    found = get_global_step(graph)
    return create_global_step(graph) if found is None else found


@export(
    "train.assert_global_step",
    "contrib.framework.assert_global_step",
    "contrib.slim.assert_global_step",
)
def assert_global_step(global_step_tensor: Any) -> None:
    """Raise TypeError unless this can be a global step: a variable or tensor of one integer."""
    if not isinstance(global_step_tensor, Variable | Tensor):
        raise TypeError(
            'Existing "global_step" must be a Variable or Tensor: '
            f"{type(global_step_tensor).__name__}."
        )
    dtype = global_step_tensor.dtype
    if not dtype.base_dtype.is_integer:
        raise TypeError(f'Existing "global_step" does not have integer type: {dtype}')
    shape = global_step_tensor.shape
    if shape.ndims not in (0, None):
        raise TypeError(f'Existing "global_step" is not scalar: {shape}')


def read_global_step(user: str) -> Tensor:
    """Return the tensor that all hooks fetch to read the global step; create it if there is none.
    It can be fetched before the variable has a value. Without a global step, raise a RuntimeError
    that names `user`.
    """
    graph = get_default_graph()
    made = graph.get_collection(_READ)
    if made:
        return made[0]
    step = get_global_step(graph)
    if step is None:
        raise RuntimeError(
            f"Global step should be created to use {user}.\n"
            "  Call tf.train.get_or_create_global_step() while the graph is built."
        )
    with graph.name_scope(None), graph.name_scope(step.op.name + "/"):
        value = step.initialized_value() if isinstance(step, Variable) else step
        read = value + 0
    graph.add_to_collection(_READ, read)
    return read
