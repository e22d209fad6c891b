"""`headrace launch`: which processes it would start, and what it shows of them."""

import io
import json
import signal

import pytest
from click.testing import CliRunner
from rich.console import Console

from headrace._src.cli import main
from headrace._src.cli.launch.plan import (
    command_for,
    flags_for,
    job_sizes,
    make_plan,
    threads_each,
)
from headrace._src.cli.launch.running import ladder
from headrace._src.cli.launch.view import TaskView, exit_status, how_it_ended, split_lines, table
from headrace._src.compat.activation import imports_tensorflow
from headrace._src.server.status import StatusReport, parse

CLUSTER = {"ps": ["a:1"], "worker": ["a:2", "a:3"]}


def test_each_task_gets_its_own_description_of_the_cluster():
    plans = make_plan(["train.py"], "import os", ["--epochs", "3"], CLUSTER, evaluator=True)
    assert [plan.name for plan in plans] == ["ps 0", "worker 0", "worker 1", "evaluator 0"]
    assert [plan.is_server for plan in plans] == [True, False, False, False]
    found = [json.loads(plan.environment["TF_CONFIG"]) for plan in plans]
    assert all(each["cluster"] == CLUSTER for each in found)
    assert found[2]["task"] == {"type": "worker", "index": 1}
    assert {plan.arguments for plan in plans} == {("train.py", "--epochs", "3")}


def test_parameter_servers_start_first():
    cluster = {"chief": ["a:0"], **CLUSTER}
    plans = make_plan(["train.py"], "", [], cluster, evaluator=False)
    assert [plan.name for plan in plans] == ["ps 0", "chief 0", "worker 0", "worker 1"]


@pytest.mark.parametrize(
    ("text", "flags"),
    [
        ("server = Server(cluster, job_name=job, task_index=0)", []),
        ('flags.DEFINE_string("job_name", "", "")', ["--job_name=worker"]),
        ("parser.add_argument('--task_index', type=int)", ["--task_index=1"]),
        ("DEFINE_string('ps_hosts'); DEFINE_string(\"worker_hosts\")", None),
        ("'my_job_name', 'job_name_', \"ps_hosts'", []),
    ],
)
def test_a_script_gets_the_flags_that_it_defines(text, flags):
    if flags is None:
        flags = ["--ps_hosts=a:1", "--worker_hosts=a:2,a:3"]
    assert flags_for(text, CLUSTER, "worker", 1) == flags


def test_a_users_own_flags_come_last_and_so_win():
    text = 'DEFINE_integer("task_index", 0, "")'
    plans = make_plan(["train.py"], text, ["--task_index=7"], CLUSTER, evaluator=False)
    assert plans[0].arguments == ("train.py", "--task_index=0", "--task_index=7")


@pytest.mark.parametrize(
    ("text", "imports"),
    [
        ("import tensorflow as tf", True),
        ("if True:\n    from tensorflow.contrib import slim", True),
        ("import horovod.tensorflow as hvd", True),
        ("import headrace as tf  # in place of import tensorflow", False),
        ("import tensorflows", False),
    ],
)
def test_a_script_that_imports_tensorflow_runs_as_headrace_run_would(text, imports):
    assert imports_tensorflow(text) is imports
    run = command_for("train.py", imports)
    plans = make_plan(run, text, ["--fast"], CLUSTER, evaluator=False)
    assert plans[0].arguments == (*("-m", "headrace", "run") * imports, "train.py", "--fast")


def test_jobs_without_tasks_are_left_out():
    assert job_sizes(0, 2, chief=False) == {"worker": 2}
    assert job_sizes(1, 0, chief=True) == {"chief": 1, "ps": 1}


def test_cores_are_divided():
    assert [threads_each(8, n) for n in (1, 3, 8, 20)] == [8, 2, 1, 1]


def test_nothing_to_launch_is_refused(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("")
    result = CliRunner().invoke(main, ["launch", str(script), "--workers", "0"])
    assert result.exit_code == 2
    assert "neither a worker nor a chief" in result.output


def test_reports_travel():
    report = StatusReport("/job:ps/replica:0/task:0", 12, 3)
    assert parse(report.line()) == report
    for nonsense in (b"", b"12", b"{}", b'{"task": "a", "steps": "b"}', b"\xff"):
        assert parse(nonsense) is None


def test_the_state_of_a_task():
    view = TaskView("worker 0", 0.0)
    assert view.state(0.1) == "starting"
    view = view.reported(StatusReport("", 0), 1.0)
    assert (view.state(1.1), view.rate) == ("ready", 0.0)
    busy = view.reported(StatusReport("", 0, 1), 1.4)
    assert busy.state(1.4) == "in a step"  # which compiles, or waits
    view = view.reported(StatusReport("", 10), 1.5)
    assert (view.state(1.6), view.rate, view.steps) == ("running", 20.0, 10)
    assert view.state(60.0) == "silent"
    ended = TaskView("worker 0", 0.0, code=0)
    assert ended.state(1.0) == "ended"
    assert TaskView("worker 0", 0.0, code=-9).state(1.0) == "killed by SIGKILL"
    assert TaskView("worker 0", 0.0, ending=True).state(1.0) == "stopping"
    assert TaskView("worker 0", 0.0, ending=True, code=-2).state(1.0) == "stopped"


def test_the_rate_follows_the_latest_reports():
    view = TaskView("worker 0", 0.0)
    for second in range(20):
        view = view.reported(StatusReport("", 100 if second > 5 else 0), float(second))
    assert view.rate == 0.0
    assert view.state(19.5) == "ready"


def test_one_line_for_each_task():
    views = [TaskView("ps 0", 0.0, ((1.0, 0), (2.0, 1500)), 2.0), TaskView("worker 0", 0.0, code=3)]
    console = Console(width=100, file=io.StringIO())
    console.print(table(views, 2.5))
    words = [" ".join(line.split()) for line in console.file.getvalue().splitlines()]
    assert words == [
        "ps 0 running 1,500 steps 1500.0 steps/s heard 0.5 s ago",
        "worker 0 exit code 3",
    ]


def test_how_processes_end():
    assert [how_it_ended(code) for code in (0, 3, -15)] == [
        "ended",
        "exit code 3",
        "killed by SIGTERM",
    ]
    assert [exit_status(code) for code in (0, 3, -9)] == [0, 3, 137]
    assert [number for _, number in ladder(4)] == [signal.SIGINT, signal.SIGTERM, signal.SIGKILL]
    assert [number for _, number in ladder(4, is_server=True)] == [signal.SIGTERM, signal.SIGKILL]


def test_lines_are_put_together():
    assert split_lines(b"ab", b"c\nd\n\ne") == (["abc", "d", ""], b"e")
    assert split_lines(b"", b"1%\r2%\r3%") == (["1%", "2%"], b"3%")
    assert split_lines(b"", b"a\r") == ([], b"a\r")
    assert split_lines(b"a\r", b"\nb\n") == (["a", "b"], b"")
    assert split_lines(b"", b"\xff\n") == (["�"], b"")
