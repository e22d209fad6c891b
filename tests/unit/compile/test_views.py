"""Views of views: what of the memory below they see, without a copy in between."""

from __future__ import annotations

import numpy as np
import pytest

import headrace as tf
from headrace._src.compile.regions.region import _seen_through
from headrace._src.lowering.rules import View, row_major
from tests.unit.compile.steps import assert_tiers_agree, uniform


def view_of(array: np.ndarray, base: np.ndarray) -> View:
    """How an array lies in the elements of another."""
    size = base.itemsize
    start = array.__array_interface__["data"][0] - base.__array_interface__["data"][0]
    return View(array.shape, tuple(s // size for s in array.strides), start // size)


def look(view: View, elements: np.ndarray) -> np.ndarray:
    at = np.full(view.shape, view.offset)
    for d, stride in enumerate(view.strides):
        steps = np.arange(view.shape[d]) * stride
        at += steps.reshape([-1 if i == d else 1 for i in range(len(view.shape))])
    return elements.ravel()[at]


@pytest.mark.parametrize(
    "outer",
    [
        lambda x: x[1],
        lambda x: x[:, 1:3],
        lambda x: x[2, ::2, 1],
        lambda x: x.transpose(1, 0, 2, 3)[:, 1:],
        lambda x: np.broadcast_to(x[0], (5, *x.shape[1:])),
        lambda x: x.reshape(3, 2, 2, 5, 32),
    ],
)
def test_what_is_seen(outer):
    base = np.arange(5 * 3 * 4 * 32).reshape(5, 3, 4, 32)
    inner = base.transpose(1, 2, 0, 3)
    whole = np.ascontiguousarray(inner)
    composed = _seen_through(view_of(inner, base), view_of(outer(whole), whole))
    assert composed is not None
    np.testing.assert_array_equal(look(composed, base), outer(whole))


@pytest.mark.parametrize(
    "outer",
    [
        lambda x: x.reshape(3, 4 * 5, 32),  # dimensions that aren't next to each other below
        lambda x: x[:, ::-1],
        lambda x: x.transpose(0, 1, 3, 2),  # no neighbours
        lambda x: np.lib.stride_tricks.as_strided(x, (2, 40), (x.strides[0], x.strides[3])),
    ],
)
def test_what_has_no_strides_below(outer):
    base = np.arange(5 * 3 * 4 * 32).reshape(5, 3, 4, 32)
    inner = base.transpose(1, 2, 0, 3)
    whole = np.ascontiguousarray(inner)
    assert row_major(inner.shape) == view_of(whole, whole).strides
    assert _seen_through(view_of(inner, base), view_of(outer(whole), whole)) is None


def test_attention_reads_its_heads_where_they_are():
    rng = np.random.default_rng(0)
    given = rng.standard_normal((2, 8, 3 * 4 * 16), np.float32)
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, given.shape)
        parts = tf.reshape(tf.tanh(x), [2, 8, 3, 4, 16])
        q, k, v = tf.unstack(tf.transpose(parts, [2, 0, 3, 1, 4]))
        seen = tf.matmul(tf.nn.softmax(tf.matmul(q, k, transpose_b=True)), v)
        with tf.Session() as session:
            first = session.run(seen, {x: given})  # interpreted
            np.testing.assert_allclose(session.run(seen, {x: given}), first, 1e-5, 1e-6)


@pytest.mark.needs_llvm
@pytest.mark.parametrize("multiples", [(2, 1, 1), (1, 1, 3), (2, 3, 1)])
@pytest.mark.parametrize(
    "piece", [lambda x: x[1:], lambda x: x[:, :, 32:], lambda x: tf.transpose(x, [1, 0, 2])]
)
def test_what_is_tiled_of_a_view_is_copied(piece, multiples):
    """A tiling has more dimensions than its result: no kernel can read it in the result's."""
    with tf.Graph().as_default():
        x = tf.get_variable("x", initializer=uniform(8, 1, 64))
        assert_tiers_agree([tf.exp(tf.tile(piece(x), multiples)) * 2.0 + 1.0])
