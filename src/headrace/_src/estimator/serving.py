"""The outputs and inputs of a served model.

An ExportOutput says how some of a model's predictions are served; a receiver names the tensors that
requests are fed to, and the features computed from them. Together they form the signatures of an
exported model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from headrace._src.core import dtypes, log
from headrace._src.core.export import export
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.graph.composite import SparseTensor
from headrace._src.graph.operation import Tensor
from headrace._src.ops.array.constants_and_placeholders import placeholder
from headrace._src.ops.io.example_ops import parse_example
from headrace._src.train.saving.saved_model import saved_model_names, signatures

__all__ = [
    "ClassificationOutput",
    "ExportOutput",
    "PredictOutput",
    "RegressionOutput",
    "ServingInputReceiver",
    "TensorServingInputReceiver",
    "build_parsing_serving_input_receiver_fn",
    "build_raw_serving_input_receiver_fn",
    "build_signatures",
    "checked_export_outputs",
]

_DEFAULT = saved_model_names.DEFAULT_SERVING_SIGNATURE_DEF_KEY


# ---- Outputs -------------------------------------------------------------------------------------


@export("estimator.export.ExportOutput")
class ExportOutput:
    """One way in which a model's outputs are served."""

    def as_signature_def(self, receiver_tensors: Mapping[str, Any]) -> Any:
        """Return the SignatureDef for requests to the given tensors; ValueError if there is
        none.
        """
        raise NotImplementedError


def _examples(receiver_tensors: Mapping[str, Any], what: str) -> Tensor:
    """Return the single string tensor that a classification or regression request is fed to."""
    tensors = list(receiver_tensors.values())
    if len(tensors) == 1 and getattr(tensors[0], "dtype", None) is dtypes.string:
        return tensors[0]
    raise ValueError(f"{what} input must be a single string Tensor; got {receiver_tensors}")


@export("estimator.export.ClassificationOutput")
class ClassificationOutput(ExportOutput):
    """Classes of examples, or their scores, or both."""

    scores: Any
    classes: Any

    def __init__(self, scores: Any = None, classes: Any = None) -> None:
        if scores is not None and not _is_kind(scores, "is_floating"):
            raise ValueError(f"Classification scores must be a float32 Tensor; got {scores}")
        if classes is not None and getattr(classes, "dtype", None) is not dtypes.string:
            raise ValueError(f"Classification classes must be a string Tensor; got {classes}")
        if scores is None and classes is None:
            raise ValueError("At least one of scores and classes must be set.")
        self.scores = scores
        self.classes = classes

    def as_signature_def(self, receiver_tensors: Mapping[str, Any]) -> Any:
        examples = _examples(receiver_tensors, "Classification")
        return signatures.classification_signature_def(examples, self.classes, self.scores)


@export("estimator.export.RegressionOutput")
class RegressionOutput(ExportOutput):
    """A number for each example."""

    value: Any

    def __init__(self, value: Any) -> None:
        if not _is_kind(value, "is_floating"):
            raise ValueError(f"Regression output value must be a float32 Tensor; got {value}")
        self.value = value

    def as_signature_def(self, receiver_tensors: Mapping[str, Any]) -> Any:
        examples = _examples(receiver_tensors, "Regression")
        return signatures.regression_signature_def(examples, self.value)


@export("estimator.export.PredictOutput")
class PredictOutput(ExportOutput):
    """Any tensors, by name."""

    outputs: dict[str, Any]

    def __init__(self, outputs: Any) -> None:
        if not isinstance(outputs, dict):
            outputs = {"output": outputs}
        for key, value in outputs.items():
            if not isinstance(key, str):
                raise ValueError(f"Prediction output key must be a string; got {key}.")
            if not isinstance(value, Tensor | SparseTensor):
                raise ValueError(f"Prediction output value must be a Tensor; got {value}.")
        self.outputs = outputs

    def as_signature_def(self, receiver_tensors: Mapping[str, Any]) -> Any:
        return signatures.predict_signature_def(receiver_tensors, self.outputs)


def _is_kind(tensor: Any, kind: str) -> bool:
    return isinstance(tensor, Tensor) and getattr(tensor.dtype, kind)


def checked_export_outputs(outputs: Any, predictions: Any) -> dict[str, ExportOutput]:
    """Return a model's export outputs, including a default; if None, all its predictions."""
    if outputs is None:
        return {_DEFAULT: PredictOutput(predictions)}
    if not isinstance(outputs, dict):
        raise TypeError(f"export_outputs must be dict, given: {outputs}")
    if not all(isinstance(output, ExportOutput) for output in outputs.values()):
        raise TypeError(f"Values in export_outputs must be ExportOutput objects. Given: {outputs}")
    if len(outputs) == 1:
        return outputs | {_DEFAULT: next(iter(outputs.values()))}
    if outputs and _DEFAULT not in outputs:
        raise ValueError(
            "Multiple export_outputs were provided, but none of them is specified as the default. "
            "Do this by naming one of them with "
            "signature_constants.DEFAULT_SERVING_SIGNATURE_DEF_KEY."
        )
    return outputs


# ---- Inputs --------------------------------------------------------------------------------------


def _named(tensors: Any, what: str, default: str) -> dict[Any, Any]:
    """Return tensors by name; a single tensor gets the default name."""
    if tensors is None:
        raise ValueError(f"{what}s must be defined.")
    found = tensors if isinstance(tensors, dict) else {default: tensors}
    for name, tensor in found.items():
        if not isinstance(name, str) and not (what == "feature" and isinstance(name, int)):
            raise ValueError(f"{what} keys must be strings: {name}.")
        if not isinstance(tensor, Tensor | SparseTensor):
            raise ValueError(f"{what} {name} must be a Tensor or SparseTensor.")
    return found


class _Receiver(NamedTuple):
    features: Any
    receiver_tensors: dict[str, Any]
    receiver_tensors_alternatives: dict[str, dict[str, Any]] | None


@export("estimator.export.ServingInputReceiver")
class ServingInputReceiver(_Receiver):
    """The tensors that requests are fed to (receiver_tensors), and the features computed from them.

    receiver_tensors_alternatives: from names to further sets of tensors that can be fed instead.
    """

    __slots__ = ()

    def __new__(
        cls,
        features: Any,
        receiver_tensors: Any,
        receiver_tensors_alternatives: dict[str, Any] | None = None,
    ) -> ServingInputReceiver:
        others = receiver_tensors_alternatives
        if others is not None:
            if not isinstance(others, dict):
                raise ValueError(f"receiver_tensors_alternatives must be a dict: {others}.")
            others = {
                name: _named(tensors, "receiver_tensors_alternative", "input")
                for name, tensors in others.items()
            }
        return super().__new__(
            cls,
            _named(features, "feature", "feature"),
            _named(receiver_tensors, "receiver_tensor", "input"),
            others,
        )


@export("estimator.export.TensorServingInputReceiver")
class TensorServingInputReceiver(_Receiver):
    """A ServingInputReceiver for a model whose features are one tensor instead of a dict."""

    __slots__ = ()

    def __new__(
        cls,
        features: Any,
        receiver_tensors: Any,
        receiver_tensors_alternatives: dict[str, Any] | None = None,
    ) -> TensorServingInputReceiver:
        if features is None:
            raise ValueError("features must be defined.")
        if not isinstance(features, Tensor | SparseTensor):
            raise ValueError("feature must be a Tensor or SparseTensor.")
        _, tensors, others = ServingInputReceiver(
            features, receiver_tensors, receiver_tensors_alternatives
        )
        return super().__new__(cls, features, tensors, others)


@export("estimator.export.build_parsing_serving_input_receiver_fn")
def build_parsing_serving_input_receiver_fn(
    feature_spec: Mapping[str, Any], default_batch_size: int | None = None
) -> Callable[[], ServingInputReceiver]:
    """Return a function that receives serialized Examples and parses them by a spec."""

    def serving_input_receiver_fn() -> ServingInputReceiver:
        examples = placeholder(dtypes.string, [default_batch_size], name="input_example_tensor")
        return ServingInputReceiver(parse_example(examples, feature_spec), {"examples": examples})

    return serving_input_receiver_fn


@export("estimator.export.build_raw_serving_input_receiver_fn")
def build_raw_serving_input_receiver_fn(
    features: Mapping[str, Any], default_batch_size: int | None = None
) -> Callable[[], ServingInputReceiver]:
    """Return a function that receives raw features through placeholders like the given tensors, for
    any number of examples.
    """

    def serving_input_receiver_fn() -> ServingInputReceiver:
        received = {key: _placeholder_like(f, default_batch_size) for key, f in features.items()}
        return ServingInputReceiver(received, received)

    return serving_input_receiver_fn


def _placeholder_like(tensor: Any, batch_size: int | None) -> Tensor:
    shape = TensorShape.of((batch_size,)).concatenate(tensor.shape[1:])
    return placeholder(tensor.dtype, shape, name=tensor.op.name)


def build_signatures(receiver: Any, outputs: Mapping[str, ExportOutput]) -> dict[str, Any]:
    """Return the signatures of a model: each output with each compatible set of received
    tensors.
    """
    received = {"": receiver.receiver_tensors, **(receiver.receiver_tensors_alternatives or {})}
    found: dict[str, Any] = {}
    for alternative, tensors in received.items():
        for key, output in outputs.items():
            name = f"{alternative}:{key}" if alternative else key
            try:
                found[name] = output.as_signature_def(tensors)
            except ValueError as error:
                log.info("Signature %r can't be served, and is left out: %s", name, error)
    if _DEFAULT not in found:
        log.warning(
            "Export includes no default signature!" if found else "Export includes no signatures!"
        )
    return {key: found[key] for key in found if signatures.is_valid_signature(found[key])}
