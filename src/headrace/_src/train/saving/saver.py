"""tf.train.Saver. In: variables, a session, a prefix. Out: a checkpoint; and back.

A saver consists of nodes in the graph (made by saver_builder, named by a SaverDef) and, in Python,
the list of checkpoints that it has made. A save writes the checkpoint atomically, updates the state
file that names it, removes old checkpoints and writes the graph beside it, in this order.

An asynchronous saver only copies the values in the caller's thread, in one step, and does the rest
in another. The copy runs at memory speed and reuses the buffers of the previous save.
"""

from __future__ import annotations

import logging
import numbers
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from headrace._src.checkpoint.bundle import NamedTensor, write_bundle
from headrace._src.checkpoint.session_files import read_session_file, write_session_file
from headrace._src.core import log, proto
from headrace._src.core.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    OpError,
)
from headrace._src.core.export import export
from headrace._src.core.file_errors import file_errors
from headrace._src.core.versions_and_text import as_text
from headrace._src.graph import meta_graph
from headrace._src.graph.default import get_default_graph
from headrace._src.graph.graph_def import KeptGraphDef
from headrace._src.graph.keys import GraphKeys
from headrace._src.graph.proto_functions import register_proto_function
from headrace._src.ops.io.checkpoints import named_tensors
from headrace._src.session.resuming import left_over, resume_state, saved_state
from headrace._src.session.session import BaseSession
from headrace._src.session.snapshots import Snapshots
from headrace._src.train.saving.checkpoint_state import (
    Kept,
    checkpoint_exists,
    get_checkpoint_mtimes,
    has_checkpoint,
    meta_graph_filename,
    write_state,
)
from headrace._src.train.saving.object_names import keys_by_name
from headrace._src.train.saving.saveables import by_name
from headrace._src.train.saving.saver_builder import V1, V2, BulkSaverBuilder
from headrace._src.train.sessions.background_saving import Background
from headrace._src.train.sessions.global_step import global_step as global_step_value
from headrace._src.variables.slice_info import with_scope, without_scope

__all__ = ["Saver", "imported_saver"]

_log = logging.getLogger("headrace")

_LIKELY = {
    NotFoundError: "a Variable name or other graph key that is missing from the checkpoint",
    InvalidArgumentError: "a mismatch between the current graph and the graph from the checkpoint",
}
_MISMATCH = (
    "a variable of this graph has another shape or type in the checkpoint: "
    "tf.train.list_variables(checkpoint) lists the checkpoint's contents"
)


_NAMES = ("filename_tensor_name", "save_tensor_name", "restore_op_name")


@export("train.Saver")
class Saver:
    """Saves variables to checkpoints, and restores them.

    var_list          variables (or other saveable objects) in a list, or a dict by the names to
                      store them under; None: all of the graph's
    reshape           reshape the checkpoint's values to the variables' shapes
    sharded           one data file per device
    max_to_keep       how many checkpoints to keep, 0 or None for all
    keep_checkpoint_every_n_hours  of those that would be removed, keep one every n hours
    name              the scope of the nodes, "save" by default
    restore_sequentially  restore one variable after the other
    saver_def         use the nodes that this names instead of making new ones
    builder           the object that makes the nodes, a BulkSaverBuilder by default
    defer_build       make no nodes before `build`
    allow_empty       whether there may be nothing to save
    write_version     SaverDef.V2, or SaverDef.V1 for the older format
    pad_step_number   write the step with eight digits
    save_relative_paths  write paths relative to the state file
    filename          the prefix to use when none is fed
    asynchronous      (not TensorFlow's) let `save` return once the values are copied; `wait` waits
                      for the files, as does the next save. Only for one V2 file.
    exact_resume      (not TensorFlow's) also save the session's other state, beside the checkpoint:
                      random generators, samplers, queues, local variables. A restarted program that
                      restores it continues as if it had never stopped, bit for bit (see
                      `session.resuming`). Only for V2.
    """

    def __init__(
        self,
        var_list: Any = None,
        reshape: bool = False,
        sharded: bool = False,
        max_to_keep: int | None = 5,
        keep_checkpoint_every_n_hours: float = 10000.0,
        name: str | None = None,
        restore_sequentially: bool = False,
        saver_def: Any = None,
        builder: Any = None,
        defer_build: bool = False,
        allow_empty: bool = False,
        write_version: int = V2,
        pad_step_number: bool = False,
        save_relative_paths: bool = False,
        filename: str | None = None,
        *,
        asynchronous: bool = False,
        exact_resume: bool = False,
    ) -> None:
        if exact_resume and write_version != V2:
            raise ValueError("exact_resume needs V2 checkpoints")
        if asynchronous and (sharded or write_version != V2):
            raise ValueError("an asynchronous saver writes V2 checkpoints that aren't sharded")
        if defer_build and var_list is not None:
            raise ValueError(
                "If `var_list` is provided then build cannot be deferred. Either set "
                "defer_build=False or var_list=None."
            )
        if write_version not in (V1, V2):
            raise ValueError(
                f"write_version must be SaverDef.V1 or SaverDef.V2, not {write_version}"
            )
        if saver_def is not None and not isinstance(saver_def, proto.SaverDef):
            raise ValueError(f"saver_def must be a SaverDef: {saver_def!r}")
        self._var_list = var_list
        self._reshape = reshape
        self._sharded = sharded
        self._max_to_keep = max_to_keep or 0
        self._every_n_hours = keep_checkpoint_every_n_hours
        self._name = name
        self._sequentially = restore_sequentially
        self._builder = builder
        self._allow_empty = allow_empty
        self._version = write_version
        self._pad_step_number = pad_step_number
        self._relative = save_relative_paths
        self._filename = filename
        self._background = Background() if asynchronous else None
        self._snapshots = Snapshots()
        self._graph_def = KeptGraphDef()  # many saves write the same graph
        self._exact = exact_resume
        self._is_empty = False
        self._is_built = False
        self.saver_def: Any = saver_def
        if not defer_build:
            self.build()

    def build(self) -> None:
        """Make the nodes, unless a SaverDef names existing ones."""
        if self._is_built:
            return
        self._is_built = True
        if self.saver_def is None:
            self._make_nodes()
        if self.saver_def is not None:
            for name in _NAMES:
                if not getattr(self.saver_def, name):
                    raise ValueError(f"saver_def must specify the {name}: {self.saver_def}")
            self._version = self.saver_def.version
            self._max_to_keep = max(self.saver_def.max_to_keep, 0)
            self._every_n_hours = self.saver_def.keep_checkpoint_every_n_hours
        self._kept = Kept(self._max_to_keep, self._every_n_hours)

    def _make_nodes(self) -> None:
        if self._var_list is None:
            self._var_list = _all_saveables()
        if not self._var_list:
            if not self._allow_empty:
                raise ValueError("No variables to save")
            self._is_empty = True
            return
        builder = self._builder or BulkSaverBuilder(self._version)
        self.saver_def = builder.build(
            self._var_list,
            reshape=self._reshape,
            sharded=self._sharded,
            max_to_keep=self._max_to_keep,
            keep_checkpoint_every_n_hours=self._every_n_hours,
            name=self._name,
            restore_sequentially=self._sequentially,
            filename=self._filename or "model",
        )

    # -- Saving ------------------------------------------------------------------------------------

    def save(
        self,
        sess: BaseSession,
        save_path: str | os.PathLike[str],
        global_step: Any = None,
        latest_filename: str | None = None,
        meta_graph_suffix: str = "meta",
        write_meta_graph: bool = True,
        write_state: bool = True,
        strip_default_attrs: bool = False,
        save_debug_info: bool = False,
    ) -> str | None:
        """Save the variables' values in `sess` to `save_path`, or `save_path`-`global_step`; return
        the prefix to restore from, None if there is nothing to save.

        latest_filename: the state file's name, "checkpoint" by default.
        """
        if not self._is_built:
            raise RuntimeError("`build()` should be called before save if defer_build==True")
        latest_filename = latest_filename or "checkpoint"
        if os.path.split(latest_filename)[0]:
            raise ValueError("'latest_filename' must not contain path components")
        if not isinstance(sess, BaseSession):
            raise TypeError(f"'sess' must be a Session; {sess}")
        self._check_place(sess)
        prefix = self._prefix(sess, os.fspath(save_path), global_step, latest_filename)
        path = None
        if not self._is_empty:
            suffix = meta_graph_suffix if write_state else None
            if self._background is not None:
                self._save_later(self._background, sess, prefix, latest_filename, suffix)
                path = prefix
            else:
                session_state = saved_state(sess) if self._exact else None
                feeds = {self.saver_def.filename_tensor_name: prefix}
                path = as_text(sess.run(self.saver_def.save_tensor_name, feeds))
                self._account(prefix, path, session_state, latest_filename, suffix)
        if write_meta_graph:
            with file_errors(prefix):
                os.makedirs(os.path.dirname(os.path.abspath(prefix)), exist_ok=True)
            with sess.graph.as_default():
                self.export_meta_graph(
                    meta_graph_filename(prefix, meta_graph_suffix),
                    strip_default_attrs=strip_default_attrs,
                    save_debug_info=save_debug_info,
                )
        return path

    def _check_place(self, sess: BaseSession) -> None:
        """Refuse what needs the session's state in this process, if it is in others."""
        asked = {"asynchronous": self._background is not None, "exact_resume": self._exact}
        for option in [name for name, wanted in asked.items() if wanted and sess.sess_str]:
            raise FailedPreconditionError(
                None,
                None,
                f"a saver with {option}=True copies the session's state in this process, but the "
                f"session at {as_text(sess.sess_str)} has it in the tasks of a cluster",
                hint="use tf.train.Saver(sharded=True): each task writes its own part",
            )

    def _account(
        self,
        prefix: str,
        path: str,
        session_state: dict[str, Any] | None,
        latest_filename: str,
        suffix: str | None,
    ) -> None:
        """Finish a save once its checkpoint is complete: write the files beside it and the state
        file, then remove old checkpoints.
        """
        if session_state is not None:
            write_session_file(prefix, session_state)
        if suffix is not None:
            self._kept.record(path)
            self._write_state(os.path.dirname(prefix), path, latest_filename)
            self._kept.remove_old(self._version, suffix)

    def _save_later(
        self,
        background: Background,
        sess: BaseSession,
        prefix: str,
        latest_filename: str,
        suffix: str | None,
    ) -> None:
        background.wait()
        (save,) = sess.graph.get_tensor_by_name(self.saver_def.save_tensor_name).op.control_inputs
        snapshot = self._snapshots.begin(sess, save.inputs[1:])
        names, slices, *values = snapshot.arrays
        tensors = named_tensors(names, slices, values, save._attrs["dtypes"])
        session_state = saved_state(sess) if self._exact else None

        def copied() -> Iterator[NamedTensor]:
            for number, tensor in enumerate(tensors, 2):
                snapshot.wait_for(number)
                yield tensor

        def write() -> None:
            write_bundle(prefix, copied())
            self._account(prefix, prefix, session_state, latest_filename, suffix)

        background.start(write)
        snapshot.copy()  # while the other thread uses the copies

    def wait(self) -> None:
        """Wait until the last asynchronous save is on the disk; raise the error if it failed."""
        if self._background is not None:
            self._background.wait()

    def _prefix(self, sess: Any, save_path: str, global_step: Any, latest_filename: str) -> str:
        if global_step is not None:
            given = isinstance(global_step, numbers.Integral)
            step = int(global_step) if given else global_step_value(sess, global_step)
            return f"{save_path}-{step:08d}" if self._pad_step_number else f"{save_path}-{step}"
        if os.path.basename(save_path) == latest_filename and not self._sharded:
            raise ValueError(
                f"'latest_filename' collides with 'save_path': '{latest_filename}' and "
                f"'{save_path}'"
            )
        return save_path

    def _write_state(self, directory: str, path: str, latest_filename: str) -> None:
        paths = self.last_checkpoints
        if os.path.isabs(directory):  # the state file needs absolute paths then
            paths = [os.path.abspath(p) for p in paths]
        write_state(directory, path, paths, latest_filename, relative=self._relative)

    # -- Restoring ---------------------------------------------------------------------------------

    def restore(self, sess: BaseSession, save_path: str | os.PathLike[str]) -> None:
        """Restore the variables in `sess` from the checkpoint at `save_path`.

        Raises NotFoundError if the checkpoint lacks names, listing them and the names it has;
        InvalidArgumentError, naming the variable, if a shape or type differs; NotFoundError if the
        directory doesn't exist; ValueError if there is no checkpoint in it.
        """
        if self._is_empty:
            return
        if not self._is_built:
            raise RuntimeError("`build()` should be called before restore if defer_build==True")
        if save_path is None:
            raise ValueError("Can't load save_path when it is None.")
        prefix = os.fspath(save_path)
        self._check_place(sess)
        if not checkpoint_exists(prefix):
            raise ValueError(f"The passed save_path is not a valid checkpoint: {prefix}")
        log.info("Restoring parameters from %s", prefix)
        try:
            sess.run(self.saver_def.restore_op_name, {self.saver_def.filename_tensor_name: prefix})
        except (NotFoundError, InvalidArgumentError) as error:
            if isinstance(error, NotFoundError) and self._restore_by_objects(sess, prefix):
                return
            raise _not_restored(error, prefix) from None
        if self._exact:
            self._resume(sess, prefix)

    def _restore_by_objects(self, sess: BaseSession, prefix: str) -> bool:
        """Restore from a checkpoint of tf.train.Checkpoint, by the variables' names when it was
        saved; return False if it isn't one, or lacks some of them.
        """
        keys = keys_by_name(prefix)
        named = self._var_list or {}
        named = named if isinstance(named, dict) else by_name(named)
        if not named or not keys.keys() >= named.keys():
            return False
        log.warning("%s is a checkpoint by objects: variables are found by their names", prefix)
        with sess.graph.as_default():
            found = Saver({keys[name]: v for name, v in named.items()}, reshape=self._reshape)
        found.restore(sess, prefix)
        return True

    def resume(self, sess: BaseSession, save_path: str | os.PathLike[str]) -> None:
        """Restore in `sess` the state that `exact_resume` saved beside the variables, if there is
        any.

        `restore` does this. Repeat it if local variables are initialised afterwards: one of them
        counts the epochs of an input producer.
        """
        with suppress(NotFoundError):
            resume_state(sess, read_session_file(os.fspath(save_path)))

    def _resume(self, sess: BaseSession, prefix: str) -> None:
        """Resume, and warn if training may not continue bit for bit."""
        try:
            state = read_session_file(prefix)
        except NotFoundError as error:
            _log.warning("%s: random generators and queues start over", error.message)
            return
        resume_state(sess, state)
        if unknown := left_over(sess, state):
            _log.warning(
                "%s has the state of %s, which this graph lacks: training won't continue bit "
                "for bit",
                prefix,
                ", ".join(unknown),
            )

    @property
    def exact_resume(self) -> bool:
        """Whether the session's state is saved beside the variables."""
        return self._exact

    # -- The checkpoints so far --------------------------------------------------------------------

    @property
    def last_checkpoints(self) -> list[str]:
        """The prefixes of the checkpoints that are kept, oldest first."""
        return [path for path, _ in self._kept.last]

    def set_last_checkpoints(self, last_checkpoints: Sequence[str]) -> None:
        """Take over the checkpoints of another saver, as if they were very old."""
        self.set_last_checkpoints_with_time([(path, float("nan")) for path in last_checkpoints])

    def set_last_checkpoints_with_time(
        self, last_checkpoints_with_time: Sequence[tuple[str, float]]
    ) -> None:
        """Take over the checkpoints of another saver, given with their times in seconds."""
        if not isinstance(last_checkpoints_with_time, list | tuple):
            raise TypeError(f"expected a list of checkpoints, got {last_checkpoints_with_time!r}")
        self._kept.last = list(last_checkpoints_with_time)

    def recover_last_checkpoints(self, checkpoint_paths: Sequence[str]) -> None:
        """Take over those of the given checkpoints that still exist, as after a restart."""
        existing = [path for path in checkpoint_paths if has_checkpoint(path)]
        self.set_last_checkpoints_with_time(
            list(zip(existing, get_checkpoint_mtimes(existing), strict=True))
        )

    # -- As a message ------------------------------------------------------------------------------

    def as_saver_def(self) -> Any:
        """Return the SaverDef."""
        return self.saver_def

    def to_proto(self, export_scope: str | None = None) -> Any:
        """Return the SaverDef, or None if the saver's nodes lie outside `export_scope`."""
        if export_scope is None or self.saver_def is None:
            return self.saver_def
        found = proto.SaverDef()
        found.CopyFrom(self.saver_def)
        for field in _NAMES:
            name = getattr(found, field)
            if not name.startswith(export_scope):
                return None
            setattr(found, field, without_scope(name, export_scope))
        return found

    @staticmethod
    def from_proto(saver_def: Any, import_scope: str | None = None) -> Saver:
        """Return a saver that uses the nodes of a SaverDef, imported under `import_scope`."""
        moved = proto.SaverDef()
        moved.CopyFrom(saver_def)
        for field in _NAMES:
            setattr(moved, field, with_scope(getattr(moved, field), import_scope))
        return Saver(saver_def=moved, name=import_scope)

    def export_meta_graph(
        self,
        filename: str | os.PathLike[str] | None = None,
        collection_list: Any = None,
        as_text: bool = False,
        export_scope: str | None = None,
        clear_devices: bool = False,
        clear_extraneous_savers: bool = False,
        strip_default_attrs: bool = False,
        save_debug_info: bool = False,
    ) -> Any:
        """Return the default graph and this saver as a MetaGraphDef; write it to `filename`, if
        given.
        """
        return meta_graph.export_meta_graph(
            filename=filename,
            graph_def=self._graph_def.of(get_default_graph()),
            saver_def=self.saver_def,
            collection_list=collection_list,
            as_text=as_text,
            export_scope=export_scope,
            clear_devices=clear_devices,
            clear_extraneous_savers=clear_extraneous_savers,
            strip_default_attrs=strip_default_attrs,
            save_debug_info=save_debug_info,
        )


def _not_restored(error: OpError, prefix: str) -> OpError:
    """Return the error of a failed restore, in TensorFlow's words, with the checkpoint and the
    cause.
    """
    kind = NotFoundError if isinstance(error, NotFoundError) else InvalidArgumentError
    message = (
        f"Restoring from checkpoint failed. This is most likely due to {_LIKELY[kind]}. Please "
        "ensure that you have not altered the graph expected based on the checkpoint. Original "
        f"error:\n\n{error.message}"
    )
    failed = kind(error.node_def, error.op, message, hint=error.hint or _MISMATCH)
    failed.add_detail(f"checkpoint: {prefix}")
    for line in error.details:
        failed.add_detail(line)
    return failed


def _all_saveables(scope: str | None = None) -> list[Any]:
    graph = get_default_graph()
    keys = (GraphKeys.GLOBAL_VARIABLES, GraphKeys.SAVEABLE_OBJECTS)
    return [item for key in keys for item in graph.get_collection(key, scope)]


def imported_saver(saver_def: Any, import_scope: str | None) -> Saver | None:
    """Return the saver of an imported graph: its own, or a new one, or None if there's nothing to
    save.
    """
    if saver_def is not None:
        return Saver.from_proto(saver_def, import_scope)
    return Saver() if _all_saveables(import_scope) else None


register_proto_function(
    GraphKeys.SAVERS, "SaverDef", to_proto=Saver.to_proto, from_proto=Saver.from_proto
)
