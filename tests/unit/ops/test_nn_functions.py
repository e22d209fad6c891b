"""What the public functions of tf.nn refuse, and how; and that native kernels do the work."""

import numpy as np
import pytest

import headrace as tf
from headrace._src.graph.definition import lookup

X = np.ones((1, 5, 5, 3), np.float32)
W = np.ones((2, 2, 3, 4), np.float32)


def sparse(values, dtype=np.int32):
    indices = [[0, i] for i in range(len(values))]
    return tf.SparseTensor(indices, np.array(values, dtype), [1, len(values)])


REFUSED = {
    "strides should be of length 1, 2 or 4 but was 3": lambda: tf.nn.conv2d(
        X, W, [2, 2, 2], "SAME"
    ),
    "must be of size 4. Got padding of size: 1": lambda: tf.nn.conv2d(X, W, 1, [[1, 1]]),
    "index 1 of padding has size 1": lambda: tf.nn.conv2d(X, W, 1, [[0, 0], [1], [0, 0], [0, 0]]),
    "Depth of input (3) is not a multiple of input depth of filter (4)": lambda: tf.nn.conv2d(
        X, np.ones((2, 2, 4, 4), np.float32), 1, "SAME"
    ),
    "Negative dimension size caused by subtracting 6 from": lambda: tf.nn.conv2d(
        X, np.ones((6, 6, 3, 4), np.float32), 1, "VALID"
    ),
    "Cannot specify both 'filter' and 'filters'": lambda: tf.nn.conv2d(X, W, 1, "SAME", filters=W),
    'data_format must be "NWC" or "NCW"': lambda: tf.nn.conv1d(
        X[0], W[0], 1, "SAME", data_format="N"
    ),
    "strides > 1 not supported in conjunction": lambda: tf.nn.convolution(
        X, W, "SAME", strides=[2, 2], dilation_rate=[2, 2]
    ),
    "pooling with SAME padding is not implemented": lambda: tf.nn.pool(
        X, [2, 2], "MAX", "SAME", dilation_rate=[2, 2]
    ),
    "MIN pooling is not supported": lambda: tf.nn.pool(X, [2, 2], "MIN", "SAME"),
    "ksize should be of length 1, 2 or 4 but was 3": lambda: tf.nn.max_pool(
        X, [1, 2, 2], 2, "SAME"
    ),
    "ksize cannot be zero": lambda: tf.nn.avg_pool(X, 0, 1, "SAME"),
    "takes data_format 'NHWC'": lambda: tf.nn.max_pool_with_argmax(
        X, [1, 2, 2, 1], [1, 1, 1, 1], "SAME", data_format="NCHW"
    ),
    "rate must be a scalar tensor or a float in the range": lambda: tf.nn.dropout(X, keep_prob=2),
    "You must provide a rate": lambda: tf.nn.dropout(X),
    "Cannot specify both 'rate' and 'keep_prob'": lambda: tf.nn.dropout(X, 0.5, rate=0.5),
    "x has to be a floating point tensor": lambda: tf.nn.dropout([1, 2], rate=0.5),
    "data_format must be of the form": lambda: tf.nn.bias_add(X, [1.0] * 3, data_format="HW"),
    "Only call `softmax_cross_entropy_with_logits`": lambda: (
        tf.nn.softmax_cross_entropy_with_logits(X)
    ),
    "Rank mismatch": lambda: tf.nn.sparse_softmax_cross_entropy_with_logits(
        labels=[[1]], logits=[[1.0]]
    ),
    "must have the same shape": lambda: tf.nn.sigmoid_cross_entropy_with_logits(
        labels=[1.0], logits=[1.0, 2.0]
    ),
    "must be None if is_training": lambda: tf.nn.fused_batch_norm(X, [1.0] * 3, [1.0] * 3, [1.0]),
    "Unrecognized partition strategy": lambda: tf.nn.embedding_lookup([[1.0]], [0], "half"),
    "Need at least one param": lambda: tf.nn.embedding_lookup([], [0]),
    "combiner must be one of": lambda: tf.nn.embedding_lookup_sparse(
        tf.constant([[1.0]]), sparse([0]), None, combiner="max"
    ),
    "batch and depth can't be pooled": lambda: tf.nn.fractional_max_pool(X, [2.0, 1.0, 1.0, 1.0]),
}


@pytest.mark.parametrize("message", REFUSED)
def test_mistakes_are_refused(message):
    with tf.Graph().as_default(), pytest.raises(ValueError) as caught:
        REFUSED[message]()
    assert message in str(caught.value)


def run(build):
    with tf.Graph().as_default(), tf.Session() as session:
        return session.run(build())


def test_mistakes_that_only_a_step_can_see():
    with pytest.raises(
        tf.errors.InvalidArgumentError, match=r"label value of 3 .* range of \[0, 3\)"
    ):
        run(lambda: tf.nn.sparse_softmax_cross_entropy_with_logits(labels=[3], logits=[[1.0] * 3]))
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"required: 2, available: 1\)"):
        run(lambda: tf.nn.ctc_loss(sparse([0, 1]), np.ones((3, 1, 4), np.float32), [1]))
    with pytest.raises(tf.errors.InvalidArgumentError, match="seed2 should be 0"):
        run(lambda: tf.nn.fractional_max_pool(X, [1.0, 1.5, 1.5, 1.0], seed=3))


def test_ctc_loss_has_no_second_derivative():
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [3, 1, 4])
        (dx,) = tf.gradients(tf.nn.ctc_loss(sparse([0]), x, [3]), x)
        with pytest.raises(LookupError, match="no second derivative"):
            tf.gradients(dx, x)


class Shards:
    """As a partitioned variable: iterable, with a method that tells it from a list."""

    def __init__(self, *parts):
        self.parts = parts

    def __iter__(self):
        return iter(self.parts)

    def _get_variable_list(self):
        return list(self.parts)


def test_embedding_lookup_takes_partitioned_variables():
    table = np.arange(10, dtype=np.float32).reshape(5, 2)
    ids = np.array([[4, 0], [2, 2]])

    def lookup():
        return tf.nn.embedding_lookup(
            Shards(tf.constant(table[:3]), tf.constant(table[3:])), ids, "div"
        )

    np.testing.assert_array_equal(run(lookup), table[ids])


def test_deterministic_fractional_pooling_draws_the_same_in_every_step():
    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.placeholder(tf.float32, [1, 30, 30, 1])
        for deterministic, kinds in ((True, 1), (False, 5)):
            y = tf.nn.fractional_avg_pool(x, [1.0, 1.5, 1.5, 1.0], deterministic=deterministic)
            feeds = {x: np.zeros((1, 30, 30, 1), np.float32)}
            drawn = {tuple(session.run(y.row_pooling_sequence, feeds)) for _ in range(5)}
            assert len(drawn) == kinds


NATIVE = [
    *("Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter"),
    *("Conv3D", "Conv3DBackpropInputV2", "Conv3DBackpropFilterV2"),
    *("DepthwiseConv2dNative", "DepthwiseConv2dNativeBackpropInput"),
    *("DepthwiseConv2dNativeBackpropFilter", "Softmax", "MaxPool", "MaxPoolV2", "MaxPoolGrad"),
    *("MaxPoolGradV2", "MaxPool3D", "AvgPool", "AvgPoolGrad", "AvgPool3D", "AvgPool3DGrad"),
]


@pytest.mark.parametrize("op_type", NATIVE)
def test_native_kernels_are_there(op_type):
    assert lookup(op_type).kernels["CPU"]


@pytest.mark.parametrize("strategy", ["mod", "div"])
def test_embeddings_are_looked_up_in_lists_of_arrays(strategy):
    table = np.arange(8, dtype=np.float32).reshape(4, 2)
    shards = [table[::2], table[1::2]] if strategy == "mod" else [table[:2], table[2:]]
    with tf.Graph().as_default(), tf.Session() as session:
        rows = tf.nn.embedding_lookup(shards, [0, 3, 1], partition_strategy=strategy)
        one = tf.nn.embedding_lookup(table, [0, 3, 1])
        ids = tf.SparseTensor([[0, 0], [0, 1]], tf.constant([0, 3], tf.int64), [1, 2])
        sums = tf.nn.embedding_lookup_sparse(shards, ids, None, strategy, combiner="sum")
        found, whole, total = session.run([rows, one, sums])
    np.testing.assert_array_equal(found, table[[0, 3, 1]])
    np.testing.assert_array_equal(whole, table[[0, 3, 1]])
    np.testing.assert_array_equal(total, [table[0] + table[3]])


@pytest.mark.parametrize("split", [False, True])
def test_sampled_losses_take_arrays(split):
    random = np.random.RandomState(0)
    weights, biases = random.randn(4, 3).astype("f"), random.randn(4).astype("f")
    inputs, labels = random.randn(2, 3).astype("f"), np.array([[0], [1]])
    sampled = (np.array([1, 2]), np.full((2, 1), 0.4, "f"), np.full(2, 0.5, "f"))
    if split:
        given = [weights[:2], weights[2:]], [biases[:2], biases[2:]]
    else:
        given = weights, biases
    with tf.Graph().as_default(), tf.Session() as session:
        args = (*given, labels, inputs, 2, 4)
        options = {"sampled_values": sampled, "partition_strategy": "div"}
        found = session.run(tf.nn.nce_loss(*args, **options))
        session.run(tf.nn.sampled_softmax_loss(*args, **options))
    logits = (inputs * weights[:2]).sum(1) + biases[:2] - np.log(0.4)
    others = inputs @ weights[1:3].T + biases[1:3] - np.log(0.5)
    expected = np.log1p(np.exp(-logits)) + np.log1p(np.exp(others)).sum(1)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_sparse_lookups_of_short_floats_sum_in_float32(dtype, weighted):
    with tf.Graph().as_default(), tf.Session() as session:
        ids = tf.SparseTensor([[0, 0], [0, 1]], tf.constant([0, 1], tf.int64), [1, 2])
        weights = tf.SparseTensor(ids.indices, [1.0, 1.0], [1, 2]) if weighted else None
        table = tf.cast([[2048.0, 1.0], [1.0, 4.0]], dtype)
        total = tf.nn.embedding_lookup_sparse(table, ids, weights, combiner="sum")
        assert total.dtype == tf.float32
        assert session.run(total).tolist() == [[2049, 5]]
