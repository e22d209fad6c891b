"""Failures of single processes of a cluster: who notices, who is told, and what stays."""

import os
import signal
import threading
import time

import pytest

import headrace as tf
from headrace._src.distributed import messages as say
from headrace._src.distributed.cluster_spec import ClusterSpec
from headrace._src.distributed.instructions import Connect, Peer, Send, Stop
from headrace._src.server.task import Task
from tests.faults import process
from tests.faults.clusters.processes import Cluster, free_ports


@pytest.fixture
def started():
    """Start servers in this process; they are stopped after the test."""
    servers = []

    def start(cluster, job, index):
        servers.append(tf.train.Server(cluster, job, index))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


def until(condition, limit=120.0):
    end = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < end, "it does not happen"
        time.sleep(0.01)


def addresses(**jobs):
    ports = iter(free_ports(sum(jobs.values())))
    return {job: [f"127.0.0.1:{next(ports)}" for _ in range(count)] for job, count in jobs.items()}


# -- Clients ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_client_notices_that_its_master_is_gone(tmp_path, how):
    with Cluster(tmp_path, ps=1, workers=0) as cluster:
        cluster.start("ps", 0)
        cluster.wait(lambda: cluster.tasks["ps", 0].of("up"), "the server")
        with tf.Graph().as_default():
            blocked = tf.FIFOQueue(1, [tf.float32], [[]]).dequeue()
            one = tf.constant(1.0)
            session = tf.Session(f"grpc://{cluster.spec['ps'][0]}")
            assert session.run(one) == 1.0
            timer = threading.Timer(0.3, cluster.kill, ("ps", 0, how))
            timer.start()
            with pytest.raises(tf.errors.UnavailableError, match=r"lost|gone"):
                session.run(blocked)
            timer.join()
            with pytest.raises(tf.errors.UnavailableError):
                session.run(one)
            session.close()


def test_the_steps_of_a_dead_client_end_and_its_session_goes(started):
    server = started(addresses(local=1), "local", 0)
    target = server.target.decode()
    client = process.start(f"""
import headrace as tf
queue = tf.FIFOQueue(9, [tf.float32], [[]], shared_name="dead_clients")
session = tf.Session({target!r})
session.run(queue.size())
print("runs", flush=True)
session.run(queue.dequeue())
""")
    assert client.stdout.readline() == "runs\n"
    task = server._task
    until(lambda: task._worker.running())
    client.kill()
    client.communicate()
    until(lambda: not task._worker.running())
    until(lambda: not task._master._sessions and not task._state._sessions)
    with tf.Graph().as_default(), tf.Session(target) as session:
        queue = tf.FIFOQueue(9, [tf.float32], [[]], shared_name="dead_clients")
        session.run(queue.enqueue(7.0))
        assert session.run(queue.dequeue()) == 7.0


# -- Specifications --------------------------------------------------------------------------------


def test_specifications_that_differ_are_refused_with_both_addresses(started, caplog):
    cluster = addresses(ps=1, worker=2)
    other = {**cluster, "worker": [cluster["worker"][0], *addresses(other=1)["other"]]}
    started(cluster, "ps", 0)
    chief = started(other, "worker", 0)
    config = tf.ConfigProto(device_filters=["/job:ps"])
    with pytest.raises(tf.errors.FailedPreconditionError) as caught, tf.Graph().as_default():
        tf.Session(chief.target, config=config)
    for text in ("/job:worker/replica:0/task:1", cluster["worker"][1], other["worker"][1]):
        assert text in str(caught.value)

    def told():
        return [record for record in caplog.records if "different cluster spec" in record.message]

    until(lambda: len(told()) >= 2)
    time.sleep(1.0)
    assert len(told()) == 2  # each server once: neither connects again


def test_another_task_than_expected_is_refused(started):
    cluster = addresses(ps=2, worker=1)
    swapped = {**cluster, "ps": cluster["ps"][::-1]}
    started(swapped, "ps", 0)
    chief = started(cluster, "worker", 0)
    config = tf.ConfigProto(device_filters=["/job:ps/task:1"])
    with pytest.raises(tf.errors.FailedPreconditionError, match="was expected at"):
        tf.Session(chief.target, graph=tf.Graph(), config=config)


def test_names_of_one_host_are_one_address(started):
    cluster = addresses(ps=1, worker=1)
    named = {
        job: [a.replace("127.0.0.1", "localhost") for a in known] for job, known in cluster.items()
    }
    started(cluster, "ps", 0)
    chief = started(named, "worker", 0)
    with tf.Graph().as_default(), tf.Session(chief.target) as session:
        assert session.run(tf.constant(2.0)) == 2.0


# -- Fencing ---------------------------------------------------------------------------------------


def fenced(task):
    until(lambda: task._stopped is not None)
    with pytest.raises(tf.errors.AbortedError, match="started again elsewhere"):
        task.join(stay=True)


@pytest.fixture
def tasks():
    """Tasks of a cluster; a second one of a name has a port of its own, as on another host."""
    spec = addresses(ps=1, worker=1)
    made = []

    def make(job, again=False):
        task = Task(ClusterSpec(spec), job, 0, None)
        task.listen("127.0.0.1:0" if again else spec[job][0])
        task._peers.addresses[task.name] = spec[job][0]
        task.start()
        made.append(task)
        return task

    yield make
    for task in made:
        task.stop()


def connected(one, other):
    one.report(lambda: one._peers.connect(_connect(other)))
    until(lambda: other.me in one._links and one.me in other._links)


def _connect(task):
    return Connect(task.name, task._peers.addresses[task.name])


def test_a_process_with_a_successor_ends(tasks):
    """The old process still has its connection when the new one comes."""
    ps, old = tasks("ps"), tasks("worker")
    connected(old, ps)
    new = tasks("worker", again=True)
    connected(new, ps)
    fenced(old)
    assert ps._stopped is None and new._stopped is None
    assert [p for p in ps._links if p.name == old.name] == [new.me]


def test_a_process_that_was_given_up_asks_and_ends(tasks):
    """The old process was stopped, and given up before the new one came. When it continues, it
    finds its connections closed.
    """
    ps, old = tasks("ps"), tasks("worker")
    connected(old, ps)
    ps._peers._newest[old.name] = old.me._replace(incarnation=old.incarnation + 1)
    ps._loop.call_soon(lambda: [link.close() for link in ps._links[old.me]])
    fenced(old)
    assert ps._stopped is None


def test_messages_of_an_old_process_have_no_effect(tasks):
    ps, old = tasks("ps"), tasks("worker")
    ends = []
    ps._peers._newest[old.name] = old.me._replace(incarnation=old.incarnation + 1)
    old._do[Stop] = lambda each: ends.append(each) or []  # it does not heed the message
    old.report(lambda: old._peers.connect(_connect(ps)))
    until(lambda: ends)
    old.report(lambda: [Send(ps.me, say.OpenWorkerSession(1, 2, 0, b""))])
    old.report(lambda: [Send(ps.me, say.ResetContainers(2, [], []))])
    time.sleep(0.3)
    assert not ps._worker._sessions
    assert old.me not in ps._links and ps._master._peers.get(old.name) is None
    assert Peer(old.name, old.incarnation) not in ps._masters.values()


def test_a_stopped_process_that_continues_after_its_successor_came_exits(tmp_path):
    """The successor has another port, as on another host: the stopped process still has its own."""
    with Cluster(tmp_path, ps=1, workers=1) as cluster:
        cluster.start_all()
        cluster.wait_applied(3, 0.0)
        old, name = cluster.tasks["worker", 0], "/job:worker/replica:0/task:0"
        cluster.kill("worker", 0, signal.SIGSTOP)
        new = Task(ClusterSpec(cluster.spec), "worker", 0, None)
        try:
            new.listen("127.0.0.1:0")
            new._peers.addresses[name] = cluster.spec["worker"][0]
            new.start()
            ps = "/job:ps/replica:0/task:0"
            new.report(lambda: new._peers.connect(Connect(ps, cluster.spec["ps"][0])))
            until(lambda: [peer for peer in new._links if peer.name == ps])
            time.sleep(0.1)  # the ps has it, too
            before = len(old.of("applied"))
            os.kill(old.pid, signal.SIGCONT)
            cluster.wait(lambda: old.process.poll() is not None, "the end of the old process")
            assert old.process.returncode == os.EX_TEMPFAIL, cluster.report()
            assert "started again elsewhere" in "\n".join(old.errors)
            assert len(old.of("applied")) <= before + 1  # the answer may have come before
            assert cluster.tasks["ps", 0].process.poll() is None
        finally:
            new.stop()


# -- The end of parameter servers ------------------------------------------------------------------

WORKER = """
import headrace as tf, os
server = tf.train.Server({spec!r}, "worker", 0)
with tf.Session(server.target) as session:
    with tf.device("/job:ps/task:0"):
        assert session.run(tf.constant(3.0)) == 3.0
{end}
"""


def test_a_parameter_server_ends_with_its_workers_but_never_with_a_connection(tmp_path):
    with Cluster(tmp_path, ps=1, workers=1) as cluster:
        ps = cluster.start("ps", 0)
        broken = process.start(WORKER.format(spec=cluster.spec, end="os._exit(3)"))
        assert broken.wait() == 3
        broken.communicate()
        failed = process.start(WORKER.format(spec=cluster.spec, end="raise ValueError('no')"))
        assert failed.wait() == 1
        failed.communicate()
        time.sleep(3.0)  # longer than it would linger
        assert ps.process.poll() is None and not ps.of("joined")
        process.run(WORKER.format(spec=cluster.spec, end=""))
        cluster.wait(lambda: ps.process.poll() is not None, "the end of the ps")
        assert ps.process.returncode == 0 and ps.of("joined")


def test_a_parameter_server_stays_if_asked_to(tmp_path):
    with Cluster(tmp_path, ps=1, workers=1, HEADRACE_SERVERS_STAY="1") as cluster:
        ps = cluster.start("ps", 0)
        process.run(WORKER.format(spec=cluster.spec, end=""))
        time.sleep(3.5)
        assert ps.process.poll() is None and not ps.of("joined")


# -- Savers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("option", ["asynchronous", "exact_resume"])
def test_savers_that_need_the_state_here_are_refused(started, tmp_path, option):
    server = started(addresses(local=1), "local", 0)
    with tf.Graph().as_default(), tf.Session(server.target) as session:
        weight = tf.get_variable("weight", initializer=1.0)
        saver = tf.train.Saver(**{option: True})
        session.run(weight.initializer)
        with pytest.raises(tf.errors.FailedPreconditionError, match=f"{option}.*cluster"):
            saver.save(session, str(tmp_path / "model"))
        assert not os.listdir(tmp_path)
