"""Assertions on ranks and shapes. In: tensors and the ranks or sizes they must have. Out: an
operation that fails the step if they don't; or a ValueError at once, if that is known already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from headrace._src.core import dtypes
from headrace._src.core.export import export
from headrace._src.graph.composite import SparseTensor
from headrace._src.graph.default import get_default_graph
from headrace._src.graph.inference import constant_value
from headrace._src.graph.operation import Operation, Tensor
from headrace._src.ops.base.define import b, composed
from headrace._src.ops.base.to_tensor import convert_to_tensor, name_scope

__all__ = [
    "assert_rank",
    "assert_rank_at_least",
    "assert_rank_in",
    "assert_scalar",
    "assert_shapes",
]


# -- Ranks


def _known_rank(rank: Tensor) -> int | None:
    value = constant_value(rank)
    if value is None:
        return None
    if value.ndim:
        raise ValueError("Rank must be a scalar.")
    return int(value)


def _check_rank(
    x: Any,
    ranks: list[Tensor],
    allows: Callable[[int, list[int]], bool],
    build: Callable[[Tensor, list[Tensor]], Tensor],
    words: str,
    data: Any,
    summarize: int | None,
    message: str | None,
) -> Operation:
    """Assert a relation of the rank of `x` to `ranks`: `allows` for numbers, `build` for
    tensors.
    """
    name = getattr(x, "name", None) or x.indices.name
    prefix = message or ""
    if data is None:
        data = [prefix, f"Tensor {name} must have {words}", *ranks, "Received shape: ", b.shape(x)]
    for rank in ranks:
        b.assert_type(rank, dtypes.int32)
    wanted = [_known_rank(rank) for rank in ranks]
    found = x.shape.ndims
    numbers = [n for n in wanted if n is not None]
    if found is not None and len(numbers) == len(wanted):
        if not allows(found, numbers):
            shown = tuple(numbers) if words.endswith("in") else numbers[0]
            raise ValueError(
                f"{prefix}.  Tensor {name} must have {words} {shown}.  Received rank {found}, "
                f"shape {x.shape}"
            )
        return b.no_op(name="static_checks_determined_all_ok")
    condition = build(b.rank(x), ranks)
    for rank, number in zip(ranks, wanted, strict=True):
        if number is None:
            scalar = assert_rank(rank, 0, data=["Rank must be a scalar. Received rank: ", rank])
            condition = b.with_dependencies([scalar], condition)
    return b.Assert(condition, data, summarize=summarize)


def _as_ranked(x: Any) -> Any:
    return x if isinstance(x, SparseTensor) else convert_to_tensor(x, name="x")


@composed
@export("assert_rank", "debugging.assert_rank")
def assert_rank(
    x: Any,
    rank: Any,
    data: Any = None,
    summarize: int | None = None,
    message: str | None = None,
    name: str | None = None,
) -> Operation:
    """Assert that `x` has the given rank.

    data, summarize and message are those of assert_equal.
    """
    with name_scope(name, "assert_rank", [x, *(data or [])]):
        return _check_rank(
            _as_ranked(x),
            [convert_to_tensor(rank, name="rank")],
            lambda found, wanted: found == wanted[0],
            lambda found, wanted: b.equal(found, wanted[0]),
            "rank",
            data,
            summarize,
            message,
        )


@composed
@export("assert_rank_at_least", "debugging.assert_rank_at_least")
def assert_rank_at_least(
    x: Any,
    rank: Any,
    data: Any = None,
    summarize: int | None = None,
    message: str | None = None,
    name: str | None = None,
) -> Operation:
    """Assert that `x` has the given rank, or a higher one.

    data, summarize and message are those of assert_equal.
    """
    with name_scope(name, "assert_rank_at_least", [x, *(data or [])]):
        return _check_rank(
            _as_ranked(x),
            [convert_to_tensor(rank, name="rank")],
            lambda found, wanted: found >= wanted[0],
            lambda found, wanted: b.greater_equal(found, wanted[0]),
            "rank at least",
            data,
            summarize,
            message,
        )


def _equals_any(found: Tensor, wanted: list[Tensor]) -> Tensor:
    condition = b.equal(wanted[0], found)
    for rank in wanted[1:]:
        condition = b.logical_or(condition, b.equal(rank, found))
    return condition


@composed
@export("assert_rank_in", "debugging.assert_rank_in")
def assert_rank_in(
    x: Any,
    ranks: Any,
    data: Any = None,
    summarize: int | None = None,
    message: str | None = None,
    name: str | None = None,
) -> Operation:
    """Assert that `x` has one of the given ranks.

    data, summarize and message are those of assert_equal.
    """
    with name_scope(name, "assert_rank_in", [x, *ranks, *(data or [])]):
        x = _as_ranked(x)
        return _check_rank(
            x,
            [convert_to_tensor(rank, name="rank") for rank in ranks],
            lambda found, wanted: found in wanted,
            _equals_any,
            "rank in",
            data,
            summarize,
            message,
        )


@composed
@export("assert_scalar", "debugging.assert_scalar")
def assert_scalar(tensor: Any, name: str | None = None, message: str | None = None) -> Tensor:
    """Return `tensor`; raise ValueError unless it is known to be a scalar."""
    with name_scope(name, "assert_scalar", [tensor]) as scope:
        tensor = convert_to_tensor(tensor, name=scope)
        if tensor.shape.ndims != 0:
            raise ValueError(
                f"{message or ''}Expected scalar shape for {tensor.name}, saw shape: "
                f"{tensor.shape}."
            )
        return tensor


# -- Shapes


class _Constraint(NamedTuple):
    """The required shape of one tensor: sizes (None for any) of its last dimensions."""

    tensor: Tensor
    sizes: tuple[Any, ...]
    inner_only: bool  # dimensions before them are free

    @property
    def may_be_scalar(self) -> bool:
        """Treat a scalar as one dimension of size 1."""
        return len(self.sizes) == 1 and not self.inner_only

    def size(self, k: int) -> int | None:
        """Return the size of constrained dimension `k`, if it is known."""
        sizes = self.tensor.shape.sizes
        if sizes is None:
            return None
        return 1 if not sizes else sizes[len(sizes) - len(self.sizes) + k]

    def dimension(self, k: int) -> int:
        """Return the number of dimension `k` in messages: from the end if outer dimensions are
        free.
        """
        return k - len(self.sizes) if self.inner_only else k


def _constraint(tensor: Any, shape: Any, prefix: str) -> _Constraint:
    tensor = convert_to_tensor(tensor)
    where = f"{prefix}.  Tensor {tensor.name}"
    if not isinstance(shape, Iterable):
        raise ValueError(
            f"{where}.  Specified shape must be an iterable.  An iterable has the attribute "
            f"`__iter__` or `__getitem__`.  Received specified shape: {shape}"
        )
    sizes = []
    inner_only = False
    for position, size in enumerate(shape):
        if size is Ellipsis or (isinstance(size, str) and size == "*"):
            if position:
                raise ValueError(
                    f"{where} specified shape index {position}.  Symbol `...` or `*` for a "
                    "variable number of unspecified dimensions is only allowed as the first entry"
                )
            inner_only = True
        elif size is None or (isinstance(size, str) and size == "."):
            sizes.append(None)
        else:
            sizes.append(_as_number(size))
    if not sizes and not inner_only:
        sizes = [1]
    return _Constraint(tensor, tuple(sizes), inner_only)


def _as_number(size: Any) -> Any:
    """Return an explicit size as a number, anything else as a symbol."""
    try:
        return int(size)
    except (TypeError, ValueError):
        return size


class _Size(NamedTuple):
    """The size of a symbol: as a tensor, as a number if known, and where it comes from."""

    tensor: Any
    number: int | None
    origin: str


@composed
@export("debugging.assert_shapes")
def assert_shapes(
    shapes: Any,
    data: Any = None,
    summarize: int | None = None,
    message: str | None = None,
    name: str | None = None,
) -> Operation:
    """Assert that tensors have the given shapes, in which a symbol is the same size everywhere.

    `shapes` maps tensors to shapes (or is a list of such pairs). An entry of a shape is a size,
    None or "." for any size, or a symbol; a first entry `...` or "*" leaves the outer dimensions
    free.

    data, summarize and message are those of assert_equal.
    """
    pairs = list(shapes.items() if isinstance(shapes, dict) else shapes)
    prefix = message or ""
    with name_scope(name, "assert_shapes", [pairs, data]):
        constraints = [_constraint(tensor, shape, prefix) for tensor, shape in pairs]
        ranks = [_rank_check(c, data, summarize, message) for c in constraints]
        found: dict[Any, _Size] = {}
        checks = []
        with get_default_graph().control_dependencies([check for check in ranks if check]):
            for c in constraints:
                for k, wanted in enumerate(c.sizes):
                    if wanted is not None:
                        checks += _size_check(c, k, wanted, found, data, summarize, prefix)
        return b.group([check for check in (*ranks, *checks) if check])


def _rank_check(
    c: _Constraint, data: Any, summarize: int | None, message: str | None
) -> Operation | None:
    options = {"data": data, "summarize": summarize, "message": message}
    if c.may_be_scalar:
        return b.assert_rank_in(c.tensor, [0, 1], **options)
    if not c.inner_only:
        return b.assert_rank(c.tensor, len(c.sizes), **options)
    return b.assert_rank_at_least(c.tensor, len(c.sizes), **options) if c.sizes else None


def _size_of(c: _Constraint, k: int) -> Any:
    number = c.size(k)
    if number is not None:
        return number
    if c.may_be_scalar:
        return b.reduce_prod(b.shape(c.tensor))  # 1 for a scalar, the length of a vector
    return b.shape(c.tensor)[c.dimension(k)]


def _size_check(
    c: _Constraint,
    k: int,
    wanted: Any,
    found: dict[Any, _Size],
    data: Any,
    summarize: int | None,
    prefix: str,
) -> list[Operation]:
    """Return the check of one size if it is needed at run time; raise ValueError if it
    fails now.
    """
    number, dimension = c.size(k), c.dimension(k)
    if isinstance(wanted, int):
        other = _Size(wanted, wanted, "Specified explicitly")
    elif wanted in found:
        other = found[wanted]
    else:
        origin = f"Specified by tensor {c.tensor.name} dimension {dimension}"
        found[wanted] = _Size(_size_of(c, k), number, origin)
        return []
    if number is not None and other.number is not None:
        if number != other.number:
            raise ValueError(
                f"{prefix}.  {other.origin}.  Tensor {c.tensor.name} dimension {dimension} must "
                f"have size {other.number}.  Received size {number}, shape {c.tensor.shape}"
            )
        return []
    condition = b.equal(_size_of(c, k), other.tensor)
    if data is None:
        data = [
            prefix,
            other.origin,
            f"Tensor {c.tensor.name} dimension",
            dimension,
            "must have size",
            other.tensor,
            "Received shape: ",
            b.shape(c.tensor),
        ]
    return [b.Assert(condition, data, summarize=summarize)]
