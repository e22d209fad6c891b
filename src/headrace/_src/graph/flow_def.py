"""Steps as protocol buffers. In: a Dataflow. Out: a GraphDef that another process makes the same
Dataflow of.

    encode_flow(flow: Dataflow) -> GraphDef
    decode_flow(graph_def: GraphDef, library: Graph) -> Dataflow
    functions_of(flow: Dataflow) -> dict[str, GraphFunction]

A node is a NodeDef: its attributes by its op's schema, its inputs as `name:output`, its controls as
`^name`. The nodes are in the order of the flow, so each comes after what it reads. Feeds, Backedges
(before the nodes), returns, fetches and targets (after them) are NodeDefs too, of the types below.
The parts of a structured node are attributes: the bytes of their own GraphDefs. Attributes whose
names begin with `_flow.` say what a NodeDef has no place for:

    types       the sizes of the outputs, as far as they are known
    name        the node's name, if another has the same: names of NodeDefs are unique
    form, effect  see graph.internal_definitions
    constant    the values of the outputs; True: that of the attribute `value`
    origin      the name of the client's operation, if it differs; empty if there is none
    made_of     its type, if it differs
    label       the function that it is in
    outputs     the types of its outputs, if they differ; sizes: their sizes
    handle<i>   the variable behind output i, if it is a handle

The functions that the step calls at run time are in the GraphDef's library. `decode_flow` adds them
to `library`, a graph of which nothing else is needed. It does not trust what it reads: unknown ops,
inputs that nothing made, cycles and wrong types raise an InvalidArgumentError.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from headrace._src.core import proto
from headrace._src.core.dtypes import as_dtype
from headrace._src.core.errors import InternalError, InvalidArgumentError, NotFoundError
from headrace._src.core.tensor_proto import to_proto
from headrace._src.core.versions_and_text import GRAPH_DEF_VERSION
from headrace._src.graph.attributes import FunctionName, guess_kind, set_proto
from headrace._src.graph.dataflow import Dataflow, Feed, Node, Value, ValueType
from headrace._src.graph.decode_flow import (
    BACKEDGE,
    FEED,
    FETCH,
    MARK,
    RETURN,
    TARGET,
    decode_flow,
)
from headrace._src.graph.graph_functions import GraphFunction, function_named
from headrace._src.graph.internal_definitions import definition_name
from headrace._src.graph.structured import parts_of

__all__ = ["decode_flow", "encode_flow", "functions_of"]

_MOST_BYTES = (1 << 31) - (1 << 24)  # protobuf's limit for a message, less the nodes


def encode_flow(flow: Dataflow) -> proto.GraphDef:
    """Return a step as a GraphDef. InternalError if it has compiled clusters, which only this
    process can run; InvalidArgumentError if its constants are too large.
    """
    size = sum(v.nbytes for n in _all_nodes(flow) for v in n.constant or ())
    if size > _MOST_BYTES:
        message = f"a step has {size} bytes of constants, and a GraphDef holds {_MOST_BYTES}"
        raise InvalidArgumentError(None, None, f"{message}: use variables instead")
    result = _Encoding(flow).run()
    for function in functions_of(flow).values():
        result.library.function.append(function.to_proto())
        if function.gradient is not None:
            result.library.gradient.add(
                function_name=function.name, gradient_func=function.gradient
            )
    result.versions.producer = GRAPH_DEF_VERSION
    return result


class _Encoding:
    """A GraphDef in the making. `_names`: of the NodeDef of each node and feed."""

    def __init__(self, flow: Dataflow) -> None:
        self._flow = flow
        self._result = proto.GraphDef()
        self._names: dict[Node | Feed, str] = {}
        self._taken: set[str] = set()
        self._counts: dict[str, int] = {}  # of the numbers that follow a name

    def run(self) -> proto.GraphDef:
        flow = self._flow
        for feed in flow.feeds:
            self._feed(FEED, feed)
        for back in flow.returns:
            self._feed(BACKEDGE, back)
        for node in flow.nodes:
            self._node(node)
        for back, value in flow.returns.items():
            self._mark(RETURN, [back.value, value])
        tensors: Sequence[Any] = flow.tensors or [None] * len(flow.fetches)
        for value, tensor in zip(flow.fetches, tensors, strict=True):
            made = self._mark(FETCH, [value])
            if tensor is not None:
                _set(made, "tensor", "string", tensor.name)
        for node in flow.targets:
            self._mark(TARGET, []).input.append(f"^{self._names[node]}")
        return self._result

    def _add(self, op_type: str, name: str) -> proto.NodeDef:
        unique = name
        while unique in self._taken:
            self._counts[name] = count = self._counts.get(name, 0) + 1
            unique = f"{name}~{count}"
        self._taken.add(unique)
        made = self._result.node.add(name=unique, op=op_type)
        if unique != name:
            _set(made, "name", "string", name)
        return made

    def _mark(self, op_type: str, values: Iterable[Value]) -> proto.NodeDef:
        made = self._add(op_type, op_type)
        made.input.extend(map(self._reference, values))
        return made

    def _reference(self, value: Value) -> str:
        producer = value.producer
        return f"{self._names[producer]}:{0 if isinstance(producer, Feed) else value.index}"

    def _feed(self, op_type: str, feed: Feed) -> None:
        made = self._add(op_type, feed.name)
        self._names[feed] = made.name
        _set(made, "outputs", "list(type)", (feed.type.dtype,))
        _set_types(made, "types", (feed.type,))
        if feed.tensor.value_index:
            _set(made, "index", "int", feed.tensor.value_index)
        if feed.local:
            _set(made, "local", "bool", True)
        _set_handles(made, [feed.handle])

    def _node(self, node: Node) -> None:
        origin = node.origin
        name = definition_name(node.definition, getattr(origin, "graph", None))
        made = self._add(name.op_type, node.name)
        self._names[node] = made.name
        made.device = node.device
        made.input.extend(map(self._reference, node.inputs))
        made.input.extend(f"^{self._names[c]}" for c in node.controls)
        _set_types(made, "types", node.types)
        if name.form:
            _set(made, "form", "string", name.form)
        if name.effect:
            _set(made, "effect", "string", name.effect)
        parts = parts_of(node)
        for key, value in node.attrs.items():
            _set_attribute(made, node, key, encode_part(value) if key in parts else value)
        if node.constant is not None:
            _set_constant(made, node)
        _set_origin(made, node)


def encode_part(flow: Dataflow) -> bytes:
    """Return a part of a structured node; its functions are in the library of the whole."""
    return _Encoding(flow).run().SerializeToString(deterministic=True)


def _set(made: proto.NodeDef, key: str, kind: str, value: Any) -> None:
    set_proto(made.attr[MARK + key], kind, value)


def _set_types(made: proto.NodeDef, key: str, types: Sequence[ValueType]) -> None:
    if types:
        _set(made, key, "list(shape)", tuple(t.shape for t in types))


def _set_attribute(made: proto.NodeDef, node: Node, key: str, value: Any) -> None:
    known = node.definition.schema.attributes.get(key)
    try:
        kind = known.kind if known else guess_kind(value)
        if kind == "tensor":
            made.attr[key].tensor.CopyFrom(_tensor(value))
        else:
            set_proto(made.attr[key], kind, value)
    except (TypeError, ValueError) as error:
        message = f"{node.name}: attribute '{key}' can't be sent to another process: {error}"
        raise InternalError(None, None, message) from error


def _set_constant(made: proto.NodeDef, node: Node) -> None:
    constant = node.constant
    assert constant is not None
    if len(constant) == 1 and node.attrs.get("value") is constant[0]:
        _set(made, "constant", "bool", True)
        return
    target = made.attr[f"{MARK}constant"].list
    target.SetInParent()
    target.tensor.extend(map(_tensor, constant))


def _tensor(array: np.ndarray) -> proto.TensorProto:
    """Return an array as a TensorProto; several numbers as bytes, whatever their type."""
    if array.dtype == object or array.size < 2:
        return to_proto(array)
    result = proto.TensorProto(dtype=as_dtype(array.dtype).enum)  # type: ignore[arg-type]
    for size in array.shape:
        result.tensor_shape.dim.add(size=size)
    result.tensor_content = array.tobytes()
    return result


def _set_origin(made: proto.NodeDef, node: Node) -> None:
    origin = node.origin
    if origin is None:
        _set(made, "origin", "string", "")
        return
    if origin.name != node.name:
        _set(made, "origin", "string", origin.name)
    if origin.type != node.type:
        _set(made, "made_of", "string", origin.type)
    label = getattr(origin.graph, "label", "")
    if label:
        _set(made, "label", "string", label)
    outputs = origin._outputs
    if tuple(t.dtype for t in outputs) != tuple(t.dtype for t in node.types):
        _set(made, "outputs", "list(type)", tuple(t.dtype for t in outputs))
        if outputs:
            _set(made, "sizes", "list(shape)", tuple(t._shape for t in outputs))
    _set_handles(made, [getattr(t, "_handle_data", None) for t in outputs])


def _set_handles(made: proto.NodeDef, handles: Sequence[Any]) -> None:
    for i, handle in enumerate(handles):
        if handle is not None:
            known = FunctionName("variable", {"dtype": handle.dtype, "shape": handle.shape})
            _set(made, f"handle{i}", "func", known)


# -- Functions -------------------------------------------------------------------------------------


def functions_of(flow: Dataflow) -> dict[str, GraphFunction]:
    """Return the functions that a step may call while it runs, by name, and those that they
    call.
    """
    found: dict[str, GraphFunction] = {}
    waiting = [called for node in _all_nodes(flow) for called in _called(node, node.origin)]
    while waiting:
        graph, name = waiting.pop()
        if name in found:
            continue
        try:
            function = found[name] = function_named(graph, name)
        except NotFoundError:
            continue  # the kernel says so, if it is called
        library = function._library or function.graph
        if function.gradient is not None:
            waiting.append((library, function.gradient))
        waiting += [called for op in function.operations for called in _called(op, op)]
    return found


def _all_nodes(flow: Dataflow) -> Iterator[Node]:
    """Yield the nodes of a flow and of its parts."""
    for node in flow.nodes:
        yield node
        for part in parts_of(node).values():
            yield from _all_nodes(part)


def _called(op: Any, origin: Any) -> Iterator[tuple[Any, str]]:
    """Yield the functions that an operation or node names, each with its graph."""
    graph = getattr(origin, "graph", None)
    if graph is None or getattr(op, "constant", None) is not None:
        return
    if op.definition.calls is not None:
        yield graph, op.type
    for value in op._attrs.values():
        for each in value if isinstance(value, tuple) else (value,):
            if isinstance(each, FunctionName):
                yield graph, each.name
