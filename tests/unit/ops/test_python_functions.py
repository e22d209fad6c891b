"""Python functions as ops: values, and errors that cross back."""

import traceback

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


@pytest.mark.parametrize(
    ("result", "types", "error", "message"),
    [
        (
            None,
            [tf.float32],
            tf.errors.InvalidArgumentError,
            "returns 0 values, but expects to see 1",
        ),
        (1.5, [], tf.errors.InvalidArgumentError, "returns 1 values, but expects to see 0"),
        ({"a": 1}, tf.float32, tf.errors.InternalError, "Unsupported object type dict"),
        (10**30, tf.int64, tf.errors.InternalError, "Unsupported object type int"),
    ],
)
def test_what_is_no_result(result, types, error, message):
    with pytest.raises(error, match=message):
        run(tf.py_func(lambda: result, [], types))


def test_gradients():
    x = tf.constant(2.0)
    assert tf.gradients(tf.py_func(lambda v: v, [x], tf.float32), x) == [None]

    @tf.custom_gradient
    def doubled(v):
        return tf.py_func(lambda a: a * 2, [v], tf.float32), lambda dy: dy * 2.0

    assert run(tf.gradients(doubled(x), x)) == [2]
