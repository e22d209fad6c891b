"""A session that checks every operation names the first that makes a NaN or an infinity."""

import subprocess
import sys

import numpy as np
import pytest

import headrace as tf
from headrace._src.core.errors import InvalidArgumentError
from headrace._src.gradients.function_gradients import Defun


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as g:
        yield g


@pytest.fixture
def session(graph):
    config = tf.ConfigProto()
    config.experimental.check_numerics = True
    with tf.Session(graph=graph, config=config) as session:
        yield session


def fails(session, fetches, feeds=None):
    with pytest.raises(InvalidArgumentError) as error:
        session.run(fetches, feeds)
    return error.value


def test_names_the_first_and_shows_its_inputs(session):
    x = tf.placeholder(tf.float32, [None], name="x")
    bad = tf.divide(x, tf.reduce_sum(x), name="share")
    loss = tf.reduce_mean(tf.log(bad + 1.0))
    assert session.run(loss, {x: [1.0, 3.0]}) > 0
    for _ in range(3):  # however often it has run: it isn't compiled
        error = fails(session, loss, {x: [1.0, 0.0, -1.0]})
        assert error.op is bad.op
    first, *lines = str(error).split("\n  ")
    assert first == "RealDiv 'share': 1 NaN and 2 Inf among 3 elements, from finite inputs"
    assert 'bad = tf.divide(x, tf.reduce_sum(x), name="share")' in lines[0]
    assert lines[1:] == [
        "input  x:0 float32[3]  min -1  max 1  zeros 1",
        "input  Sum:0 float32[] = 0",
        "output share:0 float32[3]  NaN 1  Inf 2",
    ]


def test_what_comes_in_may_go_through(session):
    x = tf.placeholder(tf.float32, [2])
    masked = tf.where(tf.is_finite(x), x, tf.zeros_like(x)) + tf.constant([0.0, -np.inf])
    assert session.run(masked, {x: [np.nan, 1.0]}).tolist() == [0.0, -np.inf]


@pytest.mark.parametrize("use_resource", [False, True])
def test_an_update_of_a_variable(session, use_resource):
    v = tf.get_variable("v", initializer=[3e38, 1.0], use_resource=use_resource)
    optimizer = tf.train.GradientDescentOptimizer(1.0)
    train = optimizer.apply_gradients([(tf.constant([-3e38, 0.0]), v)])
    session.run(v.initializer)
    error = fails(session, train)
    assert "ApplyGradientDescent" in error.op.type
    assert f"input  {error.op.inputs[0].name} float32[2]  min 1  max 3e+38" in str(error)
    assert "1 Inf among 2 elements" in str(error)
    session.run(train)  # the variable was infinite before: not this operation's doing


def test_inside_loops_branches_and_functions(session):
    x = tf.placeholder(tf.float32, [])

    @Defun(tf.float32)
    def called(value):
        return tf.log(value, name="inside")

    looped = tf.while_loop(lambda v: v < 10.0, lambda v: v + tf.sqrt(v, name="root"), [x])
    branched = tf.cond(x < 0.0, lambda: tf.log(x, name="of_less"), lambda: x)
    assert fails(session, looped, {x: -1.0}).op.name == "while/root"
    assert fails(session, branched, {x: -1.0}).op.name == "cond/of_less"
    assert fails(session, called(x), {x: -1.0}).op.name == "inside"
    assert session.run([looped, branched], {x: 2.0})[1] == 2.0


def test_narrow_and_complex_numbers(session):
    large = tf.placeholder(tf.float32, [])
    assert fails(session, tf.cast(large, tf.float16, name="c"), {large: 1e6}).op.name == "c"
    brain = tf.square(tf.cast(large, tf.bfloat16), name="b")
    assert "1 Inf where a number should be" in str(fails(session, brain, {large: 1e30}))
    turned = tf.reciprocal(tf.complex(large, large), name="t")
    assert fails(session, turned, {large: 0.0}).op.name == "t"


def test_by_environment():
    program = """
import headrace as tf
try:
    tf.Session().run(tf.log(tf.placeholder_with_default(0.0, [])))
except tf.errors.InvalidArgumentError as error:
    print(error.op.type)
"""
    environment = {"HEADRACE_CHECK_NUMERICS": "1", "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True
    )
    assert done.stdout.strip() == "Log", done.stderr


def test_added_checks_are_not_for_loops():
    tf.while_loop(lambda i: i < 3.0, lambda i: i + 1.0, [0.0])
    with pytest.raises(ValueError, match="not compatible with TensorFlow control flow"):
        tf.add_check_numerics_ops()
