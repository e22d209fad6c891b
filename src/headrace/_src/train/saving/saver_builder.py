"""The nodes of a saver. In: saveables. Out: nodes that store and restore them, and their SaverDef.

The nodes have TensorFlow's names: feed the prefix to `save/Const`, fetch `save/control_dependency`
to save, run `save/restore_all` to restore.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

from headrace._src.core import proto
from headrace._src.core.device_names import canonical_name
from headrace._src.graph.default import get_default_graph
from headrace._src.graph.operation import Operation, Tensor
from headrace._src.ops.array.constants_and_placeholders import identity, placeholder_with_default
from headrace._src.ops.base.define import b
from headrace._src.ops.base.to_tensor import constant, name_scope
from headrace._src.ops.control.grouping import group, with_dependencies
from headrace._src.ops.io import checkpoints
from headrace._src.train.saving.saveables import on_cpu, saveables_of, static_or_dynamic_shape

__all__ = ["BulkSaverBuilder"]

V1, V2 = 1, 2


class BulkSaverBuilder:
    """Makes savers that read all tensors in one operation per machine.

    restore_sequentially: use one operation per variable instead, one after the other: slower, but
    at most one variable is in memory twice.
    """

    def __init__(self, write_version: int = V2) -> None:
        self._version = write_version

    def build(
        self,
        names_to_saveables: Any,
        reshape: bool = False,
        sharded: bool = False,
        max_to_keep: int = 5,
        keep_checkpoint_every_n_hours: float = 10000.0,
        name: str | None = None,
        restore_sequentially: bool = False,
        filename: str = "model",
    ) -> Any:
        """Add the nodes to the default graph; return the SaverDef."""
        saveables = saveables_of(names_to_saveables)
        values = [v for s in saveables if isinstance(v := s.op, Tensor | Operation)]
        with name_scope(name, "save", values):
            default = placeholder_with_default(filename or "model", (), name="filename")
            prefix = placeholder_with_default(default, (), name="Const")
            if sharded:
                shards = _by_device(saveables)
                save = self._save_shards_v2 if self._version == V2 else self._save_shards_v1
                saved = save(prefix, shards)
                restored = self._restore_shards(prefix, shards, restore_sequentially, reshape)
            else:
                saved = self._save(prefix, saveables)
                restored = self._restore(prefix, saveables, restore_sequentially, reshape)
        found: Any = proto.SaverDef(
            filename_tensor_name=prefix.name,
            save_tensor_name=saved.name,
            restore_op_name=restored.name,
            max_to_keep=max_to_keep,
            sharded=sharded,
            keep_checkpoint_every_n_hours=keep_checkpoint_every_n_hours,
        )
        found.version = self._version
        return found

    # -- Saving ------------------------------------------------------------------------------------

    def _save(self, prefix: Tensor, saveables: Sequence[Any]) -> Tensor:
        specs = [spec for saveable in saveables for spec in saveable.specs]
        names, slices = [spec.name for spec in specs], [spec.slice_spec for spec in specs]
        tensors = [spec.tensor for spec in specs]
        if self._version == V2:
            done = checkpoints.save_v2(prefix, names, slices, tensors)
        else:
            done = checkpoints.save_slices(prefix, names, slices, tensors, name="save")
        return with_dependencies([done], prefix)

    def _save_shards_v2(self, prefix: Tensor, shards: Sequence[tuple[str, list[Any]]]) -> Tensor:
        graph = get_default_graph()
        aside = b.string_join([prefix, f"_temp_{uuid.uuid4().hex}/part"])
        count = constant(len(shards), name="num_shards")
        prefixes, saves = [], []
        device = ""
        for i, (place, saveables) in enumerate(shards):
            device = on_cpu(place)
            with graph.device(device):
                prefixes.append(checkpoints.sharded_filename(aside, i, count))
                saves.append(self._save(prefixes[-1], saveables))
        with graph.control_dependencies([save.op for save in saves]), graph.device(device):
            merged = checkpoints.merge_v2_checkpoints(prefixes, prefix, delete_old_dirs=True)
            with graph.control_dependencies([merged]):
                return identity(prefix)

    def _save_shards_v1(self, prefix: Tensor, shards: Sequence[tuple[str, list[Any]]]) -> Tensor:
        graph = get_default_graph()
        count = constant(len(shards), name="num_shards")
        saves = []
        for i, (place, saveables) in enumerate(shards):
            with graph.device(place):
                saves.append(self._save(checkpoints.sharded_filename(prefix, i, count), saveables))
        with graph.control_dependencies([save.op for save in saves]):
            return checkpoints.sharded_filespec(prefix, count)

    # -- Restoring ---------------------------------------------------------------------------------

    def _restore(
        self,
        prefix: Tensor,
        saveables: Sequence[Any],
        sequentially: bool,
        reshape: bool,
        name: str = "restore_all",
    ) -> Operation:
        assigned: list[Any] = []
        groups = [[saveable] for saveable in saveables] if sequentially else [saveables]
        for members in groups:
            with ExitStack() as stack:
                if assigned:
                    waits = get_default_graph().control_dependencies(assigned[-1:])
                    stack.enter_context(waits)
                read = self._read(prefix, members)
                for saveable in members:
                    tensors = [next(read) for _ in saveable.specs]
                    shapes = list(map(static_or_dynamic_shape, saveable.specs)) if reshape else None
                    assigned.append(saveable.restore(tensors, shapes))
        return group(*assigned, name=name)

    def _read(self, prefix: Tensor, saveables: Sequence[Any]) -> Iterator[Tensor]:
        specs = [spec for saveable in saveables for spec in saveable.specs]
        with get_default_graph().device("/device:CPU:0"):
            found = checkpoints.restore_v2(
                prefix,
                [spec.name for spec in specs],
                [spec.slice_spec for spec in specs],
                [spec.dtype.base_dtype for spec in specs],
            )
        return iter(found)

    def _restore_shards(
        self,
        prefix: Tensor,
        shards: Sequence[tuple[str, list[Any]]],
        sequentially: bool,
        reshape: bool,
    ) -> Operation:
        restored = []
        for place, saveables in shards:
            with get_default_graph().device(place):
                restored.append(
                    self._restore(prefix, saveables, sequentially, reshape, "restore_shard")
                )
        return group(*restored, name="restore_all")


def _by_device(saveables: Sequence[Any]) -> list[tuple[str, list[Any]]]:
    found: dict[str, list[Any]] = {}
    for saveable in saveables:
        device = canonical_name(saveable.specs[0].tensor.device)
        found.setdefault(device, []).append(saveable)
    return sorted(found.items())
