"""The hook that writes summaries. In: summary operations, and how often. Out: events."""

from __future__ import annotations

from typing import Any

from headrace._src.core import proto
from headrace._src.core.export import export
from headrace._src.summary.writer import FileWriterCache
from headrace._src.train.sessions.global_step import read_global_step
from headrace._src.train.sessions.hooks.timers import SecondOrStepTimer
from headrace._src.train.sessions.scaffold import Scaffold
from headrace._src.train.sessions.session_run_hook import (
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
)

__all__ = ["SummarySaverHook"]


@export("train.SummarySaverHook", "estimator.SummarySaverHook")
class SummarySaverHook(SessionRunHook):
    """Writes summaries every `save_steps` steps or `save_secs` seconds.

    summary_writer, or output_dir for the writer of a directory: where they go. summary_op: a tensor
    or a list of them, or scaffold, for its summary_op.
    """

    def __init__(
        self,
        save_steps: int | None = None,
        save_secs: float | None = None,
        output_dir: str | None = None,
        summary_writer: Any = None,
        scaffold: Scaffold | None = None,
        summary_op: Any = None,
    ) -> None:
        if (scaffold is None) == (summary_op is None):
            raise ValueError("Exactly one of scaffold or summary_op must be provided.")
        self._summary_op = summary_op
        self._summary_writer = summary_writer
        self._output_dir = output_dir
        self._scaffold = scaffold
        self._timer = SecondOrStepTimer(every_secs=save_secs, every_steps=save_steps)

    def begin(self) -> None:
        if self._summary_writer is None and self._output_dir:
            self._summary_writer = FileWriterCache.get(self._output_dir)
        self._next_step: int | None = None
        self._global_step_tensor = read_global_step("SummarySaverHook")

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        self._due = self._next_step is None or self._timer.should_trigger_for_step(self._next_step)
        if self._due:
            return SessionRunArgs([self._global_step_tensor, *self._summaries()])
        return SessionRunArgs(self._global_step_tensor)

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        writer = self._summary_writer
        if writer is None:
            return
        if not self._due:
            # An upper bound: the fetched step may be the one before or after this run.
            self._next_step = run_values.results + 2
            return
        step = run_context.session.run(self._global_step_tensor)
        if self._next_step is None:
            writer.add_session_log(proto.SessionLog(status=proto.SessionLog.START), step)
        self._next_step = step + 1
        if self._timer.should_trigger_for_step(step):
            self._timer.update_last_triggered_step(step)
            for summary in run_values.results[1:]:
                writer.add_summary(summary, step)

    def end(self, session: Any = None) -> None:
        if self._summary_writer is not None:
            self._summary_writer.flush()

    def _summaries(self) -> list[Any]:
        found = self._summary_op
        if found is None and self._scaffold is not None:
            found = self._scaffold.summary_op
        if found is None:
            return []
        return found if isinstance(found, list) else [found]
