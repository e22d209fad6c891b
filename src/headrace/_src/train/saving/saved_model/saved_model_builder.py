"""Write SavedModels. In: graphs, and one session's variables. Out: a directory that holds both, and
the files that the graphs read, so that it can be served elsewhere.

    saved_model.pb   MetaGraphDefs, each with tags and signatures
    variables/       a checkpoint
    assets/          files, such as vocabularies
"""

from __future__ import annotations

import filecmp
import os
import shutil
from collections.abc import Iterable, Mapping
from typing import Any

from headrace._src.core import dtypes, log, proto
from headrace._src.core.export import export
from headrace._src.graph.default import get_default_graph
from headrace._src.graph.graph_io import write_message
from headrace._src.graph.inference import constant_value
from headrace._src.graph.keys import GraphKeys
from headrace._src.graph.operation import Operation, Tensor
from headrace._src.ops.base.define import b
from headrace._src.ops.state.table_classes import tables_initializer
from headrace._src.train.saving.saved_model import saved_model_names, signatures
from headrace._src.train.saving.saver import Saver
from headrace._src.variables.collections import (
    global_variables_initializer,
    local_variables_initializer,
)

__all__ = ["SavedModelBuilder", "main_op", "main_op_with_restore", "simple_save"]

_ASSET_TYPE = "type.googleapis.com/tensorflow.AssetFileDef"


@export("saved_model.Builder", "saved_model.builder.SavedModelBuilder")
class SavedModelBuilder:
    """Collects graphs, the first together with its variables, and writes them with `save`.

    The export directory must be new or empty.
    """

    def __init__(self, export_dir: str | os.PathLike[str]) -> None:
        self._directory = os.fspath(export_dir)
        if os.path.isdir(self._directory) and os.listdir(self._directory):
            raise AssertionError(
                "Export directory already exists, and isn't empty. Please choose a different "
                "export directory, or delete all the contents of the specified directory: "
                f"{self._directory}"
            )
        os.makedirs(self._directory, exist_ok=True)
        self._saved = proto.SavedModel(
            saved_model_schema_version=saved_model_names.SAVED_MODEL_SCHEMA_VERSION
        )
        self._has_variables = False

    def add_meta_graph_and_variables(
        self,
        sess: Any,
        tags: Iterable[str],
        signature_def_map: Mapping[str, Any] | None = None,
        assets_collection: Iterable[Tensor] | None = None,
        legacy_init_op: Operation | None = None,
        clear_devices: bool = False,
        main_op: Operation | None = None,
        strip_default_attrs: bool = False,
        saver: Saver | None = None,
    ) -> None:
        """Add the default graph, and the values of its variables in a session.

        assets_collection: constants that name files, which are copied. main_op (formerly
        legacy_init_op): the operation that a loader runs after restoring.
        """
        if self._has_variables:
            raise AssertionError(
                "Graph state including variables and assets has already been saved. Please invoke "
                "`add_meta_graph()` instead."
            )
        _check_signatures(signature_def_map)
        _add_main_op(main_op or legacy_init_op)
        folder = os.path.join(self._directory, saved_model_names.VARIABLES_DIRECTORY)
        os.makedirs(folder, exist_ok=True)
        saver = saver or Saver(sharded=True, allow_empty=True)
        path = os.path.join(folder, saved_model_names.VARIABLES_FILENAME)
        saver.save(sess, path, write_meta_graph=False, write_state=False)
        self._add(
            saver, tags, signature_def_map, assets_collection, clear_devices, strip_default_attrs
        )
        self._has_variables = True

    def add_meta_graph(
        self,
        tags: Iterable[str],
        signature_def_map: Mapping[str, Any] | None = None,
        assets_collection: Iterable[Tensor] | None = None,
        legacy_init_op: Operation | None = None,
        clear_devices: bool = False,
        main_op: Operation | None = None,
        strip_default_attrs: bool = False,
        saver: Saver | None = None,
    ) -> None:
        """Add the default graph, which shares the variables that were saved before."""
        if not self._has_variables:
            raise AssertionError(
                "Graph state including variables and assets has not been saved yet. Please invoke "
                "`add_meta_graph_and_variables()` first."
            )
        _check_signatures(signature_def_map)
        _add_main_op(main_op or legacy_init_op)
        saver = saver or Saver(sharded=True, allow_empty=True)
        self._add(
            saver, tags, signature_def_map, assets_collection, clear_devices, strip_default_attrs
        )

    def save(self, as_text: bool = False) -> bytes:
        """Write the graphs; returns the file's name."""
        os.makedirs(self._directory, exist_ok=True)
        name = (
            saved_model_names.SAVED_MODEL_FILENAME_PBTXT
            if as_text
            else saved_model_names.SAVED_MODEL_FILENAME_PB
        )
        path = os.path.join(self._directory, name)
        write_message(path, self._saved, as_text)
        log.info("SavedModel written to: %s", path)
        return path.encode()

    def _add(
        self,
        saver: Saver,
        tags: Iterable[str],
        signature_def_map: Mapping[str, Any] | None,
        assets: Iterable[Tensor] | None,
        clear_devices: bool,
        strip_default_attrs: bool,
    ) -> None:
        meta_graph = saver.export_meta_graph(
            clear_devices=clear_devices, strip_default_attrs=strip_default_attrs
        )
        self._add_assets(meta_graph, list(assets or []))
        meta_graph.meta_info_def.tags.extend(tags)
        for key, signature in (signature_def_map or {}).items():
            meta_graph.signature_def[key].CopyFrom(signature)
        self._saved.meta_graphs.append(meta_graph)

    def _add_assets(self, meta_graph: Any, tensors: list[Tensor]) -> None:
        """Copy files, and record which constants name them: in the MetaGraphDef's field, and in the
        collection that early readers use.
        """
        copied: dict[str, str] = {}
        for tensor in tensors:
            source = _asset_path(tensor)
            name = _asset_name(source, copied)
            if name not in copied:
                folder = os.path.join(self._directory, saved_model_names.ASSETS_DIRECTORY)
                os.makedirs(folder, exist_ok=True)
                shutil.copyfile(source, os.path.join(folder, name))
                copied[name] = source
            asset = meta_graph.asset_file_def.add(filename=name)
            asset.tensor_info.name = tensor.name
            listed = meta_graph.collection_def[saved_model_names.ASSETS_KEY].any_list.value.add()
            listed.type_url = _ASSET_TYPE
            listed.value = asset.SerializeToString()


def _asset_path(tensor: Any) -> str:
    if not isinstance(tensor, Tensor):
        raise TypeError("Asset path tensor must be a Tensor.")
    value = constant_value(tensor)
    if value is None:
        raise TypeError("Asset path tensor must be of type constant.")
    if tensor.dtype is not dtypes.string:
        raise TypeError("Asset path tensor must be of dtype string.")
    if value.size != 1:
        raise TypeError("Asset path tensor must be a scalar.")
    if not value.item():
        raise ValueError(f"Invalid asset filepath tensor {tensor}")
    return os.fsdecode(value.item())


def _asset_name(source: str, copied: Mapping[str, str]) -> str:
    """Return the base name, made unique if another file has it."""
    base = os.path.basename(source)
    known = copied.get(base)
    if known is None or known == source or filecmp.cmp(source, known, shallow=False):
        return base
    count = 1
    while f"{base}_{count}" in copied:
        count += 1
    return f"{base}_{count}"


def _check_signatures(signature_def_map: Mapping[str, Any] | None) -> None:
    for key, signature in (signature_def_map or {}).items():
        if key == saved_model_names.INIT_OP_SIGNATURE_KEY:
            raise KeyError(
                f'SignatureDef map key "{key}" is reserved for initialization. Please use a '
                "different key."
            )
        for info in (*signature.inputs.values(), *signature.outputs.values()):
            if info.WhichOneof("encoding") is None:
                raise AssertionError(
                    "All TensorInfo protos used in the SignatureDefs must have one of the "
                    f"'encoding' fields (e.g., name or coo_sparse) set: {info}"
                )
            if not info.dtype:
                raise AssertionError(
                    "All TensorInfo protos used in the SignatureDefs must have the dtype field "
                    f"set: {info}"
                )


def _add_main_op(op: Any) -> None:
    if op is None:
        return
    if not isinstance(op, Operation):
        raise TypeError(f"main_op needs to be an Operation: {op!r}")
    graph = get_default_graph()
    for key in (saved_model_names.MAIN_OP_KEY, saved_model_names.LEGACY_INIT_OP_KEY):
        if graph.get_collection(key):
            raise ValueError(
                f"Graph already contains one or more main ops under the collection {key}."
            )
    graph.add_to_collection(saved_model_names.MAIN_OP_KEY, op)


@export("saved_model.simple_save")
def simple_save(
    session: Any,
    export_dir: str | os.PathLike[str],
    inputs: Mapping[str, Any],
    outputs: Mapping[str, Any],
    legacy_init_op: Operation | None = None,
) -> None:
    """Write a SavedModel for serving that maps `inputs` to `outputs`, dicts of tensors."""
    signature = signatures.predict_signature_def(inputs, outputs)
    builder = SavedModelBuilder(export_dir)
    builder.add_meta_graph_and_variables(
        session,
        [saved_model_names.SERVING],
        {saved_model_names.DEFAULT_SERVING_SIGNATURE_DEF_KEY: signature},
        assets_collection=get_default_graph().get_collection(GraphKeys.ASSET_FILEPATHS),
        main_op=legacy_init_op,
        clear_devices=True,
    )
    builder.save()


@export("saved_model.main_op.main_op")
def main_op() -> Operation:
    """Return an operation that initializes all variables and tables."""
    return b.group(
        global_variables_initializer(), local_variables_initializer(), tables_initializer()
    )


@export("saved_model.main_op_with_restore", "saved_model.main_op.main_op_with_restore")
def main_op_with_restore(restore_op_name: Any) -> Operation:
    """Return an operation that runs `main_op`, then the given one."""
    with get_default_graph().control_dependencies([main_op()]):
        return b.group(restore_op_name)
