"""Which gradients are IndexedSlices and which are tensors, as in TensorFlow 1.15.5."""

import numpy as np
import pytest

import headrace as tf

ROWS, DENSE = "IndexedSlices", "Tensor"


def gather(x):
    return tf.gather(x, [0, 2])


CASES = {
    "gather": (gather, ROWS),
    "identity": (lambda v: gather(tf.identity(v)), ROWS),
    "read": (lambda v: gather(v.read_value()), ROWS),
    "negative": (lambda v: gather(tf.negative(-v)), ROWS),
    "default": (lambda v: gather(tf.placeholder_with_default(v, [4, 2])), ROWS),
    "concatenated rows": (lambda v: tf.gather(tf.concat([v, v], 0), [0, 6]), ROWS),
    "concatenated columns": (lambda v: gather(tf.concat([v, 0 * tf.ones([4, 3])], -1)), ROWS),
    "nd": (lambda v: tf.gather_nd(v, [[0], [2]]), ROWS),
    "add": (lambda v: gather(v + 0.0), DENSE),
    "double": (lambda v: gather(v + v) / 2, DENSE),
    "subtract": (lambda v: gather(v - tf.zeros([2])), DENSE),
    "multiply": (lambda v: gather(v * 1.0), DENSE),
    "reshape": (lambda v: gather(tf.reshape(v, [4, 2])), DENSE),
    "cast": (lambda v: gather(tf.cast(v, tf.float64)), ROWS),
    "nd of elements": (lambda v: tf.gather_nd(v, [[0, 0], [0, 1], [2, 0], [2, 1]]), DENSE),
}


@pytest.mark.parametrize("resource", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_gradient_of_a_gather_through(name, resource):
    build, kind = CASES[name]
    with tf.Graph().as_default(), tf.Session() as session:
        v = tf.get_variable("v", initializer=np.ones((4, 2), "f"), use_resource=resource)
        (gradient,) = tf.gradients(build(v), v)
        assert type(gradient).__name__ == kind
        session.run(tf.global_variables_initializer())
        found = session.run(tf.convert_to_tensor(gradient))
    np.testing.assert_array_equal(found, [[1, 1], [0, 0], [1, 1], [0, 0]])


def test_rows_of_a_concatenation_go_to_the_inputs_that_have_them():
    with tf.Graph().as_default(), tf.Session() as session:
        x, y = tf.ones([2, 1]), tf.ones([3, 1])
        dx, dy = tf.gradients(tf.gather(tf.concat([x, y], 0), [0, 4, 4, 2]), [x, y])
        (x_rows, y_rows) = session.run([dx.indices, dy.indices])
        assert (x_rows.tolist(), y_rows.tolist()) == ([0], [2, 2, 0])
        axis = tf.placeholder_with_default(0, [])
        with pytest.raises(ValueError, match="statically-known concat_dim"):
            tf.gradients(tf.gather(tf.concat([x, y], axis), [0]), x)
