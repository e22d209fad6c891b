"""Quantized types, and floats that are rounded to few levels."""

import numpy as np

from tests.oracle.case import case

X = [-3.7, -1, -0.5, -0.25, -0.1, 0, 0.03, 0.1, 0.125, 0.25, 0.5, 0.75, 1, 1.5, 2, 2.5, 3, 5, 9]
RANGES = [(-1.0, 2.0), (0.0, 6.0), (-3.0, 3.0), (1.0, 2.0), (-4.0, -1.0), (0.5, 0.5)]


def register(name, build, **options):
    build.__name__ = name
    build.__module__ = __name__
    case(build, **options)


def plain(tf, value):
    """A quantized tensor as integers."""
    kinds = {"qint8": tf.int8, "quint8": tf.uint8, "qint16": tf.int16, "quint16": tf.uint16}
    return tf.bitcast(value, kinds.get(value.dtype.name, tf.int32))


def quantized(kind, mode):
    def build(tf):
        dtype = getattr(tf, kind)
        results = []
        ways = ["HALF_AWAY_FROM_ZERO"] + ["HALF_TO_EVEN"] * (mode == "SCALED")
        for low, high in RANGES:
            for way in ways:
                # TensorFlow converts what is too large for an int32 as the processor likes.
                values = [x for x in X if kind != "qint32" or x < 0.9 * high]
                found = tf.quantize(tf.constant(values, tf.float32), low, high, dtype, mode, way)
                results += [plain(tf, found.output), found.output_min, found.output_max]
                results.append(tf.dequantize(found.output, low, high, mode))
        return results

    return build


for _kind in ("qint8", "quint8", "qint16", "quint16", "qint32"):
    for _mode in ("MIN_COMBINED", "MIN_FIRST", "SCALED"):
        register(f"{_kind}_{_mode.lower()}", quantized(_kind, _mode), rtol=0, atol=0)


@case
def old_order_of_arguments(tf):
    found = tf.quantize_v2(tf.constant(X), 0.0, 1.0, tf.quint8, "SCALED", "named", "HALF_TO_EVEN")
    return [plain(tf, found[0]), found[1], found[2]]


def round_trips(kind):
    def build(tf):
        dtype = getattr(tf, kind)
        x = tf.constant(X, dtype)
        results = []
        for signed in (True, False):
            for narrow in (True, False):
                for low, high in RANGES:
                    for mode in ("HALF_TO_EVEN", "HALF_UP"):
                        results.append(
                            tf.quantization.quantize_and_dequantize(
                                x,
                                low,
                                high,
                                signed_input=signed,
                                num_bits=4,
                                range_given=True,
                                round_mode=mode,
                                narrow_range=narrow,
                            )
                        )
        results.append(tf.quantization.quantize_and_dequantize(x, 0.0, 0.0, name="own_range"))
        results.append(
            tf.raw_ops.QuantizeAndDequantizeV3(
                input=x, input_min=x[0], input_max=x[5], num_bits=6, signed_input=True
            )
        )
        return results + [tf.gradients(results[i], x, x + x)[0] for i in (0, -1)]

    return build


for _kind in ("float32", "float64"):
    register("round_trip_" + _kind, round_trips(_kind), rtol=0, atol=0)


FAKE = [(8, False), (8, True), (3, False), (16, True)]


@case(rtol=0, atol=0)
def fake_quant_args(tf):
    x = tf.constant(X)
    results = [tf.fake_quant_with_min_max_args(x)]
    for bits, narrow in FAKE:
        for low, high in [(-1.0, 2.0), (0.1, 1.3), (-3.0, -0.5)]:
            y = tf.fake_quant_with_min_max_args(x, low, high, bits, narrow)
            results += [y, tf.gradients(y, x, tf.constant(X) + 1.0)[0]]
    return results


@case
def fake_quant_vars(tf):
    x = tf.constant(X)
    results = []
    for bits, narrow in FAKE:
        for low, high in [(-1.0, 2.0), (0.1, 1.3), (-3.0, -0.5), (0.0, 0.0)]:
            ends = [tf.constant(low), tf.constant(high)]
            y = tf.fake_quant_with_min_max_vars(x, ends[0], ends[1], bits, narrow)
            results += [y] + tf.gradients(y, [x] + ends, tf.constant(X) + 1.0)
    return results


@case
def fake_quant_channels(tf):
    x = tf.constant(np.reshape(X[:18], (2, 3, 3)), tf.float32)
    low, high = tf.constant([-1.0, 0.0, 0.25]), tf.constant([2.0, 0.0, 0.9])
    results = []
    for bits, narrow in FAKE:
        y = tf.fake_quant_with_min_max_vars_per_channel(x, low, high, bits, narrow)
        results += [y] + tf.gradients(y, [x, low, high], x + 1.0)
        vector = tf.fake_quant_with_min_max_vars_per_channel(x[0, 1], low, high, bits, narrow)
        results.append(vector)
    return results


def values(tf, dtype, *shape, **options):
    low = -100 if dtype.name.startswith("qint") else 0
    numbers = np.random.RandomState(options.get("seed", 0)).uniform(low, 250 + low, shape)
    kinds = {"qint8": np.int8, "quint8": np.uint8, "qint32": np.int32}
    return tf.bitcast(tf.constant(numbers.astype(kinds[dtype.name])), dtype)


@case(rtol=0, atol=0)
def joined(tf):
    results = []
    for dtype in (tf.quint8, tf.qint32):
        parts = [values(tf, dtype, 2, n, 3, seed=n) for n in (1, 2, 3)]
        for lows, highs in [
            ([0.0, -1.0, -2.0], [1.0, 2.0, 0.5]),
            ([0.0, 0.0, 0.0], [1.0, 1.0, 1.0]),
            ([-3.0, -1.0, 0.0], [1.0, 2.0, 4.0]),
        ]:
            found = tf.quantized_concat(1, parts, lows, highs)
            results += [plain(tf, found[0]), found[1], found[2]]
    return results


@case(rtol=0, atol=0)
def clipped(tf):
    x = values(tf, tf.quint8, 3, 7)
    results = []
    for low, high in [(-1.0, 3.0), (0.0, 10.0), (-5.0, 1.0)]:
        for found in (
            tf.raw_ops.QuantizedRelu(features=x, min_features=low, max_features=high),
            tf.raw_ops.QuantizedRelu6(features=x, min_features=low, max_features=high),
        ):
            results += [plain(tf, found[0]), found[1], found[2]]
    return results


@case(rtol=0, atol=0)
def pooled(tf):
    x = values(tf, tf.quint8, 2, 7, 6, 3)
    results = []
    for pool in (tf.nn.quantized_max_pool, tf.nn.quantized_avg_pool):
        for padding in ("SAME", "VALID"):
            for ksize, strides in [([1, 2, 2, 1], [1, 2, 2, 1]), ([1, 3, 3, 1], [1, 2, 2, 1])]:
                found = pool(x, -1.0, 2.0, ksize, strides, padding)
                results += [plain(tf, found[0]), found[1], found[2]]
    return results


@case(rtol=0, atol=0)
def convolved(tf):
    x, w = values(tf, tf.quint8, 2, 6, 5, 3), values(tf, tf.quint8, 3, 2, 3, 4, seed=1)
    results = []
    for padding in ("SAME", "VALID"):
        for strides in ([1, 1, 1, 1], [1, 2, 2, 1]):
            for ends in [(0.0, 1.0, -1.0, 1.0), (-2.0, 3.0, 0.0, 1.0)]:
                found = tf.nn.quantized_conv2d(x, w, *ends, strides=strides, padding=padding)
                results += [plain(tf, found[0]), found[1], found[2]]
    return results
