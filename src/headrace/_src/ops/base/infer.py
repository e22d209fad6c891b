"""Shape rules that many ops share. In: an InferenceContext and the inputs' TensorShapes. Out: the
outputs' shapes.

A rule returns a TensorShape, a tuple of sizes or None (unknown) for one output, and a list of these
for several.
"""

from __future__ import annotations

from typing import Any

from headrace._src.core.tensor_shape import Sizes, TensorShape, broadcast
from headrace._src.graph.inference import InferenceContext

__all__ = [
    "broadcasting",
    "no_outputs",
    "reduced_sizes",
    "reduction",
    "resolve_axes",
    "same_as",
    "same_as_all",
    "scalar",
    "unknown",
    "with_rank",
    "with_rank_at_least",
]

SCALAR = TensorShape(())
UNKNOWN = TensorShape(None)


def same_as(index: int) -> Any:
    """The output has the shape of input `index`."""
    return lambda c, *shapes: shapes[index]


def same_as_all(c: InferenceContext, *shapes: TensorShape) -> TensorShape:
    """All inputs and the output have the same shape."""
    merged = shapes[0]
    for shape in shapes[1:]:
        merged = merged.merge_with(shape)
    return merged


def broadcasting(c: InferenceContext, *shapes: TensorShape) -> TensorShape:
    """The output has the shape that the inputs broadcast to."""
    result = shapes[0]
    for shape in shapes[1:]:
        try:
            result = broadcast(result, shape)
        except ValueError:
            raise ValueError(_unequal(result, shape)) from None
    return result


def _unequal(a: TensorShape, b: TensorShape) -> str:
    pairs = list(zip(reversed(a.sizes or ()), reversed(b.sizes or ()), strict=False))
    for m, n in reversed(pairs):  # report the outermost mismatch, as TensorFlow does
        if m is not None and n is not None and m != n and 1 not in (m, n):
            return f"Dimensions must be equal, but are {m} and {n}"
    return f"Shapes {a} and {b} can't be broadcast together"


def with_rank(shape: TensorShape, rank: int) -> TensorShape:
    """Return `shape`, which must have `rank` dimensions; unknown sizes if its rank is unknown."""
    if shape.sizes is None:
        return TensorShape.of((None,) * rank)
    if len(shape.sizes) != rank:
        raise ValueError(f"Shape must be rank {rank} but is rank {len(shape.sizes)}")
    return shape


def with_rank_at_least(shape: TensorShape, rank: int) -> TensorShape:
    """Return `shape`, which must have at least `rank` dimensions."""
    if shape.sizes is not None and len(shape.sizes) < rank:
        raise ValueError(f"Shape must be at least rank {rank} but is rank {len(shape.sizes)}")
    return shape


def scalar(c: InferenceContext, *shapes: TensorShape) -> TensorShape:
    """The output is a scalar."""
    return SCALAR


def unknown(c: InferenceContext, *shapes: TensorShape) -> Any:
    """The outputs' shapes are unknown."""
    count = len(c.op._outputs)
    return None if count == 1 else [None] * count


def no_outputs(c: InferenceContext, *shapes: TensorShape) -> list[TensorShape]:
    """There are no outputs."""
    return []


def resolve_axes(axes: list[int], rank: int) -> list[int]:
    """Return checked, non-negative axes; ValueError names the one that is out of range."""
    for axis in axes:
        if not -rank <= axis < rank:
            raise ValueError(
                f"Invalid reduction dimension {axis} for input with {rank} dimensions."
            )
    return [axis % rank for axis in axes] if rank else list(axes)


def reduced_sizes(sizes: Sizes, axes: list[int], keep: bool) -> Sizes:
    """Return the sizes without the reduced axes, or with 1 for each of them."""
    reduced = set(resolve_axes(axes, len(sizes)))
    if keep:
        return tuple(1 if i in reduced else n for i, n in enumerate(sizes))
    return tuple(n for i, n in enumerate(sizes) if i not in reduced)


def reduction(c: InferenceContext, x: TensorShape, axes_shape: TensorShape) -> Any:
    """Return the input's shape without (or with 1 for) the reduced axes, which are input 1."""
    axes_shape.with_rank_at_most(1)
    keep = c.attrs["keep_dims"]
    axes = c.value(1)
    if x.sizes is None:
        return None
    if axes is None:
        return (None,) * len(x.sizes) if keep else None
    return reduced_sizes(x.sizes, axes.ravel().tolist(), keep)
