"""The cross entropy of sequences: tf.contrib.seq2seq.sequence_loss for tensors, and those of
tf.contrib.legacy_seq2seq for lists with a tensor per time step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from headrace._src.core.export import export
from headrace._src.graph.operation import Tensor
from headrace._src.ops.base.define import b
from headrace._src.ops.base.to_tensor import convert_to_tensor, name_scope

__all__ = ["sequence_loss", "sequence_loss_by_example"]

_TINY = 1e-12  # against division by a zero sum of weights


@export("contrib.seq2seq.sequence_loss")
def sequence_loss(
    logits: Any,
    targets: Any,
    weights: Any,
    average_across_timesteps: bool = True,
    average_across_batch: bool = True,
    sum_over_timesteps: bool = False,
    sum_over_batch: bool = False,
    softmax_loss_function: Callable[..., Any] | None = None,
    name: str | None = None,
) -> Tensor:
    """Return the weighted cross entropy of logits [batch, time, classes] and targets [batch, time].

    average_across_*, sum_over_*: whether to average over time and batch, dividing by the sum of the
    weights, or to sum, dividing by the number of nonzero weights. softmax_loss_function: a function
    of `labels` and `logits` to use instead of the sparse cross entropy.
    """
    logits, targets, weights = (convert_to_tensor(x) for x in (logits, targets, weights))
    for what, tensor, rank, form in (
        ("Logits", logits, 3, "[batch_size x sequence_length x logits] tensor"),
        ("Targets", targets, 2, "[batch_size x sequence_length] tensor"),
        ("Weights", weights, 2, "[batch_size x sequence_length] tensor"),
    ):
        if tensor.shape.ndims != rank:
            raise ValueError(f"{what} must be a {rank}-dimensional {form}")
    if average_across_timesteps and sum_over_timesteps:
        raise ValueError(
            "average_across_timesteps and sum_over_timesteps cannot be set to True at same time."
        )
    if average_across_batch and sum_over_batch:
        raise ValueError(
            "average_across_batch and sum_over_batch cannot be set to True at same time."
        )
    with name_scope(name, "sequence_loss", [logits, targets, weights]):
        flat_logits = b.reshape(logits, [-1, b.shape(logits)[2]])
        flat = _entropy(softmax_loss_function, b.reshape(targets, [-1]), flat_logits)
        flat = flat * b.reshape(weights, [-1])
        over_time = average_across_timesteps or sum_over_timesteps
        over_batch = average_across_batch or sum_over_batch
        by_count = sum_over_timesteps or sum_over_batch

        def size(axis: list[int] | None) -> Any:
            if by_count:
                return b.cast(b.count_nonzero(weights, axis=axis), flat.dtype)
            return b.reduce_sum(weights, axis=axis)

        if over_time and over_batch:
            return b.div_no_nan(b.reduce_sum(flat), size(None))
        losses = b.reshape(flat, b.shape(logits)[0:2])
        if not over_time and not over_batch:
            return losses
        axis = [1 if over_time else 0]
        return b.div_no_nan(b.reduce_sum(losses, axis=axis), size(axis))


def _entropy(function: Callable[..., Any] | None, labels: Any, logits: Any) -> Any:
    if function is not None:
        return function(labels=labels, logits=logits)
    return b.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)


@export("contrib.legacy_seq2seq.sequence_loss_by_example")
def sequence_loss_by_example(
    logits: Sequence[Any],
    targets: Sequence[Any],
    weights: Sequence[Any],
    average_across_timesteps: bool = True,
    softmax_loss_function: Callable[..., Any] | None = None,
    name: str | None = None,
) -> Tensor:
    """Return the weighted cross entropy of each example, over lists with an element per time step.

    softmax_loss_function: a function of `labels` and `logits` to use instead of the sparse cross
    entropy.
    """
    if len(targets) != len(logits) or len(weights) != len(logits):
        raise ValueError(
            "Lengths of logits, weights, and targets must be the same "
            f"{len(logits)}, {len(weights)}, {len(targets)}."
        )
    with name_scope(name, "sequence_loss_by_example", [*logits, *targets, *weights]):
        # Callers written for old releases pass the number of classes here; a number is not a
        # function.
        function = softmax_loss_function if callable(softmax_loss_function) else None
        losses = []
        for logit, target, weight in zip(logits, targets, weights, strict=True):
            labels = target if function is not None else b.reshape(target, [-1])
            losses.append(_entropy(function, labels, logit) * weight)
        total = b.add_n(losses)
        if not average_across_timesteps:
            return total
        return total / (b.add_n(list(weights)) + _TINY)


@export("contrib.legacy_seq2seq.sequence_loss")
def legacy_sequence_loss(
    logits: Sequence[Any],
    targets: Sequence[Any],
    weights: Sequence[Any],
    average_across_timesteps: bool = True,
    average_across_batch: bool = True,
    softmax_loss_function: Callable[..., Any] | None = None,
    name: str | None = None,
) -> Tensor:
    """Return the sum of sequence_loss_by_example, or its mean."""
    with name_scope(name, "sequence_loss", [*logits, *targets, *weights]):
        losses = sequence_loss_by_example(
            logits, targets, weights, average_across_timesteps, softmax_loss_function
        )
        total = b.reduce_sum(losses)
        if not average_across_batch:
            return total
        return total / b.cast(b.shape(targets[0])[0], total.dtype)
