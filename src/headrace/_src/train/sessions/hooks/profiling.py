"""The hook that profiles runs. In: how often. Out: `timeline-<step>.json` files for
chrome://tracing, and metadata of runs in the events.
"""

from __future__ import annotations

import os

from headrace._src.core import log, proto
from headrace._src.core.export import export
from headrace._src.core.files import replace_file
from headrace._src.session.chrome_timeline import Timeline
from headrace._src.summary.writer import FileWriterCache
from headrace._src.train.sessions.global_step import read_global_step
from headrace._src.train.sessions.hooks.timers import SecondOrStepTimer
from headrace._src.train.sessions.session_run_hook import (
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
)

__all__ = ["ProfilerHook"]


@export("train.ProfilerHook", "estimator.ProfilerHook")
class ProfilerHook(SessionRunHook):
    """Traces a run every `save_steps` steps or `save_secs` seconds, but not the first one.

    output_dir: where the files go. show_dataflow, show_memory: see Timeline.
    """

    def __init__(
        self,
        save_steps: int | None = None,
        save_secs: float | None = None,
        output_dir: str = "",
        show_dataflow: bool = True,
        show_memory: bool = False,
    ) -> None:
        self._timer = SecondOrStepTimer(every_secs=save_secs, every_steps=save_steps)
        self._output_dir = output_dir
        self._file_writer = FileWriterCache.get(output_dir)
        self._show_dataflow = show_dataflow
        self._show_memory = show_memory

    def begin(self) -> None:
        self._next_step: int | None = None
        self._global_step_tensor = read_global_step("ProfilerHook")

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        self._due = self._next_step is not None and self._timer.should_trigger_for_step(
            self._next_step
        )
        options = None
        if self._due:
            options = proto.RunOptions(trace_level=proto.RunOptions.FULL_TRACE)
        return SessionRunArgs(self._global_step_tensor, options=options)

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        if self._next_step is not None and not self._due:
            # An upper bound: the fetched step may be the one before or after this run.
            self._next_step = run_values.results + 2
            return
        step = run_context.session.run(self._global_step_tensor)
        if self._next_step is None:  # counted from before the first run
            self._timer.update_last_triggered_step(step - 1)
        elif self._timer.should_trigger_for_step(step):
            self._timer.update_last_triggered_step(step)
            self._save(step, run_values.run_metadata)
        self._next_step = step + 1

    def _save(self, step: int, metadata: proto.RunMetadata) -> None:
        path = os.path.join(self._output_dir, f"timeline-{step}.json")
        log.info("Saving timeline for %d into '%s'.", step, path)
        trace = Timeline(metadata.step_stats).generate_chrome_trace_format(
            self._show_dataflow, self._show_memory
        )
        replace_file(path, [trace.encode()])
        self._file_writer.add_run_metadata(metadata, f"step_{step}")
