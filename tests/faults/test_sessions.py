"""Failures in a session's step, run by compiled code or by the interpreter."""

import pytest

from tests.faults import process

WAYS = {
    "compiled": ("", {}),
    "without llvmlite": ("import sys; sys.modules['llvmlite'] = None\n", {}),
    "without oneDNN": ("", {"HEADRACE_NO_ONEDNN": "1"}),
    "without a cache": ("", {"HEADRACE_CACHE": "/dev/null/cache"}),
}

# A small network with a variable, an update and a product, and what it must give.
NETWORK = """
import os, threading
import numpy as np
import headrace as tf

x = tf.placeholder(tf.float32, [None, 8], name="x")
w = tf.get_variable("w", initializer=tf.ones([8, 3]))
steps = tf.get_variable("steps", initializer=0.0)
y = tf.nn.relu(tf.matmul(x, w) - 1.0)
loss = tf.reduce_sum(y * y)
count = tf.assign_add(steps, 1.0)
session = tf.Session()
session.run(tf.global_variables_initializer())

def check(rows=5):
    value = np.arange(rows * 8, dtype=np.float32).reshape(rows, 8) / 10
    found = session.run([y, loss], {x: value})
    wanted = np.maximum(value @ np.ones((8, 3), np.float32) - 1, 0)
    np.testing.assert_allclose(found[0], wanted, rtol=1e-5)
    np.testing.assert_allclose(found[1], np.square(wanted).sum(), rtol=1e-5)
"""


@pytest.fixture(params=WAYS)
def run(request, tmp_path):
    """Run code after the network was made, with or without one of the parts."""
    prefix, environment = WAYS[request.param]
    environment = {"HEADRACE_CACHE": str(tmp_path / "cache"), **environment}

    def run(code, how=process.run):
        return how(prefix + NETWORK + code, **environment)

    return run


def test_a_step_runs_with_any_part_missing(run):
    code = """
check()
image = tf.placeholder(tf.float32, [None, 9, 9, 4])
filters = tf.placeholder(tf.float32, [3, 3, 4, 6])
out = tf.nn.conv2d(image, filters, [1, 2, 2, 1], "SAME")
grads = tf.gradients(out, [image, filters])
found = session.run([out, *grads], {image: np.ones((2, 9, 9, 4)), filters: np.ones((3, 3, 4, 6))})
assert found[0][0, 1, 1, 0] == 36 and found[1].shape == (2, 9, 9, 4) and found[2].max() == 50
print("done")
"""
    assert run(code) == "done"


def test_too_large_for_memory(run):
    code = """
n = tf.placeholder(tf.int32, [])
column, row = tf.ones([n, 1]), tf.ones([1, n])
huge = tf.reduce_sum(tf.matmul(column, row) * 2.0 + 1.0)
for _ in range(2):
    try:
        session.run(huge, {n: 2**23})
    except tf.errors.ResourceExhaustedError as error:
        print("exhausted")
assert session.run(huge, {n: 4}) == 48
check()
"""
    assert run(code).split() == ["exhausted"] * 2


def test_bad_shapes(run):
    code = """
a, b = tf.placeholder(tf.float32), tf.placeholder(tf.float32)
both = tf.nn.relu(a + b) * 2.0
def shapes(left, right):
    try:
        return session.run(both, {a: np.ones(left), b: np.ones(right)}).shape
    except tf.errors.InvalidArgumentError:
        return "refused"
print(shapes((2, 3), (3,)), shapes((2, 3), (2,)), shapes((4,), (5,)), shapes((4, 1), (5,)))
try:
    session.run(y, {x: np.ones((5, 7))})
except ValueError as error:
    print("Cannot feed" in str(error))
check()
"""
    assert run(code) == "(2, 3) refused refused (4, 5)\nTrue"


def test_a_child_made_by_fork(run):
    code = """
check()
if not (child := os.fork()):
    check()
    check(6)
    big = tf.matmul(tf.ones([300, 300]), tf.ones([300, 300]))
    assert (session.run(big) == 300).all()
    os._exit(0)
status = os.waitpid(child, 0)[1]
check()
print(status)
"""
    assert run(code) == "0"


def test_ctrl_c_in_a_long_step(run):
    code = """
small = np.full((1200, 1200), 1e-3, np.float32)
m = tf.placeholder(tf.float32, [1200, 1200])
long = m
for _ in range(1500):
    long = tf.nn.relu(tf.matmul(long, m))
check()
# The first compiled step imports the compiler. Importing runs exec, and a Python whose
# KeyboardInterrupt has passed through exec ends by SIGINT, even if it was caught.
session.run(tf.nn.relu(tf.matmul(m, m)), {m: small})
try:
    print("running", flush=True)
    session.run(long, {m: small})
except KeyboardInterrupt:
    print("interrupted")
check()
"""
    assert run(code, process.interrupt) == "interrupted"


def test_fifty_threads_run_one_session(run):
    code = """
start, wrong = threading.Barrier(50), []
def work(rows):
    start.wait()
    try:
        for _ in range(5):
            check(rows)
            session.run(count)
    except BaseException as error:
        wrong.append(error)
threads = [threading.Thread(target=work, args=(1 + i % 3,)) for i in range(50)]
for t in threads:
    t.start()
for t in threads:
    t.join()
print(wrong, session.run(steps) <= 250, session.run(steps) > 0)
"""
    assert run(code) == "[] True True"


def test_compiled_and_interpreted_updates_do_not_wait_for_each_other(run):
    """Threads feed more shapes than are compiled, to an optimizer that writes two variables."""
    code = """
train = tf.train.MomentumOptimizer(1e-6, 0.9).minimize(loss)
session.run(tf.global_variables_initializer())
def work(first):
    for i in range(20):
        session.run(train, {x: np.ones((1 + (first + i) % 12, 8))})
threads = [threading.Thread(target=work, args=(i,)) for i in range(30)]
for t in threads:
    t.start()
for t in threads:
    t.join()
print("done")
"""
    assert run(code) == "done"


def test_a_missing_llvmlite_is_said_once():
    code = """
import sys
sys.modules["llvmlite"] = None
import headrace
from headrace._src.compile.native import machine_code as native
print(native.available(), native.available())
"""
    child = process.start(code)
    output, complaints = child.communicate(timeout=process.LIMIT)
    assert output.split() == ["False", "False"]
    assert complaints.count("\n") == complaints.count("graphs are interpreted") == 1
    assert "llvmlite" in complaints
