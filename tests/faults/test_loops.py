"""Failures while a loop runs, in each of its forms: native code, the interpreter, and the
primitives, which run if there is a queue inside.
"""

import pytest

from tests.faults import process

FORMS = {
    "native": ("", {"HEADRACE_JIT": "always"}),
    "interpreted": ("", {"HEADRACE_JIT": "off"}),
    "primitives": ("queue", {"HEADRACE_JIT": "auto"}),
}

# A loop that ends when x is `stop` or more, which it never is from 2 on.
LOOP = """
import os, sys, threading, time
import headrace as tf

stop = tf.placeholder(tf.float32, [])
queue = tf.FIFOQueue(100, [tf.float32], shapes=[[]])
count = tf.get_variable("count", initializer=0.0)

def body(i, x):
    if FORM == "queue":
        with tf.control_dependencies([queue.enqueue(x)]):
            x = queue.dequeue()
    return i + 1, x * 0.5 + 1.0

loop = tf.while_loop(lambda i, x: x < stop, body, [0, 0.0])
session = tf.Session(config=tf.ConfigProto(operation_timeout_in_ms=LIMIT))
session.run(tf.global_variables_initializer())

def check():
    session.run([loop, tf.assign_add(count, 1.0)], {stop: 0.5})
    if session.run(queue.size()):  # what was put there when the loop was stopped
        session.run(queue.dequeue())
    assert session.run(loop, {stop: 1.9}) == (5, 1.9375)

check()
check()
"""


@pytest.fixture(params=FORMS)
def run(request, tmp_path):
    """Run code after the loop was made, in one of its forms."""
    form, environment = FORMS[request.param]
    environment = {"HEADRACE_CACHE": str(tmp_path / "cache"), **environment}

    def run(code, how=process.run, limit=0):
        return how(f"FORM, LIMIT = {form!r}, {limit}\n{LOOP}{code}", **environment)

    return run


def test_ctrl_c(run):
    code = """
try:
    print("running", flush=True)
    session.run(loop, {stop: 3.0})
except KeyboardInterrupt:
    print("interrupted", flush=True)
check()
"""
    assert run(code, process.interrupt) == "interrupted"


def test_ctrl_c_in_a_callable(run):
    code = """
call = session.make_callable(loop, [stop])
try:
    print("running", flush=True)
    call(3.0)
except KeyboardInterrupt:
    print("interrupted", flush=True)
check()
"""
    assert run(code, process.interrupt) == "interrupted"


# SIGINT goes to a thread that knows nothing of Python, as those of BLAS and OpenMP, which is what
# the system may do with it when the main thread is busy or was stopped.
ELSEWHERE = """
import ctypes, signal, threading
mutex, lock = ctypes.create_string_buffer(128), ctypes.CDLL(None).pthread_mutex_lock
lock(mutex)
threading.Thread(target=lock, args=[mutex], daemon=True).start()
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
"""


def test_ctrl_c_that_another_thread_gets(run):
    code = """
try:
    print("running", flush=True)
    session.run(loop, {stop: 3.0})
except KeyboardInterrupt:
    print("interrupted", flush=True)
check()
"""
    assert run(ELSEWHERE + code, process.interrupt) == "interrupted"


def test_ctrl_c_that_another_thread_gets_while_a_dequeue_waits():
    code = """
import headrace as tf
queue = tf.FIFOQueue(3, [tf.float32])
session, element = tf.Session(), queue.dequeue()
try:
    print("running", flush=True)
    session.run(element)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
    assert process.interrupt(ELSEWHERE + code) == "interrupted"


def test_a_deadline_of_the_run(run):
    code = """
for timeout in (200, 2000, 20000):
    try:
        session.run(loop, {stop: 3.0}, options=tf.RunOptions(timeout_in_ms=timeout))
    except tf.errors.DeadlineExceededError as error:
        found = error
    if found.op is not None:  # else a busy machine has not begun with the loop in that time
        break
print("<string>" in str(found), "deadline" in str(found))
check()
"""
    assert run(code) == "True True"


def test_a_deadline_of_the_session(run):
    code = """
try:
    session.run(loop, {stop: 3.0})
except tf.errors.DeadlineExceededError:
    print("late")
check()
"""
    assert run(code, limit=5000) == "late"


def test_close_from_another_thread(run):
    code = """
threading.Timer(0.3, session.close).start()
try:
    session.run(loop, {stop: 3.0})
except tf.errors.CancelledError as error:
    print("cancelled:", error.message.splitlines()[0])
try:
    check()
except RuntimeError as error:
    print(str(error).splitlines()[0])
"""
    expected = "cancelled: the session was closed\nAttempted to use a closed Session."
    assert run(code) == expected


def test_a_child_made_while_a_loop_runs(run):
    code = """
def work():
    try:
        session.run(loop, {stop: 3.0})
    except tf.errors.CancelledError:
        print("cancelled")
thread = threading.Thread(target=work)
thread.start()
time.sleep(0.2)
if not (child := os.fork()):
    assert session.run(loop, {stop: 1.9})[0] <= 5
    os._exit(0)
print(os.waitpid(child, 0)[1], flush=True)
session.close()
thread.join()
"""
    assert run(code).split() == ["0", "cancelled"]


def test_fifty_threads_run_one_session(run):
    code = """
start, wrong = threading.Barrier(50), []
def work(number):
    start.wait()
    try:
        for _ in range(5):
            x = session.run(loop, {stop: 1.5 + number / 150})[1]
            assert 1.5 + number / 150 <= x <= 2.0, x
    except BaseException as error:
        wrong.append(error)
threads = [threading.Thread(target=work, args=(i,)) for i in range(50)]
for t in threads:
    t.start()
for t in threads:
    t.join()
print(wrong)
"""
    assert run(code) == "[]"


def test_close_while_a_dequeue_waits():
    code = """
import threading, headrace as tf
queue = tf.FIFOQueue(3, [tf.float32])
session, element = tf.Session(), queue.dequeue()
threading.Timer(0.3, session.close).start()
try:
    session.run(element)
except tf.errors.CancelledError as error:
    print(error.message.splitlines()[0])
"""
    assert process.run(code) == "the session was closed"
