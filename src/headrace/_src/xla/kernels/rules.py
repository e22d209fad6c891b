"""Lowering rules as JAX functions. In: a node and arrays for its inputs. Out: its outputs, by the
meaning that the op's rule has; None where the rule is not for this use of the op.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from headrace._src.graph.dataflow import Node
from headrace._src.lowering.rules import (
    Anchor,
    Elementwise,
    Join,
    Move,
    Pass,
    Reduce,
    assembly_of,
    operand_views,
    reduction_of,
)
from headrace._src.xla.kernels.anchors import run_anchor
from headrace._src.xla.kernels.pointwise import evaluate, numpy_type
from headrace._src.xla.kernels.views import placed, seen
from headrace._src.xla.uses import program_of, views_seen

__all__ = ["run_rule"]

Arrays = list[Any]


def run_rule(node: Node, inputs: Sequence[Any]) -> Arrays | None:
    """Return the outputs of a node that neither reads nor writes state, by its rule."""
    run = _RUN.get(type(node.definition.lower))
    return None if run is None else run(node, inputs)


def _elementwise(node: Node, inputs: Sequence[Any]) -> Arrays | None:
    rule: Any = node.definition.lower
    program, views = program_of(rule, node), operand_views(rule, node)
    if program is None or views is None:
        return None
    operands = inputs if rule.operands is None else [inputs[i] for i in rule.operands]
    if rule.views is not None:
        operands = [seen(jnp.asarray(x), v) for x, v in zip(operands, views, strict=True)]
    shape = node.output_shapes[0]
    results = evaluate(program, operands, np.indices(shape, sparse=True))
    return [jnp.broadcast_to(x, shape) for x in results]


def _extreme_of_nothing(combine: str, dtype: Any) -> Any:
    if jnp.issubdtype(dtype, jnp.integer):
        return jnp.iinfo(dtype).min if combine == "max" else jnp.iinfo(dtype).max
    return -jnp.inf if combine == "max" else jnp.inf


def _combined(combine: str, x: Any, axes: tuple[int, ...]) -> Any:
    if combine in ("all", "any"):
        return (jnp.all if combine == "all" else jnp.any)(x, axes)
    if combine in ("argmax", "argmin"):
        found = (jnp.argmax if combine == "argmax" else jnp.argmin)(x, axes[0])
        return found.astype(np.int64)
    if combine in ("max", "min"):
        initial = _extreme_of_nothing(combine, x.dtype)
        return (jnp.max if combine == "max" else jnp.min)(x, axes, initial=initial)
    return (jnp.sum if combine == "sum" else jnp.prod)(x, axes, dtype=x.dtype)


def _reduce(node: Node, inputs: Sequence[Any]) -> Arrays | None:
    reduction = reduction_of(node.definition.lower, node)  # type: ignore[arg-type]
    if reduction is None:
        return None
    (mapped,) = evaluate(reduction.before, inputs[:1])
    total = _combined(reduction.combine, mapped, reduction.axes)
    (result,) = evaluate(reduction.after, [total])
    return [result.reshape(node.output_shapes[0])]


def _move(node: Node, inputs: Sequence[Any]) -> Arrays | None:
    rule: Any = node.definition.lower
    views = views_seen(rule, node)
    if views is None:
        return None
    source = jnp.asarray(inputs[rule.operand])
    pairs = zip(views, node.output_shapes, strict=True)
    return [seen(source, view).reshape(shape) for view, shape in pairs]


def _join(node: Node, inputs: Sequence[Any]) -> Arrays | None:
    assembly = assembly_of(node.definition.lower, node)  # type: ignore[arg-type]
    if assembly is None:
        return None
    pieces = [(jnp.asarray(inputs[i]), view) for i, view in assembly.pieces]
    fill = 0 if assembly.fill is None else assembly.fill
    dtype = numpy_type(node.output_dtypes[0])
    return [placed(pieces, node.output_shapes[0], fill, dtype)]


def _pass(node: Node, inputs: Sequence[Any]) -> Arrays | None:
    return list(inputs)


def _anchor(node: Node, inputs: Sequence[Any]) -> Arrays | None:
    geometry = node.geometry
    results = None if geometry is None else run_anchor(geometry, inputs)
    if results is None:
        return None
    return [x.reshape(s) for x, s in zip(results, node.output_shapes, strict=True)]


_RUN: dict[type, Callable[[Node, Sequence[Any]], Arrays | None]] = {
    Elementwise: _elementwise,
    Reduce: _reduce,
    Move: _move,
    Join: _join,
    Pass: _pass,
    Anchor: _anchor,
}
