"""`headrace explain`: which step is shown, what is said of it, and how programs may end."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from headrace._src.cli import main
from headrace._src.cli.explain import explain_text
from headrace._src.cli.explain.layout import Bend, layered
from headrace._src.compile.native import machine_code
from headrace._src.core import config
from tests.faults.process import heed_interrupts

needs_llvm = pytest.mark.needs_llvm

TRAIN = """
import sys
import headrace as tf

with tf.Graph().as_default():
    x = tf.placeholder(tf.float32, [None, 3], name="x")
    w = tf.get_variable("w", [3, 2], initializer=tf.ones_initializer())
    h = tf.nn.relu(tf.matmul(x, w, name="product"), name="h")
    loss = tf.reduce_mean(tf.square(h), name="loss")
    train = tf.train.GradientDescentOptimizer(0.1).minimize(loss, name="train")
    label = tf.strings.as_string(loss, name="label")
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for step in range(int(sys.argv[1]) if len(sys.argv) > 1 else 3):
            session.run([loss, train, label], {x: [[1, 2, 3]] * 4})
        print("the script says", sys.argv[1:])
"""


@pytest.fixture
def explain(tmp_path):
    def run(code, *arguments):
        script = tmp_path / "program.py"
        script.write_text(code)
        return CliRunner().invoke(main, ["explain", str(script), *map(str, arguments)])

    return run


def test_the_step_that_took_longest_is_explained(explain):
    result = explain(TRAIN, "--", 2000)
    assert result.exit_code == 0, result.output
    rows = [line.split() for line in result.stdout.splitlines()[1:3]]
    assert [row[0] for row in rows] == ["1", "2,000"]
    assert rows[1][-5:] == ["loss:0,", "label:0,", "train", "<-", "x:0"]
    assert "\nstep loss:0, label:0, train\nfed with x:0 float32[4,3]\n" in result.stdout


LAYERS = """
import headrace as tf

with tf.Graph().as_default():
    x = y = tf.placeholder(tf.float32, [4, 4], name="x")
    for device in BRANCHES:
        with tf.device(f"/cpu:{device}"):
            y = tf.matmul(y, y)
    with tf.device("/cpu:1"):
        z = tf.exp(x) if len(BRANCHES) < 3 else y
    with tf.Session(config=tf.ConfigProto(device_count={"CPU": 2})) as session:
        session.run([y, z], {x: [[1] * 4] * 4})
"""


@pytest.mark.parametrize(("devices", "joined"), [("[0, 1, 0]", True), ("[0, 0]", False)])
def test_a_step_whose_devices_wait_for_each_other_is_said_to_run_in_one_order(
    explain, devices, joined
):
    shown = explain(LAYERS.replace("BRANCHES", devices)).stdout
    assert "other nodes  peak memory" in shown
    assert ("one thread runs the step in one order" in shown) == joined


def test_a_pass_shows_what_it_changes(explain):
    shown = explain(TRAIN, "--fetch", "loss").stdout
    names = re.findall(r"^([a-z, ]+): (?:no change|[\d,]+ \w+)", shown, re.MULTILINE)
    passes = [name for group in names for name in group.split(", ")]
    assert passes[:3] == ["prune", "reread", "place"]
    assert {"specialise", "simplify", "dead", "schedule"} <= set(passes)
    assert "  ~ product:0 float32[4,2] = MatMul(" in shown
    assert "more changed lines (--full shows all)" in shown
    full = explain(TRAIN, "--fetch", "loss", "--full").stdout
    assert "--full" not in full
    assert full.count("product:0 float32[4,2] = MatMul(") > 3


@needs_llvm
def test_clusters_have_groups_kernels_and_sizes(explain):
    shown = explain(TRAIN, "--fetch", "train").stdout
    heading = r"cluster (\S+): \d+ nodes in \d+ groups, (\d+) kernels of ([\d,]+) B code, "
    found = re.search(heading + r"\d+ buffers, arena of [\d,]+ B", shown)
    assert found, shown
    sizes = [int(n.replace(",", "")) for n in re.findall(r"^ +([\d,]+) B code", shown, re.M)]
    assert sum(sizes) == int(found[3].replace(",", ""))
    assert min(sizes) > 0
    assert re.search(r"  0: contraction \[4, 2\] product, h.*\n     Gemm a=b0 b=b\d", shown)
    assert re.search(r"~[\d,]+ flops, [\d,]+ B of data", shown)


SWAPPING = """
import headrace as tf

x = tf.placeholder(tf.float32, [3000], name="x")
y = tf.while_loop(
    lambda i, _: i < 5, lambda i, y: (i + 1, tf.sin(y) * 0.5), [0, x], swap_memory=True
)[1]
with tf.Session() as session:
    session.run(tf.gradients(y, x), {x: [0.5] * 3000})
"""


@needs_llvm
@pytest.mark.parametrize("swaps", [False, True])
def test_what_a_loop_keeps_in_a_file_is_told(explain, tmp_path, monkeypatch, swaps):
    if swaps:
        monkeypatch.setenv("HEADRACE_SWAP_DIR", str(tmp_path))
    config.settings.cache_clear()
    try:
        shown = explain(SWAPPING).output
    finally:
        monkeypatch.undo()
        config.settings.cache_clear()
    assert ("in a file" in shown) == ("swapped arena+" in shown) == swaps
    assert not swaps or re.search(r"arena of [\d,]+ B and [\d.,]+ [KM]?i?B in a file", shown)


@needs_llvm
def test_what_is_not_compiled_has_its_reason(explain):
    code = """
import headrace as tf
import numpy as np
with tf.Graph().as_default():
    x = tf.placeholder(tf.float32, [4], name="x")
    chain = tf.tanh(tf.exp(x) + 1.0) * 2.0
    words = tf.strings.as_string(chain, name="words")
    called = tf.py_func(lambda v: v, [chain], tf.float32, name="called")
    some = tf.boolean_mask(x, x > 0)
    unknown = tf.exp(some, name="unknown")
    queue = tf.FIFOQueue(3, tf.float32, name="queue")
    put = queue.enqueue(chain, name="put")
    with tf.Session() as session:
        for _ in range(2):
            session.run([words, called, unknown, put], {x: [1, 2, 3, 4]})
"""
    shown = explain(code, "--fetch", "words").stdout
    reasons = shown[shown.index("not compiled:") :]
    assert "no lowering rule: it calls Python\n    called (PyFunc)" in reasons
    assert re.search(r"no lowering rule: it may block\n    put \(QueueEnqueueV2\)", reasons)
    assert re.search(r"is not known before it runs: float32\[\?\]\n    unknown \(Exp\)", reasons)
    assert re.search(r"no lowering rule\n.*words \(AsString\)", reasons)


@needs_llvm
def test_a_loop_says_what_in_it_is_not_compiled(explain):
    code = """
import headrace as tf
with tf.Graph().as_default():
    n = tf.placeholder(tf.int32, [], name="n")
    shout = lambda x: tf.py_func(lambda v: v, [x], tf.float32, name="shout")
    body = lambda i, x: (i + 1, tf.reshape(shout(x * 2.0), []))
    _, x = tf.while_loop(lambda i, x: i < n, body, [0, 1.0], name="turns")
    with tf.Session() as session:
        for _ in range(2):
            session.run(x, {n: 3})
"""
    shown = explain(code).stdout
    assert re.search(r"in its body: turns/shout \(PyFunc\): .*calls Python", shown), shown


@needs_llvm
def test_small_regions_are_left_to_the_interpreter(explain):
    code = """
import headrace as tf
with tf.Graph().as_default():
    x = tf.placeholder(tf.float32, [4], name="x")
    y = tf.exp(x, name="y")
    with tf.Session() as session:
        session.run(y, {x: [1, 2, 3, 4]})
"""
    assert "too little work for a native call\n    y (Exp)" in explain(code).stdout


@needs_llvm
def test_a_step_that_ran_once_is_compiled_to_be_explained(explain):
    result = explain(TRAIN, "--fetch", "loss", "1")
    assert "ran too seldom to be compiled" in result.stderr
    assert "\ncluster " in result.stdout


def test_a_step_that_may_not_be_compiled_says_so(explain):
    config = "tf.ConfigProto(graph_options=tf.GraphOptions(optimizer_options=tf.OptimizerOptions("
    config += "global_jit_level=tf.OptimizerOptions.OFF)))"
    shown = explain(TRAIN.replace("tf.Session()", f"tf.Session(config={config})")).stdout
    assert "not compiled: the session's configuration or HEADRACE_JIT says so" in shown


def test_without_a_compiler_the_reason_is_what_is_missing(explain, monkeypatch):
    monkeypatch.setattr(
        explain_text, "machine_code", SimpleNamespace(why_not=lambda: "llvmlite is missing")
    )
    assert "not compiled: llvmlite is missing" in explain(TRAIN).stdout


def test_a_step_that_runs_as_it_is(explain):
    config = "tf.ConfigProto(graph_options=tf.GraphOptions(optimizer_options=tf.OptimizerOptions("
    config += "opt_level=tf.OptimizerOptions.L0)))"
    shown = explain(TRAIN.replace("tf.Session()", f"tf.Session(config={config})")).stdout
    assert "interpret the step as the graph has it: it is specialised for 0 shapes" in shown


def test_the_script_has_its_arguments_and_prints_to_stderr(explain):
    result = explain(TRAIN, "2", "--rate", "0.1", "--fetch", "loss", "--", "--full")
    assert "the script says ['2', '--rate', '0.1', '--full']" in result.stderr
    assert "the script says" not in result.stdout
    assert result.exit_code == 0


def test_modules_beside_the_script_are_found(explain, tmp_path):
    (tmp_path / "beside_the_script.py").write_text("COUNT = 2")
    result = explain("import beside_the_script\n" + TRAIN)
    assert result.exit_code == 0


def test_a_program_is_stopped_after_some_runs(explain):
    result = explain(TRAIN, "--steps", "4", "1000000")
    assert "stopped after 4 runs" in result.stderr
    assert "the script says" not in result.stderr
    assert result.stdout.splitlines()[2].split()[0] == "3"
    assert result.exit_code == 0


@pytest.mark.parametrize("ctrl_c", [signal.SIG_DFL, signal.SIG_IGN], ids=["heeded", "ignored"])
def test_a_program_whose_threads_run_steps_is_stopped(tmp_path, ctrl_c):
    code = TRAIN.replace(
        "for step in range(int(sys.argv[1]) if len(sys.argv) > 1 else 3):", "def one():"
    )
    code = code.replace(
        'print("the script says", sys.argv[1:])',
        "import threading\n"
        "        thread = threading.Thread(target=lambda: [one() for _ in range(10**9)])\n"
        "        thread.start()\n        thread.join()\n",
    )
    (tmp_path / "program.py").write_text(code)
    arguments = ["-m", "headrace", "explain", str(tmp_path / "program.py"), "--steps", "5"]
    ran = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, ctrl_c),
    )
    assert "stopped after 5 runs" in ran.stderr
    assert "step loss:0" in ran.stdout


def test_a_program_for_tensorflow_is_explained(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(TRAIN.replace("import headrace as tf", "import tensorflow as tf"))
    ran = subprocess.run(
        [sys.executable, "-m", "headrace", "explain", str(program)],
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    assert "step loss:0" in ran.stdout


def test_an_error_of_the_script_comes_after_what_was_seen(explain):
    result = explain(TRAIN + "    raise RuntimeError('no more')\n")
    assert result.exit_code == 1
    assert "step loss:0" in result.stdout
    assert "RuntimeError: no more" in result.stderr
    assert "program.py failed after 4 runs" in result.stderr


def test_a_script_that_exits(explain):
    assert explain(TRAIN + "    sys.exit(0)\n").exit_code == 0
    result = explain(TRAIN + "    sys.exit(3)\n")
    assert (result.exit_code, "ended with status 3" in result.stderr) == (1, True)


def test_a_name_that_no_step_fetches(explain):
    result = explain(TRAIN, "--fetch", "los")
    assert result.exit_code == 1
    assert "no step fetches or runs 'los'. Did you mean loss" in result.stderr
    result = explain(TRAIN, "--fetch", "zzzzz")
    assert "Fetched: init, loss:0, label:0, train." in result.stderr


def test_a_script_without_steps_or_without_a_file(explain):
    assert "no session ran a step" in explain("print('nothing')").stderr
    result = CliRunner().invoke(main, ["explain", "missing.py"])
    assert result.exit_code == 2
    assert "'missing.py' does not exist" in result.stderr


def test_ctrl_c_ends_the_program_and_explains(tmp_path):
    script = tmp_path / "program.py"
    script.write_text(TRAIN.replace("for step", "print('go', flush=True)\n        for step"))
    arguments = [sys.executable, "-m", "headrace", "explain", str(script), "--", "1000000000"]
    with subprocess.Popen(
        arguments,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        bufsize=1,
        preexec_fn=heed_interrupts,
    ) as process:
        try:
            assert process.stderr is not None
            while "go" not in process.stderr.readline():
                assert process.poll() is None
            time.sleep(1)
            os.kill(process.pid, signal.SIGINT)
            shown, said = process.communicate(timeout=240)
        finally:
            process.kill()
    assert "step loss:0" in shown, said
    assert "interrupted after" in said
    assert process.returncode == 0


# -- The page --------------------------------------------------------------------------------------


def data_of(path):
    page = path.read_text()
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    return page, json.loads(found[1].replace("<\\/", "</").replace("<\\!--", "<!--"))


def test_the_page_stands_alone_and_has_every_pass(explain, tmp_path):
    result = explain(TRAIN, "--html", tmp_path / "step.html")
    assert f"{tmp_path / 'step.html'}: a drawing of the step" in result.stdout
    page, data = data_of(tmp_path / "step.html")
    assert "http" not in page.replace("http-equiv", "").replace("http://www.w3.org/2000/svg", "")
    assert "$DATA$" not in page
    assert [p["name"] for p in data["passes"]][:3] == ["prune", "reread", "place"]
    for drawing in data["drawings"]:
        count = len(drawing["items"])
        assert all(0 <= a < count and 0 <= b < count for a, b, _ in drawing["edges"])
        placed = [e for box in drawing["boxes"].values() for row in box["rows"] for e in row]
        assert sorted(e for e in placed if e >= 0) == list(range(count))
        assert all(-1 <= item[4] < count for item in drawing["items"])


@needs_llvm
def test_the_page_tells_kernels_source_lines_and_reasons(explain, tmp_path):
    explain(TRAIN, "--html", tmp_path / "step.html")
    _, data = data_of(tmp_path / "step.html")
    number = next(p["drawing"] for p in data["passes"] if p["name"] == "cluster")
    items = data["drawings"][number]["items"]
    named = {data["texts"][item[0]]: item for item in items}
    facts = {
        name: [data["texts"][t] for t in data["facts"][item[3]]] for name, item in named.items()
    }
    assert any('tf.matmul(x, w, name="product")' in fact for fact in facts["product"])
    assert "no lowering rule" in facts["label"]
    assert named["label"][1] == "interpreted"
    group = items[named["product"][4]]
    assert group[1] == "group"
    assert items[group[4]][1] == "cluster"
    assert any("B of code" in fact for fact in facts[data["texts"][group[0]]])


def test_a_large_step_is_drawn_by_scopes(explain, tmp_path):
    code = """
import headrace as tf
with tf.Graph().as_default():
    x = tf.placeholder(tf.float32, [4], name="x")
    for i in range(20):
        with tf.name_scope(f"block{i}"):
            for _ in range(100):
                x = tf.tanh(x)
    with tf.Session(config=tf.ConfigProto(graph_options=tf.GraphOptions(
            optimizer_options=tf.OptimizerOptions(global_jit_level=-1)))) as session:
        session.run(x, {"x:0": [1, 2, 3, 4]})
"""
    result = explain(code, "--html", tmp_path / "step.html")
    assert result.exit_code == 0
    _, data = data_of(tmp_path / "step.html")
    items = data["drawings"][0]["items"]
    scopes = [item for item in items if item[1] == "scope"]
    assert len(items) == 2001 + 20
    assert [data["texts"][s[0]] for s in scopes] == [f"block{i}" for i in range(20)]
    assert not any(s[5] & 2 for s in scopes)  # closed
    assert (tmp_path / "step.html").stat().st_size < 5e6


def test_a_page_that_cannot_be_written(explain, tmp_path):
    result = explain(TRAIN, "--html", tmp_path / "nowhere" / "step.html")
    assert result.exit_code == 1
    assert "No such file" in result.stderr


# -- Layers ----------------------------------------------------------------------------------------


def test_items_stand_below_what_they_need():
    found = layered("abcd", [("a", "b"), ("b", "c"), ("a", "c"), ("d", "c")])
    assert found.rows[0] == ["a"]
    assert found.routes == {("a", "c"): [Bend("a", 1)]}
    assert "d" in found.rows[1]  # right above its reader, not at the top
    assert found.rows[2] == ["c"]


def test_a_cycle_is_drawn():
    found = layered("abc", [("a", "b"), ("b", "c"), ("c", "a")])
    assert found.rows == [["a"], ["b"], ["c"]]


def test_edges_that_need_not_cross_do_not():
    found = layered(["a", "b", "x", "y"], [("a", "y"), ("b", "x")])
    (top, bottom) = found.rows
    assert top.index("a") - top.index("b") == bottom.index("y") - bottom.index("x")


def test_nothing_to_draw():
    assert layered([], []).rows == []


def test_lines_are_told_apart_inside_of_loops():
    before = ["x:0 f[] = A(a:0)", "  body:", "    x:0 f[] = B(b:0)", "run   x"]
    after = ["x:0 f[] = A(a:0)", "  body:", "    x:0 f[] = C(b:0)", "    y:0 f[] = D()"]
    marked, said = explain_text.changes(before, after)
    assert marked == ["~     x:0 f[] = C(b:0)", "+     y:0 f[] = D()", "- run   x"]
    assert said == ", 1 new, 1 changed, 1 gone"


@needs_llvm
def test_code_sizes_are_those_of_machine_code():
    from tests.unit.compile.plans import Scale

    small, large = (
        machine_code.code_size(Scale(64, 2.0), serial=True),
        machine_code.code_size(Scale(64, 2.0)),
    )
    assert 16 < small < large < 4096
