"""Read SavedModels. In: a directory, and the tags of one of its graphs. Out: that graph in a
session, with its variables restored.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from headrace._src.core import log, proto
from headrace._src.core.errors import NotFoundError
from headrace._src.core.export import export
from headrace._src.graph.default import get_default_graph
from headrace._src.graph.graph_io import read_message
from headrace._src.train.saving.import_meta_graph import import_meta_graph
from headrace._src.train.saving.saved_model import saved_model_names

__all__ = ["load", "maybe_saved_model_directory", "parse_saved_model"]

Path = str | bytes | os.PathLike[str]


@export(
    "saved_model.contains_saved_model",
    "saved_model.maybe_saved_model_directory",
    "saved_model.loader.maybe_saved_model_directory",
)
def maybe_saved_model_directory(export_dir: Path) -> bool:
    """Return whether a directory holds a SavedModel."""
    export_dir = os.fsdecode(export_dir)
    files = (
        saved_model_names.SAVED_MODEL_FILENAME_PB,
        saved_model_names.SAVED_MODEL_FILENAME_PBTXT,
    )
    return any(os.path.exists(os.path.join(export_dir, file)) for file in files)


def parse_saved_model(export_dir: Path) -> Any:
    """The SavedModel message of a directory."""
    export_dir = os.fsdecode(export_dir)
    for file in (
        saved_model_names.SAVED_MODEL_FILENAME_PB,
        saved_model_names.SAVED_MODEL_FILENAME_PBTXT,
    ):
        path = os.path.join(export_dir, file)
        if os.path.exists(path):
            return read_message(path, proto.SavedModel)
    raise OSError(
        f"SavedModel file does not exist at: {export_dir}/"
        f"{{{saved_model_names.SAVED_MODEL_FILENAME_PBTXT}|{saved_model_names.SAVED_MODEL_FILENAME_PB}}}"
    )


@export("saved_model.load", "saved_model.loader.load")
def load(
    sess: Any,
    tags: Iterable[str],
    export_dir: Path,
    import_scope: str | None = None,
    **saver_kwargs: Any,
) -> proto.MetaGraphDef:
    """Add a graph of a SavedModel to a session's graph, restore its variables in the session and
    run its init op; returns its MetaGraphDef.

    tags: exactly the tags of the graph. saver_kwargs: for tf.train.import_meta_graph.
    """
    export_dir = os.fsdecode(export_dir)  # an Estimator's export returns bytes
    meta_graph = _with_tags(parse_saved_model(export_dir), set(tags))
    with sess.graph.as_default():
        saver = import_meta_graph(meta_graph, import_scope=import_scope, **saver_kwargs)
        if saver is None:
            log.info("The specified SavedModel has no variables; no checkpoints were restored.")
        else:
            path = os.path.join(
                export_dir,
                saved_model_names.VARIABLES_DIRECTORY,
                saved_model_names.VARIABLES_FILENAME,
            )
            saver.restore(sess, path)
        init_op = _init_op(meta_graph, import_scope)
        if init_op is not None:
            sess.run(init_op, _asset_feeds(meta_graph, export_dir, import_scope))
    return meta_graph


def _with_tags(saved: Any, tags: set[str]) -> Any:
    available = [set(meta_graph.meta_info_def.tags) for meta_graph in saved.meta_graphs]
    for meta_graph, present in zip(saved.meta_graphs, available, strict=True):
        if present == tags:
            return meta_graph
    raise RuntimeError(
        f"MetaGraphDef associated with tags {', '.join(map(repr, sorted(tags)))} could not be "
        f"found in SavedModel. Those that are there have the tags: {available}"
    )


def _init_op(meta_graph: Any, scope: str | None) -> Any:
    """Return the operation to run after restoring, from any of the places where builders store
    it.
    """
    graph = get_default_graph()
    if saved_model_names.INIT_OP_SIGNATURE_KEY in meta_graph.signature_def:
        signature = meta_graph.signature_def[saved_model_names.INIT_OP_SIGNATURE_KEY]
        name = signature.outputs[saved_model_names.INIT_OP_SIGNATURE_KEY].name
        try:
            return graph.as_graph_element(f"{scope}/{name}" if scope else name)
        except KeyError:
            raise NotFoundError(
                None, None, f"The SavedModel's init op {name!r} could not be found in its graph"
            ) from None
    for key in (saved_model_names.MAIN_OP_KEY, saved_model_names.LEGACY_INIT_OP_KEY):
        if key not in meta_graph.collection_def:
            continue
        listed = meta_graph.collection_def[key].node_list.value
        if len(listed) != 1:
            raise RuntimeError(f"Expected exactly one SavedModel init op. Found: {listed}")
        return graph.as_graph_element(f"{scope}/{listed[0]}" if scope else listed[0])
    return None


def _asset_feeds(meta_graph: Any, export_dir: str, scope: str | None) -> dict[str, str]:
    """Return the constants that name files, and the files' current paths."""
    assets = list(meta_graph.asset_file_def)
    if not assets and saved_model_names.ASSETS_KEY in meta_graph.collection_def:
        listed = meta_graph.collection_def[saved_model_names.ASSETS_KEY].any_list.value
        assets = [proto.AssetFileDef.FromString(item.value) for item in listed]
    folder = os.path.join(export_dir, saved_model_names.ASSETS_DIRECTORY)
    return {
        f"{scope}/{asset.tensor_info.name}" if scope else asset.tensor_info.name: os.path.join(
            folder, asset.filename
        )
        for asset in assets
    }
