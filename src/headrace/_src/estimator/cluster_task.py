"""ClusterTask: which task of a cluster this process is. In: the environment's TF_CONFIG. Out: the
cluster, and the facts that a RunConfig tells about the task.

A cluster has one chief (or, in older programs, one master), which trains and saves, workers, which
only train, and parameter servers. An evaluator is not part of the cluster that it evaluates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace._src.core import proto
from headrace._src.distributed.cluster_spec import ClusterSpec

__all__ = ["CHIEF", "EVALUATOR", "MASTER", "PS", "WORKER", "ClusterTask", "task_in"]

CHIEF, MASTER, WORKER, PS, EVALUATOR = "chief", "master", "worker", "ps", "evaluator"


@dataclass(frozen=True)
class ClusterTask:
    """The task of this process; by default the only one, without a cluster.

    master: the target of its training sessions. evaluation_master: that of its evaluations.
    global_id: the number of the task among those of all jobs, parameter servers last.
    """

    cluster_spec: ClusterSpec = field(default_factory=lambda: ClusterSpec({}))
    task_type: str = WORKER
    task_id: int = 0
    is_chief: bool = True
    master: str = ""
    evaluation_master: str = ""
    num_ps_replicas: int = 0
    num_worker_replicas: int = 1
    global_id: int | None = 0
    service: dict[str, Any] | None = None

    def session_config(self) -> Any:
        """Return a ConfigProto with which a session waits for its own task and the parameter
        servers only; None for a task that doesn't train.
        """
        filters = {
            MASTER: ["/job:ps", "/job:master"],
            CHIEF: ["/job:ps", "/job:chief"],
            WORKER: ["/job:ps", f"/job:worker/task:{self.task_id}"],
            PS: ["/job:ps", "/job:worker", "/job:chief", "/job:master"],
        }.get(self.task_type)
        if not self.cluster_spec or filters is None:
            return None
        return proto.ConfigProto(allow_soft_placement=True, device_filters=filters)


def task_in(environment: Mapping[str, Any]) -> ClusterTask:
    """Return the task that a TF_CONFIG describes; ValueError if it contradicts itself."""
    service = environment.get("service")
    if service is not None and not isinstance(service, dict):
        raise TypeError(
            f'If "service" is set in TF_CONFIG, it must be a dict. Given {type(service)}'
        )
    spec = ClusterSpec(environment.get("cluster", {}))
    task = environment.get("task", {})
    if not spec:
        return _only_task(environment, task, service)
    chief = MASTER if MASTER in spec.jobs else CHIEF
    if chief == MASTER and CHIEF in spec.jobs:
        raise ValueError("If `master` node exists in `cluster`, job `chief` is not supported.")
    kind, index = _checked_task(spec, task, chief)
    if kind == EVALUATOR:
        if chief == MASTER:
            raise ValueError(
                "If `master` node exists in `cluster`, task_type `evaluator` is not supported."
            )
        return ClusterTask(
            task_type=kind,
            task_id=index,
            is_chief=False,
            evaluation_master=environment.get("eval_session_master", ""),
            num_worker_replicas=0,
            global_id=None,
            service=service,
        )
    return ClusterTask(
        cluster_spec=spec,
        task_type=kind,
        task_id=index,
        is_chief=kind == chief,
        master=_master(environment, spec, kind, index),
        num_ps_replicas=_count(spec, PS),
        num_worker_replicas=_count(spec, WORKER) + _count(spec, chief),
        global_id=_global_id(spec, kind, index, chief),
        service=service,
    )


def _only_task(environment: Mapping[str, Any], task: Any, service: Any) -> ClusterTask:
    if task.get("type", WORKER) != WORKER:
        raise ValueError('If "cluster" is not set in TF_CONFIG, task type must be WORKER.')
    if int(task.get("index", 0)) != 0:
        raise ValueError('If "cluster" is not set in TF_CONFIG, task index must be 0.')
    return ClusterTask(
        master=environment.get("session_master", ""),
        evaluation_master=environment.get("eval_session_master", ""),
        service=service,
    )


def _checked_task(spec: ClusterSpec, task: Any, chief: str) -> tuple[str, int]:
    if chief not in spec.jobs:
        raise ValueError(f'If "cluster" is set in TF_CONFIG, it must have one "{chief}" node.')
    if len(spec.job_tasks(chief)) > 1:
        raise ValueError(f'The "cluster" in TF_CONFIG must have only one "{chief}" node.')
    kind, index = task.get("type"), task.get("index")
    if not kind:
        raise ValueError('If "cluster" is set in TF_CONFIG, task type must be set.')
    if index is None:
        raise ValueError('If "cluster" is set in TF_CONFIG, task index must be set.')
    index = int(index)
    if index < 0:
        raise ValueError("Task index must be non-negative number.")
    if kind == EVALUATOR:
        return kind, index
    wrong = None
    if kind not in spec.jobs:
        wrong = f"{kind} is not a valid task_type"
    elif index not in spec.task_indices(kind):
        wrong = f"{index} is not a valid task_id for task_type {kind}"
    if wrong is not None:
        raise ValueError(
            f"{wrong} in the cluster_spec:\n{spec}\n\nNote that these values may be coming from "
            "the TF_CONFIG environment variable."
        )
    return kind, index


def _master(environment: Mapping[str, Any], spec: ClusterSpec, kind: str, index: int) -> str:
    if "session_master" in environment:
        return environment["session_master"]
    if len(spec.addresses()) == 1:  # nobody else would connect to a server
        return ""
    return f"grpc://{spec.task_address(kind, index)}"


def _count(spec: ClusterSpec, job: str) -> int:
    return spec.num_tasks(job) if job in spec.jobs else 0


def _global_id(spec: ClusterSpec, kind: str, index: int, chief: str) -> int:
    others = sorted(job for job in spec.jobs if job not in (chief, PS))
    order = [chief, *others, PS]
    return sum(_count(spec, job) for job in order[: order.index(kind)]) + index
