"""NativeCluster: plans made by hand, run by the native driver."""

import gc
import threading

import ml_dtypes
import numpy as np
import pytest

from headrace._src.compile.kernels.onednn_calls import Bound
from headrace._src.compile.plan.plan import Buffer, Call, Plan
from headrace._src.compile.run import driver, header_words
from headrace._src.compile.run.driver import NativeCluster
from headrace._src.compile.run.plan_segments import segments
from headrace._src.core import errors
from headrace._src.devices.step_context import StepContext, active
from tests.unit.compile.plans import Accumulate, Exchange, Scale, chain, expected, long_plan

FACTORS = (2.0, 0.5, 3.0, 1.5, 0.25)


@pytest.mark.parametrize("small", [(), (0,), (4,), (1, 3), (0, 1, 2, 3, 4)])
@pytest.mark.parametrize("counters", [0, 1])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_a_chain_of_kernels_runs_in_order(small, counters, threads):
    cluster = NativeCluster(chain(1000, FACTORS, small, counters=counters), threads)
    for seed in range(3):
        x = np.random.default_rng(seed).standard_normal(1000, np.float32)
        y = np.zeros(1000, np.float32)
        cluster.run([x], [y], [])
        np.testing.assert_array_equal(y, expected(x, FACTORS))


def test_calls_are_divided_into_few_regions():
    big, small, foreign = Scale(8, 1.0), Scale(8, 1.0, small=True), _Foreign(0)
    row = [small, big, small, big, small, foreign, foreign, small, foreign, big]
    calls = [Call(k, (0, 0) if k is not foreign else (0,)) for k in row]
    assert segments(calls) == [
        (header_words.ALONE, 0, 1),
        (header_words.TEAM, 1, 4),
        (header_words.ALONE, 4, 5),
        (header_words.FOREIGN, 5, 7),
        (header_words.ALONE, 7, 8),
        (header_words.FOREIGN, 8, 9),
        (header_words.TEAM, 9, 10),
    ]
    assert segments([]) == []


def test_variables_are_updated_in_place_and_constants_are_read():
    buffers = (
        Buffer("constant", "float32", 12, value=np.array([1, 2, 3], np.float32)),
        Buffer("variable", "float32", 12, 0),
    )
    cluster = NativeCluster(Plan(buffers, (Call(Accumulate(3), (0, 1)),), 0))
    w = np.array([10, 20, 30], np.float32)
    cluster.run([], [], [w])
    cluster.run([], [], [w])
    np.testing.assert_array_equal(w, [12, 24, 36])


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_all_threads_of_the_team_meet_inside_a_kernel(threads):
    plan = Plan((Buffer("output", "int64", 8, 0),), (Call(Exchange(), (0,)),), 0)
    y = np.zeros((), np.int64)
    NativeCluster(plan, threads).run([], [y], [])
    assert y == threads


def test_a_small_kernel_has_no_barrier_that_others_would_miss():
    """Exchange as a small call between two of the team's: only the first thread runs it."""
    buffers = (Buffer("output", "int64", 8, 0), Buffer("arena", "int64", 8, offset=0))
    calls = (
        Call(Exchange(), (1,)),
        Call(Exchange(small=True), (0,)),
        Call(Exchange(), (1,)),
    )
    y = np.zeros((), np.int64)
    NativeCluster(Plan(buffers, calls, 64), threads=2).run([], [y], [])
    assert y == 1


def test_calls_without_a_barrier_have_scratch_of_their_own():
    buffers = tuple(Buffer("output", "int64", 8, i) for i in range(3))
    calls = tuple(Call(Exchange(), (i,), barrier=i == 0) for i in range(3))
    ys = [np.zeros((), np.int64) for _ in buffers]
    cluster = NativeCluster(Plan(buffers, calls, 0), threads=2)
    for _ in range(100):
        cluster.run([], ys, [])
        assert [int(y) for y in ys] == [cluster.threads] * 3


class _Foreign:
    """A C function that adds one to a counter, or fails."""

    arguments = ("inout:x",)

    def __init__(self, status: int) -> None:
        self._status = status

    def scratch(self, threads: int) -> int:
        return 0

    def bind(self, threads: int) -> Bound:
        import ctypes

        def function(user: int, args: int) -> int:
            address = ctypes.c_void_p.from_address(args).value
            assert address is not None
            ctypes.c_float.from_address(address).value += 1
            return self._status

        made = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)(function)
        pointer = ctypes.cast(made, ctypes.c_void_p).value
        assert pointer is not None
        return Bound(pointer, 0, made)


def test_foreign_calls_run_between_regions():
    buffers = (Buffer("variable", "float32", 4, 0), Buffer("output", "float32", 4, 0))
    calls = (
        Call(_Foreign(0), (0,)),
        Call(Scale(1, 2.0), (0, 1)),
        Call(_Foreign(0), (1,)),
    )
    w, y = np.array([5], np.float32), np.zeros(1, np.float32)
    NativeCluster(Plan(buffers, calls, 0)).run([], [y], [w])
    assert (w, y) == ([6], [14])


def test_a_foreign_failure_ends_the_step():
    buffers = (Buffer("variable", "float32", 4, 0),)
    calls = (Call(_Foreign(-3), (0,)), Call(_Foreign(0), (0,)))
    w = np.array([5], np.float32)
    with pytest.raises(errors.InternalError, match="status -3"):
        NativeCluster(Plan(buffers, calls, 0)).run([], [], [w])
    assert w == [6]


class TestArguments:
    cluster = None

    @pytest.fixture(autouse=True)
    def _cluster(self):
        self.cluster = NativeCluster(chain(6, (2.0,)))
        self.x, self.y = np.arange(6, dtype=np.float32), np.zeros((2, 3), np.float32)

    def good(self, x, y=None):
        y = self.y if y is None else y
        self.cluster.run([x], [y], [])
        np.testing.assert_array_equal(np.ravel(y), [1, 3, 5, 7, 9, 11])

    def bad(self, kind, message, x=None, y=None):
        x, y = self.x if x is None else x, self.y if y is None else y
        with pytest.raises(kind, match=message):
            self.cluster.run([x], [y], [])
        assert not self.y.any()

    def test_any_shape_of_the_right_size(self):
        self.good(self.x)
        self.good(self.x.reshape(3, 1, 2))

    def test_strided_inputs_are_copied(self):
        self.good(np.repeat(self.x, 2)[::2])

    def test_read_only_inputs(self):
        self.x.flags.writeable = False
        self.good(self.x)

    def test_unaligned_inputs(self):
        raw = np.zeros(25, np.uint8)
        odd = raw[1:].view(np.float32)
        odd[:] = self.x
        self.good(odd)

    def test_subclasses_of_arrays(self):
        class Mine(np.ndarray):
            pass

        self.good(self.x.view(Mine))

    def test_other_objects_for_the_same_dtype(self):
        self.good(self.x.view(np.dtype("f4", metadata={"a": 1})))

    def test_wrong_size(self):
        self.bad(ValueError, "input 0 must have 6 elements of float32, not 5", x=self.x[:5])
        self.bad(ValueError, "output 0 must have 6 elements", y=np.zeros(7, np.float32))

    def test_wrong_dtype(self):
        self.bad(ValueError, "not 6 of float64", x=self.x.astype(np.float64))
        self.bad(ValueError, "not 6 of >f4", x=self.x.astype(">f4"))

    @pytest.mark.parametrize("value", [None, 3, 1.5, [1.0] * 6, "x", object()])
    def test_not_an_array(self, value):
        with pytest.raises(TypeError, match="input 0 must be an array"):
            self.cluster.run([value], [self.y], [])

    def test_outputs_must_be_writeable_and_contiguous(self):
        self.bad(ValueError, "written in place", y=np.zeros(12, np.float32)[::2])
        frozen = np.zeros(6, np.float32)
        frozen.flags.writeable = False
        self.bad(ValueError, "written in place", y=frozen)

    def test_wrong_number(self):
        with pytest.raises(ValueError, match=r"takes \(1, 1, 0\)"):
            self.cluster.run([], [self.y], [])
        with pytest.raises(ValueError, match=r"not \(2, 0, 0\)"):
            self.cluster.run([self.x, self.y], [], [])


def test_bfloat16_scalars_and_empty_arrays():
    buffers = (
        Buffer("input", "bfloat16", 4, 0),
        Buffer("input", "float32", 0, 1),
        Buffer("input", "float32", 4, 2),
        Buffer("output", "float32", 4, 0),
    )
    cluster = NativeCluster(Plan(buffers, (Call(Scale(1, 2.0, small=True), (2, 3)),), 0))
    y = np.zeros((), np.float32)
    inputs = [np.ones(2, ml_dtypes.bfloat16), np.zeros((3, 0), np.float32), np.float32(4)]
    cluster.run(inputs, [y], [])
    assert y == 9


def test_an_empty_plan_does_nothing():
    NativeCluster(Plan((), (), 0)).run([], [], [])


def test_the_entry_keeps_reference_counts():
    import sys

    cluster = NativeCluster(chain(4, (2.0,), (0,)))
    x, y = np.ones(4, np.float32), np.ones(4, np.float32)
    before = [sys.getrefcount(o) for o in (None, x, y, x.dtype)]
    for _ in range(1000):
        cluster.run([x], [y], [])
    after = [sys.getrefcount(o) for o in (None, x, y, x.dtype)]
    assert all(abs(a - b) < 100 for a, b in zip(after, before, strict=True))


def test_threads_that_run_one_cluster_do_not_meet():
    cluster = NativeCluster(chain(5000, FACTORS))
    wrong = []

    def work(seed: int) -> None:
        x = np.random.default_rng(seed).standard_normal(5000, np.float32)
        y, wanted = np.zeros_like(x), expected(x, FACTORS)
        for _ in range(20):
            y[:] = 0
            cluster.run([x], [y], [])
            wrong.extend([seed] * (not np.array_equal(y, wanted)))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_large_idle_instances_are_dropped():
    plan = chain(2**20, (2.0, 1.0, 1.0, 1.0, 1.0))
    assert plan.arena >= 2**24
    cluster = NativeCluster(plan)
    x, y = np.zeros(2**20, np.float32), np.zeros(2**20, np.float32)
    first, second = cluster._another(), cluster._another()
    cluster._give_back(first)
    cluster._give_back(second)
    del first, second
    cluster.run([x], [y], [])
    assert len(cluster._idle) == len(cluster._instances) == 1


@pytest.mark.parametrize("threads", [1, 2])
def test_a_cancelled_step_stops_and_the_cluster_lives(threads):
    cluster = NativeCluster(long_plan(2000), threads)
    stop = StepContext()
    late = errors.DeadlineExceededError(None, None, "late")
    threading.Timer(0.2, stop.cancel, [late]).start()
    with active(stop), pytest.raises(errors.DeadlineExceededError):
        cluster.run([], [np.zeros(1, np.float32)], [])
    instance = cluster._idle[0]
    assert 0 <= instance.words[header_words.Header.STOP] < 2000  # 0 if the machine was busy
    short = NativeCluster(long_plan(1, 10), threads)
    with active(StepContext()):
        short.run([], [np.zeros(1, np.float32)], [])
    with active(stop), pytest.raises(errors.DeadlineExceededError):
        short.run([], [np.zeros(1, np.float32)], [])


def test_profile_names_each_call():
    cluster = NativeCluster(chain(100, FACTORS))
    x, y = np.ones(100, np.float32), np.zeros(100, np.float32)
    times = cluster.profile([x], [y], [])
    assert [c.label for c, _ in times] == [f"scale{i}" for i in range(5)]
    assert all(seconds >= 0 for _, seconds in times)
    np.testing.assert_array_equal(y, expected(x, FACTORS))


def test_plans_that_make_no_sense_are_refused():
    with pytest.raises(ValueError, match="numbered"):
        NativeCluster(Plan((Buffer("input", "float32", 4, 1),), (), 0))
    with pytest.raises(ValueError, match="has no value"):
        NativeCluster(Plan((Buffer("constant", "float32", 4),), (), 0))


def test_threads_that_define_the_first_method_together_share_nothing_that_dies(monkeypatch):
    """Each of them makes a definition, and only one of these is kept in the cache."""
    driver._definition.cache_clear()
    link, meeting, methods = driver.machine_code.link, threading.Barrier(4), []

    def link_together(units):
        meeting.wait(timeout=30)
        return link(units)

    def work():
        methods.append(driver._method(np.zeros(header_words.Header.SIZE, np.int64)))

    monkeypatch.setattr(driver.machine_code, "link", link_together)
    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    referents = [
        sum(isinstance(o, driver._MethodDef) for o in gc.get_referents(m)) for m in methods
    ]
    assert referents == [1] * 4


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_indices_are_looked_at_before_anything_runs(dtype):
    size = 37  # neither a whole number of vectors nor less than one
    indices = Buffer("input", dtype, size * np.dtype(dtype).itemsize, 0)
    buffers = (indices, Buffer("variable", "float32", 12, 0), Buffer("input", "float32", 12, 1))
    calls = (Call(Accumulate(3), (2, 1)), Call(_Ignore(), (0,)))
    cluster = NativeCluster(Plan(buffers, calls, 0), limits=[(0, 10)])
    w, ones = np.zeros(3, np.float32), np.ones(3, np.float32)
    good = np.arange(size, dtype=dtype) % 10
    cluster.run([good, ones], [], [w])
    for place in (0, 20, size - 1):
        for wrong in (-1, 10, np.iinfo(dtype).min, np.iinfo(dtype).max):
            bad = good.copy()
            bad[place] = wrong
            with pytest.raises(driver.Fault):
                cluster.run([bad, ones], [], [w])
    np.testing.assert_array_equal(w, ones)


def test_only_integers_have_limits():
    with pytest.raises(ValueError, match="int32 or int64"):
        NativeCluster(chain(8, FACTORS), limits=[(0, 3)])


class _Ignore:
    """A kernel that reads nothing of its argument."""

    arguments = ("x",)
    counters = 0

    def scratch(self, threads):
        return 0

    def emit(self, team):
        pass

    def __repr__(self):
        return "_Ignore()"
