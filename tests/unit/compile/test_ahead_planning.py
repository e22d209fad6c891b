"""From a frozen graph to a plan: packed weights, unfolded batch normalisation, numbered ends."""

from __future__ import annotations

import numpy as np
import pytest

import headrace as tf
from headrace._src.compile.ahead.inference_rewrites import simplify
from headrace._src.compile.ahead.planning import plan_flow
from headrace._src.compile.ahead.targets import target_for
from headrace._src.compile.kernels.gemm.gemm import PackB
from headrace._src.compile.kernels.gemm.matrix_products import pack_matrix
from headrace._src.compile.native.machine_code import run_kernel
from headrace._src.graph.dataflow import Dataflow
from headrace._src.pipeline.passes import Options, optimise, prepare


def optimised(outputs: list[tf.Tensor], inputs: list[tf.Tensor]) -> Dataflow:
    options = Options()
    step = prepare(outputs, (), inputs, options)
    return optimise(step, [tuple(t.shape.as_list()) for t in inputs], options)


@pytest.mark.parametrize(("k", "n", "columns"), [(5, 7, 4), (16, 32, 32), (3, 1, 8)])
def test_packed_matrices_are_what_the_kernel_packs(k, n, columns):
    matrix = np.random.default_rng(0).standard_normal((k, n)).astype(np.float32)
    spec = PackB(n, k, False, "float32", columns)
    packed = np.zeros(spec.packed_bytes // 4, np.float32)
    run_kernel(spec, [matrix, packed])
    np.testing.assert_array_equal(pack_matrix(matrix, columns).ravel(), packed)


def test_inputs_are_numbered_as_they_are_fed():
    with tf.Graph().as_default():
        unused, a, b = (tf.placeholder("float32", [n], name=f"p{n}") for n in (2, 3, 4))
        flow = optimised([tf.exp(b), tf.exp(a)], [unused, a, b])
    plan = plan_flow(flow, target_for("x86_64"))
    ends = {(b.kind, b.index): b.size for b in plan.buffers if b.kind in ("input", "output")}
    assert ends == {("input", 2): 16, ("input", 1): 12, ("output", 0): 16, ("output", 1): 12}


def batch_norm(data_format: str = "NHWC", **more) -> tuple[tf.Tensor, list[tf.Tensor], tf.Tensor]:
    rng = np.random.default_rng(1)
    x = tf.placeholder("float32", [2, 3, 4, 5])
    channels = x.shape[1 if data_format == "NCHW" else 3].value
    moments = [tf.constant(rng.uniform(0.5, 2, channels).astype(np.float32)) for _ in range(4)]
    y, mean, _ = tf.nn.fused_batch_norm(
        x, *moments, is_training=False, data_format=data_format, **more
    )
    return x, [y], mean


@pytest.mark.parametrize("data_format", ["NHWC", "NCHW"])
def test_batch_normalisation_becomes_a_product_and_a_sum(data_format):
    with tf.Graph().as_default():
        x, outputs, _ = batch_norm(data_format, epsilon=0.1)
        before = optimised(outputs, [x])
    after = simplify(before)
    assert [n.type for n in after.nodes if n.constant is None] == ["_Affine"]
    node = after.nodes[-1]
    assert after.fetches == node.outputs
    value = np.random.default_rng(2).standard_normal((2, 3, 4, 5)).astype(np.float32)
    scale, offset, mean, variance = (
        np.asarray(before.nodes[-1].constant_input(i)).reshape(-1, 1, 1)
        if data_format == "NCHW"
        else np.asarray(before.nodes[-1].constant_input(i))
        for i in range(1, 5)
    )
    expected = (value - mean) / np.sqrt(variance + 0.1) * scale + offset
    factors = [np.asarray(node.constant_input(i)) for i in (1, 2)]
    np.testing.assert_allclose(node.definition.kernel(value, *factors), expected, 1e-5, 1e-5)


def test_batch_normalisation_whose_statistics_are_asked_for_stays():
    with tf.Graph().as_default():
        x, outputs, mean = batch_norm()
        flow = optimised([*outputs, mean], [x])
    assert "_Affine" not in [n.type for n in simplify(flow).nodes]


def test_what_stays_outside_is_named():
    with tf.Graph().as_default():
        x = tf.placeholder("float32", [6, 6])
        flow = optimised([tf.matrix_inverse(x, name="turned")], [x])
    with pytest.raises(
        ValueError, match=r"ahead of time: turned \(MatrixInverse of float32\[6,6\]"
    ):
        plan_flow(flow, target_for("x86_64"))
