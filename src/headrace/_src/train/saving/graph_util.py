"""Rewriting GraphDefs for inference: cut out a part, drop what training needs, freeze variables.

Every function takes a GraphDef and returns a new one, with the versions and the function library of
the old.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

from headrace._src.core import proto
from headrace._src.core.dtypes import int32, string
from headrace._src.core.export import export
from headrace._src.core.tensor_proto import to_proto
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.graph.graph import Graph
from headrace._src.ops.state.ref_variable_ops import REFERENCE_VARIABLES, RESOURCE_VARIABLES

__all__ = [
    "convert_variables_to_constants",
    "extract_sub_graph",
    "remove_training_nodes",
    "tensor_shape_from_node_def_name",
]

# These are names in files, which may hold ops that nobody here defines; so names are what is
# compared.
_HAND_ON = {"Identity", "Switch", "Enter", "Exit", "NextIteration"}  # of a handle, to a branch


@export("graph_util.extract_sub_graph")
def extract_sub_graph(graph_def: proto.GraphDef, dest_nodes: Sequence[str]) -> proto.GraphDef:
    """Return the part of `graph_def` that the nodes `dest_nodes` need, in the same order."""
    _check_graph_def(graph_def)
    if isinstance(dest_nodes, str):
        raise TypeError("dest_nodes must be a list.")
    nodes = {node.name: node for node in graph_def.node}
    for name in dest_nodes:
        if name not in nodes:
            raise AssertionError(f"{name} is not in graph")
    needed = set(dest_nodes)
    waiting = deque(dest_nodes)
    while waiting:
        name = waiting.popleft()
        for source in map(_node_name, nodes[name].input):
            if source not in nodes:
                raise ValueError(f"Node '{name}': Unknown input node '{source}'")
            if source not in needed:
                needed.add(source)
                waiting.append(source)
    return _with_nodes(graph_def, (node for node in graph_def.node if node.name in needed))


@export("graph_util.must_run_on_cpu")
def must_run_on_cpu(node: Any, pin_variables_on_cpu: bool = False) -> bool:
    """Return whether TensorFlow must place an operation, or its NodeDef, on a CPU: a constant of
    strings or int32, dynamic stitching of int32, or a variable to pin.
    """
    node = getattr(node, "node_def", node)
    if pin_variables_on_cpu and node.op in ("Variable", "VariableV2"):
        return True
    if node.op == "Const":
        return node.attr["dtype"].type in (string.enum, int32.enum)
    return node.op == "DynamicStitch" and node.attr["T"].type == int32.enum


@export("graph_util.remove_training_nodes")
def remove_training_nodes(
    input_graph: proto.GraphDef, protected_nodes: Sequence[str] | None = None
) -> proto.GraphDef:
    """Return the graph without the nodes that only pass a value on: CheckNumerics and Identity.

    Nothing waits for a check any more. An Identity with control edges stays, and so do
    `protected_nodes`.
    """
    _check_graph_def(input_graph)
    protected = set(protected_nodes or ())
    checks = {n.name for n in input_graph.node if n.op == "CheckNumerics"} - protected
    unchecked = _without(input_graph, checks)
    kept = set(protected)
    for node in unchecked.node:
        controls = [name[1:] for name in node.input if name.startswith("^")]
        kept.update(controls)
        if controls or node.op != "Identity":
            kept.add(node.name)
    return _without(unchecked, {n.name for n in unchecked.node} - kept)


def _without(graph_def: proto.GraphDef, removed: set[str]) -> proto.GraphDef:
    """The graph without nodes that pass their first input on; control edges from them go too."""
    instead = {n.name: n.input[0] for n in graph_def.node if n.name in removed}
    result = _with_nodes(graph_def, (n for n in graph_def.node if n.name not in removed))
    for node in result.node:
        inputs = [name for name in node.input if not (name[0] == "^" and name[1:] in removed)]
        del node.input[:]
        node.input.extend(_follow(name, instead) for name in inputs)
        _drop_colocation(node, instead)
    return result


def _follow(name: str, instead: dict[str, str]) -> str:
    seen = set()
    while not name.startswith("^") and _node_name(name) in instead:
        if name in seen:
            raise ValueError(f"'{name}' passes its own value on to itself")
        seen.add(name)
        name = instead[_node_name(name)]
    return name


def _drop_colocation(node: proto.NodeDef, removed: Container[str]) -> None:
    """Forget groups that are named after nodes that are gone."""
    if "_class" not in node.attr:
        return
    groups = node.attr["_class"].list.s
    kept = [g for g in groups if g.decode().removeprefix("loc:@") not in removed]
    del groups[:]
    groups.extend(kept)
    if not kept:
        del node.attr["_class"]


@export("graph_util.tensor_shape_from_node_def_name")
def tensor_shape_from_node_def_name(graph: Graph, input_name: str) -> TensorShape:
    """Return the static shape of the tensor that a NodeDef calls `input_name` (`x` or `x:1`)."""
    name = input_name if ":" in input_name else f"{input_name}:0"
    return graph.get_tensor_by_name(name).get_shape()


@export("graph_util.convert_variables_to_constants")
def convert_variables_to_constants(
    sess: Any,
    input_graph_def: proto.GraphDef,
    output_node_names: Sequence[str],
    variable_names_whitelist: Container[str] | None = None,
    variable_names_blacklist: Container[str] | None = None,
) -> proto.GraphDef:
    """Return what the output nodes need, with the values in `sess` in place of variables."""
    graph_def = extract_sub_graph(input_graph_def, output_node_names)
    variables = {
        node.name: node
        for node in graph_def.node
        if node.op in REFERENCE_VARIABLES | RESOURCE_VARIABLES
        and (variable_names_whitelist is None or node.name in variable_names_whitelist)
        and (variable_names_blacklist is None or node.name not in variable_names_blacklist)
    }
    if not variables:
        return graph_def
    tensors = [_value_tensor(node, input_graph_def) for node in variables.values()]
    values = dict(zip(variables, sess.run(tensors), strict=True))
    handles = _Handles(graph_def, variables)
    nodes: list[proto.NodeDef] = []
    for node in graph_def.node:
        if node.name in variables:
            nodes.append(_constant(node.name, values[node.name], node.attr["dtype"].type))
        else:
            nodes += _frozen(node, handles)
    return _with_nodes(graph_def, nodes)


class _Handles:
    """Which inputs of nodes are the handle of a variable that is frozen: from the variable itself,
    or by way of nodes that hand it on to a branch or a loop.
    """

    def __init__(self, graph_def: proto.GraphDef, variables: Mapping[str, proto.NodeDef]) -> None:
        self._nodes = {node.name: node for node in graph_def.node}
        self._variables = variables

    def variable(self, name: str) -> proto.NodeDef | None:
        """The frozen variable whose handle an input is, if it is one."""
        seen = set()
        while name not in seen and not name.startswith("^"):
            seen.add(name)
            node = self._nodes[_node_name(name)]
            if node.name in self._variables:
                return node if node.op in RESOURCE_VARIABLES else None
            if node.op not in _HAND_ON or not node.input:
                return None
            name = node.input[0]
        return None


def _value_tensor(node: proto.NodeDef, graph_def: proto.GraphDef) -> str:
    """The name of a tensor with the variable's value."""
    if node.op in REFERENCE_VARIABLES:
        return f"{node.name}:0"
    for reader in graph_def.node:
        if reader.op == "ReadVariableOp" and _node_name(reader.input[0]) == node.name:
            return f"{reader.name}:0"
    raise ValueError(f"nothing in the graph reads the variable '{node.name}'")


def _frozen(node: proto.NodeDef, handles: _Handles) -> Iterable[proto.NodeDef]:
    """A consumer of variables as a consumer of constants; other nodes as they are."""
    used = [variable for name in node.input if (variable := handles.variable(name)) is not None]
    if not used:
        return [node]
    if node.op in _HAND_ON:
        frozen = proto.NodeDef()
        frozen.CopyFrom(node)
        frozen.attr["T"].type = used[0].attr["dtype"].type
        return [frozen]
    if node.op == "ReadVariableOp":
        frozen = proto.NodeDef(name=node.name, op="Identity", device=node.device, input=node.input)
        frozen.attr["T"].type = node.attr["dtype"].type
        return [_with_class(frozen, node)]
    if node.op == "ResourceGather":
        axis = _constant(f"{node.name}/axis", 0, int32.enum)
        data = [name for name in node.input if not name.startswith("^")]
        inputs = [*data, axis.name, *node.input[len(data) :]]
        frozen = proto.NodeDef(name=node.name, op="GatherV2", device=node.device, input=inputs)
        frozen.attr["Tparams"].type = node.attr["dtype"].type
        frozen.attr["Tindices"].type = node.attr["Tindices"].type
        frozen.attr["Taxis"].type = int32.enum  # type: ignore[assignment]
        frozen.attr["batch_dims"].i = node.attr["batch_dims"].i if "batch_dims" in node.attr else 0
        return [axis, _with_class(frozen, node)]
    raise ValueError(
        f"'{node.name}' ({node.op}) uses the variable {used[0].name}, which can't be frozen"
    )


def _with_class(frozen: proto.NodeDef, node: proto.NodeDef) -> proto.NodeDef:
    for key in node.attr:
        if key.startswith("_"):
            frozen.attr[key].CopyFrom(node.attr[key])
    return frozen


def _constant(name: str, value: Any, dtype: int) -> proto.NodeDef:
    node = proto.NodeDef(name=name, op="Const")
    node.attr["dtype"].type = dtype  # type: ignore[assignment]
    node.attr["value"].tensor.CopyFrom(to_proto(value, dtype))
    return node


def _node_name(name: str) -> str:
    """The node of an input: `x` of `x`, `x:1` and `^x`."""
    return name.removeprefix("^").partition(":")[0]


def _with_nodes(graph_def: proto.GraphDef, nodes: Iterable[proto.NodeDef]) -> proto.GraphDef:
    result = proto.GraphDef(node=nodes)
    if graph_def.HasField("versions"):
        result.versions.CopyFrom(graph_def.versions)
    if graph_def.HasField("library"):
        result.library.CopyFrom(graph_def.library)
    return result


def _check_graph_def(graph_def: Any) -> None:
    if not isinstance(graph_def, proto.GraphDef):
        raise TypeError(f"graph_def must be a GraphDef proto, not {type(graph_def).__name__}.")
