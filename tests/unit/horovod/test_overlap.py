"""Gradients are exchanged in buckets, the first of them while later gradients are computed."""

import threading

import numpy as np
import pytest

import headrace as tf
import headrace.horovod as hvd
from headrace._src.core import config
from headrace._src.devices import collectives
from headrace._src.devices.pending import Pending
from headrace._src.horovod import functions
from headrace._src.pipeline import Options, finish, optimise, prepare

LAYERS = 4
SIZE = 64  # units of a layer: 16 KB of weights


class Exchanges:
    """A group of two ranks, the other of which has the same values: averages are the values
    themselves. Exchanges end at once, or when `end` is called.
    """

    rank, size, memory = 0, 2, None

    def __init__(self):
        self.overlaps = True
        self.pending = []
        self.at_once = True
        self.watch = lambda: None

    def all_reduce(self, name, arrays, merge, average, background=False, in_place=False):
        assert background == self.overlaps
        self.watch()
        values = [np.array(a) for a in arrays]
        if self.at_once:
            return values
        self.pending.append((Pending(name), values))
        return self.pending[-1][0]

    def end(self, order):
        for pending, values in order(self.pending):
            assert pending.claim()
            pending.complete(values)
        self.pending = []


@pytest.fixture
def group():
    made = Exchanges()
    collectives.set_group(made)
    with tf.Graph().as_default():
        yield made
    collectives.set_group(None)


@pytest.fixture
def threshold(monkeypatch):
    def change(nbytes):
        found = config.read({"HOROVOD_FUSION_THRESHOLD": str(nbytes)})
        monkeypatch.setattr(functions, "settings", lambda: found)

    return change


def model(log=None):
    """A model of square layers; `log` hears when the gradient of the first one is computed."""
    x = tf.placeholder(tf.float32, [32, SIZE])
    h = x
    for i in range(LAYERS):
        w = tf.get_variable(
            f"w{i}", [SIZE, SIZE], initializer=tf.random_uniform_initializer(seed=i)
        )
        h = tf.tanh(tf.matmul(h, w) / SIZE)
        if i == 0 and log is not None:
            h = noticed(h, log)
    optimizer = hvd.DistributedOptimizer(tf.train.GradientDescentOptimizer(0.1))
    return x, optimizer.minimize(tf.reduce_sum(h))


def noticed(h, log):
    @tf.custom_gradient
    def same(value):
        def gradient(dy):
            return tf.py_func(lambda dy: (log(), dy)[1], [dy], tf.float32)

        return tf.identity(value), gradient

    return same(h)


def test_buckets_follow_the_threshold(group, threshold):
    """In the order in which gradients become ready; 0: each gradient by itself."""
    names = []
    for nbytes, wanted in [
        (1 << 26, [4]),
        (2 * SIZE * SIZE * 4, [2, 2]),
        (1, [1] * 4),
        (0, [1] * 4),
    ]:
        threshold(nbytes)
        with tf.Graph().as_default() as graph:
            model()
            found = [op for op in graph.get_operations() if op.type == "HorovodGroupedAllreduce"]
        assert [len(op.inputs) for op in found] == wanted
        assert all(op.get_attr("background") for op in found)
        names.append([op.name for op in found])
        ready = [t.op._id for op in found for t in op.inputs]
        assert ready == sorted(ready)
    assert names[0] == [
        "DistributedGradientDescentOptimizer_Allreduce/HorovodAllreduce_"
        "DistributedGradientDescentOptimizer_Allreduce_float32"
    ]
    assert len(set(names[2])) == LAYERS


@pytest.mark.parametrize(("overlaps", "wanted"), [(True, 2), (False, 1)])
def test_default_threshold(group, overlaps, wanted):
    group.overlaps = overlaps
    with tf.Graph().as_default() as graph:
        many = [tf.zeros([40 << 18]), tf.zeros([40 << 18]), None]  # 40 MB each
        made = functions.allreduce_all(many, hvd.Average, hvd.Compression.none, "", "", "g")
        assert made[2] is None
        found = [op for op in graph.get_operations() if op.type == "HorovodGroupedAllreduce"]
    assert len(found) == wanted


def test_settings():
    assert config.read({}).fusion_threshold is None
    with pytest.raises(ValueError, match="HOROVOD_FUSION_THRESHOLD"):
        config.read({"HOROVOD_FUSION_THRESHOLD": "-1"})


@pytest.mark.needs_llvm
def test_the_first_exchange_begins_before_the_last_gradient(group, threshold):
    threshold(1)
    events = []
    x, train = model(lambda: events.append("last gradient"))
    group.watch = lambda: events.append("exchange")
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for _ in range(34):  # until it is compiled; the interpreter takes the order of the graph
            events.clear()
            session.run(train, {x: np.ones([32, SIZE])})
        assert events == ["exchange"] * (LAYERS - 1) + ["last gradient", "exchange"]


@pytest.mark.needs_llvm
@pytest.mark.parametrize("overlaps", [True, False])
def test_a_compiled_step_is_divided_where_that_pays(group, threshold, overlaps):
    """One region up to each exchange, or one before all of them."""
    threshold(1)
    group.overlaps = overlaps
    x, train = model()
    options = Options(jit="always")
    flow = optimise(prepare([], [train], [x], options), [(32, SIZE)], options)
    program = finish(flow, options, compiled=True)
    types = [i.op.type for i in program.instructions]
    heavy = [t[:8] for t in types if t in ("_Cluster", "HorovodGroupedAllreduce")]
    before = heavy[: len(heavy) - heavy[::-1].index("HorovodG")]
    if overlaps:
        assert before == ["_Cluster", "HorovodG"] * LAYERS
    else:
        assert before == ["_Cluster"] + ["HorovodG"] * LAYERS


@pytest.mark.parametrize("order", [list, reversed, lambda found: found[2:] + found[:2]])
def test_exchanges_end_in_any_order(group, threshold, order):
    """All begin before any has ended, and the values are those of a step without exchanges."""
    threshold(1)
    x, train = model()
    feed = {x: np.linspace(-1, 1, 32 * SIZE, dtype="f").reshape(32, SIZE)}
    variables = tf.trainable_variables()
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        first = session.run(variables)
        session.run(train, feed)
        wanted = session.run(variables)
        for variable, value in zip(variables, first, strict=True):
            variable.load(value, session)
        group.at_once = False
        over = threading.Event()

        def end_all():
            while not over.wait(0.001):
                if len(group.pending) == LAYERS:
                    group.end(lambda found: order(list(found)))
                    return

        thread = threading.Thread(target=end_all)
        thread.start()
        session.run(train, feed)
        over.set()
        thread.join()
        for found, right in zip(session.run(variables), wanted, strict=True):
            np.testing.assert_allclose(found, right, rtol=1e-5)
