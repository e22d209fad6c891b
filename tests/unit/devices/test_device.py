"""Devices: what they own, and what of it sessions, steps and handles see."""

import gc

import numpy as np
import pytest

import headrace as tf
from headrace._src.compile.native.machine_code import available
from headrace._src.core import errors
from headrace._src.devices.device import Device, LinkCost, find_device, local_devices
from headrace._src.devices.resources import ResourceHandle, Resources, reset_containers
from headrace._src.devices.step_context import current

CPU = "/job:localhost/replica:0/task:0/device:CPU:"


def two_cpus(graph):
    return tf.Session(graph=graph, config=tf.ConfigProto(device_count={"CPU": 2}))


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as g:
        yield g


def test_a_name_is_one_device():
    first, second = local_devices({"CPU": 2})
    assert find_device(f"{CPU}0") is first and local_devices()[0] is first
    assert first.type == "CPU" and first.compiler == "llvm"
    assert first.incarnation != second.incarnation
    with pytest.raises(ValueError, match="full name"):
        Device("/cpu:0")
    with pytest.raises(errors.InvalidArgumentError, match="there is no device"):
        find_device("/job:localhost/replica:0/task:0/device:MOON:0")


def test_links_have_costs():
    first, second = local_devices({"CPU": 2})
    assert first.link_to(second).cost(10**9) == 0  # a reference is passed
    far = Device("/job:far/replica:0/task:0/device:CPU:0")
    first.links[far.name] = LinkCost(1e-3, 1e9)
    assert first.link_to(far).cost(10**9) == pytest.approx(1.001)
    del first.links[far.name]


def test_the_allocator_counts_and_refuses():
    allocator = Device(f"{CPU}7", memory_limit=10_000_000).allocator
    small, large = allocator.block(1000), allocator.block(4_000_000)
    found = allocator.statistics()
    assert (found.in_use, found.peak, found.largest) == (4_001_000, 4_001_000, 4_000_000)
    assert (found.allocations, found.limit) == (2, 10_000_000)
    row = large[5:6]
    del large
    assert allocator.statistics().in_use == 4_001_000  # a view holds the whole block
    with pytest.raises(MemoryError, match="7,000,000 bytes"):
        allocator.block(7_000_000)
    del row, small
    gc.collect()
    assert allocator.statistics().in_use == 0 and allocator.statistics().peak == 4_001_000
    held = allocator.hold(2000)
    assert allocator.statistics().in_use == held.size == 2000
    del held
    assert allocator.statistics().in_use == 0


def test_variables_live_on_their_devices(graph):
    with tf.device("/cpu:1"):
        v = tf.get_variable("v", initializer=[1.0, 2.0], use_resource=True)
        w = tf.Variable([3.0], name="w", use_resource=False)
    u = tf.Variable([4.0], name="u", use_resource=True)
    with two_cpus(graph) as session:
        session.run(tf.global_variables_initializer())
        places = {
            name: device
            for (device, container), found in session._resources._own.items()
            if not container
            for name in found
        }
        assert {places["v"], places["w"]} == {f"{CPU}1"} and places["u"] == f"{CPU}0"
        handle = session.run(v.handle)
        assert (handle.device, handle.container, handle.name) == (f"{CPU}1", "", "v")
        assert not any(hasattr(handle, name) for name in ("resources", "get"))
        train = tf.train.MomentumOptimizer(0.5, 0.9).minimize(tf.reduce_sum(v * v) + w * u)
        session.run(tf.variables_initializer([x for x in tf.global_variables() if x is not v]))
        for _ in range(3):
            session.run(train)
        assert np.isfinite(session.run([v, w, u])[0]).all()


def test_a_group_with_state_stays_where_it_was_used(graph):
    v = tf.Variable([1.0], name="v", use_resource=False)
    with two_cpus(graph) as session:
        session.run(v.initializer)
        update = tf.assign_add(v, [1.0])
        update.op._set_device("/cpu:1")  # ignored, as in TensorFlow: it takes the reference
        assert session.run(update) == [2.0]
        with graph.colocate_with(v.op, ignore_existing=True):
            other = tf.no_op("other")
        other._set_device("/cpu:1")
        with pytest.raises(errors.InvalidArgumentError, match=r"v keeps state on .*CPU:0 already"):
            session.run(update)


def test_a_handle_of_another_session_finds_nothing_here(graph):
    v = tf.get_variable("v", initializer=1.0, use_resource=True)
    read = tf.raw_ops.ReadVariableOp(resource=v.handle, dtype=tf.float32)
    with tf.Session() as first, tf.Session() as second:
        first.run(v.initializer)
        handle = first.run(v.handle)
        assert isinstance(handle, ResourceHandle)
        assert first.run(read, {v.handle: handle}) == 1.0
        with pytest.raises(errors.FailedPreconditionError):
            second.run(read, {v.handle: handle})


def test_named_containers_are_the_devices_and_shared(graph):
    with graph.container("common"), tf.device("/cpu:1"):
        v = tf.get_variable("v", initializer=5.0, use_resource=True)
    with two_cpus(graph) as first, two_cpus(graph) as second:
        first.run(v.initializer)
        assert second.run(v) == 5.0
        assert "v" in find_device(f"{CPU}1").containers["common"]
        tf.Session.reset("", ["common"])
        with pytest.raises(errors.OpError):
            second.run(v)


def test_named_containers_of_all_devices_are_cleared():
    devices = local_devices({"CPU": 2})
    for device in devices:
        device.containers["ours, left"]["x"] = device.containers["ours, kept"]["x"] = 1
    reset_containers(name for name in ["ours, left"])
    assert [dict(device.containers["ours, left"]) for device in devices] == [{}, {}]
    assert [dict(device.containers["ours, kept"]) for device in devices] == [{"x": 1}, {"x": 1}]
    reset_containers(iter(()))  # like an empty list: all of them
    assert [dict(device.containers["ours, kept"]) for device in devices] == [{}, {}]


@pytest.mark.parametrize("jit", [tf.OptimizerOptions.OFF, tf.OptimizerOptions.ON_1])
@pytest.mark.parametrize("fails", [False, True])
def test_what_lives_in_a_step_is_gone_after_it(jit, fails):
    array = tf.TensorArray(tf.float32, 3, clear_after_read=False)
    n = tf.placeholder(tf.int32, [])
    _, array = tf.while_loop(
        lambda i, a: i < n, lambda i, a: (i + 1, a.write(i, tf.cast(i, tf.float32))), [0, array]
    )
    rows = array.stack()
    (grad,) = tf.gradients(tf.reduce_sum(rows), [array.flow])
    config = tf.ConfigProto()
    config.graph_options.optimizer_options.global_jit_level = jit
    config.graph_options.optimizer_options.opt_level = tf.OptimizerOptions.L0
    with tf.Session(config=config) as session:
        for _ in range(3):
            if fails:
                with pytest.raises(errors.OpError):
                    session.run([rows, grad], {n: 7})
            else:
                np.testing.assert_array_equal(session.run(rows, {n: 3}), [0, 1, 2])
        assert not [c for _, c in session._resources._own if c.startswith("_step_")]


def test_no_device_means_the_first_one():
    first, second = local_devices({"CPU": 2})
    resources = Resources((first, second))
    for container in ("", "_step_1", "named"):
        resources.get_or_create("", container, "x", list, list)
        assert resources.has(first.name, container, "x")
        assert not resources.has(second.name, container, "x")
    resources.drop("_step_1")
    assert not resources.has("", "_step_1", "x") and resources.has("", "", "x")
    reset_containers(["named"])


def test_a_kernel_can_ask_for_its_step():
    seen = []

    def kernel(x, *, step):
        assert step is not None and step.resources is not None
        seen.append((step.id, step.frame, step.iteration, step.deadline is not None))
        step.cancellation.check()
        return x

    @tf.register_op(
        "AskStep", "x: float32 -> y: float32", kernel=kernel, shape=lambda x: x, stateful=True
    )
    def ask_step(x, name=None):
        """Return x."""

    x = tf.placeholder(tf.float32, [])
    y = ask_step(x)
    loop = tf.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, ask_step(a)), [0, x])[1]
    with tf.Session() as session:
        session.run(y, {x: 1.0})
        session.run(y, {x: 1.0}, options=tf.RunOptions(timeout_in_ms=60_000))
        (first, *_), (second, *_) = seen
        assert first != second and seen[1][3] and not seen[0][3]
        seen.clear()
        session.run(loop, {x: 1.0}, options=tf.RunOptions(timeout_in_ms=60_000))
        assert len({step for step, *_ in seen}) == 1 and len(seen) == 3
    seen.clear()
    config = tf.ConfigProto()
    config.graph_options.optimizer_options.opt_level = tf.OptimizerOptions.L0
    with tf.Session(config=config) as session:
        session.run(loop, {x: 1.0})
        assert [iteration for _, _, iteration, _ in seen] == [0, 1, 2]
        assert {frame for _, frame, _, _ in seen} != {""}
    assert current() is None


def test_compiled_steps_work_in_their_devices_memory(graph):
    x = tf.placeholder(tf.float32, [512, 512])
    with tf.device("/cpu:1"):
        y = tf.matmul(tf.nn.relu(tf.matmul(x, x)), x)
    config = tf.ConfigProto(device_count={"CPU": 2})
    config.graph_options.optimizer_options.global_jit_level = tf.OptimizerOptions.ON_1
    before = find_device(f"{CPU}1").allocator.statistics()
    with tf.Session(config=config) as session:
        session.run(y, {x: np.eye(512, dtype=np.float32)})
        after = find_device(f"{CPU}1").allocator.statistics()
    assert after.allocations > before.allocations or not available()


@pytest.mark.parametrize("resource", [False, True])
def test_variables_are_in_their_devices_memory(graph, resource):
    with tf.device("/cpu:1"):
        v = tf.get_variable("v", initializer=np.ones(50_000, np.float32), use_resource=resource)
    update = tf.assign_add(v, np.ones(50_000, np.float32))
    allocator = find_device(f"{CPU}1").allocator
    gc.collect()
    before = allocator.statistics().in_use
    with two_cpus(graph) as session:
        session.run(v.initializer)
        for _ in range(4):
            session.run(update)
        gc.collect()
        assert allocator.statistics().in_use == before + 200_000
    gc.collect()
    assert allocator.statistics().in_use == before


@pytest.mark.parametrize("resource", [False, True])
def test_state_of_several_devices_is_saved_and_resumed(graph, resource, tmp_path):
    with tf.device("/cpu:1"):
        v = tf.get_variable("v", initializer=[1.0], use_resource=resource)
        local = tf.get_variable(
            "l", initializer=5.0, use_resource=resource, collections=["local_variables"]
        )
        queue = tf.FIFOQueue(5, tf.float32, shapes=[()], name="q")
    noise = tf.random_normal([])
    enqueue, dequeue = queue.enqueue(noise), queue.dequeue()
    change = tf.group(tf.assign_add(v, [1.0]), tf.assign_add(local, 1.0))
    saver = tf.train.Saver([v], exact_resume=True)
    prefix = str(tmp_path / "model")
    with two_cpus(graph) as session:
        session.run([v.initializer, local.initializer])
        session.run(change)
        session.run(enqueue)
        path = saver.save(session, prefix)
        expected = [*session.run([v, local]), session.run(dequeue), session.run(noise)]
    with two_cpus(graph) as session:
        session.run(local.initializer)
        saver.restore(session, path)
        found = [*session.run([v, local]), session.run(dequeue), session.run(noise)]
    assert expected[0] == [2.0] and expected[1] == 6.0
    np.testing.assert_array_equal(np.hstack(found), np.hstack(expected))
