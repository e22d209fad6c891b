"""Steps on several devices in processes of their own: strict accuracy, forks and resumed state."""

from tests.faults import process

STRICT = """
from collections import Counter
import numpy as np
from hypothesis import given, settings, strategies as st
import headrace as tf
from tests.property.test_partitioned import random_control_flow, random_step, results
from tests.unit.compile.test_passed_lists import GRU, LSTM, layers, run

seen = Counter()

@given(st.data())
@settings(max_examples=60, deadline=None, derandomize=True, database=None)
def check(data):
    with tf.Graph().as_default():
        fetches, feeds = random_step(data)
        one = results(fetches, feeds, 1, "always")
        for a, b in zip(one, results(fetches, feeds, 3, "always", seen)):
            for name, x, y in zip(fetches, a, b):
                assert x.tobytes() == y.tobytes(), name

@given(st.data())
@settings(max_examples=20, deadline=None, derandomize=True, database=None)
def check_loops(data):
    with tf.Graph().as_default():
        fetches, feeds = random_control_flow(data)
        one = results(fetches, feeds, 1, "always")
        for a, b in zip(one, results(fetches, feeds, 3, "always", seen)):
            for name, x, y in zip(fetches, a, b):
                assert x.tobytes() == y.tobytes(), name

check()
check_loops()
assert seen["loops that span devices"] >= 10 and seen["clusters in loops"] >= 20, seen
build = layers((LSTM, GRU, LSTM), lengths=True)
one, (several, _) = run(build, 1)[0], run(build, 3)
assert [x.tobytes() for x in one] == [y.tobytes() for y in several]
assert seen["clusters"] >= 20 and seen["round trips"] >= 10, seen
print("done")
"""


def test_under_strict_accuracy_compiled_partitions_give_the_bits_of_the_whole():
    settings = {"HEADRACE_JIT": "always", "HEADRACE_ACCURACY": "strict", "HEADRACE_CACHE": "off"}
    started = process.start(STRICT, HEADRACE_VERIFY="1", HEADRACE_NUM_THREADS="2", **settings)
    assert process.finish(started) == "done"


NETWORK = """
import os
import numpy as np
import headrace as tf

tf.set_random_seed(3)
x = tf.placeholder(tf.float32, [4, 8])
with tf.device("/cpu:1"):
    w = tf.get_variable("w", initializer=tf.ones([8, 8]))
    h = tf.nn.dropout(tf.matmul(x, w), rate=0.5)
with tf.device("/cpu:2"):
    b = tf.get_variable("b", initializer=tf.zeros([8]))
    queue = tf.FIFOQueue(10, tf.float32, [])
    h = tf.tanh(h + b + tf.random_normal([8]))
    put = queue.enqueue(tf.reduce_sum(h))
with tf.device("/cpu:0"):
    loss = tf.reduce_sum(tf.square(h))
    train = tf.train.MomentumOptimizer(0.01, 0.9).minimize(loss)
config = tf.ConfigProto(device_count={"CPU": 3})
image = np.linspace(-1, 1, 32, dtype=np.float32).reshape(4, 8)
"""

FORK = """
with tf.Session(config=config) as session:
    session.run(tf.global_variables_initializer())
    before = session.run(w)
    session.run([train, put], {x: image})
    child = os.fork()
    if child == 0:
        try:
            value, _ = session.run([loss, train], {x: image})
            os._exit(0 if np.isfinite(value) else 1)
        finally:
            os._exit(2)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert np.isfinite(session.run([loss, train], {x: image})[0])
    print(status)
"""

RESUME = """
saver = tf.train.Saver(exact_resume=True)
left = queue.size(), queue.dequeue_many(6)

def steps(session, count):
    return [session.run([loss, train, put], {x: image})[0] for _ in range(count)]

with tf.Session(config=config) as session:
    session.run(tf.global_variables_initializer())
    steps(session, 3)
    saved = saver.save(session, PATH)
    wanted = steps(session, 3), *map(session.run, left)
with tf.Session(config=config) as session:
    saver.restore(session, saved)
    found = steps(session, 3), *map(session.run, left)
assert found[0] == wanted[0] and found[1] == wanted[1] == 6
assert found[2].tolist() == wanted[2].tolist()
print("same")
"""


def test_a_forked_child_runs_a_step_on_several_devices():
    assert process.finish(process.start(NETWORK + FORK)) == "0"


def test_training_on_several_devices_resumes_exactly(tmp_path):
    code = f"PATH = {str(tmp_path / 'model')!r}\n" + NETWORK + RESUME
    assert process.finish(process.start(code)) == "same"
