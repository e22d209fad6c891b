"""Device functions that put variables on parameter servers and everything else on a worker. In: the
tasks of a cluster. Out: functions for `tf.device`, and strategies that choose a task for each
variable.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection
from typing import Any

from headrace._src.core.device_names import DeviceSpec, canonical_name
from headrace._src.core.export import export
from headrace._src.graph.operation import Operation

__all__ = [
    "GreedyLoadBalancingStrategy",
    "RandomStrategy",
    "VariableDeviceChooser",
    "byte_size_load_fn",
    "replica_device_setter",
]

# TensorFlow's default of `ps_ops`: ops whose state the workers share.
_SHARED_STATE = (
    "Variable",
    "VariableV2",
    "AutoReloadVariable",
    "MutableHashTable",
    "MutableHashTableV2",
    "MutableHashTableOfTensors",
    "MutableHashTableOfTensorsV2",
    "MutableDenseHashTable",
    "MutableDenseHashTableV2",
    "VarHandleOp",
    "BoostedTreesEnsembleResourceHandleOp",
    "BoostedTreesQuantileStreamResourceHandleOp",
    "ResourceConditionalAccumulator",
)


@export("train.replica_device_setter")
def replica_device_setter(
    ps_tasks: int = 0,
    ps_device: str = "/job:ps",
    worker_device: str = "/job:worker",
    merge_devices: bool = True,
    cluster: Any = None,
    ps_ops: Collection[str] | None = None,
    ps_strategy: Callable[[Operation], int] | None = None,
) -> Callable[[Operation], str] | None:
    """Return a device function for a replica of a model; None if there are no parameter servers.

    ps_tasks: the number of parameter servers. cluster: a dictionary from jobs to addresses, a
    ClusterSpec or a ClusterDef; its job of `ps_device` then says their number. merge_devices:
    whether an operation that has a device already gets the fields that it leaves open; if not, it
    keeps its device. ps_ops: the types of operations that go to parameter servers. ps_strategy:
    chooses the task of each of them; in turn, if None.
    """
    if cluster is not None:
        job = DeviceSpec.from_string(ps_device).job
        ps_tasks = len(_jobs(cluster).get(str(job), ()))
    if not ps_tasks:
        return None
    if ps_strategy is None:
        ps_strategy = _RoundRobin(ps_tasks)
    elif not callable(ps_strategy):
        raise TypeError(f"ps_strategy must be callable, not {ps_strategy!r}")
    wanted = _SHARED_STATE if ps_ops is None else ps_ops
    servers = DeviceSpec.from_string(ps_device)
    worker = DeviceSpec.from_string(worker_device)

    def device_of(op: Operation) -> str:
        if op.device and not merge_devices:
            return op.device
        own = DeviceSpec.from_string(op.device)
        if op.type not in wanted:
            return worker.make_merged_spec(own).to_string()
        place = servers
        if servers.job and own.job in (None, servers.job):
            place = servers.replace(task=ps_strategy(op))
        return place.make_merged_spec(own).to_string()

    return device_of


def _jobs(cluster: Any) -> dict[str, Any]:
    """Return the tasks of each job of a cluster."""
    if hasattr(cluster, "as_dict"):
        cluster = cluster.as_dict()
    elif hasattr(cluster, "job"):
        cluster = {job.name: dict(job.tasks) for job in cluster.job}
    if not isinstance(cluster, dict):
        raise TypeError(
            "`cluster` must be a dictionary mapping one or more job names to lists of network "
            f"addresses, or a `ClusterDef` protocol buffer, not {type(cluster).__name__}"
        )
    return cluster


class _RoundRobin:
    """Choose the tasks in turn."""

    def __init__(self, tasks: int) -> None:
        self._tasks = tasks
        self._next = 0

    def __call__(self, op: Operation) -> int:
        task = self._next
        self._next = (task + 1) % self._tasks
        return task


@export("contrib.training.RandomStrategy")
class RandomStrategy:
    """Choose a task by a hash of the operation's name and the seed."""

    def __init__(self, num_ps_tasks: int, seed: int = 0) -> None:
        self._tasks = num_ps_tasks
        self._seed = seed

    def __call__(self, op: Operation) -> int:
        key = f"{op.name}_{self._seed}"
        return int(hashlib.md5(key.encode(), usedforsecurity=False).hexdigest(), 16) % self._tasks


@export("contrib.training.GreedyLoadBalancingStrategy")
class GreedyLoadBalancingStrategy:
    """Choose the task with the least load so far. load_fn: (operation) -> its load."""

    def __init__(self, num_tasks: int, load_fn: Callable[[Operation], float]) -> None:
        self._load_of = load_fn
        self._loads = [0.0] * num_tasks

    def __call__(self, op: Operation) -> int:
        task = self._loads.index(min(self._loads))
        self._loads[task] += self._load_of(op)
        return task


@export("contrib.training.byte_size_load_fn")
def byte_size_load_fn(op: Operation) -> int:
    """Return the size of an operation's one output in bytes; ValueError if it is not known.

    As in TensorFlow, the output of a resource variable is its handle, which counts as one byte.
    """
    if len(op.outputs) != 1:
        raise ValueError(f"Op {op.name} must have a single output, but it has {len(op.outputs)}")
    output = op.outputs[0]
    output.shape.assert_is_fully_defined()
    count = output.shape.num_elements()
    assert count is not None
    return output.dtype.base_dtype.size * count


@export("contrib.framework.VariableDeviceChooser")
class VariableDeviceChooser:
    """A device function that spreads variables over the tasks of a job, in turn. Without tasks, it
    chooses the device of that type and index.
    """

    def __init__(
        self,
        num_tasks: int = 0,
        job_name: str = "ps",
        device_type: str | None = "CPU",
        device_index: int = 0,
        replica: int | None = None,
    ) -> None:
        index = None if device_type is None else device_index
        self._device = DeviceSpec(replica=replica, device_type=device_type, device_index=index)
        self._job = job_name
        self._in_turn = _RoundRobin(num_tasks) if num_tasks > 0 else None

    def __call__(self, op: Operation) -> str:
        device = self._device
        if self._in_turn is not None:
            device = device.replace(job=self._job, task=self._in_turn(op))
        return canonical_name(device)
