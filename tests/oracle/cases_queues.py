"""Queues: the graphs that their methods build."""

from tests.oracle.case import case


@case
def fifo_queue(tf):
    q = tf.FIFOQueue(10, [tf.float32, tf.int32], shapes=[[2], []], name="q")
    with tf.name_scope("in"), tf.control_dependencies([q.enqueue([[1.0, 2.0], 3])]):
        many = q.enqueue_many([[[1.0, 2.0], [5.0, 6.0]], [7, 8]])
    with tf.control_dependencies([many]):
        one = q.dequeue()
    with tf.control_dependencies(one):
        batch = q.dequeue_many(2, name="batch")
    with tf.control_dependencies(batch):
        return [one, batch, q.size(), q.is_closed()]


@case
def fifo_queue_with_names(tf):
    q = tf.FIFOQueue(10, [tf.float32, tf.int32], names=["x", "y"], shared_name="shared")
    with tf.control_dependencies([q.enqueue({"y": 1, "x": 2.0}, name="put")]):
        return q.dequeue(name="get")


@case
def queues_after_others(tf):
    before = tf.no_op()
    with tf.control_dependencies([before]), tf.name_scope("scope"):
        kinds = [
            tf.FIFOQueue(1, tf.int32),
            tf.PaddingFIFOQueue(1, tf.int32, [[]]),
            tf.RandomShuffleQueue(1, 0, tf.int32),
            tf.PriorityQueue(1, tf.int32, [[]]),
        ]
    return [q.size() for q in kinds]


@case
def random_shuffle_queue(tf):
    q = tf.RandomShuffleQueue(10, 0, tf.int32, shapes=[()], seed=3)
    with tf.control_dependencies([q.enqueue_many([[1, 2, 3, 4]])]), tf.device("/cpu:0"):
        return q.dequeue_many(4)


@case
def random_shuffle_queue_of_graph_seed(tf):
    tf.set_random_seed(3)
    q = tf.RandomShuffleQueue(10, 0, tf.int32, shapes=[()], shared_name="s")
    with tf.control_dependencies([q.enqueue_many([[1, 2, 3, 4]])]):
        return q.dequeue_many(4)


@case
def padding_fifo_queue(tf):
    q = tf.PaddingFIFOQueue(10, [tf.float32, tf.string], shapes=[[None, 2], [None]])
    puts = []
    for n in (1, 3):
        with tf.control_dependencies(puts):
            puts.append(q.enqueue([tf.ones([n, 2]), tf.fill([n], "a")]))
    with tf.control_dependencies(puts):
        return q.dequeue_many(2)


@case
def priority_queue(tf):
    q = tf.PriorityQueue(10, [tf.string], shapes=[[]])
    with tf.control_dependencies([q.enqueue_many([[3, 1, 2], ["c", "a", "b"]])]):
        many = q.dequeue_many(2)
    with tf.control_dependencies(many):
        return [many, q.dequeue()]


@case
def queue_from_list(tf):
    queues = [tf.FIFOQueue(4, tf.int32, shapes=[()], name=n) for n in ("q0", "q1")]
    with tf.control_dependencies([queues[1].enqueue(5)]):
        index = tf.identity(1)
    return tf.QueueBase.from_list(index, queues).dequeue()


@case
def close_and_drain(tf):
    q = tf.FIFOQueue(4, tf.int32, shapes=[()])
    with tf.control_dependencies([q.enqueue_many([[1, 2, 3]])]):
        close = q.close()
    with tf.control_dependencies([close]):
        rest = q.dequeue_up_to(9)
    with tf.control_dependencies([rest]):
        cancel = q.close(cancel_pending_enqueues=True)
    with tf.control_dependencies([cancel]):
        return [rest, q.is_closed()]
