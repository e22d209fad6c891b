"""Import a GraphDef into a graph. In: a GraphDef, a name prefix, tensors in place of some of its
inputs. Out: operations.

There are two phases. First every node is read and checked against its op's definition, its inputs
are resolved to outputs of other nodes or to mapped tensors, and the nodes are sorted topologically
(the file may have any order). Then the operations are made; the back edges of loops, from
NextIteration to Merge, come last. A failure in either phase leaves the graph unchanged
(`all_or_nothing`).

Errors are ValueErrors that name the node; an undefined op raises NotFoundError.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace._src.core import proto
from headrace._src.core.dtypes import DType
from headrace._src.core.errors import NotFoundError
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.core.versions_and_text import (
    GRAPH_DEF_VERSION,
    GRAPH_DEF_VERSION_MIN_PRODUCER,
    VERSION,
)
from headrace._src.graph.attributes import as_attribute, from_proto
from headrace._src.graph.control_roles import Flow
from headrace._src.graph.definition import Definition
from headrace._src.graph.graph import Graph
from headrace._src.graph.graph_functions import GraphFunction, add_function
from headrace._src.graph.operation import Operation, Tensor
from headrace._src.graph.schema import MISSING

if TYPE_CHECKING:
    from headrace._src.core.proto import GraphDef

__all__ = [
    "Imported",
    "InputMap",
    "add_functions",
    "all_or_nothing",
    "extend_graph",
    "import_nodes",
    "parse_tensor_name",
    "read_attributes",
]

_NODE_NAME = re.compile(r"[A-Za-z0-9.][A-Za-z0-9_.\-/]*")
_COLOCATION = "loc:@"


class NodeOutput(NamedTuple):
    """Output `index` of the node called `node` in the file."""

    node: str
    index: int

    def __str__(self) -> str:
        return f"{self.node}:{self.index}"


@dataclass(frozen=True)
class InputMap:
    """The replacements of outputs and control inputs of the file's nodes."""

    tensors: Mapping[NodeOutput, Tensor] = field(default_factory=dict)
    controls: Mapping[str, Operation] = field(default_factory=dict)


@dataclass(frozen=True)
class _Node:
    """A NodeDef, parsed and checked by itself."""

    position: int
    name: str
    definition: Definition
    attrs: dict[str, Any]
    inputs: list[NodeOutput]
    controls: list[str]
    device: str
    shapes: tuple[TensorShape, ...] | None
    input_types: list[DType]
    output_types: list[DType]


@dataclass(frozen=True)
class Imported:
    """The operations of an import, by their names in the file."""

    operations: dict[str, Operation]
    mapped: InputMap

    def element(self, name: str) -> Operation | Tensor:
        """Return the operation `x` or the tensor `x:1` of the file, or the tensor that it was
        mapped to.
        """
        if ":" not in name:
            if name not in self.operations:
                raise ValueError(f"Requested return node '{name}' not found in graph def")
            return self.operations[name]
        port = parse_tensor_name(name)
        if port in self.mapped.tensors:
            return self.mapped.tensors[port]
        op = self.operations.get(port.node)
        if op is None:
            raise ValueError(f"Requested return tensor '{name}' not found in graph def")
        if port.index >= len(op._outputs):
            raise ValueError(
                f"Invalid return output {port.index} of node '{port.node}', "
                f"which has {len(op._outputs)} output(s)"
            )
        return op._outputs[port.index]


def parse_tensor_name(name: str) -> NodeOutput:
    """Read `x` or `x:1`; ValueError if it is neither."""
    node, colon, index = name.partition(":")
    if colon and not (index.isascii() and index.isdigit()):
        raise ValueError(f"'{name}' is not the name of a tensor: <node> or <node>:<output index>")
    return NodeOutput(node, int(index) if colon else 0)


@contextmanager
def all_or_nothing(graph: Graph) -> Iterator[None]:
    """If the block raises, undo its additions to `graph`; other threads wait meanwhile."""
    with graph._lock:
        version = len(graph._operations)
        names = dict(graph._names_in_use)
        functions = dict(graph._functions)
        collections = {key: list(items) for key, items in graph._collections.items()}
        versions = graph.producer, graph.min_consumer, graph.bad_consumers
        try:
            yield
        except BaseException:
            _remove_from(graph, version)
            graph._names_in_use = names
            graph._functions = functions
            for key in list(graph._collections):
                if key in collections:
                    graph._collections[key][:] = collections[key]
                else:
                    del graph._collections[key]
            graph.producer, graph.min_consumer, graph.bad_consumers = versions
            raise


def _remove_from(graph: Graph, version: int) -> None:
    added = graph._operations[version:]
    for op in added:
        for t in op._inputs:
            t._consumers.remove(op)
        del graph._by_name[op.name]
    del graph._operations[version:]
    for entry in graph.scope.controls:
        entry.seen.difference_update(added)


def import_nodes(
    graph: Graph,
    graph_def: GraphDef,
    prefix: str,
    input_map: InputMap,
    producer_ops: Mapping[str, proto.OpDef],
) -> Imported:
    """Add the nodes of `graph_def` under `prefix/`; to be called within `all_or_nothing`."""
    _check_versions(graph_def.versions)
    add_functions(graph, graph_def.library)
    nodes = _read_nodes(graph, graph_def, producer_ops)
    _check_input_map(input_map, nodes)
    order = _sorted(nodes, input_map)
    for node in order:
        _check_inputs(node, nodes, input_map)
    _merge_versions(graph, graph_def.versions)
    names = _new_names(graph, nodes, prefix)
    made: dict[str, Operation] = {}
    for node in order:
        made[node.name] = _make(graph, node, names, made, input_map)
    for node in order:
        for i, port in _back_edges(node, nodes, input_map):
            made[node.name]._update_input(i, made[port.node]._outputs[port.index])
    _place(graph, [(made[node.name], node.device) for node in order])
    return Imported(made, input_map)


def extend_graph(graph: Graph, graph_def: GraphDef) -> None:
    """Add nodes that keep their names and may refer to operations of the graph: what another
    process has added to its copy of the graph. All of them, or none if one is wrong.
    """
    with all_or_nothing(graph):
        _check_versions(graph_def.versions)
        add_functions(graph, graph_def.library)
        nodes = _read_nodes(graph, graph_def, {}, graph._by_name)
        known = _known_inputs(graph, nodes)
        order = _sorted(nodes, known)
        for node in order:
            _check_inputs(node, nodes, known)
        _merge_versions(graph, graph_def.versions)
        names = {name: name for name in (*graph._by_name, *nodes)}
        made: dict[str, Operation] = {}
        for node in order:
            if node.name in graph._by_name:
                raise ValueError(f"Node '{node.name}' is in the graph already")
            made[node.name] = _make(graph, node, names, made, known)
        for node in order:
            for i, port in _back_edges(node, nodes, known):
                made[node.name]._update_input(i, made[port.node]._outputs[port.index])
        for node in order:
            made[node.name]._device = node.device


def _known_inputs(graph: Graph, nodes: Mapping[str, _Node]) -> InputMap:
    """Return the inputs and control inputs of nodes that are in the graph already."""
    tensors: dict[NodeOutput, Tensor] = {}
    controls: dict[str, Operation] = {}
    for node in nodes.values():
        for port in node.inputs:
            source = graph._by_name.get(port.node)
            if port.node not in nodes and source is not None:
                if port.index >= len(source._outputs):
                    raise ValueError(
                        f"Node '{node.name}': {source.name} has no output {port.index}"
                    )
                tensors[port] = source._outputs[port.index]
        for name in node.controls:
            if name not in nodes and name in graph._by_name:
                controls[name] = graph._by_name[name]
    return InputMap(tensors, controls)


# -- Reading ---------------------------------------------------------------------------------------


def _check_versions(versions: proto.VersionDef) -> None:
    if versions.producer < GRAPH_DEF_VERSION_MIN_PRODUCER:
        raise ValueError(
            f"GraphDef producer version {versions.producer} below min producer "
            f"{GRAPH_DEF_VERSION_MIN_PRODUCER} supported by TensorFlow {VERSION}.  Please "
            "regenerate your graph."
        )
    if versions.min_consumer > GRAPH_DEF_VERSION:
        raise ValueError(
            f"GraphDef min consumer version {versions.min_consumer} above current version "
            f"{GRAPH_DEF_VERSION} for TensorFlow {VERSION}: it was written for a newer reader than "
            "this one."
        )
    if GRAPH_DEF_VERSION in versions.bad_consumers:
        raise ValueError(
            f"GraphDef disallows consumer version {GRAPH_DEF_VERSION}, which is this one."
        )


def _read_nodes(
    graph: Graph,
    graph_def: GraphDef,
    producer_ops: Mapping[str, proto.OpDef],
    known: Container[str] = (),
) -> dict[str, _Node]:
    """Parse the nodes; `known`: further names that they may be colocated with."""
    nodes: dict[str, _Node] = {}
    for position, node_def in enumerate(graph_def.node):
        name = node_def.name
        if not _NODE_NAME.fullmatch(name):
            raise ValueError(f"Node '{name}': Node name contains invalid characters")
        if name in nodes:
            raise ValueError(f"Node '{name}' is not unique")
        nodes[name] = _read_node(graph, position, node_def, producer_ops.get(node_def.op))
    for node in nodes.values():
        for group in _colocation(node):
            if group not in nodes and group not in known:
                raise ValueError(
                    f"Node '{node.name}' expects to be colocated with unknown node '{group}'"
                )
    return nodes


def _read_node(
    graph: Graph, position: int, node_def: proto.NodeDef, producer: proto.OpDef | None
) -> _Node:
    name = node_def.name
    try:
        definition = graph.definition_of(node_def.op)
    except NotFoundError as error:
        raise NotFoundError(node_def, None, f"Node '{name}': {error.message}") from None
    try:
        attrs = read_attributes(node_def, definition, producer)
        inputs, controls = _read_inputs(node_def.input)
        shapes = attrs.pop("_output_shapes", None)
        node = _Node(
            position,
            name,
            definition,
            attrs,
            inputs,
            controls,
            node_def.device,
            shapes,
            definition.schema.input_types(attrs),
            definition.schema.output_types(attrs),
        )
        _check_listed(node)
    except (TypeError, ValueError, OverflowError, MemoryError) as error:
        raise ValueError(f"Node '{name}' (op: '{node_def.op}'): {error}") from error
    return node


def read_attributes(
    node_def: proto.NodeDef, definition: Definition, producer: proto.OpDef | None
) -> dict[str, Any]:
    """Return all attributes as canonical values; missing ones get their default."""
    schema = definition.schema
    attrs: dict[str, Any] = {}
    for key in sorted(node_def.attr):
        value = node_def.attr[key]
        known = schema.attributes.get(key)
        try:
            if known is not None:
                plain = from_proto(value, known.kind)
                attrs[key] = as_attribute(known, plain, schema.op_type, from_file=True)
            elif key.startswith("_"):
                attrs[key] = from_proto(value)
            elif not _is_new_default(key, value, producer):
                raise ValueError(f"NodeDef mentions attr '{key}' not in {schema}")
        except TypeError as error:
            raise TypeError(f"attr '{key}': {error}") from error
    for attribute in schema.attributes.values():
        if attribute.name not in attrs:
            if attribute.default is MISSING:
                raise ValueError(f"NodeDef missing attr '{attribute.name}' from {schema}")
            attrs[attribute.name] = attribute.default
    return attrs


def _is_new_default(key: str, value: proto.AttrValue, producer: proto.OpDef | None) -> bool:
    """Return whether this is the default of an attribute that only the producer's op has."""
    for attribute in producer.attr if producer is not None else ():
        if attribute.name == key:
            return attribute.HasField("default_value") and attribute.default_value == value
    return False


def _read_inputs(names: Iterable[str]) -> tuple[list[NodeOutput], list[str]]:
    inputs: list[NodeOutput] = []
    controls: list[str] = []
    for name in names:
        if name.startswith("^"):
            if name[1:] not in controls:
                controls.append(name[1:])
        elif controls:
            raise ValueError("Control dependencies must come after regular dependencies")
        else:
            inputs.append(parse_tensor_name(name))
    return inputs, controls


def _check_listed(node: _Node) -> None:
    """Check a node's own data: the number of its inputs, its shapes, its colocation."""
    if len(node.inputs) != len(node.input_types):
        wanted = ", ".join(t.name for t in node.input_types)
        raise ValueError(
            f"NodeDef expected inputs '{wanted}' do not match {len(node.inputs)} inputs specified"
        )
    if node.shapes is not None:
        if not isinstance(node.shapes, tuple) or not all(
            isinstance(s, TensorShape) for s in node.shapes
        ):
            raise ValueError("attr '_output_shapes' must be a list of shapes")
        if len(node.shapes) < len(node.output_types):
            raise ValueError(
                f"it has {len(node.output_types)} outputs but the _output_shapes attribute "
                f"specifies shapes for {len(node.shapes)} outputs"
            )
    groups = node.attrs.get("_class", ())
    if not isinstance(groups, tuple) or not all(isinstance(g, str) for g in groups):
        raise ValueError("attr '_class' must be a list of strings")


def _colocation(node: _Node) -> list[str]:
    groups = node.attrs.get("_class", ())
    return [g[len(_COLOCATION) :] for g in groups if g.startswith(_COLOCATION)]


# -- Linking ---------------------------------------------------------------------------------------


def _check_input_map(input_map: InputMap, nodes: Mapping[str, _Node]) -> None:
    """Check that every key exists, or is used as an input (as the unbound inputs of a scope
    are).
    """
    used = {port for node in nodes.values() for port in node.inputs}
    used_controls = {name for node in nodes.values() for name in node.controls}
    missing = [
        str(port)
        for port in input_map.tensors
        if port not in used
        and (port.node not in nodes or port.index >= len(nodes[port.node].output_types))
    ]
    missing += [
        f"^{name}" for name in input_map.controls if name not in nodes and name not in used_controls
    ]
    if missing:
        raise ValueError(
            f"Attempted to map inputs that were not found in graph_def: [{', '.join(missing)}]"
        )


def _back_edges(
    node: _Node, nodes: Mapping[str, _Node], input_map: InputMap
) -> list[tuple[int, NodeOutput]]:
    """Return the inputs of a Merge from the previous iteration, if it also has initial inputs."""
    if node.definition.flow is not Flow.MERGE:
        return []
    back = [
        (i, port)
        for i, port in enumerate(node.inputs)
        if port not in input_map.tensors
        and port.node in nodes
        and nodes[port.node].definition.flow is Flow.NEXT
    ]
    return back if len(back) < len(node.inputs) else []


def _needs(node: _Node, nodes: Mapping[str, _Node], input_map: InputMap) -> set[str]:
    """The names of the nodes that must be made before `node`."""
    later = {port for _, port in _back_edges(node, nodes, input_map)}
    needs = {p.node for p in node.inputs if p not in input_map.tensors and p not in later}
    return needs | {name for name in node.controls if name not in input_map.controls}


def _sorted(nodes: Mapping[str, _Node], input_map: InputMap) -> list[_Node]:
    """Sort the nodes topologically, otherwise in the file's order."""
    waiting: dict[str, set[str]] = {}
    consumers: dict[str, list[_Node]] = {name: [] for name in nodes}
    for node in nodes.values():
        waiting[node.name] = needs = _needs(node, nodes, input_map)
        for name in needs:
            if name not in nodes:
                control = "^" if name in node.controls else ""
                raise ValueError(f"Node '{node.name}': Unknown input node '{control}{name}'")
            consumers[name].append(node)
    by_position = list(nodes.values())
    ready = [node.position for node in by_position if not waiting[node.name]]
    order: list[_Node] = []
    while ready:
        node = by_position[heapq.heappop(ready)]
        order.append(node)
        for consumer in consumers[node.name]:
            waiting[consumer.name].discard(node.name)
            if not waiting[consumer.name]:
                heapq.heappush(ready, consumer.position)
    if len(order) < len(nodes):
        raise ValueError(_describe_cycle({k: v for k, v in waiting.items() if v}))
    return order


def _describe_cycle(waiting: dict[str, set[str]]) -> str:
    """Follow dependencies until a node occurs again. The number is TensorFlow's: all nodes that
    can't be made, including those that only depend on the cycle.
    """
    path = [next(iter(waiting))]
    while path[-1] not in path[:-1]:
        path.append(min(waiting[path[-1]]))
    loop = path[path.index(path[-1]) :]
    return f"{len(waiting)} nodes in a cycle: {' <- '.join(loop)}"


def _check_inputs(node: _Node, nodes: Mapping[str, _Node], input_map: InputMap) -> None:
    for i, (port, wanted) in enumerate(zip(node.inputs, node.input_types, strict=True)):
        mapped = input_map.tensors.get(port)
        if mapped is not None:
            found = mapped.dtype
        else:
            outputs = nodes[port.node].output_types
            if port.index >= len(outputs):
                raise ValueError(
                    f"Node '{node.name}': Connecting to invalid output {port.index} of source node "
                    f"{port.node} which has {len(outputs)} outputs."
                )
            found = outputs[port.index]
        wants_reference = wanted._is_ref_dtype and not found._is_ref_dtype
        if found.base_dtype != wanted.base_dtype or wants_reference:
            source = mapped.name if mapped is not None else str(port)
            raise ValueError(
                f"Input {i} of node '{node.name}' was passed {found.name} from {source} "
                f"incompatible with expected {wanted.name}."
            )


# -- Making ----------------------------------------------------------------------------------------


def add_functions(graph: Graph, library: proto.FunctionDefLibrary) -> None:
    """Add the functions of a GraphDef's library; ValueError if they don't fit."""
    for message in library.function:
        add_function(graph, GraphFunction.from_proto(message, graph))
    for pair in library.gradient:
        if pair.function_name not in graph._functions:
            raise ValueError(f"the gradient of '{pair.function_name}', which is not a function")
        graph._functions[pair.function_name].gradient = pair.gradient_func


def _merge_versions(graph: Graph, versions: proto.VersionDef) -> None:
    """Set the versions: an empty graph takes the file's; otherwise those that both allow."""
    graph.producer = (
        min(graph.producer, versions.producer) if graph._operations else versions.producer
    )
    graph.min_consumer = max(graph.min_consumer, versions.min_consumer)
    graph.bad_consumers |= set(versions.bad_consumers)


def _new_names(graph: Graph, nodes: Mapping[str, _Node], prefix: str) -> dict[str, str]:
    """Return each node's name in the graph: with the prefix, and with a number if it is taken."""
    taken = set(graph._by_name)
    for name in graph._by_name:
        while slash := name.rfind("/") + 1:
            name = name[: slash - 1]
            if name in taken:
                break  # its own scopes are taken too, or will be
            taken.add(name)
    wanted = {name: f"{prefix}/{name}" if prefix else name for name in nodes}
    reserved = taken | set(wanted.values())
    names = {}
    for name, full in wanted.items():
        number = 0
        unique = full
        while unique in (taken if unique == full else reserved):
            number += 1
            unique = f"{full}_{number}"
        reserved.add(unique)
        names[name] = unique
    return names


def _make(
    graph: Graph,
    node: _Node,
    names: Mapping[str, str],
    made: Mapping[str, Operation],
    input_map: InputMap,
) -> Operation:
    found = [_find(port, made, input_map) for port in node.inputs]
    start = next((t for t in found if t is not None), None)
    inputs: Any = [start if t is None else t for t in found]  # a temporary input for a back edge
    controls = [
        input_map.controls[name] if name in input_map.controls else made[name]
        for name in node.controls
    ]
    # Unlike an operation built inside a control_dependencies block, an imported one waits for the
    # block's operations even where one of its inputs does so already.
    scopes = graph.scope.controls
    controls += [op for entry in scopes for op in entry.inputs]
    attrs = node.attrs
    if "_class" in attrs:
        attrs = {**attrs, "_class": tuple(_renamed(g, names) for g in attrs["_class"])}
    name = names[node.name]
    graph.claim_name(name)
    with graph._swap("controls", []):
        op = graph.add_operation(
            node.definition, inputs, attrs, name, dict.fromkeys(controls), device=""
        )
    for entry in scopes:
        entry.seen.add(op)
    if None in found:
        op._outputs[0]._shape = TensorShape(None)  # it may change from iteration to iteration
    for i, (t, shape) in enumerate(zip(op._outputs, node.shapes or (), strict=False)):
        try:
            t.set_shape(shape)
        except ValueError as error:
            raise ValueError(
                f"Node '{name}' has an _output_shapes attribute inconsistent with the GraphDef for "
                f"output #{i}: {error}"
            ) from None
    return op


def _find(port: NodeOutput, made: Mapping[str, Operation], input_map: InputMap) -> Tensor | None:
    """The tensor of an input, or None if it isn't made yet."""
    if port in input_map.tensors:
        return input_map.tensors[port]
    return made[port.node]._outputs[port.index] if port.node in made else None


def _renamed(group: str, names: Mapping[str, str]) -> str:
    if not group.startswith(_COLOCATION):
        return group
    return _COLOCATION + names[group[len(_COLOCATION) :]]


def _place(graph: Graph, operations: Sequence[tuple[Operation, str]]) -> None:
    """Set operations' devices: their own, under the open scopes, or those of their groups."""
    followers = []
    for op, device in operations:
        op._device = ""
        leaders = [
            g[len(_COLOCATION) :]
            for g in op._attrs.get("_class", ())
            if g.startswith(_COLOCATION) and g != _COLOCATION + op.name
        ]
        if leaders:
            followers.append((op, leaders))
            continue
        try:
            with graph.device(device) if device else nullcontext():
                graph._apply_devices(op)
        except ValueError as error:
            raise ValueError(f"Node '{op.name}': device '{device}': {error}") from error
    for op, leaders in followers:
        devices = (graph._by_name[name]._device for name in leaders)
        op._device = next(filter(None, devices), "")
