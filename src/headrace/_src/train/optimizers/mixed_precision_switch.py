"""Mixed precision in one call. In: an optimizer. Out: one that scales the loss, in a graph whose
matrix products and convolutions compute in 16 bits.

The graph itself doesn't change: the pipeline inserts the casts when it prepares a step
(`optimize.mixed_precision`), gradients included.
"""

from __future__ import annotations

from typing import Any

from headrace._src.core.export import export
from headrace._src.graph.default import get_default_graph
from headrace._src.train.optimizers.loss_scale import MixedPrecisionLossScaleOptimizer
from headrace._src.train.optimizers.optimizer import Optimizer

__all__ = ["disable_mixed_precision_graph_rewrite", "enable_mixed_precision_graph_rewrite"]


@export("train.experimental.enable_mixed_precision_graph_rewrite")
def enable_mixed_precision_graph_rewrite(
    opt: Optimizer, loss_scale: Any = "dynamic"
) -> MixedPrecisionLossScaleOptimizer:
    """Make the default graph compute in mixed precision, and return `opt` wrapped in loss scaling.

    loss_scale    "dynamic", a number, or a tf.train.experimental.LossScale

        optimizer = tf.train.AdamOptimizer(1e-3)
        optimizer = tf.train.experimental.enable_mixed_precision_graph_rewrite(optimizer)
        train = optimizer.minimize(loss)

    Matrix products, convolutions and the operations between them then take and return bfloat16,
    with sums in float32. Variables, slots, checkpoints, feeds and fetches stay float32, as do
    softmaxes, reductions and losses. The 16 bits are bfloat16, not the float16 that TensorFlow uses
    on its
    GPUs: processors that multiply 16-bit floats support bfloat16, and it has float32's range. So
    gradients hardly vanish, and loss scaling makes little difference; float16 would need it and be
    no faster.

    The setting belongs to the graph: steps that ran before keep their precision. A ConfigProto's
    graph_options.rewrite_options.auto_mixed_precision decides for a single session.
    A step that isn't specialised for its shapes runs in float32.
    """
    if isinstance(opt, MixedPrecisionLossScaleOptimizer):
        raise ValueError(
            '"opt" must not already be an instance of a MixedPrecisionLossScaleOptimizer. '
            "`enable_mixed_precision_graph_rewrite` will automatically wrap the optimizer with a "
            "MixedPrecisionLossScaleOptimizer."
        )
    if not isinstance(opt, Optimizer):
        raise ValueError(
            '"opt" must be an instance of a tf.train.Optimizer or a tf.keras.optimizers.Optimizer, '
            f"but got: {opt}"
        )
    wrapped = MixedPrecisionLossScaleOptimizer(opt, loss_scale)
    get_default_graph().mixed_precision = True
    return wrapped


@export("train.experimental.disable_mixed_precision_graph_rewrite")
def disable_mixed_precision_graph_rewrite() -> None:
    """Let steps of the default graph that haven't run yet compute in float32 again."""
    get_default_graph().mixed_precision = False
