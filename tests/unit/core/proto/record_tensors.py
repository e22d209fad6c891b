"""Record tensors.json: what TensorFlow 1.15's make_tensor_proto writes. Run under TensorFlow 1.15.

"arrays": [dtype, array shape, hex of the array's bytes (strings: list of hex), shape argument,
hex of the proto]. "values": [Python value, dtype or null, shape argument, hex of the proto].
"""

import json
import os

import numpy as np
import tensorflow as tf

NUMERIC = [
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "complex64",
    "complex128",
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "qint8",
    "quint8",
    "qint16",
    "quint16",
    "qint32",
]
SHAPES = [((), None), ((1,), None), ((2, 3), None), ((0,), None), ((3, 0), None), ((), [4, 2])]
SHAPES += [((3,), [2, 3]), ((6,), [3, 2]), ((1, 1), [1]), ((1,), [])]
STRINGS = [b"", b"a", b"\0\xff\0", b"x" * 200, "\u00e9".encode(), b"end"]
VALUES = [
    (1, None, None),
    (1.5, None, None),
    (True, None, None),
    ("caf\u00e9", None, None),
    (2**40, None, None),
    ([1, 2**31], None, None),
    ([1, 2.5], None, None),
    ([True, 3], None, None),
    ([[1, 2], [3, 4]], None, None),
    ([], None, None),
    ([[], []], "int32", None),
    ([], "string", None),
    ([], None, [3]),
    (5, None, [0]),
    (5, "int32", [2, 0]),
    (7, None, [2, 2]),
    (["a", "b"], None, [5]),
    (1, "float32", None),
    (True, "float64", None),
    ([1, 2], "bfloat16", None),
    ([1, 2.5], "complex64", None),
    (3, "uint64", None),
    (1e300, None, None),
    (0.1, "float64", None),
    (0.1, "float16", [3]),
]


def sample(dtype, count):
    """`count` elements of random bits, cut down to sane ones, with an edge value in front."""
    rng = np.random.RandomState(dtype.as_datatype_enum)
    numpy = np.dtype(dtype.as_numpy_dtype)
    if dtype == tf.bool:
        return rng.rand(count) < 0.5
    if dtype.is_quantized or dtype.is_integer:
        return np.frombuffer(rng.bytes(count * numpy.itemsize), numpy)
    parts = rng.randn(count) * 1e3
    parts = parts + 1j * rng.randn(count) if dtype.is_complex else parts
    parts[:1] = -0.0
    return parts.astype(numpy)


def array_cases():
    for name in NUMERIC:
        dtype = tf.as_dtype(name)
        for shape, argument in SHAPES:
            listed = np.prod(shape) < 2 or argument == [2, 3]
            if name in ("qint16", "quint16") and listed:
                continue  # TensorFlow 1.15 raises here: it takes them for 8-bit values
            array = sample(dtype, int(np.prod(shape))).reshape(shape)
            yield name, array, array.tobytes().hex(), argument
    for shape, argument in SHAPES:
        array = np.array(STRINGS[: int(np.prod(shape))], object).reshape(shape)
        yield "string", array, [element.hex() for element in array.ravel()], argument


def main():
    arrays = [
        [name, array.shape, data, shape, wire(array, None, shape)]
        for name, array, data, shape in array_cases()
    ]
    values = [[*case, wire(*case)] for case in VALUES]
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "tensors.json")
    with open(path, "w") as file:
        json.dump({"arrays": arrays, "values": values}, file)
        file.write("\n")


def wire(value, dtype, shape):
    dtype = None if dtype is None else tf.as_dtype(dtype)
    return tf.make_tensor_proto(value, dtype, shape).SerializeToString().hex()


if __name__ == "__main__":
    main()
