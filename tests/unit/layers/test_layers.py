"""Layers: channels first against channels last, configurations, updates, and what they refuse."""

import numpy as np
import pytest

import headrace as tf

IMAGE = np.random.RandomState(0).uniform(-1, 1, (2, 5, 6, 3)).astype(np.float32)


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def run(*fetches):
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        return session.run(fetches)


@pytest.mark.parametrize(
    ("make", "spatial"),
    [
        (lambda **o: tf.layers.Conv1D(4, 3, 2, **o), 1),
        (lambda **o: tf.layers.Conv1D(4, 3, padding="causal", dilation_rate=2, **o), 1),
        (lambda **o: tf.layers.Conv2D(4, 3, 2, "same", activation="relu", **o), 2),
        (lambda **o: tf.layers.Conv2D(4, 2, dilation_rate=2, **o), 2),
        (lambda **o: tf.layers.Conv3D(4, 2, **o), 3),
        (lambda **o: tf.layers.Conv2DTranspose(4, 3, 2, **o), 2),
        (lambda **o: tf.layers.Conv3DTranspose(4, 2, 2, **o), 3),
        (lambda **o: tf.layers.SeparableConv1D(4, 3, padding="causal", **o), 1),
        (lambda **o: tf.layers.SeparableConv2D(4, 3, depth_multiplier=2, **o), 2),
        (lambda **o: tf.layers.MaxPooling1D(2, 2, **o), 1),
        (lambda **o: tf.layers.AveragePooling2D(2, 2, "same", **o), 2),
        (lambda **o: tf.layers.MaxPooling3D(2, 1, **o), 3),
    ],
)
def test_channels_first_is_channels_last_transposed(make, spatial):
    """The same numbers in the other order of axes, with shapes as compute_output_shape says."""
    x = np.random.RandomState(1).uniform(-1, 1, (2, *(5, 6, 4)[:spatial], 3)).astype(np.float32)
    last, first = make(name="a"), make(name="a", data_format="channels_first", _reuse=True)
    y = last(tf.constant(x))
    to_first = [0, spatial + 1, *range(1, spatial + 1)]
    z = first(tf.constant(x.transpose(to_first)))
    assert last.compute_output_shape(tf.TensorShape(x.shape)).as_list() == y.shape.as_list()
    shape = first.compute_output_shape(tf.TensorShape(x.transpose(to_first).shape))
    assert shape.as_list() == z.shape.as_list()
    y, z = run(y, z)
    assert y.shape == tuple(last.compute_output_shape(tf.TensorShape(x.shape)).as_list())
    np.testing.assert_allclose(y.transpose(to_first), z, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "layer",
    [
        lambda: tf.layers.Dense(3, activation=tf.nn.relu, use_bias=False),
        lambda: tf.layers.Conv2D(3, (2, 1), padding="same"),
        lambda: tf.layers.Conv2DTranspose(3, 2, strides=2),
        lambda: tf.layers.SeparableConv2D(3, 2, depth_multiplier=2),
        lambda: tf.layers.MaxPooling2D(2, 1),
        lambda: tf.layers.BatchNormalization(momentum=0.5),
        lambda: tf.layers.Dropout(0.3, seed=1),
        lambda: tf.layers.Flatten("channels_first"),
    ],
)
def test_layer_is_made_again_from_its_config(layer):
    first = layer()
    again = type(first).from_config(first.get_config())
    assert again.get_config() == first.get_config()
    assert again(tf.constant(IMAGE)).shape == first(tf.constant(IMAGE)).shape


def test_updates_are_collected_once_and_move_the_averages():
    layer = tf.layers.BatchNormalization(momentum=0.5)
    x = tf.placeholder(tf.float32, [None, 3])
    layer(x, training=True)
    layer(x, training=True)
    updates = tf.get_collection(tf.GraphKeys.UPDATE_OPS)
    assert updates == layer.updates and len(updates) == 4
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(updates[:2], {x: [[1, 2, 3], [3, 2, 1]]})
        mean, variance = session.run([layer.moving_mean, layer.moving_variance])
    np.testing.assert_allclose(mean, [1, 1, 1])
    np.testing.assert_allclose(variance, [1, 0.5, 1])


@pytest.mark.parametrize("fused", [True, False])
def test_placeholder_says_whether_batch_normalization_trains(fused):
    training = tf.placeholder(tf.bool, [])
    y = tf.layers.batch_normalization(tf.constant(IMAGE), training=training, fused=fused)
    updates = tf.get_collection(tf.GraphKeys.UPDATE_OPS)
    averages = tf.global_variables()[2:]
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(updates, {training: False})
        np.testing.assert_array_equal(session.run(averages), [[0, 0, 0], [1, 1, 1]])
        expected = IMAGE / np.sqrt(1.001)
        np.testing.assert_allclose(session.run(y, {training: False}), expected, rtol=1e-5)
        normal = (IMAGE - IMAGE.mean((0, 1, 2))) / np.sqrt(IMAGE.var((0, 1, 2)) + 1e-3)
        np.testing.assert_allclose(session.run(y, {training: True}), normal, rtol=1e-4, atol=1e-5)


def test_half_precision_keeps_statistics_in_single():
    y = tf.layers.batch_normalization(tf.constant(IMAGE, tf.float16), training=True)
    assert y.dtype == tf.float16
    assert {v.dtype.base_dtype for v in tf.global_variables()} == {tf.float32}
    normal = (IMAGE - IMAGE.mean((0, 1, 2))) / np.sqrt(IMAGE.var((0, 1, 2)) + 1e-3)
    np.testing.assert_allclose(run(y)[0], normal, atol=1e-2)


def test_later_input_must_have_the_same_channels():
    layer = tf.layers.Conv2D(4, 3)
    layer(tf.constant(IMAGE))
    with pytest.raises(ValueError, match="expected axis -1 of input shape to have value 3"):
        layer(tf.zeros([2, 5, 6, 4]))


def unknown(*shape):
    return tf.placeholder(tf.float32, shape)


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda layers, x: layers.dense(unknown(None, None), 3), ValueError, "last dimension"),
        (
            lambda layers, x: layers.dense(tf.zeros([3]), 3),
            ValueError,
            "expected min_ndim=2, found ndim=1",
        ),
        (lambda layers, x: layers.dense(tf.zeros([3, 3], tf.int32), 3), TypeError, "non-floating"),
        (lambda layers, x: layers.conv2d(x, 3, [1, 2, 3]), ValueError, "a tuple of 2 integers"),
        (lambda layers, x: layers.conv2d(x, 3, "a"), ValueError, "a tuple of 2 integers"),
        (lambda layers, x: layers.conv2d(x, 3, 3, padding="x"), ValueError, "`padding` argument"),
        (lambda layers, x: layers.conv2d(x, 3, 3, padding="causal"), ValueError, "Causal padding"),
        (
            lambda layers, x: layers.conv2d(x, 3, 3, data_format="x"),
            ValueError,
            "`data_format` argument",
        ),
        (lambda layers, x: layers.conv2d(x, 3, 3, 2, dilation_rate=2), ValueError, "strides > 1"),
        (
            lambda layers, x: layers.conv2d(unknown(1, 3, 3, None), 3, 3),
            ValueError,
            "channel dimension",
        ),
        (
            lambda layers, x: layers.Conv2D(3, 3, foo=2),
            TypeError,
            "Keyword argument not understood",
        ),
        (lambda layers, x: layers.conv2d(x, 3), TypeError, "kernel_size"),
        (
            lambda layers, x: layers.max_pooling2d(tf.zeros([2, 3]), 2, 2),
            ValueError,
            "expected ndim=4",
        ),
        (lambda layers, x: layers.max_pooling2d(x, 2, 2, "causal"), ValueError, "Causal padding"),
        (
            lambda layers, x: layers.flatten(tf.placeholder(tf.float32)),
            ValueError,
            "rank is undefined",
        ),
        (lambda layers, x: layers.dropout(x, 3.0, training=True), ValueError, "rate must be"),
        (lambda layers, x: layers.dropout(x, training=2), TypeError, "`pred` must be"),
        (lambda layers, x: layers.batch_normalization(x, axis=7), ValueError, "Invalid axis: 7"),
        (
            lambda layers, x: layers.batch_normalization(x, axis=[1, -3]),
            ValueError,
            "Duplicate axis",
        ),
        (
            lambda layers, x: layers.batch_normalization(x, axis="s"),
            TypeError,
            "axis must be int or list",
        ),
        (
            lambda layers, x: layers.batch_normalization(unknown(3, None)),
            ValueError,
            "undefined `axis`",
        ),
        (
            lambda layers, x: layers.batch_normalization(x, renorm=True, renorm_clipping={"a": 1}),
            ValueError,
            "contains keys not in",
        ),
        (
            lambda layers, x: layers.batch_normalization(
                x, virtual_batch_size=2, adjustment=lambda shape: (1.0, 0.0)
            ),
            ValueError,
            "adjustment cannot be specified",
        ),
        (lambda layers, x: layers.dense(x), TypeError, r"dense\(\): missing .*'units'"),
        (
            lambda layers, x: layers.dense(x, 2, bias=0),
            TypeError,
            "unexpected .*'bias'",
        ),
    ],
)
def test_refuses(build, error, message):
    with pytest.raises(error, match=message):
        build(tf.layers, tf.constant(IMAGE))


def test_shapes_of_outputs_follow_from_lists():
    layers = tf.layers
    shapes = {
        layers.Dense(2): ([None, 3], [None, 2]),
        layers.Conv2D(4, 3): ([None, 5, 6, 1], [None, 3, 4, 4]),
        layers.MaxPooling1D(2, 2): ([7, 4, 3], [7, 2, 3]),
        layers.Flatten(): ([None, 2, 3], [None, 6]),
        layers.BatchNormalization(): ([2, 3], [2, 3]),
    }
    for layer, (given, expected) in shapes.items():
        assert layer.compute_output_shape(given).as_list() == expected


@pytest.mark.parametrize(
    "build",
    [
        lambda x, t: tf.layers.batch_normalization(x, training=t),
        lambda x, t: tf.layers.batch_normalization(x, training=t, renorm=True),
        lambda x, t: tf.contrib.layers.batch_norm(x, is_training=t),
        lambda x, t: tf.contrib.layers.batch_norm(x, is_training=t, updates_collections=None),
        lambda x, t: tf.layers.dropout(x, 0.999999, training=t),
        lambda x, t: tf.contrib.layers.dropout(x, 1e-6, is_training=t),
    ],
)
def test_training_may_be_a_variable(build):
    x = np.array([[1.0], [3.0]], np.float32)
    with tf.Graph().as_default(), tf.Session() as session:
        training = tf.Variable(False, trainable=False, use_resource=True)
        y = build(tf.constant(x), training)
        session.run(tf.global_variables_initializer())
        at_inference = session.run(y)
        np.testing.assert_allclose(at_inference, x, rtol=1e-3)
        session.run(training.assign(True))
        assert not np.array_equal(session.run(y), at_inference)
