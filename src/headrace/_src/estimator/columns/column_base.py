"""The base classes of feature columns. In: a dict of raw features. Out: tensors for a model.

A column names the raw features that it needs (`parse_example_spec`) and says how to transform them.
A dense column gives one tensor per example; a categorical one gives any number of ids (and maybe
weights) per example. Columns are frozen: equal columns share one transformation and one set of
weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from headrace._src.core import dtypes
from headrace._src.core.dtypes import DType
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.graph.composite import SparseTensor
from headrace._src.graph.operation import Tensor
from headrace._src.graph.scoped import control_dependencies
from headrace._src.ops.base.define import b
from headrace._src.ops.base.to_tensor import name_scope

__all__ = [
    "CategoricalColumn",
    "DenseColumn",
    "FeatureColumn",
    "Ids",
    "Inputs",
    "Steps",
    "SequenceColumn",
    "check_key",
    "check_word_dtype",
    "same_batch_size",
    "sequence_lengths",
    "sorted_columns",
    "sparse_input",
]


class FeatureColumn:
    """The base of all columns."""

    # Whether only tf.feature_column.input_layer and similar functions accept it: they make
    # reference variables and name them.
    old_style = False

    @property
    def name(self) -> str:
        """The column's name, which is also the name of its variables' scope."""
        raise NotImplementedError

    @property
    def scope_name(self) -> str:
        """The scope that input_layer and linear_model put the variables into."""
        return self.name

    @property
    def parse_example_spec(self) -> dict[str, Any]:
        """How to parse the raw features that the column needs, for tf.parse_example."""
        raise NotImplementedError

    def transform(self, inputs: Inputs) -> Any:
        """Compute the tensor or sparse tensor that `inputs` caches for the column."""
        raise NotImplementedError


class DenseColumn(FeatureColumn):
    """A column that gives a tensor of `variable_shape` for each example."""

    @property
    def variable_shape(self) -> TensorShape:
        raise NotImplementedError

    def dense(self, inputs: Inputs) -> Tensor:
        raise NotImplementedError


class Ids(NamedTuple):
    """The output of a categorical column: sparse ids, and sparse weights or None."""

    id_tensor: SparseTensor
    weight_tensor: SparseTensor | None


class CategoricalColumn(FeatureColumn):
    """A column that gives ids below `num_buckets`, any number for each example."""

    @property
    def num_buckets(self) -> int:
        raise NotImplementedError

    def ids(self, inputs: Inputs) -> Ids:
        return Ids(inputs.get(self), None)


class Steps(NamedTuple):
    """The output of a sequence column: a tensor per example and step, and the sequences'
    lengths.
    """

    dense_tensor: Tensor
    sequence_length: Tensor


class SequenceColumn(FeatureColumn):
    """A column that can give a tensor for each step of each example."""

    def sequence(self, inputs: Inputs) -> Steps:
        raise NotImplementedError


class Inputs:
    """Raw features, and a cache of columns' transformations: each is built once.

    weights: from an embedding column to its table.
    """

    def __init__(
        self, features: Mapping[str, Any], weights: Callable[[Any], Any] | None = None
    ) -> None:
        if not isinstance(features, Mapping):
            raise ValueError(
                f"features should be a dictionary of `Tensor`s. Given type: {type(features)}"
            )
        self._features = dict(features)
        self._weights = weights
        self._made: dict[Any, Any] = {}

    def get(self, key: Any) -> Any:
        """A raw feature (a string), at least a matrix; or a column's transformation."""
        if key not in self._made:
            if key in self._features:
                self._made[key] = self._raw(key)
            elif isinstance(key, str):
                raise ValueError(
                    f"Feature {key} is not in features dictionary. It has: "
                    f"{', '.join(sorted(map(str, self._features))) or 'nothing'}"
                )
            elif isinstance(key, FeatureColumn):
                self._made[key] = key.transform(self)
            else:
                raise TypeError(f'"key" must be either a "str" or "FeatureColumn". Provided: {key}')
        return self._made[key]

    def weights(self, column: Any) -> Any:
        """The embedding table of a column."""
        if self._weights is None:
            raise ValueError(f"There are no weights for column {column.name} here")
        return self._weights(column)

    def _raw(self, key: Any) -> Any:
        feature = b.convert_to_tensor_or_sparse_tensor(self._features[key])
        rank = feature.shape.ndims
        message = f"Feature (key: {key}) cannot have rank 0. Given: {feature}"
        if rank == 0:
            raise ValueError(message)
        if rank is not None:
            return feature if rank > 1 else _as_column(feature)
        with control_dependencies([b.assert_positive(b.rank(feature), message=message)]):
            return b.cond(b.equal(1, b.rank(feature)), lambda: _as_column(feature), lambda: feature)


def _as_column(feature: Any) -> Any:
    """Return a vector, with a value per example, as a matrix."""
    if isinstance(feature, SparseTensor):
        return b.sparse_reshape(feature, [b.shape(feature)[0], 1])
    return b.expand_dims(feature, -1)


def sparse_input(feature: Any, ignored: Any = None) -> SparseTensor:
    """Convert a dense feature to a sparse one, without the values that mean "missing": '' and -1,
    or `ignored`.
    """
    feature = b.convert_to_tensor_or_sparse_tensor(feature)
    if isinstance(feature, SparseTensor):
        return feature
    with name_scope(None, "to_sparse_input", (feature, ignored)):
        if ignored is None:
            if feature.dtype is dtypes.string:
                ignored = ""
            else:
                ignored = -1 if feature.dtype.is_integer else feature.dtype.as_numpy_dtype()
        ignored = b.cast(ignored, feature.dtype, name="ignore_value")
        indices = b.where_v2(b.not_equal(feature, ignored), name="indices")
        return SparseTensor(
            indices,
            b.gather_nd(feature, indices, name="values"),
            b.shape(feature, out_type=dtypes.int64, name="dense_shape"),
        )


def sorted_columns(columns: Any) -> list[FeatureColumn]:
    """Return the columns sorted by name, the order in which models use them."""
    if isinstance(columns, FeatureColumn):
        columns = [columns]
    if isinstance(columns, Iterator):
        columns = list(columns)
    if isinstance(columns, dict):
        raise ValueError("Expected feature_columns to be iterable, found dict.")
    found: dict[str, FeatureColumn] = {}
    for column in columns:
        if not isinstance(column, FeatureColumn):
            raise ValueError(
                f"Items of feature_columns must be a FeatureColumn. Given (type {type(column)}): "
                f"{column}."
            )
        if column.name in found:
            raise ValueError(
                f"Duplicate feature column name found for columns: {column} and "
                f"{found[column.name]}. This usually means that these columns refer to same base "
                "feature. Either one must be discarded or a duplicated but renamed item must be "
                "inserted in features dict."
            )
        found[column.name] = column
    if not found:
        raise ValueError("feature_columns must not be empty.")
    return [found[name] for name in sorted(found)]


def same_batch_size(tensors: Iterable[Tensor], columns: Sequence[FeatureColumn]) -> None:
    """Raise ValueError if the tensors of columns are known to have different batch sizes."""
    first: tuple[str, int] | None = None
    for tensor, column in zip(tensors, columns, strict=True):
        size = tensor.shape.as_list()[0] if tensor.shape.ndims else None
        if size is None:
            continue
        if first is not None and first[1] != size:
            raise ValueError(
                "Batch size (first dimension) of each feature must be same. Batch size of columns "
                f"({first[0]}, {column.name}): ({first[1]}, {size})"
            )
        first = first or (column.name, size)


def sequence_lengths(ids: SparseTensor, per_step: int = 1) -> Tensor:
    """Return the number of steps of each example, if a step takes `per_step` columns of `ids`."""
    with name_scope(None, "sequence_length") as scope:
        rows, columns = ids.indices[:, 0], ids.indices[:, 1]
        columns += b.ones_like(columns)
        lengths = b.segment_max(columns, rows)
        lengths = b.cast(b.ceil(lengths / per_step), dtypes.int64)
        missing = b.shape(ids)[:1] - b.shape(lengths)[:1]
        padding = b.zeros(missing, dtype=lengths.dtype)
        return b.concat([lengths, padding], axis=0, name=scope)


def check_key(key: Any) -> None:
    if not isinstance(key, str):
        raise ValueError(f"key must be a string. Got: type {type(key)}. Given key: {key}.")


def check_word_dtype(dtype: DType, what: str) -> None:
    if dtype is not dtypes.string and not dtype.is_integer:
        raise ValueError(f"{what} dtype must be string or integer. dtype: {dtype}.")
