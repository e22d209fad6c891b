"""Read a step that another process has sent. In: a GraphDef as graph.flow_def writes it. Out: the
Dataflow.

Whatever is wrong with the GraphDef raises an InvalidArgumentError that names the node.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from headrace._src.core import proto
from headrace._src.core.dtypes import DType, as_dtype
from headrace._src.core.errors import InvalidArgumentError, NotFoundError, OpError
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.graph.attributes import FunctionName, as_attribute, from_proto
from headrace._src.graph.dataflow import Backedge, Dataflow, Feed, Node, Value, ValueType
from headrace._src.graph.definition import Definition, keywords_of
from headrace._src.graph.graph import Graph
from headrace._src.graph.graph_functions import FunctionGraph
from headrace._src.graph.import_graph import add_functions
from headrace._src.graph.internal_definitions import DefinitionName, find_definition
from headrace._src.graph.origins import HandleType, Origin, OriginTensor
from headrace._src.graph.schema import MISSING
from headrace._src.graph.structured import PARTS, is_undefined, parts_of
from headrace._src.graph.verify_flow import verify_dataflow

__all__ = ["BACKEDGE", "FEED", "FETCH", "MARK", "RETURN", "TARGET", "decode_flow"]

MARK = "_flow."  # before the names of attributes that no op has

# The types of NodeDefs that are not nodes.
FEED, BACKEDGE, RETURN, FETCH, TARGET = "_Feed", "_Backedge", "_Return", "_Fetch", "_Target"

_DEEPEST = 64  # parts in parts

_WRONG = (
    *(ValueError, TypeError, LookupError, AttributeError, ArithmeticError, AssertionError),
    *(MemoryError, RecursionError, OpError),
)


def decode_flow(graph_def: proto.GraphDef, library: Graph) -> Dataflow:
    """Return the step that encode_flow has written. library: the graph whose functions it may call;
    those of the GraphDef are added to it. InvalidArgumentError if the GraphDef is not such a step.
    """
    try:
        add_functions(library, graph_def.library)
    except _WRONG as error:
        raise _refusal(error) from error
    flow = _Decoding(library, {}, 0).flow(graph_def)
    try:
        verify_dataflow(flow)
    except _WRONG as error:
        raise _refusal(error) from error
    return flow


def _refusal(error: BaseException, where: str = "") -> InvalidArgumentError:
    text = error.message if isinstance(error, OpError) else str(error) or type(error).__name__
    return InvalidArgumentError(None, None, f"a step can't be read: {where}{text}")


class _Refused(InvalidArgumentError):
    """Raised where the message already names the node."""

    def __init__(self, node_def: Any, op: Any, message: str) -> None:
        super().__init__(node_def, op, message)


class _Decoding:
    """A flow in the making.

    made: the values of each NodeDef; nodes: those that are nodes. labelled: graphs of origins that
    are in a function, by its name. depth: how many parts are around.
    """

    def __init__(self, library: Graph, labelled: dict[str, Graph], depth: int) -> None:
        self._library = library
        self._labelled = labelled
        self._depth = depth
        self._made: dict[str, tuple[Value, ...]] = {}
        self._nodes: dict[str, Node] = {}
        self._feeds: list[Feed] = []
        self._returns: dict[Backedge, Value | None] = {}
        self._fetches: list[Value] = []
        self._tensors: list[OriginTensor] = []
        self._targets: list[Node] = []

    def flow(self, graph_def: proto.GraphDef) -> Dataflow:
        if self._depth > _DEEPEST:
            raise ValueError(f"more than {_DEEPEST} loops and branches are nested")
        readers = {
            FEED: self._feed,
            BACKEDGE: self._feed,
            RETURN: self._return,
            FETCH: self._fetch,
            TARGET: self._target,
        }
        for node_def in graph_def.node:
            name = node_def.name
            try:
                if name in self._made:
                    raise ValueError("its name is not unique")
                readers.get(node_def.op, self._node)(node_def)
            except _Refused:
                raise
            except _WRONG as error:
                refusal = _refusal(error, f"node '{name}' (op: '{node_def.op}'): ")
                raise _Refused(None, None, refusal.message) from error
        missing = [back.name for back, value in self._returns.items() if value is None]
        if missing:
            raise _refusal(ValueError(f"nothing is passed back to '{missing[0]}'"))
        if self._tensors and len(self._tensors) != len(self._fetches):
            raise _refusal(ValueError("not all fetches have names"))
        returns: Any = self._returns
        tensors: Any = tuple(self._tensors)
        return Dataflow(
            tuple(self._nodes.values()),
            tuple(self._feeds),
            tuple(self._fetches),
            tuple(self._targets),
            tensors,
            returns,
        )

    # -- What goes in and out ----------------------------------------------------------------------

    def _feed(self, node_def: proto.NodeDef) -> None:
        notes = _Notes(node_def)
        (type,) = notes.types("types", notes.dtypes("outputs") or ())
        index = notes.get("index", int, 0)
        if index < 0:
            raise ValueError(f"it is output {index}")
        handle = notes.handle(0)
        name = notes.get("name", str, node_def.name)
        tensor: Any = self._tensor(name, "Placeholder", index, type, handle)
        if node_def.op == BACKEDGE:
            feed: Feed = Backedge(tensor, type, handle)
            self._returns[feed] = None  # type: ignore[index]
        else:
            feed = Feed(tensor, type, handle, notes.get("local", bool, False))
            self._feeds.append(feed)
        self._made[node_def.name] = (feed.value,)

    def _tensor(
        self, name: str, op_type: str, index: int, type: ValueType, handle: HandleType | None
    ) -> OriginTensor:
        """Return a tensor of the client."""
        op = Origin(name, op_type, self._library, None)
        made = OriginTensor(op, index, type.dtype, type.shape, handle)
        rest = ValueType(type.dtype, None)
        others = (OriginTensor(op, i, rest.dtype, rest.shape) for i in range(min(index, 64)))
        op._outputs = (*others, made)
        return made

    def _return(self, node_def: proto.NodeDef) -> None:
        back, value = map(self._value, node_def.input)
        if not isinstance(back.producer, Backedge) or self._returns[back.producer] is not None:
            raise ValueError(f"'{back.name}' is not a value that is passed back, or is so twice")
        self._returns[back.producer] = value

    def _fetch(self, node_def: proto.NodeDef) -> None:
        (value,) = map(self._value, node_def.input)
        self._fetches.append(value)
        name = _Notes(node_def).get("tensor", str, "")
        if not name:
            return
        source = value.producer
        op_name, _, index = name.rpartition(":")
        if isinstance(source, Feed) and source.tensor.name == name:
            tensor: Any = source.tensor
        else:
            if not op_name or not index.isdigit():
                raise ValueError(f"'{name}' is not the name of a tensor")
            tensor = self._tensor(op_name, "Identity", int(index), value.type, None)
        self._tensors.append(tensor)

    def _target(self, node_def: proto.NodeDef) -> None:
        (name,) = node_def.input
        self._targets.append(self._control(name))

    # -- Nodes -------------------------------------------------------------------------------------

    def _node(self, node_def: proto.NodeDef) -> None:
        notes = _Notes(node_def)
        form, effect = notes.get("form", str, ""), notes.get("effect", str, "")
        definition = find_definition(DefinitionName(node_def.op, form, effect), self._library)
        attrs = self._attributes(node_def, definition)
        types = notes.types("types", definition.schema.output_types(attrs))
        constant = _constant(node_def, attrs)
        split = next(
            (i for i, name in enumerate(node_def.input) if name.startswith("^")),
            len(node_def.input),
        )
        node = Node(
            definition,
            notes.get("name", str, node_def.name),
            attrs,
            tuple(map(self._value, node_def.input[:split])),
            tuple(map(self._control, node_def.input[split:])),
            types,
            None,
            constant,
            node_def.device,
        )
        _check(node)
        origin: Any = self._origin(node, notes)
        if origin is not None:
            node = replace(node, origin=origin)
        self._nodes[node_def.name] = node
        self._made[node_def.name] = node.outputs

    def _value(self, name: str) -> Value:
        source, colon, index = name.rpartition(":")
        if not colon or not (index.isascii() and index.isdigit()):
            raise ValueError(f"'{name}' is not the name of a value")
        if source not in self._made:
            raise ValueError(f"it reads '{name}', which is unknown, or made later")
        if int(index) >= len(self._made[source]):
            raise ValueError(f"'{source}' has {len(self._made[source])} outputs, not '{name}'")
        return self._made[source][int(index)]

    def _control(self, name: str) -> Node:
        found = self._nodes.get(name[1:]) if name.startswith("^") else None
        if found is None:
            raise ValueError(f"it waits for '{name}', which is unknown, or comes later")
        return found

    def _attributes(self, node_def: proto.NodeDef, definition: Definition) -> dict[str, Any]:
        schema = definition.schema
        listed = set(node_def.attr)
        attrs: dict[str, Any] = {}
        for key, known in schema.attributes.items():
            if key not in listed:
                if known.default is MISSING:
                    raise ValueError(f"attribute '{key}' is missing")
                attrs[key] = known.default
            elif known.kind == "list(type)" and schema.op_type.startswith("_"):
                attrs[key] = _types(node_def.attr[key])  # of a structured node: maybe references
            else:
                plain = from_proto(node_def.attr[key], known.kind)
                attrs[key] = as_attribute(known, plain, schema.op_type, from_file=True)
        held = PARTS if schema.op_type.startswith("_") else ()
        for key in held:
            if key in listed:
                attrs[key] = self._part(node_def.attr[key])
        for key in sorted(listed - attrs.keys()):
            if not key.startswith(MARK):
                attrs[key] = from_proto(node_def.attr[key])
        return attrs

    def _part(self, attribute: proto.AttrValue) -> Dataflow:
        try:
            graph_def = proto.GraphDef.FromString(attribute.s)
        except proto.DecodeError as error:
            raise ValueError(f"a part is not a GraphDef: {error}") from error
        return _Decoding(self._library, self._labelled, self._depth + 1).flow(graph_def)

    def _origin(self, node: Node, notes: _Notes) -> Origin | None:
        name = notes.get("origin", str, node.name)
        if not name:
            return None
        op_type = notes.get("made_of", str, node.type)
        graph = self._graph(notes.get("label", str, ""))
        own = op_type == node.type
        definition = node.definition if own else self._definition_of(op_type)
        origin = Origin(name, op_type, graph, definition)
        origin._inputs = node.inputs if own else ()
        listed = notes.dtypes("outputs")
        types = node.types if listed is None else notes.types("sizes", listed)
        origin._outputs = tuple(
            OriginTensor(origin, i, t.dtype, t.shape, notes.handle(i)) for i, t in enumerate(types)
        )
        return origin

    def _definition_of(self, op_type: str) -> Definition | None:
        """Return the definition of an origin's op; None if it is a function that was inlined."""
        try:
            return self._library.definition_of(op_type)
        except NotFoundError:
            return None

    def _graph(self, label: str) -> Graph:
        """Return the graph that an origin is in."""
        if not label:
            return self._library
        if label not in self._labelled:
            made = self._labelled[label] = FunctionGraph(None)
            made._functions = self._library._functions
            made._py_functions = self._library._py_functions
            made.label = label
        return self._labelled[label]


class _Notes:
    """The attributes of a NodeDef that no op has."""

    def __init__(self, node_def: proto.NodeDef) -> None:
        self._attrs = node_def.attr
        self._listed = {key for key in node_def.attr if key.startswith(MARK)}

    def get(self, key: str, kind: Any, default: Any) -> Any:
        if MARK + key not in self._listed:
            return default
        found = from_proto(self._attrs[MARK + key])
        if not isinstance(found, kind):
            raise TypeError(f"attribute '{MARK}{key}' is {found!r}")
        return found

    def dtypes(self, key: str) -> tuple[DType, ...] | None:
        return _types(self._attrs[MARK + key]) if MARK + key in self._listed else None

    def types(self, key: str, dtypes: Sequence[DType]) -> tuple[ValueType, ...]:
        shapes = self.get(key, tuple, ())
        if len(shapes) != len(dtypes) or not all(isinstance(s, TensorShape) for s in shapes):
            raise ValueError(f"it has {len(dtypes)} outputs, and attribute '{MARK}{key}' {shapes}")
        return tuple(ValueType.of(d, s) for d, s in zip(dtypes, shapes, strict=True))

    def handle(self, index: int) -> HandleType | None:
        found = self.get(f"handle{index}", FunctionName, None)
        if found is None:
            return None
        dtype, shape = found.attrs.get("dtype"), found.attrs.get("shape")
        if not isinstance(dtype, DType) or not isinstance(shape, TensorShape):
            raise TypeError(f"attribute '{MARK}handle{index}' is {found!r}")
        return HandleType(dtype, shape)


def _types(attribute: proto.AttrValue) -> tuple[DType, ...]:
    """Return a list of types, some of which may be references."""
    if attribute.WhichOneof("value") != "list":
        raise TypeError("a list of types was expected")
    return tuple(map(as_dtype, attribute.list.type))


def _constant(node_def: proto.NodeDef, attrs: dict[str, Any]) -> tuple[np.ndarray, ...] | None:
    key = f"{MARK}constant"
    if key not in node_def.attr:
        return None
    found: Any = from_proto(node_def.attr[key])
    if found is True:
        found = (attrs.get("value"),)
    if not isinstance(found, tuple) or not all(isinstance(v, np.ndarray) for v in found):
        raise TypeError(f"attribute '{key}' must be a list of tensors")
    return found


def _check(node: Node) -> None:
    """Refuse a node whose inputs or constants have other types than its op takes. The rest is
    checked when the flow is complete.
    """
    if node.constant is not None:
        given = [(v.dtype, v.shape) for v in node.constant]
        if given != [(t.dtype.numpy, t.sizes) for t in node.types] or node.inputs or node.controls:
            raise ValueError("it is a constant of other types than its outputs', or has inputs")
        return
    wanted = node.definition.schema.input_types(node.attrs)
    if len(wanted) != len(node.inputs):
        raise ValueError(f"it has {len(node.inputs)} inputs, not {len(wanted)}")
    for i, (value, dtype) in enumerate(zip(node.inputs, wanted, strict=True)):
        source = value.producer
        lacks = dtype._is_ref_dtype and not value.dtype._is_ref_dtype
        lacks = lacks and not isinstance(source, Feed) and not is_undefined(source)
        if value.dtype.base_dtype != dtype.base_dtype or lacks:
            raise TypeError(f"input {i} is {value.name} {value.type}, not {dtype.name}")
    lacking = set(keywords_of(node.definition.kernel)) - {"ctx", "op", "step"} - node.attrs.keys()
    if lacking:
        raise ValueError(f"attribute '{min(lacking)}' is missing")
    if parts := parts_of(node):
        _check_parts(node, parts)


def _check_parts(node: Node, parts: dict[str, Dataflow]) -> None:
    """Refuse a structured node whose parts take and give other values than it does."""
    inputs, outputs = node.inputs, [t.dtype for t in node.types]
    if "body" in parts:
        given = [v.dtype for v in parts["body"].fetches]
        results = node.attrs["results"]
        known = isinstance(results, tuple) and all(isinstance(i, int) for i in results)
        if not known or any(not 0 <= i < len(given) for i in results):
            raise ValueError(f"its results are {results!r} of {len(given)} variables")
        if len(parts["cond"].fetches) != 1 or len(given) > len(inputs):
            raise ValueError("its parts don't have the form of a loop")
        _check_same("results", [given[i] for i in results], outputs)
        _check_same("variables", given, [v.dtype for v in inputs[: len(given)]])
    else:
        inputs = inputs if "callee" in parts else inputs[1:]
        for name, part in parts.items():
            _check_same(name, [v.dtype for v in part.fetches], outputs)
    for name, part in parts.items():
        _check_same(name, [f.type.dtype for f in part.feeds], [v.dtype for v in inputs])


def _check_same(what: str, found: Sequence[DType], wanted: Sequence[DType]) -> None:
    if [t.base_dtype for t in found] != [t.base_dtype for t in wanted]:
        shown = ([t.name for t in types] for types in (found, wanted))
        raise TypeError(f"'{what}' has the types {next(shown)}, not {next(shown)}")
