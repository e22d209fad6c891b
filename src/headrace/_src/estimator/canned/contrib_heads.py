"""The heads of tf.contrib.estimator: those of canned estimators, and heads for multiple labels,
counts, probabilities, and for several heads combined.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from headrace._src.core import dtypes
from headrace._src.core.export import export
from headrace._src.estimator.canned import metrics
from headrace._src.estimator.canned.checks import checked_labels, checked_logits, checked_thresholds
from headrace._src.estimator.canned.heads import (
    BinaryHead,
    ClassHead,
    Head,
    Loss,
    LossFn,
    MultiClassHead,
    RegressionHead,
    train_op_of,
)
from headrace._src.estimator.estimator_spec import EstimatorSpec
from headrace._src.estimator.mode_keys import ModeKeys
from headrace._src.estimator.serving import PredictOutput
from headrace._src.graph.composite import SparseTensor
from headrace._src.graph.operation import Tensor
from headrace._src.graph.scoped import control_dependencies
from headrace._src.layers import losses
from headrace._src.layers.losses import Reduction
from headrace._src.layers.metrics.means import mean
from headrace._src.ops.base.define import b
from headrace._src.ops.base.to_tensor import convert_to_tensor, name_scope
from headrace._src.ops.io import summary_functions
from headrace._src.ops.state.vocabularies import index_table_from_tensor
from headrace._src.train.saving.saved_model.saved_model_names import (
    DEFAULT_SERVING_SIGNATURE_DEF_KEY,
)

__all__ = ["multi_head", "multi_label_head", "regression_head"]

_MEAN = Reduction.SUM_OVER_BATCH_SIZE


# -- Those of canned estimators --------------------------------------------------------------------


@export("contrib.estimator.multi_class_head")
def multi_class_head(
    n_classes: int,
    weight_column: Any = None,
    label_vocabulary: Any = None,
    loss_reduction: str = _MEAN,
    loss_fn: LossFn | None = None,
    name: str | None = None,
) -> Head:
    """Return a head for one of more than two classes, with a softmax."""
    rest = weight_column, label_vocabulary, loss_reduction, loss_fn, name
    head = MultiClassHead(n_classes, *rest)
    # TensorFlow checks again in the graph; without these nodes, later operations' seeds would
    # differ.
    classes = convert_to_tensor(n_classes)
    check = b.assert_greater(classes, 2, message="n_classes must be greater than 2")
    with control_dependencies([check]):
        b.no_op()
    return head


@export("contrib.estimator.binary_classification_head")
def binary_classification_head(
    weight_column: Any = None,
    thresholds: Sequence[float] | None = None,
    label_vocabulary: Any = None,
    loss_reduction: str = _MEAN,
    loss_fn: LossFn | None = None,
    name: str | None = None,
) -> Head:
    """Return a head for binary classification, with further metrics at these thresholds."""
    rest = weight_column, label_vocabulary, loss_reduction, loss_fn, name
    return BinaryHead(*rest, thresholds=thresholds or ())


@export("contrib.estimator.regression_head")
def regression_head(
    weight_column: Any = None,
    label_dimension: int = 1,
    loss_reduction: str = _MEAN,
    loss_fn: LossFn | None = None,
    inverse_link_fn: Callable[[Any], Any] | None = None,
    name: str | None = None,
) -> Head:
    """Return a head for regression, with the squared error; inverse_link_fn maps logits to
    predictions.
    """
    return RegressionHead(
        label_dimension, weight_column, loss_reduction, loss_fn, inverse_link_fn, name
    )


@export("contrib.estimator.poisson_regression_head")
def poisson_regression_head(
    weight_column: Any = None,
    label_dimension: int = 1,
    loss_reduction: str = _MEAN,
    compute_full_loss: bool = True,
    name: str | None = None,
) -> Head:
    """Return a head for counts, with the Poisson likelihood; logits are logarithms of the counts.
    compute_full_loss: include the part that doesn't depend on logits.
    """

    def loss_fn(labels: Any, logits: Any) -> Any:
        return b.log_poisson_loss(labels, logits, compute_full_loss=compute_full_loss)

    return RegressionHead(label_dimension, weight_column, loss_reduction, loss_fn, b.exp, name)


@export("contrib.estimator.logistic_regression_head")
def logistic_regression_head(
    weight_column: Any = None, loss_reduction: str = _MEAN, name: str | None = None
) -> Head:
    """Return a head for probabilities, with the cross entropy."""

    def loss_fn(labels: Any, logits: Any) -> Any:
        return b.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits)

    return RegressionHead(1, weight_column, loss_reduction, loss_fn, b.sigmoid, name)


# -- Several labels at once ------------------------------------------------------------------------


@export("contrib.estimator.multi_label_head")
def multi_label_head(
    n_classes: int,
    weight_column: Any = None,
    thresholds: Sequence[float] | None = None,
    label_vocabulary: Any = None,
    loss_reduction: str = _MEAN,
    loss_fn: LossFn | None = None,
    classes_for_class_based_metrics: Sequence[Any] | None = None,
    name: str | None = None,
) -> Head:
    """Return a head for examples that belong to any number of classes, with a sigmoid for each.

    Labels are zeros and ones [batch, n_classes], or a SparseTensor of class numbers, or of names if
    there is a vocabulary. classes_for_class_based_metrics: classes, by number or name, that get
    separate metrics.
    """
    return MultiLabelHead(
        n_classes,
        weight_column,
        label_vocabulary,
        loss_reduction,
        loss_fn,
        name,
        thresholds=thresholds,
        measured=classes_for_class_based_metrics,
    )


class MultiLabelHead(ClassHead):
    """Any number of several classes, with a sigmoid each."""

    def __init__(
        self,
        n_classes: int,
        *rest: Any,
        thresholds: Sequence[float] | None = None,
        measured: Sequence[Any] | None = None,
    ) -> None:
        if n_classes is None or n_classes < 2:
            raise ValueError(
                f"n_classes must be > 1 for multi-label classification. Given: {n_classes}"
            )
        super().__init__(n_classes, *rest)
        self.logits_dimension = n_classes
        self._thresholds = checked_thresholds(thresholds)
        if self._vocabulary is not None and len(self._vocabulary) != n_classes:
            raise ValueError(
                f"Length of label_vocabulary must be n_classes ({n_classes}). Given: "
                f"{len(self._vocabulary)}"
            )
        self._measured = self._indices(measured)

    def _indices(self, measured: Sequence[Any] | None) -> dict[int, str]:
        """Return the classes with separate metrics, and the names of these."""
        found = {}
        for given in measured or ():
            if isinstance(given, str):
                if self._vocabulary is None or given not in self._vocabulary:
                    raise ValueError(f"Cannot find label {given} in label_vocabulary")
                found[list(self._vocabulary).index(given)] = given
            else:
                if not 0 <= given < self._classes:
                    raise ValueError(
                        "All classes_for_class_based_metrics must be in range "
                        f"[0, {self._classes - 1}]. Given: {given}"
                    )
                found[given] = f"class{given}"
        return found

    def _predictions(self, logits: Any) -> dict[str, Tensor]:
        with name_scope(None, "predictions", (logits,)):
            logits = checked_logits(logits, self.logits_dimension)
            return {"logits": logits, "probabilities": b.sigmoid(logits, name="probabilities")}

    def _processed(self, logits: Tensor, labels: Any) -> Tensor:
        if isinstance(labels, SparseTensor):
            values = labels.values
            if labels.dtype is dtypes.string:
                table = index_table_from_tensor(tuple(self._vocabulary), name="class_id_lookup")
                values = table.lookup(values)
            ids = SparseTensor(labels.indices, b.cast(values, dtypes.int64), labels.dense_shape)
            labels = b.cast(b.sparse_to_indicator(ids, self._classes), dtypes.int64)
        return b.cast(checked_labels(labels, logits, self.logits_dimension), dtypes.float32)

    def _losses(self, logits: Tensor, labels: Tensor) -> Tensor:
        each = losses.sigmoid_cross_entropy(labels, logits, reduction=Reduction.NONE)
        return b.reduce_mean(each, axis=-1, keepdims=True)

    def _metrics(self, predictions: dict[str, Tensor], loss: Loss) -> dict[str, Any]:
        return metrics.label_metrics(
            loss.processed_labels,
            predictions["probabilities"],
            loss.weights,
            loss.unreduced_loss,
            self._thresholds,
            self._measured,
        )


# -- Several heads ---------------------------------------------------------------------------------


@export("contrib.estimator.multi_head")
def multi_head(heads: Sequence[Head], head_weights: Sequence[float] | None = None) -> MultiHead:
    """Return a head that combines several heads and adds their losses, with weights if given. Their
    names must differ: labels are a dict by name; logits are a dict too, or concatenated in one
    tensor.
    """
    return MultiHead(heads, head_weights)


class MultiHead:
    """Several heads as one."""

    def __init__(self, heads: Sequence[Head], weights: Sequence[float] | None = None) -> None:
        if not heads:
            raise ValueError("Must specify heads. Given: []")
        if weights and len(weights) != len(heads):
            raise ValueError(
                "heads and head_weights must have the same size. Given len(heads): "
                f"{len(heads)}. Given len(head_weights): {len(weights)}."
            )
        names = [head.name for head in heads]
        if not all(names):
            raise ValueError(
                "All given heads must have name specified. Given: "
                f"{[type(head).__name__ for head in heads]}"
            )
        if len(set(names)) != len(names):
            raise ValueError(f"All heads must have different names. Given: {names}")
        self._heads, self._weights = tuple(heads), weights
        self.name = "_".join(str(name) for name in names)
        self.logits_dimension = sum(head.logits_dimension for head in heads)

    def create_estimator_spec(
        self,
        features: Mapping[str, Any],
        mode: str,
        logits: Any,
        labels: Any = None,
        optimizer: Any = None,
        train_op_fn: Callable[[Tensor], Any] | None = None,
    ) -> EstimatorSpec:
        """Return the EstimatorSpec of a model function, given the logits of all heads."""
        parts = self._split(logits)
        specs = [
            head.create_estimator_spec(
                features,
                mode,
                parts[str(head.name)],
                labels=None if labels is None else labels[head.name],
                train_op_fn=(lambda loss: b.no_op()) if mode == ModeKeys.TRAIN else None,
            )
            for head in self._heads
        ]
        if mode == ModeKeys.PREDICT:
            return self._predicting(specs)
        predictions = self._merged(specs)
        loss = self._total([spec.loss for spec in specs])
        if mode == ModeKeys.TRAIN:
            train_op = train_op_of(loss, optimizer, train_op_fn)
            with name_scope(""):
                summary_functions.scalar("loss", loss)
            return EstimatorSpec(mode, predictions=predictions, loss=loss, train_op=train_op)
        found: dict[str, Any] = {}
        for head, spec in zip(self._heads, specs, strict=True):
            key = head.named("loss")
            found[key] = mean(spec.loss, name=key)
            found.update(spec.eval_metric_ops)
        return EstimatorSpec(mode, predictions=predictions, loss=loss, eval_metric_ops=found)

    def _split(self, logits: Any) -> Mapping[str, Any]:
        """Return the logits of each head."""
        if isinstance(logits, Mapping):
            for head in self._heads:
                if head.name not in logits:
                    raise ValueError(
                        f"logits has missing values for head(s): {head.name}. logits: {logits}"
                    )
            return logits
        logits = convert_to_tensor(logits)
        found, start = {}, 0
        with name_scope(None, "split_logits", (logits,)):
            for head in self._heads:
                found[str(head.name)] = logits[..., start : start + head.logits_dimension]
                start += head.logits_dimension
        return found

    def _total(self, found: Sequence[Any]) -> Tensor:
        if not self._weights:
            return b.add_n(list(found), name="merge_losses")
        weighed = [
            b.multiply(weight, loss) for weight, loss in zip(self._weights, found, strict=True)
        ]
        return b.add_n(weighed, name="merge_losses")

    def _merged(self, specs: Sequence[EstimatorSpec]) -> dict[Any, Any]:
        return {
            (head.name, key): value
            for head, spec in zip(self._heads, specs, strict=True)
            for key, value in spec.predictions.items()
        }

    def _predicting(self, specs: Sequence[EstimatorSpec]) -> EstimatorSpec:
        outputs, served = {}, {}
        for head, spec in zip(self._heads, specs, strict=True):
            for key, output in (spec.export_outputs or {}).items():
                default = key == DEFAULT_SERVING_SIGNATURE_DEF_KEY
                outputs[head.name if default else f"{head.name}/{key}"] = output
            for key, value in spec.predictions.items():
                served[f"{head.name}/{key}"] = value
        outputs["predict"] = PredictOutput(served)
        outputs[DEFAULT_SERVING_SIGNATURE_DEF_KEY] = outputs[self._heads[0].name]
        return EstimatorSpec(
            ModeKeys.PREDICT, predictions=self._merged(specs), export_outputs=outputs
        )
