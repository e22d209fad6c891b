"""Random steps for tests. In: hypothesis's choices. Out: tensors of a graph, and values to feed.

Every operation keeps values around 1, so that rounding differences stay small through a step, and
is continuous, so that they don't turn into large ones.
"""

from math import prod

import numpy as np
from hypothesis import strategies as st

import headrace as tf

SIZES = st.sampled_from([1, 2, 3, 5, 8, 16, 17, 33, 40])
SHAPES = st.lists(SIZES, min_size=0, max_size=4)
MATRICES = st.lists(SIZES, min_size=2, max_size=3)
IMAGES = st.tuples(st.just(2), st.integers(1, 9), st.integers(1, 9), st.sampled_from([3, 16, 32]))
LARGEST = 40_000  # elements of a value
SMOOTH = {
    "tanh": tf.tanh,
    "sigmoid": tf.sigmoid,
    "negative": tf.negative,
    "square": lambda x: tf.square(tf.tanh(x)),
    "exp": lambda x: tf.exp(-tf.square(x)),
    "sqrt": lambda x: tf.sqrt(tf.square(x) + 0.5),
    "scale": lambda x: x * 0.7 + 0.2,
    "inverse": lambda x: 1.0 / (tf.square(x) + 1.0),
}
KINKED = {
    "relu": tf.nn.relu,
    "abs": tf.abs,
    "clip": lambda x: tf.clip_by_value(x, -0.6, 0.8),
    "where": lambda x: tf.where(tf.ones_like(x, tf.bool), x, tf.zeros_like(x)),
}
WHOLE = {
    "negative": tf.negative,
    "wrap": lambda x: x * 1_000_003 + 7,
    "mod": lambda x: tf.floormod(x, 7),
    "sign": tf.sign,
    "float": lambda x: tf.cast(tf.cast(tf.floormod(x, 100), tf.float32) * 0.5, x.dtype),
}
BINARY = {"add": tf.add, "sub": tf.subtract, "mul": tf.multiply}
KINKED_BINARY = {"max": tf.maximum, "min": tf.minimum}


class Step:
    """A step in the making: `values` are tensors of known shapes, `feeds` arrays by placeholder,
    `updates` operations that change variables.
    """

    def __init__(self, draw, smooth=False):
        self.draw = draw
        self.smooth = smooth
        self.values = []
        self.feeds = {}
        self.updates = []
        self.variables = []
        self._rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1), label="seed"))

    # -- Sources ---------------------------------------------------------------------------------

    def array(self, shape, dtype):
        if dtype.is_integer:
            return self._rng.integers(-9, 9, shape).astype(dtype.as_numpy_dtype)
        return self._rng.uniform(-1, 1, shape).astype(dtype.as_numpy_dtype)

    def placeholder(self, shape, dtype):
        tensor = tf.placeholder(dtype, [None if self.draw(st.booleans()) else n for n in shape])
        self.feeds[tensor] = self.array(shape, dtype)
        tensor = tf.identity(tensor)
        tensor.set_shape(shape)
        self.values.append(tensor)
        return tensor

    def variable(self, shape, dtype):
        handle = self.draw(st.booleans(), label="resource variable")
        made = tf.Variable(self.array(shape, dtype), use_resource=handle)
        self.variables.append(made)
        return made

    def start(self, dtypes, shapes=SHAPES):
        """Give the step one or two values to begin with."""
        dtype = self.draw(st.sampled_from(dtypes), label="dtype")
        for _ in range(self.draw(st.integers(1, 2))):
            shape = tuple(self.draw(shapes, label="shape"))
            while prod(shape) > LARGEST // 8:
                shape = shape[1:]
            if self.draw(st.booleans(), label="starts with a variable"):
                self.values.append(self.variable(shape, dtype).read_value())
            else:
                self.placeholder(shape, dtype)

    def pick(self):
        return self.draw(st.sampled_from(self.values), label="operand")

    # -- One operation more ----------------------------------------------------------------------

    def grow(self, kinds):
        """Add an operation of one of the kinds on some value, if it fits."""
        kind = self.draw(st.sampled_from(kinds), label="kind")
        x = self.pick()
        made = getattr(self, kind)(x, tuple(x.shape.as_list()))
        if made is not None and prod(made.shape.as_list()) <= LARGEST:
            self.values.append(made)

    def unary(self, x, shape):
        table = WHOLE if x.dtype.is_integer else SMOOTH if self.smooth else {**SMOOTH, **KINKED}
        return table[self.draw(st.sampled_from(sorted(table)), label="function")](x)

    def binary(self, x, shape):
        table = BINARY if self.smooth else {**BINARY, **KINKED_BINARY}
        function = table[self.draw(st.sampled_from(sorted(table)), label="function")]
        fitting = [v for v in self.values if _broadcast(shape, tuple(v.shape.as_list()))]
        other = self.draw(st.sampled_from(fitting), label="other")
        if self.draw(st.booleans(), label="with something new"):
            keep = [n if self.draw(st.booleans()) else 1 for n in shape]
            skip = self.draw(st.integers(0, len(shape)))
            other = tf.constant(self.array(keep[skip:], x.dtype.base_dtype))
        return function(x, other) if self.draw(st.booleans()) else function(other, x)

    def reduce(self, x, shape):
        names = ["sum", "mean"] if self.smooth else ["sum", "mean", "max", "min"]
        name = self.draw(st.sampled_from(names), label="reduction")
        axes = [d for d in range(len(shape)) if self.draw(st.booleans(), label=f"axis {d}")]
        keep = self.draw(st.booleans(), label="keepdims")
        if x.dtype.is_integer:
            name = "sum"
        reduced = getattr(tf, f"reduce_{name}")(x, axes, keepdims=keep)
        size = float(prod(shape[d] for d in axes))
        return reduced / size if name == "sum" and not x.dtype.is_integer else reduced

    def reshape(self, x, shape):
        flat = prod(shape)
        factors = [n for n in (1, 2, 4, 5, 16) if flat % n == 0]
        first = self.draw(st.sampled_from(factors), label="factor")
        options = [[-1], [first, flat // first], [flat // first, 1, first], [*shape, 1]]
        return tf.reshape(x, self.draw(st.sampled_from(options), label="new shape"))

    def transpose(self, x, shape):
        return tf.transpose(x, self.draw(st.permutations(range(len(shape))), label="order"))

    def slice(self, x, shape):
        index = []
        for n in shape:
            start, stop = sorted(self.draw(st.tuples(*[st.integers(0, n)] * 2), label="range"))
            if start == stop:
                start, stop = 0, n
            step = self.draw(st.sampled_from([1, 1, 2, -1]), label="step")
            index.append(slice(start, stop, step) if step > 0 else slice(None, None, step))
        if shape and self.draw(st.booleans(), label="drop an axis"):
            index[0] = shape[0] - 1
        return x[tuple(index)] if index else None

    def concat(self, x, shape):
        others = [v for v in self.values if tuple(v.shape.as_list()) == shape]
        axis = self.draw(st.integers(0, max(len(shape) - 1, 0)), label="axis")
        other = self.draw(st.sampled_from(others), label="other")
        return tf.concat([x, other, x], axis) if shape else tf.stack([x, other])

    def spread(self, x, shape):
        if not shape:
            return tf.fill([3], x)
        paddings = [self.draw(st.tuples(*[st.integers(0, 2)] * 2), label="pad") for _ in shape]
        how = self.draw(st.sampled_from(["pad", "tile", "unstack", "split"]), label="how")
        if how == "pad":
            return tf.pad(x, paddings, constant_values=1)
        if how == "tile":
            return tf.tile(x, [1 + (i == 0) for i in range(len(shape))])
        if how == "unstack" and shape[0] <= 5:
            return tf.add_n(tf.unstack(x))
        return tf.split(x, [1, shape[0] - 1])[1] if shape[0] > 1 else None

    def matmul(self, x, shape):
        if len(shape) < 2 or x.dtype.is_integer:
            return None
        inner, width = shape[-1], self.draw(SIZES, label="columns")
        how = self.draw(st.sampled_from(["plain", "a", "b", "self"]), label="transposed")
        if how == "self":
            return tf.matmul(x, x, transpose_a=True) / float(shape[-2])
        if how == "a":
            inner = shape[-2]
        sizes = (width, inner) if how == "b" else (inner, width)
        weights = self.variable(sizes, x.dtype.base_dtype).read_value() / float(inner)
        if len(shape) > 2:
            weights = tf.broadcast_to(weights, (*shape[:-2], *sizes))
        return tf.matmul(x, weights, transpose_a=how == "a", transpose_b=how == "b")

    def convolution(self, x, shape):
        """Filters, a bias and relu over an image."""
        if x.dtype.base_dtype != tf.float32 or len(shape) != 4 or min(shape) < 1:
            return None
        filters = self.draw(st.sampled_from([3, 16, 32]), label="filters")
        taps = self.draw(st.sampled_from([1, 3, 5]), label="taps")
        stride = self.draw(st.sampled_from([1, 1, 2]), label="stride")
        if shape[3] * filters * taps > 5000:
            return None
        weights = self.variable((taps, taps, shape[3], filters), tf.float32).read_value()
        weights = weights / float(taps * shape[3])
        image = tf.nn.conv2d(x, weights, [1, stride, stride, 1], "SAME")
        if self.draw(st.booleans(), label="biased"):
            image = tf.nn.bias_add(image, self.variable((filters,), tf.float32).read_value())
        return image if self.smooth else tf.nn.relu(image)

    def pool(self, x, shape):
        if x.dtype.base_dtype != tf.float32 or len(shape) != 4:
            return None
        taps = self.draw(st.sampled_from([2, 3]), label="taps")
        mean = self.smooth or self.draw(st.booleans(), label="mean")
        function = tf.nn.avg_pool if mean else tf.nn.max_pool
        padding = "VALID" if min(shape[1:3]) >= taps and self.draw(st.booleans()) else "SAME"
        return function(x, [1, taps, taps, 1], [1, 2, 2, 1], padding)

    def update(self, x, shape):
        """Change a variable, and read it again."""
        fitting = [v for v in self.variables if tuple(v.shape.as_list()) == shape]
        v = self.draw(st.sampled_from([*fitting, None]), label="variable")
        if v is None or v.dtype.base_dtype != x.dtype.base_dtype:
            v = self.variable(shape, x.dtype.base_dtype)
        method = self.draw(st.sampled_from(["assign", "assign_add", "assign_sub"]), label="method")
        with tf.control_dependencies([self.pick()] if self.draw(st.booleans()) else None):
            changed = getattr(v, method)(x, read_value=False)
        self.updates.append(changed)
        with tf.control_dependencies([changed] if self.draw(st.booleans()) else None):
            read = v.read_value()
        return read if x.dtype.is_integer else tf.tanh(read)


def _broadcast(a, b):
    try:
        return prod(np.broadcast_shapes(a, b)) <= LARGEST
    except ValueError:
        return False
