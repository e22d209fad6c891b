"""Steps in 16-bit floats, compiled, against the interpreter's."""

from dataclasses import replace

import numpy as np
import pytest

import headrace as tf
from headrace._src.compile.ahead.planning import plan_flow
from headrace._src.compile.kernels.conv import convolutions
from headrace._src.compile.kernels.gemm import matrix_products
from headrace._src.compile.kernels.gemm.gemm_onednn import Product
from headrace._src.compile.kernels.onednn_calls import can
from headrace._src.compile.rewrite import widen
from headrace._src.compile.run.driver import NativeCluster
from headrace._src.devices.target import for_level, host
from headrace._src.pipeline import compile_step
from headrace._src.pipeline.passes import Options, optimise, prepare

EPSILON = {tf.bfloat16: 2.0**-8, tf.float16: 2.0**-11}


def run(build, feeds, jit):
    """A program's fetches, and by how much it changed its variables; `build` gives placeholders and
    fetches.
    """
    level = tf.OptimizerOptions.ON_1 if jit else tf.OptimizerOptions.OFF
    config = tf.ConfigProto()
    config.graph_options.optimizer_options.global_jit_level = level
    with tf.Graph().as_default(), tf.Session(config=config) as session:
        inputs, fetches = build()
        session.run(tf.global_variables_initializer())
        before = session.run(tf.global_variables())
        results = session.run(fetches, dict(zip(inputs, feeds, strict=True)))
        after = session.run(tf.global_variables())
        return [*results, *(b - a for a, b in zip(before, after, strict=True))]


def assert_same(found, expected, dtype):
    """Equal within some units in the last place of `dtype`, of the largest."""
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == b.dtype
        a, b = np.float64(a), np.float64(b)
        np.testing.assert_allclose(a, b, rtol=0, atol=8 * EPSILON[dtype] * np.abs(b).max())


def random(*shape, seed=1):
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def weights(name, *shape):
    scale = np.sqrt(2 / np.prod(shape[:-1]))
    return tf.get_variable(name, initializer=random(*shape, seed=len(name)) * np.float32(scale))


def network(dtype, hidden=192):
    """A convolution of each kind, a pool with and one without overlap, layers of few rows."""
    x = tf.placeholder(tf.float32, [4, 18, 18, 3])
    y = tf.cast(x, dtype)
    for i, (size, channels, stride, pool) in enumerate(
        [(5, 16, 1, 3), (3, 32, 1, 2), (1, 32, 1, 0)]
    ):
        inputs = int(y.shape[3])
        w = tf.cast(weights("w" * (i + 1), size, size, inputs, channels), dtype)
        b = tf.cast(weights("b" * (i + 1), channels), dtype)
        y = tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(y, w, [1, stride, stride, 1], "SAME"), b))
        if pool:
            y = tf.nn.max_pool(y, [1, pool, pool, 1], [1, 2, 2, 1], "VALID")
    y = tf.reshape(y, [4, -1])
    for name, outputs in (("hidden", hidden), ("outputs", 10)):
        w = tf.cast(weights(name, int(y.shape[1]), outputs), dtype)
        y = tf.matmul(y, w)
        y = tf.nn.relu(y) if name == "hidden" else y
    loss = tf.reduce_mean(tf.square(tf.cast(y, tf.float32) - 1))
    trained = tf.trainable_variables()
    steps = [tf.assign_sub(v, 0.05 * g) for v, g in zip(trained, tf.gradients(loss, trained))]
    with tf.control_dependencies(steps):
        return [x], [loss, tf.identity(y)]


# With 2112 columns, the two gradients of the hidden layer are one pass over its weights.
@pytest.mark.parametrize(
    ("dtype", "hidden"),
    [(tf.bfloat16, 192), (tf.bfloat16, 2112), (tf.float16, 192)],
    ids=str,
)
def test_a_training_step_is_the_interpreter_s(dtype, hidden):
    feeds = [random(4, 18, 18, 3)]
    expected = run(lambda: network(dtype, hidden), feeds, jit=False)
    assert_same(run(lambda: network(dtype, hidden), feeds, jit=True), expected, dtype)


@pytest.mark.needs_onednn
def test_a_step_on_a_processor_that_multiplies_bfloat16(monkeypatch):
    chosen = []

    def last(key, ways, threads):
        chosen.append(list(ways)[-1])
        return chosen[-1]

    for module in (convolutions, matrix_products):
        monkeypatch.setattr(module, "multiplies", lambda target, precision: bool(precision))
        monkeypatch.setattr(module, "fastest", last)
    monkeypatch.setattr(matrix_products, "_TIMED", 0)
    feeds = [random(4, 18, 18, 3)]
    found = run(lambda: network(tf.bfloat16), feeds, jit=True)
    # oneDNN must have the instructions, or it has no code for this.
    there = can(Product("float32", (8, 8), (8, 8), precision="bfloat16"))
    assert ({"onednn bfloat16", "converted"} <= set(chosen)) == there
    assert_same(found, run(lambda: network(tf.bfloat16), feeds, jit=False), tf.bfloat16)


def test_narrow_results_are_rounded():
    """Each op's own result is, however many are fused: 1 + 2^-9 is 1."""

    def build():
        x = tf.placeholder(tf.bfloat16, [16, 16])
        y = tf.matmul(x, x)
        return [x], [y + y * tf.constant(2.0**-9, tf.bfloat16) - y]

    one = np.eye(16, dtype=tf.bfloat16.as_numpy_dtype)
    (found,) = run(build, [one], jit=True)
    assert not np.any(found)


def test_what_is_not_compiled_gets_narrow_values():
    def build():
        x = tf.placeholder(tf.bfloat16, [8, 8])
        y = tf.nn.relu(tf.matmul(x, x))
        seen = tf.py_func(lambda a: np.float32(a.dtype.itemsize), [y], tf.float32)
        return [x], [y, seen]

    x = random(8, 8).astype(tf.bfloat16.as_numpy_dtype)
    expected = run(build, [x], jit=False)
    found = run(build, [x], jit=True)
    assert_same(found, expected, tf.bfloat16)
    assert found[1] == 2


def test_weights_that_many_products_share_are_rounded_once():
    def build(count=6):
        x = tf.placeholder(tf.float32, [20, 300])
        y, w = tf.cast(x, tf.bfloat16), weights("w", 300, 300)
        for _ in range(count):
            y = tf.tanh(tf.matmul(y, tf.cast(w, tf.bfloat16)))
        return [x], [y]

    x = random(20, 300)
    assert_same(run(build, [x], jit=True), run(build, [x], jit=False), tf.bfloat16)
    assert [_rounding_products(lambda n=n: build(n)) for n in (6, 2)] == [(0, 0), (0, 2)]


@pytest.mark.parametrize(
    ("layers", "cache", "rounding"), [(1, 1 << 20, 2), (2, 1 << 20, 0), (1, 1 << 18, 0)]
)
def test_a_fed_matrix_that_few_products_read_has_no_rounded_copy(
    layers, cache, rounding, monkeypatch
):
    """Neither forward nor for the gradient of the weights, if a core's cache holds it."""
    monkeypatch.setattr(matrix_products, "multiplies", lambda target, precision: False)
    target = replace(host(), caches=(32 << 10, cache, 32 << 20))
    monkeypatch.setattr(widen, "host", lambda: target)

    def build():
        x = tf.placeholder(tf.float32, [128, 784])
        narrow, y = tf.cast(x, tf.bfloat16), 0
        for i in range(layers):
            w = tf.cast(weights("w" * (i + 1), 784, 256), tf.bfloat16)
            y += tf.sigmoid(tf.matmul(narrow, w))
        return [x], [y, *tf.gradients(y, tf.trainable_variables())]

    x = random(128, 784)
    assert_same(run(build, [x], jit=True), run(build, [x], jit=False), tf.bfloat16)
    assert _rounding_products(build)[0] == rounding


def _rounding_products(build):
    """How many kernels of a step round their first and their second operand as they read it."""
    forms = {}
    with tf.Graph().as_default():
        inputs, fetches = build()
        shapes = [tuple(x.shape.as_list()) for x in inputs]
        watch = lambda name, form: forms.update({name: form})  # noqa: E731
        compile_step(fetches, [], inputs, shapes, Options(jit="always"), watch)
    (cluster,) = (n for n in forms["cluster"].nodes if n.type == "_Cluster")
    specs = [c.kernel for c in cluster.definition.kernel.plan.calls]
    given = [[getattr(s, f"prologue_{n}", None) for s in specs] for n in "ab"]
    return tuple(sum(p is not None for p in prologues) for prologues in given)


def test_a_frozen_model():
    w = random(48, 32).astype(tf.bfloat16.as_numpy_dtype)
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [8, 48])
        y = tf.nn.relu(tf.matmul(tf.cast(x, tf.bfloat16), tf.constant(w)))
        options = Options()
        flow = optimise(prepare([y], (), [x], options), [(8, 48)], options)
    value, found = random(8, 48), np.empty((8, 32), w.dtype)
    NativeCluster(plan_flow(flow, host()), 1).run([value], [found], [])
    expected = np.maximum(value.astype(w.dtype).astype(np.float32) @ w.astype(np.float32), 0)
    assert_same([found], [expected.astype(w.dtype)], tf.bfloat16)


def test_a_processor_without_bfloat16_says_once_that_only_memory_is_saved(monkeypatch):
    said = []
    monkeypatch.setattr(widen.log, "warning", lambda text, *args: said.append(text % args))
    widen._say_that_it_saves_no_time.cache_clear()
    for level, count in (("x86-64-v3", 1), ("x86-64-v3", 1)):
        monkeypatch.setattr(widen, "host", lambda level=level: for_level(level))
        with tf.Graph().as_default():
            x = tf.placeholder(tf.bfloat16, [4, 8])
            y = tf.matmul(x, x, transpose_b=True)
            compile_step([y], [], [x], [(4, 8)], Options(jit="always"))
        assert len(said) == count
    assert "only saves memory" in said[0]
    widen._say_that_it_saves_no_time.cache_clear()


def test_nothing_is_said_where_bfloat16_is_multiplied(monkeypatch):
    said = []
    monkeypatch.setattr(widen.log, "warning", lambda text, *args: said.append(text % args))
    wide = replace(for_level("x86-64-v4"), features="+avx512f,+avx512bf16")
    monkeypatch.setattr(widen, "host", lambda: wide)
    with tf.Graph().as_default():
        x = tf.placeholder(tf.bfloat16, [4, 8])
        y = tf.matmul(x, x, transpose_b=True)
        compile_step([y], [], [x], [(4, 8)], Options(jit="always"))
    assert not said
