"""Regions of a partition begin when the tensors that they need have come, not when all have."""

import random
from dataclasses import replace

import pytest

import headrace as tf
from headrace._src.compile.clusters.cluster import regions
from headrace._src.compile.clusters.separate_arrivals import separate_arrivals
from headrace._src.ops.base.stages import in_stages
from headrace._src.ops.base.transfers import is_recv, is_send
from tests.unit.partition.steps import CPU, parted


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def on(number):
    return tf.device(f"/cpu:{number}")


def chains(*inputs):
    """Return a value of three nodes for each input, all on the device 0."""
    with on(0):
        return [tf.tanh(tf.exp(tf.square(x))) for x in inputs]


def received(x, number):
    with on(number):
        return tf.negative(x)


def part(fetches, x):
    """Return the partition of the device 0."""
    (found,) = [p.flow for p in parted(fetches, feeds=[x]).parts if p.device == CPU[0]]
    return found


def compiled_of(flow):
    """Return the types of the nodes in each compiled region."""
    return [{n.type for n in run} for compiled, run in regions(flow) if compiled]


def test_parts_that_wait_for_different_tensors_are_regions_of_their_own():
    x = tf.placeholder(tf.float32, [8])
    a, b = chains(received(x, 1), received(x, 2))
    flow = part([a, b], x)
    assert compiled_of(flow) == [{"Square", "Exp", "Tanh"}] * 2


def test_parts_that_wait_for_the_same_tensor_are_one_region():
    x = tf.placeholder(tf.float32, [8])
    y = received(x, 1)
    a, b = chains(y, y)
    with on(0):
        c = tf.sigmoid(tf.sqrt(tf.sin(y)))
    flow = part([a, b, c], x)
    assert len(compiled_of(flow)) == 1


def test_parts_that_a_value_connects_are_one_region():
    x = tf.placeholder(tf.float32, [8])
    a, b = chains(received(x, 1), received(x, 2))
    with on(0):
        c = a + b
    flow = part([c], x)
    assert len(compiled_of(flow)) == 1


@pytest.mark.parametrize("seed", range(8))
def test_no_value_passes_between_the_parts_of_random_graphs(seed):
    choose = random.Random(seed)
    x = tf.placeholder(tf.float32, [8])
    values = [received(x + float(i), 1 + i % 2) for i in range(6)]
    with on(0):
        for _ in range(40):
            values.append(tf.add_n(choose.sample(values[-8:], choose.choice([1, 1, 2, 4])) + [x]))
    nodes = [n for n in part(values[-12:], x).nodes if n.constant is None]
    run = [n for n in nodes if not is_recv(n) and not is_send(n)]
    pieces = [piece for _, piece in separate_arrivals(nodes, [(True, run)], lambda piece: True)]
    assert sorted(n.name for piece in pieces for n in piece) == sorted(n.name for n in run)
    for piece in pieces:
        outside = set(run).difference(piece)
        assert not any(value.producer in outside for node in piece for value in node.inputs)


def test_parts_too_small_for_a_native_call_stay_together():
    x = tf.placeholder(tf.float32, [8])
    y, z = received(x, 1), received(x, 2)
    with on(0):
        found = [tf.square(tf.exp(y)), tf.square(tf.exp(z))]
    flow = part(found, x)
    assert len(compiled_of(flow)) == 1


def test_what_came_first_is_sent_before_more_is_waited_for():
    x = tf.placeholder(tf.float32, [8])
    ends = []
    for number, a in enumerate(chains(received(x, 1), received(x, 2)), 1):
        with on(number):
            ends.append(tf.negative(a))
    flow = part(ends, x)
    recvs = [n for n in flow.nodes if is_recv(n)]
    sends = [n for n in flow.nodes if is_send(n)]
    others = [n for n in flow.nodes if not is_recv(n) and not is_send(n)]
    order = in_stages(replace(flow, nodes=(*recvs, *others, *sends)))
    kinds = ["send" if is_send(n) else "recv" for n in order if is_send(n) or is_recv(n)]
    assert kinds == ["recv", "send", "recv", "send"]
