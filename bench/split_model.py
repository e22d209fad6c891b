"""A training step of a workload on one device, or cut in two.

In: a model of models/. Out: a `SplitStep`. The second device has the second half of the parameters,
and everything from the first use of one of them on; gradients are where their operations are, and
variables are updated where they are.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from models import Model

import headrace as tf


class _Halves:
    """A device function: the first device until a parameter of the second half is used, then
    /cpu:1.
    """

    def __init__(self, model: Model, devices: int, first: str) -> None:
        self._first = first
        names = list(model.parameters)
        late = names[len(names) // 2 :] if devices > 1 else []
        self.half = {name: int(name in late) for name in names}
        for name in model.state:  # beside the parameters of its layer
            self.half[name] = self.half[f"{name.rpartition('/')[0]}/gain"]
        # A model without parameters is a chain, which is cut in the middle.
        self._left = model.count // 2 if devices > 1 and not names else None
        self.now = 0

    def use(self, name: str) -> None:
        self.now = max(self.now, self.half[name])

    def __call__(self, op: tf.Operation) -> str:
        if self._left is not None:
            self._left -= 1
            self.now = int(self._left < 0)
        return "/cpu:1" if self.now else self._first


class _Parameters:
    """Variables by name, cast to the precision that is computed in."""

    def __init__(self, model: Model, halves: _Halves) -> None:
        self._halves = halves
        self.dtype = tf.bfloat16 if model.bfloat16 else tf.float32
        self.updates = []
        self.trained = self._variables(model.parameters, True)
        self.state = self._variables(model.state, False)
        halves.now = 0

    def _variables(self, shapes, trainable):
        made = {}
        for name, shape in shapes.items():
            self._halves.now = self._halves.half[name]
            made[name] = tf.get_variable(name, shape, trainable=trainable)
        return made

    def __getitem__(self, name):
        self._halves.use(name)
        return self.cast(self.trained[name])

    def cast(self, value):
        return tf.cast(value, self.dtype)

    def move(self, name, value, rate):
        """Move a state towards a value by a share of the difference."""
        variable = self.state[name]
        self.updates.append(tf.assign_sub(variable, (variable - value) * rate))


class SplitStep:
    """A training step in a session with `devices` CPUs; `first`: the name of the first device.

    loss, train, inputs: its tensors and its operation. losses: of the steps so far.
    """

    def __init__(self, model: Model, devices: int, first: str = "/cpu:0") -> None:
        batch = model.batch(0)
        with tf.Graph().as_default():
            halves = _Halves(model, devices, first)
            with tf.device(halves):
                inputs = {n: tf.placeholder(a.dtype, a.shape, name=n) for n, a in batch.items()}
                p = _Parameters(model, halves)
                loss = model.tf1(tf, p, inputs)
                train = tf.group(*_descend(loss, p.trained, model.learning_rate), *p.updates)
            self.session = tf.Session(config=tf.ConfigProto(device_count={"CPU": devices}))
            self.loss, self.train, self.inputs = loss, train, list(inputs.values())
            self._run = self.session.make_callable([loss, train], self.inputs)
        for name, variable in {**p.trained, **p.state}.items():
            variable.load(model.initial(name), self.session)
        self._batch = list(batch.values())
        self.losses: list[float] = []

    def seconds(
        self, count: int = 1, clock: Callable[[], float] = time.perf_counter
    ) -> list[float]:
        """Train; return the seconds of each step."""
        found = []
        for _ in range(count):
            start = clock()
            loss = self._run(*self._batch)[0]
            found.append(clock() - start)
            self.losses.append(loss.item())
        return found


def _descend(loss, variables, rate):
    """One step of gradient descent, as operations on the variables' devices."""
    if not variables:
        return
    found = tf.gradients(loss, list(variables.values()), colocate_gradients_with_ops=True)
    for variable, gradient in zip(variables.values(), found, strict=True):
        with tf.colocate_with(variable):
            if isinstance(gradient, tf.IndexedSlices):
                yield tf.scatter_sub(variable, gradient.indices, rate * gradient.values)
            else:
                yield tf.assign_sub(variable, rate * gradient)
