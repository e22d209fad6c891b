"""Graph functions made from Python functions (Defun), and gradients of functions.

The gradients of a function are a function too: tf.gradients adds them to a body that begins with
the forward body. So the gradient of a gradient needs nothing new.
"""

from __future__ import annotations

import hashlib
import inspect
import re
from collections.abc import Callable, Sequence
from typing import Any

from headrace._src.core import dtypes
from headrace._src.core.dtypes import DType
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.gradients.gradients import gradients
from headrace._src.graph.attributes import FunctionName
from headrace._src.graph.default import get_default_graph
from headrace._src.graph.graph import Graph
from headrace._src.graph.graph_functions import (
    FunctionGraph,
    GraphFunction,
    add_function,
    function_named,
)
from headrace._src.graph.operation import Operation, Tensor
from headrace._src.ops.base.define import b, composed, results
from headrace._src.ops.base.to_tensor import convert_to_tensor
from headrace._src.ops.control.functional import _gradient_type
from headrace._src.ops.state.resource_variable_ops import handle_data
from headrace._src.variables.store import default_variable_store

__all__ = ["DefinedFunction", "Defun", "gradient_of"]

_OPTIONS = {
    "func_name",
    "grad_func",
    "python_grad_func",
    "out_names",
    "shape_func",
    "capture_by_value",
    "noinline",
    "compiled",
    "separate_compiled_gradients",
}


class Defun:
    """Decorator that makes a graph function from a Python function of tensors.

    input_types: the dtypes of its arguments; without them, each combination of argument types makes
    a function. func_name: its name. grad_func: a Defun of the arguments and the results' gradients.
    python_grad_func: a function `(op, *gradients)` that builds the gradients. out_names: names of
    the results. shape_func: returns the results' static shapes for a call's operation. noinline:
    run calls of it as steps of their own instead of inlining them.
    """

    def __init__(self, *input_types: Any, **options: Any) -> None:
        if unknown := set(options) - _OPTIONS:
            raise ValueError(f"Unknown keyword arguments: {sorted(unknown)}")
        if options.get("capture_by_value"):
            raise ValueError("capture_by_value is not supported: pass captures as arguments")
        self._types = tuple(dtypes.as_dtype(t) for t in input_types)
        self._options = options

    def __call__(self, func: Callable[..., Any]) -> Any:
        if not callable(func):
            raise ValueError("func must be callable")
        names, optional, varied = _arguments(func)
        if self._types:
            if len(self._types) < len(names) - optional:
                raise ValueError(
                    "The function has more arguments than the number of specified input types."
                )
            if len(self._types) > len(names) and not varied:
                raise ValueError(
                    "The function has fewer arguments than the number of specified input types."
                )
            return DefinedFunction(
                func, _argument_names(names, len(self._types)), self._types, self._options
            )
        if not names and not varied:
            return DefinedFunction(func, [], (), self._options)
        return _OverloadedFunction(func, names, self._options)


def _arguments(func: Callable[..., Any]) -> tuple[list[str], int, bool]:
    """Return a function's positional argument names, how many are optional, and whether it has
    *args.
    """
    found = inspect.signature(func).parameters.values()
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    plain = [p for p in found if p.kind in kinds]
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in found):
        raise ValueError("Functions with keyword arguments are not supported.")
    optional = sum(p.default is not inspect.Parameter.empty for p in plain)
    varied = any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in found)
    return [p.name for p in plain], optional, varied


def _argument_names(names: Sequence[str], count: int) -> list[str]:
    return [*names[:count], *(f"arg{i}" for i in range(len(names), count))]


class _OverloadedFunction:
    """A function for each combination of argument types that it is called with."""

    def __init__(self, func: Callable[..., Any], names: list[str], options: dict[str, Any]) -> None:
        self._func = func
        self._names = names
        self._options = options
        self._made: dict[tuple[DType, ...], DefinedFunction] = {}

    def instantiate(self, input_types: Sequence[Any]) -> DefinedFunction:
        """Return the function for arguments of these types."""
        types = tuple(dtypes.as_dtype(t) for t in input_types)
        if types not in self._made:
            options = dict(self._options)
            name = options.pop("func_name", None)
            if name is not None:
                options["func_name"] = "_".join([name, *(t.name for t in types)])
            names = _argument_names(self._names, len(types))
            self._made[types] = DefinedFunction(self._func, names, types, options)
        return self._made[types]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        tensors = [convert_to_tensor(a) for a in args]
        return self.instantiate([t.dtype.base_dtype for t in tensors])(*tensors, **kwargs)


class DefinedFunction:
    """A graph function that a Python function builds when it is first used."""

    def __init__(
        self,
        func: Callable[..., Any],
        names: Sequence[str],
        types: Sequence[DType],
        options: dict[str, Any],
    ) -> None:
        self._func = func
        self._names = names
        self._types = tuple(types)
        self._options = options
        self._made: GraphFunction | None = None
        self._captured: list[Tensor] = []

    @property
    def name(self) -> str:
        """The name of the function, and the type of the ops that call it."""
        return self.function.name

    @property
    def definition(self) -> Any:
        """The FunctionDef."""
        return self.function.to_proto()

    @property
    def declared_input_types(self) -> list[DType]:
        return list(self._types)

    @property
    def output_types(self) -> list[DType]:
        return self.function.output_types

    @property
    def captured_inputs(self) -> list[Tensor]:
        """The tensors of the surrounding graph that the function captures."""
        assert self.function is not None
        return list(self._captured)

    @property
    def stateful_ops(self) -> list[tuple[str, str]]:
        """Names and types of the body's stateful ops."""
        found = self.function.operations
        return [(op.name, op.type) for op in found if op.definition.is_stateful]

    @property
    def grad_func_name(self) -> str | None:
        """The name of the function that computes its gradients."""
        other = self._options.get("grad_func")
        return None if other is None else other.name

    @property
    def python_grad_func(self) -> Any:
        return self._options.get("python_grad_func")

    def set_grad_func(self, grad_func: DefinedFunction) -> None:
        """Set the function that computes its gradients; only once."""
        held = self._options.get("grad_func")
        if held is not None and held is not grad_func:
            raise ValueError(f"{self.name} has a gradient function already: {held.name}")
        self._options = {**self._options, "grad_func": grad_func}
        self.function.gradient = grad_func.name

    @property
    def function(self) -> GraphFunction:
        """The function, with its body."""
        if self._made is None:
            self._made = self._build()
        return self._made

    def _build(self) -> GraphFunction:
        outer = get_default_graph()
        graph = FunctionGraph(outer)
        with graph.as_default(), _variables_of(graph, outer):
            args = [graph.argument(t, n) for n, t in zip(self._names, self._types, strict=True)]
            found = self._func(*args)
            outputs = _as_outputs(found, getattr(self._func, "__name__", "function"))
            outputs = [graph.capture(t) for t in outputs]
        self._captured = list(graph.captures)
        names = self._options.get("out_names")
        if names is not None and len(names) != len(outputs):
            raise ValueError(
                f"Length of out_names ({len(names)}) does not match number of outputs "
                f"({len(outputs)}): {names}"
            )
        attrs: dict[str, Any] = {"_disable_call_shape_inference": True}
        if self._options.get("noinline"):
            attrs["_noinline"] = True
        if self._options.get("compiled"):
            attrs["_XlaCompile"] = True
            attrs["_XlaSeparateCompiledGradients"] = bool(
                self._options.get("separate_compiled_gradients")
            )
            attrs["_XlaScope"] = f"function_{self._options.get('func_name') or 'f'}"
        function = GraphFunction(
            self._options.get("func_name") or "",
            graph,
            graph.arguments,
            outputs,
            names,
            operations=graph.get_operations(),
            attrs=attrs,
            doc=inspect.getdoc(self._func) or "",
        )
        function.named(function.name or _content_name(self._func, function))
        function.shape = self._options.get("shape_func")
        function.python_gradient = self._options.get("python_grad_func")
        function.gradient = self.grad_func_name
        graph._functions[function.name] = function  # it may call itself
        return function

    def add_to_graph(self, graph: Graph) -> None:
        """Add the function to a graph's library."""
        other = self._options.get("grad_func")
        if other is not None:
            other.add_to_graph(self.function.graph)
        add_function(graph, self.function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Add an operation that calls the function; `name` is its name."""
        name = kwargs.pop("name", None)
        if unknown := set(kwargs) - {"noinline", "compiled", "separate_compiled_gradients"}:
            raise ValueError(f"Unknown keyword arguments: {sorted(unknown)}")
        graph = get_default_graph()
        self.add_to_graph(graph)
        if len(args) != len(self._types):
            raise ValueError(
                f"Expected number of arguments: {len(self._types)}, received: {len(args)}"
            )
        given = [convert_to_tensor(a, t) for a, t in zip(args, self._types, strict=True)]
        function = self.function
        attrs = dict(function.attrs)
        attrs.pop("_noinline", None)
        if kwargs.get("noinline"):
            attrs["_noinline"] = True
        full_name = graph.operation_name(function.name if name is None else name)
        inputs = [*given, *self._captured]
        op = graph.add_operation(function.definition, inputs, attrs, full_name)
        made = results(op)
        return tuple(made) if isinstance(made, tuple) else made

    def __repr__(self) -> str:
        return f"<DefinedFunction {self._options.get('func_name') or self._func}>"


def _variables_of(graph: FunctionGraph, outer: Graph) -> Any:
    """A scope in which variables are looked up, and created, in the outer graph."""

    def create(next_creator: Callable[..., Any], **kwargs: Any) -> Any:
        scope = f"{graph.scope.name}/" if graph.scope.name else None
        with outer.as_default(), outer.control_dependencies(None), outer.name_scope(scope):
            return next_creator(**kwargs)

    store = default_variable_store(outer)
    graph._collections.update({k: v for k, v in outer._collections.items() if store in v})
    graph.scope.variable_scope = outer.scope.variable_scope
    return graph._swap("variable_creators", (*outer.scope.variable_creators, create))


def _as_outputs(found: Any, name: str) -> list[Tensor]:
    if found is None or isinstance(found, Operation):
        return []
    values = list(found) if isinstance(found, list | tuple) else [found]
    if any(v is None for v in values):
        raise ValueError(f"Function {name} can not return None.")
    return [convert_to_tensor(v) for v in values]


def _content_name(func: Callable[..., Any], function: GraphFunction) -> str:
    """Return a name derived from the function's content: equal functions share it in
    every process.
    """
    body = function.to_proto()
    digest = hashlib.sha256(body.SerializeToString(deterministic=True)).hexdigest()[:11]
    function._proto = None  # it has no name yet
    base = getattr(func, "__name__", "function").replace("<lambda>", "lambda")
    return f"{base}_{digest}"


# -- Gradients -------------------------------------------------------------------------------------


@composed
def derived_function(function: GraphFunction) -> GraphFunction:
    """Return the function that computes another one's gradients, for ops."""
    return gradient_of(function)


def gradient_of(function: GraphFunction) -> GraphFunction:
    """Return the function that maps a function's arguments and its results' gradients to the
    arguments' gradients: dense, and zeros where there are none.
    """
    if function.gradient is not None:
        return function_named(function._library or function.graph, function.gradient)
    graph = function.graph
    with graph._lock:
        if function.derived is None:
            function.derived = _derive(function, graph)
        return function.derived


def _derive(function: GraphFunction, graph: Any) -> GraphFunction:
    # Names of functions may begin with "_" and contain "<", names of nodes may not.
    name = re.sub(r"^[^A-Za-z0-9.]+|[^A-Za-z0-9_.\-/]", "", function.name)
    with graph.as_default(), graph.name_scope(None):
        starts = [
            graph.argument(t.dtype, f"{name}_d{i}", t._shape)
            for i, t in enumerate(function.outputs)
        ]
        paired = [(y, d) for y, d in zip(function.outputs, starts, strict=True) if _flows(y)]
        sources = [x for x in function.inputs if _flows(x)]
        found = (
            gradients([y for y, _ in paired], sources, [d for _, d in paired], name="gradients")
            if paired and sources
            else []
        )
        by_source = dict(zip(sources, found, strict=True))
        outputs = [_dense(by_source.get(x), x) for x in function.inputs]
    return GraphFunction(f"{function.name}_grad", graph, [*function.inputs, *starts], outputs)


def _flows(t: Tensor) -> bool:
    dtype = t.dtype.base_dtype
    return dtype.is_floating or dtype.is_complex or dtype in (dtypes.resource, dtypes.variant)


def _dense(gradient: Any, x: Tensor) -> Tensor:
    if gradient is not None:
        return convert_to_tensor(gradient)
    if x.dtype.base_dtype is dtypes.resource:
        known = handle_data(x)
        return b.zeros([] if known is None else known.shape, _gradient_type(x))
    return b.zeros_like(x)


def _with_gradients_of(op: Operation, name: FunctionName) -> FunctionName:
    """Return the function that computes another one's gradients, from the library of op's graph."""
    derived = gradient_of(function_named(op.graph, name.name))
    add_function(op.graph, derived)
    return FunctionName(derived.name)


def _filled(op: Operation, grads: Sequence[Any]) -> list[Tensor]:
    return [
        b.zeros_like(t) if g is None else convert_to_tensor(g)
        for t, g in zip(op.outputs, grads, strict=True)
    ]


def _kept(inputs: Sequence[Tensor], found: Sequence[Tensor]) -> list[Any]:
    return [g if _flows(t) else None for t, g in zip(inputs, found, strict=True)]


@composed
def gradient_of_function_gradients(op: Operation, *grads: Any) -> list[Any]:
    derived = _with_gradients_of(op, op._attrs["f"])
    inputs = [*op.inputs, *_filled(op, grads)]
    types = [_gradient_type(t) for t in op.inputs]
    return _kept(op.inputs, b.symbolic_gradient(inputs, types, derived))


def _branch_gradient(build: Callable[..., Any], op: Operation, grads: Sequence[Any]) -> list[Any]:
    """Return the gradients of a choice: the same choice among the gradients of its functions."""
    first, *inputs = op.inputs
    types = [_gradient_type(t) for t in inputs]
    found = build(first, [*inputs, *_filled(op, grads)], types)
    return [None, *_kept(inputs, found)]


@composed
def gradient_of_if(op: Operation, *grads: Any) -> list[Any]:
    then, otherwise = (_with_gradients_of(op, op._attrs[k]) for k in ("then_branch", "else_branch"))
    build = b.if_op if op.definition.is_stateful else b.stateless_if_op
    return _branch_gradient(
        lambda cond, inputs, types: build(cond, inputs, types, then, otherwise), op, grads
    )


@composed
def gradient_of_case(op: Operation, *grads: Any) -> list[Any]:
    names = [_with_gradients_of(op, name) for name in op._attrs["branches"]]
    return _branch_gradient(
        lambda index, inputs, types: b.case_op(index, inputs, types, names), op, grads
    )


@composed
def gradient_of_while(op: Operation, *grads: Any) -> list[Any]:
    """Differentiate a functional loop by a loop of the same functions that saves values for the
    gradient.
    """
    cond, body = (function_named(op.graph, op._attrs[k].name) for k in ("cond", "body"))
    again = b.while_loop(
        lambda *values: _call(op.graph, cond, values)[0],
        lambda *values: _call(op.graph, body, values),
        op.inputs,
        shape_invariants=[TensorShape(None)] * len(op.inputs),
        return_same_structure=True,
    )
    return _through(op, op.inputs, again, grads)


@composed
def gradient_of_for(op: Operation, *grads: Any) -> list[Any]:
    start, limit, delta, *inputs = op.inputs
    body = function_named(op.graph, op._attrs["body"].name)
    _, *again = b.while_loop(
        lambda i, *values: b.less(i * b.sign(delta), limit * b.sign(delta)),
        lambda i, *values: [i + delta, *_call(op.graph, body, [i, *values])],
        [start, *inputs],
        shape_invariants=[start.shape, *([TensorShape(None)] * len(inputs))],
    )
    return [None, None, None, *_through(op, inputs, again, grads)]


def _through(
    op: Operation, inputs: Sequence[Tensor], outputs: Sequence[Tensor], grads: Sequence[Any]
) -> list[Any]:
    pairs = [(y, g) for y, g in zip(outputs, _filled(op, grads), strict=True) if _flows(y)]
    sources = [x for x in inputs if _flows(x)]
    found = gradients([y for y, _ in pairs], sources, [g for _, g in pairs])
    by_source = dict(zip(sources, found, strict=True))
    # A tensor that is passed twice has one gradient, for both uses: count it once.
    return [by_source.pop(x, None) for x in inputs]


def _call(graph: Graph, function: GraphFunction, args: Sequence[Tensor]) -> list[Tensor]:
    name = graph.operation_name(function.name)
    return graph.add_operation(function.definition, args, dict(function.attrs), name).outputs
