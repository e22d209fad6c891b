"""Moving blocks between space, batch and depth: every op is a reshape, a transpose, a reshape."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from headrace._src.core import dtypes
from headrace._src.core.errors import UnimplementedError
from headrace._src.core.export import export
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.devices.room import check_room
from headrace._src.graph.definition import Precision, Sample
from headrace._src.graph.inference import constant_value
from headrace._src.graph.operation import Operation, Tensor
from headrace._src.lowering.rules import traced
from headrace._src.ops.array.filling import zero_array
from headrace._src.ops.base import infer, to_tensor
from headrace._src.ops.base.builder import OpBuilder
from headrace._src.ops.base.counted import counted
from headrace._src.ops.base.define import b, composed, define
from headrace._src.ops.base.renamed_arguments import renamed_argument
from headrace._src.ops.base.samples import r
from headrace._src.ops.base.to_tensor import convert_to_tensor, name_scope

__all__ = [
    "batch_to_space",
    "batch_to_space_nd",
    "depth_to_space",
    "required_space_to_batch_paddings",
    "space_to_batch",
    "space_to_batch_nd",
    "space_to_depth",
]

# -- Space and batch -------------------------------------------------------------------------------


def _blocks(block_shape: Any, edges: Any, rank: int) -> tuple[list[int], list[list[int]]]:
    """Return the checked block sizes and the amounts to add to, or cut off, the ends of
    each axis.
    """
    if np.ndim(block_shape) != 1:
        raise ValueError(f"block_shape must be a vector, not {np.asarray(block_shape).tolist()}")
    blocks, ends = np.asarray(block_shape).tolist(), np.asarray(edges).tolist()
    if np.shape(edges) != (len(blocks), 2):
        raise ValueError(f"paddings or crops should have shape [{len(blocks)}, 2], not {ends}")
    if rank < len(blocks) + 1:
        raise ValueError(f"input rank should be >= {len(blocks) + 1}, not {rank}")
    if any(n < 1 for n in blocks):
        raise ValueError(f"All values in block_shape must be positive, got {blocks}")
    if any(n < 0 for pair in ends for n in pair):
        raise ValueError(f"paddings and crops must not be negative, got {ends}")
    return blocks, ends


def _to_batch_size(n: Any, block: int, before: int, after: int) -> Any:
    if n is None:
        return None
    padded = n + before + after
    if padded % block:
        raise ValueError(f"padded size {padded} is not divisible by block_shape={block}")
    return padded // block


def _to_space_size(n: Any, block: int, before: int, after: int) -> Any:
    if n is None:
        return None
    if n * block < before + after:
        raise ValueError(f"cropped size {n * block} - {before} - {after} must be non-negative")
    return n * block - before - after


def _space_to_batch_size(batch: int | None, blocks: list[int]) -> int | None:
    return None if batch is None else batch * math.prod(blocks)


def _space_to_batch(x: np.ndarray, block_shape: Any, paddings: Any) -> np.ndarray:
    blocks, ends = _blocks(block_shape, paddings, np.ndim(x))
    space = x.shape[1 : len(blocks) + 1]
    sizes = [_to_batch_size(n, m, *pair) for n, m, pair in zip(space, blocks, ends)]
    if any(before or after for before, after in ends):
        whole = [n + before + after for n, (before, after) in zip(space, ends)]
        shape = (len(x), *whole, *x.shape[len(blocks) + 1 :])
        check_room(shape, x.dtype, "paddings")
        padded = zero_array(shape, x.dtype)
        inside = [slice(before, before + n) for n, (before, _) in zip(space, ends)]
        padded[(slice(None), *inside)] = x
        x = padded
    rest = x.shape[len(blocks) + 1 :]
    count = len(blocks)
    apart = x.reshape(len(x), *[k for pair in zip(sizes, blocks) for k in pair], *rest)
    order = [
        *range(2, 2 * count + 1, 2),
        0,
        *range(1, 2 * count + 1, 2),
        *range(2 * count + 1, apart.ndim),
    ]
    return apart.transpose(order).reshape(len(x) * math.prod(blocks), *sizes, *rest)


def _whole_batch(batch: int | None, blocks: list[int]) -> Any:
    if batch is None:
        return None
    if batch % math.prod(blocks):
        raise ValueError(
            f"Dimension size must be evenly divisible by {math.prod(blocks)} but is {batch}"
        )
    return batch // math.prod(blocks)


def _batch_to_space(x: np.ndarray, block_shape: Any, crops: Any) -> np.ndarray:
    blocks, ends = _blocks(block_shape, crops, np.ndim(x))
    count = len(blocks)
    batch = _whole_batch(len(x), blocks)
    space, rest = x.shape[1 : count + 1], x.shape[count + 1 :]
    sizes = [_to_space_size(n, m, *pair) for n, m, pair in zip(space, blocks, ends)]
    apart = x.reshape(*blocks, batch, *space, *rest)
    order = [
        count,
        *[axis for i in range(count) for axis in (count + 1 + i, i)],
        *range(2 * count + 1, apart.ndim),
    ]
    whole = [n * m for n, m in zip(space, blocks)]
    joined = apart.transpose(order).reshape(batch, *whole, *rest)
    inside = [slice(before, before + n) for n, (before, _) in zip(sizes, ends)]
    return joined[(slice(None), *inside)]


def _dealt_shape(
    x: TensorShape, count: int, blocks: Any, edges: Any, batch_size: Any, size: Any
) -> Any:
    """Return the shape after moving blocks of `count` axes to the batch, or from it.

    batch_size, size: functions from (the batch's size, blocks) and (an axis's size, its block and
    ends) to the new size. Sizes that depend on unknown blocks or ends are unknown; other axes stay.
    """
    infer.with_rank_at_least(x, count + 1)
    if blocks is not None and (blocks < 1).any():
        raise ValueError(f"block_shape must be positive, got {blocks.tolist()}")
    if edges is not None and (edges < 0).any():
        raise ValueError(f"paddings and crops must not be negative, got {edges.tolist()}")
    if x.sizes is None:
        return None
    batch: Any = None
    space: list[Any] = [None] * count
    if blocks is not None:
        batch = batch_size(x.sizes[0], blocks.tolist())
    if blocks is not None and edges is not None:
        axes = zip(x.sizes[1:], blocks.tolist(), edges.tolist())
        space = [size(n, block, *ends) for n, block, ends in axes]
    return (batch if count else x.sizes[0], *space, *x.sizes[count + 1 :])


def _nd_infer(batch_size: Any, size: Any) -> Any:
    def rule(c: Any, x: TensorShape, block_shape: TensorShape, edges: TensorShape) -> Any:
        if block_shape.rank != 1:
            raise ValueError("block_shape must have rank 1.")
        (count,) = block_shape.as_list()
        if count is None:
            raise ValueError("block_shape must have known size.")
        edges.merge_with((count, 2))
        return _dealt_shape(x, count, c.value(1), c.value(2), batch_size, size)

    return rule


@export("space_to_batch_nd", "manip.space_to_batch_nd")
@define(
    "SpaceToBatchND",
    "input: T, block_shape: Tblock_shape, paddings: Tpaddings -> output: T",
    "T: type; Tblock_shape: {index} = int32; Tpaddings: {index} = int32",
    infer=_nd_infer(_space_to_batch_size, _to_batch_size),
    kernel=_space_to_batch,
    gradient=lambda b, op, dy: (b.batch_to_space_nd(dy, op.inputs[1], op.inputs[2]), None, None),
    samples=[
        Sample(r(1, 4, 4, 1), [2, 2], [[0, 0], [0, 0]]),
        Sample(r(2, 3, 2), [2], [[1, 0]]),
        Sample(r(1, 2, 3), [2, 3], [[0, 0], [3, 0]]),
    ],
    precision=Precision.EITHER,
)
def space_to_batch_nd(input, block_shape, paddings, name=None):
    """Pad with zeros, then move the elements of blocks to the batch.

    block_shape: the block's size in each spatial dimension. paddings: [len(block_shape), 2], how
    much to pad before and after.
    """


@export("batch_to_space_nd", "manip.batch_to_space_nd")
@define(
    "BatchToSpaceND",
    "input: T, block_shape: Tblock_shape, crops: Tcrops -> output: T",
    "T: type; Tblock_shape: {index} = int32; Tcrops: {index} = int32",
    infer=_nd_infer(_whole_batch, _to_space_size),
    kernel=_batch_to_space,
    gradient=lambda b, op, dy: (b.space_to_batch_nd(dy, op.inputs[1], op.inputs[2]), None, None),
    samples=[
        Sample(r(4, 2, 2, 1), [2, 2], [[0, 0], [0, 1]]),
        Sample(r(4, 2, 2), [2], [[1, 0]]),
    ],
    precision=Precision.EITHER,
)
def batch_to_space_nd(input, block_shape, crops, name=None):
    """Assemble blocks from elements of the batch, then crop: the inverse of SpaceToBatchND.

    block_shape: the block's size in each spatial dimension. crops: [len(block_shape), 2], how much
    to cut off before and after.
    """


def _pair(block_size: int) -> np.ndarray:
    return np.array([block_size, block_size])


def _old_to_batch(x: np.ndarray, paddings: Any, *, block_size: int) -> np.ndarray:
    if np.ndim(x) != 4:
        raise ValueError(f"input rank should be 4, not {np.ndim(x)}")
    return _space_to_batch(x, _pair(block_size), paddings)


def _old_to_space(x: np.ndarray, crops: Any, *, block_size: int) -> np.ndarray:
    if np.ndim(x) != 4:
        raise ValueError(f"input rank should be 4, not {np.ndim(x)}")
    return _batch_to_space(x, _pair(block_size), crops)


def _old_infer(batch_size: Any, size: Any) -> Any:
    def rule(c: Any, x: TensorShape, edges: TensorShape) -> Any:
        edges.merge_with((2, 2))
        blocks = _pair(c.attrs["block_size"])
        return _dealt_shape(x.with_rank(4), 2, blocks, c.value(1), batch_size, size)

    return rule


@counted(2)
def _old_to_batch_gradient(b: OpBuilder, op: Operation, dy: Any) -> Any:
    return b.batch_to_space_old(dy, op.inputs[1], block_size=op._attrs["block_size"]), None


@counted(2)
def _old_to_space_gradient(b: OpBuilder, op: Operation, dy: Any) -> Any:
    return b.space_to_batch_old(dy, op.inputs[1], block_size=op._attrs["block_size"]), None


@define(
    "SpaceToBatch",
    "input: T, paddings: Tpaddings -> output: T",
    "T: type; Tpaddings: {index} = int32; block_size: int >= 2",
    infer=_old_infer(_space_to_batch_size, _to_batch_size),
    kernel=_old_to_batch,
    gradient=_old_to_batch_gradient,
    samples=[Sample(r(1, 3, 4, 2), [[1, 0], [0, 0]], block_size=2)],
)
def space_to_batch_old(input, paddings, block_size, name=None):
    """Move square blocks of images to the batch."""


@define(
    "BatchToSpace",
    "input: T, crops: Tidx -> output: T",
    "T: type; block_size: int >= 2; Tidx: {index} = int32",
    infer=_old_infer(_whole_batch, _to_space_size),
    kernel=_old_to_space,
    gradient=_old_to_space_gradient,
    samples=[Sample(r(4, 2, 2, 1), [[1, 0], [0, 0]], block_size=2)],
)
def batch_to_space_old(input, crops, block_size, name=None):
    """Assemble square blocks from images of the batch."""


@composed
@export("space_to_batch", "nn.space_to_batch")
def space_to_batch(
    input: Any,
    paddings: Any,
    block_size: Any = None,
    name: str | None = None,
    block_shape: Any = None,
) -> Tensor:
    """Pad images with zeros, then move square blocks to the batch."""
    block_size = _one_block(block_size, block_shape)
    result = space_to_batch_nd(input, paddings=paddings, block_shape=block_size, name=name)
    result.set_shape(result.shape.with_rank(4))
    return result


@composed
@export("batch_to_space")
def batch_to_space(
    input: Any,
    crops: Any,
    block_size: Any,
    name: str | None = None,
    block_shape: Any = None,
) -> Tensor:
    """Assemble square blocks from images of the batch, then crop."""
    block_size = _one_block(block_size, block_shape)
    result = batch_to_space_nd(input, crops=crops, block_shape=block_size, name=name)
    result.set_shape(result.shape.with_rank(4))
    return result


def _one_block(block_size: Any, block_shape: Any) -> np.ndarray:
    block_size = renamed_argument("block_shape", block_shape, "block_size", block_size)
    if block_size is None:
        raise ValueError("'block_size' must be given")
    return np.array([block_size, block_size], np.int32)


@composed
@export("required_space_to_batch_paddings")
def required_space_to_batch_paddings(
    input_shape: Any, block_shape: Any, base_paddings: Any = None, name: str | None = None
) -> tuple[Tensor, Tensor]:
    """Return paddings that make space divisible by blocks, and crops that undo the padding.

    base_paddings: [len(block_shape), 2], the paddings to apply at least.
    """
    with name_scope(name, "required_space_to_batch_paddings", [input_shape, block_shape]):
        input_shape = convert_to_tensor(input_shape, dtypes.int32, name="input_shape")
        block_shape = convert_to_tensor(block_shape, dtypes.int32, name="block_shape")
        block_shape.shape.assert_is_fully_defined()
        block_shape.shape.assert_has_rank(1)
        count = block_shape.shape.sizes[0]
        if not count:
            empty = b.zeros([0, 2], dtypes.int32)
            return empty, empty
        input_shape.shape.assert_is_compatible_with([count])
        if base_paddings is not None:
            base = convert_to_tensor(base_paddings, dtypes.int32, name="base_paddings")
            base.shape.assert_is_compatible_with([count, 2])
        else:
            base = b.zeros([count, 2], dtypes.int32)
        found = (constant_value(t) for t in (input_shape, block_shape, base))
        known = [value for value in found if value is not None]
        if len(known) == 3:
            return _static_paddings(*known)
        start, end = base[:, 0], base[:, 1]
        whole = b.add_v2(b.add_v2(input_shape, start, name="add"), end, name="add")
        missing = b.subtract(block_shape, b.floormod(whole, block_shape, name="mod"), name="sub")
        extra = b.floormod(missing, block_shape, name="mod")
        after = b.add_v2(end, extra, name="add")
        paddings = b.stack([[start[i], after[i]] for i in range(count)], name="paddings")
        crops = b.stack([[0, extra[i]] for i in range(count)], name="crops")
        return paddings, crops


def _static_paddings(
    sizes: np.ndarray, blocks: np.ndarray, base: np.ndarray
) -> tuple[Tensor, Tensor]:
    extra = -(sizes + base[:, 0] + base[:, 1]) % blocks
    paddings = np.stack([base[:, 0], base[:, 1] + extra], 1)
    crops = np.stack([np.zeros_like(extra), extra], 1)
    return to_tensor.constant(paddings, name="paddings"), to_tensor.constant(crops, name="crops")


# -- Space and depth -------------------------------------------------------------------------------


def _image_axes(data_format: str) -> tuple[int, int, int]:
    """Return the axes of height, width and depth."""
    if data_format == "NHWC":
        return 1, 2, 3
    if data_format == "NCHW":
        return 2, 3, 1
    raise UnimplementedError(None, None, f"{data_format} is a layout for GPUs; use NHWC or NCHW")


def _to_depth_infer(c: Any, x: TensorShape) -> Any:
    if c.attrs["data_format"] == "NCHW_VECT_C":
        return (None,) * 5
    sizes = x.with_rank(4).as_list()
    block = c.attrs["block_size"]
    high, wide, deep = _image_axes(c.attrs["data_format"])
    for axis in (high, wide):
        size = sizes[axis]
        sizes[axis] = None if size is None else _divided(size, block)
    depth = sizes[deep]
    sizes[deep] = None if depth is None else depth * block * block
    return tuple(sizes)


def _divided(size: int, by: int) -> int:
    if size % by:
        raise ValueError(f"Dimension size must be evenly divisible by {by} but is {size}")
    return size // by


def _pixels_in_depth(x: np.ndarray, *, block_size: int, data_format: str) -> np.ndarray:
    """View the input as [batch, height, width, block, block, depth] (or in NCHW's order)."""
    high, wide, deep = _image_axes(data_format)
    if np.ndim(x) != 4:
        raise ValueError(f"Input rank should be 4 instead of {np.ndim(x)}")
    n, h, w, d = (x.shape[axis] for axis in (0, high, wide, deep))
    h, w = _divided(h, block_size), _divided(w, block_size)
    k = block_size
    if data_format == "NHWC":
        return x.reshape(n, h, k, w, k, d).transpose(0, 1, 3, 2, 4, 5)
    return x.reshape(n, d, h, k, w, k).transpose(0, 3, 5, 1, 2, 4)


def _to_depth_kernel(x: np.ndarray, *, block_size: int, data_format: str) -> np.ndarray:
    seen = _pixels_in_depth(x, block_size=block_size, data_format=data_format)
    if data_format == "NHWC":
        return seen.reshape(*seen.shape[:3], math.prod(seen.shape[3:]))
    return seen.reshape(len(x), math.prod(seen.shape[1:4]), *seen.shape[4:])


def _to_depth_gradient(b: OpBuilder, op: Operation, dy: Any) -> Any:
    return b.depth_to_space(dy, op._attrs["block_size"], data_format=op._attrs["data_format"])


_DEPTH_ATTRS = "T: type; block_size: int >= 2; data_format: {'NHWC'|'NCHW'|'NCHW_VECT_C'} = 'NHWC'"


@define(
    "SpaceToDepth",
    "input: T -> output: T",
    _DEPTH_ATTRS,
    infer=_to_depth_infer,
    kernel=_to_depth_kernel,
    gradient=_to_depth_gradient,
    samples=[
        Sample(r(1, 4, 2, 3), block_size=2),
        Sample(r(1, 3, 4, 2), block_size=2, data_format="NCHW"),
    ],
    lower=traced(_pixels_in_depth),
    precision=Precision.EITHER,
)
def space_to_depth_op(input, block_size, data_format=None, name=None):
    """Move square blocks of pixels into the channels."""


@composed
@export("space_to_depth", "nn.space_to_depth")
def space_to_depth(
    input: Any, block_size: int, name: str | None = None, data_format: str = "NHWC"
) -> Tensor:
    """Move square blocks of pixels into the channels.

    block_size: the side of a block. data_format: 'NHWC' or 'NCHW'.
    """
    return space_to_depth_op(input, block_size=block_size, data_format=data_format, name=name)


def _to_space_infer(c: Any, x: TensorShape) -> Any:
    if c.attrs["data_format"] == "NCHW_VECT_C":
        return (None,) * 5
    sizes = x.with_rank(4).as_list()
    block = c.attrs["block_size"]
    high, wide, deep = _image_axes(c.attrs["data_format"])
    for axis in (high, wide):
        size = sizes[axis]
        sizes[axis] = None if size is None else size * block
    depth = sizes[deep]
    sizes[deep] = None if depth is None else _divided(depth, block * block)
    return tuple(sizes)


def _depth_in_pixels(x: np.ndarray, *, block_size: int, data_format: str) -> np.ndarray:
    """View the input as [batch, height, block, width, block, depth] (or in NCHW's order)."""
    high, wide, deep = _image_axes(data_format)
    if np.ndim(x) != 4:
        raise ValueError(f"Input rank should be 4 instead of {np.ndim(x)}")
    n, h, w, d = (x.shape[axis] for axis in (0, high, wide, deep))
    k = block_size
    d = _divided(d, k * k)
    if data_format == "NHWC":
        return x.reshape(n, h, w, k, k, d).transpose(0, 1, 3, 2, 4, 5)
    return x.reshape(n, k, k, d, h, w).transpose(0, 3, 4, 1, 5, 2)


def _to_space_kernel(x: np.ndarray, *, block_size: int, data_format: str) -> np.ndarray:
    seen = _depth_in_pixels(x, block_size=block_size, data_format=data_format)
    first = 1 if data_format == "NHWC" else 2
    h, k, w, _ = seen.shape[first : first + 4]
    return seen.reshape(*seen.shape[:first], h * k, w * k, *seen.shape[first + 4 :])


def _to_space_gradient(b: OpBuilder, op: Operation, dy: Any) -> Any:
    return b.space_to_depth(dy, op._attrs["block_size"], data_format=op._attrs["data_format"])


@define(
    "DepthToSpace",
    "input: T -> output: T",
    _DEPTH_ATTRS,
    infer=_to_space_infer,
    kernel=_to_space_kernel,
    gradient=_to_space_gradient,
    samples=[
        Sample(r(1, 2, 1, 8), block_size=2),
        Sample(r(1, 8, 2, 1), block_size=2, data_format="NCHW"),
    ],
    lower=traced(_depth_in_pixels),
    precision=Precision.EITHER,
)
def depth_to_space_op(input, block_size, data_format=None, name=None):
    """Move channels into square blocks of pixels."""


@composed
@export("depth_to_space", "nn.depth_to_space")
def depth_to_space(
    input: Any, block_size: int, name: str | None = None, data_format: str = "NHWC"
) -> Tensor:
    """Move channels into square blocks of pixels.

    block_size: the side of a block. data_format: 'NHWC' or 'NCHW'.
    """
    return depth_to_space_op(input, block_size=block_size, data_format=data_format, name=name)
