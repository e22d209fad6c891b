"""Values made of several tensors: IndexedSlices (rows of a larger tensor) and SparseTensor (its
non-default elements). RaggedTensor, which needs ops, is in `ops`.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from headrace._src.core.dtypes import DType, int64
from headrace._src.core.export import export
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.graph.default import get_default_graph
from headrace._src.graph.graph import Graph
from headrace._src.graph.inference import constant_value_as_shape
from headrace._src.graph.operation import Operation, Tensor, _session_for

if TYPE_CHECKING:
    from headrace._src.graph.composite_specs import IndexedSlicesSpec, SparseTensorSpec

__all__ = [
    "Composite",
    "IndexedSlices",
    "IndexedSlicesValue",
    "SparseTensor",
    "SparseTensorValue",
]

IndexedSlicesValue = namedtuple("IndexedSlicesValue", ["values", "indices", "dense_shape"])
SparseTensorValue = namedtuple("SparseTensorValue", ["indices", "values", "dense_shape"])
export("SparseTensorValue")(SparseTensorValue)


class Composite:
    """A value made of several tensors, which a session can fetch and feed. (It isn't an ABC, whose
    isinstance is slow.)
    """

    def components(self) -> list[Tensor]:
        """Return the tensors that this consists of."""
        raise NotImplementedError

    def with_components(self, parts: list[Tensor]) -> Composite:
        """Return a copy with other tensors in place of components()."""
        raise NotImplementedError

    def value_of(self, results: Sequence[Any]) -> Any:
        """Return the value for the values of components()."""
        raise NotImplementedError

    def feeds(self, value: Any) -> list[tuple[Tensor, Any]]:
        """Return components with the parts of `value` that feed them. A value may have fewer
        parts, if the rest is constant, or more, which do not matter.
        """
        return list(zip(self.components(), value, strict=False))


@export("IndexedSlices")
class IndexedSlices(Composite):
    """Some rows of a tensor: row `indices[i]` is `values[i]`. It is the gradient of a gather, which
    touches few rows of many. Its parts may be arrays or lists, which are converted when used.
    """

    def __init__(self, values: Any, indices: Any, dense_shape: Any = None) -> None:
        # Arrays and lists may be used in place of tensors; they belong to no graph.
        tensors = [t for t in (values, indices, dense_shape) if hasattr(t, "graph")]
        for other in tensors[1:]:
            if other.graph is not tensors[0].graph:
                raise ValueError(f"{other} must be from the same graph as {tensors[0]}.")
        self._values = values
        self._indices = indices
        self._dense_shape = dense_shape

    @property
    def values(self) -> Tensor:
        return self._values

    @property
    def indices(self) -> Tensor:
        return self._indices

    @property
    def dense_shape(self) -> Tensor | None:
        return self._dense_shape

    def components(self) -> list[Tensor]:
        """Return the tensors that this consists of."""
        shape = [] if self._dense_shape is None else [self._dense_shape]
        return [self._values, self._indices, *shape]

    def with_components(self, parts: list[Tensor]) -> IndexedSlices:
        """Return a copy with other tensors in place of components()."""
        return IndexedSlices(*parts)

    def value_of(self, results: Sequence[Any]) -> IndexedSlicesValue:
        """Return the value for the values of components()."""
        return IndexedSlicesValue(*results, *[None] * (3 - len(results)))

    @property
    def name(self) -> str:
        return self._values.name

    @property
    def device(self) -> str:
        return self._values.device

    @property
    def op(self) -> Operation:
        return self._values.op

    def consumers(self) -> list[Operation]:
        """Return the operations that read values, indices or the dense shape."""
        return list(dict.fromkeys(op for part in self.components() for op in part.consumers()))

    @property
    def dtype(self) -> DType:
        return self._values.dtype

    @property
    def graph(self) -> Graph:
        return self._values.graph

    @property
    def shape(self) -> TensorShape:
        """The static shape of the tensor that the rows belong to."""
        if self._dense_shape is None:
            return TensorShape(None)
        if not isinstance(self._dense_shape, Tensor):
            return TensorShape(self._dense_shape)
        return constant_value_as_shape(self._dense_shape)

    @property
    def _type_spec(self) -> IndexedSlicesSpec:
        from headrace._src.graph.composite_specs import IndexedSlicesSpec  # loaded when it's used

        kind = None if self._dense_shape is None else self._dense_shape.dtype
        known = TensorShape([None]).concatenate(self._values.shape[1:])
        return IndexedSlicesSpec(
            known.merge_with(self.shape),
            self._values.dtype,
            self._indices.dtype,
            kind,
            self._indices.shape.merge_with(self._values.shape[:1]),
        )

    def __str__(self) -> str:
        dense = f", dense_shape={self._dense_shape}" if self._dense_shape is not None else ""
        return f"IndexedSlices(indices={self._indices}, values={self._values}{dense})"

    def __neg__(self) -> IndexedSlices:
        return IndexedSlices(-self.values, self.indices, self.dense_shape)  # type: ignore[operator]


@export("SparseTensor", "sparse.SparseTensor")
class SparseTensor(Composite):
    """A tensor given by the positions (`indices`, one row each) and `values` of its elements; the
    rest is zero or empty.
    """

    def __init__(self, indices: Any, values: Any, dense_shape: Any) -> None:
        convert = SparseTensor._convert
        found = (getattr(part, "graph", None) for part in (indices, values, dense_shape))
        graph = next((g for g in found if isinstance(g, Graph)), None) or get_default_graph()
        with graph.as_default(), graph.name_scope("SparseTensor"):
            self._indices: Tensor = convert(indices, int64, "indices")
            self._values: Tensor = convert(values, None, "values")
            self._dense_shape: Tensor = convert(dense_shape, int64, "dense_shape")
        rows = self._indices.shape.with_rank(2)
        rows[:1].merge_with(self._values.shape.with_rank(1))
        rows[1:].merge_with(self._dense_shape.shape.with_rank(1))

    # Set by headrace._src.ops.base.to_tensor's importer: how a Python value becomes a tensor.
    _convert: Any = None
    # Set by headrace._src.ops.sparse.sparse_math, with a dense tensor on the right.
    __mul__: Any = None
    __truediv__: Any = None

    @classmethod
    def from_value(cls, sparse_tensor_value: Any) -> SparseTensor:
        """Return a SparseTensor for a SparseTensorValue (or a SparseTensor, or a triple)."""
        if isinstance(sparse_tensor_value, SparseTensor):
            return sparse_tensor_value
        if not isinstance(sparse_tensor_value, SparseTensorValue | tuple):
            raise TypeError(f"Neither a SparseTensor nor SparseTensorValue: {sparse_tensor_value}.")
        return cls(*sparse_tensor_value)

    @property
    def indices(self) -> Tensor:
        return self._indices

    @property
    def values(self) -> Tensor:
        return self._values

    @property
    def dense_shape(self) -> Tensor:
        return self._dense_shape

    def components(self) -> list[Tensor]:
        """Return the tensors that this consists of."""
        return [self._indices, self._values, self._dense_shape]

    def with_components(self, parts: list[Tensor]) -> SparseTensor:
        """Return a copy with other tensors in place of components()."""
        return SparseTensor(*parts)

    def value_of(self, results: Sequence[Any]) -> SparseTensorValue:
        """Return the value for the values of components()."""
        return SparseTensorValue(*results)

    @property
    def op(self) -> Operation:
        return self._values.op

    @property
    def dtype(self) -> DType:
        return self._values.dtype

    @property
    def graph(self) -> Graph:
        return self._values.graph

    @property
    def shape(self) -> TensorShape:
        return constant_value_as_shape(self._dense_shape)

    def get_shape(self) -> TensorShape:
        return self.shape

    @property
    def _type_spec(self) -> SparseTensorSpec:
        from headrace._src.graph.composite_specs import SparseTensorSpec  # loaded when it's used

        return SparseTensorSpec(self.shape, self.dtype)

    def consumers(self) -> list[Operation]:
        return list(dict.fromkeys(op for t in self.components() for op in t.consumers()))

    def eval(self, feed_dict: dict[Any, Any] | None = None, session: Any = None) -> Any:
        """Evaluate this tensor and return a SparseTensorValue."""
        return _session_for(session, self.graph, "evaluate tensor", "eval").run(self, feed_dict)

    def __str__(self) -> str:
        return (
            f"SparseTensor(indices={self._indices}, values={self._values}, "
            f"dense_shape={self._dense_shape})"
        )

    __repr__ = __str__
