"""tf.layers.experimental: which layers have the style, what they refuse, and what they name. The
expected names are TensorFlow 1.15.5's; tests/oracle/cases_keras_style.py compares whole graphs.
"""

import threading

import pytest

import headrace as tf
from headrace._src.layers import keras_style

experimental = tf.layers.experimental


@pytest.fixture(autouse=True)
def graph(monkeypatch):
    monkeypatch.setattr(keras_style, "_on", False)
    with tf.Graph().as_default() as graph:
        yield graph


def x():
    return tf.placeholder_with_default(tf.ones([2, 3]), [None, 3])


def test_names_come_from_the_counter_of_layers_and_the_name_scope():
    with experimental.keras_style_scope():
        with tf.variable_scope("outer"):
            layer = tf.layers.Dense(2)
            assert [layer(x()).op.name for _ in range(2)] == [
                "outer/dense_1/BiasAdd",
                "outer/dense_1_1/BiasAdd",
            ]
        assert [w.op.name for w in layer.weights] == [
            "outer/dense_1/kernel",
            "outer/dense_1/bias",
        ]
        assert tf.layers.dense(x(), 2).op.name == "dense_2/BiasAdd"
    assert tf.layers.dense(x(), 2).op.name == "dense/BiasAdd"
    assert layer(x()).op.name == "dense_1/BiasAdd"
    assert len(tf.global_variables()) == 6
    with pytest.raises(ValueError, match="No name available for layer scope"):
        _ = layer.scope_name


def test_the_style_is_the_layers_own():
    before = tf.layers.Dense(2)
    with experimental.keras_style_scope():
        before(x())
    assert before.scope_name == "dense"
    assert isinstance(before.kernel, tf.Variable)
    assert before.kernel.dtype._is_ref_dtype


def test_scopes_nest_and_end_with_an_exception():
    with pytest.raises(KeyError), experimental.keras_style_scope():
        with experimental.keras_style_scope():
            pass
        assert keras_style.style_is_on()
        raise KeyError
    assert not keras_style.style_is_on()


def test_set_keras_style_is_for_good_and_for_all_threads_and_graphs():
    experimental.set_keras_style()
    with experimental.keras_style_scope():
        pass
    found = []

    def build():
        with tf.Graph().as_default():
            found.append(tf.layers.dense(tf.ones([1, 2]), 3).op.name)

    thread = threading.Thread(target=build)
    thread.start()
    thread.join()
    assert found == ["dense_1/BiasAdd"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: tf.layers.dense(x(), 2, name="q"), "scope argument .* but saw: q"),
        (lambda: tf.layers.dense(x(), 2, reuse=False), "reuse argument .* but saw: False"),
        (lambda: tf.layers.Dense(2, _scope="q"), "scope argument .* but saw: q"),
        (lambda: tf.layers.Dense(2)(x(), scope="q"), "scope argument .* but saw: q"),
        (lambda: tf.nn.rnn_cell.GRUCell(2, reuse=True), "reuse argument .* but saw: True"),
        (lambda: tf.layers.batch_normalization(x(), name="q"), "scope argument .* but saw: q"),
        (lambda: tf.contrib.layers.fully_connected(x(), 2), "scope argument .* but saw: "),
    ],
)
def test_variable_scopes_are_refused(call, message):
    with (
        experimental.keras_style_scope(),
        pytest.raises(ValueError, match=message) as raised,
    ):
        call()
    assert "not allowed when keras style layers are enabled" in str(raised.value)


def test_names_of_layers_without_variables_are_accepted():
    with experimental.keras_style_scope():
        assert tf.layers.flatten(x(), name="q").op.name == "q/Reshape"
        assert tf.layers.dropout(x(), name="q").op.name == "q_1/Identity"


def test_variables_have_nothing_of_the_variable_scope():
    def getter(*args, **kwargs):
        raise AssertionError("custom getters aren't asked")

    with (
        experimental.keras_style_scope(),
        tf.variable_scope(
            "s",
            custom_getter=getter,
            initializer=tf.zeros_initializer(),
            partitioner=tf.fixed_size_partitioner(2),
            regularizer=tf.nn.l2_loss,
            use_resource=False,
            reuse=True,
        ),
    ):
        layer = tf.layers.Dense(4)
        layer(x())
    assert [type(w).__name__ for w in layer.weights] == ["ResourceVariable"] * 2
    assert layer.kernel.shape == [3, 4]
    assert layer.kernel.initial_value.op.name == "s/dense_1/kernel/Initializer/random_uniform"
    assert tf.losses.get_regularization_losses() == []


def test_a_regularizers_loss_is_named_by_the_variable():
    with experimental.keras_style_scope():
        layer = tf.layers.Dense(4, kernel_regularizer=tf.nn.l2_loss)
        layer(x())
    (collected,) = tf.losses.get_regularization_losses()
    assert collected.op.name == "dense_1/dense_1/kernel/Regularizer/L2Loss"
    assert [loss.op.name for loss in layer.losses] == ["dense_1/kernel/Regularizer/L2Loss"]


def test_updates_stay_with_the_layer():
    with experimental.keras_style_scope():
        layer = tf.layers.BatchNormalization()
        layer(x(), training=True)
    assert [update.name for update in layer.updates] == [
        "batch_normalization_1/AssignMovingAvg/AssignSubVariableOp",
        "batch_normalization_1/AssignMovingAvg_1/AssignSubVariableOp",
    ]
    assert tf.get_collection(tf.GraphKeys.UPDATE_OPS) == []


def test_weights():
    with experimental.keras_style_scope():
        layer = tf.layers.Layer(name="own", trainable=False)
        kept = layer.add_weight("w", [2])
        again = layer.add_weight("w", [2], trainable=False, use_resource=False)
        whole = layer.add_weight("n", (), dtype=tf.int32)
        with pytest.raises(ValueError, match="variable t of type <dtype: 'string'> is required"):
            layer.add_weight("t", [1], dtype=tf.string)
    assert [v.op.name for v in (kept, again, whole)] == ["w", "w_1", "n"]
    assert again.dtype._is_ref_dtype
    assert whole.initial_value.op.type == "Const"
    assert tf.trainable_variables() == [kept, whole]
    assert layer.trainable_weights == []
    layer.trainable = True
    assert layer.trainable_weights == [kept, whole]
    assert layer.non_trainable_weights == [again]
