"""The hook that logs tensors. In: tensors, and how often. Out: lines such as
`loss = 0.5, step = 100 (0.200 sec)`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from headrace._src.core import log
from headrace._src.core.export import export
from headrace._src.train.sessions.hooks.elements import graph_element
from headrace._src.train.sessions.hooks.timers import NeverTimer, SecondOrStepTimer, Timer
from headrace._src.train.sessions.session_run_hook import (
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
)

__all__ = ["LoggingTensorHook"]


@export("train.LoggingTensorHook", "estimator.LoggingTensorHook")
class LoggingTensorHook(SessionRunHook):
    """Logs the values of tensors every `every_n_iter` runs or `every_n_secs` seconds, and after the
    last run if `at_end`.

    tensors: tensors or their names in a list, or in a dict by the labels to log. formatter: turns
    the dict of values into the line.
    """

    def __init__(
        self,
        tensors: Any,
        every_n_iter: int | None = None,
        every_n_secs: float | None = None,
        at_end: bool = False,
        formatter: Callable[[dict[Any, Any]], str] | None = None,
    ) -> None:
        only_at_end = at_end and every_n_iter is None and every_n_secs is None
        if not only_at_end and (every_n_iter is None) == (every_n_secs is None):
            raise ValueError(
                "either at_end and/or exactly one of every_n_iter and every_n_secs must be "
                "provided."
            )
        if every_n_iter is not None and every_n_iter <= 0:
            raise ValueError(f"invalid every_n_iter={every_n_iter}.")
        if isinstance(tensors, Mapping):
            self._tags = sorted(tensors)
            self._tensors = dict(tensors)
        else:
            self._tags = list(tensors)
            self._tensors = {item: item for item in self._tags}
        self._formatter = formatter
        self._at_end = at_end
        self._timer: Timer = NeverTimer()
        if not only_at_end:
            self._timer = SecondOrStepTimer(every_secs=every_n_secs, every_steps=every_n_iter)

    def begin(self) -> None:
        self._timer.reset()
        self._runs = 0
        self._fetches = {tag: graph_element(item) for tag, item in self._tensors.items()}

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        self._due = self._timer.should_trigger_for_step(self._runs)
        return SessionRunArgs(self._fetches) if self._due else None

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        if self._due:
            self._log(run_values.results)
        self._runs += 1

    def end(self, session: Any) -> None:
        if self._at_end:
            self._log(session.run(self._fetches))

    def _log(self, values: dict[Any, Any]) -> None:
        seconds, _ = self._timer.update_last_triggered_step(self._runs)
        with np.printoptions(suppress=True):
            if self._formatter is not None:
                log.info(self._formatter(values))
                return
            line = ", ".join(f"{tag!s} = {values[tag]!s}" for tag in self._tags)
        if seconds is None:
            log.info("%s", line)
        else:
            log.info("%s (%.3f sec)", line, seconds)
