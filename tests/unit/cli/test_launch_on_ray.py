"""A launch on Ray, without Ray: what it does when tasks are lost, fail and end."""

import io

import pytest
from click.testing import CliRunner
from rich.console import Console

from headrace._src.cli import launch
from headrace._src.cli.launch import on_ray
from headrace._src.cli.launch.on_ray import RayLaunch
from headrace._src.cli.launch.plan import make_plan
from headrace._src.server.ray_tasks import Event

CLUSTER = {"ps": ["127.0.0.1:1"], "worker": ["127.0.0.1:2", "127.0.0.1:3"]}


class Tasks:
    """Stands for RayTasks: gives events that a test lists, and notes what it is told."""

    def __init__(self, *events):
        self.events = list(events)
        self.told = []

    def begin(self, name, work):
        self.told.append(("begin", name, work.method))

    def poll(self, timeout):
        return [self.events.pop(0)] if self.events else []

    def steps(self):
        return {"worker 0": 7}

    def __getattr__(self, name):
        return lambda *arguments: self.told.append((name, *arguments))


def launched(*events, **options):
    tasks = Tasks(*events)
    plans = make_plan(["train.py"], "", ["--fast"], CLUSTER, evaluator=False)
    code = RayLaunch(tasks, plans, console=Console(file=io.StringIO()), **options).run()
    return code, tasks.told


def ended(task, code=0):
    return Event(task, "ended", code=code)


WELL = ended("worker 0"), ended("worker 1"), ended("ps 0")


def test_every_task_runs_the_script():
    code, told = launched(*WELL)
    assert code == 0
    assert told == [("begin", name, "run") for name in ("ps 0", "worker 0", "worker 1")]


def test_a_lost_task_is_left_to_ray(capsys):
    code, told = launched(
        Event("worker 1", "lost", "its node died"),
        Event("worker 1", "restarted", "at 127.0.0.1:4"),
        *WELL,
    )
    assert code == 0 and len(told) == 3
    printed = capsys.readouterr().out
    assert "[launch] worker 1 is lost; Ray starts it again: its node died" in printed
    assert "[launch] worker 1 started again: at 127.0.0.1:4" in printed


def test_a_task_that_fails_ends_the_others():
    code, told = launched(ended("worker 1", 3), ended("worker 0", 130), ended("ps 0", 130))
    assert code == 3
    assert told[3:] == [("end",)]


def test_a_script_that_fails_is_run_again():
    code, told = launched(ended("worker 1", 3), *WELL, restarts=1)
    assert code == 0
    assert told[3:] == [("restart", "worker 1")]


def test_tasks_that_do_not_end_are_killed():
    code, told = launched(ended("worker 1", 3), grace=0.0)
    assert code == 3
    assert told[3:] == [("end",), ("kill", "ps 0"), ("kill", "worker 0")]


def test_parameter_servers_that_stay_are_killed(monkeypatch):
    monkeypatch.setattr(on_ray, "_LEAVE", 0.0)
    code, told = launched(*WELL[:2])
    assert code == 0
    assert told[3:] == [("kill", "ps 0")]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--ray", "SCRIPT"], "auto"),
        (["--ray", "SCRIPT", "--workers", "3"], "auto"),
        (["SCRIPT", "--ray"], "auto"),
        (["--ray", "127.0.0.1:6379", "SCRIPT"], "127.0.0.1:6379"),
        (["--ray", "ray://host:10001", "SCRIPT"], "ray://host:10001"),
        (["--ray", "local", "SCRIPT", "--", "--ray"], None),
    ],
)
def test_the_address_may_be_left_out(words, expected, tmp_path, monkeypatch):
    script = tmp_path / "train.py"
    script.write_text("")
    asked = []
    monkeypatch.setattr(launch, "_on_ray", lambda names, request, *rest: asked.append(request) or 0)
    words = [str(script) if word == "SCRIPT" else word for word in words]
    result = CliRunner().invoke(launch.command, words)
    assert result.exit_code == 0, result.output
    assert asked[0].address == expected


def test_resources_are_numbers(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("")
    result = CliRunner().invoke(launch.command, ["--resource", "fast=much", str(script)])
    assert result.exit_code == 2
    assert "a resource is NAME=AMOUNT" in result.output
