"""Image files: pixels to the last bit, and JPEG files byte for byte."""

import struct

import numpy as np

from tests.oracle.case import case
from tests.oracle.image_files import (
    bmp_file,
    gif_file,
    gif_frame,
    jpeg_file,
    png_file,
    samples,
)

DEPTHS = {
    "gray": (1, 2, 4, 8, 16),
    "rgb": (8, 16),
    "palette": (1, 2, 4, 8),
    "gray_alpha": (8, 16),
    "rgba": (8, 16),
}
JPEGS = ["full_color", "half_color", "quarter_color", "progressive", "gray", "cmyk"]


def register(name, build, **options):
    build.__name__ = name
    build.__module__ = __name__
    case(build, **options)


def pngs(color, bits, interlaced):
    def build(tf):
        data = png_file(color, bits, interlaced=interlaced)
        return [
            tf.image.decode_png(data, channels=channels, dtype=dtype)
            for channels in (0, 1, 3, 4)
            for dtype in (tf.uint8, tf.uint16)
        ]

    return build


for _color, _depths in DEPTHS.items():
    for _bits in _depths:
        for _interlaced in (False, True):
            _name = "png_{}_{}{}".format(_color, _bits, "_interlaced" * _interlaced)
            register(_name, pngs(_color, _bits, _interlaced))


def transparent(color, bits):
    def build(tf):
        if color == "palette":
            chunk = bytes(bytearray(range(0, 200, 3)))[: 1 << bits]
        else:
            channels = 1 if color == "gray" else 3
            chunk = samples(13, 17, channels, bits)[3, 3].astype(">u2").tobytes()
        data = png_file(color, bits, extra=((b"tRNS", chunk),))
        return [tf.image.decode_png(data, channels=channels) for channels in (0, 1, 3, 4)]

    return build


for _color, _bits in [("gray", 2), ("gray", 8), ("gray", 16), ("rgb", 8), ("rgb", 16)]:
    register(f"png_transparent_{_color}_{_bits}", transparent(_color, _bits))
for _bits in (1, 4, 8):
    register(f"png_transparent_palette_{_bits}", transparent("palette", _bits))


@case
def png_gray_of_light(tf):
    """Files that say how numbers relate to light: libpng mixes light."""
    gamma = (b"gAMA", struct.pack(">I", 45455))
    files = [png_file("rgb", bits, extra=(gamma,)) for bits in (8, 16)]
    files.append(png_file("rgb", 8, extra=((b"sRGB", b"\0"),)))
    files.append(png_file("palette", 8, extra=((b"sRGB", b"\0"),)))
    return [tf.image.decode_png(f, 1, d) for f in files for d in (tf.uint8, tf.uint16)]


@case
def png_filters(tf):
    """Each filter by itself, and images of one row, column and pixel."""
    files = [png_file("rgb", 8, filters=(f,)) for f in range(5)]
    files += [png_file("rgba", 16, h, w) for h, w in ((1, 1), (1, 9), (9, 1), (2, 40), (40, 2))]
    files += [png_file("gray", 1, h, w, True) for h, w in ((1, 1), (3, 5), (5, 3), (8, 8))]
    return [tf.image.decode_png(f) for f in files]


def jpegs(name):
    def build(tf):
        data = jpeg_file(name)
        # TensorFlow refuses to make a gray image of four components.
        channels = (0, 3) if name == "cmyk" else (0, 1, 3)
        results = [tf.image.decode_jpeg(data, channels=c) for c in channels]
        results += [tf.image.decode_jpeg(data, ratio=n) for n in (2, 4, 8)]
        results += [tf.image.decode_jpeg(data, fancy_upscaling=False, ratio=n) for n in (1, 2)]
        methods = ("INTEGER_FAST", "INTEGER_ACCURATE")
        results += [tf.image.decode_jpeg(data, dct_method=m) for m in methods]
        return [*results, tf.image.extract_jpeg_shape(data), tf.image.is_jpeg(data)]

    return build


for _name in JPEGS:
    register("jpeg_" + _name, jpegs(_name))


@case
def jpeg_windows(tf):
    data = jpeg_file("full_color")
    windows = [(0, 0, 19, 27), (3, 5, 10, 12), (8, 16, 8, 8), (18, 26, 1, 1)]
    results = [tf.image.decode_and_crop_jpeg(data, w) for w in windows]
    return results + [tf.image.decode_and_crop_jpeg(data, [1, 2, 3, 4], channels=1, ratio=4)]


@case
def jpeg_truncated(tf):
    """Rows that could be read, and zeros."""
    data = jpeg_file("full_color")
    return [
        tf.image.decode_jpeg(data[:740], acceptable_fraction=0.1),
        tf.image.decode_jpeg(data[:980], acceptable_fraction=0.7),
        tf.image.decode_jpeg(jpeg_file("quarter_color")[:780], acceptable_fraction=0.5),
    ]


@case
def jpeg_encoded(tf):
    color = tf.constant(samples(21, 35, 3, 8).astype(np.uint8))
    gray = color[:, :, :1]
    results = [tf.image.encode_jpeg(color, quality=q) for q in (0, 1, 10, 50, 95, 100)]
    results += [tf.image.encode_jpeg(gray, quality=q) for q in (10, 95)]
    results += [
        tf.image.encode_jpeg(color, progressive=True),
        tf.image.encode_jpeg(color, optimize_size=True),
        tf.image.encode_jpeg(color, progressive=True, optimize_size=True),
        tf.image.encode_jpeg(gray, format="grayscale", progressive=True),
        tf.image.encode_jpeg(color, format="rgb", chroma_downsampling=False),
        tf.image.encode_jpeg(gray, chroma_downsampling=False),
        tf.image.encode_jpeg(
            color, density_unit="cm", x_density=72, y_density=99, xmp_metadata="<x>é</x>"
        ),
        tf.raw_ops.EncodeJpegVariableQuality(images=color, quality=30),
        tf.raw_ops.EncodeJpegVariableQuality(images=gray, quality=0),
    ]
    return results


@case
def png_encoded(tf):
    """The files differ (another filter for each row), but not their pixels."""
    results = []
    for dtype in (np.uint8, np.uint16):
        for channels in (1, 2, 3, 4):
            pixels = samples(6, 5, channels, 8 * np.dtype(dtype).itemsize).astype(dtype)
            for compression in (-1, 0, 9):
                data = tf.image.encode_png(pixels, compression)
                results.append(tf.image.decode_png(data, dtype=tf.as_dtype(dtype)))
    return results


GIFS = {
    "one": lambda: gif_file([gif_frame()]),
    "version_87": lambda: gif_file([gif_frame()], version=b"GIF87a"),
    "parts": lambda: gif_file(
        [
            gif_frame(),
            gif_frame(left=2, top=3, height=4, width=5, seed=2, control=b"\x05\0\0\x03"),
            gif_frame(seed=4, local=True, interlaced=True),
        ]
    ),
    "beyond": lambda: gif_file([gif_frame(), gif_frame(left=5, top=8, height=9, width=9, seed=5)]),
    "local_colors": lambda: gif_file([gif_frame(local=True)], shared=False),
    "many_colors": lambda: gif_file([gif_frame(colors=256, height=90, width=70)], 90, 70, 256),
    "another_canvas": lambda: gif_file([gif_frame()], height=100, width=200),
}
for _name, _file in GIFS.items():
    register("gif_" + _name, lambda tf, file=_file: tf.image.decode_gif(file()))


@case
def bmps(tf):
    return [
        tf.image.decode_bmp(bmp_file(), channels=3),
        tf.image.decode_bmp(bmp_file(4), channels=4),
        tf.image.decode_bmp(bmp_file(1), channels=1),
        tf.image.decode_bmp(bmp_file(upside_down=True), channels=3),
        tf.image.decode_bmp(bmp_file(header=56, gap=8, width=5), channels=3),
    ]


@case
def each_op_decodes_other_formats(tf):
    files = [jpeg_file("gray"), png_file("palette", 4), gif_file([gif_frame()])]
    ops = [tf.image.decode_jpeg, tf.image.decode_png, tf.image.decode_gif]
    return [op(data) for op in ops for data in files]


@case(imports=False)
def any_format(tf):
    files = [jpeg_file("quarter_color"), png_file("rgba"), GIFS["parts"]()]
    results = [tf.image.decode_image(data) for data in files]
    results.append(tf.image.decode_image(files[2], channels=3, expand_animations=False))
    results.append(tf.image.decode_image(files[1], channels=1, dtype=tf.float32))
    results.append(tf.image.decode_image(files[1], dtype=tf.uint16, name="named"))
    return results


@case
def converted(tf):
    pixels = samples(3, 4, 3, 8)
    results = []
    for saturate in (False, True):
        for source in (tf.uint8, tf.int16, tf.int32, tf.float32, tf.float64):
            if saturate and source is tf.int16:
                continue  # TensorFlow can't clip these
            image = tf.constant(pixels / 255.0 if source.is_floating else pixels // 2, source)
            for target in (tf.uint8, tf.int16, tf.int32, tf.float32, tf.float16):
                results.append(tf.image.convert_image_dtype(image, target, saturate))
    results.append(tf.image.convert_image_dtype(image, tf.uint8, name="named"))
    return results
