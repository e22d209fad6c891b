"""Interpreted operations on large arrays: generated code where it pays, NumPy's results always."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

import headrace as tf
from headrace._src.lowering import generated
from headrace._src.ops.nn import norm_kernels
from headrace._src.ops.random import philox

pytestmark = pytest.mark.needs_llvm

LARGE = generated.LEAST + 3
RNG = np.random.default_rng(0)


@pytest.fixture
def plainly(monkeypatch):
    """A function that computes something by NumPy alone."""

    def run(function, *arguments):
        with monkeypatch.context() as m:
            m.setattr(generated, "LEAST", 1 << 60)
            return function(*arguments)

    return run


@pytest.fixture
def asked(monkeypatch):
    """The programs that kernels were generated for."""
    programs = []
    original = generated.elementwise

    def note(program, kinds):
        programs.append(kinds)
        return original(program, kinds)

    monkeypatch.setattr(generated, "elementwise", note)
    return programs


def evaluate(build, *arrays):
    with tf.Graph().as_default():
        places = [tf.placeholder(tf.as_dtype(a.dtype), a.shape) for a in arrays]
        with tf.Session() as session:
            return session.run(build(*places), dict(zip(places, arrays, strict=True)))


def floats(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("name", ["exp", "erf", "erfc", "lgamma", "digamma", "sigmoid", "tanh"])
def test_large_arrays_are_handed_to_generated_code(name, asked, plainly):
    x = floats(LARGE)
    function = getattr(tf.math, name)
    found = evaluate(function, x)
    assert asked == [("full",)]
    np.testing.assert_allclose(found, plainly(evaluate, function, x), rtol=2e-5, atol=1e-6)


def test_small_arrays_are_left_to_numpy(asked):
    evaluate(tf.exp, floats(generated.LEAST - 1))
    assert not asked


@pytest.mark.parametrize(
    "shapes, kinds",
    [
        (((300, 300), (300, 300)), ("full", "full")),
        (((300, 300), (300,)), ("full", "row")),
        (((), (300, 300)), ("single", "full")),
        (((300, 300), (1, 1)), ("full", "single")),
        (((30, 10, 300), (10, 300)), ("full", "row")),
        (((300, 300), (300, 1)), None),
        (((300, 1, 300), (1, 300, 1)), None),
        (((400, 1, 300), (300, 300)), None),
    ],
)
def test_ways_of_broadcasting(shapes, kinds, asked):
    x, y = (floats(*shape) for shape in shapes)
    np.testing.assert_array_equal(evaluate(tf.add, x, y), x + y)
    assert asked == ([] if kinds is None else [kinds])


def test_a_view_is_left_to_numpy(asked):
    x = floats(300, 300)
    found = evaluate(lambda x: tf.exp(tf.transpose(x)), x)
    np.testing.assert_allclose(found, np.exp(x.T), rtol=1e-6)


def test_integer_division_by_zero_is_found():
    x, y = np.ones(LARGE, np.int32), np.ones(LARGE, np.int32)
    y[-1] = 0
    with pytest.raises(tf.errors.InvalidArgumentError, match="division by zero"):
        evaluate(tf.floordiv, x, y)


def test_equal_steps_give_equal_bits():
    x = floats(LARGE)
    with tf.Graph().as_default(), tf.Session() as session:
        place = tf.placeholder(tf.float32, [None])
        y = tf.exp(tf.tanh(place))
        first = session.run(y, {place: x})
        session.run(y, {place: x[:10]})
        np.testing.assert_array_equal(session.run(y, {place: x}), first)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("distribution", ["uniform", "normal", "truncated"])
def test_random_numbers_are_those_of_numpy(distribution, dtype, plainly):
    stream = philox.Stream(0x0123456789ABCDEF, (7 << 64) | (2**64 - 9))
    found = philox.draw(distribution, stream, [LARGE], dtype)
    expected = plainly(philox.draw, distribution, stream, [LARGE], dtype)
    if distribution == "uniform":
        np.testing.assert_array_equal(found, expected)
    else:
        np.testing.assert_allclose(found, expected, rtol=1e-6 if dtype != "float64" else 1e-12)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_random_integers_are_those_of_numpy(dtype, plainly):
    stream = philox.Stream(9, 5)
    found = philox.draw("integer", stream, [3, LARGE], dtype, (-7, 1000))
    expected = plainly(philox.draw, "integer", stream, [3, LARGE], dtype, (-7, 1000))
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("shape", [(65536,), (3, 32768), (2, 70000)])
@pytest.mark.parametrize("name", ["fft", "ifft"])
def test_transforms(name, shape, plainly):
    x = (floats(*shape) + 1j * floats(*shape)).astype(np.complex64)
    found = evaluate(getattr(tf, name), x)
    expected = plainly(evaluate, getattr(tf, name), x)
    assert found.dtype == np.complex64
    np.testing.assert_allclose(found, expected, atol=1e-6 * np.abs(expected).max())


@pytest.mark.parametrize("shape", [(256, 256), (2, 128, 512), (64, 64, 64)])
def test_transforms_of_several_dimensions(shape, plainly):
    x = (floats(*shape) + 1j * floats(*shape)).astype(np.complex64)
    for build in (tf.fft2d, tf.ifft2d, tf.fft3d if len(shape) > 2 else tf.fft):
        found, expected = evaluate(build, x), plainly(evaluate, build, x)
        np.testing.assert_allclose(found, expected, atol=1e-6 * np.abs(expected).max())


def test_transforms_of_real_signals(plainly):
    for build, x in ((tf.signal.rfft, floats(65536)), (tf.signal.rfft2d, floats(2, 256, 256))):
        found, expected = evaluate(build, x), plainly(evaluate, build, x)
        assert found.shape == expected.shape and found.dtype == np.complex64
        np.testing.assert_allclose(found, expected, atol=1e-6 * np.abs(expected).max())


def test_largest_elements(plainly):
    x = floats(300, 300).round(1)
    for k in (1, 7, 32, 33):
        found = evaluate(lambda x, k=k: tf.nn.top_k(x, k), x)
        expected = plainly(evaluate, lambda x, k=k: tf.nn.top_k(x, k), x)
        np.testing.assert_array_equal(found.indices, expected.indices)
        np.testing.assert_array_equal(found.values, expected.values)


def test_batch_norm_and_its_gradient(plainly):
    x, dy = 3 * floats(8, 28, 28, 64) + 100, floats(8, 28, 28, 64)
    scale, offset, none = floats(64), floats(64), np.zeros(0, np.float32)
    moments = x.mean((0, 1, 2)), x.var((0, 1, 2))

    def run():
        made = norm_kernels.fused_batch_norm(x, scale, offset, none, none)
        return made + norm_kernels.fused_batch_norm_grad(dy, x, scale, *moments)

    for found, expected in zip(run(), plainly(run), strict=True):
        size = np.abs(expected).max(initial=1)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=2e-6 * size)


@pytest.mark.parametrize("options", [{"beta": 0.75, "alpha": 1e-4}, {"depth_radius": 2}])
def test_local_response_norm(options, plainly):
    x = floats(8, 28, 28, 64)
    found = norm_kernels.lrn(x, **options)
    np.testing.assert_allclose(found, plainly(lambda: norm_kernels.lrn(x, **options)), rtol=1e-5)


def test_segments_and_scatters(plainly):
    rows, ids = floats(20000, 8), RNG.integers(-1, 500, 20000).astype(np.int32)
    found = evaluate(lambda x, i: tf.unsorted_segment_sum(x, i, 600), rows, ids)
    expected = plainly(evaluate, lambda x, i: tf.unsorted_segment_sum(x, i, 600), rows, ids)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_factors_and_inverses(dtype, plainly):
    a = RNG.standard_normal((2, 200, 200))
    x = (a @ a.transpose(0, 2, 1) + np.eye(200)).astype(dtype)
    for build in (tf.cholesky, tf.matrix_inverse, lambda x: tf.matrix_inverse(x, adjoint=True)):
        found, expected = evaluate(build, x), plainly(evaluate, build, x)
        assert found.dtype == dtype
        np.testing.assert_allclose(found, expected, atol=1e-6 * np.abs(expected).max())


def test_singular_matrices_are_refused():
    with pytest.raises(tf.errors.InvalidArgumentError, match="Input is not invertible"):
        evaluate(tf.matrix_inverse, np.zeros((300, 300), np.float32))
    with pytest.raises(tf.errors.InvalidArgumentError, match="Cholesky decomposition was not"):
        evaluate(tf.cholesky, -np.eye(300, dtype=np.float32))


def test_a_forked_child_computes_alone(plainly):
    x = floats(LARGE)
    expected = evaluate(tf.erf, x)
    child = os.fork()
    if not child:
        os._exit(0 if np.array_equal(evaluate(tf.erf, x), expected) else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_a_fault_of_the_generator_costs_no_result(monkeypatch, caplog):
    def fail(program, kinds):
        raise RuntimeError("no code for that")

    generator = generated._generator()
    monkeypatch.setattr(generator, "elementwise", fail)
    x = floats(LARGE)
    quiet = type("Settings", (), {"verify": False, "no_generated": False})
    monkeypatch.setattr(generated, "_settings", quiet)
    np.testing.assert_allclose(evaluate(tf.exp, x), np.exp(x), rtol=1e-6)
    assert "no code for that" in caplog.text


def run_python(code, **variables):
    environment = {**os.environ, "HEADRACE_JIT": "off", **variables}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True)


def test_it_can_be_switched_off():
    code = """
import sys
import headrace as tf
tf.Session().run([tf.random_normal([100000]), tf.erf(tf.zeros([100000]))])
print("headrace._src.compile.run.single_ops" in sys.modules)
"""
    assert run_python(code).stdout.strip() == "True"
    assert run_python(code, HEADRACE_NO_GENERATED="1").stdout.strip() == "False"


def test_without_the_compiler_numpy_does_it():
    code = """
import sys
sys.modules["llvmlite"] = None
import headrace as tf
print(tf.Session().run(tf.reduce_sum(tf.erf(tf.ones([100000])))))
"""
    assert float(run_python(code).stdout) == pytest.approx(84270.1, abs=1)
