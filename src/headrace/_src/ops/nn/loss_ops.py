"""Losses: cross entropies of softmax and sigmoid, Poisson, and L2.

The cross entropy ops also return the gradient for the logits, `backprop`, because they compute it
on the way.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace._src.core.export import export
from headrace._src.core.tensor_shape import TensorShape, show_shape
from headrace._src.graph.definition import Kind, Precision, Sample
from headrace._src.graph.inference import constant_value
from headrace._src.graph.operation import Tensor
from headrace._src.lowering import anchors
from headrace._src.lowering.rules import Anchor, Reduce, Site
from headrace._src.ops.base import infer
from headrace._src.ops.base.builder import OpBuilder
from headrace._src.ops.base.counted import counted
from headrace._src.ops.base.define import b, composed, define
from headrace._src.ops.base.renamed_arguments import renamed_argument
from headrace._src.ops.base.samples import r
from headrace._src.ops.base.to_tensor import convert_to_tensor, name_scope
from headrace._src.ops.math.sum_precision import widened
from headrace._src.ops.nn.softmax_ops import shifted_exp

__all__ = [
    "l2_loss",
    "log_poisson_loss",
    "sigmoid_cross_entropy_with_logits",
    "softmax_cross_entropy_with_logits",
    "softmax_cross_entropy_with_logits_v2",
    "sparse_softmax_cross_entropy_with_logits",
    "weighted_cross_entropy_with_logits",
]


# ---- softmax cross entropy -----------------------------------------------------------------------


def _cross_entropy(features: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    shape = features.shape
    if labels.shape != shape:
        try:
            shape = np.broadcast_shapes(shape, labels.shape)
        except ValueError:
            shape = ()
    if len(shape) != 2:
        raise ValueError(
            "logits and labels must be broadcastable: "
            f"logits_size={show_shape(features.shape)} labels_size={show_shape(labels.shape)}"
        )
    dtype = features.dtype
    labels = widened(labels)
    if features.shape != shape:
        features = np.broadcast_to(features, shape)
    shifted, backprop, total = shifted_exp(features)
    np.subtract(np.log(total), shifted, out=shifted)
    np.multiply(shifted, labels, out=shifted)
    loss = shifted.sum(axis=1)
    backprop /= total
    backprop -= labels
    return loss.astype(dtype, copy=False), backprop.astype(dtype, copy=False)


def _cross_entropy_infer(c: Any, features: TensorShape, labels: TensorShape) -> list[Any]:
    if features.is_compatible_with(labels):
        merged = features.merge_with(labels)
    else:
        merged = infer.broadcasting(c, features, labels)
    merged = infer.with_rank(merged, 2)
    return [merged[:1], merged]


def is_zero(gradient: Tensor) -> bool:
    """Whether a gradient consists of zeros that were made because nothing uses the output."""
    if gradient.op.type in ("Fill", "ZerosLike"):
        value = constant_value(gradient.op.inputs[-1])
        is_empty = 0 in (gradient.shape.sizes or ())
        zeros = is_empty or (value is not None and not value.any())
        return gradient.op.type == "ZerosLike" or zeros
    value = constant_value(gradient)
    return value is not None and not value.any()


def _scaled_rows(vector: Tensor, matrix: Tensor) -> Tensor:
    return b.multiply(b.expand_dims(vector, -1), matrix)


def _through_softmax(b: OpBuilder, grad: Tensor, logits: Tensor) -> Tensor:
    """Return the gradient for the logits, given the gradient of their softmax."""
    probabilities = b.softmax(logits)
    mean = b.reduce_sum(b.multiply(grad, probabilities), 1, keepdims=True)
    return b.multiply(b.subtract(grad, mean), probabilities)


@counted(
    lambda op, grad_loss, grad_backprop: 8 if is_zero(grad_backprop) else 18,
    reads=lambda op: [op.inputs[0], op.outputs[1]],
)
def _cross_entropy_gradient(b: OpBuilder, op: Any, grad_loss: Any, grad_backprop: Any) -> Any:
    logits, labels = op.inputs
    backprop = op.outputs[1]
    for_logits = _scaled_rows(grad_loss, backprop)
    for_labels = _scaled_rows(grad_loss, b.negative(b.log_softmax(logits)))
    if not is_zero(grad_backprop):
        for_logits = b.add(for_logits, _through_softmax(b, grad_backprop, logits))
        for_labels = b.subtract(for_labels, grad_backprop)
    return b.sum_to(for_logits, logits), b.sum_to(for_labels, labels)


@define(
    "SoftmaxCrossEntropyWithLogits",
    "features: T, labels: T -> loss: T, backprop: T",
    "T: {floats}",
    infer=_cross_entropy_infer,
    kernel=_cross_entropy,
    fresh=True,
    gradient=_cross_entropy_gradient,
    samples=[
        # Rows of labels sum to 1: `backprop` relies on it.
        Sample(r(2, 3), [[0.25, 0.5, 0.25], [1, 0, 0]]),
        Sample(r(2, 3), [[0.25, 0.5, 0.25]]),
        Sample(r(0, 3), np.zeros((0, 3))),
    ],
    lower=Anchor("cross_entropy", anchors.cross_entropy),
    precision=Precision.WIDE,
)
def softmax_cross_entropy_op(features, labels, name=None):
    """Return, per row, the cross entropy between labels and softmax(features), and its gradient."""


def _sparse_cross_entropy(
    features: np.ndarray, labels: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    if features.ndim != 2 or labels.ndim != 1 or len(labels) != len(features):
        raise ValueError(
            "logits must be [rows, classes] and labels [rows], "
            f"got logits shape {list(features.shape)} and labels shape {list(labels.shape)}"
        )
    classes = features.shape[1]
    if len(labels) and not (labels.min() >= 0 and labels.max() < classes):
        bad = labels[(labels < 0) | (labels >= classes)][0]
        shown = " ".join(map(str, labels[:10].tolist()))
        raise ValueError(
            f"Received a label value of {bad} which is outside the valid range of [0, {classes}).  "
            f"Label values: {shown}"
        )
    dtype = features.dtype
    rows = np.arange(len(labels))
    shifted, backprop, total = shifted_exp(features)
    loss = np.log(total[:, 0]) - shifted[rows, labels]
    backprop /= total
    backprop[rows, labels] -= 1
    return loss.astype(dtype, copy=False), backprop.astype(dtype, copy=False)


def _sparse_cross_entropy_infer(c: Any, features: TensorShape, labels: TensorShape) -> list[Any]:
    features = features.with_rank(2)
    labels = labels.with_rank(1)
    rows = features[:1].merge_with(labels)
    return [rows, rows.concatenate(features[1:])]


@counted(4)
def _sparse_cross_entropy_gradient(
    b: OpBuilder, op: Any, grad_loss: Any, grad_backprop: Any
) -> Any:
    logits = op.inputs[0]
    for_logits = _scaled_rows(grad_loss, op.outputs[1])
    if not is_zero(grad_backprop):
        for_logits = b.add(for_logits, _through_softmax(b, grad_backprop, logits))
    return for_logits, None


@define(
    "SparseSoftmaxCrossEntropyWithLogits",
    "features: T, labels: Tlabels -> loss: T, backprop: T",
    "T: {floats}; Tlabels: {index} = int64",
    infer=_sparse_cross_entropy_infer,
    kernel=_sparse_cross_entropy,
    fresh=True,
    gradient=_sparse_cross_entropy_gradient,
    samples=[Sample(r(3, 4), [0, 3, 1]), Sample(r(0, 2), np.zeros(0, np.int64))],
    lower=Anchor("cross_entropy", anchors.sparse_cross_entropy),
    precision=Precision.WIDE,
)
def sparse_softmax_cross_entropy_op(features, labels, name=None):
    """Return, per row, minus the log of the softmax probability of the label, and its gradient."""


def _require_named(what: str, sentinel: Any, labels: Any, logits: Any) -> None:
    if sentinel is not None:
        raise ValueError(f"Only call `{what}` with named arguments (labels=..., logits=..., ...)")
    if labels is None or logits is None:
        raise ValueError("Both labels and logits must be provided.")


@composed
@export("nn.softmax_cross_entropy_with_logits")
def softmax_cross_entropy_with_logits(
    _sentinel: Any = None,
    labels: Any = None,
    logits: Any = None,
    dim: int = -1,
    name: str | None = None,
    axis: int | None = None,
) -> Tensor:
    """Return the cross entropy between labels and softmax(logits); labels get no gradient."""
    dim = axis if axis is not None else dim
    _require_named("softmax_cross_entropy_with_logits", _sentinel, labels, logits)
    with name_scope(name, "softmax_cross_entropy_with_logits_sg", [logits, labels]) as scope:
        labels = b.stop_gradient(labels, name="labels_stop_gradient")
        return softmax_cross_entropy_with_logits_v2(labels, logits, axis=dim, name=scope)


@composed
@export("nn.softmax_cross_entropy_with_logits_v2")
def softmax_cross_entropy_with_logits_v2(
    labels: Any,
    logits: Any,
    axis: int | None = None,
    name: str | None = None,
    dim: int | None = None,
) -> Tensor:
    """Return the cross entropy between labels and softmax(logits) along `axis` (default: last).

    The labels also get a gradient. float16 and bfloat16 logits are computed in float32.
    """
    axis = renamed_argument("axis", axis, "dim", dim)
    axis = -1 if axis is None else axis
    _require_named("softmax_cross_entropy_with_logits", None, labels, logits)
    with name_scope(name, "softmax_cross_entropy_with_logits", [logits, labels]) as scope:
        logits = convert_to_tensor(logits, name="logits")
        labels = convert_to_tensor(labels, name="labels")
        narrow = logits.dtype.size == 2
        precise = b.cast(logits, "float32") if narrow else logits
        labels = b.cast(labels, precise.dtype)
        rank = b.rank(precise)
        shape = logits.shape
        if axis != -1:
            precise = _to_last(precise, axis, rank)
            labels = _to_last(labels, axis, rank)
        outer = b.shape(precise)
        precise, labels = _as_matrix(precise), _as_matrix(labels)
        cost, _ = softmax_cross_entropy_op(precise, labels, name=scope)
        # The loss has the logits' shape, without the class dimension.
        sizes = b.slice(outer, [0], [b.subtract(rank, 1)])
        cost = b.reshape(cost, sizes)
        if shape.sizes is not None:
            kept = list(shape.sizes)
            del kept[axis]
            cost.set_shape(kept)
        return b.cast(cost, logits.dtype) if narrow else cost


def _to_last(x: Tensor, axis: int, rank: Tensor) -> Tensor:
    """Move `axis` to the end; the other axes keep their order."""
    order = [b.range(axis), b.range(axis + 1, rank), [axis]]
    return b.transpose(x, b.concat(order, 0))


def _as_matrix(x: Tensor) -> Tensor:
    """Flatten all dimensions except the last."""
    rank = b.rank(x)
    last = b.slice(b.shape(x), [b.subtract(rank, 1)], [1])
    matrix = b.reshape(x, b.concat([[-1], last], 0))
    rows = x.shape[:-1].num_elements()
    if rows is not None:
        matrix.set_shape(TensorShape([rows]).concatenate(x.shape[-1:]))
    return matrix


@composed
@export("nn.sparse_softmax_cross_entropy_with_logits")
def sparse_softmax_cross_entropy_with_logits(
    _sentinel: Any = None, labels: Any = None, logits: Any = None, name: str | None = None
) -> Tensor:
    """Return the cross entropy between class indices [...] and softmax(logits [..., classes])."""
    _require_named("sparse_softmax_cross_entropy_with_logits", _sentinel, labels, logits)
    scope_name = "SparseSoftmaxCrossEntropyWithLogits"
    with name_scope(name, scope_name, [labels, logits]):
        labels = convert_to_tensor(labels)
        logits = convert_to_tensor(logits)
        precise = b.cast(logits, "float32") if logits.dtype.name == "float16" else logits
        labels_shape = b.shape(labels)
        _check_sparse_ranks(labels, logits)
        if logits.shape.ndims == 2:
            cost, _ = sparse_softmax_cross_entropy_op(precise, labels, name=name)
        else:
            classes = b.shape(logits)[b.rank(logits) - 1]
            precise = b.reshape(precise, [-1, classes])
            flat = b.reshape(labels, [-1])
            cost, _ = sparse_softmax_cross_entropy_op(precise, flat, name=name)
            cost = b.reshape(cost, labels_shape)
            cost.set_shape(labels.shape)
        return b.cast(cost, "float16") if logits.dtype.name == "float16" else cost


def _check_sparse_ranks(labels: Tensor, logits: Tensor) -> None:
    if logits.shape.ndims == 0:
        raise ValueError(f"Logits cannot be scalars - received shape {logits.shape}.")
    if logits.shape.ndims is not None and labels.shape.ndims is not None:
        if labels.shape.ndims != logits.shape.ndims - 1:
            raise ValueError(
                "Rank mismatch: Rank of labels (received "
                f"{labels.shape.ndims}) should equal rank of logits minus 1 "
                f"(received {logits.shape.ndims})."
            )
        if not labels.shape.is_compatible_with(logits.shape[:-1]):
            raise ValueError(
                f"Shape mismatch: The shape of labels (received {labels.shape}) should equal the "
                f"shape of logits except for the last dimension (received {logits.shape})."
            )


# ---- sigmoid cross entropy -----------------------------------------------------------------------


def _require_same_shape(first: str, x: Tensor, second: str, y: Tensor) -> None:
    try:
        y.shape.merge_with(x.shape)
    except ValueError:
        raise ValueError(
            f"{first} and {second} must have the same shape ({x.shape} vs {y.shape})"
        ) from None


@composed
@export("nn.sigmoid_cross_entropy_with_logits")
def sigmoid_cross_entropy_with_logits(
    _sentinel: Any = None, labels: Any = None, logits: Any = None, name: str | None = None
) -> Tensor:
    """Return -labels * log(sigmoid(logits)) - (1 - labels) * log(1 - sigmoid(logits)).

    Written as max(x, 0) - x * z + log(1 + exp(-|x|)), which neither overflows nor cancels.
    """
    _require_named("sigmoid_cross_entropy_with_logits", _sentinel, labels, logits)
    with name_scope(name, "logistic_loss", [logits, labels]) as scope:
        logits = convert_to_tensor(logits, name="logits")
        labels = convert_to_tensor(labels, name="labels")
        _require_same_shape("logits", logits, "labels", labels)
        zeros = b.zeros_like(logits, dtype=logits.dtype)
        positive = b.greater_equal(logits, zeros)
        above_zero = b.where(positive, logits, zeros)
        minus_abs = b.where(positive, b.negative(logits), logits)
        return b.add(above_zero - logits * labels, b.log1p(b.exp(minus_abs)), name=scope)


@composed
@export("nn.weighted_cross_entropy_with_logits")
def weighted_cross_entropy_with_logits(
    labels: Any = None,
    logits: Any = None,
    pos_weight: Any = None,
    name: str | None = None,
    targets: Any = None,
) -> Tensor:
    """Return the sigmoid cross entropy with positive labels weighted by `pos_weight`."""
    labels = renamed_argument("labels", labels, "targets", targets)
    with name_scope(name, "logistic_loss", [logits, labels]) as scope:
        logits = convert_to_tensor(logits, name="logits")
        labels = convert_to_tensor(labels, name="labels")
        _require_same_shape("logits", logits, "labels", labels)
        weight = 1 + (pos_weight - 1) * labels
        negative = (1 - labels) * logits
        # log(1 + exp(-x)) is log(1 + exp(-|x|)) + max(-x, 0), which does not overflow.
        soft = b.log1p(b.exp(-b.abs(logits))) + b.relu(-logits)
        return b.add(negative, weight * soft, name=scope)


@composed
@export("nn.log_poisson_loss")
def log_poisson_loss(
    targets: Any, log_input: Any, compute_full_loss: bool = False, name: str | None = None
) -> Tensor:
    """Return exp(log_input) - log_input * targets: minus the log of the Poisson probability of
    targets.

    compute_full_loss: add log(targets!) by Stirling's approximation, for targets above 1.
    """
    with name_scope(name, "log_poisson_loss", [log_input, targets]):
        log_input = convert_to_tensor(log_input, name="log_input")
        targets = convert_to_tensor(targets, name="targets")
        _require_same_shape("log_input", log_input, "targets", targets)
        result = b.exp(log_input) - log_input * targets
        if not compute_full_loss:
            return result
        point_five = b.constant(0.5, dtype=targets.dtype)
        two_pi = b.constant(2 * np.pi, dtype=targets.dtype)
        stirling = targets * b.log(targets) - targets + point_five * b.log(two_pi * targets)
        zeros = b.zeros_like(targets, dtype=targets.dtype)
        ones = b.ones_like(targets, dtype=targets.dtype)
        small = b.logical_and(targets >= zeros, targets <= ones)
        return result + b.where(small, zeros, stirling)


# ---- L2 ------------------------------------------------------------------------------------------


def _l2_loss(t: np.ndarray) -> np.ndarray:
    flat = widened(np.asarray(t)).reshape(-1)
    return np.asarray(np.dot(flat, flat) / 2).astype(t.dtype)


def _all_axes(site: Site) -> tuple[int, ...]:
    return tuple(range(len(site.input_shapes[0])))


@export("nn.l2_loss")
@define(
    "L2Loss",
    "t: T -> output: T",
    "T: {floats}",
    infer=infer.scalar,
    kernel=_l2_loss,
    gradient=lambda b, op, dy: b.multiply(op.inputs[0], dy),
    kind=Kind.REDUCTION,
    samples=[Sample(r(2, 3)), Sample(r()), Sample(r(0, 2))],
    lower=Reduce(
        "sum", lambda e, x: e.square(e.wide(x)), lambda e, total, count: total / 2, axes=_all_axes
    ),
)
def l2_loss(t, name=None):
    """Return half the sum of the squares of t."""
