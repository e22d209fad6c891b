"""The layers of feed-forward networks, in each framework.

A network is written once, over these names; the classes say what a layer is in TensorFlow 1's
graph, in PyTorch and in JAX. Images are NHWC, in PyTorch NCHW. Padding that does not divide evenly
goes to the end, as TensorFlow's SAME has it.
"""

from __future__ import annotations

import numpy as np

# Batch normalisation: what is added to the variance, and the share of a batch in the averages.
# (The smallest that tf.nn.fused_batch_norm takes is this one.)
EPSILON, SHARE = 1.001e-5, 0.1


class InTF1:
    def __init__(self, tf, p):
        self.tf, self.p = tf, p
        self.relu = tf.nn.relu

    def conv(self, name, x, stride=1, pad=0):
        return self.tf.nn.conv2d(
            x,
            self.p[f"{name}/weights"],
            strides=[1, stride, stride, 1],
            padding=[[0, 0], [pad, pad], [pad, pad], [0, 0]] if pad else "VALID",
        )

    def conv_bias(self, name, x, stride=1, pad=0):
        return self.tf.nn.bias_add(self.conv(name, x, stride, pad), self.p[f"{name}/bias"])

    def batch_norm(self, name, x):
        gain, bias = self.p[f"{name}/gain"], self.p[f"{name}/bias"]
        y, mean, variance = self.tf.nn.fused_batch_norm(x, gain, bias, epsilon=EPSILON)
        self.p.move(f"{name}/mean", mean, SHARE)
        self.p.move(f"{name}/variance", variance, SHARE)
        return y

    def max_pool(self, x, size, stride, same=False):
        window, strides = [1, size, size, 1], [1, stride, stride, 1]
        return self.tf.nn.max_pool(x, window, strides, "SAME" if same else "VALID")

    def average(self, x):
        return self.tf.reduce_mean(x, axis=[1, 2])

    def concat(self, xs):
        return self.tf.concat(xs, axis=3)

    def flatten(self, x):
        rows, *sizes = x.shape.as_list()
        return self.tf.reshape(x, [rows, int(np.prod(sizes))])

    def dense(self, name, x):
        y = self.tf.matmul(x, self.p[f"{name}/weights"])
        return self.tf.nn.bias_add(y, self.p[f"{name}/bias"])


class InTorch:
    def __init__(self, torch, p):
        self.torch, self.f, self.p = torch, torch.nn.functional, p
        self.relu = torch.relu

    def conv(self, name, x, stride=1, pad=0):
        return self.f.conv2d(x, self.p[f"{name}/weights"], None, stride, pad)

    def conv_bias(self, name, x, stride=1, pad=0):
        return self.f.conv2d(x, self.p[f"{name}/weights"], self.p[f"{name}/bias"], stride, pad)

    def batch_norm(self, name, x):
        state = (self.p[f"{name}/{part}"] for part in ("mean", "variance", "gain", "bias"))
        return self.f.batch_norm(x, *state, training=True, momentum=SHARE, eps=EPSILON)

    def max_pool(self, x, size, stride, same=False):
        pad = (size - 1) // 2 if same and stride == 1 else 0
        return self.f.max_pool2d(x, size, stride, pad, ceil_mode=same)

    def average(self, x):
        return x.mean((2, 3))

    def concat(self, xs):
        return self.torch.cat(xs, 1)

    def flatten(self, x):
        return self.torch.flatten(x, 1)

    def dense(self, name, x):
        return self.f.linear(x, self.p[f"{name}/weights"], self.p[f"{name}/bias"])


class InJax:
    def __init__(self, jax, p):
        self.jax, self.p = jax, p
        self.relu = jax.nn.relu

    def conv(self, name, x, stride=1, pad=0):
        return self.jax.lax.conv_general_dilated(
            x,
            self.p[f"{name}/weights"],
            (stride, stride),
            [(pad, pad), (pad, pad)],
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )

    def conv_bias(self, name, x, stride=1, pad=0):
        return self.conv(name, x, stride, pad) + self.p[f"{name}/bias"]

    def batch_norm(self, name, x):
        mean = x.mean((0, 1, 2))
        variance = (x * x).mean((0, 1, 2)) - mean * mean  # one pass over x
        count = x.size // x.shape[-1]
        self.p.move(f"{name}/mean", mean, SHARE)
        self.p.move(f"{name}/variance", variance * (count / (count - 1)), SHARE)
        scale = self.p[f"{name}/gain"] * self.jax.lax.rsqrt(variance + EPSILON)
        return (x - mean) * scale + self.p[f"{name}/bias"]

    def max_pool(self, x, size, stride, same=False):
        window, strides = (1, size, size, 1), (1, stride, stride, 1)
        reduce, padding = self.jax.lax.reduce_window, "SAME" if same else "VALID"
        return reduce(x, -float("inf"), self.jax.lax.max, window, strides, padding)

    def average(self, x):
        return x.mean((1, 2))

    def concat(self, xs):
        return self.jax.numpy.concatenate(xs, axis=3)

    def flatten(self, x):
        return x.reshape(x.shape[0], -1)

    def dense(self, name, x):
        return x @ self.p[f"{name}/weights"] + self.p[f"{name}/bias"]
