"""Matrix products: exact integers, einsum's grammar, and what is refused."""

import numpy as np
import pytest

import headrace as tf
from headrace._src.ops.linalg import matmul


def product(x, y):
    with tf.Graph().as_default(), tf.Session() as session:
        return session.run(tf.matmul(x, y))


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("bits", [8, 20, 30])
def test_integer_products_are_exact_modulo_the_type(dtype, bits):
    rng = np.random.default_rng(bits)
    high = 2**bits if dtype == np.int32 else 2 ** (2 * bits)
    x, y = (rng.integers(-high, high, s).astype(dtype) for s in ((17, 33), (33, 25)))
    expected = (x.astype(object) @ y.astype(object)) % 2 ** (8 * x.itemsize)
    assert np.array_equal(product(x, y).view(f"u{x.itemsize}"), expected.astype(f"u{x.itemsize}"))


def test_narrow_floats_are_rounded_once():
    x = np.full((1, 4096), 0.1, np.float16)
    assert product(x, x.T)[0, 0] == np.float16(np.float32(x[0, 0]) ** 2 * 4096)


def test_native_kernel_leaves_small_products_to_numpy():
    x = np.ones((2, 3, 3), np.float32)
    found = matmul._native_batch_mat_mul(x, x, adj_x=False, adj_y=False)
    assert found is NotImplemented
    found = matmul._native_mat_mul(x[0], x[0], transpose_a=False, transpose_b=False)
    assert found is NotImplemented


def test_operands_that_do_not_fit():
    with tf.Graph().as_default(), tf.Session() as session:
        x, y = tf.placeholder(tf.float32), tf.placeholder(tf.float32)
        z = tf.matmul(x, y)
        with pytest.raises(
            tf.errors.InvalidArgumentError, match=r"In\[0\] mismatch In\[1\] shape: 3 vs. 2"
        ):
            session.run(z, {x: np.ones((2, 3)), y: np.ones((2, 3))})
        with pytest.raises(tf.errors.InvalidArgumentError, match="ndims must be >= 2"):
            session.run(z, {x: np.ones(3), y: np.ones((3, 3))})
        with pytest.raises(ValueError, match="Only one of transpose_a and adjoint_a"):
            tf.matmul(x, y, transpose_a=True, adjoint_a=True)


@pytest.mark.parametrize(
    ("equation", "shapes", "message"),
    [
        ("ij,jk->ikm", [(2, 3), (3, 2)], "Invalid equation"),
        ("ij,jk->iik", [(2, 3), (3, 2)], "Invalid equation"),
        ("ij,jk->ik", [(2, 3)], "Got 1 arguments"),
        ("ii->i", [(2, 2)], "an axis appears more than once"),
        ("ijx,jk->ik", [(2, 3), (3, 2)], "does not match einsum reduction"),
        ("1j,jk->k", [(2, 3), (3, 2)], "incorrect format"),
        ("i.j->ij", [(2, 3)], "incorrect format"),
        ("ij,jk->ik", [(2, 3), (4, 2)], "must be equal"),
    ],
)
def test_einsum_refuses(equation, shapes, message):
    with pytest.raises(ValueError, match=message):
        tf.einsum(equation, *[np.ones(s, np.float32) for s in shapes])


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("...i,...i->...", [(3, 1, 2), (3, 4, 2)]),
        ("abc,cde,ebf->adf", [(2, 3, 4), (4, 5, 6), (6, 3, 2)]),
        ("i...,...->...", [(2, 3), (3,)]),
        (",ij->ji", [(), (2, 3)]),
        ("ijk,k->", [(2, 3, 4), (4,)]),
    ],
)
def test_einsum_is_numpys(equation, shapes):
    rng = np.random.default_rng(0)
    arrays = [rng.uniform(-1, 1, s) for s in shapes]
    with tf.Graph().as_default(), tf.Session() as session:
        found = session.run(tf.einsum(equation, *arrays))
    np.testing.assert_allclose(found, np.einsum(equation, *arrays), atol=1e-12)


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        (-1, "at least 0"),
        (3, "must not be larger"),
        ([[1]], "length 2"),
        ([[1], [0, 1]], "Different number of contraction axes"),
        ([[5], [0]], "out of range"),
    ],
)
def test_tensordot_refuses(axes, message):
    with pytest.raises(ValueError, match=message):
        tf.tensordot(np.ones((1, 2)), np.ones((2, 1)), axes)
