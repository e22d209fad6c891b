"""Graphs as protocol buffers. In: a Graph. Out: the GraphDef that TensorFlow 1.15 writes for the
same graph.

A node lists all attributes of its op's schema, defaults included, and any others set on it
(`_class`, ...). Its inputs are `x` or `x:1`, then `^x` for control inputs: sorted by name in a
GraphDef, in creation order in `Operation.node_def`, as in TensorFlow.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import TYPE_CHECKING, Any

from headrace._src.core import proto
from headrace._src.graph.attributes import set_proto
from headrace._src.graph.definition import Definition, definitions, lookup
from headrace._src.graph.operation import Operation
from headrace._src.graph.schema import MISSING, Argument, Attribute, Schema

if TYPE_CHECKING:
    from headrace._src.graph.graph import Graph

__all__ = ["KeptGraphDef", "graph_def", "node_def", "op_def", "op_list", "strip_default_attributes"]

_LARGEST_KEPT = 1 << 26  # bytes


def graph_def(
    graph: Graph,
    from_version: int = 0,
    add_shapes: bool = False,
    known: Container[tuple[str, str | None]] = (),
) -> proto.GraphDef:
    """Return the operations of `graph`, from number `from_version` on, as a GraphDef.

    `add_shapes` writes the outputs' static shapes to `_output_shapes`. `known`: functions to leave
    out, with the names of their gradient functions.
    """
    result = proto.GraphDef()
    with graph._lock:
        for op in graph._operations[from_version:]:
            node = result.node.add()
            _fill_node(node, op, sorted(c.name for c in op._control_inputs))
            if add_shapes and op._outputs:
                shapes = tuple(t._shape for t in op._outputs)
                set_proto(node.attr["_output_shapes"], "list(shape)", shapes)
        for function in graph._functions.values():
            if (function.name, function.gradient) in known:
                continue
            result.library.function.append(function.to_proto())
            if function.gradient is not None:
                result.library.gradient.add(
                    function_name=function.name, gradient_func=function.gradient
                )
        result.versions.CopyFrom(graph.graph_def_versions)
    return result


class KeptGraphDef:
    """A cached GraphDef of a graph with shapes, rebuilt only after the graph has changed.

    _made: the state of the graph when the GraphDef was made, and the GraphDef; None if there is
    none, or if it is too large to cache.
    """

    def __init__(self) -> None:
        self._made: tuple[tuple[Any, ...], proto.GraphDef] | None = None

    def of(self, graph: Graph) -> proto.GraphDef:
        """Return the current GraphDef of `graph`; the caller must not change it."""
        with graph._lock:
            state = _state(graph)
            made = self._made
            if made is not None and made[0] == state:
                return made[1]
            result = graph_def(graph, add_shapes=True)
        self._made = (state, result) if result.ByteSize() <= _LARGEST_KEPT else None
        return result


def _state(graph: Graph) -> tuple[Any, ...]:
    """Return the state that the GraphDef depends on; comparing it is quick, since most objects are
    identical.

    Shapes are listed because `set_shape` isn't one of the graph's mutations.
    """
    shapes = [t._shape for op in graph._operations for t in op._outputs]
    versions = graph.producer, graph.min_consumer, sorted(graph.bad_consumers)
    functions = [(f, f.gradient) for f in graph._functions.values()]
    return graph, graph.version, graph.mutations, versions, functions, shapes


def node_def(op: Operation) -> proto.NodeDef:
    """Return one operation as a NodeDef."""
    result = proto.NodeDef()
    _fill_node(result, op, [c.name for c in op._control_inputs])
    return result


def _fill_node(node: proto.NodeDef, op: Operation, controls: list[str]) -> None:
    node.name = op.name
    node.op = op.type
    node.device = op._device
    node.input.extend(t._as_node_def_input() for t in op._inputs)
    node.input.extend(f"^{name}" for name in controls)
    for name, value in op._attrs.items():
        set_proto(node.attr[name], op._kind(name), value)


def op_def(schema: Schema, definition: Definition) -> proto.OpDef:
    """Return an op's interface as an OpDef, without its documentation."""
    result = proto.OpDef(
        name=schema.op_type,
        is_stateful=definition.is_stateful,
        is_commutative=definition.commutative,
        allows_uninitialized_input=definition.accepts_uninitialized,
    )
    result.input_arg.extend(map(_argument_def, schema.inputs))
    result.output_arg.extend(map(_argument_def, schema.outputs))
    result.attr.extend(map(_attribute_def, schema.attributes.values()))
    return result


def _argument_def(argument: Argument) -> proto.OpDef.ArgDef:
    result = proto.OpDef.ArgDef(
        name=argument.name,
        type_attr=argument.type_attr,
        number_attr=argument.number_attr,
        type_list_attr=argument.type_list_attr,
        is_ref=argument.is_ref,
    )
    if argument.dtype is not None:
        result.type = argument.dtype.enum  # type: ignore[assignment]
    return result


def _attribute_def(attribute: Attribute) -> proto.OpDef.AttrDef:
    result = proto.OpDef.AttrDef(name=attribute.name, type=attribute.kind)
    if attribute.default is not MISSING:
        set_proto(result.default_value, attribute.kind, attribute.default)
    if attribute.minimum is not None:
        result.has_minimum = True
        result.minimum = attribute.minimum
    if attribute.allowed is not None:
        set_proto(result.allowed_values, f"list({attribute.element})", attribute.allowed)
    return result


def op_list(graph_def: proto.GraphDef) -> proto.OpList:
    """Return the OpDefs of the ops in `graph_def`, by name; NotFoundError if one is unknown."""
    own = {f.signature.name for f in graph_def.library.function}
    used = sorted({node.op for node in _all_nodes(graph_def)} - own)
    return proto.OpList(op=[op_def(d.schema, d) for d in map(lookup, used)])


def strip_default_attributes(graph_def: proto.GraphDef) -> None:
    """Remove attributes with default values, so that readers that don't know them accept the
    graph.
    """
    known = definitions()
    for node in _all_nodes(graph_def):
        definition = known.get(node.op)
        for attribute in definition.schema.attributes.values() if definition else ():
            if attribute.name in node.attr and attribute.default is not MISSING:
                default = _attribute_def(attribute).default_value
                if node.attr[attribute.name] == default:
                    del node.attr[attribute.name]


def _all_nodes(graph_def: proto.GraphDef) -> Iterable[proto.NodeDef]:
    yield from graph_def.node
    for function in graph_def.library.function:
        yield from function.node_def
