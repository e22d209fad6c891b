"""What a workload is: its parameters, its data, and the same loss written for each framework.

In: nothing but NumPy, so that this runs in every framework's own Python. Out: initial values and
batches that are equal everywhere, because each array has a seed made of its name.

A model writes its loss three times: `tf1` is a plain TensorFlow 1 graph program (Headrace runs
it, and TensorFlow 2 through `tf.compat.v1`), `torch` and `jax` say the same in the peers' best
manner. `p` gives parameters by name, in the framework's own layout and in the precision that is
computed in. Plain feed-forward networks are written once instead, over models/layers.py.
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

from models.layers import InJax, InTF1, InTorch

Batch = dict[str, np.ndarray]


class Model:
    """One training step's worth of work.

    name: what the command line calls it.
    title: what the tables call it.
    target: the ratio that Headrace is to reach.
    parameters: name -> shape of what is trained; convolutions are HWIO, matrices [in, out].
    state: name -> shape of what a step changes by other means than its gradient.
    bfloat16: convolutions and matrix products in bfloat16, master weights in float32.
    looked_up: parameters of which a step only needs, and changes, some rows.
    against: the contenders that the ratio counts; empty for all of them.
    """

    name: str
    title: str
    target: float
    learning_rate = 0.01
    parameters: dict[str, tuple[int, ...]]
    state: dict[str, tuple[int, ...]]
    bfloat16 = False
    looked_up: tuple[str, ...] = ()
    against: tuple[str, ...] = ()
    convolutional = False

    def __init__(self) -> None:
        self.parameters, self.state = {}, {}

    def initial(self, name: str) -> np.ndarray:
        """He's normal weights, biases of zero, gains and variances of one."""
        shape = {**self.parameters, **self.state}[name]
        last = name.rpartition("/")[2]
        if last in ("gain", "variance"):
            return np.ones(shape, np.float32)
        if last in ("bias", "mean"):
            return np.zeros(shape, np.float32)
        values = generator(f"{self.name}/{name}").standard_normal(shape, np.float32)
        values *= np.float32(self.deviation(name, shape))
        return values

    def deviation(self, name: str, shape: tuple[int, ...]) -> float:
        """The standard deviation of initial weights; small logits start at an even guess."""
        gain = 0.01 if name.startswith("logits") else 2
        return (gain / np.prod(shape[:-1])) ** 0.5

    def batch(self, number: int) -> Batch:
        """The inputs of one step."""
        raise NotImplementedError

    def to_torch(self, name: str, value: np.ndarray) -> np.ndarray:
        """A parameter in PyTorch's layout: OIHW filters, [out, in] matrices."""
        if value.ndim == 4:
            return value.transpose(3, 2, 0, 1)
        return value.T if value.ndim == 2 else value

    def tf1(self, tf: Any, p: Any, batch: Any) -> Any:
        """The loss as a TensorFlow 1 graph."""
        raise NotImplementedError

    def torch(self, torch: Any, p: Any, batch: Any) -> Any:
        """The loss in PyTorch."""
        raise NotImplementedError

    def jax(self, jax: Any, p: Any, batch: Any) -> Any:
        """The loss in JAX."""
        raise NotImplementedError


class Classifier(Model):
    """A feed-forward network, written once as `logits`, and the cross entropy as its loss."""

    classes = 1000

    def logits(self, n: Any, x: Any) -> Any:
        """The network; `n` has the layers in the framework at hand (see models/layers.py)."""
        raise NotImplementedError

    def tf1(self, tf, p, batch):
        logits = tf.cast(self.logits(InTF1(tf, p), p.cast(batch["x"])), tf.float32)
        return tf.reduce_mean(
            tf.nn.sparse_softmax_cross_entropy_with_logits(labels=batch["labels"], logits=logits)
        )

    def torch(self, torch, p, batch):
        logits = self.logits(InTorch(torch, p), batch["x"])
        return torch.nn.functional.cross_entropy(logits, batch["labels"])

    def jax(self, jax, p, batch):
        logits = self.logits(InJax(jax, p), p.cast(batch["x"]))
        return cross_entropy_in_jax(jax, logits.astype("float32"), batch["labels"])


def cross_entropy_in_jax(jax: Any, logits: Any, labels: Any) -> Any:
    """The mean cross entropy of rows of logits with the right classes."""
    log_p = jax.nn.log_softmax(logits)
    return -jax.numpy.mean(jax.numpy.take_along_axis(log_p, labels[:, None], axis=1))


def generator(name: str) -> np.random.Generator:
    """Random numbers that depend on a name alone."""
    return np.random.default_rng(zlib.crc32(name.encode()))
