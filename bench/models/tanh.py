"""A thousand dependent scalar operations: what an operation costs when there is nothing to do."""

from models.model import Model, generator


class Tanh(Model):
    name, title, target = "tanh", "1,000 dependent scalar tanh", 20
    count = 1000
    # The bar is the rate of ops in a graph of ops; who fuses the chain is shown beside it.
    against = ("tf graph",)

    def batch(self, number):
        return {"x": generator(f"{self.name} batch {number}").standard_normal((), "float32")}

    def tf1(self, tf, p, batch):
        return self._chain(tf.tanh, batch)

    def torch(self, torch, p, batch):
        return self._chain(torch.tanh, batch)

    def jax(self, jax, p, batch):
        return self._chain(jax.numpy.tanh, batch)

    def _chain(self, tanh, batch):
        y = batch["x"]
        for _ in range(self.count):
            y = tanh(y)
        return y
