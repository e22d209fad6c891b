"""Functions whose gradients are taken at poles, at the ends of domains, at infinities and NaNs.
This file must stay valid Python 3.7: scripts/record_singular_gradients runs it under TensorFlow.

A case is a function of `tf` and tensors, and the arrays to feed. Left out are inputs where
TensorFlow's vectorised code differs from its own scalar code (the root of inf in float32), loses
digits (complex division by tiny numbers) or follows no formula (16-bit cosh of NaN).
"""

import numpy as np

INF, NAN = np.inf, np.nan
CASES = {}


def case(name, function, *inputs):
    assert name not in CASES, name
    CASES[name] = (function, inputs)


def named(tf, path):
    """tf.math.sqrt for "math.sqrt"."""
    for part in path.split("."):
        tf = getattr(tf, part)
    return tf


EDGES = np.array([0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -3.0, NAN, -INF, INF])
POINTS = np.array([0, 1, -1, 2, 0.5 - 2j, 1j, -1j, 3 + 4j])

UNARY = [
    "abs",
    "negative",
    "sign",
    "square",
    "sqrt",
    "rsqrt",
    "reciprocal",
    "exp",
    "expm1",
    "log",
    "log1p",
    "sin",
    "cos",
    "tan",
    "asin",
    "acos",
    "atan",
    "sinh",
    "cosh",
    "tanh",
    "asinh",
    "acosh",
    "atanh",
    "sigmoid",
    "log_sigmoid",
    "lgamma",
    "digamma",
    "erf",
    "erfc",
    "reciprocal_no_nan",
    "bessel_i0e",
    "bessel_i1e",
    "softplus",
    "softsign",
    "cumsum",
    "cumprod",
    "reduce_sum",
    "reduce_mean",
    "reduce_prod",
    "reduce_logsumexp",
    "reduce_std",
    "reduce_variance",
]
for name in UNARY:
    for dtype in ("float32", "float64"):
        edges = EDGES[:-1] if name in ("sqrt", "rsqrt") else EDGES
        case(f"{name} {dtype}", lambda tf, x, n=name: named(tf.math, n)(x), edges.astype(dtype))
for name in ("sqrt", "rsqrt", "reciprocal", "abs"):
    case(name + " float16", lambda tf, x, n=name: named(tf.math, n)(x), EDGES.astype("float16"))
for name in ("relu", "relu6", "elu", "leaky_relu", "swish", "softmax", "log_softmax"):
    case("nn " + name, lambda tf, x, n=name: named(tf.nn, n)(x), EDGES.astype("float32"))
case("inv", lambda tf, x: tf.raw_ops.Inv(x=x), EDGES.astype("float32"))
for power in (0.0, 1.0, 2.0, 0.5, -1.0, -0.5, 1.5):
    case(f"x^{power!r}", lambda tf, x, p=power: x**p, EDGES)
    case(f"{power!r}^x", lambda tf, x, p=power: p**x, EDGES)

BINARY = [
    "add",
    "subtract",
    "multiply",
    "divide",
    "pow",
    "atan2",
    "floormod",
    "squared_difference",
    "xlogy",
    "xdivy",
    "multiply_no_nan",
    "divide_no_nan",
]
for name in BINARY:
    for dtype in ("float32", "float64"):
        x, y = [a.ravel().astype(dtype) for a in np.meshgrid(EDGES, EDGES)]
        case(f"{name} {dtype}", lambda tf, x, y, n=name: named(tf.math, n)(x, y), x, y)

VECTORS = {
    "zeros": [0, 0, 0],
    "one zero": [1, 0, 2],
    "two zeros": [0, 3, 0],
    "inf": [1, INF, 2],
    "infs": [INF, INF, -INF],
    "minus inf": [1, -INF, 2],
    "nothing but minus inf": [-INF, -INF],
    "ties": [1, 2, 2],
    "single": [-2],
}
OF_VECTORS = {
    "softmax": lambda tf, x: tf.nn.softmax(x),
    "log_softmax": lambda tf, x: tf.nn.log_softmax(x),
    "norm": lambda tf, x: tf.norm(x),
    "norm 1": lambda tf, x: tf.norm(x, 1),
    "norm 3": lambda tf, x: tf.norm(x, 3),
    "norm inf": lambda tf, x: tf.norm(x, np.inf),
    "l2_normalize": lambda tf, x: tf.nn.l2_normalize(x, 0),
    "clip_by_norm": lambda tf, x: tf.clip_by_norm(x, 1.0),
    "clip_by_average_norm": lambda tf, x: tf.clip_by_average_norm(x, 1.0),
    "reduce_prod": lambda tf, x: tf.reduce_prod(x),
    "reduce_max": lambda tf, x: tf.reduce_max(x),
    "reduce_min": lambda tf, x: tf.reduce_min(x),
    "reduce_logsumexp": lambda tf, x: tf.reduce_logsumexp(x),
    "reduce_std": lambda tf, x: tf.math.reduce_std(x),
    "cumprod": lambda tf, x: tf.cumprod(x),
    "moments": lambda tf, x: tf.nn.moments(x, [0]),
}
for name, function in OF_VECTORS.items():
    for which, vector in VECTORS.items():
        case(f"{name} of {which}", function, np.array(vector, "float32"))
for which in ("zeros", "one zero", "minus inf", "nothing but minus inf", "single"):
    for dtype in ("float16", "float32"):
        case(
            f"cumulative_logsumexp of {which} {dtype}",
            lambda tf, x: tf.math.cumulative_logsumexp(x),
            np.array(VECTORS[which], dtype),
        )

LOGITS = np.array([[0, 0, 0], [INF, 1, 2], [-INF, 0, 1], [1, NAN, 0], [-INF, -INF, 3]], "float32")
case(
    "sparse cross entropy",
    lambda tf, x: tf.nn.sparse_softmax_cross_entropy_with_logits(logits=x, labels=[0, 1, 2, 1, 2]),
    LOGITS,
)
case(
    "cross entropy",
    lambda tf, x: tf.nn.softmax_cross_entropy_with_logits_v2(
        logits=x, labels=np.eye(5, 3, dtype="f")
    ),
    LOGITS,
)

MASKED = {
    "sqrt": lambda tf, x: tf.where(x > 0, tf.sqrt(x), x * 0),
    "rsqrt": lambda tf, x: tf.where(x > 0, tf.math.rsqrt(x), x * 0),
    "reciprocal": lambda tf, x: tf.where(x > 0, tf.math.reciprocal(x), x * 0),
    "log": lambda tf, x: tf.where(x > 0, tf.math.log(x), x * 0),
    "power": lambda tf, x: tf.where(x > 0, x**0.5, x * 0),
    "acos": lambda tf, x: tf.where(tf.abs(x) < 1, tf.acos(x), x * 0),
}
for name, function in MASKED.items():
    case("masked " + name, function, EDGES[:-1].astype("float32"))


def distances(tf, x):
    """Distances between rows, as losses on triplets take them: each row is 0 from itself."""
    return tf.sqrt(tf.reduce_sum(tf.square(x[:, None] - x[None]), -1))


def masked_distances(tf, x):
    d = tf.reduce_sum(tf.square(x[:, None] - x[None]), -1)
    return tf.where(d > 0, tf.sqrt(d), tf.zeros_like(d))


ROWS = np.array([[0, 1], [1, 1], [1, 1], [2, 0]], "float32")
case("distances", distances, ROWS)
case("masked distances", masked_distances, ROWS)

for name in ("sqrt", "rsqrt", "reciprocal", "abs", "square", "exp", "tanh", "sigmoid"):
    case(
        name + " complex128",
        lambda tf, x, n=name: named(tf.math, n)(x),
        POINTS if name in ("abs", "square", "exp", "tanh", "sigmoid") else POINTS[4:],
    )
    case(name + " complex128 masked", lambda tf, x, n=name: named(tf.math, n)(x) * 0, POINTS[4:])
case("complex norm", lambda tf, x: tf.norm(x), np.zeros(3, "complex64"))
case("complex norm 3", lambda tf, x: tf.norm(x, 3), np.array([0, 0, 0], "complex64"))
case("complex norm 3 in part", lambda tf, x: tf.norm(x, 3), np.array([0, 3 + 4j], "complex64"))

SECOND = [
    "sqrt",
    "rsqrt",
    "reciprocal",
    "log",
    "log1p",
    "atan",
    "atanh",
    "square",
    "exp",
    "tanh",
    "sigmoid",
]


def first_gradient(name):
    def build(tf, x, dy):
        return tf.gradients(named(tf.math, name)(x), x, dy)[0]

    return build


for name in SECOND:
    x, dy = [a.ravel() for a in np.meshgrid(EDGES, [0.0, 1.0, -1.5])]
    # Of Sqrt's second gradient by dy TensorFlow makes NaN behind a mask, where 0 is meant.
    keep = np.isfinite(x) & (x > 0) if name == "sqrt" else x < INF
    case("second " + name, first_gradient(name), x[keep], dy[keep])
ARRIVING = {
    "zeros": lambda n: np.zeros(n),
    "ones": lambda n: np.ones(n),
    "some": lambda n: -1.5 * (np.arange(n) % 2),
}


def run(tf, session, name):
    """Yields (key, array): a case's results, and the gradients for each way dy arrives."""
    function, inputs = CASES[name]
    tensors = [tf.placeholder(a.dtype, a.shape) for a in inputs]
    results = tf.nest.flatten(function(tf, *tensors))
    feeds = dict(zip(tensors, inputs))
    values = session.run(results, feeds)
    for i, value in enumerate(values):
        yield f"result{i}", np.asarray(value)
    arriving = [tf.placeholder(y.dtype, np.shape(v)) for y, v in zip(results, values)]
    gradients = tf.gradients(results, tensors, arriving)
    for way, make in sorted(ARRIVING.items()):
        for dy, value in zip(arriving, values):
            value = np.asarray(value)
            feeds[dy] = make(value.size).reshape(value.shape).astype(value.dtype)
        for i, value in enumerate(session.run(gradients, feeds)):
            yield f"{way} gradient{i}", np.asarray(value)
