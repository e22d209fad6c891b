"""Losses over many classes that evaluate only a few of them: noise-contrastive estimation and
sampled softmax. Both compare the true classes' logits with those of sampled candidates, corrected
by the expected count of each.
"""

from __future__ import annotations

from typing import Any

from headrace._src.core import dtypes
from headrace._src.core.export import export
from headrace._src.graph.operation import Tensor
from headrace._src.ops.base.define import b, composed
from headrace._src.ops.base.to_tensor import convert_to_tensor, name_scope

__all__ = ["nce_loss", "sampled_softmax_loss"]


@composed
@export("nn.nce_loss")
def nce_loss(
    weights: Any,
    biases: Any,
    labels: Any,
    inputs: Any,
    num_sampled: int,
    num_classes: int,
    num_true: int = 1,
    sampled_values: Any = None,
    remove_accidental_hits: bool = False,
    partition_strategy: str = "mod",
    name: str = "nce_loss",
) -> Tensor:
    """Return, for each input, the loss of distinguishing its true classes from noise.

    weights: [num_classes, size], or a list of shards of it; biases: [num_classes]; labels: [batch,
    num_true]; inputs: [batch, size]. sampled_values: the result of a candidate sampler; by default,
    num_sampled different classes from the log-uniform one.

    remove_accidental_hits: ignore candidates that are true classes. partition_strategy: how weights
    are sharded (see tf.nn.embedding_lookup).
    """
    logits, targets = _sampled_logits(
        weights,
        biases,
        labels,
        inputs,
        num_sampled,
        num_classes,
        num_true,
        sampled_values,
        remove_accidental_hits,
        partition_strategy,
        name,
    )
    losses = b.sigmoid_cross_entropy_with_logits(
        labels=targets, logits=logits, name="sampled_losses"
    )
    return _sum_rows(losses)


@composed
@export("nn.sampled_softmax_loss")
def sampled_softmax_loss(
    weights: Any,
    biases: Any,
    labels: Any,
    inputs: Any,
    num_sampled: int,
    num_classes: int,
    num_true: int = 1,
    sampled_values: Any = None,
    remove_accidental_hits: bool = True,
    partition_strategy: str = "mod",
    name: str = "sampled_softmax_loss",
    seed: int | None = None,
) -> Tensor:
    """Return, for each input, the softmax cross entropy over its true classes and candidates.

    The arguments are those of nce_loss; `seed` is for the default sampler.
    """
    logits, targets = _sampled_logits(
        weights,
        biases,
        labels,
        inputs,
        num_sampled,
        num_classes,
        num_true,
        sampled_values,
        remove_accidental_hits,
        partition_strategy,
        name,
        seed,
    )
    targets = b.stop_gradient(targets, name="labels_stop_gradient")
    return b.softmax_cross_entropy_with_logits_v2(labels=targets, logits=logits)


def _sampled_logits(
    weights: Any,
    biases: Any,
    labels: Any,
    inputs: Any,
    num_sampled: int,
    num_classes: int,
    num_true: int,
    sampled_values: Any,
    remove_hits: bool,
    strategy: str,
    name: str,
    seed: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the logits [batch, num_true + num_sampled], minus the logarithms of expected counts,
    and their labels: 1 / num_true for the true classes, 0 for candidates.
    """
    partitioned = isinstance(weights, list | tuple) or hasattr(weights, "_get_variable_list")
    shards = list(weights) if partitioned else [weights]
    with name_scope(name, "compute_sampled_logits", [*shards, biases, inputs, labels]):
        labels, inputs = convert_to_tensor(labels), convert_to_tensor(inputs)
        if labels.dtype != dtypes.int64:
            labels = b.cast(labels, dtypes.int64)
        flat = b.reshape(labels, [-1])
        if sampled_values is None:
            sampled_values = b.log_uniform_candidate_sampler(
                true_classes=labels,
                num_true=num_true,
                num_sampled=num_sampled,
                unique=True,
                range_max=num_classes,
                seed=seed,
            )
        sampled, true_expected, sampled_expected = (b.stop_gradient(s) for s in sampled_values)
        sampled = b.cast(sampled, dtypes.int64)
        ids = b.concat([flat, sampled], 0)
        rows = b.embedding_lookup(shards, ids, partition_strategy=strategy)
        if rows.dtype != inputs.dtype:
            rows = b.cast(rows, inputs.dtype)
        true_rows = b.slice(rows, [0, 0], b.stack([b.shape(flat)[0], -1]))
        sampled_rows = b.slice(rows, b.stack([b.shape(flat)[0], 0]), [-1, -1])
        sampled_logits = b.matmul(inputs, sampled_rows, transpose_b=True)
        offsets = b.embedding_lookup(biases, ids, partition_strategy=strategy)
        if offsets.dtype != inputs.dtype:
            offsets = b.cast(offsets, inputs.dtype)
        true_offsets = b.slice(offsets, [0], b.shape(flat))
        sampled_offsets = b.slice(offsets, b.shape(flat), [-1])
        true_logits = _row_products(inputs, true_rows, num_true)
        true_logits = true_logits + b.reshape(true_offsets, [-1, num_true])
        sampled_logits = sampled_logits + sampled_offsets
        if remove_hits:
            sampled_logits = _without_hits(sampled_logits, labels, sampled, num_true, num_sampled)
        true_logits = true_logits - b.log(true_expected)
        sampled_logits = sampled_logits - b.log(sampled_expected)
        logits = b.concat([true_logits, sampled_logits], 1)
        targets = b.concat([b.ones_like(true_logits) / num_true, b.zeros_like(sampled_logits)], 1)
        return logits, targets


def _row_products(inputs: Tensor, rows: Tensor, num_true: int) -> Tensor:
    """Return the products of each input with its num_true rows: [batch, num_true]."""
    depth = b.shape(rows)[1:2]
    apart = b.concat([[-1, num_true], depth], 0)
    products = b.multiply(b.expand_dims(inputs, 1), b.reshape(rows, apart))
    flat = b.reshape(products, b.concat([[-1], depth], 0))
    return b.reshape(_sum_rows(flat), [-1, num_true])


def _sum_rows(x: Tensor) -> Tensor:
    """Return the sum of each row, as a product with ones, which has the cheaper gradient."""
    ones = b.ones(b.stack([b.shape(x)[1], 1]), x.dtype)
    return b.reshape(b.matmul(x, ones), [-1])


def _without_hits(
    logits: Tensor, labels: Tensor, sampled: Tensor, num_true: int, num_sampled: int
) -> Tensor:
    """Return the candidates' logits, lowered to about -FLT_MAX for those that are true classes."""
    rows, places, penalties = b.compute_accidental_hits(labels, sampled, num_true=num_true)
    rows = b.reshape(rows, [-1, 1])
    places = b.reshape(b.cast(places, dtypes.int32), [-1, 1])
    indices = b.concat([rows, places], 1, "sparse_indices")
    shape = b.concat([b.shape(labels)[:1], b.expand_dims(num_sampled, 0)], 0)
    if logits.dtype != penalties.dtype:
        penalties = b.cast(penalties, logits.dtype)
    return logits + b.sparse_to_dense(
        indices, shape, penalties, default_value=0.0, validate_indices=False
    )
