"""What a session gives away is the caller's own: who changes it changes nothing that is kept."""

import tracemalloc
from pathlib import Path

import numpy as np
import pytest

import headrace as tf
from headrace._src.ops.state.staging_ops import MapStagingArea

VALUE = np.arange(6, dtype=np.float32).reshape(2, 3)
RUNS = 4  # the first runs are interpreted, later ones compiled


def spoil(results):
    for array in results:
        if isinstance(array, np.ndarray):
            assert array.flags.writeable
            array[...] = -99


def run_and_spoil(session, fetches, feeds=None):
    """Run steps, and change what each of them gives: the next must give the same."""
    kept = {t: np.array(v) for t, v in (feeds or {}).items()}
    first = None
    for _ in range(RUNS):
        found = session.run(fetches, feeds)
        copies = [np.array(value) for value in found]
        first = first or copies
        for a, b in zip(copies, first, strict=True):
            np.testing.assert_array_equal(a, b)
        for i, a in enumerate(found):
            # A tensor that is fetched twice is one array, as in TensorFlow.
            assert not any(np.shares_memory(a, b) for b in found[:i] if b is not a)
            assert not any(np.shares_memory(a, v) for v in (feeds or {}).values())
        spoil(found)
        for t, value in (feeds or {}).items():
            np.testing.assert_array_equal(value, kept[t])


# Ops that may pass on the memory of their input, and some that don't.
PASSING = {
    "itself": lambda x: x,
    "identity": tf.identity,
    "reshape": lambda x: tf.reshape(x, [-1]),
    "transpose": tf.transpose,
    "slice": lambda x: x[:1],
    "whole slice": lambda x: x[:],
    "stop_gradient": tf.stop_gradient,
    "expand_dims": lambda x: tf.expand_dims(x, 0),
    "split": lambda x: tf.split(x, 2)[1],
    "unstack": lambda x: tf.unstack(x)[0],
    "broadcast": lambda x: tf.broadcast_to(x, [2, 2, 3]),
    "cast": lambda x: tf.raw_ops.Cast(x=x, DstT=tf.float32),
    "sum of one": lambda x: tf.raw_ops.AddN(inputs=[x]),
    "sum over nothing": lambda x: tf.reduce_sum(x, []),
    "maximum over nothing": lambda x: tf.reduce_max(x, []),
    "concat with nothing": lambda x: tf.concat([x, x[:0]], 0),
    "gathered": lambda x: tf.gather(x, [0, 1]),
    "stack of one": lambda x: tf.stack([x]),
    "tile once": lambda x: tf.tile(x, [1, 1]),
    "pad by nothing": lambda x: tf.pad(x, [[0, 0], [0, 0]]),
    "bitcast": lambda x: tf.bitcast(x, tf.int32),
    "reverse": lambda x: tf.reverse(x, [0]),
    "diagonal": lambda x: tf.matrix_diag_part(x),
    "doubled": lambda x: x * 2.0,
    "product": lambda x: tf.matmul(x, x, transpose_b=True),
    "relu": tf.nn.relu,
    "condition": lambda x: tf.cond(tf.reduce_sum(x) > 0, lambda: x, lambda: x * 2.0),
    "loop": lambda x: tf.while_loop(lambda i, y: i < 0, lambda i, y: (i + 1, y), [0, x])[1],
}


@pytest.mark.parametrize("derive", PASSING.values(), ids=PASSING)
@pytest.mark.parametrize("source", ["feed", "constant", "reference", "resource", "computed"])
def test_results_are_no_part_of_their_sources(source, derive):
    with tf.Graph().as_default(), tf.Session() as session:
        feeds = None
        if source == "feed":
            x = tf.placeholder(tf.float32, [2, 3])
            feeds = {x: VALUE.copy()}
        elif source == "constant":
            x = tf.constant(VALUE)
        elif source == "computed":
            given = tf.placeholder(tf.float32, [2, 3])
            x = given + 1.0
            feeds = {given: VALUE.copy()}
        else:
            v = tf.get_variable("v", initializer=VALUE, use_resource=source == "resource")
            session.run(v.initializer)
            x = v.read_value()
        run_and_spoil(session, [derive(x)], feeds)
        run_and_spoil(session, [derive(x), tf.identity(x), derive(x)], feeds)


def test_results_of_updates_are_no_part_of_the_variable():
    for resource in (False, True):
        with tf.Graph().as_default(), tf.Session() as session:
            v = tf.get_variable("v", initializer=VALUE, use_resource=resource)
            more = tf.assign_add(v, np.ones_like(VALUE))
            session.run(v.initializer)
            for i in range(1, RUNS + 1):
                found = session.run(more)
                np.testing.assert_array_equal(found, VALUE + i)
                spoil([found])
                np.testing.assert_array_equal(session.run(v), VALUE + i)


def test_what_was_fetched_of_a_variable_stays_as_the_variable_changes():
    with tf.Graph().as_default(), tf.Session() as session:
        v = tf.get_variable("v", initializer=VALUE)
        fetches = [v, tf.reshape(v, [-1]), v[1:]]
        more = tf.assign_add(v, np.ones_like(VALUE))
        session.run(v.initializer)
        for i in range(RUNS):
            before = session.run(fetches)
            session.run(more)
            np.testing.assert_array_equal(before[0], VALUE + i)
            np.testing.assert_array_equal(before[1], (VALUE + i).reshape(-1))
            np.testing.assert_array_equal(before[2], VALUE[1:] + i)


# -- What is kept by objects that outlive steps ----------------------------------------------------


def _queue(x):
    queue = tf.FIFOQueue(10, [tf.float32], [[2, 3]])
    return queue.enqueue(x), queue.dequeue()


def _queue_many(x):
    queue = tf.FIFOQueue(10, [tf.float32], [[3]])
    return queue.enqueue_many(x), queue.dequeue_many(2)


def _stage(x):
    area = tf.contrib.staging.StagingArea([tf.float32], [[2, 3]])
    return area.put([x]), area.get()


def _map_stage(x):
    area = MapStagingArea([tf.float32], shapes=[[2, 3]])
    return area.put(np.int64(1), [x], [0]), area.get(np.int64(1))[1]


def _table(x):
    table = tf.contrib.lookup.MutableHashTable(tf.int64, tf.float32, np.zeros(3, np.float32))
    keys = np.array([1, 2], np.int64)
    return table.insert(keys, x), table.lookup(keys)


def _accumulator(x):
    sums = tf.ConditionalAccumulator(tf.float32, [2, 3])
    return sums.apply_grad(x, local_step=100), sums.take_grad(1)  # never stale


def _barrier(x):
    handle = tf.raw_ops.Barrier(component_types=[tf.float32], shapes=[[3]])
    put = tf.raw_ops.BarrierInsertMany(handle=handle, keys=["a", "b"], values=x, component_index=0)
    taken = tf.raw_ops.BarrierTakeMany(handle=handle, num_elements=2, component_types=[tf.float32])
    return put, taken.values[0]


KEEPERS = {
    "queue": _queue,
    "queue of rows": _queue_many,
    "staging area": _stage,
    "map staging area": _map_stage,
    "table": _table,
    "accumulator": _accumulator,
    "barrier": _barrier,
}


@pytest.mark.parametrize("keeper", KEEPERS.values(), ids=KEEPERS)
@pytest.mark.parametrize("source", ["feed", "computed", "reshaped", "variable"])
def test_what_is_kept_is_no_part_of_what_was_fetched_with_it(keeper, source):
    with tf.Graph().as_default(), tf.Session() as session:
        given = tf.placeholder(tf.float32, [2, 3])
        v = tf.get_variable("v", initializer=VALUE)
        x = {
            "feed": given,
            "computed": given * 1.0,
            "reshaped": tf.reshape(given, [2, 3]),
            "variable": v.read_value(),
        }[source]
        put, take = keeper(x)
        session.run(v.initializer)
        clear = tf.assign(v, np.zeros_like(VALUE))
        for _ in range(RUNS):
            session.run(v.initializer)
            value = VALUE.copy()
            found = session.run([x, put], {given: value})
            spoil([found[0], value])
            session.run(clear)
            taken = session.run(take)
            taken = taken[0] if isinstance(taken, list) else taken
            np.testing.assert_array_equal(taken, VALUE)


def test_what_a_staging_area_shows_is_no_part_of_it():
    with tf.Graph().as_default(), tf.Session() as session:
        area = tf.contrib.staging.StagingArea([tf.float32], [[2, 3]])
        session.run(area.put([tf.constant(VALUE)]))
        for _ in range(RUNS):
            (found,) = session.run(area.peek(0))
            np.testing.assert_array_equal(found, VALUE)
            spoil([found])


def test_what_a_table_gives_is_no_part_of_it():
    with tf.Graph().as_default(), tf.Session() as session:
        put, found = _table(tf.constant(VALUE))
        session.run(put)
        run_and_spoil(session, [found])


def test_what_a_session_handle_keeps_is_the_sessions():
    with tf.Graph().as_default(), tf.Session() as session:
        given = tf.placeholder(tf.float32, [2, 3])
        x = given * 1.0
        handle, value = session.run([tf.get_session_handle(x), x], {given: VALUE.copy()})
        spoil([value, handle.eval()])
        holder, tensor = tf.get_session_tensor(handle.handle, tf.float32)
        for _ in range(RUNS):
            found = session.run(tensor, {holder: handle.handle})
            np.testing.assert_array_equal(found, VALUE)
            spoil([found])


def test_what_stacks_and_tensor_arrays_hold_within_a_step():
    with tf.Graph().as_default(), tf.Session() as session:
        given = tf.placeholder(tf.float32, [2, 3])
        x = given + 1.0
        rows = tf.TensorArray(tf.float32, 2, clear_after_read=False).write(0, x).write(1, x)
        fetches = [x, rows.read(0), rows.read(1), rows.read(0), rows.stack(), rows.concat()]
        run_and_spoil(session, fetches, {given: VALUE.copy()})
        stack = tf.raw_ops.StackV2(max_size=2, elem_type=tf.float32, stack_name="s")
        pushed = tf.raw_ops.StackPushV2(handle=stack, elem=x)
        with tf.control_dependencies([pushed]):
            popped = tf.raw_ops.StackPopV2(handle=stack, elem_type=tf.float32)
        run_and_spoil(session, [x, pushed, popped], {given: VALUE.copy()})


# -- Python functions ------------------------------------------------------------------------------


@pytest.mark.parametrize("call", [tf.py_func, tf.numpy_function, tf.py_function])
def test_a_function_may_keep_and_change_its_arguments(call):
    kept = []

    def keep(*arguments):
        arrays = [a.numpy() if hasattr(a, "numpy") else a for a in arguments]
        spoil(kept)
        kept.extend(arrays)
        result = np.float32(sum(a.sum() for a in arrays))
        spoil(arrays)
        return result

    with tf.Graph().as_default(), tf.Session() as session:
        v = tf.get_variable("v", initializer=VALUE)
        given = tf.placeholder(tf.float32, [2, 3])
        arguments = [v, given, tf.constant(VALUE), tf.reshape(v, [-1]), given * 1.0]
        total = call(keep, arguments, tf.float32)
        session.run(v.initializer)
        value = VALUE.copy()
        for _ in range(RUNS):
            assert session.run(total, {given: value}) == VALUE.sum() * 5
            np.testing.assert_array_equal(session.run(v), VALUE)
            np.testing.assert_array_equal(value, VALUE)


def test_a_function_may_keep_what_it_returns():
    own = VALUE.copy()
    with tf.Graph().as_default(), tf.Session() as session:
        y = tf.py_func(lambda: own, [], tf.float32)
        run_and_spoil(session, [y, tf.identity(y), tf.reshape(y, [3, 2])])
    np.testing.assert_array_equal(own, VALUE)


# -- Steps that stop half-way ----------------------------------------------------------------------


def test_what_a_partial_run_gives_is_no_part_of_what_it_goes_on_with():
    with tf.Graph().as_default(), tf.Session() as session:
        a, c = tf.placeholder(tf.float32, [2, 3]), tf.placeholder(tf.float32, [])
        x = a * 1.0
        y = x + c
        for _ in range(RUNS):
            run = session.partial_run_setup([x, y], [a, c])
            spoil([session.partial_run(run, x, {a: VALUE.copy()})])
            np.testing.assert_array_equal(session.partial_run(run, y, {c: 1.0}), VALUE + 1)


@pytest.mark.parametrize("options", ["trace", "deadline"])
def test_results_of_steps_that_are_watched(options):
    asked = (
        tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE)
        if options == "trace"
        else tf.RunOptions(timeout_in_ms=100_000)
    )
    with tf.Graph().as_default(), tf.Session() as session:
        v = tf.get_variable("v", initializer=VALUE)
        x = v * 2.0
        session.run(v.initializer)
        for _ in range(RUNS):
            found = session.run([v, x, tf.reshape(x, [-1])], options=asked)
            np.testing.assert_array_equal(found[1], VALUE * 2)
            assert not np.shares_memory(found[1], found[2])
            spoil(found)


# -- What need not be copied -----------------------------------------------------------------------


def test_ownership_does_not_follow_from_counts_of_references():
    """A free-threaded Python doesn't say how many references there are."""
    root = Path(tf.__file__).parent
    found = [p for p in root.rglob("*.py") if "getrefcount" in p.read_text(encoding="utf-8")]
    assert found == []


def allocated(session, fetch, feeds):
    """The result of a step, and how many bytes it has allocated at most."""
    tracemalloc.start()
    try:
        found = session.run(fetch, feeds)
        return found, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("level", [-1, 0])
def test_large_results_are_not_copied(level):
    options = tf.OptimizerOptions(opt_level=level)
    config = tf.ConfigProto(graph_options=tf.GraphOptions(optimizer_options=options))
    size = 1 << 20
    with tf.Graph().as_default(), tf.Session(config=config) as session:
        x = tf.placeholder(tf.float32, [1024, size // 1024])
        feeds = {x: np.ones((1024, size // 1024), np.float32)}
        for fetch in (x * 2.0, tf.nn.softmax(x), tf.concat([x, x], 1), tf.nn.relu(x) + 1.0):
            for _ in range(2):
                session.run(fetch, feeds)
            found, most = allocated(session, fetch, feeds)
            assert most < 2 * found.nbytes + size
