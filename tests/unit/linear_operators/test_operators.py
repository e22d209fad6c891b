"""Linear operators where the comparisons with TensorFlow and NumPy don't reach: assertions at run
time, hints that TensorFlow gets wrong, functions of tf.linalg, modules, and mistakes.
"""

import numpy as np
import pytest

import headrace as tf

Diag = tf.linalg.LinearOperatorDiag
FullMatrix = tf.linalg.LinearOperatorFullMatrix
Identity = tf.linalg.LinearOperatorIdentity
Scaled = tf.linalg.LinearOperatorScaledIdentity
Triangular = tf.linalg.LinearOperatorLowerTriangular
Circulant = tf.linalg.LinearOperatorCirculant
Toeplitz = tf.linalg.LinearOperatorToeplitz
Zeros = tf.linalg.LinearOperatorZeros


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def run(fetches, feeds=None):
    with tf.Session() as session:
        return session.run(fetches, feeds)


def fed(value):
    return tf.placeholder_with_default(np.asarray(value), None)


# -- Assertions ------------------------------------------------------------------------------------

IS_SINGULAR = {
    "diagonal": (lambda x: Diag(x), [1.0, 0.0], [1.0, 2.0], "Diagonal contained zero values"),
    "triangle": (
        lambda x: Triangular(x),
        [[1.0, 0.0], [5.0, 0.0]],
        [[1.0, 0.0], [5.0, 1.0]],
        "Diagonal contained zero values",
    ),
    "multiple": (lambda x: Scaled(2, x), 0.0, 1.0, "LinearOperator was singular"),
    "spectrum": (lambda x: Circulant(x), [1.0, 0.0], [1.0, 2.0], "Spectrum contained zero values"),
    "matrix": (
        lambda x: FullMatrix(x),
        [[1.0, 2.0], [2.0, 4.0]],
        [[1.0, 2.0], [2.0, 5.0]],
        "Singular matrix up to precision epsilon",
    ),
    "complex matrix": (
        lambda x: FullMatrix(tf.cast(x, tf.complex64)),
        [[1.0, 2.0], [2.0, 4.0]],
        [[1.0, 2.0], [2.0, 5.0]],
        "Singular matrix up to precision epsilon",
    ),
    "adjoint": (
        lambda x: tf.linalg.LinearOperatorAdjoint(Diag(x)),
        [1.0, 0.0],
        [1.0, 2.0],
        "Diagonal contained zero values",
    ),
    "blocks": (
        lambda x: tf.linalg.LinearOperatorBlockDiag([Identity(2), Diag(x)]),
        [1.0, 0.0],
        [1.0, 2.0],
        "Diagonal contained zero values",
    ),
    "factors": (
        lambda x: tf.linalg.LinearOperatorKronecker([Diag(x), Identity(2)]),
        [1.0, 0.0],
        [1.0, 2.0],
        "Diagonal contained zero values",
    ),
}
IS_NOT_POSITIVE = {
    "diagonal": (lambda x: Diag(x), [1.0, -1.0], [1.0, 2.0], "non-positive diagonal entries"),
    "complex diagonal": (
        lambda x: Diag(tf.complex(x, x)),
        [1.0, -1.0],
        [1.0, 2.0],
        "entries with non-positive real part",
    ),
    "multiple": (lambda x: Scaled(2, x), -1.0, 1.0, "was not positive definite"),
    "spectrum": (lambda x: Circulant(x), [1.0, -1.0], [1.0, 2.0], "was not all positive"),
    "blocks": (
        lambda x: tf.linalg.LinearOperatorBlockDiag([Identity(2), Diag(x)]),
        [1.0, -1.0],
        [1.0, 2.0],
        "non-positive diagonal entries",
    ),
    "matrix": (
        lambda x: FullMatrix(x, is_self_adjoint=True),
        [[1.0, 2.0], [2.0, 1.0]],
        [[2.0, 1.0], [1.0, 2.0]],
        "Cholesky decomposition was not successful",
    ),
}
IS_NOT_SELF_ADJOINT = {
    "diagonal": (lambda x: Diag(tf.complex([1.0], x)), [1.0], [0.0], "non-zero imaginary values"),
    "multiple": (lambda x: Scaled(2, tf.complex(1.0, x)), 1.0, 0.0, "was not self-adjoint"),
    "spectrum": (lambda x: Circulant(tf.complex([1.0], x)), [1.0], [0.0], "imaginary part"),
    "matrix": (
        lambda x: FullMatrix(x),
        [[1.0, 2.0], [3.0, 1.0]],
        [[1.0, 2.0], [2.0, 1.0]],
        "Matrix was not equal to its adjoint",
    ),
    "column": (
        lambda x: Toeplitz([1.0, 2.0], x),
        [1.0, 3.0],
        [7.0, 2.0],  # the first element isn't used
        "row and col are not the same",
    ),
    "complex column": (
        lambda x: Toeplitz(np.complex64([1, 2 + 1j]), tf.complex([1.0, 2.0], x)),
        [0.0, 1.0],
        [0.0, -1.0],
        "row and col are not the same",
    ),
}


def assertions(cases):
    return pytest.mark.parametrize(
        "make, bad, good, message", list(cases.values()), ids=list(cases)
    )


def check(method, make, bad, good, message):
    x = tf.placeholder_with_default(np.float32(good), np.shape(good))
    operation = getattr(make(x), method)()
    run(operation)
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        run(operation, {x: bad})


@assertions(IS_SINGULAR)
def test_assert_non_singular(make, bad, good, message):
    check("assert_non_singular", make, bad, good, message)


@assertions(IS_NOT_POSITIVE)
def test_assert_positive_definite(make, bad, good, message):
    check("assert_positive_definite", make, bad, good, message)


@assertions(IS_NOT_SELF_ADJOINT)
def test_assert_self_adjoint(make, bad, good, message):
    check("assert_self_adjoint", make, bad, good, message)


def test_assertions_that_hold_always_or_never():
    run([Identity(2).assert_non_singular(), Identity(2).assert_positive_definite()])
    run([Identity(2).assert_self_adjoint(), Zeros(2).assert_self_adjoint()])
    reflection = tf.linalg.LinearOperatorHouseholder([1.0, 2.0])
    run([reflection.assert_non_singular(), reflection.assert_self_adjoint()])
    with pytest.raises(tf.errors.InvalidArgumentError, match="always non-positive definite"):
        reflection.assert_positive_definite()
    with pytest.raises(tf.errors.InvalidArgumentError, match="always non-invertible"):
        Zeros(2).assert_non_singular()
    with pytest.raises(tf.errors.InvalidArgumentError, match="always non-positive definite"):
        Zeros(2).assert_positive_definite()


def test_assert_hermitian_spectrum():
    """TensorFlow 1.15 fails to build it."""
    spectrum = tf.placeholder(tf.complex64, [4])
    operation = Circulant(spectrum, input_output_dtype=tf.float32).assert_hermitian_spectrum()
    run(operation, {spectrum: np.fft.fft([4.0, 1.0, 2.0, 7.0])})
    run(operation, {spectrum: np.zeros(4)})
    with pytest.raises(tf.errors.InvalidArgumentError, match="Spectrum was not Hermitian"):
        run(operation, {spectrum: [1, 1j, 2, 1j]})


# -- assert_proper_shapes --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make",
    [
        lambda n: Identity(n, assert_proper_shapes=True),
        lambda n: Scaled(n, 2.0, assert_proper_shapes=True),
        lambda n: Zeros(n, assert_proper_shapes=True),
    ],
    ids=["identity", "scaled", "zeros"],
)
def test_assert_proper_shapes_checks_sizes_at_run_time(make):
    n, x = tf.placeholder(tf.int32), tf.placeholder(tf.float32)
    product = make(n).matmul(x)
    assert run(product, {n: 2, x: np.ones([2, 3])}).shape == (2, 3)
    with pytest.raises(tf.errors.InvalidArgumentError, match="Incompatible matrix dimensions"):
        run(product, {n: 2, x: np.ones([3, 3])})
    with pytest.raises(tf.errors.InvalidArgumentError, match="num_rows must be non-negative"):
        run(product, {n: -2, x: np.ones([3, 3])})
    with pytest.raises(tf.errors.InvalidArgumentError, match="num_rows must be a 0-D Tensor"):
        run(product, {n: [2], x: np.ones([3, 3])})


def test_assert_proper_shapes_checks_the_batch():
    batch = tf.placeholder(tf.int32)
    dense = Identity(2, batch_shape=batch, assert_proper_shapes=True).to_dense()
    assert run(dense, {batch: [3, 1]}).shape == (3, 1, 2, 2)
    with pytest.raises(tf.errors.InvalidArgumentError, match="batch_shape must be non-negative"):
        run(dense, {batch: [-3]})
    with pytest.raises(tf.errors.InvalidArgumentError, match="batch_shape must be a 1-D Tensor"):
        run(dense, {batch: 3})


def test_an_empty_batch_shape_is_one_matrix():
    assert Identity(2, batch_shape=[]).shape == Zeros(2, batch_shape=[]).shape == (2, 2)


# -- Hints -----------------------------------------------------------------------------------------


def test_the_inverse_of_a_complex_multiple_is_not_self_adjoint():
    """TensorFlow 1.15 says that it is, and so its adjoint is wrong."""
    inverse = Scaled(2, np.complex64(2j)).inverse()
    assert inverse.is_self_adjoint is None
    np.testing.assert_allclose(run(inverse.adjoint().to_dense()), 0.5j * np.eye(2))


def test_a_product_of_unknown_shapes_may_be_square():
    """TensorFlow 1.15 takes it for rectangular if one of the factors is square."""
    product = FullMatrix(fed(2.0 * np.eye(2)), is_square=True).matmul(FullMatrix(fed(np.eye(2))))
    assert product.is_square is None
    np.testing.assert_allclose(run(product.determinant()), 4)


def test_a_square_product_of_rectangles():
    a, b = np.array([[1.0, 2, 3], [3, 1, 0]]), np.array([[1.0, 2], [4, 1], [0, 5]])
    product = FullMatrix(a).matmul(FullMatrix(b))
    assert product.is_square
    found = run([product.determinant(), product.solve(a), product.log_abs_determinant()])
    expected = [np.linalg.det(a @ b), np.linalg.solve(a @ b, a)]
    for value, right in zip(found, [*expected, np.log(abs(expected[0]))], strict=True):
        np.testing.assert_allclose(value, right)


def test_low_rank_updates_broadcast():
    """TensorFlow 1.15 leaves the batch of v out of the shape."""
    u, v = np.ones([2, 3, 1]), np.ones([5, 1, 3, 1])
    operator = tf.linalg.LinearOperatorLowRankUpdate(FullMatrix(np.eye(3)), u, v=v)
    assert operator.shape == (5, 2, 3, 3)
    np.testing.assert_allclose(run(operator.determinant()), np.full([5, 2], 4.0))
    np.testing.assert_allclose(run(operator.to_dense()), np.eye(3) + np.ones([5, 2, 3, 3]))


def test_diagonals_are_added_to_batches():
    """TensorFlow 1.15 doesn't broadcast here."""
    x = np.ones([3, 3])
    diagonal = np.arange(6.0).reshape(2, 3)
    expected = x + diagonal[..., None] * np.eye(3)
    np.testing.assert_allclose(run(Diag(diagonal).add_to_tensor(x)), expected)
    np.testing.assert_allclose(run(Diag(fed(diagonal)).add_to_tensor(fed(x))), expected)
    product = Diag(diagonal).matmul(Scaled(3, np.array([2.0, 3.0])))
    np.testing.assert_allclose(run(product.diag_part()), diagonal * [[2.0], [3.0]])


# -- Functions of tf.linalg ------------------------------------------------------------------------


def test_the_adjoint_of_an_inverse():
    """TensorFlow 1.15 ignores `adjoint`."""
    matrix = np.array([[1.0, 2j], [3.0, 4.0]])
    inverse = tf.linalg.inv(FullMatrix(matrix), adjoint=True)
    np.testing.assert_allclose(run(inverse.to_dense()), np.linalg.inv(matrix).conj().T)


def test_other_diagonals():
    """TensorFlow 1.15 ignores `k`."""
    operator = FullMatrix(np.arange(9.0).reshape(3, 3))
    np.testing.assert_allclose(run(tf.linalg.diag_part(operator, k=1)), [1, 5])
    np.testing.assert_allclose(run(tf.linalg.diag_part(operator)), [0, 4, 8])


def test_operators_are_not_tensors():
    with pytest.raises(TypeError):
        tf.convert_to_tensor(Identity(2))
    with pytest.raises(TypeError):
        tf.linalg.qr(Identity(2))


# -- Modules ---------------------------------------------------------------------------------------


class Scope(tf.linalg.LinearOperatorDiag):
    @tf.linalg.LinearOperator.with_name_scope
    def one(self):
        return tf.constant(1.0, name="one")


def test_a_method_in_the_operators_name_scope():
    operator = Scope([1.0], name="d")
    assert operator.one().name == "d_1/one:0"
    with operator.name_scope:
        assert tf.constant(1.0, name="two").name == "d_2/two:0"


def test_gradients_reach_the_variables_of_an_operator():
    v = tf.get_variable("v", initializer=np.float32([1, 2]), use_resource=True)
    operator = Diag(v)
    assert operator.diag is v
    (gradient,) = tf.gradients(operator.log_abs_determinant(), operator.trainable_variables)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        np.testing.assert_allclose(session.run(gradient), [1, 0.5])
        session.run(v.assign([4, 8]))  # the operator reads its variable anew
        np.testing.assert_allclose(session.run(operator.determinant()), 32)


# -- Mistakes --------------------------------------------------------------------------------------


def test_an_operator_needs_a_product_and_a_shape():
    with pytest.raises(TypeError, match="abstract"):
        tf.linalg.LinearOperator(tf.float32)


def test_graph_parents_are_tensors():
    class Own(Diag):
        def __init__(self):
            tf.linalg.LinearOperator.__init__(self, tf.float32, graph_parents=[None])

    with pytest.raises(ValueError, match="Graph parent item 0 cannot be None"):
        Own()


@pytest.mark.parametrize(
    "make",
    [
        lambda x: tf.linalg.LinearOperatorAdjoint(x),
        lambda x: tf.linalg.LinearOperatorInversion(x),
        lambda x: tf.linalg.LinearOperatorComposition([x]),
        lambda x: tf.linalg.LinearOperatorKronecker([x]),
        lambda x: tf.linalg.LinearOperatorBlockDiag([x]),
        lambda x: tf.linalg.LinearOperatorLowRankUpdate(x, np.ones([2, 1])),
    ],
)
def test_a_matrix_is_not_an_operator(make):
    with pytest.raises(TypeError, match="Expected a LinearOperator"):
        make(np.eye(2))


def test_a_vector_is_not_a_matrix():
    with pytest.raises(ValueError, match="at least 2 dimensions"):
        FullMatrix(np.eye(2)).matmul(np.ones(2))
    with pytest.raises(ValueError, match="at least 2 dimensions"):
        FullMatrix(np.eye(2)).solve(np.ones(2))
    with pytest.raises(ValueError, match="at least 1 dimension"):
        FullMatrix(np.eye(2)).matvec(np.float64(1))
