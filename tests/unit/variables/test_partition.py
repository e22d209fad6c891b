"""Partitioned variables: sizes of parts, the whole, and errors."""

import numpy as np
import pytest

import headrace as tf
from headrace._src.variables.partition import PartitionInfo


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def by(*partitions):
    return lambda shape, dtype: list(partitions)


@pytest.mark.parametrize(
    ("partitioner", "shape", "dtype", "expected"),
    [
        (tf.fixed_size_partitioner(3), [2, 2], tf.float32, [2, 1]),
        (tf.fixed_size_partitioner(3, axis=1), [2, 9], tf.float32, [1, 3]),
        (tf.variable_axis_size_partitioner(100), [100, 4], tf.float32, [17, 1]),
        (tf.variable_axis_size_partitioner(100, max_shards=3), [100, 4], tf.float32, [3, 1]),
        (tf.variable_axis_size_partitioner(64, axis=1), [10, 40], tf.string, [1, 40]),
        (tf.min_max_variable_partitioner(4, min_slice_size=64), [100, 4], tf.float32, [4, 1]),
        (tf.min_max_variable_partitioner(400, 1, 64), [100, 4], tf.float32, [1, 4]),
    ],
)
def test_partitioners(partitioner, shape, dtype, expected):
    assert partitioner(shape=tf.TensorShape(shape), dtype=dtype) == expected


@pytest.mark.parametrize(
    ("build", "error"),
    [
        (lambda: tf.variable_axis_size_partitioner(0), ValueError),
        (lambda: tf.variable_axis_size_partitioner(9, max_shards=0), ValueError),
        (lambda: tf.min_max_variable_partitioner(max_partitions=0), ValueError),
        (
            lambda: tf.min_max_variable_partitioner(axis=3)(tf.TensorShape([2]), "float32"),
            ValueError,
        ),
        (
            lambda: tf.variable_axis_size_partitioner(9, axis=3)(tf.TensorShape([2]), "float32"),
            IndexError,
        ),
        (
            lambda: tf.variable_axis_size_partitioner(9)(tf.TensorShape([None]), "float32"),
            ValueError,
        ),
        (lambda: tf.variable_axis_size_partitioner(9)([2], "float32"), ValueError),
    ],
)
def test_bad_partitioners(build, error):
    with pytest.raises(error):
        build()


def test_parts_and_the_whole():
    value = np.arange(10.0).reshape(5, 2)
    w = tf.get_variable("w", initializer=tf.constant(value), partitioner=by(3, 1))
    assert len(w) == 3 and w.name == "w" and w.shape.as_list() == [5, 2]
    assert [v.shape.as_list() for v in w] == [[2, 2], [2, 2], [1, 2]]
    assert [v._get_save_slice_info().spec for v in w][1:] == ["5 2 2,2:0,2", "5 2 4,1:0,2"]
    double = w.assign_add(value)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        np.testing.assert_array_equal(session.run(tf.identity(w)), value)
        session.run(double)
        np.testing.assert_array_equal(session.run(w.as_tensor()), 2 * value)
        session.run(w.assign_sub([value[:2], value[2:4], value[4:]], read_value=False))
        np.testing.assert_array_equal(session.run(w.as_tensor()), value)


def test_reuse_of_parts():
    w = tf.get_variable("w", [4, 4], partitioner=by(2, 1))
    with tf.variable_scope("", reuse=True):
        assert tf.get_variable("w", [4, 4], partitioner=by(2, 1)) is w
        for arguments, message in (
            (([4, 4], by(4, 1)), r"specified partitions \[4, 1\] and found partitions \[2, 1\]"),
            (([4, 2], by(2, 1)), r"specified shape \(4, 2\) and found shape \(4, 4\)"),
        ):
            with pytest.raises(ValueError, match=message):
                tf.get_variable("w", arguments[0], partitioner=arguments[1])
        with pytest.raises(ValueError, match="PartitionedVariable u does not exist"):
            tf.get_variable("u", [4], partitioner=by(2))
    with pytest.raises(ValueError, match="already exists"):
        tf.get_variable("w", [4, 4], partitioner=by(2, 1))
    with pytest.raises(ValueError, match="No partitioner was provided"):
        tf.get_variable("w", [4, 4])
    tf.get_variable("plain", [4, 4])
    with pytest.raises(ValueError, match="an unpartitioned version of the variable was found"):
        tf.get_variable("plain", [4, 4], partitioner=by(2, 1))


@pytest.mark.parametrize(
    ("partitioner", "shape", "message"),
    [
        (by(2, 2), [4], "does not match the Variable's rank"),
        (by(2, 2), [4, 4], "Can only slice a variable along one dimension"),
        (by(0, 2), [4, 4], "zero partitions"),
        (lambda shape, dtype: 3, [4, 4], "must return a sequence"),
        (by(2), [None], "must be fully defined"),
    ],
)
def test_bad_partitions(partitioner, shape, message):
    with pytest.raises(ValueError, match=message):
        tf.get_variable("w", shape, partitioner=partitioner)


def test_conversion_to_another_type():
    w = tf.get_variable("w", [4], partitioner=by(2))
    with pytest.raises(ValueError, match="type 'int32' for variable of type 'float32'"):
        tf.convert_to_tensor(w, tf.int32)


def test_gradient_reaches_the_parts():
    w = tf.get_variable("w", [3], initializer=tf.ones_initializer(), partitioner=by(2))
    gradients = tf.gradients(tf.identity(w) * [1.0, 2.0, 3.0], list(w))
    with tf.Session() as session:
        got = session.run(gradients)
    assert [g.tolist() for g in got] == [[1, 2], [3]]


def test_partition_info():
    info = PartitionInfo([4, 2], [1, 0])
    assert (info.single_offset([1, 2]), info.single_slice_dim([1, 2])) == (1, 0)
    assert PartitionInfo([4, 2], [0, 0]).single_slice_dim([4, 2]) is None
    for shape in ([1], [1, 1], [4, 2]):
        with pytest.raises(ValueError, match=r"rank|several|exceeds"):
            info.single_slice_dim(shape)
    with pytest.raises(ValueError, match="differ in rank"):
        PartitionInfo([4], [0, 0])


def test_scales_depend_on_the_whole():
    tf.set_random_seed(1)
    part = PartitionInfo([4000, 2], [0, 0])
    for initializer in (tf.glorot_uniform_initializer(), tf.uniform_unit_scaling_initializer()):
        with tf.Session() as session:
            value = session.run(initializer([2000, 2], partition_info=part))
        assert 0.02 < np.abs(value).max() < 0.04


@pytest.mark.parametrize(
    ("initializer", "dtype"),
    [
        (lambda: tf.constant([1, 2, 3, 4]), "int32"),
        (lambda: tf.constant([1.0, 2, 3, 4], tf.float64), "float64"),
        (lambda: tf.constant(["1", "2", "3", "4"]), "string"),
        (lambda: np.array([1, 2, 3, 4]), "float32"),
        (lambda: [1, 2, 3, 4], "float32"),
    ],
)
def test_parts_of_a_value_have_its_dtype(initializer, dtype):
    parts = tf.create_partitioned_variables([4], [2], initializer())
    assert [p.dtype.base_dtype.name for p in parts] == [dtype] * 2
    assert [p.name for p in parts] == [f"PartitionedVariable/part_{i}:0" for i in range(2)]
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        assert [float(x) for x in session.run(tf.concat(parts, 0))] == [1, 2, 3, 4]


def test_the_whole_has_the_dtype_of_its_initial_value():
    value = tf.constant([1, 2, 3, 4])
    whole = tf.get_variable("v", initializer=value, partitioner=tf.fixed_size_partitioner(2))
    assert whole.dtype == tf.int32
    assert tf.identity(whole).dtype == tf.int32


def test_reuse_finds_parts_without_a_partitioner():
    with tf.variable_scope("a", partitioner=tf.fixed_size_partitioner(2)):
        whole = tf.get_variable("n", [4, 1])
    with tf.variable_scope("a", reuse=True):
        assert tf.get_variable("n") is whole
        assert tf.get_variable("n", [4, 1]) is whole
        with pytest.raises(ValueError, match=r"specified shape \(5, 1\) and found shape \(4, 1\)"):
            tf.get_variable("n", [5, 1])
        with pytest.raises(ValueError, match="specified dtype int32 and found dtype float32"):
            tf.get_variable("n", dtype=tf.int32)
    with tf.variable_scope("a", reuse=tf.AUTO_REUSE), pytest.raises(ValueError, match="No parti"):
        tf.get_variable("n", [4, 1])


def test_a_layer_finds_parts_without_a_partitioner():
    with tf.variable_scope("a", partitioner=tf.fixed_size_partitioner(2)):
        tf.layers.dense(tf.ones([2, 4]), 3, name="d")
    with tf.variable_scope("a", reuse=True):
        tf.layers.dense(tf.ones([2, 4]), 3, name="d")
    assert len(tf.global_variables()) == 4


@pytest.mark.parametrize(
    ("shape", "slicing", "message"),
    [
        ([10, 43], [5, 5], "Can only slice a variable along one dimension"),
        ([10], [0], "zero partitions"),
        ([10, 43], [1, 100], "offset=43, shape=43 for var_offset=.0, 43., full_shape=.10, 43."),
        ([10, 43], [11, 1], "offset=10, shape=10"),
        ([10], [5, 1], "must have the length"),
        ([], [], "rank at least 1"),
    ],
)
def test_slicings_that_are_refused(shape, slicing, message):
    with pytest.raises(ValueError, match=message):
        tf.create_partitioned_variables(shape, slicing, tf.zeros_initializer())


def test_a_value_of_another_shape_is_refused():
    with pytest.raises(ValueError, match=r"Shapes \(5,\) and \(4,\) are not compatible"):
        tf.create_partitioned_variables([5], [1], tf.constant([1.0, 2, 3, 4]))
