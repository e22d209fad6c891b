"""Random steps give the same results compiled as interpreted."""

from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as tf
from headrace._src.compile.clusters.cluster import regions
from headrace._src.compile.regions.fuse import fuse
from headrace._src.compile.regions.layouts import blocked_values
from headrace._src.compile.regions.region import Region, is_reference, works
from headrace._src.graph.dataflow import Node
from headrace._src.pipeline import Options, optimise, prepare
from tests.property.random_steps import IMAGES, MATRICES, Step
from tests.unit.compile.steps import assert_close, session

MOVES = ["reshape", "transpose", "slice", "concat", "spread"]
ARITHMETIC = ["unary", "binary", "reduce"]
STATE = ["update"]
DTYPES = [tf.float32, tf.float64, tf.int32, tf.int64, tf.float16, tf.bfloat16]


def run(jit, fetches, feeds, step):
    """Return the results of some runs of a step, and the variables at the end."""
    with session(jit) as running:
        running.run(tf.global_variables_initializer())
        found = [running.run([*fetches, *step.updates], feeds)[: len(fetches)] for _ in range(2)]
        return [*found[0], *found[1], *running.run([v.value() for v in step.variables])]


def assert_tiers_agree(fetches, feeds, step):
    wanted, found = run(False, fetches, feeds, step), run(True, fetches, feeds, step)
    names = [*fetches, *fetches, *step.variables]
    for name, f, w in zip(names, found, wanted, strict=True):
        assert_close(f, w, str(name))


@given(st.data())
def test_steps(data):
    with tf.Graph().as_default():
        step = Step(data.draw)
        step.start(DTYPES)
        kinds = data.draw(
            st.sampled_from([ARITHMETIC, MOVES + ARITHMETIC, ARITHMETIC + STATE, MOVES + STATE])
        )
        for _ in range(data.draw(st.integers(3, 12), label="length")):
            step.grow(kinds)
        fetches = data.draw(st.lists(st.sampled_from(step.values), min_size=1, max_size=3))
        feeds = dict(step.feeds)
        if data.draw(st.booleans(), label="feeds an intermediate value"):
            fed = step.pick()
            feeds[fed] = step.array(tuple(fed.shape.as_list()), fed.dtype.base_dtype)
        assert_tiers_agree([*fetches, step.values[-1]], feeds, step)


@given(st.data())
@settings(max_examples=25)
def test_products(data):
    with tf.Graph().as_default():
        step = Step(data.draw)
        step.start([tf.float32, tf.float32, tf.float64, tf.bfloat16], MATRICES)
        for _ in range(data.draw(st.integers(3, 8), label="length")):
            step.grow(["matmul", *ARITHMETIC, "reshape", "transpose", *STATE])
        fetches = data.draw(st.lists(st.sampled_from(step.values), min_size=1, max_size=3))
        assert_tiers_agree([*fetches, step.values[-1]], step.feeds, step)


@given(st.data())
@settings(max_examples=25)
def test_images(data):
    with tf.Graph().as_default():
        step = Step(data.draw)
        step.start([tf.float32], IMAGES)
        for _ in range(data.draw(st.integers(3, 8), label="length")):
            step.grow(["convolution", "convolution", "pool", *ARITHMETIC, "concat", "spread"])
        fetches = data.draw(st.lists(st.sampled_from(step.values), min_size=1, max_size=3))
        assert_tiers_agree([*fetches, step.values[-1]], step.feeds, step)


@given(st.data())
@settings(max_examples=25)
def test_gradients_and_training(data):
    with tf.Graph().as_default():
        step = Step(data.draw, smooth=True)
        if data.draw(st.booleans(), label="images"):
            step.start([tf.float32], IMAGES)
            kinds = ["convolution", "convolution", "pool", *ARITHMETIC, *MOVES]
        else:
            step.start([tf.float32, tf.float64], MATRICES)
            kinds = ["matmul", "matmul", *ARITHMETIC, *MOVES]
        for _ in range(data.draw(st.integers(3, 7), label="length")):
            step.grow(kinds)
        loss = tf.add_n([tf.reduce_mean(tf.square(v)) for v in step.values[-2:]])
        sources = [*step.variables, *step.feeds]
        gradients = tf.gradients(loss, sources, unconnected_gradients="zero")
        rate = data.draw(st.sampled_from([0.01, 0.5]))
        for v, g in zip(step.variables, gradients, strict=False):
            step.updates.append(v.assign_sub(rate * g, read_value=False))
        assert_tiers_agree([loss, *gradients], step.feeds, step)


@given(st.data())
@settings(max_examples=25)
def test_regions_and_groups_keep_the_order(data):
    with tf.Graph().as_default():
        step = Step(data.draw)
        step.start([tf.float32], MATRICES)
        for _ in range(data.draw(st.integers(4, 12), label="length")):
            step.grow(["matmul", *ARITHMETIC, *MOVES, *STATE])
        options = Options(jit="off")
        targets = [getattr(u, "op", u) for u in step.updates]
        prepared = prepare([step.values[-1]], targets, list(step.feeds), options)
        flow = optimise(prepared, [v.shape for v in step.feeds.values()], options)
    done = {n for n in flow.nodes if n.constant is not None}
    for can_compile, nodes in regions(flow):
        if can_compile:
            check_groups(nodes, flow)
        for node in nodes:
            assert node not in done
            assert all(v.producer in done for v in node.inputs if isinstance(v.producer, Node))
            assert done.issuperset(node.controls)
            done.add(node)
    assert done == {*flow.nodes}


def check_groups(nodes, flow):
    """Every node that does work is in exactly one group, which comes after the groups it reads
    from.
    """
    inside = {*nodes}
    needed = {v for n in flow.nodes if n not in inside for v in n.inputs} | {*flow.fetches}
    outputs = [v for n in nodes for v in n.outputs if v in needed and not is_reference(v)]
    region = Region(nodes, outputs)
    place = {}
    for i, group in enumerate(fuse(region, blocked_values(region, 8))):
        for node in (*group.before, *group.nodes, *(group.twin.nodes if group.twin else ())):
            assert node not in place
            place[node] = i
    assert {*place} == {n for n in region.nodes if works(n)}
    for node, i in place.items():
        for value in region.data_inputs(node):
            assert place.get(region.source(value).base.producer, -1) <= i
