"""A kernel that holds Python's global lock, beside a large transfer: nobody is given up. A process
that is stopped is.

`python -m tests.faults.clusters.busy [seconds] [MB]` does it, by default with 10 s and 4 GB.
"""

import ctypes
import json
import os
import signal
import sys
import threading
import time

import headrace as tf
from tests.faults import process
from tests.faults.clusters.processes import free_ports

LIMIT = 300  # seconds


def serve(spec, seconds):
    """The parameter server. Its kernel of Tanh holds the lock."""

    @tf.register_kernel("Tanh", "CPU")
    def hold(x):
        ctypes.PyDLL(None).usleep(int(seconds * 1e6))
        return x

    print("up", flush=True)
    tf.train.Server(spec, "ps", 0).join()


def drive(spec, seconds, megabytes, pid):
    """The worker: print what happened as JSON."""
    server = tf.train.Server(spec, "worker", 0)
    n = megabytes << 18
    one, count = tf.placeholder(tf.float32, []), tf.placeholder(tf.int32, [])
    with tf.device("/job:ps"):
        held = tf.tanh(one)
        queue = tf.FIFOQueue(1, tf.float32, [])
        waits, size = queue.dequeue(), queue.size()
        v = tf.get_variable("v", [n], initializer=tf.zeros_initializer())
    with tf.device("/job:worker"):
        there = tf.fill([count], 3.0)
    with tf.device("/job:ps"):
        filled = v.assign(there)
    with tf.device("/job:worker"):
        last = tf.identity(v)[-1]
    found = {}
    with tf.Session(server.target) as session:
        session.run([size, v.initializer])
        began = time.monotonic()

        def transfer():
            session.run(filled.op, {count: n})
            found["sent"] = time.monotonic() - began

        thread = threading.Thread(target=transfer)
        thread.start()
        session.run([held, last], {one: 1.0})  # holds the lock, and sends all of it back
        thread.join()
        found["seconds"] = time.monotonic() - began
        found["last"] = float(session.run(last))
        timer = threading.Timer(0.3, os.kill, (pid, signal.SIGSTOP))
        timer.start()
        began = time.monotonic()
        try:
            session.run(waits)
        except (tf.errors.UnavailableError, tf.errors.AbortedError) as error:
            found["stopped"] = time.monotonic() - began - 0.3
            found["error"] = error.message
    print(json.dumps(found), flush=True)
    os._exit(0)  # not to wait for a process that is stopped


def run(seconds, megabytes, **environment):
    """Return what happened: times in seconds."""
    spec = {
        job: [f"127.0.0.1:{port}"]
        for job, port in zip(("ps", "worker"), free_ports(2), strict=True)
    }
    start, about = "from tests.faults.clusters import busy; busy.", f"({spec!r}, {seconds}"
    ps = process.start(f"{start}serve{about})", **environment)
    try:
        assert ps.stdout.readline() == "up\n", ps.stderr.read()
        driver = process.start(f"{start}drive{about}, {megabytes}, {ps.pid})", **environment)
        try:
            output, complaints = driver.communicate(timeout=LIMIT)
        finally:
            driver.kill()
        assert output, complaints
        return json.loads(output)
    finally:
        ps.kill()
        ps.communicate()


if __name__ == "__main__":
    seconds, megabytes = map(float, [*sys.argv[1:], *("10", "4096")[len(sys.argv) - 1 :]])
    result = run(seconds, int(megabytes))
    assert result["last"] == 3.0 and result["seconds"] >= seconds and "error" in result, result
    print(
        f"{seconds:g} s with the lock held and {megabytes:g} MB there and back: nobody was given "
        f"up ({result['seconds']:.1f} s); a stopped process was, after {result['stopped']:.2f} s"
    )
