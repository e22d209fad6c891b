"""The workloads, by name."""

from models.convnets import convnets
from models.language import FullSoftmax, SampledSoftmax
from models.lstm import LSTM
from models.mlp import MLP
from models.model import Batch, Model
from models.resnet import ResNet50
from models.tanh import Tanh
from models.transformer import Transformer

MODELS: dict[str, Model] = {
    m.name: m for m in [*convnets(), ResNet50(), MLP(), LSTM(), Transformer(), Tanh()]
}

# The works of bench/lm.py, which compares them with each other too.
LANGUAGE: dict[str, Model] = {m.name: m for m in [FullSoftmax(), SampledSoftmax()]}
