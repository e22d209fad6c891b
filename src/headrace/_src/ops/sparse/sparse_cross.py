"""Feature crosses. In: columns of features, sparse or dense, a row per example. Out: for each row
every combination of one feature from each column, joined to a string or hashed to a bucket.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace._src.core import dtypes
from headrace._src.core.export import export
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.graph.composite import SparseTensor
from headrace._src.graph.definition import Sample
from headrace._src.graph.inference import InferenceContext
from headrace._src.graph.operation import Tensor
from headrace._src.ops.base.define import b, composed, define
from headrace._src.ops.base.samples import r
from headrace._src.ops.sparse.sparse_kernels import check_parts
from headrace._src.ops.strings.fingerprints import fingerprint64
from headrace._src.ops.strings.string_arrays import of_strings

__all__ = ["sparse_cross", "sparse_cross_hashed"]

_DEFAULT_HASH_KEY = 0xDECAFCAFFE
_MURMUR = np.uint64(0xC6A4A7935BD1E995)
_SHIFT = np.uint64(47)


class _Column:
    """The features of all rows, concatenated, and each row's number of features."""

    def __init__(self, rows: np.ndarray, features: np.ndarray, batch: int) -> None:
        order = np.argsort(rows, kind="stable")
        self.features = features[order]
        self.counts = np.bincount(rows, minlength=batch)
        self.starts = np.cumsum(self.counts) - self.counts

    def pick(self, rows: np.ndarray, which: np.ndarray) -> np.ndarray:
        """Return feature number `which` of each of `rows`."""
        return self.features[self.starts[rows] + which]


def _columns(indices: Any, values: Any, shapes: Any, dense_inputs: Any) -> list[_Column]:
    sparse = [check_parts(*part) for part in zip(indices, values, shapes, strict=True)]
    dense = [np.asarray(d) for d in dense_inputs]
    if any(len(shape) != 2 for _, _, shape in sparse) or any(d.ndim != 2 for d in dense):
        raise ValueError("Inputs must be matrices, with a row per example")
    sizes = {int(shape[0]) for _, _, shape in sparse} | {len(d) for d in dense}
    if len(sizes) != 1:
        raise ValueError(f"Inputs must have one batch size, got {sorted(sizes)}")
    batch = sizes.pop()
    found = []
    for rows, features, _ in sparse:
        mine = (rows[:, 0] >= 0) & (rows[:, 0] < batch)
        found.append(_Column(rows[mine, 0], features[mine], batch))
    for d in dense:
        found.append(_Column(np.repeat(np.arange(batch), d.shape[1]), d.ravel(), batch))
    return found


def _mix(value: np.ndarray) -> np.ndarray:
    return value ^ (value >> _SHIFT)


def _join_fingerprints(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """TensorFlow's FingerprintCat64, modulo 2**64."""
    result = (left ^ _MURMUR) ^ (_mix(right * _MURMUR) * _MURMUR)
    return _mix(_mix(result * _MURMUR) * _MURMUR)


def _hashes(features: np.ndarray) -> np.ndarray:
    if features.dtype == object:
        return fingerprint64(features.tolist())
    return features.astype(np.int64).view(np.uint64)


def _texts(features: np.ndarray) -> list[bytes]:
    if features.dtype == object:
        return features.tolist()
    return [b"%d" % number for number in features.tolist()]


def _cross_kernel(indices, values, shapes, dense_inputs, *, hashed_output, num_buckets, hash_key):
    columns = _columns(indices, values, shapes, dense_inputs)
    totals = np.prod([c.counts for c in columns], axis=0, dtype=np.int64)
    rows = np.repeat(np.arange(len(totals)), totals)
    position = np.arange(len(rows)) - np.repeat(np.cumsum(totals) - totals, totals)
    picked = []
    rest = position
    for column in reversed(columns):  # the last column varies fastest
        rest, which = np.divmod(rest, np.maximum(column.counts, 1)[rows])
        picked.append(column.pick(rows, which))
    picked.reverse()
    if hashed_output:
        crossed: Any = np.full(len(rows), hash_key % 2**64, np.uint64)
        for features in picked:
            crossed = _join_fingerprints(crossed, _hashes(features))
        crossed = (crossed % np.uint64(num_buckets or np.iinfo(np.int64).max)).astype(np.int64)
    else:
        texts = zip(*map(_texts, picked), strict=True)
        crossed = of_strings(map(b"_X_".join, texts), (len(rows),))
    shape = np.array([len(totals), totals.max(initial=0)], np.int64)
    return np.stack([rows, position], axis=1), crossed, shape


def _cross_infer(
    c: InferenceContext,
    indices: list[TensorShape],
    values: list[TensorShape],
    shapes: list[TensorShape],
    dense: list[TensorShape],
) -> list[Any]:
    return [(None, 2), (None,), (2,)]


_COLUMNS = (
    [[[0, 0], [1, 0], [1, 1]], [[0, 0], [1, 1]]],
    [["a", "b", "c"], [7, 8]],
    [[2, 2], [2, 2]],
    [[["x"], ["y"]], r(2, 2)],
)
_TYPES = {"N": 2, "sparse_types": ["string", "int64"], "dense_types": ["string", "int64"]}


@define(
    "SparseCross",
    "indices: N*int64, values: *sparse_types, shapes: N*int64, dense_inputs: *dense_types "
    "-> output_indices: int64, output_values: out_type, output_shape: int64",
    "N: int >= 0; hashed_output: bool; num_buckets: int >= 0; hash_key: int; "
    "sparse_types: list{int64|string} >= 0; dense_types: list{int64|string} >= 0; "
    "out_type: {int64|string}; internal_type: {int64|string}",
    infer=_cross_infer,
    kernel=_cross_kernel,
    samples=[
        Sample(
            *_COLUMNS,
            **_TYPES,
            hashed_output=hashed,
            num_buckets=100,
            hash_key=3,
            out_type="int64" if hashed else "string",
            internal_type="string",
        )
        for hashed in (True, False)
    ],
)
def sparse_cross_op(
    indices,
    values,
    shapes,
    dense_inputs,
    hashed_output,
    num_buckets,
    hash_key,
    out_type,
    internal_type,
    name=None,
):
    """Cross columns of features."""


def _cross(
    inputs: Any, hashed: bool, num_buckets: int, hash_key: int | None, name: str | None
) -> SparseTensor:
    if not isinstance(inputs, list):
        raise TypeError("Inputs must be a list")
    if not all(isinstance(column, SparseTensor | Tensor) for column in inputs):
        raise TypeError("All inputs must be SparseTensors")
    sparse = [column for column in inputs if isinstance(column, SparseTensor)]
    values = [_as_feature(sp.values) for sp in sparse]
    dense = [_as_feature(column) for column in inputs if isinstance(column, Tensor)]
    numbers = any(t.dtype is dtypes.int64 for t in (*values, *dense))
    result = sparse_cross_op(
        [sp.indices for sp in sparse],
        values,
        [sp.dense_shape for sp in sparse],
        dense,
        hashed_output=hashed,
        num_buckets=num_buckets,
        hash_key=hash_key or _DEFAULT_HASH_KEY,
        out_type=dtypes.int64 if hashed else dtypes.string,
        internal_type=dtypes.int64 if numbers else dtypes.string,
        name=name,
    )
    return SparseTensor(*result)


def _as_feature(tensor: Tensor) -> Tensor:
    return tensor if tensor.dtype is dtypes.string else b.cast(tensor, dtypes.int64)


@composed
@export("sparse.cross")
def sparse_cross(inputs: Any, name: str | None = None) -> SparseTensor:
    """Return, for each row, all combinations of the inputs' features, as strings "a_X_b"."""
    return _cross(inputs, False, 0, None, name)


@composed
@export("sparse.cross_hashed")
def sparse_cross_hashed(
    inputs: Any, num_buckets: int = 0, hash_key: int | None = None, name: str | None = None
) -> SparseTensor:
    """Return, for each row, all combinations of the inputs' features, hashed to buckets."""
    return _cross(inputs, True, num_buckets, hash_key, name)
