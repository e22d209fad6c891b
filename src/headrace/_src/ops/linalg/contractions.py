"""Contractions of tensors over any dimensions, composed of transposes, reshapes and matmul."""

from __future__ import annotations

import math
import re
import string
from typing import Any

import numpy as np

from headrace._src.core import dtypes
from headrace._src.core.export import export
from headrace._src.graph.operation import Tensor
from headrace._src.ops.base.define import b as ops
from headrace._src.ops.base.define import composed
from headrace._src.ops.base.to_tensor import convert_to_tensor, name_scope

__all__ = ["einsum", "tensordot"]

# Sums over pairs of dimensions -----------------------------------------------------------------


@composed
@export("tensordot", "linalg.tensordot")
def tensordot(a: Any, b: Any, axes: Any, name: str | None = None) -> Tensor:
    """Return the sum of products over `axes` of both: a number n (the last n dimensions of `a` with
    the first n of `b`), or a list of dimensions for each.
    """
    with name_scope(name, "Tensordot", [a, b, axes]) as scope:
        a = convert_to_tensor(a, name="a")
        b = convert_to_tensor(b, name="b")
        a_axes, b_axes = _contracted_axes(a, axes)
        left, a_free, a_static = _as_matrix(a, a_axes, contracted_first=False)
        right, b_free, b_static = _as_matrix(b, b_axes, contracted_first=True)
        product = ops.matmul(left, right)
        if isinstance(a_free, list) and isinstance(b_free, list):
            return ops.reshape(product, a_free + b_free, name=scope)
        a_free = convert_to_tensor(a_free, dtypes.int32)
        b_free = convert_to_tensor(b_free, dtypes.int32)
        result = ops.reshape(product, ops.concat([a_free, b_free], 0), name=scope)
        if a_static is not None and b_static is not None:
            result.set_shape(a_static + b_static)
        return result


def _contracted_axes(a: Tensor, axes: Any) -> tuple[Any, Any]:
    if isinstance(axes, int | np.integer):
        return _last_and_first(a, int(axes))
    if isinstance(axes, list | tuple):
        if len(axes) != 2:
            raise ValueError("'axes' must be an integer or have length 2.")
        both = [[s] if isinstance(s, int | np.integer) else list(s) for s in axes]
        if len(both[0]) != len(both[1]):
            raise ValueError(
                "Different number of contraction axes 'a' and 'b', "
                f"{len(both[0])} != {len(both[1])}."
            )
        return both[0], both[1]
    axes = convert_to_tensor(axes, dtypes.int32, "axes")
    return axes[0], axes[1]


def _last_and_first(a: Tensor, count: int) -> tuple[Any, Any]:
    if count < 0:
        raise ValueError("'axes' must be at least 0.")
    rank = a.shape.rank
    if rank is None:
        dynamic = ops.rank(a)
        last = ops.range(ops.subtract(dynamic, count, name="sub"), dynamic, dtype=dtypes.int32)
        return last, ops.range(count, dtype=dtypes.int32)
    if count > rank:
        raise ValueError(f"'axes' must not be larger than the number of dimensions of tensor {a}.")
    return list(range(rank - count, rank)), list(range(count))


def _as_matrix(x: Tensor, axes: Any, contracted_first: bool) -> tuple[Tensor, Any, Any]:
    """Return `x` as a matrix of its free and its contracted dimensions, in either order.

    Also return the sizes of the free dimensions, as a list if all are known, else as a tensor; and
    what is known of them, as a list, or None.
    """
    sizes = x.shape.sizes
    if sizes is None or not isinstance(axes, list):
        return _as_matrix_of_unknown(x, axes, contracted_first)
    axes = [a % len(sizes) if -len(sizes) <= a < len(sizes) else a for a in axes]
    if not all(0 <= a < len(sizes) for a in axes):
        raise ValueError(f"'axes' {axes} are out of range for {x}")
    free = [i for i in range(len(sizes)) if i not in axes]
    static = [sizes[i] for i in free]
    if None in sizes:
        axes = convert_to_tensor(axes, dtypes.int32, "axes")
        free = convert_to_tensor(free, dtypes.int32, "free")
        matrix, dims = _as_matrix_by(x, ops.shape(x), axes, free, contracted_first)
        return matrix, dims, static
    counts = [_product(static), _product([sizes[i] for i in axes])]
    order = free + axes
    if contracted_first:
        order, counts = axes + free, counts[::-1]
    return ops.reshape(ops.transpose(x, order), counts), static, static


def _product(sizes: Any) -> int:
    return int(np.prod(sizes, dtype=np.int64))


def _as_matrix_of_unknown(x: Tensor, axes: Any, contracted_first: bool) -> tuple[Tensor, Any, Any]:
    shape = ops.shape(x)
    rank = ops.rank(x)
    axes = convert_to_tensor(axes, dtypes.int32, "axes")
    is_positive = ops.greater_equal(axes, 0)
    axes = ops.where(is_positive, axes, ops.add_v2(axes, rank, name="add"))
    free, _ = ops.setdiff1d(ops.range(rank), axes)
    matrix, dims = _as_matrix_by(x, shape, axes, free, contracted_first)
    return matrix, dims, None


def _as_matrix_by(x: Tensor, shape: Any, axes: Any, free: Any, contracted_first: bool) -> Any:
    free_dims = ops.gather(shape, free)
    contracted_dims = ops.gather(shape, axes)
    counts = [ops.reduce_prod(free_dims), ops.reduce_prod(contracted_dims)]
    parts = [free, axes]
    if contracted_first:
        counts, parts = counts[::-1], parts[::-1]
    order = ops.concat(parts, 0)
    counts = ops.stack(counts)
    return ops.reshape(ops.transpose(x, order), counts), free_dims


# Einstein's notation ---------------------------------------------------------------------------


@composed
@export("einsum", "linalg.einsum")
def einsum(equation: str, *inputs: Any, **kwargs: Any) -> Tensor:
    """Return the sum of products that `equation` describes: "ij,jk->ik" is a matrix product.

    One letter names one dimension; letters missing on the right are summed over. "..." stands for
    any dimensions that an input has beyond its letters.
    """
    name = kwargs.pop("name", None)
    if kwargs:
        raise TypeError(f"invalid keyword arguments for this function: {', '.join(sorted(kwargs))}")
    with name_scope(name, "einsum", [equation, *inputs]):
        terms, result = _parse(equation, len(inputs))
        operands = [convert_to_tensor(x) for x in inputs]
        terms, result = _without_ellipsis(terms, result, operands)
        is_square = len(terms) == 1 and len(terms[0]) == 2 and terms[0][0] == terms[0][1]
        if is_square and "->" not in equation:
            return ops.trace(operands[0])
        for term in terms:
            if len(set(term)) != len(term):
                raise ValueError(f"Subscript not supported: an axis appears more than once: {term}")
        found, labels = operands[0], terms[0]
        for i in range(1, len(terms)):
            needed = set(result).union(*terms[i + 1 :])
            found, labels = _multiply(found, labels, operands[i], terms[i], needed)
        found, labels = _sum_out(found, labels, set(result))
        order = [labels.index(label) for label in result]
        return _transposed(found, order)


def _parse(equation: str, count: int) -> tuple[list[str], str]:
    """Return the labels of each input and of the result."""
    text = equation.replace(" ", "")
    match = re.fullmatch(r"([a-zA-Z.,]*)(->[a-zA-Z.]*)?", text)
    if not match:
        raise ValueError(f"Indices have incorrect format: {equation}")
    terms = match[1].split(",")
    if len(terms) != count:
        raise ValueError(f'Got {count} arguments for equation "{equation}", expecting {len(terms)}')
    for term in terms:
        if term.replace("...", "", 1).count("."):
            raise ValueError(f"Indices have incorrect format: {equation}")
    if match[2] is not None:
        result = match[2][2:]
        if len(set(result) - {"."}) != len(result.replace("...", "", 1)) or (
            set(result) - {"."} - set("".join(terms))
        ):
            raise ValueError(f"Invalid equation: {equation}")
        return terms, result
    letters = "".join(terms).replace(".", "")
    once = "".join(sorted(label for label in set(letters) if letters.count(label) == 1))
    return terms, ("..." if "..." in match[1] else "") + once


def _without_ellipsis(
    terms: list[str], result: str, operands: list[Tensor]
) -> tuple[list[str], str]:
    """Replace every "..." by letters; operands share them, aligned at the last dimension."""
    spare = [c for c in string.ascii_letters if not any(c in t for t in terms)]
    widths = []
    for i, (term, operand) in enumerate(zip(terms, operands, strict=True)):
        if operand.shape.rank is None:
            raise ValueError("Cannot take the length of shape with unknown rank.")
        width = operand.shape.rank - len(term.replace("...", ""))
        if width < 0 or (width and "..." not in term):
            raise ValueError(
                f"Tensor t{i} of rank {operand.shape.rank} does not match einsum reduction of "
                f"length {len(term.replace('...', ''))}"
            )
        widths.append(width)
    letters = "".join(spare[: max(widths)])
    filled = [
        term.replace("...", letters[len(letters) - width :])
        for term, width in zip(terms, widths, strict=True)
    ]
    return filled, result.replace("...", letters)


def _sum_out(x: Tensor, labels: str, needed: set[str]) -> tuple[Tensor, str]:
    """Sum over the dimensions whose labels are not used any more."""
    axes = [i for i, label in enumerate(labels) if label not in needed]
    if not axes:
        return x, labels
    return ops.reduce_sum(x, axes), "".join(c for c in labels if c in needed)


def _multiply(
    x: Tensor, x_labels: str, y: Tensor, y_labels: str, needed: set[str]
) -> tuple[Tensor, str]:
    """Return the product of two operands, summed over their common labels that are not
    used later.
    """
    common = set(x_labels) & set(y_labels)
    # In alphabetical order, as in TensorFlow: the order decides which transposes are needed.
    summed, batch = sorted(common - needed), sorted(common & needed)
    x_free, y_free = sorted(set(x_labels) - common), sorted(set(y_labels) - common)
    labels = "".join([*batch, *x_free, *y_free])
    if not summed:
        x = _spread(x, x_labels, [*batch, *x_free], len(y_free), after=True)
        y = _spread(y, y_labels, [*batch, *y_free], len(x_free), after=False, at=len(batch))
        return ops.multiply(x, y), labels
    x = _transposed(x, [x_labels.index(c) for c in (*batch, *x_free, *summed)])
    y = _transposed(y, [y_labels.index(c) for c in (*batch, *summed, *y_free)])
    k, m = len(batch), len(x_free)
    x_sizes = _sizes(x)
    outer, inner = math.prod(x_sizes[k : k + m]), math.prod(x_sizes[k + m :])
    left = _reshaped(x, [*x_sizes[:k], outer, inner])
    y_sizes = _sizes(y)
    y_summed, y_free_sizes = y_sizes[k : k + len(summed)], y_sizes[k + len(summed) :]
    # If all sizes are known, use y's own, so that the product fails if they differ.
    known = all(isinstance(n, int) for n in (inner, *y_summed))
    depth = math.prod(y_summed) if known else inner
    right = _reshaped(y, [*y_sizes[:k], depth, math.prod(y_free_sizes)])
    product = ops.matmul(left, right)
    batch_sizes = [n if m == 1 else m for m, n in zip(x_sizes[:k], y_sizes[:k], strict=True)]
    return _reshaped(product, [*batch_sizes, *x_sizes[k : k + m], *y_free_sizes]), labels


def _spread(x: Tensor, labels: str, order: list[str], count: int, after: bool, at: int = 0) -> Any:
    """Transpose `x` and append `count` dimensions of size 1, or insert them before
    dimension `at`.
    """
    x = _transposed(x, [labels.index(c) for c in order])
    for _ in range(count):
        x = ops.expand_dims(x, -1 if after else at)
    return x


def _sizes(x: Tensor) -> list[Any]:
    """Return the size of every dimension: a number if it is known, else a tensor."""
    static = x.shape.as_list()
    if None not in static:
        return static
    shape = ops.shape(x)
    return [shape[i] if n is None else n for i, n in enumerate(static)]


def _transposed(x: Tensor, order: list[int]) -> Tensor:
    return x if order == sorted(order) else ops.transpose(x, order)


def _reshaped(x: Tensor, sizes: list[Any]) -> Tensor:
    return x if x.shape.as_list() == sizes else ops.reshape(x, sizes)
