"""Cheap values are recomputed if memory is short: the plan needs less of it, and no bit changes."""

from dataclasses import replace

import numpy as np
import pytest

import headrace as tf
from headrace._src.compile.clusters.cluster import region_of, regions, rewrite
from headrace._src.compile.clusters.recompute import recompute
from headrace._src.compile.regions.memory_timeline import MemoryTimeline
from headrace._src.graph.verify_flow import verify_dataflow
from headrace._src.lowering.rules import Anchor, Reduce
from headrace._src.pipeline import Options, finish, optimise, prepare
from tests.unit.compile.steps import session, uniform

PLENTY = 1 << 62


def flow_of(fetches, feeds, targets=()):
    """The optimised step, as the pass gets it."""
    options = Options(jit="always")
    step = prepare(fetches, targets, list(feeds), options)
    return rewrite(optimise(step, [np.shape(v) for v in feeds.values()], options))


def arena(flow, memory):
    """The bytes that the clusters of a step plan for."""
    program = finish(flow, Options(memory=memory), compiled=True)
    clusters = [i.op for i in program.instructions if i.op.type == "_Cluster"]
    return sum(c.definition.kernel.plan.arena for c in clusters)


def peak(flow):
    """The most that lives at once in the only region of a flow."""
    ((_, nodes),) = [run for run in regions(flow) if run[0]]
    return MemoryTimeline(region_of(nodes, flow)).peak


def again(flow):
    """Return the names of the recomputed values."""
    return {n.name.removesuffix("/again") for n in flow.nodes if n.name.endswith("/again")}


def bits(memory, fetches, feeds):
    """What two runs of a step give, as bytes."""
    with session(True) as run:
        run._options = replace(run._options, memory=memory)
        run.run(tf.global_variables_initializer())
        found = [run.run(fetches, feeds) for _ in range(2)]
        return [np.asarray(v).tobytes() for step in found for v in step if v is not None]


def chain(layers=40, size=1 << 14):
    """Layers that are element-wise all along, with the gradient of their input."""
    x = tf.placeholder(tf.float32, [size])
    y = x
    for i in range(layers):
        y = tf.tanh(y * (1 + 0.01 * i) + 0.1)
    loss = tf.reduce_mean(tf.square(y))
    return [loss, *tf.gradients(loss, [x])], {x: uniform(size)}


def network(activation, layers=5):
    """A step of training of convolutions, each with a bias and an activation."""
    x = tf.placeholder(tf.float32, [2, 16, 16, 16])
    y, variables = x, []
    for i in range(layers):
        w = tf.Variable(uniform(3, 3, 16, 16, seed=i) / 8)
        b = tf.Variable(uniform(16, seed=i))
        variables += [w, b]
        y = activation(tf.nn.bias_add(tf.nn.conv2d(y, w, [1, 1, 1, 1], "SAME"), b))
    loss = tf.reduce_mean(tf.square(y))
    gradients = tf.gradients(loss, variables)
    updates = [v.assign_sub(0.1 * g) for v, g in zip(variables, gradients, strict=True)]
    return [loss, *updates], {x: uniform(2, 16, 16, 16)}


def swish(x):
    return x * tf.sigmoid(x)


@pytest.mark.parametrize(
    ("make", "part"),
    [
        (chain, 0.6),
        (lambda: network(swish), 0.65),
        (lambda: network(tf.nn.leaky_relu), 0.8),
    ],
    ids=["chain", "swish", "leaky_relu"],
)
def test_less_memory_is_planned_and_the_bits_are_the_same(make, part):
    with tf.Graph().as_default():
        fetches, feeds = make()
        flow = flow_of(fetches, feeds)
        assert arena(flow, 0) < part * arena(flow, PLENTY)
        assert bits(0, fetches, feeds) == bits(PLENTY, fetches, feeds)


def test_convolutions_with_bias_and_relu_keep_no_more_than_they_need():
    with tf.Graph().as_default():
        flow = flow_of(*network(tf.nn.relu))
        assert not again(recompute(flow, 0))


def test_within_the_limit_nothing_changes():
    with tf.Graph().as_default():
        flow = flow_of(*chain())
        assert recompute(flow, PLENTY) is flow
        assert recompute(flow, peak(flow)) is flow


def test_no_more_is_computed_again_than_the_limit_asks_for():
    with tf.Graph().as_default():
        flow = flow_of(*network(swish))
        least, most = peak(recompute(flow, 0)), peak(flow)
        limit = (least + most) // 2
        some = recompute(flow, limit)
        assert least <= peak(some) <= limit
        assert 0 < len(again(some)) < len(again(recompute(flow, 0)))


def test_products_and_reductions_are_never_computed_again():
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [64, 64])
        y = x
        for i in range(4):
            y = swish(tf.matmul(y, tf.constant(uniform(64, 64, seed=i))) + tf.reduce_mean(y))
        flow = flow_of([tf.gradients(y, x)[0]], {x: uniform(64, 64)})
        made = recompute(flow, 0)
        seconds = [n for n in made.nodes if n.name.endswith("/again")]
        assert seconds
        assert not any(isinstance(n.definition.lower, Anchor | Reduce) for n in seconds)
        assert peak(made) < peak(flow)


def test_what_is_computed_again_waits_until_it_is_needed():
    with tf.Graph().as_default():
        flow = flow_of(*network(swish))
        made = recompute(flow, 0)
        verify_dataflow(made)
        forward = {n.name for n in flow.nodes if not n.name.startswith("gradients/")}
        for node in made.nodes:
            if node.name.endswith("/again"):
                assert any(c.name not in forward for c in node.controls), node.name


def _late_reader(y, x):
    """A product with y after products that take more memory than it does."""
    z = x
    for shape in [(128, 512), (512, 512), (512, 128)]:
        z = tf.matmul(z, tf.constant(uniform(*shape)))
    return tf.matmul(z, y)


def _between(make):
    """The values that come again of a y = make(x) that is read early and late."""
    x = tf.placeholder(tf.float32, [128, 128])
    y = make(x)
    early = tf.matmul(y, tf.constant(uniform(128, 128, seed=9)))
    late = _late_reader(y, early)
    flow = flow_of([late], {x: uniform(128, 128)})
    made = recompute(flow, 0)
    verify_dataflow(made)
    return again(made)


def test_a_value_between_an_early_and_a_late_reader():
    with tf.Graph().as_default():
        assert _between(lambda x: tf.tanh(x, name="y")) == {"y"}


def test_a_join_and_what_is_read_through_a_view():
    with tf.Graph().as_default():
        found = _between(lambda x: tf.transpose(tf.concat([x[:64], x[64:] * 2], 0, name="y")))
        assert "y" in found


def test_16_bit_floats_are_not_computed_again():
    with tf.Graph().as_default():
        assert not _between(lambda x: tf.cast(tf.tanh(tf.cast(x, tf.bfloat16)), tf.float32))


def test_random_numbers_are_not_drawn_again():
    with tf.Graph().as_default():
        found = _between(lambda x: tf.tanh(tf.random_uniform([128, 128], name="y")))
        assert not any(name.startswith("y/Random") for name in found)


def test_a_fetched_value_is_there_anyway():
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [128, 128])
        y = tf.tanh(x)
        late = _late_reader(y, tf.matmul(y, y))
        assert not again(recompute(flow_of([late, y], {x: uniform(128, 128)}), 0))


def test_a_variable_that_has_been_written_is_not_read_again():
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [128, 128])
        v = tf.Variable(uniform(128, 128))
        y = tf.tanh(x * v, name="y")
        early = tf.matmul(y, y)
        with tf.control_dependencies([early]):
            written = v.assign_sub(early)
        with tf.control_dependencies([written]):
            late = _late_reader(y, tf.identity(early))
        feeds = {x: uniform(128, 128)}
        assert not again(recompute(flow_of([late], feeds), 0))
        assert bits(0, [late], feeds) == bits(PLENTY, [late], feeds)
