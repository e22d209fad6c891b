"""Stages: levels on the whole step, and regions that partitions form without seeing each other."""

from dataclasses import replace

import pytest

import headrace as tf
from headrace._src.core.errors import InternalError
from headrace._src.graph.partition import Partition
from headrace._src.graph.verify_flow import verify_dataflow
from headrace._src.ops.base.stages import (
    arrivals,
    has_stages,
    in_stages,
    keeps_stages,
    region_stages,
)
from headrace._src.ops.base.transfers import is_recv, is_send
from headrace._src.optimize.prune import prune
from headrace._src.partition.stages import (
    NO_STAGE,
    awaited,
    earliest_first,
    levels,
    verify_stages,
)
from headrace._src.partition.verify import verify_partitions
from tests.unit.partition.steps import joined, parted, partition


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def on(number):
    return tf.device(f"/cpu:{number}")


def there_and_back():
    """Return the tensors of a step that goes to another device and back twice."""
    x = tf.placeholder(tf.float32, [4, 4], name="x")
    with on(0):
        a = tf.tanh(x, name="a")
        free = tf.square(x, name="free")
    with on(1):
        b = tf.square(a, name="b")
    with on(0):
        c = tf.add(a, b, name="c")
    with on(1):
        d = tf.add(b, c, name="d")
    with on(0):
        e = tf.add(d, free, name="e")
    return x, e


def stages(nodes, of=lambda n: is_send(n) or is_recv(n)):
    return {n.name: n.attrs["stage"] for n in nodes if of(n)}


def test_the_level_is_the_number_of_crossings():
    x, e = there_and_back()
    found = levels(joined([e], feeds=[x]))
    named = {n.name: level for n, level in found.items() if n.type != "_Transfer"}
    assert named == {"a": 0, "free": 0, "b": 1, "c": 2, "d": 3, "e": 4}


def test_a_task_works_in_the_order_in_which_others_send():
    worker, ps = (f"/job:{job}/replica:0/task:0/device:CPU:0" for job in ("worker", "ps"))
    x = tf.placeholder(tf.float32, [4], name="x")
    with tf.device(worker):
        first, second = tf.tanh(x, name="first"), tf.exp(x, name="second")
    with tf.device(ps):
        b = tf.abs(second, name="b")
        after = tf.negative(b, name="after")
        a = tf.square(first, name="a")
        free = tf.constant(1.0, name="free")
        both = tf.add(after, a + free, name="both")
    found = earliest_first(prune([both], [], [x]))
    verify_dataflow(found)
    names = [n.name for n in found.nodes]
    assert [n for n in names if n in ("first", "second", "a", "b", "after", "both")] == [
        *("first", "second", "a", "b", "after", "both")
    ]


def test_a_recv_has_a_greater_stage_than_its_send():
    x, e = there_and_back()
    parts = parted([e], feeds=[x])
    assert stages(partition(parts, 0)) == {
        "a/to_CPU_1/send": 0,
        "b/to_CPU_0/recv": 2,
        "c/to_CPU_1/send": 2,
        "d/to_CPU_0/recv": 4,
    }
    assert stages(partition(parts, 1)) == {
        "a/to_CPU_1/recv": 1,
        "b/to_CPU_0/send": 1,
        "c/to_CPU_1/recv": 3,
        "d/to_CPU_0/send": 3,
    }


def test_control_edges_have_stages():
    x = tf.placeholder(tf.float32, [2])
    with on(0):
        a = tf.tanh(x, name="a")
    with on(1), tf.control_dependencies([a]):
        b = tf.square(x, name="b")
    parts = parted([b], feeds=[x])
    assert list(stages(partition(parts, 0)).values()) == [0]
    assert list(stages(partition(parts, 1)).values()) == [1]


def test_a_step_with_primitives_has_no_stages():
    x = tf.placeholder(tf.float32, [2])
    with on(0):
        _, y = tf.while_loop(
            lambda i, a: i < 3, lambda i, a: (i + 1, on_device(1, tf.tanh, a)), [0, x]
        )
    parts = parted([y], feeds=[x])
    found = {**stages(partition(parts, 0)), **stages(partition(parts, 1))}
    assert found and set(found.values()) == {NO_STAGE}
    assert not has_stages(partition(parts, 0))


def on_device(number, function, *inputs):
    with on(number):
        return function(*inputs)


def by_name(found):
    return {n.name: stage for n, stage in found.items() if not is_send(n) and not is_recv(n)}


def test_a_light_node_joins_the_latest_region_that_it_may():
    x, e = there_and_back()
    nodes = partition(parted([e], feeds=[x]), 0)
    assert by_name(arrivals(nodes)) == {"a": 0, "free": 0, "c": 2, "e": 4}
    assert by_name(region_stages(nodes, lambda n: False)) == {"a": 0, "free": 4, "c": 2, "e": 4}


def test_a_heavy_node_and_what_it_needs_run_early():
    x = tf.placeholder(tf.float32, [4, 4], name="x")
    with on(0):
        a = tf.tanh(x, name="a")
        light = tf.square(x, name="light")
        heavy = tf.matmul(light, x, name="heavy")
    with on(1):
        b = tf.square(a, name="b")
    with on(0):
        c = tf.add(heavy, b, name="c")
    nodes = partition(parted([c], feeds=[x]), 0)
    found = by_name(region_stages(nodes, lambda n: n.name == "heavy"))
    assert found == {"a": 0, "light": 0, "heavy": 0, "c": 2}
    found = by_name(region_stages(nodes, lambda n: False))
    assert found == {"a": 0, "light": 2, "heavy": 2, "c": 2}


def test_nodes_are_ordered_by_their_earliest_stage():
    x, e = there_and_back()
    parts = parted([e], feeds=[x])
    flow = parts.parts[0].flow
    order = [n.name for n in in_stages(replace(flow, nodes=flow.nodes))]
    assert order == [
        *("a", "a/to_CPU_1/send", "free", "b/to_CPU_0/recv", "c"),
        *("c/to_CPU_1/send", "d/to_CPU_0/recv", "e"),
    ]


def test_what_another_partition_waits_for_comes_first():
    x = tf.placeholder(tf.float32, [4], name="x")
    with on(0):
        own = tf.exp(tf.square(x, name="mine"), name="own")
        given = tf.tanh(tf.negative(x, name="needed"), name="given")
    with on(1):
        back = tf.abs(given, name="back")
    with on(0):
        total = tf.add(own, back, name="total")
    flow = parted([total], feeds=[x]).parts[0].flow
    order = [n.name for n in in_stages(flow)]
    assert order == [
        *("needed", "given", "given/to_CPU_1/send", "mine", "own"),
        *("back/to_CPU_0/recv", "total"),
    ]


def changed(parts, number, name, stage):
    """Return partitions in which one Send or Recv has another stage."""
    part = parts.parts[number]
    (node,) = [n for n in part.flow.nodes if n.name == name]
    node.attrs["stage"] = stage
    return [Partition(p.device, p.flow) for p in parts.parts]


def test_wrong_stages_are_found():
    x, e = there_and_back()
    parts = parted([e], feeds=[x])
    verify_partitions(parts)
    made = changed(parts, 0, "c/to_CPU_1/send", 1)
    assert not keeps_stages(made[0].flow)
    with pytest.raises(InternalError, match="comes before its stage"):
        verify_stages(p.flow for p in made)
    with pytest.raises(InternalError, match="comes before its stage"):
        verify_partitions(parts)


def test_a_recv_of_an_early_stage_is_found():
    x, e = there_and_back()
    parts = parted([e], feeds=[x])
    made = changed(parts, 1, "c/to_CPU_1/recv", 2)
    with pytest.raises(InternalError, match="sent in stage 2 and received in stage 2"):
        verify_stages(p.flow for p in made)


def test_a_recv_lists_the_blocking_ops_before_it():
    with on(0):
        queue = tf.FIFOQueue(2, [tf.float32], shapes=[[2]])
        a = queue.dequeue()
    with on(1):
        b = tf.tanh(a, name="b")
    with on(0):
        c = tf.square(b, name="c")
    flow = joined([c])
    assert {n.name for n, found in awaited(flow).items() if found} >= {"b", "c"}
    parts = parted([c])
    recvs = [n for i in range(2) for n in partition(parts, i) if is_recv(n)]
    assert [n.attrs["awaits"] for n in recvs] == [(0,), (0,)]
