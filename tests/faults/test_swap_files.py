"""Processes whose loops keep what they save in files (swap_memory): limits, forks, kills."""

import os

import pytest

from tests.faults import process

FORMS = {"native": "always", "interpreted": "off"}

# A loop that saves 100 MB for its gradient, in all; `run` returns the gradient.
LOOP = """
import os, resource, sys, time
import numpy as np
import headrace as tf

x = tf.placeholder(tf.float32, [1 << 17])
y = tf.while_loop(
    lambda i, _: i < 200,
    lambda i, y: [i + 1, tf.sin(y) * 0.001 + y],
    [0, x],
    maximum_iterations=200,
    swap_memory=SWAP,
)[1]
gradient = tf.gradients(y, x)[0]
session = tf.Session()
values = np.linspace(-1, 1, 1 << 17, dtype=np.float32)

def run(scale=1.0):
    return session.run(gradient, {x: values * scale})
"""


def code(text, swap=True):
    return LOOP.replace("SWAP", str(swap)) + text


@pytest.fixture(params=FORMS)
def environment(request, tmp_path):
    yield {
        "HEADRACE_JIT": FORMS[request.param],
        "HEADRACE_SWAP_DIR": str(tmp_path),
        "HEADRACE_NUM_THREADS": "2",  # each takes memory
    }
    assert os.listdir(tmp_path) == []


def test_a_limit_of_the_size_of_files_is_a_clean_error(environment):
    """Nothing is written beyond it, so there is no signal, and the session stays usable."""
    text = """
limits = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, limits[1]))
for _ in range(2):
    try:
        run()
    except tf.errors.ResourceExhaustedError as error:
        print("File too large" in error.message, "HEADRACE_SWAP_DIR" in error.message)
resource.setrlimit(resource.RLIMIT_FSIZE, limits)
print(run().shape)
"""
    assert process.run(code(text), **environment) == "True True\nTrue True\n(131072,)"


def test_a_limit_of_memory_does_not_hold_for_files(environment):
    text = """
def allowed(megabytes):
    with open("/proc/self/status") as file:
        now = next(int(line.split()[1]) << 10 for line in file if line.startswith("VmData"))
    resource.setrlimit(resource.RLIMIT_DATA, (now + (megabytes << 20), resource.RLIM_INFINITY))
    try:
        return run()
    except tf.errors.ResourceExhaustedError as error:
        return error
found = allowed(70)
print(type(found).__name__, flush=True)
if SWAPPED:
    resource.setrlimit(resource.RLIMIT_DATA, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    print((found == run()).all())
"""
    swapped = process.run(code(text.replace("SWAPPED", "True")), **environment)
    assert swapped == "ndarray\nTrue"
    plain = process.run(code(text.replace("SWAPPED", "False"), swap=False), **environment)
    assert plain == "ResourceExhaustedError"


def test_a_forked_child_has_files_of_its_own(environment):
    text = """
wanted = run(), run(2.0)
child = os.fork()
same = [(run(1.0 if child else 2.0) == wanted[0 if child else 1]).all() for _ in range(6)]
if not child:
    os._exit(0 if all(same) else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), all(same))
"""
    assert process.run(code(text), **environment) == "0 True"


def test_a_killed_process_leaves_no_file(environment):
    """The fixture looks for one."""
    started = process.start(code("run()\nprint('ran', flush=True)\nrun()"), **environment)
    assert started.stdout is not None and started.stdout.readline() == "ran\n"
    started.kill()
    started.communicate()
