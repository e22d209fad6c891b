"""train_and_evaluate: train, and evaluate and maybe export the model after checkpoints.

In one process, evaluations take turns with training. In a cluster, each process calls the same
function and does what its task is for: the chief and the workers train, parameter servers serve,
and an evaluator evaluates checkpoints of the chief.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from headrace._src.core import log
from headrace._src.core.export import export
from headrace._src.estimator.cluster_task import CHIEF, EVALUATOR, MASTER, PS, WORKER
from headrace._src.estimator.estimator import Estimator
from headrace._src.estimator.exporters import Exporter
from headrace._src.estimator.mode_keys import ModeKeys
from headrace._src.estimator.run_config import RunConfig
from headrace._src.estimator.user_calls import argument_names
from headrace._src.graph.keys import GraphKeys
from headrace._src.server.server import Server
from headrace._src.train.sessions.hooks.saving import CheckpointSaverListener
from headrace._src.train.sessions.hooks.timers import SecondOrStepTimer
from headrace._src.train.sessions.session_run_hook import SessionRunHook

__all__ = ["EvalSpec", "TrainSpec", "add_metrics", "train_and_evaluate"]

_LONGEST_DELAY, _DELAY_PER_WORKER = 60, 5  # seconds by which workers begin after the chief
_GLANCE_SECS = 0.1  # the least time between two looks for a checkpoint
_WARNING_SECS = 600  # between two warnings that there is none


def _check_input_fn(input_fn: Any) -> None:
    if not callable(input_fn):
        raise TypeError(f"`input_fn` must be callable, given: {input_fn}")


def _checked_hooks(hooks: Iterable[SessionRunHook] | None) -> tuple[SessionRunHook, ...]:
    found = tuple(hooks or ())
    for hook in found:
        if not isinstance(hook, SessionRunHook):
            raise TypeError(f"All hooks must be `SessionRunHook` instances, given: {hook}")
    return found


class _TrainFields(NamedTuple):
    input_fn: Callable[..., Any]
    max_steps: int | None
    hooks: tuple[SessionRunHook, ...]


@export("estimator.TrainSpec")
class TrainSpec(_TrainFields):
    """How to train: the input, the total number of steps (None: until it ends), and the hooks."""

    __slots__ = ()

    def __new__(
        cls,
        input_fn: Callable[..., Any],
        max_steps: int | None = None,
        hooks: Iterable[SessionRunHook] | None = None,
    ) -> TrainSpec:
        _check_input_fn(input_fn)
        if max_steps is not None and max_steps <= 0:
            raise ValueError(f"Must specify max_steps > 0, given: {max_steps}")
        return super().__new__(cls, input_fn, max_steps, _checked_hooks(hooks))


class _EvalFields(NamedTuple):
    input_fn: Callable[..., Any]
    steps: int | None
    name: str | None
    hooks: tuple[SessionRunHook, ...]
    exporters: tuple[Exporter, ...]
    start_delay_secs: float
    throttle_secs: float


@export("estimator.EvalSpec")
class EvalSpec(_EvalFields):
    """How to evaluate.

    steps: the number of batches; None: until the input ends. exporters: called after the
    evaluation. throttle_secs: the least time between evaluations. start_delay_secs: the initial
    delay of an evaluator in a process of its own.
    """

    __slots__ = ()

    def __new__(
        cls,
        input_fn: Callable[..., Any],
        steps: int | None = 100,
        name: str | None = None,
        hooks: Iterable[SessionRunHook] | None = None,
        exporters: Any = None,
        start_delay_secs: float = 120,
        throttle_secs: float = 600,
    ) -> EvalSpec:
        _check_input_fn(input_fn)
        if steps is not None and steps <= 0:
            raise ValueError(f"Must specify steps > 0, given: {steps}")
        if name is not None and not isinstance(name, str):
            raise TypeError(f"`name` must be string, given: {name}")
        for what, secs in (
            ("start_delay_secs", start_delay_secs),
            ("throttle_secs", throttle_secs),
        ):
            if secs < 0:
                raise ValueError(f"Must specify {what} >= 0, given: {secs}")
        return super().__new__(
            cls,
            input_fn,
            steps,
            name,
            _checked_hooks(hooks),
            _checked_exporters(exporters),
            start_delay_secs,
            throttle_secs,
        )


def _checked_exporters(exporters: Any) -> tuple[Exporter, ...]:
    if not exporters:
        return ()
    found: Any = (exporters,) if isinstance(exporters, Exporter) else exporters
    if not isinstance(found, Iterable):
        found = (None,)
    found = tuple(found)
    if not all(isinstance(exporter, Exporter) for exporter in found):
        raise TypeError(
            "`exporters` must be an Exporter, an iterable of Exporter, or `None`, found "
            f"{exporters}."
        )
    names = [exporter.name for exporter in found]
    if not all(names):
        raise ValueError(
            f"An Exporter cannot have a name that is `None` or empty. All exporter names: {names}"
        )
    if len(set(names)) != len(names):
        raise ValueError(
            "`exporters` must have unique names. Such a name cannot be `None`. All exporter names: "
            f"{names}"
        )
    return found


class _Evaluator(CheckpointSaverListener):
    """Evaluates and exports after checkpoints, unless the last evaluation was too recent.

    State: the results of the last evaluation, and of the exports after it.
    """

    def __init__(self, estimator: Estimator, spec: EvalSpec, max_steps: int | None) -> None:
        self._estimator, self._spec, self._max_steps = estimator, spec, max_steps
        self.metrics: dict[str, Any] | None = None
        self.exports: list[Any] | None = None

    def begin(self) -> None:
        self._timer = SecondOrStepTimer(every_secs=self._spec.throttle_secs)
        self._at_start = True

    def after_save(self, session: Any, global_step_value: int) -> None:
        if self._at_start:  # this checkpoint was made before the first step
            self._at_start = False
        elif self._timer.should_trigger_for_step(global_step_value):
            self._evaluate(global_step_value)
        else:
            log.info(
                "Skip the current checkpoint eval due to throttle secs (%s secs).",
                self._spec.throttle_secs,
            )

    def end(self, session: Any, global_step_value: int) -> None:
        if global_step_value != self._timer.last_triggered_step():
            self._evaluate(global_step_value)

    def _evaluate(self, step: int) -> None:
        self._timer.update_last_triggered_step(step)
        path = self._estimator.latest_checkpoint()
        if path is None:
            raise RuntimeError("There was no new checkpoint after the training.")
        self.evaluate(path)

    def evaluate(self, path: str) -> None:
        """Evaluate a checkpoint, and export."""
        spec = self._spec
        self.metrics = self._estimator.evaluate(
            spec.input_fn, spec.steps, list(spec.hooks), path, spec.name
        )
        reached = int(self.metrics[GraphKeys.GLOBAL_STEP])
        is_last = self._max_steps is not None and reached >= self._max_steps
        self.exports = [
            exporter.export(
                estimator=self._estimator,
                export_path=os.path.join(self._estimator.model_dir, "export", exporter.name),
                checkpoint_path=path,
                eval_result=self.metrics,
                is_the_final_export=is_last,
            )
            for exporter in spec.exporters
        ]


@export("estimator.train_and_evaluate")
def train_and_evaluate(
    estimator: Estimator, train_spec: TrainSpec, eval_spec: EvalSpec
) -> tuple[dict[str, Any] | None, list[Any] | None] | None:
    """Train, and evaluate after checkpoints and at the end. In a cluster (see RunConfig), do the
    part of this process's task.

    Returns the metrics of the last evaluation and the exporters' results; both are None if there
    was nothing to train. In a cluster, returns None.
    """
    for name, given, kind in (
        ("estimator", estimator, Estimator),
        ("train_spec", train_spec, TrainSpec),
        ("eval_spec", eval_spec, EvalSpec),
    ):
        if not isinstance(given, kind):
            raise TypeError(
                f"`{name}` must have type `tf.estimator.{kind.__name__}`. Got: {type(given)}"
            )
    config = estimator.config
    if config.cluster_spec or config.task_type == EVALUATOR:
        return _run_task(estimator, train_spec, eval_spec)
    log.info("Running training and evaluation locally (non-distributed).")
    log.info(
        "Start train and evaluate loop. The evaluate will happen after every checkpoint. "
        "Checkpoint frequency is determined based on RunConfig arguments: save_checkpoints_steps "
        "%s or save_checkpoints_secs %s.",
        *(config.save_checkpoints_steps, config.save_checkpoints_secs),
    )
    evaluator = _Evaluator(estimator, eval_spec, train_spec.max_steps)
    estimator.train(
        train_spec.input_fn,
        hooks=list(train_spec.hooks),
        max_steps=train_spec.max_steps,
        saving_listeners=[evaluator],
    )
    return evaluator.metrics, evaluator.exports


# -- In a cluster ----------------------------------------------------------------------------------


def _run_task(estimator: Estimator, train_spec: TrainSpec, eval_spec: EvalSpec) -> None:
    """Do the part of this process's task."""
    config = estimator.config
    if config.task_type == EVALUATOR:
        if config.task_id > 0:
            raise ValueError(
                "For distributed training, there can only be one `evaluator` task (with task id "
                f"0).  Given task id {config.task_id}"
            )
        _evaluate_checkpoints(estimator, train_spec, eval_spec)
    elif config.task_type == PS:
        server = _start_server(config)
        assert server is not None
        server.join()
    elif config.task_type in (CHIEF, WORKER):
        _train_in_cluster(estimator, train_spec)
    elif config.task_type == MASTER:  # it evaluates between checkpoints, as a single process does
        evaluator = _Evaluator(estimator, eval_spec, train_spec.max_steps)
        _train_in_cluster(estimator, train_spec, [evaluator])
    else:
        raise ValueError(
            f"Task type {config.task_type} is not supported. Supported task types are "
            f"{[CHIEF, EVALUATOR, MASTER, PS, WORKER]}"
        )


def _start_server(config: RunConfig) -> Server | None:
    """Start the server of this process's task; none is needed if it is the only one."""
    if not config.master:
        if config.task_type in (CHIEF, MASTER, WORKER) and len(config.cluster_spec.addresses()) < 2:
            log.info("Skip starting Tensorflow server as there is only one node in the cluster.")
            return None
        raise RuntimeError(
            "Could not start server; be sure to specify master in RunConfig or set the TF_CONFIG "
            "environment variable."
        )
    log.info("Start Tensorflow server.")
    return Server(config.cluster_spec, config.task_type, config.task_id, config.protocol)


def _train_in_cluster(
    estimator: Estimator, spec: TrainSpec, listeners: Sequence[CheckpointSaverListener] = ()
) -> None:
    """Train as the chief or a worker. Workers begin one after the other, later than the chief."""
    config = estimator.config
    _server = _start_server(config)
    if config.task_type == WORKER:
        longest = config.experimental_max_worker_delay_secs
        longest = _LONGEST_DELAY if longest is None else longest
        delay = min(longest, (config.task_id + 1) * _DELAY_PER_WORKER)
        if delay > 0:
            log.info("Waiting %d secs before starting training.", delay)
            time.sleep(delay)
    estimator.train(
        spec.input_fn,
        hooks=list(spec.hooks),
        max_steps=spec.max_steps,
        saving_listeners=list(listeners),
    )


def _evaluate_checkpoints(estimator: Estimator, train_spec: TrainSpec, spec: EvalSpec) -> None:
    """Evaluate and export new checkpoints until one has the last step of the training."""
    if spec.start_delay_secs:
        log.info("Waiting %f secs before starting eval.", spec.start_delay_secs)
        time.sleep(spec.start_delay_secs)
    evaluator = _Evaluator(estimator, spec, train_spec.max_steps)
    evaluated, warned = None, -_WARNING_SECS
    while True:
        began = time.monotonic()
        path = estimator.latest_checkpoint()
        if path is not None and path != evaluated:
            evaluator.evaluate(path)
            evaluated = path
            assert evaluator.metrics is not None
            step = int(evaluator.metrics[GraphKeys.GLOBAL_STEP])
            if train_spec.max_steps and step >= train_spec.max_steps:
                log.info(
                    "Exiting evaluation, global_step=%s >= train max_steps=%s",
                    *(step, train_spec.max_steps),
                )
                return
        elif began - warned >= _WARNING_SECS:
            warned = began
            log.warning(
                "No new checkpoint ready for evaluation. Skip the current evaluation pass as "
                "evaluation results are expected to be same for the same checkpoint."
                if evaluated
                else "Estimator is not trained yet. Will start an evaluation when a checkpoint is "
                "ready."
            )
        # A throttle of 0 would keep the disk busy with nothing but questions.
        rest = max(spec.throttle_secs, _GLANCE_SECS) - (time.monotonic() - began)
        if rest > 0:
            time.sleep(rest)


@export("estimator.add_metrics")
def add_metrics(estimator: Estimator, metric_fn: Callable[..., dict[str, Any]]) -> Estimator:
    """Return an estimator like another, with more metrics.

    metric_fn: a function that takes any of features, labels, predictions and config, and returns
    metrics as model functions do.
    """
    names = argument_names(metric_fn)
    if unknown := names - {"features", "labels", "predictions", "config"}:
        raise ValueError(
            f"metric_fn ({metric_fn}) has following not expected args: {sorted(unknown)}"
        )

    def model_fn(features: Any, labels: Any, mode: str, config: RunConfig) -> Any:
        spec = estimator.model_fn(features, labels, mode, config)
        if mode != ModeKeys.EVAL:
            return spec
        known = {
            "features": features,
            "labels": labels,
            "predictions": spec.predictions,
            "config": config,
        }
        more = metric_fn(**{name: known[name] for name in names})
        return spec._replace(eval_metric_ops={**spec.eval_metric_ops, **more})

    return Estimator(
        model_fn, estimator.model_dir, estimator.config, warm_start_from=estimator._warm_start
    )
