#!/usr/bin/env python3
"""Record what TensorFlow 1.15.5 makes of images and events. Run by hand, with that TensorFlow's
Python 3.7; needs nothing of Headrace. Writes to tests/fixtures/summaries:

    images.npz    batches of images, and the pixels of the PNGs in their summaries
    events.bin    an event file: a version, summaries with metadata, a session log
    *.records     the same records plain, with GZIP and with ZLIB
"""

import os
import shutil
import sys
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FOLDER = os.path.join(ROOT, "tests", "fixtures", "summaries")

RECORDS = [b"hello", b"", b"world" * 100, bytes(bytearray(range(256)))]


def batches():
    rng = np.random.RandomState(0)
    smooth = np.cos(np.arange(2 * 5 * 7 * 3)).reshape(2, 5, 7, 3)
    broken = smooth.copy()
    broken[0, 1, 2, 0] = np.nan
    broken[1, 0, 0, 2] = np.inf
    yield "signed", smooth.astype(np.float32)
    yield "positive", rng.rand(3, 4, 4, 1).astype(np.float32) * 7
    yield "opaque", rng.rand(1, 6, 2, 4).astype(np.float32)
    yield "half", smooth.astype(np.float16)
    yield "half_positive", np.abs(smooth).astype(np.float16)
    yield "double", smooth * 1e200
    yield "tiny", smooth.astype(np.float32) * 1e-8
    yield "zero", np.zeros((1, 2, 2, 1), np.float32)
    yield "broken", broken.astype(np.float32)
    yield "all_broken", np.full((1, 2, 2, 3), np.nan, np.float32)
    yield "uint8", rng.randint(0, 256, (2, 3, 3, 3)).astype(np.uint8)


def record_images():
    arrays = {}
    for name, batch in batches():
        with tf.Graph().as_default(), tf.Session() as session:
            summary = tf.Summary.FromString(session.run(tf.summary.image("i", batch)))
            pngs = [v.image.encoded_image_string for v in summary.value]
            arrays[name] = batch
            arrays[name + ".pixels"] = np.stack(
                [session.run(tf.image.decode_png(png)) for png in pngs]
            )
    np.savez_compressed(os.path.join(FOLDER, "images.npz"), **arrays)


def record_events():
    metadata = tf.SummaryMetadata(display_name="shown")
    value = tf.Summary.Value(tag="a", simple_value=1.0, metadata=metadata)
    folder = tempfile.mkdtemp()
    with tf.summary.FileWriter(folder) as writer:
        writer.add_summary(tf.Summary(value=[value]), 1)
        writer.add_summary(tf.Summary(value=[value]).SerializeToString(), 2)
        writer.add_session_log(tf.SessionLog(status=tf.SessionLog.START), 3)
    (name,) = os.listdir(folder)
    shutil.copy(os.path.join(folder, name), os.path.join(FOLDER, "events.bin"))
    shutil.rmtree(folder)


def record_records():
    for kind in ("", "GZIP", "ZLIB"):
        name = (kind.lower() or "plain") + ".records"
        with tf.io.TFRecordWriter(os.path.join(FOLDER, name), kind) as writer:
            for record in RECORDS:
                writer.write(record)


def main():
    if not os.path.isdir(FOLDER):
        os.makedirs(FOLDER)
    record_images()
    record_events()
    record_records()


if __name__ == "__main__":
    sys.exit(main())
