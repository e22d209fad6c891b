"""Batches of sequence examples as tensors. In: serialized `SequenceExample`s, and descriptions of
their features (see sequence_examples). Out: the features of all records together; sequences are
padded to the longest, and returned with their lengths.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from headrace._src.core import dtypes
from headrace._src.core.export import export
from headrace._src.core.tensor_shape import TensorShape, as_shape
from headrace._src.graph.definition import NOT_DIFFERENTIABLE, Sample
from headrace._src.graph.inference import InferenceContext
from headrace._src.ops.base.define import composed, define
from headrace._src.ops.base.to_tensor import name_scope
from headrace._src.ops.io.example_ops import FixedLenFeature, FixedLenSequenceFeature, default_of
from headrace._src.ops.io.sequence_examples import (
    Record,
    named,
    sample_record,
    split_features,
    types_of,
)
from headrace._src.ops.strings.string_arrays import attr_bytes, numpy_dtype, string_array

__all__ = ["parse_sequence_example"]

Parts = tuple[np.ndarray, ...]


# -- The kernel ------------------------------------------------------------------------------------


def _stacked_sparse(parts: list[Parts], rank: int, dtype: np.dtype) -> Parts:
    """Combine sparse tensors of one rank into one, with the index of each as the first
    coordinate.
    """
    counts = [len(values) for _, values, _ in parts]
    which = np.repeat(np.arange(len(parts), dtype=np.int64), counts)[:, None]
    places = np.concatenate([p for p, _, _ in parts] or [np.zeros((0, rank), np.int64)])
    sizes = np.max([s for _, _, s in parts], axis=0, initial=0) if parts else [0] * rank
    values = np.concatenate([v for _, v, _ in parts] or [np.zeros(0, dtype)])
    return np.concatenate([which, places], axis=1), values, np.array([len(parts), *sizes], np.int64)


def _padded(rows: list[np.ndarray], sizes: tuple[int, ...], dtype: np.dtype) -> Parts:
    """Combine sequences into one array, as long as the longest of them, and return
    their lengths.
    """
    lengths = np.array([len(row) for row in rows], np.int64)
    blank: Any = b"" if dtype.kind == "O" else 0
    result = np.full((len(rows), int(lengths.max(initial=0)), *sizes), blank, dtype)
    for i, row in enumerate(rows):
        result[i, : len(row)] = row
    return result, lengths


def _texts(keys: Any) -> list[str]:
    return [attr_bytes(key).decode() for key in keys]


def _kernel(
    serialized,
    debug_name,
    context_dense_defaults,
    *,
    feature_list_dense_missing_assumed_empty,
    context_sparse_keys,
    context_dense_keys,
    feature_list_sparse_keys,
    feature_list_dense_keys,
    context_sparse_types,
    context_dense_shapes,
    feature_list_sparse_types,
    feature_list_dense_types,
    feature_list_dense_shapes,
):
    texts = string_array(serialized)
    names = [name.decode() for name in string_array(debug_name).ravel().tolist()]
    if texts.ndim != 1:
        raise ValueError(f"serialized must be a vector, got shape {list(texts.shape)}")
    if names and len(names) != len(texts):
        raise ValueError(f"{len(names)} names for {len(texts)} examples")
    named_records = zip(texts.tolist(), names or [""] * len(texts), strict=True)
    records = [Record(text, name) for text, name in named_records]
    optional = set(_texts(feature_list_dense_missing_assumed_empty))
    outputs: list[list[Any]] = [[] for _ in range(9)]
    for key, dtype in zip(_texts(context_sparse_keys), context_sparse_types, strict=True):
        kind = numpy_dtype(dtype)
        _extend(outputs[0:3], _stacked_sparse([r.sparse(key, kind) for r in records], 1, kind))
    for key, default, shape in zip(
        _texts(context_dense_keys), context_dense_defaults, context_dense_shapes, strict=True
    ):
        default, sizes = np.asarray(default), tuple(shape.sizes)
        found = [r.dense(key, default.dtype, sizes, default) for r in records]
        outputs[3].append(np.stack(found) if found else np.zeros((0, *sizes), default.dtype))
    for key, dtype in zip(_texts(feature_list_sparse_keys), feature_list_sparse_types, strict=True):
        kind = numpy_dtype(dtype)
        _extend(outputs[4:7], _stacked_sparse([r.sparse_list(key, kind) for r in records], 2, kind))
    for key, dtype, shape in zip(
        _texts(feature_list_dense_keys),
        feature_list_dense_types,
        feature_list_dense_shapes,
        strict=True,
    ):
        kind, sizes = numpy_dtype(dtype), tuple(shape.sizes)
        rows = [r.dense_list(key, kind, sizes, key in optional) for r in records]
        _extend(outputs[7:9], _padded(rows, sizes, kind))
    return [value for group in outputs for value in group]


def _extend(groups: list[list[Any]], parts: Parts) -> None:
    for group, part in zip(groups, parts, strict=True):
        group.append(part)


# -- The op ----------------------------------------------------------------------------------------


def _infer(
    c: InferenceContext, serialized: TensorShape, name: TensorShape, defaults: list[TensorShape]
) -> list[Any]:
    batch = serialized.with_rank(1)
    rows = batch.concatenate([None])

    def of_sparse(count: int, rank: int) -> list[Any]:
        return [*[(None, rank)] * count, *[(None,)] * count, *[(rank,)] * count]

    attrs = c.attrs
    return [
        *of_sparse(attrs["Ncontext_sparse"], 2),
        *(batch.concatenate(shape) for shape in attrs["context_dense_shapes"]),
        *of_sparse(attrs["Nfeature_list_sparse"], 3),
        *(rows.concatenate(shape) for shape in attrs["feature_list_dense_shapes"]),
        *[batch] * attrs["Nfeature_list_dense"],
    ]


def _samples() -> list[Sample]:
    return [
        Sample(
            [sample_record(), sample_record(steps=3)],
            np.zeros(0, object),
            [np.int64(0)],
            feature_list_dense_missing_assumed_empty=["z"],
            context_sparse_keys=["w"],
            context_dense_keys=["n"],
            feature_list_sparse_keys=["y"],
            feature_list_dense_keys=["x", "z"],
            Ncontext_sparse=1,
            Ncontext_dense=1,
            Nfeature_list_sparse=1,
            Nfeature_list_dense=2,
            Tcontext_dense=["int64"],
            context_sparse_types=["string"],
            context_dense_shapes=[()],
            feature_list_sparse_types=["int64"],
            feature_list_dense_types=["float32", "string"],
            feature_list_dense_shapes=[(2,), ()],
        )
    ]


_KEYS = "list(string) >= 0"
_TYPES = "list{float32|int64|string} >= 0 = []"


@define(
    "ParseSequenceExample",
    "serialized: string, debug_name: string, context_dense_defaults: *Tcontext_dense -> "
    "context_sparse_indices: Ncontext_sparse*int64, context_sparse_values: *context_sparse_types, "
    "context_sparse_shapes: Ncontext_sparse*int64, context_dense_values: *Tcontext_dense, "
    "feature_list_sparse_indices: Nfeature_list_sparse*int64, "
    "feature_list_sparse_values: *feature_list_sparse_types, "
    "feature_list_sparse_shapes: Nfeature_list_sparse*int64, "
    "feature_list_dense_values: *feature_list_dense_types, "
    "feature_list_dense_lengths: Nfeature_list_dense*int64",
    f"feature_list_dense_missing_assumed_empty: {_KEYS}; context_sparse_keys: {_KEYS}; "
    f"context_dense_keys: {_KEYS}; feature_list_sparse_keys: {_KEYS}; "
    f"feature_list_dense_keys: {_KEYS}; "
    "Ncontext_sparse: int >= 0 = 0; Ncontext_dense: int >= 0 = 0; "
    "Nfeature_list_sparse: int >= 0 = 0; Nfeature_list_dense: int >= 0 = 0; "
    f"context_sparse_types: {_TYPES}; Tcontext_dense: {_TYPES}; "
    f"feature_list_dense_types: {_TYPES}; context_dense_shapes: list(shape) >= 0 = []; "
    f"feature_list_sparse_types: {_TYPES}; feature_list_dense_shapes: list(shape) >= 0 = []",
    infer=_infer,
    kernel=_kernel,
    gradient=NOT_DIFFERENTIABLE,
    samples=_samples,
)
def parse_sequence_example_op(
    serialized,
    debug_name,
    context_dense_defaults,
    feature_list_dense_missing_assumed_empty,
    context_sparse_keys,
    context_dense_keys,
    feature_list_sparse_keys,
    feature_list_dense_keys,
    Ncontext_sparse=0,
    Ncontext_dense=0,
    Nfeature_list_sparse=0,
    Nfeature_list_dense=0,
    context_sparse_types=(),
    feature_list_dense_types=(),
    context_dense_shapes=(),
    feature_list_sparse_types=(),
    feature_list_dense_shapes=(),
    name=None,
):
    """Parse a batch of SequenceExamples."""


# -- Public functions ------------------------------------------------------------------------------


@composed
@export("io.parse_sequence_example")
def parse_sequence_example(
    serialized: Any,
    context_features: Mapping[str, Any] | None = None,
    sequence_features: Mapping[str, Any] | None = None,
    example_names: Any = None,
    name: str | None = None,
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Return the features of serialized SequenceExamples: a dict of the context features, a dict of
    the features that occur at each step of a sequence, and a dict of the sequences' lengths.

    The arguments are those of parse_single_sequence_example, for a vector of records and of names.
    """
    if not context_features and not sequence_features:
        raise ValueError("Missing features.")
    sparse, dense = split_features(context_features, FixedLenFeature)
    sparse_lists, dense_lists = split_features(sequence_features, FixedLenSequenceFeature)
    for key, feature in dense_lists.items():
        if feature.default_value is not None:
            raise ValueError(f"Value feature_list_dense_defaults[{key}] must be None")
    shapes = [as_shape(feature.shape) for feature in dense.values()]
    with name_scope(name, "ParseSequenceExample", [serialized]):
        defaults = [
            default_of(key, dtypes.as_dtype(feature.dtype), shape, feature.default_value)
            for (key, feature), shape in zip(dense.items(), shapes, strict=True)
        ]
        outputs = parse_sequence_example_op(
            serialized,
            np.zeros(0, object) if example_names is None else example_names,
            defaults,
            feature_list_dense_missing_assumed_empty=[
                key for key, feature in dense_lists.items() if feature.allow_missing
            ],
            context_sparse_keys=list(sparse),
            context_dense_keys=list(dense),
            feature_list_sparse_keys=list(sparse_lists),
            feature_list_dense_keys=list(dense_lists),
            Ncontext_sparse=len(sparse),
            Ncontext_dense=len(dense),
            Nfeature_list_sparse=len(sparse_lists),
            Nfeature_list_dense=len(dense_lists),
            context_sparse_types=types_of(sparse),
            context_dense_shapes=shapes,
            feature_list_sparse_types=types_of(sparse_lists),
            feature_list_dense_types=types_of(dense_lists),
            feature_list_dense_shapes=[as_shape(f.shape) for f in dense_lists.values()],
            name=name,
        )
    lengths = dict(zip(dense_lists, outputs[8], strict=True))
    return (
        named(sparse, dense, outputs[:4]),
        named(sparse_lists, dense_lists, outputs[4:8]),
        lengths,
    )
