"""The hook that saves checkpoints. In: a directory, and how often. Out: checkpoints at the first
step, at that interval, and at the end; the graph beside them and in the events.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from headrace._src.core import log, proto
from headrace._src.core.export import export
from headrace._src.graph import meta_graph
from headrace._src.graph.default import get_default_graph
from headrace._src.graph.graph_io import write_graph
from headrace._src.graph.keys import GraphKeys
from headrace._src.summary.writer import FileWriterCache
from headrace._src.train.saving.saver import Saver
from headrace._src.train.sessions.global_step import read_global_step
from headrace._src.train.sessions.hooks.timers import SecondOrStepTimer
from headrace._src.train.sessions.scaffold import Scaffold
from headrace._src.train.sessions.session_run_hook import (
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
)

__all__ = ["CheckpointSaverHook", "CheckpointSaverListener"]


@export("train.CheckpointSaverListener", "estimator.CheckpointSaverListener")
class CheckpointSaverListener:
    """Is notified when a CheckpointSaverHook saves; override the methods of interest."""

    def begin(self) -> None:
        """Called once, while the graph may still change."""

    def before_save(self, session: Any, global_step_value: int) -> None:
        """Called before each save."""

    def after_save(self, session: Any, global_step_value: int) -> Any:
        """Called after each save; training stops if it returns a true value."""

    def end(self, session: Any, global_step_value: int) -> None:
        """Called at the end of training, after the last save."""


@export("train.CheckpointSaverHook", "estimator.CheckpointSaverHook")
class CheckpointSaverHook(SessionRunHook):
    """Saves every `save_secs` seconds or `save_steps` steps to `checkpoint_dir`.

    saver, or scaffold for its saver; by default, the one in the collection SAVERS.
    checkpoint_basename: the prefix of checkpoint names.
    """

    def __init__(
        self,
        checkpoint_dir: str,
        save_secs: float | None = None,
        save_steps: int | None = None,
        saver: Saver | None = None,
        checkpoint_basename: str = "model.ckpt",
        scaffold: Scaffold | None = None,
        listeners: Sequence[CheckpointSaverListener] | None = None,
    ) -> None:
        log.info("Create CheckpointSaverHook.")
        if saver is not None and scaffold is not None:
            raise ValueError("You cannot provide both saver and scaffold.")
        self._saver = saver
        self._scaffold = scaffold
        self._checkpoint_dir = checkpoint_dir
        self._save_path = os.path.join(checkpoint_dir, checkpoint_basename)
        self._timer = SecondOrStepTimer(every_secs=save_secs, every_steps=save_steps)
        self._listeners = list(listeners or [])

    def begin(self) -> None:
        self._summary_writer = FileWriterCache.get(self._checkpoint_dir)
        self._global_step_tensor = read_global_step("CheckpointSaverHook")
        for listener in self._listeners:
            listener.begin()

    def after_create_session(self, session: Any, coord: Any) -> None:
        step = session.run(self._global_step_tensor)
        graph = get_default_graph()
        graph_def = graph.as_graph_def(add_shapes=True)
        write_graph(graph_def, self._checkpoint_dir, "graph.pbtxt")
        saver_def = getattr(self._get_saver(), "saver_def", None)
        self._summary_writer.add_graph(graph)
        self._summary_writer.add_meta_graph(
            meta_graph.export_meta_graph(graph=graph, graph_def=graph_def, saver_def=saver_def)
        )
        # Save at the very beginning, so that even an early failure can be recovered from.
        self._save(session, step)
        self._timer.update_last_triggered_step(step)

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        return SessionRunArgs(self._global_step_tensor)

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        # The fetched step may be the one before or after the training operation.
        if not self._timer.should_trigger_for_step(run_values.results + 1):
            return
        step = run_context.session.run(self._global_step_tensor)
        if self._timer.should_trigger_for_step(step):
            self._timer.update_last_triggered_step(step)
            if self._save(run_context.session, step):
                run_context.request_stop()

    def end(self, session: Any) -> None:
        last = session.run(self._global_step_tensor)
        if last != self._timer.last_triggered_step():
            self._save(session, last)
        if isinstance(saver := self._get_saver(), Saver):
            saver.wait()  # for an asynchronous save that is still being written
        for listener in self._listeners:
            listener.end(session, last)

    def _save(self, session: Any, step: int) -> bool:
        """Save, and notify the listeners; return whether one of them wants to stop."""
        log.info("Saving checkpoints for %d into %s.", step, self._save_path)
        for listener in self._listeners:
            listener.before_save(session, step)
        self._get_saver().save(session, self._save_path, global_step=step)
        self._summary_writer.add_session_log(
            proto.SessionLog(status=proto.SessionLog.CHECKPOINT, checkpoint_path=self._save_path),
            step,
        )
        should_stop = False
        for listener in self._listeners:
            if listener.after_save(session, step):
                log.info(
                    "A CheckpointSaverListener requested that training be stopped. listener: %s",
                    listener,
                )
                should_stop = True
        return should_stop

    def _get_saver(self) -> Any:
        if self._saver is not None:
            return self._saver
        if self._scaffold is not None:
            return self._scaffold.saver
        savers = get_default_graph().get_collection(GraphKeys.SAVERS)
        if not savers:
            raise RuntimeError(
                f"No items in collection {GraphKeys.SAVERS}. Please add a saver to the collection "
                "or provide a saver or scaffold."
            )
        if len(savers) > 1:
            raise RuntimeError(
                f"More than one item in collection {GraphKeys.SAVERS}. Please indicate which one "
                "to use by passing it to the constructor."
            )
        self._saver = savers[0]
        return self._saver
