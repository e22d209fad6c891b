"""Rules of algebra: what they do, and what they must leave alone."""

import numpy as np
import pytest

import headrace as tf
from headrace._src.ops.base.define import build
from headrace._src.optimize.dead import remove_dead
from headrace._src.optimize.simplify import simplify
from tests.unit.optimize.flows import after, flow, node, types


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def left(build_y, dtype="float32", shape=(2, 3)):
    """The op types that are left of y(x)."""
    x = tf.placeholder(dtype, [None] * len(shape), name="x")
    made = after(simplify, flow(build_y(x), {x: shape}))
    return types(after(remove_dead, made))


NOTHING = {
    "x * 1": lambda x: x * 1.0,
    "ones * x": lambda x: tf.ones([3]) * x,
    "x - 0": lambda x: x - 0.0,
    "x + -0.0": lambda x: x + np.float32(-0.0),
    "x / 1": lambda x: x / 1.0,
    "x ** 1": lambda x: x**1.0,
    "neg neg": lambda x: tf.negative(tf.negative(x)),
    "max(x, x)": lambda x: tf.maximum(x, x),
    "identity": tf.identity,
    "stop_gradient": tf.stop_gradient,
    "identity_n": lambda x: tf.identity_n([x])[0],
    "same type": lambda x: build("Cast", x=x, DstT="float32"),
    "same shape": lambda x: tf.reshape(x, tf.shape(x)),
    "there and back": lambda x: tf.reshape(tf.reshape(x, [-1]), [2, 3]),
    "one axis more": lambda x: tf.squeeze(tf.expand_dims(x, 0), 0),
    "transposed twice": lambda x: tf.transpose(tf.transpose(x)),
    "in order": lambda x: tf.transpose(x, [0, 1]),
    "sum of nothing": lambda x: tf.reduce_sum(x, []),
    "add_n of one": lambda x: build("AddN", inputs=[x]),
    "chosen": lambda x: tf.where(tf.fill(tf.shape(x), True), x, x + 1.0),
    "pad by 0": lambda x: tf.pad(x, [[0, 0], [0, 0]]),
    "whole": lambda x: x[:, :],
    "whole slice": lambda x: tf.slice(x, [0, 0], [-1, -1]),
    "tile by 1": lambda x: tf.tile(x, [1, 1]),
    "broadcast to itself": lambda x: tf.broadcast_to(x, tf.shape(x)),
    "split and joined": lambda x: tf.concat(tf.split(x, 3, axis=1), -1),
    "joined and split": lambda x: tf.split(tf.concat([x, x], 0), 2, axis=0)[0],
    "unstacked and stacked": lambda x: tf.stack(tf.unstack(x, num=3, axis=1), axis=-1),
    "stacked and unstacked": lambda x: tf.unstack(tf.stack([x, x]))[0],
    "ensured": lambda x: tf.ensure_shape(x, [None, 3]),
    "zeros": tf.zeros_like,
}


@pytest.mark.parametrize("name", NOTHING)
def test_nothing_is_left(name):
    assert left(NOTHING[name]) == []


KEPT = {
    # -0.0 + 0.0 is 0.0; infinity * 0 is NaN; 0.0 - 0.0 is 0.0.
    "x + 0": (lambda x: x + 0.0, ["AddV2"]),
    "x - -0.0": (lambda x: x - np.float32(-0.0), ["Sub"]),
    "x * 0": (lambda x: x * 0.0, ["Mul"]),
    "0 - x": (lambda x: 0.0 - x, ["Sub"]),
    "a larger one": (lambda x: tf.ones([4, 1, 1]) * x, ["Mul"]),
    "floor(x / 1)": (lambda x: x // 1.0, ["FloorDiv"]),
    "another order": (lambda x: tf.transpose(x, [1, 0]), ["Transpose"]),
    "backwards": (lambda x: x[::-1], ["StridedSlice"]),
    "joined otherwise": (
        lambda x: tf.concat(list(reversed(tf.split(x, 3, axis=1))), 1),
        ["Split", "ConcatV2"],
    ),
    "joined elsewhere": (lambda x: tf.concat(tf.split(x, 3, axis=1), 0), ["Split", "ConcatV2"]),
}


@pytest.mark.parametrize("name", KEPT)
def test_what_is_not_the_same_is_kept(name):
    make, expected = KEPT[name]
    assert left(make) == expected


def test_integers_have_one_zero():
    assert left(lambda x: (x + 0) * 1 // 1, "int32") == []
    assert left(lambda x: 0 - x, "int32") == ["Neg"]


def test_infinity_times_a_complex_one_is_no_infinity():
    assert left(lambda x: x * 1.0, "complex64") == ["Mul"]


def test_simpler_forms():
    assert left(lambda x: x**2.0) == ["Square"]
    assert left(lambda x: np.float32(-0.0) - x) == ["Neg"]
    assert left(lambda x: tf.reshape(tf.expand_dims(x, 0), [3, 2])) == ["Reshape"]


def test_a_number_takes_the_sign():
    assert left(lambda x: -x * 0.5) == ["Mul"]
    assert left(lambda x: 0.5 * -x) == ["Mul"]
    assert left(lambda x: -x * np.float32([1, 2, 3])) == ["Neg", "Mul"]
    assert left(lambda x: -x * 2, "int32") == ["Neg", "Mul"]
    x = tf.placeholder(tf.float32, [4])
    values = np.float32([0.0, -0.0, 7.5, 3e-45])
    with tf.Session() as session:
        for number in (0.3, -0.0, 1e-30):
            found = session.run(-x * np.float32(number), {x: values})
            assert found.tobytes() == (-values * np.float32(number)).tobytes()


def test_a_shape_that_is_only_declared_is_not_relied_on():
    """A program may have set it wrongly; the reshape then does something."""
    x = tf.placeholder(tf.float32, [2, 3])
    unknown = tf.py_func(lambda a: a, [x], tf.float32)
    unknown.set_shape([None])
    y = tf.exp(tf.reshape(unknown, [-1]))
    made = types(after(remove_dead, after(simplify, flow(y, {x: (2, 3)}))))
    assert "Reshape" in made


def test_a_vector_of_unknown_length_is_reshaped_to_itself():
    """The gradient of a lookup in shards does so with the indices of each shard."""
    x = tf.placeholder(tf.float32, [6])
    rows = tf.dynamic_partition(x, [0, 1, 0, 1, 1, 0], 2)
    y = [tf.exp(tf.reshape(r, [-1])) for r in rows]
    made = types(after(remove_dead, after(simplify, flow(y, {x: (6,)}))))
    assert made == ["DynamicPartition", "Exp", "Exp"]


def test_a_vector_of_unknown_length_becomes_a_column():
    x = tf.placeholder(tf.float32, [6])
    rows = tf.dynamic_partition(x, [0, 1, 0, 1, 1, 0], 2)
    y = [tf.exp(tf.expand_dims(r, [-1])) for r in rows]
    made = types(after(remove_dead, after(simplify, flow(y, {x: (6,)}))))
    assert made.count("ExpandDims") == 2


def test_transpositions_are_joined():
    x = tf.placeholder(tf.float32, [2, 3, 4])
    y = tf.transpose(tf.transpose(x, [1, 0, 2]), [0, 2, 1], name="y")
    made = after(remove_dead, after(simplify, flow(y, {x: (2, 3, 4)})))
    assert types(made) == ["Transpose"]
    assert node(made, "y").constant_input(1).tolist() == [1, 2, 0]


def test_broadcasts():
    def twice(x):
        return tf.broadcast_to(tf.broadcast_to(x[:1], [2, 3]), [4, 2, 3])

    assert left(twice).count("BroadcastTo") == 1
    assert "Tile" not in left(lambda x: tf.tile(x, [4, 1]), shape=(1, 3))
    assert "Tile" in left(lambda x: tf.tile(x, [4, 1]))
    assert left(lambda x: tf.broadcast_to(x[0], [2, 3]) * tf.exp(x)).count("BroadcastTo") == 0
    kept = left(lambda x: tf.broadcast_to(x[:, :1], [2, 3]) + x[:1])  # gives the result its shape
    assert kept.count("BroadcastTo") == 1


@pytest.mark.parametrize("reduce", [tf.reduce_max, tf.reduce_min])
def test_the_extreme_of_one_element_repeated(reduce):
    for axes, keep in ((0, False), ([0, 1], True), (-3, True)):

        def made(x, axes=axes, keep=keep):
            return reduce(tf.broadcast_to(x, [4, 1, 3]), axes, keep)

        found = left(made, shape=(3,))
        assert not {"Max", "Min", "BroadcastTo"} & set(found), (axes, keep)
    kept = left(lambda x: reduce(tf.broadcast_to(x, [4, 3]), [0, 1]), shape=(3,))
    assert {"Max", "Min"} & set(kept)


def test_a_node_that_waits_for_what_its_input_does_not_stays():
    x = tf.placeholder(tf.float32, [2])
    check = tf.Assert(tf.reduce_all(x > 0), [x])
    with tf.control_dependencies([check]):
        y = tf.identity(x, name="y")
    assert "Identity" in types(after(simplify, flow(y + 1.0, {x: (2,)})))


def test_what_waits_through_a_constant_keeps_waiting():
    x = tf.placeholder(tf.float32, [2])
    check = tf.Assert(tf.reduce_all(x > 0), [x], name="check")
    with tf.control_dependencies([check]):
        y = tf.multiply(x, tf.constant(1.0), name="y")
        z = tf.multiply(x, tf.constant([3.0, 3.0]), name="z")
    made = after(simplify, flow([y, z], {x: (2,)}))
    assert node(made, "y").type == "Mul"
    assert [c.name for c in node(made, "z").controls] == ["check/AssertGuard/Merge"]
    assert node(made, "z").constant_input(1).shape == ()


def test_a_read_after_a_write_needs_no_identity():
    v = tf.Variable(1.0, use_resource=False)
    with tf.control_dependencies([tf.assign(v, 2.0)]):
        y = tf.identity(v._ref())
    assert "Identity" not in types(after(simplify, flow(y)))


def test_a_fetch_that_became_a_feed_is_a_copy_and_a_scalar_is_one():
    x = tf.placeholder(tf.float32, [2])
    s = tf.placeholder(tf.float32, [])
    given = np.float32([1, 2])
    with tf.Session() as session:
        y, scalar, echoed = session.run([tf.identity(x), tf.identity(s), s], {x: given, s: 3.0})
    y[0] = 100
    assert given.tolist() == [1, 2]
    assert isinstance(scalar, np.float32)
    assert isinstance(echoed, np.ndarray)
