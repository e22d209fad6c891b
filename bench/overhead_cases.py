"""What a Session.run costs beside its kernels. Valid Python 3.7."""


def _scale(tf, np):
    if tf is None:
        x = np.float32([1, 2, 3])
        return lambda: x * np.float32(2) + np.float32(1)
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [None])
        y = x * 2 + 1
        session = tf.Session()
    value = np.float32([1, 2, 3])
    return lambda: session.run(y, {x: value})


def _callable(tf, np):
    if tf is None:
        return None
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [None])
        y = x * 2 + 1
        session = tf.Session()
        run = session.make_callable(y, [x])
    value = np.float32([1, 2, 3])
    return lambda: run(value)


def _no_op(tf, np):
    if tf is None:
        return None
    with tf.Graph().as_default():
        op = tf.no_op()
        session = tf.Session()
    return lambda: session.run(op)


def _hundred(tf, np):
    if tf is None:
        return None
    with tf.Graph().as_default():
        x = y = tf.placeholder(tf.float32, [])
        for _ in range(100):
            y = tf.tanh(y)
        session = tf.Session()
    value = np.float32(0.5)
    return lambda: session.run(y, {x: value})


def _nested(tf, np):
    if tf is None:
        return None
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [None])
        fetches = {"a": x + 1, "b": [x * 2, (x - 1, tf.no_op())]}
        session = tf.Session()
    value = np.float32([1, 2, 3])
    return lambda: session.run(fetches, {x: value})


CASES = {
    "run_x*2+1": _scale,
    "callable_x*2+1": _callable,
    "run_no_op": _no_op,
    "run_100_tanh": _hundred,
    "run_nested_fetches": _nested,
}
