"""Sparse tensors as strings. A sparse tensor is three serialized TensorProtos (indices, values,
shape), or, as variants, its three arrays.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace._src.core import dtypes
from headrace._src.core.export import export
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.graph.composite import SparseTensor
from headrace._src.graph.definition import NOT_DIFFERENTIABLE, Sample
from headrace._src.graph.inference import InferenceContext
from headrace._src.graph.operation import Tensor
from headrace._src.ops.base.define import composed, define
from headrace._src.ops.base.samples import r
from headrace._src.ops.sparse import sparse_layout_kernels as kernels
from headrace._src.ops.sparse.sparse_ops import as_sparse

__all__ = ["deserialize_many_sparse", "serialize_many_sparse", "serialize_sparse"]

_A = ([[0, 0], [0, 2], [1, 1]], r(3), [2, 3])


def _check_ranks(indices: TensorShape, values: TensorShape, shape: TensorShape) -> None:
    indices.with_rank(2)
    values.with_rank(1)
    shape.with_rank(1)


def _one_infer(c: InferenceContext, *shapes: TensorShape) -> Any:
    _check_ranks(*shapes)
    return (3,)


def _many_infer(c: InferenceContext, *shapes: TensorShape) -> Any:
    _check_ranks(*shapes)
    return (None, 3)


@define(
    "SerializeSparse",
    "sparse_indices: int64, sparse_values: T, sparse_shape: int64 -> serialized_sparse: out_type",
    "T: type; out_type: {string|variant} = string",
    infer=_one_infer,
    kernel=kernels.serialize_sparse,
    samples=[Sample(*_A, out_type="string")],
)
def serialize_sparse_op(
    sparse_indices, sparse_values, sparse_shape, out_type=dtypes.string, name=None
):
    """Serialize a sparse tensor."""


@define(
    "SerializeManySparse",
    "sparse_indices: int64, sparse_values: T, sparse_shape: int64 -> serialized_sparse: out_type",
    "T: type; out_type: {string|variant} = string",
    infer=_many_infer,
    kernel=kernels.serialize_many_sparse,
    samples=[Sample(*_A, out_type="string")],
)
def serialize_many_sparse_op(
    sparse_indices, sparse_values, sparse_shape, out_type=dtypes.string, name=None
):
    """Serialize each row of a sparse tensor."""


def _packed() -> np.ndarray:
    indices = np.array([[0, 0], [0, 2], [1, 1]], np.int64)
    values = np.array([1.5, 2.5, 3.5], np.float32)
    return kernels.serialize_many_sparse(
        indices, values, np.array([2, 3], np.int64), out_type=dtypes.string
    )


def _deserialize_infer(c: InferenceContext, packed: TensorShape) -> list[Any]:
    packed.with_rank_at_least(1)[-1:].merge_with((3,))
    return [(None, None), (None,), (None,)]


def _deserialize_many_infer(c: InferenceContext, packed: TensorShape) -> list[Any]:
    packed.with_rank(2).merge_with((None, 3))
    return [(None, None), (None,), (None,)]


@define(
    "DeserializeSparse",
    "serialized_sparse: Tserialized -> sparse_indices: int64, sparse_values: dtype, "
    "sparse_shape: int64",
    "dtype: type; Tserialized: {string|variant} = string",
    infer=_deserialize_infer,
    kernel=kernels.deserialize_sparse,
    gradient=NOT_DIFFERENTIABLE,
    samples=lambda: [
        Sample(packed, dtype="float32", Tserialized="string")
        for packed in (_packed(), _packed()[1], _packed()[None])
    ],
)
def deserialize_sparse(serialized_sparse, dtype, name=None):
    """Read and stack serialized sparse tensors."""


@define(
    "DeserializeManySparse",
    "serialized_sparse: string -> sparse_indices: int64, sparse_values: dtype, sparse_shape: int64",
    "dtype: type",
    infer=_deserialize_many_infer,
    kernel=kernels.deserialize_many_sparse,
    gradient=NOT_DIFFERENTIABLE,
    samples=lambda: [Sample(_packed(), dtype="float32")],
)
def deserialize_many_sparse_op(serialized_sparse, dtype, name=None):
    """Read and stack a batch of serialized sparse tensors."""


@composed
@export("serialize_sparse", "io.serialize_sparse")
def serialize_sparse(
    sp_input: Any, name: str | None = None, out_type: Any = dtypes.string
) -> Tensor:
    """Return a sparse tensor as a vector of 3 strings."""
    sp = as_sparse(sp_input)
    return serialize_sparse_op(*sp.components(), out_type=out_type, name=name)


@composed
@export("serialize_many_sparse", "io.serialize_many_sparse")
def serialize_many_sparse(
    sp_input: Any, name: str | None = None, out_type: Any = dtypes.string
) -> Tensor:
    """Return a matrix with 3 strings for each entry of the first dimension."""
    sp = as_sparse(sp_input)
    return serialize_many_sparse_op(*sp.components(), out_type=out_type, name=name)


@composed
@export("deserialize_many_sparse", "io.deserialize_many_sparse")
def deserialize_many_sparse(
    serialized_sparse: Any, dtype: Any, rank: int | None = None, name: str | None = None
) -> SparseTensor:
    """Return a batch of serialized sparse tensors as one; `rank` is that of the result."""
    indices, values, shape = deserialize_many_sparse_op(serialized_sparse, dtype, name=name)
    indices.set_shape([None, rank])
    shape.set_shape([rank])
    return SparseTensor(indices, values, shape)
