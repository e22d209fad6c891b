"""Sparse tensors: errors, and what the oracle's cases can't show."""

import numpy as np
import pytest

import headrace as tf
from headrace._src.ops.base.define import build
from headrace._src.ops.sparse.sparse_kernels import joint_keys, keys

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


# Functions of one tensor, on the values of a sparse one


@pytest.mark.parametrize(
    "path",
    ["abs", "negative", "sign", "square", "sqrt", "tanh", "nn.tanh", "erf"]
    + ["math.bessel_i0e", "math.bessel_i1e"],
)
def test_unary_functions_work_on_the_values_of_a_sparse_tensor(path):
    function = tf
    for part in path.split("."):
        function = getattr(function, part)
    with tf.Graph().as_default():
        found = function(sparse(), name="f")
        assert isinstance(found, tf.SparseTensor)
        assert found.values.op.name == "f_1"  # TensorFlow's first attempt takes the name
        result, expected = run([found, function(tf.constant([1.0, 2.0]))])
    np.testing.assert_array_equal(result.values, expected)
    np.testing.assert_array_equal(result.indices, [[0, 0], [1, 2]])
    np.testing.assert_array_equal(result.dense_shape, [2, 3])


@pytest.mark.parametrize(
    "name", ["real", "imag", "conj", "round", "exp", "log", "floor", "sigmoid"]
)
def test_other_functions_refuse_a_sparse_tensor(name):
    with pytest.raises(TypeError, match="SparseTensor"):
        getattr(tf.math, name)(sparse())


def test_shape_size_and_rank_of_a_sparse_value():
    value = tf.SparseTensorValue([[0, 1]], [42], [2, 3])
    shape, wide, size, rank = run(
        [tf.shape(value), tf.shape(value, out_type=tf.int64), tf.size(value), tf.rank(value)]
    )
    assert (shape.tolist(), wide.tolist(), size, rank) == ([2, 3], [2, 3], 6, 2)
    assert shape.dtype == np.int32
    assert wide.dtype == np.int64


def test_reductions_and_transposes_take_a_sparse_value():
    value = tf.SparseTensorValue(np.array([[0, 1]]), np.array([42]), np.array([2, 3]))
    assert run(tf.sparse.reduce_sum(value)) == 42
    assert run(tf.sparse.reduce_max(value, 1)).tolist() == [42, 0]
    assert run(tf.sparse.transpose(value)).indices.tolist() == [[1, 0]]


# Indices outside of the dense shape: ops that only order or merge elements don't look at it.

OUTSIDE = {
    "column": [(0, 0), (1, 3)],
    "row": [(0, 1), (2, 0)],
    "negative": [(0, -1), (1, 1)],
}


@pytest.mark.parametrize(
    ("function", "which", "indices", "values"),
    [
        (tf.sparse.reorder, "column", [[0, 0], [1, 3]], [1, 2]),
        (tf.sparse.reorder, "negative", [[0, -1], [1, 1]], [1, 2]),
        (lambda sp: tf.sparse.add(sp, sp), "column", [[0, 0], [1, 3]], [2, 4]),
        (lambda sp: tf.sparse.add(sp, sparse()), "column", [[0, 0], [1, 2], [1, 3]], [2, 2, 2]),
        (lambda sp: tf.sparse.maximum(sp, sparse()), "column", [[0, 0], [1, 2], [1, 3]], [1, 2, 2]),
        (lambda sp: tf.sparse.minimum(sp, sp), "row", [[0, 1], [2, 0]], [1, 2]),
        (lambda sp: tf.sparse.reshape(sp, [3, 2]), "column", [[0, 0], [3, 0]], [1, 2]),
        (lambda sp: tf.sparse.reshape(sp, [3, 2]), "negative", [[0, -1], [2, 0]], [1, 2]),
        (
            lambda sp: tf.sparse.concat(0, [sp, sparse()]),
            "row",
            [[0, 1], [2, 0], [2, 0], [3, 2]],
            [1, 2, 1, 2],
        ),
        (tf.sparse.transpose, "row", [[0, 2], [1, 0]], [2, 1]),
        (tf.sparse.softmax, "row", [[0, 1], [2, 0]], [1, 1]),
        (lambda sp: tf.sparse.reduce_sum_sparse(sp, 1), "row", [[0], [2]], [1, 2]),
    ],
)
def test_indices_outside_of_the_shape_are_kept(function, which, indices, values):
    found = run(function(sparse(OUTSIDE[which])))
    assert found.indices.tolist() == indices
    assert found.values.tolist() == values


def test_a_sum_over_an_axis_takes_indices_beyond_it():
    assert run(tf.sparse.reduce_sum(sparse(OUTSIDE["column"]), 1)).tolist() == [1, 2]
    assert run(tf.sparse.reduce_sum(sparse(OUTSIDE["row"]))) == 3
    with pytest.raises(INVALID, match="out of bounds"):
        run(tf.sparse.reduce_sum(sparse(OUTSIDE["row"]), 1))


def test_merging_goes_through_elements_as_they_come():
    """TensorFlow's order for elements that aren't sorted, or repeated."""
    unordered = run(tf.sparse.add(sparse([(1, 0), (0, 1)]), sparse()))
    assert unordered.indices.tolist() == [[0, 0], [1, 0], [0, 1], [1, 2]]
    assert unordered.values.tolist() == [1, 1, 2, 2]
    twice = sparse([(0, 1), (0, 1)])
    assert run(tf.sparse.add(twice, twice)).values.tolist() == [2, 4]


def test_edit_distance_of_indices_beyond_the_shape():
    def ids(indices):
        return tf.SparseTensor([list(i) for i in indices], tf.constant([1, 0], tf.int64), [2, 3])

    right = ids([(0, 0), (1, 2)])
    assert run(tf.edit_distance(ids(OUTSIDE["column"]), right)).tolist() == [0, 0]
    assert run(tf.edit_distance(ids(OUTSIDE["row"]), right)).tolist() == [0, 1]
    assert run(tf.edit_distance(right, ids(OUTSIDE["row"]), normalize=False)).tolist() == [0, 1]


def test_serialize_many_sparse_needs_order():
    with pytest.raises(INVALID, match="is repeated"):
        run(tf.io.serialize_many_sparse(sparse([(0, 1), (0, 1)])))


def test_indexed_slices_hold_arrays_and_lists():
    rows = tf.IndexedSlices(tf.constant([1.0, 2.0]), [0, 2], [3])
    assert run(tf.convert_to_tensor(rows)).tolist() == [1, 0, 2]
    assert tf.IndexedSlices(np.ones(2), np.arange(2)).values.tolist() == [1, 1]
