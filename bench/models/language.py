"""The language model of the OSDI paper (§6.4), in small: an LSTM of 512 on embeddings of 128,
40,000 words, with a full softmax and with one over 512 sampled words.

The words follow Zipf's law, as the sampler expects. The candidates come with the batch, drawn as
tf.nn.log_uniform_candidate_sampler draws, so that all frameworks see the same ones: the sampler's
own time is measured apart (bench/lm.py). Where rows are looked up, only these are updated.
"""

from __future__ import annotations

import numpy as np

from models.model import Model, generator

WORDS, EMBEDDED, SIZE, STEPS, ROWS, SAMPLED = 40000, 128, 512, 8, 128, 512


def zipf(random, shape):
    """Words, the lower ones more likely."""
    return (np.exp(random.random(shape) * np.log1p(WORDS)).astype(np.int64) - 1) % WORDS


def different(random, count):
    """So many different words, and how many draws that took."""
    drawn = zipf(random, 64 * count)
    places = np.sort(np.unique(drawn, return_index=True)[1])[:count]
    return drawn[places], places[-1] + 1


def expected(words, tries):
    """How often a word is expected among different ones."""
    share = np.log((words + 2.0) / (words + 1.0)) / np.log1p(WORDS)
    return -np.expm1(tries * np.log1p(-share)).astype(np.float32)


def rows_in_torch(torch, table, ids):
    """Rows of a table, with gradients of rows; those can't be compiled, so that this stays out."""
    look_up = torch.compiler.disable(torch.nn.functional.embedding)
    return look_up(ids, table, sparse=True)


class Language(Model):
    """What both have in common."""

    name = "lm"
    learning_rate = 0.5
    words = ROWS * STEPS
    looked_up = ("embedding",)

    def __init__(self):
        super().__init__()
        self.parameters["embedding"] = (WORDS, EMBEDDED)
        self.parameters["inputs"] = (EMBEDDED, 4 * SIZE)
        self.parameters["recurrent"] = (SIZE, 4 * SIZE)
        self.parameters["bias"] = (4 * SIZE,)
        self.parameters["softmax/weights"] = (WORDS, SIZE)
        self.parameters["softmax/bias"] = (WORDS,)

    def initial(self, name):
        values = generator(f"lm/{name}").standard_normal(self.parameters[name], np.float32)
        return values * np.float32(0.05)

    def batch(self, number):
        text = zipf(generator(f"lm batch {number}"), (STEPS + 1, ROWS)).astype(np.int32)
        return {"words": text[:-1], "next": np.ascontiguousarray(text[1:]).reshape(-1)}

    def to_torch(self, name, value):
        return value.T if name in ("inputs", "recurrent") else value

    def hidden_tf1(self, tf, p, batch):
        """The LSTM's outputs, by time, then by row."""
        words = tf.reshape(batch["words"], [self.words])
        x = tf.nn.embedding_lookup(p["embedding"], words)
        h = c = tf.zeros([ROWS, SIZE])
        outputs = []
        fed = tf.nn.bias_add(tf.matmul(x, p["inputs"]), p["bias"])
        for part in tf.split(fed, STEPS, axis=0):
            gates = part + tf.matmul(h, p["recurrent"])
            take, keep, candidate, give = tf.split(gates, 4, axis=1)
            c = tf.sigmoid(keep) * c + tf.sigmoid(take) * tf.tanh(candidate)
            h = tf.sigmoid(give) * tf.tanh(c)
            outputs.append(h)
        return tf.concat(outputs, axis=0)

    def hidden_torch(self, torch, p, batch):
        x = rows_in_torch(torch, p["embedding"], batch["words"])
        start = torch.zeros(1, ROWS, SIZE)
        no_bias = torch.zeros(4 * SIZE)  # the library has two biases where one is enough
        weights = [p["inputs"], p["recurrent"], p["bias"], no_bias]
        x, _, _ = torch.lstm(x, (start, start), weights, True, 1, 0.0, True, False, False)
        return x.reshape(-1, SIZE)


class FullSoftmax(Language):
    name, title, target = "lm-full", "LSTM-512, full softmax", 1.0

    def tf1(self, tf, p, batch):
        x = self.hidden_tf1(tf, p, batch)
        logits = tf.matmul(x, p["softmax/weights"], transpose_b=True)
        logits = tf.nn.bias_add(logits, p["softmax/bias"])
        return tf.reduce_mean(
            tf.nn.sparse_softmax_cross_entropy_with_logits(labels=batch["next"], logits=logits)
        )

    def torch(self, torch, p, batch):
        x = self.hidden_torch(torch, p, batch)
        logits = torch.nn.functional.linear(x, p["softmax/weights"], p["softmax/bias"])
        return torch.nn.functional.cross_entropy(logits, batch["next"])


class SampledSoftmax(Language):
    name, title, target = "lm-sampled", "LSTM-512, sampled softmax", 1.0
    looked_up = ("embedding", "softmax/weights")

    def batch(self, number):
        found = super().batch(number)
        drawn, tries = different(generator(f"lm candidates {number}"), SAMPLED)
        found["sampled"] = drawn.astype(np.int64)
        found["next_expected"] = expected(found["next"], tries)
        found["sampled_expected"] = expected(drawn, tries)
        return found

    def tf1(self, tf, p, batch):
        x = self.hidden_tf1(tf, p, batch)
        if getattr(p, "plain", False):
            return self.plain_tf1(tf, p, batch, x)
        labels = tf.reshape(tf.cast(batch["next"], tf.int64), [-1, 1])
        counts = tf.reshape(batch["next_expected"], [-1, 1]), batch["sampled_expected"]
        losses = tf.nn.sampled_softmax_loss(
            p["softmax/weights"],
            p["softmax/bias"],
            labels,
            x,
            SAMPLED,
            WORDS,
            sampled_values=(batch["sampled"], *counts),
        )
        return tf.reduce_mean(losses)

    def plain_tf1(self, tf, p, batch, x):
        """The same without the ops that XLA has no kernels for."""
        words, sampled = tf.cast(batch["next"], tf.int64), batch["sampled"]
        ids = tf.concat([words, sampled], 0)
        rows = tf.nn.embedding_lookup(p["softmax/weights"], ids)
        biases = tf.nn.embedding_lookup(p["softmax/bias"], ids)
        count = self.words
        true = tf.reduce_sum(x * rows[:count], 1) + biases[:count]
        others = tf.matmul(x, rows[count:], transpose_b=True) + biases[count:]
        hits = tf.equal(sampled[None, :], words[:, None])
        others += tf.where(hits, tf.fill(hits.shape, tf.float32.min), tf.zeros(hits.shape))
        true -= tf.math.log(batch["next_expected"])
        others -= tf.math.log(batch["sampled_expected"])
        logits = tf.concat([true[:, None], others], 1)
        zeros = tf.zeros([count], tf.int64)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=zeros, logits=logits)
        return tf.reduce_mean(losses)

    def torch(self, torch, p, batch):
        f = torch.nn.functional
        x, sampled, words = self.hidden_torch(torch, p, batch), batch["sampled"], batch["next"]
        ids = torch.cat([words, sampled])
        rows = rows_in_torch(torch, p["softmax/weights"], ids)
        biases = p["softmax/bias"][ids]
        true = (x * rows[: len(words)]).sum(1) + biases[: len(words)]
        others = x @ rows[len(words) :].T + biases[len(words) :]
        hits = sampled[None, :] == words[:, None]
        others = others.masked_fill(hits, torch.finfo(torch.float32).min)
        true = true - batch["next_expected"].log()
        others = others - batch["sampled_expected"].log()
        logits = torch.cat([true[:, None], others], 1)
        return f.cross_entropy(logits, torch.zeros(len(words), dtype=torch.long))
