"""Processes of clusters, by `headrace launch` and `headrace.cluster.local`: they are stopped,
restarted and never left behind.
"""

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest

import headrace as tf
import headrace.cluster

WAITS = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print("pids", os.getpid(), child.pid, flush=True)
time.sleep(600)
"""
STUBBORN = """
import os, signal, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("pids", os.getpid(), flush=True)
time.sleep(600)
"""
TRAINS = """
import headrace as tf
flags = tf.app.flags
flags.DEFINE_string("job_name", "", "")
flags.DEFINE_integer("task_index", 0, "")
flags.DEFINE_list("ps_hosts", [], "")
flags.DEFINE_list("worker_hosts", [], "")
FLAGS = flags.FLAGS

def main(_):
    jobs = {"ps": FLAGS.ps_hosts, "worker": FLAGS.worker_hosts}
    server = tf.train.Server(jobs, FLAGS.job_name, FLAGS.task_index)
    if FLAGS.job_name == "ps":
        return server.join()
    with tf.device(tf.train.replica_device_setter(cluster=jobs)):
        step = tf.train.get_or_create_global_step()
        train = tf.assign_add(step, 1)
    hooks = [tf.train.StopAtStepHook(last_step=20)]
    with tf.train.MonitoredTrainingSession(server.target, hooks=hooks) as session:
        while not session.should_stop():
            value = session.run(train)
    print("trained", value)

tf.app.run(main)
"""
FAILS_ONCE = """
import json, os, pathlib, sys
if json.loads(os.environ["TF_CONFIG"])["task"]["type"] == "ps":
    import time
    time.sleep(600)
mark = pathlib.Path(sys.argv[1])
print("was here" if mark.exists() else "is here first")
if not mark.exists():
    mark.touch()
    sys.exit(3)
"""


def is_alive(pid):
    """Return whether a process runs; one that has ended and waits to be reaped does not."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until_dead(pids, seconds=20.0):
    until = time.monotonic() + seconds
    while any(map(is_alive, pids)):
        assert time.monotonic() < until, [pid for pid in pids if is_alive(pid)]
        time.sleep(0.01)


@contextmanager
def launched(tmp_path, text, *options):
    script = tmp_path / "script.py"
    script.write_text(text)
    command = [sys.executable, "-m", "headrace", "launch", str(script), *options]
    launch = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        with launch:
            yield launch
    finally:
        launch.kill()
        launch.wait()


def read_pids(launch, tasks):
    """Return the ids that the tasks print."""
    found = []
    for line in launch.stdout:
        if "] pids " in line:
            found += map(int, line.rpartition("pids ")[2].split())
            tasks -= 1
            if not tasks:
                break
    return found


def test_a_training_ends_with_its_servers(tmp_path):
    with launched(tmp_path, TRAINS, "--ps", "1", "--workers", "1") as launch:
        shown, _ = launch.communicate(timeout=240)
    assert launch.returncode == 0, shown
    assert "[worker 0] trained 20" in shown
    assert "[launch] ps 0 ended" in shown


def test_a_tensorflow_program_runs_as_it_is(tmp_path):
    text = TRAINS.replace("import headrace as tf", "import tensorflow as tf")
    with launched(tmp_path, text, "--ps", "1", "--workers", "1") as launch:
        shown, _ = launch.communicate(timeout=240)
    assert launch.returncode == 0, shown
    assert "[worker 0] trained 20" in shown


def test_a_task_that_fails_ends_the_others_and_its_exit_code_is_returned(tmp_path):
    options = ("--ps", "1", "--workers", "1", str(tmp_path / "mark"))
    with launched(tmp_path, FAILS_ONCE, *options) as launch:
        shown, _ = launch.communicate(timeout=240)
    assert launch.returncode == 3
    assert "[launch] worker 0: exit code 3; stopping the others" in shown
    assert "[launch] ps 0 stopped" in shown and "KeyboardInterrupt" not in shown
    assert shown.splitlines()[-1].startswith("[launch] worker 0 failed: exit code 3")


def test_a_task_that_fails_is_restarted_on_request(tmp_path):
    options = ("--ps", "0", "--workers", "1", "--restarts", "1", str(tmp_path / "mark"))
    with launched(tmp_path, FAILS_ONCE, *options) as launch:
        shown, _ = launch.communicate(timeout=240)
    assert launch.returncode == 0, shown
    assert "starting it again (1 of 1)" in shown
    assert "[worker 0] was here" in shown


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_signal_stops_everything(tmp_path, number, code):
    with launched(tmp_path, WAITS, "--ps", "0", "--workers", "2") as launch:
        pids = read_pids(launch, 2)
        assert len(pids) == 4 and all(map(is_alive, pids))
        launch.send_signal(number)
        shown, _ = launch.communicate(timeout=240)
    assert launch.returncode == code, shown
    assert "[launch] worker 1 stopped" in shown
    wait_until_dead(pids)


def test_processes_that_ignore_signals_are_killed(tmp_path):
    with launched(tmp_path, STUBBORN, "--ps", "0", "--workers", "1", "--grace", "0.1") as launch:
        pids = read_pids(launch, 1)
        launch.send_signal(signal.SIGINT)
        launch.communicate(timeout=240)
    assert launch.returncode == 130
    assert not any(map(is_alive, pids))


def test_tasks_die_with_a_launcher_that_is_killed(tmp_path):
    with launched(tmp_path, STUBBORN, "--ps", "0", "--workers", "2") as launch:
        pids = read_pids(launch, 2)
        launch.kill()
        launch.wait()
        wait_until_dead(pids)


def test_a_server_of_a_local_cluster_is_killed_and_restarted():
    with headrace.cluster.local(ps=0, workers=2) as cluster:
        pids = cluster.pids["worker"]
        assert cluster.target == cluster.targets["worker"][0]
        assert cluster.spec.as_dict().keys() == {"worker"}
        with tf.Graph().as_default():
            with tf.device("/job:worker/task:1"):
                two = tf.Variable(1.0, name="one") + 1.0
            initialise = tf.global_variables_initializer()
            with tf.Session(cluster.target) as session:
                session.run(initialise)
                assert session.run(two) == 2.0
                cluster.kill("worker", 1)
                assert not is_alive(pids[1])
                with pytest.raises((tf.errors.AbortedError, tf.errors.UnavailableError)):
                    session.run(two)
            cluster.restart("worker", 1)
            with tf.Session(cluster.target) as session:
                with pytest.raises(tf.errors.FailedPreconditionError):
                    session.run(two)  # a new process has no values
                session.run(initialise)
                assert session.run(two) == 2.0
        pids += cluster.pids["worker"]
        os.kill(cluster.pids["worker"][0], signal.SIGSTOP)  # also ends if it does not answer
        os.kill(cluster.pids["worker"][0], signal.SIGCONT)
    assert not any(map(is_alive, pids))


def test_servers_die_with_the_process_that_started_them():
    code = (
        "import headrace.cluster, os, signal; c = headrace.cluster.local(0, 1); "
        "print(c.pids['worker'][0], flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    )
    shown = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert shown.returncode == -signal.SIGKILL
    wait_until_dead([int(shown.stdout)])


def test_a_cluster_in_one_process():
    workers, servers = tf.test.create_local_cluster(num_workers=2, num_ps=1)
    assert (len(workers), len(servers)) == (2, 1)
    try:
        with tf.Graph().as_default():
            with tf.device("/job:ps/task:0"):
                v = tf.Variable(1.0, name="v")
            with tf.device("/job:worker/task:1"):
                y = v + 1.0
            initialise = tf.global_variables_initializer()
            with tf.Session(workers[0].target) as session:
                session.run(initialise)
                assert session.run(y) == 2.0
            with tf.Session(workers[1].target) as session:
                assert session.run(y) == 2.0  # the variable belongs to the cluster
    finally:
        for server in [*workers, *servers]:
            server.stop()
