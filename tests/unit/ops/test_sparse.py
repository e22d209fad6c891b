"""Sparse tensors: errors, and what the oracle's cases can't show."""

import numpy as np
import pytest

import headrace as tf
from headrace.ops.define import build
from headrace.ops.sparse_kernels import joint_keys, keys

INVALID = tf.errors.InvalidArgumentError


def run(fetches):
    with tf.Session() as session:
        return session.run(fetches)


def sparse(indices=((0, 0), (1, 2)), values=(1.0, 2.0), shape=(2, 3)):
    return tf.SparseTensor([list(i) for i in indices], list(values), list(shape))


@pytest.mark.parametrize(
    ("build_one", "message"),
    [
        (lambda: tf.sparse_tensor_to_dense(sparse([(1, 0), (0, 0)])), "out of order"),
        (lambda: tf.sparse_tensor_to_dense(sparse([(0, 1), (0, 1)])), "is repeated"),
        (lambda: tf.sparse_tensor_to_dense(sparse([(0, 1), (2, 1)])), r"need 0 <= index < \[2,3\]"),
        (lambda: tf.sparse_tensor_dense_matmul(sparse([(0, 0), (0, 5)]), tf.ones([3, 1])), "k .5."),
        (lambda: tf.sparse_add(sparse(), tf.ones([2, 4])), "no broadcasting"),
        (lambda: sparse() * tf.ones([2]), "broadcasts dense to sparse only"),
        (lambda: tf.sparse_split(sp_input=sparse(), num_split=4, axis=1), "num_split"),
        (lambda: tf.sparse_concat(0, [sparse(), sparse(shape=(2, 4))]), "shapes must match"),
        (lambda: tf.sparse_reorder(sparse([(0, 0), (9, 0)])), "out of bounds"),
        (lambda: tf.deserialize_many_sparse([["x", "y", "z"]], tf.float32), "serialized_sparse"),
    ],
)
def test_bad_elements_fail_when_run(build_one, message):
    with pytest.raises(INVALID, match=message):
        run(build_one())


@pytest.mark.parametrize(
    ("build_one", "error"),
    [
        (lambda: tf.sparse_reshape(sparse(), [4, 2]), ValueError),
        (lambda: tf.sparse_reset_shape(sparse(), [1, 3]), ValueError),
        (lambda: tf.sparse_add(sparse(), sparse(shape=(2, 4))), ValueError),
        (lambda: tf.sparse_add(tf.ones([2]), tf.ones([2])), TypeError),
        (lambda: tf.sparse_reorder(tf.ones([2])), TypeError),
        (lambda: tf.sparse_split(sparse(), 2, 1), ValueError),
        (lambda: tf.SparseTensor([[0, 0]], [1.0, 2.0], [2, 3]), ValueError),
        (lambda: tf.sets.size(tf.constant([[1]])), TypeError),
        (lambda: tf.sets.union([[1]], [["a"]]), TypeError),
        (lambda: tf.edit_distance(tf.ones([2]), sparse()), TypeError),
    ],
)
def test_bad_calls_fail_while_building(build_one, error):
    with pytest.raises(error):
        build_one()


def test_new_shape_is_checked_when_run():
    shape = tf.placeholder_with_default(tf.constant([2, 3], tf.int64), [None])
    unknown = tf.SparseTensor(sparse().indices, sparse().values, shape)
    assert run(tf.sparse_reset_shape(unknown, [4, 3])).dense_shape.tolist() == [4, 3]
    with pytest.raises(INVALID, match="x <= y"):
        run(tf.sparse_reset_shape(unknown, [1, 3]))


def test_variants_hold_the_parts():
    packed = tf.io.serialize_many_sparse(sparse(), out_type=tf.variant)
    parts = run(build("DeserializeSparse", serialized_sparse=packed, dtype=tf.float32))
    assert [p.tolist() for p in parts] == [[[0, 0], [1, 2]], [1.0, 2.0], [2, 3]]


def test_strings_of_a_matrix_split_into_a_third_dimension():
    pieces = run(tf.strings.split([["a b", "c"], ["", "d e f"]]))
    assert pieces.dense_shape.tolist() == [2, 2, 3]
    assert pieces.indices.tolist() == [
        [0, 0, 0],
        [0, 0, 1],
        [0, 1, 0],
        [1, 1, 0],
        [1, 1, 1],
        [1, 1, 2],
    ]
    assert pieces.values.tolist() == [b"a", b"b", b"c", b"d", b"e", b"f"]


def test_shapes_larger_than_any_integer():
    shape = [2**40] * 3
    indices = [[2**39, 1, 5], [0, 7, 7], [2**39, 1, 4]]
    ordered = run(tf.sparse_reorder(tf.SparseTensor(indices, [1.0, 2.0, 3.0], shape)))
    assert ordered.values.tolist() == [2.0, 3.0, 1.0]
    assert ordered.indices.tolist() == [indices[1], indices[2], indices[0]]


def test_keys_order_rows_lexicographically():
    rng = np.random.default_rng(3)
    for shape in [(3, 4, 5), (2**40, 2**40, 2**40)]:
        rows = rng.integers(0, np.minimum(shape, 4), (50, 3))
        by_key = rows[np.argsort(keys(rows, shape), kind="stable")]
        by_row = rows[np.lexsort(rows.T[::-1])]
        assert np.array_equal(by_key, by_row)


def test_joint_keys_are_equal_for_equal_rows():
    a, b = np.array([[5, 1], [0, 0]]), np.array([[0, 0], [5, 2]])
    first, second = joint_keys(a, b)
    assert first[1] == second[0]
    assert len({*first.tolist(), *second.tolist()}) == 3
