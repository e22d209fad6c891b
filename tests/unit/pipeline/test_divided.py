"""A step in several processes: the master divides it, workers finish their partitions."""

from dataclasses import replace

import numpy as np
import pytest

import headrace as tf
from headrace._src.devices.device import Cpu, compiler_of, known_devices
from headrace._src.devices.resources import Resources
from headrace._src.graph.partition import PartitionedProgram
from headrace._src.ops.base.transfers import is_recv, is_send
from headrace._src.partition.shares import feeds_of, shares
from headrace._src.pipeline import Options, divide, finish_partitions, optimise, prepare
from headrace._src.runtime import PartitionedExecutable
from tests.sent_steps import sent

TASKS = ["/job:divided/replica:0/task:0", "/job:divided/replica:0/task:1"]


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def remote_options():
    """Return options with the devices of other processes: they are in no registry."""
    devices = tuple(Cpu(f"{task}/device:CPU:{i}") for task in TASKS for i in range(2))
    return Options(devices=devices, jit="off")


def on(task, cpu=0):
    return tf.device(f"{TASKS[task]}/device:CPU:{cpu}")


def task_of(device):
    return device.rpartition("/device:")[0]


def example():
    """Return the fetches and feeds of a step on three devices of two tasks."""
    x = tf.placeholder(tf.float32, [2, 3], name="x")
    y = tf.placeholder(tf.float32, [3], name="y")
    with on(0):
        a = tf.tanh(x, name="a")
    with on(1):
        b = tf.add(a, y, name="b")
    with on(1, 1):
        c = tf.square(b, name="c")
    with on(0):
        d = tf.add(tf.reduce_sum(c), tf.reduce_sum(y), name="d")
    return [b, d, a, c, d], [x, y]


def divided(fetches, feeds, as_is=False, targets=()):
    options = remote_options()
    step = prepare(fetches, targets, feeds, options)
    if not as_is:
        step = optimise(step, [tuple(t.shape.as_list()) for t in feeds], options)
    return divide(step, options, as_is), options


@pytest.mark.parametrize("as_is", [False, True])
def test_the_master_makes_no_devices(as_is):
    before = known_devices()
    parts, options = divided(*example(), as_is)
    assert len(parts.parts) == 3
    assert known_devices() == before
    incarnations = {d.name: d.incarnation for d in options.devices}
    for part in parts.parts:
        for node in part.flow.nodes:
            if is_send(node) or is_recv(node):
                known = incarnations[node.attrs["send_device"]]
                assert node.attrs["send_device_incarnation"] == known


def test_the_compiler_of_a_device_is_known_by_its_type():
    before = known_devices()
    assert compiler_of("/job:divided/replica:0/task:7/device:CPU:0") == "llvm"
    assert compiler_of("/job:divided/replica:0/task:7/device:TPU:0") is None
    assert known_devices() == before


def test_shares_say_what_each_task_takes_and_returns():
    parts, _ = divided(*example())
    first, second = shares(parts, task_of)
    assert [first.task, second.task] == TASKS
    assert [len(first.parts), len(second.parts)] == [1, 2]
    assert (first.feeds, first.fetches) == ((0, 1), (1, 2, 4))
    assert (second.feeds, second.fetches) == ((1,), (0, 3))
    assert str(second).startswith(f"{TASKS[1]}: {TASKS[1]}/device:CPU:0, ")
    flows = [part.flow for part in second.parts]
    assert [f.value.name for f in feeds_of(flows)] == ["y:0"]


def run_in_tasks(parts, options, values, compiled=False, as_is=False):
    """Run a step as its tasks do, each with its own partitions, but in one process."""
    programs = []
    found = shares(parts, task_of)
    for share in found:
        given = [(p.device, sent(p.flow)) for p in share.parts]
        programs.append(finish_partitions(given, options, compiled, as_is))
    for program, share in zip(programs, found, strict=True):
        assert isinstance(program, PartitionedProgram)
        assert len(program.sources) == len(share.fetches)
    # One program of all of them: the positions of feeds and fetches as the shares say.
    feeds = [
        tuple(share.feeds[i] for i in positions)
        for program, share in zip(programs, found, strict=True)
        for positions in program.feeds
    ]
    first, sources = 0, {}
    for program, share in zip(programs, found, strict=True):
        for (part, position), fetch in zip(program.sources, share.fetches, strict=True):
            sources[fetch] = first + part, position
        first += len(program.programs)
    whole = PartitionedProgram(
        tuple(device for program in programs for device in program.devices),
        tuple(each for program in programs for each in program.programs),
        tuple(feeds),
        tuple(sources[i] for i in range(len(sources))),
    )
    return PartitionedExecutable(whole, Resources(options.devices)).run(values)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("as_is", [False, True])
def test_tasks_compute_the_step(compiled, as_is):
    fetches, feeds = example()
    values = [np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3), np.ones(3, np.float32)]
    parts, options = divided(fetches, feeds, as_is)
    found = run_in_tasks(parts, options, values, compiled and not as_is, as_is)
    a = np.tanh(values[0])
    b = a + values[1]
    d = np.sum(b * b) + 3
    for value, expected in zip(found, [b, d, a, b * b, d], strict=True):
        np.testing.assert_allclose(value, expected, rtol=1e-6)


def test_a_step_on_one_device_is_one_partition():
    x = tf.placeholder(tf.float32, [2], name="x")
    with on(1, 1):
        y = tf.tanh(x)
    parts, options = divided([y, x], [x])
    assert [p.device for p in parts.parts] == [f"{TASKS[1]}/device:CPU:1"]
    assert parts.sources == ((0, 0), (0, 1)) and parts.edges == ()
    found = run_in_tasks(parts, options, [np.ones(2, np.float32)])
    np.testing.assert_allclose(found[0], np.tanh(np.ones(2, np.float32)), rtol=1e-6)
    np.testing.assert_array_equal(found[1], np.ones(2))


def test_a_step_of_constants_is_on_the_first_device():
    parts, options = divided([tf.constant(3.0)], [])
    assert [p.device for p in parts.parts] == [options.devices[0].name]
    assert run_in_tasks(parts, options, []) == [3.0]


def test_programs_that_are_not_specialised_say_so():
    parts, options = divided(*example(), as_is=True)
    given = [(p.device, sent(p.flow)) for p in parts.parts]
    assert not any(p.specialised for p in finish_partitions(given, options, as_is=True).programs)
    parts, options = divided(*example())
    given = [(p.device, sent(p.flow)) for p in parts.parts]
    assert all(p.specialised for p in finish_partitions(given, options).programs)


@pytest.mark.needs_llvm
def test_a_partition_is_compiled_in_regions_of_one_stage():
    x = tf.placeholder(tf.float32, [16, 16], name="x")
    with on(0):
        a = x @ x
        free = tf.tanh(x) * 2.0 + 1.0
    with on(1):
        b = a @ a
    with on(0):
        c = tf.square(b @ b + free) * 0.5
    parts, options = divided([c], [x])
    (part,) = [p for p in parts.parts if p.device.startswith(TASKS[0])]
    (program,) = finish_partitions(
        [(part.device, sent(part.flow))], replace(options, jit="always"), compiled=True
    ).programs
    names = [i.op.type for i in program.instructions]
    assert names == ["_Cluster", "_Send", "_Recv", "_Cluster"]


def test_what_is_placed_without_a_device_runs_on_the_partition_s():
    x = tf.placeholder(tf.float32, [4, 4], name="x")
    with on(1, 1):
        y = tf.random_normal([4], seed=1) + tf.reduce_sum(x @ x)
    parts, options = divided([y], [x])
    ((device, flow),) = [(p.device, sent(p.flow)) for p in parts.parts]
    program = finish_partitions([(device, flow)], options, compiled=True)
    assert {i.op.device for i in program.instructions} == {device}


def test_a_transfer_that_passes_cut_off_its_source_is_not_left():
    x = tf.placeholder(tf.float32, [2], name="x")
    with on(0):
        a = tf.identity(x)
    with on(1):
        y = tf.tanh(a)
    parts, options = divided([y], [x])
    (part,) = parts.parts
    assert [n.type for n in part.flow.nodes] == ["Tanh"]
    (found,) = run_in_tasks(parts, options, [np.ones(2, np.float32)])
    np.testing.assert_allclose(found, np.tanh(np.ones(2, np.float32)), rtol=1e-6)
