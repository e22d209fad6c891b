"""Defining ops. In: a schema, a shape rule, a kernel, a gradient, samples. Out: a registered
Definition and its builder.
A builder is the Python function that adds one operation to a graph: `multiply(x, y, name="m")`.
All of them call `apply`, which converts the inputs, resolves the types, completes the attributes
and adds the node. `b` gives access by name to every builder and every composed function of the
family files, for gradients, which need ops of other families.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any, Concatenate, TypeVar

from headrace._src.core.dtypes import DType
from headrace._src.core.errors import ShapeError
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.graph.attributes import as_attribute, check_limits, expected
from headrace._src.graph.control_roles import Flow
from headrace._src.graph.default import get_default_graph
from headrace._src.graph.definition import (
    Definition,
    Effect,
    Kind,
    LoweringRule,
    OpKernel,
    Precision,
    RowPart,
    Sample,
    lookup,
    register,
)
from headrace._src.graph.graph import Graph
from headrace._src.graph.operation import Operation, Tensor, made_at
from headrace._src.graph.schema import MISSING, Argument, Attribute, Schema
from headrace._src.ops.base.builder import OpBuilder
from headrace._src.ops.base.dispatch import redirect
from headrace._src.ops.base.to_tensor import convert_to_tensor, graph_of

__all__ = ["apply", "b", "build", "builder_of", "composed", "define", "definition_of"]


Gradient = Callable[Concatenate[OpBuilder, Operation, ...], Any]
Composed = TypeVar("Composed", bound=Callable[..., Any])


# The only link between op families; direct imports would be circular.
b = OpBuilder()


def composed(function: Composed) -> Composed:
    """Make a function that builds several ops available as `b.<its name>`.

    A trailing underscore, which avoids shadowing a Python builtin (`range_`), is dropped.
    """
    described: Any = function
    name = described.__name__.rstrip("_")
    if name in vars(b):
        raise ValueError(f"two functions are called {name}")
    setattr(b, name, function)
    return function


def define(
    op_type: str,
    signature: str,
    attributes: str = "",
    *,
    infer: Callable[..., Any],
    kernel: Callable[..., Any],
    gradient: Gradient | object = MISSING,
    effect: Effect = Effect.PURE,
    kind: Kind = Kind.OTHER,
    samples: Sequence[Sample] | Callable[[], Sequence[Sample]] = (),
    fold: Callable[..., Any] | None = None,
    as_shape: Callable[..., Any] | None = None,
    static: Callable[..., Any] | None = None,
    kernels: Mapping[str, Sequence[OpKernel]] | None = None,
    lower: LoweringRule | None = None,
    simplify: Callable[..., Any] | None = None,
    reshapes: Callable[..., bool] | None = None,
    flow: Flow | None = None,
    calls: Callable[..., Any] | None = None,
    commutative: bool = False,
    accepts_uninitialized: bool = False,
    asks: bool = False,
    waits: bool = False,
    calls_python: bool = False,
    shares: bool = False,
    fresh: bool | None = None,
    precision: Precision | None = None,
    rows: RowPart | None = None,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Define an op by decorating its builder's signature.

    The decorated function has a docstring and no body: its parameters are the schema's inputs and
    attributes in the order in which users pass them, with users' defaults, and `name` last.
    """
    schema = Schema(op_type, signature, attributes)

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        definition = Definition(
            schema=schema,
            infer=infer,
            kernel=kernel,
            gradient=gradient,
            effect=effect,
            kind=kind,
            samples=samples,
            fold=fold,
            as_shape=as_shape,
            static=static,
            kernels={device: tuple(found) for device, found in (kernels or {}).items()},
            lower=lower,
            simplify=simplify,
            reshapes=reshapes,
            flow=flow,
            calls=calls,
            commutative=commutative,
            accepts_uninitialized=accepts_uninitialized,
            asks=asks,
            waits=waits,
            calls_python=calls_python,
            shares=shares,
            fresh=fresh,
            precision=precision,
            rows=rows,
            doc=function.__doc__ or "",
            home=function.__module__,
        )
        register(definition)
        return composed(builder_of(definition, function))

    return decorate


def builder_of(definition: Definition, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function that adds an operation of this definition, called as `function` would be."""
    code = function.__code__
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    defaults = function.__defaults__ or ()
    optional = dict(zip(names[code.co_argcount - len(defaults) :], defaults, strict=False))
    optional.update(function.__kwdefaults__ or {})
    positional = names[: code.co_argcount]

    @wraps(function)
    def build_op(*args: Any, **kwargs: Any) -> Any:
        if len(args) > len(positional):
            raise TypeError(
                f"{function.__name__}() takes {len(positional)} arguments but {len(args)} were "
                "given"
            )
        values = dict(zip(positional, args, strict=False))
        for key, value in kwargs.items():
            if key not in names:
                raise TypeError(f"{function.__name__}() got an unexpected argument '{key}'")
            if key in values:
                raise TypeError(f"{function.__name__}() got multiple values for argument '{key}'")
            values[key] = value
        for key in names:
            if key not in values:
                if key not in optional:
                    raise TypeError(f"{function.__name__}() missing required argument: '{key}'")
                values[key] = optional[key]
        name = values.pop("name", None)
        try:
            return apply(definition, values, name)
        except ShapeError as error:
            failed = error.with_traceback(None)  # the frames below are ours; the message suffices
        except (TypeError, ValueError) as error:
            failed = error
        result = redirect(function.__name__, args, kwargs)
        if result is NotImplemented:
            raise failed
        return result

    build_op.definition = definition  # type: ignore[attr-defined]  # for the op reference
    return build_op


def definition_of(builder: Callable[..., Any]) -> Definition:
    """The op that a builder, such as `b.identity`, adds."""
    return builder.definition  # type: ignore[attr-defined]


def build(op_type: str, *, name: str | None = None, **values: Any) -> Any:
    """Add an operation of any registered type; inputs and attributes by their schema names."""
    return apply(lookup(op_type), values, name)


def apply(definition: Definition, values: dict[str, Any], name: str | None = None) -> Any:
    """Add one operation: `values` holds its inputs and attributes by name; None selects an
    attribute's default.
    """
    schema = definition.schema
    inputs = [values[a.name] for a in schema.inputs]
    graph = graph_of(inputs)
    if graph is None:
        graph = get_default_graph()
    elif graph is not get_default_graph():
        with graph.as_default():
            return _apply_in(graph, definition, inputs, values, name)
    return _apply_in(graph, definition, inputs, values, name)


def _apply_in(
    graph: Graph,
    definition: Definition,
    inputs: list[Any],
    values: dict[str, Any],
    name: str | None,
) -> Any:
    schema = definition.schema
    attrs = _given_attributes(schema, values)
    scope = graph.scope
    outer = scope.name
    full_name = graph.operation_name(schema.op_type if name is None else name)
    scope.name = full_name  # for the op's constants, and for nodes that a context adds
    try:
        flat: list[Tensor] = []
        for argument, value in zip(schema.inputs, inputs, strict=True):
            if argument.is_list:
                flat += _convert_list(schema, argument, value, attrs)
            else:
                flat.append(_convert_one(schema, argument, value, attrs))
        _complete(schema, attrs, flat)
        if schema.has_ref_inputs:
            with _beside_references(graph, schema, flat):
                return results(graph.add_operation(definition, flat, attrs, full_name))
        return results(graph.add_operation(definition, flat, attrs, full_name))
    finally:
        scope.name = outer


def _complete(schema: Schema, attrs: dict[str, Any], flat: list[Tensor]) -> None:
    """Fill in the defaults of missing attributes; check those that the inputs determined."""
    for attribute in schema.attributes.values():
        if attribute.name not in attrs:
            if attribute.default is MISSING:
                raise TypeError(
                    f"Expected {expected(attribute)} for argument '{attribute.name}' not None. "
                    f"(op: '{schema.op_type}')"
                )
            attrs[attribute.name] = attribute.default
        elif attribute.name in schema.inferred:
            _check_inferred(schema, attribute, attrs[attribute.name], flat)


@contextmanager
def _beside_references(graph: Graph, schema: Schema, flat: list[Tensor]) -> Iterator[None]:
    """Colocate an operation with the variables that it gets references to; as in TensorFlow, only
    with the first of a list.
    """
    with ExitStack() as scopes:
        for argument, tensor in zip(schema.inputs, flat, strict=False):
            if argument.is_ref:
                scopes.enter_context(graph.colocate_with(tensor.op))
        yield


def _check_inferred(schema: Schema, attribute: Attribute, value: Any, flat: list[Tensor]) -> None:
    """Check an attribute against the inputs; an error names the input and its line."""
    try:
        check_limits(attribute, value, schema.op_type, schema.inferred[attribute.name])
    except TypeError as error:
        made = made_at(*(t.op for t in flat if t.dtype.base_dtype is value))
        raise TypeError(f"{error}{made}") from None


def _given_attributes(schema: Schema, values: dict[str, Any]) -> dict[str, Any]:
    attrs = {}
    for name, attribute in schema.attributes.items():
        value = values.get(name)
        if value is None and attribute.kind == "shape" and name in values:
            value = None if attribute.default is not MISSING else TensorShape(None)
        if value is not None:
            attrs[name] = as_attribute(attribute, value, schema.op_type)
    return attrs


def _convert_one(schema: Schema, argument: Argument, value: Any, attrs: dict[str, Any]) -> Tensor:
    wanted = argument.dtype or attrs.get(argument.type_attr)
    preferred = None
    if wanted is None:
        default = schema.attributes[argument.type_attr].default
        preferred = None if default is MISSING else default
    tensor = _convert(schema, argument, argument.name, value, wanted, preferred)
    if argument.type_attr:
        attrs.setdefault(argument.type_attr, tensor.dtype.base_dtype)
    return tensor


def _convert_list(
    schema: Schema, argument: Argument, values: Any, attrs: dict[str, Any]
) -> list[Tensor]:
    if not isinstance(values, list | tuple):
        raise TypeError(
            f"Expected list for '{argument.name}' argument to '{schema.op_type}' Op, not {values}."
        )
    if argument.number_attr:
        count = attrs.setdefault(argument.number_attr, len(values))
        if count != len(values):
            raise ValueError(
                f"List argument '{argument.name}' to '{schema.op_type}' Op with length "
                f"{len(values)} must match length {count} of '{argument.number_attr}'."
            )
        wanted = argument.dtype or attrs.get(argument.type_attr)
        if wanted is None:
            wanted = next((v.dtype.base_dtype for v in values if isinstance(v, Tensor)), None)
        types = [wanted] * len(values)
    else:
        types = list(attrs.get(argument.type_list_attr, [None] * len(values)))
        if len(types) != len(values):
            raise ValueError(
                f"List argument '{argument.name}' to '{schema.op_type}' Op has {len(values)} "
                f"tensors, but '{argument.type_list_attr}' lists {len(types)} types."
            )
    tensors: list[Tensor] = []
    for i, (value, wanted) in enumerate(zip(values, types, strict=True)):
        try:
            tensors.append(_convert(schema, argument, f"{argument.name}_{i}", value, wanted, None))
        except (TypeError, ValueError) as error:
            if isinstance(error, ShapeError) or not argument.number_attr or len(values) < 2:
                raise
            raise _list_mismatch(schema, argument, values) from None
    found = [t.dtype.base_dtype for t in tensors]
    if argument.number_attr and len(set(found)) > 1:
        raise _list_mismatch(schema, argument, tensors)
    if argument.type_attr and found:
        attrs.setdefault(argument.type_attr, found[0])
    if argument.type_list_attr:
        attrs.setdefault(argument.type_list_attr, tuple(found))
    return tensors


def _convert(
    schema: Schema,
    argument: Argument,
    name: str,
    value: Any,
    wanted: DType | None,
    preferred: DType | None,
) -> Tensor:
    if isinstance(value, Tensor) and not argument.is_ref:
        tensor = value
    else:
        try:
            tensor = convert_to_tensor(
                value, wanted, name, preferred_dtype=preferred, as_ref=argument.is_ref
            )
        except TypeError as error:
            if wanted is None:
                raise
            if hasattr(value, "dtype") and value.dtype != wanted:
                raise _type_mismatch(schema, argument, value, wanted) from error
            raise TypeError(
                f"Expected {wanted.name} passed to parameter '{argument.name}' of op "
                f"'{schema.op_type}', got {value!r} of type '{type(value).__name__}' instead. "
                f"Error: {error}"
            ) from None
        except ValueError as error:
            if isinstance(error, ShapeError) or hasattr(value, "graph"):
                raise
            raise ValueError(
                f"Tried to convert '{name}' to a tensor and failed. Error: {error}"
            ) from None
    if wanted is not None and tensor.dtype.base_dtype is not wanted.base_dtype:
        raise _type_mismatch(schema, argument, tensor, wanted)
    if argument.is_ref and not tensor.dtype._is_ref_dtype:
        raise TypeError(
            f"'{schema.op_type}' Op requires that input '{argument.name}' be a mutable tensor "
            "(e.g.: a tf.Variable)"
        )
    return tensor


def _list_mismatch(schema: Schema, argument: Argument, values: Sequence[Any]) -> TypeError:
    """Return the error for a list whose elements have no common type; it shows the type of each."""
    names = []
    for value in values:
        try:
            names.append(convert_to_tensor(value, as_ref=argument.is_ref).dtype.base_dtype.name)
        except (TypeError, ValueError):
            names.append("<NOT CONVERTIBLE TO TENSOR>")
    listed = f"'{argument.name}' of '{schema.op_type}' Op have types [{', '.join(names)}]"
    made = made_at(*(v.op for v in values if isinstance(v, Tensor)))
    if argument.dtype is not None:
        fault = f"do not match expected type {argument.dtype.name}"
    else:
        fault = "don't all match"
    return TypeError(f"Tensors in list passed to {listed} that {fault}.{made}")


def _type_mismatch(schema: Schema, argument: Argument, value: Any, wanted: DType) -> TypeError:
    first = next(
        (
            a.name
            for a in schema.inputs
            if a.type_attr == argument.type_attr and a.type_attr and a.name != argument.name
        ),
        None,
    )
    found = getattr(value.dtype, "base_dtype", value.dtype)
    found = getattr(found, "name", found)
    other = (
        f"type {wanted.name} of argument '{first}'" if first else f"expected type of {wanted.name}"
    )
    made = made_at(value.op) if isinstance(value, Tensor) else ""
    return TypeError(
        f"Input '{argument.name}' of '{schema.op_type}' Op has type {found} that does not match "
        f"{other}. No type is converted silently: use tf.cast.{made}"
    )


def results(op: Operation) -> Any:
    """Return a builder's result: the operation, its tensor, its list of tensors, or a named tuple
    of these.
    """
    outputs = op.definition.schema.outputs
    if not outputs:
        return op
    if len(outputs) == 1:
        return list(op._outputs) if outputs[0].is_list else op._outputs[0]
    schema = op.definition.schema
    grouped = []
    position = 0
    for argument in outputs:
        count = schema.count(argument, op._attrs)
        tensors = op._outputs[position : position + count]
        grouped.append(tensors if argument.is_list else tensors[0])
        position += count
    return schema.results(*grouped)
