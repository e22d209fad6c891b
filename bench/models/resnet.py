"""ResNet-50, version 1.5 (a block's stride is in its 3x3 convolution), in training mode."""

from __future__ import annotations

from models.model import Classifier, generator

# Blocks and inner channels of each stage; a block's output has four times as many.
STAGES = ((3, 64), (4, 128), (6, 256), (3, 512))
EXPANSION = 4


class ResNet50(Classifier):
    name, title, target = "resnet", "ResNet-50", 1.3
    learning_rate = 0.001
    convolutional = True
    batch_size, size = 16, 224

    def __init__(self):
        super().__init__()
        self._add("stem", (7, 7, 3, 64))
        channels = 64
        for name, inner, _, projects in _blocks():
            if projects:
                self._add(f"{name}/project", (1, 1, channels, inner * EXPANSION))
            self._add(f"{name}/reduce", (1, 1, channels, inner))
            self._add(f"{name}/middle", (3, 3, inner, inner))
            self._add(f"{name}/expand", (1, 1, inner, inner * EXPANSION))
            channels = inner * EXPANSION
        self.parameters["logits/weights"] = (channels, self.classes)
        self.parameters["logits/bias"] = (self.classes,)

    def _add(self, name: str, shape: tuple[int, ...]) -> None:
        """A convolution and the batch normalisation that follows it."""
        self.parameters[f"{name}/weights"] = shape
        for part in ("gain", "bias"):
            self.parameters[f"{name}/{part}"] = shape[-1:]
        for part in ("mean", "variance"):
            self.state[f"{name}/{part}"] = shape[-1:]

    def batch(self, number):
        g = generator(f"images {number}")
        shape = (self.batch_size, self.size, self.size, 3)
        return {
            "x": g.standard_normal(shape, "float32"),
            "labels": g.integers(0, self.classes, self.batch_size, "int32"),
        }

    def logits(self, n, x):
        def conv(name, x, stride=1, pad=0):
            return n.batch_norm(name, n.conv(name, x, stride, pad))

        x = n.relu(conv("stem", x, stride=2, pad=3))
        x = n.max_pool(x, 3, 2, same=True)
        for name, _, stride, projects in _blocks():
            shortcut = conv(f"{name}/project", x, stride) if projects else x
            y = n.relu(conv(f"{name}/reduce", x))
            y = n.relu(conv(f"{name}/middle", y, stride, pad=1))
            x = n.relu(conv(f"{name}/expand", y) + shortcut)
        return n.dense("logits", n.average(x))


def _blocks():
    """Name, inner channels, stride and whether the shortcut is a projection, of each block."""
    for stage, (count, inner) in enumerate(STAGES, 1):
        for block in range(1, count + 1):
            first = block == 1
            yield f"stage{stage}/block{block}", inner, 2 if first and stage > 1 else 1, first
