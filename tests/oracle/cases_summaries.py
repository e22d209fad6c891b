"""tf.summary: the nodes, tags and bytes of summaries. Images are in tests/unit/ops: their pixels
must agree, and not how they are compressed.
"""

import numpy as np

from tests.oracle.case import case

SPREAD = np.concatenate(
    [
        np.sinh(np.linspace(-60, 60, 501)),  # every magnitude that has buckets of its own, and more
        [0.0, -0.0, 1e-12, -1e-12, 1.1e-12, 1.0, -1.0, 1e20, -1e20, 1e300, -1e300],
    ]
)


@case
def scalars(tf):
    kinds = ["float64", "int32", "uint8", "int16", "int8", "int64", "bfloat16", "uint16", "float16"]
    with tf.name_scope("outer"):
        made = [tf.summary.scalar(k, tf.cast(100.25, k)) for k in kinds]
        return made + [
            tf.summary.scalar("loss", 0.1),
            tf.summary.scalar("loss", 0.2),
            tf.summary.scalar("loss", 0.3, family="train"),
            tf.summary.scalar("loss", 0.4, family="train"),
            tf.summary.scalar("/not a name!/x", 0.5, family="/nor this"),
            tf.summary.scalar("other", float("nan"), collections=["mine"]),
            tf.summary.scalar("other", tf.constant(1e300, tf.float64), collections=[]),
        ]


@case
def merges(tf):
    one = tf.summary.scalar("a/one", 1.0)
    tf.summary.scalar("a/two", 2.0)
    tf.summary.histogram("b", [3.0], collections=["mine"])
    return [
        tf.summary.merge_all(),
        tf.summary.merge_all(scope="a/o"),
        tf.summary.merge_all("mine", name="those of mine"),
        tf.summary.merge([one], ["merged"], "again"),
        tf.summary.merge([one, tf.constant([b"", b""])]),
    ]


@case
def histograms(tf):
    whole = ["int32", "uint8", "int16", "int8", "int64", "uint16"]
    return [
        tf.summary.histogram("spread", tf.constant(SPREAD)),
        tf.summary.histogram("floats", tf.constant(np.cos(np.arange(1000.0)), tf.float32)),
        tf.summary.histogram("halves", tf.constant(np.cos(np.arange(50.0)), tf.float16)),
        tf.summary.histogram("brains", tf.cast(np.cos(np.arange(50.0)), tf.bfloat16)),
        tf.summary.histogram("none", tf.zeros([0, 3])),
        tf.summary.histogram("one", 7.0, family="f"),
        tf.summary.histogram(None, [[1.0, 2.0]]),
    ] + [tf.summary.histogram(k, tf.constant([0, 1, 1, 100], k)) for k in whole]


@case
def tensors(tf):
    metadata = tf.SummaryMetadata(
        plugin_data=tf.SummaryMetadata.PluginData(plugin_name="p", content=b"\x00\x01")
    )
    return [
        tf.summary.tensor_summary("t", [[1.0, 2.0]]),
        tf.summary.tensor_summary("i", tf.constant(3, tf.int64), "how *many*", display_name="I"),
        tf.summary.tensor_summary("h", tf.constant([1.5], tf.float16), family="f"),
        tf.summary.tensor_summary("b", [True, False], summary_metadata=metadata),
        tf.summary.tensor_summary("s", [["a", "bc"]], collections=["mine"]),
        tf.summary.tensor_summary("c", tf.constant([1 + 2j], tf.complex64)),
        tf.summary.tensor_summary("empty", tf.zeros([0, 2])),
        tf.summary.text("text", tf.constant(["# a", "b"])),
    ]


@case
def sounds(tf):
    wave = np.sin(np.arange(60.0)).reshape(5, 6, 2).astype(np.float32)
    odd = np.array([[2, -2, np.nan, np.inf, -np.inf, 1, -1]], np.float32)
    halves = np.array([[0.5, 1.5, -0.5, -2.5, 0.4999]], np.float32) / 32768
    return [
        tf.summary.audio("a", wave, 44100.0),
        tf.summary.audio("b", wave[:, :, 0], 2.5, max_outputs=1),
        tf.summary.audio("c", wave, tf.constant(8000.0), max_outputs=9, family="f"),
        tf.summary.audio("odd", odd, 0.25, max_outputs=1),
        tf.summary.audio("halves", halves, 3.5),
        tf.summary.audio("none", wave[:0], 1.0),
    ]
