"""Barriers: tuples whose components come one by one."""

from tests.oracle.sequences import sequence


def barrier(tf, *arguments, **options):
    try:
        from tensorflow.python.ops import data_flow_ops
    except ImportError:
        data_flow_ops = tf.python.ops.data_flow_ops
    return data_flow_ops.Barrier(*arguments, **options)


@sequence
def components_come_together(tf, run):
    b = barrier(tf, (tf.float32, tf.int32), shapes=((), (2,)), name="b")
    k, x, y = tf.placeholder(tf.string), tf.placeholder(tf.float32), tf.placeholder(tf.int32)
    first, second = b.insert_many(0, k, x), b.insert_many(1, k, y)
    sizes = [b.ready_size(), b.incomplete_size()]
    run(first, {k: ["a", "b", "c"], x: [1, 2, 3]})
    run(sizes)
    run(second, {k: ["c", "a"], y: [[3, 3], [1, 1]]})
    run(sizes)
    run(list(b.take_many(2)))
    run(sizes)
    run(first, {k: ["b"], x: [9]})
    run([list(b.take_many(1)), second], {k: ["b"], y: [[2, 2]]})
    run(sizes)


@sequence
def closing(tf, run):
    b = barrier(tf, (tf.float32, tf.float32), shapes=((), ()), name="b")
    k, x = tf.placeholder(tf.string), tf.placeholder(tf.float32)
    first, second = b.insert_many(0, k, x), b.insert_many(1, k, x)
    run(first, {k: ["a", "b"], x: [1, 2]})
    run(second, {k: ["a"], x: [3]})
    run(b.close())
    run(second, {k: ["b"], x: [4]})
    run(list(b.take_many(3, allow_small_batch=True)))
    run(list(b.take_many(1)))


@sequence
def cancelling(tf, run):
    b = barrier(tf, (tf.float32, tf.float32), shapes=((), ()), name="b")
    k, x = tf.placeholder(tf.string), tf.placeholder(tf.float32)
    first, second = b.insert_many(0, k, x), b.insert_many(1, k, x)
    run(first, {k: ["a", "b"], x: [1, 2]})
    run(second, {k: ["a"], x: [3]})
    run(b.close(cancel_pending_enqueues=True))
    run(list(b.take_many(1)))
    run(list(b.take_many(1)))
