"""EstimatorSpec: the result of a model function, checked against its mode."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from headrace._src.core import nest
from headrace._src.core.export import export
from headrace._src.estimator.mode_keys import ModeKeys
from headrace._src.estimator.serving import checked_export_outputs
from headrace._src.graph.default import get_default_graph
from headrace._src.graph.operation import Operation, Tensor
from headrace._src.ops.base.define import b
from headrace._src.train.sessions.scaffold import Scaffold
from headrace._src.train.sessions.session_run_hook import SessionRunHook
from headrace._src.variables.variable import Variable

__all__ = ["EstimatorSpec"]


class _Fields(NamedTuple):
    mode: str
    predictions: Any
    loss: Any
    train_op: Any
    eval_metric_ops: dict[str, Any]
    export_outputs: dict[str, Any] | None
    training_chief_hooks: tuple[SessionRunHook, ...]
    training_hooks: tuple[SessionRunHook, ...]
    scaffold: Scaffold
    evaluation_hooks: tuple[SessionRunHook, ...]
    prediction_hooks: tuple[SessionRunHook, ...]


@export("estimator.EstimatorSpec")
class EstimatorSpec(_Fields):
    """A model, for one mode: predictions for PREDICT, a loss for EVAL, also a train_op for TRAIN.

    eval_metric_ops: a dict from names to (value, update op) pairs, as tf.metrics returns them.
    export_outputs: a dict from signature names to ExportOutputs; if None, all predictions.
    """

    __slots__ = ()

    def __new__(
        cls,
        mode: str,
        predictions: Any = None,
        loss: Any = None,
        train_op: Any = None,
        eval_metric_ops: dict[str, Any] | None = None,
        export_outputs: dict[str, Any] | None = None,
        training_chief_hooks: Iterable[SessionRunHook] | None = None,
        training_hooks: Iterable[SessionRunHook] | None = None,
        scaffold: Scaffold | None = None,
        evaluation_hooks: Iterable[SessionRunHook] | None = None,
        prediction_hooks: Iterable[SessionRunHook] | None = None,
    ) -> EstimatorSpec:
        train_op = _check_train_op(train_op, mode)
        loss = _check_loss(loss, mode)
        predictions = _check_predictions(predictions, mode)
        if mode == ModeKeys.PREDICT:
            export_outputs = checked_export_outputs(export_outputs, predictions)
        scaffold = scaffold or Scaffold()
        if not isinstance(scaffold, Scaffold):
            raise TypeError(f"scaffold must be tf.train.Scaffold. Given: {scaffold}")
        return super().__new__(
            cls,
            mode,
            predictions,
            loss,
            train_op,
            _check_metrics(eval_metric_ops),
            export_outputs,
            _check_hooks(training_chief_hooks),
            _check_hooks(training_hooks),
            scaffold,
            _check_hooks(evaluation_hooks),
            _check_hooks(prediction_hooks),
        )

    def _replace(self, **changes: Any) -> EstimatorSpec:
        """Return a copy with other fields, checked again; the mode can't change."""
        if changes.get("mode", self.mode) != self.mode:
            raise ValueError("mode of EstimatorSpec cannot be changed.")
        return EstimatorSpec(**(self._asdict() | changes))


def _check_graph(element: Any, what: str, shown: str | None = None) -> None:
    if element.graph is not get_default_graph():
        raise ValueError(
            f'{what} with "{shown or element.name}" must be from the default graph. Possible '
            "causes of this error include: \n\n"
            f"1) {what} was created outside the context of the default graph.\n\n"
            "2) The object passed through to EstimatorSpec was not created in the most recent call "
            'to "model_fn".'
        )


def _check_train_op(train_op: Any, mode: str) -> Any:
    if train_op is None:
        if mode == ModeKeys.TRAIN:
            raise ValueError("Missing train_op.")
        return None
    if not isinstance(train_op, Operation | Tensor | Variable):
        raise TypeError(f"train_op must be Operation or Tensor, given: {train_op}")
    if isinstance(train_op, Variable):
        train_op = train_op.op
    _check_graph(train_op, "train_op")
    return train_op


def _check_loss(loss: Any, mode: str) -> Any:
    if loss is None:
        if mode in (ModeKeys.TRAIN, ModeKeys.EVAL):
            raise ValueError("Missing loss.")
        return None
    if not isinstance(loss, Tensor | Variable):
        raise TypeError(f"loss must be Tensor, given: {loss}")
    _check_graph(loss, "loss")
    if loss.shape.num_elements() not in (None, 1):
        raise ValueError(f"Loss must be scalar, given: {loss}")
    return loss if loss.shape.is_compatible_with([]) else b.reshape(loss, [])


def _check_predictions(predictions: Any, mode: str) -> Any:
    if predictions is None:
        if mode == ModeKeys.PREDICT:
            raise ValueError("Missing predictions.")
        return {}
    if not isinstance(predictions, dict):
        if not isinstance(predictions, Tensor | Variable):
            raise TypeError(f"predictions must be Tensor, given: {predictions}")
        _check_graph(predictions, "prediction values")
        return predictions
    for key, value in predictions.items():
        if not isinstance(value, Tensor | Variable):
            raise TypeError(f"predictions[{key}] must be Tensor, given: {value}")
        _check_graph(value, "prediction values", f"{key}: {value.name}")
    return predictions


def _check_hooks(hooks: Iterable[SessionRunHook] | None) -> tuple[SessionRunHook, ...]:
    found = tuple(hooks or ())
    for hook in found:
        if not isinstance(hook, SessionRunHook):
            raise TypeError(f"All hooks must be SessionRunHook instances, given: {hook}")
    return found


def _check_metrics(metrics: Any) -> dict[str, Any]:
    if metrics is None:
        return {}
    if not isinstance(metrics, dict):
        raise TypeError(f"eval_metric_ops must be a dict, given: {metrics}")
    for key, value in metrics.items():
        if not isinstance(value, tuple) or len(value) != 2:
            raise TypeError(
                "Values of eval_metric_ops must be (metric_value, update_op) tuples, given: "
                f"{value} for key: {key}"
            )
        for part in nest.flatten(value):
            _check_graph(part, "eval_metric_ops", f"{key}: {part.name}")
    return metrics
