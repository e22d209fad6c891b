"""Linear operators beside TensorFlow: values, gradients, shapes, hints, names and errors."""

import numpy as np

from tests.oracle.case import case


def numbers(shape, dtype, seed):
    random = np.random.RandomState(seed)
    values = random.uniform(0.5, 1.5, shape)
    if np.dtype(dtype).kind == "c":
        values = values + 1j * random.uniform(0.5, 1.5, shape)
    return values.astype(dtype)


class Parameters:
    """Makes an operator's parameters, each from its own seed, and remembers them."""

    def __init__(self, tf, dtype="float32", shapes_known=True):
        self.tf, self.dtype, self.shapes_known, self.made = tf, dtype, shapes_known, []

    def __call__(self, *shape, **options):
        value = numbers(shape, options.get("dtype", self.dtype), len(self.made))
        if options.get("dominant"):
            value = value + 3 * np.eye(shape[-1], dtype=value.dtype)
        return self.given(value)

    def given(self, value):
        if self.shapes_known:
            made = self.tf.constant(value, name="parameter")
        else:
            made = self.tf.placeholder_with_default(value, None, name="parameter")
        self.made.append(made)
        return made

    def positive(self, *shape):
        x = numbers(shape, self.dtype, len(self.made))
        product = np.matmul(x, x.swapaxes(-1, -2).conj()) + np.eye(shape[-1])
        return self.given(product.round(3).astype(self.dtype))


def full(tf, p):
    return tf.linalg.LinearOperatorFullMatrix(p(4, 4, dominant=True), is_square=True)


def full_positive(tf, p):
    matrix = p.positive(4, 4)
    return tf.linalg.LinearOperatorFullMatrix(
        matrix, is_self_adjoint=True, is_positive_definite=True
    )


def full_batch(tf, p):
    return tf.linalg.LinearOperatorFullMatrix(p(2, 4, 4, dominant=True), is_non_singular=True)


def lower_triangular(tf, p):
    return tf.linalg.LinearOperatorLowerTriangular(p(4, 4))


def diag(tf, p):
    return tf.linalg.LinearOperatorDiag(p(4))


def diag_batch(tf, p):
    return tf.linalg.LinearOperatorDiag(p(2, 4), is_non_singular=True)


def identity(tf, p):
    return tf.linalg.LinearOperatorIdentity(4, dtype=p.dtype)


def identity_batch(tf, p):
    return tf.linalg.LinearOperatorIdentity(4, batch_shape=[2], dtype=p.dtype)


def scaled_identity(tf, p):
    return tf.linalg.LinearOperatorScaledIdentity(4, p())


def scaled_identity_batch(tf, p):
    return tf.linalg.LinearOperatorScaledIdentity(4, p(2))


def householder(tf, p):
    return tf.linalg.LinearOperatorHouseholder(p(4))


def toeplitz(tf, p):
    return tf.linalg.LinearOperatorToeplitz(p(4), p(4))


def circulant(tf, p):
    spectrum = p.given(np.array([4, 1 + 1j, 2, 1 - 1j], np.complex64))
    return tf.linalg.LinearOperatorCirculant(spectrum, input_output_dtype=p.dtype)


def circulant_of_real_spectrum(tf, p):
    spectrum = p.given(np.array([4, 1, 2, 1], np.float32))
    return tf.linalg.LinearOperatorCirculant(spectrum, input_output_dtype=p.dtype)


def circulant_2d(tf, p):
    spectrum = p.given(np.array([[4, 3], [2, 1]], np.float32))
    return tf.linalg.LinearOperatorCirculant2D(spectrum, input_output_dtype=p.dtype)


def circulant_3d(tf, p):
    spectrum = p.given(np.array([[[4, 3]], [[2, 1]]], np.float32))
    return tf.linalg.LinearOperatorCirculant3D(spectrum, input_output_dtype=p.dtype)


def low_rank_update(tf, p):
    return tf.linalg.LinearOperatorLowRankUpdate(
        tf.linalg.LinearOperatorDiag(p(4)), p(4, 2), diag_update=p(2), v=p(4, 2)
    )


def positive_low_rank_update(tf, p):
    return tf.linalg.LinearOperatorLowRankUpdate(full_positive(tf, p), p(4, 2))


def kronecker(tf, p):
    return tf.linalg.LinearOperatorKronecker(
        [
            tf.linalg.LinearOperatorFullMatrix(p(2, 2, dominant=True), is_square=True),
            tf.linalg.LinearOperatorDiag(p(2)),
        ]
    )


def block_diag(tf, p):
    return tf.linalg.LinearOperatorBlockDiag(
        [
            tf.linalg.LinearOperatorFullMatrix(p(2, 2, dominant=True), is_square=True),
            tf.linalg.LinearOperatorDiag(p(2)),
        ]
    )


def composition(tf, p):
    return tf.linalg.LinearOperatorComposition([full(tf, p), diag(tf, p)])


def inversion(tf, p):
    return tf.linalg.LinearOperatorInversion(full(tf, p))


def adjoint(tf, p):
    return tf.linalg.LinearOperatorAdjoint(full(tf, p))


KINDS = [full, full_positive, full_batch, lower_triangular, diag, diag_batch, identity]
KINDS += [identity_batch, scaled_identity, scaled_identity_batch, householder, toeplitz]
KINDS += [circulant]
KINDS += [circulant_of_real_spectrum, circulant_2d, circulant_3d, low_rank_update]
KINDS += [positive_low_rank_update, kronecker, block_diag, composition, inversion, adjoint]


def results(operator, dtype, sizes):
    """What the methods return, for matrices of 4 rows and 4 columns; `sizes`: of the batch too."""
    x, row = numbers((4, 2), dtype, 10), numbers((2, 4), dtype, 11)
    return [
        operator.to_dense(),
        operator.matmul(x),
        operator.matmul(x, adjoint=True),
        operator.matmul(row, adjoint_arg=True),
        operator.matmul(row, adjoint=True, adjoint_arg=True, name="product"),
        operator.matvec(x[:, 0]),
        operator.matvec(x[:, 0], adjoint=True),
        operator.solve(x),
        operator.solve(x, adjoint=True),
        operator.solve(row, adjoint_arg=True),
        operator.solve(row, adjoint=True, adjoint_arg=True),
        operator.solvevec(x[:, 0]),
        operator.solvevec(x[:, 0], adjoint=True, name="solution"),
        operator.determinant(),
        operator.log_abs_determinant(),
        operator.diag_part(),
        operator.trace(),
        operator.add_to_tensor(numbers(sizes, dtype, 13)),
        operator.shape_tensor(),
        operator.batch_shape_tensor(),
        operator.tensor_rank_tensor(),
        operator.domain_dimension_tensor(),
        operator.range_dimension_tensor(),
        operator.inverse().to_dense(),
        operator.adjoint().to_dense(),
        operator.H.to_dense(),
    ]


def main_results(operator, dtype):
    """The results that depend most on the type, and on whether shapes are known."""
    x, row = numbers((4, 2), dtype, 10), numbers((2, 4), dtype, 11)
    return [
        operator.to_dense(),
        operator.matmul(row, adjoint=True, adjoint_arg=True),
        operator.solve(row, adjoint=True, adjoint_arg=True),
        operator.solvevec(x[:, 0]),
        operator.determinant(),
        operator.log_abs_determinant(),
        operator.diag_part(),
        operator.trace(),
        operator.shape_tensor(),
        operator.adjoint().to_dense(),
    ]


def described(*operators):
    """Class, name, type, hints and shape of operators as text."""
    return "\n".join(map(_described, operators))


def _described(operator):
    letters = {None: "?", True: "yes", False: "no"}
    hints = ["is_non_singular", "is_self_adjoint", "is_positive_definite", "is_square"]
    return " ".join(
        [
            type(operator).__name__,
            operator.name,
            operator.dtype.name,
            str(operator.shape),
            "parents=" + str(len(operator.graph_parents)),
        ]
        + [hint + "=" + letters[getattr(operator, hint)] for hint in hints]
    )


# Kinds whose nodes, with static shapes, are TensorFlow's: those without loops over dimensions.
SAME_NODES = [full, full_positive, lower_triangular, diag, householder, inversion, adjoint]
SAME_NODES += [composition, identity]
WITH_UNKNOWN_SHAPES = [full, full_positive, lower_triangular, diag, scaled_identity, householder]
COMPLEX_SPECTRA = ("circulant_of_real_spectrum", "circulant_2d", "circulant_3d")


def _add_cases(make):
    sizes = (2, 4, 4) if "batch" in make.__name__ else (4, 4)

    def add(name, build, **options):
        build.__name__ = make.__name__ + "_" + name
        case(build, rtol=1e-4, atol=1e-4, **options)

    def values(tf):
        return results(make(tf, Parameters(tf)), "float32", sizes)

    def complex_values(tf):
        return main_results(make(tf, Parameters(tf, "complex64")), "complex64")

    def values_of_unknown_shapes(tf):
        return main_results(make(tf, Parameters(tf, shapes_known=False)), "float32")

    def gradients(tf):
        p = Parameters(tf)
        operator = make(tf, p)
        if not p.made:
            return operator.to_dense()
        x = numbers((4, 2), "float32", 10)
        losses = [operator.matmul(x), operator.solve(x), operator.to_dense() ** 2]
        losses += [operator.log_abs_determinant(), operator.trace(), operator.diag_part() ** 2]
        return [tf.gradients(loss, p.made) for loss in losses]

    def batches(tf):
        operator = make(tf, Parameters(tf))
        x = numbers((3, 1, 4, 2), "float32", 12)
        vectors = x[..., 0]
        found = [operator.matmul(x), operator.matmul(x, adjoint=True), operator.solve(x)]
        return found + [operator.matvec(vectors), operator.solvevec(vectors, adjoint=True)]

    def description(tf):
        operator = make(tf, Parameters(tf))
        found = [operator, operator.inverse(), operator.adjoint()]
        found += [operator.inverse().adjoint(), operator.adjoint().inverse()]
        return described(*found)

    real_to_complex = make.__name__ in COMPLEX_SPECTRA  # not real without a Hermitian spectrum
    if not real_to_complex:
        add("values", values, graph=make in SAME_NODES)
        add("gradients", gradients, graph=False)
        add("batches", batches, graph=False)
        if make in WITH_UNKNOWN_SHAPES:
            add("values_of_unknown_shapes", values_of_unknown_shapes, graph=False)
    add("complex_values", complex_values, graph=False)
    add("description", description, graph=False)


for make in KINDS:
    _add_cases(make)


# Combinations


def operators(tf):
    p = Parameters(tf)
    others = [make for make in KINDS if "batch" not in make.__name__]
    found = [make(tf, p) for make in others if make is not circulant_of_real_spectrum]
    found += [
        tf.linalg.LinearOperatorZeros(4),
        tf.linalg.LinearOperatorDiag(p(4), is_positive_definite=True),
        tf.linalg.LinearOperatorLowerTriangular(p(4, 4), is_non_singular=True),
        tf.linalg.LinearOperatorScaledIdentity(4, p(), is_positive_definite=True),
        tf.linalg.LinearOperatorFullMatrix(p(4, 4), is_non_singular=False),
        tf.linalg.LinearOperatorFullMatrix(p(4, 4), is_self_adjoint=True),
    ]
    return found


@case(graph=False)
def products(tf):
    found = operators(tf)
    return described(*[a.matmul(b) for a in found for b in found])


@case(graph=False)
def quotients(tf):
    found = operators(tf)
    left = [a for a in found if a.is_non_singular is not False]
    return described(*[a.solve(b) for a in left for b in found])


@case(graph=False)
def adjoints_of_products(tf):
    found = [make(tf, Parameters(tf, "complex64")) for make in (full, diag, lower_triangular)]
    made = [
        a.matmul(b, adjoint=adjoint, adjoint_arg=adjoint_arg)
        for a in found
        for b in found
        for adjoint in (False, True)
        for adjoint_arg in (False, True)
    ]
    made += [a.solve(b, adjoint=True, adjoint_arg=True) for a in found for b in found]
    return described(*made), [o.to_dense() for o in made]


@case(graph=False, rtol=1e-4, atol=1e-4)
def values_of_products(tf):
    found = [make(tf, Parameters(tf)) for make in (full, diag, lower_triangular, identity)]
    found.append(tf.linalg.LinearOperatorScaledIdentity(4, 2.0))
    return [
        [a.matmul(b).to_dense() for a in found for b in found],
        [a.solve(b).to_dense() for a in found for b in found],
    ]


@case(graph=False)
def choleskys(tf):
    p = Parameters(tf)
    diagonal = tf.linalg.LinearOperatorDiag(p(2), is_positive_definite=True)
    small = tf.linalg.LinearOperatorFullMatrix(
        p.positive(2, 2), is_self_adjoint=True, is_positive_definite=True
    )
    found = [
        full_positive(tf, p),
        diagonal,
        tf.linalg.LinearOperatorIdentity(3, batch_shape=[2]),
        tf.linalg.LinearOperatorScaledIdentity(3, p(), is_positive_definite=True),
        tf.linalg.LinearOperatorKronecker([diagonal, small]),
        tf.linalg.LinearOperatorBlockDiag([diagonal, small]),
        tf.linalg.LinearOperatorInversion(small),
        positive_low_rank_update(tf, p),
        tf.linalg.LinearOperatorCirculant(
            np.array([4, 1, 2, 1], np.float32),
            input_output_dtype=tf.float32,
            is_positive_definite=True,
        ),
    ]
    factors = [o.cholesky() for o in found]
    return described(*factors), [o.to_dense() for o in factors]


@case(graph=False)
def zeros(tf):
    square = tf.linalg.LinearOperatorZeros(3, batch_shape=[2])
    wide = tf.linalg.LinearOperatorZeros(2, 3, is_square=False, is_self_adjoint=False)
    x = numbers((3, 2), "float32", 0)
    return [
        described(square, wide, wide.adjoint(), square.adjoint()),
        [square.to_dense(), square.matmul(x), square.diag_part(), square.trace()],
        [square.determinant(), square.matvec(x[:, 0]), square.matmul(x.T, adjoint_arg=True)],
        [wide.to_dense(), wide.matmul(x), wide.diag_part(), wide.trace()],
        wide.matmul(x[:2], adjoint=True),
        tf.linalg.LinearOperatorZeros(3).add_to_tensor(numbers((3, 3), "float32", 1)),
    ]


@case(graph=False)
def static_shapes_of_operators(tf):
    def unknown(*shape):
        return tf.placeholder(tf.float32, None if shape == (0,) else list(shape))

    f = tf.linalg.LinearOperatorFullMatrix
    d = tf.linalg.LinearOperatorDiag
    size = tf.placeholder(tf.int32, [])
    found = [
        f(unknown(0)),
        f(unknown(None, 2, 3)),
        d(unknown(0)),
        d(unknown(None)),
        tf.linalg.LinearOperatorLowerTriangular(unknown(None, 2)),
        tf.linalg.LinearOperatorHouseholder(unknown(5, None)),
        tf.linalg.LinearOperatorIdentity(size),
        tf.linalg.LinearOperatorIdentity(3, batch_shape=tf.placeholder(tf.int32, [1])),
        tf.linalg.LinearOperatorScaledIdentity(3, unknown(None)),
        tf.linalg.LinearOperatorScaledIdentity(size, unknown(0)),
        tf.linalg.LinearOperatorZeros(size),
        tf.linalg.LinearOperatorZeros(3, size),
        tf.linalg.LinearOperatorToeplitz(unknown(None), numbers((3,), "float32", 0)),
        tf.linalg.LinearOperatorCirculant(unknown(None)),
        tf.linalg.LinearOperatorCirculant2D(unknown(5, None, 2)),
        tf.linalg.LinearOperatorCirculant2D(numbers((5, 3, 2), "float32", 0)),
        tf.linalg.LinearOperatorLowRankUpdate(d(unknown(None)), unknown(3, 2)),
        tf.linalg.LinearOperatorLowRankUpdate(d(unknown(5, 1, 3)), unknown(2, 3, 2)),
        tf.linalg.LinearOperatorBlockDiag([f(unknown(None, 2, 2)), f(unknown(5, 3, 3))]),
        tf.linalg.LinearOperatorKronecker([f(unknown(None, None, 2)), f(unknown(5, 3, 4))]),
        tf.linalg.LinearOperatorComposition([f(unknown(None, 2, 3)), f(unknown(5, 3, 4))]),
        tf.linalg.LinearOperatorComposition([f(unknown(0)), f(unknown(5, 3, 4))]),
        tf.linalg.LinearOperatorAdjoint(f(unknown(None, 2))),
        tf.linalg.LinearOperatorInversion(f(unknown(None, 2))),
    ]
    shapes = [(o.shape, o.batch_shape, o.tensor_rank, o.is_square) for o in found]
    dimensions = [(str(o.domain_dimension), str(o.range_dimension)) for o in found]
    return repr(shapes), repr(dimensions)


@case(graph=False, rtol=1e-4)
def functions(tf):
    """tf.linalg's functions of operators."""
    p = Parameters(tf)
    a, d, positive = full(tf, p), diag(tf, p), full_positive(tf, p)
    x = numbers((4, 2), "float32", 10)
    found = [
        tf.matmul(a, d),
        tf.linalg.matmul(a, d, adjoint_a=True, adjoint_b=True),
        tf.linalg.solve(a, d),
        tf.linalg.inv(a),
        tf.linalg.inv(d),
        tf.linalg.adjoint(a),
        tf.linalg.cholesky(positive),
    ]
    return [
        described(*found),
        [o.to_dense() for o in found],
        tf.matmul(a, x),
        tf.matmul(x.T, a),
        tf.matmul(x, a, adjoint_a=True, adjoint_b=True),
        tf.matmul(a, x.T, adjoint_b=True, name="m"),
        tf.linalg.matvec(a, x[:, 0]),
        tf.linalg.solve(a, x, adjoint=True, name="s"),
        tf.linalg.det(a),
        tf.matrix_determinant(d),
        tf.linalg.trace(a),
        tf.linalg.logdet(positive),
        tf.linalg.diag_part(a),
    ]


@case
def names_of_functions(tf):
    a = tf.linalg.LinearOperatorFullMatrix(numbers((3, 3), "float32", 0))
    x = tf.constant(numbers((3, 2), "float32", 1))
    y = tf.constant(numbers((2, 3), "float32", 2))
    return (
        tf.matmul(a, x),
        tf.matmul(a, x, name="m"),
        tf.matmul(y, a),
        tf.linalg.det(a),
        tf.linalg.trace(a, name="t"),
        tf.linalg.diag_part(a),
        tf.linalg.solve(a, x),
    )


@case(graph=False)
def parts(tf):
    """The properties that a kind has besides."""
    p = Parameters(tf)
    c = tf.linalg.LinearOperatorCirculant2D(p(3, 2), input_output_dtype=tf.float32)
    u = low_rank_update(tf, p)
    plain = positive_low_rank_update(tf, p)
    t = toeplitz(tf, p)
    return [
        [c.spectrum, c.block_shape_tensor(), c.convolution_kernel()],
        [str(c.block_shape), str(c.block_depth)],
        [u.u, u.v, u.diag_update, u.diag_operator.diag, u.base_operator.diag],
        [plain.u, plain.v, str(plain.diag_update), described(plain.diag_operator)],
        [str(plain.is_diag_update_positive), str(u.is_diag_update_positive)],
        [t.col, t.row, householder(tf, p).reflection_axis, scaled_identity(tf, p).multiplier],
        described(*kronecker(tf, p).operators),
        described(*block_diag(tf, p).operators),
        described(*composition(tf, p).operators),
        described(inversion(tf, p).operator, adjoint(tf, p).operator),
    ]


@case(graph=False)
def variables_of_operators(tf):
    def described_variables(operator):
        names = [v.name for v in operator.variables]
        trained = [v.name for v in operator.trainable_variables]
        return repr([names, trained, [type(o).__name__ for o in operator.submodules]])

    v = tf.Variable(numbers((2,), "float32", 0), name="v", use_resource=True)
    w = tf.Variable(numbers((2, 2), "float32", 1), name="w", trainable=False)
    d, f = tf.linalg.LinearOperatorDiag(v), tf.linalg.LinearOperatorFullMatrix(w)
    found = [
        d,
        f,
        tf.linalg.LinearOperatorScaledIdentity(2, tf.Variable(2.0, name="s")),
        tf.linalg.LinearOperatorComposition([d, f]),
        tf.linalg.LinearOperatorKronecker([f, d]),
        tf.linalg.LinearOperatorInversion(f),
        tf.linalg.LinearOperatorLowRankUpdate(d, w),
    ]
    x = numbers((2, 1), "float32", 2)
    values = [o.matmul(x) for o in found if o.shape.as_list() == [2, 2]] + [f.to_dense()]
    gradients = [tf.gradients(d.solve(f.matmul(x)), [v, w]), tf.gradients(d.trace(), v)]
    return "\n".join(map(described_variables, found)), values, gradients


# Errors


def errors_of(calls):
    """The kind of each error, and the first line of its message."""
    kinds = (TypeError, ValueError, NotImplementedError, AttributeError)
    found = []
    for i, call in enumerate(calls):
        try:
            found.append(f"{i}: {call()!r}")
        except kinds as error:
            kind = next(k for k in kinds if isinstance(error, k))
            message = str(error).split("\n")[0]
            found.append(f"{i}: {kind.__name__}: {message}")
    return "\n".join(found)


@case(graph=False)
def errors_of_parameters(tf):
    f, z = tf.linalg.LinearOperatorFullMatrix, tf.linalg.LinearOperatorZeros
    d, i = tf.linalg.LinearOperatorDiag, tf.linalg.LinearOperatorIdentity
    s, t = tf.linalg.LinearOperatorScaledIdentity, tf.linalg.LinearOperatorLowerTriangular
    h, c = tf.linalg.LinearOperatorHouseholder, tf.linalg.LinearOperatorCirculant
    toep, low = tf.linalg.LinearOperatorToeplitz, tf.linalg.LinearOperatorLowRankUpdate
    vector, matrix = numbers((3,), "float32", 0), numbers((3, 3), "float32", 0)
    return errors_of(
        [
            lambda: d(3.0),
            lambda: f(vector),
            lambda: f([[1, 2], [3, 4]]),
            lambda: t(vector),
            lambda: h(2.0),
            lambda: c(3.0),
            lambda: tf.linalg.LinearOperatorCirculant2D(vector),
            lambda: toep(1.0, 2.0),
            lambda: toep(vector, vector[:2]),
            lambda: i(2.0),
            lambda: i([2]),
            lambda: i(-1),
            lambda: i(2, batch_shape=2),
            lambda: i(2, batch_shape=[-1]),
            lambda: i(2, batch_shape=[2.0]),
            lambda: s(2.0, 3.0),
            lambda: s([2], 3.0),
            lambda: z(2.0),
            lambda: z(2, -2),
            lambda: z(2, [2]),
            lambda: z(2, 3),
            lambda: z(2, batch_shape=3),
            lambda: low(d(vector), matrix[:2]),
            lambda: low(d(vector), matrix[:, :2], diag_update=vector),
            lambda: low(d(vector), matrix[:, :2], v=matrix),
            lambda: tf.linalg.LinearOperatorKronecker([]),
            lambda: tf.linalg.LinearOperatorBlockDiag([]),
            lambda: tf.linalg.LinearOperatorComposition([]),
            lambda: tf.linalg.LinearOperatorBlockDiag([d(vector), f(matrix[:2])]),
            lambda: tf.linalg.LinearOperatorBlockDiag([f(tf.placeholder(tf.float32))]),
            lambda: tf.linalg.LinearOperatorKronecker([d(vector), d(vector.astype("d"))]),
            lambda: tf.linalg.LinearOperatorComposition([d(vector), d(vector[:2])]).shape,
            lambda: tf.linalg.LinearOperatorInversion(f(matrix[:2])),
        ]
    )


@case(graph=False)
def errors_of_hints(tf):
    f, z = tf.linalg.LinearOperatorFullMatrix, tf.linalg.LinearOperatorZeros
    d, i = tf.linalg.LinearOperatorDiag, tf.linalg.LinearOperatorIdentity
    s, t = tf.linalg.LinearOperatorScaledIdentity, tf.linalg.LinearOperatorLowerTriangular
    h, c = tf.linalg.LinearOperatorHouseholder, tf.linalg.LinearOperatorCirculant
    toep, low = tf.linalg.LinearOperatorToeplitz, tf.linalg.LinearOperatorLowRankUpdate
    inverse, adjoint = tf.linalg.LinearOperatorInversion, tf.linalg.LinearOperatorAdjoint
    lists = [tf.linalg.LinearOperatorKronecker, tf.linalg.LinearOperatorBlockDiag]
    vector, matrix = numbers((3,), "float32", 0), numbers((3, 3), "float32", 0)
    positive = d(vector, is_positive_definite=True)
    sure = f(matrix, is_non_singular=True, is_self_adjoint=True, is_positive_definite=True)
    calls = [
        lambda: f(matrix, is_positive_definite=True, is_non_singular=False),
        lambda: f(matrix, is_non_singular=True, is_square=False),
        lambda: f(matrix, is_self_adjoint=True, is_square=False),
        lambda: f(matrix, is_square=False).is_square,
        lambda: d(vector, is_self_adjoint=False),
        lambda: d(vector, is_square=False),
        lambda: t(matrix, is_square=False),
        lambda: h(vector, is_self_adjoint=False),
        lambda: h(vector, is_positive_definite=True),
        lambda: h(vector, is_square=False),
        lambda: c(vector, is_square=False),
        lambda: c(vector, is_self_adjoint=False),
        lambda: toep(vector, vector, is_square=False),
        lambda: i(2, is_self_adjoint=False),
        lambda: i(2, is_square=False),
        lambda: i(2, is_non_singular=False),
        lambda: i(2, is_positive_definite=False),
        lambda: s(2, 3.0, is_square=False),
        lambda: s(2, 3.0, is_self_adjoint=False),
        lambda: z(2, is_non_singular=True),
        lambda: z(2, is_positive_definite=True),
        lambda: z(2, is_self_adjoint=False),
        lambda: z(2, 3, is_square=False),
        lambda: low(positive, matrix, is_diag_update_positive=False),
        lambda: low(positive, matrix, is_self_adjoint=False),
        lambda: low(positive, matrix, is_positive_definite=False),
        lambda: low(positive, matrix, is_non_singular=False),
        lambda: tf.linalg.LinearOperatorComposition([sure, sure], is_non_singular=False),
        lambda: inverse(sure, is_non_singular=False),
        lambda: inverse(sure, is_self_adjoint=False),
        lambda: inverse(sure, is_positive_definite=False),
        lambda: inverse(f(matrix, is_non_singular=False)),
        lambda: adjoint(sure, is_non_singular=False),
        lambda: adjoint(sure, is_self_adjoint=False),
        lambda: adjoint(sure, is_positive_definite=False),
        lambda: adjoint(f(matrix[:2]), is_square=True),
    ]
    for make in lists:
        for hint in ("is_non_singular", "is_self_adjoint", "is_positive_definite"):
            calls.append(lambda make=make, hint=hint: make([positive, sure], **{hint: False}))
    return errors_of(calls)


@case(graph=False)
def errors_of_methods(tf):
    f, d = tf.linalg.LinearOperatorFullMatrix, tf.linalg.LinearOperatorDiag
    matrix = numbers((3, 3), "float32", 0)
    square, wide = f(matrix), f(matrix[:2])
    singular = f(matrix, is_non_singular=False)
    zeros = tf.linalg.LinearOperatorZeros(3)
    other = d(numbers((4,), "float32", 0))
    return errors_of(
        [
            lambda: wide.determinant(),
            lambda: wide.log_abs_determinant(),
            lambda: wide.inverse(),
            lambda: wide.solve(matrix),
            lambda: wide.cholesky(),
            lambda: wide.matmul(matrix[:2]),
            lambda: wide.matmul(matrix, adjoint=True),
            lambda: wide.matvec(matrix[0, :2]),
            lambda: wide.matmul(other),
            lambda: singular.solve(matrix),
            lambda: singular.inverse(),
            lambda: zeros.inverse(),
            lambda: zeros.solve(matrix),
            lambda: square.solve(matrix[:2]),
            lambda: square.solve(other),
            lambda: square.solvevec(matrix[0, :2]),
            lambda: square.cholesky(),
            lambda: square.matmul(f(matrix.astype("d"))),
            lambda: square.assert_positive_definite(),
            lambda: tf.matmul(square, matrix, transpose_a=True),
            lambda: tf.matmul(square, matrix, a_is_sparse=True),
            lambda: tf.linalg.solve(matrix, square),
            lambda: tf.linalg.logdet(square),
            lambda: zeros.matmul(wide),
        ]
    )


@case(graph=False)
def errors_of_types(tf):
    square = tf.linalg.LinearOperatorFullMatrix(numbers((3, 3), "float32", 0))
    wide = numbers((3, 3), "float64", 0)
    return errors_of(
        [
            lambda: square.matmul(wide),
            lambda: square.matvec(wide[0]),
            lambda: square.solve(wide),
            lambda: square.solvevec(wide[0]),
            lambda: square.add_to_tensor(wide),
            lambda: square.matmul([[1, 2, 3]] * 3),
        ]
    )
