"""train_and_evaluate: train, and evaluate and maybe export the model after checkpoints."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from headrace._src.core import log
from headrace._src.core.export import export
from headrace._src.estimator.estimator import Estimator
from headrace._src.estimator.exporters import Exporter
from headrace._src.estimator.mode_keys import ModeKeys
from headrace._src.estimator.run_config import RunConfig
from headrace._src.estimator.user_calls import argument_names
from headrace._src.graph.keys import GraphKeys
from headrace._src.train.sessions.hooks.saving import CheckpointSaverListener
from headrace._src.train.sessions.hooks.timers import SecondOrStepTimer
from headrace._src.train.sessions.session_run_hook import SessionRunHook

__all__ = ["EvalSpec", "TrainSpec", "add_metrics", "train_and_evaluate"]


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
    delay of an evaluator in a separate process; unused here, where evaluations follow checkpoints.
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
) -> tuple[dict[str, Any] | None, list[Any] | None]:
    """Train, and evaluate after checkpoints and at the end.

    Returns the metrics of the last evaluation and the exporters' results; both are None if there
    was nothing to train.
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
    log.info(
        "Start train and evaluate loop. The evaluate will happen after every checkpoint. "
        "Checkpoint frequency is determined based on RunConfig arguments: save_checkpoints_steps "
        "%s or save_checkpoints_secs %s.",
        *(estimator.config.save_checkpoints_steps, estimator.config.save_checkpoints_secs),
    )
    evaluator = _Evaluator(estimator, eval_spec, train_spec.max_steps)
    estimator.train(
        train_spec.input_fn,
        hooks=list(train_spec.hooks),
        max_steps=train_spec.max_steps,
        saving_listeners=[evaluator],
    )
    return evaluator.metrics, evaluator.exports


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
