"""Loops that are entirely native, even if they save, read, index or branch: the step makes one
native call, and gives the interpreter's results.
"""

import numpy as np
import pytest

import headrace as tf
from headrace._src.compile.run.driver import NativeCluster
from headrace._src.pipeline import Options, compile_step
from tests.unit.compile.steps import assert_tiers_agree, clusters, session, uniform


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def assert_one_call(fetches, feeds=None, beside=()):
    """All that the step does, besides finding its variables, is one native call."""
    feeds = feeds or {}
    shapes = [np.shape(v) for v in feeds.values()]
    program = compile_step(fetches, [], list(feeds), shapes, Options(jit="always"))
    finding = ("VariableV2", "VarHandleOp", *beside)
    types = [i.op.type for i in program.instructions if i.op.type not in finding]
    assert types == ["_Cluster"], types
    assert_tiers_agree(fetches, feeds)


def loop(count, body, start):
    """Run body(i, x) for i = 0, 1, ..; x at the end."""
    return tf.while_loop(lambda i, _: i < count, lambda i, x: (i + 1, body(i, x)), [0, start])[1]


class TestGradientsOfAnyLength:
    """Values are saved in lists that grow."""

    @pytest.mark.parametrize("length", [0, 1, 16, 17, 300])
    def test_length_that_is_fed(self, length):
        x, count = tf.get_variable("x", initializer=uniform(7)), tf.placeholder("int32", [])
        found = loop(count, lambda i, y: tf.sin(y) * x + 0.5, x)
        assert_one_call([found, *tf.gradients(found, x)], {count: length})

    def test_length_that_values_decide(self):
        x = tf.get_variable("x", initializer=1.0 + np.abs(uniform(3)))
        found = tf.while_loop(
            lambda y: tf.reduce_max(y) < 50.0, lambda y: y * tf.sqrt(y + 0.5), [x]
        )
        assert_one_call([found, *tf.gradients(found, x)])

    def test_variables_are_written_once_though_the_step_begins_anew(self):
        x = tf.get_variable("x", initializer=uniform(7))
        seen = tf.get_variable("seen", initializer=0)
        count = tf.placeholder("int32", [])
        with tf.control_dependencies([tf.assign_add(seen, 1)]):
            start = tf.identity(x)
        found = loop(count, lambda i, y: tf.sin(y) * x, start)
        (gradient,) = tf.gradients(found, x)
        with session(True) as run:
            run.run(tf.global_variables_initializer())
            for length in (5, 100, 1000, 3):
                run.run(tf.assign_sub(x, gradient), {count: length})
            assert run.run(seen) == 4
        assert_tiers_agree([tf.assign_sub(x, 0.1 * gradient)], {count: 100})

    def test_room_is_kept_for_the_next_run(self, monkeypatch):
        x, count = tf.get_variable("x", initializer=uniform(7)), tf.placeholder("int32", [])
        found = loop(count, lambda i, y: tf.sin(y) * x, x)
        gradient = tf.gradients(found, x)[0]
        runs = []
        enter = NativeCluster.run
        monkeypatch.setattr(NativeCluster, "run", lambda *a: runs.append(1) or enter(*a))
        with session(True) as run:
            run.run(tf.global_variables_initializer())
            counts = []
            for length in (3, 100, 100, 3):
                before = len(runs)
                run.run(gradient, {count: length})
                counts.append(len(runs) - before)
        assert counts == [1, 3, 1, 1]  # 16 rows, 64, 256

    def test_several_lists_of_different_types(self):
        x, count = tf.get_variable("x", initializer=uniform(2, 3)), tf.placeholder("int32", [])
        wide = tf.get_variable("wide", initializer=uniform(2, 3, dtype=np.float64))

        def body(i, y):
            kept = tf.cond(i % 3 < 2, lambda: tf.tanh(y), lambda: y * y)
            return kept * wide + tf.cast(tf.cast(y, tf.float32) > x, tf.float64)

        found = loop(count, body, wide)
        assert_one_call([found, *tf.gradients(found, wide)], {count: 20})


class TestGradientsOfLoopsInLoops:
    """A list that an inner loop fills is held by one of the outer loop."""

    @pytest.mark.parametrize("lengths", [(4, 3), (1, 1), (3, 0), (0, 3), (9, 30)])
    @pytest.mark.parametrize("fed", [False, True])
    def test_two(self, lengths, fed):
        x = tf.get_variable("x", initializer=uniform(5))
        counts = [tf.placeholder("int32", []) for _ in lengths] if fed else lengths
        feeds = dict(zip(counts, lengths, strict=True)) if fed else {}

        def outer(i, y):
            inner = loop(counts[1], lambda j, z: tf.sin(z) * y + 0.1 * z * z, y)
            return tf.tanh(inner * y)

        found = loop(counts[0], outer, x)
        assert_one_call([found, *tf.gradients(found, x)], feeds)

    def test_inner_loops_of_several_lengths(self):
        x = tf.get_variable("x", initializer=uniform(5))
        found = loop(6, lambda i, y: loop(i % 4, lambda j, z: tf.sin(z) * y, y) + y * x, x)
        assert_one_call([found, *tf.gradients(found, x)])

    def test_three(self):
        x = tf.get_variable("x", initializer=uniform(3))

        def middle(i, y):
            return loop(i + 1, lambda j, z: loop(j + 1, lambda k, u: tf.sin(u) * z, z) * y, y)

        found = loop(3, middle, x)
        assert_one_call([found, *tf.gradients(found, x)])

    def test_two_inner_loops_and_a_branch(self):
        x = tf.get_variable("x", initializer=uniform(3))

        def body(i, y):
            first = loop(2, lambda j, z: tf.cond(j > 0, lambda: z * z, lambda: tf.sin(z)), y)
            return loop(i, lambda j, z: tf.tanh(z) * first, y) + first

        found = loop(4, body, x)
        assert_one_call([found, *tf.gradients(found, x)])

    def test_gradients_that_a_body_takes(self):
        """A list that is filled and emptied in one iteration, without other references."""
        x = tf.get_variable("x", initializer=uniform(3))

        def body(i, y):
            inner = loop(3, lambda j, z: tf.sin(z) * z, y)
            return y - 0.1 * tf.gradients(inner, y)[0]

        assert_one_call([loop(5, body, x)])

    def test_a_list_is_not_taken_from_for_another(self):
        """Two lists are held, each of one row; two are taken from the last."""
        x = tf.get_variable("x", initializer=uniform(3))
        raw = tf.raw_ops

        def fill(i, lists):
            empty = raw.EmptyTensorList(
                element_shape=-1, max_num_elements=-1, element_dtype=tf.float32
            )
            row = raw.TensorListPushBack(input_handle=empty, tensor=x * tf.to_float(i))
            return raw.TensorListPushBack(input_handle=lists, tensor=row)

        lists = raw.EmptyTensorList(element_shape=-1, max_num_elements=-1, element_dtype=tf.variant)
        lists = loop(2, fill, lists)
        _, rows = raw.TensorListPopBack(
            input_handle=lists, element_shape=-1, element_dtype=tf.variant
        )
        taken = []
        for _ in range(2):
            rows, row = raw.TensorListPopBack(
                input_handle=rows, element_shape=-1, element_dtype=tf.float32
            )
            taken.append(tf.ensure_shape(row, [3]))
        good, bad = taken[0] * 2.0 + 1.0, taken[0] + taken[1]
        assert_one_call([good])
        assert clusters([bad])
        for jit in (True, False):
            with session(jit) as run:
                run.run(tf.global_variables_initializer())
                with pytest.raises(tf.errors.InvalidArgumentError, match="empty list"):
                    run.run(bad)


class TestSecondDerivatives:
    """The list of the way there is needed twice, each time from its end."""

    @pytest.mark.parametrize("fed", [False, True])
    @pytest.mark.parametrize("length", [0, 1, 5, 40])
    def test_of_a_loop(self, length, fed):
        x = tf.get_variable("x", initializer=uniform(5))
        count = tf.placeholder("int32", []) if fed else length
        found = loop(count, lambda i, y: tf.sin(y) * x, x)
        slope = tf.gradients(found, x)[0]
        curve = tf.gradients(slope, x)[0]
        assert_one_call([found, slope, curve], {count: length} if fed else {})

    def test_a_penalty_on_gradients(self):
        x = tf.get_variable("x", initializer=uniform(4, 3))
        w = tf.get_variable("w", initializer=uniform(3, 3, seed=1))
        found = loop(3, lambda i, y: tf.tanh(tf.matmul(y, w)), x)
        slope = tf.gradients(found, x)[0]
        cost = tf.reduce_sum(found) + tf.reduce_sum(slope * slope)
        assert_one_call([cost, *tf.gradients(cost, [x, w])])

    def test_a_list_whose_rest_is_needed(self):
        """Rows that a loop leaves are zeros where a gradient is asked for them."""
        x = tf.get_variable("x", initializer=uniform(3))
        raw, any_shape = tf.raw_ops, {"element_shape": -1, "element_dtype": tf.float32}

        def push(i, rows):
            return raw.TensorListPushBack(input_handle=rows, tensor=x * tf.to_float(i + 1))

        def pop(i, state):
            rows, total = state
            rows, row = raw.TensorListPopBack(input_handle=rows, **any_shape)
            return rows, total + tf.ensure_shape(row, [3])

        rows = loop(5, push, raw.EmptyTensorList(max_num_elements=-1, **any_shape))
        left, total = loop(2, pop, (rows, tf.zeros([3])))
        zeros = raw.ZerosLike(x=left)
        _, sum_of_zeros = loop(3, pop, (zeros, total))
        _, sum_of_all = loop(5, pop, (rows, total))
        assert_one_call([sum_of_zeros, sum_of_all])


class TestRecurrentNetworks:
    @pytest.mark.parametrize("cell", ["BasicLSTMCell", "GRUCell"])
    def test_sequences_of_several_lengths(self, cell):
        x = tf.placeholder("float32", [4, None, 5])
        lengths = tf.placeholder("int32", [4])
        tf.set_random_seed(1)
        cell = getattr(tf.nn.rnn_cell, cell)(6)
        outputs, state = tf.nn.dynamic_rnn(cell, x, lengths, dtype="float32")
        cost = tf.reduce_sum(outputs * outputs) + tf.reduce_sum(tf.concat(state, -1))
        fetches = [outputs, state, *tf.gradients(cost, [x, *tf.trainable_variables()])]
        feeds = {x: uniform(4, 7, 5), lengths: [3, 7, 0, 5]}
        flat = tf.nest.flatten(fetches)
        assert_one_call(flat, feeds, beside=["Assert"])


class TestVariables:
    @pytest.mark.parametrize("count", [0, 4])
    def test_read_in_the_body_and_in_the_condition(self, count):
        with tf.variable_scope("", use_resource=True):
            w = tf.get_variable("w", initializer=uniform(5, 5))
            limit = tf.get_variable("limit", initializer=count)
        x = tf.get_variable("x", initializer=uniform(3, 5, seed=1))
        found = loop(limit, lambda i, y: tf.tanh(tf.matmul(y, w)) + 0.1, x)
        assert_one_call([found, *tf.gradients(found, [w, x])])

    def test_read_in_a_branch_of_a_loop_in_a_loop(self):
        with tf.variable_scope("", use_resource=True):
            w, v = (tf.get_variable(n, initializer=uniform(5, seed=i)) for i, n in enumerate("wv"))

        def body(i, y):
            return tf.cond(i % 2 > 0, lambda: y * w, lambda: loop(2, lambda j, z: z + v, y))

        assert_one_call([loop(5, body, tf.ones([5]))])

    def test_a_loop_sees_what_was_assigned_before_it_and_not_what_is_after(self):
        with tf.variable_scope("", use_resource=True):
            w = tf.get_variable("w", initializer=uniform(5))
        with tf.control_dependencies([w.assign_add(tf.ones([5]))]):
            start = tf.zeros([5]) + 1.0
        found = loop(3, lambda i, y: y * w.read_value(), start)
        with tf.control_dependencies([found]):
            after = tf.sin(w.assign_sub(0.5 * tf.ones([5])).read_value())
        assert_one_call([found, after])

    def test_one_without_a_value_that_nobody_reads(self):
        w = tf.get_variable("w", initializer=uniform(5), use_resource=True)
        count = tf.placeholder("int32", [])
        found = loop(count, lambda i, y: y * w, tf.ones([5]))
        for jit in (True, False):
            with session(jit) as run:
                np.testing.assert_array_equal(run.run(found, {count: 0}), np.ones(5))
                with pytest.raises(tf.errors.FailedPreconditionError, match="w"):
                    run.run(found, {count: 1})


class TestIntegers:
    @pytest.mark.parametrize("dtype", ["int32", "int64"])
    @pytest.mark.parametrize("divisor", [1, 2, -3, 7, 2**31 - 1])
    def test_remainders_and_quotients(self, dtype, divisor):
        info = np.iinfo(dtype)
        values = np.array([0, 1, -1, 5, -5, 6, -6, 7, info.min, info.max, info.min + 1], dtype)
        x = tf.get_variable("x", initializer=values)
        found = loop(2, lambda i, y: y % divisor + y // divisor + y, x)
        assert_one_call([found])

    @pytest.mark.parametrize("divisor", [0, -1])
    def test_divisors_that_processors_trap_at(self, divisor):
        x = tf.get_variable("x", initializer=np.int32([-(2**31), 3]))
        fetches = [loop(2, lambda i, y: y % divisor, x), loop(2, lambda i, y: y // divisor, x)]
        for fetch in fetches:
            if divisor:
                assert_tiers_agree([fetch])
            else:
                with session(True) as run:
                    run.run(tf.global_variables_initializer())
                    with pytest.raises(tf.errors.InvalidArgumentError, match="division by zero"):
                        run.run(fetch)

    @pytest.mark.parametrize("dtype", ["int32", "int64", "uint8", "int8"])
    def test_divisors_that_the_loop_computes(self, dtype):
        info = np.iinfo(dtype)
        values = np.array([0, 1, 5, 6, info.min, info.max, info.min + 1], dtype)
        x = tf.get_variable("x", initializer=values)
        by = np.array([1, 7, info.max, info.max, 1, 1, 3], dtype)
        # First by 1, and then by -1, or what is that in unsigned numbers.
        assert_one_call(
            [
                loop(2, lambda i, y: x // (by - tf.cast(i, dtype) * 2) - y, x),
                loop(2, lambda i, y: y // by - 1, x),
            ]
        )

    def test_scalars_and_remainders(self):
        a, b = tf.placeholder("int64", []), tf.placeholder("int64", [])
        gcd = tf.while_loop(lambda a, b: b > 0, lambda a, b: (b, a % b), (a, b))[0]
        digits = tf.while_loop(lambda x, n: x > 0, lambda x, n: (x // b, n + 1), (a, 0))[1]
        assert_one_call([gcd, digits], {a: np.int64(2**40 * 9), b: np.int64(3**20 * 6)})

    def test_one_of_them_is_zero(self):
        x, count = tf.get_variable("x", initializer=np.int32([7, -9])), tf.placeholder("int32", [])
        found = loop(count, lambda i, y: y + x % (3 - i + x * 0), x)
        assert any(c.has_loops for c in clusters([found], {count: 1}))
        said = []
        for jit in (True, False):
            with session(jit) as run:
                run.run(tf.global_variables_initializer())
                assert run.run(found, {count: 3}).tolist() == [9, -8]
                with pytest.raises(tf.errors.InvalidArgumentError, match="FloorMod") as caught:
                    run.run(found, {count: 4})
                said.append(caught.value.message.splitlines()[0])
        assert said[0] == said[1] and "division by zero" in said[0]


class TestArraysOfUnknownRows:
    def test_map_and_scan_and_fold(self):
        x = tf.placeholder("float32", None)
        feeds = {x: uniform(4, 3)}
        for found in (
            tf.map_fn(lambda r: tf.sin(r) * 2.0, x),
            tf.scan(lambda a, r: tf.sin(r) * a, x),
            tf.foldl(lambda a, r: tf.sin(r) * a, x),
        ):
            assert_one_call([found, *tf.gradients(found, x)], feeds)


class TestIndices:
    @pytest.mark.parametrize("resource", [False, True])
    def test_rows_by_numbers_that_the_loop_computes(self, resource):
        table = tf.get_variable("table", initializer=uniform(5, 3), use_resource=resource)
        found = loop(4, lambda i, y: y * tf.gather(table, [i, (i * 3) % 5]), tf.ones([2, 3]))
        assert_one_call([found])

    def test_a_number_that_is_none(self):
        table = tf.get_variable("table", initializer=uniform(5, 3))
        found = loop(6, lambda i, y: y + tf.gather(table, i), tf.zeros([3]))
        assert any(c.has_loops for c in clusters([found]))
        said = []
        for jit in (True, False):
            with session(jit) as run:
                run.run(tf.global_variables_initializer())
                with pytest.raises(tf.errors.InvalidArgumentError) as caught:
                    run.run(found)
                said.append(caught.value.message.split(":", 1)[1].splitlines()[0])
        assert said[0] == said[1] and "5" in said[0]
