"""The law of the compiler: native code of a single op gives the same results as the op's kernel, on
every sample and for every compiled type.

All uses of one op are one region, so that their kernels are compiled together, on all cores.
"""

import numpy as np
import pytest

from headrace._src.compile.build.families import FAMILIES
from headrace._src.compile.clusters.cluster_kernel import plan_region
from headrace._src.compile.clusters.lowerable import is_lowerable
from headrace._src.compile.regions.region import Region, is_reference
from headrace._src.compile.run.driver import NativeCluster
from headrace._src.core import dtypes
from headrace._src.graph.definition import Effect, definitions
from headrace._src.lowering.rules import Anchor, Elementwise
from headrace._src.ops.base.samples import Sample, calls, r, samples_of, type_choices
from tests.laws.count import count_check
from tests.laws.test_lowering import (
    LOWERED,
    assert_same,
    changed_variables,
    expected_of,
    is_unseeded,
    node_of,
    special_samples,
)

# The types that are tried; the other integers differ from these in their width alone.
FLOATS = {"float32", "float64", "float16", "bfloat16"}
TRIED = FLOATS | {"bool", "uint8", "int32", "int64"}


class Use:
    """One use of an op: the node, arrays for its inputs, and what it should give."""

    def __init__(self, op, arrays, where):
        self.where = where
        self.wanted = expected_of(op, arrays)
        shapes = [np.shape(w) for w in self.wanted][: len(op.outputs)]
        self.node = node_of(op, arrays, shapes)
        self.given = dict(zip(self.node.inputs, arrays, strict=True))
        self.outputs = [v for v in self.node.outputs if not is_reference(v)]
        count = changed_variables(op.definition.lower)
        self.changed = self.node.inputs[:count]


def uses(definition, samples, floating=False):
    """Every use of an op on these samples that the compiler takes."""
    for sample in samples:
        for types in type_choices(definition, sample):
            if not {t.name for t in types.values()} <= (FLOATS if floating else TRIED):
                continue
            op, arrays = calls(definition, sample, types)
            if not is_unseeded(op):
                use = Use(op, arrays, f"{definition.op_type} {sample} {types}")
                if is_lowerable(use.node):
                    yield use


def run(found):
    """Compile all uses as one region, run it; returns the values of outputs and variables."""
    nodes = [use.node for use in found]
    region = Region(nodes, [v for use in found for v in use.outputs])
    cluster = NativeCluster(plan_region(region))
    given = {v: a for use in found for v, a in use.given.items()}
    results = {v: np.empty(v.type.sizes, v.dtype.base_dtype.numpy) for v in region.outputs}
    variables = {v: np.array(given[v]) for v in region.variables}
    inputs = [np.ascontiguousarray(given[v]) for v in region.inputs]
    cluster.run(inputs, list(results.values()), list(variables.values()))
    return {**results, **variables}


def check(found):
    results = run(found)
    for use in found:
        values = use.changed or use.outputs
        # Winograd's algorithm may have been the fastest: its elements are off by up to 1e-5.
        times = 8 if getattr(use.node.definition.lower, "family", "") == "convolution" else 1
        for value, wanted in zip(values, use.wanted, strict=True):
            assert_same(results[value], wanted, use.where, times)
        count_check()


# Images with whole blocks of channels, and products of more than one tile: the ops' own samples are
# too small for some kernels.
X, Y = r(2, 8, 6, 16).array(dtypes.float32), r(2, 4, 3, 16).array(dtypes.float32, 1)
MAXIMA = X.reshape(2, 4, 2, 3, 2, 16).max((2, 4))
POOL = {"ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1], "padding": "VALID", "T": "float32"}
WIDE_POOL = {**POOL, "ksize": [1, 3, 3, 1], "padding": "SAME"}
CONV = {"strides": [1, 1, 1, 1], "padding": "SAME", "T": "float32"}
STRIDED = {"strides": [1, 2, 2, 1], "padding": "SAME", "T": "float32"}
X_SIZES, FILTER_SIZES = [2, 9, 7, 16], [3, 3, 16, 32]
LARGER = {
    "AvgPool": [Sample(r(2, 8, 6, 16), **POOL), Sample(r(2, 7, 6, 16), **WIDE_POOL)],
    "AvgPoolGrad": [Sample([2, 8, 6, 16], r(2, 4, 3, 16), **POOL)],
    "MaxPool": [Sample(r(2, 8, 6, 16), **POOL), Sample(r(2, 7, 6, 16), **WIDE_POOL)],
    "MaxPoolGrad": [Sample(X, MAXIMA, Y, **POOL)],
    "MaxPoolV2": [Sample(X, [1, 2, 2, 1], [1, 2, 2, 1], padding="VALID", T="float32")],
    "MaxPoolGradV2": [
        Sample(X, MAXIMA, Y, [1, 2, 2, 1], [1, 2, 2, 1], padding="VALID", T="float32")
    ],
    "Conv2D": [
        Sample(r(2, 9, 7, 16), r(3, 3, 16, 32), **CONV),
        Sample(r(2, 9, 7, 16), r(1, 1, 16, 32), **CONV),
        Sample(r(2, 9, 7, 16), r(5, 5, 16, 32), **STRIDED),
        Sample(r(2, 9, 7, 3), r(5, 3, 3, 16), **STRIDED),
    ],
    "Conv2DBackpropInput": [
        Sample(X_SIZES, r(3, 3, 16, 32), r(2, 9, 7, 32), **CONV),
        Sample(X_SIZES, r(5, 5, 16, 32), r(2, 5, 4, 32), **STRIDED),
    ],
    "Conv2DBackpropFilter": [
        Sample(r(2, 9, 7, 16), FILTER_SIZES, r(2, 9, 7, 32), **CONV),
        Sample(r(2, 9, 7, 16), FILTER_SIZES, r(2, 5, 4, 32), **STRIDED),
    ],
    "DepthwiseConv2dNative": [
        Sample(r(2, 9, 7, 16), r(3, 3, 16, 1), **CONV),
        Sample(r(2, 9, 7, 16), r(3, 3, 16, 2), **STRIDED),
    ],
    "LRN": [Sample(r(2, 3, 5, 37), depth_radius=4, alpha=0.2, T="float32")],
    "MatMul": [
        Sample(r(37, 65), r(65, 41), T="float32"),
        Sample(r(65, 37), r(65, 41), transpose_a=True, T="float32"),
        Sample(r(37, 65), r(41, 65), transpose_b=True, T="float64"),
    ],
    "Sum": [Sample(r(37, 65), [0], T="float32"), Sample(r(37, 65), [1], T="float32")],
    "Tanh": [Sample(r(37, 65), T="float32")],
    "Transpose": [Sample(r(37, 65, 3), [2, 0, 1], T="float32")],
}


@pytest.mark.parametrize("op_type", LOWERED)
def test_native_code_is_the_kernel(op_type):
    definition = definitions()[op_type]
    found = list(uses(definition, [*samples_of(definition), *LARGER.get(op_type, ())]))
    rule = definition.lower
    # A random op's generator is moved outside: tests/unit/compile/test_random_steps.py.
    whole = definition.effect is not Effect.RANDOM
    if whole and (not isinstance(rule, Anchor) or rule.family in FAMILIES):
        assert found, f"no use of {op_type} is compiled"
    if found:
        check(found)


@pytest.mark.parametrize(
    "op_type", [o for o in LOWERED if isinstance(definitions()[o].lower, Elementwise)]
)
def test_native_code_is_the_kernel_at_special_numbers(op_type):
    definition = definitions()[op_type]
    found = list(uses(definition, special_samples(definition), floating=True))
    if found:
        check(found)
