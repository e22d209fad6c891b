"""Examples as tensors. In: serialized `Example` records and a description of each feature. Out: a
dict from feature to tensor, or to sparse tensor for features with any number of values.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from headrace._src.core import dtypes, proto
from headrace._src.core.export import export
from headrace._src.core.tensor_shape import TensorShape, as_shape
from headrace._src.graph.composite import SparseTensor
from headrace._src.graph.definition import NOT_DIFFERENTIABLE, Sample
from headrace._src.graph.inference import InferenceContext
from headrace._src.graph.operation import Tensor
from headrace._src.graph.scoped import control_dependencies
from headrace._src.ops.base.define import b, composed, define
from headrace._src.ops.base.to_tensor import constant, convert_to_tensor, name_scope
from headrace._src.ops.io import example_kernels as kernels

__all__ = [
    "FixedLenFeature",
    "FixedLenSequenceFeature",
    "SparseFeature",
    "VarLenFeature",
    "parse_example",
    "parse_single_example",
]


# ---- The ops -------------------------------------------------------------------------------------


def _infer_batch(
    c: InferenceContext,
    serialized: TensorShape,
    names: TensorShape,
    sparse_keys: list[TensorShape],
    dense_keys: list[TensorShape],
    defaults: list[TensorShape],
) -> list[Any]:
    batch = serialized.with_rank(1)
    names.with_rank(1)
    count = len(sparse_keys)
    dense = [batch.concatenate(shape) for shape in c.attrs["dense_shapes"]]
    return [*[(None, 2)] * count, *[(None,)] * count, *[(2,)] * count, *dense]


def _infer_single(
    c: InferenceContext, serialized: TensorShape, defaults: list[TensorShape]
) -> list[Any]:
    serialized.with_rank(0)
    count = c.attrs["num_sparse"]
    dense = c.attrs["dense_shapes"]
    return [*[(None, 1)] * count, *[(None,)] * count, *[(1,)] * count, *dense]


def _sample_records() -> list[bytes]:
    first, second = proto.Example(), proto.Example()
    first.features.feature["price"].float_list.value.extend([1.5, 2.5])
    first.features.feature["words"].bytes_list.value.extend([b"a", b"b"])
    second.features.feature["price"].float_list.value.extend([3.5, 4.5])
    second.features.feature["years"].int64_list.value.extend([7])
    return [record.SerializeToString(deterministic=True) for record in (first, second)]


_DENSE = {"Tdense": ["float32", "int64"], "dense_shapes": [(2,), (None,)]}
_TYPES = "{float32|int64|string}"


@define(
    "ParseExample",
    "serialized: string, names: string, sparse_keys: Nsparse*string, dense_keys: Ndense*string, "
    "dense_defaults: *Tdense -> sparse_indices: Nsparse*int64, sparse_values: *sparse_types, "
    "sparse_shapes: Nsparse*int64, dense_values: *Tdense",
    f"Nsparse: int >= 0; Ndense: int >= 0; sparse_types: list{_TYPES} >= 0; "
    f"Tdense: list{_TYPES} >= 0; dense_shapes: list(shape) >= 0",
    infer=_infer_batch,
    kernel=kernels.parse_example,
    gradient=NOT_DIFFERENTIABLE,
    samples=lambda: [
        Sample(
            _sample_records(),
            [],
            ["words"],
            ["price", "years"],
            [[], -1],
            Nsparse=1,
            Ndense=2,
            sparse_types=["string"],
            **_DENSE,
        )
    ],
)
def parse_example_op(
    serialized,
    names,
    sparse_keys,
    dense_keys,
    dense_defaults,
    sparse_types,
    dense_shapes,
    name=None,
):
    """Parse a batch of Examples."""


@define(
    "ParseSingleExample",
    "serialized: string, dense_defaults: *Tdense -> sparse_indices: num_sparse*int64, "
    "sparse_values: *sparse_types, sparse_shapes: num_sparse*int64, dense_values: *Tdense",
    "num_sparse: int >= 0; sparse_keys: list(string) >= 0; dense_keys: list(string) >= 0; "
    f"sparse_types: list{_TYPES} >= 0; Tdense: list{_TYPES} >= 0; dense_shapes: list(shape) >= 0",
    infer=_infer_single,
    kernel=kernels.parse_single_example,
    gradient=NOT_DIFFERENTIABLE,
    samples=lambda: [
        Sample(
            _sample_records()[0],
            [[], -1],
            num_sparse=1,
            sparse_keys=["words"],
            dense_keys=["price", "years"],
            sparse_types=["string"],
            **_DENSE,
        )
    ],
)
def parse_single_example_op(
    serialized,
    dense_defaults,
    num_sparse,
    sparse_keys,
    dense_keys,
    sparse_types,
    dense_shapes,
    name=None,
):
    """Parse one Example."""


# ---- Descriptions of features --------------------------------------------------------------------


@export("VarLenFeature", "io.VarLenFeature")
class VarLenFeature(NamedTuple):
    """A feature with any number of values, parsed to a sparse tensor."""

    dtype: Any


@export("FixedLenFeature", "io.FixedLenFeature")
class FixedLenFeature(NamedTuple):
    """A feature of a fixed shape; `default_value` is for records that lack it."""

    shape: Any
    dtype: Any
    default_value: Any = None


@export("FixedLenSequenceFeature", "io.FixedLenSequenceFeature")
class FixedLenSequenceFeature(NamedTuple):
    """A feature with any number of rows of one shape, parsed to a dense tensor; shorter records are
    padded with `default_value`.
    """

    shape: Any
    dtype: Any
    allow_missing: bool = False
    default_value: Any = None


@export("SparseFeature", "io.SparseFeature")
class SparseFeature(NamedTuple):
    """A sparse tensor in several features: indices in `index_key` (one, or a list for several
    dimensions), values in `value_key`; `size` is its size, or a list of sizes.
    """

    index_key: Any
    value_key: str
    dtype: Any
    size: Any
    already_sorted: bool = False


class _Wanted:
    """The op's arguments: sparse keys with types; dense keys with types, shapes, defaults."""

    def __init__(self, features: Mapping[str, Any]) -> None:
        self.sparse: dict[str, Any] = {}
        self.dense: dict[str, tuple[Any, TensorShape, Any]] = {}
        for key in sorted(features):
            self._add(key, features[key])
        if both := self.sparse.keys() & self.dense.keys():
            raise ValueError(f"Dense and sparse keys must not intersect; intersection: {both}")

    def _add(self, key: str, feature: Any) -> None:
        if not isinstance(
            feature, VarLenFeature | SparseFeature | FixedLenFeature | FixedLenSequenceFeature
        ):
            raise ValueError(f"Invalid feature {key}:{feature}.")
        if not feature.dtype:
            raise ValueError(f"Missing type for feature {key}.")
        dtype = dtypes.as_dtype(feature.dtype)
        if isinstance(feature, VarLenFeature):
            self._add_sparse(key, dtype)
        elif isinstance(feature, SparseFeature):
            if not feature.index_key:
                raise ValueError(f"Missing index_key for SparseFeature {feature}.")
            if not feature.value_key:
                raise ValueError(f"Missing value_key for SparseFeature {feature}.")
            for index_key in sorted(_index_keys(feature)):
                self._add_sparse(index_key, dtypes.int64)
            self._add_sparse(feature.value_key, dtype)
        else:
            if feature.shape is None:
                raise ValueError(f"Missing shape for feature {key}.")
            shape = as_shape(feature.shape)
            if isinstance(feature, FixedLenSequenceFeature):
                if not feature.allow_missing:
                    raise ValueError(
                        "Unsupported: FixedLenSequenceFeature requires allow_missing to be True."
                    )
                shape = TensorShape.of((None,)).concatenate(shape)
            else:
                _check_fixed(key, shape)
            self.dense[key] = (dtype, shape, feature.default_value)

    def _add_sparse(self, key: str, dtype: Any) -> None:
        known = self.sparse.setdefault(key, dtype)
        if known != dtype:
            raise ValueError(f"Conflicting type {known.name} vs {dtype.name} for feature {key}.")

    def defaults(self) -> list[Tensor]:
        return [default_of(key, *wanted) for key, wanted in self.dense.items()]

    def shapes(self) -> list[TensorShape]:
        return [shape for _, shape, _ in self.dense.values()]

    def named(self, outputs: Any) -> dict[str, Any]:
        """Return the op's outputs by key, before SparseFeatures are assembled."""
        parts = zip(outputs[0], outputs[1], outputs[2], strict=True)
        found: dict[str, Any] = dict(
            zip(self.sparse, (SparseTensor(*part) for part in parts), strict=True)
        )
        return found | dict(zip(self.dense, outputs[3], strict=True))


def _index_keys(feature: SparseFeature) -> list[str]:
    return [feature.index_key] if isinstance(feature.index_key, str) else list(feature.index_key)


def _check_fixed(key: str, shape: TensorShape) -> None:
    if shape.ndims and shape.as_list()[0] is None:
        raise ValueError(
            f"First dimension of shape for feature {key} unknown. Consider using "
            "FixedLenSequenceFeature."
        )
    if not shape.is_fully_defined():
        raise ValueError(
            f"All dimensions of shape for feature {key} need to be known but received {shape}."
        )


def default_of(key: str, dtype: Any, shape: TensorShape, value: Any) -> Tensor:
    """Return the op's default for records that lack a feature; an empty tensor means it is
    required.
    """
    known = re.sub(r"[^A-Za-z0-9_.\-/]", "_", key)
    if shape.ndims and shape.as_list()[0] is None:
        if value is None:
            return convert_to_tensor("" if dtype is dtypes.string else 0, dtype=dtype)
        return b.reshape(convert_to_tensor(value, dtype=dtype, name=f"padding_{known}"), [])
    if value is None:
        return constant([], dtype=dtype)
    if isinstance(value, Tensor):
        return value
    return b.reshape(convert_to_tensor(value, dtype=dtype, name=f"key_{known}"), shape)


def _joined(features: Mapping[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    """Assemble SparseFeatures, and drop features that only they needed."""
    for key in sorted(features):
        feature = features[key]
        if isinstance(feature, SparseFeature):
            ids = [found[index] for index in _index_keys(feature)]
            found[key] = b.sparse_merge(
                ids[0] if isinstance(feature.index_key, str) else ids,
                found[feature.value_key],
                vocab_size=feature.size,
                already_sorted=feature.already_sorted,
            )
    return {key: value for key, value in found.items() if key in features}


@composed
@export("parse_example", "io.parse_example")
def parse_example(
    serialized: Any,
    features: Mapping[str, Any],
    name: str | None = None,
    example_names: Any = None,
) -> dict[str, Any]:
    """Return the features of a batch of serialized Examples, as a dict of tensors.

    features: from key to FixedLenFeature, FixedLenSequenceFeature, VarLenFeature or SparseFeature.
    example_names: a name for each record, for error messages.
    """
    if not features:
        raise ValueError(f"Missing: features was {features}.")
    wanted = _Wanted(features)
    return _joined(features, _parse_batch(serialized, wanted, name, example_names))


def _parse_batch(serialized: Any, wanted: _Wanted, name: str | None, names: Any) -> dict[str, Any]:
    with name_scope(name, "ParseExample", [serialized, names]):
        outputs = parse_example_op(
            serialized,
            [] if names is None else names,
            list(wanted.sparse),
            list(wanted.dense),
            wanted.defaults(),
            sparse_types=list(wanted.sparse.values()),
            dense_shapes=wanted.shapes(),
            name=name,
        )
        return wanted.named(outputs)


@composed
@export("parse_single_example", "io.parse_single_example")
def parse_single_example(
    serialized: Any,
    features: Mapping[str, Any],
    name: str | None = None,
    example_names: Any = None,
) -> dict[str, Any]:
    """Return the features of one serialized Example, as a dict of tensors without a batch
    dimension. `features` are as in parse_example; `example_names` is a scalar, for error messages.
    """
    if not features:
        raise ValueError("Missing features.")
    wanted = _Wanted(features)
    if example_names is not None:
        return _joined(features, _parse_named(serialized, wanted, name, example_names))
    with name_scope(name, "ParseSingleExample", [serialized]):
        serialized = convert_to_tensor(serialized, name="serialized")
        outputs = parse_single_example_op(
            serialized,
            wanted.defaults(),
            num_sparse=len(wanted.sparse),
            sparse_keys=list(wanted.sparse),
            dense_keys=list(wanted.dense),
            sparse_types=list(wanted.sparse.values()),
            dense_shapes=wanted.shapes(),
            name=name,
        )
        return _joined(features, wanted.named(outputs))


def _parse_named(serialized: Any, wanted: _Wanted, name: str | None, called: Any) -> dict[str, Any]:
    """Return one record with a name as a batch of one, whose dimension is removed again."""
    with name_scope(name, "ParseSingleExample", [serialized, called]):
        record = b.expand_dims(_scalar(serialized, "serialized"), 0)
        found = _parse_batch(record, wanted, name, b.expand_dims(_scalar(called, "names"), 0))
        for key in wanted.dense:
            found[key] = b.squeeze(found[key], [0], name=f"Squeeze_{_name_of(key)}")
        for key in wanted.sparse:
            part = found[key]
            found[key] = SparseTensor(
                b.slice(part.indices, [0, 1], [-1, -1], name=f"Slice_Indices_{_name_of(key)}"),
                part.values,
                b.slice(part.dense_shape, [1], [-1], name=f"Squeeze_Shape_{_name_of(key)}"),
            )
        return found


def _name_of(key: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.\-/]", "_", key)


def _scalar(value: Any, what: str) -> Tensor:
    tensor = convert_to_tensor(value)
    message = f"Input {what} must be a scalar"
    if tensor.shape.ndims is not None:
        if tensor.shape.ndims != 0:
            raise ValueError(message)
        return tensor
    check = b.Assert(b.equal(b.rank(tensor), 0), [message])
    with control_dependencies([check]):
        return b.identity(tensor)
