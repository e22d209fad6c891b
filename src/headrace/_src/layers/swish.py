"""tf.nn.swish, with a custom gradient so that a step need not keep the sigmoid."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace._src.core.export import export
from headrace._src.gradients.custom import custom_gradient
from headrace._src.graph.operation import Tensor
from headrace._src.ops.base.define import b
from headrace._src.ops.base.to_tensor import convert_to_tensor

__all__ = ["swish"]


@export("nn.swish")
@custom_gradient
def swish(features: Any) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """Return features * sigmoid(features)."""
    features = convert_to_tensor(features, name="features")

    def grad(dy: Tensor) -> Tensor:
        gate = b.sigmoid(features)
        return dy * (gate * (1.0 + features * (1.0 - gate)))

    return features * b.sigmoid(features), grad
