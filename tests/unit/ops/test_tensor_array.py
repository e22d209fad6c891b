"""tf.TensorArray and stacks: mistakes, shapes, gradients of gradients."""

import numpy as np
import pytest

import headrace as tf
from headrace._src.ops.base.define import b
from headrace._src.ops.control.tensor_array import build_ta_with_new_flow

ROWS = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]


def any_shape(value):
    return tf.placeholder_with_default(value, None)


def array(size=3, dtype="float32", **options):
    return tf.TensorArray(dtype, size, tensor_array_name="a", **options)


def closed(use):
    rows = array().write(0, 1.0)
    with tf.control_dependencies([rows.close()]):
        return use(rows)


MISTAKES = {
    "already been written": lambda: array().write(0, 1.0).write(0, 2.0).flow,
    "index 3 but array is not resizeable": lambda: array().write(3, 1.0).flow,
    "index -1 but array is not": lambda: array(dynamic_size=True).write(any_shape(-1), 1.0).flow,
    "read from index 3 but array size is: 3": lambda: array().read(3),
    r"shape is not fully defined: \[\?\]": lambda: array(element_shape=[None]).read(1),
    "TensorArray has size zero, but element shape": lambda: array(0).stack(),
    "size zero, but element_shape_except0": lambda: array(0).concat(),
    "saw a scalar shape at index 0": lambda: array(1).write(0, 1.0).concat(),
    r"Index 0 has \(excepting dimension 0\) shape: \[1\] but index 1": lambda: (
        array(2, infer_shape=False).write(0, [[1.0]]).write(1, [[1.0, 2.0]]).concat()
    ),
    r"Index 0 has shape: \[1\] but index 1 has shape: \[2\]": lambda: (
        array(2, infer_shape=False).write(0, [1.0]).write(1, [1.0, 2.0]).stack()
    ),
    r"shape is \[3\] which is incompatible with the .* shape: \[2\]": lambda: (
        array(element_shape=[2]).write(0, any_shape([1.0, 2.0, 3.0])).flow
    ),
    r"Expected len\(indices\) == values.shape\[0\]": lambda: (
        array().scatter(any_shape([0, 1]), any_shape([1.0])).flow
    ),
    "Max scatter index must be < array size": lambda: array().scatter([0, 3], [1.0, 2.0]).flow,
    "Expected sum of lengths": lambda: array(2).split([1.0, 2.0, 3.0], [1, 1]).flow,
    "must not be negative": lambda: array(2, infer_shape=False).split([1.0], [2, -1]).flow,
    "not equal to the size of lengths": lambda: array(2).split([1.0, 2.0, 3.0], [1, 1, 1]).flow,
    "Size should be >= 0": lambda: array(-1).flow,
    "Size should be >= 0.": lambda: array(-1).size(),
    "dtype is float32 but Op is trying to write dtype int32": lambda: (
        array().write(0, tf.constant(1)).flow
    ),
    "a has already been closed|a_.* has already been closed": lambda: closed(lambda a: a.read(0)),
    "it has already been read": lambda: (lambda rows: rows.write(0, rows.read(0) + 1.0).read(0))(
        array().write(0, 1.0)
    ),
    "strings that was not written": lambda: array(2, "string").write(0, "a").stack(),
}


@pytest.mark.parametrize("message", MISTAKES)
def test_mistakes_of_a_step(message):
    with tf.Session() as session, pytest.raises(tf.errors.OpError, match=message):
        session.run(MISTAKES[message]())


def test_mistakes_of_the_graph():
    with pytest.raises(ValueError, match=r"Inconsistent shapes: saw \(2,\) but expected \(1,\)"):
        array().write(0, [1.0]).write(1, [1.0, 2.0])
    with pytest.raises(ValueError, match="Shape must be rank 0 but is rank 1"):
        array().write([0], 1.0)
    with pytest.raises(ValueError, match="Size must be provided"):
        tf.TensorArray("float32")
    with pytest.raises(ValueError, match="both a handle and dynamic_size"):
        tf.TensorArray("float32", handle=array().handle, dynamic_size=True)
    with pytest.raises(TypeError, match="Handle must be a Tensor"):
        tf.TensorArray("float32", handle=3)


def test_shapes_are_learned_by_all_that_came_from_one_array():
    first = array(element_shape=[None])
    second = first.write(0, [1.0, 2.0])
    assert first.element_shape.as_list() == [2]
    assert second.read(0).shape.as_list() == [2]
    assert second.stack().shape.as_list() == [None, 2]
    assert second.gather([0]).shape.as_list() == [None, 2]
    assert array(infer_shape=False).write(0, [1.0]).element_shape.rank is None


def test_a_new_flow_keeps_the_array():
    first = array(dynamic_size=True).write(0, [1.0])
    second = build_ta_with_new_flow(first, tf.identity(first.flow))
    assert (second.handle, second.dynamic_size) == (first.handle, True)
    assert second.element_shape.as_list() == [1]


def test_second_order():
    x = tf.constant(ROWS)
    (first,) = tf.gradients(tf.reduce_sum(array().unstack(x).stack() ** 3), x)
    (second,) = tf.gradients(first, x)
    with tf.Session() as session:
        np.testing.assert_allclose(session.run(second), 6 * np.array(ROWS), rtol=1e-6)


def test_second_order_where_gradients_met():
    x = tf.constant(ROWS)
    rows = array(clear_after_read=False).unstack(x)
    y = tf.reduce_sum(rows.read(0) ** 2 * rows.read(1)) + tf.reduce_sum(rows.read(0) ** 3)
    (first,) = tf.gradients(y, x)
    (second,) = tf.gradients(first, x)
    plain = tf.reduce_sum(x[0] ** 2 * x[1]) + tf.reduce_sum(x[0] ** 3)
    (expected,) = tf.gradients(tf.gradients(plain, x)[0], x)
    with tf.Session() as session:
        np.testing.assert_allclose(*session.run([second, expected]), rtol=1e-6)


def test_gradients_may_have_any_name():
    x = tf.constant(ROWS)
    rows = array(clear_after_read=False).unstack(x)
    found = [tf.gradients(rows.stack() * k, x, name="g")[0] for k in (2.0, 3.0)]
    with tf.Session() as session:
        assert [v[0, 0] for v in session.run(found)] == [2, 3]


def test_every_step_has_an_array_of_its_own():
    x = tf.placeholder("float32", [3])
    y = array().unstack(x).stack()
    with tf.Session() as session:
        for value in ([1, 2, 3], [4, 5, 6]):
            assert session.run(y, {x: value}).tolist() == value


def test_arrays_made_alike_are_two():
    one, two = array(1), array(1)
    with tf.Session() as session:
        assert session.run([one.write(0, 1.0).read(0), two.write(0, 1.0).read(0)]) == [1, 1]


# -- Stacks ----------------------------------------------------------------------------------------


def test_mistakes_with_stacks():
    full = b.stack_v2(0, "float32", "s")
    empty = b.stack_v2(-1, "float32", "s")
    with tf.Session() as session:
        with pytest.raises(tf.errors.InvalidArgumentError, match="overflowed its max_size"):
            session.run(b.stack_push_v2(full, 1.0))
        with pytest.raises(tf.errors.InvalidArgumentError, match="is empty when calling Pop"):
            session.run(b.stack_pop_v2(empty, "float32"))
        with pytest.raises(tf.errors.InvalidArgumentError, match="Must have type float32"):
            session.run(b.stack_push_v2(empty, 1))
