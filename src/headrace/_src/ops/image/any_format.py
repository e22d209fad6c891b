"""Image files of any format, and pixels of any type. In: contents, or pixels. Out: pixels."""

from __future__ import annotations

from typing import Any

from headrace._src.core.dtypes import as_dtype, uint8, uint16
from headrace._src.core.export import export
from headrace._src.graph.operation import Tensor
from headrace._src.graph.scoped import control_dependencies
from headrace._src.ops.base.define import b, composed
from headrace._src.ops.base.to_tensor import convert_to_tensor, name_scope
from headrace._src.ops.control.cond import cond
from headrace._src.ops.control.grouping import Assert
from headrace._src.ops.image.jpeg import MAGIC

__all__ = ["convert_image_dtype", "decode_image", "is_jpeg"]


@composed
@export("image.is_jpeg", "io.is_jpeg")
def is_jpeg(contents: Any, name: str | None = None) -> Tensor:
    """Return whether a string begins as JPEG files do."""
    with name_scope(name, "is_jpeg"):
        return b.equal(b.substr(contents, 0, 3), MAGIC, name=name)


def _is_png(contents: Any) -> Tensor:
    with name_scope(None, "is_png"):
        return b.equal(b.substr(contents, 0, 3), b"\x89PN")


@composed
@export("image.decode_image", "io.decode_image")
def decode_image(
    contents: Any,
    channels: int | None = None,
    dtype: Any = uint8,
    name: str | None = None,
    expand_animations: bool = True,
) -> Tensor:
    """Return the pixels of a BMP, GIF, JPEG or PNG file, converted as convert_image_dtype does.

    The result is [height, width, channels]; of a GIF file, it is [frames, height, width, 3], or
    the first frame if expand_animations is false.
    """
    with name_scope(name, "decode_image"):
        if channels not in (None, 0, 1, 3, 4):
            raise ValueError("channels must be in (None, 0, 1, 3, 4)")
        count = channels or 0
        beginning = b.substr(contents, 0, 3)

        def from_bmp() -> Tensor:
            is_bmp = b.equal(b.substr(contents, 0, 2), "BM", name="is_bmp")
            known = Assert(is_bmp, ["Unable to decode bytes as JPEG, PNG, GIF, or BMP"])
            allowed = b.not_equal(count, 1, name="check_channels")
            message = "Channels must be in (None, 0, 3) when decoding BMP images"
            with control_dependencies([known, Assert(allowed, [message])]):
                return convert_image_dtype(b.decode_bmp(contents), dtype)

        def from_gif() -> Tensor:
            allowed = b.logical_and(
                b.not_equal(count, 1, name="check_gif_channels"),
                b.not_equal(count, 4, name="check_gif_channels"),
            )
            message = "Channels must be in (None, 0, 3) when decoding GIF images"
            with control_dependencies([Assert(allowed, [message])]):
                frames = convert_image_dtype(b.decode_gif(contents), dtype)
                return frames if expand_animations else b.gather(frames, 0)

        def from_gif_or_bmp() -> Tensor:
            is_gif = b.equal(beginning, b"GIF", name="is_gif")
            return cond(is_gif, from_gif, from_bmp, name="cond_gif")

        def from_png() -> Tensor:
            stored = uint8 if as_dtype(dtype) is uint8 else uint16
            return convert_image_dtype(b.decode_png(contents, count, dtype=stored), dtype)

        def from_jpeg() -> Tensor:
            allowed = b.not_equal(count, 4, name="check_jpeg_channels")
            message = "Channels must be in (None, 0, 1, 3) when decoding JPEG images"
            with control_dependencies([Assert(allowed, [message])]):
                return convert_image_dtype(b.decode_jpeg(contents, count), dtype)

        def from_others() -> Tensor:
            return cond(_is_png(contents), from_png, from_gif_or_bmp, name="cond_png")

        return cond(is_jpeg(contents), from_jpeg, from_others, name="cond_jpeg")


@composed
@export("image.convert_image_dtype")
def convert_image_dtype(
    image: Any, dtype: Any, saturate: bool = False, name: str | None = None
) -> Tensor:
    """Return pixels of another type: floats from 0 to 1, integers from 0 to their largest.

    saturate: what doesn't fit becomes the nearest value; otherwise it wraps around.
    """
    image = convert_to_tensor(image, name="image")
    dtype = as_dtype(dtype)
    if not dtype.is_floating and not dtype.is_integer:
        raise AttributeError("dtype must be either floating point or integer")
    if dtype is image.dtype:
        return b.identity(image, name=name)
    cast = b.saturate_cast if saturate else b.cast
    with name_scope(name, "convert_image", [image]) as scope:
        if image.dtype.is_integer and dtype.is_integer:
            low, high = image.dtype.max, dtype.max
            if low > high:
                scaled = b.div(image, (low + 1) // (high + 1))
                return cast(scaled, dtype, name=scope)
            return b.multiply(cast(image, dtype), (high + 1) // (low + 1), name=scope)
        if image.dtype.is_floating and dtype.is_floating:
            return b.cast(image, dtype, name=scope)
        if image.dtype.is_integer:
            return b.multiply(b.cast(image, dtype), 1.0 / image.dtype.max, name=scope)
        # With a half more, a range that is scaled down and up again stays the same.
        return cast(b.multiply(image, dtype.max + 0.5), dtype, name=scope)
