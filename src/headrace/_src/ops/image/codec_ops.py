"""Image files in a step. In: the contents of a file, or pixels. Out: pixels, or a file's contents.

DecodeJpeg, DecodePng and DecodeGif decode each other's formats too, as in TensorFlow.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace._src.core.dtypes import as_dtype, int32, uint8
from headrace._src.core.export import export
from headrace._src.core.tensor_shape import show_shape
from headrace._src.graph.definition import Sample
from headrace._src.ops.base import infer
from headrace._src.ops.base.define import define
from headrace._src.ops.image import bmp, gif, jpeg, png
from headrace._src.ops.image.jpeg import Decoding
from headrace._src.ops.strings.string_arrays import attr_bytes, string_array

__all__ = [
    "decode_and_crop_jpeg",
    "decode_bmp",
    "decode_gif",
    "decode_jpeg",
    "decode_png",
    "encode_jpeg",
    "encode_jpeg_variable_quality",
    "encode_png",
    "extract_jpeg_shape",
]

_PLAIN = Decoding()
_RATIOS = (1, 2, 4, 8)
_DCT_METHODS = (b"", b"INTEGER_FAST", b"INTEGER_ACCURATE")


def _image(height: int, width: int, channels: int, dtype: Any = np.uint8) -> np.ndarray:
    """Return pixels for samples."""
    count = height * width * channels
    return (np.arange(count) * 37 % 251).astype(dtype).reshape(height, width, channels)


# -- Decoding


def _contents(value: Any) -> bytes:
    found = string_array(value)
    if found.ndim:
        raise ValueError(f"contents must be scalar, got shape {show_shape(found.shape)}")
    return found.item()


def _check_channels(channels: int) -> None:
    if channels not in (0, 1, 3, 4):
        raise ValueError(f"channels must be 0, 1, 3, or 4, got {channels}")


def _beginning(data: bytes) -> str:
    if not data:
        return "empty file"
    text = data[:16].decode("ascii", "replace")
    shown = (c if c.isprintable() and c != "\ufffd" else f"\\{o:03o}" for c, o in zip(text, data))
    return f"unknown format starting with '{''.join(shown)}'"


def _decoded(
    data: bytes,
    channels: int,
    dtype: Any = np.uint8,
    how: Decoding = _PLAIN,
    window: tuple[int, int, int, int] | None = None,
) -> np.ndarray:
    """Return the pixels of a JPEG or PNG file as [height, width, channels], and those of a GIF file
    as [frames, height, width, 3].
    """
    if data.startswith(jpeg.MAGIC):
        if channels == 4:
            raise ValueError("channels must be 0, 1, or 3 for JPEG, got 4")
        if dtype == np.uint16:
            raise ValueError("a JPEG file has no 16 bits: dtype must be uint8")
        try:
            return jpeg.decode_jpeg(data, channels, how, window)
        except ValueError as error:
            raise ValueError(
                f"Invalid JPEG data or crop window, data size {len(data)} ({error})"
            ) from None
    if data.startswith(png.MAGIC):
        try:
            return png.decode_png(data, channels, np.dtype(dtype))
        except png.DamagedPng as error:
            raise ValueError(f"Invalid PNG data, size {len(data)} ({error})") from None
    if data.startswith(gif.MAGICS):
        if channels not in (0, 3):
            raise ValueError(f"channels must be 0 or 3 for GIF, got {channels}")
        if dtype == np.uint16:
            raise ValueError("a GIF file has no 16 bits: dtype must be uint8")
        try:
            return gif.decode_gif(data)
        except gif.DamagedGif as error:
            raise ValueError(f"Invalid GIF data (size {len(data)}), {error}") from None
    raise ValueError(f"Expected image (JPEG, PNG, or GIF), got {_beginning(data)}")


def _one_frame(pixels: np.ndarray) -> np.ndarray:
    if pixels.ndim == 3:
        return pixels
    if len(pixels) > 1:
        raise ValueError(
            f"Got {len(pixels)} frames, but animated gifs can only be decoded by "
            "tf.image.decode_gif or tf.image.decode_image"
        )
    return pixels[0]


def _decode_jpeg_kernel(
    contents,
    *,
    channels,
    ratio,
    fancy_upscaling,
    try_recover_truncated,
    acceptable_fraction,
    dct_method,
):
    return _cropped(
        contents,
        None,
        channels,
        Decoding(
            ratio,
            fancy_upscaling,
            try_recover_truncated,
            acceptable_fraction,
            attr_bytes(dct_method),
        ),
    )


def _decode_and_crop_kernel(
    contents,
    crop_window,
    *,
    channels,
    ratio,
    fancy_upscaling,
    try_recover_truncated,
    acceptable_fraction,
    dct_method,
):
    if np.shape(crop_window) != (4,):
        raise ValueError(f"crop_window must be [4], got shape {show_shape(np.shape(crop_window))}")
    top, left, height, width = np.asarray(crop_window).tolist()
    return _cropped(
        contents,
        (top, left, height, width),
        channels,
        Decoding(
            ratio,
            fancy_upscaling,
            try_recover_truncated,
            acceptable_fraction,
            attr_bytes(dct_method),
        ),
    )


def _cropped(contents: Any, window: Any, channels: int, how: Decoding) -> np.ndarray:
    _check_channels(channels)
    if how.ratio not in _RATIOS:
        raise ValueError(f"ratio must be 1, 2, 4, or 8, got {how.ratio}")
    if how.dct_method not in _DCT_METHODS:
        raise ValueError("dct_method must be one of {'', 'INTEGER_FAST', 'INTEGER_ACCURATE'}")
    return _one_frame(_decoded(_contents(contents), channels, np.uint8, how, window))


def _decode_png_kernel(contents, *, channels, dtype):
    _check_channels(channels)
    return _one_frame(_decoded(_contents(contents), channels, as_dtype(dtype).as_numpy_dtype))


def _decode_gif_kernel(contents):
    pixels = _decoded(_contents(contents), 3)
    return pixels if pixels.ndim == 4 else pixels[None]


def _decode_bmp_kernel(contents, *, channels):
    if channels not in (0, 1, 3, 4):
        raise ValueError(f"channels must be 0, 1, 3 or 4, got {channels}")
    return bmp.decode_bmp(_contents(contents), channels)


def _decode_infer(c: Any, contents: Any, *rest: Any) -> Any:
    infer.with_rank(contents, 0)
    channels = c.attrs["channels"]
    if channels < 0:
        raise ValueError(f"channels must be non-negative, got {channels}")
    sizes: tuple[Any, Any] = (None, None)
    if rest:
        (window,) = rest
        infer.with_rank(window, 1).merge_with((4,))
        found = c.ints(1)
        if found is not None:
            sizes = tuple(found[2:])
    return (*sizes, channels or None)


def _gif_infer(c: Any, contents: Any) -> Any:
    infer.with_rank(contents, 0)
    return None, None, None, 3


def _jpeg_samples() -> list[Sample]:
    gray, color = (jpeg.encode_jpeg(_image(9, 7, n)) for n in (1, 3))
    return [
        Sample(gray),
        Sample(color),
        Sample(color, channels=1, dct_method="INTEGER_ACCURATE"),
        Sample(gray, channels=3, ratio=2),
        Sample(color, fancy_upscaling=False),
        Sample(color[:-20], acceptable_fraction=0.0),
        Sample(color[:-20], try_recover_truncated=True),
        Sample(png.encode_png(_image(2, 3, 4)), channels=4),
    ]


def _crop_samples() -> list[Sample]:
    color = jpeg.encode_jpeg(_image(9, 7, 3))
    return [Sample(color, [1, 2, 3, 4]), Sample(color, [0, 0, 2, 1], channels=1, ratio=4)]


_JPEG_ATTRIBUTES = (
    "channels: int = 0; ratio: int = 1; fancy_upscaling: bool = True; "
    "try_recover_truncated: bool = False; acceptable_fraction: float = 1.0; "
    "dct_method: string = ''"
)


@export("image.decode_jpeg", "io.decode_jpeg")
@define(
    "DecodeJpeg",
    "contents: string -> image: uint8",
    _JPEG_ATTRIBUTES,
    infer=_decode_infer,
    kernel=_decode_jpeg_kernel,
    samples=_jpeg_samples,
)
def decode_jpeg(
    contents,
    channels=0,
    ratio=1,
    fancy_upscaling=True,
    try_recover_truncated=False,
    acceptable_fraction=1,
    dct_method="",
    name=None,
):
    """Return the pixels of a JPEG file as uint8[height, width, channels].

    channels: 1 (gray), 3 (RGB), or 0 for what the file has. ratio: decode at 1/1, 1/2, 1/4 or 1/8
    of the size. fancy_upscaling: interpolate colors that were stored in a lower resolution.
    try_recover_truncated: fill what is missing of a truncated file. acceptable_fraction: the
    part of the rows that a truncated file must have; the others are zeros. dct_method:
    "INTEGER_FAST" (the default) or "INTEGER_ACCURATE". Also decodes PNG files, and GIF files of one
    frame.
    """


@export("image.decode_and_crop_jpeg", "io.decode_and_crop_jpeg")
@define(
    "DecodeAndCropJpeg",
    "contents: string, crop_window: int32 -> image: uint8",
    _JPEG_ATTRIBUTES,
    infer=_decode_infer,
    kernel=_decode_and_crop_kernel,
    samples=_crop_samples,
)
def decode_and_crop_jpeg(
    contents,
    crop_window,
    channels=0,
    ratio=1,
    fancy_upscaling=True,
    try_recover_truncated=False,
    acceptable_fraction=1,
    dct_method="",
    name=None,
):
    """Return a window of the pixels of a JPEG file: crop_window is [top, left, height, width], of
    the image at `ratio`. The other arguments are those of decode_jpeg.
    """


@export("image.decode_png", "io.decode_png")
@define(
    "DecodePng",
    "contents: string -> image: dtype",
    "channels: int = 0; dtype: {uint8|uint16} = uint8",
    infer=_decode_infer,
    kernel=_decode_png_kernel,
    samples=[
        Sample(png.encode_png(_image(3, 2, 3))),
        Sample(png.encode_png(_image(3, 2, 1, np.uint16)), channels=3),
        Sample(png.encode_png(_image(1, 1, 2)), channels=4),
    ],
)
def decode_png(contents, channels=0, dtype=uint8, name=None):
    """Return the pixels of a PNG file as dtype[height, width, channels].

    channels: 1 (gray), 3 (RGB), 4 (RGBA), or 0 for what the file has. dtype: uint8 or uint16. Also
    decodes JPEG files, and GIF files of one frame.
    """


# Two frames of 2 x 1 pixels in two colors.
_GIF = (
    b"GIF89a\x02\0\x01\0\x80\0\0\x10\x20\x30\xff\xfe\xfd"
    b",\0\0\0\0\x02\0\x01\0\0\x02\x02\x44\x0a\0"
    b",\0\0\0\0\x02\0\x01\0\0\x02\x02\x0c\x0a\0;"
)


@export("image.decode_gif", "io.decode_gif")
@define(
    "DecodeGif",
    "contents: string -> image: uint8",
    infer=_gif_infer,
    kernel=_decode_gif_kernel,
    samples=[Sample(_GIF), Sample(png.encode_png(_image(3, 2, 3)))],
)
def decode_gif(contents, name=None):
    """Return the frames of a GIF file as uint8[frames, height, width, 3]. Also decodes JPEG and PNG
    files, as one frame.
    """


def _bmp(height: int, width: int, channels: int) -> bytes:
    rows = b"\0" * ((width * channels + 3) // 4 * 4 * height)
    header = (54, 40, width, height, 1 | channels * 8 << 16)
    return b"BM" + bytes(8) + np.array(header, "<i4").tobytes() + bytes(24) + rows


@export("image.decode_bmp", "io.decode_bmp")
@define(
    "DecodeBmp",
    "contents: string -> image: uint8",
    "channels: int = 0",
    infer=_decode_infer,
    kernel=_decode_bmp_kernel,
    samples=[Sample(_bmp(3, 2, 3)), Sample(_bmp(1, 1, 4), channels=4), Sample(_bmp(2, 5, 1))],
)
def decode_bmp(contents, channels=0, name=None):
    """Return the pixels of a BMP file as uint8[height, width, channels].

    channels: 0, or what the file has: 1 (gray), 3 (RGB) or 4 (RGBA).
    """


def _shape_kernel(contents, *, output_type):
    data = _contents(contents)
    try:
        found = jpeg.jpeg_shape(data)
    except ValueError as error:
        raise ValueError(f"Invalid JPEG data, size {len(data)} ({error})") from None
    return np.array(found, as_dtype(output_type).as_numpy_dtype)


def _shape_infer(c: Any, contents: Any) -> Any:
    infer.with_rank(contents, 0)
    return (3,)


@export("image.extract_jpeg_shape", "io.extract_jpeg_shape")
@define(
    "ExtractJpegShape",
    "contents: string -> image_shape: output_type",
    "output_type: {int32|int64} = int32",
    infer=_shape_infer,
    kernel=_shape_kernel,
    samples=lambda: [Sample(jpeg.encode_jpeg(_image(4, 5, 3)))],
)
def extract_jpeg_shape(contents, output_type=int32, name=None):
    """Return [height, width, channels] of a JPEG file without decoding its pixels."""


# -- Encoding


def _encode_infer(c: Any, image: Any, *rest: Any) -> Any:
    infer.with_rank(image, 3)
    for shape in rest:
        infer.with_rank(shape, 0)
    return ()


def _check_image(image: np.ndarray) -> None:
    if image.ndim != 3:
        raise ValueError(f"image must be 3-dimensional{show_shape(image.shape)}")


_JPEG_CHANNELS = {b"": (1, 3), b"grayscale": (1,), b"rgb": (3,)}


def _encode_jpeg_kernel(
    image,
    *,
    format,
    quality,
    progressive,
    optimize_size,
    chroma_downsampling,
    density_unit,
    x_density,
    y_density,
    xmp_metadata,
):
    _check_image(image)
    wanted = _JPEG_CHANNELS[attr_bytes(format)]
    if image.shape[2] not in wanted:
        if len(wanted) == 1:
            name = attr_bytes(format).decode()
            raise ValueError(
                f"format {name} expects {wanted[0]} channels, got {show_shape(image.shape)}"
            )
        raise ValueError(f"image must have 1 or 3 channels, got {show_shape(image.shape)}")
    if not 0 <= quality <= 100:
        raise ValueError(f"quality must be in [0,100], got {quality}")
    return _as_jpeg(
        image,
        quality=quality,
        progressive=progressive,
        optimize_size=optimize_size,
        chroma_downsampling=chroma_downsampling,
        density_unit=attr_bytes(density_unit),
        x_density=x_density & 0xFFFF,
        y_density=y_density & 0xFFFF,
        xmp_metadata=attr_bytes(xmp_metadata),
    )


def _as_jpeg(image: np.ndarray, **options: Any) -> np.ndarray:
    if not image.size or max(image.shape) > 65500:
        raise ValueError(f"JPEG encoding failed: the image has shape {show_shape(image.shape)}")
    return np.array(jpeg.encode_jpeg(image, **options), object)


@export("image.encode_jpeg", "io.encode_jpeg")
@define(
    "EncodeJpeg",
    "image: uint8 -> contents: string",
    "format: {''|'grayscale'|'rgb'} = ''; quality: int = 95; progressive: bool = False; "
    "optimize_size: bool = False; chroma_downsampling: bool = True; "
    "density_unit: {'in'|'cm'} = 'in'; x_density: int = 300; y_density: int = 300; "
    "xmp_metadata: string = ''",
    infer=_encode_infer,
    kernel=_encode_jpeg_kernel,
    samples=[
        Sample(_image(5, 4, 3)),
        Sample(_image(5, 4, 1), format="grayscale", quality=10, density_unit="cm", x_density=1),
        Sample(_image(9, 9, 3), format="rgb", progressive=True, xmp_metadata="<x/>"),
        Sample(_image(9, 9, 3), optimize_size=True, chroma_downsampling=False),
    ],
)
def encode_jpeg(
    image,
    format="",
    quality=95,
    progressive=False,
    optimize_size=False,
    chroma_downsampling=True,
    density_unit="in",
    x_density=300,
    y_density=300,
    xmp_metadata="",
    name=None,
):
    """Return a JPEG file of uint8[height, width, 1 or 3].

    format: "grayscale", "rgb", or "" for what the image has. quality: 0 to 100. progressive: store
    coarse details first. optimize_size: find better codes, without a loss of quality.
    chroma_downsampling: store colors in a lower resolution. density_unit, x_density, y_density:
    pixels per inch ("in") or centimeter ("cm"). xmp_metadata: text to store in the file.
    """


def _variable_quality_kernel(images, quality):
    _check_image(images)
    if images.shape[2] not in (1, 3):
        raise ValueError(f"image must have 1 or 3 channels, got {show_shape(images.shape)}")
    if np.ndim(quality):
        raise ValueError(f"quality must be scalar, got shape {show_shape(np.shape(quality))}")
    # libjpeg, too, takes the nearest quality that there is.
    quality = min(100, max(1, int(quality)))
    return _as_jpeg(images, quality=quality, chroma_downsampling=images.shape[2] == 3)


@define(
    "EncodeJpegVariableQuality",
    "images: uint8, quality: int32 -> contents: string",
    infer=_encode_infer,
    kernel=_variable_quality_kernel,
    samples=[Sample(_image(5, 4, 3), 50), Sample(_image(5, 4, 1), 100)],
)
def encode_jpeg_variable_quality(images, quality, name=None):
    """Return a JPEG file of uint8[height, width, 1 or 3], of a quality from 0 to 100."""


def _encode_png_kernel(image, *, compression):
    _check_image(image)
    if not -1 <= compression <= 9:
        raise ValueError(f"compression should be in [-1,9], got {compression}")
    if not 1 <= image.shape[2] <= 4:
        raise ValueError(f"image must have 1, 2, 3, or 4 channels, got {show_shape(image.shape)}")
    if not image.size:
        raise ValueError(f"PNG encoding failed: the image has shape {show_shape(image.shape)}")
    return np.array(png.encode_png(image, compression), object)


@export("image.encode_png")
@define(
    "EncodePng",
    "image: T -> contents: string",
    "compression: int = -1; T: {uint8|uint16} = uint8",
    infer=_encode_infer,
    kernel=_encode_png_kernel,
    samples=[
        Sample(_image(5, 4, 3)),
        Sample(_image(1, 1, 1), compression=9),
        Sample(_image(2, 3, 2)),
        Sample(_image(2, 3, 4)),
    ],
)
def encode_png(image, compression=-1, name=None):
    """Return a PNG file of uint8 or uint16[height, width, channels]; 1 channel is gray, 2 are gray
    and opacity, 3 RGB, 4 RGBA. compression: 0 to 9 as in zlib, or -1 for its default.
    """
