"""What ops accept and refuse, where a schema alone doesn't say it."""

import numpy as np
import pytest

import headrace as tf

INVALID = tf.errors.InvalidArgumentError


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def run(fetches):
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        return session.run(fetches)


# Quantized types


@pytest.mark.parametrize(
    ("dtype", "plain"),
    [
        (tf.qint8, "int8"),
        (tf.quint8, "uint8"),
        (tf.qint16, "int16"),
        (tf.quint16, "uint16"),
        (tf.qint32, "int32"),
    ],
)
@pytest.mark.parametrize("values", [[1, 2], [1.5, 2.5], [300, 5], [True], [1 + 2j]])
def test_casts_to_quantized_types(dtype, plain, values):
    cast = tf.cast(tf.constant(values), dtype)
    assert cast.dtype == dtype
    found, back, scalar = run([cast, tf.cast(cast, tf.float32), cast[0]])
    numbers = np.real(np.array(values)).astype(np.int64).astype(plain)
    assert found.dtype == plain
    np.testing.assert_array_equal(found, numbers)
    np.testing.assert_array_equal(back, numbers.astype(np.float32))
    assert scalar == numbers[0]


def test_a_quantized_bitcast_is_fetched_as_integers():
    assert run(tf.bitcast(tf.constant([1, -2], tf.int8), tf.qint8)).tolist() == [1, -2]


# Assignment to slices


@pytest.mark.parametrize("resource", [False, True])
@pytest.mark.parametrize("value", [7, [1], np.zeros((1, 0), "i"), np.zeros((0, 3), "i")])
def test_an_empty_slice_takes_any_value(value, resource):
    v = tf.get_variable("v", initializer=[[1, 2], [3, 4]], use_resource=resource)
    assert run(v[0:0, 0:0].assign(value)).tolist() == [[1, 2], [3, 4]]


def test_a_slice_is_not_broadcast_to():
    v = tf.Variable([[1, 2], [3, 4]])
    with pytest.raises(tf.errors.UnimplementedError, match="Automatic broadcasting not yet"):
        run(v[0:1].assign([5, 6]))


@pytest.mark.parametrize(
    "make",
    [
        lambda: tf.constant([1, 2]),
        lambda: tf.placeholder_with_default([1, 2], [2]),
        lambda: tf.identity(tf.Variable([1, 2])),
        lambda: tf.Variable([1, 2]) + 1,
        lambda: tf.Variable([1, 2])[:1],
    ],
)
def test_only_slices_of_variables_can_be_assigned(make):
    with pytest.raises(ValueError, match="only supported for variables"):
        make()[:1].assign([3])


# Formats, lists, dimensions


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        ("12345678", "87654321", "Source format must be of length 4 or 5"),
        ("NHWC", "NCH", "Destination format must be of length 4 or 5"),
        ("NHWC", "NCHX", "must determine a permutation"),
        ("NNHW", "NHWN", "must determine a permutation"),
    ],
)
def test_formats_have_four_or_five_distinct_letters(source, target, message):
    for op, x in (("DataFormatDimMap", [0]), ("DataFormatVecPermute", [1, 2, 3, 4])):
        with pytest.raises(INVALID, match=message):
            run(getattr(tf.raw_ops, op)(x=x, src_format=source, dst_format=target))


def test_axes_of_a_format_wrap_around():
    mapped = tf.raw_ops.DataFormatDimMap(x=[0, 4, -5], src_format="NHWC", dst_format="NCHW")
    assert run(mapped).tolist() == [0, 0, 1]


def test_a_resource_is_not_constant():
    v = tf.get_variable("v", initializer=1.0, use_resource=True)
    with pytest.raises(INVALID, match="cannot be a resource variable handle"):
        run(tf.guarantee_const(v.handle))
    assert run(tf.guarantee_const(v)) == 1


@pytest.mark.parametrize("defaults", [np.zeros(2), {}, "ab"])
def test_csv_defaults_are_a_list(defaults):
    with pytest.raises(TypeError, match="Expected list for 'record_defaults' argument"):
        tf.decode_csv(["1,2"], record_defaults=defaults)


@pytest.mark.parametrize("dtype", [tf.string, tf.float32])
def test_a_type_is_no_dimension(dtype):
    for make in (tf.Dimension, lambda d: tf.TensorShape([d])):
        with pytest.raises(TypeError, match=r"Cannot convert <dtype: '.*'> to Dimension"):
            make(dtype)


# Examples as JSON


def test_examples_are_read_from_json():
    texts = [
        '{"features": {"feature": {"a": {"int64List": {"value": ["1", 2]}}}}}',
        '{"features": {"feature": {"a": {"int64_list": {"value": [3, 4]}}}}}',
    ]
    protos = tf.io.decode_json_example(texts)
    parsed = tf.parse_example(protos, {"a": tf.FixedLenFeature([2], tf.int64)})
    assert run(parsed["a"]).tolist() == [[1, 2], [3, 4]]
    for bad in ("nope", '{"foo": 1}', ""):
        with pytest.raises(INVALID, match="Error while parsing JSON"):
            run(tf.io.decode_json_example(bad))
