"""The partitions of a step on several tasks: nothing but pumping runs them, nothing is lost when
they are cancelled, and they end once.
"""

import itertools
import threading
import time
from queue import SimpleQueue

import numpy as np
import pytest

import headrace as tf
from headrace._src.core.errors import AbortedError, CancelledError, DeadlineExceededError
from headrace._src.devices import workers
from headrace._src.devices.pending import Pending
from headrace._src.devices.rendezvous import _Received
from headrace._src.runtime import ShapesChanged
from headrace._src.runtime.served import takes_elements
from tests.unit.runtime.tasks import Cluster, cluster, executables, program_of, split
from tests.unit.session.devices import on, round_trip, session

STOP = CancelledError(None, None, "enough")


@pytest.fixture(autouse=True)
def fresh_graph():
    with tf.Graph().as_default():
        yield


@pytest.fixture
def threads():
    """Let a test use threads of the pool."""


@pytest.fixture(autouse=True)
def no_threads(request, monkeypatch):
    """Refuse threads of the pool: nothing in most tests is long or calls Python."""
    if "threads" not in request.fixturenames:
        monkeypatch.setattr(workers, "start", lambda call: pytest.fail("a thread was started"))


# -- Values ----------------------------------------------------------------------------------------


def test_a_round_trip_between_two_tasks():
    x = tf.placeholder(tf.float32, [2])
    y = round_trip(round_trip(x))
    with session() as s:
        wanted = s.run(y, {x: [0.5, 1.0]})
        for _ in range(3):  # the later ones are compiled
            step = cluster(s, [y], {x: np.float32([0.5, 1.0])}).start().run()
            assert step.is_over and step.error is None
            assert step.values[0] == pytest.approx(wanted)
        assert not s._resources._steps


@pytest.mark.parametrize("x", [-1.5, 1.5])
def test_dead_tensors_cross_tasks(x):
    p = tf.placeholder(tf.float32, [])
    with on(0):
        a = p * 2.0

    def then():
        with on(1):
            return tf.sqrt(a)

    def otherwise():
        with on(2):
            b = tf.exp(a)
        with on(0):
            return tf.identity(b) + 1.0

    with on(0):
        y = tf.cond(a > 0.0, then, otherwise)
    with session() as s:
        wanted = s.run(y, {p: x})
        step = cluster(s, [y], {p: np.float32(x)}, spans=True).start().run()
        assert step.error is None and step.is_over
        assert step.values == [wanted]


@pytest.mark.parametrize("tasks", [((0,), (1, 2)), ((0,), (1,), (2,))])
def test_a_loop_spans_tasks(tasks):
    x = tf.placeholder(tf.float32, [])

    def body(i, a):
        with on(1):
            b = a * 1.5
        with on(2):
            return i + 1, tf.identity(b) + 1.0

    with on(0):
        _, y = tf.while_loop(lambda i, _: i < 7, body, [0, x])
    with session() as s:
        wanted = s.run(y, {x: 2.0})
        step = cluster(s, [y], {x: np.float32(2.0)}, tasks, spans=True).start().run()
        assert step.error is None and step.is_over
        assert step.values == [wanted]


def test_nested_loops_span_tasks():
    x = tf.placeholder(tf.float32, [])

    def inner(j, a):
        with on(1):
            return j + 1, a + 1.0

    def outer(i, a):
        _, a = tf.while_loop(lambda j, _: j < 3, inner, [0, a])
        with on(2):
            return i + 1, a * 2.0

    with on(0):
        _, y = tf.while_loop(lambda i, _: i < 4, outer, [0, x])
    with session() as s:
        wanted = s.run(y, {x: 1.0})
        step = cluster(s, [y], {x: np.float32(1.0)}, spans=True).start().run()
        assert step.error is None and step.values == [wanted]


def test_tensors_that_arrive_before_a_task_starts():
    x = tf.placeholder(tf.float32, [2])
    with on(0):
        y = tf.tanh(x)
    with on(1):
        z = y + 1.0
    with session() as s:
        wanted = s.run(z, {x: [0.5, 1.0]})
        step = cluster(s, [z], {x: np.float32([0.5, 1.0])})
        first, second = step.steps
        first.start(step.feeds)
        first.pump()
        assert step.deliver() and not step.deliver()
        second.pump()  # it has not begun: nothing happens
        second.start(step.feeds)
        second.pump()
        assert step.is_over and step.values[0].tolist() == wanted.tolist()


def test_observed_steps_report_all_kernels():
    x = tf.placeholder(tf.float32, [2])
    y = round_trip(x)
    seen = []
    with session() as s:
        step = cluster(s, [y], {x: np.float32([1, 2])}, observe=lambda op, *_: seen.append(op.type))
        step.start().run()
        assert step.error is None
        assert {"_Send", "_Recv"} <= set(seen)


# -- Blocking --------------------------------------------------------------------------------------


def queue_step(count=1):
    """Return a queue on task 0 and a fetch on task 1 that is made of its element."""
    with on(0):
        queue = tf.FIFOQueue(9, tf.int32, [])
        element = queue.dequeue()
    with on(1):
        y = element
        for _ in range(count):
            y = tf.identity(y) + 0
    return queue, y


def test_an_element_of_a_queue_wakes_the_step():
    queue, y = queue_step()
    put = queue.enqueue(7)
    with session() as s:
        step = cluster(s, [y]).start().run()
        assert not step.is_over and not step.host.scheduled
        what = [w for one in step.steps for w, _ in one.waiting()]
        assert any("queue" in w for w in what) and any(w.startswith("tensor") for w in what)
        s.run(put)
        assert step.host.scheduled == [step.steps[0]]
        step.run()
        assert step.is_over and step.values == [7]


def test_blocked_steps_hold_no_threads():
    queue, y = queue_step()
    x = tf.placeholder(tf.int32, [])
    put = queue.enqueue(x)
    with session() as s:
        program, _ = program_of(s, [y])
        made = executables(s, program, (0,), (1, 2))
        s.run(put, {x: 0})
        Cluster(made, [], 1).start().run()
        threads = set(threading.enumerate())
        steps = [Cluster(made, [], 1).start().run() for _ in range(1000)]
        assert threads.issuperset(threading.enumerate())  # others may have ended
        assert len(s._resources._steps) == 2000
        for i in range(1000):
            s.run(put, {x: i})
        for step in steps:
            step.run()
        assert sorted(step.values[0] for step in steps) == list(range(1000))
        assert not s._resources._steps


# -- Cancelling ------------------------------------------------------------------------------------


@pytest.mark.parametrize("chain", [1, 3])
@pytest.mark.parametrize("enqueue", [0, 1, 2, 3])
def test_a_gentle_cancellation_at_any_point_loses_no_element(chain, enqueue):
    """`moments`: after how many events the cancellation reaches each of the two tasks."""
    queue, y = queue_step(chain)
    put, size, take = queue.enqueue(7), queue.size(), queue.dequeue()
    with session() as s:
        program, _ = program_of(s, [y])
        made = executables(s, program, (0,), (1, 2))
        ends = set()
        for moments in itertools.product(range(7), range(7)):
            step = Cluster(made, [], 1).start()
            for event in range(8):
                if event == enqueue:
                    s.run(put)
                for task, moment in enumerate(moments):
                    if event == moment:
                        step.steps[task].cancel(STOP, gentle=True)
                step.event()
            step.run()
            assert step.is_over
            left = s.run(size)
            if step.error is None:
                assert step.values == [7] and left == 0
            else:
                assert step.error is STOP and left == 1
                s.run(take)
            ends.add(step.error is None)
        assert ends == {True, False}


@pytest.mark.parametrize("enqueue", [(0, None), (None, 0), (0, 3), (3, 0), (2, 2)])
def test_a_cancellation_at_any_point_loses_nothing_of_two_queues(enqueue):
    """`enqueue`: after how many events each of two queues, on two tasks, gets its element."""
    queues, elements = [], []
    for device in range(2):
        with on(device):
            queues.append(tf.FIFOQueue(9, tf.int32, []))
            elements.append(queues[-1].dequeue())
    with on(1):
        y = tf.identity(elements[0]) + elements[1]
    with on(0):
        z = tf.identity(y) + 0
    puts, sizes = [q.enqueue(7) for q in queues], [q.size() for q in queues]
    takes = [q.dequeue() for q in queues]
    with session() as s:
        program, _ = program_of(s, [z])
        made = executables(s, program, (0,), (1, 2))
        ends = set()
        for moments in itertools.product(range(9), range(9)):
            step = Cluster(made, [], 1).start()
            for event in range(10):
                for put, when in zip(puts, enqueue, strict=True):
                    if event == when:
                        s.run(put)
                for task, moment in enumerate(moments):
                    if event == moment:
                        step.steps[task].cancel(STOP, gentle=True)
                step.event()
            step.run()
            step.settle()
            ends.add(step.error is None)
            there = [when is not None for when in enqueue]
            if step.error is None:
                assert step.values == [14] and s.run(sizes) == [0, 0]
            else:
                assert step.error is STOP and s.run(sizes) == there
                s.run([take for take, is_there in zip(takes, there, strict=True) if is_there])
        assert False in ends and (True in ends) == (None not in enqueue)


def test_an_element_that_was_claimed_before_the_cancellation_reaches_its_receiver(monkeypatch):
    queue, y = queue_step(3)
    put = queue.enqueue(7)
    complete = Pending.complete
    with session() as s:
        step = cluster(s, [y]).start().run()

        def cancel_first(pending, value):
            if not isinstance(pending, _Received):
                for one in step.steps:
                    one.cancel(STOP, gentle=True)
                step.run()
                assert not step.is_over
            complete(pending, value)

        monkeypatch.setattr(Pending, "complete", cancel_first)
        s.run(put)
        step.run()
        assert step.is_over and step.error is None and step.values == [7]


@pytest.mark.parametrize("claimed", [False, True])
def test_a_cancelled_dequeue_of_one_task_loses_no_element(claimed, monkeypatch):
    """Without gentleness: nothing is on its way to another task."""
    with on(0):
        queue = tf.FIFOQueue(9, tf.int32, [])
        element = queue.dequeue()
    with on(1):
        x = tf.placeholder(tf.int32, [])
        other = x + 1
    put, size = queue.enqueue(7), queue.size()
    complete = Pending.complete
    with session() as s:
        step = cluster(s, [element, other], {x: np.int32(1)}).start().run()
        assert len(step.outcomes) == 1
        if claimed:

            def cancel_first(pending, value):
                step.steps[0].cancel(STOP)
                step.run()
                complete(pending, value)

            monkeypatch.setattr(Pending, "complete", cancel_first)
            s.run(put)
            step.run()
            assert step.error is None and step.values == [7, 2]
        else:
            step.steps[0].cancel(STOP)
            step.run()
            assert step.error is STOP
            s.run(put)
            assert s.run(size) == 1


def test_a_hard_cancellation_does_not_wait_for_other_tasks():
    _, y = queue_step()
    with session() as s:
        step = cluster(s, [y]).start().run()
        step.steps[1].cancel(STOP, gentle=True)
        step.run()
        assert not step.outcomes
        step.steps[1].cancel(CancelledError(None, None, "now"))
        step.run()
        assert step.outcomes == {0: STOP, 1: STOP}  # the first reason counts


def test_a_loop_across_tasks_can_be_cancelled_after_any_number_of_events():
    x = tf.placeholder(tf.float32, [])

    def body(i, a):
        with on(1):
            return i + 1, a * 1.0

    with on(0):
        _, y = tf.while_loop(lambda i, _: i < 10**9, body, [0, x])
    with session() as s:
        program, values = program_of(s, [y], {x: np.float32(2.0)}, spans=True)
        made = executables(s, program, (0,), (1, 2))
        for gentle in (False, True):
            for events in range(25):
                step = Cluster(made, values, 1).start()
                for _ in range(events):
                    assert step.event()
                for one in step.steps:
                    one.cancel(STOP, gentle=gentle)
                step.run()
                assert step.is_over and step.error is STOP
        assert not s._resources._steps


def test_closing_the_session_cancels_its_steps_and_refuses_later_ones():
    _, y = queue_step()
    s = session()
    program, _ = program_of(s, [y])
    made = executables(s, program, (0,), (1, 2))
    step = Cluster(made, [], 1).start().run()
    s.close()
    step.run()
    assert step.is_over and isinstance(step.error, CancelledError)
    late = Cluster(made, [], 1)
    late.steps[0].start([])
    assert late.error is step.error


def test_a_step_that_was_cancelled_before_its_first_pump_runs_nothing():
    with on(0):
        v = tf.Variable(0.0)
        counted = v.assign_add(1.0)
    with on(1):
        y = counted + 1.0
    with session() as s:
        s.run(v.initializer)
        program, _ = program_of(s, [y])
        made = executables(s, program, (0,), (1, 2))
        for gentle in (False, True):
            for early in (False, True):
                step = Cluster(made, [], 1)
                if early:
                    for one in step.steps:
                        one.cancel(STOP, gentle=gentle)
                step.start()
                for one in step.steps:
                    one.cancel(STOP, gentle=gentle)
                step.run()
                assert step.is_over and step.error is STOP
        assert s.run(v) == 0.0


def test_a_step_that_is_over_cannot_be_stopped():
    x = tf.placeholder(tf.float32, [2])
    y = round_trip(x)
    with session() as s:
        step = cluster(s, [y], {x: np.float32([1, 2])}).start().run()
        for one in step.steps:
            one.cancel(STOP)
            one.abort(STOP)
            one.pump()
        assert step.error is None and not step.host.scheduled


# -- Errors ----------------------------------------------------------------------------------------


def test_an_error_of_one_task_ends_all():
    x = tf.placeholder(tf.float32, [None])
    with on(0):
        bad = tf.reshape(x, [2, 2], name="bad")
    with on(1):
        y = bad + 1.0
    with session() as s:
        step = cluster(s, [y], {x: np.float32([1, 2, 3])}).start().run()
        assert step.is_over and isinstance(step.error, tf.errors.InvalidArgumentError)
        assert step.error.op is bad.op
        step = cluster(s, [y], {x: np.float32([1, 2, 3, 4])}).start().run()
        assert step.error is None and step.values[0].shape == (2, 2)


def test_an_abort_reaches_a_task_that_is_blocked_on_a_queue():
    _, y = queue_step()
    with session() as s:
        step = cluster(s, [y]).start().run()
        lost = AbortedError(None, None, "task 1 is gone")
        step.steps[0].abort(lost)
        step.run()
        assert step.is_over and step.error is lost


def test_an_error_that_is_sent_in_place_of_a_tensor_fails_its_receiver():
    x = tf.placeholder(tf.float32, [2])
    with on(0):
        y = tf.tanh(x)
    with on(1):
        z = y + 1.0
    with session() as s:
        step = cluster(s, [z], {x: np.float32([1, 2])}).start()
        while not step.in_flight:
            step.event()
        ((key, _, _),) = step.in_flight
        step.in_flight[:] = [(key, None, AbortedError(None, None, "lost on the way"))]
        step.run()
        assert step.is_over and isinstance(step.error, AbortedError)


def test_shapes_that_changed_end_the_step_before_it_begins():
    with on(0):
        v = tf.Variable(np.zeros(2, np.float32))
        grow = tf.assign(v, np.zeros(5, np.float32), validate_shape=False)
    with on(1):
        y = v.read_value() * 2.0
    with session() as s:
        s.run(v.initializer)
        program, _ = program_of(s, [y])
        made = executables(s, program, (0,), (1, 2))
        s.run(grow.op)
        step = Cluster(made, [], 1)
        step.steps[0].start([])
        assert isinstance(step.outcomes[0], ShapesChanged)
        assert not s._resources._steps


def test_a_fetch_that_cannot_be_read_fails_the_step():
    with on(0):
        v = tf.Variable(1.0)
    with on(1):
        x = tf.placeholder(tf.float32, [])
        y = x + 1.0
    with session() as s:
        step = cluster(s, [v, y], {x: np.float32(1)}).start().run()
        assert isinstance(step.error, tf.errors.FailedPreconditionError)


def test_what_lives_as_long_as_the_step_is_dropped():
    x = tf.placeholder(tf.float32, [None])
    with on(1):
        array = tf.TensorArray(tf.float32, 2).write(0, x)
        element = array.read(0)
    with on(0):
        y = tf.reshape(element, [2], name="two")
    with session(allow_soft_placement=True) as s:
        for value in ([1.0, 2.0], [1.0]):
            step = cluster(s, [y], {x: np.float32(value)}).start().run()
            assert (step.error is None) == (len(value) == 2)
        left = [key for key, found in s._resources._own.items() if "_step" in key[1] and found]
        assert not left


# -- Deadlines -------------------------------------------------------------------------------------


def test_a_deadline_that_has_passed_names_what_was_waited_for():
    queue, y = queue_step()
    with session() as s:
        step = cluster(s, [y], deadline=time.monotonic() + 1000).start().run()
        step.steps[0]._be_late()  # as the thread of deadlines does
        step.run()
        assert isinstance(step.error, DeadlineExceededError)
        assert queue.name in step.error.message
        assert all(one._timer_of_deadline.is_cancelled for one in step.steps)


def test_a_deadline_comes_in_another_thread():
    _, y = queue_step()
    with session() as s:
        step = cluster(s, [y], deadline=0.0)
        late = threading.Event()
        for one in step.steps:
            one._be_late = late.set
        step.steps[0].start([])
        assert late.wait(20)
        step.steps[0].abort(STOP)
        step.steps[0].pump()
        assert step.outcomes == {0: STOP}


# -- Threads ---------------------------------------------------------------------------------------


class Pool:
    """A host with threads, which pump as soon as they are asked."""

    def __init__(self, count):
        self.asked = SimpleQueue()
        self.threads = [threading.Thread(target=self._work) for _ in range(count)]
        for thread in self.threads:
            thread.start()

    def schedule(self, step):
        self.asked.put(step)

    def _work(self):
        while (step := self.asked.get()) is not None:
            step.pump()

    def close(self):
        for _ in self.threads:
            self.asked.put(None)
        for thread in self.threads:
            thread.join(60)
            assert not thread.is_alive()


@pytest.mark.parametrize("cancelled", [False, True])
def test_steps_of_many_threads_end_once(cancelled):
    x = tf.placeholder(tf.float32, [])
    queue, element = queue_step()
    with on(2):
        far = tf.exp(x)
    y = round_trip(round_trip(x)) + tf.cast(element, tf.float32) * far
    number = tf.placeholder(tf.int32, [])
    put, size = queue.enqueue(number), queue.size()
    with session() as s:
        program, values = program_of(s, [y], {x: np.float32(0.0)})
        made = executables(s, program, (0,), (1, 2))
        pool = Pool(3)
        begun = [concurrent(made, values, 1, pool) for _ in range(60)]
        steps = [step for step, _ in begun]
        for i in range(30 if cancelled else 60):
            s.run(put, {number: i})
        if cancelled:
            for step in steps:
                for one in step.steps:
                    one.cancel(STOP, gentle=True)
        for _, wait in begun:
            wait()
        pool.close()
        ended = [float(step.values[0]) for step in steps if step.error is None]
        assert all(step.error in (None, STOP) for step in steps)
        assert len(ended) + s.run(size) == (30 if cancelled else 60)
        assert len(set(ended)) == len(ended)
        assert not s._resources._steps


def concurrent(made, values, count, pool):
    """Return a step whose tasks run in the threads of a pool, and a function that waits for it."""
    step, over = Cluster(made, values, count), threading.Semaphore(0)
    for one in step.steps:
        one._host = pool
        one.rendezvous._push = _straight(step)
        one._done = _counting(one._done, over)
    for one in step.steps:
        one.start(values)
        pool.schedule(one)

    def wait():
        for _ in step.steps:
            assert over.acquire(timeout=60)
        return step

    return step, wait


def test_a_thread_joins_where_a_task_has_several_devices(threads, monkeypatch):
    started, start = [], workers.start
    monkeypatch.setattr(workers, "start", lambda call: (started.append(call), start(call)))
    x = tf.placeholder(tf.float32, [4, 4])
    fetches = []
    for device in (1, 2):
        with on(device):
            fetches.append(tf.matmul(x, x) + device)
    with session() as s:
        program, values = program_of(s, fetches, {x: np.eye(4, dtype=np.float32)})
        made = executables(s, program, (1, 2))
        pool = Pool(2)
        for _ in range(20):
            step = concurrent(made, values, 2, pool)[1]()
            assert step.error is None
            assert [v.tolist() for v in step.values] == [
                (np.eye(4) + device).tolist() for device in (1, 2)
            ]
        pool.close()
    assert started


def test_python_functions_of_several_tasks_wait_for_each_other(threads):
    met = threading.Barrier(3)
    fetches = []
    for device in range(3):
        with on(device):
            fetches.append(tf.py_func(lambda: (met.wait(20), np.float32(1))[1], [], tf.float32))
    with session() as s:
        program, values = program_of(s, fetches)
        made = executables(s, program, (0,), (1, 2))
        pool = Pool(2)
        step = concurrent(made, values, 3, pool)[1]()
        pool.close()
        assert step.error is None and step.values == [1.0, 1.0, 1.0]


def test_a_step_ends_after_its_python_functions(threads):
    go, ran, begun = threading.Event(), [], threading.Event()

    def slow():
        begun.set()
        go.wait(20)
        ran.append(1)
        return np.float32(1)

    with on(0):
        queue = tf.FIFOQueue(1, tf.float32, [])
        fetches = [tf.py_func(slow, [], tf.float32), queue.dequeue()]
    with on(1):
        x = tf.placeholder(tf.float32, [])
        fetches.append(x + 1.0)
    with session() as s:
        program, values = program_of(s, fetches, {x: np.float32(1)})
        made = executables(s, program, (0,), (1, 2))
        pool = Pool(2)
        step, wait = concurrent(made, values, 3, pool)
        assert begun.wait(20)
        step.steps[0].cancel(STOP)
        assert 0 not in step.outcomes
        go.set()
        wait()
        pool.close()
        assert ran == [1] and step.error is STOP


def _straight(step):
    """Return a link that delivers at once."""

    def push(key, value, error):
        (there,) = [r for devices, r in step.rendezvous if key.receiver in devices]
        there.arrive(key, value)

    return push


def _counting(done, over):
    def call(values, error):
        done(values, error)
        over.release()

    return call


# -- What steps are like ---------------------------------------------------------------------------


def test_which_steps_take_elements():
    _, y = queue_step()
    x = tf.placeholder(tf.float32, [2])
    with session() as s:
        first, second = split(program_of(s, [y])[0], (0,), (1, 2))
        assert takes_elements(first[0]) and not takes_elements(second[0])
        plain = program_of(s, [round_trip(x)], {x: np.zeros(2, np.float32)})[0]
        assert not takes_elements(plain)
