"""Static shapes. In: integers, None, sequences of them, shape protos. Out: `TensorShape` objects.

A shape is one tuple of sizes, `TensorShape.sizes`, where None stands for an unknown size; the tuple
itself is None when even the rank is unknown. Headrace reads `sizes` directly. `Dimension` exists
only at the surface, where TensorFlow 1's programs expect it.

Invariants: a shape never changes; known sizes are Python ints and never negative. As in TensorFlow
1, a shape with an unknown size equals only itself, since the sizes might differ. Code that needs to
know whether two shapes are *written* alike compares `sizes`, or uses them as keys.
"""

import math
import operator
from collections.abc import Iterable, Iterator
from typing import Any, Final, NoReturn, overload

from headrace._src.core.dtypes import DType

Sizes = tuple[int | None, ...]


def _size(value: Any) -> int | None:
    """Check one size: anything that converts to an integer, a Dimension, or None."""
    if value is None:
        return None
    if isinstance(value, Dimension):
        return value.value
    if isinstance(value, DType):  # which reads as its number
        raise TypeError(f"Cannot convert {value} to Dimension")
    try:
        size = int(value)
    except TypeError:
        raise TypeError(
            f"a dimension must be an integer or None, not {type(value).__name__}: {value!r}"
        ) from None
    except OverflowError:
        raise ValueError(f"Ambiguous dimension: {value}") from None
    if not isinstance(value, str | bytes) and size != value:
        raise ValueError(f"Ambiguous dimension: {value}")
    if size < 0:
        raise ValueError(f"Dimension {size} must be >= 0")
    return size


class Dimension:
    """One size of a shape, perhaps unknown; arithmetic with an unknown size gives an unknown
    size.
    """

    __slots__ = ("_value",)
    # An unknown size compares as neither equal nor unequal, so no hash could agree with ==.
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, value: Any):
        self._value = _size(value)

    @property
    def value(self) -> int | None:
        """The size, None if unknown."""
        return self._value

    def __repr__(self) -> str:
        return f"Dimension({self._value})"

    def __str__(self) -> str:
        return _show(self._value)

    def __reduce__(self) -> tuple[Any, ...]:
        return Dimension, (self._value,)

    def __index__(self) -> int:
        if self._value is None:
            raise TypeError("an unknown dimension cannot be used as an integer")
        return self._value

    __int__ = __index__

    def is_compatible_with(self, other: Any) -> bool:
        """True if both can be the same size: they are equal or at least one is unknown."""
        return _fits(self._value, _size(other))

    def assert_is_compatible_with(self, other: Any) -> None:
        """Raise ValueError unless `is_compatible_with(other)`."""
        if not self.is_compatible_with(other):
            raise ValueError(f"Dimensions {self} and {as_dimension(other)} are not compatible")

    def merge_with(self, other: Any) -> "Dimension":
        """The known one of two sizes; ValueError if they differ."""
        self.assert_is_compatible_with(other)
        return as_dimension(other) if self._value is None else self

    def __eq__(self, other: Any) -> bool | None:  # type: ignore[override]
        try:
            return self._compare(operator.eq, other)
        except (TypeError, ValueError):
            return NotImplemented

    def __ne__(self, other: Any) -> bool | None:  # type: ignore[override]
        try:
            return self._compare(operator.ne, other)
        except (TypeError, ValueError):
            return NotImplemented

    def __lt__(self, other: Any) -> bool | None:
        return self._compare(operator.lt, other)

    def __le__(self, other: Any) -> bool | None:
        return self._compare(operator.le, other)

    def __gt__(self, other: Any) -> bool | None:
        return self._compare(operator.gt, other)

    def __ge__(self, other: Any) -> bool | None:
        return self._compare(operator.ge, other)

    def _compare(self, operation: Any, other: Any) -> bool | None:
        right = _size(other)
        if self._value is None or right is None:
            return None
        return operation(self._value, right)

    def __add__(self, other: Any) -> "Dimension":
        return _calculate(operator.add, self, other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> "Dimension":
        return _calculate(operator.sub, self, other)

    def __rsub__(self, other: Any) -> "Dimension":
        return _calculate(operator.sub, other, self)

    def __mul__(self, other: Any) -> "Dimension":
        return _calculate(operator.mul, self, other)

    __rmul__ = __mul__

    def __floordiv__(self, other: Any) -> "Dimension":
        return _calculate(operator.floordiv, self, other)

    def __rfloordiv__(self, other: Any) -> "Dimension":
        return _calculate(operator.floordiv, other, self)

    def __mod__(self, other: Any) -> "Dimension":
        return _calculate(operator.mod, self, other)

    def __rmod__(self, other: Any) -> "Dimension":
        return _calculate(operator.mod, other, self)

    def __truediv__(self, other: Any) -> NoReturn:
        _refuse_true_division(self, other)

    def __rtruediv__(self, other: Any) -> NoReturn:
        _refuse_true_division(other, self)


def _calculate(operation: Any, left: Any, right: Any) -> Dimension:
    """Apply an integer operation to two sizes; unknown if either is."""
    try:
        a, b = _size(left), _size(right)
    except (TypeError, ValueError):
        return NotImplemented
    return Dimension(None if a is None or b is None else operation(a, b))


def _refuse_true_division(left: Any, right: Any) -> NoReturn:
    raise TypeError(
        f"unsupported operand type(s) for /: {type(left).__name__!r} and "
        f"{type(right).__name__!r}, please use // instead"
    )


def _fits(a: int | None, b: int | None) -> bool:
    return a is None or b is None or a == b


def _show(size: int | None) -> str:
    return "?" if size is None else str(size)


def show_shape(shape: "TensorShape | Iterable[int | None]") -> str:
    """Return a shape as messages about ops print it: [2,?], or <unknown>."""
    sizes = shape.sizes if isinstance(shape, TensorShape) else shape
    return "<unknown>" if sizes is None else f"[{','.join(map(_show, sizes))}]"


def all_known(sizes: Iterable[int | None]) -> list[int] | None:
    """The sizes, or None if one of them is unknown."""
    found = []
    for size in sizes:
        if size is None:
            return None
        found.append(size)
    return found


def mismatch(message: str, of_op: str) -> ValueError:
    """Return the error for shapes that contradict each other, or a rank. `message` is for users who
    compare shapes; `of_op` is the text in messages about ops.
    """
    error = ValueError(message)
    error.of_op = of_op  # type: ignore[attr-defined]
    return error


def words_of_op(error: Exception) -> str:
    """Return the text of a shape error for a message about an op."""
    return getattr(error, "of_op", str(error))


class TensorShape:
    """The static shape of a tensor: known, partly known, or of unknown rank."""

    __slots__ = ("sizes",)
    sizes: Sizes | None

    def __init__(self, dims: Any):
        _set_sizes(self, _sizes_of(dims))

    @staticmethod
    def of(sizes: Sizes | None) -> "TensorShape":
        """The shape with these sizes, unchecked: only for ints >= 0 and None in a tuple."""
        shape = _new_shape(TensorShape)
        _set_sizes(shape, sizes)
        return shape

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a TensorShape cannot be changed: {name}")

    def __reduce__(self) -> tuple[Any, ...]:
        return TensorShape, (self.sizes,)

    def __repr__(self) -> str:
        return f"TensorShape({self.dims})"

    def __str__(self) -> str:
        if self.sizes is None:
            return "<unknown>"
        comma = "," if len(self.sizes) == 1 else ""
        return f"({', '.join(map(_show, self.sizes))}{comma})"

    # -- static facts ----------------------------------------------------------------------------

    @property
    def rank(self) -> int | None:
        """The number of dimensions, None if unknown."""
        return None if self.sizes is None else len(self.sizes)

    @property
    def ndims(self) -> int | None:
        """The number of dimensions, None if unknown."""
        return None if self.sizes is None else len(self.sizes)

    @property
    def dims(self) -> list[Dimension] | None:
        """The dimensions as a new list, None if the rank is unknown."""
        return None if self.sizes is None else [Dimension(size) for size in self.sizes]

    def as_list(self) -> list[int | None]:
        """The sizes as a new list; ValueError if the rank is unknown."""
        if self.sizes is None:
            raise ValueError("as_list() is not defined on an unknown TensorShape.")
        return list(self.sizes)

    def num_elements(self) -> int | None:
        """The product of the sizes, None unless all are known."""
        sizes = None if self.sizes is None else all_known(self.sizes)
        return None if sizes is None else math.prod(sizes)

    def is_fully_defined(self) -> bool:
        """True if the rank and every size are known."""
        return self.sizes is not None and None not in self.sizes

    def assert_is_fully_defined(self) -> None:
        """Raise ValueError unless `is_fully_defined()`."""
        if not self.is_fully_defined():
            raise ValueError(f"Shape {self} is not fully defined")

    def as_proto(self) -> Any:
        """This shape as a TensorShapeProto."""
        # protobuf is slow to import, and most programs never ask for a proto.
        from headrace._src.core import proto

        if self.sizes is None:
            return proto.TensorShapeProto(unknown_rank=True)
        dim = proto.TensorShapeProto.Dim
        return proto.TensorShapeProto(
            dim=[dim(size=-1 if size is None else size) for size in self.sizes]
        )

    # -- as a sequence ---------------------------------------------------------------------------

    def __bool__(self) -> bool:
        return self.sizes is not None

    def __len__(self) -> int:
        if self.sizes is None:
            raise ValueError("Cannot take the length of shape with unknown rank.")
        return len(self.sizes)

    def __iter__(self) -> Iterator[Dimension]:
        if self.sizes is None:
            raise ValueError("Cannot iterate over a shape with unknown rank.")
        return map(Dimension, self.sizes)

    @overload
    def __getitem__(self, key: slice) -> "TensorShape": ...
    @overload
    def __getitem__(self, key: Any) -> Dimension: ...
    def __getitem__(self, key: Any) -> "TensorShape | Dimension":
        if isinstance(key, slice):
            part = _slice_unknown(key) if self.sizes is None else self.sizes[key]
            return TensorShape.of(part)
        return Dimension(None if self.sizes is None else self.sizes[key])

    def concatenate(self, other: Any) -> "TensorShape":
        """The dimensions of this shape followed by those of `other`."""
        right = as_shape(other).sizes
        if self.sizes is None or right is None:
            return _UNKNOWN
        return TensorShape.of(self.sizes + right)

    def __add__(self, other: Any) -> "TensorShape":
        try:
            return self.concatenate(other)
        except TypeError:
            return NotImplemented

    def __radd__(self, other: Any) -> "TensorShape":
        try:
            return as_shape(other).concatenate(self)
        except TypeError:
            return NotImplemented

    # -- compared with another shape -------------------------------------------------------------

    def __eq__(self, other: object) -> bool:
        try:
            right = as_shape(other).sizes
        except TypeError:
            return NotImplemented
        sizes = self.sizes
        return sizes is right or (sizes == right and sizes is not None and None not in sizes)

    def __ne__(self, other: object) -> bool:
        try:
            right = as_shape(other).sizes
        except TypeError:
            return NotImplemented
        if self.sizes is None or right is None:
            raise ValueError("The inequality of unknown TensorShapes is undefined.")
        return not self == other

    def __hash__(self) -> int:
        return hash(self.sizes)

    def is_compatible_with(self, other: Any) -> bool:
        """True if some fully known shape is compatible with both."""
        left, right = self.sizes, as_shape(other).sizes
        if left is None or right is None:
            return True
        return len(left) == len(right) and all(map(_fits, left, right))

    def assert_is_compatible_with(self, other: Any) -> None:
        """Raise ValueError unless `is_compatible_with(other)`."""
        if not self.is_compatible_with(other):
            raise ValueError(f"Shapes {self} and {other} are incompatible")

    def merge_with(self, other: Any) -> "TensorShape":
        """The shape that knows what either knows; ValueError if they contradict each other."""
        other = as_shape(other)
        if self.sizes is None or other.sizes is None:
            return other if self.sizes is None else self
        if not self.is_compatible_with(other):
            message = f"Shapes {self} and {other} are not compatible"
            raise mismatch(message, _difference(self, other))
        return TensorShape.of(
            tuple(b if a is None else a for a, b in zip(self.sizes, other.sizes, strict=True))
        )

    def most_specific_compatible_shape(self, other: Any) -> "TensorShape":
        """Return the most specific shape that both are compatible with."""
        left, right = self.sizes, as_shape(other).sizes
        if left is None or right is None or len(left) != len(right):
            return _UNKNOWN
        pairs = zip(left, right, strict=True)
        return TensorShape.of(tuple(a if a == b else None for a, b in pairs))

    # -- constraints on the rank -----------------------------------------------------------------

    def with_rank(self, rank: int) -> "TensorShape":
        """This shape if it has the rank; unknown sizes if its rank is unknown; else ValueError."""
        if self.sizes is None:
            return unknown_shape(rank)
        if len(self.sizes) != operator.index(rank):
            raise self._misfit("", rank)
        return self

    def with_rank_at_least(self, rank: int) -> "TensorShape":
        """This shape; ValueError if it is known to have a smaller rank."""
        if self.sizes is not None and len(self.sizes) < rank:
            raise self._misfit("at least ", rank)
        return self

    def with_rank_at_most(self, rank: int) -> "TensorShape":
        """This shape; ValueError if it is known to have a larger rank."""
        if self.sizes is not None and len(self.sizes) > rank:
            raise self._misfit("at most ", rank)
        return self

    def _misfit(self, bound: str, rank: int) -> ValueError:
        message = f"Shape {self} must have rank {bound}{rank}"
        return mismatch(message, f"Shape must be {bound}rank {rank} but is rank {self.rank}")

    def assert_has_rank(self, rank: int) -> None:
        """Raise ValueError if the rank is known to differ from `rank`."""
        self.with_rank(rank)

    def assert_same_rank(self, other: Any) -> None:
        """Raise ValueError if both ranks are known and differ."""
        other = as_shape(other)
        if not _fits(self.rank, other.rank):
            raise ValueError(f"Shapes {self} and {other} must have the same rank")


def _difference(a: TensorShape, b: TensorShape) -> str:
    """Describe the first difference between two shapes that should be equal."""
    if a.rank != b.rank:
        return f"Shapes must be equal rank, but are {a.rank} and {b.rank}"
    pairs = zip(a.sizes or (), b.sizes or (), strict=True)
    i, m, n = next((i, m, n) for i, (m, n) in enumerate(pairs) if not _fits(m, n))
    return (
        f"Dimension {i} in both shapes must be equal, but are {m} and {n}. Shapes are "
        f"{show_shape(a)} and {show_shape(b)}."
    )


# The slot's own setter bypasses TensorShape.__setattr__, and is cheap.
_set_sizes: Final = TensorShape.sizes.__set__  # type: ignore[union-attr]
_new_shape: Final = object.__new__


def _sizes_of(dims: Any) -> Sizes | None:
    """Read the sizes from any value that describes a shape."""
    if type(dims) is tuple or type(dims) is list:
        return _sizes_of_items(dims)
    if dims is None:
        return None
    if isinstance(dims, TensorShape):
        return dims.sizes
    if isinstance(dims, str | bytes):
        raise TypeError(
            f"a string is not a shape; wrap it in a list or convert it to an int: {dims!r}"
        )
    if hasattr(dims, "unknown_rank"):
        return _sizes_of_proto(dims)
    try:
        items = iter(dims)
    except TypeError:  # a single size makes a vector
        return (_size(dims),)
    return _sizes_of_items(items)


def _sizes_of_items(items: Iterable[Any]) -> Sizes:
    return tuple([item if type(item) is int and item >= 0 else _size(item) for item in items])


def _sizes_of_proto(message: Any) -> Sizes | None:
    if message.unknown_rank:
        return None
    return tuple(None if dim.size == -1 else _size(dim.size) for dim in message.dim)


def _slice_unknown(key: slice) -> Sizes | None:
    """The sizes of a slice of a shape of unknown rank: a slice may still have a known length."""
    if key.step not in (None, 1):
        raise ValueError(f"cannot slice a shape of unknown rank with a step: {key.step}")
    if key.stop is None:
        return None
    start = 0 if key.start is None else operator.index(key.start)
    stop = operator.index(key.stop)
    if start < 0 or stop < 0:
        return None
    return (None,) * (stop - start)


_UNKNOWN: Final = TensorShape.of(None)
_SCALAR: Final = TensorShape.of(())


def as_shape(value: Any) -> TensorShape:
    """`value` itself if it is a TensorShape, else the TensorShape that it describes."""
    return value if isinstance(value, TensorShape) else TensorShape(value)


def as_dimension(value: Any) -> Dimension:
    """`value` itself if it is a Dimension, else the Dimension of that size."""
    return value if isinstance(value, Dimension) else Dimension(value)


def unknown_shape(ndims: int | None = None) -> TensorShape:
    """A shape of the given rank and unknown sizes, or of unknown rank."""
    return _UNKNOWN if ndims is None else TensorShape.of((None,) * operator.index(ndims))


def scalar() -> TensorShape:
    """The shape of a scalar."""
    return _SCALAR


def vector(length: Any) -> TensorShape:
    """The shape of a vector."""
    return TensorShape((length,))


def matrix(rows: Any, columns: Any) -> TensorShape:
    """The shape of a matrix."""
    return TensorShape((rows, columns))


def dimension_value(dimension: Any) -> Any:
    """Return the size in a Dimension; anything else unchanged."""
    return dimension.value if isinstance(dimension, Dimension) else dimension


def dimension_at_index(shape: TensorShape, index: int) -> Dimension:
    """One dimension of a shape, unknown if the rank is."""
    return shape[index]


def merge(a: Any, b: Any) -> TensorShape:
    """The shape that knows what either knows; ValueError if they contradict each other."""
    return as_shape(a).merge_with(b)


def broadcast(a: Any, b: Any) -> TensorShape:
    """The shape of an elementwise result; ValueError if the shapes cannot be broadcast.

    An unknown size facing n > 1 must turn out to be 1 or n, so the result is n; facing 1 or
    another unknown it may be anything.
    """
    a, b = as_shape(a), as_shape(b)
    left, right = a.sizes, b.sizes
    if left is None or right is None:
        return _UNKNOWN
    if left is right:
        return a
    missing = len(left) - len(right)
    padding = (1,) * abs(missing)
    if missing < 0:
        left = padding + left
    else:
        right = padding + right
    try:
        return TensorShape.of(tuple(map(_broadcast_sizes, left, right)))
    except _Mismatch:
        raise ValueError(f"Incompatible shapes for broadcasting: {a} and {b}") from None


class _Mismatch(Exception):
    """Two sizes that cannot be broadcast."""


def _broadcast_sizes(a: int | None, b: int | None) -> int | None:
    if a == b or b == 1:
        return a
    if a == 1:
        return b
    if a is not None and b is not None:
        raise _Mismatch
    known = b if a is None else a
    # Facing 0, the unknown may be 1 or 0; TensorFlow leaves the result unknown, and so do we.
    return known or None
