"""Estimator: train, evaluate, query and export a model function.

Each call of train, evaluate, predict and export builds a new graph and restores the latest
checkpoint of `model_dir` into it: an estimator keeps all its state in that directory.
"""

from __future__ import annotations

import copy
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from headrace._src.core import log, proto
from headrace._src.core.export import export
from headrace._src.estimator.estimator_spec import EstimatorSpec
from headrace._src.estimator.evaluation import (
    StopAfterEvals,
    eval_step,
    evaluate_once,
    write_results,
)
from headrace._src.estimator.exporting import export_model
from headrace._src.estimator.mode_keys import ModeKeys
from headrace._src.estimator.run_config import RunConfig
from headrace._src.estimator.user_calls import (
    Batch,
    call_input_fn,
    call_model_fn,
    check_model_fn,
    is_endless,
)
from headrace._src.estimator.warm_start import warm_start, warm_start_settings
from headrace._src.graph.default import get_default_graph
from headrace._src.graph.graph import Graph
from headrace._src.graph.keys import GraphKeys
from headrace._src.layers.metrics.means import mean
from headrace._src.ops.base.define import b
from headrace._src.ops.io.summary_functions import scalar
from headrace._src.ops.random.random_functions import set_random_seed
from headrace._src.train.saving.checkpoint_reader import list_variables, load_variable
from headrace._src.train.saving.checkpoint_state import latest_checkpoint
from headrace._src.train.saving.saver import Saver
from headrace._src.train.sessions.device_setter import replica_device_setter
from headrace._src.train.sessions.global_step import (
    create_global_step,
    get_global_step,
    read_global_step,
)
from headrace._src.train.sessions.hooks.logs import LoggingTensorHook
from headrace._src.train.sessions.hooks.saving import CheckpointSaverHook, CheckpointSaverListener
from headrace._src.train.sessions.hooks.stopping import NanTensorHook, StopAtStepHook
from headrace._src.train.sessions.monitored_session import MonitoredSession
from headrace._src.train.sessions.monitored_training import MonitoredTrainingSession
from headrace._src.train.sessions.scaffold import Scaffold
from headrace._src.train.sessions.session_creators import ChiefSessionCreator
from headrace._src.train.sessions.session_run_hook import SessionRunHook

__all__ = ["Estimator"]

InputFn = Callable[..., Any]
Hooks = Sequence[SessionRunHook] | None

_OVERRIDABLE = {"model_fn", "_create_and_assert_global_step", "_params_in"}


@export("estimator.Estimator")
class Estimator:
    """A model that can be trained, evaluated, queried for predictions and exported.

    model_fn         a function of features and, if it takes them, labels, mode, params and config,
                     that returns an EstimatorSpec
    model_dir        the directory of checkpoints and summaries; a temporary one if None
    config           a RunConfig
    params           for model_fn
    warm_start_from  a checkpoint, a SavedModel or WarmStartSettings to start training from
    """

    def __init__(
        self,
        model_fn: Callable[..., EstimatorSpec],
        model_dir: Any = None,
        config: RunConfig | None = None,
        params: Any = None,
        warm_start_from: Any = None,
    ) -> None:
        self._check_overrides()
        self._config = _settled_config(config, model_dir)
        check_model_fn(model_fn, params)
        log.info("Using config: %s", self._config)
        self._model_fn = model_fn
        self._params = copy.deepcopy(params or {})
        self._warm_start = warm_start_settings(warm_start_from)

    def _check_overrides(self) -> None:
        members = {name for name in vars(Estimator) if not name.startswith("__")} - _OVERRIDABLE
        for kind in type(self).__mro__[: type(self).__mro__.index(Estimator)]:
            if overridden := members & vars(kind).keys():
                raise ValueError(
                    "Subclasses of Estimator cannot override members of Estimator. "
                    f"{kind} does override {sorted(overridden)}"
                )

    # -- Properties ----------------------------------------------------------------------------

    @property
    def model_dir(self) -> str:
        return self._config.model_dir

    @property
    def config(self) -> RunConfig:
        return copy.deepcopy(self._config)

    @property
    def params(self) -> Any:
        return copy.deepcopy(self._params)

    @property
    def model_fn(self) -> Callable[..., EstimatorSpec]:
        """The model function, as a function of features, labels, mode and config."""

        def model_fn(features: Any, labels: Any, mode: str, config: RunConfig) -> EstimatorSpec:
            return self._call_model_fn(features, labels, mode, config)

        return model_fn

    def get_variable_names(self) -> list[str]:
        """Return the names of all variables in the latest checkpoint."""
        return [name for name, _ in list_variables(self._trained())]

    def get_variable_value(self, name: str) -> np.ndarray:
        """Return the value of a variable in the latest checkpoint."""
        return load_variable(self._trained(), name)

    def _trained(self) -> str:
        if self.latest_checkpoint() is None:
            raise ValueError(f"Could not find trained model in model_dir: {self.model_dir}.")
        return self.model_dir

    def latest_checkpoint(self) -> str | None:
        """Return the path of the latest checkpoint, or None."""
        return latest_checkpoint(self.model_dir)

    def eval_dir(self, name: str | None = None) -> str:
        """Return the directory of the summaries of evaluations (of that name)."""
        return os.path.join(self.model_dir, f"eval_{name}" if name else "eval")

    # -- Calling the user's functions ----------------------------------------------------------

    def _call_model_fn(
        self, features: Any, labels: Any, mode: str, config: RunConfig | None = None
    ) -> EstimatorSpec:
        return call_model_fn(
            self._model_fn,
            features,
            labels,
            mode=mode,
            params=self._params_in(mode),
            config=config or self.config,
        )

    def _call_input_fn(self, input_fn: InputFn, mode: str) -> Batch:
        params = self._params_in(mode)
        return call_input_fn(input_fn, mode=mode, params=params, config=self.config)

    def _params_in(self, mode: str) -> Any:
        """Return the params for functions in a mode."""
        return self.params

    def _create_and_assert_global_step(self, graph: Graph) -> Any:
        return create_global_step(graph)

    # -- Training ------------------------------------------------------------------------------

    def train(
        self,
        input_fn: InputFn,
        hooks: Hooks = None,
        steps: int | None = None,
        max_steps: int | None = None,
        saving_listeners: Sequence[CheckpointSaverListener] | None = None,
    ) -> Estimator:
        """Train from the latest checkpoint on; return self.

        input_fn: makes features, or (features, labels), or a dataset of these. steps: how many more
        steps. max_steps: the total number; if it is already reached, nothing is done. Without both,
        train until the input ends. saving_listeners: are notified of each checkpoint.
        """
        if steps is not None and max_steps is not None:
            raise ValueError("Can not provide both steps and max_steps.")
        if steps is not None and steps <= 0:
            raise ValueError(f"Must specify steps > 0, given: {steps}")
        if max_steps is not None and max_steps <= 0:
            raise ValueError(f"Must specify max_steps > 0, given: {max_steps}")
        if max_steps is not None and max_steps <= self._steps_done():
            log.info("Skipping training since max_steps has already saved.")
            return self
        all_hooks = _checked_hooks(hooks)
        if steps is not None or max_steps is not None:
            all_hooks.append(StopAtStepHook(steps, max_steps))
        listeners = list(saving_listeners or [])
        for listener in listeners:
            if not isinstance(listener, CheckpointSaverListener):
                raise TypeError(
                    f"saving_listeners must be a list of CheckpointSaverListener, given: {listener}"
                )
        with Graph().as_default() as graph, graph.device(_device_fn(self._config)):
            set_random_seed(self._config.tf_random_seed)
            self._create_and_assert_global_step(graph)
            read_global_step("Estimator.train")
            inputs = self._call_input_fn(input_fn, ModeKeys.TRAIN)
            spec = self._call_model_fn(inputs.features, inputs.labels, ModeKeys.TRAIN)
            loss = self._train_spec(spec, [*inputs.hooks, *all_hooks], listeners)
        log.info("Loss for final step: %s.", loss)
        return self

    def _steps_done(self) -> int:
        path = self.latest_checkpoint()
        return 0 if path is None else int(load_variable(path, GraphKeys.GLOBAL_STEP))

    def _train_spec(
        self,
        spec: EstimatorSpec,
        hooks: list[SessionRunHook],
        listeners: list[CheckpointSaverListener],
    ) -> Any:
        config = self._config
        if self._warm_start is not None:
            log.info("Warm-starting with WarmStartSettings: %s", self._warm_start)
            warm_start(*self._warm_start)
        graph = get_default_graph()
        if not any(s.op.name == "loss" for s in graph.get_collection(GraphKeys.SUMMARIES)):
            scalar("loss", spec.loss)
        graph.add_to_collection(GraphKeys.LOSSES, spec.loss)
        hooks.append(NanTensorHook(spec.loss))
        if config.log_step_count_steps is not None:
            told = {"loss": spec.loss, "step": get_global_step(graph)}
            hooks.append(LoggingTensorHook(told, every_n_iter=config.log_step_count_steps))
        hooks += spec.training_hooks
        if not (spec.scaffold.saver or graph.get_collection(GraphKeys.SAVERS)):
            saver = Saver(
                sharded=True,
                max_to_keep=config.keep_checkpoint_max,
                keep_checkpoint_every_n_hours=config.keep_checkpoint_every_n_hours,
                defer_build=True,
                save_relative_paths=True,
            )
            graph.add_to_collection(GraphKeys.SAVERS, saver)
        chief_hooks = self._saving_hooks(spec, hooks, listeners)
        loss = None
        with MonitoredTrainingSession(
            master=config.master,
            is_chief=config.is_chief,
            checkpoint_dir=self.model_dir,
            scaffold=spec.scaffold,
            hooks=hooks,
            chief_only_hooks=[*chief_hooks, *spec.training_chief_hooks],
            save_checkpoint_secs=0,
            save_summaries_steps=config.save_summary_steps,
            config=config.session_config,
            max_wait_secs=config.session_creation_timeout_secs,
            log_step_count_steps=config.log_step_count_steps,
        ) as session:
            while not session.should_stop():
                _, loss = session.run([spec.train_op, spec.loss])
        if loss is None:
            log.warning(
                "Training with estimator made no steps. Perhaps input is empty or misspecified."
            )
        return loss

    def _saving_hooks(
        self,
        spec: EstimatorSpec,
        hooks: list[SessionRunHook],
        listeners: list[CheckpointSaverListener],
    ) -> list[CheckpointSaverHook]:
        """Return the hooks that save, unless the user passes one; the listeners are added in any
        case.
        """
        given = [*hooks, *spec.training_chief_hooks]
        savers = [hook for hook in given if isinstance(hook, CheckpointSaverHook)]
        made = []
        secs, steps = self._config.save_checkpoints_secs, self._config.save_checkpoints_steps
        if not savers and (secs or steps):
            made = [CheckpointSaverHook(self.model_dir, secs, steps, scaffold=spec.scaffold)]
        if listeners and not (savers or made):
            raise ValueError(
                "There should be a CheckpointSaverHook to use saving_listeners. Please set one of "
                "the RunConfig.save_checkpoints_steps or RunConfig.save_checkpoints_secs."
            )
        for listener in listeners:
            kept = (savers or made)[0]._listeners
            if listener not in kept:
                kept.append(listener)
        return made

    # -- Evaluation ----------------------------------------------------------------------------

    def evaluate(
        self,
        input_fn: InputFn,
        steps: int | None = None,
        hooks: Hooks = None,
        checkpoint_path: str | None = None,
        name: str | None = None,
    ) -> dict[str, Any]:
        """Return the metrics of a checkpoint (the latest), with 'loss' and 'global_step'.

        steps: the number of batches; None: until the input ends. name: the name of this evaluation,
        for its summaries' directory.
        """
        all_hooks = _checked_hooks(hooks)
        if steps is not None:
            if steps <= 0:
                raise ValueError(f"Must specify steps > 0, given: {steps}")
            all_hooks.append(StopAfterEvals(steps))
        path = checkpoint_path or self._restored("evaluate")
        with Graph().as_default() as graph:
            set_random_seed(self._config.tf_random_seed)
            self._create_and_assert_global_step(graph)
            inputs = self._call_input_fn(input_fn, ModeKeys.EVAL)
            spec = self._call_model_fn(inputs.features, inputs.labels, ModeKeys.EVAL)
            update_op, values = _metrics(spec)
            self._start_warm(path)
            values[GraphKeys.GLOBAL_STEP] = get_global_step(graph)
            results = evaluate_once(
                path,
                _with_local_init(spec.scaffold),
                update_op,
                values,
                [*inputs.hooks, *all_hooks, *spec.evaluation_hooks],
                self._config.session_config,
                self._config.evaluation_master,
            )
        step = int(results[GraphKeys.GLOBAL_STEP])
        write_results(self.eval_dir(name), results, step, path)
        return results

    def _restored(self, purpose: str) -> str | None:
        path = self.latest_checkpoint()
        if path is None:
            log.info(
                "Could not find trained model in model_dir: %s, running initialization to %s.",
                *(self.model_dir, purpose),
            )
        return path

    def _start_warm(self, path: str | None) -> None:
        if path is None and self._warm_start is not None:
            log.info("Warm-starting with WarmStartSettings: %s", self._warm_start)
            warm_start(*self._warm_start)

    # -- Prediction ----------------------------------------------------------------------------

    def predict(
        self,
        input_fn: InputFn,
        predict_keys: Any = None,
        hooks: Hooks = None,
        checkpoint_path: str | None = None,
        yield_single_examples: bool = True,
    ) -> Iterator[Any]:
        """Yield the predictions of a checkpoint (the latest), example by example or, if
        yield_single_examples is False, batch by batch.

        predict_keys: the predictions to yield; None: all.
        """
        all_hooks = _checked_hooks(hooks)
        path = checkpoint_path or self._restored("predict")
        with Graph().as_default() as graph:
            set_random_seed(self._config.tf_random_seed)
            self._create_and_assert_global_step(graph)
            inputs = self._call_input_fn(input_fn, ModeKeys.PREDICT)
            if is_endless(inputs):
                log.warning(
                    "Input graph does not use tf.data.Dataset or contain a QueueRunner. That means "
                    "predict yields forever. This is probably a mistake."
                )
            spec = self._call_model_fn(inputs.features, None, ModeKeys.PREDICT)
            self._start_warm(path)
            predictions = _picked(spec.predictions, predict_keys)
            creator = ChiefSessionCreator(
                spec.scaffold,
                master=self._config.master,
                config=self._config.session_config,
                checkpoint_filename_with_path=path,
            )
            all_hooks = [*inputs.hooks, *all_hooks, *spec.prediction_hooks]
            session = MonitoredSession(creator, all_hooks)
        # While the caller runs, the graph must not be the default one.
        with session:
            while not session.should_stop():
                batch = session.run(predictions)
                if not yield_single_examples:
                    yield batch
                elif isinstance(batch, dict):
                    for i in range(_batch_length(batch)):
                        yield {key: value[i] for key, value in batch.items()}
                else:
                    yield from batch

    # -- Export --------------------------------------------------------------------------------

    def export_saved_model(
        self,
        export_dir_base: Any,
        serving_input_receiver_fn: Callable[[], Any],
        assets_extra: dict[str, str] | None = None,
        as_text: bool = False,
        checkpoint_path: str | None = None,
        experimental_mode: str = ModeKeys.PREDICT,
    ) -> bytes:
        """Write the model as a SavedModel for serving, to a new directory in `export_dir_base`
        that is named by the time; returns its path.

        serving_input_receiver_fn: makes a ServingInputReceiver. assets_extra: files to copy to
        assets.extra, by their names there.
        """
        if experimental_mode != ModeKeys.PREDICT:
            raise ValueError(
                f"Only models for prediction can be exported, given mode: {experimental_mode}"
            )
        return self._export(
            export_dir_base, serving_input_receiver_fn, assets_extra, as_text, checkpoint_path, True
        )

    def export_savedmodel(
        self,
        export_dir_base: Any,
        serving_input_receiver_fn: Callable[[], Any],
        assets_extra: dict[str, str] | None = None,
        as_text: bool = False,
        checkpoint_path: str | None = None,
        strip_default_attrs: bool = False,
    ) -> bytes:
        """The older name of export_saved_model."""
        return self._export(
            export_dir_base,
            serving_input_receiver_fn,
            assets_extra,
            as_text,
            checkpoint_path,
            strip_default_attrs,
        )

    def _export(
        self,
        base: Any,
        receiver_fn: Callable[[], Any],
        assets_extra: dict[str, str] | None,
        as_text: bool,
        checkpoint_path: str | None,
        strip_default_attrs: bool,
    ) -> bytes:
        if not receiver_fn:
            raise ValueError("An input_receiver_fn must be defined.")
        path = checkpoint_path or self.latest_checkpoint()
        if path is None and self._warm_start is not None:
            path = self._warm_start.ckpt_to_initialize_from
            path = latest_checkpoint(path) if os.path.isdir(path) else path
        if path is None:
            raise ValueError(f"Couldn't find trained model at {self.model_dir}.")

        def model() -> tuple[Any, EstimatorSpec]:
            graph = get_default_graph()
            self._create_and_assert_global_step(graph)
            set_random_seed(self._config.tf_random_seed)
            receiver = receiver_fn()
            return receiver, self._call_model_fn(receiver.features, None, ModeKeys.PREDICT)

        return export_model(
            base,
            model,
            path,
            self._config.session_config,
            assets_extra or {},
            as_text,
            strip_default_attrs,
        )


def _settled_config(config: RunConfig | None, model_dir: Any) -> RunConfig:
    """Return a config with a model_dir and a session_config."""
    if config is None:
        config = RunConfig()
    if not isinstance(config, RunConfig):
        raise ValueError(f"config must be an instance of `RunConfig`, but provided {config}.")
    if config.session_config is None:
        config = config.replace(session_config=proto.ConfigProto(allow_soft_placement=True))
    if model_dir is not None:
        model_dir = os.fspath(model_dir)
        if config.model_dir is not None and config.model_dir != model_dir:
            raise ValueError(
                "`model_dir` are set both in constructor and `RunConfig`, but with different "
                f"values. In constructor: '{model_dir}', in `RunConfig`: '{config.model_dir}' "
            )
        return config.replace(model_dir=model_dir)
    if config.model_dir is None:
        model_dir = tempfile.mkdtemp()
        log.warning("Using temporary folder as model directory: %s", model_dir)
        return config.replace(model_dir=model_dir)
    return config


def _device_fn(config: RunConfig) -> Any:
    """Return the function that places a training graph: variables on parameter servers, if the
    cluster has some, and the rest on the task that trains.
    """
    if config.device_fn is not None:
        return config.device_fn
    return replica_device_setter(
        worker_device=f"/job:{config.task_type}/task:{config.task_id}", cluster=config.cluster_spec
    )


def _checked_hooks(hooks: Hooks) -> list[SessionRunHook]:
    found = list(hooks or [])
    for hook in found:
        if not isinstance(hook, SessionRunHook):
            raise TypeError(f"Hooks must be a SessionRunHook, given: {hook}")
    return found


def _metrics(spec: EstimatorSpec) -> tuple[Any, dict[str, Any]]:
    """Return the operation that updates the metrics of an evaluation, and their values, including
    the loss.
    """
    metrics = dict(spec.eval_metric_ops)
    for name in ("loss", GraphKeys.GLOBAL_STEP):
        if name in metrics:
            raise ValueError(
                f'Metric with name "{name}" is not allowed, because Estimator already defines a '
                "default metric with the same name."
            )
    metrics["loss"] = mean(spec.loss)
    ordered = sorted(metrics.items())
    update_op = b.group(*(update for _, (_, update) in ordered))
    return update_op, {name: value for name, (value, _) in ordered}


def _with_local_init(scaffold: Scaffold) -> Scaffold:
    """Return a scaffold whose local_init_op also initializes metrics."""
    if scaffold.local_init_op is None:
        return scaffold
    eval_step()
    both = b.group(scaffold.local_init_op, Scaffold.default_local_init_op())
    return Scaffold(local_init_op=both, copy_from_scaffold=scaffold)


def _picked(predictions: Any, keys: Any) -> Any:
    if not keys:
        return predictions
    if not isinstance(predictions, dict):
        raise ValueError("predict_keys argument is not valid in case of non-dict predictions.")
    found = {key: value for key, value in predictions.items() if key in keys}
    if not found:
        raise ValueError(
            f"Expected to run at least one output from {list(predictions)}, provided {keys}."
        )
    return found


def _batch_length(batch: dict[str, Any]) -> int:
    lengths = {key: value.shape[0] for key, value in batch.items()}
    first = next(iter(lengths.values()))
    for key, length in lengths.items():
        if length != first:
            raise ValueError(
                f"Batch length of predictions should be same. {key} has different batch length "
                "than others."
            )
    return first
