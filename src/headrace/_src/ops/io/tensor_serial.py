"""Tensors as strings: TensorProtos, one per tensor."""

from __future__ import annotations

import numpy as np

from headrace._src.core import proto
from headrace._src.core.export import export
from headrace._src.core.tensor_proto import to_array
from headrace._src.core.tensor_shape import show_shape
from headrace._src.graph.definition import NOT_DIFFERENTIABLE, Sample
from headrace._src.ops.base import infer
from headrace._src.ops.base.define import define
from headrace._src.ops.base.samples import unary
from headrace._src.ops.io.summary_kernels import tensor_with_content

__all__ = ["parse_tensor", "serialize_tensor"]


@export("serialize_tensor", "io.serialize_tensor")
@define(
    "SerializeTensor",
    "tensor: T -> serialized: string",
    "T: type",
    infer=infer.scalar,
    kernel=lambda x, *, T: tensor_with_content(np.asarray(x), T).SerializeToString(),
    samples=unary(),
)
def serialize_tensor(tensor, name=None):
    """Return `tensor` as a serialized TensorProto."""


def _parse(serialized, *, out_type):
    if np.ndim(serialized):
        raise ValueError(
            f"Expected `serialized` to be a scalar, got shape: {show_shape(np.shape(serialized))}"
        )
    try:
        message = proto.TensorProto.FromString(np.asarray(serialized, object).item())
    except proto.DecodeError as error:
        raise ValueError(f"Could not parse `serialized` as TensorProto: {error}") from None
    if message.dtype != out_type.enum:
        raise ValueError(f"Type mismatch between parsed tensor and expected {out_type.name}")
    return to_array(message)


def _parse_infer(c, serialized):
    serialized.with_rank(0)
    return None


@export("parse_tensor", "io.parse_tensor")
@define(
    "ParseTensor",
    "serialized: string -> output: out_type",
    "out_type: type",
    infer=_parse_infer,
    kernel=_parse,
    gradient=NOT_DIFFERENTIABLE,
    samples=[Sample(b"\x08\x01\x12\x00\x2a\x04\x00\x00\x80\x3f", out_type="float32")],
)
def parse_tensor(serialized, out_type, name=None):
    """Return the tensor of a serialized TensorProto, which must have type `out_type`."""
