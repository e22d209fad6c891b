"""Partitions: each transfer is a Send and a Recv, in the order of the whole step."""

from dataclasses import replace

import pytest

import headrace as tf
from headrace._src.core.errors import InternalError
from headrace._src.graph.dataflow import Dataflow, rebuild
from headrace._src.ops.base.transfers import RECV, SEND, is_recv, is_send, is_transfer, key_of
from headrace._src.partition.cut import cut
from headrace._src.partition.verify import verify_partitions
from tests.unit.partition.steps import CPU, joined, parted, partition, types


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def on(number):
    return tf.device(f"/cpu:{number}")


def round_trip():
    x = tf.placeholder(tf.float32, [2, 3], name="x")
    with on(0):
        a = tf.tanh(x, name="a")
    with on(1):
        b = tf.square(a, name="b")
    with on(0):
        c = tf.add(a, b, name="c")
    return parted([b, c], feeds=[x])


def test_a_round_trip_is_two_pairs():
    parts = round_trip()
    assert types(partition(parts, 0)) == ["Tanh", "_Send", "_Recv", "Add"]
    assert types(partition(parts, 1)) == ["_Recv", "Square", "_Send"]
    assert [p.device for p in parts.parts] == CPU[:2]
    assert parts.sources == ((1, 0), (0, 0))


def test_edges_have_names_and_sizes():
    parts = round_trip()
    assert [(e.tensor, e.sender, e.receiver, e.size) for e in parts.edges] == [
        ("a:0", CPU[0], CPU[1], 24),
        ("b:0", CPU[1], CPU[0], 24),
    ]
    assert str(parts.edges[0]) == f"{CPU[0]} -> {CPU[1]}: a:0 (24 B)"
    assert str(parts.edges[0]) in str(parts) and "_Recv" in str(parts)


def test_an_unknown_shape_and_strings_have_no_size():
    x, s = tf.placeholder(tf.float32, [None]), tf.placeholder(tf.string, [2])
    with on(0):
        a, b = tf.tanh(x), tf.string_join([s, s])
    with on(1):
        c, d = tf.square(a), tf.string_join([b, b])
    assert [e.size for e in parted([c, d], feeds=[x, s]).edges] == [None, None]


def test_keys_have_the_incarnation_of_the_sender():
    x = tf.placeholder(tf.float32, [2], name="x")
    with on(0):
        a = tf.tanh(x, name="a")
    with on(1):
        b = tf.square(a)
    parts = cut(joined([b], feeds=[x]), {CPU[0]: 17, CPU[1]: 18})
    nodes = [n for part in parts.parts for n in part.flow.nodes if is_send(n) or is_recv(n)]
    assert [n.attrs["send_device_incarnation"] for n in nodes] == [17, 17]


def test_both_ends_have_the_same_key():
    parts = round_trip()
    (send,) = filter(is_send, partition(parts, 0))
    (recv,) = filter(is_recv, partition(parts, 1))
    assert key_of(send.attrs) == key_of(recv.attrs)
    key = key_of(send.attrs)
    assert (key.sender, key.receiver, key.tensor) == (CPU[0], CPU[1], "a/to_CPU_1")
    assert key.incarnation == 0
    assert send.definition is SEND and recv.definition is RECV


def test_nodes_of_one_name_have_different_keys():
    """A pass may copy a node, or inline a function that is called twice."""
    x = tf.placeholder(tf.float32, [2], name="x")
    with on(0):
        a, b = tf.tanh(x, name="a"), tf.square(x, name="b")
    with on(1):
        y = a + b
    flow = joined([y], feeds=[x])
    same = rebuild(
        flow,
        lambda n, inputs, controls: replace(
            n.moved(inputs, controls), name="same" if is_transfer(n) else n.name
        ),
    )
    parts = cut(same)
    verify_partitions(parts)
    names = [n.attrs["tensor_name"] for n in partition(parts, 1) if is_recv(n)]
    assert names == ["same", "same_1"]


def test_constants_are_copied_and_feeds_given_to_each_partition():
    x, unused = tf.placeholder(tf.float32, [2]), tf.placeholder(tf.float32, [2])
    one = tf.constant([1.0, 2.0])
    with on(0):
        a = tf.tanh(x * one)
    with on(1):
        b = tf.square(x * one) + unused
    parts = parted([a, b], feeds=[x, unused])
    assert not parts.edges
    assert [len(p.flow.feeds) for p in parts.parts] == [1, 2]
    assert all(any(n.constant is not None for n in p.flow.nodes) for p in parts.parts)


def test_a_control_edge_travels_once_to_each_device():
    x = tf.placeholder(tf.float32, [], name="x")
    with on(0):
        check = tf.Assert(x > 0, [x], name="check")
    fetches = []
    for number in (1, 1, 2):
        with on(number), tf.control_dependencies([check]):
            fetches.append(tf.negative(x))
    parts = parted(fetches, feeds=[x])
    signals = [e for e in parts.edges if e.tensor.startswith("^")]
    assert [(e.receiver, e.size) for e in signals] == [(CPU[1], 0), (CPU[2], 0)]
    assert types(partition(parts, 1)) == ["_Recv", "Neg", "Neg"]
    (recv,) = filter(is_recv, partition(parts, 1))
    assert all(n.controls == (recv,) for n in partition(parts, 1) if n.type == "Neg")
    assert recv.types[0].sizes == (0,)


def test_a_fed_and_a_constant_fetch_belong_to_some_partition():
    x = tf.placeholder(tf.float32, [2])
    with on(1):
        a = tf.tanh(x)
    with on(2):
        b = tf.square(a)
    parts = parted([x, tf.constant(3.0), b], feeds=[x])
    assert [parts.parts[part].device for part, _ in parts.sources][2] == CPU[2]
    with tf.Session(config=tf.ConfigProto(device_count={"CPU": 3})) as session:
        found = session.run([x, tf.constant(3.0), b], {x: [0.0, 0.0]})
    assert found[0].tolist() == [0, 0] and found[1] == 3 and found[2].tolist() == [0, 0]


def test_a_loop_across_devices_has_a_control_loop_on_each():
    x = tf.placeholder(tf.float32, [], name="x")

    def body(i, a):
        with on(1):
            b = tf.tanh(a, name="b")
        with on(2):
            return i + 1, tf.square(b, name="c")

    with on(0):
        _, y = tf.while_loop(lambda i, _: i < 3, body, [0, x], name="loop")
    parts = parted([y], feeds=[x])
    for number in (1, 2):
        nodes = partition(parts, number)
        found = [n for n in nodes if f"/control_{number}/" in n.name and not is_recv(n)]
        kinds = [n.type for n in found if not is_send(n)]
        assert kinds == ["Enter", "Merge", "Switch", "NextIteration"]
        (merge,) = [n for n in found if n.type == "Merge"]
        inside = [n for n in nodes if is_recv(n) and n.controls]
        assert inside and all(merge in n.controls for n in inside)
    triggers = {n.name for n in partition(parts, 0) if "control" in n.name and not is_send(n)}
    assert not triggers or all("/control_0/" in name for name in triggers)


def test_a_step_of_one_device_is_not_cut():
    x = tf.placeholder(tf.float32, [2])
    with on(2):
        assert isinstance(parted([tf.tanh(x)], feeds=[x]), Dataflow)


# -- Faults that the verifier finds ----------------------------------------------------------------


def broken(parts, number, change):
    """Return partitions in which the nodes of one are changed."""
    part = parts.parts[number]
    nodes = tuple(change(list(part.flow.nodes)))
    flow = replace(part.flow, nodes=nodes, targets=tuple(n for n in nodes if is_send(n)))
    changed = list(parts.parts)
    changed[number] = replace(part, flow=flow)
    positions = dict(parts.positions)
    for node in flow.nodes:
        old = next((n for n in positions if n.name == node.name), None)
        if old is not None:
            positions.setdefault(node, positions[old])
    return replace(parts, parts=tuple(changed), positions=positions)


def fails(parts, match):
    with pytest.raises(InternalError, match=match):
        verify_partitions(parts)


def test_a_missing_send_is_found():
    parts = round_trip()
    fails(broken(parts, 0, lambda ns: [n for n in ns if not is_send(n)]), "but not both")


def test_a_key_that_is_sent_twice_is_found():
    parts = round_trip()

    def twice(nodes):
        (send,) = filter(is_send, nodes)
        place = nodes.index(send)
        return [*nodes[: place + 1], replace(send, name="again"), *nodes[place + 1 :]]

    parts = broken(parts, 0, twice)
    again = next(n for n in parts.parts[0].flow.nodes if n.name == "again")
    parts.positions[again] = parts.positions[next(filter(is_send, partition(parts, 0)))]
    fails(parts, "used twice")


def test_a_node_of_another_device_is_found():
    parts = round_trip()

    def moved(nodes):
        send = next(filter(is_send, nodes))
        return [n.moved(n.inputs, n.controls, CPU[2]) if n is send else n for n in nodes]

    fails(broken(parts, 0, moved), "is in the partition of")


def test_another_order_than_the_steps_is_found():
    parts = round_trip()
    first, second = partition(parts, 1)[:2]
    positions = dict(parts.positions)
    positions[first], positions[second] = positions[second], positions[first] - 1
    fails(replace(parts, positions=positions), "not in the order")


def test_a_recv_before_its_send_is_found():
    parts = round_trip()
    positions = {n: i + (100 if n.device == CPU[0] else 0) for n, i in parts.positions.items()}
    fails(replace(parts, positions=positions), "received before it is sent")
