"""Functions of images: other sizes, windows, borders, mirror images, normalisation."""

from __future__ import annotations

from typing import Any

from headrace._src.core.dtypes import float16, float32
from headrace._src.core.export import export
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.graph.inference import constant_value_as_shape
from headrace._src.graph.operation import Tensor
from headrace._src.ops.base.define import b, composed
from headrace._src.ops.base.to_tensor import convert_to_tensor, name_scope
from headrace._src.ops.control.assertions import assert_positive
from headrace._src.ops.control.cond import cond
from headrace._src.ops.control.grouping import Assert, with_dependencies
from headrace._src.ops.random.random_functions import random_uniform

__all__ = [
    "ResizeMethod",
    "central_crop",
    "crop_to_bounding_box",
    "flip_left_right",
    "flip_up_down",
    "pad_to_bounding_box",
    "per_image_standardization",
    "random_flip_left_right",
    "random_flip_up_down",
    "resize_image_with_crop_or_pad",
    "resize_images",
    "total_variation",
    "transpose_image",
]


@export("image.ResizeMethod")
class ResizeMethod:
    """How resize_images makes pixels."""

    BILINEAR = 0
    NEAREST_NEIGHBOR = 1
    BICUBIC = 2
    AREA = 3


def _checked(image: Tensor, ranks: tuple[int, ...]) -> Tensor:
    """Return an image or a batch of images whose sizes are positive, which a step checks if they
    aren't known.
    """
    sizes = image.shape.as_list() if image.shape.ndims is not None else None
    if sizes is None:
        raise ValueError("'image' must have a known number of dimensions.")
    if len(sizes) not in ranks:
        if ranks == (3,):
            raise ValueError(f"'image' (shape {image.shape}) must be three-dimensional.")
        raise ValueError(f"'image' (shape {image.shape}) must have either 3 or 4 dimensions.")
    if 0 in sizes[-3:]:
        raise ValueError(f"inner 3 dims of 'image.shape' must be > 0: {image.shape}")
    if None not in sizes[-3:]:
        return with_dependencies([], image)
    message = ["inner 3 dims of 'image.shape' must be > 0."]
    return with_dependencies([assert_positive(b.shape(image)[-3:], message)], image)


def _sizes(image: Tensor) -> list[Any]:
    """Return the sizes of a batch of images: numbers where they are known, tensors elsewhere."""
    sizes = image.shape.as_list()
    if None not in sizes:
        return sizes
    found = b.unstack(b.shape(image), len(sizes))
    return [found[i] if n is None else n for i, n in enumerate(sizes)]


def _as_batch(image: Tensor) -> tuple[Tensor, bool]:
    """Return a batch of four dimensions, and whether it was made of one image."""
    rank = image.shape.ndims
    if rank == 3:
        return b.expand_dims(image, 0), True
    if rank == 4:
        return image, False
    raise ValueError("'image' must have either 3 or 4 dimensions.")


def _assert(condition: Any, message: str) -> list[Any]:
    """Check at once, or return the operations that check in a step."""
    if isinstance(condition, Tensor):
        return [Assert(condition, [message])]
    if not condition:
        raise ValueError(message)
    return []


def _known(*values: Any) -> list[int | None]:
    return [None if isinstance(v, Tensor) else v for v in values]


# -- Sizes


@composed
@export("image.resize_images", "image.resize")
def resize_images(
    images: Any,
    size: Any,
    method: Any = ResizeMethod.BILINEAR,
    align_corners: bool = False,
    preserve_aspect_ratio: bool = False,
    name: str | None = None,
) -> Tensor:
    """Return an image or a batch of images in another size, [height, width].

    method: of tf.image.ResizeMethod. align_corners: whether the corner pixels stay where they are.
    preserve_aspect_ratio: whether the size is the largest with the images' proportions that fits.
    An image that has the size already is returned as it is; else the result is float32, unless
    pixels are taken from the nearest ones.
    """
    with name_scope(name, "resize", [images, size]):
        images = convert_to_tensor(images, name="images")
        if images.shape.ndims is None:
            raise ValueError("'images' contains no shape.")
        is_single = images.shape.ndims == 3
        if is_single:
            images = b.expand_dims(images, 0)
        elif images.shape.ndims != 4:
            raise ValueError("'images' must have either 3 or 4 dimensions.")
        height, width = images.shape.as_list()[1:3]
        try:
            size = convert_to_tensor(size, "int32", name="size")
        except (TypeError, ValueError):
            raise ValueError("'size' must be a 1-D int32 Tensor") from None
        if not size.shape.is_compatible_with([2]):
            raise ValueError("'size' must be a 1-D Tensor of 2 elements: new_height, new_width")
        if preserve_aspect_ratio:
            size = _proportional(images, size)
        wanted = constant_value_as_shape(size).as_list()
        if None not in wanted and wanted == [height, width]:
            return b.squeeze(images, axis=[0]) if is_single else images
        ways = {
            ResizeMethod.BILINEAR: b.resize_bilinear,
            ResizeMethod.NEAREST_NEIGHBOR: b.resize_nearest_neighbor,
            ResizeMethod.BICUBIC: b.resize_bicubic,
            ResizeMethod.AREA: b.resize_area,
        }
        if method not in ways:
            raise ValueError("Resize method is not implemented.")
        images = ways[method](images, size, align_corners=align_corners)
        images.set_shape(TensorShape([None, *wanted, None]))
        return b.squeeze(images, axis=[0]) if is_single else images


def _proportional(images: Tensor, size: Tensor) -> Tensor:
    """Return the largest size with the images' proportions that fits into `size`."""
    sizes = _sizes(images)
    height, width = (b.cast(n, float32) for n in sizes[1:3])
    scale = b.minimum(b.cast(size[0], float32) / height, b.cast(size[1], float32) / width)
    scaled = [b.cast(b.round(scale * n), "int32") for n in (height, width)]
    return b.stack(scaled)


# -- Windows and borders


@composed
@export("image.crop_to_bounding_box")
def crop_to_bounding_box(
    image: Any, offset_height: Any, offset_width: Any, target_height: Any, target_width: Any
) -> Tensor:
    """Return the window of an image, or of each of a batch, that begins at row offset_height and
    column offset_width.
    """
    with name_scope(None, "crop_to_bounding_box", [image]):
        image = convert_to_tensor(image, name="image")
        image, is_single = _as_batch(image)
        image = _checked(image, (4,))
        batch, height, width, depth = _sizes(image)
        checks = _assert(offset_width >= 0, "offset_width must be >= 0.")
        checks += _assert(offset_height >= 0, "offset_height must be >= 0.")
        checks += _assert(target_width > 0, "target_width must be > 0.")
        checks += _assert(target_height > 0, "target_height must be > 0.")
        checks += _assert(width >= target_width + offset_width, "width must be >= target + offset.")
        checks += _assert(
            height >= target_height + offset_height, "height must be >= target + offset."
        )
        image = with_dependencies(checks, image) if checks else image
        begin = b.stack([0, offset_height, offset_width, 0])
        cropped = b.slice(image, begin, b.stack([-1, target_height, target_width, -1]))
        cropped.set_shape(_known(batch, target_height, target_width, depth))
        return b.squeeze(cropped, axis=[0]) if is_single else cropped


@composed
@export("image.pad_to_bounding_box")
def pad_to_bounding_box(
    image: Any, offset_height: Any, offset_width: Any, target_height: Any, target_width: Any
) -> Tensor:
    """Return an image, or each of a batch, in a larger one of zeros, from row offset_height and
    column offset_width on.
    """
    with name_scope(None, "pad_to_bounding_box", [image]):
        image = convert_to_tensor(image, name="image")
        image, is_single = _as_batch(image)
        image = _checked(image, (4,))
        batch, height, width, depth = _sizes(image)
        right = target_width - offset_width - width
        below = target_height - offset_height - height
        checks = _assert(offset_height >= 0, "offset_height must be >= 0")
        checks += _assert(offset_width >= 0, "offset_width must be >= 0")
        checks += _assert(right >= 0, "width must be <= target - offset")
        checks += _assert(below >= 0, "height must be <= target - offset")
        image = with_dependencies(checks, image) if checks else image
        ends = b.stack([0, 0, offset_height, below, offset_width, right, 0, 0])
        padded = b.pad(image, b.reshape(ends, [4, 2]))
        padded.set_shape(_known(batch, target_height, target_width, depth))
        return b.squeeze(padded, axis=[0]) if is_single else padded


@composed
@export("image.resize_image_with_crop_or_pad", "image.resize_with_crop_or_pad")
def resize_image_with_crop_or_pad(image: Any, target_height: Any, target_width: Any) -> Tensor:
    """Return the middle of an image, or of each of a batch, in another size: cut where it is too
    large, with zeros around it where it is too small.
    """
    with name_scope(None, "resize_image_with_crop_or_pad", [image]):
        image = convert_to_tensor(image, name="image")
        image, is_single = _as_batch(image)
        image = _checked(image, (4,))
        checks = _assert(target_width > 0, "target_width must be > 0.")
        checks += _assert(target_height > 0, "target_height must be > 0.")
        image = with_dependencies(checks, image) if checks else image
        _, height, width, _ = _sizes(image)
        less_width, less_height = target_width - width, target_height - height
        cropped = crop_to_bounding_box(
            image,
            _largest(-less_height // 2, 0),
            _largest(-less_width // 2, 0),
            _least(target_height, height),
            _least(target_width, width),
        )
        padded = pad_to_bounding_box(
            cropped,
            _largest(less_height // 2, 0),
            _largest(less_width // 2, 0),
            target_height,
            target_width,
        )
        padded = with_dependencies([], padded)
        return b.squeeze(padded, axis=[0]) if is_single else padded


def _largest(x: Any, y: Any) -> Any:
    return b.maximum(x, y) if isinstance(x, Tensor) or isinstance(y, Tensor) else max(x, y)


def _least(x: Any, y: Any) -> Any:
    return b.minimum(x, y) if isinstance(x, Tensor) or isinstance(y, Tensor) else min(x, y)


@composed
@export("image.central_crop")
def central_crop(image: Any, central_fraction: float) -> Tensor:
    """Return the middle of an image, or of each of a batch: a part of its height and its width."""
    with name_scope(None, "central_crop", [image]):
        image = convert_to_tensor(image, name="image")
        if central_fraction <= 0.0 or central_fraction > 1.0:
            raise ValueError("central_fraction must be within (0, 1]")
        if central_fraction == 1.0:
            return image
        _checked(image, (3, 4))
        sizes = _sizes(image)
        height, width = sizes[-3:-1]
        top, left = (_margin(n, central_fraction) for n in (height, width))
        rows, columns = height - top * 2, width - left * 2
        more = [0] * (len(sizes) - 3)
        begin = b.stack([*more, top, left, 0])
        cropped = b.slice(image, begin, b.stack([*[-1] * len(more), rows, columns, -1]))
        cropped.set_shape(_known(*sizes[:-3], rows, columns, sizes[-1]))
        return cropped


def _margin(size: Any, fraction: float) -> Any:
    """Return half of what is cut off, rounded down."""
    if isinstance(size, Tensor):
        wide = b.cast(size, "float64")
        return b.cast((wide - wide * fraction) / 2, "int32")
    return int((size - size * fraction) / 2)


# -- Mirror images


def _flip(image: Any, axis: int, name: str) -> Tensor:
    with name_scope(None, name, [image]):
        image = _checked(convert_to_tensor(image, name="image"), (3, 4))
        return b.reverse(image, [axis + (image.shape.ndims == 4)])


@composed
@export("image.flip_left_right")
def flip_left_right(image: Any) -> Tensor:
    """Return an image, or each of a batch, with its columns in the reverse order."""
    return _flip(image, 1, "flip_left_right")


@composed
@export("image.flip_up_down")
def flip_up_down(image: Any) -> Tensor:
    """Return an image, or each of a batch, with its rows in the reverse order."""
    return _flip(image, 0, "flip_up_down")


def _random_flip(image: Any, axis: int, seed: Any, name: str) -> Tensor:
    with name_scope(None, name, [image]) as scope:
        image = _checked(convert_to_tensor(image, name="image"), (3, 4))
        if image.shape.ndims == 3:
            chance = random_uniform([], 0, 1.0, seed=seed)
            result = cond(
                b.less(chance, 0.5), lambda: b.reverse(image, [axis]), lambda: image, name=scope
            )
            result.set_shape(image.shape)
            return result
        count = b.shape(image)[0]
        chances = random_uniform([count], 0, 1.0, seed=seed)
        flips = b.round(b.reshape(chances, [count, 1, 1, 1]))
        flips = flips if image.dtype is float32 else b.cast(flips, image.dtype)
        flipped = b.reverse(image, [axis + 1])
        return flips * flipped + (1 - flips) * image


@export("image.random_flip_left_right")
def random_flip_left_right(image: Any, seed: Any = None) -> Tensor:
    """Return an image, or each of a batch, with its columns reversed or not, by chance."""
    return _random_flip(image, 1, seed, "random_flip_left_right")


@export("image.random_flip_up_down")
def random_flip_up_down(image: Any, seed: Any = None) -> Tensor:
    """Return an image, or each of a batch, with its rows reversed or not, by chance."""
    return _random_flip(image, 0, seed, "random_flip_up_down")


@composed
@export("image.transpose_image", "image.transpose")
def transpose_image(image: Any, name: str | None = None) -> Tensor:
    """Return an image, or each of a batch, with rows for columns."""
    with name_scope(name, "transpose", [image]):
        image = _checked(convert_to_tensor(image, name="image"), (3, 4))
        order = [1, 0, 2] if image.shape.ndims == 3 else [0, 2, 1, 3]
        return b.transpose(image, order)


# -- Values


@composed
@export("image.per_image_standardization")
def per_image_standardization(image: Any) -> Tensor:
    """Return an image, or each of a batch, with a mean of 0 and a variance of 1. The divisor is at
    least the inverse of the square root of the number of pixels, for images of one color.
    """
    with name_scope(None, "per_image_standardization", [image]) as scope:
        image = _checked(convert_to_tensor(image, name="image"), (3, 4))
        count = b.reduce_prod(b.shape(image)[-3:])
        if image.dtype not in (float16, float32):
            image = b.convert_image_dtype(image, float32)
        mean = b.reduce_mean(image, axis=[-1, -2, -3], keepdims=True)
        deviation = b.reduce_std(image, axis=[-1, -2, -3], keepdims=True)
        least = b.rsqrt(b.cast(count, image.dtype))
        divisor = b.maximum(deviation, least)
        result = b.divide(image - mean, divisor, name=scope)
        return b.convert_image_dtype(result, image.dtype, saturate=True)


@composed
@export("image.total_variation")
def total_variation(images: Any, name: str | None = None) -> Tensor:
    """Return the sum of the absolute differences of neighbouring pixels, of each image."""
    with name_scope(name, "total_variation"):
        images = convert_to_tensor(images)
        rank = images.shape.ndims
        if rank == 3:
            down = images[1:, :, :] - images[:-1, :, :]
            right = images[:, 1:, :] - images[:, :-1, :]
            axes = None
        elif rank == 4:
            down = images[:, 1:, :, :] - images[:, :-1, :, :]
            right = images[:, :, 1:, :] - images[:, :, :-1, :]
            axes = [1, 2, 3]
        else:
            raise ValueError("'images' must be either 3 or 4-dimensional.")
        return b.reduce_sum(b.abs(down), axis=axes) + b.reduce_sum(b.abs(right), axis=axes)
