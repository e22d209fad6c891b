"""Values between the regions of one device: variables are read again, images keep their blocks."""

import numpy as np
import pytest

import headrace as tf
import headrace.horovod as hvd
from headrace._src.compile.clusters.cluster_kernel import Compiled
from headrace._src.compile.regions.layouts import to_blocks, to_plain
from headrace._src.devices.buffers import ReusedMemory
from headrace._src.runtime.partitions import PartitionedExecutable

ALWAYS = tf.GraphOptions(
    optimizer_options=tf.OptimizerOptions(global_jit_level=tf.OptimizerOptions.ON_1)
)


def train(split, steps=4):
    """Train two convolutions on one device and one on another; return losses and clusters."""
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [2, 8, 8, 3])
        h = x
        for i, channels in enumerate((16, 32, 32)):
            with tf.device(f"/cpu:{int(split and i == 2)}"):
                shape = [3, 3, h.shape[3].value, channels]
                start = np.random.default_rng(i).normal(0, 0.1, shape).astype(np.float32)
                w = tf.get_variable(f"w{i}", initializer=start)
                h = tf.nn.relu(tf.nn.conv2d(h, w, [1, 1, 1, 1], "SAME"))
                if i == 0:
                    h = tf.nn.max_pool(h, [1, 2, 2, 1], [1, 2, 2, 1], "SAME")
        with tf.device(f"/cpu:{int(split)}"):
            loss = tf.reduce_mean(tf.square(h))
        optimizer = tf.train.GradientDescentOptimizer(0.1)
        step = optimizer.minimize(loss, colocate_gradients_with_ops=True)
        config = tf.ConfigProto(device_count={"CPU": 2}, graph_options=ALWAYS)
        with tf.Session(config=config) as session:
            session.run(tf.global_variables_initializer())
            images = np.random.default_rng(9).random([2, 8, 8, 3])
            losses = [session.run([loss, step], {x: images})[0] for _ in range(steps)]
            return losses, list(clusters(session))


def clusters(session):
    for variants in {id(plan.variants): plan.variants for plan in session._plans.values()}.values():
        for executable in variants._settled.values():
            if isinstance(executable, PartitionedExecutable):
                for instruction in executable.program.instructions:
                    kernel = instruction.op.definition.kernel
                    if isinstance(kernel, Compiled):
                        yield kernel


@pytest.fixture(scope="module")
def split():
    return train(True)


def test_the_losses_are_those_of_one_device(split):
    np.testing.assert_allclose(split[0], train(False)[0], rtol=1e-5)


def test_no_variable_is_copied_to_another_region(split):
    for kernel in split[1]:
        variables = set(kernel.region.reads)
        assert not variables & {kernel.region.sources[v].base for v in kernel.region.outputs}


def test_images_keep_their_blocks_between_regions(split):
    first = next(k for k in split[1] if k.in_blocks)
    names = {v.name for v in first.in_blocks}
    assert names == {"MaxPool:0", "MaxPool:1"}
    (second,) = [k for k in split[1] if set(k.inputs) & first.in_blocks]
    assert first.in_blocks & set(second.inputs) == second.region.in_blocks & set(second.inputs)


def test_the_gradient_of_a_pool_gets_the_positions_of_its_maxima(split):
    (second,) = [k for k in split[1] if "MaxPool:1" in {v.name for v in k.inputs}]
    assert "Relu:0" not in {v.name for v in second.inputs}
    kernels = [type(call.kernel).__name__ for call in second.plan.calls]
    assert "MaxPoolGradient" in kernels and "MaxPool" not in kernels


def test_a_value_that_is_sent_is_plain(split):
    for kernel in split[1]:
        assert "Relu_1:0" not in {v.name for v in kernel.in_blocks}


def test_a_sent_image_is_converted_right_into_its_output(split):
    (first,) = [k for k in split[1] if "Relu_1:0" in {v.name for v in k.region.outputs}]
    written = [b for b in first.plan.buffers if b.label == "Relu_1:0"]
    assert [b.kind for b in written].count("arena") == 1


def test_the_nodes_own_kernels_take_and_give_blocks(split):
    first = next(k for k in split[1] if k.in_blocks and k.effect.name != "WRITES")
    rng = np.random.default_rng(3)
    values = [rng.random(v.type.sizes, np.float32) for v in first.inputs]
    states = [_Variable(rng, v) for v in first.references]
    native = first([*values, *states], ctx=None)
    for a, b in zip(native, first._interpret([*values, *states], None), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.fixture
def one_rank():
    hvd.init()
    yield
    hvd.shutdown()


@pytest.mark.parametrize("fetched", [False, True])
def test_gradients_that_are_reduced_in_place_are_made_in_the_same_memory(one_rank, fetched):
    with tf.Graph().as_default(), tf.Session(config=tf.ConfigProto(graph_options=ALWAYS)) as s:
        x = tf.placeholder(tf.float32, [64, 64])
        reduced = [hvd.allreduce(tf.matmul(x, x) * factor) for factor in (2.0, 3.0)]
        fetches = [tf.matmul(*reduced), *(reduced if fetched else ())]
        for _ in range(3):
            s.run(fetches, {x: np.eye(64)})
        plan = [p for p in s._plans.values() if p.feeds][-1]
        (executable,) = plan.variants._settled.values()
        kernels = [i.op.definition.kernel for i in executable.program.instructions]
        first = next(k for k in kernels if isinstance(k, Compiled))
        assert len(first._outputs) == 2
        for allocate, *_ in first._outputs:
            assert isinstance(allocate, ReusedMemory) is not fetched


def _Variable(rng, reference):
    from headrace._src.devices.variable_state import VariableState

    state = VariableState("w", tf.float32, reference.shape)
    state.assign(rng.random(reference.type.sizes, np.float32) - np.float32(0.5))
    return state


@pytest.mark.parametrize("windows", [([1, 3, 3, 1], [1, 2, 2, 1]), ([1, 2, 3, 1], [1, 1, 1, 1])])
@pytest.mark.parametrize("padding", ["SAME", "VALID"])
def test_gradients_by_positions_are_those_of_one_device(windows, padding):
    """Windows overlap, some maxima are equal, and one image has NaNs."""
    images = np.random.default_rng(1).integers(-3, 3, [2, 9, 7, 16]).astype(np.float32)
    images[1, ::3] = np.nan

    def gradient(split):
        with tf.Graph().as_default():
            x = tf.placeholder(tf.float32, images.shape)
            pooled = tf.nn.max_pool(x + 1.0, *windows, padding)
            with tf.device(f"/cpu:{int(split)}"):
                loss = tf.reduce_sum(tf.nn.relu(pooled * 0.5) * pooled)
            found = tf.gradients(loss, x, colocate_gradients_with_ops=True)
            config = tf.ConfigProto(device_count={"CPU": 2}, graph_options=ALWAYS)
            with tf.Session(config=config) as session:
                result = [session.run(found, {x: images})[0] for _ in range(3)][-1]
                return result, [v.name for k in clusters(session) for v in k.inputs]

    result, inputs = gradient(True)
    assert "MaxPool:1" in inputs
    np.testing.assert_array_equal(result, gradient(False)[0])


def test_conversions_are_inverse():
    array = np.random.default_rng(0).random([2, 3, 5, 16], np.float32)
    blocks = to_blocks(array, 8)
    assert blocks.reshape(2, 2, 3, 5, 8)[1, 1, 2, 4, 3] == array[1, 2, 4, 11]
    np.testing.assert_array_equal(to_plain(blocks, 8), array)
