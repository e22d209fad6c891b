"""Record what TensorFlow 1.15.5's neural network kernels return, for tests/unit/ops.

In: nothing. Out: tests/fixtures/nn_kernels/{conv,pool,norm,ctc}.npz, each holding `cases` (a JSON
list of kernel and attributes) and, for case i, its inputs `i/in/j` and its outputs `i/out/j`.

Run by hand with an interpreter that has TensorFlow 1.15.5 (CPU); CI only reads the result:

    python scripts/record_nn_kernels.py

Only what the CPU kernels can do is recorded: channels last, and dilations in conv2d's forward
direction alone. The graph optimiser is off: it folds FusedBatchNorm into a node of fewer outputs.
"""

import json
import os

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import rewriter_config_pb2
from tensorflow.python.framework import op_def_registry

OUT = os.path.join(os.path.dirname(__file__), "..", "tests", "fixtures", "nn_kernels")
OPS = op_def_registry.get_registered_ops()
RNG = np.random.RandomState(1955)


def session():
    rewrites = rewriter_config_pb2.RewriterConfig(disable_meta_optimizer=True)
    options = tf.compat.v1.GraphOptions(rewrite_options=rewrites)
    return tf.compat.v1.Session(config=tf.compat.v1.ConfigProto(graph_options=options))


def run(op, inputs, attrs):
    """The op's outputs, flat."""
    names = [arg.name for arg in OPS[op].input_arg]
    with tf.Graph().as_default(), session() as sess:
        # A bare array would be converted to the default of the op's type attribute.
        tensors = [tf.constant(array) for array in inputs]
        result = getattr(tf.raw_ops, op)(**dict(zip(names, tensors)), **attrs)
        return [np.asarray(part) for part in sess.run(tf.nest.flatten(result))]


class Recorder:
    """Cases of one file."""

    def __init__(self, name):
        self.path = os.path.join(OUT, name + ".npz")
        self.cases, self.arrays = [], {}

    def __call__(self, op, kernel, *inputs, **attrs):
        inputs = [np.asarray(array) for array in inputs]
        outputs = run(op, inputs, attrs)
        index = len(self.cases)
        self.cases.append({"kernel": kernel, "attrs": attrs})
        for side, arrays in (("in", inputs), ("out", outputs)):
            for j, array in enumerate(arrays):
                self.arrays[f"{index}/{side}/{j}"] = array
        return outputs

    def save(self):
        np.savez_compressed(self.path, cases=json.dumps(self.cases), **self.arrays)


def normal(*shape, dtype=np.float32):
    return RNG.standard_normal(shape).astype(dtype)


def sizes(array):
    return np.array(array.shape, np.int32)


def coarse(*shape):
    """Few distinct values, so that windows hold equal maxima."""
    return RNG.randint(-2, 3, shape).astype(np.float32)


def record_conv():
    record = Recorder("conv")
    explicit = [0, 0, 1, 2, 0, 1, 0, 0]
    for stride in (1, 2, 3):
        for padding in ("SAME", "VALID", "EXPLICIT"):
            x, w = normal(2, 6, 7, 3), normal(3, 2, 3, 4)
            attrs = {"strides": [1, stride, 1, 1], "padding": padding}
            if padding == "EXPLICIT":
                attrs["explicit_paddings"] = explicit
            (y,) = record("Conv2D", "conv2d", x, w, **attrs)
            dy = normal(*y.shape)
            record("Conv2DBackpropInput", "conv2d_backprop_input", sizes(x), w, dy, **attrs)
            record("Conv2DBackpropFilter", "conv2d_backprop_filter", x, sizes(w), dy, **attrs)
    for padding in ("SAME", "VALID"):
        attrs = {"strides": [1, 2, 1, 1], "dilations": [1, 2, 3, 1], "padding": padding}
        record("Conv2D", "conv2d", normal(1, 8, 9, 2), normal(3, 2, 2, 2), **attrs)
        for dtype in (np.float16, np.float64):
            x, w = normal(1, 4, 5, 3, dtype=dtype), normal(2, 3, 3, 2, dtype=dtype)
            record("Conv2D", "conv2d", x, w, strides=[1, 1, 2, 1], padding=padding)
        record_conv3d(record, padding)
        record_depthwise(record, padding)
        record_dilation(record, padding)
    record.save()


def record_conv3d(record, padding):
    x, w = normal(2, 4, 5, 3, 2), normal(2, 3, 2, 2, 3)
    attrs = {"strides": [1, 1, 2, 2, 1], "padding": padding}
    (y,) = record("Conv3D", "conv3d", x, w, **attrs)
    dy = normal(*y.shape)
    record("Conv3DBackpropInputV2", "conv3d_backprop_input_v2", sizes(x), w, dy, **attrs)
    record("Conv3DBackpropFilterV2", "conv3d_backprop_filter_v2", x, sizes(w), dy, **attrs)


def record_depthwise(record, padding):
    op, kernel = "DepthwiseConv2dNative", "depthwise_conv2d_native"
    for stride in (1, 2):
        x, w = normal(2, 5, 6, 3), normal(3, 2, 3, 2)
        attrs = {"strides": [1, stride, stride, 1], "padding": padding}
        (y,) = record(op, kernel, x, w, **attrs)
        dy = normal(*y.shape)
        record(op + "BackpropInput", kernel + "_backprop_input", sizes(x), w, dy, **attrs)
        record(op + "BackpropFilter", kernel + "_backprop_filter", x, sizes(w), dy, **attrs)


def record_dilation(record, padding):
    for draw in (normal, coarse):
        x, w = draw(2, 7, 6, 2), draw(2, 3, 2)
        attrs = {"strides": [1, 2, 1, 1], "rates": [1, 2, 1, 1], "padding": padding}
        (y,) = record("Dilation2D", "dilation2d", x, w, **attrs)
        dy = normal(*y.shape)
        record("Dilation2DBackpropInput", "dilation2d_backprop_input", x, w, dy, **attrs)
        record("Dilation2DBackpropFilter", "dilation2d_backprop_filter", x, w, dy, **attrs)


def record_pool():
    record = Recorder("pool")
    with_nan = coarse(2, 5, 6, 2)
    with_nan[RNG.uniform(size=with_nan.shape) < 0.5] = np.nan
    for padding in ("SAME", "VALID"):
        attrs = {"ksize": [1, 3, 2, 1], "strides": [1, 2, 1, 1], "padding": padding}
        for x in (normal(2, 5, 6, 2), coarse(2, 5, 6, 2), with_nan):
            record_max_pool(record, x, attrs)
        integers = RNG.randint(-9, 9, (2, 5, 6, 2)).astype(np.int32)
        record("MaxPool", "max_pool", integers, **attrs)
        record_avg_pool(record, "AvgPool", "avg_pool", normal(2, 5, 6, 2), attrs)
        attrs = {"ksize": [1, 2, 3, 2, 1], "strides": [1, 1, 2, 2, 1], "padding": padding}
        for x in (normal(1, 4, 5, 4, 2), coarse(1, 4, 5, 4, 2)):
            (y,) = record("MaxPool3D", "max_pool3d", x, **attrs)
            dy, ddx = normal(*y.shape), normal(*x.shape)
            record("MaxPool3DGrad", "max_pool3d_grad", x, y, dy, **attrs)
            record("MaxPool3DGradGrad", "max_pool3d_grad_grad", x, y, ddx, **attrs)
        record_avg_pool(record, "AvgPool3D", "avg_pool3d", normal(1, 4, 5, 4, 2), attrs)
    attrs = {"ksize": [1, 1, 1, 2], "strides": [1, 1, 1, 2], "padding": "SAME"}
    record("MaxPool", "max_pool", normal(1, 2, 3, 4), **attrs)
    for overlapping in (False, True):
        record_fractional(record, overlapping)
    record.save()


def record_max_pool(record, x, attrs):
    (y,) = record("MaxPool", "max_pool", x, **attrs)
    dy, ddx = normal(*y.shape), normal(*x.shape)
    record("MaxPoolGrad", "max_pool_grad", x, y, dy, **attrs)
    record("MaxPoolGradGrad", "max_pool_grad_grad", x, y, ddx, **attrs)
    for batch in (False, True):
        more = dict(attrs, include_batch_in_index=batch)
        _, argmax = record("MaxPoolWithArgmax", "max_pool_with_argmax", x, **more)
        record("MaxPoolGradWithArgmax", "max_pool_grad_with_argmax", x, dy, argmax, **more)


def record_avg_pool(record, op, kernel, x, attrs):
    (y,) = record(op, kernel, x, **attrs)
    record(op + "Grad", kernel + "_grad", sizes(x), normal(*y.shape), **attrs)


def record_fractional(record, overlapping):
    """The forward ops draw their cuts, which become inputs of the recorded case."""
    attrs = {"pooling_ratio": [1.0, 1.5, 1.3, 1.0], "deterministic": True, "seed": 1, "seed2": 2}
    integers = RNG.randint(-9, 9, (2, 8, 7, 2)).astype(np.int32)
    for x in (normal(2, 8, 7, 2), coarse(2, 8, 7, 2), integers):
        for op, kernel in (
            ("FractionalMaxPool", "fractional_max_pool"),
            ("FractionalAvgPool", "fractional_avg_pool"),
        ):
            y, rows, cols = record(op, kernel, x, overlapping=overlapping, **attrs)
            index = len(record.cases) - 1
            record.cases[index]["attrs"] = {"overlapping": overlapping}
            for j, cuts in ((1, rows), (2, cols)):
                record.arrays[f"{index}/in/{j}"] = cuts
                del record.arrays[f"{index}/out/{j}"]
            dy = normal(*y.shape).astype(x.dtype)
            head = [x, y] if kernel == "fractional_max_pool" else [np.array(x.shape, np.int64)]
            record(op + "Grad", kernel + "_grad", *head, dy, rows, cols, overlapping=overlapping)


def record_norm():
    record = Recorder("norm")
    empty = np.zeros(0, np.float32)
    for dtype in (np.float32, np.float16):
        x, dy = normal(3, 4, 2, 5, dtype=dtype), normal(3, 4, 2, 5, dtype=dtype)
        scale, offset = normal(5), normal(5)
        attrs = {"epsilon": 0.01, "is_training": True}
        out = record(
            "FusedBatchNormV3", "fused_batch_norm_v3", x, scale, offset, empty, empty, **attrs
        )
        grad = ("FusedBatchNormGradV3", "fused_batch_norm_grad_v3")
        record(*grad, dy, x, scale, *out[3:], **attrs)
        attrs["is_training"] = False
        mean, variance = normal(5), np.abs(normal(5)) + np.float32(0.5)
        record("FusedBatchNormV3", "fused_batch_norm_v3", x, scale, offset, mean, variance, **attrs)
        # All outputs but y are memory that the CPU kernel never wrote.
        for j in range(1, 6):
            del record.arrays[f"{len(record.cases) - 1}/out/{j}"]
        record(*grad, dy, x, scale, mean, variance, np.zeros((), np.float32), **attrs)
    attrs = {"depth_radius": 2, "bias": 1.5, "alpha": 0.4, "beta": 0.7}
    for channels in (2, 7):
        x = normal(2, 2, 3, channels)
        (y,) = record("LRN", "lrn", x, **attrs)
        record("LRNGrad", "lrn_grad", normal(*x.shape), x, y, **attrs)
    for shape in ((4, 3), (2, 5, 3), (2, 3, 2, 3), (2, 2, 2, 2, 3)):
        record("BiasAdd", "bias_add", normal(*shape), normal(3))
        record("BiasAddGrad", "bias_add_grad", normal(*shape))
    for shape in ((2, 3, 5), (2, 3, 4, 2), (2, 3, 2, 2, 2)):
        record("BiasAdd", "bias_add", normal(*shape), normal(3), data_format="NCHW")
        record("BiasAddGrad", "bias_add_grad", normal(*shape), data_format="NCHW")
    record.save()


def sparse(labels):
    indices = [[b, j] for b, label in enumerate(labels) for j in range(len(label))]
    return np.array(indices, np.int64), np.array([k for label in labels for k in label], np.int32)


def record_ctc():
    record = Recorder("ctc")
    logits, lengths = normal(9, 5, 4), np.array([9, 7, 5, 2, 4], np.int32)
    # The fourth has no path (two equal labels in two steps) unless repeats are not merged.
    indices, values = sparse([[0, 1, 2], [1, 1], [2, 0, 3, 3], [1, 1], [0, 0, 1]])
    for dtype in (np.float32, np.float64):
        for merge in (False, True):
            for collapse in (False, True):
                attrs = {"ctc_merge_repeated": merge, "preprocess_collapse_repeated": collapse}
                inputs = [logits.astype(dtype), indices, values, lengths]
                record("CTCLoss", "ctc_loss", *inputs, **attrs)
    short = np.array([9, 1, 5, 2, 2], np.int32)
    attrs = {"ignore_longer_outputs_than_inputs": True}
    record("CTCLoss", "ctc_loss", logits, indices, values, short, **attrs)
    sharp = 3 * normal(12, 4, 5)
    lengths = np.array([12, 8, 0, 3], np.int32)
    for merge in (False, True):
        record("CTCGreedyDecoder", "ctc_greedy_decoder", sharp, lengths, merge_repeated=merge)
        for logits in (sharp, normal(12, 4, 3)):
            for width, top in ((1, 1), (3, 1), (12, 1), (8, 3)):
                attrs = {"beam_width": width, "top_paths": top, "merge_repeated": merge}
                steps = lengths if top == 1 else np.array([12, 8, 4, 3], np.int32)
                record("CTCBeamSearchDecoder", "ctc_beam_search_decoder", logits, steps, **attrs)
    record.save()


if __name__ == "__main__":
    os.makedirs(OUT, exist_ok=True)
    for family in (record_conv, record_pool, record_norm, record_ctc):
        family()
