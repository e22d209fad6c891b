"""Scopes and devices: partitioned variables, templates, custom getters, control edges."""

import numpy as np


def doubling(getter, name, *args, **kwargs):
    """A custom getter that returns twice the variable "scale"."""
    value = getter(name, *args, **kwargs)
    return 2.0 * value if name.endswith("scale") else value


def tower(tf):
    def build(x, activation):
        w = tf.get_variable("w", [6, 6], initializer=tf.initializers.identity(gain=0.5))
        scale = tf.get_variable("scale", [6], initializer=tf.ones_initializer())
        tf.add_to_collection("activations", x)
        return activation(tf.matmul(x, w)) * scale

    return tf.make_template("tower", build, custom_getter_=doubling)


def run(tf):
    tf.set_random_seed(47)
    rng = np.random.RandomState(16)
    graph = tf.get_default_graph()
    counter = tf.Variable(0, trainable=False, name="counter")
    one = tf.constant(1)
    with tf.device("/cpu:0"), tf.name_scope("inputs"):
        x = tf.placeholder(tf.float32, [None, 8], name="x")
        noisy = tf.add(x, tf.random_normal(tf.shape(x), stddev=0.01), name="noisy")
    with tf.variable_scope("big", partitioner=tf.fixed_size_partitioner(3)) as scope:
        table = tf.get_variable("table", [8, 6], initializer=tf.random_uniform_initializer())
        assert [v.shape.as_list() for v in table] == [[3, 6], [3, 6], [2, 6]]
    with tf.variable_scope(scope, reuse=True), tf.name_scope("again"):
        assert tf.get_variable("table", [8, 6]) is not None
    rows = tf.nn.embedding_lookup(table, [0, 3, 5], partition_strategy="div")
    block = tower(tf)
    with tf.name_scope("deep"):
        y = block(tf.matmul(noisy, tf.convert_to_tensor(table)), tf.nn.softsign)
        with tf.device(lambda op: "/device:CPU:0" if op.type == "MatMul" else ""):
            y = block(y, activation=tf.identity)
    assert y.op.name.startswith("deep/tower_1/") and y.device == ""
    with tf.name_scope(None), graph.colocate_with(y.op):
        loss = tf.reduce_mean(tf.square(y - 1.0), name="loss") + 0.1 * tf.reduce_sum(rows**2)
    assert graph.get_tensor_by_name("loss:0").op.colocation_groups()

    variables = tf.trainable_variables()
    gradients = tf.gradients(loss, variables, name="back")
    with tf.control_dependencies([g for g in gradients if g is not None]):
        for v, g in zip(variables, gradients):
            tf.add_to_collections(["steps", tf.GraphKeys.UPDATE_OPS], tf.assign_sub(v, 0.1 * g))
    with tf.control_dependencies(tf.get_collection("steps", scope="AssignSub")):
        with tf.control_dependencies(None):
            free = tf.identity(counter, name="free")
        train = tf.assign_add(counter, one, name="train")
    assert not free.op.control_inputs and len(train.op.control_inputs) == len(variables)

    names = [tf.reduce_sum(a) for a in tf.get_collection("activations")]
    with tf.Session(graph=graph) as session:
        session.run(tf.global_variables_initializer())
        for _ in range(12):
            feeds = {"inputs/x:0": rng.randn(10, 8)}
            yield session.run([loss, names[0], names[1], "train:0"], feeds)
