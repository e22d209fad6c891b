"""Run lowering rules in NumPy: slowly, clearly, and independently of any code generation.

In: a node and arrays for its inputs. Out: the results that its rule defines, without the op's
kernel. The laws compare these with the kernels' results, so that a rule is tested before machine
code is generated from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from headrace._src.compile.reference.reference_anchors import run_anchor
from headrace._src.core.dtypes import as_dtype
from headrace._src.graph.dataflow import Node
from headrace._src.lowering.rules import (
    Anchor,
    Elementwise,
    Join,
    Move,
    Pass,
    Read,
    Reduce,
    Update,
    View,
    assembly_of,
    operand_views,
    pointwise_of,
    reduction_of,
    update_of,
    views_of,
)

__all__ = ["run_rule"]

Arrays = list[np.ndarray]


def run_rule(node: Node, inputs: Sequence[np.ndarray]) -> Arrays | None:
    """Return the outputs of a node by its rule; for an Update, the new values of its variables.

    The array for a reference or handle is the variable's value. None where the rule leaves this use
    to the op's kernel.
    """
    with np.errstate(all="ignore"):
        return _RUN[type(node.definition.lower)](node, inputs)


def _seen(array: np.ndarray, view: View) -> np.ndarray:
    """The elements of a row-major array that a view shows; writing to it writes to the array."""
    flat = array.reshape(-1)
    strides = tuple(s * array.itemsize for s in view.strides)
    return as_strided(flat[view.offset :], view.shape, strides)


def _numpy(dtype: str) -> np.dtype:
    return np.dtype(as_dtype(dtype).as_numpy_dtype)


def _elementwise(node: Node, inputs: Sequence[np.ndarray]) -> Arrays | None:
    rule: Any = node.definition.lower
    program, views = pointwise_of(rule, node), operand_views(rule, node)
    if program is None or views is None:
        return None
    operands = inputs if rule.operands is None else [inputs[i] for i in rule.operands]
    arrays = [_seen(np.ascontiguousarray(x), v) for x, v in zip(operands, views, strict=True)]
    shape = node.output_shapes[0]
    results = program.evaluate(*arrays, indices=np.indices(shape, sparse=True))
    return [np.broadcast_to(x, shape) for x in results]


_COMBINE = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}


def _extreme_of_nothing(combine: str, dtype: np.dtype) -> Any:
    if dtype.kind in "iu":
        return np.iinfo(dtype).min if combine == "max" else np.iinfo(dtype).max
    return -np.inf if combine == "max" else np.inf


def _combined(combine: str, x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    if combine in ("all", "any"):
        return (np.all if combine == "all" else np.any)(x, axes)
    if combine in ("argmax", "argmin"):
        return (np.argmax if combine == "argmax" else np.argmin)(x, axes[0])
    ufunc = _COMBINE[combine]
    if ufunc in (np.maximum, np.minimum):
        initial = x.dtype.type(_extreme_of_nothing(combine, x.dtype))
        return ufunc.reduce(x, axes, initial=initial)
    return ufunc.reduce(x, axes, dtype=x.dtype)


def _reduce(node: Node, inputs: Sequence[np.ndarray]) -> Arrays | None:
    rule: Any = node.definition.lower
    reduction = reduction_of(rule, node)
    if reduction is None:
        return None
    (mapped,) = reduction.before.evaluate(inputs[0])
    total = _combined(reduction.combine, np.asarray(mapped), reduction.axes)
    (result,) = reduction.after.evaluate(np.asarray(total))
    return [np.reshape(result, node.output_shapes[0])]


def _move(node: Node, inputs: Sequence[np.ndarray]) -> Arrays | None:
    rule: Any = node.definition.lower
    views = views_of(rule, node)
    if views is None:
        return None
    source = np.ascontiguousarray(inputs[rule.operand])
    pairs = zip(views, node.output_shapes, strict=True)
    return [_seen(source, view).reshape(shape) for view, shape in pairs]


def _join(node: Node, inputs: Sequence[np.ndarray]) -> Arrays | None:
    rule: Any = node.definition.lower
    assembly = assembly_of(rule, node)
    if assembly is None:
        return None
    # Without a fill, a place that no piece reaches must show: 77 is as good as any number.
    fill = 77 if assembly.fill is None else assembly.fill
    whole = np.full(node.output_shapes[0], fill, _numpy(node.output_dtypes[0]))
    for i, view in assembly.pieces:
        _seen(whole, view)[...] = inputs[i]
    return [whole]


def _pass(node: Node, inputs: Sequence[np.ndarray]) -> Arrays | None:
    return list(inputs)


def _read(node: Node, inputs: Sequence[np.ndarray]) -> Arrays | None:
    return [inputs[0]]


def _update(node: Node, inputs: Sequence[np.ndarray]) -> Arrays | None:
    rule: Any = node.definition.lower
    program = update_of(rule, node)
    if program is None:
        return None
    results = program.evaluate(*inputs)
    return [np.broadcast_to(x, inputs[0].shape) for x in results]


def _anchor(node: Node, inputs: Sequence[np.ndarray]) -> Arrays | None:
    rule: Any = node.definition.lower
    geometry = node.geometry
    if geometry is None:
        return None
    results = run_anchor(geometry, inputs)
    if rule.family in ("scatter", "row_update"):  # the results are the variables' new values
        return [x.reshape(inputs[0].shape) for x in results]
    return [x.reshape(s) for x, s in zip(results, node.output_shapes, strict=True)]


_RUN = {
    Elementwise: _elementwise,
    Reduce: _reduce,
    Move: _move,
    Join: _join,
    Pass: _pass,
    Read: _read,
    Update: _update,
    Anchor: _anchor,
}
