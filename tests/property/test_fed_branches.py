"""Random networks with branches on fed predicates train alike as primitives, in structured form and
compiled: batch normalization, dropout, layers and updates that a branch holds, in sequence and
nested, with gradients and an optimizer.
"""

from typing import NamedTuple

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as tf

PREDICATES = 2
WIDTH, ROWS = 3, 4
PRIMITIVES = {"opt_level": tf.OptimizerOptions.L0}
STRUCTURED = {"global_jit_level": tf.OptimizerOptions.OFF}
COMPILED = {"global_jit_level": tf.OptimizerOptions.ON_1}
OPTIMIZERS = {
    "sgd": lambda: tf.train.GradientDescentOptimizer(0.1),
    "momentum": lambda: tf.train.MomentumOptimizer(0.1, 0.9),
    "adam": lambda: tf.train.AdamOptimizer(0.01),
}


class Dense(NamedTuple):
    """A fully connected layer, with an activation."""

    activation: str


class Normal(NamedTuple):
    """Batch normalization with moments of the batch if the predicate is true."""

    predicate: int


class Drop(NamedTuple):
    """Dropout if the predicate is true."""

    predicate: int


class Count(NamedTuple):
    """Add 1 to a variable if the predicate is true, and scale by it."""

    predicate: int


class If(NamedTuple):
    """One stack of layers or another."""

    predicate: int
    then: list
    otherwise: list


predicate = st.integers(0, PREDICATES - 1)
layer = st.one_of(
    st.builds(Dense, st.sampled_from(["relu", "tanh"])),
    st.builds(Normal, predicate),
    st.builds(Drop, predicate),
    st.builds(Count, predicate),
)


def stacks(inner):
    return st.lists(inner, min_size=1, max_size=3)


network = stacks(
    st.recursive(
        layer, lambda inner: st.builds(If, predicate, stacks(inner), stacks(inner)), max_leaves=5
    )
)
flags = st.lists(st.tuples(*[st.booleans()] * PREDICATES), min_size=2, max_size=3)


class Builder:
    """Builds a network; the variables are numbered, and begin with numbers of their own."""

    def __init__(self, predicates, resource):
        self.predicates = predicates
        self.resource = resource
        self.made = 0
        self.updates = []

    def variable(self, shape, value=None, trainable=True):
        self.made += 1
        if value is None:
            value = np.sin(np.arange(np.prod(shape)) + self.made).reshape(shape)
        initial = np.full(shape, value, np.float32)
        with tf.init_scope():
            return tf.get_variable(
                f"v{self.made}",
                initializer=initial,
                trainable=trainable,
                use_resource=self.resource,
            )

    def stack(self, layers, x, inside=False):
        for each in layers:
            x = self.layer(each, x, inside)
        return x

    def layer(self, each, x, inside):
        if isinstance(each, Dense):
            w, bias = self.variable([WIDTH, WIDTH]), self.variable([WIDTH])
            return getattr(tf.nn, each.activation)(tf.matmul(x, w) + bias)
        pred = self.predicates[each.predicate]
        if isinstance(each, Normal):
            return self.normal(pred, x, inside)
        if isinstance(each, Drop):
            seed = self.made
            return tf.cond(pred, lambda: tf.nn.dropout(x, rate=0.25, seed=seed), lambda: x)
        if isinstance(each, Count):
            count = self.variable([], 1.0, trainable=False)
            return x / tf.cond(pred, lambda: count.assign_add(1.0) + 0.0, lambda: count + 0.0)
        return tf.cond(
            pred,
            lambda: self.stack(each.then, x, True),
            lambda: self.stack(each.otherwise, x, True),
        )

    def normal(self, pred, x, inside):
        beta = self.variable([WIDTH], 0.0)
        mean = self.variable([WIDTH], 0.5, trainable=False)
        variance = self.variable([WIDTH], 2.0, trainable=False)
        moments = tf.cond(pred, lambda: tf.nn.moments(x, [0]), lambda: (mean + 0.0, variance + 0.0))

        def update(variable, value):
            return tf.cond(
                pred, lambda: variable.assign_sub((variable - value) * 0.1).op, lambda: tf.no_op()
            )

        if not inside:
            self.updates += [update(mean, moments[0]), update(variance, moments[1])]
        return tf.nn.batch_normalization(x, *moments, beta, None, 1e-3)


def train(layers, fed, optimizer, resource, options):
    """The losses of the steps, and all variables after them."""
    with tf.Graph().as_default():
        tf.set_random_seed(3)
        x = tf.placeholder(tf.float32, [None, WIDTH])
        predicates = [tf.placeholder(tf.bool, []) for _ in range(PREDICATES)]
        builder = Builder(predicates, resource)
        w = builder.variable([WIDTH, 2])
        out = tf.matmul(builder.stack([Dense("tanh"), *layers], x), w)
        loss = tf.reduce_mean(tf.square(out - 0.5))
        with tf.control_dependencies(builder.updates):
            step = OPTIMIZERS[optimizer]().minimize(loss)
        graph_options = tf.GraphOptions(optimizer_options=tf.OptimizerOptions(**options))
        with tf.Session(config=tf.ConfigProto(graph_options=graph_options)) as session:
            session.run(tf.global_variables_initializer())
            losses = []
            for i, values in enumerate(fed):
                batch = np.cos(np.arange(ROWS * WIDTH) * (i + 1.0)).reshape(ROWS, WIDTH)
                feeds = {x: batch, **dict(zip(predicates, values, strict=True))}
                losses.append(session.run([loss, step], feeds)[0])
            return [np.array(losses), *session.run(tf.global_variables())]


def check(one, other):
    for a, b in zip(one, other, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)


@settings(max_examples=20)
@given(network, flags, st.sampled_from(sorted(OPTIMIZERS)), st.booleans())
def test_primitives_and_structured(layers, fed, optimizer, resource):
    given_ = layers, fed, optimizer, resource
    check(train(*given_, PRIMITIVES), train(*given_, STRUCTURED))


@settings(max_examples=6)
@given(network, flags, st.sampled_from(sorted(OPTIMIZERS)), st.booleans())
def test_compiled(layers, fed, optimizer, resource):
    given_ = layers, fed, optimizer, resource
    check(train(*given_, COMPILED), train(*given_, STRUCTURED))


def test_a_stack_of_normalized_layers_with_dropout():
    layers = [Dense("relu"), Normal(0), Drop(0)] * 3
    fed = [(True, False), (False, True), (True, True)]
    given_ = layers, fed, "adam", False
    expected = train(*given_, STRUCTURED)
    check(train(*given_, PRIMITIVES), expected)
    check(train(*given_, COMPILED), expected)
