"""tf.train.import_meta_graph. In: a MetaGraphDef or its file. Out: operations, collections, and the
Saver for them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from headrace._src.core import proto
from headrace._src.core.export import export
from headrace._src.graph.default import get_default_graph
from headrace._src.graph.graph import Graph
from headrace._src.graph.graph_io import read_message
from headrace._src.graph.import_graph import all_or_nothing
from headrace._src.graph.meta_graph import UNBOUND, restore_collections, unbound_inputs
from headrace._src.ops.base.import_graph_def import as_message, import_under
from headrace._src.train.inputs import queue_runners  # noqa: F401  they are made from collections
from headrace._src.train.saving.saver import Saver, imported_saver

__all__ = ["import_meta_graph"]


@export("train.import_meta_graph")
def import_meta_graph(
    meta_graph_or_file: Any,
    clear_devices: bool = False,
    import_scope: str | None = None,
    *,
    graph: Graph | None = None,
    input_map: Mapping[str, Any] | None = None,
    unbound_inputs_col_name: str | None = UNBOUND,
    restore_collections_predicate: Callable[[str], bool] | None = None,
) -> Saver | None:
    """Add the nodes and collections of a MetaGraphDef (a message or a file) to the default graph.

    Names get `import_scope` as their prefix, inside the current name scope. Returns a Saver
    for the imported graph, or None if it has nothing to save.
    """
    meta_graph = _read(meta_graph_or_file)
    graph = graph if graph is not None else get_default_graph()
    unbound = unbound_inputs(meta_graph, unbound_inputs_col_name)
    if missing := [name for name in unbound if name not in (input_map or {})]:
        raise ValueError(
            f"Graph contains unbound inputs: {', '.join(missing)}. Must provide these inputs "
            "through input_map."
        )
    graph_def = meta_graph.graph_def
    if clear_devices:
        graph_def = proto.GraphDef()
        graph_def.CopyFrom(meta_graph.graph_def)
        for node in graph_def.node:
            node.device = ""
    wanted = restore_collections_predicate or (lambda key: True)
    current = graph.get_name_scope()
    scope = import_scope or (f"{current}/" if current else "")
    with all_or_nothing(graph):
        ops = meta_graph.meta_info_def.stripped_op_list
        prefix, _ = import_under(graph, graph_def, input_map, scope, ops)
        with graph.as_default():
            restore_collections(
                graph,
                meta_graph.collection_def,
                prefix,
                lambda key: key != unbound_inputs_col_name and wanted(key),
            )
            saver_def = meta_graph.saver_def if meta_graph.HasField("saver_def") else None
            return imported_saver(saver_def, prefix or None)


def _read(meta_graph_or_file: Any) -> proto.MetaGraphDef:
    if isinstance(meta_graph_or_file, str | os.PathLike):
        return read_message(meta_graph_or_file, proto.MetaGraphDef)
    wrong = f"Expected a MetaGraphDef or the name of a file, got {meta_graph_or_file!r}"
    return as_message(meta_graph_or_file, proto.MetaGraphDef, wrong)
