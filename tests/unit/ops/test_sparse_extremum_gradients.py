"""The gradient of sparse_maximum and sparse_minimum goes to the operand that an element is from."""

import pytest

import headrace as tf

LEFT = tf.SparseTensorValue([[0], [1], [2]], [3.0, -1.0, 2.0], [4])
RIGHT = tf.SparseTensorValue([[0], [2], [3]], [1.0, 2.0, 5.0], [4])


@pytest.mark.parametrize(
    ("function", "for_left", "for_right"),
    [
        # Elements 0 to 3: 3 or 1, -1 or nothing (0), a tie, nothing or 5.
        (tf.sparse.maximum, [1, 0, 100], [0, 0, 1000]),
        (tf.sparse.minimum, [0, 10, 100], [1, 0, 0]),
    ],
)
def test_each_element_has_one_source(function, for_left, for_right):
    with tf.Graph().as_default(), tf.Session() as session:
        left, right = (tf.SparseTensor.from_value(v) for v in (LEFT, RIGHT))
        result = function(left, right)
        weights = tf.constant([1.0, 10.0, 100.0, 1000.0])
        grads = tf.gradients(result.values * weights, [left.values, right.values])
        found = [g.tolist() for g in session.run(grads)]
    assert found == [for_left, for_right]
