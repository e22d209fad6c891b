"""TensorFlow 2: the very program that Headrace runs, through tf.compat.v1 in a tf.function."""

from __future__ import annotations

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import tensorflow as tf2

tf = tf2.compat.v1


class Parameters:
    """Variables by name, in the precision that is computed in. `plain`: only what XLA takes."""

    def __init__(self, model, plain=False):
        self.plain = plain
        self.dtype = tf.bfloat16 if model.bfloat16 else tf.float32
        self.trained = {n: tf2.Variable(model.initial(n)) for n in model.parameters}
        self.state = {n: tf2.Variable(model.initial(n)) for n in model.state}

    def __getitem__(self, name):
        return self.cast(self.trained[name])

    def cast(self, value):
        return tf.cast(value, self.dtype)

    def move(self, name, value, rate):
        """Move a state towards a value by a share of the difference."""
        variable = self.state[name]
        variable.assign_sub((variable - value) * rate)


class Contender:
    version = f"tensorflow {tf2.__version__}"

    def __init__(self, model, mode):
        tf2.config.threading.set_intra_op_parallelism_threads(2)
        tf2.config.threading.set_inter_op_parallelism_threads(2)
        p = Parameters(model, plain=mode == "xla")

        @tf2.function(jit_compile=mode == "xla")
        def train(batch):
            loss = model.tf1(tf, p, batch)
            if p.trained:
                variables = list(p.trained.values())
                for variable, gradient in zip(variables, tf.gradients(loss, variables)):
                    descend(variable, gradient, model.learning_rate)
            return loss

        self._train = train

    def load(self, batch):
        self._batch = {n: tf2.constant(a) for n, a in batch.items()}

    def step(self):
        return self._train(self._batch).numpy().item()


def descend(variable, gradient, rate):
    """One step of gradient descent on a variable."""
    if isinstance(gradient, tf.IndexedSlices):
        tf.scatter_sub(variable, gradient.indices, rate * gradient.values)
    else:
        variable.assign_sub(rate * gradient)
