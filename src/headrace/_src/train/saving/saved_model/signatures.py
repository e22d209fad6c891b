"""Signatures: a SavedModel's inputs and outputs, under names independent of its graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace._src.core import dtypes, proto
from headrace._src.core.dtypes import as_dtype
from headrace._src.core.export import export
from headrace._src.graph.composite import SparseTensor
from headrace._src.graph.default import get_default_graph
from headrace._src.graph.graph import Graph
from headrace._src.graph.operation import Tensor
from headrace._src.train.saving.saved_model import saved_model_names

__all__ = [
    "build_signature_def",
    "build_tensor_info",
    "classification_signature_def",
    "get_tensor_from_tensor_info",
    "is_valid_signature",
    "predict_signature_def",
    "regression_signature_def",
]


# ---- Tensors -------------------------------------------------------------------------------------


@export("saved_model.build_tensor_info", "saved_model.utils.build_tensor_info")
def build_tensor_info(tensor: Any) -> proto.TensorInfo:
    """Return the TensorInfo of a tensor or a sparse tensor: its names, dtype and shape."""
    info = proto.TensorInfo(
        dtype=as_dtype(tensor.dtype).base_dtype.as_datatype_enum,  # type: ignore[arg-type]
        tensor_shape=tensor.get_shape().as_proto(),
    )
    if isinstance(tensor, SparseTensor):
        info.coo_sparse.values_tensor_name = tensor.values.name
        info.coo_sparse.indices_tensor_name = tensor.indices.name
        info.coo_sparse.dense_shape_tensor_name = tensor.dense_shape.name
    else:
        info.name = tensor.name
    return info


@export("saved_model.get_tensor_from_tensor_info", "saved_model.utils.get_tensor_from_tensor_info")
def get_tensor_from_tensor_info(
    tensor_info: Any, graph: Graph | None = None, import_scope: str | None = None
) -> Any:
    """Return the tensor or sparse tensor of a graph that a TensorInfo names."""
    graph = get_default_graph() if graph is None else graph

    def tensor(name: str) -> Tensor:
        return graph.get_tensor_by_name(f"{import_scope}/{name}" if import_scope else name)

    encoding = tensor_info.WhichOneof("encoding")
    if encoding == "name":
        return tensor(tensor_info.name)
    if encoding == "coo_sparse":
        parts = tensor_info.coo_sparse
        return SparseTensor(
            tensor(parts.indices_tensor_name),
            tensor(parts.values_tensor_name),
            tensor(parts.dense_shape_tensor_name),
        )
    raise ValueError(f"Invalid TensorInfo.encoding: {encoding}")


# ---- Signatures ----------------------------------------------------------------------------------


@export("saved_model.build_signature_def", "saved_model.signature_def_utils.build_signature_def")
def build_signature_def(
    inputs: Mapping[str, Any] | None = None,
    outputs: Mapping[str, Any] | None = None,
    method_name: str | None = None,
) -> proto.SignatureDef:
    """Return a SignatureDef of TensorInfos by name."""
    signature = proto.SignatureDef()
    for key, info in (inputs or {}).items():
        signature.inputs[key].CopyFrom(info)
    for key, info in (outputs or {}).items():
        signature.outputs[key].CopyFrom(info)
    if method_name is not None:
        signature.method_name = method_name
    return signature


@export(
    "saved_model.predict_signature_def", "saved_model.signature_def_utils.predict_signature_def"
)
def predict_signature_def(
    inputs: Mapping[str, Any], outputs: Mapping[str, Any]
) -> proto.SignatureDef:
    """Return the signature of a function from any tensors to any tensors."""
    if not inputs:
        raise ValueError("Prediction inputs cannot be None or empty.")
    if not outputs:
        raise ValueError("Prediction outputs cannot be None or empty.")
    return build_signature_def(
        {key: build_tensor_info(tensor) for key, tensor in inputs.items()},
        {key: build_tensor_info(tensor) for key, tensor in outputs.items()},
        saved_model_names.PREDICT_METHOD_NAME,
    )


def _info(what: str, tensor: Any, dtype: Any) -> Any:
    """Return the TensorInfo of a tensor that must have a given dtype."""
    kind = "string" if dtype is dtypes.string else "float"
    if not isinstance(tensor, Tensor) or tensor.dtype.base_dtype is not dtype:
        raise ValueError(f"{what} must be a {kind} Tensor.")
    return build_tensor_info(tensor)


@export(
    "saved_model.regression_signature_def",
    "saved_model.signature_def_utils.regression_signature_def",
)
def regression_signature_def(examples: Any, predictions: Any) -> proto.SignatureDef:
    """Return the signature of a function from serialized Examples to numbers."""
    if examples is None:
        raise ValueError("Regression examples cannot be None.")
    if predictions is None:
        raise ValueError("Regression predictions cannot be None.")
    return build_signature_def(
        {saved_model_names.REGRESS_INPUTS: _info("Regression examples", examples, dtypes.string)},
        {
            saved_model_names.REGRESS_OUTPUTS: _info(
                "Regression output", predictions, dtypes.float32
            )
        },
        saved_model_names.REGRESS_METHOD_NAME,
    )


@export(
    "saved_model.classification_signature_def",
    "saved_model.signature_def_utils.classification_signature_def",
)
def classification_signature_def(examples: Any, classes: Any, scores: Any) -> proto.SignatureDef:
    """Return the signature of a function from serialized Examples to classes and/or scores."""
    if examples is None:
        raise ValueError("Classification examples cannot be None.")
    if classes is None and scores is None:
        raise ValueError("Classification classes and scores cannot both be None.")
    outputs = {}
    if classes is not None:
        outputs[saved_model_names.CLASSIFY_OUTPUT_CLASSES] = _info(
            "Classification classes", classes, dtypes.string
        )
    if scores is not None:
        outputs[saved_model_names.CLASSIFY_OUTPUT_SCORES] = _info(
            "Classification scores", scores, dtypes.float32
        )
    inputs = {
        saved_model_names.CLASSIFY_INPUTS: _info("Classification examples", examples, dtypes.string)
    }
    return build_signature_def(inputs, outputs, saved_model_names.CLASSIFY_METHOD_NAME)


@export("saved_model.is_valid_signature", "saved_model.signature_def_utils.is_valid_signature")
def is_valid_signature(signature_def: Any) -> bool:
    """Return whether a SignatureDef can be served: as prediction, classification or regression."""
    if signature_def is None or not signature_def.outputs:
        return False
    kinds = {key: info.dtype for key, info in signature_def.outputs.items()}
    if signature_def.method_name == saved_model_names.PREDICT_METHOD_NAME:
        return bool(signature_def.inputs)
    number, text = dtypes.float32.as_datatype_enum, dtypes.string.as_datatype_enum
    if {key: info.dtype for key, info in signature_def.inputs.items()} != {"inputs": text}:
        return False
    if signature_def.method_name == saved_model_names.REGRESS_METHOD_NAME:
        return kinds == {saved_model_names.REGRESS_OUTPUTS: number}
    allowed = {
        saved_model_names.CLASSIFY_OUTPUT_CLASSES: text,
        saved_model_names.CLASSIFY_OUTPUT_SCORES: number,
    }
    return signature_def.method_name == saved_model_names.CLASSIFY_METHOD_NAME and all(
        allowed.get(key) == kind for key, kind in kinds.items()
    )
