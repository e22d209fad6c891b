"""tf.train.CheckpointManager: keep the last checkpoints of a Checkpoint. In: saves. Out: a
directory with the checkpoints to keep, and the state file that names them.
"""

from __future__ import annotations

import numbers
import os
import sys
from typing import Any

from headrace._src.core.export import export
from headrace._src.train.saving.checkpoint_state import (
    Kept,
    get_checkpoint_state,
    has_checkpoint,
    write_state,
)
from headrace._src.train.saving.object_checkpoint import Checkpoint, session_for

__all__ = ["CheckpointManager"]

_NEVER = 1e6  # hours


@export("train.CheckpointManager")
class CheckpointManager:
    """Keeps the last `max_to_keep` checkpoints in a directory, all if None.

    keep_checkpoint_every_n_hours: of those that would be removed, keep one every n hours.
    checkpoint_name: the prefix of their names. Checkpoints that an earlier manager left in the
    directory count; others are neither listed nor removed.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        directory: str | os.PathLike[str],
        max_to_keep: int | None,
        keep_checkpoint_every_n_hours: float | None = None,
        checkpoint_name: str = "ckpt",
    ) -> None:
        if max_to_keep is not None and max_to_keep <= 0:
            raise ValueError(
                f"Expected a positive integer or `None` for `max_to_keep`, got {max_to_keep}."
            )
        self._checkpoint = checkpoint
        self._directory = os.fspath(directory)
        self._prefix = os.path.join(self._directory, checkpoint_name)
        self._kept = Kept(max_to_keep or sys.maxsize, keep_checkpoint_every_n_hours or _NEVER)
        self._latest: str | None = None
        state = get_checkpoint_state(self._directory)
        if state is not None:
            # Only a manager records the times: without them, the paths are not a manager's.
            times = state.all_model_checkpoint_timestamps
            entries = zip(state.all_model_checkpoint_paths, times, strict=False)
            self._kept.last = [(path, made) for path, made in entries if has_checkpoint(path)]
            if has_checkpoint(state.model_checkpoint_path):
                self._latest = state.model_checkpoint_path

    @property
    def latest_checkpoint(self) -> str | None:
        """The prefix of the last checkpoint, None if there is none."""
        return self._latest

    @property
    def checkpoints(self) -> list[str]:
        """The prefixes of the checkpoints that are kept, oldest first."""
        return [path for path, _ in self._kept.last]

    def save(self, checkpoint_number: Any = None) -> str:
        """Save a checkpoint, remove those no longer to be kept, and return its prefix. The prefix
        ends with `checkpoint_number`, a number or a tensor, or else with the number of saves.
        """
        session = session_for(None)
        count = self._checkpoint.count_save(session)
        number = count if checkpoint_number is None else checkpoint_number
        if not isinstance(number, numbers.Integral):
            number = session.run(number)
        path = self._checkpoint.write(f"{self._prefix}-{int(number)}", session)
        self._latest = path
        self._kept.record(path)
        times = [made for _, made in self._kept.last]
        write_state(self._directory, path, self.checkpoints, None, times, relative=True)
        self._kept.remove_old(2, "meta")
        return path
