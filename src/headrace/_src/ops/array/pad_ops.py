"""Padding: with a constant, or with a mirror image."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from headrace._src.core.export import export
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.devices.room import check_room
from headrace._src.graph.definition import Precision, Sample
from headrace._src.graph.inference import constant_value, partial_value
from headrace._src.graph.operation import Operation, Tensor
from headrace._src.lowering.row_anchors import Cut
from headrace._src.lowering.rules import Anchor, Join, Site, View, row_major
from headrace._src.ops.array.filling import zero_array
from headrace._src.ops.base import infer
from headrace._src.ops.base.builder import OpBuilder
from headrace._src.ops.base.counted import counted
from headrace._src.ops.base.define import composed, define
from headrace._src.ops.base.samples import r
from headrace._src.ops.base.simplify_rules import equals_input_if_same_size
from headrace._src.ops.math.sum_precision import widened

__all__ = ["pad"]


def _pad_infer(c: Any, x: TensorShape, paddings: TensorShape, *rest: TensorShape) -> Any:
    rank, width = paddings.with_rank(2).as_list()
    if width not in (2, None):
        raise ValueError(f"Dimension must be 2 but is {width}")
    if x.sizes is not None and rank is not None and rank != len(x.sizes):
        raise ValueError(f"Shape must be rank {rank} but is rank {len(x.sizes)}")
    amounts = c.value(1)
    if x.sizes is None:
        return None if rank is None else (None,) * rank
    if amounts is None:
        shared = _shared(c.op._inputs[1]) if c.settled else None
        added = shared or [None] * len(x.sizes)
    else:
        added = _checked(amounts, len(x.sizes)).sum(1).tolist()
    pairs = zip(x.sizes, added, strict=True)
    return tuple(None if n is None or k is None else n + k for n, k in pairs)


def _shared(paddings: Any) -> list[int | None] | None:
    """Return how much is added to each axis in total, if that is known even though the position
    isn't: `after` is a total minus `before`, as in gradients of slices.
    """
    if paddings.op.type != "Pack" or paddings.op._attrs["axis"] != 1:
        return None
    before, *after = paddings.op._inputs
    if len(after) != 1 or after[0].op.type != "Sub" or after[0].op._inputs[1] is not before:
        return None
    total = partial_value(after[0].op._inputs[0])
    return None if total is None or total.ndim != 1 else total.tolist()


def _checked(paddings: np.ndarray, rank: int) -> np.ndarray:
    if np.shape(paddings) != (rank, 2):
        raise ValueError(
            f"paddings must be a matrix with 2 columns and a row per dimension of the input "
            f"({rank}), not of shape {list(np.shape(paddings))}"
        )
    if paddings.size and paddings.min() < 0:
        before, after = next(pair for pair in paddings.tolist() if min(pair) < 0)
        raise ValueError(f"Paddings must be non-negative: {before} {after}")
    return paddings


def _pad_kernel(x: np.ndarray, paddings: np.ndarray, value: Any = None) -> np.ndarray:
    amounts = _checked(paddings, np.ndim(x)).tolist()
    shape = [n + before + after for n, (before, after) in zip(np.shape(x), amounts, strict=True)]
    check_room(shape, x.dtype, "paddings")
    if value is None:
        result = zero_array(shape, x.dtype)
    else:
        if np.ndim(value):
            raise ValueError(f"constant_values must be a scalar, not {np.shape(value)}")
        result = np.full(shape, value, x.dtype)
    inside = [
        slice(before, before + n) for n, (before, _) in zip(np.shape(x), amounts, strict=True)
    ]
    result[(*inside, ...)] = x
    return result


@counted(9)
def _pad_gradient(b: OpBuilder, op: Operation, dy: Any) -> Any:
    x, paddings, *value = op.inputs
    begin = paddings[:, 0]
    dx = b.slice(dy, begin, b.shape(x, out_type=begin.dtype))
    around = [b.subtract(b.reduce_sum(dy), b.reduce_sum(dx)) for _ in value]
    return (dx, None, *around)


def _pad_pieces(site: Site) -> list[View | None] | None:
    paddings = site.constant_input(1)
    if paddings is None:
        return None
    strides = row_major(site.output_shapes[0])
    before = sum(int(n) * s for n, s in zip(paddings[:, 0], strides, strict=True))
    others = [None] * (len(site.input_shapes) - 1)
    return [View(site.input_shapes[0], strides, before), *others]


def _pad_cut(site: Site) -> Cut:
    """Surround a piece with zeros; the step computes its position."""
    sizes, shape = site.input_shapes[0], site.output_shapes[0]
    strides = row_major(shape)
    moves = [
        (2 * k, whole - size + 1, stride)
        for k, (whole, size, stride) in enumerate(zip(shape, sizes, strides, strict=True))
    ]
    types = site.output_dtypes[0], site.input_dtypes[1]
    return Cut(View(sizes, strides), tuple(moves), *types, into=prod(shape))


def _pad_value(site: Site) -> Any:
    value = site.constant_input(2)
    return None if value is None else value.item()


@define(
    "Pad",
    "input: T, paddings: Tpaddings -> output: T",
    "T: type; Tpaddings: {index} = int32",
    infer=_pad_infer,
    kernel=_pad_kernel,
    fresh=True,
    gradient=_pad_gradient,
    samples=[
        Sample(r(2, 3), [[1, 0], [2, 1]]),
        Sample(r(0), [[1, 1]]),
        Sample(r(), np.zeros((0, 2))),
    ],
    lower=Join(_pad_pieces, fill=lambda site: 0, otherwise=Anchor("cut", _pad_cut)),
    simplify=equals_input_if_same_size,
    precision=Precision.EITHER,
)
def pad_op(input, paddings, name=None):
    """Surround a tensor with zeros."""


@define(
    "PadV2",
    "input: T, paddings: Tpaddings, constant_values: T -> output: T",
    "T: type; Tpaddings: {index} = int32",
    infer=_pad_infer,
    kernel=_pad_kernel,
    fresh=True,
    gradient=_pad_gradient,
    samples=[
        Sample(r(2, 3), [[1, 0], [2, 1]], r()),
        Sample(r(0), [[1, 1]], r()),
        Sample(r(2), [[1, 2]], 1.5, T="float64"),
    ],
    lower=Join(_pad_pieces, fill=_pad_value),
    simplify=equals_input_if_same_size,
    precision=Precision.EITHER,
)
def pad_v2(input, paddings, constant_values, name=None):
    """Surround a tensor with a constant."""


def _mirror_index(size: int, before: int, after: int, mode: str) -> np.ndarray:
    """Return the index in an axis of each padded element; REFLECT doesn't repeat the edge."""
    edge = 1 if mode == "REFLECT" else 0
    if max(before, after) > size - edge:
        less = "less" if edge else "no greater"
        raise ValueError(
            f"paddings must be {less} than the dimension size: {before}, {after} not {less} than "
            f"{size}"
        )
    return np.concatenate(
        [
            np.arange(before - 1 + edge, edge - 1, -1),
            np.arange(size),
            np.arange(size - 1 - edge, size - 1 - edge - after, -1),
        ]
    )


def _mirror_kernel(x: np.ndarray, paddings: np.ndarray, *, mode: str) -> np.ndarray:
    for axis, (before, after) in enumerate(_checked(paddings, np.ndim(x)).tolist()):
        index = _mirror_index(x.shape[axis], before, after, mode)
        if before or after:
            x = x.take(index, axis)
    return x


def _mirror_gradient(b: OpBuilder, op: Operation, dy: Any) -> Any:
    return b.mirror_pad_grad(dy, op.inputs[1], mode=op._attrs["mode"]), None


@define(
    "MirrorPad",
    "input: T, paddings: Tpaddings -> output: T",
    "T: type; Tpaddings: {index} = int32; mode: {'REFLECT'|'SYMMETRIC'}",
    infer=_pad_infer,
    kernel=_mirror_kernel,
    gradient=_mirror_gradient,
    samples=[
        Sample(r(2, 3), [[1, 0], [2, 1]], mode="REFLECT"),
        Sample(r(2, 3), [[2, 1], [3, 0]], mode="SYMMETRIC"),
    ],
    simplify=equals_input_if_same_size,
    precision=Precision.EITHER,
)
def mirror_pad(input, paddings, mode, name=None):
    """Surround a tensor with its mirror image."""


def _mirror_grad_infer(c: Any, y: TensorShape, paddings: TensorShape) -> Any:
    amounts, (rank, _) = c.value(1), paddings.merge_with((None, 2)).as_list()
    if rank is None:
        return None
    y = infer.with_rank(y, rank)
    if amounts is None:
        return (None,) * rank
    taken = _checked(amounts, rank).sum(1).tolist()
    for n, k in zip(y.as_list(), taken, strict=True):
        if n is not None and n < k:
            raise ValueError(f"Negative dimension size caused by subtracting {k} from {n}")
    return tuple(None if n is None else n - k for n, k in zip(y.as_list(), taken, strict=True))


def _mirror_grad_kernel(y: np.ndarray, paddings: np.ndarray, *, mode: str) -> np.ndarray:
    edge = 1 if mode == "REFLECT" else 0
    dtype = y.dtype
    y = widened(y)
    for axis, (before, after) in enumerate(_checked(paddings, np.ndim(y)).tolist()):
        size = y.shape[axis] - before - after
        _mirror_index(size, before, after, mode)  # to check the amounts
        if not (before or after):
            continue
        y = y.swapaxes(0, axis)
        inside = np.array(y[before : before + size])
        inside[edge : edge + before] += y[:before][::-1]
        inside[size - edge - after : size - edge] += y[before + size :][::-1]
        y = inside.swapaxes(0, axis)
    return y.astype(dtype, copy=False)


def _mirror_grad_gradient(b: OpBuilder, op: Operation, dx: Any) -> Any:
    return b.mirror_pad(dx, op.inputs[1], mode=op._attrs["mode"]), None


@define(
    "MirrorPadGrad",
    "input: T, paddings: Tpaddings -> output: T",
    "T: type; Tpaddings: {index} = int32; mode: {'REFLECT'|'SYMMETRIC'}",
    infer=_mirror_grad_infer,
    kernel=_mirror_grad_kernel,
    gradient=_mirror_grad_gradient,
    samples=[
        Sample(r(3, 6), [[1, 0], [2, 1]], mode="REFLECT", T="float64"),
        Sample(r(5, 6), [[2, 1], [3, 0]], mode="SYMMETRIC", T="float32"),
    ],
)
def mirror_pad_grad(input, paddings, mode, name=None):
    """Add each mirrored element to its original; the gradient of MirrorPad."""


@composed
@export("pad")
def pad(
    tensor: Any,
    paddings: Any,
    mode: str = "CONSTANT",
    name: str | None = None,
    constant_values: Any = 0,
) -> Tensor:
    """Surround a tensor: `paddings[i]` is how much to add before and after along axis i.

    mode: CONSTANT pads with `constant_values`; REFLECT mirrors without the edge, SYMMETRIC with it.
    """
    kind = mode.upper()
    if kind == "CONSTANT":
        is_zero = not hasattr(constant_values, "graph") and np.all(np.asarray(constant_values) == 0)
        if is_zero:
            result = pad_op(tensor, paddings, name=name)
        else:
            result = pad_v2(tensor, paddings, constant_values, name=name)
    elif kind in ("REFLECT", "SYMMETRIC"):
        result = mirror_pad(tensor, paddings, mode=kind, name=name)
    else:
        raise ValueError(f"Unknown padding mode: {mode}")
    known, sizes = _known_paddings(paddings), result.op.inputs[0].shape.sizes
    if known is not None and sizes is not None and not result.shape.is_fully_defined():
        result.set_shape([_padded(*pair) for pair in zip(sizes, known, strict=False)])
    return result


def _known_paddings(paddings: Any) -> Any:
    """Return what is known of paddings: None for a tensor, row or amount that isn't known."""
    if isinstance(paddings, Tensor):
        return constant_value(paddings, partial=True)
    if isinstance(paddings, list | tuple):
        return [_known_paddings(p) for p in paddings]
    return paddings


def _padded(size: int | None, amounts: Any) -> int | None:
    if size is None or amounts is None or any(amount is None for amount in amounts):
        return None
    return size + sum(int(amount) for amount in amounts)
