"""Gaussian process regression: marginal likelihood by Cholesky, learned hyperparameters."""

import numpy as np


def run(tf):
    rng = np.random.RandomState(11)
    inputs = np.sort(rng.rand(30, 1) * 6, axis=0)
    outputs = np.sin(2 * inputs) + 0.1 * rng.randn(30, 1)
    x = tf.constant(inputs)
    y = tf.constant(outputs)
    queries = tf.constant(np.linspace(0, 6, 9)[:, None])
    log_scale, log_length, log_noise = (
        tf.Variable(np.float64(v), name=n)
        for v, n in [(0.0, "scale"), (0.3, "length"), (-1.0, "noise")]
    )

    def kernel(a, b):
        squares = tf.square(a - tf.transpose(b)) / tf.exp(2 * log_length)
        return tf.exp(2 * log_scale - 0.5 * squares)

    n = tf.shape(x)[0]
    covariance = kernel(x, x) + tf.exp(2 * log_noise) * tf.eye(n, dtype=tf.float64)
    chol = tf.cholesky(covariance)
    half = tf.matrix_triangular_solve(chol, y, lower=True)
    alpha = tf.matrix_triangular_solve(tf.matrix_transpose(chol), half, lower=False)
    evidence = (
        -0.5 * tf.reduce_sum(y * alpha)
        - tf.reduce_sum(tf.log(tf.matrix_diag_part(chol)))
        - 0.5 * tf.cast(n, tf.float64) * np.log(2 * np.pi)
    )
    cross = kernel(x, queries)
    mean = tf.matmul(cross, alpha, adjoint_a=True)
    variance = tf.diag_part(kernel(queries, queries)) - tf.reduce_sum(
        tf.square(tf.matrix_triangular_solve(chol, cross)), axis=0
    )
    other = tf.linalg.logdet(covariance) + tf.matmul(
        y, tf.cholesky_solve(chol, y), transpose_a=True
    )

    variables = tf.trainable_variables()
    gradients = tf.tuple(tf.gradients(evidence, variables))
    train = [v.assign_add(0.01 * tf.clip_by_value(g, -5, 5)) for v, g in zip(variables, gradients)]
    fetches = [evidence, tf.reduce_sum(mean), tf.reduce_sum(variance), other[0, 0]]
    with tf.Session() as session:
        session.run(tf.variables_initializer(variables))
        for _ in range(15):
            yield session.run(fetches)
            session.run(train)
