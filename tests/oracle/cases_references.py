"""Reference variables in control flow: the nodes that pass references on, and those that read."""

from tests.oracle.case import case


def variables(tf):
    return (
        tf.Variable(1.0, name="v", use_resource=False),
        tf.Variable(True, name="b", use_resource=False),
    )


def reference(v):
    return v.op.outputs[0]


@case
def cond_of_assignments(tf):
    v, b = variables(tf)
    return tf.cond(tf.logical_not(b), lambda: tf.assign(v, 2.0), lambda: tf.assign_add(v, 3.0))


@case
def cond_of_an_assignment_and_a_variable(tf):
    v, b = variables(tf)
    return tf.cond(tf.logical_not(b), lambda: tf.assign(v, 2.0), lambda: v)


@case
def cond_on_a_variable(tf):
    v, b = variables(tf)
    return tf.cond(b, lambda: v + 1.0, lambda: v)


@case
def cond_on_a_reference(tf):
    v, b = variables(tf)
    return tf.cond(reference(b), lambda: v + 1.0, lambda: v)


@case
def cond_on_an_assignment(tf):
    v, b = variables(tf)
    return tf.cond(tf.assign(b, False), lambda: v + 1.0, lambda: v)


@case
def cond_of_references(tf):
    v, b = variables(tf)
    return tf.cond(b, lambda: reference(v), lambda: reference(v))


@case
def cond_inside_a_cond(tf):
    v, b = variables(tf)
    inner = lambda: tf.cond(b, lambda: tf.assign(v, 1.0), lambda: tf.assign(v, 3.0))  # noqa: E731
    return tf.cond(b, inner, lambda: tf.assign(v, 2.0))


@case
def cond_after_an_assignment(tf):
    v, b = variables(tf)
    with tf.control_dependencies([tf.assign(b, False)]):
        return tf.cond(b, lambda: v + 1.0, lambda: v - 1.0)


@case
def loop_of_a_reference(tf):
    v, _ = variables(tf)
    return tf.while_loop(
        lambda i, x: i < 3, lambda i, x: (i + 1, tf.assign_add(x, 1.0)), [0, reference(v)]
    )


def counting(tf, b):
    def body(i):
        with tf.control_dependencies([tf.assign(b, i < 2)]):
            return i + 1

    return body


@case
def loop_on_a_variable(tf):
    _, b = variables(tf)
    return tf.while_loop(lambda i: b, counting(tf, b), [0])


@case
def loop_on_a_reference(tf):
    _, b = variables(tf)
    return tf.while_loop(lambda i: reference(b), counting(tf, b), [0])


@case
def loop_after_an_assignment(tf):
    v, _ = variables(tf)
    with tf.control_dependencies([tf.assign(v, 2.0)]):
        return tf.while_loop(lambda i: i < v * 5.0, lambda i: i + v, [v])


@case
def loop_inside_a_cond(tf):
    v, b = variables(tf)
    return tf.cond(b, lambda: tf.while_loop(lambda i: i < 3.0, lambda i: i + v, [v]), lambda: v)


@case
def tuple_of_a_reference(tf):
    v, _ = variables(tf)
    return tf.tuple([reference(v), v, v * 2.0])


@case
def chosen_references(tf):
    v, w = tf.Variable([1.0, 2.0], name="v"), tf.Variable([3.0, 4.0], name="w")
    chosen = tf.raw_ops.RefSelect(index=1, inputs=[reference(v), reference(w)])
    same = tf.raw_ops.RefIdentity(input=chosen)
    return chosen, tf.assign_add(same, [1.0, 1.0])
