"""The law of XLA kernels: the function that JAX compiles for a single op gives the same results as
the op's kernel, on every sample and for every type that is tried.
"""

import numpy as np
import pytest

from headrace._src.core.dtypes import as_dtype
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.devices.device import find_device
from headrace._src.graph.definition import Effect, definitions
from headrace._src.lowering.rules import Elementwise
from headrace._src.ops.base.samples import calls, samples_of, type_choices
from headrace._src.xla import device as xla_device
from headrace._src.xla.backend import compile_region, why_not
from headrace._src.xla.table import FUNCTIONS, is_reference, writes_of
from tests.laws.count import count_check
from tests.laws.test_compiled import LARGER, TRIED
from tests.laws.test_lowering import (
    assert_same,
    changed_variables,
    expected_of,
    is_unseeded,
    node_of,
    special_samples,
)

xla_device.register()
DEVICE = find_device("/job:localhost/replica:0/task:0/device:XLA:0")
WITH_KERNELS = sorted(
    o
    for o, d in definitions().items()
    if (d.lower is not None or o in FUNCTIONS) and d.effect is not Effect.LOCAL
)


def cluster_of(op, arrays, wanted):
    """The op as a region, or None if XLA does not take this use; and its node."""
    shapes = [np.shape(w) for w in wanted][: len(op.outputs)]
    node = node_of(op, arrays, shapes)
    if why_not(node) is not None:
        return None, node
    return compile_region([node], [v for v in node.outputs if not is_reference(v)]), node


def states_of(cluster, given):
    found = []
    for reference in cluster.references:
        array = np.asarray(given[reference])
        dtype = as_dtype(array.dtype)
        state = DEVICE.variable(reference.name, dtype, TensorShape.of(array.shape))
        state.assign(array)
        found.append(state)
    return found


def agrees(definition, sample, types):
    """Check one use; False if XLA doesn't take it."""
    op, arrays = calls(definition, sample, types)
    if is_unseeded(op):
        return False
    where = f"{definition.op_type} {sample} {types}"
    wanted = expected_of(op, arrays)
    cluster, node = cluster_of(op, arrays, wanted)
    if cluster is None:
        return False
    given = dict(zip(node.inputs, arrays, strict=True))
    states = states_of(cluster, given)
    found = cluster([*(given[v] for v in cluster.inputs), *states], ctx=None)
    if changed_variables(op.definition.lower):
        known = dict(zip(cluster.references, states, strict=True))
        found = [known[cluster.root(v)].read() for v in writes_of(node)]
    family = getattr(definition.lower, "family", "")
    times = 8 if family in ("convolution", "batch_norm") else 2
    for f, w in zip(found, wanted, strict=True):
        assert_same(f, w, where, times)
    count_check()
    return True


@pytest.mark.parametrize("op_type", WITH_KERNELS)
def test_function_is_the_kernel(op_type):
    definition = definitions()[op_type]
    compared = 0
    for sample in [*samples_of(definition), *LARGER.get(op_type, ())]:
        for types in type_choices(definition, sample):
            if {t.name for t in types.values()} <= TRIED:
                compared += agrees(definition, sample, types)
    if definition.effect is not Effect.RANDOM:
        assert compared, f"no use of {op_type} is taken"


@pytest.mark.parametrize(
    "op_type", [o for o in WITH_KERNELS if isinstance(definitions()[o].lower, Elementwise)]
)
def test_function_is_the_kernel_at_special_numbers(op_type):
    definition = definitions()[op_type]
    for sample in special_samples(definition):
        for types in type_choices(definition, sample):
            if {t.name for t in types.values()} <= {"float32", "float64"}:
                agrees(definition, sample, types)
