"""A cluster that a program has started: a context manager with the targets of its tasks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

from headrace._src.distributed.cluster_spec import ClusterSpec

__all__ = ["RunningCluster"]


class RunningCluster(ABC):
    """A cluster that ends with its block. spec: the ClusterSpec."""

    spec: ClusterSpec

    @property
    def targets(self) -> dict[str, list[str]]:
        """The targets of the tasks of each job, in order."""
        spec = self.spec
        return {job: [f"grpc://{a}" for a in spec.job_tasks(job)] for job in spec.jobs}

    @property
    def target(self) -> str:
        """The target of the first worker."""
        return self.targets["worker"][0]

    @abstractmethod
    def close(self) -> None:
        """End all servers."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
