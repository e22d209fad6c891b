"""The hook that counts steps per second, for the log and as a summary."""

from __future__ import annotations

from typing import Any

from headrace._src.core import log, proto
from headrace._src.core.export import export
from headrace._src.summary.writer import FileWriterCache
from headrace._src.train.sessions.global_step import get_global_step, read_global_step
from headrace._src.train.sessions.hooks.timers import SecondOrStepTimer
from headrace._src.train.sessions.session_run_hook import (
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
)

__all__ = ["StepCounterHook"]


@export("train.StepCounterHook", "estimator.StepCounterHook")
class StepCounterHook(SessionRunHook):
    """Reports the steps per second every `every_n_steps` steps or `every_n_secs` seconds.

    summary_writer, or output_dir for the writer of a directory: where the summary goes.
    """

    def __init__(
        self,
        every_n_steps: int | None = 100,
        every_n_secs: float | None = None,
        output_dir: str | None = None,
        summary_writer: Any = None,
    ) -> None:
        if (every_n_steps is None) == (every_n_secs is None):
            raise ValueError("exactly one of every_n_steps and every_n_secs should be provided.")
        self._timer = SecondOrStepTimer(every_secs=every_n_secs, every_steps=every_n_steps)
        self._summary_writer = summary_writer
        self._output_dir = output_dir
        self._previous: int | None = None  # the step after the last run

    def begin(self) -> None:
        if self._summary_writer is None and self._output_dir:
            self._summary_writer = FileWriterCache.get(self._output_dir)
        self._global_step_tensor = read_global_step("StepCounterHook")
        self._tag = f"{get_global_step().op.name}/sec"

    def after_create_session(self, session: Any, coord: Any) -> None:
        self._previous = None  # after a restore, the step may be one seen before

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        return SessionRunArgs(self._global_step_tensor)

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        stale = run_values.results
        if self._timer.should_trigger_for_step(stale + 1):
            step = run_context.session.run(self._global_step_tensor)
            if self._timer.should_trigger_for_step(step):
                seconds, steps = self._timer.update_last_triggered_step(step)
                if seconds and steps is not None:
                    self._tell(steps / seconds, step)
        if stale == self._previous:
            log.log_first_n(
                log.WARN,
                "It seems that global step (tf.train.get_global_step) has not been increased. "
                "Current value (could be stable): %s vs previous value: %s. You could increase "
                "the global step by passing tf.train.get_global_step() to "
                "Optimizer.apply_gradients or Optimizer.minimize.",
                5,
                stale,
                self._previous,
            )
        self._previous = stale

    def _tell(self, steps_per_second: float, step: int) -> None:
        if self._summary_writer is not None:
            summary = proto.Summary()
            summary.value.add(tag=self._tag, simple_value=steps_per_second)
            self._summary_writer.add_summary(summary, step)
        log.info("%s: %g", self._tag, steps_per_second)
