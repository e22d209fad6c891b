"""The law of XLA kernels: the function that JAX compiles for a single op gives the same results as
the op's kernel, on every sample and for every type that is tried.

What takes the time is XLA's compiler. The functions treat all types of a kind alike, so only the
first sample is compiled for all of them, and the others for one type of each kind.
"""

import numpy as np
import pytest

from headrace._src.core.dtypes import as_dtype
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.devices.device import find_device
from headrace._src.graph.definition import Effect, definitions
from headrace._src.lowering.references import is_reference, writes_of
from headrace._src.lowering.rules import Elementwise
from headrace._src.ops.base.samples import calls, samples_of, type_choices
from headrace._src.xla.backend import compile_region, why_not
from headrace._src.xla.cluster import XlaCluster
from headrace._src.xla.table import FUNCTIONS
from tests.laws.count import count_check
from tests.laws.test_compiled import LARGER, TRIED
from tests.laws.test_lowering import (
    assert_same,
    expected_of,
    is_unseeded,
    node_of,
    special_samples,
)
from tests.xla_devices import DEVICE, xla

__all__ = ["xla"]  # which each test here needs

TYPES = TRIED | {"complex64", "complex128"}
LEADING = {"float32", "int32", "bool", "complex64"}  # one type of each kind
WITH_KERNELS = sorted(
    o
    for o, d in definitions().items()
    if (d.lower is not None or o in FUNCTIONS) and d.effect is not Effect.LOCAL
)


class Use:
    """One use of an op: the node, arrays for its inputs, and what it should give."""

    def __init__(self, op, arrays, where):
        self.where = where
        self.wanted = expected_of(op, arrays)
        shapes = [np.shape(w) for w in self.wanted][: len(op.outputs)]
        self.node = node_of(op, arrays, shapes)
        self.given = dict(zip(self.node.inputs, arrays, strict=True))
        self.outputs = [v for v in self.node.outputs if not is_reference(v)]
        self.changed = writes_of(self.node)


def _named(reason, names):
    return dict.fromkeys(names.split(), reason)


# Ops of which XLA leaves some uses to the host, by the exact name, each with a reason.
EXEMPT = {
    **_named(
        "complex numbers: its rule, and JAX's function, are for real ones",
        "ApproximateEqual ArgMax ArgMin AssignAdd AssignSub AssignVariableOp BiasAddGrad Cumprod "
        "Cumsum Diag Div EuclideanNorm Gather GatherNd GatherV2 MatrixBandPart MatrixDiag Max Min "
        "OneHot ParallelConcat Pow ResourceGather ResourceScatterAdd ResourceScatterMax "
        "ResourceScatterMin ResourceScatterMul ResourceScatterSub ResourceScatterUpdate ScatterAdd "
        "ScatterMul ScatterSub ScatterUpdate Sign StridedSliceGrad TruncateDiv UnsortedSegmentSum "
        "Xdivy Xlogy",
    ),
    **_named(
        "integers or booleans: its rule is for floating numbers",
        "Cast Equal Inv MaxPool MaxPoolGrad MaxPoolGradV2 MaxPoolV2 NotEqual RealDiv Reciprocal",
    ),
    **_named("it gives a variable another shape", "Assign"),
    **_named("windows over batch or channels", "AvgPool3D MaxPool3D"),
    **_named("no elements", "Conv2DBackpropFilter DepthwiseConv2dNativeBackpropFilter"),
    **_named("its rule is for float32 and float64", "FloorMod Range"),
    **_named("inputs that must be broadcast", "SoftmaxCrossEntropyWithLogits"),
    **_named(
        "its generator is moved outside: tests/unit/xla/test_random.py",
        "RandomStandardNormal RandomUniform RandomUniformInt TruncatedNormal",
    ),
}


def uses(definition, samples, tried, refused):
    """The uses of an op on these samples that are compiled; those that XLA does not take are added
    to `refused`.
    """
    for i, sample in enumerate(samples):
        for j, types in enumerate(type_choices(definition, sample)):
            if not {t.name for t in types.values()} <= tried:
                continue
            op, arrays = calls(definition, sample, types)
            if is_unseeded(op):
                continue
            use = Use(op, arrays, f"{definition.op_type} {sample} {types}")
            if why_not(use.node) is not None:
                refused.append(use)
            elif i == 0 or j == 0 or {t.name for t in types.values()} <= LEADING:
                yield use


def state_of(reference, array):
    """A variable on the device that has this value."""
    array = np.asarray(array)
    state = find_device(DEVICE).variable(
        reference.name, as_dtype(array.dtype), TensorShape.of(array.shape)
    )
    state.assign(array)
    return state


def same(found, wanted, use, times):
    """Compare: complex numbers by their parts, and no closer than the op's inputs are known."""
    assert found.dtype == wanted.dtype, use.where
    if wanted.dtype.kind == "c":
        found, wanted = (np.stack([x.real, x.imag]) for x in (found, wanted))
    inputs = {np.asarray(a).dtype for a in use.given.values()}
    if wanted.dtype == np.float64 and np.dtype(np.complex64) in inputs:
        found, wanted = found.astype(np.float32), wanted.astype(np.float32)
    assert_same(found, wanted, use.where, times)


def check(found, monkeypatch):
    """Compile all uses as one region, run it and compare."""
    monkeypatch.setattr(XlaCluster, "_interpret", None)  # nothing may leave it to the kernels
    cluster = compile_region([u.node for u in found], [v for u in found for v in u.outputs])
    given = {v: a for use in found for v, a in use.given.items()}
    states = {r: state_of(r, given[r]) for r in cluster.references}
    results = cluster([*(given[v] for v in cluster.inputs), *states.values()], ctx=None)
    known = dict(zip(cluster.outputs, results, strict=True))
    for use in found:
        values = [states[v].read() for v in use.changed] or [known[v] for v in use.outputs]
        family = getattr(use.node.definition.lower, "family", "")
        times = 8 if family in ("convolution", "batch_norm") else 2
        for f, w in zip(values, use.wanted, strict=True):
            same(np.asarray(f), np.asarray(w), use, times)
        count_check()


@pytest.mark.parametrize("op_type", WITH_KERNELS)
def test_function_is_the_kernel(op_type, monkeypatch):
    definition = definitions()[op_type]
    samples = [*samples_of(definition), *LARGER.get(op_type, ())]
    refused = []
    found = list(uses(definition, samples, TYPES, refused))
    assert found or definition.effect is Effect.RANDOM, f"no use of {op_type} is taken"
    assert bool(refused) == (op_type in EXEMPT), [use.where for use in refused]
    if found:
        check(found, monkeypatch)


@pytest.mark.parametrize(
    "op_type", [o for o in WITH_KERNELS if isinstance(definitions()[o].lower, Elementwise)]
)
def test_function_is_the_kernel_at_special_numbers(op_type, monkeypatch):
    definition = definitions()[op_type]
    found = list(uses(definition, special_samples(definition), {"float32", "float64"}, []))
    if found:
        check(found, monkeypatch)
