"""Headrace: the model as a TensorFlow 1 program, trained through a session."""

from __future__ import annotations

import numpy as np

import headrace as tf


class Parameters:
    """Variables by name, cast to the precision that is computed in."""

    def __init__(self, model):
        self.dtype = tf.bfloat16 if model.bfloat16 else tf.float32
        self.updates = []
        self.trained = {n: tf.get_variable(n, s) for n, s in model.parameters.items()}
        self.state = {n: tf.get_variable(n, s, trainable=False) for n, s in model.state.items()}

    def __getitem__(self, name):
        return self.cast(self.trained[name])

    def cast(self, value):
        return tf.cast(value, self.dtype)

    def move(self, name, value, rate):
        """Move a state towards a value by a share of the difference."""
        variable = self.state[name]
        self.updates.append(tf.assign_sub(variable, (variable - value) * rate))


class Contender:
    version = f"headrace {tf.HEADRACE_VERSION}"

    def __init__(self, model, mode):
        self._batch = {}
        with tf.Graph().as_default():
            example = model.batch(0)
            inputs = {n: tf.placeholder(a.dtype, a.shape, name=n) for n, a in example.items()}
            p = Parameters(model)
            loss = model.tf1(tf, p, inputs)
            train = tf.group(*descend(loss, p.trained, model.learning_rate), *p.updates)
            session = tf.Session(config=configuration(mode))
            self._run = session.make_callable([loss, train], list(inputs.values()))
        for name, variable in {**p.trained, **p.state}.items():
            variable.load(model.initial(name), session)
        self.flops = flops(loss.op, train)

    def load(self, batch):
        self._batch = list(batch.values())

    def step(self):
        return self._run(*self._batch)[0].item()


def configuration(mode):
    """The session's options: `mixed` computes products and convolutions in bfloat16."""
    config = tf.ConfigProto()
    if mode == "mixed":
        rewrites = config.graph_options.rewrite_options
        rewrites.auto_mixed_precision = rewrites.ON
    return config


def descend(loss, variables, rate):
    """One step of gradient descent, as operations."""
    found = tf.gradients(loss, list(variables.values())) if variables else []
    for variable, gradient in zip(variables.values(), found):
        if isinstance(gradient, tf.IndexedSlices):
            yield tf.scatter_sub(variable, gradient.indices, rate * gradient.values)
        else:
            yield tf.assign_sub(variable, rate * gradient)


def flops(*fetches):
    """Floating-point operations of all contractions that the fetches need, a multiplication and an
    addition counted as two.
    """
    waiting, seen = list(fetches), set()
    while waiting:
        op = waiting.pop()
        if op not in seen:
            seen.add(op)
            waiting += [t.op for t in op.inputs] + list(op.control_inputs)
    return sum(_flops(op) for op in seen)


def _flops(op):
    sizes = [t.shape.as_list() for t in (*op.inputs, *op.outputs) if t.shape.ndims is not None]
    match op.type:
        case "MatMul":
            a, _, c = sizes
            return 2 * c[0] * c[1] * (a[0] if op.get_attr("transpose_a") else a[1])
        case "BatchMatMul" | "BatchMatMulV2":
            a, _, c = sizes
            return 2 * int(np.prod(c)) * (a[-2] if op.get_attr("adj_x") else a[-1])
        case "Conv2D":
            _, filters, out = sizes
            return _convolution(filters, out)
        case "Conv2DBackpropInput":
            _, filters, out, _ = sizes
            return _convolution(filters, out)
        case "Conv2DBackpropFilter":
            _, _, out, filters = sizes
            return _convolution(filters, out)
    return 0


def _convolution(filters, out):
    return 2 * int(np.prod(out)) * int(np.prod(filters[:3]))
