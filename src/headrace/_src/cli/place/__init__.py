"""`headrace place`: predict what a step would cost on a cluster. In: a program or a graph, and the
description of a cluster. Out: where the step's work goes, how long it takes, which device or link
is the bottleneck; with --html, the timeline.
"""

from __future__ import annotations

import json
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from headrace._src.cli.place.placed_step import StepCosts
    from headrace._src.cli.place.report import Report
    from headrace._src.cli.place.scaling_report import ScalingReport
    from headrace._src.place.cost_graph import ClusterModel
    from headrace._src.place.estimate import Roofs
    from headrace._src.place.measured import MeasuredCosts

__all__ = ["command"]

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_OUT = click.Path(dir_okay=False, path_type=Path)


@click.command(context_settings={"ignore_unknown_options": True})
@click.option("--cluster", "cluster_file", type=_FILE, help="The cluster's file.")
@click.option(
    "--workers",
    type=click.IntRange(min=1, max=100_000),
    help="Replicate the step instead: what it would take with up to so many workers.",
)
@click.option(
    "--ps",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="With --workers: how many parameter servers there are.",
)
@click.option(
    "--backups",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="With --workers: how many gradients a synchronous update does not wait for.",
)
@click.option(
    "--slow",
    metavar="SHARE,TIMES",
    help="With --workers: the share of steps that take so many times as long, such as 0.05,3.",
)
@click.option("--fetch", "fetches", multiple=True, metavar="NAME", help="What the step fetches.")
@click.option("--batch", type=click.IntRange(min=1), default=32, help="Taken for unknown sizes.")
@click.option("--steps", type=click.IntRange(min=1), help="Stop a script after this many runs.")
@click.option("--costs", type=_FILE, help="Measured costs, which replace estimates.")
@click.option("--save-costs", type=_OUT, help="Write the costs that the prediction used.")
@click.option(
    "--roofs",
    metavar="GFLOPS,GBS",
    help="The speed of one machine, in GF/s and GB/s, instead of measuring this one.",
)
@click.option(
    "--calibrate",
    is_flag=True,
    help="Measure this machine by some dozens of short steps too, for better estimates.",
)
@click.option("--html", type=_OUT, help="Draw the timeline on an HTML page (or in an .svg file).")
@click.option("--json", "as_json", type=_OUT, help="Write everything as JSON.")
@click.argument("model", type=_FILE)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(
    model: Path,
    arguments: tuple[str, ...],
    cluster_file: Path | None,
    workers: int | None,
    ps: int,
    backups: int,
    slow: str | None,
    fetches: tuple[str, ...],
    batch: int,
    steps: int | None,
    roofs: str | None,
    calibrate: bool,
    **files: Path | None,
) -> None:
    """Place a step of MODEL on a cluster by cost, and say what it would take; or, with --workers,
    say what it would take if many workers trained the model together.

    MODEL is a script, which is run as `headrace explain` runs it, with ARGUMENTS, or a graph (a
    GraphDef, .pb or .pbtxt), of which --fetch names the outputs. Of a script's steps, the one that
    ran most often is placed, or the one that --fetch names; its own time calibrates the costs.
    """
    from headrace._src.cli.place.placed_step import graph_step, script_step
    from headrace._src.core.errors import OpError
    from headrace._src.place.cluster_file import one_machine, read_cluster
    from headrace._src.place.measured import MeasuredCosts

    before = set(threading.enumerate())
    try:
        if cluster_file is None and workers is None:
            raise click.UsageError("a cluster is needed: --cluster FILE, or --workers N")
        if workers is not None and (files["html"] or files["save_costs"]):
            raise click.UsageError("--html and --save-costs are for a placement, not --workers")
        cluster = one_machine() if cluster_file is None else read_cluster(cluster_file)
        measured = MeasuredCosts.load(files["costs"]) if files["costs"] else None
        speed = _roofs(roofs, calibrate)
        if model.suffix in (".pb", ".pbtxt"):
            found = graph_step(model, fetches, batch, speed, cluster)
        else:
            if len(fetches) > 1:
                raise click.UsageError("of a script's steps, one --fetch chooses one")
            found = script_step(model, arguments, (*fetches, None)[0], steps, speed, cluster)
        if workers is None:
            from headrace._src.cli.place.report import Report

            report: Report | ScalingReport = Report.of(found, cluster, measured)
        else:
            report = _scaled(found, cluster, measured, workers, ps, backups, slow)
        _show(report, files)
    except (OpError, OSError, ValueError) as error:
        raise click.ClickException(getattr(error, "message", "") or str(error)) from error
    if found.ending is not None:
        from headrace._src.cli.explain.running import leave, tell

        tell(found.ending)
        leave(1 if found.ending.failed else 0, set(threading.enumerate()) - before)


def _roofs(text: str | None, calibrate: bool) -> Roofs | None:
    """Return the speed of a machine, given or measured; None if this installation can't measure it.
    calibrate: measure the rates of each kind of work too.
    """
    from headrace._src.place.estimate import Roofs

    if text is not None:
        if calibrate:
            raise click.UsageError("--calibrate measures this machine; --roofs describes another")
        try:
            flops, bandwidth = (float(part) * 1e9 for part in text.split(","))
        except ValueError:
            raise click.BadParameter(f"{text!r}: GFLOPS,GBS", param_hint="--roofs") from None
        if not (flops > 0 and bandwidth > 0):
            raise click.BadParameter(f"{text!r}: above 0", param_hint="--roofs")
        return Roofs(flops=flops, bandwidth=bandwidth)
    from headrace._src.compile.native import machine_code, roofs
    from headrace._src.devices import openmp

    if machine_code.why_not() is not None:
        if calibrate:
            raise click.UsageError(f"--calibrate measures compiled code: {machine_code.why_not()}")
        return None
    threads = openmp.thread_count()
    found = Roofs(flops=roofs.peak_flops(threads), bandwidth=roofs.bandwidth(threads))
    if calibrate:
        from headrace._src.cli.place.micro_graphs import calibrated, measure

        found = calibrated(found, measure())
    return found


def _scaled(
    found: StepCosts,
    cluster: ClusterModel,
    measured: MeasuredCosts | None,
    workers: int,
    ps: int,
    backups: int,
    slow: str | None,
) -> ScalingReport:
    """Predict the step with many workers, on hosts like the first one of the cluster."""
    from headrace._src.cli.place.scaling_report import ScalingReport
    from headrace._src.place.replicas import TEN_GIGABIT

    if backups >= workers:
        raise click.UsageError(f"--backups {backups}: there are {workers} workers")
    try:
        share, times = (float(part) for part in slow.split(",")) if slow else (0.0, 1.0)
    except ValueError:
        raise click.BadParameter(f"{slow!r}: SHARE,TIMES", param_hint="--slow") from None
    if not (0 <= share <= 1 and times >= 0):
        raise click.BadParameter(f"{slow!r}: a share is 0 to 1", param_hint="--slow")
    if measured is not None:
        found = replace(found, graph=measured.applied(found.graph), origin="measured")
    network = cluster.network or TEN_GIGABIT
    graph = found.graph.faster(cluster.devices[0].speed)
    found = replace(found, graph=graph)
    return ScalingReport.of(found, workers, ps, network, backups, share, times)


def _show(report: Report | ScalingReport, files: dict[str, Path | None]) -> None:
    """Print, draw and write what was asked for."""
    from rich.console import Console
    from rich.measure import Measurement

    from headrace._src.cli.place.report import Report

    console = Console(soft_wrap=True, width=1_000)
    for part in report.parts():
        # Tables may be wider than the terminal: names are never truncated.
        width = Measurement.get(console, console.options, part).maximum
        console.print(part, width=max(1, width), markup=False, highlight=False)
    written: dict[str, Any] = {}
    if files["save_costs"] is not None:
        assert isinstance(report, Report)
        report.costs().save(files["save_costs"])
        written["the costs"] = files["save_costs"]
    if files["as_json"] is not None:
        text = json.dumps(report.content(), indent=1) + "\n"
        files["as_json"].write_text(text, encoding="utf-8")
        written["the prediction"] = files["as_json"]
    if files["html"] is not None:
        from headrace._src.cli.place.timeline_page import page, svg

        assert isinstance(report, Report)

        drawn = svg(report) if files["html"].suffix == ".svg" else page(report)
        files["html"].write_text(drawn, encoding="utf-8")
        written["a drawing of the timeline"] = files["html"]
    for what, path in written.items():
        click.echo(f"{path}: {what}", file=sys.stdout)
