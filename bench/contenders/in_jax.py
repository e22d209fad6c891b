"""JAX: the whole step under jit, parameters donated so that they are updated in place."""

from __future__ import annotations

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp


class Parameters:
    """Arrays by name, cast to the precision that is computed in; collects the new state."""

    def __init__(self, trained, state, dtype):
        self.trained, self.state, self.dtype = trained, dict(state), dtype

    def __getitem__(self, name):
        return self.cast(self.trained[name])

    def cast(self, value):
        return value.astype(self.dtype)

    def move(self, name, value, rate):
        """Move a state towards a value by a share of the difference."""
        self.state[name] -= (self.state[name] - value) * rate


class Contender:
    version = f"jax {jax.__version__}"

    def __init__(self, model, mode):
        dtype = jnp.bfloat16 if model.bfloat16 else jnp.float32
        self._trained = {n: jnp.array(model.initial(n)) for n in model.parameters}
        self._state = {n: jnp.array(model.initial(n)) for n in model.state}

        def loss(trained, state, batch):
            p = Parameters(trained, state, dtype)
            return model.jax(jax, p, batch), p.state

        def train(trained, state, batch):
            if not trained:
                return *loss(trained, state, batch), trained
            (value, state), found = jax.value_and_grad(loss, has_aux=True)(trained, state, batch)
            moved = {n: v - model.learning_rate * found[n] for n, v in trained.items()}
            return value, state, moved

        self._train = jax.jit(train, donate_argnums=(0, 1))

    def load(self, batch):
        self._batch = {n: jnp.array(a) for n, a in batch.items()}

    def step(self):
        loss, self._state, self._trained = self._train(self._trained, self._state, self._batch)
        jax.block_until_ready((self._state, self._trained))
        return loss.item()
