"""MetaGraphDefs. In: a graph with its collections. Out: a message that holds both, and the data
needed to read it elsewhere.

A collection is written as the kind of list that its first item determines: messages by the
functions of graph.proto_functions, else bytes, ints, floats, or names of graph elements. Exporting
one scope strips it from all names; inputs from outside it become `$unbound_inputs_<name>`, which an
import must map.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from headrace._src.core import proto
from headrace._src.core.errors import UnimplementedError
from headrace._src.core.export import export
from headrace._src.core.versions_and_text import VERSION
from headrace._src.graph import context_protos as context_protos  # how contexts are written
from headrace._src.graph.default import get_default_graph
from headrace._src.graph.graph import Graph
from headrace._src.graph.graph_def import graph_def as as_graph_def
from headrace._src.graph.graph_def import op_list, strip_default_attributes
from headrace._src.graph.graph_io import write_message
from headrace._src.graph.keys import GraphKeys
from headrace._src.graph.proto_functions import proto_functions

__all__ = ["export_meta_graph", "restore_collections", "unbound_inputs"]

UNBOUND = "unbound_inputs"
_UNBOUND_PREFIX = "$unbound_inputs_"
_SAVER_OPS = frozenset(
    ["MergeV2Checkpoints", "Restore", "RestoreSlice", "RestoreV2", "Save", "SaveSlices", "SaveV2"]
)


@export("train.export_meta_graph")
def export_meta_graph(
    filename: str | os.PathLike[str] | None = None,
    meta_info_def: proto.MetaGraphDef.MetaInfoDef | None = None,
    graph_def: proto.GraphDef | None = None,
    saver_def: proto.SaverDef | None = None,
    collection_list: Iterable[str] | None = None,
    as_text: bool = False,
    graph: Graph | None = None,
    export_scope: str | None = None,
    clear_devices: bool = False,
    clear_extraneous_savers: bool = False,
    strip_default_attrs: bool = False,
    save_debug_info: bool = False,
    *,
    unbound_inputs_col_name: str | None = UNBOUND,
) -> proto.MetaGraphDef:
    """Return `graph` and its collections as a MetaGraphDef; write it to `filename`, if given.

    `graph_def` replaces the graph's own nodes, `collection_list` limits the collections,
    `export_scope` the nodes. `clear_extraneous_savers` removes every Saver but that of `saver_def`:
    its nodes, and its entry in the collection of savers.
    """
    if save_debug_info:
        raise UnimplementedError(None, None, "save_debug_info: debug information is not written")
    graph = graph if graph is not None else get_default_graph()
    if not isinstance(graph, Graph):
        raise TypeError(f"graph must be of type Graph not {type(graph)}")
    nodes = graph_def if graph_def is not None else as_graph_def(graph, add_shapes=True)
    scope = export_scope.rstrip("/") if export_scope else None
    extraneous = _extraneous_nodes(nodes, saver_def) if clear_extraneous_savers else set()

    result = proto.MetaGraphDef()
    unbound = _copy_nodes(result.graph_def, nodes, scope, clear_devices, extraneous)
    if strip_default_attrs:
        strip_default_attributes(result.graph_def)
    _fill_info(result, meta_info_def, strip_default_attrs)
    keys = graph.get_all_collection_keys() if collection_list is None else list(collection_list)
    for key in keys:
        _add_collection(result, graph, key, scope, extraneous)
    if scope is not None and unbound_inputs_col_name and unbound:
        listed = result.collection_def[unbound_inputs_col_name].bytes_list.value
        listed.extend(name.encode() for name in dict.fromkeys(unbound))
    if saver_def is not None:
        result.saver_def.CopyFrom(saver_def)
    if clear_extraneous_savers and GraphKeys.SAVERS in result.collection_def:
        del result.collection_def[GraphKeys.SAVERS]
        if saver_def is not None:
            listed = result.collection_def[GraphKeys.SAVERS].bytes_list.value
            listed.append(saver_def.SerializeToString())
    if filename:
        write_message(filename, result, as_text)
    return result


def _fill_info(result: proto.MetaGraphDef, given: Any, stripped: bool) -> None:
    info = result.meta_info_def
    if given is not None:
        info.CopyFrom(given)
    info.tensorflow_version = VERSION
    info.stripped_default_attrs = stripped
    if not info.HasField("stripped_op_list"):
        info.stripped_op_list.CopyFrom(op_list(result.graph_def))


# -- Nodes -----------------------------------------------------------------------------------------


def _copy_nodes(
    target: proto.GraphDef,
    source: proto.GraphDef,
    scope: str | None,
    clear_devices: bool,
    without: set[str],
) -> list[str]:
    """Copy the nodes of one scope (or all); return the data inputs from outside it."""
    target.versions.CopyFrom(source.versions)
    if source.HasField("library"):
        target.library.CopyFrom(source.library)
    unbound: list[str] = []
    for node in source.node:
        if node.name in without or not _is_inside(node.name, scope):
            continue
        copy = target.node.add()
        copy.CopyFrom(node)
        if clear_devices:
            copy.device = ""
        if scope is not None:
            unbound += _strip_node(copy, scope)
    return unbound


def _strip_node(node: proto.NodeDef, scope: str) -> list[str]:
    unbound = []
    node.name = _strip(node.name, scope)
    for i, name in enumerate(node.input):
        mark = "^" if name.startswith("^") else ""
        bare = name[len(mark) :]
        if _is_inside(bare, scope):
            node.input[i] = mark + _strip(bare, scope)
        else:
            node.input[i] = mark + _UNBOUND_PREFIX + bare
            if not mark:
                unbound.append(node.input[i])
    if "_class" in node.attr:
        groups = node.attr["_class"].list
        kept = [g for g in groups.s if _is_inside(g.decode().removeprefix("loc:@"), scope)]
        del groups.s[:]
        groups.s.extend(b"loc:@" + _strip(g.decode()[5:], scope).encode() for g in kept)
        if not kept:
            del node.attr["_class"]
    return unbound


def _is_inside(name: str, scope: str | None) -> bool:
    return scope is None or name.startswith(f"{scope}/")


def _strip(name: str, scope: str | None) -> str:
    return name if scope is None else name.removeprefix(f"{scope}/")


def _extraneous_nodes(graph_def: proto.GraphDef, saver_def: proto.SaverDef | None) -> set[str]:
    """Return all nodes in the scopes of saving and restoring ops, except those of the given
    saver.
    """
    scopes = {n.name.rpartition("/")[0] + "/" for n in graph_def.node if n.op in _SAVER_OPS}
    for name in (saver_def.save_tensor_name, saver_def.restore_op_name) if saver_def else ():
        scopes.discard(name.partition(":")[0].rpartition("/")[0] + "/")
    scopes.discard("/")  # a saver without its own scope: its nodes can't be identified
    return {n.name for n in graph_def.node if n.name.startswith(tuple(scopes))}


# -- Collections -----------------------------------------------------------------------------------


def _add_collection(
    result: proto.MetaGraphDef, graph: Graph, key: Any, scope: str | None, without: set[str]
) -> None:
    """Write one collection, or warn why it can't be: collections may hold any Python object."""
    if not isinstance(key, str):
        warnings.warn(f"collection {key!r} is not exported: only names are keys", stacklevel=4)
        return
    items = [i for i in graph.get_collection(key) if _is_exported(i, scope, without)]
    if not items:
        return
    collection = proto.CollectionDef()
    try:
        _fill_collection(collection, key, items, scope)
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        warnings.warn(
            f"collection '{key}' can't be exported and is left out: {error}", stacklevel=4
        )
        return
    if collection.WhichOneof("kind") is not None:
        result.collection_def[key].CopyFrom(collection)


def _is_exported(item: Any, scope: str | None, without: set[str]) -> bool:
    """Return whether an item (or the element it names) is in the scope; numbers and bytes are in
    every scope.
    """
    name = item if isinstance(item, str) else getattr(item, "name", None)
    if not isinstance(name, str):
        return True
    return name.partition(":")[0] not in without and _is_inside(name, scope)


def _fill_collection(
    collection: proto.CollectionDef, key: str, items: list[Any], scope: str | None
) -> None:
    to_proto = proto_functions(key).to_proto
    first = items[0]
    if to_proto is not None:
        messages = [to_proto(item, export_scope=scope) for item in items]
        written = [m.SerializeToString(deterministic=True) for m in messages if m is not None]
        collection.bytes_list.value.extend(written)
    elif isinstance(first, str | bytes):
        texts = [_strip(i, scope).encode() if isinstance(i, str) else i for i in items]
        collection.bytes_list.value.extend(texts)
    elif isinstance(first, int):
        collection.int64_list.value.extend(items)
    elif isinstance(first, float):
        collection.float_list.value.extend(items)
    else:
        collection.node_list.value.extend(_strip(i.name, scope) for i in items)


def unbound_inputs(meta_graph: proto.MetaGraphDef, collection_name: str | None) -> list[str]:
    """Return the inputs that an import of `meta_graph` must map."""
    if collection_name is None or collection_name not in meta_graph.collection_def:
        return []
    listed = meta_graph.collection_def[collection_name]
    return [v.decode() for v in listed.bytes_list.value]


def restore_collections(
    graph: Graph,
    collections: Mapping[str, proto.CollectionDef],
    prefix: str,
    is_wanted: Callable[[str], bool],
) -> None:
    """Add saved items to the collections of `graph`; the import put `prefix` before all names.

    An object that was in several collections (a global and trainable variable) becomes one object.
    """
    made: dict[Any, Any] = {}
    for key in sorted(collections):
        if is_wanted(key):
            for item in _restored(graph, key, collections[key], prefix, made):
                graph.add_to_collection(key, item)


def _restored(
    graph: Graph, key: str, collection: proto.CollectionDef, prefix: str, made: dict[Any, Any]
) -> Iterable[Any]:
    kind = collection.WhichOneof("kind")
    if kind is None:
        return []
    values = getattr(collection, kind).value
    functions = proto_functions(key)
    if kind == "bytes_list" and functions.from_proto is not None:
        parse = functions.message.FromString  # type: ignore[attr-defined]
        for v in values:
            if (functions.from_proto, v) not in made:
                item = functions.from_proto(parse(v), import_scope=prefix or None)
                made[functions.from_proto, v] = item
        return [made[functions.from_proto, v] for v in values]
    if kind == "node_list":
        return [graph.as_graph_element(f"{prefix}/{v}" if prefix else v) for v in values]
    if kind == "bytes_list" and prefix:
        return [_under(v, prefix) for v in values]
    return list(values)


def _under(value: bytes, prefix: str) -> str | bytes:
    """Treat text as names, which get the import's prefix; other bytes don't change."""
    try:
        return f"{prefix}/{value.decode()}"
    except UnicodeDecodeError:
        return value
