"""The laws: properties of every op, on each of its samples, for every dtype that it supports.

1. The static shape and dtype agree with the kernel's results, with all shapes known and with none.
2. A GraphDef of the op, written and read, runs to the same result.
3. The native kernel, where there is one, agrees with the NumPy kernel.
4. A reference variable may be used in place of a value, in every mode.

The law of gradients is in test_gradient, that of bad input in test_bad_input, that of absurd sizes
in test_absurd_sizes; `exemptions` says which ops a law leaves out, and why.
"""

import numpy as np
import pytest

import headrace as tf
from headrace._src.core import dtypes
from headrace._src.graph.definition import Effect, definitions
from headrace._src.graph.schema import MISSING
from headrace._src.ops.base.samples import calls, samples_of, type_choices
from tests.laws.bad_inputs import KNOWN_BLOCKS
from tests.laws.count import count_check
from tests.laws.exemptions import NO_SAMPLES

OPS = sorted(definitions())


def variants(definition):
    """Every (sample, dtypes) of an op."""
    for sample in samples_of(definition):
        for types in type_choices(definition, sample):
            yield sample, types


def run(op, arrays, initializers=None):
    """Give the variables that the op takes their values, run it, return what can be fetched."""
    with tf.Session(graph=op.graph) as session:
        for initializer in initializers or op.graph.get_collection("initializers"):
            session.run(initializer)
        return session.run(observed(op) or op, feeds(op, arrays)) or []


def observed(op):
    """The outputs that have values: not handles, nor references to variables without one yet."""
    if not op.inputs and any(t.dtype._is_ref_dtype for t in op.outputs):
        return []
    return [t for t in op.outputs if t.dtype is not tf.resource]


def feeds(op, arrays):
    return {t: a for t, a in zip(op.inputs, arrays, strict=True) if t.op.type == "Placeholder"}


def plain_integers(array):
    """Return quantized values as the integers that they are, as sessions do."""
    return array.view(array.dtype[0]) if array.dtype.names else array


def same(a, b):
    a, b = (plain_integers(np.asarray(x)) for x in (a, b))
    if a.dtype == object or a.dtype.kind in "biu":
        return np.array_equal(a, b)
    return np.array_equal(a, b, equal_nan=a.dtype.kind in "fc")


@pytest.mark.parametrize("op_type", OPS)
def test_is_complete(op_type):
    definition = definitions()[op_type]
    exempt = op_type in NO_SAMPLES
    assert bool(samples_of(definition)) != exempt, f"{op_type} has samples, or isn't exempt"
    if definition.flow is not None:
        return  # its outputs are its inputs
    schema = definition.schema
    floating = any(
        (a.dtype is not None and a.dtype.is_floating)
        or a.type_list_attr
        or (
            a.type_attr
            and any(
                t.is_floating for t in schema.attributes[a.type_attr].allowed or (dtypes.float32,)
            )
        )
        for a in schema.outputs
    )
    if floating:
        assert definition.gradient is not MISSING, f"{op_type} says nothing about its gradient"


@pytest.mark.parametrize("op_type", OPS)
def test_shape_and_dtype_are_the_kernels(op_type):
    definition = definitions()[op_type]
    for sample, types in variants(definition):
        for static in (True,) if op_type in KNOWN_BLOCKS else (True, False):
            op, arrays = calls(definition, sample, types, static=static)
            results = run(op, arrays)
            for t, value in zip(observed(op), results, strict=True):
                where = f"{op_type} {sample} {types} static={static}: {t}"
                if t.dtype.base_dtype.numpy.kind != "O":
                    wanted = plain_integers(np.empty((), t.dtype.numpy)).dtype
                    assert value.dtype == wanted, f"{where}: kernel gave {value.dtype}"
                assert t.shape.is_compatible_with(np.shape(value)), f"{where}: {np.shape(value)}"
            count_check()


@pytest.mark.slow
@pytest.mark.parametrize("op_type", OPS)
def test_graph_def_round_trip(op_type):
    definition = definitions()[op_type]
    if definition.effect in (Effect.RANDOM, Effect.BLOCKS):
        return
    for sample in samples_of(definition):
        op, arrays = calls(definition, sample, next(type_choices(definition, sample)))
        data = op.graph.as_graph_def().SerializeToString()
        with tf.Graph().as_default() as graph:
            graph_def = tf.GraphDef()
            graph_def.ParseFromString(data)
            tf.import_graph_def(graph_def, name="")
            again = graph.get_operation_by_name(op.name)
            assert again.type == op_type
            assert graph.as_graph_def() == graph_def
        initializers = [i.name for i in op.graph.get_collection("initializers")]
        for a, b in zip(run(op, arrays), run(again, arrays, initializers), strict=True):
            assert same(a, b), f"{op_type} {sample}"
        count_check()


@pytest.mark.parametrize("op_type", [o for o in OPS if definitions()[o].kernels])
def test_native_kernel_agrees(op_type):
    from headrace._src.devices import onednn
    from headrace._src.graph.definition import bind_kernel

    if not onednn.available():
        assert onednn.why_not()
        return
    definition = definitions()[op_type]
    compared = 0
    for sample in samples_of(definition):
        op, arrays = calls(definition, sample, next(type_choices(definition, sample)))
        (kernel,) = definition.kernels["CPU"]
        fast = bind_kernel(op, None, kernel.run)(*arrays)
        if fast is NotImplemented:
            continue
        exact = bind_kernel(op, None)(*arrays)
        pairs = (
            zip(fast, exact, strict=True) if isinstance(exact, tuple | list) else [(fast, exact)]
        )
        for f, e in pairs:
            np.testing.assert_allclose(f, e, rtol=1e-4, atol=1e-4, err_msg=f"{op_type} {sample}")
        compared += 1
        count_check()
    assert compared, f"the native kernel of {op_type} took none of its samples"


MODES = [
    {"opt_level": tf.OptimizerOptions.L0},
    {"global_jit_level": tf.OptimizerOptions.OFF},
    {"global_jit_level": tf.OptimizerOptions.ON_1},
]


@pytest.mark.parametrize("op_type", OPS)
def test_takes_reference_variables_for_values(op_type):
    definition = definitions()[op_type]
    # A TensorSummary holds the name of its operation.
    if definition.effect is not Effect.PURE or op_type == "TensorSummary":
        return
    for sample in samples_of(definition)[:1]:
        op, arrays = calls(definition, sample, next(type_choices(definition, sample)))
        given = feeds(op, arrays)
        if not given:
            return
        expected = run(op, arrays)
        with op.graph.as_default():
            variables = {
                t: tf.Variable(a, dtype=t.dtype, use_resource=False) for t, a in given.items()
            }
            inputs = [variables[t].op.outputs[0] if t in given else t for t in op.inputs]
            twin = op.graph.add_operation(definition, inputs, dict(op._attrs), "twin")
        for options in MODES:
            graph_options = tf.GraphOptions(optimizer_options=tf.OptimizerOptions(**options))
            config = tf.ConfigProto(graph_options=graph_options)
            with tf.Session(graph=op.graph, config=config) as session:
                session.run([v.initializer for v in variables.values()])
                found = session.run(observed(twin) or twin) or []
            count_check()
            for value, right in zip(found, expected, strict=True):
                if np.asarray(right).dtype.kind in "fc":
                    np.testing.assert_allclose(value, right, rtol=1e-4, atol=1e-5)
                else:
                    assert same(value, right)
