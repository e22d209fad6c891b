"""Gradients of tricky graphs: the same values as TensorFlow's, and None in the same places."""

from tests.oracle.case import case


def known(tf, gradients):
    """The gradients, with a constant that tells None from a tensor and from slices."""
    kinds = [0 if g is None else 2 if isinstance(g, tf.IndexedSlices) else 1 for g in gradients]
    return tf.constant(kinds), [g for g in gradients if g is not None]


@case(graph=False)
def stops(tf):
    a = tf.constant(2.0)
    b = a * 3.0
    c = b * a
    found = tf.gradients(c, [a, b], stop_gradients=[b])
    found += tf.gradients(c, [a, b], stop_gradients=[a, b])
    found += tf.gradients(c, a, stop_gradients=a)
    found += tf.gradients(c, [a], stop_gradients=[])
    found += tf.gradients(tf.stop_gradient(a) * a, a)
    found += tf.gradients(tf.stop_gradient(a), a)
    return known(tf, found)


@case(graph=False)
def unused_outputs(tf):
    x = tf.constant([[1.0, 2.0], [3.0, 4.0]])
    left, _ = tf.split(x, 2, 1)
    rows = tf.unstack(x)
    values, indices = tf.nn.top_k(x, 1)
    found = tf.gradients(left, x) + tf.gradients(rows[1] * rows[1], x)
    found += tf.gradients(values * values, x) + tf.gradients(indices, x)
    return known(tf, found)


@case(graph=False)
def slices_and_dense(tf):
    p = tf.Variable([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    q = tf.gather(p, [0, 0, 2])
    r = tf.gather(p, tf.constant([1], tf.int64))
    d = tf.reduce_sum(p * p)
    found = tf.gradients(q, p) + tf.gradients([q, r], p)
    found += tf.gradients([q, d], p) + tf.gradients([q * q], [p])
    return known(tf, found)


@case(graph=False)
def slices_of_resource_variables(tf):
    p = tf.Variable([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], use_resource=True)
    q = tf.gather(p, [0, 0, 2])
    d = tf.reduce_sum(p * p)
    found = tf.gradients(q, p) + tf.gradients([q, q * 2.0], p)
    found += tf.gradients([q, d], p) + tf.gradients(d, p)
    return known(tf, found)


@case(graph=False)
def starts(tf):
    a = tf.constant([1.0, 2.0])
    b, c = a * a, a * 3.0
    found = tf.gradients([b, c], a, grad_ys=[None, tf.constant([5.0, 7.0])])
    found += tf.gradients([b, c], a, grad_ys=[[2.0, 3.0], None])
    rows = tf.IndexedSlices(tf.constant([[5.0]]), tf.constant([1]), tf.constant([2, 1]))
    m = tf.constant([[1.0], [2.0]])
    found += tf.gradients(tf.identity(m), m, grad_ys=[rows])
    return known(tf, found)


@case(graph=False)
def variables_of_both_kinds(tf):
    v = tf.Variable([1.0, 2.0])
    r = tf.Variable([3.0, 4.0], use_resource=True)
    y = v * r + tf.identity(v) * v
    return known(tf, tf.gradients(y, [v, r]) + tf.gradients(y, [v.value()]))


@case(graph=False)
def repeated_and_unconnected(tf):
    a, b = tf.constant(2.0), tf.constant([3.0, 4.0])
    found = tf.gradients(a * a, [a, a]) + tf.gradients(a * a, [a, b])
    found += tf.gradients(a, [b], unconnected_gradients=tf.UnconnectedGradients.ZERO)
    found += tf.gradients(a, a) + tf.gradients([a * 3.0, a], [a])
    c = a * 3.0
    found += tf.gradients([c * c, c], [c, a])
    return known(tf, found)


@case(graph=False)
def integers_and_casts(tf):
    i, a = tf.constant(2), tf.constant(2.5)
    found = tf.gradients(i * i, i) + tf.gradients(i, i)
    found += tf.gradients(tf.cast(tf.cast(a, tf.int32), tf.float32) * a, a)
    found += tf.gradients(tf.cast(tf.cast(a, tf.float64), tf.float32) * a, a)
    found += tf.gradients(tf.cast(a, tf.int32), a)
    return known(tf, found)


@case(graph=False)
def ways_of_adding_up(tf):
    a = tf.constant([2.0])
    y = a * a + a * 3.0 + a
    found = []
    for method in (None, 0, 1, 2):
        found += tf.gradients(y, a, aggregation_method=method)
    found += tf.gradients(y, a, gate_gradients=True)
    found += tf.gradients(y, a, colocate_gradients_with_ops=True)
    return known(tf, found)


@case(graph=False)
def complex_numbers(tf):
    a = tf.constant(1 + 2j)
    start = tf.constant(0.5 - 1j, tf.complex128)
    found = tf.gradients(tf.real(a * a), a) + tf.gradients(tf.abs(a), a)
    return known(tf, found + tf.gradients(a * a, a, grad_ys=[start]))


@case(graph=False)
def custom(tf):
    @tf.custom_gradient
    def f(x, y):
        return x * y, lambda dz: (dz * 10.0, dz * y)

    @tf.custom_gradient
    def g(x):
        return [x * 2.0, x * 3.0], lambda d1, d2: d1 * 10.0 + d2

    @tf.custom_gradient
    def h(x, y):
        return x * y, lambda dz: (None, dz)

    a, b = tf.constant(2.0), tf.constant(3.0)
    z = f(a, b)
    found = tf.gradients(z * z, [a, b]) + tf.gradients(tf.gradients(z, b)[0], b)
    w = g(a)
    found += tf.gradients(w, a) + tf.gradients(w[1], a) + tf.gradients(h(a, b), [a, b])
    return known(tf, found)


@case(graph=False)
def custom_with_variables(tf):
    @tf.custom_gradient
    def f(x):
        v = tf.get_variable("v", initializer=tf.constant(4.0))
        return x * v, lambda d, variables=None: (d * v, [d * 100.0])

    a = tf.constant(2.0)
    with tf.variable_scope("s", use_resource=True):
        y = f(a)
    return known(tf, tf.gradients(y, [a, tf.trainable_variables()[0]]))


@case(graph=False)  # the name of the gradient function is unique to a process
def seeds_after_custom(tf):
    @tf.custom_gradient
    def f(x, y):
        v = tf.get_variable("v", initializer=tf.constant(4.0), use_resource=True)
        return [x * v, y], lambda d, e, variables=None: ([d, e], [d])

    tf.set_random_seed(1)
    return f(tf.constant(2.0), 3.0), tf.random_uniform([])


@case(graph=False)
def higher_orders_and_broadcasts(tf):
    a = tf.constant([1.0, 2.0])
    y = tf.exp(tf.sin(a) * a)
    first = tf.gradients(y, a)[0]
    found = tf.gradients(first, a) + tf.gradients(tf.gradients(first, a), a)
    x = tf.placeholder_with_default([[1.0, 2.0]], [None, 2])
    w, q, m = tf.constant([3.0, 4.0]), tf.constant(2.0), tf.constant([[1.0], [2.0]])
    found += tf.gradients(x * w * q, [x, w, q]) + tf.gradients(tf.matmul(x, m), [x, m])
    return known(tf, found)
