"""Custom gradients. In: f(*args) -> (result, grad_fn). Out: f's result, with grad_fn as its
gradient.

The result and the arguments pass through one IdentityN whose gradient is a function made for this
call. The graph owns that function, which refers to the graph's tensors: both are freed together.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from headrace._src.core.dtypes import resource
from headrace._src.core.export import export
from headrace._src.gradients.gradients import gradients
from headrace._src.graph.default import get_default_graph
from headrace._src.graph.definition import Effect
from headrace._src.graph.keys import GraphKeys
from headrace._src.graph.operation import Tensor
from headrace._src.ops.base.define import b
from headrace._src.ops.base.to_tensor import convert_to_tensor
from headrace._src.variables.resource_variable import ResourceVariable
from headrace._src.variables.scope import get_variable_scope

__all__ = ["custom_gradient", "grad_pass_through", "recompute_grad"]

_numbers = itertools.count()
Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


@export("custom_gradient")
def custom_gradient(
    f: Callable[Parameters, tuple[Result, Callable[..., Any]]],
) -> Callable[Parameters, Result]:
    """Decorate a function that returns its result and `grad_fn(*dy)`, the gradients of its
    arguments.

    If the function reads trainable variables, `grad_fn(*dy, variables)` also returns their
    gradients. Variables that it creates must be resource variables.
    """

    function: Callable[..., Any] = f

    @wraps(f)
    def decorated(*args: Any, **kwargs: Any) -> Any:
        _refuse_keywords(kwargs)
        return _call(function, args, _check_variables)

    return decorated


@export("grad_pass_through")
def grad_pass_through(f: Callable[..., Any]) -> Callable[..., Any]:
    """Treat `f` as the identity when it is differentiated; variables that it reads or assigns have
    no gradient.
    """

    @wraps(f)
    def passed(*args: Any, **kwargs: Any) -> Any:
        def with_gradient(*inputs: Any) -> tuple[Any, Callable[..., Any]]:
            return f(*inputs, **kwargs), gradient

        return _call(with_gradient, args, lambda *_: None)

    def gradient(*dys: Any, variables: Sequence[Any] = ()) -> Any:
        return (list(dys), [None] * len(variables)) if variables else list(dys)

    return passed


def _call(
    f: Callable[..., Any], args: Sequence[Any], check: Callable[[list[Any], Any], None]
) -> Any:
    """Return the result of `f`, with the gradient that it returns; `check` may reject the gradient
    given the variables that `f` reads.
    """
    inputs = [convert_to_tensor(x) for x in args]
    graph = get_default_graph()
    before, known = graph.version, set(map(id, _all_variables(graph)))
    result, grad_fn = f(*inputs)
    results = list(result) if isinstance(result, list | tuple) else [result]
    results = [convert_to_tensor(t) for t in results]
    for v in _all_variables(graph):
        if id(v) not in known and not isinstance(v, ResourceVariable):
            raise TypeError(
                "All variables used by a function wrapped with @custom_gradient must be "
                "`ResourceVariable`s. Ensure that no `variable_scope` is created with "
                "`use_resource=False`."
            )
    variables = [v for v in _variables_read(graph, before) if not _is_among(v, inputs)]
    check(variables, grad_fn)
    return _attach(graph, result, results, inputs, variables, grad_fn)


def _check_variables(variables: list[Any], grad_fn: Callable[..., Any]) -> None:
    takes_variables = _takes_variables(grad_fn)
    if variables and not takes_variables:
        raise TypeError(
            "If using @custom_gradient with a function that uses variables, then grad_fn must "
            "accept a keyword argument 'variables'."
        )
    if takes_variables and not variables and not get_variable_scope().use_resource:
        raise TypeError(
            "If using @custom_gradient with a function that uses variables, the enclosing "
            "variable scope must have use_resource=True."
        )


@export("recompute_grad")
def recompute_grad(f: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Decorate a function of tensors so that its gradient recomputes it: intermediate results
    needn't be kept. Gradients flow to its arguments and to the trainable variables that it reads.
    """
    function: Callable[..., Any] = f

    def with_gradient(*inputs: Any) -> tuple[Any, Callable[..., Any]]:
        def gradient(*dys: Any, variables: Sequence[Any] = ()) -> Any:
            given = [dy for dy in dys if dy is not None]
            with get_default_graph().control_dependencies(given):  # wait until they are available
                again = [b.identity(t) for t in inputs]
                made = function(*again)
            made = made if isinstance(made, list | tuple) else [made]
            used = [y for y, dy in zip(made, dys, strict=True) if dy is not None]
            found = gradients(used, [*again, *variables], given)
            of_inputs, of_variables = found[: len(again)], found[len(again) :]
            return (of_inputs, of_variables) if variables else of_inputs

        return function(*inputs), gradient

    @wraps(f)
    def decorated(*args: Any, **kwargs: Any) -> Any:
        _refuse_keywords(kwargs)
        return _call(with_gradient, args, lambda *_: None)

    return decorated


def _refuse_keywords(kwargs: dict[str, Any]) -> None:
    if kwargs:
        raise ValueError(
            "The custom_gradient decorator currently supports keyword arguments only when eager "
            "execution is enabled."
        )


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
        # No gradient flows into the function's own operations: only into its inputs.
        return [None] * len(results) + found + list(of_variables)

    graph._gradient_functions[name] = gradient
    # TensorFlow adds unused copies of the results and reads of the variables. They are added here
    # too, because the seeds of later random operations depend on the count of operations.
    for t in results:
        b.identity(t)
    with graph.gradient_override_map({"IdentityN": name}):
        passed = b.identity_n([*results, *inputs, *variables])[: len(results)]
    for v in variables:
        convert_to_tensor(v)
    for t, original in zip(passed, results, strict=True):
        t.set_shape(original.shape)
    return type(result)(passed) if isinstance(result, list | tuple) else passed[0]


def _all_variables(graph: Any) -> list[Any]:
    keys = GraphKeys.GLOBAL_VARIABLES, GraphKeys.LOCAL_VARIABLES
    return [v for key in keys for v in graph.get_collection(key)]


def _variables_read(graph: Any, before: int) -> list[Any]:
    """Return the trainable variables whose values are used by operations made since `before`.
    Assigning to a variable, or testing whether it is initialized, doesn't use its value.
    """
    users: dict[Tensor, list[Any]] = {}
    for op in graph._operations[before:]:
        for t in op._inputs:
            users.setdefault(t, []).append(op)
    found = []
    for v in graph.get_collection(GraphKeys.TRAINABLE_VARIABLES):
        place, value = _tensors(v)
        if value in users or any(_reads(op, v.dtype) for op in users.get(place, ())):
            found.append(v)
    return found


def _reads(op: Any, dtype: Any) -> bool:
    """Whether an operation on a variable's handle or reference returns its value, or passes it on
    to a branch or a loop.
    """
    passed = any(t.dtype.base_dtype in (dtype.base_dtype, resource) for t in op._outputs)
    return passed and op.definition.effect is not Effect.WRITES


def _is_among(variable: Any, inputs: list[Tensor]) -> bool:
    return any(t is x for t in _tensors(variable) for x in inputs)


def _tensors(variable: Any) -> tuple[Tensor, Tensor | None]:
    """Return the handle or the reference of a variable, and its value if a single
    tensor holds it.
    """
    if isinstance(variable, ResourceVariable):
        return variable.handle, None
    return variable._as_graph_element(), variable.value()


def _takes_variables(grad_fn: Callable[..., Any]) -> bool:
    parameters = inspect.signature(grad_fn).parameters.values()
    return any(p.name == "variables" or p.kind is p.VAR_KEYWORD for p in parameters)
