"""Patches of images and volumes: every window's elements, side by side in the depth dimension."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from headrace._src.core.export import export
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.core.windows import Size, Window, taps
from headrace._src.devices.room import check_room, check_windows
from headrace._src.graph.definition import Kind, Sample
from headrace._src.graph.operation import Tensor
from headrace._src.ops.base.builder import OpBuilder
from headrace._src.ops.base.counted import counted
from headrace._src.ops.base.define import composed, define
from headrace._src.ops.base.renamed_arguments import renamed_argument
from headrace._src.ops.base.samples import r

__all__ = ["extract_image_patches", "extract_volume_patches"]

Given = TypeVar("Given", bound=Size)


def _axes(
    shape: Sequence[Given],
    ksizes: Sequence[int],
    strides: Sequence[int],
    rates: Sequence[int],
    padding: str,
) -> list[Window[Given]]:
    """Return the windows along the spatial dimensions."""
    rank = len(ksizes)
    if len(shape) != rank or len(strides) != rank or len(rates) != rank:
        raise ValueError(
            f"input, ksizes, strides and rates must have {rank} dimensions: got an input of "
            f"{len(shape)}, {list(ksizes)}, {list(strides)} and {list(rates)}"
        )
    for name, values in (("ksizes", ksizes), ("strides", strides), ("rates", rates)):
        if values[0] != 1 or values[-1] != 1:
            raise ValueError(f"{name} must be 1 for batch and depth, got {list(values)}")
    return [
        Window.of(shape[d], ksizes[d], strides[d], rates[d], padding) for d in range(1, rank - 1)
    ]


def _patches(
    x: np.ndarray,
    ksizes: Sequence[int],
    strides: Sequence[int],
    rates: Sequence[int],
    padding: str,
) -> np.ndarray:
    axes = _axes(x.shape, ksizes, strides, rates, padding)
    outs = tuple(axis.out for axis in axes)
    window = tuple(axis.taps for axis in axes)
    check_windows(window, x.shape[1:-1], "ksizes")
    check_room((len(x), *outs, *window, x.shape[-1]), x.dtype, "ksizes")
    result = np.zeros((len(x), *outs, *window, x.shape[-1]), x.dtype)
    for position, out, seen in taps(axes):
        result[:, *out, *position] = x[:, *seen]
    return result.reshape(len(x), *outs, int(np.prod(window)) * x.shape[-1])


def _patches_infer(c: Any, x: TensorShape) -> Any:
    ksizes = c.attrs["ksizes"]
    rates = c.attrs.get("rates", (1,) * len(ksizes))
    sizes = x.with_rank(len(ksizes)).as_list()
    if not c.settled and None in sizes[1:-1]:
        sizes[1:-1] = [None] * (len(sizes) - 2)  # TensorFlow infers all of them or none
    axes = _axes(sizes, ksizes, c.attrs["strides"], rates, c.attrs["padding"])
    depth = None if sizes[-1] is None else sizes[-1] * int(np.prod(ksizes))
    return (sizes[0], *(axis.out for axis in axes), depth)


@counted(lambda op, grad: 97 if "rates" in op._attrs else 57)
def _gradient(b: OpBuilder, op: Any, grad: Any) -> Any:
    """Sum, for each element, the gradients of its positions in the patches.

    The positions are found by extracting patches of the elements' numbers, counted from 1, so that
    padding has number 0.
    """
    x = op.inputs[0]
    shape = b.shape(x)
    count = b.reduce_prod(shape[1:-1])
    plane = b.concat([[1], shape[1:-1], [1]], 0)
    # float64 represents the numbers exactly, and works with every padding.
    numbers = b.reshape(b.cast(b.range(1, count + 1), "float64"), plane)
    options = {
        k: op.get_attr(k) for k in ("ksizes", "strides", "rates", "padding") if k in op._attrs
    }
    build = b.extract_image_patches_op if "rates" in options else b.extract_volume_patches
    places = b.reshape(b.cast(build(numbers, **options), "int32"), [-1])
    batch, depth = shape[0], shape[-1]
    per_place = b.reshape(grad, b.stack([batch, b.size(places), depth]))
    moved = b.transpose(per_place, [1, 0, 2])
    summed = b.unsorted_segment_sum(moved, places, count + 1)
    return b.reshape(b.transpose(summed[1:], [1, 0, 2]), shape)


def _image_patches(x, *, ksizes, strides, rates, padding):
    return _patches(x, ksizes, strides, rates, padding)


@define(
    "ExtractImagePatches",
    "images: T -> patches: T",
    "ksizes: list(int) >= 4; strides: list(int) >= 4; rates: list(int) >= 4; T: {reals}; "
    "padding: {'SAME'|'VALID'}",
    infer=_patches_infer,
    kernel=_image_patches,
    gradient=_gradient,
    kind=Kind.OTHER,
    samples=[
        Sample(
            r(2, 4, 5, 2),
            ksizes=[1, 2, 3, 1],
            strides=[1, 1, 2, 1],
            rates=[1, 1, 1, 1],
            padding="SAME",
        ),
        Sample(
            r(1, 6, 5, 1),
            ksizes=[1, 2, 2, 1],
            strides=[1, 2, 1, 1],
            rates=[1, 2, 3, 1],
            padding="VALID",
        ),
        Sample(
            r(0, 3, 3, 1),
            ksizes=[1, 2, 2, 1],
            strides=[1, 1, 1, 1],
            rates=[1, 1, 1, 1],
            padding="VALID",
        ),
    ],
)
def extract_image_patches_op(images, ksizes, strides, rates, padding, name=None):
    """Return each window's elements, side by side in the depth dimension."""


def _volume_patches(x, *, ksizes, strides, padding):
    return _patches(x, ksizes, strides, (1,) * len(ksizes), padding)


@export("extract_volume_patches")
@define(
    "ExtractVolumePatches",
    "input: T -> patches: T",
    "ksizes: list(int) >= 5; strides: list(int) >= 5; T: {reals}; padding: {'SAME'|'VALID'}",
    infer=_patches_infer,
    kernel=_volume_patches,
    gradient=_gradient,
    kind=Kind.OTHER,
    samples=[
        Sample(r(1, 3, 4, 2, 2), ksizes=[1, 2, 3, 1, 1], strides=[1, 1, 2, 1, 1], padding="SAME"),
        Sample(r(2, 3, 2, 2, 1), ksizes=[1, 2, 2, 2, 1], strides=[1, 1, 1, 1, 1], padding="VALID"),
    ],
)
def extract_volume_patches(input, ksizes, strides, padding, name=None):
    """Return each window's elements, side by side in the depth dimension."""


@composed
@export("extract_image_patches", "image.extract_image_patches")
def extract_image_patches(
    images: Any,
    ksizes: Any = None,
    strides: Any = None,
    rates: Any = None,
    padding: Any = None,
    name: str | None = None,
    sizes: Any = None,
) -> Tensor:
    """Return each window's elements, side by side in the depth dimension.

    images: [batch, height, width, depth]. ksizes: the window. strides: the distance between
    windows. rates: the dilation. Each has one number per dimension, 1 for batch and depth. padding:
    'SAME' or 'VALID'. sizes: another name of ksizes.
    """
    ksizes = renamed_argument("sizes", sizes, "ksizes", ksizes)
    return extract_image_patches_op(
        images, ksizes=ksizes, strides=strides, rates=rates, padding=padding, name=name
    )


@composed
@export("image.extract_patches")
def extract_patches(
    images: Any, sizes: Any, strides: Any, rates: Any, padding: str, name: str | None = None
) -> Tensor:
    """Return each window's elements, side by side in the depth dimension.

    images: [batch, height, width, depth]. sizes: the window. strides: the distance between windows.
    rates: the dilation. Each has one number per dimension, 1 for batch and depth. padding: 'SAME'
    or 'VALID'.
    """
    return extract_image_patches_op(
        images, ksizes=sizes, strides=strides, rates=rates, padding=padding, name=name
    )
