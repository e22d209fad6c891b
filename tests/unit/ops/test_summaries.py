"""Summary images have TensorFlow 1.15.5's pixels; mistakes raise clear errors."""

import logging
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest

import headrace as tf

FIXTURE = Path(__file__).parents[2] / "fixtures" / "summaries" / "images.npz"
IMAGES = dict(np.load(FIXTURE))


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def run(summary):
    with tf.Session() as session:
        return tf.Summary.FromString(session.run(summary))


def chunks(png):
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    at = 8
    while at < len(png):
        size, name = struct.unpack_from(">I4s", png, at)
        data = png[at + 8 : at + 8 + size]
        assert struct.unpack_from(">I", png, at + 8 + size)[0] == zlib.crc32(name + data)
        yield name, data
        at += 12 + size


def pixels(png):
    """Decode what we encode: 8 bits per sample, every row a difference to the one above."""
    found = dict(chunks(png))
    assert list(found) == [b"IHDR", b"IDAT", b"IEND"]
    width, height, bits, color, *rest = struct.unpack(">IIBBBBB", found[b"IHDR"])
    depth = {0: 1, 2: 3, 6: 4}[color]
    assert (bits, rest) == (8, [0, 0, 0])
    rows = np.frombuffer(zlib.decompress(found[b"IDAT"]), np.uint8).reshape(height, -1)
    assert (rows[:, 0] == 2).all()
    return np.cumsum(rows[:, 1:], axis=0, dtype=np.uint8).reshape(height, width, depth)


@pytest.mark.parametrize("name", sorted(n for n in IMAGES if "." not in n))
def test_images_have_tensorflows_pixels(name):
    batch, expected = IMAGES[name], IMAGES[f"{name}.pixels"]
    values = run(tf.summary.image("i", batch)).value
    assert [v.tag for v in values] == [f"i/image/{i}" for i in range(len(expected))]
    for value, right in zip(values, expected, strict=True):
        shape = (value.image.height, value.image.width, value.image.colorspace)
        assert shape == right.shape
        np.testing.assert_array_equal(pixels(value.image.encoded_image_string), right)


def test_number_of_images():
    batch = np.zeros((5, 1, 1, 1), np.uint8)
    tags = [v.tag for v in run(tf.summary.image("one", batch, max_outputs=1)).value]
    assert tags == ["one/image"]
    assert len(run(tf.summary.image("all", batch, max_outputs=9)).value) == 5


def test_color_of_what_is_not_finite():
    bad = np.full((1, 1, 1, 3), np.nan, np.float32)
    made = tf.raw_ops.ImageSummary(tag="i", tensor=bad, bad_color=np.array([1, 2, 3], np.uint8))
    png = run(made).value[0].image.encoded_image_string
    assert pixels(png).tolist() == [[[1, 2, 3]]]


def fed(value, dtype=tf.float32):
    return tf.placeholder_with_default(tf.constant(value, dtype), None)


def image(tensor, **attrs):
    return tf.raw_ops.ImageSummary(tag="i", tensor=tensor, **attrs)


MISTAKES = {
    "Nan in summary histogram for: h": lambda: tf.summary.histogram("h", fed([1, np.nan, np.inf])),
    "Infinity in summary histogram for: h": lambda: tf.summary.histogram("h", fed([-np.inf])),
    "tags must be scalar": lambda: tf.raw_ops.HistogramSummary(tag=["a"], values=fed([1.0])),
    r"same shape: \[\] != \[2\] \(tag 's'\)": lambda: tf.summary.scalar("s", fed([1.0, 2.0])),
    r"4-D with last dim 1, 3, or 4, not \[1,2,2,2\]": lambda: image(fed(np.zeros((1, 2, 2, 2)))),
    r"non-zero dims. Found: \[1, 0, 2, 1\]": lambda: image(fed(np.zeros((1, 0, 2, 1)))),
    "got depth = 3, bad_color.size = 2": lambda: image(
        fed(np.zeros((1, 2, 2, 3))), bad_color=np.zeros(2, np.uint8)
    ),
    r"bad_color must be a vector, got shape \[1,3\]": lambda: image(
        fed(np.zeros((1, 2, 2, 3))), bad_color=np.zeros((1, 3), np.uint8)
    ),
    r"Tensor must be 3-D or 2-D, got: \[1\]": lambda: tf.summary.audio("a", fed([1.0]), 9),
    "sample_rate must be > 0": lambda: tf.summary.audio("a", fed([[1.0]]), 0),
    "audio is empty": lambda: tf.summary.audio("a", fed(np.zeros((1, 3, 0))), 9),
    "Duplicate tag x found": lambda: tf.summary.merge(
        [tf.constant(tf.Summary(value=[{"tag": "x"}]).SerializeToString())] * 2
    ),
    "Could not parse one of the summary": lambda: tf.summary.merge([fed(b"\xff", tf.string)]),
}


@pytest.mark.parametrize("message", MISTAKES)
def test_mistakes(message):
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        run(MISTAKES[message]())


def test_names_are_cleaned_and_that_is_said(caplog):
    with caplog.at_level(logging.INFO, logger="headrace"):
        assert tf.summary.scalar("/my loss", 1.0).op.name == "my_loss"
    assert "Summary name /my loss is illegal; using my_loss instead." in caplog.messages


def test_description():
    made = tf.raw_ops.TensorSummary(tensor=1.0, description='{"typeHint": "x"}')
    assert tf.summary.get_summary_description(made.op.node_def).type_hint == "x"
    other = tf.summary.scalar("s", 1.0)
    with pytest.raises(ValueError, match="Can't get_summary_description on ScalarSummary"):
        tf.summary.get_summary_description(other.op.node_def)


def test_text_is_strings():
    with pytest.raises(ValueError, match="to have dtype string, got"):
        tf.summary.text("t", tf.constant(1, name="one"))


def test_merge_needs_a_list():
    with tf.Graph().as_default():
        for inputs in ("text", tf.summary.scalar("x", 1.0)):
            with pytest.raises(TypeError, match="needs a list of summaries"):
                tf.summary.merge(inputs)
