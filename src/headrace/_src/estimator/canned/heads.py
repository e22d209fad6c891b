"""Heads: the end of a model. In: logits, and labels. Out: predictions, loss, training op, metrics.

Head has the common code; a subclass defines the predictions, the loss of an example, and the
metrics.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from headrace._src.core import dtypes
from headrace._src.estimator.canned import metrics
from headrace._src.estimator.canned.checks import (
    checked_labels,
    checked_logits,
    checked_range,
    checked_thresholds,
    example_weights,
)
from headrace._src.estimator.estimator_spec import EstimatorSpec
from headrace._src.estimator.mode_keys import ModeKeys
from headrace._src.estimator.serving import (
    ClassificationOutput,
    ExportOutput,
    PredictOutput,
    RegressionOutput,
)
from headrace._src.graph.default import get_default_graph
from headrace._src.graph.keys import GraphKeys
from headrace._src.graph.operation import Tensor
from headrace._src.graph.scoped import control_dependencies
from headrace._src.layers import losses
from headrace._src.layers.losses import Reduction
from headrace._src.ops.base.define import b
from headrace._src.ops.base.to_tensor import convert_to_tensor, name_scope
from headrace._src.ops.io import summary_functions
from headrace._src.ops.state.vocabularies import (
    index_table_from_tensor,
    index_to_string_table_from_tensor,
)
from headrace._src.train.saving.saved_model.saved_model_names import (
    DEFAULT_SERVING_SIGNATURE_DEF_KEY,
)
from headrace._src.train.sessions.global_step import get_global_step

__all__ = ["BinaryHead", "ClassHead", "Head", "MultiClassHead", "RegressionHead", "classifier_head"]


LossFn = Callable[..., Any]


class Loss(NamedTuple):
    """The training loss; the loss of each example; the weights; the labels as numbers."""

    training_loss: Tensor
    unreduced_loss: Tensor
    weights: Any
    processed_labels: Tensor


class Head:
    """The end of a model.

    weight_column: the feature, by name or as a numeric column, that holds weights of examples.
    loss_reduction: how the losses of a batch are reduced. loss_fn: the loss of each example, as a
    function of labels, logits and, if it takes them, features and mode. name: the suffix of the
    names of metrics and summaries.
    """

    logits_dimension: int
    _weighs_logits = False  # whether each logit of an example may have its own weight

    def __init__(
        self,
        weight_column: Any = None,
        loss_reduction: str = Reduction.SUM,
        loss_fn: LossFn | None = None,
        name: str | None = None,
    ) -> None:
        if loss_reduction not in Reduction.all() or loss_reduction == Reduction.NONE:
            raise ValueError(f"Invalid loss_reduction: {loss_reduction}")
        if loss_fn is not None:
            _check_loss_fn(loss_fn)
        self._weight_column = weight_column
        self._reduction = loss_reduction
        self._loss_fn = loss_fn
        self.name = name

    # -- Defined by each kind of head ----------------------------------------------------------

    def _predictions(self, logits: Any) -> dict[str, Tensor]:
        raise NotImplementedError

    def _export_outputs(self, predictions: dict[str, Tensor]) -> dict[str, ExportOutput]:
        raise NotImplementedError

    def _processed(self, logits: Tensor, labels: Any) -> Tensor:
        """The labels as numbers, checked."""
        raise NotImplementedError

    def _losses(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The loss of each example, given its labels as numbers."""
        raise NotImplementedError

    def _metrics(self, predictions: dict[str, Tensor], loss: Loss) -> dict[str, Any]:
        raise NotImplementedError

    # -- Common code ---------------------------------------------------------------------------

    def create_loss(self, features: Mapping[str, Any], mode: str, logits: Any, labels: Any) -> Loss:
        """The loss of a batch."""
        logits = convert_to_tensor(logits)
        numbers = self._processed(logits, labels)
        if self._loss_fn is None:
            unreduced = self._losses(logits, numbers)
        else:
            unreduced = _call_loss_fn(self._loss_fn, numbers, logits, features, mode)
        weights = example_weights(features, self._weight_column, logits, self._weighs_logits)
        loss = losses.compute_weighted_loss(unreduced, weights, reduction=self._reduction)
        return Loss(loss, unreduced, weights, numbers)

    def create_estimator_spec(
        self,
        features: Mapping[str, Any],
        mode: str,
        logits: Any,
        labels: Any = None,
        optimizer: Any = None,
        train_op_fn: Callable[[Tensor], Any] | None = None,
    ) -> EstimatorSpec:
        """Return the EstimatorSpec of a model function, given logits; training needs an optimizer
        or a function from the loss to a training op.
        """
        with name_scope(self.name, "head"):
            predictions = self._predictions(logits)
            if mode == ModeKeys.PREDICT:
                outputs = self._export_outputs(predictions)
                return EstimatorSpec(mode, predictions=predictions, export_outputs=outputs)
            logits = predictions.get("logits", predictions.get("predictions"))
            loss = self.create_loss(features, mode, logits, labels)
            if mode == ModeKeys.TRAIN:
                train_op = train_op_of(loss.training_loss, optimizer, train_op_fn)
                mean_loss = self._mean_loss(loss)
        if mode == ModeKeys.EVAL:
            return EstimatorSpec(
                mode,
                predictions=predictions,
                loss=loss.training_loss,
                eval_metric_ops={
                    self.named(key): metric
                    for key, metric in self._metrics(predictions, loss).items()
                },
            )
        with name_scope(""):
            summary_functions.scalar(self.named("loss"), loss.training_loss)
            if mean_loss is not None:
                summary_functions.scalar(self.named("average_loss"), mean_loss)
        return EstimatorSpec(
            mode, predictions=predictions, loss=loss.training_loss, train_op=train_op
        )

    def named(self, key: str) -> str:
        """Return the name of a metric or summary, with the head's name if it has one."""
        return f"{key}/{self.name}" if self.name else key

    def _mean_loss(self, loss: Loss) -> Tensor | None:
        if self._reduction != Reduction.SUM:
            return None
        total = b.reduce_sum(loss.weights * b.ones_like(loss.unreduced_loss))
        return loss.training_loss / total


_LOSS_ARGUMENTS = {"labels", "logits", "features", "mode"}


def _check_loss_fn(loss_fn: LossFn) -> None:
    taken = list(inspect.signature(loss_fn).parameters)
    for needed in ("labels", "logits"):
        if needed not in taken:
            raise ValueError(f"loss_fn must contain argument: {needed}. Given arguments: {taken}")
    if unknown := sorted(set(taken) - _LOSS_ARGUMENTS):
        raise ValueError(f"loss_fn has unexpected args: {unknown}")


def _call_loss_fn(
    loss_fn: LossFn, labels: Tensor, logits: Tensor, features: Mapping[str, Any], mode: str
) -> Tensor:
    """Return the losses of a user's function: one for each example, or for each logit."""
    given = {"features": features, "mode": mode}
    taken = inspect.signature(loss_fn).parameters
    extra = {key: value for key, value in given.items() if key in taken}
    with name_scope("call_loss_fn", None, (labels, logits)):
        losses = convert_to_tensor(loss_fn(labels=labels, logits=logits, **extra))
        shape = b.shape(losses, name="unweighted_loss/shape")
        sizes = b.shape(logits, name="logits_shape")
        fits = b.logical_or(
            b.reduce_all(b.equal(shape, sizes)),
            b.reduce_all(b.equal(shape, b.concat([sizes[:-1], [1]], axis=0))),
        )
        message = "loss_fn must return Tensor of shape [D0, D1, ... DN, 1]."
        with control_dependencies([b.Assert(fits, [message, shape, sizes])]):
            return b.identity(losses)


def train_op_of(loss: Tensor, optimizer: Any, train_op_fn: Callable[[Tensor], Any] | None) -> Any:
    if (optimizer is None) == (train_op_fn is None):
        both = "both be None" if optimizer is None else "both be set"
        raise ValueError(f"train_op_fn and optimizer cannot {both}.")
    if train_op_fn is not None:
        train_op = train_op_fn(loss)
    else:
        train_op = optimizer.minimize(loss, global_step=get_global_step())
    updates = get_default_graph().get_collection(GraphKeys.UPDATE_OPS)
    return b.group(train_op, *updates) if updates else train_op


# ---- Classes -------------------------------------------------------------------------------------


class ClassHead(Head):
    """A head for classification; with a label_vocabulary, labels are names of classes."""

    def __init__(
        self,
        classes: int,
        weight_column: Any = None,
        label_vocabulary: Any = None,
        loss_reduction: str = Reduction.SUM,
        loss_fn: LossFn | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(weight_column, loss_reduction, loss_fn, name)
        if label_vocabulary is not None and not isinstance(label_vocabulary, list | tuple):
            raise ValueError(
                "label_vocabulary should be a list or a tuple. Given type: "
                f"{type(label_vocabulary)}"
            )
        self._classes = classes
        self._vocabulary: Any = label_vocabulary

    def _all_class_ids(self, logits: Tensor) -> Tensor:
        batch = b.shape(logits)[0]
        return b.tile(b.expand_dims(b.range(self._classes), 0), [batch, 1])

    def _all_classes(self, logits: Tensor) -> Tensor:
        batch = b.shape(logits)[0]
        names = self._vocabulary or b.as_string(b.range(self._classes))
        return b.tile(b.expand_dims(names, 0), [batch, 1])

    def _class_names(self, class_ids: Tensor) -> Tensor:
        if not self._vocabulary:
            return b.as_string(class_ids, name="str_classes")
        table = index_to_string_table_from_tensor(self._vocabulary, name="class_string_lookup")
        return table.lookup(class_ids)

    def _ids_of(self, labels: Tensor) -> Tensor:
        """Return labels as ids; names are looked up."""
        if labels.dtype is not dtypes.string:
            raise ValueError(
                "Labels dtype should be string if there is a vocabulary. Instead got "
                f"{labels.dtype}"
            )
        table = index_table_from_tensor(tuple(self._vocabulary), name="class_id_lookup")
        return table.lookup(labels)

    def _export_outputs(self, predictions: dict[str, Tensor]) -> dict[str, ExportOutput]:
        scores = predictions["probabilities"]
        output = ClassificationOutput(scores=scores, classes=self._all_classes(scores))
        return {
            DEFAULT_SERVING_SIGNATURE_DEF_KEY: output,
            "classification": output,
            "predict": PredictOutput(predictions),
        }


class MultiClassHead(ClassHead):
    """One of several classes, with a softmax."""

    def __init__(self, n_classes: int, *rest: Any, **named: Any) -> None:
        if not isinstance(n_classes, int) or n_classes <= 2:
            raise ValueError(f"n_classes must be > 2: {n_classes}.")
        super().__init__(n_classes, *rest, **named)
        self.logits_dimension = n_classes

    def _predictions(self, logits: Any) -> dict[str, Tensor]:
        logits = checked_logits(logits, self._classes)
        with name_scope(None, "predictions", (logits,)):
            all_ids, all_classes = self._all_class_ids(logits), self._all_classes(logits)
            class_ids = b.expand_dims(b.argmax(logits, axis=-1, name="class_ids"), -1)
            classes = self._class_names(class_ids)
            return {
                "logits": logits,
                "probabilities": b.softmax(logits, name="probabilities"),
                "class_ids": class_ids,
                "classes": classes,
                "all_class_ids": all_ids,
                "all_classes": all_classes,
            }

    def _processed(self, logits: Tensor, labels: Any) -> Tensor:
        ids = checked_labels(labels, logits, 1)
        if self._vocabulary is not None:
            ids = self._ids_of(ids)
        elif not ids.dtype.is_integer:
            raise ValueError(f"Labels dtype should be integer. Instead got {ids.dtype}.")
        return checked_range(ids, self._classes)

    def _losses(self, logits: Tensor, labels: Tensor) -> Tensor:
        unreduced = losses.sparse_softmax_cross_entropy(labels, logits, reduction=Reduction.NONE)
        return b.expand_dims(unreduced, -1)

    def _metrics(self, predictions: dict[str, Tensor], loss: Loss) -> dict[str, Any]:
        return metrics.class_metrics(
            loss.processed_labels, predictions["class_ids"], loss.weights, loss.unreduced_loss
        )


class BinaryHead(ClassHead):
    """Binary classification, with one logit."""

    logits_dimension = 1

    def __init__(self, *rest: Any, thresholds: Sequence[float] = (), **named: Any) -> None:
        super().__init__(2, *rest, **named)
        self._thresholds = checked_thresholds(thresholds)

    def _predictions(self, logits: Any) -> dict[str, Tensor]:
        with name_scope(None, "predictions", (logits,)):
            logits = checked_logits(logits, 1)
            logistic = b.sigmoid(logits, name="logistic")
            both = b.concat((b.zeros_like(logits), logits), axis=-1, name="two_class_logits")
            probabilities = b.softmax(both, name="probabilities")
            class_ids = b.expand_dims(b.argmax(both, axis=-1, name="class_ids"), -1)
            all_ids, all_classes = self._all_class_ids(logits), self._all_classes(logits)
            return {
                "logits": logits,
                "logistic": logistic,
                "probabilities": probabilities,
                "class_ids": class_ids,
                "classes": self._class_names(class_ids),
                "all_class_ids": all_ids,
                "all_classes": all_classes,
            }

    def _export_outputs(self, predictions: dict[str, Tensor]) -> dict[str, ExportOutput]:
        regression = {"regression": RegressionOutput(predictions["logistic"])}
        return super()._export_outputs(predictions) | regression

    def _processed(self, logits: Tensor, labels: Any) -> Tensor:
        numbers = checked_labels(labels, logits, 1)
        if self._vocabulary is not None:
            numbers = self._ids_of(numbers)
        return checked_range(b.to_float(numbers), 2)

    def _losses(self, logits: Tensor, labels: Tensor) -> Tensor:
        return b.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits)

    def _metrics(self, predictions: dict[str, Tensor], loss: Loss) -> dict[str, Any]:
        return metrics.binary_metrics(
            loss.processed_labels,
            predictions["logistic"],
            predictions["class_ids"],
            loss.weights,
            loss.unreduced_loss,
            self._thresholds,
        )


def classifier_head(
    n_classes: int, weight_column: Any, label_vocabulary: Any, loss_reduction: str
) -> Head:
    """Return the head of a classifier."""
    rest = (weight_column, label_vocabulary, loss_reduction)
    return BinaryHead(*rest) if n_classes == 2 else MultiClassHead(n_classes, *rest)


# ---- Numbers -------------------------------------------------------------------------------------


class RegressionHead(Head):
    """Regression, with the squared error or a loss_fn; inverse_link_fn maps logits to
    predictions.
    """

    _weighs_logits = True

    def __init__(
        self,
        label_dimension: int = 1,
        weight_column: Any = None,
        loss_reduction: str = Reduction.SUM,
        loss_fn: LossFn | None = None,
        inverse_link_fn: Callable[[Any], Any] | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(weight_column, loss_reduction, loss_fn, name)
        if label_dimension < 1:
            raise ValueError(f"Invalid label_dimension {label_dimension}.")
        self.logits_dimension = label_dimension
        self._inverse_link_fn = inverse_link_fn

    def _predictions(self, logits: Any) -> dict[str, Tensor]:
        logits = checked_logits(logits, self.logits_dimension)
        if self._inverse_link_fn is None:
            return {"predictions": logits}
        return {"predictions": self._inverse_link_fn(logits), "logits": logits}

    def _export_outputs(self, predictions: dict[str, Tensor]) -> dict[str, ExportOutput]:
        output = RegressionOutput(predictions["predictions"])
        return {
            DEFAULT_SERVING_SIGNATURE_DEF_KEY: output,
            "regression": output,
            "predict": PredictOutput(predictions),
        }

    def _processed(self, logits: Tensor, labels: Any) -> Tensor:
        return b.to_float(checked_labels(labels, logits, self.logits_dimension))

    def _losses(self, logits: Tensor, labels: Tensor) -> Tensor:
        return losses.mean_squared_error(labels, logits, reduction=Reduction.NONE)

    def _metrics(self, predictions: dict[str, Tensor], loss: Loss) -> dict[str, Any]:
        return metrics.number_metrics(
            loss.processed_labels, predictions["predictions"], loss.weights, loss.unreduced_loss
        )
