"""Queues of every kind: what goes in, what comes out, and what is refused."""

import numpy as np

from tests.oracle.sequences import sequence


@sequence
def fifo(tf, run):
    q = tf.FIFOQueue(3, [tf.float32, tf.string], shapes=[[2], []], name="q")
    x = tf.placeholder(tf.float32)
    enqueue = q.enqueue([x, "a"])
    run(q.size())
    for value in ([1, 2], [3, 4], [5, 6]):
        run(enqueue, {x: value})
    run(q.size())
    run(q.dequeue())
    run(q.dequeue_many(2))
    run(q.size())
    run(q.is_closed())
    run(enqueue, {x: [1, 2, 3]})
    run(enqueue, {x: 1.0})
    run(enqueue, {x: [7, 8]})
    run(q.close())
    run(q.is_closed())
    run(enqueue, {x: [1, 2]})
    run(q.dequeue_many(2))
    run(q.dequeue_up_to(2))
    run(q.dequeue_up_to(2))
    run(q.dequeue())
    run(q.dequeue_many(0))
    run(q.close())
    run(q.close(cancel_pending_enqueues=True))


@sequence
def fifo_many(tf, run):
    q = tf.FIFOQueue(10, tf.int32, shapes=[()], name="q")
    x = tf.placeholder(tf.int32)
    n = tf.placeholder(tf.int32)
    enqueue = q.enqueue_many([x])
    run(enqueue, {x: [1, 2, 3]})
    run(enqueue, {x: np.zeros([0], np.int32)})
    run(enqueue, {x: [[1, 2]]})
    run(q.dequeue_many(n), {n: 2})
    run(q.dequeue_many(n), {n: -1})
    run(q.dequeue_up_to(n), {n: -1})
    run(q.dequeue_many(n), {n: 0})
    run(enqueue, {x: [4, 5]})
    run(q.dequeue_up_to(n), {n: 2})
    run(q.size())


@sequence
def waiting_in_one_step(tf, run):
    q = tf.FIFOQueue(2, tf.int32, shapes=[()])
    run([q.dequeue_many(5), q.enqueue_many([[1, 2, 3, 4, 5, 6]])])
    run(q.size())
    run([q.enqueue_many([[7, 8, 9]]), q.dequeue_many(4)])
    run(q.size())
    run([q.dequeue(), q.enqueue([10])])
    with tf.control_dependencies([q.enqueue_many([[1, 2, 3]])]):
        close = q.close()
    run([q.dequeue_up_to(2), close])
    run(q.dequeue_up_to(9))
    run(q.size())


@sequence
def without_shapes(tf, run):
    q = tf.FIFOQueue(5, [tf.float32, tf.int64])
    x = tf.placeholder(tf.float32)
    y = tf.placeholder(tf.int64)
    run(q.enqueue([x, y]), {x: [1, 2], y: 3})
    run(q.enqueue([x, y]), {x: 1, y: [3, 4]})
    run(q.dequeue())
    run(q.dequeue())
    run(q.enqueue_many([x, y]), {x: [[1], [2]], y: [3, 4]})
    run(q.enqueue_many([x, y]), {x: [[1], [2]], y: [3]})
    run(q.dequeue())
    run(q.dequeue_many(1))
    run(q.dequeue_up_to(1))
    run(q.dequeue_many(0))
    run(q.size())


@sequence
def named(tf, run):
    q = tf.FIFOQueue(5, [tf.int32, tf.float32], shapes=[[], [1]], names=["i", "f"], name="named")
    run(q.enqueue({"i": 1, "f": [2.0]}))
    run(q.enqueue_many({"i": [3, 4], "f": [[5.0], [6.0]]}))
    run(q.dequeue())
    run(q.dequeue_many(2))
    run.attempt(lambda: q.enqueue([1, [2.0]]))
    run.attempt(lambda: q.enqueue({"i": 1}))
    run.attempt(lambda: q.enqueue({"i": 1, "x": [2.0]}))
    plain = tf.FIFOQueue(5, [tf.int32])
    run.attempt(lambda: plain.enqueue({"i": 1}))
    run.attempt(lambda: tf.FIFOQueue(5, [tf.int32], names=["a", "b"]))
    run.note([q.names, [t.name for t in q.dtypes], [str(s) for s in q.shapes], q.name])


@sequence
def mistakes(tf, run):
    run.attempt(lambda: tf.FIFOQueue(5, [tf.int32, tf.float32], shapes=[[]]))
    run.attempt(lambda: tf.FIFOQueue(5, []))
    q = tf.FIFOQueue(5, [tf.int32, tf.float32], shapes=[[], [2]], name="q")
    run.attempt(lambda: q.enqueue([1]))
    run.attempt(lambda: q.enqueue([1, [2.0, 3.0, 4.0]]))
    run.attempt(lambda: q.enqueue([tf.constant(1.0), [2.0, 3.0]]))
    run.attempt(lambda: q.enqueue_many([[1], [2.0, 3.0]]))
    run.attempt(lambda: q.enqueue_many([[1], [[2.0, 3.0], [4.0, 5.0]]]))
    run.attempt(lambda: q.enqueue_many([1, [[2.0, 3.0]]]))


@sequence
def shared(tf, run):
    first = tf.FIFOQueue(5, [tf.int32], shapes=[[]], shared_name="s", name="a")
    again = tf.FIFOQueue(5, [tf.int32], shapes=[[]], shared_name="s", name="b")
    run(first.enqueue([1]))
    run(again.dequeue())
    run(tf.FIFOQueue(6, [tf.int32], shapes=[[]], shared_name="s", name="c").size())
    run(tf.FIFOQueue(5, [tf.float32], shapes=[[]], shared_name="s", name="d").size())
    run(tf.FIFOQueue(5, [tf.int32], shapes=[[2]], shared_name="s", name="e").size())
    run(tf.FIFOQueue(5, [tf.int32], shared_name="s", name="f").size())
    run(tf.PaddingFIFOQueue(5, [tf.int32], shapes=[[]], shared_name="s", name="g").size())
    run(tf.RandomShuffleQueue(5, 1, [tf.int32], shapes=[[]], shared_name="s", name="h").size())
    tf.RandomShuffleQueue(5, 1, [tf.int32], seed=1, shared_name="r", name="i")
    run(tf.RandomShuffleQueue(5, 1, [tf.int32], seed=1, shared_name="r", name="j").size())
    run(tf.RandomShuffleQueue(5, 2, [tf.int32], seed=1, shared_name="r", name="k").size())
    run(tf.RandomShuffleQueue(5, 1, [tf.int32], seed=3, shared_name="r", name="l").size())


@sequence
def shuffled(tf, run):
    q = tf.RandomShuffleQueue(20, 3, tf.int32, shapes=[()], seed=7, name="q")
    run(q.enqueue_many([list(range(12))]))
    run(q.dequeue())
    run(q.dequeue())
    run(q.dequeue_many(5))
    run(q.size())
    run(q.enqueue_many([list(range(100, 106))]))
    run(q.dequeue_many(6))
    run(q.close())
    run(q.dequeue_many(6))
    run(q.dequeue_up_to(6))
    run(q.dequeue_up_to(6))
    run(q.dequeue())
    run.attempt(lambda: run.session.run(tf.RandomShuffleQueue(2, 3, tf.int32, name="r").size()))
    run.attempt(lambda: tf.RandomShuffleQueue(2, -1, tf.int32, name="t"))


@sequence
def shuffled_by_graph_seed(tf, run):
    tf.set_random_seed(5)
    a = tf.RandomShuffleQueue(20, 0, tf.int32, shapes=[()])
    b = tf.RandomShuffleQueue(20, 0, tf.int32, shapes=[()], shared_name="b")
    for q in (a, b):
        run(q.enqueue_many([list(range(8))]))
        run(q.dequeue_many(8))


@sequence
def padded(tf, run):
    q = tf.PaddingFIFOQueue(10, [tf.int32, tf.string], shapes=[[None, 2], [None]], name="q")
    x = tf.placeholder(tf.int32)
    y = tf.placeholder(tf.string)
    enqueue = q.enqueue([x, y])
    run(enqueue, {x: [[1, 2]], y: ["a", "b"]})
    run(enqueue, {x: [[3, 4], [5, 6]], y: []})
    run(enqueue, {x: np.zeros([0, 2], np.int32), y: ["c"]})
    run(enqueue, {x: [[1, 2, 3]], y: ["a"]})
    run(enqueue, {x: [1, 2], y: ["a"]})
    run(q.dequeue_many(3))
    run(enqueue, {x: [[7, 8]], y: ["d"]})
    run(q.dequeue())
    run(q.enqueue_many([x, y]), {x: [[[1, 2]], [[3, 4]]], y: [["e"], ["f"]]})
    run(q.enqueue_many([x, y]), {x: [[[1, 2]], [[3, 4]]], y: [["e"]]})
    run(q.dequeue_many(0))
    run(q.dequeue_up_to(2))
    run(q.close())
    run(q.dequeue_many(2))
    run(q.dequeue_up_to(2))
    run.attempt(lambda: tf.PaddingFIFOQueue(10, [tf.int32], shapes=None))
    run.attempt(lambda: tf.PaddingFIFOQueue(10, [tf.int32, tf.int32], shapes=[[None]]))
    run.note(str(q.dequeue_many(3)[0].shape))


@sequence
def fifo_of_unknown_sizes(tf, run):
    run.attempt(lambda: tf.FIFOQueue(10, [tf.int32], shapes=[[None]], name="q"))
    handle = tf.raw_ops.FIFOQueueV2(component_types=[tf.int32], shapes=[[None]], name="q")
    run(tf.raw_ops.QueueEnqueueV2(handle=handle, components=[[1, 2]]))
    run(tf.raw_ops.QueueDequeueV2(handle=handle, component_types=[tf.int32]))


@sequence
def by_priority(tf, run):
    q = tf.PriorityQueue(10, [tf.string, tf.float32], shapes=[[], [1]], name="q")
    x = tf.placeholder(tf.int64)
    run(q.enqueue_many([[5, 1, 3], ["five", "one", "three"], [[5.0], [1.0], [3.0]]]))
    run(q.enqueue([2, "two", [2.0]]))
    run(q.dequeue())
    run(q.dequeue_many(2))
    run(q.enqueue([x, "four", [4.0]]), {x: -4})
    run(q.enqueue([x, "four", [4.0]]), {x: [4]})
    run(q.dequeue())
    run(q.size())
    run(q.close())
    run(q.dequeue())
    run(q.dequeue_many(2))
    run(q.dequeue())
    run.note([[t.name for t in q.dtypes], [str(s) for s in q.shapes]])
    run.attempt(lambda: tf.PriorityQueue(10, tf.int32))


@sequence
def chosen_from_list(tf, run):
    a = tf.FIFOQueue(3, tf.int32, shapes=[()], name="a")
    b = tf.FIFOQueue(3, tf.int32, shapes=[()], name="b")
    which = tf.placeholder(tf.int32)
    q = tf.QueueBase.from_list(which, [a, b])
    run(a.enqueue([1]))
    run(b.enqueue([2]))
    run(q.dequeue(), {which: 1})
    run(q.size(), {which: 0})
    run(q.size(), {which: 1})
    run.note([[t.name for t in q.dtypes], [str(s) for s in q.shapes]])
    run.attempt(lambda: tf.QueueBase.from_list(0, [a, tf.FIFOQueue(3, tf.float32)]))
    run.attempt(lambda: tf.QueueBase.from_list(0, []))
    run.attempt(lambda: tf.QueueBase.from_list(0, [a, 3]))


@sequence
def raw_mistakes(tf, run):
    q = tf.FIFOQueue(3, [tf.int32], shapes=[()], name="q")
    run(tf.raw_ops.QueueDequeueV2(handle=q.queue_ref, component_types=[tf.float32]))
    run(tf.raw_ops.QueueEnqueueV2(handle=q.queue_ref, components=[1.0]))
    run(tf.raw_ops.QueueEnqueueV2(handle=q.queue_ref, components=[1, 2]))
    run(tf.raw_ops.QueueEnqueueV2(handle=q.queue_ref, components=[1], timeout_ms=5))
    run(tf.raw_ops.QueueDequeueV2(handle=q.queue_ref, component_types=[tf.int32], timeout_ms=5))


@sequence
def references(tf, run):
    handles = [
        tf.raw_ops.FIFOQueue(component_types=[tf.int32], shapes=[[]], capacity=2),
        tf.raw_ops.PaddingFIFOQueue(component_types=[tf.int32], shapes=[[]], capacity=2),
        tf.raw_ops.RandomShuffleQueue(component_types=[tf.int32], shapes=[[]], capacity=2, seed=1),
    ]
    for handle in handles:
        run(tf.raw_ops.QueueEnqueue(handle=handle, components=[1]))
        run(tf.raw_ops.QueueEnqueueMany(handle=handle, components=[[2]]))
        run(tf.raw_ops.QueueSize(handle=handle))
        run(tf.raw_ops.QueueDequeue(handle=handle, component_types=[tf.int32]))
        run(tf.raw_ops.QueueClose(handle=handle))
        run(tf.raw_ops.QueueDequeueUpTo(handle=handle, n=2, component_types=[tf.int32]))
        run(tf.raw_ops.QueueDequeueMany(handle=handle, n=1, component_types=[tf.int32]))
