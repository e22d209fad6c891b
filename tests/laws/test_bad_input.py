"""The law of bad input: for any input, an op raises an error of TensorFlow's tree, or its result is
that of its definition, the NumPy kernel. This holds in every mode.

TensorFlow 1.15.5 decides whether the kernel itself should refuse: inputs that it refuses
(tests/fixtures/refused115.json.gz, see scripts/record_refused) are refused here.
"""

import functools
import gzip
import json
from pathlib import Path

import numpy as np
import pytest

import headrace as tf
from headrace._src.core import dtypes
from headrace._src.graph.definition import Effect, bind_kernel, definitions
from headrace._src.graph.inference import group
from headrace._src.ops.base.define import build
from headrace._src.ops.base.samples import calls, samples_of, type_choices
from tests.laws.bad_inputs import cases
from tests.laws.count import count_check
from tests.laws.exemptions import ACCEPTED, NO_BAD_INPUT
from tests.laws.memory import little_memory
from tests.laws.test_laws import feeds, observed, same

FIXTURE = Path(__file__).parent.parent / "fixtures" / "refused115.json.gz"

OPS = sorted(o for o, d in definitions().items() if o not in NO_BAD_INPUT)

# How steps run: as they are, optimised, compiled.
LEVELS = {
    "plain": {"opt_level": tf.OptimizerOptions.L0},
    "optimised": {"global_jit_level": tf.OptimizerOptions.OFF},
    "compiled": {"global_jit_level": tf.OptimizerOptions.ON_1},
}


@functools.cache
def refused():
    return json.loads(gzip.decompress(FIXTURE.read_bytes()))


class Refused(Exception):
    """The op raised an error that a program can catch as TensorFlow's."""


# Exceptions that a step translates into TensorFlow's errors (runtime.kernels.translate).
TRANSLATED = (ArithmeticError, KeyError, IndexError, MemoryError, NotImplementedError)
CLEAN = (tf.errors.OpError, ValueError, TypeError)


def outcome(run, errors=CLEAN):
    """Return the result of `run`; Refused for an error of TensorFlow's tree other than
    InternalError.
    """
    try:
        return run()
    except tf.errors.InternalError:
        raise
    except errors as error:
        return Refused(str(error))


def sessions(op, levels=LEVELS):
    for name in levels:
        graph_options = tf.GraphOptions(optimizer_options=tf.OptimizerOptions(**LEVELS[name]))
        yield name, tf.Session(graph=op.graph, config=tf.ConfigProto(graph_options=graph_options))


def run(session, op, arrays):
    for initializer in op.graph.get_collection("initializers"):
        session.run(initializer)
    found = session.run(observed(op) or op, feeds(op, arrays)) or []
    return [*found, *session.run(variables(op))]


def variables(op):
    """Return the values of the op's variables."""
    with op.graph.as_default():
        found = op.graph.get_collection_ref("read_variables")
        if not found and op.definition.effect is Effect.WRITES:
            handles = [t for t in op.inputs if t.dtype is tf.resource]
            dtype = op._attrs.get("T", op._attrs.get("dtype"))
            found += [build("ReadVariableOp", resource=t, dtype=dtype) for t in handles]
    return found


def defined(op, arrays):
    """Return the result of the op's definition."""
    if op.definition.effect is Effect.PURE:
        with np.errstate(all="ignore"):
            found = bind_kernel(op)(*arrays)
        lists = len(op.outputs) != 1 or op.definition.schema.has_list_outputs
        return list(found) if lists else [found]
    with next(sessions(op, ["plain"]))[1] as session:
        return run(session, op, arrays)


def differs(found, wanted, is_random):
    if isinstance(found, Refused):
        return False
    if isinstance(wanted, Refused):
        return True
    if len(found) != len(wanted):
        return True
    return any(not close(f, w, is_random) for f, w in zip(found, wanted, strict=True))


def close(found, wanted, is_random):
    both = found, wanted
    found, wanted = (np.array(x, object) if isinstance(x, bytes) else np.asarray(x) for x in both)
    if found.shape != wanted.shape:
        return False
    if is_random or (wanted.dtype.hasobject and not wanted.size):
        return True
    if found.dtype.kind not in "fc" and found.dtype.name != "bfloat16":
        return same(found, wanted)
    # Whether infinities add up to one or to no number depends on the order of a sum.
    finite = np.isfinite(wanted)
    same_places = np.array_equal(np.isfinite(found), finite)
    return same_places and np.allclose(found[finite], wanted[finite], rtol=1e-4, atol=1e-5)


def is_compiled(definition):
    return definition.lower is not None


@pytest.mark.slow
@pytest.mark.parametrize("op_type", OPS)
def test_bad_input_is_refused_or_defined(op_type):
    definition = definitions()[op_type]
    levels = LEVELS if is_compiled(definition) else ["plain", "optimised"]
    is_random = definition.effect is Effect.RANDOM
    with little_memory():
        wrong = list(differences(definition, levels, is_random))
    assert not wrong, "\n".join(wrong)


def differences(definition, levels, is_random):
    """Return the results of steps for bad inputs that differ from the definition's."""
    opened = {}
    for way, op, arrays in cases(definition):
        if op not in opened:
            opened[op] = dict(sessions(op, levels))
        wanted = outcome(lambda: defined(op, arrays), CLEAN + TRANSLATED)  # noqa: B023
        for level, session in opened[op].items():
            found = outcome(lambda: run(session, op, arrays))  # noqa: B023  called at once
            if differs(found, wanted, is_random):
                yield f"{way}, {level}: {found!s:.200}, not {wanted!r:.200}"
            count_check()
    for kept in opened.values():
        for session in kept.values():
            session.close()


@pytest.mark.parametrize("op_type", OPS)
def test_what_tensorflow_refuses_is_refused(op_type):
    definition = definitions()[op_type]
    accepted = ACCEPTED.get(op_type, ({}, ""))[0]
    ways = set(refused().get(op_type, ())) - set(accepted)
    missed = []
    for way, op, arrays in cases(definition, 1):
        if way in ways:
            with tf.Session(graph=op.graph) as session:
                if not isinstance(outcome(lambda: run(session, op, arrays)), Refused):  # noqa: B023
                    missed.append(way)
            count_check()
    assert not missed


@pytest.mark.parametrize("op_type", OPS)
def test_a_wrong_type_is_refused(op_type):
    definition = definitions()[op_type]
    schema = definition.schema
    for sample in samples_of(definition)[:1]:
        op, _ = calls(definition, sample, next(type_choices(definition, sample)))
        inputs = dict(zip((a.name for a in schema.inputs), grouped(op), strict=True))
        rest = {k: v for k, v in op._attrs.items() if k not in schema.inferred}
        for argument in schema.inputs:
            wrong = wrong_type(schema, argument)
            if wrong is None:
                continue
            with op.graph.as_default():
                bad = tf.placeholder(wrong)
                given = [bad] * len(inputs[argument.name]) if argument.is_list else bad
                with pytest.raises((TypeError, ValueError)):
                    build(op_type, **{**inputs, argument.name: given}, **rest)
            count_check()


def grouped(op):
    return group(op.definition.schema, op._attrs, list(op.inputs))


def wrong_type(schema, argument):
    """A type that an input can't have, None if there's none."""
    if argument.type_list_attr:
        return None
    allowed = (argument.dtype,)
    if argument.type_attr:
        others = [a for a in schema.inputs if a.type_attr == argument.type_attr]
        allowed = schema.attributes[argument.type_attr].allowed or ()
        if not allowed and len(others) < 2:
            return None
    return next((t for t in (dtypes.string, dtypes.float32) if t not in allowed), None)
