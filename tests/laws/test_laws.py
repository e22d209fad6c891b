"""The laws: what holds for every op, on each of its samples, for every dtype that it supports.

1. The static shape and dtype are those that the kernel gives, with all shapes known and with none.
2. The gradient is that of finite differences (in float64).
3. A GraphDef of the op, written and read, runs to the same result.
4. Bad input gives a clean exception.
5. The native kernel, where there is one, agrees with the NumPy kernel.
6. A reference variable may stand for a value, in every mode.
"""

import numpy as np
import pytest

import headrace as tf
from headrace.core import dtypes
from headrace.graph.definition import Effect, definitions
from headrace.graph.schema import MISSING
from headrace.ops.samples import calls, samples_of, type_choices
from tests.laws.count import count_check

# What they give is not in their inputs and attributes: a feed, a Python function, the time. What
# may wait is tested by sequences of steps (tests/oracle/sequences_*.py).
WITHOUT_SAMPLES = {"Placeholder", "PlaceholderV2", "Timestamp"}
WITHOUT_SAMPLES |= {"EagerPyFunc", "PyFunc", "PyFuncStateless"}
# Its input is a mutex: tests/unit/ops/test_critical_section.py.
WITHOUT_SAMPLES |= {"MutexLock"}
# Their inputs are handles of what lives in one step: tests/unit/ops has them in small programs.
WITHOUT_SAMPLES |= {o for o, d in definitions().items() if d.effect is Effect.LOCAL}
# Nor is a table's content in its handle: tests/unit/ops/test_tables.py.
WITHOUT_SAMPLES |= {o for o in definitions() if "Table" in o}
# What is saved and restored is in files: tests/unit/ops/test_checkpoints.py.
WITHOUT_SAMPLES |= {"MergeV2Checkpoints", "Restore", "RestoreSlice", "RestoreV2"}
WITHOUT_SAMPLES |= {"Save", "SaveSlices", "SaveV2"}
# These call functions, which a graph's library has: tests/unit/gradients/test_functions.py.
WITHOUT_SAMPLES |= {
    o
    for o, d in definitions().items()
    if any(a.element == "func" for a in d.schema.attributes.values())
}

# As in TensorFlow, they aren't built on a block shape of unknown size.
KNOWN_BLOCKS = {"BatchToSpaceND", "SpaceToBatchND"}

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


def same(a, b):
    a, b = np.asarray(a), np.asarray(b)
    if a.dtype == object or a.dtype.kind in "biu":
        return np.array_equal(a, b)
    return np.array_equal(a, b, equal_nan=a.dtype.kind in "fc")


@pytest.mark.parametrize("op_type", OPS)
def test_is_complete(op_type):
    definition = definitions()[op_type]
    if definition.flow is not None:
        return  # what steers is tested by the loops and branches that it makes
    if op_type not in WITHOUT_SAMPLES and definition.effect is not Effect.BLOCKS:
        assert samples_of(definition), f"{op_type} has no samples"
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
                    assert value.dtype == t.dtype.numpy, f"{where}: kernel gave {value.dtype}"
                assert t.shape.is_compatible_with(np.shape(value)), f"{where}: {np.shape(value)}"
            count_check()


@pytest.mark.parametrize("op_type", OPS)
def test_gradient_is_finite_differences(op_type):
    definition = definitions()[op_type]
    if not definition.has_gradient or definition.effect is not Effect.PURE:
        return
    for sample in samples_of(definition):
        for types in type_choices(definition, sample):
            wide = {dtypes.float64, dtypes.complex128}
            if not wide & {*types.values(), *map(_dtype_or_none, sample.attrs.values())}:
                continue
            if any(t not in wide and (t.is_floating or t.is_complex) for t in types.values()):
                continue
            check_gradient(definition, sample, types)


def _dtype_or_none(value):
    try:
        return dtypes.as_dtype(value) if isinstance(value, str | dtypes.DType) else None
    except TypeError:
        return None


def check_gradient(definition, sample, types):
    op, arrays = calls(definition, sample, types)
    with op.graph.as_default():
        xs = [t for t in op.inputs if t.op.type == "Placeholder" and t.dtype.is_floating]
        ys = [t for t in op.outputs if t.dtype.is_floating]
        rest = (t.dtype.base_dtype for t in (*op.inputs, *op.outputs))
        if not xs or not ys or any(t.is_complex or (t.is_floating and t.size < 8) for t in rest):
            return
        rng = np.random.default_rng(7)
        fed = feeds(op, arrays)
        with tf.Session() as session:
            weights = [rng.uniform(0.5, 1.5, v.shape) for v in session.run(ys, fed)]
            found = tf.gradients(ys, xs, grad_ys=weights)

            def loss(values):
                out = session.run(ys, {**fed, **values})
                return sum((w * v).sum() for w, v in zip(weights, out, strict=True))

            for x, gradient in zip(xs, found, strict=True):
                where = f"{definition.op_type} {sample} d/d{x.name}"
                value = fed[x]
                if gradient is None:
                    expected = numeric(loss, x, value)
                    assert np.allclose(expected, 0, atol=1e-6), f"{where}: None, but {expected}"
                    continue
                got = session.run(tf.convert_to_tensor(gradient), fed)
                assert got.shape == value.shape, where
                expected = numeric(loss, x, value)
                np.testing.assert_allclose(got, expected, rtol=2e-4, atol=2e-5, err_msg=where)
                count_check()


def numeric(loss, x, value):
    """The gradient of `loss` by central differences."""
    result = np.zeros(value.shape)
    step = 1e-5
    for i in np.ndindex(value.shape):
        ends = []
        for sign in (1, -1):
            moved = np.array(value)
            moved[i] += sign * step
            ends.append(loss({x: moved}))
        result[i] = (ends[0] - ends[1]) / (2 * step)
    return result


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


CLEAN = (tf.errors.OpError, ValueError, TypeError)


@pytest.mark.slow
@pytest.mark.parametrize("op_type", OPS)
def test_bad_input_is_a_clean_exception(op_type):
    definition = definitions()[op_type]
    for sample in samples_of(definition)[:2]:
        types, static = next(type_choices(definition, sample)), op_type in KNOWN_BLOCKS
        op, arrays = calls(definition, sample, types, static=static)
        placeholders = [i for i, t in enumerate(op.inputs) if t.op.type == "Placeholder"]
        for i in placeholders:
            for bad in spoiled(arrays[i]):
                changed = [bad if k == i else a for k, a in enumerate(arrays)]
                try:
                    run(op, changed)
                except CLEAN as error:
                    assert not isinstance(error, tf.errors.InternalError), f"{op_type}: {error}"
                count_check()


def spoiled(array):
    """The array with a dimension more, one less, no elements, an odd size, and, for indices, values
    out of range.
    """
    yield array[None]
    yield array.reshape(-1)[:1].reshape(()) if array.size else np.zeros((), array.dtype)
    yield np.zeros((0, *array.shape[1:]), array.dtype)
    yield np.zeros((7, *array.shape[1:]), array.dtype)
    if array.dtype.kind in "iu":
        yield np.full_like(array, 127)
        yield np.full_like(array, -100) if array.dtype.kind == "i" else array + 100


@pytest.mark.parametrize("op_type", [o for o in OPS if definitions()[o].native])
def test_native_kernel_agrees(op_type):
    from headrace.devices import onednn
    from headrace.graph.definition import bind_kernel

    if not onednn.available():
        assert onednn.why_not()
        return
    definition = definitions()[op_type]
    compared = 0
    for sample in samples_of(definition):
        op, arrays = calls(definition, sample, next(type_choices(definition, sample)))
        try:
            fast = bind_kernel(op, None, definition.native)(*arrays)
        except onednn.Unsupported:
            continue
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
    if definition.effect is not Effect.PURE or op_type in WITHOUT_SAMPLES | {"TensorSummary"}:
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
