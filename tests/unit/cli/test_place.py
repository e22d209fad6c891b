"""`headrace place`: where a step goes, what is said of it, and how mistakes are reported."""

import json
import re

import pytest
from click.testing import CliRunner

import headrace as tf
from headrace._src.cli import main

TOWERS = """
import numpy as np
import headrace as tf

tf.reset_default_graph()
x = tf.placeholder(tf.float32, [None, 256], name="x")
towers = []
for name in "ab":
    h = x
    for layer in range(3):
        w = tf.get_variable(f"{name}{layer}", [256, 256], use_resource=True)
        h = tf.nn.relu(tf.matmul(h, w, name=f"{name}{layer}/product"))
    towers.append(h)
y = tf.add_n(towers, name="y")
with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    for _ in range(3):
        session.run(y, {x: np.ones([512, 256])})
print("the script's own output")
"""

CLUSTER = """
[[machines]]
name = "worker"
count = 2
memory = "1 GiB"
[network]
latency = 1e-6
bandwidth = "100 GB/s"
"""

ROOFS = ("--roofs", "100,20")


@pytest.fixture
def place(tmp_path):
    def run(model, *arguments, cluster=CLUSTER):
        (tmp_path / "cluster.toml").write_text(cluster)
        if isinstance(model, str):
            (tmp_path / "program.py").write_text(model)
            model = tmp_path / "program.py"
        command = ["place", str(model), "--cluster", str(tmp_path / "cluster.toml"), *ROOFS]
        return CliRunner().invoke(main, [*command, *map(str, arguments)])

    return run


@pytest.fixture
def graph_file(tmp_path):
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [None, 256], name="x")
        with tf.device("/job:worker/task:1"):
            left = tf.matmul(x, tf.get_variable("a", [256, 256]), name="left")
        with tf.device("/job:elsewhere"):
            right = tf.matmul(x, tf.get_variable("b", [256, 256]), name="right")
        y = tf.add(left, right, name="y")
        tf.group(y, name="all")
        tf.io.write_graph(graph, str(tmp_path), "graph.pbtxt")
    return tmp_path / "graph.pbtxt"


def test_a_script_is_run_and_its_step_is_placed(place, tmp_path):
    out = tmp_path / "out.json"
    result = place(TOWERS, "--json", out, "--html", tmp_path / "out.html")
    assert result.exit_code == 0, result.output
    assert "the script's own output" not in result.stdout
    assert "costs: estimated, scaled to the quickest of 3 runs on this machine" in result.stdout
    assert re.search(r"^worker:0 CPU:0 +\d+ +\S+ \w+ +[\d.]+% +", result.stdout, re.MULTILINE)
    found = json.loads(out.read_text())
    assert found["step"] == "y:0"
    assert found["seconds"] <= found["one_machine_seconds"]
    assert {"a0", "b0", "x:0"} <= set(found["placement"])


def test_the_page_is_self_contained_and_has_a_lane_per_device(place, tmp_path, graph_file):
    result = place(graph_file, "--fetch", "y", "--batch", 4096, "--html", tmp_path / "out.html")
    assert result.exit_code == 0, result.output
    shown = (tmp_path / "out.html").read_text()
    assert "worker:0 CPU:0" in shown
    assert "worker:1 CPU:0" in shown
    assert "<title>left: " in shown
    assert not re.search(r"(?:src|href|url)\s*[=(]", shown)


def test_requests_for_devices_hold_and_unknown_ones_are_reported(place, tmp_path, graph_file):
    out = tmp_path / "out.json"
    result = place(graph_file, "--fetch", "y", "--batch", 512, "--json", out)
    assert result.exit_code == 0, result.output
    assert "note: no device of the cluster is /job:elsewhere: that request is ignored" in (
        result.stdout
    )
    assert "note: unknown sizes of x:0 are taken to be 512 (--batch)" in result.stdout
    found = json.loads(out.read_text())
    assert found["placement"]["left"].startswith("/job:worker/replica:0/task:1/")
    total = 2 * 2 * 512 * 256 * 256 / (0.7 * 100e9)
    assert found["one_machine_seconds"] == pytest.approx(total, rel=0.2)


def test_a_slow_network_is_the_bottleneck(place, graph_file):
    slow = CLUSTER.replace("100 GB/s", "1 MB/s").replace("1e-6", "0.5")
    text = graph_file.read_text().replace("/job:elsewhere", "/job:worker/task:0")
    graph_file.write_text(text)
    result = place(graph_file, "--fetch", "all", cluster=slow)
    assert result.exit_code == 0, result.output
    assert "The bottleneck is the network: the critical path waits for transfers" in result.stdout
    assert re.search(r"The busiest link is 'worker:\d (sends|receives)'", result.stdout)
    assert "Placed anew, the step would take: with twice the bandwidth" in result.stdout


def test_a_step_that_is_not_worth_a_split_stays_on_one_device(place, tmp_path, graph_file):
    graph_file.write_text(graph_file.read_text().replace("/job:worker/task:1", ""))
    slow = CLUSTER.replace("100 GB/s", "1 MB/s")
    result = place(graph_file, "--fetch", "y", "--json", tmp_path / "out.json", cluster=slow)
    assert re.search(
        r"On one device the step takes \S+ us; no split of it was found", result.stdout
    )
    assert len(set(json.loads((tmp_path / "out.json").read_text())["placement"].values())) == 1


def test_costs_are_saved_and_used(place, tmp_path, graph_file):
    costs, first, second = (tmp_path / name for name in ("costs.json", "1.json", "2.json"))
    assert place(graph_file, "--fetch", "y", "--save-costs", costs, "--json", first).exit_code == 0
    content = json.loads(costs.read_text())
    for times in content["nodes"]["CPU"].values():
        times[1:] = [2 * t for t in times[1:]]
    costs.write_text(json.dumps(content))
    result = place(graph_file, "--fetch", "y", "--costs", costs, "--json", second)
    assert "costs: measured" in result.stdout
    one, other = (json.loads(p.read_text())["one_machine_seconds"] for p in (first, second))
    assert other == pytest.approx(2 * one)


@pytest.mark.parametrize(
    ("arguments", "cluster", "message"),
    [
        ([], CLUSTER, "a graph needs --fetch"),
        (["--fetch", "lefd"], CLUSTER, "the graph has no tensor 'lefd'. Did you mean left?"),
        (["--fetch", "y"], "[[machines]]", "cluster.toml: a machine needs name"),
        (["--fetch", "y", "--roofs", "fast"], CLUSTER, "'fast': GFLOPS,GBS"),
        (["--fetch", "y", "--roofs", "200,20", "--calibrate"], CLUSTER, "describes another"),
    ],
)
def test_mistakes_are_explained(place, graph_file, arguments, cluster, message):
    result = place(graph_file, *arguments, cluster=cluster)
    assert result.exit_code != 0
    assert message in result.output


def test_a_script_that_fails_or_runs_nothing_is_reported(place):
    assert "no session ran a step" in place("print(1)").output
    assert "no step fetches or runs 'z'" in place(TOWERS, "--fetch", "z").output
    result = place("raise ValueError('its own mistake')")
    assert result.exit_code == 1
    assert "program.py failed after 0 runs: its own mistake" in result.output


def test_a_step_is_replicated(place, tmp_path):
    out = tmp_path / "out.json"
    result = place(
        TOWERS, "--workers", 10, "--ps", 2, "--backups", 1, "--slow", "0.1,4", "--json", out
    )
    assert result.exit_code == 0, result.output
    assert "2 parameter servers; each task has a host" in result.output
    found = json.loads(out.read_text())
    assert (found["pulled"], found["pushed"]) == (6 * 256 * 256 * 4, 0)  # it does not train
    assert set(found["ways"]) == {"async", "sync", "allreduce"}
    assert list(found["ways"]["sync"]) == ["1", "2", "4", "8", "10"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--workers", "2", "--backups", "2"], "there are 2 workers"),
        (["--workers", "2", "--slow", "often"], "SHARE,TIMES"),
        (["--workers", "2", "--html", "out.html"], "for a placement"),
    ],
)
def test_mistakes_of_replicas_are_explained(place, graph_file, arguments, message):
    result = place(graph_file, "--fetch", "y", *arguments)
    assert result.exit_code == 2
    assert message in result.output
