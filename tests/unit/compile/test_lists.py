"""Tensor arrays and stacks inside clusters: native code changes rows as the interpreter does, and
the interpreter reports errors as if native code had never run.
"""

import numpy as np
import pytest

import headrace as tf
from headrace._src.compile.kernels.rows.list_rows import CheckMarks, PutRow, TakeRow
from headrace._src.compile.native.machine_code import run_kernel
from tests.unit.compile.arrays import numbers
from tests.unit.compile.steps import assert_tiers_agree, clusters, session, uniform


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


ROWS = 5
TYPES = ("float32", "float64", "int32", "int64", "bool", "uint8")


class TestRows:
    """The kernels alone, on odd sizes, by teams of several threads."""

    @pytest.mark.parametrize("threads", [1, 2, 3])
    @pytest.mark.parametrize("inner", [1, 7, 1025, 3001])
    @pytest.mark.parametrize("dtype", TYPES)
    def test_a_row_goes_in_and_comes_out(self, dtype, inner, threads):
        row, rows = numbers(dtype, inner), np.zeros((ROWS, inner), np.dtype(dtype))
        index, marks, fault = np.int32([3]), np.zeros(ROWS, np.uint8), np.zeros(1, np.int64)
        spec = PutRow(ROWS, inner, dtype, "set")
        run_kernel(spec, [row, index, rows, marks, fault], threads)
        np.testing.assert_array_equal(rows[3], row)
        assert not rows[[0, 1, 2, 4]].any() and list(marks) == [0, 0, 0, 1, 0] and not fault[0]
        taken = np.zeros_like(row)
        spec = TakeRow(ROWS, inner, dtype, "clear")
        run_kernel(spec, [rows, index, marks, taken, fault], threads)
        np.testing.assert_array_equal(taken, row)
        assert marks[3] == 2 and not fault[0]

    @pytest.mark.parametrize("threads", [1, 3])
    def test_a_stack_gives_back_the_last_first(self, threads):
        rows, top, fault = np.zeros((2, 9), np.float32), np.zeros(2, np.int64), np.zeros(1, int)
        pushed = [uniform(9, seed=i) for i in range(3)]
        for row in pushed:
            run_kernel(PutRow(2, 9, "float32", "push"), [row, rows, top, fault], threads)
        assert fault[0] == 1 and top[0] == 2  # the third had no room
        taken = np.zeros(9, np.float32)
        for row in (pushed[1], pushed[0]):
            run_kernel(TakeRow(2, 9, "float32", "pop"), [rows, top, taken, fault], threads)
            np.testing.assert_array_equal(taken, row)
        fault[0] = 0
        run_kernel(TakeRow(2, 9, "float32", "pop"), [rows, top, taken, fault], threads)
        assert fault[0] == 1 and top[0] == 0

    @pytest.mark.parametrize("index", [-1, ROWS, 2**31 - 1, -(2**31)])
    @pytest.mark.parametrize("how", ["set", "add"])
    def test_a_row_that_is_none_is_not_written(self, how, index):
        rows, marks = np.zeros((ROWS, 3), np.float32), np.zeros(ROWS, np.uint8)
        fault = np.zeros(1, np.int64)
        spec = PutRow(ROWS, 3, "float32", how)
        run_kernel(spec, [uniform(3), np.int32([index]), rows, marks, fault])
        assert fault[0] == 1 and not rows.any() and not marks.any()

    def test_marks_are_all_as_wanted_or_a_fault(self):
        marks, fault = np.ones(ROWS, np.uint8), np.zeros(1, np.int64)
        run_kernel(CheckMarks(ROWS, 1), [marks, fault])
        assert fault[0] == 0
        marks[-1] = 2
        run_kernel(CheckMarks(ROWS, 1), [marks, fault])
        assert fault[0] == 1


def array(dtype=tf.float32, row=(4,), size=ROWS, **more):
    return tf.TensorArray(dtype, size, element_shape=list(row), **more)


def loop(count, body, *start):
    """Run body(i, *variables) for i = 0, 1, ..; the variables at the end."""
    found = tf.while_loop(
        lambda i, *_: i < count, lambda i, *v: (i + 1, *body(i, *v)), [tf.constant(0), *start]
    )
    return found[1:]


def assert_native(fetches):
    """All of the step that loops is one cluster, and it gives what the interpreter gives."""
    assert any(c.has_loops for c in clusters(fetches))
    assert_tiers_agree(fetches)


class TestArrays:
    @pytest.mark.parametrize("dtype", [tf.float32, tf.float64, tf.int32, tf.int64, tf.bool])
    def test_types(self, dtype):
        given = tf.cast(tf.get_variable("v", initializer=numbers("int32", ROWS, 3)), dtype)
        read = array(dtype, (3,)).unstack(given)
        (found,) = loop(ROWS, lambda i, a: (a.write(i, read.read(i)),), array(dtype, (3,)))
        assert_native([found.stack()])

    def test_rows_that_only_the_loop_sees_live_through_it(self):
        """A row is read an iteration after it was written, while other values come and go."""
        rows = array(size=20, clear_after_read=False).write(0, uniform(4))

        def body(i, rows, total):
            before = rows.read(i)
            square = tf.reshape(before, [4, 1]) * tf.reshape(tf.sin(before), [1, 4])
            square = 0.1 * tf.matmul(square, tf.matmul(square, square))
            rows = rows.write(i + 1, tf.reduce_sum(square, 0) + before * 0.9 + 0.1)
            return rows, total + tf.reduce_max(square) + before[1]

        assert_native([loop(19, body, rows, tf.constant(0.0))[1]])

    def test_gradients_through_arrays(self):
        x = tf.get_variable("x", initializer=uniform(ROWS, 4))
        given = array().unstack(x)
        state, found = loop(
            ROWS,
            lambda i, h, a: (tf.tanh(h + given.read(i)), a.write(i, h * 2.0)),
            tf.zeros([4]),
            array(),
        )
        cost = tf.reduce_sum(found.stack()) + tf.reduce_sum(state * state)
        assert_native([cost, *tf.gradients(cost, [x])])

    def test_what_comes_after_sees_no_fault_of_memory_that_is_used_again(self):
        v = tf.get_variable("v", initializer=tf.ones([8]))
        (rows,) = loop(4, lambda i, a: (a.write(i, v * tf.to_float(i)),), array(row=(8,), size=4))
        total = tf.reduce_sum(rows.stack(), 0)
        update = tf.assign_add(v, total)
        with tf.control_dependencies([update]):
            start = tf.identity(total)

        def body(i, z):
            square = tf.reshape(z, [8, 1]) * tf.reshape(z, [1, 8])
            return (tf.tanh(tf.reduce_sum(tf.matmul(square, square), 0)) + 1.0,)

        assert_native([*loop(3, body, start), update])


def _too_far(i, rows, x):
    return rows.write(i * 2, x), x * 1.5


def _twice(i, rows, x):
    return rows.write(i * 0, x), x * 1.5


def _read_before(i, rows, x):
    return rows.write(i, x), x + rows.read(i + 1)


def _read_again(i, rows, x):
    written = rows.write(i, x)
    return written, x + written.read(i) + written.read(i)


class TestFaults:
    @pytest.mark.parametrize("body", [_too_far, _twice, _read_before, _read_again])
    @pytest.mark.parametrize("resource", [False, True])
    def test_the_interpreter_says_it_and_variables_are_written_once(self, body, resource):
        v = tf.get_variable("v", initializer=uniform(4), use_resource=resource)
        w = tf.get_variable("w", initializer=uniform(4, seed=1), use_resource=resource)
        with tf.control_dependencies([tf.assign_add(v, tf.ones([4]))]):
            start = w * 1.5  # not an alias, which would show what is assigned later
        rows, x = loop(ROWS, body, array(), start)
        fetches = [rows.stack(), tf.identity(tf.assign_add(w, x))]
        assert any(c.has_loops for c in clusters(fetches))
        assert _outcome(True, fetches) == _outcome(False, fetches)

    def test_what_is_written_after_all_that_may_fail_is_not_copied_before(self):
        w = tf.get_variable("w", initializer=uniform(4))
        rows, x = loop(ROWS, lambda i, rows, x: (rows.write(i, x), x * w), array(), tf.ones([4]))
        late = tf.assign_add(w, x + tf.reduce_sum(rows.stack(), 0))
        (cluster,) = clusters([late])
        assert cluster.plan.fault is not None and not cluster.plan.undone
        assert_tiers_agree([late])
        with tf.control_dependencies([tf.assign_add(w, tf.ones([4]))]):
            early = tf.identity(array().write(tf.cast(w[0], tf.int32), x).read(0)) + 1.0
        (cluster,) = clusters([early])
        assert cluster.plan.undone == {0}

    def test_outside_of_loops_too(self):
        index = tf.get_variable("index", initializer=7)
        written = array().write(index, uniform(4))
        fetches = [tf.exp(written.read(0)) + 1.0]
        found = _outcome(True, fetches)
        assert found == _outcome(False, fetches) and "index 7" in found[0]

    def test_a_row_that_was_never_written_is_zeros(self):
        v = tf.get_variable("v", initializer=uniform(4))
        written = array().write(0, v)
        assert_tiers_agree([tf.exp(written.read(3)) + 1.0, tf.assign_add(v, v)])


def _outcome(jit, fetches):
    """What a step says is wrong, twice, and what it leaves in the variables."""
    with session(jit) as run:
        run.run(tf.global_variables_initializer())
        said = []
        for _ in range(2):
            with pytest.raises(tf.errors.InvalidArgumentError) as caught:
                run.run(fetches)
            said.append(caught.value.message.split(":", 1)[1].splitlines()[0])
        return *said, *(run.run(v.value()).tolist() for v in tf.global_variables())
