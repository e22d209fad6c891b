"""Which steps a server may run in its own thread."""

from dataclasses import replace

import numpy as np
import pytest

import headrace as tf
from headrace._src.runtime.brief import brief, may_turn_out_brief
from tests.unit.runtime.tasks import program_of
from tests.unit.session.devices import on, session


@pytest.fixture(autouse=True)
def fresh_graph():
    with tf.Graph().as_default():
        yield


def found(fetches, feeds=(), **options):
    with session() as s:
        return brief(program_of(s, fetches, feeds, **options)[0])


def crossing(value):
    with on(1):
        return tf.identity(value)


@pytest.mark.parametrize("size", [10, 100_000])
@pytest.mark.parametrize("compiled", [False, True])
def test_a_step_is_brief_if_it_has_few_elements(size, compiled):
    x = tf.placeholder(tf.float32, [None])
    with on(1):
        y = tf.tanh(x) * 2.0
    with on(0):
        z = y + 1.0
    feeds = {x: np.zeros(size, np.float32)}
    assert found([z], feeds, compiled=compiled) == (size == 10)


@pytest.mark.parametrize("size", [16, 128])
def test_contractions_must_be_small(size):
    x = tf.placeholder(tf.float32, [size, size])
    with on(1):
        y = tf.matmul(x, x)
    with on(0):
        z = y + 1.0
    assert found([z], {x: np.zeros((size, size), np.float32)}) == (size == 16)


@pytest.mark.parametrize("use_resource", [False, True])
def test_updates_of_small_variables_and_of_rows_of_large_ones_are_brief(use_resource):
    with on(0):
        step = tf.get_variable("s", initializer=0, use_resource=use_resource)
        zeros = np.zeros((50_000, 4), np.float32)
        table = tf.get_variable("t", initializer=zeros, use_resource=use_resource)
    indices = tf.placeholder(tf.int32, [3])
    with on(1):
        moved = indices + 1
    with on(0):
        counted = step.assign_add(1)
        rows = tf.gather(table, moved)
        update = tf.scatter_add(table, moved, tf.ones([3, 4]))
        all_of_it = tf.reduce_sum(table)
        dense = table.assign_add(zeros)
    feeds = {indices: np.zeros(3, np.int32)}
    with session() as s:
        s.run(tf.global_variables_initializer())
        for fetches in ([counted, crossing(counted)], [rows, crossing(rows)], [update.op, moved]):
            given = feeds if fetches[0] is not counted else ()
            for compiled in (False, True):
                assert brief(program_of(s, fetches, given, compiled)[0]), fetches
        for fetches in ([all_of_it, crossing(rows)], [dense.op, crossing(rows)], [table, moved]):
            for compiled in (False, True):
                assert not brief(program_of(s, fetches, feeds, compiled)[0]), fetches


def test_a_small_element_for_a_queue_is_brief():
    queue = tf.FIFOQueue(9, tf.float32, [2])
    x = tf.placeholder(tf.float32, [2])
    with on(1):
        y = x + 1.0
    assert found([queue.enqueue(y), y], {x: np.zeros(2, np.float32)})


def several(x):
    yield "python", tf.py_func(lambda a: a, [x], tf.float32)
    yield "print", tf.Print(x, [x])
    yield "file", tf.read_file(tf.as_string(x[0]))
    yield "loop", tf.while_loop(lambda a: a[0] < 1e9, lambda a: a * 2.0, [x])
    yield "primitives", tf.raw_ops.Switch(data=x, pred=x[0] > 0)[1]
    yield "decomposition", tf.linalg.svd(tf.reshape(tf.tile(x, [2048]), [64, 64]))[0]
    yield "unknown", tf.boolean_mask(x, x > 1.0)


@pytest.mark.parametrize("which", range(7))
def test_what_may_be_slow_is_not_brief(which):
    x = tf.placeholder(tf.float32, [2])
    with on(0):
        name, slow = list(several(x))[which]
    assert not found([slow, crossing(slow)], {x: np.float32([1, 2])}), name


@pytest.mark.parametrize("which", range(7))
def test_what_only_its_sizes_can_make_slow_may_turn_out_brief(which):
    x = tf.placeholder(tf.float32, [2])
    with on(0):
        name, slow = list(several(x))[which]
    with session() as s:
        program = program_of(s, [slow, crossing(slow)], {x: np.float32([1, 2])})[0]
    assert may_turn_out_brief(program) == (name in ("decomposition", "unknown"))


def test_steps_on_other_devices_than_cpus_are_not_brief():
    x = tf.placeholder(tf.float32, [2])
    with on(1):
        y = x + 1.0
    with session() as s:
        program = program_of(s, [x * 2.0, y], {x: np.float32([1, 2])})[0]
    assert brief(program)
    devices = tuple(name.replace("CPU", "XLA") for name in program.devices)
    assert not brief(replace(program, devices=devices))
    assert not may_turn_out_brief(replace(program, devices=devices))


@pytest.mark.parametrize("size", [10, 100_000])
@pytest.mark.parametrize("compiled", [False, True])
def test_branches_count_inside_compiled_regions_too(size, compiled):
    x = tf.placeholder(tf.float32, [size])
    with on(0):
        y = tf.cond(x[0] > 0.0, lambda: tf.tanh(x) * 2.0, lambda: x + 1.0) + 1.0
    feeds = {x: np.zeros(size, np.float32)}
    assert found([crossing(y)], feeds, compiled=compiled) == (size == 10)


@pytest.mark.needs_llvm
def test_a_value_at_the_border_of_a_compiled_region_counts_once():
    x = tf.placeholder(tf.float32, [30_000])
    with on(1):
        y = tf.tanh(x) * 2.0
    with on(0):
        z = tf.reduce_sum(y)
    assert found([z], {x: np.zeros(30_000, np.float32)}, compiled=True)
