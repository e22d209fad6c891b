"""The law of fresh results: what an op says is in new memory is, and never shares it with anything;
so sessions may give it away without copying. And nothing that a session gives away is shared.
"""

import numpy as np
import pytest

import headrace as tf
from headrace._src.devices import onednn
from headrace._src.graph.definition import Effect, bind_kernel, definitions
from headrace._src.lowering import generated
from headrace._src.ops.base.samples import calls
from headrace._src.runtime.generated_kernels import with_generated
from tests.laws.count import count_check
from tests.laws.test_generated_kernels import ELEMENTWISE, uses
from tests.laws.test_laws import OPS, feeds, observed, variants

FRESH = [o for o in OPS if definitions()[o].is_fresh and definitions()[o].effect is Effect.PURE]


def arrays_in(values):
    return [v for v in values if isinstance(v, np.ndarray)]


def shared(values, others):
    """Whether an array among `values` has memory in common with one of the others."""
    return any(np.shares_memory(a, b) for a in arrays_in(values) for b in arrays_in(others))


def assert_fresh(results, inputs, where):
    assert not shared(results, inputs), f"{where}: an output shares memory with an input"
    for i, value in enumerate(results):
        assert not shared([value], results[:i]), f"{where}: two outputs share memory"
    assert all(v.flags.writeable for v in arrays_in(results)), f"{where}: a read-only output"


def run_kernel(kernel, arrays):
    with np.errstate(all="ignore"):
        found = kernel(*arrays)
    if found is NotImplemented:
        return []
    return list(found) if isinstance(found, tuple | list) else [found]


@pytest.mark.parametrize("op_type", FRESH)
def test_kernels_give_new_memory(op_type):
    definition = definitions()[op_type]
    kernels = [definition.kernel]
    if onednn.available():
        kernels += [kernel.run for kernel in definition.kernels.get("CPU", ())]
    for sample, types in variants(definition):
        op, arrays = calls(definition, sample, types)
        constants = [v for v in op._attrs.values() if isinstance(v, np.ndarray)]
        for kernel in kernels:
            run = bind_kernel(op, None, kernel)
            first, second = run_kernel(run, arrays), run_kernel(run, arrays)
            where = f"{op_type} {sample} {types}"
            assert_fresh(first, [*arrays, *constants], where)
            assert not shared(first, second), f"{where}: two calls give the same memory"
            count_check()


@pytest.mark.parametrize("op_type", [o for o in ELEMENTWISE if o in FRESH])
def test_generated_kernels_give_new_memory(op_type, monkeypatch):
    monkeypatch.setattr(generated, "LEAST", 1024)
    for op, arrays in uses(definitions()[op_type], special=False):
        run = with_generated(op, bind_kernel(op))
        first, second = run_kernel(run, arrays), run_kernel(run, arrays)
        assert_fresh(first, arrays, op_type)
        assert not shared(first, second), f"{op_type}: two calls give the same memory"
        count_check()


@pytest.mark.parametrize("op_type", OPS)
def test_sessions_give_memory_away(op_type):
    """Two steps, of which the second is compiled if it can be; all results are the caller's own."""
    definition = definitions()[op_type]
    for sample, types in list(variants(definition))[:2]:
        op, arrays = calls(definition, sample, types)
        fetches = observed(op)
        if not fetches or definition.effect is Effect.BLOCKS:
            continue
        fed = feeds(op, arrays)
        found = []
        with tf.Session(graph=op.graph) as session:
            for _ in range(3):
                for initializer in op.graph.get_collection("initializers"):
                    session.run(initializer)
                found.append(session.run(fetches, fed))
        where = f"{op_type} {sample} {types}"
        for i, results in enumerate(found):
            assert_fresh(results, fed.values(), where)
            assert not any(shared(results, earlier) for earlier in found[:i]), where
        count_check()
