"""Run programs for TPUs without one. In: a TPUEstimator with use_tpu=False. Out: an Estimator.

Such programs pass batch sizes to their functions in params, and metrics as functions of tensors
that would have to leave the device; on a CPU these functions are called directly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from headrace._src.core import nest
from headrace._src.core.errors import UnimplementedError
from headrace._src.core.export import export
from headrace._src.estimator.estimator import Estimator
from headrace._src.estimator.estimator_spec import EstimatorSpec
from headrace._src.estimator.mode_keys import ModeKeys
from headrace._src.estimator.run_config import RunConfig
from headrace._src.estimator.user_calls import argument_names, check_model_fn
from headrace._src.train.sessions.session_run_hook import (
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
)

__all__ = ["InputPipelineConfig", "TPUConfig", "TPUEstimator", "TPUEstimatorSpec", "TPURunConfig"]

_BATCH_SIZE = "batch_size"
_USE_TPU = "use_tpu"


@export("contrib.tpu.InputPipelineConfig")
class InputPipelineConfig:
    """How input is distributed over the hosts of TPUs."""

    PER_SHARD_V1 = 1
    PER_HOST_V1 = 2
    PER_HOST_V2 = 3
    BROADCAST = 4
    SLICED = 5


@export("contrib.tpu.TPUConfig")
@dataclass(frozen=True)
class TPUConfig:
    """The use of TPUs; it has no effect on a CPU."""

    iterations_per_loop: int = 2
    num_shards: int | None = None
    num_cores_per_replica: int | None = None
    per_host_input_for_training: Any = True
    tpu_job_name: str | None = None
    initial_infeed_sleep_secs: int | None = None
    input_partition_dims: Any = None
    eval_training_input_configuration: Any = 2
    experimental_host_call_every_n_steps: int = 1


@export("contrib.tpu.RunConfig")
class TPURunConfig(RunConfig):
    """A RunConfig for TPUEstimator: `options` are those of tf.estimator.RunConfig."""

    tpu_config: TPUConfig

    def __init__(
        self,
        tpu_config: TPUConfig | None = None,
        evaluation_master: str | None = None,
        master: str | None = None,
        cluster: Any = None,
        **options: Any,
    ) -> None:
        if cluster is not None or master or evaluation_master:
            raise UnimplementedError(
                None,
                None,
                "A master or a cluster of TPUs can't be reached: Headrace runs on this machine",
                hint="Leave master, evaluation_master and cluster out, and set use_tpu=False.",
            )
        super().__init__(**options)
        object.__setattr__(self, "tpu_config", tpu_config or TPUConfig())

    def replace(self, **changes: Any) -> TPURunConfig:
        tpu_config = changes.pop("tpu_config", self.tpu_config)
        result = super().replace(**changes)
        object.__setattr__(result, "tpu_config", tpu_config)
        return result  # type: ignore[return-value]


class _HostCall(SessionRunHook):
    """Runs the operations of a host_call with each step."""

    def __init__(self, fetches: Any) -> None:
        self._fetches = fetches

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        return SessionRunArgs(self._fetches)


@export("contrib.tpu.TPUEstimatorSpec")
class TPUEstimatorSpec(NamedTuple):
    """An EstimatorSpec with functions in place of objects that can't be made on a TPU.

    eval_metrics, host_call: (function, arguments as a list or a dict of tensors); the first returns
    metrics, the second operations to run with each step. scaffold_fn: makes the scaffold.
    """

    mode: str
    predictions: Any = None
    loss: Any = None
    train_op: Any = None
    eval_metrics: Any = None
    export_outputs: dict[str, Any] | None = None
    scaffold_fn: Callable[[], Any] | None = None
    host_call: Any = None
    training_hooks: Iterable[SessionRunHook] | None = None
    evaluation_hooks: Iterable[SessionRunHook] | None = None
    prediction_hooks: Iterable[SessionRunHook] | None = None

    def as_estimator_spec(self) -> EstimatorSpec:
        """Return the EstimatorSpec for a CPU."""
        more = []
        if self.host_call is not None:
            more = [_HostCall(nest.flatten(_called("host_call", self.host_call)))]
        metrics = None
        if self.mode == ModeKeys.EVAL and self.eval_metrics is not None:
            metrics = _called("eval_metrics", self.eval_metrics)
        return EstimatorSpec(
            self.mode,
            predictions=self.predictions,
            loss=self.loss,
            train_op=self.train_op,
            eval_metric_ops=metrics,
            export_outputs=self.export_outputs,
            scaffold=self.scaffold_fn() if self.scaffold_fn else None,
            training_hooks=[*(self.training_hooks or ()), *more],
            evaluation_hooks=[*(self.evaluation_hooks or ()), *more],
            prediction_hooks=[*(self.prediction_hooks or ()), *more],
        )


def _called(what: str, given: Any) -> Any:
    if not isinstance(given, list | tuple) or len(given) != 2:
        raise ValueError(f"{what} should be tuple of (function, tensors), given: {given!r:.200}")
    function, tensors = given
    if not callable(function):
        raise TypeError(f"{what}[0] should be callable.")
    if isinstance(tensors, dict):
        return function(**tensors)
    if not isinstance(tensors, list | tuple):
        raise ValueError(f"{what}[1] should be tuple or list, or dict.")
    return function(*tensors)


@export("contrib.tpu.TPUEstimator")
class TPUEstimator(Estimator):
    """An Estimator whose functions get the batch size of the mode as params['batch_size'].

    use_tpu must be False. The batch sizes are for training, evaluation and prediction; model_fn may
    return a TPUEstimatorSpec. Arguments for TPUs only (batch_axis, eval_on_tpu, export_to_tpu,
    export_to_cpu) have no effect.
    """

    def __init__(
        self,
        model_fn: Callable[..., Any],
        model_dir: Any = None,
        config: RunConfig | None = None,
        params: dict[str, Any] | None = None,
        use_tpu: bool = True,
        train_batch_size: int | None = None,
        eval_batch_size: int | None = None,
        predict_batch_size: int | None = None,
        batch_axis: Any = None,
        eval_on_tpu: bool = True,
        export_to_tpu: bool = True,
        export_to_cpu: bool = True,
        warm_start_from: Any = None,
    ) -> None:
        if use_tpu:
            raise UnimplementedError(
                None, None, "There are no TPUs here", hint="Use TPUEstimator(use_tpu=False, ...)."
            )
        if reserved := {_BATCH_SIZE, _USE_TPU} & (params or {}).keys():
            raise ValueError(
                f"{sorted(reserved)} are reserved keys but existed in params {params}."
            )
        check_model_fn(model_fn, None)
        self._batch_sizes = {
            ModeKeys.TRAIN: train_batch_size,
            ModeKeys.EVAL: eval_batch_size,
            ModeKeys.PREDICT: predict_batch_size,
        }
        names = argument_names(model_fn)

        def converted(
            features: Any, labels: Any, mode: str, config: RunConfig, params: Any
        ) -> EstimatorSpec:
            known = {"labels": labels, "mode": mode, "config": config, "params": params}
            if labels is not None and "labels" not in names:
                raise ValueError("model_fn does not take labels, but input_fn returns labels.")
            given = {key: value for key, value in known.items() if key in names}
            spec = model_fn(features=features, **given)
            return spec.as_estimator_spec() if isinstance(spec, TPUEstimatorSpec) else spec

        super().__init__(converted, model_dir, config, params or {}, warm_start_from)

    def _params_in(self, mode: str) -> dict[str, Any]:
        size = self._batch_sizes[mode]
        known = {_USE_TPU: False} | ({} if size is None else {_BATCH_SIZE: size})
        return self.params | known
