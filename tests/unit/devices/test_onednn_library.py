"""Loading oneDNN, and its life among threads and processes. Each process runs in a fresh
interpreter."""

import importlib.metadata
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from headrace._src.devices import onednn


def start(code, **environment):
    """Run code in a fresh interpreter, away from the variables that this one was started with."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("HEADRACE_", "GOMP_", "OMP_"))}
    path = os.pathsep.join(p for p in sys.path if p)
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**kept, "PYTHONPATH": path, **environment},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    return done


def run(code, **environment):
    """Run code as `start` does and return what it printed."""
    return start(code, **environment).stdout.strip()


def test_available_where_the_wheel_is_installed():
    importlib.metadata.version("onednn-cpu-gomp")
    assert onednn.available(), onednn.why_not()
    assert onednn.why_not() is None


ASK = """
import numpy as np
from headrace._src.devices import onednn
try:
    onednn.matmul(np.eye(2, dtype='f'), np.eye(2, dtype='f'))
    print('ran')
except onednn.Unsupported as refusal:
    assert not onednn.available() and str(refusal) == onednn.why_not()
    print(refusal)
"""


def test_missing_library_is_a_reason_not_an_error():
    assert run(ASK, HEADRACE_DNNL="/nowhere/libdnnl.so").startswith(
        "oneDNN not found at /nowhere/libdnnl.so"
    )


def test_file_that_is_no_library_is_a_reason_not_an_error(tmp_path):
    for content in (b"", b"not a shared object\n" * 100):
        fake = tmp_path / "libdnnl.so"
        fake.write_bytes(content)
        said = run(ASK, HEADRACE_DNNL=str(fake))
        assert said.startswith(f"oneDNN at {fake} cannot be used: ") and "\n" not in said


def test_another_library_is_a_reason_not_an_error():
    import _ctypes

    assert "undefined symbol" in run(ASK, HEADRACE_DNNL=_ctypes.__file__)


def test_switched_off():
    assert "switched off" in run(ASK, HEADRACE_NO_ONEDNN="1")


def test_importing_loads_nothing():
    code = "import headrace._src.devices.onednn; print('libdnnl' in open('/proc/self/maps').read())"
    assert run(code) == "False"


def test_spin_count_is_set_for_libgomp_and_only_while_it_loads():
    code = """
import os
from headrace._src.devices import onednn
print(onednn.available(), os.environ.get('GOMP_SPINCOUNT'))
"""
    done = start(code, OMP_DISPLAY_ENV="VERBOSE")
    assert done.stdout.strip() == "True None"
    assert "GOMP_SPINCOUNT = '1000'" in done.stderr
    assert run(code, GOMP_SPINCOUNT="77") == "True 77"


def test_thread_count_of_the_settings():
    code = """
import ctypes, threading
import numpy as np
from headrace._src.devices import onednn
eye = np.eye(64, dtype='f')
def ask():
    onednn.matmul(eye, eye)
    print(ctypes.CDLL('libgomp.so.1').omp_get_max_threads())
ask()
thread = threading.Thread(target=ask); thread.start(); thread.join()
"""
    assert run(code, HEADRACE_NUM_THREADS="3").split() == ["3", "3"]


FORK = """
import os, signal
import numpy as np
from headrace._src.devices import onednn
a = np.ones((300, 300), 'f')
before = {loaded}
if before:
    assert onednn.matmul(a, a)[0, 0] == 300
child = os.fork()
if child == 0:
    signal.alarm(20)  # kills a child that hangs
    try:
        print(onednn.available(), onednn.matmul(a, a)[0, 0], flush=True)
    except onednn.Unsupported as refusal:
        print(onednn.available(), refusal, flush=True)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert onednn.matmul(a, a)[0, 0] == 300
"""


def test_forked_child_of_a_user_refuses_instead_of_hanging():
    said = run(FORK.format(loaded=True))
    assert said.startswith("False oneDNN was loaded before this process was forked")


def test_forked_child_of_a_process_that_never_used_it_may():
    assert run(FORK.format(loaded=False)) == "True 300.0"


def test_fifty_threads_share_the_same_primitives():
    rng = np.random.default_rng(0)
    w = rng.standard_normal((3, 3, 8, 16)).astype(np.float32)
    same = ((1, 1), (1, 1), ((1, 1), (1, 1)))

    def work(seed):
        x = np.random.default_rng(seed).standard_normal((2, 9, 9, 8)).astype(np.float32)
        y = onednn.conv(x, w, *same)
        return x, y, onednn.conv_backward_filter(x, w.shape, y, *same), onednn.softmax(y)

    with ThreadPoolExecutor(50) as pool:
        results = list(pool.map(work, range(400)))
    for x, y, dw, p in results[::7]:
        np.testing.assert_array_equal(y, onednn.conv(x, w, *same))
        np.testing.assert_allclose(
            dw, onednn.conv_backward_filter(x, w.shape, y, *same), rtol=1e-4, atol=1e-4
        )
        np.testing.assert_allclose(p.sum(-1), 1, rtol=1e-5)


def test_more_shapes_than_the_cache_holds():
    """Evicted plans are destroyed and made again; the results stay right."""
    for n in [*range(1, 600), *range(1, 600, 50)]:
        a = np.full((1, n), 2, np.float32)
        assert onednn.matmul(a, a, transpose_b=True)[0, 0] == pytest.approx(4 * n)
