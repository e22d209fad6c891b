"""Strict accuracy: steps give the same bits in every process, with the same number of threads."""

from tests.faults import process

TRAINING = """
import hashlib
import numpy as np
import headrace as tf

rng = np.random.default_rng(0)
def variable(*shape):
    return tf.Variable(rng.uniform(-0.2, 0.2, shape).astype(np.float32))

x = tf.placeholder(tf.float32, [4, 16, 16, 16])
weights = [variable(3, 3, 16, 32), variable(32), variable(1, 1, 32, 16), variable(1024, 257)]
y = tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(x, weights[0], [1, 1, 1, 1], "SAME"), weights[1]))
y = tf.nn.conv2d(y, weights[2], [1, 1, 1, 1], "SAME")
y = tf.nn.max_pool(y, [1, 2, 2, 1], [1, 2, 2, 1], "SAME")
y = tf.matmul(tf.reshape(y, [4, 1024]), weights[3])
loss = tf.reduce_mean(tf.square(tf.nn.softmax(y))) + tf.reduce_sum(tf.tanh(y))
updates = [v.assign_sub(0.01 * g).op for v, g in zip(weights, tf.gradients(loss, weights))]
image = rng.uniform(-1, 1, (4, 16, 16, 16))
with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    for _ in range(3):
        session.run([loss, *updates], {x: image})
    bits = b"".join(v.tobytes() for v in session.run([*weights, loss], {x: image}))
    print(hashlib.sha256(bits).hexdigest())
"""


def test_processes_agree_on_every_bit():
    settings = {"HEADRACE_JIT": "always", "HEADRACE_ACCURACY": "strict", "HEADRACE_CACHE": "off"}
    together = [
        process.start(TRAINING, HEADRACE_VERIFY="1", HEADRACE_NUM_THREADS="2", **settings)
        for _ in range(2)
    ]
    first, second = map(process.finish, together)
    assert first == second
