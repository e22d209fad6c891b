"""A linear model. In: features, and columns of any kind. Out: logits."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from headrace._src.core import dtypes
from headrace._src.estimator.columns.linear_model import LinearModel, OldLinearModel
from headrace._src.graph.operation import Tensor
from headrace._src.ops.base.define import b
from headrace._src.ops.base.to_tensor import constant, name_scope
from headrace._src.ops.io import summary_functions
from headrace._src.train.optimizers.step_optimizers import FtrlOptimizer
from headrace._src.variables.partition import PartitionedVariable

__all__ = ["default_optimizer", "linear_logits"]


def default_optimizer(columns: tuple[Any, ...]) -> FtrlOptimizer:
    return FtrlOptimizer(learning_rate=min(0.2, 1.0 / math.sqrt(len(columns))))


def linear_logits(
    features: Mapping[str, Any], columns: tuple[Any, ...], units: int, combiner: str
) -> Tensor:
    """Build a linear model in the current variable scope."""
    if any(column.old_style for column in columns):
        old = OldLinearModel(columns, units, combiner)
        logits = old(features)
        bias = _parts(old.cols_to_vars["bias"])
        weights = [v for key, parts in old.cols_to_vars.items() if key != "bias" for v in parts]
    else:
        model = LinearModel(columns, units, combiner)
        logits = model(features)
        bias, weights = _parts([model.bias]), model.variables
    if units > 1:
        summary_functions.histogram("bias", bias)
    else:
        summary_functions.scalar("bias", bias[0][0])
    summary_functions.scalar("fraction_of_zero_weights", _fraction_of_zero(_parts(weights)))
    return logits


def _parts(variables: list[Any]) -> list[Any]:
    return [
        part
        for variable in variables
        for part in (list(variable) if isinstance(variable, PartitionedVariable) else [variable])
    ]


def _fraction_of_zero(variables: list[Any]) -> Tensor:
    with name_scope("zero_fraction"):
        with name_scope("total_size"):
            sizes = [b.size(variable, out_type=dtypes.int64) for variable in variables]
            total = b.add_n(sizes)
        with name_scope("total_zero"):
            zeros = b.add_n([_zeros(v, size) for v, size in zip(variables, sizes, strict=True)])
        with name_scope("compute"):
            fraction = zeros / b.cast(total, dtypes.float32, name="float32_size")
        return b.identity(fraction, name="zero_fraction_or_nan")


def _zeros(variable: Any, size: Tensor) -> Tensor:
    """Return the fraction of elements that are zero, even if there are no elements."""
    return b.cond(
        b.equal(size, constant(0, dtype=dtypes.int64)),
        lambda: constant(0, dtype=dtypes.float32),
        lambda: b.zero_fraction(variable) * b.to_float(size),
        name="zero_count",
    )
