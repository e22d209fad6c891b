"""The law of lowering rules: a rule computes the same as the op's kernel, on every sample and for
every compiled type.
"""

import numpy as np
import pytest

import headrace as tf
from headrace._src.compile.reference.rule_meanings import run_rule
from headrace._src.core import dtypes
from headrace._src.graph.dataflow import Feed, Node, ValueType
from headrace._src.graph.definition import Effect, bind_kernel, definitions
from headrace._src.lowering.rules import Anchor, Elementwise, Update
from headrace._src.ops.base.define import build
from headrace._src.ops.base.samples import RandomSample, Sample, calls, samples_of, type_choices
from tests.laws.count import count_check

# A few times each type's precision: sums may be taken in another order.
CLOSE = {"float64": 2.0**-48, "float32": 2.0**-19, "float16": 2.0**-9, "bfloat16": 2.0**-6}

# Ops on lists need more than one op: tests/unit/compile/test_lists.py.
LOWERED = sorted(
    o for o, d in definitions().items() if d.lower is not None and d.effect is not Effect.LOCAL
)


def node_of(op, arrays, shapes):
    """The operation as a node of a specialised step, whose outputs have the given shapes; what its
    graph says is constant is.
    """
    inputs = [_value(t, a) for t, a in zip(op.inputs, arrays, strict=True)]
    types = tuple(ValueType(t.dtype, s) for t, s in zip(op.outputs, shapes, strict=True))
    return Node(op.definition, op.name, op._attrs, tuple(inputs), (), types, op)


def _value(tensor, array):
    shape = () if tensor.dtype is tf.resource else array.shape
    value_type = ValueType(tensor.dtype, shape)
    if tensor.op.type == "Placeholder":
        return Feed(tensor, value_type).value
    constant = (array,) if tensor.op.type == "Const" else None
    producer = tensor.op
    return Node(
        producer.definition,
        producer.name,
        producer._attrs,
        (),
        (),
        (value_type,),
        producer,
        constant,
    ).outputs[0]


def changed_variables(rule):
    """How many of the first inputs an op with this rule changes."""
    if isinstance(rule, Update):
        return rule.variables
    writes = isinstance(rule, Anchor) and rule.family in ("scatter", "row_update")
    return rule.variables if writes else 0


def expected_of(op, arrays):
    """Return the op's results; if it changes variables, their new values."""
    count = changed_variables(op.definition.lower)
    if op.definition.effect is Effect.PURE:
        with np.errstate(all="ignore"):
            result = bind_kernel(op, None)(*arrays)
        results = list(result) if isinstance(result, tuple | list) else [result]
        return results[: len(op.outputs)]
    with op.graph.as_default(), tf.Session() as session:
        values = [_plain(t, a.dtype) for t, a in zip(op.inputs[:count], arrays, strict=False)]
        session.run(op.graph.get_collection("initializers"))
        fed = {t: a for t, a in zip(op.inputs, arrays) if t.op.type == "Placeholder"}
        result = session.run(op if count else list(op.outputs), fed)
        return session.run(values) if count else result


def _plain(variable, dtype):
    if variable.dtype is tf.resource:
        return build("ReadVariableOp", resource=variable, dtype=dtypes.as_dtype(dtype))
    return tf.identity(variable)


def assert_same(found, wanted, where, times=1):
    """Equal, or close for floating types; `times` as far off is close enough."""
    found, wanted = np.asarray(found), np.asarray(wanted)
    assert found.dtype == wanted.dtype, where
    assert found.shape == wanted.shape, where
    dtype = dtypes.as_dtype(found.dtype)
    if not dtype.is_floating:
        assert np.array_equal(found, wanted), where
        return
    found, wanted = found.astype(np.float64), wanted.astype(np.float64)
    close = CLOSE[dtype.name] * times
    scale = np.abs(wanted[np.isfinite(wanted)]).max(initial=0)
    np.testing.assert_allclose(found, wanted, close, close * scale, err_msg=where)


def is_unseeded(op):
    """Whether no two runs of the op give the same."""
    return op.definition.effect is Effect.RANDOM and not (op._attrs["seed"] or op._attrs["seed2"])


def agrees(op, arrays, where):
    """Check one use; False if the rule isn't for it."""
    wanted = expected_of(op, arrays)
    shapes = [np.shape(w) for w in wanted][: len(op.outputs)]
    found = run_rule(node_of(op, arrays, shapes), arrays)
    if found is None:
        return False
    assert len(found) == len(wanted), where
    for f, w in zip(found, wanted, strict=True):
        assert_same(f, w, where)
    count_check()
    return True


@pytest.mark.parametrize("op_type", LOWERED)
def test_rule_is_the_kernel(op_type):
    definition = definitions()[op_type]
    compared = 0
    for sample in samples_of(definition):
        for types in type_choices(definition, sample):
            op, arrays = calls(definition, sample, types)
            if is_unseeded(op):
                continue
            compared += agrees(op, arrays, f"{op_type} {sample} {types}")
    assert compared, f"the rule of {op_type} is for none of its samples"


# The numbers at which functions are special, and some that overflow on the way.
SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 0.5, 6.0, -95.0, 95.0, 1e-7])


def special_samples(definition):
    """Every combination of special numbers, for an op that takes plain arrays of one shape."""
    for sample in samples_of(definition)[:1]:
        if all(
            isinstance(x, RandomSample) and x.shape == sample.inputs[0].shape for x in sample.inputs
        ):
            grids = np.meshgrid(*[SPECIAL] * len(sample.inputs))
            yield Sample(*[g.reshape(-1) for g in grids], **sample.attrs)


@pytest.mark.parametrize(
    "op_type", [o for o in LOWERED if isinstance(definitions()[o].lower, Elementwise)]
)
def test_rule_is_the_kernel_at_special_numbers(op_type):
    definition = definitions()[op_type]
    for sample in special_samples(definition):
        for types in type_choices(definition, sample):
            if types and not all(t.is_floating for t in types.values()):
                continue
            op, arrays = calls(definition, sample, types)
            agrees(op, arrays, f"{op_type} of {arrays[0].dtype}")
