"""tf.py_function: values and gradients of Python on tensors that have values.

The graphs differ: Headrace's operation has one more output, the call, which its gradient takes.
TensorFlow 1.15.5 can't differentiate py_functions in loops, twice, or with integers among arguments
or results; what Headrace does there is in tests/unit/eager.
"""

import numpy as np

from tests.oracle.case import case


def python_case(function):
    return case(function, graph=False, imports=False)


@python_case
def arithmetic(tf):
    x, y = tf.constant([[1.0, 2.0], [3.0, -4.0]]), tf.constant([0.5, 2.0])
    z = tf.py_function(lambda a, b: tf.sin(a) * b + a @ tf.transpose(a) - b**2, [x, y], tf.float32)
    return z, tf.gradients(tf.reduce_sum(z * z), [x, y])


@python_case
def branches_on_values(tf):
    def huber(error, delta):
        if abs(error) <= delta:
            return error**2 / 2
        return delta * (abs(error) - delta / 2)

    found = []
    for value in (0.3, -0.9, 2.5, -7.0):
        x = tf.constant(value)
        y = tf.py_function(huber, [x, 1.0], tf.float32)
        found.append((y, tf.gradients(y, x)))
    return found


@python_case
def loops_on_values(tf):
    def power(x, n):
        result = tf.ones_like(x)
        for _ in range(int(n)):
            result *= x
        while float(tf.reduce_max(abs(result))) > 10.0:
            result /= 2.0
        return result

    x = tf.constant([1.5, -2.0, 0.1])
    y = tf.py_function(power, [x, 5.0], tf.float32)
    return y, tf.gradients(y, x, grad_ys=[tf.constant([1.0, 2.0, 3.0])])


@python_case
def several_results(tf):
    def parts(x, w):
        return [tf.reduce_sum(x * w), tf.argmax(x), tf.reduce_max(x), f"of {len(x)}"]

    x, w = tf.constant([1.0, 5.0, 3.0]), tf.constant([2.0, 0.0, -1.0])
    types = [tf.float32, tf.int64, tf.float32, tf.string]
    total, most = tf.py_function(lambda a, b: parts(a, b)[::2], [x, w], [tf.float32, tf.float32])
    gradients = tf.gradients([total * 3.0, most], [x, w])
    return tf.py_function(parts, [x, w], types), gradients


@python_case
def indices_rows_and_lengths(tf):
    def steps(x):
        total = 0.0
        for i, row in enumerate(x):
            total += row[i % len(row)] * x.numpy()[0, 0]
        return total + x[-1, ...][::2][0] + x.shape[1].value

    x = tf.constant(np.arange(12.0, dtype=np.float32).reshape(4, 3) + 1.0)
    y = tf.py_function(steps, [x], tf.float32)
    return y, tf.gradients(y, x)


@python_case
def what_can_become_results(tf):
    def results():
        return 3, np.float64(2.5), [[1, 2], [3, 4]], True, np.array([1.5, 2.5]), (1.0, 2.0), "text"

    types = [tf.float32, tf.float32, tf.int64, tf.bool, tf.float32, tf.float64, tf.string]
    return tf.py_function(results, [], types)


@python_case
def structured_control_flow(tf):
    def inner(x):
        y = tf.cond(tf.reduce_sum(x) > 0.0, lambda: x * 2.0, lambda: -x)
        _, y = tf.while_loop(lambda i, v: i < 3, lambda i, v: (i + 1, v * x), (0, y))
        y += tf.map_fn(lambda row: row * row, x)
        y += tf.scan(lambda a, row: a + row, x)
        y *= tf.foldl(lambda a, row: a * row, x)
        return tf.case([(y[0] > 0.0, lambda: y), (y[0] < 0.0, lambda: -y)], default=lambda: y + 1.0)

    x = tf.constant([1.5, -0.5, 2.0])
    y = tf.py_function(inner, [x], tf.float32)
    return y, tf.gradients(y, x)


@python_case
def nested_calls(tf):
    def outer(x, y):
        inner, count = tf.py_function(lambda a: (a * a * y, len(a)), [x], [tf.float32, tf.int32])
        return tf.reduce_sum(inner) * tf.cast(count, tf.float32) * y

    x, y = tf.constant([1.0, 2.0, 3.0]), tf.constant(2.0)
    z = tf.py_function(outer, [x, y], tf.float32)
    return z, tf.gradients(z, x)


@python_case
def in_a_branch(tf):
    found = []
    for value in (3.0, 1.0):
        x = tf.constant(value)
        y = tf.cond(
            x > 2.0,
            lambda x=x: tf.reshape(tf.py_function(lambda v: v**3, [x], tf.float32), []),
            lambda x=x: x * 5.0,
        )
        found.append((y, tf.gradients(y, x)))
    return found


@python_case
def values_of_loops(tf):
    def body(i, x):
        return i + 1, tf.reshape(
            tf.py_function(lambda v, k: v * 2 + float(k), [x, i], tf.float32), [2]
        )

    rows = tf.constant([[1.0, 2.0], [3.0, 4.0]])
    doubled = tf.map_fn(
        lambda r: tf.reshape(tf.py_function(lambda v: v * 2, [r], tf.float32), [2]), rows
    )
    return tf.while_loop(lambda i, x: i < 5, body, (0, tf.constant([1.0, -1.0]))), doubled


@python_case
def between_other_operations(tf):
    w = tf.Variable([[0.5, -0.5], [1.0, 2.0]], name="w")
    h = tf.matmul([[1.0, 2.0]], w)
    h = tf.py_function(lambda v: tf.nn.relu(v) + tf.gather(v, [0, 0]), [h], tf.float32)
    loss = tf.reduce_sum(tf.square(h))
    return loss, tf.gradients(loss, w)


@python_case
def gradients_of_its_own(tf):
    @tf.custom_gradient
    def clipped(x):
        return x * x, lambda dy: tf.clip_by_value(dy * 2.0 * x, -1.0, 1.0)

    x = tf.constant([0.25, 4.0])
    y = tf.py_function(lambda v: clipped(v) * 1.0, [x], tf.float32)
    return y, tf.gradients(y, x)


@python_case
def variables_of_a_call(tf):
    def count(x):
        total = tf.Variable(1.0)
        for row in x:
            total.assign_add(row * 2.0)
        total.assign(total * 10.0)
        return total.read_value(), total + x[0]

    return tf.py_function(count, [tf.constant([1.0, 2.0])], [tf.float32, tf.float32])


@python_case
def seeded_numbers(tf):
    def draw():
        tf.set_random_seed(5)
        numbers = [tf.random_uniform([2]), tf.random_normal([2]), tf.random_uniform([2], seed=3)]
        return tf.stack([*numbers, tf.random_uniform([2], seed=3)])

    return tf.py_function(draw, [], tf.float32)


@python_case
def all_types(tf):
    values = [
        True,
        3,
        np.int64(-4),
        2.5,
        np.float64(1.5),
        np.complex64(1 + 2j),
        b"bytes",
        np.uint8(7),
    ]
    tensors = [tf.constant(v) for v in values]

    def look(*args):
        assert [a.dtype for a in args] == [t.dtype for t in tensors]
        assert [a.numpy() for a in args] == values
        return args

    return tf.py_function(look, tensors, [t.dtype for t in tensors])


@python_case
def scalars_of_arrays(tf):
    kinds = [tf.float32, tf.int64, tf.uint8, tf.float16, tf.complex64]
    numbers = [tf.constant(1, kind) for kind in kinds]
    name = tf.strings.join(["data/", "a.npy"])
    return (
        tf.py_func(lambda *values: [type(v).__name__ for v in values], numbers, ["string"] * 5),
        tf.py_func(lambda path: path.decode("utf-8") + ".old", [name], tf.string),
        tf.py_func(lambda path: type(path).__name__, [name], tf.string, stateful=False),
    )
