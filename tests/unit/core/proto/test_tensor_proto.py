"""TensorProtos: TensorFlow 1.15's bytes (tensors.json, see record_tensors.py), and bad input."""

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from headrace._src.core import dtypes
from headrace._src.core.proto import DataType, TensorProto
from headrace._src.core.tensor_proto import as_array, to_array, to_proto

RECORDED = json.loads(Path(__file__).with_name("tensors.json").read_text())


def recorded_array(dtype, shape, data):
    if dtype == "string":
        elements = np.array([bytes.fromhex(element) for element in data], object)
    else:
        elements = np.frombuffer(bytes.fromhex(data), dtypes.as_dtype(dtype).numpy)
    return elements.reshape(shape)


def make(dtype, shape=(), **fields):
    result = TensorProto(dtype=dtype, **fields)
    result.tensor_shape.SetInParent()
    for size in shape:
        result.tensor_shape.dim.add(size=size)
    return result


@pytest.mark.parametrize(("dtype", "array_shape", "data", "shape", "wire"), RECORDED["arrays"])
def test_arrays_as_tensorflow_writes_them(dtype, array_shape, data, shape, wire):
    array = recorded_array(dtype, array_shape, data)
    assert to_proto(array, shape=shape).SerializeToString().hex() == wire

    back = to_array(TensorProto.FromString(bytes.fromhex(wire)))
    count = back.size
    filled = np.concatenate([array.ravel(), np.repeat(array.ravel()[-1:], count)])[:count]
    assert back.dtype == array.dtype
    assert back.shape == tuple(array_shape if shape is None else shape)
    assert back.tolist() == filled.reshape(back.shape).tolist()
    assert back.flags.writeable


@pytest.mark.parametrize(("value", "dtype", "shape", "wire"), RECORDED["values"])
def test_python_values_as_tensorflow_writes_them(value, dtype, shape, wire):
    assert to_proto(value, dtype, shape).SerializeToString().hex() == wire


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "bool", "complex64", "uint16", "float64"])
def test_content_is_read_for_every_type(dtype):
    array = np.array([0, 1, 1]).astype(dtypes.as_dtype(dtype).numpy)
    tensor = make(dtypes.as_dtype(dtype).enum, [3], tensor_content=array.tobytes())
    assert to_array(tensor).dtype == array.dtype
    assert to_array(tensor).tolist() == array.tolist()


def test_string_content():
    tensor = make(DataType.DT_STRING, [3], tensor_content=b"\x01\xc8\x01\x00a" + b"b" * 200)
    assert to_array(tensor).tolist() == [b"a", b"b" * 200, b""]


def test_no_values_are_zeros():
    assert to_array(make(DataType.DT_COMPLEX64, [2])).tolist() == [0, 0]
    assert to_array(make(DataType.DT_STRING, [2])).tolist() == [b"", b""]
    assert to_array(make(DataType.DT_QINT8)).tolist() == (0,)


def test_values_wider_than_their_type_wrap():
    assert to_array(make(DataType.DT_UINT8, [1], int_val=[300])).tolist() == [44]
    assert np.isnan(to_array(make(DataType.DT_HALF, [1], half_val=[-1]))).all()


def test_big_fill():
    assert to_array(make(DataType.DT_INT8, [1000, 1000], int_val=[7])).sum() == 7_000_000


def test_byte_order_and_strides_do_not_matter():
    array = np.arange(6, dtype=np.int32).reshape(2, 3)
    expected = to_proto(array.T.copy())
    assert to_proto(array.T) == expected
    assert to_proto(array.T.astype(">i4")) == expected


def test_quantized_from_integers():
    tensor = to_proto(np.array([1, -2]), dtypes.qint16)
    assert tensor == make(DataType.DT_QINT16, [2], tensor_content=b"\x01\0\xfe\xff")


def test_content_over_2gb_is_refused():
    array = np.broadcast_to(np.int8(1), (2**31,))  # takes one byte of memory
    with pytest.raises(ValueError, match="larger than 2GB"):
        to_proto(array)


def test_bfloat16_scalars():
    assert as_array([ml_dtypes.bfloat16(1.5)]).dtype == ml_dtypes.bfloat16


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (make(DataType.DT_FLOAT, [2], float_val=[1, 2, 3]), "3 values for a shape of 2"),
        (make(DataType.DT_FLOAT, [2], tensor_content=b"1234567"), "7 bytes .* need 8"),
        (make(DataType.DT_FLOAT, [2], int_val=[1]), "float32 has values in int_val"),
        (make(DataType.DT_FLOAT, [-1], float_val=[1]), "negative"),
        (make(DataType.DT_FLOAT, [0], float_val=[1]), "1 values for a shape of 0"),
        (make(DataType.DT_COMPLEX64, [2], scomplex_val=[1, 2, 3]), "half a complex"),
        (make(DataType.DT_INVALID), "unknown dtype: 0"),
        (make(77), "unknown dtype: 77"),
        (make(DataType.DT_FLOAT_REF), "no form"),
        (make(DataType.DT_RESOURCE), "no form"),
        (TensorProto(dtype=1, tensor_shape={"unknown_rank": True}), "unknown rank"),
        (make(DataType.DT_STRING, [2], tensor_content=b"\x01"), "malformed length"),
        (make(DataType.DT_STRING, [1], tensor_content=b"\xff" * 20), "malformed length"),
        (make(DataType.DT_STRING, [1], tensor_content=b"\x05ab"), "3 bytes, .* ask for 6"),
        (make(DataType.DT_STRING, [2**60], tensor_content=b"\0\0"), "malformed length"),
    ],
)
def test_malformed_protos(tensor, message):
    with pytest.raises(ValueError, match=message):
        to_array(tensor)


@pytest.mark.parametrize(
    ("value", "dtype", "shape", "error", "message"),
    [
        (None, None, None, ValueError, "None values not supported"),
        ([1, None], None, None, TypeError, "Failed to convert"),
        ({1: 2}, None, None, TypeError, "Failed to convert"),
        ([1, "a"], None, None, TypeError, "got 1"),
        ([[1], [2, 3]], None, None, ValueError, "dense tensor"),
        ([["a"], ["b", "c"]], None, None, ValueError, "dense tensor"),
        (1.5, "int32", None, TypeError, "Expected int32, got 1.5 of type 'float' instead"),
        ([1, 2.5], "int32", None, TypeError, "got 2.5"),
        (1, "bool", None, TypeError, "Expected bool, got 1 of type 'int'"),
        (1j, "float32", None, TypeError, "got 1j"),
        ("x", "float32", None, TypeError, "got 'x' of type 'str'"),
        (3, "qint8", None, TypeError, "Expected qint8, got 3"),
        ([1, 2], "string", None, TypeError, "Expected string, got 1"),
        (np.array([1]), "string", None, TypeError, "Expected binary or unicode string, got 1"),
        (2**63, "int8", None, OverflowError, "9223372036854775808 is out of the range of int8"),
        (1, "resource", None, TypeError, "resource"),
        (np.array(["2001"], "M8[Y]"), None, None, TypeError, "Cannot convert value"),
        ([1.0, 2.0, 3.0], None, [2], ValueError, "Needed at most 2, but received 3"),
        (1.0, None, [-1], ValueError, "negative"),
        (1.0, None, [None], TypeError, "integer"),
    ],
)
def test_bad_values(value, dtype, shape, error, message):
    with pytest.raises(error, match=message):
        to_proto(value, dtype, shape)


@pytest.mark.parametrize("value", [[b"\xff", "a\u00e9"], [["a\u00e9"], [b"\xff"]]])
def test_text_may_stand_beside_bytes_that_are_no_text(value):
    array = as_array(value)
    assert array.shape == np.array(value, object).shape
    assert set(array.ravel()) == {b"\xff", "a\u00e9".encode()}
    with pytest.raises(TypeError):
        as_array(value, "float32")
