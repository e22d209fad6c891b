"""Resource variables: reads in a given order, sparse rows, scatters, slices, initialized values."""

import numpy as np


def run(tf):
    tf.set_random_seed(43)
    rng = np.random.RandomState(15)
    with tf.variable_scope("resources", use_resource=True):
        table = tf.get_variable("table", [10, 4], initializer=tf.truncated_normal_initializer())
        w = tf.get_variable("w", [4, 3], initializer=tf.initializers.lecun_normal(seed=3))
        average = tf.get_variable(
            "average", initializer=lambda: tf.zeros([4, 3]) + 0.5, trainable=False
        )
        counts = tf.get_variable(
            "counts", [10], tf.int32, initializer=tf.zeros_initializer(), trainable=False
        )
    twin = tf.Variable(w.initialized_value() * 2.0, use_resource=True, name="twin")

    ids = tf.placeholder(tf.int64, [None, 2])
    targets = tf.placeholder(tf.int32, [None])
    rows = tf.nn.embedding_lookup(table, ids)
    logits = tf.matmul(tf.reduce_prod(rows, axis=1), w + 0.1 * twin)
    loss = tf.reduce_mean(
        tf.nn.sparse_softmax_cross_entropy_with_logits(labels=targets, logits=logits)
    )
    d_table, d_w, d_twin = tf.tuple(tf.gradients(loss, [table, w, twin]))
    assert isinstance(d_table, tf.IndexedSlices)

    before = w.read_value()
    with tf.control_dependencies([before]):
        update = w.assign_sub(0.3 * d_w)
        with tf.control_dependencies([update]):
            after = w.read_value()
    with tf.control_dependencies([after]):
        averaging = average.assign(0.9 * average + 0.1 * after)
    train = [
        table.scatter_sub(tf.IndexedSlices(0.5 * d_table.values, d_table.indices)),
        twin.assign_add(-0.1 * d_twin),
        averaging,
        tf.scatter_add(counts, ids[:, 0], tf.ones_like(ids[:, 0], tf.int32)),
    ]
    moved = tf.norm(after - before)
    fetches = [tf.reduce_sum(average), tf.reduce_max(counts), table[3, :2][1]]

    config = tf.ConfigProto(device_count={"CPU": 1}, allow_soft_placement=True)
    with tf.Session(config=config) as session:
        session.run(tf.global_variables_initializer())
        assert session.run(tf.report_uninitialized_variables()).size == 0
        for _ in range(15):
            feeds = {ids: rng.randint(10, size=(12, 2)), targets: rng.randint(3, size=12)}
            values = session.run([loss, moved, train], feeds)[:2]
            yield values + session.run(fetches)
        w.load(np.ones([4, 3], np.float32), session)
        yield [session.run(tf.reduce_sum(w)), twin.eval(session)[0, 0]]
