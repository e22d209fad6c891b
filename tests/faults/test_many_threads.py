"""Fifty threads of one session at once, on every kind of op that may block: nothing hangs, and no
element is lost or duplicated.
"""

import threading
import time
from collections import Counter

import numpy as np
import pytest

import headrace as tf

THREADS = 50
ROUNDS = 6
PATIENCE = 120.0  # seconds: only a hang takes that long


@pytest.fixture(autouse=True)
def own_graph():
    with tf.Graph().as_default():
        yield


def in_threads(*functions, threads=THREADS):
    """Call each function with each number below `threads`, all at once; a test that hangs fails."""
    failed = []
    start = threading.Barrier(len(functions) * threads)

    def call(function, number):
        try:
            start.wait(PATIENCE)
            function(number)
        except Exception as error:
            failed.append(error)

    all_threads = [
        threading.Thread(target=call, args=(f, i), daemon=True)
        for f in functions
        for i in range(threads)
    ]
    for thread in all_threads:
        thread.start()
    end = time.monotonic() + PATIENCE
    for thread in all_threads:
        thread.join(max(0.0, end - time.monotonic()))
    assert not failed, failed[:3]
    assert not any(thread.is_alive() for thread in all_threads), "a thread hangs"


def every(count=THREADS, rounds=ROUNDS):
    """Return the numbers that `count` threads add in `rounds` rounds: each once."""
    return Counter(range(count * rounds))


def numbers(thread):
    """The numbers that a thread adds."""
    return range(thread * ROUNDS, (thread + 1) * ROUNDS)


QUEUES = {
    "fifo": lambda capacity: tf.FIFOQueue(capacity, [tf.int64], [[]]),
    "padding": lambda capacity: tf.PaddingFIFOQueue(capacity, [tf.int64], [[]]),
    "shuffle": lambda capacity: tf.RandomShuffleQueue(capacity, 0, [tf.int64], [[]]),
}


@pytest.mark.parametrize("capacity", [1, 7, 1000])
@pytest.mark.parametrize("kind", QUEUES)
def test_queues_of_single_elements(kind, capacity):
    queue = QUEUES[kind](capacity)
    x = tf.placeholder(tf.int64, [])
    enqueue, dequeue = queue.enqueue(x), queue.dequeue()
    taken = []
    with tf.Session() as session:

        def produce(thread):
            for number in numbers(thread):
                session.run(enqueue, {x: number})

        def consume(thread):
            for _ in range(ROUNDS):
                taken.append(int(session.run(dequeue)))

        in_threads(produce, consume)
    assert Counter(taken) == every()


@pytest.mark.parametrize("kind", QUEUES)
def test_queues_of_batches_that_are_closed(kind):
    queue = QUEUES[kind](11)
    x = tf.placeholder(tf.int64, [None])
    enqueue = queue.enqueue_many([x])
    some, many = queue.dequeue_up_to(7), queue.dequeue_many(3)
    close, rest = queue.close(), queue.size()
    taken, done = [], threading.Barrier(THREADS)
    with tf.Session() as session:

        def produce(thread):
            session.run(enqueue, {x: list(numbers(thread))})
            if not done.wait(PATIENCE):
                session.run(close)

        def consume(thread):
            batch = some if thread % 2 else many
            try:
                while True:
                    taken.extend(session.run(batch).tolist())
            except tf.errors.OutOfRangeError:
                pass

        in_threads(produce, consume)
        if session.run(rest):
            taken.extend(session.run(some).tolist())
    assert Counter(taken) == every()


def test_priority_queue():
    queue = tf.PriorityQueue(5, [tf.int64], [[]])
    x = tf.placeholder(tf.int64, [])
    enqueue, dequeue = queue.enqueue([x, x]), queue.dequeue()[1]
    taken = []
    with tf.Session() as session:

        def produce(thread):
            for number in numbers(thread):
                session.run(enqueue, {x: number})

        def consume(thread):
            for _ in range(ROUNDS):
                taken.append(int(session.run(dequeue)))

        in_threads(produce, consume)
    assert Counter(taken) == every()


def test_queues_whose_waiters_are_cancelled():
    """A step that fails at its deadline while it waits has taken nothing."""
    queue = tf.FIFOQueue(4, [tf.int64])
    x = tf.placeholder(tf.int64, [])
    enqueue, dequeue = queue.enqueue(x), queue.dequeue()
    taken, late = [], tf.RunOptions(timeout_in_ms=3)
    with tf.Session() as session:

        def produce(thread):
            for number in numbers(thread):
                session.run(enqueue, {x: number})

        def consume(thread):
            left = ROUNDS
            while left:
                try:
                    taken.append(int(session.run(dequeue, options=late if left % 4 else None)))
                except tf.errors.DeadlineExceededError:
                    continue
                left -= 1

        in_threads(produce, consume)
    assert Counter(taken) == every()


@pytest.mark.parametrize("small", [False, True])
def test_barriers(small):
    barrier = tf.raw_ops.Barrier(
        component_types=[tf.int64, tf.int64],
        shapes=[[], []],
        capacity=-1,
        container="",
        shared_name="",
    )
    keys, values = tf.placeholder(tf.string, [None]), tf.placeholder(tf.int64, [None])
    inserts = [
        tf.raw_ops.BarrierInsertMany(handle=barrier, keys=keys, values=values, component_index=i)
        for i in range(2)
    ]
    close = tf.raw_ops.BarrierClose(handle=barrier, cancel_pending_enqueues=False)
    take = tf.raw_ops.BarrierTakeMany(
        handle=barrier,
        num_elements=3,
        component_types=[tf.int64, tf.int64],
        allow_small_batch=small,
        wait_for_incomplete=False,
        timeout_ms=-1,
    )
    taken, done = [], threading.Barrier(THREADS)
    with tf.Session() as session:

        def insert(thread):
            for number in numbers(thread):
                fed = {keys: [str(number)], values: [number]}
                for op in inserts if number % 2 else reversed(inserts):
                    session.run(op, fed)
            if not done.wait(PATIENCE):
                session.run(close)

        def consume(thread):
            try:
                while True:
                    first, second = session.run([take[2][0], take[2][1]])
                    assert (first == second).all()
                    taken.extend(first.tolist())
            except tf.errors.OutOfRangeError:
                pass

        in_threads(insert, consume)
        assert session.run(tf.raw_ops.BarrierIncompleteSize(handle=barrier)) == 0
    assert Counter(taken) == every()


def test_staging_areas():
    area = tf.contrib.staging.StagingArea([tf.int64], [[]], capacity=3)
    x = tf.placeholder(tf.int64, [])
    put, get = area.put([x]), area.get()
    taken = []
    with tf.Session() as session:

        def produce(thread):
            for number in numbers(thread):
                session.run(put, {x: number})

        def consume(thread):
            for _ in range(ROUNDS):
                taken.append(int(np.ravel(session.run(get))[0]))

        in_threads(produce, consume)
    assert Counter(taken) == every()


@pytest.mark.parametrize("anybody", [True, False])
@pytest.mark.parametrize("kind", ["", "Ordered"])
def test_staging_maps(kind, anybody):
    """Each thread takes any element, or the one that another thread has put."""

    def op(name, **inputs):
        build = getattr(tf.raw_ops, f"{kind}Map{name}")
        capacity = 3 if anybody else 0  # a full map might lack the keys that are asked for
        return build(dtypes=[tf.int64], capacity=capacity, shared_name="map", **inputs)

    x = tf.placeholder(tf.int64, [])
    put = op("Stage", key=x, indices=[0], values=[x * 3])
    if anybody:
        key, (value,) = op("UnstageNoKey", indices=[0])
    else:
        key, (value,) = x, op("Unstage", key=x, indices=[0])
    taken = []
    with tf.Session() as session:

        def produce(thread):
            for number in numbers(thread):
                session.run(put, {x: number})

        def consume(thread):
            for number in numbers(THREADS - 1 - thread):
                found, times = session.run([key, value], {x: number})
                assert times == 3 * found
                taken.append(int(found))

        in_threads(produce, consume)
    assert Counter(taken) == every()


def test_accumulators():
    """Gradients are applied until each taker has had its share."""
    dense = tf.ConditionalAccumulator(tf.float32, shape=[2])
    x = tf.placeholder(tf.float32, [2])
    apply, take = dense.apply_grad(x, local_step=2**40), dense.take_grad(5)
    taken = []
    with tf.Session() as session:

        def produce(thread):
            while thread < 5 and len(taken) < THREADS:
                session.run(apply, {x: [1.0, 2.0]})

        def consume(thread):
            taken.append(session.run(take).tolist())

        in_threads(produce, consume)
    assert taken == [[1.0, 2.0]] * THREADS


def test_sparse_accumulators():
    """Every gradient is in one of the sums that are taken."""
    sparse = tf.SparseConditionalAccumulator(tf.float32, shape=[None, 1], reduction_type="SUM")
    rows = tf.placeholder(tf.int64, [None])
    values = tf.ones(tf.stack([tf.size(rows), 1]))
    apply = sparse.apply_grad(rows, values, local_step=2**40)
    take, left = sparse.take_grad(1)[1], sparse.num_accumulated()
    taken, done = [], threading.Event()
    with tf.Session() as session:

        def produce(thread):
            for _ in range(ROUNDS):
                session.run(apply, {rows: [thread, thread + 1]})
            taken.append(0.0)

        def consume(thread):
            while sum(taken) < 2 * THREADS * ROUNDS and not done.is_set():
                try:
                    value = session.run(take, options=tf.RunOptions(timeout_in_ms=1000))
                except tf.errors.DeadlineExceededError:
                    continue
                taken.append(float(np.sum(value)))
            done.set()

        in_threads(produce, consume)
        assert session.run(left) == 0
    assert sum(taken) == 2 * THREADS * ROUNDS


def test_critical_sections():
    counter = tf.get_variable("counter", initializer=0, use_resource=True)
    section = tf.CriticalSection()

    def work():
        value = counter.read_value()
        with tf.control_dependencies([value]):
            slow = tf.py_func(lambda v: v + 1, [value], tf.int32)
        slow.set_shape([])
        return counter.assign(slow, read_value=True)

    step = section.execute(work)
    seen = []
    with tf.Session() as session:
        session.run(counter.initializer)

        def count(thread):
            for _ in range(ROUNDS):
                seen.append(int(session.run(step)))

        in_threads(count)
    assert sorted(seen) == list(range(1, THREADS * ROUNDS + 1))


def test_readers(tmp_path):
    names = []
    for i in range(10):
        names.append(str(tmp_path / f"{i}.txt"))
        lines = range(i * 30, i * 30 + 30)
        (tmp_path / f"{i}.txt").write_text("".join(f"{n}\n" for n in lines))
    queue = tf.FIFOQueue(100, [tf.string], [[]])
    fill, close = queue.enqueue_many([names]), queue.close()
    reader = tf.TextLineReader()
    one = reader.read(queue)[1]
    several = reader.read_up_to(queue, 4)[1]
    read = []
    with tf.Session() as session:
        session.run(fill)
        session.run(close)

        def consume(thread):
            fetch = one if thread % 2 else several
            try:
                while True:
                    read.extend(int(v) for v in np.ravel(session.run(fetch)))
            except tf.errors.OutOfRangeError:
                pass

        in_threads(consume)
    assert Counter(read) == Counter(range(300))


def test_session_handles():
    x = tf.placeholder(tf.float32, [3])
    handle = tf.get_session_handle(x * 2.0)
    with tf.Session() as session:
        first = session.run(handle, {x: [0, 0, 0]})
        holder, value = tf.get_session_tensor(first.handle, tf.float32)
        gone_holder, gone = tf.delete_session_tensor(first.handle)

        def work(thread):
            for number in numbers(thread):
                found = session.run(handle, {x: [number] * 3})
                assert session.run(value, {holder: found.handle}).tolist() == [2.0 * number] * 3
                session.run(gone, {gone_holder: found.handle})

        in_threads(work)


def test_tables():
    table = tf.contrib.lookup.MutableHashTable(tf.int64, tf.int64, -1)
    x = tf.placeholder(tf.int64, [None])
    insert, find, size = table.insert(x, x * 2), table.lookup(x), table.size()
    with tf.Session() as session:

        def work(thread):
            for number in numbers(thread):
                session.run(insert, {x: [number]})
                assert session.run(find, {x: [number]}).tolist() == [2 * number]

        in_threads(work)
        assert session.run(size) == THREADS * ROUNDS


@pytest.mark.parametrize("use_resource", [False, True])
def test_variables_count_every_update(use_resource):
    variable = tf.get_variable("v", initializer=tf.zeros([4]), use_resource=use_resource)
    step = tf.assign_add(variable, tf.ones([4]), use_locking=True)
    with tf.Session() as session:
        session.run(variable.initializer)

        def work(thread):
            for _ in range(ROUNDS):
                session.run(step.op if use_resource else step)

        in_threads(work)
        assert session.run(variable).tolist() == [THREADS * ROUNDS] * 4


PYTHON = {
    "py_func": tf.py_func,
    "numpy_function": tf.numpy_function,
    "py_function": lambda f, inp, types: tf.py_function(lambda x: f(x.numpy()), inp, types),
    "stateless": lambda f, inp, types: tf.py_func(f, inp, types, stateful=False),
}


@pytest.mark.parametrize("kind", PYTHON)
def test_python_functions_of_all_steps_meet(kind):
    """Each step's function waits until those of all other steps run too."""
    meeting = threading.Barrier(THREADS)

    def function(x):
        meeting.wait(PATIENCE)
        return x + 1

    x = tf.placeholder(tf.int64, [])
    y = PYTHON[kind](function, [x], tf.int64) * 2
    found = [0] * THREADS
    with tf.Session() as session:
        for _ in range(3):

            def work(thread):
                found[thread] = int(session.run(y, {x: thread}))

            in_threads(work)
            assert found == [2 * (i + 1) for i in range(THREADS)]


def test_python_functions_of_all_steps_meet_those_beside_them():
    """Two functions in each step: none returns before all of them run."""
    meeting = threading.Barrier(2 * THREADS)

    def function(x):
        meeting.wait(PATIENCE)
        return x + 1

    x = tf.placeholder(tf.int64, [])
    both = [tf.py_func(function, [x], tf.int64), tf.py_func(function, [x * 2], tf.int64)]
    with tf.Session() as session:
        for _ in range(2):

            def work(thread):
                assert session.run(both, {x: thread}) == [thread + 1, 2 * thread + 1]

            in_threads(work)


def test_batches_of_producers():
    """Queue runners fill a queue while threads take batches, until the epochs are over."""
    source = tf.train.range_input_producer(THREADS * ROUNDS, num_epochs=1, shuffle=False)
    batch = tf.train.shuffle_batch(
        [source.dequeue()], 4, 20, 1, num_threads=8, allow_smaller_final_batch=True
    )
    taken = []
    with tf.Session() as session:
        session.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        coordinator = tf.train.Coordinator()
        threads = tf.train.start_queue_runners(session, coordinator)

        def consume(thread):
            try:
                while True:
                    taken.extend(session.run(batch).tolist())
            except tf.errors.OutOfRangeError:
                pass

        in_threads(consume)
        coordinator.request_stop()
        coordinator.join(threads, stop_grace_period_secs=PATIENCE)
    assert Counter(taken) == every()
