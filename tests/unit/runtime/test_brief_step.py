"""Brief steps of several tasks, each in one thread: they run on when a tensor arrives, and end
once.
"""

import numpy as np
import pytest

import headrace as tf
from headrace._src.core.errors import (
    DeadlineExceededError,
    InvalidArgumentError,
    UnavailableError,
)
from headrace._src.runtime.brief_step import BriefStep, MeasuredStep, line_of
from headrace._src.runtime.pace import Pace
from tests.unit.runtime.tasks import executables, program_of
from tests.unit.session.devices import on, session


@pytest.fixture(autouse=True)
def fresh_graph():
    with tf.Graph().as_default():
        yield


def edge_of(op):
    return op.attrs["recv_device"], op.attrs["tensor_name"]


class Task:
    """The owner of one task's part of a step."""

    def __init__(self, executable, positions, devices, in_flight):
        self.devices = devices
        self.positions = positions
        self.in_flight = in_flight
        self.line = line_of(executable, edge_of, edge_of)
        self.outcomes = []
        self.together = []

    def start(self, feeds):
        self.step = BriefStep(1, self.line, feeds, self.send)
        self.note(self.step.start())

    def arrive(self, edge, value):
        self.note(self.step.arrive(edge, value))

    def send(self, edge, number, value, more):
        assert number == 1
        self.in_flight.append((edge, value))
        self.together.append((edge[1], more))

    def note(self, outcome):
        if outcome is not None:
            self.outcomes.append(outcome)


def tasks_of(s, fetches, feeds=()):
    program, values = program_of(s, fetches, feeds)
    in_flight = []
    made = executables(s, program, (0,), (1,))
    return [Task(*each, in_flight) for each in made], values, in_flight


def run(tasks, values, in_flight, backwards=False):
    for task, fed in zip(tasks, values, strict=True):
        task.start(fed)
    while in_flight:
        edge, value = in_flight.pop(-1 if backwards else 0)
        for task in tasks:
            if edge[0] in task.devices:
                task.arrive(edge, value)


def there_and_back(x):
    with on(1):
        y = tf.tanh(x)
        u = tf.square(x)
    with on(0):
        z = y * u + y
    with on(1):
        return z + 1.0


@pytest.mark.parametrize("backwards", [False, True])
def test_tensors_may_arrive_in_any_order(backwards):
    with on(0):
        x = tf.Variable([0.5, 1.0])
        start = x.read_value()
    y = there_and_back(start)
    with session() as s:
        s.run(tf.global_variables_initializer())
        wanted = s.run(y)
        for _ in range(3):
            tasks, _, in_flight = tasks_of(s, [y])
            run(tasks, [[], []], in_flight, backwards)
            (fetches, error) = tasks[1].outcomes[0]
            assert error is None and fetches[0] == pytest.approx(wanted)
            assert [len(task.outcomes) for task in tasks] == [1, 1]


def test_tensors_with_nothing_slow_between_them_are_sent_together():
    with on(0):
        x = tf.Variable([0.5, 1.0])
        first = tf.tanh(x.read_value(), name="first")
        second = tf.reshape(first, [2, 1], name="second")
        third = tf.exp(first, name="third")
    with on(1):
        y = tf.reduce_sum(first) + tf.reduce_sum(second) + tf.reduce_sum(third)
    with session() as s:
        s.run(tf.global_variables_initializer())
        tasks, _, in_flight = tasks_of(s, [y])
        run(tasks, [[], []], in_flight)
        assert tasks[1].outcomes[0][1] is None
        sent = tasks[0].together
        found = [(name.split("/")[0], more) for name, more in sent]
        assert found == [("first", True), ("second", False), ("third", False)]


@pytest.mark.parametrize("value", [None, np.float64([1, 2]), np.float32([1, 2, 3])])
def test_a_tensor_of_another_type_fails_the_step(value):
    with on(0):
        start = tf.Variable([0.5, 1.0]).read_value()
    y = there_and_back(start)
    with session() as s:
        s.run(tf.global_variables_initializer())
        tasks, _, in_flight = tasks_of(s, [y])
        for task in tasks:
            task.start([])
        for edge, _ in in_flight[:]:
            tasks[1].arrive(edge, value)
        ((fetches, error),) = tasks[1].outcomes
        assert fetches is None and isinstance(error, InvalidArgumentError)
        assert "and not float32[2]" in error.message


def test_an_error_of_a_kernel_names_its_operation():
    with on(0):
        v = tf.Variable(np.arange(3.0, dtype=np.float32))
        at = tf.Variable(7)
    with on(1):
        moved = tf.identity(at.read_value())
    with on(0):
        y = tf.gather(v, moved, name="beyond")
    with session() as s:
        s.run(tf.global_variables_initializer())
        program, _ = program_of(s, [y])
        in_flight = []
        tasks = [Task(*each, in_flight) for each in executables(s, program, (0,), (1,))]
        run(tasks, [[], []], in_flight)
        (outcome,) = tasks[0].outcomes
        assert isinstance(outcome[1], InvalidArgumentError) and "beyond" in str(outcome[1])


def test_a_tensor_that_cannot_be_sent_fails_the_step():
    with on(0):
        start = tf.Variable([0.5, 1.0]).read_value()
    y = there_and_back(start)
    with session() as s:
        s.run(tf.global_variables_initializer())
        tasks, _, _ = tasks_of(s, [y])

        def send(edge, number, value, more):
            raise UnavailableError(None, None, "the receiver is gone")

        tasks[0].send = send
        tasks[0].start([])
        assert isinstance(tasks[0].outcomes[0][1], UnavailableError)


def test_steps_that_count_or_ask_for_the_step_are_of_another_kind():
    with on(0):
        q = tf.FIFOQueue(3, [tf.float32], shapes=[[]])
        taken = q.dequeue()
    with on(1):
        y = tf.tanh(taken)
    with session() as s:
        program, _ = program_of(s, [y])
        lines = [
            line_of(each, edge_of, edge_of) for each, _, _ in executables(s, program, (0,), (1,))
        ]
    assert None in lines


def test_an_edge_that_nobody_knows_is_refused():
    with on(0):
        start = tf.Variable([0.5, 1.0]).read_value()
    y = there_and_back(start)
    with session() as s:
        program, _ = program_of(s, [y])
        for each, _, _ in executables(s, program, (0,), (1,)):
            assert line_of(each, lambda op: None, edge_of) is None


def test_a_measured_step_notes_its_time_once():
    with on(0):
        x = tf.Variable([0.5, -1.0, 2.0])
        some = tf.boolean_mask(x.read_value(), x > 0.0)  # of a size that only the step knows
    with on(1):
        y = tf.square(some)
    with on(0):
        z = y + 1.0
    noted = []

    class Noting(Pace):
        def note(self, seconds):
            noted.append(seconds)

    with session() as s:
        s.run(tf.global_variables_initializer())
        tasks, _, in_flight = tasks_of(s, [z])
        for task in tasks:
            task.step = MeasuredStep(1, task.line, [], task.send, Noting())
            task.note(task.step.start())
        assert not noted
        while in_flight:
            edge, value = in_flight.pop(0)
            for task in tasks:
                if edge[0] in task.devices:
                    task.arrive(edge, value)
        ((fetches, error),) = tasks[0].outcomes
        assert error is None and fetches[0].tolist() == [1.25, 5.0]
        assert len(noted) == 2 and all(seconds > 0 for seconds in noted)


def test_a_late_step_names_what_it_waits_for():
    with on(0):
        start = tf.Variable([0.5, 1.0]).read_value()
    y = there_and_back(start)
    with session() as s:
        s.run(tf.global_variables_initializer())
        tasks, _, _ = tasks_of(s, [y])
        for task in tasks:
            task.start([])
        error = tasks[1].step.lateness()
    assert isinstance(error, DeadlineExceededError)
    assert "the step's deadline passed while " in error.message
    assert " waited for " in error.message and "CPU:0" in error.message
    assert f"'{error.op.name}'" in error.message
