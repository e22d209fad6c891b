"""Public symbols have the arguments, defaults and members that TensorFlow 1.15.5's have.

docs/coverage.md lists the counts for each namespace.
"""

import pytest

import headrace as tf
from tests.symbols import coverage

_VERSION = "says what built it"
_WINDOW = "a single number stands for one number per spatial dimension"
_METRICS = "takes all arguments of the function in tf.metrics"
# Symbols with other arguments or values, each with the reason.
EXEMPT = {
    "tf.COMPILER_VERSION": _VERSION,
    "tf.GIT_VERSION": _VERSION,
    "tf.version.COMPILER_VERSION": _VERSION,
    "tf.version.GIT_VERSION": _VERSION,
    "tf.Operation": "programs don't construct it: Graph.create_op does",
    "tf.sparse.split": "the default of keyword_required only marks that keywords are required",
    "tf.sparse_split": "the default of keyword_required only marks that keywords are required",
    "tf.flags.FLAGS": "absl's own object, which here parses the command line when it's first read",
    "tf.flags.UnrecognizedFlagError": "absl's own class, in the installed version",
    "tf.contrib.framework.BoundedTensorSpec.from_spec": "takes TensorSpec.from_spec's name too",
    "tf.contrib.layers.convolution": "conv_dims is a keyword",
    "tf.contrib.slim.convolution": "conv_dims is a keyword",
    "tf.contrib.losses.get_total_loss": "takes tf.losses.get_total_loss's scope too",
    "tf.contrib.metrics.streaming_auc": _METRICS,
    "tf.contrib.metrics.streaming_false_negatives_at_thresholds": _METRICS,
    "tf.contrib.metrics.streaming_false_positives_at_thresholds": _METRICS,
    "tf.contrib.metrics.streaming_true_negatives_at_thresholds": _METRICS,
    "tf.contrib.metrics.streaming_true_positives_at_thresholds": _METRICS,
    "tf.contrib.tpu.TPUEstimator": "lacks what only a TPU uses",
    "tf.layers.Conv2D": _WINDOW,
    "tf.layers.Conv2DTranspose": _WINDOW,
    "tf.layers.Conv3D": _WINDOW,
    "tf.layers.Conv3DTranspose": _WINDOW,
    "tf.layers.SeparableConv2D": _WINDOW,
    "tf.layers.conv2d": _WINDOW,
    "tf.layers.conv2d_transpose": _WINDOW,
    "tf.layers.conv3d": _WINDOW,
    "tf.layers.conv3d_transpose": _WINDOW,
    "tf.layers.separable_conv2d": _WINDOW,
}


@pytest.fixture(scope="module")
def covered():
    return coverage(tf)


def test_arguments_and_defaults_are_tensorflows(covered):
    found = {
        name: (theirs, ours) for c in covered.values() for name, theirs, ours in c.disagreements
    }
    assert {name: pair for name, pair in found.items() if name not in EXEMPT} == {}


def test_no_exemption_is_stale(covered):
    assert set(EXEMPT) <= {name for c in covered.values() for name, _, _ in c.disagreements}
