"""FunctionDefs. In: a Function. Out: the FunctionDef that TensorFlow 1.15 reads, and back.

In a FunctionDef an input is the name of an argument, or `node:output:index` where `output` is the
name that the op's schema gives to it. Names of results, arguments and nodes are unique together.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from headrace._src.core import proto
from headrace._src.core.dtypes import as_dtype
from headrace._src.graph.attributes import guess_kind, set_proto
from headrace._src.graph.graph import Graph
from headrace._src.graph.graph_functions import FunctionGraph, GraphFunction
from headrace._src.graph.import_graph import InputMap, NodeOutput, import_nodes, read_attributes
from headrace._src.graph.operation import Operation, Tensor

__all__ = ["build_body", "function_def"]


def function_def(
    function: GraphFunction, output_names: Sequence[str] | None = None
) -> proto.FunctionDef:
    """Write a function."""
    result = proto.FunctionDef()
    names = _Names()
    outputs = [
        names.fresh(given or _normal(t.op.name))
        for t, given in zip(
            function.outputs, output_names or [""] * len(function.outputs), strict=True
        )
    ]
    inputs = {t: names.fresh(_normal(t.op.name)) for t in function.inputs}
    nodes = {op: names.fresh(op.name) for op in function.operations}
    signature = result.signature
    signature.name = function.name
    signature.description = function.doc
    signature.is_stateful = any(op.definition.is_stateful for op in function.operations)
    for t, name in inputs.items():
        signature.input_arg.add(name=name, type=t.dtype.base_dtype.enum)  # type: ignore[arg-type]
    for t, name in zip(function.outputs, outputs, strict=True):
        signature.output_arg.add(name=name, type=t.dtype.base_dtype.enum)  # type: ignore[arg-type]
        result.ret[name] = _reference(t, inputs, nodes)
    for op, name in nodes.items():
        node = result.node_def.add(name=name, op=op.type, device=op._device)
        node.input.extend(_reference(t, inputs, nodes) for t in op._inputs)
        node.input.extend(f"^{nodes[c]}" for c in op._control_inputs if c in nodes)
        for key, value in op._attrs.items():
            set_proto(node.attr[key], op._kind(key), value)
    for key, value in function.attrs.items():
        set_proto(result.attr[key], guess_kind(value), value)
    return result


class _Names:
    """Makes names unique."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def fresh(self, name: str) -> str:
        unique, number = name, 0
        while unique in self._taken:
            unique = f"{name}_{number}"
            number += 1
        self._taken.add(unique)
        return unique


def _normal(name: str) -> str:
    """Convert a name to an argument's name: lower-case letters, digits and underscores."""
    plain = re.sub(r"[^a-z0-9]+", "_", name.lower())
    return plain if plain[:1].isalpha() else f"arg_{plain}"


def _reference(t: Tensor, inputs: dict[Tensor, str], nodes: dict[Operation, str]) -> str:
    if t in inputs:
        return inputs[t]
    schema = t.op.definition.schema
    position = t.value_index
    for argument in schema.outputs:
        count = schema.count(argument, t.op._attrs)
        if position < count:
            return f"{nodes[t.op]}:{argument.name}:{position}"
        position -= count
    raise AssertionError(f"{t.name} is not an output of {schema}")


# -- Reading ---------------------------------------------------------------------------------------


def build_body(
    message: proto.FunctionDef, library: Graph
) -> tuple[Graph, list[Tensor], list[Tensor]]:
    """Make the graph of a FunctionDef, its arguments and its results; a ValueError names faults."""
    graph = FunctionGraph(None)
    graph._functions = library._functions
    graph.label = message.signature.name
    arguments = {
        a.name: graph.argument(as_dtype(a.type), a.name) for a in message.signature.input_arg
    }
    try:
        ports = _Ports(message, graph, set(arguments))
        nodes = proto.GraphDef(versions=library.graph_def_versions)
        for node in message.node_def:
            copy = nodes.node.add()
            copy.CopyFrom(node)
            del copy.input[:]
            copy.input.extend(map(ports.translated, node.input))
        used = {name for node in nodes.node for name in node.input}
        mapped = {NodeOutput(name, 0): t for name, t in arguments.items() if name in used}
        made = import_nodes(graph, nodes, "", InputMap(mapped), {})
        outputs: list[Tensor] = []
        for a in message.signature.output_arg:
            if a.name not in message.ret:
                raise ValueError(f"nothing is returned as '{a.name}'")
            name = ports.translated(message.ret[a.name])
            found = arguments[name] if name in arguments else made.element(_full(name))
            assert isinstance(found, Tensor)
            outputs.append(found)
    except (ValueError, TypeError) as error:
        raise ValueError(f"function '{message.signature.name}': {error}") from error
    return graph, list(arguments.values()), outputs


def _full(name: str) -> str:
    return name if ":" in name else f"{name}:0"


class _Ports:
    """Resolves the output names of a FunctionDef to numbers."""

    def __init__(self, message: proto.FunctionDef, graph: Graph, arguments: set[str]) -> None:
        self._arguments = arguments
        self._first: dict[tuple[str, str], int] = {}
        for node in message.node_def:
            schema = graph.definition_of(node.op).schema
            attrs = read_attributes(node, graph.definition_of(node.op), None)
            position = 0
            for argument in schema.outputs:
                self._first[node.name, argument.name] = position
                position += schema.count(argument, attrs)

    def translated(self, name: str) -> str:
        """Return an input in GraphDef notation."""
        if name.startswith("^") or name in self._arguments:
            return name
        node, _, rest = name.partition(":")
        output, _, index = rest.partition(":")
        if node in self._arguments and not output:
            return node
        if (node, output) not in self._first or not (index or "0").isdigit():
            raise ValueError(f"input '{name}' is neither an argument nor an output of a node")
        return f"{node}:{self._first[node, output] + int(index or 0)}"
