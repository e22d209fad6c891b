"""Image files: damage, absurd headers, missing packages, and what costs time."""

import contextlib
import struct
import sys
import zlib

import numpy as np
import pytest

import headrace as tf
from headrace._src.ops.image import gif, png
from tests.oracle.image_files import (
    bmp_file,
    chunk,
    gif_file,
    gif_frame,
    jpeg_file,
    png_file,
    samples,
)

FILES = {
    "png": png_file("rgb", 8),
    "png_interlaced": png_file("palette", 4, interlaced=True),
    "gif": gif_file([gif_frame(), gif_frame(left=1, top=2, height=3, width=4)]),
    "bmp": bmp_file(),
    "jpeg": jpeg_file("quarter_color"),
    "jpeg_progressive": jpeg_file("progressive"),
}
OPS = {
    "png": tf.image.decode_png,
    "gif": tf.image.decode_gif,
    "bmp": tf.image.decode_bmp,
    "jpeg": tf.image.decode_jpeg,
}


@pytest.fixture
def decode():
    """Return a function from a format and the contents of a file to pixels."""
    with tf.Graph().as_default() as graph:
        contents = tf.placeholder(tf.string, [])
        results = {name: op(contents) for name, op in OPS.items()}
        results["recovered"] = tf.image.decode_jpeg(contents, try_recover_truncated=True)
        with tf.Session(graph=graph) as session:
            yield lambda kind, data: session.run(results[kind], {contents: data})


@pytest.mark.parametrize("name", FILES)
def test_truncated_files_are_refused(decode, name):
    data, kind = FILES[name], name.split("_")[0]
    for size in {0, 1, 3, 7, 20, len(data) // 3, len(data) // 2, len(data) - 1}:
        with pytest.raises(tf.errors.InvalidArgumentError):
            decode(kind, data[:size])


@pytest.mark.parametrize("name", FILES)
def test_damaged_files_are_refused_or_decoded(decode, name):
    """Some damage is seen in the pixels alone: then they have the right shape, or another one that
    the damaged header says.
    """
    kind = name.split("_")[0]
    rng = np.random.default_rng(1)
    for _ in range(100):
        data = bytearray(FILES[name])
        for place in rng.integers(2, len(data), 3):
            data[place] = rng.integers(256)
        with contextlib.suppress(tf.errors.InvalidArgumentError, tf.errors.ResourceExhaustedError):
            assert decode(kind, bytes(data)).dtype == np.uint8


def test_what_a_truncated_file_has_is_recovered(decode):
    data = jpeg_file("full_color")
    whole, found = decode("jpeg", data), decode("recovered", data[:740])
    assert found.shape == whole.shape
    np.testing.assert_array_equal(found[:8], whole[:8])
    assert (found[16:] == 128).all()  # gray, where nothing is known


def enormous_png(bits=16):
    header = struct.pack(">IIBBBBB", 2**31 - 1, 2**31 - 1, bits, 6, 0, 0, 0)
    body = chunk(b"IDAT", zlib.compress(bytes(1000)))
    return png.MAGIC + chunk(b"IHDR", header) + body + chunk(b"IEND", b"")


def enormous_gif():
    frame = struct.pack("<BHHHHB", 0x2C, 0, 0, 65535, 65535, 0) + b"\x02\x01\x05\0"
    return gif_file([frame])


def enormous_jpeg():
    data = bytearray(jpeg_file("gray"))
    place = data.index(b"\xff\xc0")
    struct.pack_into(">HH", data, place + 5, 65535, 65535)
    return bytes(data)


def enormous_bmp():
    data = bytearray(bmp_file())
    struct.pack_into("<ii", data, 18, 2**31 - 1, 2**31 - 1)
    return bytes(data)


@pytest.mark.parametrize("file", [enormous_png, enormous_gif, enormous_jpeg, enormous_bmp])
def test_enormous_sizes_are_refused_at_once(decode, file):
    kind = file.__name__.split("_")[1]
    with pytest.raises((tf.errors.InvalidArgumentError, tf.errors.ResourceExhaustedError)):
        decode(kind, file())


def test_a_bomb_is_not_unpacked_beyond_its_image(decode):
    """Zeros compress a thousandfold; what is more than the image's pixels isn't unpacked."""
    header = struct.pack(">IIBBBBB", 2, 2, 8, 0, 0, 0, 0)
    body = chunk(b"IDAT", zlib.compress(bytes(50_000_000)))
    data = png.MAGIC + chunk(b"IHDR", header) + body + chunk(b"IEND", b"")
    assert decode("png", data).tolist() == [[[0], [0]], [[0], [0]]]


def test_messages(decode):
    for kind, data, message in [
        ("png", png_file()[:60], r"Invalid PNG data, size 60"),
        ("jpeg", jpeg_file("gray")[:60], r"Invalid JPEG data or crop window, data size 60"),
        ("gif", gif_file([gif_frame(left=1)]), r"Invalid GIF data \(size \d+\), the first frame"),
        ("gif", FILES["gif"][:90], r"Invalid GIF data \(size 90\)"),
        ("bmp", b"BM", r"Incomplete bmp content, requires at least 32 bytes"),
        ("png", b"", r"Expected image \(JPEG, PNG, or GIF\), got empty file"),
        ("jpeg", b"\x00hello", r"got unknown format starting with '\\000hello'"),
        ("png", FILES["gif"], r"Got 2 frames, but animated gifs can only be decoded by tf\.image"),
    ]:
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            decode(kind, data)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"ratio": 3}, r"ratio must be 1, 2, 4, or 8, got 3"),
        ({"dct_method": "EXACT"}, r"dct_method must be one of"),
        ({"channels": 2}, r"channels must be 0, 1, 3, or 4, got 2"),
        ({"channels": 4}, r"channels must be 0, 1, or 3 for JPEG, got 4"),
    ],
)
def test_wrong_arguments(arguments, message):
    with tf.Graph().as_default(), tf.Session() as session:
        image = tf.image.decode_jpeg(jpeg_file("gray"), **arguments)
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            session.run(image)


@pytest.mark.parametrize("window", [(0, 0, 20, 27), (-1, 0, 5, 5), (0, 0, 0, 5), (15, 20, 5, 5)])
def test_windows_outside_of_the_image(window):
    with tf.Graph().as_default(), tf.Session() as session:
        image = tf.image.decode_and_crop_jpeg(jpeg_file("gray"), window)
        with pytest.raises(tf.errors.InvalidArgumentError, match="or crop window"):
            session.run(image)


@pytest.mark.parametrize("package", ["simplejpeg", "PIL"])
def test_a_missing_package_is_named(monkeypatch, package):
    for name in [n for n in sys.modules if n.split(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with tf.Graph().as_default(), tf.Session() as session:
        image = tf.placeholder(tf.uint8, [2, 2, 3])
        ops = [tf.image.decode_jpeg(jpeg_file("gray")), tf.image.encode_jpeg(image)]
        op = ops[package == "PIL"]
        with pytest.raises(tf.errors.UnimplementedError, match=r"pip install headrace\[images\]"):
            session.run(op, {image: np.zeros((2, 2, 3), np.uint8)})


def test_large_images():
    """Filters that depend on all neighbours are undone by diagonals, not by pixels."""
    pixels = samples(300, 400, 3, 8).astype(np.uint8)
    data = png_file("rgb", 8, 300, 400, filters=(4, 3))
    np.testing.assert_array_equal(png.decode_png(data, 0, np.dtype(np.uint8)), pixels)
    frames = gif.decode_gif(gif_file([gif_frame(height=200, width=300, colors=256)], colors=256))
    assert frames.shape == (1, 200, 300, 3)
