"""Sparse tensors: the public functions of tf.sparse, tf.sets and their older top-level names."""

import numpy as np

from tests.oracle.case import case


def sparse(tf, values=(1.0, 3.0, 2.0), shape=(2, 3)):
    return tf.SparseTensor([[0, 0], [0, 2], [1, 1]], list(values), list(shape))


def other(tf, shape=(2, 3)):
    return tf.SparseTensor([[0, 2], [1, 0]], [-3.0, 0.5], list(shape))


def dynamic(tf, value=None):
    """A sparse tensor of which nothing is known when the graph is built."""
    sp = sparse(tf) if value is None else value
    return tf.SparseTensor(
        tf.placeholder_with_default(sp.indices, [None, None]),
        tf.placeholder_with_default(sp.values, [None]),
        tf.placeholder_with_default(sp.dense_shape, [None]),
    )


def numbers(tf, dtype="int64"):
    return tf.SparseTensor(
        [[0, 0], [0, 1], [1, 0], [1, 2]], tf.constant([3, 1, 2, 2], dtype), [2, 3]
    )


@case
def construction(tf):
    return [
        sparse(tf),
        tf.SparseTensor(tf.constant([[0]], tf.int64), ["text"], np.array([4])),
        tf.sparse.eye(3),
        tf.sparse.eye(2, 4, tf.int32, name="wide"),
        tf.sparse.from_dense([[1, 0], [0, 2]]),
        tf.sparse.from_dense(tf.constant([0.0, 1.5]), name="converted"),
    ]


@case(feeds={"Placeholder:0": [2, 3], "Placeholder_1:0": [1.0], "Placeholder_2:0": [[1, 1]]})
def placeholder(tf):
    return tf.sparse_tensor_to_dense(tf.sparse_placeholder(tf.float32))


@case(feeds={"x/values:0": [1.0], "x/indices:0": [[1, 1]], "y/shape:0": [1, 3]})
def placeholders_with_shapes(tf):
    y = tf.sparse_placeholder(tf.float32, [None, 3], name="y")
    return [tf.sparse_placeholder(tf.float32, [2, 3], name="x"), y.dense_shape]


@case
def to_dense(tf):
    unsorted = tf.SparseTensor([[1, 1], [0, 0]], [1, 2], [2, 2])
    return [
        tf.sparse_tensor_to_dense(sparse(tf)),
        tf.sparse.to_dense(sparse(tf), default_value=-1.0, name="filled"),
        tf.sparse.to_dense(unsorted, validate_indices=False),
        tf.sparse.to_dense(tf.SparseTensor([[1]], ["a"], [3])),
        tf.sparse_to_dense([1, 3], [5], 2.5),
        tf.sparse_to_dense(3, [5], 2, default_value=7),
        tf.sparse_to_dense([[0, 1], [1, 0]], [2, 2], [1.5, 2.5], 0.5),
    ]


@case
def indicators(tf):
    return [
        tf.sparse_to_indicator(numbers(tf), 5),
        tf.sparse.to_indicator(numbers(tf, "int32"), 4, name="hot"),
        tf.sparse_merge(numbers(tf), tf.SparseTensor(numbers(tf).indices, [1, 2, 3, 4], [2, 3]), 9),
        tf.sparse_merge([numbers(tf), numbers(tf)], numbers(tf), [9, 8], already_sorted=True),
    ]


@case
def masks(tf):
    slices = tf.IndexedSlices(tf.constant([[1.0], [2.0]]), tf.constant([1, 3]), tf.constant([4, 1]))
    return tf.sparse_mask(slices, [3])


@case
def additions(tf):
    return [
        tf.sparse_add(sparse(tf), other(tf)),
        tf.sparse.add(sparse(tf), other(tf), threshold=0.5),
        tf.sparse_add(sparse(tf), other(tf), thresh=4.0),
        tf.sparse_add(sparse(tf), tf.ones([2, 3])),
        tf.sparse_add(tf.ones([2, 3]), sparse(tf)),
        tf.sparse_add(dynamic(tf), dynamic(tf)),
    ]


@case
def extremes(tf):
    return [
        tf.sparse_maximum(sparse(tf), other(tf)),
        tf.sparse.minimum(sparse(tf), other(tf), name="least"),
    ]


@case
def operators(tf):
    whole = tf.SparseTensor([[0, 0], [1, 1]], [7, -7], [2, 2])
    return [
        sparse(tf) * tf.constant([1.0, 2.0, 3.0]),
        sparse(tf) * 2.0,
        tf.constant([[2.0], [3.0]]) * sparse(tf),
        sparse(tf) / tf.constant([[2.0], [4.0]]),
        whole / 2,
        whole / tf.constant([2, 4]),
    ]


@case
def matrix_products(tf):
    b = tf.constant([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    value = tf.SparseTensorValue([[0, 1]], [2 + 1j], [2, 3])
    return [
        tf.sparse_tensor_dense_matmul(sparse(tf), b),
        tf.sparse.matmul(sparse(tf), b[:2], adjoint_a=True),
        tf.sparse_tensor_dense_matmul(sparse(tf), [[1.0, 2.0, 3.0]], adjoint_b=True, name="x"),
        tf.sparse_tensor_dense_matmul(value, tf.constant([[1j], [2j], [3j]])),
    ]


@case
def reductions(tf):
    cube = tf.SparseTensor([[0, 0, 1], [1, 1, 0], [1, 1, 2]], [-1.0, 2.0, 4.0], [2, 2, 3])
    return [
        tf.sparse_reduce_sum(sparse(tf)),
        tf.sparse.reduce_sum(sparse(tf), 1, keepdims=True),
        tf.sparse_reduce_sum(cube, reduction_axes=[0, -1]),
        tf.sparse_reduce_max(cube, axis=1),
        tf.sparse.reduce_max(cube, keep_dims=True),
        tf.sparse_reduce_sum_sparse(cube, [1]),
        tf.sparse.reduce_sum_sparse(sparse(tf)),
        tf.sparse_reduce_max_sparse(cube, [0, 1], keepdims=True),
        tf.sparse_reduce_sum(dynamic(tf)),
    ]


@case
def softmaxes(tf):
    cube = tf.SparseTensor([[0, 0, 1], [1, 1, 0], [1, 1, 2]], [-1.0, 2.0, 4.0], [2, 2, 3])
    return [tf.sparse_softmax(sparse(tf)), tf.sparse.softmax(cube, name="soft")]


@case
def orders(tf):
    mixed = tf.SparseTensor([[1, 1], [0, 2], [0, 0]], ["a", "b", "c"], [2, 3])
    return [
        tf.sparse_reorder(mixed),
        tf.sparse.reorder(dynamic(tf, mixed), name="sorted"),
        tf.sparse_transpose(sparse(tf)),
        tf.sparse.transpose(sparse(tf), perm=[1, 0], name="turned"),
        tf.sparse_transpose(dynamic(tf), [1, 0]),
    ]


@case
def shapes(tf):
    return [
        tf.sparse_reshape(sparse(tf), [3, 2]),
        tf.sparse.reshape(sparse(tf), [-1], name="flat"),
        tf.sparse_reshape(dynamic(tf), tf.constant([3, -1], tf.int64)),
        tf.sparse_reset_shape(other(tf, [5, 5])),
        tf.sparse.reset_shape(sparse(tf), [3, 4]),
        tf.sparse.expand_dims(sparse(tf), 0),
        tf.sparse.expand_dims(sparse(tf), name="last"),
    ]


@case
def joining_and_cutting(tf):
    return [
        tf.sparse_concat(1, [sparse(tf), other(tf)]),
        tf.sparse.concat(-1, [sparse(tf), other(tf, [4, 3])], expand_nonconcat_dim=True),
        tf.sparse_concat(0, [sparse(tf), other(tf, [2, 5])], expand_nonconcat_dim=True, name="j"),
        tf.sparse_concat(0, [dynamic(tf), dynamic(tf)]),
        tf.sparse_concat(0, [sparse(tf)]),
        tf.sparse_split(sp_input=sparse(tf), num_split=2, axis=1),
        tf.sparse.split(sp_input=sparse(tf), num_split=2, axis=0, name="cut"),
        tf.sparse_slice(sparse(tf), [0, 1], [5, 5]),
        tf.sparse.slice(sparse(tf), [1, 0], [1, 2], name="part"),
        tf.sparse_retain(sparse(tf), [True, False, True]),
    ]


@case
def empty_rows(tf):
    gaps = tf.SparseTensor([[2, 1], [0, 0], [2, 0]], [1.0, 2.0, 3.0], [4, 2])
    return [
        tf.sparse_fill_empty_rows(gaps, 9.0),
        tf.sparse.fill_empty_rows(sparse(tf), -1.0, name="full"),
    ]


@case
def serialization(tf):
    texts = tf.SparseTensor([[0, 0], [1, 1]], ["7", "a" * 200], [2, 2])
    many = tf.serialize_many_sparse(sparse(tf))
    larger = tf.SparseTensor([[0, 0]], [7.0], [4, 1])
    both = tf.stack([tf.serialize_sparse(sparse(tf)), tf.io.serialize_sparse(larger)])
    return [
        tf.serialize_sparse(sparse(tf)),
        tf.serialize_sparse(texts, name="texts"),
        many,
        tf.deserialize_many_sparse(many, tf.float32, rank=2),
        tf.io.deserialize_many_sparse(both, tf.float32),
        tf.deserialize_many_sparse(tf.serialize_many_sparse(texts), tf.string),
    ]


@case
def dense_sets(tf):
    a = tf.constant([[[3, 1, 3], [1, 2, 5]], [[4, 4, 4], [9, 8, 7]]])
    b = tf.constant([[[1, 6], [2, 2]], [[0, 1], [7, 9]]])
    return [
        tf.sets.set_union(a, b),
        tf.sets.intersection(a, b),
        tf.sets.set_difference(a, b),
        tf.sets.difference(a, b, aminusb=False, validate_indices=False),
        tf.sets.union([["b", "a"]], [["c", "a"]]),
    ]


@case
def sparse_sets(tf):
    a, b = numbers(tf), tf.constant([[1, 4], [5, 2]], tf.int64)
    return [
        tf.sets.set_union(a, numbers(tf)),
        tf.sets.difference(a, b),
        tf.sets.difference(b, a),
        tf.sets.set_intersection(b, a),
        tf.sets.size(a),
        tf.sets.set_size(tf.sets.union(a, b)),
    ]


@case
def crosses(tf):
    words = tf.SparseTensor([[0, 0], [1, 0], [1, 1]], ["a", "b", "longer words"], [2, 2])
    more = tf.SparseTensor([[0, 1], [1, 0], [1, 2]], ["x", "y", "z"], [2, 3])
    dense = tf.constant([[1, 2], [-3, 4]])
    return [
        tf.sparse.cross([words, more]),
        tf.sparse.cross([words, dense], name="mixed"),
        tf.sparse.cross_hashed([words, more]),
        tf.sparse.cross_hashed([words, dense, numbers(tf)], num_buckets=1000),
        tf.sparse.cross_hashed([dense, more], num_buckets=7, hash_key=99),
    ]


@case
def edit_distances(tf):
    def texts(*words):
        pairs = [(i, k, c) for i, word in enumerate(words) for k, c in enumerate(word)]
        indices = [[i, k] for i, k, _ in pairs]
        longest = max(map(len, words))
        return tf.SparseTensor(indices, [c for _, _, c in pairs], [len(words), longest])

    given = texts("kitten", "", "abc", "x")
    truth = texts("sitting", "ab", "", "x")
    return [
        tf.edit_distance(given, truth),
        tf.edit_distance(given, truth, normalize=False, name="plain"),
        tf.edit_distance(truth, given, normalize=False),
    ]


@case(graph=False)
def gradients(tf):
    v, w = tf.constant([1.5, 3.0, 2.0]), tf.constant([-3.0, 0.5])
    x = tf.SparseTensor([[0, 0], [0, 2], [1, 1]], v, [2, 3])
    y = tf.SparseTensor([[0, 2], [1, 0]], w, [2, 3])
    mixed = tf.SparseTensor([[1, 1], [0, 0], [0, 2]], v, [2, 3])
    weights = tf.constant([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    scale = tf.constant([[2.0], [4.0]])

    def loss(sp):
        return tf.reduce_sum(tf.sparse_tensor_to_dense(sp) * weights)

    return [
        tf.gradients(loss(x), v),
        tf.gradients(loss(tf.sparse_add(x, y)), [v, w]),
        tf.gradients(loss(tf.sparse_add(x, y, threshold=1.0)), [v, w]),
        tf.gradients(tf.sparse_add(x, weights) * weights, [v, weights]),
        tf.gradients(loss(tf.sparse_reorder(mixed)), v),
        tf.gradients(tf.sparse_tensor_dense_matmul(x, tf.transpose(weights)), [v, weights]),
        tf.gradients(tf.sparse_tensor_dense_matmul(x, weights, adjoint_a=True), [v, weights]),
        tf.gradients(tf.sparse_tensor_dense_matmul(x, weights, adjoint_b=True), [v, weights]),
        tf.gradients(tf.sparse_reduce_sum(x, 1) * [2.0, 3.0], v),
        tf.gradients(loss(x * scale), [v, scale]),
        tf.gradients(loss(x / weights), [v, weights]),
        tf.gradients(loss(tf.sparse_softmax(x)), v),
        tf.gradients(tf.sparse_slice(x, [0, 1], [2, 2]).values * [3.0, 4.0], v),
        tf.gradients(tf.sparse_fill_empty_rows(mixed, w[0])[0].values, [v, w]),
    ]
