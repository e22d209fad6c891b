"""State that ops create and others access by a handle: queues, barriers, accumulators, readers.

Without a shared name it belongs to the op, in its session; with one, all ops that use that name in
that container share it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import wraps
from types import FunctionType
from typing import Any, TypeVar

import numpy as np

from headrace._src.core.errors import InvalidArgumentError
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.devices.resources import OPERATION_STATE, ResourceHandle
from headrace._src.devices.step_context import StepContext
from headrace._src.graph.definition import NOT_DIFFERENTIABLE, Effect, Sample, keywords_of
from headrace._src.ops.base.define import define

__all__ = ["define_pair", "find_state", "keep_in_step", "on", "reference_infer", "state_behind"]

State = TypeVar("State")

_numbers = itertools.count()


def find_state(
    ctx: Any, kind: type, place: tuple[str, str], make: Callable[[str], Any]
) -> tuple[ResourceHandle, Any, bool]:
    """Return the handle of a piece of state, the state, and whether it is shared. `place` is
    (container, shared name); `make(name)` creates it if it doesn't exist.
    """
    container, shared = place
    if shared:
        key = shared
        state = ctx.find_or_make(container, key, kind, lambda: make(shared))
    else:
        container, key = "", OPERATION_STATE + ctx.name
        state = ctx.find_or_make(
            container, key, kind, lambda: make(f"_{next(_numbers)}_{ctx.name}")
        )
    return ctx.handle(container, key, kind), state, bool(shared)


def keep_in_step(ctx: Any, step: StepContext, name: str, state: Any) -> ResourceHandle:
    """Keep state until the step ends; the handle that leads to it."""
    key = f"{name}_{next(_numbers)}"
    ctx.find_or_make(step.container, key, type(state), lambda: state)
    return ctx.handle(step.container, key, type(state))


def on(
    kind: type, kernel: Callable[..., Any], behind: Callable[..., Any] | None = None
) -> Callable[..., Any]:
    """A kernel whose first input is a handle, made of one on the state behind it.

    behind: called with the context and the handle if that state isn't there; by default it raises
    what `state_behind` does.
    """
    wanted = keywords_of(kernel)
    passes = "ctx" in wanted

    @wraps(kernel)
    def run(handle: Any, *inputs: Any, ctx: Any, **given: Any) -> Any:
        if passes:
            given["ctx"] = ctx
        state = ctx.resources.peek(handle) if type(handle) is ResourceHandle else None
        if not isinstance(state, kind):
            state = state_behind(ctx, handle, kind) if behind is None else behind(ctx, handle)
        return kernel(state, *inputs, **given)

    run.asks_for = (*wanted, "ctx")  # type: ignore[attr-defined]
    return run


def state_behind(ctx: Any, handle: Any, kind: type[State]) -> State:
    """Return the state behind a handle; InvalidArgumentError if it is of another kind."""
    if isinstance(handle, np.ndarray) and not handle.ndim:
        handle = handle.item()  # it was selected from several
    state = ctx.find(handle) if isinstance(handle, ResourceHandle) else handle
    if not isinstance(state, kind):
        raise InvalidArgumentError(
            None, None, f"expected a handle of a {kind.__name__}, but got {state!r:.80}"
        )
    return state


def reference_infer(c: Any) -> TensorShape:
    """Return the shape of a reference to state: it was once a vector of container and name."""
    return TensorShape.of((2,))


def define_pair(
    op_type: str,
    newer: str,
    signature: str,
    attributes: str = "",
    *,
    infer: Callable[..., Any],
    kernel: Callable[..., Any],
    effect: Effect = Effect.BLOCKS,
    samples: Sequence[Sample] = (),
    fresh: bool | None = None,
) -> Callable[[Any], Callable[..., Any]]:
    """Define `newer`, whose handle is a resource, and `op_type`, whose handle is a reference as
    older graphs have it, with one meaning. The older builder's name ends in `_ref`.
    """
    rule = infer if not signature.startswith("->") else reference_infer
    older = signature.replace(" resource", " Ref(string)")

    def decorate(function: Any) -> Callable[..., Any]:
        name = f"{function.__name__}_ref"
        again = FunctionType(function.__code__, function.__globals__, name, function.__defaults__)
        again.__doc__ = f"{function.__doc__} The form of older graphs."
        built = None
        pair = ((op_type, older, rule, again), (newer, signature, infer, function))
        for defined, arguments, shapes, builder in pair:
            built = define(
                defined,
                arguments,
                attributes,
                infer=shapes,
                kernel=kernel,
                gradient=NOT_DIFFERENTIABLE,
                effect=effect,
                samples=samples,
                fresh=fresh,
            )(builder)
        assert built is not None
        return built

    return decorate
