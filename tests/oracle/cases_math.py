"""Mathematics: element-wise functions, operators, reductions, segments, and their gradients."""

import numpy as np

from tests.oracle.case import case

REALS = np.array([[-1.7, -0.4, 0.3], [0.8, 1.2, 2.6]])
INSIDE = np.array([[-0.9, -0.35, 0.1], [0.25, 0.6, 0.85]])
POSITIVE = np.array([[0.2, 0.7, 1.3], [2.1, 3.4, 5.6]])
ABOVE_ONE = POSITIVE + 1
COMPLEX = np.array([0.3 + 0.4j, -0.6 + 0.2j, 0.5 - 0.7j])

# Functions of one number: where they are tried, and whether TensorFlow has complex kernels of them.
UNARY = {
    "abs": (REALS, True),
    "acos": (INSIDE, False),
    "acosh": (ABOVE_ONE, True),
    "asin": (INSIDE, False),
    "asinh": (REALS, True),
    "atan": (REALS, False),
    "atanh": (INSIDE, True),
    "cos": (REALS, True),
    "cosh": (REALS, True),
    "digamma": (POSITIVE, False),
    "erf": (REALS, False),
    "erfc": (REALS, False),
    "exp": (REALS, True),
    "expm1": (REALS, True),
    "lgamma": (POSITIVE, False),
    "log": (POSITIVE, True),
    "log1p": (POSITIVE, True),
    "log_sigmoid": (REALS, False),
    "math.bessel_i0": (REALS, False),
    "math.bessel_i0e": (REALS, False),
    "math.bessel_i1": (REALS, False),
    "math.bessel_i1e": (REALS, False),
    "math.reciprocal_no_nan": (REALS, False),
    "negative": (REALS, True),
    "reciprocal": (REALS, True),
    "rsqrt": (POSITIVE, True),
    "sigmoid": (REALS, True),
    "sign": (REALS, True),
    "sin": (REALS, True),
    "sinh": (REALS, True),
    "sqrt": (POSITIVE, True),
    "square": (REALS, True),
    "tan": (REALS, True),
    "tanh": (REALS, True),
}
ROUNDINGS = ["ceil", "floor", "rint", "round", "is_nan", "is_inf", "is_finite"]

BINARY = {
    "add": (REALS, REALS[0]),
    "atan2": (REALS, POSITIVE),
    "divide": (REALS, POSITIVE[0]),
    "div": (REALS, POSITIVE[0]),
    "div_no_nan": (REALS, np.array([1.5, 0.0, -2.0])),
    "floordiv": (REALS, POSITIVE[1]),
    "floormod": (REALS, POSITIVE[1]),
    "igamma": (POSITIVE, POSITIVE[1]),
    "igammac": (POSITIVE, POSITIVE[1]),
    "math.multiply_no_nan": (REALS, np.array([1.5, 0.0, -2.0])),
    "math.xdivy": (np.array([0.0, 1.2]), np.array([0.5, 3.0])),
    "math.xlogy": (np.array([0.0, 1.2]), np.array([0.5, 3.0])),
    "maximum": (REALS, INSIDE[1]),
    "minimum": (REALS, INSIDE[1]),
    "multiply": (REALS, REALS[0]),
    "pow": (POSITIVE, REALS[0]),
    "realdiv": (REALS, POSITIVE[0]),
    "squared_difference": (REALS, REALS[0]),
    "subtract": (REALS, REALS[0]),
    "truediv": (REALS, POSITIVE[0]),
    "truncatemod": (REALS, POSITIVE[1]),
}
COMPARISONS = ["equal", "not_equal", "less", "less_equal", "greater", "greater_equal"]
REDUCTIONS = ["sum", "mean", "prod", "max", "min", "logsumexp"]


def lookup(tf, name):
    for part in name.split("."):
        tf = getattr(tf, part)
    return tf


def add_case(name, build, **options):
    build.__name__ = name.replace(".", "_")
    case(**options)(build)


@case
def functions_of_reals(tf):
    types = ("float32", "float64")
    return [lookup(tf, f)(tf.constant(x, t)) for f, (x, _) in sorted(UNARY.items()) for t in types]


@case
def functions_of_complex_numbers(tf):
    names = sorted(name for name, (_, is_complex) in UNARY.items() if is_complex)
    return [
        lookup(tf, f)(tf.constant(COMPLEX, t)) for f in names for t in ("complex64", "complex128")
    ]


@case(graph=False)
def gradients_of_functions_of_complex_numbers(tf):
    results = []
    for name in sorted(name for name, (_, is_complex) in UNARY.items() if is_complex):
        x = tf.constant(COMPLEX)
        y = lookup(tf, name)(x)
        dy = tf.constant(REALS[0]) if y.dtype.is_floating else tf.constant(COMPLEX * 2j)
        results += tf.gradients(y, x, dy)
    return results


@case
def roundings(tf):
    values = [-2.5, -1.5, -0.2, 0.5, 1.5, 2.7, np.inf, np.nan]
    return [
        getattr(tf, f)(tf.constant(values, t)) for f in ROUNDINGS for t in ("float32", "float64")
    ]


@case
def functions_of_two_numbers(tf):
    results = []
    for name, (left, right) in sorted(BINARY.items()):
        f = lookup(tf, name)
        results.append(f(tf.constant(left, tf.float32), right.astype(np.float32)))
        results.append(f(tf.constant(left), tf.constant(right), name="named"))
    return results


@case
def comparisons(tf):
    results = []
    for f in (getattr(tf, name) for name in COMPARISONS):
        results += [
            f(tf.constant([1, 2, 3]), 2),
            f(tf.constant(REALS), REALS[0]),
            f([1.0], [[1.0]]),
        ]
    return results


def add_unary(name, values):
    def gradient(tf):
        x = tf.constant(values)
        (first,) = tf.gradients(lookup(tf, name)(x), x, tf.constant(REALS))
        return [first, tf.gradients(first, x)[0]]

    add_case("gradient_of_" + name, gradient, graph=False)


def add_binary(name, left, right):
    def gradient(tf):
        x, y = tf.constant(left), tf.constant(right)
        z = lookup(tf, name)(x, y)
        u, v = tf.placeholder_with_default(left, None), tf.placeholder_with_default(right, None)
        w = lookup(tf, name)(u, v)
        return [g for g in tf.gradients([z * z, w], [x, y, u, v]) if g is not None]

    add_case("gradient_of_" + name, gradient, graph=False)


def add_reduction(name):
    def forward(tf):
        f = getattr(tf, "reduce_" + name)
        x = tf.constant(REALS, tf.float32)
        unknown = tf.placeholder_with_default(REALS, None)
        return [
            f(x),
            f(x, 1),
            f(x, [0], keepdims=True, name="kept"),
            f(x, axis=[-1, 0]),
            f(x, reduction_indices=[1], keep_dims=True),
            f(unknown),
            f(unknown, 1),
            f([[1.0, 2.0], [3.0, 4.0]], 0),
        ]

    def gradient(tf):
        f = getattr(tf, "reduce_" + name)
        x = tf.constant(REALS)
        unknown = tf.placeholder_with_default(REALS, None)
        axis = tf.placeholder_with_default([-1], None)
        results = []
        for y in (f(x, 1), f(x), f(x, 0, keepdims=True), f(x, [0, 1]), f(x, axis)):
            results.append(tf.gradients(y * y, x)[0])
        for y in (f(unknown, 1), f(unknown), f(unknown, axis, keepdims=True)):
            results.append(tf.gradients(y * y, unknown)[0])
        return results

    add_case("reduce_" + name, forward)
    add_case("gradient_of_reduce_" + name, gradient, graph=False)


for _name, (_values, _) in UNARY.items():
    if _name != "sign":  # its gradient is 0, and has none
        add_unary(_name, _values)
for _name, (_left, _right) in BINARY.items():
    if _name not in ("floordiv", "truncatemod"):  # TensorFlow has no gradients of these
        add_binary(_name, _left, _right)
for _name in REDUCTIONS:
    add_reduction(_name)


# Integers


@case
def integer_arithmetic(tf):
    x, y = tf.constant([7, -7, 8]), tf.constant([2, 2, -3])
    return [
        x + y, x - y, x * y, x // y, x % y, x / y, tf.div(x, y), tf.truncatediv(x, y),
        tf.truncatemod(x, y), tf.floor_div(x, y), tf.mod(x, y), tf.pow(x, 2), tf.abs(x), -x,
        tf.sign(x), tf.square(x), tf.maximum(x, y), tf.squared_difference(x, y), tf.round(x),
    ]  # fmt: skip


@case
def integer_reductions(tf):
    x = tf.constant([[7, -7], [8, 3]])
    y = tf.constant([[250, 7], [8, 3]], tf.uint8)
    return [f(v, 1) for v in (x, y) for f in (tf.reduce_sum, tf.reduce_max, tf.reduce_prod)] + [
        tf.reduce_mean(x, 1),
        tf.reduce_mean(tf.constant([-7, 2, 2])),
    ]


@case
def division_of_small_integers(tf):
    return [tf.constant([7, 2], t) / tf.constant([2, 3], t) for t in ("uint8", "int16", "int64")]


@case
def bits(tf):
    x, y = tf.constant([5, -3, 12]), tf.constant([3, 6, 1])
    small = tf.constant([200, 3], tf.uint8)
    return [
        tf.bitwise.bitwise_and(x, y),
        tf.bitwise.bitwise_or(x, y),
        tf.bitwise.bitwise_xor(x, y),
        tf.bitwise.invert(x),
        tf.bitwise.invert(small),
        tf.bitwise.left_shift(x, y),
        tf.bitwise.right_shift(x, y),
    ]


# Operators


@case
def operators(tf):
    x = tf.constant(REALS, tf.float32, name="x")
    return [
        x + 1, 1 + x, x - 1, 1 - x, x * 2, 2 * x, x / 2, 2 / x, x // 0.5, 7 // x, x % 2, 7 % x,
        tf.abs(x) ** 2, 2**x, -x, abs(x), x < 1, x <= 1, x > 1, x >= 1,
    ]  # fmt: skip


@case
def operators_on_arrays(tf):
    x = tf.constant(REALS, tf.float32, name="x")
    row = np.arange(3)
    return [x + row, row + x, x * np.float64(2), np.float32([1, 2, 3]) - x, row / x, x < row]


@case
def logical_operators(tf):
    x = tf.constant([True, False, True], name="x")
    return [x & True, False | x, x ^ [True, True, False], ~x, tf.logical_xor(x, False)]


@case
def string_sum(tf):
    return [tf.constant(["a", "b"]) + "c", tf.add("x", ["y", "z"])]


# Types


@case
def casts(tf):
    x = tf.constant(REALS, tf.float32, name="x")
    return [
        tf.cast(x, tf.int32), tf.cast(x, tf.float64), tf.cast(x, tf.bool), tf.cast(x, tf.complex64),
        tf.cast(tf.constant(COMPLEX), tf.float32), tf.cast([1, 0], tf.bool), tf.cast(x, "float32"),
        tf.cast(x, tf.float16, name="half"), tf.cast(tf.cast(x, tf.bfloat16), tf.float32),
        tf.to_float([1]), tf.to_double(x), tf.to_int32(x), tf.to_int64(x), tf.to_complex64(x),
    ]  # fmt: skip


@case
def saturating_casts(tf):
    x = tf.constant([-300.0, 3.7, 1e9])
    return [
        tf.saturate_cast(x, tf.uint8),
        tf.saturate_cast(x, tf.int16),
        tf.saturate_cast(tf.constant([300, -3]), tf.int8),
        tf.saturate_cast(tf.constant([3]), tf.float64),
    ]


@case(graph=False)
def gradient_of_casts(tf):
    x = tf.constant(REALS)
    y = tf.cast(tf.cast(x, tf.float32), tf.float64)
    z = tf.cast(tf.cast(x, tf.complex128), tf.float64)
    return tf.gradients([y * x, z * z], x)


# Complex numbers


@case
def complex_parts(tf):
    z = tf.constant(COMPLEX, tf.complex64, name="z")
    w = tf.constant(COMPLEX, name="w")
    x = tf.constant(REALS, name="x")
    return [
        tf.real(z), tf.imag(z), tf.conj(z), tf.angle(z), tf.real(w), tf.imag(w), tf.conj(w),
        tf.angle(w), tf.real(x), tf.imag(x), tf.conj(x), tf.angle(x), tf.abs(z), tf.abs(w),
        tf.complex(1.0, [2.0, 3.0]), tf.complex(x, x),
    ]  # fmt: skip


@case(graph=False)
def complex_gradients(tf):
    z, w = tf.constant(COMPLEX), tf.constant(COMPLEX[::-1])
    x = tf.constant(REALS[0])
    made = tf.complex(x, x * x)
    losses = [
        tf.abs(z * w), tf.real(z / w), tf.imag(z * tf.conj(w)), tf.angle(z - w),
        tf.real(tf.squared_difference(z, w)), tf.abs(tf.reduce_sum(z)), tf.abs(tf.cumsum(z)),
        tf.real(tf.reduce_prod(z)), tf.abs(tf.reduce_mean(z)), tf.real(tf.pow(z, w)),
    ]  # fmt: skip
    found = [g for loss in losses for g in tf.gradients(loss, [z, w]) if g is not None]
    return found + tf.gradients(tf.abs(made * z), x)


# Sums of many


@case
def many_sums(tf):
    x = tf.constant(REALS, name="x")
    return [
        tf.add_n([x, x, x]),
        tf.add_n([x]),
        tf.add_n([x], name="one"),
        tf.accumulate_n([x, x]),
        tf.accumulate_n([x, x], shape=[2, 3], tensor_dtype=tf.float64, name="named"),
        tf.scalar_mul(2.0, x),
    ]


@case(graph=False)
def gradients_of_many_sums(tf):
    x = tf.constant(REALS)
    return [
        tf.gradients(tf.add_n([x, x * x]), x)[0],
        tf.gradients(tf.accumulate_n([x, x * x]), x)[0],
        tf.gradients(tf.scalar_mul(3.0, x), x)[0],
    ]


# More reductions


@case
def logical_reductions(tf):
    x = tf.constant([[True, False], [True, True]])
    return [
        tf.reduce_all(x), tf.reduce_all(x, 1), tf.reduce_any(x, 0, keepdims=True), tf.reduce_any(x),
    ]  # fmt: skip


@case
def reductions_of_nothing(tf):
    x = tf.zeros([2, 0])
    functions = (tf.reduce_sum, tf.reduce_prod, tf.reduce_max, tf.reduce_min, tf.reduce_mean)
    whole = tf.zeros([0], tf.int32)
    return [f(x, 1) for f in functions] + [tf.reduce_max(whole), tf.reduce_min(whole)]


@case
def spreads(tf):
    x = tf.constant(REALS, tf.float32, name="x")
    return [
        tf.math.reduce_variance(x),
        tf.math.reduce_variance(x, 1, keepdims=True, name="named"),
        tf.math.reduce_std(x, [0]),
        tf.math.reduce_euclidean_norm(x, 1),
        tf.math.reduce_euclidean_norm(x, keepdims=True),
        tf.count_nonzero(x),
        tf.count_nonzero(x, 1, dtype=tf.int32),
        tf.count_nonzero(tf.constant(["", "a"])),
        tf.count_nonzero(input=[1, 0], keep_dims=True),
    ]


@case
def fraction_of_zeros(tf):
    return tf.nn.zero_fraction(tf.constant([0.0, 1.0, 0.0, 2.0]))


@case(graph=False)
def gradients_of_spreads(tf):
    x = tf.constant(REALS)
    values = [
        tf.math.reduce_variance(x, 1),
        tf.math.reduce_std(x),
        tf.reduce_logsumexp(x, 0),
    ]
    return [tf.gradients(v, x)[0] for v in values]


@case(graph=False)
def gradient_of_product_with_zeros(tf):
    x = tf.constant([[1.0, 0.0, 2.0], [0.0, 0.0, 3.0]])
    return [tf.gradients(tf.reduce_prod(x, 1), x)[0], tf.gradients(tf.reduce_prod(x, 0), x)[0]]


@case(graph=False)
def gradient_of_shared_maximum(tf):
    x = tf.constant([[1.0, 3.0, 3.0], [2.0, 0.0, 2.0]])
    return [tf.gradients(tf.reduce_max(x, 1), x)[0], tf.gradients(tf.reduce_min(x), x)[0]]


@case
def extreme_positions(tf):
    x = tf.constant([[3.0, 1.0, 3.0], [0.0, 5.0, -1.0]], name="x")
    return [
        tf.argmax(x), tf.argmax(x, 1), tf.argmin(x, axis=-1, output_type=tf.int32, name="named"),
        tf.argmin(x, dimension=0), tf.arg_max(x, 1), tf.arg_min(x, 0),
    ]  # fmt: skip


# Running sums


@case
def running(tf):
    x = tf.constant(REALS, tf.float32, name="x")
    return [
        tf.cumsum(x),
        tf.cumsum(x, 1, exclusive=True),
        tf.cumsum(x, -1, reverse=True, name="named"),
        tf.cumprod(x, 1),
        tf.cumprod(x, 0, exclusive=True, reverse=True),
        tf.math.cumulative_logsumexp(x, 1),
        tf.math.cumulative_logsumexp(x, 1, reverse=True),
        tf.math.cumulative_logsumexp(x, 1, exclusive=True),
        tf.cumsum([1, 2, 3]),
    ]


@case(graph=False)
def gradients_of_running(tf):
    x = tf.constant(REALS)
    results = []
    for f in (tf.cumsum, tf.cumprod, tf.math.cumulative_logsumexp):
        for way in ({}, {"exclusive": True}, {"reverse": True}):
            results.append(tf.gradients(f(x, 1, **way)[:, 1:2] * REALS, x)[0])
    return results


# Segments


@case
def sorted_segments(tf):
    x = tf.constant(np.arange(8.0).reshape(4, 2) - 3, tf.float32, name="x")
    ids = [0, 0, 2, 2]
    functions = (tf.segment_sum, tf.segment_mean, tf.segment_max, tf.segment_min, tf.segment_prod)
    return [f(x, ids) for f in functions] + [tf.segment_mean(tf.constant([-7, 2, 4]), [0, 0, 1])]


@case
def unsorted_segments(tf):
    x = tf.constant(np.arange(8.0).reshape(4, 2) - 3, tf.float32, name="x")
    ids = [2, 0, -1, 2]
    return [
        tf.unsorted_segment_sum(x, ids, 4),
        tf.unsorted_segment_max(x, ids, 4),
        tf.unsorted_segment_min(x, ids, 4),
        tf.unsorted_segment_prod(x, ids, 4),
        tf.unsorted_segment_mean(x, ids, 4),
        tf.unsorted_segment_sqrt_n(x, tf.constant(ids), tf.constant(4)),
        tf.unsorted_segment_sum(x, [[0, 1], [1, 0], [0, 0], [1, 1]], 2, name="named"),
    ]


@case
def sparse_segments(tf):
    x = tf.constant(np.arange(8.0).reshape(4, 2) - 3, tf.float32, name="x")
    results = []
    for f in (tf.sparse_segment_sum, tf.sparse_segment_mean, tf.sparse_segment_sqrt_n):
        results.append(f(x, [3, 0, 0], [0, 0, 2]))
        results.append(f(x, [3, 0, 0], [0, 0, 2], num_segments=4))
    return results


@case(graph=False)
def gradients_of_segments(tf):
    x = tf.constant(np.arange(8.0).reshape(4, 2) - 3, name="x")
    results = []
    for f in (tf.segment_sum, tf.segment_mean, tf.segment_max, tf.segment_min):
        results.append(tf.square(f(x, [0, 0, 2, 2])))
    for f in (tf.unsorted_segment_sum, tf.unsorted_segment_max, tf.unsorted_segment_min):
        results.append(tf.square(f(x, [2, 0, -1, 2], 3)))
    results.append(tf.square(tf.unsorted_segment_prod(x, [0, 0, 1, 0], 2)))
    results.append(tf.square(tf.unsorted_segment_mean(x, [2, 0, 1, 2], 4)))
    for f in (tf.sparse_segment_sum, tf.sparse_segment_mean, tf.sparse_segment_sqrt_n):
        results.append(tf.square(f(x, [3, 0, 0], [0, 0, 1])))
        results.append(tf.square(f(x, [3, 0, 0], [0, 0, 2], num_segments=4)))
    return [tf.gradients(y, x)[0] for y in results]


# Counting


@case
def counts(tf):
    return [
        tf.bincount([1, 2, 2, 5]),
        tf.bincount([1, 2, 2, 5], minlength=8, maxlength=3),
        tf.bincount([1, 2, 2], weights=[0.5, 1.5, 2.0]),
        tf.bincount([], dtype=tf.float32),
        tf.histogram_fixed_width([-1.0, 0.5, 1.2, 2.4, 7.0], [0.0, 3.0], nbins=4),
        tf.histogram_fixed_width([1, 2, 9], [0, 5], dtype=tf.int64, name="named"),
        tf.histogram_fixed_width_bins([[-1.0, 0.5], [1.2, 7.0]], [0.0, 3.0], nbins=4),
    ]


@case
def confusion(tf):
    return [
        tf.confusion_matrix([0, 2, 1], [1, 2, 1]),
        tf.confusion_matrix(
            [0, 1], [1, 1], num_classes=3, dtype=tf.float32, weights=[0.5, 2.0], name="named"
        ),
    ]


@case(graph=False)
def monotonic(tf):
    return [
        tf.is_strictly_increasing([1, 2, 4]),
        tf.is_strictly_increasing(tf.constant([[1.0, 2.0], [2.0, 3.0]])),
        tf.is_non_decreasing([1.0, 1.0, 2.0]),
        tf.is_non_decreasing(tf.constant([3.0])),
    ]


# Clipping


@case
def clips(tf):
    x = tf.constant(REALS, tf.float32, name="x")
    return [
        tf.clip_by_value(x, -1, 1),
        tf.clip_by_value(x, REALS[0].astype(np.float32) - 1, 1, name="named"),
        tf.clip_by_norm(x, 1.0),
        tf.clip_by_norm(x, 1.0, axes=[1], name="by_row"),
        tf.clip_by_average_norm(x, 0.1),
        tf.global_norm([x, None, x[0]]),
        tf.clip_by_global_norm([x, None, x * 2], 1.5),
        tf.clip_by_global_norm([x], 1.5, use_norm=tf.constant(2.0), name="clip"),
    ]


@case(graph=False)
def gradients_of_clips(tf):
    x = tf.constant(REALS)
    values = [
        tf.clip_by_value(x, -1.0, 1.0) * REALS,
        tf.clip_by_norm(x, 1.0) * REALS,
        tf.clip_by_norm(x, 1.0, axes=[1]) * REALS,
        tf.clip_by_global_norm([x, x * 2], 1.5)[0][1] * REALS,
    ]
    return [tf.gradients(v, x)[0] for v in values]


# Others


@case
def products(tf):
    x = tf.constant(REALS, name="x")
    return [
        tf.cross(x, x[::-1]),
        tf.math.polyval([1.0, -2.0, 3.0], tf.constant([0.5, 2.0])),
        tf.math.polyval([], tf.constant([0.5, 2.0])),
        tf.lbeta([1.0, 2.5, 3.0]),
        tf.math.nextafter(tf.constant([1.0, 2.0]), 2.0),
        tf.betainc([1.0, 2.0], 3.0, 0.4),
        tf.polygamma(2.0, [0.7, 3.0]),
        tf.zeta(2.5, [0.7, 3.0]),
    ]


@case(graph=False)
def gradients_of_products(tf):
    x = tf.constant(REALS)
    p = tf.constant(INSIDE[1])
    values = [tf.cross(x, tf.square(x)), tf.math.polyval([x, x, x], x)]
    found = [tf.gradients(v, x)[0] for v in values]
    found += tf.gradients(tf.betainc(tf.constant(2.0, tf.float64), 3.0, p), p)
    found += tf.gradients(tf.polygamma(tf.constant(2.0, tf.float64), p), p)
    found += tf.gradients(tf.zeta(tf.constant(2.5, tf.float64), p), p)
    return found + tf.gradients(tf.lbeta(p), p)


@case(graph=False)
def second_derivatives(tf):
    x, y = tf.constant(POSITIVE), tf.constant(POSITIVE[::-1])
    results = []
    for z in (x * y, x / y, tf.pow(x, y), tf.atan2(x, y), tf.reduce_prod(x, 1), tf.cumprod(x, 1)):
        first = tf.gradients(z * z, x)[0]
        results.append(tf.gradients(first * first, x)[0])
    return results
