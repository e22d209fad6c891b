"""Checks of logits, labels and weights for heads: now if shapes are known, else when the step
runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headrace._src.estimator.columns.column_base import Inputs
from headrace._src.estimator.columns.numeric import NumericColumn, numeric_column
from headrace._src.graph.composite import SparseTensor
from headrace._src.graph.operation import Tensor
from headrace._src.graph.scoped import control_dependencies
from headrace._src.ops.base.define import b
from headrace._src.ops.base.to_tensor import convert_to_tensor, name_scope

__all__ = [
    "checked_labels",
    "checked_logits",
    "checked_range",
    "checked_thresholds",
    "example_weights",
]


def checked_logits(logits: Any, size: int) -> Tensor:
    """Return logits as float32, with a last dimension of `size`."""
    message = "logits shape must be [D0, D1, ... DN, logits_dimension]"
    with name_scope(None, "logits", (logits,)) as scope:
        logits = b.to_float(logits)
        shape = b.shape(logits)
        check = b.assert_rank_at_least(logits, 2, data=[shape], message=message)
        with control_dependencies([check]):
            sizes = logits.shape.as_list() if logits.shape.ndims is not None else [None]
            if sizes[-1] is not None:
                if sizes[-1] != size:
                    raise ValueError(f"{message}, got {logits.shape}.")
                return logits
            check = b.assert_equal(size, shape[-1], data=[shape], message=message)
            with control_dependencies([check]):
                return b.identity(logits, name=scope)


def checked_labels(labels: Any, logits: Tensor, size: int) -> Tensor:
    """Return labels with a last dimension of `size`, and the logits' other dimensions."""
    if labels is None:
        raise ValueError(
            "You must provide a labels Tensor. Given: None. Suggested troubleshooting steps: Check "
            "that your data contain your label feature. Check that your input_fn properly parses "
            "and returns labels."
        )
    message = (
        f"labels shape must be [D0, D1, ... DN, {size}]. Suggested Fix: check your n_classes "
        "argument to the estimator and/or the shape of your label."
    )
    with name_scope(None, "labels", (labels, logits)) as scope:
        labels = b.convert_to_tensor_or_sparse_tensor(labels)
        if isinstance(labels, SparseTensor):
            raise ValueError(
                "SparseTensor labels are not supported. labels must be a Tensor of shape [D0, D1, "
                f"..., DN, {size}], e.g. [batch_size, {size}]. Suggested Fix (1): Check the label "
                f"feature in your data. Each example must contain {size} value(s). If not, your "
                "choice of label was probably incorrect. Suggested Fix (2): In your input_fn, use "
                "tf.sparse_tensor_to_dense() to turn labels into a Tensor."
            )
        rank = labels.shape.ndims
        if rank is not None and logits.shape.ndims is not None and rank == logits.shape.ndims - 1:
            labels = b.expand_dims(labels, -1)
        labels_shape, logits_shape = b.shape(labels), b.shape(logits)
        with control_dependencies([b.assert_rank_at_least(labels, 2, message=message)]):
            known = labels.shape.as_list()[-1] if labels.shape.ndims is not None else None
            if known is not None and known != size:
                raise ValueError(
                    f"Mismatched label shape. Expected labels dimension={size}.  Received {known}. "
                    "Suggested Fix:If your classifier expects one-hot encoding label,check your "
                    "n_classes argument to the estimator and/or the shape of your label. "
                    "Otherwise, check the shape of your label."
                )
            expected = b.concat([logits_shape[:-1], [size]], axis=0)
            check = b.assert_equal(
                expected,
                labels_shape,
                message=message,
                data=["expected_labels_shape: ", expected, "labels_shape: ", labels_shape],
            )
            with control_dependencies([check]):
                return b.identity(labels, name=scope)


def checked_range(labels: Tensor, classes: int) -> Tensor:
    """Return labels with a check that fails the step unless they are from 0 to classes - 1."""
    with name_scope(None, "assert_range", (labels,)):
        most = convert_to_tensor(classes - 1, dtype=labels.dtype)
        below = b.assert_less_equal(labels, most, message="Labels must <= n_classes - 1")
        above = b.assert_non_negative(labels, message="Labels must >= 0")
        with control_dependencies((below, above)):
            return b.identity(labels)


def checked_thresholds(thresholds: Sequence[float] | None) -> tuple[float, ...]:
    """Check thresholds of probabilities: each must be between 0 and 1."""
    found = tuple(thresholds or ())
    for threshold in found:
        if not 0.0 < threshold < 1.0:
            raise ValueError(f"thresholds not in (0, 1): {found}.")
    return found


def example_weights(
    features: Mapping[str, Any], column: Any, logits: Tensor, per_logit: bool = False
) -> Any:
    """Return the weights of examples from a feature; 1.0 if there is no weight column.

    per_logit: whether each logit of an example may have its own.
    """
    shapes = "[D0, D1, ... DN], [D0, D1, ... DN, 1] or [D0, D1, ... DN, logits_dimension]"
    if not per_logit:
        shapes = "[D0, D1, ... DN] or [D0, D1, ... DN, 1]"
    message = f"weights shape must be {shapes}"
    with name_scope(None, "weights", [*features.values(), logits]) as scope:
        if column is None:
            return 1.0
        if isinstance(column, str):
            column = numeric_column(column, shape=(1,))
        if not isinstance(column, NumericColumn):
            raise TypeError(
                "Weight column must be either a string or _NumericColumn. Given type: "
                f"{type(column)}."
            )
        weights = b.to_float(column.dense(Inputs(features)), name="weights")
        weights_shape = b.shape(weights, name="weights_shape")
        logits_shape = b.shape(logits, name="logits_shape")
        data = ["logits_shape: ", logits_shape, "weights_shape: ", weights_shape]
        rank, wanted = weights.shape.ndims, logits.shape.ndims
        if rank is not None and wanted is not None and rank == wanted - 1:
            check = b.assert_equal(logits_shape[:-1], weights_shape, message=message, data=data)
            with control_dependencies([check]):
                return b.expand_dims(weights, -1, name=scope)
        per_example = b.concat([logits_shape[:-1], [1]], axis=0)
        if per_logit:
            fits = [
                b.reduce_all(b.equal(logits_shape, weights_shape)),
                b.reduce_all(b.equal(per_example, weights_shape)),
            ]
            check = b.Assert(b.reduce_any(fits), [message, *data])
        else:
            check = b.assert_equal(per_example, weights_shape, message=message, data=data)
        with control_dependencies([check]):
            return b.identity(weights, name=scope)
