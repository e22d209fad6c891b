"""The checkpoints of a directory. In: prefixes of checkpoints. Out: the state file and its
contents; the files of a checkpoint, their times, and their removal.

The state file, `checkpoint` by default, names the latest checkpoint and those before it that are
kept. It is replaced atomically, after the checkpoint that it names is complete.
"""

from __future__ import annotations

import glob
import logging
import os
import re
import time
from collections.abc import Sequence

from headrace._src.checkpoint.bundle import bundle_exists, bundle_files, finish_pending, index_name
from headrace._src.checkpoint.session_files import remove_session_file
from headrace._src.core import proto
from headrace._src.core.errors import NotFoundError
from headrace._src.core.export import export
from headrace._src.core.files import remove, replace_file

__all__ = [
    "checkpoint_exists",
    "get_checkpoint_mtimes",
    "get_checkpoint_state",
    "latest_checkpoint",
    "meta_graph_filename",
    "remove_checkpoint",
    "update_checkpoint_state",
]

_log = logging.getLogger("headrace")

_V2 = 2  # SaverDef.V2, without loading the proto


def _state_file(directory: str | os.PathLike[str], latest_filename: str | None) -> str:
    return os.path.join(directory, latest_filename or "checkpoint")


@export("train.generate_checkpoint_state_proto")
def generate_checkpoint_state_proto(
    save_dir: str,
    model_checkpoint_path: str,
    all_model_checkpoint_paths: Sequence[str] | None = None,
    all_model_checkpoint_timestamps: Sequence[float] | None = None,
    last_preserved_timestamp: float | None = None,
) -> proto.CheckpointState:
    """Return the CheckpointState that names a latest checkpoint and all that are kept; where
    `save_dir` is a relative path, paths are written relative to it.
    """
    paths = list(all_model_checkpoint_paths or [])
    if model_checkpoint_path not in paths:
        paths.append(model_checkpoint_path)
    times = list(all_model_checkpoint_timestamps or [])
    if times and len(times) != len(paths):
        raise ValueError(
            "Checkpoint timestamps, if provided, must match checkpoint paths (got paths "
            f"{paths} and timestamps {times})"
        )
    if not os.path.isabs(save_dir):
        paths = [_seen_from(save_dir, path) for path in paths]
        model_checkpoint_path = _seen_from(save_dir, model_checkpoint_path)
    return proto.CheckpointState(
        model_checkpoint_path=model_checkpoint_path,
        all_model_checkpoint_paths=paths,
        all_model_checkpoint_timestamps=times,
        last_preserved_timestamp=last_preserved_timestamp or 0.0,
    )


def _seen_from(directory: str, path: str) -> str:
    return path if os.path.isabs(path) else os.path.relpath(path, directory or ".")


@export("train.update_checkpoint_state")
def update_checkpoint_state(
    save_dir: str,
    model_checkpoint_path: str,
    all_model_checkpoint_paths: Sequence[str] | None = None,
    latest_filename: str | None = None,
    all_model_checkpoint_timestamps: Sequence[float] | None = None,
    last_preserved_timestamp: float | None = None,
) -> None:
    """Write the state file of a directory."""
    write_state(
        save_dir,
        model_checkpoint_path,
        all_model_checkpoint_paths,
        latest_filename,
        all_model_checkpoint_timestamps,
        last_preserved_timestamp,
    )


def write_state(
    save_dir: str,
    latest: str,
    paths: Sequence[str] | None,
    latest_filename: str | None,
    times: Sequence[float] | None = None,
    last_preserved: float | None = None,
    relative: bool = False,
) -> None:
    """Write the state file; with `relative`, all paths in it are relative to the directory."""
    if relative:
        paths = [os.path.relpath(p, save_dir or ".") for p in paths or []]
        latest = os.path.relpath(latest, save_dir or ".")
        found = generate_checkpoint_state_proto(os.sep, latest, paths, times, last_preserved)
    else:
        found = generate_checkpoint_state_proto(save_dir, latest, paths, times, last_preserved)
    state_file = _state_file(save_dir, latest_filename)
    if found.model_checkpoint_path == state_file:
        raise RuntimeError(
            f"Save path '{latest}' conflicts with path used for checkpoint state. Please use a "
            "different save path."
        )
    replace_file(state_file, [proto.text_format.MessageToString(found).encode()])


@export("train.get_checkpoint_state")
def get_checkpoint_state(
    checkpoint_dir: str | os.PathLike[str], latest_filename: str | None = None
) -> proto.CheckpointState | None:
    """Return the CheckpointState of a directory, with relative paths joined to the directory; None
    if there is no readable one.
    """
    path = _state_file(checkpoint_dir, latest_filename)
    try:
        with open(path, encoding="utf-8") as file:
            found = proto.text_format.Parse(file.read(), proto.CheckpointState())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, UnicodeDecodeError, proto.text_format.ParseError) as error:
        _log.warning("%s: %s: the checkpoint state is ignored", path, error)
        return None
    if not found.model_checkpoint_path:
        raise ValueError(f"Invalid checkpoint state loaded from {checkpoint_dir}")
    found.model_checkpoint_path = os.path.join(checkpoint_dir, found.model_checkpoint_path)
    for i, kept in enumerate(found.all_model_checkpoint_paths):
        found.all_model_checkpoint_paths[i] = os.path.join(checkpoint_dir, kept)
    return found


@export("train.latest_checkpoint")
def latest_checkpoint(
    checkpoint_dir: str | os.PathLike[str], latest_filename: str | None = None
) -> str | None:
    """Return the prefix of the latest checkpoint of a directory, None if there is none."""
    state = get_checkpoint_state(checkpoint_dir, latest_filename)
    if state is None:
        return None
    if has_checkpoint(state.model_checkpoint_path):
        return state.model_checkpoint_path
    _log.error("Couldn't match files for checkpoint %s", state.model_checkpoint_path)
    return None


@export("train.checkpoint_exists")
def checkpoint_exists(checkpoint_prefix: str | os.PathLike[str]) -> bool:
    """Return whether there is a checkpoint, V2 or V1, at a prefix; NotFoundError if there isn't
    even the directory.
    """
    prefix = os.fspath(checkpoint_prefix)
    check_directory(prefix)
    return has_checkpoint(prefix)


def check_directory(prefix: str) -> None:
    """Raise NotFoundError if the directory of a checkpoint doesn't exist."""
    directory = os.path.dirname(prefix)
    if directory and not os.path.isdir(directory):
        raise NotFoundError(None, None, f"{directory}; No such file or directory")


def has_checkpoint(prefix: str) -> bool:
    """Return whether there is a checkpoint, V2 or V1, at a prefix."""
    return bundle_exists(prefix) or bool(_v1_files(prefix))


def _v1_files(prefix: str) -> list[str]:
    return [prefix] if os.path.isfile(prefix) else sorted(filter(os.path.isfile, glob.glob(prefix)))


@export("train.get_checkpoint_mtimes")
def get_checkpoint_mtimes(checkpoint_prefixes: Sequence[str | os.PathLike[str]]) -> list[float]:
    """Return when checkpoints were made, in seconds; those that don't exist are left out."""
    found = []
    for prefix in [os.fspath(prefix) for prefix in checkpoint_prefixes]:
        finish_pending(prefix)
        paths = [index_name(prefix)] if bundle_exists(prefix) else _v1_files(prefix)
        found += [os.stat(path).st_mtime for path in paths[:1]]
    return found


def meta_graph_filename(checkpoint_filename: str, meta_graph_suffix: str = "meta") -> str:
    """The file of the graph that belongs to a checkpoint; the shards of a V1 one share it."""
    whole = re.sub(r"-[\d?]+-of-\d+$", "", checkpoint_filename)
    return f"{whole}.{meta_graph_suffix}"


@export("train.remove_checkpoint")
def remove_checkpoint(
    checkpoint_prefix: str,
    checkpoint_format_version: int = _V2,
    meta_graph_suffix: str = "meta",
) -> None:
    """Remove the files of a checkpoint, the index first, so that readers never find a partial
    checkpoint.

    checkpoint_format_version: a SaverDef.CheckpointFormatVersion.
    """
    check_directory(checkpoint_prefix)
    is_v2 = checkpoint_format_version == _V2
    for path in bundle_files(checkpoint_prefix) if is_v2 else _v1_files(checkpoint_prefix):
        remove(path)
    remove_session_file(checkpoint_prefix)
    remove(meta_graph_filename(checkpoint_prefix, meta_graph_suffix))


class Kept:
    """The checkpoints that a saver keeps. State: (prefix, time) of the last ones, those to be
    removed, and the time after which the next one is kept permanently.
    """

    def __init__(self, max_to_keep: int, every_n_hours: float) -> None:
        self.max_to_keep = max_to_keep
        self._interval = 3600.0 * every_n_hours
        self._next_kept = time.time() + self._interval
        self.last: list[tuple[str, float]] = []
        self._to_remove: list[tuple[str, float]] = []

    def record(self, path: str) -> None:
        """Add the newest; mark the oldest for removal if there are too many."""
        if not self.max_to_keep:
            return
        self.last = [entry for entry in self.last if entry[0] != path]
        self._to_remove = [entry for entry in self._to_remove if entry[0] != path]
        self.last.append((path, time.time()))
        while len(self.last) > self.max_to_keep:
            self._to_remove.append(self.last.pop(0))

    def remove_old(self, version: int, meta_graph_suffix: str) -> None:
        """Remove the checkpoints no longer kept, except one every n hours."""
        for path, made in self._to_remove:
            if made > self._next_kept:
                self._next_kept += self._interval
                continue
            try:
                remove_checkpoint(path, version, meta_graph_suffix)
            except OSError as error:  # the checkpoint is saved: training continues
                _log.warning("an old checkpoint stays: %s", error)
        self._to_remove = []
