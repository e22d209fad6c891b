"""Traced steps as Chrome's trace events."""

import json

import numpy as np

import headrace as tf
from headrace._src.session.chrome_timeline import Timeline


def stats(*nodes):
    """Step stats of one device; a node is (name, start, length, label, bytes of its output)."""
    message = tf.RunMetadata().step_stats
    device = message.dev_stats.add()
    device.device = "/cpu:0"
    for name, start, length, label, size in nodes:
        node = device.node_stats.add(
            node_name=name,
            all_start_micros=start,
            all_end_rel_micros=length,
            timeline_label=label,
        )
        if size:
            allocation = node.output.add().tensor_description.allocation_description
            allocation.requested_bytes = size
            allocation.allocator_name = "cpu"
    return message


STEP = stats(
    ("a", 100, 10, "a = Const()", 8),
    ("b", 105, 20, "b = Neg(a)", 16),
    ("c", 130, 5, "c = Add(a, b)", 0),
)


def events(step, **options):
    return json.loads(Timeline(step).generate_chrome_trace_format(**options))["traceEvents"]


def phase(found, letter):
    return [event for event in found if event["ph"] == letter]


def test_operations_lie_in_lanes_and_name_their_inputs():
    found = phase(events(STEP), "X")
    assert [(e["name"], e["ts"], e["dur"], e["tid"]) for e in found] == [
        ("Const", 100, 10, 0),
        ("Neg", 105, 20, 1),
        ("Add", 130, 5, 0),
    ]
    assert found[2]["args"] == {"name": "c", "op": "Add", "input0": "a", "input1": "b"}


def test_each_device_is_a_process():
    names = [event["args"]["name"] for event in phase(events(STEP), "M")]
    assert names == ["Allocators", "/cpu:0 Compute", "/cpu:0 Tensors"]


def test_arrows_join_lanes():
    found = events(STEP)
    starts, ends = (
        [(e["name"], e["tid"], e["ts"]) for e in phase(found, letter)] for letter in "st"
    )
    assert starts == [("a", 0, 110), ("b", 1, 125)]
    assert ends == [("a", 1, 105), ("b", 0, 130)]
    assert not phase(events(STEP, show_dataflow=False), "s")


def memory(step):
    """The bytes in use at each change, and when the tensors are made, shown and deleted."""
    found = events(step, show_memory=True)
    used = [(event["ts"], event["args"]["cpu"]) for event in phase(found, "C")]
    return used, *({e["name"]: e["ts"] for e in phase(found, letter)} for letter in "NOD")


def test_memory_is_in_use_until_the_last_reader_ends():
    used, made, shown, deleted = memory(STEP)  # as TensorFlow 1.15.5 writes them
    assert used == [(100, 8), (105, 24), (134, 8), (134, 0)]
    assert made == {"a": 100, "b": 105}
    assert shown == {"a": 109, "b": 124}
    assert deleted == {"a": 134, "b": 134}
    assert not phase(events(STEP), "C")


def test_the_reader_that_ends_last_is_not_the_one_that_starts_last():
    step = stats(
        ("a", 100, 10, "a = Const()", 8),
        ("b", 112, 30, "b = Neg(a)", 16),
        ("c", 120, 5, "c = Neg(a)", 4),
    )
    used, _, _, deleted = memory(step)
    assert deleted == {"a": 141, "b": 142, "c": 125}
    assert used == [(100, 8), (112, 24), (120, 28), (125, 24), (141, 16), (142, 0)]


def test_an_operation_without_duration_shows_its_output_when_it_is_made():
    _, made, shown, deleted = memory(stats(("a", 100, 0, "a = Const()", 8)))
    assert made == shown == deleted == {"a": 100}


def test_labels_that_say_nothing_leave_it_to_the_graph():
    unlabelled = stats(("sum", 1, 1, "", 0), ("gone", 2, 1, "", 0))
    assert [e["name"] for e in phase(events(unlabelled), "X")] == ["unknown", "unknown"]
    with tf.Graph().as_default() as graph:
        tf.add(tf.constant(1.0, name="x"), tf.constant(2.0, name="y"), name="sum")
    trace = json.loads(Timeline(unlabelled, graph).generate_chrome_trace_format())
    labelled = phase(trace["traceEvents"], "X")
    assert [e["name"] for e in labelled] == ["Add", "unknown"]
    assert labelled[0]["args"]["input1"] == "y"


def test_a_step_that_was_run():
    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.placeholder("float32", [2, 2], name="x")
        product = tf.linalg.inv(tf.matmul(x, x, name="product"), name="inverse")
        metadata = tf.RunMetadata()
        options = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE)
        session.run(product, {x: np.eye(2)}, options=options, run_metadata=metadata)
    found = phase(events(metadata.step_stats, show_memory=True), "X")
    assert {"product", "inverse"} <= {event["args"]["name"] for event in found}
    inverse = next(e for e in found if e["args"]["name"] == "inverse")
    assert inverse["args"]["input0"] == "product"
