"""`headrace launch`: start the processes of a cluster, on this host or on Ray. In: a script and
numbers of tasks. Out: what the processes print, their state, and the exit code of the first that
failed.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from headrace._src.server.ray_tasks import RayRequest

__all__ = ["command"]


class _LaunchCommand(click.Command):
    """A command whose option --ray may lack its value, also right before the script."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        end = args.index("--") if "--" in args else len(args)
        given = []
        for word, following in zip(args[:end], [*args[1:end], ""], strict=True):
            given.append(word)
            if word == "--ray" and not re.fullmatch(r"auto|local|.+:\d+", following):
                given.append("auto")
        return super().parse_args(ctx, given + args[end:])


def _resources(
    ctx: click.Context, parameter: click.Parameter, given: tuple[str, ...]
) -> dict[str, float]:
    """Return the resources in options such as `--resource accelerator=1`."""
    found = {}
    for each in given:
        name, equals, amount = each.partition("=")
        try:
            found[name] = float(amount) if equals else 1.0
        except ValueError:
            raise click.BadParameter(f"{each}: a resource is NAME=AMOUNT") from None
    return found


@click.command(cls=_LaunchCommand, context_settings={"ignore_unknown_options": True})
@click.option("--ps", type=click.IntRange(min=0), default=1, show_default=True)
@click.option("--workers", type=click.IntRange(min=0), default=2, show_default=True)
@click.option(
    "--ranks",
    type=click.IntRange(min=1),
    default=None,
    help="Start this many ranks for all-reduce (headrace.horovod), and no cluster.",
)
@click.option(
    "--min-ranks",
    type=click.IntRange(min=1),
    default=None,
    help="Go on when ranks fail, as long as there are so many (headrace.horovod.elastic).",
)
@click.option("--chief", is_flag=True, help="Also start a task of the job `chief`.")
@click.option("--evaluator", is_flag=True, help="Also start an evaluator, outside of the cluster.")
@click.option(
    "--tf1/--no-tf1",
    default=None,
    help="Whether `import tensorflow` means Headrace, as under `headrace run`. By default it does "
    "if SCRIPT imports tensorflow or horovod.",
)
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
@click.option(
    "--ray",
    metavar="[ADDRESS]",
    help="Let Ray start the tasks: on the cluster at HOST:PORT, on the one of this host (auto, if "
    "there is no address), or on a new one (local).",
)
@click.option(
    "--cpus",
    type=click.FloatRange(min=0, min_open=True),
    default=1.0,
    show_default=True,
    help="With --ray: the cores that are reserved for each task.",
)
@click.option(
    "--resource",
    "resources",
    multiple=True,
    metavar="NAME=AMOUNT",
    callback=_resources,
    help="With --ray: what else is reserved for each task.",
)
@click.option(
    "--strategy",
    type=click.Choice(["SPREAD", "PACK", "STRICT_SPREAD", "STRICT_PACK"]),
    default="SPREAD",
    show_default=True,
    help="With --ray: how tasks are spread over hosts.",
)
@click.option(
    "--working-dir",
    type=click.Path(exists=True, file_okay=False),
    help="With --ray: a directory that Ray copies to the hosts. SCRIPT is below it then. Without "
    "it, SCRIPT must have the same path on all hosts.",
)
@click.argument("script", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(
    script: Path,
    arguments: tuple[str, ...],
    ps: int,
    workers: int,
    ranks: int | None,
    min_ranks: int | None,
    chief: bool,
    evaluator: bool,
    tf1: bool | None,
    restarts: int,
    grace: float,
    ray: str | None,
    cpus: float,
    resources: dict[str, float],
    strategy: str,
    working_dir: str | None,
) -> None:
    """Run SCRIPT in one process for each task of a cluster, on this host or on Ray.

    Each process gets a TF_CONFIG with the cluster and its task. If the script has the names of
    TensorFlow 1's flags as strings (job_name, task_index, ps_hosts, worker_hosts), it gets these
    flags too. ARGUMENTS are passed to the script, and so is everything after `--`.

    With --ranks, there is no cluster: the processes are ranks that average their gradients with
    each other, and find each other by environment variables (docs/all_reduce.md).

    When a task fails, the others are stopped; the exit code is that of the task. When all workers
    have ended, the parameter servers end. Ctrl-C stops everything, a second one at once.
    """
    from headrace._src.cli.launch.plan import (
        PlannedTask,
        command_for,
        job_sizes,
        make_plan,
    )
    from headrace._src.compat.activation import imports_tensorflow

    if min_ranks is not None and (ranks is None or min_ranks > ranks):
        raise click.UsageError("--min-ranks must be at most --ranks")
    text = script.read_text(errors="replace")
    tf1 = imports_tensorflow(text) if tf1 is None else tf1
    if ranks is not None:
        from headrace._src.cli.launch.ranks import launch_ranks

        if chief or evaluator:
            raise click.UsageError("--ranks starts neither a chief nor an evaluator")
        here = command_for(str(script), tf1)
        sys.exit(launch_ranks(here, arguments, ranks, min_ranks, restarts, grace))
    sizes = job_sizes(ps, workers, chief)
    if not workers and not chief:
        raise click.UsageError("nothing to launch: there is neither a worker nor a chief")

    def plan(addresses: list[str]) -> tuple[PlannedTask, ...]:
        rest = iter(addresses)
        cluster = {job: [next(rest) for _ in range(count)] for job, count in sizes.items()}
        path = str(script.resolve())
        if working_dir is not None:
            path = str(script.resolve().relative_to(Path(working_dir).resolve()))
        run = command_for(path if ray else str(script), tf1)
        return make_plan(run, text, arguments, cluster, evaluator)

    if ray is None:
        sys.exit(_here(sum(sizes.values()), plan, restarts, grace))
    names = [f"{job} {index}" for job, count in sizes.items() for index in range(count)]
    if evaluator:
        names.append("evaluator 0")
    from headrace._src.server.ray_tasks import RayRequest

    address = None if ray == "local" else ray
    environment = {"PYTHONUNBUFFERED": "1"}
    request = RayRequest(address, cpus, resources, strategy, environment, working_dir)
    sys.exit(_on_ray(names, request, plan, restarts, grace))


def _here(count: int, plan: Callable, restarts: int, grace: float) -> int:
    """Run the tasks in processes of this host; return the exit code."""
    from headrace._src.cli.launch.plan import threads_each
    from headrace._src.cli.launch.running import Launch
    from headrace._src.devices.target import usable_cores
    from headrace._src.transport.reserve import reserve

    held = reserve(count)
    try:
        plans = plan([each.address for each in held])
        threads = threads_each(usable_cores(), len(plans))
        defaults = {"HEADRACE_NUM_THREADS": str(threads), "PYTHONUNBUFFERED": "1"}
        return Launch(plans, defaults, restarts, grace).run()
    finally:
        for each in held:
            each.close()


def _on_ray(
    names: list[str], request: RayRequest, plan: Callable, restarts: int, grace: float
) -> int:
    """Run the tasks on Ray; return the exit code."""
    from headrace._src.cli.launch.on_ray import RayLaunch, say
    from headrace._src.server.ray_tasks import RayTasks

    try:
        tasks = RayTasks(names, request, say)
    except (ConnectionError, ImportError) as error:
        raise click.ClickException(str(error)) from error
    members = [name for name in names if not name.startswith("evaluator")]
    with tasks:
        return RayLaunch(tasks, plan(tasks.addresses(members)), restarts, grace).run()
