"""Sequence examples as tensors. In: a serialized `SequenceExample`, and descriptions of its context
features and of its feature lists. Out: two dicts, from feature to tensor, or to sparse tensor for
features with any number of values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from headrace._src.core import dtypes, proto
from headrace._src.core.export import export
from headrace._src.core.tensor_shape import TensorShape, as_shape, show_shape
from headrace._src.graph.composite import SparseTensor
from headrace._src.graph.definition import NOT_DIFFERENTIABLE, Sample
from headrace._src.graph.inference import InferenceContext
from headrace._src.ops.base import infer
from headrace._src.ops.base.define import composed, define
from headrace._src.ops.base.to_tensor import name_scope
from headrace._src.ops.io.example_kernels import sparse_rows
from headrace._src.ops.io.example_ops import (
    FixedLenFeature,
    FixedLenSequenceFeature,
    VarLenFeature,
    default_of,
)
from headrace._src.ops.io.sequence_records import FeatureRows, split_record
from headrace._src.ops.strings.string_arrays import numpy_dtype, of_strings, string_array

__all__ = [
    "Record",
    "named",
    "parse_single_sequence_example",
    "sample_record",
    "split_features",
    "types_of",
]

_LISTS = {"O": "bytes_list", "f": "float_list", "i": "int64_list"}
_NAMES = {"O": "string", "f": "float", "i": "int64"}


# -- The kernel ------------------------------------------------------------------------------------


def _values(feature: Any, dtype: np.dtype, where: str) -> Sequence[Any]:
    """Return the values of a feature, which must have the given type."""
    wanted = _LISTS[dtype.kind]
    if feature.WhichOneof("kind") != wanted:
        raise ValueError(
            f"{where}.  Data types don't match. Expected type: {_NAMES[dtype.kind]}  "
            f"Feature is: {feature}"
        )
    return getattr(feature, wanted).value


def _array(values: Sequence[Any], dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    if dtype.kind == "O":
        return of_strings(values, shape)
    return np.array(values, dtype).reshape(shape)


def _fitting(
    feature: Any, dtype: np.dtype, shape: tuple[int, ...], where: str, place: str
) -> Sequence[Any]:
    """Return the values of a feature; their number must match the shape."""
    found = _values(feature, dtype, where)
    if len(found) != int(np.prod(shape)):
        raise ValueError(
            f"{place}.  Number of {_NAMES[dtype.kind]} values != expected.  values size: "
            f"{len(found)} but output shape: {show_shape(shape)}"
        )
    return found


class Record:
    """One parsed record, and its name in error messages."""

    def __init__(self, serialized: bytes, name: str) -> None:
        self._serialized = serialized
        self.name = f"Name: {name}, "
        split = split_record(serialized)
        # Lists that generated code has read; None if it hasn't.
        self._rows: dict[str, FeatureRows] | None = None if split is None else split[1]
        whole = self._parsed(serialized if split is None else split[0])
        self.context = whole.context.feature
        if split is None:
            self.lists = whole.feature_lists.feature_list

    def _parsed(self, message: bytes) -> Any:
        try:
            return proto.SequenceExample.FromString(message)
        except proto.DecodeError:
            shown = self._serialized.decode(errors="backslashreplace")
            raise ValueError(f"Could not parse example input, value: '{shown}'") from None

    @cached_property
    def lists(self) -> Any:
        return self._parsed(self._serialized).feature_lists.feature_list

    def dense(self, key: str, dtype: np.dtype, shape: tuple[int, ...], default: Any) -> np.ndarray:
        if default.size and default.shape != shape:
            raise ValueError(
                f"The default of '{key}' has shape {show_shape(default.shape)} != "
                f"context_dense_shapes == {show_shape(shape)}"
            )
        if key not in self.context or self.context[key].WhichOneof("kind") is None:
            if not default.size and np.prod(shape):
                raise ValueError(
                    f"{self.name}Context feature '{key}' is required but could not be found."
                )
            return default.reshape(shape)
        where = f"{self.name}Context feature: {key}"
        place = f"{self.name}Key: {key}, Index: 0"
        return _array(_fitting(self.context[key], dtype, shape, where, place), dtype, shape)

    def sparse(self, key: str, dtype: np.dtype) -> tuple[np.ndarray, ...]:
        found: Sequence[Any] = ()
        if key in self.context and self.context[key].WhichOneof("kind") is not None:
            where = f"{self.name}Context feature: {key}"
            found = _values(self.context[key], dtype, where)
        count = len(found)
        places = np.arange(count, dtype=np.int64).reshape(count, 1)
        return places, _array(found, dtype, (count,)), np.array([count], np.int64)

    def dense_list(
        self, key: str, dtype: np.dtype, shape: tuple[int, ...], may_be_missing: bool
    ) -> np.ndarray:
        if self._rows is not None and key in self._rows:
            values = self._rows[key].dense(dtype, int(np.prod(shape)))
            if values is not None:
                return values.reshape((len(self._rows[key].kinds), *shape))
        if key not in self.lists and not may_be_missing:
            raise ValueError(
                f"{self.name}Feature list '{key}' is required but could not be found.  Did you "
                "mean to include it in feature_list_dense_missing_assumed_empty or "
                "feature_list_dense_defaults?"
            )
        rows = self.lists[key].feature if key in self.lists else ()
        found: list[Any] = []
        for index, feature in enumerate(rows):
            where = f"{self.name}Feature list: {key}, Index: {index}"
            place = f"{self.name}Key: {key}, Index: {index}"
            found += _fitting(feature, dtype, shape, where, place)
        return _array(found, dtype, (len(rows), *shape))

    def sparse_list(self, key: str, dtype: np.dtype) -> tuple[np.ndarray, ...]:
        if self._rows is not None and key in self._rows:
            found = self._rows[key].sparse(dtype)
            if found is not None:
                return sparse_rows(*found)
        features = self.lists[key].feature if key in self.lists else ()
        rows = [
            ()
            if feature.WhichOneof("kind") is None
            else _values(feature, dtype, f"{self.name}Feature List: {key}, Index: {index}")
            for index, feature in enumerate(features)
        ]
        counts = np.array([len(row) for row in rows], np.int64)
        values = [value for row in rows for value in row]
        return sparse_rows(counts, _array(values, dtype, (len(values),)))


def _texts(keys: Any, what: str) -> list[str]:
    return [_scalar(key, f"{what}[{i}]").decode() for i, key in enumerate(keys)]


def _scalar(value: Any, what: str) -> bytes:
    found = string_array(value)
    if found.ndim:
        raise ValueError(f"Expected {what} to be a scalar, got shape: {show_shape(found.shape)}")
    return found.item()


def _kernel(
    serialized,
    feature_list_dense_missing_assumed_empty,
    context_sparse_keys,
    context_dense_keys,
    feature_list_sparse_keys,
    feature_list_dense_keys,
    context_dense_defaults,
    debug_name,
    *,
    context_sparse_types,
    context_dense_shapes,
    feature_list_sparse_types,
    feature_list_dense_types,
    feature_list_dense_shapes,
):
    record = Record(_scalar(serialized, "serialized"), _scalar(debug_name, "debug_name").decode())
    missing = string_array(feature_list_dense_missing_assumed_empty)
    if missing.ndim != 1:
        raise ValueError(
            "Expected feature_list_dense_missing_assumed_empty to be a vector, got shape: "
            f"{show_shape(missing.shape)}"
        )
    optional = {text.decode() for text in missing.tolist()}
    keys = _texts(context_sparse_keys, "context_sparse_keys")
    sparse = [
        record.sparse(k, numpy_dtype(t)) for k, t in zip(keys, context_sparse_types, strict=True)
    ]
    dense = [
        record.dense(key, np.asarray(default).dtype, tuple(shape.sizes), np.asarray(default))
        for key, default, shape in zip(
            _texts(context_dense_keys, "context_dense_keys"),
            context_dense_defaults,
            context_dense_shapes,
            strict=True,
        )
    ]
    keys = _texts(feature_list_sparse_keys, "feature_list_sparse_keys")
    sparse_lists = [
        record.sparse_list(key, numpy_dtype(dtype))
        for key, dtype in zip(keys, feature_list_sparse_types, strict=True)
    ]
    dense_lists = [
        record.dense_list(key, numpy_dtype(dtype), tuple(shape.sizes), key in optional)
        for key, dtype, shape in zip(
            _texts(feature_list_dense_keys, "feature_list_dense_keys"),
            feature_list_dense_types,
            feature_list_dense_shapes,
            strict=True,
        )
    ]
    return [
        *(part[i] for i in range(3) for part in sparse),
        *dense,
        *(part[i] for i in range(3) for part in sparse_lists),
        *dense_lists,
    ]


# -- The op ----------------------------------------------------------------------------------------


def _infer(
    c: InferenceContext,
    serialized: TensorShape,
    missing: TensorShape,
    context_sparse: list[TensorShape],
    context_dense: list[TensorShape],
    list_sparse: list[TensorShape],
    list_dense: list[TensorShape],
    defaults: list[TensorShape],
    name: TensorShape,
) -> list[Any]:
    infer.with_rank(serialized, 0)
    rows = TensorShape.of((None,))

    def of_sparse(count: int, rank: int) -> list[Any]:
        return [*[(None, rank)] * count, *[(None,)] * count, *[(rank,)] * count]

    return [
        *of_sparse(len(context_sparse), 1),
        *c.attrs["context_dense_shapes"],
        *of_sparse(len(list_sparse), 2),
        *(rows.concatenate(shape) for shape in c.attrs["feature_list_dense_shapes"]),
    ]


def sample_record(steps: int = 2) -> bytes:
    """A record for samples: "n" and "w" once, "x" and "y" for each of its steps."""
    record: Any = proto.SequenceExample()
    record.context.feature["n"].int64_list.value.append(5)
    record.context.feature["w"].bytes_list.value.extend([b"a", b"b"])
    for step in range(steps):
        record.feature_lists.feature_list["x"].feature.add().float_list.value.extend([step, 2.0])
        record.feature_lists.feature_list["y"].feature.add().int64_list.value.extend(range(step))
    return record.SerializeToString(deterministic=True)


def _sample() -> list[Sample]:
    return [
        Sample(
            sample_record(),
            [b"z"],
            ["w"],
            ["n"],
            ["y"],
            ["x", "z"],
            [np.int64(0)],
            b"",
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


_TYPES = "list{float32|int64|string} >= 0 = []"


@define(
    "ParseSingleSequenceExample",
    "serialized: string, feature_list_dense_missing_assumed_empty: string, "
    "context_sparse_keys: Ncontext_sparse*string, context_dense_keys: Ncontext_dense*string, "
    "feature_list_sparse_keys: Nfeature_list_sparse*string, "
    "feature_list_dense_keys: Nfeature_list_dense*string, "
    "context_dense_defaults: *Tcontext_dense, debug_name: string -> "
    "context_sparse_indices: Ncontext_sparse*int64, context_sparse_values: *context_sparse_types, "
    "context_sparse_shapes: Ncontext_sparse*int64, context_dense_values: *Tcontext_dense, "
    "feature_list_sparse_indices: Nfeature_list_sparse*int64, "
    "feature_list_sparse_values: *feature_list_sparse_types, "
    "feature_list_sparse_shapes: Nfeature_list_sparse*int64, "
    "feature_list_dense_values: *feature_list_dense_types",
    "Ncontext_sparse: int >= 0 = 0; Ncontext_dense: int >= 0 = 0; "
    "Nfeature_list_sparse: int >= 0 = 0; Nfeature_list_dense: int >= 0 = 0; "
    f"context_sparse_types: {_TYPES}; Tcontext_dense: {_TYPES}; "
    f"feature_list_dense_types: {_TYPES}; context_dense_shapes: list(shape) >= 0 = []; "
    f"feature_list_sparse_types: {_TYPES}; feature_list_dense_shapes: list(shape) >= 0 = []",
    infer=_infer,
    kernel=_kernel,
    gradient=NOT_DIFFERENTIABLE,
    samples=_sample,
)
def parse_single_sequence_example_op(
    serialized,
    feature_list_dense_missing_assumed_empty,
    context_sparse_keys,
    context_dense_keys,
    feature_list_sparse_keys,
    feature_list_dense_keys,
    context_dense_defaults,
    debug_name,
    context_sparse_types=(),
    context_dense_shapes=(),
    feature_list_sparse_types=(),
    feature_list_dense_types=(),
    feature_list_dense_shapes=(),
    name=None,
):
    """Parse one SequenceExample."""


# -- Public functions ------------------------------------------------------------------------------


def split_features(
    features: Mapping[str, Any] | None, dense: type
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return features in order: those with any number of values, and those of a fixed shape."""
    kinds: tuple[dict[str, Any], dict[str, Any]] = {}, {}
    for key, feature in sorted((features or {}).items()):
        if isinstance(feature, VarLenFeature):
            kinds[0][key] = feature
        elif isinstance(feature, dense):
            if feature.shape is None:
                raise ValueError(f"Missing shape for feature {key}.")
            kinds[1][key] = feature
        else:
            raise ValueError(f"Unsupported {type(feature).__name__} {feature}.")
        if not feature.dtype:
            raise ValueError(f"Missing type for feature {key}.")
    return kinds


def types_of(features: dict[str, Any]) -> list[Any]:
    """Return the types of features, in order."""
    return [dtypes.as_dtype(feature.dtype) for feature in features.values()]


@composed
@export("parse_single_sequence_example", "io.parse_single_sequence_example")
def parse_single_sequence_example(
    serialized: Any,
    context_features: Mapping[str, Any] | None = None,
    sequence_features: Mapping[str, Any] | None = None,
    example_name: Any = None,
    name: str | None = None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the features of one serialized SequenceExample: a dict of the context features, and a
    dict of the features that occur at each step of a sequence.

    context_features: from key to FixedLenFeature or VarLenFeature. sequence_features: from key to
    FixedLenSequenceFeature, which gives a tensor with a row per step, or VarLenFeature.
    example_name: the record's name in error messages.
    """
    if not context_features and not sequence_features:
        raise ValueError("Missing features.")
    sparse, dense = split_features(context_features, FixedLenFeature)
    sparse_lists, dense_lists = split_features(sequence_features, FixedLenSequenceFeature)
    for key, feature in dense_lists.items():
        if feature.default_value is not None:
            raise ValueError(f"Value feature_list_dense_defaults[{key}] must be None")
    shapes = [as_shape(feature.shape) for feature in dense.values()]
    with name_scope(name, "ParseSingleSequenceExample", [serialized]):
        defaults = [
            default_of(key, dtypes.as_dtype(feature.dtype), shape, feature.default_value)
            for (key, feature), shape in zip(dense.items(), shapes, strict=True)
        ]
        outputs = parse_single_sequence_example_op(
            serialized,
            [key for key, feature in dense_lists.items() if feature.allow_missing],
            list(sparse),
            list(dense),
            list(sparse_lists),
            list(dense_lists),
            defaults,
            "" if example_name is None else example_name,
            context_sparse_types=types_of(sparse),
            context_dense_shapes=shapes,
            feature_list_sparse_types=types_of(sparse_lists),
            feature_list_dense_types=types_of(dense_lists),
            feature_list_dense_shapes=[as_shape(f.shape) for f in dense_lists.values()],
            name=name,
        )
    return (
        named(sparse, dense, outputs[:4]),
        named(sparse_lists, dense_lists, outputs[4:]),
    )


def named(sparse: dict[str, Any], dense: dict[str, Any], outputs: Any) -> dict[str, Any]:
    """Return the outputs of an op by the keys of their features."""
    parts = zip(*outputs[:3], strict=True)
    found = dict(zip(sparse, (SparseTensor(*part) for part in parts), strict=True))
    return found | dict(zip(dense, outputs[3], strict=True))
