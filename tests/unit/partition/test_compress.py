"""Float32 values travel between hosts in 16 bits, and only there."""

import numpy as np

import headrace as tf
from headrace._src.graph.dataflow import rebuild
from headrace._src.ops.base.transfers import is_transfer
from headrace._src.partition.compress import compress_transfers
from headrace._src.partition.transfers import add_transfers, verify_transfers
from headrace._src.pipeline import Options, prepare

HERE, NEXT, FAR = (
    f"/job:worker/replica:0/task:{task}/device:CPU:{device}"
    for task, device in ((0, 0), (0, 1), (1, 0))
)


def placed(devices, dtype=tf.float32):
    """Return a step of a producer and its readers on these devices, with explicit transfers."""
    with tf.Graph().as_default():
        x = tf.placeholder(dtype, [4], name="x")
        made = tf.negative(x, name="made")
        readers = [tf.abs(made, name=f"reader{i}") for i in range(len(devices))]
        flow = prepare(readers, [], [x], Options())
    where = {"made": HERE, **{f"reader{i}": device for i, device in enumerate(devices)}}
    flow = rebuild(flow, lambda n, inputs, controls: n.moved(inputs, controls, where[n.name]))
    return add_transfers(flow)


def test_a_transfer_between_hosts_is_narrow():
    flow = compress_transfers(placed([FAR, NEXT, HERE]))
    verify_transfers(flow)
    types = {n.device: n.types[0].dtype for n in flow.nodes if is_transfer(n)}
    assert types == {FAR: tf.bfloat16, NEXT: tf.float32}
    devices = {n.name: n.device for n in flow.nodes if n.type == "Cast"}
    assert devices == {"made/to_CPU_0/narrow": HERE, "made/to_CPU_0/wide": FAR}
    (reader,) = [n for n in flow.nodes if n.name == "reader0"]
    assert reader.inputs[0].dtype == tf.float32


def test_other_types_stay():
    for dtype in (tf.int32, tf.float64, tf.bfloat16):
        flow = placed([FAR], dtype)
        assert str(compress_transfers(flow)) == str(flow)


def test_the_option_keeps_values_within_a_host():
    config = tf.ConfigProto(
        device_count={"CPU": 2}, graph_options=tf.GraphOptions(enable_bfloat16_sendrecv=True)
    )
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [3])
        with tf.device("/cpu:1"):
            y = tf.identity(x * 1.1)
        with tf.device("/cpu:0"):
            z = y + 0.0
        with tf.Session(config=config) as session:
            fed = np.array([1.2345678, 3.3, 7e-9], np.float32)
            np.testing.assert_array_equal(session.run(z, {x: fed}), fed * np.float32(1.1))
