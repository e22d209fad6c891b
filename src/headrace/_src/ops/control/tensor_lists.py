"""Lists of tensors as values: a loop saves values in them for its gradient loop.

A list is an immutable variant: a push returns a longer one, a pop a shorter one, and both share
their common part. So a loop carries a list as it carries a number, older lists stay valid, and the
gradient of a push is a pop (and of a pop, a push).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import starmap
from typing import Any

import numpy as np

from headrace._src.core import dtypes
from headrace._src.core.dtypes import DType
from headrace._src.core.errors import InvalidArgumentError
from headrace._src.core.tensor_shape import TensorShape, show_shape
from headrace._src.devices.swap_files import swaps
from headrace._src.graph.definition import NOT_DIFFERENTIABLE, Definition, Effect
from headrace._src.graph.inference import known_shape, known_value
from headrace._src.graph.internal_definitions import register_internal
from headrace._src.graph.schema import Schema
from headrace._src.lowering import list_anchors
from headrace._src.ops.base import infer
from headrace._src.ops.base.builder import OpBuilder
from headrace._src.ops.base.define import define

__all__ = [
    "LIST_OF_ROWS",
    "LIST_ROWS",
    "ZEROS",
    "Sizes",
    "TensorList",
    "as_list",
    "carries",
    "element_sizes",
    "known",
    "zeros_of",
]

Sizes = tuple[int | None, ...] | None

_SCALAR = TensorShape.of(())
_ANY = -1  # as a shape of elements: any; as a limit: none


class TensorList:
    """The list that ends with `last` after `rest` or, if `rest` is None, the first `length` of
    `base`, which is never changed.

    All elements have the same dtype and a shape compatible with `sizes`; there are `limit` of them
    at most, or any number if that is negative. None is an element that was reserved and isn't set.
    `keep` returns an element as it is to be kept, such as a copy in a file; None: as it is.
    """

    __slots__ = ("base", "dtype", "keep", "last", "length", "limit", "rest", "sizes")

    def __init__(
        self,
        dtype: DType,
        sizes: Sizes = None,
        limit: int = _ANY,
        base: Sequence[Any] = (),
        length: int | None = None,
        keep: Callable[[Any], Any] | None = None,
    ) -> None:
        self.dtype = dtype
        self.sizes = sizes
        self.limit = limit
        self.base = base
        self.length = len(base) if length is None else length
        self.keep = keep
        self.last: Any = None
        self.rest: TensorList | None = None

    def push(self, value: Any) -> TensorList:
        """Return the list with one more element."""
        if 0 <= self.limit <= self.length:
            raise _invalid(
                f"Tried to push item into a full list. list size: {self.length} "
                f"max_num_elements: {self.limit}"
            )
        if self.sizes is not None:
            self.check_shape(np.shape(value))
        keep = self.keep
        longer = TensorList(self.dtype, self.sizes, self.limit, keep=keep)
        longer.length = self.length + 1
        longer.last = value if keep is None else keep(value)
        longer.rest = self
        return longer

    def pop(self) -> tuple[TensorList, Any]:
        """Return the list without its last element, and that element."""
        if not self.length:
            raise _invalid("Trying to pop from an empty list.")
        if self.rest is not None:
            return self.rest, self.last
        last = self.length - 1
        rest = TensorList(self.dtype, self.sizes, self.limit, self.base, last, self.keep)
        return rest, self.base[last]

    def value(self, element: Any, sizes: Sizes = None) -> Any:
        """Return an element as a tensor's value: zeros of the list's shape, or of `sizes`, if it
        isn't set.
        """
        if element is not None:
            return element
        shape = TensorShape(self.sizes).merge_with(TensorShape(sizes))
        if not shape.is_fully_defined() or self.dtype is dtypes.variant:
            raise _invalid(
                "Trying to read an uninitialized element of a list, but its shape is not fully "
                f"defined: {shape}"
            )
        return np.full(
            known(shape.sizes), b"" if self.dtype is dtypes.string else 0, self.dtype.numpy
        )

    def check_dtype(self, dtype: DType) -> None:
        if dtype is not self.dtype:
            raise _invalid(
                f"Invalid data types; op elements {dtype.name} but list elements {self.dtype.name}"
            )

    def followed_by(self, other: TensorList) -> TensorList:
        """Return the list followed by the elements of another."""
        return self._of([*other, *self])

    def zeros(self) -> TensorList:
        """Return a list like this one, of zeros."""
        return self._of(map(zeros_of, self))

    def __add__(self, other: TensorList) -> TensorList:
        """Return the list of sums of corresponding elements."""
        other.check_dtype(self.dtype)
        if self.length != other.length:
            raise _invalid(
                f"Trying to add two lists of tensors with different lengths. One is {self.length} "
                f"and the other is {other.length}"
            )
        return self._of(starmap(_sum, zip(self, other, strict=True)))

    def __iter__(self) -> Iterator[Any]:
        """Yield the elements, the last one first."""
        here = self
        while here.rest is not None:
            yield here.last
            here = here.rest
        yield from reversed(here.base[: here.length])

    def elements(self) -> list[Any]:
        """Return the elements, the first one first."""
        return list(self)[::-1]

    def __getitem__(self, index: int) -> Any:
        """Return one element. A list built by pushes is searched from its end."""
        here = self
        while here.rest is not None and here.length > index + 1:
            here = here.rest
        return here.base[index] if here.rest is None else here.last

    def _of(self, backwards: Iterable[Any]) -> TensorList:
        return TensorList(self.dtype, self.sizes, self.limit, list(backwards)[::-1], keep=self.keep)

    def check_shape(self, shape: tuple[int, ...]) -> None:
        """Reject values that can't be elements."""
        if not TensorShape.of(shape).is_compatible_with(TensorShape(self.sizes)):
            raise _invalid(
                "Tried to append a tensor with incompatible shape to a list. Op element shape: "
                f"{show_shape(shape)} list shape: {TensorShape(self.sizes)}"
            )

    def __repr__(self) -> str:
        return f"<TensorList of {self.length} {self.dtype.name}>"


def known(sizes: Sizes) -> tuple[int, ...]:
    """Return sizes as numbers if all are known."""
    return tuple(n for n in sizes or () if n is not None)


def zeros_of(value: Any) -> Any:
    """Return zeros like an element; unset ones stay unset; lists and optionals make their own."""
    if value is None:
        return None
    return value.zeros() if hasattr(value, "zeros") else np.zeros_like(value)


def _sum(x: Any, y: Any) -> Any:
    """Return the sum of two elements; one that isn't set adds nothing."""
    return y if x is None else x if y is None else x + y


def _invalid(message: str) -> InvalidArgumentError:
    return InvalidArgumentError(None, None, message)


def as_list(value: Any, dtype: DType | None = None) -> TensorList:
    """Return `value`, which must be a list with elements of `dtype`."""
    if isinstance(value, np.ndarray) and not value.ndim:  # an element of an array of lists
        value = value[()]
    if not isinstance(value, TensorList):
        raise _invalid(f"Input handle is not a list. Saw: '{type(value).__name__}'")
    if dtype is not None:
        value.check_dtype(dtype)
    return value


def element_sizes(shape: Any) -> Sizes:
    """Parse a shape tensor: -1 is an unknown size, and a scalar -1 any shape."""
    if np.ndim(shape) > 1:
        raise _invalid(f"a shape is a vector, but element_shape has rank {np.ndim(shape)}")
    if np.ndim(shape) == 0:
        if shape != _ANY:
            raise _invalid(f"The only valid scalar shape tensor is -1, not {int(shape)}")
        return None
    return tuple(None if n < 0 else n for n in shape.tolist())


def carries(dtype: DType) -> bool:
    """Whether elements have gradients."""
    return dtype.is_floating or dtype.is_complex or dtype is dtypes.variant


def with_elements(shape: Callable[..., TensorShape]) -> Callable[..., Any]:
    """Return the shape rule of an op that makes a list: it records the shape of the elements, as
    far as `shape`, another rule, knows it.
    """

    def rule(c: Any, *shapes: TensorShape) -> TensorShape:
        if not c.settled:
            c.op._outputs[0]._element_shape = shape(c, *shapes)
        return _SCALAR

    return rule


def elements_behind(c: Any) -> TensorShape:
    """Return the element shape recorded by the op that made the list at input 0; ops that pass a
    list on change only its length. For nodes, `specialise` tracks lists in its own way.
    """
    values = c.op._inputs[0]
    while not c.settled:
        found = getattr(values, "_element_shape", None)
        if found is not None:
            return found
        passed = [t for t in values.op._inputs if t.dtype is dtypes.variant]
        if len(passed) != 1:
            break
        values = passed[0]
    return TensorShape(None)


def shape_of_elements(c: Any, index: int) -> TensorShape:
    """Return the element shape that the tensor at input `index` gives; a scalar gives none."""
    if not c.settled:
        tensor = c.op._inputs[index]
        tensor._shape.with_rank_at_most(1)
        is_open = tensor._shape.ndims == 0 and known_value(tensor) is None
        return TensorShape(None) if is_open else known_shape(tensor)
    value = c.value(index)
    if value is not None:
        return TensorShape(element_sizes(value))
    ints = c.ints(index)
    return TensorShape(None if ints is None else [None if n in (None, _ANY) else n for n in ints])


def _empty_kernel(element_shape, max_num_elements, *, element_dtype, ctx):
    swapping = ctx.attrs.get(list_anchors.SWAP_MEMORY, False) and swaps()
    return TensorList(
        element_dtype,
        element_sizes(element_shape),
        int(max_num_elements),
        keep=ctx.device.allocator.swapped if swapping else None,
    )


@define(
    "EmptyTensorList",
    "element_shape: shape_type, max_num_elements: int32 -> handle: variant",
    "element_dtype: type; shape_type: {int32|int64}",
    infer=with_elements(lambda c, *_: shape_of_elements(c, 0)),
    kernel=_empty_kernel,
    gradient=NOT_DIFFERENTIABLE,
    effect=Effect.LOCAL,
    lower=list_anchors.LIST,
)
def empty_tensor_list(element_shape, max_num_elements, element_dtype, name=None):
    """Return a list for elements of a type and a shape (-1: any), `max_num_elements` at most."""


def _push_kernel(input_handle, tensor, *, element_dtype):
    return as_list(input_handle, element_dtype).push(tensor)


def _push_gradient(b: OpBuilder, op: Any, longer: Any) -> list[Any]:
    value = op.inputs[1]
    if not carries(value.dtype.base_dtype):
        return [None, None]
    rest, gradient = b.tensor_list_pop_back(longer, _ANY, value.dtype.base_dtype)
    gradient.set_shape(value.shape)
    return [rest, gradient]


@define(
    "TensorListPushBack",
    "input_handle: variant, tensor: element_dtype -> output_handle: variant",
    "element_dtype: type",
    infer=infer.scalar,
    kernel=_push_kernel,
    gradient=_push_gradient,
    effect=Effect.LOCAL,
    lower=list_anchors.APPEND,
)
def tensor_list_push_back(input_handle, tensor, name=None):
    """Return a list with one more element."""


def _pop_kernel(input_handle, element_shape, *, element_dtype):
    values = as_list(input_handle, element_dtype)
    rest, last = values.pop()
    return rest, values.value(last, element_sizes(element_shape))


def _pop_gradient(b: OpBuilder, op: Any, rest: Any, gradient: Any) -> list[Any]:
    if rest is None or gradient is None:
        return [None, None]
    return [b.tensor_list_push_back(rest, gradient), None]


@define(
    "TensorListPopBack",
    "input_handle: variant, element_shape: int32 -> output_handle: variant, tensor: element_dtype",
    "element_dtype: type",
    infer=lambda c, *_: [_SCALAR, elements_behind(c)],
    kernel=_pop_kernel,
    gradient=_pop_gradient,
    effect=Effect.LOCAL,
    lower=list_anchors.REMOVE,
)
def tensor_list_pop_back(input_handle, element_shape, element_dtype, name=None):
    """Return a list without its last element, and that element."""


ZEROS = Definition(
    schema=Schema("_ZerosList", "x: variant -> y: variant", ""),
    infer=infer.scalar,
    kernel=zeros_of,
    gradient=NOT_DIFFERENTIABLE,
    effect=Effect.LOCAL,
    lower=list_anchors.ZEROS,
    doc="Return zeros like a list or optional; the pipeline's form of ZerosLike.",
)
register_internal(ZEROS)


def _rows_kernel(x: TensorList, *, T: DType, shape: TensorShape) -> tuple[np.ndarray, np.ndarray]:
    most, *row = known(shape.sizes)
    values = [x.value(v, tuple(row)) for v in x][::-1]
    rows = np.zeros((most, *row), T.numpy)
    if values:
        rows[: len(values)] = values
    return rows, np.array(len(values), np.int64)


def _of_rows_kernel(rows: np.ndarray, count: np.ndarray, *, T: DType, shape: Any) -> TensorList:
    return TensorList(T, rows.shape[1:], base=list(rows[: int(count)]))


LIST_ROWS = Definition(
    schema=Schema(
        "_ListRows",
        "x: variant -> rows: T, count: int64",
        "T: type; shape: shape; swaps: bool = False",
    ),
    infer=lambda c, x: [c.attrs["shape"], _SCALAR],
    kernel=_rows_kernel,
    gradient=NOT_DIFFERENTIABLE,
    effect=Effect.LOCAL,
    lower=list_anchors.ROWS,
    doc="Return a list's rows as an array, with zeros where it has fewer, and how many it has.",
)

LIST_OF_ROWS = Definition(
    schema=Schema("_ListOfRows", "rows: T, count: int64 -> y: variant", "T: type; shape: shape"),
    infer=infer.scalar,
    kernel=_of_rows_kernel,
    gradient=NOT_DIFFERENTIABLE,
    effect=Effect.LOCAL,
    lower=list_anchors.OF_ROWS,
    doc="Return the list of an array's first rows.",
)


@define(
    "TensorListLength",
    "input_handle: variant -> length: int32",
    infer=infer.scalar,
    kernel=lambda input_handle: np.int32(as_list(input_handle).length),
    gradient=NOT_DIFFERENTIABLE,
    effect=Effect.LOCAL,
)
def tensor_list_length(input_handle, name=None):
    """Return the number of elements in a list."""


# -- Several lists at once, in arrays of variants --------------------------------------------------


def _each(function: Callable[..., TensorList], *arrays: Any) -> Any:
    """Return an array of a function's results for each index and the value there."""
    shape = np.shape(arrays[0])
    found = np.empty(shape, object)
    for number, place in enumerate(np.ndindex(shape)):
        found[place] = function(number, *(a[place] if shape else a for a in arrays))
    return found if shape else found[()]


def _concat_lists_kernel(input_a, input_b, *, element_dtype):
    def joined(number: int, a: Any, b: Any) -> TensorList:
        first, second = as_list(a, element_dtype), as_list(b, element_dtype)
        if first.sizes != second.sizes:
            raise _invalid(
                "input_a and input_b TensorList element shapes are not identical at index "
                f"{number}. Saw {TensorShape(first.sizes)} vs. {TensorShape(second.sizes)}"
            )
        return first.followed_by(second)

    if np.shape(input_a) != np.shape(input_b):
        raise _invalid(
            f"{show_shape(np.shape(input_a))} lists and {show_shape(np.shape(input_b))} can't be "
            "joined one by one"
        )
    return _each(joined, input_a, input_b)


@define(
    "TensorListConcatLists",
    "input_a: variant, input_b: variant -> output: variant",
    "element_dtype: type",
    infer=infer.same_as_all,
    kernel=_concat_lists_kernel,
    gradient=NOT_DIFFERENTIABLE,
    effect=Effect.LOCAL,
)
def tensor_list_concat_lists(input_a, input_b, element_dtype, name=None):
    """Return a list, or an array of lists, that concatenates two."""


def _batch_shape(c: Any, lists: TensorShape, values: TensorShape) -> TensorShape:
    rows = infer.with_rank_at_least(values, 1)
    return infer.with_rank(lists, 1).merge_with(rows[:1])


def _push_batch_kernel(input_handles, tensor, *, element_dtype):
    if np.shape(input_handles) != np.shape(tensor)[:1]:
        raise _invalid(
            f"{show_shape(np.shape(input_handles))} lists can't take the rows of a tensor of shape "
            f"{show_shape(np.shape(tensor))}"
        )
    return _each(
        lambda number, values: as_list(values, element_dtype).push(tensor[number]), input_handles
    )


@define(
    "TensorListPushBackBatch",
    "input_handles: variant, tensor: element_dtype -> output_handles: variant",
    "element_dtype: type",
    infer=_batch_shape,
    kernel=_push_batch_kernel,
    gradient=NOT_DIFFERENTIABLE,
    effect=Effect.LOCAL,
)
def tensor_list_push_back_batch(input_handles, tensor, name=None):
    """Return lists, each with a row of `tensor` appended."""
