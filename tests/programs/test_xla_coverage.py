"""Which ops of whole programs have no XLA kernel: those that are named here, each with a reason.

The programs of TensorFlow 1 are looked at while they run: test_tf1_programs.py.
"""

import sys
from pathlib import Path

import pytest

import headrace as tf
from headrace._src.graph.definition import definitions
from headrace._src.graph.structured import parts_of
from headrace._src.pipeline import Options, optimise, prepare
from headrace._src.xla.backend import why_not
from headrace._src.xla.table import kernels_of
from tests.xla_devices import xla

__all__ = ["xla"]  # which each test here needs

STRINGS = "it works on strings"
QUEUES = "it may block"
PYTHON = "it calls Python, or prints"
TABLES = "it keeps a hash table, in Python"
FILES = "it reads or writes files, or records for them"
SHAPES = "the shape of its result depends on values"
GENERATORS = "its generator is not split from it, as those of other random ops are"

EXEMPT = {
    "AsString": STRINGS,
    "CTCBeamSearchDecoder": SHAPES,
    "CTCGreedyDecoder": SHAPES,
    "ComputeAccidentalHits": SHAPES,
    "DecodeRaw": STRINGS,
    "DenseToDenseSetOperation": SHAPES,
    "DynamicPartition": SHAPES,
    "EditDistance": SHAPES,
    "FIFOQueueV2": QUEUES,
    "HashTableV2": TABLES,
    "HistogramSummary": FILES,
    "LogUniformCandidateSampler": GENERATORS,
    "LookupTableFindV2": TABLES,
    "LookupTableImportV2": TABLES,
    "MergeSummary": FILES,
    "MergeV2Checkpoints": FILES,
    "Multinomial": GENERATORS,
    "ParseExample": STRINGS,
    "ParseSingleExample": STRINGS,
    "Print": PYTHON,
    "PyFunc": PYTHON,
    "PyFuncStateless": PYTHON,
    "QueueCloseV2": QUEUES,
    "QueueDequeueManyV2": QUEUES,
    "QueueDequeueUpToV2": QUEUES,
    "QueueDequeueV2": QUEUES,
    "QueueEnqueueManyV2": QUEUES,
    "QueueEnqueueV2": QUEUES,
    "QueueSizeV2": QUEUES,
    "RandomShuffle": GENERATORS,
    "ReaderReadV2": FILES,
    "RestoreV2": FILES,
    "SaveV2": FILES,
    "ScalarSummary": FILES,
    "SegmentMax": SHAPES,
    "SegmentMean": SHAPES,
    "SegmentSum": SHAPES,
    "ShardedFilename": STRINGS,
    "SparseCross": STRINGS,
    "SparseFillEmptyRows": SHAPES,
    "SparseSegmentMean": SHAPES,
    "SparseSegmentSum": SHAPES,
    "SparseSparseMaximum": SHAPES,
    "StaticRegexReplace": STRINGS,
    "StringJoin": STRINGS,
    "StringLength": STRINGS,
    "StringLower": STRINGS,
    "StringSplit": STRINGS,
    "StringToHashBucket": STRINGS,
    "StringToHashBucketFast": STRINGS,
    "StringToHashBucketStrong": STRINGS,
    "Substr": STRINGS,
    "TFRecordReaderV2": FILES,
    "Unique": SHAPES,
    "UniqueWithCounts": SHAPES,
    "Where": SHAPES,
}


def without_kernels(flow):
    """The op types of a prepared step that cannot be placed on an XLA device."""
    return {n.type for n in flow.nodes if not kernels_of(n.definition)}


def test_what_is_exempt_has_no_kernel():
    assert [op for op in EXEMPT if kernels_of(definitions()[op])] == []


@pytest.fixture
def models(monkeypatch):
    """The models of the benchmarks, by name, and the functions that build their steps."""
    known = set(sys.modules)
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "bench"))
    from contenders.in_headrace import Parameters, descend
    from models import LANGUAGE, MODELS

    def build(model):
        """The step of a model: its loss, what trains it, and its feeds."""
        feeds = [tf.placeholder(a.dtype, a.shape, name=n) for n, a in model.batch(0).items()]
        p = Parameters(model)
        loss = model.tf1(tf, p, {t.op.name: t for t in feeds})
        return loss, tf.group(*descend(loss, p.trained, model.learning_rate), *p.updates), feeds

    yield {**MODELS, **LANGUAGE}, build
    for name in set(sys.modules) - known:
        if name.partition(".")[0] in ("models", "contenders"):
            del sys.modules[name]


# The convolutional models consist of the same ops; the smaller of them show it.
NAMED = ["alexnet", "alexnet-bf16", "googlenet", "resnet", "mlp", "lstm", "transformer", "tanh"]


@pytest.mark.parametrize("name", [*NAMED, "lm-full", "lm-sampled"])
def test_the_step_of_a_benchmark_is_in_regions(name, models):
    known, build = models
    with tf.Graph().as_default():
        loss, train, feeds = build(known[name])
        options = Options()
        step = prepare([loss], [train], feeds, options)
        assert without_kernels(step) <= set(EXEMPT)
        flow = optimise(step, [tuple(t.shape.as_list()) for t in feeds], options)
    nodes = [n for n in flow.nodes if n.constant is None and not parts_of(n)]
    outside = {n.type for n in nodes if why_not(n) is not None} - {"VariableV2"}
    # What follows from the hits has no known shape either.
    dynamic = {"ComputeAccidentalHits", "Reshape", "Cast", "ConcatV2", "SparseToDense"}
    assert outside <= (dynamic if name == "lm-sampled" else set())
