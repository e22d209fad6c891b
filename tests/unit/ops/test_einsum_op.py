"""The op Einsum on equations and sizes that its samples don't have."""

import numpy as np
import pytest

import headrace as tf


@pytest.fixture(autouse=True)
def own_graph():
    with tf.Graph().as_default():
        yield


@pytest.mark.parametrize(
    ("equation", "shapes", "found"),
    [
        ("i->ii", [(3,)], [1, 0, 0, 0, 2]),
        ("ij,jk->iik", [(2, 3), (3, 4)], [38, 44, 50, 56, 0]),
        ("i1->i", [(2, 3)], [6, 15]),
        (",->", [(), ()], [1]),
        ("...i,...i->...", [(4, 1, 3), (5, 3)], [14, 32, 50, 68, 86]),
        ("ab...,b...->a...", [(2, 3, 4), (3, 4)], [107, 140, 179, 224, 287]),
    ],
)
@pytest.mark.parametrize("known", [True, False])
def test_values(equation, shapes, found, known):
    inputs = [tf.placeholder(tf.float32, shape if known else None) for shape in shapes]
    y = tf.raw_ops.Einsum(inputs=inputs, equation=equation)
    values = [np.arange(1, 1 + int(np.prod(s))).reshape(s) for s in shapes]
    with tf.Session() as session:
        result = session.run(y, dict(zip(inputs, values, strict=True)))
    assert np.ravel(result)[:5].tolist() == found
    assert y.shape.is_compatible_with(np.shape(result))


@pytest.mark.parametrize(
    ("equation", "shapes", "message"),
    [
        ("ij,jk", [(2, 3), (3, 4)], "exactly one '->'"),
        ("ab,bc,cd->ad", [(2, 2)] * 3, "1 or 2 input subscripts"),
        ("...->", [(2, 3)], "at most rank 0 but is rank 2"),
        ("ij,jk->ik", [(2, 3), (1, 4)], "Dimensions must be equal, but are 3 and 1"),
        ("ij->k", [(2, 3)], "label 'k' which is not present"),
        (" ij , jk -> ik ", [(2, 3), (3, 4)], "must be rank 4 but is rank 2"),
        ("i...j...->ij", [(2, 3)], "at most one ellipsis"),
        ("ij->ij", [(2, 3), (2, 3)], "Expected 1 inputs"),
    ],
)
def test_equations_that_do_not_fit(equation, shapes, message):
    with pytest.raises(ValueError, match=message):
        tf.raw_ops.Einsum(inputs=[tf.ones(s) for s in shapes], equation=equation)


def test_sizes_that_only_a_step_knows():
    x, y = tf.placeholder(tf.float32), tf.placeholder(tf.float32)
    product = tf.raw_ops.Einsum(inputs=[x, y], equation="ij,jk->ik")
    with tf.Session() as session:
        for shape in ((1, 4), (4, 4), (3,)):
            with pytest.raises(tf.errors.InvalidArgumentError, match="Expected"):
                session.run(product, {x: np.ones((2, 3)), y: np.ones(shape)})
        gradient = tf.gradients(product, [x, y])
        found = session.run(gradient, {x: np.ones((2, 3)), y: np.ones((3, 4))})
    assert [g.tolist() for g in found] == [[[4.0] * 3] * 2, [[2.0] * 4] * 3]
