"""`headrace launch`: start the processes of a cluster on this host. In: a script and numbers of
tasks. Out: what the processes print, their state, and the exit code of the first that failed.
"""

from __future__ import annotations

import sys
from pathlib import Path

import click

__all__ = ["command"]


@click.command(context_settings={"ignore_unknown_options": True})
@click.option("--ps", type=click.IntRange(min=0), default=1, show_default=True)
@click.option("--workers", type=click.IntRange(min=0), default=2, show_default=True)
@click.option("--chief", is_flag=True, help="Also start a task of the job `chief`.")
@click.option("--evaluator", is_flag=True, help="Also start an evaluator, outside of the cluster.")
@click.option(
    "--restarts",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="How often a task that fails is started again.",
)
@click.option(
    "--grace",
    type=click.FloatRange(min=0),
    default=10.0,
    show_default=True,
    help="Seconds from SIGINT to SIGTERM when tasks are stopped.",
)
@click.argument("script", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(
    script: Path,
    arguments: tuple[str, ...],
    ps: int,
    workers: int,
    chief: bool,
    evaluator: bool,
    restarts: int,
    grace: float,
) -> None:
    """Run SCRIPT in one process for each task of a cluster on this host.

    Each process gets a TF_CONFIG with the cluster and its task. If the script has the names of
    TensorFlow 1's flags as strings (job_name, task_index, ps_hosts, worker_hosts), it gets these
    flags too. ARGUMENTS are passed to the script, and so is everything after `--`.

    When a task fails, the others are stopped; the exit code is that of the task. When all workers
    have ended, the parameter servers end. Ctrl-C stops everything, a second one at once.
    """
    from headrace._src.cli.launch.plan import job_sizes, make_plan, threads_each
    from headrace._src.cli.launch.running import Launch
    from headrace._src.devices.target import usable_cores
    from headrace._src.transport.reserve import reserve

    sizes = job_sizes(ps, workers, chief)
    if not workers and not chief:
        raise click.UsageError("nothing to launch: there is neither a worker nor a chief")
    held = reserve(sum(sizes.values()))
    try:
        addresses = iter([each.address for each in held])
        cluster = {job: [next(addresses) for _ in range(count)] for job, count in sizes.items()}
        text = script.read_text(errors="replace")
        plans = make_plan(str(script), text, arguments, cluster, evaluator)
        threads = threads_each(usable_cores(), len(plans))
        defaults = {"HEADRACE_NUM_THREADS": str(threads), "PYTHONUNBUFFERED": "1"}
        status = Launch(plans, defaults, restarts, grace).run()
    finally:
        for each in held:
            each.close()
    sys.exit(status)
