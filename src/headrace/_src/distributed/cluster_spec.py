"""ClusterSpec: the jobs of a cluster, and the address of each of their tasks."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

from headrace._src.core.export import export
from headrace._src.core.proto import ClusterDef

__all__ = ["ClusterSpec", "conflict", "task_name", "task_of"]


def task_name(job: str, index: int) -> str:
    """Return the full name of a task, which begins the names of its devices."""
    return f"/job:{job}/replica:0/task:{index}"


def task_of(device: str) -> str:
    """Return the task of a device, given the device's full name."""
    return device.partition("/device:")[0]


def conflict(
    own: Mapping[str, str], theirs: Mapping[str, str], same: Callable[[str, str], bool]
) -> str | None:
    """Return what is wrong if two specifications give one task different addresses. same: whether
    two addresses that are written in different ways are one.
    """
    for task, address in own.items():
        other = theirs.get(task, address)
        if other != address and not same(address, other):
            return f"{task} is at {address} here, and at {other} there"
    return None


@export("train.ClusterSpec")
class ClusterSpec:
    """The tasks of a cluster. `cluster`: for each job a list of addresses ("host:port"), or a
    dictionary from task numbers to addresses; a ClusterDef; or another ClusterSpec.
    """

    def __init__(self, cluster: Any) -> None:
        self._jobs = {job: dict(sorted(tasks.items())) for job, tasks in _read(cluster).items()}

    def as_dict(self) -> dict[str, Any]:
        """Return the addresses of each job: a list, or a dictionary if tasks are missing."""
        return {
            job: list(tasks.values()) if list(tasks) == list(range(len(tasks))) else dict(tasks)
            for job, tasks in self._jobs.items()
        }

    def as_cluster_def(self) -> Any:
        """Return the ClusterDef of the cluster, with its jobs sorted by name."""
        found = ClusterDef()
        for job, tasks in sorted(self._jobs.items()):
            added = found.job.add(name=job)
            for index, address in tasks.items():
                added.tasks[index] = address
        return found

    @property
    def jobs(self) -> list[str]:
        """The names of the jobs."""
        return list(self._jobs)

    def num_tasks(self, job_name: str) -> int:
        """Return the number of tasks of a job."""
        return len(self._tasks(job_name))

    def task_indices(self, job_name: str) -> list[int]:
        """Return the numbers of a job's tasks, in order."""
        return list(self._tasks(job_name))

    def task_address(self, job_name: str, task_index: int) -> str:
        """Return the address of a task."""
        tasks = self._tasks(job_name)
        if task_index not in tasks:
            raise ValueError(f"No task with index {task_index!r} in job {job_name!r}")
        return tasks[task_index]

    def job_tasks(self, job_name: str) -> list[str | None]:
        """Return the addresses of a job, with None for each number that has no task."""
        tasks = self._tasks(job_name)
        return [tasks.get(i) for i in range(max(tasks, default=-1) + 1)]

    def addresses(self) -> dict[str, str]:
        """Return the address of each task, by the task's full name."""
        return {
            task_name(job, index): address
            for job, tasks in self._jobs.items()
            for index, address in tasks.items()
        }

    def _tasks(self, job: str) -> dict[int, str]:
        if job not in self._jobs:
            raise ValueError(f"No such job in cluster: {job!r}")
        return self._jobs[job]

    def __bool__(self) -> bool:
        return bool(self._jobs)

    __nonzero__ = __bool__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ClusterSpec) and self._jobs == other._jobs

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(tuple((job, *tasks.items()) for job, tasks in self._jobs.items()))

    def __repr__(self) -> str:
        return f"ClusterSpec({self.as_dict()!r})"

    __str__ = __repr__


def _read(cluster: Any) -> dict[str, dict[int, str]]:
    """Return the addresses of the tasks of each job."""
    if isinstance(cluster, ClusterSpec):
        return cluster._jobs
    if isinstance(cluster, ClusterDef):
        return {job.name: dict(job.tasks) for job in cluster.job}
    if not isinstance(cluster, Mapping):
        raise TypeError(
            "`cluster` must be a dictionary mapping one or more job names to lists of network "
            "addresses, or a `ClusterDef` protocol buffer"
        )
    return {_job(job): _addresses(job, tasks) for job, tasks in cluster.items()}


def _job(name: Any) -> str:
    if not isinstance(name, str):
        raise TypeError(f"the name of a job must be a string, not {name!r}")
    return name


def _addresses(job: str, tasks: Any) -> dict[int, str]:
    if isinstance(tasks, list | tuple):
        tasks = dict(enumerate(tasks))
    if not isinstance(tasks, Mapping):
        raise TypeError(
            f"The tasks for job {job!r} must be a list or a dictionary from integers to strings."
        )
    found: dict[int, str] = {}
    for index, address in tasks.items():
        try:
            # JSON, as in TF_CONFIG, has strings for keys.
            number = int(index) if isinstance(index, str) else operator.index(index)
        except (TypeError, ValueError):
            message = f"The task keys for job {job!r} must be integers, not {index!r}"
            raise TypeError(message) from None
        if not isinstance(address, str | bytes):
            raise TypeError(f"The address of task {index} of job {job!r} must be a string")
        found[number] = address.decode() if isinstance(address, bytes) else address
    return found
