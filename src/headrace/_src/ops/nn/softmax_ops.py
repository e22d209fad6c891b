"""Softmax and its logarithm, along the last axis (the ops) or any (the public functions)."""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace._src.core.errors import InvalidArgumentError
from headrace._src.core.export import export
from headrace._src.devices import onednn
from headrace._src.graph.definition import Precision, Sample
from headrace._src.graph.inference import constant_value
from headrace._src.graph.operation import Tensor
from headrace._src.lowering import anchors, generated
from headrace._src.lowering.rules import Anchor
from headrace._src.ops.base.builder import OpBuilder
from headrace._src.ops.base.define import b, composed, define
from headrace._src.ops.base.onednn_kernel import onednn_kernel
from headrace._src.ops.base.renamed_arguments import renamed_argument
from headrace._src.ops.base.samples import r
from headrace._src.ops.base.to_tensor import convert_to_tensor
from headrace._src.ops.math.sum_precision import widened

__all__ = ["log_softmax", "shifted_exp", "softmax"]

_GENERATED = ("float32", "float64")  # the types of the generated kernel


def shifted_exp(logits: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return logits minus their row's maximum, the exponentials of that, and their row sums."""
    wide = widened(logits)
    shifted = wide - wide.max(axis=-1, keepdims=True, initial=-np.inf)
    exponentials = np.exp(shifted)
    return shifted, exponentials, exponentials.sum(axis=-1, keepdims=True)


def _require_rank(logits: np.ndarray) -> None:
    if not np.ndim(logits):
        raise ValueError("logits must have at least one dimension, got a scalar")


def _softmax(logits: np.ndarray) -> np.ndarray:
    _require_rank(logits)
    _, exponentials, total = shifted_exp(logits)
    exponentials /= total
    return exponentials.astype(logits.dtype, copy=False)


def _native_softmax(logits: np.ndarray) -> np.ndarray:
    """By generated code if the array is large, or by oneDNN."""
    if logits.size >= generated.LEAST and logits.dtype.name in _GENERATED:
        run = generated.routine("softmax", logits.dtype.name)
        found = run(np.ascontiguousarray(logits)) if run is not None else None
        if found is not None:
            return found
    # There is no native log_softmax: oneDNN's is off by 4e-6, four times NumPy's error.
    return onednn.softmax(logits)


def _log_softmax(logits: np.ndarray) -> np.ndarray:
    _require_rank(logits)
    shifted, _, total = shifted_exp(logits)
    shifted -= np.log(total)
    return shifted.astype(logits.dtype, copy=False)


def _at_least_a_vector(c: Any, logits: Any) -> Any:
    if logits.ndims == 0:
        raise ValueError("Shape must be at least rank 1 but is rank 0")
    return logits


def _softmax_gradient(b: OpBuilder, op: Any, grad: Any) -> Any:
    y = op.outputs[0]
    mean = b.reduce_sum(b.multiply(grad, y), -1, keepdims=True)
    return b.multiply(b.subtract(grad, mean), y)


def _log_softmax_gradient(b: OpBuilder, op: Any, grad: Any) -> Any:
    total = b.reduce_sum(grad, -1, keepdims=True)
    return b.subtract(grad, b.multiply(total, b.exp(op.outputs[0])))


_SOFTMAX_SAMPLES = [Sample(r(3, 4)), Sample(r(5)), Sample(r(2, 3, 4)), Sample(r(0, 3))]


@define(
    "Softmax",
    "logits: T -> softmax: T",
    "T: {floats}",
    infer=_at_least_a_vector,
    kernel=_softmax,
    kernels={"CPU": [onednn_kernel(_native_softmax)]},
    fresh=True,
    gradient=_softmax_gradient,
    samples=_SOFTMAX_SAMPLES,
    lower=Anchor("softmax", anchors.softmax),
    precision=Precision.WIDE,
)
def softmax_op(logits, name=None):
    """Return exp(logits), scaled so that each row (along the last axis) sums to 1."""


@define(
    "LogSoftmax",
    "logits: T -> logsoftmax: T",
    "T: {floats}",
    infer=_at_least_a_vector,
    kernel=_log_softmax,
    fresh=True,
    gradient=_log_softmax_gradient,
    samples=_SOFTMAX_SAMPLES,
    lower=Anchor("softmax", anchors.log_softmax),
    precision=Precision.WIDE,
)
def log_softmax_op(logits, name=None):
    """Return the logarithm of softmax along the last axis."""


def _swapped(x: Tensor, axis: Any, last: Any, name: str | None = None) -> Tensor:
    """Swap `axis` with the `last` one, whose index may be known only in the step."""
    order = [b.range(axis), [last], b.range(axis + 1, last), [axis]]
    return b.transpose(x, b.concat(order, 0), name=name)


def _along(compute: Any, logits: Any, axis: Any, name: str | None) -> Tensor:
    """Apply `compute`, which works on the last axis, along `axis`."""
    logits = convert_to_tensor(logits)
    shape = logits.shape
    if axis == -1 or (shape.ndims is not None and axis == shape.ndims - 1):
        return compute(logits, name=name)
    known = constant_value(axis) if isinstance(axis, Tensor) else axis
    rank = shape.ndims
    if known is not None and rank is not None and not -rank <= known < rank:
        raise InvalidArgumentError(
            None,
            None,
            f"Dimension ({known}) must be in the range [{-rank}, {rank}) where {rank} is the "
            "number of dimensions in the input.",
        )
    if rank is None:
        raise ValueError("softmax along an axis other than the last needs logits of known rank")
    count = b.rank(logits)  # added even if unused: the names of later nodes depend on it
    if isinstance(axis, int) and axis < 0:
        axis = axis + count
    count = b.rank(logits)
    axis = axis % rank
    swapped = _swapped(logits, axis, b.subtract(count, 1))
    result = compute(swapped)
    result = _swapped(result, axis, b.subtract(count, 1), name=name)
    result.set_shape(shape)
    return result


@composed
@export("nn.softmax", "math.softmax")
def softmax(logits: Any, axis: Any = None, name: str | None = None, dim: Any = None) -> Tensor:
    """Return exp(logits), scaled to sum to 1 along `axis` (default: the last; `dim` is its old
    name).
    """
    axis = renamed_argument("axis", axis, "dim", dim)
    return _along(softmax_op, logits, -1 if axis is None else axis, name)


@composed
@export("nn.log_softmax", "math.log_softmax")
def log_softmax(logits: Any, axis: Any = None, name: str | None = None, dim: Any = None) -> Tensor:
    """Return the logarithm of softmax along `axis` (default: the last; `dim` is its old name)."""
    axis = renamed_argument("axis", axis, "dim", dim)
    return _along(log_softmax_op, logits, -1 if axis is None else axis, name)
