"""Branches: tf.cond builds the graphs of both and joins their results with Merge.

Operations that a branch's function adds run only if the branch is taken; operations made outside
run in any case (`graph.contexts` distinguishes them). A result is alive in one branch only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from headrace._src.core import nest, source
from headrace._src.core.export import export
from headrace._src.graph.contexts import CondContext
from headrace._src.graph.default import get_default_graph
from headrace._src.graph.inference import constant_value, known_value
from headrace._src.graph.keys import GraphKeys
from headrace._src.graph.operation import Operation, Tensor
from headrace._src.ops.array.constants_and_placeholders import identity
from headrace._src.ops.base.define import b, composed
from headrace._src.ops.base.to_tensor import convert_to_tensor, name_scope
from headrace._src.ops.control.flow_primitives import merge
from headrace._src.ops.control.grouping import with_dependencies
from headrace._src.ops.control.loop_values import flow_of, like_tensor_arrays, unpack_single

__all__ = ["cond", "open_branches", "record_branches", "smart_cond"]


@composed
@export("cond")
def cond(
    pred: Any,
    true_fn: Callable[[], Any] | None = None,
    false_fn: Callable[[], Any] | None = None,
    strict: bool = False,
    name: str | None = None,
    fn1: Callable[[], Any] | None = None,
    fn2: Callable[[], Any] | None = None,
) -> Any:
    """Return the results of `true_fn` if `pred` is true, else those of `false_fn`.

    Both functions build their graph and return tensors (or operations) in the same nested
    structure; a list or tuple of one result is unpacked unless `strict`. `fn1` and `fn2` are old
    names.
    """
    true_fn = _either(true_fn, fn1, "true_fn", "fn1")
    false_fn = _either(false_fn, fn2, "false_fn", "fn2")
    with name_scope(name, "cond", [pred]):
        if get_default_graph().executes:
            result = true_fn() if pred else false_fn()
            return result if strict else unpack_single(result)
        if isinstance(pred, bool):
            raise TypeError("pred must not be a Python bool")
        pred, pivots = open_branches(pred)
        on_true = CondContext(pred, pivots[1], 1)
        true_results, true_flat = _build_branch(on_true, true_fn, "true_fn", strict)
        on_false = CondContext(pred, pivots[0], 0)
        false_results, false_flat = _build_branch(on_false, false_fn, "false_fn", strict)
        with source.naming(true_fn=true_fn, false_fn=false_fn):
            _check_structures(true_results, false_results)
            _check_types(true_flat, false_flat)
        if not true_flat:
            raise ValueError("true_fn and false_fn must return at least one result.")
        merged = [merge(pair)[0] for pair in zip(false_flat, true_flat, strict=True)]
        record_branches(on_true, on_false)
        leaves = nest.flatten(true_results, expand_composites=True)
        packed = nest.pack_sequence_as(
            true_results, like_tensor_arrays(leaves, merged), expand_composites=True
        )
        return packed if strict else unpack_single(packed)


def open_branches(pred: Any) -> tuple[Tensor, list[Tensor]]:
    """Return the predicate tensor, and the pivots of the false and the true branch."""
    given, pred = pred, convert_to_tensor(pred)
    is_ref = getattr(getattr(given, "dtype", None), "_is_ref_dtype", False)
    data = convert_to_tensor(given, as_ref=True) if is_ref else pred
    branches = b.switch_op(data, pred, name="Switch")
    on_true = identity(branches[1], name="switch_t")
    pivots = [identity(branches[0], name="switch_f"), on_true]
    pred = identity(pred, name="pred_id")
    for t in (branches[0], *pivots, pred):
        pred.graph.prevent_fetching(t.op)
    return pred, pivots


def record_branches(*contexts: CondContext) -> None:
    """Add the contexts to the collection that a MetaGraph saves; it saves inner ones with their
    outer one.
    """
    for context in contexts:
        if context.outer_context is None:
            context.graph.add_to_collection(GraphKeys.COND_CONTEXT, context)


def _either(new: Any, old: Any, new_name: str, old_name: str) -> Callable[[], Any]:
    if new is not None and old is not None:
        raise TypeError(f"cond(): {new_name} and {old_name} may not be set simultaneously.")
    function = old if new is None else new
    if function is None:
        raise TypeError(f"cond(): {new_name} argument required")
    if not callable(function):
        raise TypeError(f"{new_name} must be callable.")
    return function


def _build_branch(
    context: CondContext, function: Callable[[], Any], what: str, strict: bool
) -> tuple[Any, list[Tensor]]:
    """Return a branch function's results, and the same as tensors of the branch."""
    with context.entered():
        returned = function()
        if returned is None:
            raise ValueError(f"{what} must have a return value.")
        results = nest.map_structure(
            lambda leaf: _branch_tensor(context, leaf), returned, expand_composites=True
        )
        tensors = nest.flatten(results, expand_composites=True)
        context.ExitResult(tensors)
    return returned if strict else unpack_single(returned), tensors


def _branch_tensor(context: CondContext, value: Any) -> Tensor:
    if isinstance(value, Operation):
        return with_dependencies([value], context.pivot)
    return context.result(convert_to_tensor(flow_of(value)))


def _check_structures(true_results: Any, false_results: Any) -> None:
    try:
        nest.assert_same_structure(true_results, false_results, expand_composites=True)
    except (TypeError, ValueError) as error:
        message = f"Incompatible return values of true_fn and false_fn: {error}"
        raise type(error)(message) from None


def _check_types(true_flat: list[Tensor], false_flat: list[Tensor]) -> None:
    for x, y in zip(true_flat, false_flat, strict=True):
        if x.dtype.base_dtype is not y.dtype.base_dtype:
            raise ValueError(
                "Outputs of true_fn and false_fn must have the same type: "
                f"{x.dtype.name}, {y.dtype.name}"
            )


@composed
@export("contrib.framework.smart_cond")
def smart_cond(
    pred: Any,
    true_fn: Callable[[], Any] | None = None,
    false_fn: Callable[[], Any] | None = None,
    name: str | None = None,
) -> Any:
    """As `cond`, but build only one branch if `pred` is known now."""
    if not callable(true_fn):
        raise TypeError("`true_fn` must be callable.")
    if not callable(false_fn):
        raise TypeError("`false_fn` must be callable.")
    known = smart_constant_value(pred)
    if known is None:
        return cond(pred, true_fn, false_fn, name=name)
    return true_fn() if known else false_fn()


@export("contrib.framework.smart_constant_value")
def smart_constant_value(pred: Any) -> bool | None:
    """Return a predicate's value if it is known now (a bool, 0, 1 or a constant tensor); None for a
    variable or a tensor that only a step computes.
    """
    if isinstance(pred, Tensor):
        value = constant_value(pred)
        if value is None:
            value = known_value(pred)
        return None if value is None else bool(value)
    if hasattr(pred, "_as_graph_element"):
        return None
    if isinstance(pred, bool | np.bool_) or pred in (0, 1):
        return bool(pred)
    raise TypeError(
        "`pred` must be a Tensor, or a Python bool, or 1 or 0. Found instead: "
        f"{type(pred).__name__}"
    )
