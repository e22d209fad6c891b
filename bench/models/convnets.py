"""Four convolutional networks: OxfordNet (VGG-A), Overfeat (fast), AlexNet in one tower, GoogLeNet.

A network is a list of layers. A pool whose padding is `same` lets its last window hang over the
edge, as TensorFlow's SAME does for these sizes.
"""

from __future__ import annotations

from typing import NamedTuple

from models.model import Classifier, generator


class Conv(NamedTuple):
    """A convolution with bias and ReLU."""

    outputs: int
    size: int
    stride: int = 1
    pad: int = 0


class MaxPool(NamedTuple):
    size: int
    stride: int
    same: bool = False


class Inception(NamedTuple):
    """Four branches side by side: 1x1; 1x1 then 3x3; 1x1 then 5x5; 3x3 pool then 1x1."""

    one: int
    three_in: int
    three: int
    five_in: int
    five: int
    pool: int


class Average(NamedTuple):
    """The mean over all places."""


class Dense(NamedTuple):
    """A fully connected layer; all but the last have a ReLU."""

    outputs: int


HEAD = [Dense(4096), Dense(4096), Dense(1000)]

VGG = [
    *[Conv(64, 3, 1, 1), MaxPool(2, 2)],
    *[Conv(128, 3, 1, 1), MaxPool(2, 2)],
    *[Conv(256, 3, 1, 1), Conv(256, 3, 1, 1), MaxPool(2, 2)],
    *[Conv(512, 3, 1, 1), Conv(512, 3, 1, 1), MaxPool(2, 2)],
    *[Conv(512, 3, 1, 1), Conv(512, 3, 1, 1), MaxPool(2, 2)],
    *HEAD,
]
OVERFEAT = [
    *[Conv(96, 11, 4), MaxPool(2, 2)],
    *[Conv(256, 5), MaxPool(2, 2)],
    *[Conv(512, 3, 1, 1), Conv(1024, 3, 1, 1), Conv(1024, 3, 1, 1), MaxPool(2, 2)],
    *[Dense(3072), Dense(4096), Dense(1000)],
]
ALEXNET = [
    *[Conv(64, 11, 4, 2), MaxPool(3, 2)],
    *[Conv(192, 5, 1, 2), MaxPool(3, 2)],
    *[Conv(384, 3, 1, 1), Conv(256, 3, 1, 1), Conv(256, 3, 1, 1), MaxPool(3, 2)],
    *HEAD,
]
GOOGLENET = [
    *[Conv(64, 7, 2, 3), MaxPool(3, 2, same=True)],
    *[Conv(64, 1), Conv(192, 3, 1, 1), MaxPool(3, 2, same=True)],
    Inception(64, 96, 128, 16, 32, 32),
    Inception(128, 128, 192, 32, 96, 64),
    MaxPool(3, 2, same=True),
    Inception(192, 96, 208, 16, 48, 64),
    Inception(160, 112, 224, 24, 64, 64),
    Inception(128, 128, 256, 24, 64, 64),
    Inception(112, 144, 288, 32, 64, 64),
    Inception(256, 160, 320, 32, 128, 128),
    MaxPool(3, 2, same=True),
    Inception(256, 160, 320, 32, 128, 128),
    Inception(384, 192, 384, 48, 128, 128),
    *[Average(), Dense(1000)],
]


class ConvNet(Classifier):
    """A list of layers over square images."""

    convolutional = True
    batch_size = 16
    learning_rate = 0.001

    def __init__(self, name, title, layers, size, target, bfloat16=False):
        super().__init__()
        self.name = f"{name}-bf16" if bfloat16 else name
        self.title = f"{title}, bfloat16" if bfloat16 else title
        self.target, self.bfloat16, self.size = target, bfloat16, size
        self.against = ("torch",) if bfloat16 else ()
        self.layers = _named(layers)
        self._add_parameters()

    def _add_parameters(self) -> None:
        """Walk the layers with a shape, (places, channels), and note what each one needs."""
        places, channels = self.size, 3
        # The shape that is flattened before the first dense layer: it decides that one's layout.
        self.flattened: dict[str, tuple[int, int, int]] = {}
        for name, layer in self.layers:
            match layer:
                case Conv(outputs, size, stride, pad):
                    self._add(name, (size, size, channels, outputs))
                    places, channels = (places + 2 * pad - size) // stride + 1, outputs
                case MaxPool(size, stride, same):
                    places = -(-places // stride) if same else (places - size) // stride + 1
                case Inception() as i:
                    for branch, conv in _branches(i).items():
                        inputs = {"three": i.three_in, "five": i.five_in}.get(branch, channels)
                        self._add(f"{name}/{branch}", (conv.size, conv.size, inputs, conv.outputs))
                    channels = i.one + i.three + i.five + i.pool
                case Average():
                    places = 1
                case Dense(outputs):
                    if places:
                        self.flattened[f"{name}/weights"] = (places, places, channels)
                        channels *= places * places
                        places = 0
                    self._add(name, (channels, outputs))
                    channels = outputs

    def _add(self, name: str, shape: tuple[int, ...]) -> None:
        self.parameters[f"{name}/weights"] = shape
        self.parameters[f"{name}/bias"] = shape[-1:]

    def batch(self, number):
        g = generator(f"images {number}")
        shape = (self.batch_size, self.size, self.size, 3)
        return {
            "x": g.standard_normal(shape, "float32"),
            "labels": g.integers(0, self.classes, self.batch_size, "int32"),
        }

    def to_torch(self, name, value):
        if name in self.flattened:  # rows are in HWC order here and in CHW order there
            value = value.reshape(*self.flattened[name], -1).transpose(3, 2, 0, 1)
            return value.reshape(value.shape[0], -1)
        return super().to_torch(name, value)

    def logits(self, n, x):
        def conv(name, layer, x):
            return n.relu(n.conv_bias(name, x, layer.stride, layer.pad))

        for name, layer in self.layers:
            match layer:
                case Conv():
                    x = conv(name, layer, x)
                case MaxPool(size, stride, same):
                    x = n.max_pool(x, size, stride, same)
                case Inception() as i:
                    b = {branch: (f"{name}/{branch}", c) for branch, c in _branches(i).items()}
                    ends = [
                        conv(*b["one"], x),
                        conv(*b["three"], conv(*b["three_in"], x)),
                        conv(*b["five"], conv(*b["five_in"], x)),
                        conv(*b["pool"], n.max_pool(x, 3, 1, same=True)),
                    ]
                    x = n.concat(ends)
                case Average():
                    x = n.average(x)
                case Dense():
                    x = n.flatten(x) if f"{name}/weights" in self.flattened else x
                    x = n.dense(name, x)
                    x = x if name == "logits" else n.relu(x)
        return x


def _named(layers: list) -> list:
    """Pairs of name and layer; the last is called logits."""
    named = [(f"{type(layer).__name__.lower()}{n}", layer) for n, layer in enumerate(layers, 1)]
    return [*named[:-1], ("logits", layers[-1])]


def _branches(i: Inception) -> dict[str, Conv]:
    return {
        "one": Conv(i.one, 1),
        "three_in": Conv(i.three_in, 1),
        "three": Conv(i.three, 3, 1, 1),
        "five_in": Conv(i.five_in, 1),
        "five": Conv(i.five, 5, 1, 2),
        "pool": Conv(i.pool, 1),
    }


def convnets() -> list[ConvNet]:
    """The four, in float32 and in mixed bfloat16."""
    facts = [
        ("vgg", "OxfordNet (VGG-A)", VGG, 224, 3.0),
        ("overfeat", "Overfeat (fast)", OVERFEAT, 231, 2.2),
        ("alexnet", "AlexNet (one tower)", ALEXNET, 224, 1.8),
        ("googlenet", "GoogLeNet v1", GOOGLENET, 224, 1.5),
    ]
    return [ConvNet(*fact) for fact in facts] + [
        ConvNet(name, title, layers, size, target=1.2, bfloat16=True)
        for name, title, layers, size, _ in facts
    ]
