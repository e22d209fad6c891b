"""Failures of a native cluster: no crash and no hang, but a clean error, and the session stays
usable.
"""

import pytest

from tests.faults import process

# A chain of kernels (see tests/unit/compile/plans.py), checked against NumPy.
CHAIN = """
import numpy as np, os, sys, threading
from headrace._src.compile.run.driver import NativeCluster
from headrace._src.compile.plan.plan import Buffer, Call, Plan
from tests.unit.compile.plans import Scale, chain, expected, long_plan

FACTORS = (2.0, 0.5, 3.0)

def check(cluster, n=5000, factors=FACTORS):
    x, y = np.arange(n, dtype=np.float32), np.zeros(n, np.float32)
    cluster.run([x], [y], [])
    assert np.array_equal(y, expected(x, factors))
"""


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "cache"


def objects(directory):
    return sorted((directory / "objects").iterdir())


class TestMemory:
    TOO_LARGE = """
buffers = (Buffer("output", "float32", 40, 0), Buffer("arena", "float32", 40, offset=0))
call = Call(Scale(10, 2.0), (1, 0))
cluster = NativeCluster(Plan(buffers, (call,), SIZE))
for _ in range(3):
    try:
        cluster.run([], [np.zeros(10, np.float32)], [])
    except MemoryError as error:
        print("refused", error)
check(NativeCluster(chain(5000, FACTORS)))
"""

    @pytest.mark.parametrize("size", [2**50, 2**62])
    def test_an_arena_that_no_machine_has(self, size):
        output = process.run(CHAIN + self.TOO_LARGE.replace("SIZE", str(size)))
        assert output.count("refused") == 3
        assert f"{size:,} bytes" in output

    def test_an_arena_that_this_process_may_not_have(self):
        code = """
import resource
check(NativeCluster(chain(5000, FACTORS)))
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 2**28, used + 2**28))
"""
        output = process.run(CHAIN + code + self.TOO_LARGE.replace("SIZE", str(2**30)))
        assert output.count("refused") == 3


class TestCache:
    CODE = CHAIN + "check(NativeCluster(chain(5000, FACTORS)))\nprint('done')"

    def test_a_damaged_cache_is_repaired(self, directory):
        process.run(self.CODE, HEADRACE_CACHE=str(directory))
        before = {p.name: p.read_bytes() for p in objects(directory)}
        assert len(before) >= 4  # three kernels and the driver
        for i, path in enumerate(objects(directory)):
            content = path.read_bytes()
            damaged = (b"", content[: len(content) // 2], b"\0" * len(content), content[::-1])
            path.write_bytes(damaged[i % 4])
        assert process.run(self.CODE, HEADRACE_CACHE=str(directory)) == "done"
        assert {p.name: p.read_bytes() for p in objects(directory)} == before

    def test_processes_share_a_cache(self, directory):
        together = [process.start(self.CODE, HEADRACE_CACHE=str(directory)) for _ in range(3)]
        assert [process.finish(p) for p in together] == ["done"] * 3
        assert not [p for p in objects(directory) if p.name.startswith(".")]
        code = "from headrace._src.compile.native import machine_code\n"
        code += "machine_code.generate = None\n" + self.CODE
        assert process.run(code, HEADRACE_CACHE=str(directory)) == "done"

    @pytest.mark.parametrize("where", ["/dev/null/cache", "/proc/cache", "off"])
    def test_without_a_place_for_the_cache(self, where):
        assert process.run(self.CODE, HEADRACE_CACHE=where) == "done"

    def test_a_full_disk(self, directory):
        limit = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\n"
        assert process.run(limit + self.CODE, HEADRACE_CACHE=str(directory)) == "done"
        assert not objects(directory)


class TestFork:
    def test_the_child_runs_with_a_team_of_one(self):
        code = """
cluster = NativeCluster(chain(5000, FACTORS), threads=2)
check(cluster)
if not (child := os.fork()):
    check(cluster)
    check(NativeCluster(chain(700, FACTORS)), 700)  # which the child compiles
    os._exit(7 + cluster.threads)
check(cluster)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), cluster.threads)
"""
        assert process.run(CHAIN + code, OMP_NUM_THREADS="2") == "8 2"

    def test_while_other_threads_run(self):
        code = """
cluster = NativeCluster(chain(5000, FACTORS), threads=2)
going = True
def work():
    while going:
        check(cluster)
threads = [threading.Thread(target=work) for _ in range(4)]
for t in threads:
    t.start()
for _ in range(5):
    if not (child := os.fork()):
        check(cluster)
        check(NativeCluster(chain(300, FACTORS)), 300)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
going = False
for t in threads:
    t.join()
print("done")
"""
        assert process.run(CHAIN + code) == "done"

    @pytest.mark.needs_onednn
    def test_while_another_thread_is_in_llvm(self):
        """The fork waits: nobody would let go of llvmlite's lock in the child."""
        output = process.run(
            CHAIN
            + """
import signal, time
from llvmlite.binding import ffi
check(NativeCluster(chain(5000, FACTORS)))
inside = threading.Event()
def work():
    with ffi.lib._lock:
        inside.set()
        time.sleep(0.2)
threading.Thread(target=work).start()
inside.wait()
if not (child := os.fork()):
    signal.alarm(20)
    check(NativeCluster(chain(300, FACTORS)), 300)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
print("done")
"""
        )
        assert output == "done"

    def test_a_child_refuses_calls_of_onednn(self):
        code = """
from headrace._src.compile.kernels.onednn_calls import Bound
from headrace._src.core.errors import UnavailableError
import ctypes

class Foreign:
    arguments = ("inout:x",)
    def scratch(self, threads):
        return 0
    def bind(self, threads):
        made = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)(lambda *_: 0)
        return Bound(ctypes.cast(made, ctypes.c_void_p).value, 0, made)

plan = Plan((Buffer("variable", "float32", 4, 0),), (Call(Foreign(), (0,)),), 0)
cluster = NativeCluster(plan)
x = np.zeros(1, np.float32)
cluster.run([], [], [x])
if not (child := os.fork()):
    try:
        cluster.run([], [], [x])
    except UnavailableError as error:
        os._exit(3 if "forked" in str(error) else 4)
    os._exit(5)
cluster.run([], [], [x])
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
        assert process.run(CHAIN + code) == "3"


class TestInterrupt:
    CODE = """
cluster = NativeCluster(long_plan(3000), threads=THREADS)
small = NativeCluster(chain(5000, FACTORS))
check(small)
try:
    print("running", flush=True)
    cluster.run([], [np.zeros(1, np.float32)], [])
except KeyboardInterrupt:
    print("interrupted")
check(small)
"""

    @pytest.mark.parametrize("threads", ["1", "2"])
    def test_ctrl_c_in_a_long_step(self, threads):
        output = process.interrupt(CHAIN + self.CODE.replace("THREADS", threads))
        assert output == "interrupted"

    def test_a_handler_that_returns_lets_the_step_go_on(self):
        code = """
import signal
seen = []
signal.signal(signal.SIGINT, lambda *_: seen.append(1))
cluster = NativeCluster(long_plan(20))
print("running", flush=True)
while not seen:  # the first steps may be over before the signal comes
    cluster.run([], [np.zeros(1, np.float32)], [])
print("seen")
"""
        assert process.interrupt(CHAIN + code) == "seen"

    def test_while_another_thread_runs_the_step(self):
        code = """
cluster, over = NativeCluster(long_plan(40)), []
def work():
    while not over:  # the first steps may be over before the signal comes
        cluster.run([], [np.zeros(1, np.float32)], [])
thread = threading.Thread(target=work)
thread.start()
try:
    print("running", flush=True)
    while thread.is_alive():
        thread.join(0.1)
except KeyboardInterrupt:
    print("interrupted")
over.append(True)
thread.join()
print("joined")
"""
        assert process.interrupt(CHAIN + code).split() == ["interrupted", "joined"]


def test_fifty_threads_run_one_cluster():
    code = """
cluster = NativeCluster(chain(5000, FACTORS))
start, wrong = threading.Barrier(50), []
def work():
    start.wait()
    try:
        for _ in range(10):
            check(cluster)
    except BaseException as error:
        wrong.append(error)
threads = [threading.Thread(target=work) for _ in range(50)]
for t in threads:
    t.start()
for t in threads:
    t.join()
print(wrong, len(cluster._instances) <= max(2, os.cpu_count()))
"""
    assert process.run(CHAIN + code) == "[] True"


def test_without_openmp_there_is_a_team_of_one():
    code = """
from headrace._src.devices import openmp
openmp._NAME = "libgone.so.1"
exec(CHAIN)
cluster = NativeCluster(chain(5000, FACTORS), threads=2)
check(cluster)
print(cluster.threads, "libgone" in openmp.why_not())
"""
    assert process.run(f"CHAIN = {CHAIN!r}\n" + code, HEADRACE_NO_ONEDNN="1") == "1 True"


def test_a_team_that_is_smaller_than_asked_for():
    code = "check(NativeCluster(chain(5000, FACTORS), threads=4))\nprint('done')"
    assert process.run(CHAIN + code, OMP_THREAD_LIMIT="1") == "done"
    assert process.run(CHAIN + code, OMP_DYNAMIC="true") == "done"


def test_the_cluster_outlives_a_process_pool():
    """multiprocessing's fork, with the parent's clusters in use before and after."""
    code = """
import multiprocessing
cluster = NativeCluster(chain(5000, FACTORS))
check(cluster)
def work(_):
    check(cluster)
    return cluster.threads
with multiprocessing.get_context("fork").Pool(2) as pool:
    print(pool.map(work, range(4)))
check(cluster)
"""
    assert process.run(CHAIN + code) == "[1, 1, 1, 1]"


def test_the_helpers_notice_a_failing_process():
    with pytest.raises(AssertionError, match="status 3"):
        process.run("raise SystemExit(3)")
