"""Early stopping: hooks that end training depending on the results of evaluations, read from event
files.
"""

from __future__ import annotations

import glob
import operator
import os
from collections.abc import Callable

from headrace._src.core import log
from headrace._src.core.export import export
from headrace._src.estimator.estimator import Estimator
from headrace._src.summary.event_reader import summary_iterator
from headrace._src.train.sessions.global_step import read_global_step
from headrace._src.train.sessions.hooks.timers import SecondOrStepTimer
from headrace._src.train.sessions.session_run_hook import (
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
)

__all__ = [
    "make_early_stopping_hook",
    "stop_if_higher_hook",
    "stop_if_lower_hook",
    "stop_if_no_decrease_hook",
    "stop_if_no_increase_hook",
]

Verdict = Callable[[], bool]


class _StopHook(SessionRunHook):
    """Asks a function at an interval whether to stop."""

    def __init__(self, should_stop: Verdict, secs: float | None, steps: int | None) -> None:
        if not callable(should_stop):
            raise TypeError("`should_stop_fn` must be callable.")
        self._should_stop = should_stop
        self._timer = SecondOrStepTimer(every_secs=secs, every_steps=steps)

    def begin(self) -> None:
        self._step = read_global_step("early stopping")

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        return SessionRunArgs(self._step)

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        step = int(run_values.results)
        if self._timer.should_trigger_for_step(step):
            self._timer.update_last_triggered_step(step)
            if self._should_stop():
                log.info("Requesting early stopping at global step %d", step)
                run_context.request_stop()


@export("estimator.experimental.make_early_stopping_hook")
def make_early_stopping_hook(
    estimator: Estimator,
    should_stop_fn: Verdict,
    run_every_secs: float | None = 60,
    run_every_steps: int | None = None,
) -> SessionRunHook:
    """Return a hook that stops training when `should_stop_fn()` returns True."""
    if not isinstance(estimator, Estimator):
        raise TypeError(
            f"`estimator` must have type `tf.estimator.Estimator`. Got: {type(estimator)}"
        )
    if run_every_secs is not None and run_every_steps is not None:
        raise ValueError("Only one of `run_every_secs` and `run_every_steps` must be set.")
    return _StopHook(should_stop_fn, run_every_secs, run_every_steps)


def _results(directory: str, metric: str, min_steps: int) -> list[tuple[int, float]]:
    """Return a metric's values by step, of all evaluations so far."""
    found = {}
    for path in sorted(glob.glob(os.path.join(glob.escape(directory), "events.out.tfevents.*"))):
        for event in summary_iterator(path):
            values = event.summary.value if event.HasField("summary") else []
            metrics = {v.tag: v.simple_value for v in values if v.HasField("simple_value")}
            if metrics and event.step >= min_steps:
                if metric not in metrics:
                    raise KeyError(f"No metric {metric!r} among {sorted(metrics)} in {path}")
                found[event.step] = metrics[metric]
    return sorted(found.items())


def _threshold_hook(
    better: Callable[[float, float], bool],
    estimator: Estimator,
    metric_name: str,
    threshold: float,
    eval_dir: str | None,
    min_steps: int,
    run_every_secs: float | None,
    run_every_steps: int | None,
) -> SessionRunHook:
    def crossed() -> bool:
        for step, value in _results(eval_dir or estimator.eval_dir(), metric_name, min_steps):
            if better(value, threshold):
                log.info(
                    'At step %s, metric "%s" has value %s, beyond the configured threshold (%s) '
                    "for early stopping.",
                    *(step, metric_name, value, threshold),
                )
                return True
        return False

    return make_early_stopping_hook(estimator, crossed, run_every_secs, run_every_steps)


def _improvement_hook(
    better: Callable[[float, float], bool],
    estimator: Estimator,
    metric_name: str,
    patience: int,
    eval_dir: str | None,
    min_steps: int,
    run_every_secs: float | None,
    run_every_steps: int | None,
) -> SessionRunHook:
    def stalled() -> bool:
        best: tuple[int, float] | None = None
        for step, value in _results(eval_dir or estimator.eval_dir(), metric_name, min_steps):
            if best is None or better(value, best[1]):
                best = (step, value)
            if step - best[0] >= patience:
                log.info(
                    'No improvement of metric "%s" for %s steps, and %s are configured for early '
                    "stopping.",
                    *(metric_name, step - best[0], patience),
                )
                return True
        return False

    return make_early_stopping_hook(estimator, stalled, run_every_secs, run_every_steps)


@export("estimator.experimental.stop_if_higher_hook")
def stop_if_higher_hook(
    estimator: Estimator,
    metric_name: str,
    threshold: float,
    eval_dir: str | None = None,
    min_steps: int = 0,
    run_every_secs: float | None = 60,
    run_every_steps: int | None = None,
) -> SessionRunHook:
    """Return a hook that stops when a metric gets above a threshold.

    eval_dir: the directory of evaluations; the estimator's if None. min_steps: evaluations of
    earlier steps don't count.
    """
    rest = (metric_name, threshold, eval_dir, min_steps, run_every_secs, run_every_steps)
    return _threshold_hook(operator.gt, estimator, *rest)


@export("estimator.experimental.stop_if_lower_hook")
def stop_if_lower_hook(
    estimator: Estimator,
    metric_name: str,
    threshold: float,
    eval_dir: str | None = None,
    min_steps: int = 0,
    run_every_secs: float | None = 60,
    run_every_steps: int | None = None,
) -> SessionRunHook:
    """Return a hook that stops when a metric gets below a threshold."""
    rest = (metric_name, threshold, eval_dir, min_steps, run_every_secs, run_every_steps)
    return _threshold_hook(operator.lt, estimator, *rest)


@export("estimator.experimental.stop_if_no_increase_hook")
def stop_if_no_increase_hook(
    estimator: Estimator,
    metric_name: str,
    max_steps_without_increase: int,
    eval_dir: str | None = None,
    min_steps: int = 0,
    run_every_secs: float | None = 60,
    run_every_steps: int | None = None,
) -> SessionRunHook:
    """Return a hook that stops when a metric hasn't increased for a number of steps."""
    patience = max_steps_without_increase
    rest = (metric_name, patience, eval_dir, min_steps, run_every_secs, run_every_steps)
    return _improvement_hook(operator.gt, estimator, *rest)


@export("estimator.experimental.stop_if_no_decrease_hook")
def stop_if_no_decrease_hook(
    estimator: Estimator,
    metric_name: str,
    max_steps_without_decrease: int,
    eval_dir: str | None = None,
    min_steps: int = 0,
    run_every_secs: float | None = 60,
    run_every_steps: int | None = None,
) -> SessionRunHook:
    """Return a hook that stops when a metric hasn't decreased for a number of steps."""
    patience = max_steps_without_decrease
    rest = (metric_name, patience, eval_dir, min_steps, run_every_secs, run_every_steps)
    return _improvement_hook(operator.lt, estimator, *rest)
