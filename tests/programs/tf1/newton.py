"""Newton's method by tf.hessians, after Levenberg's steps by a Jacobian."""

import numpy as np


def run(tf):
    rng = np.random.RandomState(22)
    t = np.linspace(0, 3, 25)
    values = 2.0 * np.exp(-1.3 * t) + 0.5 + 0.01 * rng.randn(25)
    p = tf.Variable(tf.constant([1.0, 0.5, 0.0], tf.float64))
    model = p[0] * tf.exp(-p[1] * t) + p[2]
    residuals = model - values
    loss = 0.5 * tf.reduce_sum(residuals**2)
    (gradient,) = tf.gradients(loss, p)
    (hessian,) = tf.hessians(loss, p)
    jacobian = tf.stack([tf.gradients(r, p)[0] for r in tf.unstack(residuals)])
    normal = tf.matmul(jacobian, jacobian, transpose_a=True)
    damped = normal + 0.1 * tf.diag(tf.diag_part(normal))
    eigenvalues = tf.self_adjoint_eigvals(hessian)
    shifted = hessian + tf.nn.relu(0.1 - eigenvalues[0]) * tf.eye(3, dtype=tf.float64)
    newton = tf.matrix_solve(shifted, gradient[:, None])[:, 0]
    levenberg = tf.matrix_solve_ls(damped, tf.expand_dims(gradient, 1), fast=True)[:, 0]
    determinant = tf.matrix_determinant(damped)
    singular = tf.svd(jacobian, compute_uv=False)
    q, _ = tf.qr(jacobian)
    projected = tf.norm(tf.linalg.matvec(q, residuals, transpose_a=True))
    fetches = [loss, eigenvalues[0], determinant, singular[-1], projected]
    steps = [tf.assign_sub(p, 0.5 * levenberg), tf.assign_sub(p, newton)]
    with tf.Session() as session:
        session.run(p.initializer)
        for step in range(12):
            numbers = session.run(fetches)
            session.run(steps[step // 6])
            yield numbers + list(session.run(p))
