"""The law of gradients: tf.gradients of a single op agrees with finite differences.

In double precision where the op takes it, else in single with longer steps. A complex tensor is
perturbed in its real and in its imaginary part: TensorFlow's gradient g of a real loss L is the
direction in which L grows, dL = Re(sum(conj(g) dx)). A value that an op reads from a variable is
perturbed in the variable. A random op starts from its seed in each evaluation. Each op with a
gradient has a check, or is listed in `exemptions.GRADIENT` with a reason.
"""

import numpy as np
import pytest

import headrace as tf
from headrace._src.core import dtypes
from headrace._src.graph.definition import Effect, definitions
from headrace._src.ops.base.samples import calls, samples_of, type_choices
from tests.laws.count import count_check
from tests.laws.exemptions import GRADIENT, GRADIENT_OF_SOME
from tests.laws.test_laws import feeds

WIDE = {dtypes.float64, dtypes.complex128}
NARROW = {dtypes.float32, dtypes.complex64}
# (step, relative and absolute tolerance) of differences in each precision.
PRECISION = {True: (1e-5, 2e-4, 2e-5), False: (1e-2, 2e-2, 5e-3)}

# The outputs that the gradient is about, as in TensorFlow; the others are what it works with.
OUTPUTS = dict.fromkeys(("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"), (0,))
OUTPUTS |= dict.fromkeys(("BlockLSTM", "BlockLSTMV2", "LSTMBlockCell"), (1, 6))
OUTPUTS |= {"GRUBlockCell": (3,), "CTCLoss": (0,)}

# The inputs that they are about, where it isn't all of them.
INPUTS = dict.fromkeys(("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"), (0, 1, 2))

# They read one triangle of a symmetric matrix; the gradient is that by a symmetric change.
SYMMETRIC = {"Cholesky"}

DIFFERENTIABLE = sorted(o for o, d in definitions().items() if d.has_gradient)


@pytest.mark.parametrize("op_type", DIFFERENTIABLE)
def test_gradient_is_finite_differences(op_type):
    checked = sum(check_gradient(*use) for use in uses(definitions()[op_type]))
    exempt = op_type in GRADIENT
    assert exempt != bool(checked), f"{checked} checks, though {GRADIENT.get(op_type)}"


def uses(definition):
    """(operation, its arrays, whether it's in double precision) for each sample, in the widest
    types that the op takes.
    """
    if definition.op_type in GRADIENT:
        return
    found = []
    for sample in samples_of(definition):
        for types in type_choices(definition, sample):
            op, arrays = calls(definition, sample, types)
            used = {t.dtype.base_dtype for t in (*op.inputs, *op.outputs)}
            used |= {dtypes.as_dtype(a.dtype) for a in arrays if a.dtype.kind in "fc"}
            numbers = {t for t in used if t.is_floating or t.is_complex}
            left_out = definition.op_type in GRADIENT_OF_SOME and left_out_by(op)
            if numbers and numbers <= WIDE | NARROW and is_seeded(op) and not left_out:
                found.append((op, arrays, numbers <= WIDE))
    for kept in (has_placeholders, is_wide):
        found = [use for use in found if kept(use)] or found
    yield from found


def has_placeholders(use):
    """Return whether the inputs hold random numbers, and not only chosen ones, such as singular
    matrices.
    """
    op, arrays, _ = use
    return any(t.op.type != "Const" and is_continuous(a) for t, a in zip(op.inputs, arrays))


def is_wide(use):
    return use[2]


def left_out_by(op):
    """Whether this use of an op is one that `exemptions.GRADIENT_OF_SOME` speaks of."""
    which, _ = GRADIENT_OF_SOME[op.type]
    return which(op)


def is_seeded(op):
    seeds = [op._attrs.get("seed", 1), op._attrs.get("seed2", 1)]
    return op.definition.effect is not Effect.RANDOM or any(seeds)


class Evaluation:
    """Runs an operation on perturbed values. Variables are set by their initializers, whose
    constants are fed; a random op has a new session each time.
    """

    def __init__(self, op, arrays):
        self.op = op
        self.fed = feeds(op, arrays)
        if not any(is_continuous(a) for a in self.fed.values()):
            self.fed |= {t: a for t, a in zip(op.inputs, arrays) if t.op.type == "Const"}
        self.initializers = op.graph.get_collection("initializers")
        self.values = {t: a for t, a in zip(op.inputs, arrays) if is_continuous(a)}
        self.values = {t: a for t, a in self.values.items() if t in self.fed or is_variable(t)}
        self._session = tf.Session(graph=op.graph)

    def run(self, fetches, moved=None):
        moved = moved or {}
        session = self._session
        if self.op.definition.effect is Effect.RANDOM:
            session = tf.Session(graph=self.op.graph)
        for initializer in self.initializers:
            variable, value = initializer.inputs[:2]
            session.run(initializer, {value: moved[variable]} if variable in moved else {})
        fed = self.fed | {t: a for t, a in moved.items() if t in self.fed}
        found = session.run(fetches, fed)
        if session is not self._session:
            session.close()
        return found

    def close(self):
        self._session.close()


def is_continuous(array):
    return array.dtype.kind in "fc"


def is_variable(tensor):
    return tensor.op.type in ("VarHandleOp", "VariableV2")


def check_gradient(op, arrays, wide):
    """Check the gradients by all inputs of one use; returns how many were compared."""
    used = OUTPUTS.get(op.type, range(len(op.outputs)))
    ys = [op.outputs[k] for k in used if op.outputs[k].dtype.base_dtype in WIDE | NARROW]
    with op.graph.as_default():
        evaluation = Evaluation(op, arrays)
        about = [op.inputs[k] for k in INPUTS.get(op.type, range(len(op.inputs)))]
        xs = [x for x in evaluation.values if x in about]
        if not xs or not ys:
            return 0
        rng = np.random.default_rng(7)
        weights = [weight(rng, v) for v in evaluation.run(ys)]
        try:
            found = tf.gradients(ys, xs, grad_ys=weights)
        except NotImplementedError:
            return 0  # it says so, as TensorFlow does

        def loss(moved):
            out = evaluation.run(ys, moved)
            pairs = zip(weights, out, strict=True)
            return sum((np.conj(w) * v.astype(np.result_type(v, 1.0))).real.sum() for w, v in pairs)

        compared = 0
        for x, gradient in zip(xs, found, strict=True):
            where = f"{op.type} {op._attrs} d/d{x.name}"
            step, relative, absolute = PRECISION[wide]
            value = evaluation.values[x]
            expected = numeric(loss, x, value, step)
            if op.type in SYMMETRIC:
                expected = (expected + expected.swapaxes(-1, -2).conj()) / 2
            if not np.isfinite(expected).all():
                continue  # the sample lies at the end of the op's domain
            if gradient is None:
                assert np.allclose(expected, 0, atol=absolute), f"{where}: None, but {expected}"
            else:
                got = evaluation.run(tf.convert_to_tensor(gradient))
                assert got.shape == value.shape, where
                np.testing.assert_allclose(got, expected, relative, absolute, err_msg=where)
            count_check()
            compared += 1
        evaluation.close()
    return compared


def weight(rng, value):
    """A gradient of an output: random numbers of its own kind."""
    found = rng.uniform(0.5, 1.5, np.shape(value))
    if value.dtype.kind == "c":
        found = found + 1j * rng.uniform(0.5, 1.5, np.shape(value))
    return found.astype(value.dtype)


def numeric(loss, x, value, step):
    """The gradient of `loss` by central differences, in each real direction."""
    result = np.zeros(value.shape, np.complex128 if value.dtype.kind == "c" else np.float64)
    for i in np.ndindex(value.shape):
        for direction in (1, 1j) if value.dtype.kind == "c" else (1,):
            ends = []
            for sign in (1, -1):
                moved = np.array(value)
                moved[i] += sign * step * direction
                ends.append((moved[i], loss({x: moved})))
            # The step that was actually taken, after rounding.
            distance = abs(complex(ends[0][0]) - complex(ends[1][0]))
            result[i] += (ends[0][1] - ends[1][1]) / distance * direction
    return result
