"""A multi-layer perceptron, 784-256-256-10."""

from models.model import Classifier, generator


class MLP(Classifier):
    name, title, target = "mlp", "MLP 784-256-256-10, batch 128", 1.7
    learning_rate = 0.1
    classes = 10
    sizes = (784, 256, 256, 10)
    layers = ("hidden1", "hidden2", "logits")

    def __init__(self):
        super().__init__()
        for layer, inputs, outputs in zip(self.layers, self.sizes, self.sizes[1:]):
            self.parameters[f"{layer}/weights"] = (inputs, outputs)
            self.parameters[f"{layer}/bias"] = (outputs,)

    def batch(self, number):
        g = generator(f"{self.name} batch {number}")
        return {
            "x": g.standard_normal((128, 784), "float32"),
            "labels": g.integers(0, 10, 128, "int32"),
        }

    def logits(self, n, x):
        *hidden, last = self.layers
        for layer in hidden:
            x = n.relu(n.dense(layer, x))
        return n.dense(last, x)
