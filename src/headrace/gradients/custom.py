"""Gradients that a function brings along. In: f(*args) -> (result, grad_fn). Out: f's result, with
grad_fn as its gradient.

The result and the arguments pass through one IdentityN whose gradient is a function made for this
call. The graph keeps that function, which knows the graph's tensors: both are forgotten together.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable
from functools import wraps
from typing import Any

from headrace.core.export import export
from headrace.graph.default import get_default_graph
from headrace.graph.keys import GraphKeys
from headrace.graph.operation import Tensor
from headrace.ops.convert import convert_to_tensor
from headrace.ops.define import b

__all__ = ["custom_gradient"]

_numbers = itertools.count()


@export("custom_gradient")
def custom_gradient(f: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a function that returns its result and `grad_fn(*dy)`, the gradients of its
    arguments.

    If the function reads trainable resource variables, `grad_fn(*dy, variables)` returns those of
    the variables too.
    """

    @wraps(f)
    def decorated(*args: Any, **kwargs: Any) -> Any:
        if kwargs:
            raise ValueError(
                "The custom_gradient decorator currently supports keyword arguments only when "
                "eager "
                "execution is enabled."
            )
        inputs = [convert_to_tensor(x) for x in args]
        graph = get_default_graph()
        before = graph.version
        result, grad_fn = f(*inputs)
        results = list(result) if isinstance(result, list | tuple) else [result]
        results = [convert_to_tensor(t) for t in results]
        variables = _variables_read(graph, before)
        takes_variables = _takes_variables(grad_fn)
        if variables and not takes_variables:
            raise TypeError(
                "If using @custom_gradient with a function that uses variables, then grad_fn must "
                "accept a 'variables' keyword argument."
            )
        if takes_variables and not variables:
            raise TypeError(
                "You are using custom_gradient where grad_fn takes `variables`, but f reads no "
                "trainable resource variable: create them with use_resource=True."
            )
        return _attach(graph, result, results, inputs, variables, grad_fn)

    return decorated


@export("grad_pass_through")
def grad_pass_through(f: Callable[..., Any]) -> Callable[..., Any]:
    """Make `f` count as the identity when it is differentiated."""

    @custom_gradient
    def passed(*args: Any) -> Any:
        return f(*args), lambda *dys: list(dys)

    return wraps(f)(passed)


def _attach(
    graph: Any,
    result: Any,
    results: list[Tensor],
    inputs: list[Tensor],
    variables: list[Any],
    grad_fn: Callable[..., Any],
) -> Any:
    name = f"CustomGradient-{next(_numbers)}"

    def gradient(op: Any, *dys: Any) -> list[Any]:
        given = dys[: len(results)]
        if variables:
            of_inputs, of_variables = grad_fn(*given, variables=variables)
            if len(of_variables) != len(variables):
                raise ValueError(
                    "Must return gradient for each variable from @custom_gradient grad_fn."
                )
        else:
            of_inputs, of_variables = grad_fn(*given), []
        found = list(of_inputs) if isinstance(of_inputs, list | tuple) else [of_inputs]
        if len(found) != len(inputs):
            raise ValueError(f"grad_fn gave {len(found)} gradients for {len(inputs)} arguments")
        # Nothing flows into the function's own computation: only into what it was computed from.
        return [None] * len(results) + found + list(of_variables)

    graph._gradient_functions[name] = gradient
    # TensorFlow has copies of the results and reads of the variables that nobody uses. They are
    # here too, because the seeds of later random operations depend on the count of operations.
    for t in results:
        b.identity(t)
    with graph.gradient_override_map({"IdentityN": name}):
        passed = b.identity_n([*results, *inputs, *variables])[: len(results)]
    for v in variables:
        convert_to_tensor(v)
    for t, original in zip(passed, results, strict=True):
        t.set_shape(original.shape)
    return type(result)(passed) if isinstance(result, list | tuple) else passed[0]


def _variables_read(graph: Any, before: int) -> list[Any]:
    """The trainable resource variables that operations made since `before` read."""
    read = {t for op in graph._operations[before:] for t in op._inputs}
    return [
        v
        for v in graph.get_collection(GraphKeys.TRAINABLE_VARIABLES)
        if getattr(v, "handle", None) in read
    ]


def _takes_variables(grad_fn: Callable[..., Any]) -> bool:
    parameters = inspect.signature(grad_fn).parameters.values()
    return any(p.name == "variables" or p.kind is p.VAR_KEYWORD for p in parameters)
