"""Staging areas, in order and by key."""

from tests.oracle.sequences import sequence


def areas(tf):
    try:
        from tensorflow.python.ops import data_flow_ops
    except ImportError:
        data_flow_ops = tf.python.ops.data_flow_ops
    return data_flow_ops.StagingArea, data_flow_ops.MapStagingArea


@sequence
def in_order(tf, run):
    area = areas(tf)[0]([tf.float32, tf.string], shapes=[[2], []], shared_name="a")
    x = tf.placeholder(tf.float32, [2])
    put, get, size = area.put([x, tf.constant("s")]), area.get(), area.size()
    run(size)
    run(put, {x: [1, 2]})
    run(put, {x: [3, 4]})
    run(area.peek(1))
    run(size)
    run(get)
    run(size)
    run(area.clear())
    run(size)
    run([get, put], {x: [5, 6]})
    run.note([str(t.shape) for t in get])


@sequence
def limits(tf, run):
    area = areas(tf)[0]([tf.float32], shared_name="b", capacity=1)
    run([area.put([tf.constant([1.0])]), area.put([tf.constant([1.0])]), area.get()])
    run(area.size())
    small = areas(tf)[0]([tf.float32], shared_name="c", memory_limit=8)
    run(small.put([tf.constant([1.0, 2.0])]))
    run(small.size())


@sequence
def names(tf, run):
    area = areas(tf)[0]([tf.int32, tf.int32], names=["x", "y"], shared_name="d")
    run(area.put({"x": tf.constant(1), "y": tf.constant(2)}))
    run(area.get())
    run.note([area.name, area.names, area.capacity, area.memory_limit])


@sequence
def by_key(tf, run):
    for ordered in (False, True):
        area = areas(tf)[1](
            [tf.int32, tf.string], shared_name="ordered" if ordered else "not", ordered=ordered
        )
        k = tf.placeholder(tf.int64, [])
        put = area.put(k, [tf.constant(1), tf.constant("s")], [0, 1])
        run(put, {k: 5})
        run(area.size())
        run(area.get(k)[1], {k: 5})
        run(area.put(k, [tf.constant(2)], [0]), {k: 7})
        run([area.size(), area.incomplete_size()])
        run(area.put(k, [tf.constant("t")], [1]), {k: 7})
        run([area.size(), area.incomplete_size()])
        run(area.peek(k)[1], {k: 7})
        run(area.get(k, [0])[1], {k: 7})
        run(area.get(k, [1])[1], {k: 7})
        run(area.size())
        run(put, {k: 9})
        run(list(area.get()))
        run(put, {k: 9})
        run(area.clear())
        run(area.size())
    for key in (3, 1, 2):
        run(put, {k: key})
    for _ in range(3):
        run(area.get()[0])
    run([area.get(k)[1], put], {k: 4})


@sequence
def by_key_and_name(tf, run):
    area = areas(tf)[1]([tf.int32, tf.string], names=["x", "y"], shared_name="f")
    key = tf.constant(3, tf.int64)
    run(area.put(key, {"x": tf.constant(1)}))
    run(area.put(key, {"y": tf.constant("s")}))
    run(area.get(key)[1])
