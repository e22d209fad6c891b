"""Which processes a launch starts. In: numbers of tasks, their addresses, a script. Out: one
PlannedTask each. Everything here is a pure function.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

__all__ = [
    "PlannedTask",
    "command_for",
    "flags_for",
    "job_sizes",
    "make_plan",
    "plan_ranks",
    "threads_each",
]


@dataclass(frozen=True, slots=True)
class PlannedTask:
    """A process to start: Python's arguments, and the environment variables that it is given."""

    job: str
    index: int
    arguments: tuple[str, ...]
    environment: Mapping[str, str]

    @property
    def name(self) -> str:
        """The task as users read it: "worker 1"."""
        return f"{self.job} {self.index}"

    @property
    def is_server(self) -> bool:
        """Whether the task serves others, and has nothing to do once they have ended."""
        return self.job == "ps"


def job_sizes(ps: int, workers: int, chief: bool) -> dict[str, int]:
    """Return the number of tasks of each job of the cluster. An evaluator is not part of it."""
    sizes = {"chief": int(chief), "ps": ps, "worker": workers}
    return {job: count for job, count in sizes.items() if count}


def command_for(script: str, tf1: bool) -> tuple[str, ...]:
    """Return Python's arguments that run a script. tf1: as `headrace run` does."""
    return ("-m", "headrace", "run", script) if tf1 else (script,)


def make_plan(
    script: Sequence[str],
    text: str,
    arguments: Sequence[str],
    cluster: Mapping[str, Sequence[str]],
    evaluator: bool,
) -> tuple[PlannedTask, ...]:
    """Return the tasks in the order in which they start: parameter servers first.

    script: what Python runs (see command_for); text: the script's own text. arguments: those of the
    script. cluster: the addresses of each job.
    """
    tasks = [(job, index) for job, found in cluster.items() for index in range(len(found))]
    tasks.sort(key=lambda task: task[0] != "ps")
    if evaluator:
        tasks.append(("evaluator", 0))
    made = []
    for job, index in tasks:
        config = {"cluster": cluster, "task": {"type": job, "index": index}}
        flags = flags_for(text, cluster, job, index)
        environment = {"TF_CONFIG": json.dumps(config)}
        made.append(PlannedTask(job, index, (*script, *flags, *arguments), environment))
    return tuple(made)


def plan_ranks(
    script: Sequence[str], arguments: Sequence[str], ranks: int, address: str
) -> tuple[PlannedTask, ...]:
    """Return the processes of an all-reduce. address: where they meet; somebody listens there."""
    return tuple(
        PlannedTask(
            "rank",
            rank,
            (*script, *arguments),
            {
                "HEADRACE_RENDEZVOUS": address,
                "HEADRACE_RENDEZVOUS_SERVED": "1",
                "HEADRACE_RANK": str(rank),
                "HEADRACE_RANKS": str(ranks),
            },
        )
        for rank in range(ranks)
    )


def flags_for(text: str, cluster: Mapping[str, Sequence[str]], job: str, index: int) -> list[str]:
    """Return the flags of TensorFlow 1's distributed programs that a script defines: job_name,
    task_index, and the addresses of each job (ps_hosts, worker_hosts).

    A script defines a flag if its name is a string somewhere in the text, with or without dashes:
    `flags.DEFINE_string("job_name", ...)` or `add_argument("--job_name")`.
    """
    values = {"job_name": job, "task_index": str(index)}
    values |= {f"{each}_hosts": ",".join(found) for each, found in cluster.items()}
    defined = re.compile(r"""(["'])(?:--)?(\w+)\1""")
    names = {found[2] for found in defined.finditer(text)}
    return [f"--{name}={value}" for name, value in values.items() if name in names]


def threads_each(cores: int, processes: int) -> int:
    """Return how many threads each process may use: its share of the cores, at least one."""
    return max(1, cores // max(1, processes))
