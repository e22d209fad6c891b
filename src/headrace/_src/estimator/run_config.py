"""RunConfig: the configuration of an estimator: its directory, how often it saves and logs."""

from __future__ import annotations

import inspect
import os
from dataclasses import dataclass, fields, replace
from typing import Any

from headrace._src.core import log, proto
from headrace._src.core.config import tf_config
from headrace._src.core.errors import UnimplementedError
from headrace._src.core.export import export

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
    experimental_max_worker_delay_secs  the delay of a cluster's workers; unused in one process

    A cluster (in the environment's TF_CONFIG) and distribution strategies are refused: an
    estimator runs in one process.
    """

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
        _check_environment(environment)
        settled = {
            "model_dir": _model_dir(self.model_dir, environment),
            "save_checkpoints_steps": steps,
            "save_checkpoints_secs": secs,
        }
        for name, value in settled.items():
            object.__setattr__(self, name, value)
        _check_fields(self)

    # -- Facts of a single process ---------------------------------------------------------------

    @property
    def cluster_spec(self) -> dict[str, Any]:
        """The cluster of other processes, which is empty."""
        return {}

    @property
    def is_chief(self) -> bool:
        return True

    @property
    def master(self) -> str:
        return ""

    @property
    def evaluation_master(self) -> str:
        return ""

    @property
    def num_ps_replicas(self) -> int:
        return 0

    @property
    def num_worker_replicas(self) -> int:
        return 1

    @property
    def task_type(self) -> str:
        return "worker"

    @property
    def task_id(self) -> int:
        return 0

    @property
    def global_id_in_cluster(self) -> int:
        return 0

    @property
    def service(self) -> None:
        return None

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
        return replace(self, **changes)


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
                f"RunConfig({name}=...): an estimator of Headrace runs in one process, without a "
                "distribution strategy",
                hint="Leave it out: the model then trains on all cores of this machine.",
            )


def _check_environment(environment: dict[str, Any]) -> None:
    if not environment:
        return
    log.info("TF_CONFIG environment variable: %s", environment)
    if environment.get("cluster"):
        raise UnimplementedError(
            None,
            None,
            "TF_CONFIG describes a cluster, and an estimator of Headrace runs in one process",
            hint="Unset TF_CONFIG, or leave its 'cluster' out.",
        )
    task = environment.get("task", {})
    if task.get("type", "worker") != "worker":
        raise ValueError('If "cluster" is not set in TF_CONFIG, task type must be WORKER.')
    if int(task.get("index", 0)) != 0:
        raise ValueError('If "cluster" is not set in TF_CONFIG, task index must be 0.')


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
