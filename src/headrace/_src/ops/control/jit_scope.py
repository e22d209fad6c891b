"""tf.xla.experimental.jit_scope: marks operations for TensorFlow's compiler. The marks stay in the
graph; Headrace compiles steps with or without them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from headrace._src.core.export import export
from headrace._src.graph.default import get_default_graph

__all__ = ["jit_scope"]

_COUNTER = ("__jit_scopes",)


@export("xla.experimental.jit_scope")
@contextmanager
def jit_scope(
    compile_ops: bool | Callable[[Any], bool] = True, separate_compiled_gradients: bool = False
) -> Iterator[None]:
    """Give operations made inside TensorFlow's attributes _XlaCompile, _XlaScope and
    _XlaSeparateCompiledGradients. compile_ops: whether to compile them.
    """
    if callable(compile_ops):
        raise NotImplementedError(
            "jit_scope(compile_ops=function) is not in Headrace: pass True or False"
        )
    graph = get_default_graph()
    counted = graph.get_collection_ref(_COUNTER)
    attributes: dict[str, Any] = {
        "_XlaCompile": bool(compile_ops),
        "_XlaSeparateCompiledGradients": bool(separate_compiled_gradients),
    }
    if "_XlaScope" not in graph.scope.attrs:  # an inner scope belongs to the outer one
        attributes["_XlaScope"] = f"jit_scope_{len(counted)}".encode()
        counted.append(True)
    with graph._attr_scope(attributes):
        yield
