"""Choosing one of many branches: tf.case by predicates, tf.switch_case by an index."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from headrace._src.core import dtypes
from headrace._src.core.export import export
from headrace._src.graph.default import get_default_graph
from headrace._src.graph.operation import Operation, Tensor
from headrace._src.ops.base.define import b, composed
from headrace._src.ops.base.to_tensor import constant, name_scope
from headrace._src.ops.control.cond import cond
from headrace._src.ops.control.grouping import Assert

__all__ = ["case", "switch_case"]

Action = Callable[[], Any]


@composed
@export("case")
def case(
    pred_fn_pairs: Any,
    default: Action | None = None,
    exclusive: bool = False,
    strict: bool = False,
    name: str | None = "case",
) -> Any:
    """Return the results of the first function whose predicate is true, else those of `default`.

    pred_fn_pairs: pairs of a bool tensor and a function, or a dict of them (tried in the order of
    the predicates' names). Without a `default` the step fails if no predicate is true; with
    `exclusive` it fails if more than one is. `strict` is as in tf.cond.
    """
    predicates, actions = _predicates_and_actions(pred_fn_pairs)
    with name_scope(name, "case", predicates):
        if default is None:
            default = partial(_last_action, predicates, actions[-1])
            predicates, actions = predicates[:-1], actions[:-1]
        chosen = default
        for predicate, action in zip(reversed(predicates), reversed(actions), strict=True):
            chosen = partial(cond, predicate, action, chosen, strict=strict)
        if not exclusive:
            return chosen()
        check = _assert_at_most(1, predicates, "Input error: exclusive=True")
        with get_default_graph().control_dependencies([check]):
            return chosen()


def _predicates_and_actions(pairs: Any) -> tuple[list[Tensor], list[Action]]:
    if not isinstance(pairs, list | tuple | Mapping):
        raise TypeError("fns must be a list, tuple, or dict")
    if isinstance(pairs, Mapping):
        pairs = sorted(pairs.items(), key=lambda item: item[0].name)
    if not pairs:
        raise ValueError("pred_fn_pairs must hold at least one pair")
    for pair in pairs:
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise TypeError("Each entry in pred_fn_pairs must be a 2-tuple")
        predicate, action = pair
        if not isinstance(predicate, Tensor) or predicate.dtype.base_dtype is not dtypes.bool:
            raise TypeError(f"pred must be a Tensor, got: {predicate}")
        if not callable(action):
            raise TypeError(f"fn for pred {predicate.name} must be callable.")
    return [p for p, _ in pairs], [a for _, a in pairs]


def _last_action(predicates: Sequence[Tensor], action: Action) -> Any:
    """Run the last pair's function after checking that its predicate is the only true one."""
    message = "Input error: None of conditions evaluated as True:"
    data = [message, b.stack(predicates, name="preds_c")]
    others = (
        f"Implementation error: selected default action #{len(predicates) - 1} was called, but "
        "some of other predicates are True: "
    )
    checks = [_assert_at_most(0, predicates[:-1], others), Assert(predicates[-1], data)]
    with get_default_graph().control_dependencies(checks):
        return action()


def _assert_at_most(count: int, predicates: Sequence[Tensor], message: str) -> Operation:
    if not predicates:
        return b.no_op()
    together = b.stack(predicates, name="preds_c")
    number = b.reduce_sum(b.cast(together, dtypes.int32), name="num_true_conds")
    few = b.less_equal(number, constant(count, name="n_true_conds"))
    names = ", ".join(p.name for p in predicates)
    text = f"{message}: more than {count} conditions ({names}) evaluated as True:"
    return Assert(few, [text, together], summarize=len(predicates))


@composed
@export("switch_case")
def switch_case(
    branch_index: Any, branch_fns: Any, default: Action | None = None, name: str = "switch_case"
) -> Any:
    """Return the results of the function at `branch_index`, a scalar integer tensor.

    branch_fns: a list of functions, or a dict (or list of pairs) of functions by index 0, 1, 2, ...
    An index out of range selects `default`, or the last function.
    """
    if not isinstance(branch_index, Tensor):
        raise TypeError(f"branch_index must a Tensor, got {type(branch_index)}")
    if branch_index.dtype.base_dtype not in (dtypes.int32, dtypes.int64):
        raise TypeError(f"branch_index must an integer Tensor, got {branch_index.dtype}")
    functions = _numbered(branch_fns)
    last = functions.pop() if default is None else default
    if not callable(last):
        raise TypeError("default must be callable.")
    with name_scope(name, "switch_case", [branch_index]):
        chosen: Action = last
        for number in reversed(range(len(functions))):
            chosen = partial(_choose, branch_index, number, functions[number], chosen)
        return chosen()


def _choose(index: Tensor, number: int, action: Action, otherwise: Action) -> Any:
    return cond(b.equal(index, number), action, otherwise)


def _numbered(functions: Any) -> list[Action]:
    if isinstance(functions, Mapping):
        functions = list(functions.items())
    if not isinstance(functions, list | tuple):
        raise TypeError("branch_fns must be a list, tuple, or dict")
    if not functions:
        raise ValueError("branch_fns must hold at least one function")
    if all(callable(f) for f in functions):
        functions = list(enumerate(functions))
    for entry in functions:
        if not isinstance(entry, tuple) or len(entry) != 2:
            raise TypeError("Each entry in branch_fns must be a 2-tuple")
        if not isinstance(entry[0], int):
            raise TypeError(f"key must be a Python `int`, got {entry[0]!r}")
        if not callable(entry[1]):
            raise TypeError(f"fn for key {entry[0]} must be callable.")
    keys = sorted(key for key, _ in functions)
    if keys != list(range(len(keys))):
        listed = ",".join(map(str, keys))
        raise ValueError(
            f"branch indices (keys) must form contiguous range of [0 to {len(keys)}) but found "
            f"{{{listed}}}"
        )
    return [function for _, function in sorted(functions, key=lambda entry: entry[0])]
