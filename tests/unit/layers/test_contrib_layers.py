"""Argument scopes, and what layers of tf.contrib.layers refuse."""

import pytest

import headrace as tf

c, framework = tf.contrib.layers, tf.contrib.framework


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


@framework.add_arg_scope
def pair(a, b=2, c=3):
    return a, b, c


def test_scopes_nest_and_can_be_reused():
    with framework.arg_scope([pair], b=20) as outer:
        assert pair(1) == (1, 20, 3)
        with framework.arg_scope([pair], c=30):
            assert pair(1) == (1, 20, 30)
            assert pair(1, b=5) == (1, 5, 30)
        assert pair(1) == (1, 20, 3)
    assert pair(1) == (1, 2, 3)
    assert framework.current_arg_scope() == {}
    with framework.arg_scope(outer):
        assert pair(1) == (1, 20, 3)


def test_scopes_know_their_functions():
    assert framework.has_arg_scope(c.conv2d)
    assert not framework.has_arg_scope(len)
    assert framework.arg_scoped_arguments(pair) == ("b", "c")
    with pytest.raises(ValueError, match="len is not decorated with @add_arg_scope"):
        framework.arg_scope([len], x=1).__enter__()
    with pytest.raises(ValueError, match="kwargs must be empty"):
        framework.arg_scope({}, x=1).__enter__()
    with pytest.raises(TypeError, match="must either be a list/tuple or reused scope"):
        framework.arg_scope(pair, x=1).__enter__()


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda x: c.fully_connected(x, 4.5), ValueError, "num_outputs type should be one of"),
        (lambda x: c.max_pool2d(x, 2, data_format="CHWN"), ValueError, "data_format has to be"),
        (
            lambda x: c.batch_norm(x, renorm=True, updates_collections=None),
            ValueError,
            "renorm is not supported with batch_weights, updates_collections",
        ),
        (lambda x: c.batch_norm(x, batch_weights=[[1.0]]), ValueError, "must be a vector"),
        (lambda x: c.group_norm(x, 3), ValueError, "Invalid groups 3 for 2 channels"),
        (lambda x: c.conv1d(x, 3, 1), ValueError, "expects input with rank 3, got 4"),
        (lambda x: c.maxout(x, 3), ValueError, "is not a multiple of num_units"),
        (lambda x: c.layer_norm(x, begin_norm_axis=4), ValueError, "must be < rank"),
        (lambda x: c.stack(x, c.conv2d, 3), ValueError, "stack_args need to be a list or tuple"),
    ],
)
def test_refusals(build, error, message):
    with pytest.raises(error, match=message):
        build(tf.zeros([1, 4, 4, 2]))


def test_slim_has_the_same_layers():
    assert tf.contrib.slim.conv2d is c.conv2d
    assert tf.contrib.slim.arg_scope is framework.arg_scope


def test_what_corrects_an_average_is_not_a_variable_of_the_model():
    with tf.Graph().as_default():
        tf.contrib.layers.batch_norm(tf.ones([2, 3]), zero_debias_moving_mean=True)
        found = [v.op.name for v in tf.contrib.framework.get_model_variables()]
        assert found == [f"BatchNorm/{n}" for n in ("beta", "moving_mean", "moving_variance")]
        assert len(tf.global_variables()) == 5
