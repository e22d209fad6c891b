"""A Transformer's encoder block: self-attention and two dense layers, each with a residual
connection and layer normalisation after it; ReLU, no dropout. The loss is the squared error.
"""

from __future__ import annotations

from models.model import Model, generator

ROWS, LENGTH, SIZE, HEADS, INNER = 16, 128, 512, 8, 2048
EACH = SIZE // HEADS
EPSILON = 1e-5


class Transformer(Model):
    name, title, target = "transformer", "Transformer block, d 512, 16 x 128", 1.3
    learning_rate = 0.1

    def __init__(self):
        super().__init__()
        sizes = {
            "attention": (SIZE, 3 * SIZE),
            "output": (SIZE, SIZE),
            "widen": (SIZE, INNER),
            "narrow": (INNER, SIZE),
        }
        for name, shape in sizes.items():
            self.parameters[f"{name}/weights"] = shape
            self.parameters[f"{name}/bias"] = shape[-1:]
        for name in ("norm1", "norm2"):
            self.parameters[f"{name}/gain"] = (SIZE,)
            self.parameters[f"{name}/bias"] = (SIZE,)

    def batch(self, number):
        g = generator(f"{self.name} batch {number}")
        shape = (ROWS, LENGTH, SIZE)
        return {n: g.standard_normal(shape, "float32") for n in ("x", "wanted")}

    def tf1(self, tf, p, batch):
        def dense(name, x):
            return tf.nn.bias_add(tf.matmul(x, p[f"{name}/weights"]), p[f"{name}/bias"])

        def norm(name, x):
            mean, variance = tf.nn.moments(x, axes=[1], keep_dims=True)
            gain, bias = p[f"{name}/gain"], p[f"{name}/bias"]
            return tf.nn.batch_normalization(x, mean, variance, bias, gain, EPSILON)

        x = tf.reshape(batch["x"], [ROWS * LENGTH, SIZE])
        parts = tf.reshape(dense("attention", x), [ROWS, LENGTH, 3, HEADS, EACH])
        q, k, v = tf.unstack(tf.transpose(parts, [2, 0, 3, 1, 4]))
        weights = tf.nn.softmax(tf.matmul(q, k, transpose_b=True) * EACH**-0.5)
        seen = tf.transpose(tf.matmul(weights, v), [0, 2, 1, 3])
        x = norm("norm1", x + dense("output", tf.reshape(seen, [ROWS * LENGTH, SIZE])))
        x = norm("norm2", x + dense("narrow", tf.nn.relu(dense("widen", x))))
        wanted = tf.reshape(batch["wanted"], [ROWS * LENGTH, SIZE])
        return tf.reduce_mean(tf.squared_difference(x, wanted))

    def torch(self, torch, p, batch):
        f = torch.nn.functional

        def dense(name, x):
            return f.linear(x, p[f"{name}/weights"], p[f"{name}/bias"])

        def norm(name, x):
            return f.layer_norm(x, (SIZE,), p[f"{name}/gain"], p[f"{name}/bias"], EPSILON)

        x = batch["x"]
        parts = dense("attention", x).view(ROWS, LENGTH, 3, HEADS, EACH)
        q, k, v = parts.permute(2, 0, 3, 1, 4).unbind()
        seen = f.scaled_dot_product_attention(q, k, v).transpose(1, 2)
        x = norm("norm1", x + dense("output", seen.reshape(ROWS, LENGTH, SIZE)))
        x = norm("norm2", x + dense("narrow", f.relu(dense("widen", x))))
        return f.mse_loss(x, batch["wanted"])

    def jax(self, jax, p, batch):
        jnp = jax.numpy

        def dense(name, x):
            return x @ p[f"{name}/weights"] + p[f"{name}/bias"]

        def norm(name, x):
            x = x - x.mean(-1, keepdims=True)
            scale = jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + EPSILON)
            return x * scale * p[f"{name}/gain"] + p[f"{name}/bias"]

        x = batch["x"]
        parts = dense("attention", x).reshape(ROWS, LENGTH, 3, HEADS, EACH)
        seen = jax.nn.dot_product_attention(parts[:, :, 0], parts[:, :, 1], parts[:, :, 2])
        x = norm("norm1", x + dense("output", seen.reshape(ROWS, LENGTH, SIZE)))
        x = norm("norm2", x + dense("narrow", jax.nn.relu(dense("widen", x))))
        return jnp.mean((x - batch["wanted"]) ** 2)
