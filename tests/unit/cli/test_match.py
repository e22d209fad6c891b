"""`headrace match` runs two programs and shows where they diverge."""

import xml.etree.ElementTree as xml

import pytest
from click.testing import CliRunner

from headrace._src.cli import main
from headrace._src.cli.match import picture, sparkline
from headrace._src.train.inspect.matching import compare_runs

PROGRAM = """
import sys
import headrace as tf

x = tf.placeholder(tf.float32, [2], name="x")
w = tf.get_variable("{variable}", [2], use_resource={resource})  # whatever the seed says
h = tf.multiply(x, w, name="h")
loss = tf.reduce_sum(tf.square(h - 1.0), name="{loss}")
train = tf.train.GradientDescentOptimizer(float(sys.argv[1])).minimize(loss)
with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    for step in range(4):
        session.run({{"op": train, "fetched": [loss, h]}}, {{x: [1.0, step]}})
"""


@pytest.fixture
def programs(tmp_path):
    texts = {
        "a.py": PROGRAM.format(variable="w", loss="loss", resource=False),
        "b.py": PROGRAM.format(variable="weights", loss="total", resource=True),
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def match(*arguments):
    environment = {"COLUMNS": "120", "HEADRACE_JIT": "off"}
    return CliRunner().invoke(main, ["match", *map(str, arguments)], env=environment)


def test_two_programs_from_the_same_start(programs):
    a, b = programs / "a.py", programs / "b.py"
    done = match(f"{a} 0.1", f"{b} 0.1", "--same-start", "--keep", programs / "kept")
    assert done.exit_code == 0, done.output
    assert "loss:0 | total:0      4    never" in done.output
    # The recordings are runs, too.
    again = match(programs / "kept" / "a.jsonl", programs / "kept" / "b.jsonl")
    assert again.exit_code == 0, again.output


def test_where_they_part(programs):
    a, svg = programs / "a.py", programs / "curves.svg"
    # With a seed: weights near 1 would hardly change at first.
    a.write_text(f"import headrace as tf; tf.set_random_seed(1)\n{a.read_text()}")
    options = ["--same-start", "--tensor", "h", "--tensor", "loss", "--steps", 3, "--svg", svg]
    done = match(f"{a} 0.1", f"{a} 0.2", *options)
    assert done.exit_code == 1, done.output
    lines = done.output.splitlines()
    rows = {line.split("  ")[0]: line for line in lines[3:7]}
    assert all("3   step 1" in rows[name] for name in ("h:0 norm", "h:0 mean", "loss:0"))
    assert "the first update differs" in done.output
    assert xml.parse(svg).getroot().tag.endswith("svg")


def test_programs_that_fail(programs):
    (programs / "c.py").write_text("raise RuntimeError('no data')")
    done = match(programs / "c.py", programs / "a.py")
    assert done.exit_code == 1
    assert "ended with status 1" in done.output and "RuntimeError: no data" in done.output
    (programs / "c.py").write_text("import headrace as tf; tf.Session().run(tf.constant(1))")
    assert "no Session.run fetched a floating-point scalar" in match(programs / "c.py", "x").output
    assert "there is no" in match(programs / "none.py", "x").output
    assert "is not a script, a recorded run" in match(programs / "none", "x").output
    assert "is not A=B" in match("x", "y", "--pair", "a").output


def test_curves():
    assert sparkline([0.0, 1.0, float("nan"), 7.0]) == "▁▂×█"
    assert sparkline([5.0, 5.0]) == "▁▁" and sparkline([]) == ""
    assert len(sparkline(list(range(1000)), width=60)) == 60
    (found,) = compare_runs({"a<b": [1.0, 2.0, float("inf")]}, {"a<b": [1.0, 3.0, 4.0]})
    drawing = xml.fromstring(picture(found, "a & b", "c"))
    curves = [e for e in drawing if e.tag.endswith("polyline")]
    assert [len(c.attrib["points"].split()) for c in curves] == [2, 3, 3]
