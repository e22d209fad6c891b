"""A language model: two LSTM layers of 650, 10,000 words, 35 steps unrolled, full softmax.

The gates lie in PyTorch's order: input, forget, candidate, output. Each layer takes the products
with its inputs for all steps at once; only the products with its own outputs go step by step.
"""

from __future__ import annotations

import numpy as np

from models.model import Model, cross_entropy_in_jax, generator

WORDS, SIZE, LAYERS, STEPS, ROWS = 10000, 650, 2, 35, 20


class LSTM(Model):
    name, title, target = "lstm", "LSTM 2x650, batch 20, 35 steps", 1.5
    learning_rate = 1.0

    def __init__(self):
        super().__init__()
        self.parameters["embedding"] = (WORDS, SIZE)
        for layer in range(1, LAYERS + 1):
            self.parameters[f"layer{layer}/inputs"] = (SIZE, 4 * SIZE)
            self.parameters[f"layer{layer}/recurrent"] = (SIZE, 4 * SIZE)
            self.parameters[f"layer{layer}/bias"] = (4 * SIZE,)
        self.parameters["logits/weights"] = (SIZE, WORDS)
        self.parameters["logits/bias"] = (WORDS,)

    def deviation(self, name, shape):
        return 0.05

    def batch(self, number):
        """Words and the words that follow them, by time, then by row."""
        text = generator(f"{self.name} batch {number}").integers(
            0, WORDS, (STEPS + 1, ROWS), "int32"
        )
        return {"words": text[:-1], "next": np.ascontiguousarray(text[1:]).reshape(-1)}

    def to_torch(self, name, value):
        return value if name == "embedding" else super().to_torch(name, value)

    def tf1(self, tf, p, batch):
        words = tf.reshape(batch["words"], [STEPS * ROWS])
        x = tf.nn.embedding_lookup(p["embedding"], words)
        for layer in range(1, LAYERS + 1):
            recurrent = p[f"layer{layer}/recurrent"]
            h = c = tf.zeros([ROWS, SIZE])
            outputs = []
            fed = tf.matmul(x, p[f"layer{layer}/inputs"])
            fed = tf.nn.bias_add(fed, p[f"layer{layer}/bias"])
            for part in tf.split(fed, STEPS, axis=0):
                gates = part + tf.matmul(h, recurrent)
                take, keep, candidate, give = tf.split(gates, 4, axis=1)
                c = tf.sigmoid(keep) * c + tf.sigmoid(take) * tf.tanh(candidate)
                h = tf.sigmoid(give) * tf.tanh(c)
                outputs.append(h)
            x = tf.concat(outputs, axis=0)
        logits = tf.nn.bias_add(tf.matmul(x, p["logits/weights"]), p["logits/bias"])
        return tf.reduce_mean(
            tf.nn.sparse_softmax_cross_entropy_with_logits(labels=batch["next"], logits=logits)
        )

    def torch(self, torch, p, batch):
        f = torch.nn.functional
        x = f.embedding(batch["words"], p["embedding"])
        start = torch.zeros(LAYERS, ROWS, SIZE)
        no_bias = torch.zeros(4 * SIZE)  # the library has two biases where one is enough
        weights = []
        for n in range(1, LAYERS + 1):
            parts = (p[f"layer{n}/{part}"] for part in ("inputs", "recurrent", "bias"))
            weights += [*parts, no_bias]
        x, _, _ = torch.lstm(x, (start, start), weights, True, LAYERS, 0.0, True, False, False)
        logits = f.linear(x.reshape(-1, SIZE), p["logits/weights"], p["logits/bias"])
        return f.cross_entropy(logits, batch["next"])

    def jax(self, jax, p, batch):
        jnp, sigmoid = jax.numpy, jax.nn.sigmoid
        x = p["embedding"][batch["words"]]
        start = jnp.zeros((ROWS, SIZE))
        for layer in range(1, LAYERS + 1):
            recurrent = p[f"layer{layer}/recurrent"]

            def step(state, part, recurrent=recurrent):
                h, c = state
                take, keep, candidate, give = jnp.split(part + h @ recurrent, 4, axis=1)
                c = sigmoid(keep) * c + sigmoid(take) * jnp.tanh(candidate)
                h = sigmoid(give) * jnp.tanh(c)
                return (h, c), h

            fed = x @ p[f"layer{layer}/inputs"] + p[f"layer{layer}/bias"]
            _, x = jax.lax.scan(step, (start, start), fed)
        logits = x.reshape(-1, SIZE) @ p["logits/weights"] + p["logits/bias"]
        return cross_entropy_in_jax(jax, logits, batch["next"])
