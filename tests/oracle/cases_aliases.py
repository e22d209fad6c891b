"""Uses of the copy of a reference variable after a write: in TensorFlow the copy shares the
variable's memory, and graphs with constraints or moving averages rely on that.
"""

from tests.oracle.case import case

WRITES = {
    "assign": lambda tf, v: tf.assign(v, [5.0, 6.0]),
    "assign_computed": lambda tf, v: tf.assign(v, tf.identity([5.0, 6.0]) * 2.0),
    "assign_add": lambda tf, v: tf.assign_add(v, [5.0, 6.0]),
    "scatter": lambda tf, v: tf.scatter_add(v, [1], [5.0]),
    "another_shape": lambda tf, v: tf.assign(v, [5.0, 6.0, 7.0], validate_shape=False),
}


@case
def copies_after_writes(tf):
    found = []
    for name in sorted(WRITES):
        v = tf.Variable([1.0, 2.0], name="v_" + name)
        copy = v.value()
        again = tf.identity(copy)
        product = copy * 1.0
        with tf.control_dependencies([copy, again, product]):
            write = WRITES[name](tf, v)
        with tf.control_dependencies([write]):
            found.append([tf.identity(copy), again * 2.0, product + 1.0, tf.reshape(copy, [2, 1])])
    return found


@case
def copies_between_writes(tf):
    v = tf.Variable([1.0, 2.0], name="v")
    copy = v.value()
    found = []
    last = copy
    for i in range(3):
        with tf.control_dependencies([last]):
            write = tf.assign_add(v, copy * float(i + 1))
        with tf.control_dependencies([write]):
            last = tf.multiply(copy, 10.0)
        found.append(last)
    return found


def trained(tf, optimizer, resource):
    """What variables are after three steps, one after the other in one graph."""
    x = tf.constant([[1.0, -2.0, 0.5], [0.3, 0.2, 0.1]])
    w = tf.Variable(
        [[1.0, -2.0], [0.5, 0.25], [-0.1, 0.7]],
        name="w",
        constraint=lambda t: tf.clip_by_norm(t, 1.0),
        use_resource=resource,
    )
    b = tf.Variable(
        [0.1, -0.1],
        name="b",
        constraint=lambda t: tf.clip_by_value(t, -0.2, 0.2),
        use_resource=resource,
    )
    step = tf.Variable(0, name="step", trainable=False, use_resource=False)
    average = tf.train.ExponentialMovingAverage(0.9, num_updates=step)
    unbiased = tf.train.ExponentialMovingAverage(0.8, zero_debias=True)
    last = tf.no_op()
    for i in range(3):
        with tf.control_dependencies([last]):
            loss = tf.reduce_sum(tf.square(tf.matmul(x, w) + b - 1.0))
            slopes = list(zip(tf.gradients(loss, [w, b]), [w, b]))
            train = optimizer.apply_gradients(slopes, global_step=step)
        with tf.control_dependencies([train]):
            last = tf.group(average.apply([w, b]), unbiased.apply([tf.identity(loss)]))
            average = average if i == 2 else tf.train.ExponentialMovingAverage(0.9, step)
            unbiased = unbiased if i == 2 else tf.train.ExponentialMovingAverage(0.8, True)
    with tf.control_dependencies([last]):
        return [v.read_value() for v in tf.global_variables()]


OPTIMIZERS = {
    "descent": lambda tf: tf.train.GradientDescentOptimizer(0.5),
    "momentum": lambda tf: tf.train.MomentumOptimizer(0.3, 0.9),
    "adam": lambda tf: tf.train.AdamOptimizer(0.2),
}


def training_case(name, resource):
    def build(tf):
        return trained(tf, OPTIMIZERS[name](tf), resource)

    build.__name__ = name + ("_of_resources" if resource else "_of_references")
    build.__module__ = __name__
    case(build, graph=False)  # gradients have other nodes


for _name in sorted(OPTIMIZERS):
    training_case(_name, False)
    training_case(_name, True)
