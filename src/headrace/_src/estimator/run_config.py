"""RunConfig: the configuration of an estimator: its directory, how often it saves and logs, and
the task of a cluster that it runs in.
"""

from __future__ import annotations

import inspect
import os
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

from headrace._src.core import log, proto
from headrace._src.core.config import tf_config
from headrace._src.core.errors import UnimplementedError
from headrace._src.core.export import export
from headrace._src.distributed.cluster_spec import ClusterSpec
from headrace._src.estimator.cluster_task import ClusterTask, task_in

__all__ = ["RunConfig"]

_DEFAULT: Any = object()
_BOTH = "`save_checkpoints_steps` and `save_checkpoints_secs` cannot be both set."

_CHECKS: dict[str, tuple[Any, str]] = {
    "model_dir": (bool, "model_dir should be non-empty"),
    "save_summary_steps": (lambda n: n >= 0, "save_summary_steps should be >= 0"),
    "save_checkpoints_steps": (lambda n: n >= 0, "save_checkpoints_steps should be >= 0"),
    "save_checkpoints_secs": (lambda n: n >= 0, "save_checkpoints_secs should be >= 0"),
    "session_config": (
        lambda given: isinstance(given, proto.ConfigProto),
        "session_config must be instance of ConfigProto",
    ),
    "keep_checkpoint_max": (lambda n: n >= 0, "keep_checkpoint_max should be >= 0"),
    "keep_checkpoint_every_n_hours": (
        lambda n: n > 0,
        "keep_checkpoint_every_n_hours should be > 0",
    ),
    "log_step_count_steps": (lambda n: n > 0, "log_step_count_steps should be > 0"),
    "tf_random_seed": (lambda n: isinstance(n, int), "tf_random_seed must be integer."),
    "experimental_max_worker_delay_secs": (
        lambda n: isinstance(n, int),
        "experimental_max_worker_delay_secs must be an integer if set.",
    ),
    "session_creation_timeout_secs": (
        lambda n: n > 0,
        "session_creation_timeout_secs should be > 0",
    ),
    "device_fn": (
        lambda given: callable(given) and list(inspect.signature(given).parameters) == ["op"],
        'device_fn must be callable with exactly one argument "op".',
    ),
    "protocol": (
        lambda given: given in ("grpc", "grpc+verbs"),
        "protocol should be grpc or grpc+verbs",
    ),
}
_STRATEGIES = ("train_distribute", "eval_distribute", "experimental_distribute")


@export("estimator.RunConfig")
@dataclass(frozen=True)
class RunConfig:
    """The configuration of an estimator.

    model_dir                      the directory of checkpoints and summaries
    tf_random_seed                 the graphs' seed; the same graph then starts from the same
                                   weights
    save_summary_steps             how often summaries are written
    save_checkpoints_steps, save_checkpoints_secs  how often it saves (every 600 s); one of the two
    session_config                 a ConfigProto
    keep_checkpoint_max, keep_checkpoint_every_n_hours  as for tf.train.Saver
    log_step_count_steps           how often loss and speed are logged
    device_fn                      a function from an operation to its device
    session_creation_timeout_secs  how long a worker waits for its session
    experimental_max_worker_delay_secs  the most seconds by which a worker starts later than the
                                   chief (60)
    protocol                       "grpc" or None

    The environment variable TF_CONFIG says which task of which cluster this process is; in a
    cluster, sessions wait for their own task and the parameter servers only, unless
    `session_config` says otherwise. Distribution strategies are refused.
    """

    _task: ClassVar[ClusterTask]  # of each config

    model_dir: Any = None
    tf_random_seed: int | None = None
    save_summary_steps: int | None = 100
    save_checkpoints_steps: int | None = _DEFAULT
    save_checkpoints_secs: float | None = _DEFAULT
    session_config: Any = None
    keep_checkpoint_max: int | None = 5
    keep_checkpoint_every_n_hours: float = 10000
    log_step_count_steps: int | None = 100
    train_distribute: Any = None
    device_fn: Any = None
    protocol: str | None = None
    eval_distribute: Any = None
    experimental_distribute: Any = None
    experimental_max_worker_delay_secs: int | None = None
    session_creation_timeout_secs: float = 7200

    def __post_init__(self) -> None:
        steps, secs = self.save_checkpoints_steps, self.save_checkpoints_secs
        if steps is _DEFAULT and secs is _DEFAULT:
            secs = 600
        steps, secs = (None if given is _DEFAULT else given for given in (steps, secs))
        if steps is not None and secs is not None:
            raise ValueError(_BOTH)
        environment = tf_config()
        if environment:
            log.info("TF_CONFIG environment variable: %s", environment)
        task = task_in(environment)
        settled = {
            "_task": task,
            "session_config": task.session_config()
            if self.session_config is None
            else self.session_config,
            "model_dir": _model_dir(self.model_dir, environment),
            "save_checkpoints_steps": steps,
            "save_checkpoints_secs": secs,
        }
        for name, value in settled.items():
            object.__setattr__(self, name, value)
        _check_fields(self)

    # -- The task of this process, from TF_CONFIG ------------------------------------------------

    @property
    def cluster_spec(self) -> ClusterSpec:
        """The cluster that trains; empty without one, and for an evaluator."""
        return self._task.cluster_spec

    @property
    def is_chief(self) -> bool:
        return self._task.is_chief

    @property
    def master(self) -> str:
        """The target of training sessions."""
        return self._task.master

    @property
    def evaluation_master(self) -> str:
        """The target of evaluations."""
        return self._task.evaluation_master

    @property
    def num_ps_replicas(self) -> int:
        return self._task.num_ps_replicas

    @property
    def num_worker_replicas(self) -> int:
        """The number of workers, including the chief."""
        return self._task.num_worker_replicas

    @property
    def task_type(self) -> str:
        return self._task.task_type

    @property
    def task_id(self) -> int:
        return self._task.task_id

    @property
    def global_id_in_cluster(self) -> int | None:
        """The number of this task among all of the cluster: the chief, workers, then parameter
        servers; None for an evaluator.
        """
        return self._task.global_id

    @property
    def service(self) -> dict[str, Any] | None:
        return self._task.service

    # -- Copies --------------------------------------------------------------------------------

    def replace(self, **changes: Any) -> RunConfig:
        """Return a copy with other values.

        Setting one of save_checkpoints_steps and save_checkpoints_secs unsets the other.
        """
        allowed = [field.name for field in fields(self)]
        if unknown := changes.keys() - set(allowed):
            raise ValueError(
                f"Replacing {', '.join(sorted(unknown))} is not supported. Allowed properties are "
                f"{allowed}."
            )
        for one, other in (("steps", "secs"), ("secs", "steps")):
            if changes.get(f"save_checkpoints_{one}") is not None:
                changes.setdefault(f"save_checkpoints_{other}", None)
        made = replace(self, **changes)
        object.__setattr__(made, "_task", self._task)
        return made


def _check_fields(config: RunConfig) -> None:
    for name, (holds, message) in _CHECKS.items():
        value = getattr(config, name)
        if value is not None and not holds(value):
            raise ValueError(message)
    for name in _STRATEGIES:
        if getattr(config, name) is not None:
            raise UnimplementedError(
                None,
                None,
                f"RunConfig({name}=...): Headrace has no distribution strategies",
                hint="Leave it out. A cluster in TF_CONFIG trains with parameter servers.",
            )


def _model_dir(given: Any, environment: dict[str, Any]) -> str | None:
    model_dir = None if given is None else os.fspath(given)
    elsewhere = environment.get("model_dir")
    for name, value in (("model_dir", model_dir), ("model_dir in TF_CONFIG", elsewhere)):
        if value == "":
            raise ValueError(f"{name} should be non-empty.")
    if elsewhere and model_dir and elsewhere != model_dir:
        raise ValueError(
            "`model_dir` provided in RunConfig construct, if set, must have the same value as the "
            f"model_dir in TF_CONFIG. model_dir: {model_dir}\n"
            f'TF_CONFIG["model_dir"]: {elsewhere}.\n'
        )
    return model_dir or elsewhere
