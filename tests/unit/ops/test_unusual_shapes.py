"""Empty tensors, and shapes that only a step can refuse."""

import numpy as np
import pytest

import headrace as tf


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as g:
        yield g


def run(fetches, feeds=None):
    with tf.Session() as session:
        session.run(fetches, feeds)
        return session.run(fetches, feeds)  # the second run is compiled


def test_pooling_takes_an_empty_batch():
    for pool in (tf.nn.max_pool, tf.nn.avg_pool):
        x = tf.placeholder(tf.float32, [None, 4, 4, 2])
        pooled = pool(x, [1, 2, 2, 1], [1, 2, 2, 1], "VALID")
        found = run([pooled, tf.gradients(pooled, x)[0]], {x: np.zeros([0, 4, 4, 2])})
        assert [v.shape for v in found] == [(0, 2, 2, 2), (0, 4, 4, 2)]
    volume = tf.placeholder(tf.float32, [None, 4, 4, 4, 1])
    pooled = tf.nn.max_pool3d(volume, [1, 2, 2, 2, 1], [1, 2, 2, 2, 1], "VALID")
    assert run(pooled, {volume: np.zeros([0, 4, 4, 4, 1])}).shape == (0, 2, 2, 2, 1)


def test_rows_that_a_loop_did_not_write_are_zeros():
    limit = tf.placeholder(tf.int32, [])
    array = tf.TensorArray(tf.float32, 3)
    _, written = tf.while_loop(
        lambda i, _: i < limit, lambda i, a: (i + 1, a.write(i, tf.ones([2]))), [0, array]
    )
    rows = written.stack()
    np.testing.assert_array_equal(run(rows, {limit: 0}), np.zeros([3, 2]))


def test_an_array_without_rows_is_stacked_after_a_loop_without_iterations():
    limit = tf.placeholder(tf.int32, [])
    array = tf.TensorArray(tf.float32, limit)
    _, written = tf.while_loop(
        lambda i, _: i < limit, lambda i, a: (i + 1, a.write(i, tf.ones([2]))), [0, array]
    )
    rows = written.stack()
    assert run(rows, {limit: 0}).shape == (0, 2)


def test_anything_broadcasts_to_nothing():
    x, shape = tf.placeholder(tf.float32), tf.placeholder(tf.int32)
    for value in (np.ones([1, 4]), np.ones([3, 4]), np.ones([2])):
        assert run(tf.broadcast_to(x, shape), {x: value, shape: [0, 4]}).shape == (0, 4)
    assert run(tf.broadcast_to(tf.ones([1, 4]), [0, 4])).shape == (0, 4)


@pytest.mark.parametrize(
    ("shape", "wanted", "expected"),
    [
        ([0, 6], [0, -1, 3], (0, 2, 3)),
        ([0, 6], [-1, 0], (6, 0)),
        ([0, 6], [3, -1, 0], (3, 2, 0)),
        ([0, 6], [-1, 6], (0, 6)),
        ([0, 6], [2, 0, 5], (2, 0, 5)),
    ],
)
def test_the_missing_size_of_an_empty_tensor(shape, wanted, expected):
    sizes = tf.placeholder(tf.int32)
    assert run(tf.reshape(tf.zeros(shape), sizes), {sizes: wanted}).shape == expected
    assert run(tf.reshape(tf.zeros(shape), wanted)).shape == expected


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda v: tf.reshape(tf.ones([20]), v([-2, 10])), "Size 0 must be non-negative, not -2"),
        (lambda v: tf.reshape(tf.ones([20]), v([-1, -1])), "Only one input size may be -1"),
        (lambda v: tf.reshape(tf.ones([0, 6]), v([0, -1, 4])), "cannot infer the missing"),
        (lambda v: tf.transpose(tf.ones([2, 3]), v([-1, 0])), r"-1 is out of range \[0 .. 2\)"),
        (lambda v: tf.transpose(tf.ones([2, 3]), v([0, 0])), "1 is missing from"),
        (lambda v: tf.cumsum(tf.ones([2, 5]), v([0])), "axis must be a scalar"),
        (lambda v: tf.sparse_to_dense([1, 3], [5], v([[5], [3]])), "sparse_values"),
        (lambda v: tf.segment_sum(tf.ones([4, 4]), v([0, 1])), "segment_ids"),
        (lambda v: tf.slice(tf.ones([3, 4]), [0, 0], v([5, 1])), r"Expected size\[0\]"),
        (
            lambda v: tf.reverse_sequence(tf.zeros([2, 2]), v([1, 1]), seq_axis=0, batch_axis=0),
            "batch_dim == seq_dim == 0",
        ),
    ],
)
@pytest.mark.parametrize("fed", [True, False])
def test_what_a_step_refuses(build, message, fed):
    feeds = {}

    def value(array):
        if not fed:
            return tf.placeholder_with_default(tf.constant(array), None)
        feeds[tf.placeholder(tf.int32)] = array
        return next(iter(feeds))

    made = build(value)
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        run(made, feeds)


@pytest.mark.parametrize(
    "build",
    [
        lambda x: tf.nn.conv2d(x, tf.zeros([2, 2, 2, 4]), [1, 1, 1, 1], "SAME"),
        lambda x: tf.nn.max_pool(x, [1, 2, 2, 2], [1, 1, 1, 2], "SAME"),
        lambda x: tf.nn.max_pool(x, [2, 1, 1, 1], [1, 1, 1, 1], "SAME"),
        lambda x: tf.nn.avg_pool(x, [1, 1, 1, 2], [1, 1, 1, 2], "SAME"),
    ],
)
def test_windows_that_only_a_step_refuses(build):
    made = build(tf.ones([1, 4, 4, 4]))
    with pytest.raises(tf.errors.UnimplementedError):
        run(made)


def test_empty_rows_are_sorted_and_matrices_factored():
    assert run(tf.sort(tf.zeros([0]))).shape == (0,)
    assert run(tf.argsort(tf.zeros([3, 0]))).shape == (3, 0)
    assert run(tf.sort(tf.zeros([0, 3]), axis=0)).shape == (0, 3)
    assert run(tf.linalg.lu(tf.zeros([2, 0, 0]))[0]).shape == (2, 0, 0)


def test_an_empty_signal_has_no_frequencies():
    for transform, shape in (
        (tf.signal.rfft, [3, 0]),
        (tf.signal.rfft2d, [0, 0]),
        (tf.signal.rfft3d, [2, 3, 0]),
    ):
        found = transform(tf.zeros(shape))
        assert found.shape.as_list() == shape
        assert run(found).shape == tuple(shape)
    x = tf.placeholder(tf.float32, [None])
    assert run(tf.signal.rfft(x), {x: []}).shape == (0,)


@pytest.mark.parametrize(
    ("value", "dtype", "expected"),
    [
        (-1, tf.uint8, 255),
        ([200], tf.int8, [-56]),
        (70000, tf.int16, 4464),
        (-1, tf.uint64, 2**64 - 1),
    ],
)
def test_integers_wrap_as_in_numpy_1(value, dtype, expected):
    assert run(tf.constant(value, dtype)).tolist() == expected


def test_integers_of_more_than_64_bits_are_refused():
    with pytest.raises(OverflowError):
        tf.constant(2**63, tf.int64)


def test_rows_gathered_in_a_loop_from_a_tensor_of_unknown_rank_have_a_gradient():
    x = tf.placeholder(tf.float32)
    array = tf.TensorArray(tf.float32, dynamic_size=True, size=1)
    _, written = tf.while_loop(
        lambda i, _: i < tf.size(x),
        lambda i, a: (i + 1, a.write(i, tf.gather(x, i))),
        [tf.constant(0), array],
    )
    gradient = tf.gradients(tf.reduce_sum(written.stack()), x)[0]
    found = run(tf.convert_to_tensor(gradient), {x: [1.0, 3.0, 2.0]})
    np.testing.assert_array_equal(found, [1, 1, 1])


def test_hessians_of_what_has_none_are_refused():
    x = tf.placeholder(tf.float32, [10, 10])
    with pytest.raises(ValueError, match="None values not supported"):
        tf.hessians(x, x)


def test_sparse_tensors_of_unknown_rank_are_batched():
    parts = (tf.placeholder(tf.int64), tf.placeholder(tf.float32), tf.placeholder(tf.int64))
    batch = tf.train.maybe_batch(
        [tf.SparseTensor(*parts)], keep_input=[True, False], batch_size=2, enqueue_many=True
    )
    assert batch.dense_shape.shape.as_list() == [None]
