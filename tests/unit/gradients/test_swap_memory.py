"""swap_memory: with a folder for files, what a loop saves for its gradient is in one."""

import gc
import os

import numpy as np
import pytest

import headrace as tf
from headrace._src.core.config import settings
from headrace._src.devices.device import find_device, local_devices
from headrace._src.lowering.list_anchors import SWAP_MEMORY
from headrace._src.pipeline import Options, compile_step
from tests.sent_steps import sent

CPU = "/job:localhost/replica:0/task:0/device:CPU:"
TIME, ROWS, UNITS = 6, 4, 160  # rows of more than 2 KB


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HEADRACE_SWAP_DIR", str(tmp_path))
    settings.cache_clear()
    yield tmp_path
    monkeypatch.undo()
    settings.cache_clear()


def config(jit, devices=1):
    level = tf.OptimizerOptions.ON_1 if jit else tf.OptimizerOptions.OFF
    options = tf.GraphOptions(optimizer_options=tf.OptimizerOptions(global_jit_level=level))
    return tf.ConfigProto(device_count={"CPU": devices}, graph_options=options)


# -- Steps: functions of swap_memory to fetches ----------------------------------------------------


def numbers(*shape):
    return np.random.default_rng(0).standard_normal(shape, "float32")


def recurrent(swap, device="/cpu:0"):
    """The loss and gradients of a recurrent layer."""
    with tf.device(device):
        cell = tf.nn.rnn_cell.BasicLSTMCell(UNITS)
        x = tf.constant(numbers(ROWS, TIME, 3))
        outputs, _ = tf.nn.dynamic_rnn(cell, x, dtype=tf.float32, swap_memory=swap)
        loss = tf.reduce_sum(tf.square(outputs))
    return [
        loss,
        *tf.gradients(loss, tf.trainable_variables(), colocate_gradients_with_ops=True),
    ]


def of_any_length(swap):
    """A loop that nothing says the length of, so its list grows."""
    x = tf.constant(numbers(UNITS * ROWS))

    def body(y):
        return y * 0.9 + tf.sin(y)

    limit = tf.get_variable("limit", initializer=1e3)
    y = tf.while_loop(
        lambda y: tf.reduce_sum(tf.square(y)) < limit,
        lambda y: [body(y) * 1.2],
        [x * 0.1],
        swap_memory=swap,
    )
    return [y, *tf.gradients(y, x)]


def nested(swap):
    x = tf.constant(numbers(UNITS * ROWS))

    def inner(_, y):
        def body(j, z):
            return j + 1, tf.sin(z) * x

        return _ + 1, tf.while_loop(lambda j, _: j < 3, body, [0, y], swap_memory=swap)[1]

    y = tf.while_loop(lambda i, _: i < 4, inner, [0, x], swap_memory=swap)[1]
    return [y, *tf.gradients(y, x)]


def second_order(swap):
    x = tf.constant(numbers(UNITS * ROWS))
    y = tf.while_loop(
        lambda i, _: i < 4, lambda i, y: (i + 1, tf.sin(y) * x), [0, x], swap_memory=swap
    )[1]
    (first,) = tf.gradients(y, x)
    return [first, *tf.gradients(first, x)]


def mapped(swap):
    x = tf.constant(numbers(3, UNITS * ROWS))
    y = tf.map_fn(lambda row: tf.sin(row) * row, x, swap_memory=swap)
    return [y, *tf.gradients(y, x)]


def scanned(swap):
    x = tf.constant(numbers(3, UNITS * ROWS))
    y = tf.scan(lambda a, row: tf.sin(a) * row, x, swap_memory=swap)
    return [y, *tf.gradients(y, x)]


def stacks(swap):
    """The stacks of TensorFlow's own gradient loops, by hand."""
    x = tf.constant(numbers(UNITS * ROWS))
    stack = tf.raw_ops.StackV2(max_size=-1, elem_type=tf.float32)

    def forwards(i, y):
        y = tf.raw_ops.StackPushV2(handle=stack, elem=tf.sin(y), swap_memory=swap)
        return i + 1, y

    _, y = tf.while_loop(lambda i, _: i < 4, forwards, [0, x], back_prop=False)

    def backwards(i, total):
        value = tf.raw_ops.StackPopV2(handle=stack, elem_type=tf.float32)
        value.set_shape(total.shape)
        return i + 1, total * 2.0 + value

    with tf.control_dependencies([y]):
        start = tf.identity(y)
    return tf.while_loop(lambda i, _: i < 4, backwards, [0, start], back_prop=False)


STEPS = [recurrent, of_any_length, nested, second_order, mapped, scanned, stacks]


def results(build, swap, jit, devices=1, runs=2):
    """Return the results of some runs, and the statistics of the device after them."""
    allocator = find_device(f"{CPU}{devices - 1}").allocator
    with tf.Graph().as_default():
        tf.set_random_seed(1)
        fetches = build(swap)
        with tf.Session(config=config(jit, devices)) as session:
            session.run(tf.global_variables_initializer())
            found = [session.run(fetches) for _ in range(runs)]
            gc.collect()
            return found, allocator.statistics()


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path):
    """No test leaves memory in files, nor a file."""
    local_devices({"CPU": 2})
    allocators = [find_device(f"{CPU}{i}").allocator for i in range(2)]
    for a in allocators:
        a._swapped_peak = 0
    yield
    gc.collect()
    assert [a.statistics().swapped for a in allocators] == [0, 0]
    assert not tmp_path.exists() or os.listdir(tmp_path) == []


# -- What it computes, and where -------------------------------------------------------------------


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("build", STEPS)
def test_every_bit_is_the_same(folder, build, jit):
    plain, before = results(build, False, jit)
    swapped, after = results(build, True, jit)
    assert before.swapped_peak == 0 < after.swapped_peak
    for one, other in zip(plain, swapped, strict=True):
        for a, b in zip(one, other, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("jit", [False, True])
def test_without_a_folder_nothing_changes(jit):
    (plain, _), (swapped, after) = (results(recurrent, swap, jit) for swap in (False, True))
    assert after.swapped_peak == 0
    np.testing.assert_array_equal(plain[0][1], swapped[0][1])


def plans_of(build, swap):
    """The plans of a step's clusters."""
    plans = []
    with tf.Graph().as_default():
        tf.set_random_seed(1)
        fetches = build(swap)

        def watch(name, flow):
            if name == "cluster":
                kernels = [n.definition.kernel for n in flow.nodes]
                plans.extend(k.plan for k in kernels if hasattr(k, "plan"))

        compile_step(fetches, [], [], [], Options(jit="always"), watch)
    return plans


@pytest.mark.needs_llvm
def test_the_arena_is_smaller_by_what_is_in_the_file(folder):
    (plain,), (swapped,) = plans_of(recurrent, False), plans_of(recurrent, True)
    saved = [b for b in swapped.buffers if b.swapped]
    assert len(saved) >= 7 and not any(b.swapped for b in plain.buffers)
    assert all(b.kind == "arena" and b.offset >= swapped.arena for b in saved)
    assert sum(b.size for b in saved) <= swapped.swapped
    assert swapped.arena <= plain.arena - swapped.swapped // 2
    assert "swapped arena+" in str(swapped) and "swapped" not in str(plain)
    assert [str(c.kernel) for c in swapped.calls] == [str(c.kernel) for c in plain.calls]


@pytest.mark.needs_llvm
@pytest.mark.parametrize(
    ("build", "kinds"),
    [
        (of_any_length, {"list"}),
        (nested, {"arena"}),
        (second_order, {"arena", "list"}),  # zeros like a list are one that grows
        (stacks, {"arena"}),
    ],
)
def test_native_loops_of_all_kinds_have_rows_in_files(folder, build, kinds):
    buffers = [b for plan in plans_of(build, True) for b in plan.buffers if b.swapped]
    assert {b.kind for b in buffers} == kinds
    assert max(b.size for b in buffers) >= UNITS * ROWS * 4


@pytest.mark.needs_llvm
def test_plans_of_other_loops_are_as_they_were(folder, monkeypatch):
    def printed(swap):
        return [str(plan) for plan in plans_of(recurrent, swap)]

    with_folder = printed(False)
    monkeypatch.delenv("HEADRACE_SWAP_DIR")
    settings.cache_clear()
    assert printed(False) == with_folder == printed(True)


@pytest.mark.needs_llvm
def test_a_limit_of_the_device_holds_for_memory_only(folder, monkeypatch):
    allocator = local_devices()[0].allocator
    gc.collect()
    monkeypatch.setattr(allocator, "_limit", allocator.statistics().in_use + 800_000)
    with pytest.raises(tf.errors.ResourceExhaustedError, match="swap_memory=True keeps"):
        results(recurrent_of_many_rows, False, True)
    found, after = results(recurrent_of_many_rows, True, True)
    assert after.swapped > 800_000
    assert np.isfinite(found[0][0])


def recurrent_of_many_rows(swap):
    x = tf.constant(numbers(4096))
    y = tf.while_loop(
        lambda i, _: i < 100, lambda i, y: (i + 1, tf.sin(y) * 0.5 + y), [0, x], swap_memory=swap
    )[1]
    return [tf.reduce_sum(y), *tf.gradients(y, x)]


@pytest.mark.needs_llvm
def test_what_passes_between_regions_is_in_files_too(folder):
    """Other devices compute between the loop and its gradient loop."""

    def build(swap):
        with tf.device("/cpu:1"):
            cell = tf.nn.rnn_cell.BasicLSTMCell(UNITS)
            x = tf.constant(numbers(ROWS, TIME, 3))
            outputs, _ = tf.nn.dynamic_rnn(cell, x, dtype=tf.float32, swap_memory=swap)
        with tf.device("/cpu:0"):
            loss = tf.reduce_sum(tf.square(outputs))
        found = tf.gradients(loss, tf.trainable_variables(), colocate_gradients_with_ops=True)
        return [loss, *found]

    plain, before = results(build, False, True, devices=2)
    swapped, after = results(build, True, True, devices=2)
    rows = TIME * ROWS * UNITS * 4
    # Several values of each iteration, in the first region's lists and as arrays.
    assert before.swapped_peak == 0 and after.swapped_peak >= 2 * 5 * rows
    for a, b in zip(plain[-1], swapped[-1], strict=True):
        np.testing.assert_array_equal(a, b)


# -- Graphs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("swap", [False, True])
def test_graphs_keep_the_request(folder, swap):
    """Those of the gradient loop too, and what was read from a file."""
    with tf.Graph().as_default() as graph:
        recurrent(swap)
        contexts = {op._get_control_flow_context() for op in graph.get_operations()} - {None}
        assert len(contexts) == 2
        assert {c.swap_memory for c in contexts} == {swap}
        definition = graph.as_graph_def()
    lists = [n for n in definition.node if n.op == "EmptyTensorList"]
    assert lists and {SWAP_MEMORY in n.attr for n in lists} == {swap}
    assert not swap or {n.attr[SWAP_MEMORY].b for n in lists} == {True}
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(definition, name="")
        made = [op for op in graph.get_operations() if op.type == "EmptyTensorList"]
        assert {op._attrs.get(SWAP_MEMORY, False) for op in made} == {swap}


def test_a_step_that_is_sent_to_a_worker_keeps_the_request(folder):
    flows = []
    with tf.Graph().as_default():
        fetches = recurrent(True)
        compile_step(fetches, [], [], [], Options(), lambda _, flow: flows.append(flow))
        decoded = sent(flows[0])
    lists = [n for n in decoded.nodes if n.type == "EmptyTensorList"]
    assert lists and all(n.attrs[SWAP_MEMORY] is True for n in lists)


def test_a_server_swaps_in_its_own_process(folder):
    server = tf.train.Server.create_local_server()
    with tf.Graph().as_default():
        tf.set_random_seed(1)
        fetches = recurrent(True)
        with tf.Session(server.target, config=config(True)) as session:
            session.run(tf.global_variables_initializer())
            found = session.run(fetches)
    (wanted, *_), _ = results(recurrent, False, True)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(a, b)


# -- Failures --------------------------------------------------------------------------------------


@pytest.mark.parametrize("jit", [False, True])
def test_a_missing_folder_is_an_error_that_can_be_mended(folder, jit):
    with tf.Graph().as_default():
        fetches = recurrent(True)
        with tf.Session(config=config(jit)) as session:
            session.run(tf.global_variables_initializer())
            folder.rmdir()
            for _ in range(2):
                with pytest.raises(tf.errors.ResourceExhaustedError, match="HEADRACE_SWAP_DIR"):
                    session.run(fetches)
            folder.mkdir()
            assert np.isfinite(session.run(fetches)[0])


@pytest.mark.parametrize("jit", [False, True])
def test_a_step_that_fails_leaves_nothing(folder, jit):
    allocator = local_devices()[0].allocator
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [UNITS * ROWS])

        def body(i, y):
            with tf.control_dependencies([tf.Assert(i < 3, [i])]):
                return i + 1, tf.sin(y) * x

        y = tf.while_loop(lambda i, _: i < 4, body, [0, x], swap_memory=True)[1]
        with tf.Session(config=config(jit)) as session:
            for _ in range(2):
                with pytest.raises(tf.errors.InvalidArgumentError):
                    session.run(tf.gradients(y, x), {x: numbers(UNITS * ROWS)})
    assert allocator.statistics().swapped_peak > 0  # and nothing_is_left
