"""The law of generated kernels: code for a single element-wise op gives the same results as the
op's kernel, for every compiled type and every way to broadcast its inputs.
"""

import numpy as np
import pytest

from headrace._src.graph.definition import bind_kernel, definitions
from headrace._src.lowering import generated
from headrace._src.lowering.rules import Elementwise, flat_program
from headrace._src.ops.base.samples import RandomSample, calls, samples_of, type_choices
from headrace._src.runtime.generated_kernels import with_generated
from tests.laws.count import count_check
from tests.laws.test_compiled import TRIED
from tests.laws.test_lowering import LOWERED, SPECIAL, assert_same

ELEMENTWISE = [o for o in LOWERED if isinstance(definitions()[o].lower, Elementwise)]
ROWS, COLUMNS = 3, 517  # whole blocks of elements, and part of one


@pytest.fixture(autouse=True)
def _everything_is_large(monkeypatch):
    monkeypatch.setattr(generated, "LEAST", 2 * COLUMNS)


def spread(array, special):
    """A sample's elements in a large array, among special numbers where the type has them."""
    values = array.reshape(-1)
    if special and array.dtype.name in ("float16", "bfloat16", "float32", "float64"):
        values = np.concatenate([values, SPECIAL.astype(array.dtype)])
    return np.resize(values, (ROWS, COLUMNS))


def uses(definition, special):
    """Operations with the arrays that they are to be run on."""
    for sample in samples_of(definition)[:1]:
        for types in type_choices(definition, sample):
            if not {t.name for t in types.values()} <= TRIED:
                continue
            op, arrays = calls(definition, sample, types)
            names = [a.dtype.name for a in arrays]
            if len({a.shape for a in arrays}) > 1:
                continue  # it wants more than arrays that broadcast
            if flat_program(definition.lower, names, op._attrs) is not None:
                yield op, [spread(a, special) for a in arrays]


def check(op, arrays, where):
    made = []

    def plain(*values):
        raise AssertionError(f"{where} is left to NumPy")

    with np.errstate(all="ignore"):
        wanted = bind_kernel(op)(*arrays)
        found = with_generated(op, plain)(*arrays)
    several = len(op.outputs) > 1
    for f, w in zip(found if several else [found], wanted if several else [wanted], strict=True):
        assert_same(f, w, where)
        made.append(f)
    assert all(f.flags.c_contiguous for f in made)
    count_check()


@pytest.mark.parametrize("op_type", ELEMENTWISE)
@pytest.mark.parametrize("special", [False, True])
def test_generated_code_is_the_kernel(op_type, special):
    definition = definitions()[op_type]
    numeric = all(isinstance(x, RandomSample) for s in samples_of(definition)[:1] for x in s.inputs)
    for op, arrays in uses(definition, special and numeric):
        if definition.lower.views is None:
            check(op, arrays, f"{op_type} of {[a.dtype.name for a in arrays]}")


BROADCASTING = ["Add", "Mul", "Maximum", "Less", "Atan2", "SquaredDifference", "LogicalOr", "Pow"]


@pytest.mark.parametrize("op_type", BROADCASTING)
def test_rows_and_single_elements_are_broadcast(op_type):
    for op, (x, y) in uses(definitions()[op_type], False):
        for other in (y[0], y[:1, :1], y[0, 0], y[0, :1]):
            check(op, [x, other], f"{op_type} of {x.dtype} and {other.shape}")
            check(op, [other, x], f"{op_type} of {other.shape} and {x.dtype}")
