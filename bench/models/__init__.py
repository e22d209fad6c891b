"""The workloads, by name."""

from models.convnets import convnets
from models.mlp import MLP
from models.model import Batch, Model
from models.tanh import Tanh

MODELS: dict[str, Model] = {m.name: m for m in [*convnets(), MLP(), Tanh()]}
