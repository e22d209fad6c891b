"""Teams of threads: more of them than there are cores, so that some are always late."""

import os
import threading
from dataclasses import dataclass

import numpy as np
import pytest

from headrace._src.compile.ahead.objects import all_targets
from headrace._src.compile.codegen.emit import I8, I64
from headrace._src.compile.codegen.kernel_spec import Team
from headrace._src.compile.native import machine_code
from headrace._src.compile.plan.plan import Buffer, Call, Jump, Plan
from headrace._src.compile.run import entry, header_words, helper_threads
from headrace._src.compile.run import team_functions as team
from headrace._src.compile.run.driver import Fault, NativeCluster
from headrace._src.compile.run.header_words import How
from headrace._src.compile.run.phases import Phase, PhaseCall, phases_of
from headrace._src.core import errors
from headrace._src.devices.step_context import StepContext, active
from tests.unit.compile.plans import Accumulate, Exchange, Scale, chain, expected
from tests.unit.compile.targets import NEON

FACTORS = (2.0, 0.5, 3.0, 1.5, 0.25, 1.25, 0.75, 2.5)
MANY = 8  # threads, on any number of cores


# -- Phases ----------------------------------------------------------------------------------------


def calls_of(*kernels, without_barrier=()):
    buffers = {Scale: (0, 0), Exchange: (0,), Jump: ()}
    return [
        Call(k, buffers[type(k)], barrier=i not in without_barrier) for i, k in enumerate(kernels)
    ]


def test_calls_without_a_barrier_between_them_are_one_phase():
    big, small = Scale(8, 1.0), Scale(8, 1.0, small=True)
    calls = calls_of(big, small, small, big, without_barrier=(1, 3))
    rows, phases = phases_of(calls, starts=[0])
    assert rows == [PhaseCall(0), PhaseCall(1), PhaseCall(2), PhaseCall(3)]
    assert phases == [Phase(How.SHARED, 0, 2), Phase(How.SHARED, 2, 4)]
    assert phases_of(calls_of(small, small), [0])[1] == [
        Phase(How.SMALL, 0, 1),
        Phase(How.SMALL, 1, 2),
    ]


def test_kernels_that_meet_do_so_together():
    calls = calls_of(Exchange(), Scale(8, 1.0), Exchange(), without_barrier=(1, 2))
    rows, phases = phases_of(calls, starts=[0])
    assert rows == [PhaseCall(0), PhaseCall(1), PhaseCall(2), PhaseCall(0, 1), PhaseCall(2, 1)]
    assert phases == [Phase(How.SHARED, 0, 3), Phase(How.SHARED, 3, 5)]


def test_small_kernels_have_no_meetings():
    assert phases_of(calls_of(Exchange(small=True)), [0])[0] == [PhaseCall(0)]


def test_jumps_lead_to_phases():
    big = Scale(8, 1.0)
    calls = calls_of(big, big, Jump(1, conditional=True), big, without_barrier=(1, 3))
    _, phases = phases_of(calls, starts=[0])
    assert phases == [
        Phase(How.SHARED, 0, 1),
        Phase(How.SHARED, 1, 2),
        Phase(How.UNLESS, 2, 3, target=1),
        Phase(How.SHARED, 3, 4),
    ]


# -- Steps -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("counters", [0, 1])
def test_many_short_steps_with_more_threads_than_cores(counters):
    cluster = NativeCluster(chain(1000, FACTORS, (3, 4), counters=counters), MANY)
    x = np.random.default_rng(1).standard_normal(1000, np.float32)
    wanted = expected(x, FACTORS)
    for _ in range(2000):
        y = np.zeros(1000, np.float32)
        cluster.run([x], [y], [])
        assert y.tobytes() == wanted.tobytes()


def test_meetings_with_more_threads_than_cores():
    buffers = tuple(Buffer("output", "int64", 8, i) for i in range(3))
    calls = tuple(Call(Exchange(), (i,), barrier=i != 1) for i in range(3))
    cluster = NativeCluster(Plan(buffers, calls, 0), MANY)
    for _ in range(2000):
        ys = [np.zeros((), np.int64) for _ in buffers]
        cluster.run([], ys, [])
        assert ys == [MANY] * 3


@dataclass(frozen=True)
class Countdown:
    """n -= 1, and whether it's not below 0. `faults`: set the fault when it has come to 5."""

    faults: bool = False
    arguments = ("inout:n", "out:more", "inout:fault")
    counters = 0
    small = True

    def scratch(self, threads: int) -> int:
        return 0

    def emit(self, team: Team) -> None:
        f, (n, more, fault) = team.f, team.args
        left = f.sub(f.load(I64, n), 1)
        f.store(left, n)
        f.store(f.convert("zext", f.icmp("sge", left, 0), I8), more)
        if self.faults:
            f.when(f.icmp("eq", left, 5), lambda: f.store(f.reg(1), fault))


def loop_plan(size, faults=False):
    """As often as n says: w += x, then w += x again."""
    buffers = (
        Buffer("input", "float32", 4 * size, 0),
        Buffer("variable", "float32", 4 * size, 0),
        Buffer("variable", "int64", 8, 1),
        Buffer("arena", "bool", 1, offset=0),
        Buffer("arena", "int64", 8, offset=64),
    )
    calls = (
        Call(Countdown(faults), (2, 3, 4)),
        Call(Jump(5, conditional=True), (3,)),
        Call(Accumulate(size), (0, 1)),
        Call(Accumulate(size), (0, 1)),
        Call(Jump(0, conditional=False), ()),
        Call(Accumulate(size), (0, 1)),
    )
    return Plan(buffers, calls, 128, fault=4)


def run_loop(cluster, size, times):
    w = np.zeros(size, np.float32)
    cluster._idle.extend([] if cluster._idle else [cluster._another()])
    cluster.fill(0)
    cluster.run([np.ones(size, np.float32)], [], [w, np.array(times)])
    return w


def test_loops_with_more_threads_than_cores():
    cluster = NativeCluster(loop_plan(500), MANY)
    for times in (0, 1, 2, 50, 2000):
        np.testing.assert_array_equal(run_loop(cluster, 500, times), 2 * times + 1)
    for _ in range(200):
        np.testing.assert_array_equal(run_loop(cluster, 500, 5), 11)


def test_a_fault_ends_a_loop():
    cluster = NativeCluster(loop_plan(500, faults=True), MANY)
    for _ in range(50):
        with pytest.raises(Fault):
            run_loop(cluster, 500, 20)


@pytest.mark.parametrize("threads", [1, 2, MANY])
def test_a_loop_that_never_ends_can_be_cancelled(threads):
    cluster = NativeCluster(loop_plan(500), threads)
    for delay in (0.0, 0.001, 0.01, 0.1):
        stop = StepContext()
        error = errors.DeadlineExceededError(None, None, "late")
        timer = threading.Timer(delay, stop.cancel, [error])
        timer.start()
        with active(stop), pytest.raises(errors.DeadlineExceededError):
            run_loop(cluster, 500, 2**60)
        timer.join()
        np.testing.assert_array_equal(run_loop(cluster, 500, 3), 7)


def test_steps_on_several_threads_at_once():
    """There is one pool of helpers: a caller that doesn't get it works alone, with the same
    results.
    """
    clusters = [NativeCluster(chain(2000, FACTORS), MANY), NativeCluster(loop_plan(300), MANY)]
    wrong = []

    def work(seed: int) -> None:
        x = np.random.default_rng(seed).standard_normal(2000, np.float32)
        wanted = expected(x, FACTORS)
        for _ in range(100):
            y = np.zeros_like(x)
            clusters[0].run([x], [y], [])
            wrong.extend([seed] * (y.tobytes() != wanted.tobytes()))

    def go_round() -> None:
        for _ in range(100):
            wrong.extend(["loop"] * (not (run_loop(clusters[1], 300, 10) == 21).all()))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    threads.append(threading.Thread(target=go_round))
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_an_instance_is_not_freed_while_a_helper_looks_at_it():
    x = np.ones(1000, np.float32)
    for _ in range(200):
        cluster = NativeCluster(chain(1000, FACTORS), MANY)
        cluster.run([x], [np.zeros_like(x)], [])
        header = cluster._idle[0].words.ctypes.data
        del cluster
        assert all(own[header_words.HelperWord.INSIDE] != header for own in helper_threads._helpers)


def test_an_instance_waits_for_a_helper_before_it_is_freed():
    """A helper that was stopped before it could see that a step is over."""
    cluster = NativeCluster(chain(1000, FACTORS), 2)
    x = np.ones(1000, np.float32)
    cluster.run([x], [np.zeros_like(x)], [])
    late = np.zeros(header_words.LINE, np.int64)
    late[header_words.HelperWord.INSIDE] = cluster._idle[0].words.ctypes.data
    helper_threads._helpers.append(late)
    freed = threading.Event()

    def free() -> None:
        cluster._idle.clear()
        freed.set()

    try:
        thread = threading.Thread(target=free)
        thread.start()
        assert not freed.wait(0.2)
        late[header_words.HelperWord.INSIDE] = 0
        assert freed.wait(10)
        thread.join()
    finally:
        helper_threads._helpers.pop()


def test_a_pool_that_somebody_else_has_is_not_waited_for():
    cluster = NativeCluster(chain(1000, FACTORS), 2)
    x = np.ones(1000, np.float32)
    helper_threads._words[header_words.PoolWord.OWNER] = 1
    try:
        y = np.zeros_like(x)
        cluster.run([x], [y], [])
    finally:
        helper_threads._words[header_words.PoolWord.OWNER] = 0
    np.testing.assert_array_equal(y, expected(x, FACTORS))


def test_helpers_leave_signals_to_pythons_threads():
    helper_threads.helpers_for(2)
    blocked = []
    for number in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{number}/status") as status:
            line = next(s for s in status if s.startswith("SigBlk:"))
        blocked.append(bool(int(line.split()[1], 16) & 1 << 1))  # SIGINT
    assert sum(blocked) >= len(helper_threads._helpers) >= 1


def test_the_driver_can_be_compiled_for_arm():
    all_targets()
    for text in (entry.driver_text("f", NEON), team.helper_text("f", NEON)):
        assert machine_code.assemble(text, NEON, jit=False)
