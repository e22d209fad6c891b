"""Python functions as ops: values, and errors that cross back."""

import traceback

import numpy as np
import pytest

import headrace as tf


@pytest.fixture(autouse=True)
def own_graph():
    with tf.Graph().as_default():
        yield


def run(fetches):
    with tf.Session() as session:
        return session.run(fetches)


def fails(x):
    raise ValueError(f"no {x}")


@pytest.mark.parametrize("build", [tf.py_func, tf.py_function, tf.numpy_function])
def test_errors_have_both_tracebacks(build):
    y = build(fails, [tf.constant(3)], tf.float32)  # here it is made
    with pytest.raises(tf.errors.InvalidArgumentError, match="ValueError: no 3") as caught:
        run(y)
    assert "# here it is made" in str(caught.value)
    cause = caught.value.__cause__
    assert isinstance(cause, ValueError)
    assert "raise ValueError" in "".join(traceback.format_exception(cause))
    assert caught.value.op is y.op


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (TypeError, tf.errors.InvalidArgumentError),
        (StopIteration, tf.errors.OutOfRangeError),
        (MemoryError, tf.errors.ResourceExhaustedError),
        (NotImplementedError, tf.errors.UnimplementedError),
        (ZeroDivisionError, tf.errors.UnknownError),
    ],
)
def test_kinds_of_errors(raised, expected):
    def function():
        raise raised("why")

    with pytest.raises(expected, match=f"{raised.__name__}: why"):
        run(tf.py_function(function, [], tf.float32))


def test_py_function_takes_what_can_become_its_results():
    def function(a, b):
        return a * b, [1, 2], b"x"

    y = tf.py_function(function, [2.0, [3.0, 4.0]], [tf.float32, tf.int64, tf.string])
    assert [v.dtype.name for v in y] == ["float32", "int64", "string"]
    first, second, third = run(y)
    assert (first.tolist(), second.tolist(), third) == ([6, 8], [1, 2], b"x")
    assert second.dtype == np.int64
    assert y[0].op.type == "EagerPyFunc"


def test_py_function_without_results():
    seen = []
    operation = tf.py_function(lambda x: seen.append(float(x)), [2.5], [])
    run(operation)
    assert seen == [2.5]


def test_wrong_results():
    with pytest.raises(tf.errors.InvalidArgumentError, match="returns 0 values, but expects"):
        run(tf.py_function(lambda: None, [], tf.float32))
    with pytest.raises(tf.errors.InvalidArgumentError, match="is float64, but expects int32"):
        run(tf.py_function(lambda: np.zeros(2), [], tf.int32))
    with pytest.raises(ValueError, match="to be callable"):
        tf.py_function(3, [], tf.float32)


def test_gradients():
    x = tf.constant(2.0)
    assert tf.gradients(tf.py_func(lambda v: v, [x], tf.float32), x) == [None]
    with pytest.raises(LookupError, match=r"tf\.custom_gradient"):
        tf.gradients(tf.py_function(lambda v: v, [x], tf.float32), x)

    @tf.custom_gradient
    def doubled(v):
        return tf.py_function(lambda a: a * 2, [v], tf.float32), lambda dy: dy * 2.0

    assert run(tf.gradients(doubled(x), x)) == [2]
