"""Mathematics beyond laws and oracle: errors, static shapes, the size of gradient graphs."""

import numpy as np
import pytest

import headrace as tf
from headrace._src.ops.base.define import b, build


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def types(graph, prefix):
    return {op.type for op in graph.get_operations() if op.name.startswith(prefix)}


def run(tensor, feeds=None):
    with tf.Session() as session:
        return session.run(tensor, feeds)


# Undoing broadcasts


def test_static_bias_needs_one_sum_and_no_shapes(graph):
    x = tf.placeholder(tf.float32, [None, 3])
    bias = tf.placeholder(tf.float32, [3])
    with tf.name_scope("g"):
        gradient = b.sum_to(x, bias)
    assert types(graph, "g/") == {"Sum", "Const"}
    assert gradient.shape.as_list() == [3]


def test_equal_static_shapes_need_nothing():
    x, y = tf.placeholder(tf.float32, [2, 3]), tf.placeholder(tf.float32, [2, 3])
    assert b.sum_to(x, y) is x


@pytest.mark.parametrize(
    "shape, like",
    [((2, 3), (3,)), ((2, 3), (2, 1)), ((4, 2, 3), (1, 3)), ((2, 3), ()), ((2,), (2,))],
)
@pytest.mark.parametrize("known", ["all", "rank", "nothing"])
def test_sum_to_comes_back_to_the_shape(shape, like, known):
    value = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    static = {"all": lambda s: s, "rank": lambda s: [None] * len(s), "nothing": lambda s: None}
    x = tf.placeholder(tf.float32, static[known](shape))
    y = tf.placeholder(tf.float32, static[known](like))
    result = run(b.sum_to(x, y), {x: value, y: np.zeros(like, np.float32)})
    axes = tuple(range(len(shape) - len(like)))
    expected = value.sum(axes)
    ones = tuple(i for i, n in enumerate(like) if n == 1 and expected.shape[i] != 1)
    np.testing.assert_array_equal(result, expected.sum(ones, keepdims=True))


# Operators


def test_equality_stays_identity():
    x = tf.constant([1.0])
    assert x == x
    assert x != tf.constant([1.0])
    assert len({x: 1, tf.constant([1.0]): 2}) == 2


def test_an_operand_that_knows_tensors_is_asked():
    class Knowing:
        def __radd__(self, other):
            return "asked"

    assert tf.constant(1.0) + Knowing() == "asked"


def test_mixed_types_are_refused():
    with pytest.raises(TypeError, match="type float32 that does not match type int32"):
        tf.constant([1]) + 2.5
    with pytest.raises(TypeError, match="same dtype"):
        tf.constant([1]) / tf.constant([2.0])
    with pytest.raises(TypeError, match="Invalid dtype"):
        tf.constant([True]) / tf.constant([True])


# Errors while a step runs


@pytest.mark.parametrize(
    "build, message",
    [
        (lambda: tf.constant([1]) // 0, "Integer division by zero"),
        (lambda: tf.constant([1]) % 0, "Integer division by zero"),
        (lambda: tf.pow(tf.constant([2]), -1), "negative integer powers"),
        (lambda: tf.segment_sum([1.0, 2.0], [1, 0]), "not increasing"),
        (lambda: tf.unsorted_segment_sum([1.0, 2.0], [0, 5], 2), r"segment_ids\[1\] = 5 is out of"),
        (
            lambda: tf.sparse_segment_sum([1.0], [3], [0]),
            r"indices\[0\] == 3 out of range \[0, 1\)",
        ),
        (lambda: tf.bincount([-1, 2]), "non-negative"),
        (lambda: tf.histogram_fixed_width([1.0], [2.0, 2.0]), "value_range should satisfy"),
        (lambda: tf.cumsum([1.0], 4), r"axis in the range \[-1, 1\)"),
        (lambda: tf.argmax(tf.zeros([2, 0]), 1), "Reduction axis 1 is empty"),
        (lambda: tf.tan(tf.constant([1])), "floating-point"),
    ],
)
def test_bad_values_are_named(build, message):
    tensor = build()
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        run(tensor)


# Errors while the graph is built


@pytest.mark.parametrize(
    "build, message",
    [
        (lambda: tf.constant([1, 2]) + tf.constant([1, 2, 3]), "must be equal, but are 2 and 3"),
        (lambda: tf.reduce_sum([[1.0]], 2), "Invalid reduction dimension 2"),
        (lambda: tf.argmax([[1.0]], 5), r"Dimension \(5\) must be in the range \[-2, 2\)"),
        (lambda: tf.cross([1.0, 2.0], [1.0, 2.0]), "must be 3 but is 2"),
        (lambda: tf.reduce_sum([1.0], axis=0, reduction_indices=0), "Cannot specify both"),
        (lambda: tf.add_n([]), "at least one"),
        (lambda: tf.accumulate_n([[1.0], [[1.0]]]), "not compatible"),
        (lambda: tf.scalar_mul([1.0, 2.0], tf.constant([1.0])), "Only scalar multiply works"),
    ],
)
def test_what_cannot_work_is_refused_at_once(build, message):
    with pytest.raises(ValueError, match=message):
        build()


# Static shapes


def test_static_shapes_follow_constant_axes_and_counts():
    x = tf.placeholder(tf.float32, [None, 3, 4])
    assert tf.reduce_sum(x, [0, 2]).shape.as_list() == [3]
    assert tf.reduce_max(x, 1, keepdims=True).shape.as_list() == [None, 1, 4]
    assert tf.reduce_sum(tf.placeholder(tf.float32)).shape.as_list() == []
    assert tf.argmax(x, -1).shape.as_list() == [None, 3]
    assert tf.unsorted_segment_sum(x, tf.placeholder(tf.int32, [None]), 7).shape.as_list() == [
        7,
        3,
        4,
    ]
    assert tf.segment_sum(x, [0, 0, 4]).shape.as_list() == [None, 3, 4]
    assert tf.bincount([1, 2]).shape.ndims == 1


# Numbers


def test_sixteen_bit_sums_do_not_saturate():
    ones = tf.ones([5000], tf.float16)
    assert run(tf.reduce_sum(ones)) == 5000
    assert run(tf.reduce_mean(tf.cast(ones, tf.bfloat16))) == 1


def test_truncating_cast_never_rounds_up():
    cast = b.cast_op(tf.constant([1.999999, -1.999999]), "bfloat16", Truncate=True)
    np.testing.assert_array_equal(run(cast).astype(np.float32), [1.9921875, -1.9921875])


def test_population_count_sees_the_sign_bit():
    counts = b.population_count(tf.constant([-1, 3, 0], tf.int8))
    assert run(counts).tolist() == [8, 2, 0]


def test_long_and_short_segments_agree():
    rows = np.random.default_rng(0).normal(size=(50, 400)).astype(np.float32)
    ids = np.sort(np.arange(50) % 7)
    expected = np.stack([rows[ids == k].sum(0) for k in range(7)])
    np.testing.assert_allclose(run(tf.segment_sum(rows, ids)), expected, rtol=1e-5, atol=1e-5)
    narrow = run(tf.segment_sum(rows[:, :2], ids))
    np.testing.assert_allclose(narrow, expected[:, :2], rtol=1e-5, atol=1e-5)


def test_different_shapes_are_unequal_on_request():
    inputs = {"x": tf.constant([1, 2]), "y": tf.constant([1, 2, 3])}
    assert not run(build("Equal", **inputs, incompatible_shape_error=False))
    assert run(build("NotEqual", **inputs, incompatible_shape_error=False))


@pytest.mark.parametrize(("value", "target"), [("1", tf.float32), (1.0, tf.string)])
def test_cast_does_not_read_or_write_numbers(value, target):
    with pytest.raises(tf.errors.UnimplementedError, match="string") as error:
        run(tf.cast(tf.constant(value), target))
    assert "tf.string_to_number" in str(error.value)


@pytest.mark.parametrize("jit", [-1, 1])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_linspace_ends_at_its_stop(dtype, jit):
    config = tf.ConfigProto()
    config.graph_options.optimizer_options.global_jit_level = jit
    stop = tf.placeholder(dtype, [])
    with tf.Session(config=config) as session:
        for count in (1, 2, 7, 42, 50):
            line = tf.linspace(tf.constant(0, dtype), stop, count)
            for end in (1.0, -0.3, 1e10):
                found = session.run(line, {stop: end})
                assert len(found) == count
                assert found[-1] == np.dtype(dtype).type(end if count > 1 else 0)


# Lists of arrays


def test_add_n_of_one_array_is_a_tensor():
    total = tf.add_n([np.ones((2, 2), np.int8)])
    assert isinstance(total, tf.Tensor)
    assert run(total).tolist() == [[1, 1], [1, 1]]


@pytest.mark.parametrize("dtype", ["float64", "int64", "int8"])
def test_stack_keeps_the_type_of_arrays(dtype):
    rows = [np.ones(2, dtype), np.zeros(2, dtype)]
    for given in (rows, tuple(rows), rows[:1]):
        stacked = tf.stack(given)
        assert stacked.dtype == dtype
        assert run(stacked).tolist() == np.stack(given).tolist()


def test_stack_of_arrays_of_two_types_fails():
    with pytest.raises(TypeError, match="match"):
        tf.stack([np.ones(2, np.int32), np.ones(2)])
