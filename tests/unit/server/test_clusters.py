"""Clusters of servers: who belongs to one, what runs where, and what several clients share."""

import threading
import time

import numpy as np
import pytest
from headrace.python.client.timeline import Timeline
from headrace.python.framework.function import Defun

import headrace as tf
from headrace._src.distributed import client
from headrace._src.distributed import messages as say
from headrace._src.runtime import pace
from headrace._src.server import peers, running
from tests.faults import process
from tests.through_servers import free_addresses, servers
from tests.unit.session import devices

PS0, PS1 = (f"/job:ps/replica:0/task:{i}/device:CPU:0" for i in range(2))
WORKER = "/job:worker/replica:0/task:0/device:CPU:0"


@pytest.fixture(scope="module")
def cluster():
    with servers(ps=2, worker=1) as started:
        yield started


@pytest.fixture
def session(cluster):
    with tf.Graph().as_default() as graph:
        config = tf.ConfigProto(isolate_session_state=True)
        with tf.Session(cluster["worker0"].target, graph=graph, config=config) as made:
            yield made


def until(condition, limit=120.0):
    end = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < end, "it does not happen"
        time.sleep(0.002)


# -- Who belongs to a cluster ----------------------------------------------------------------------


def test_a_server_of_its_own():
    server = tf.train.Server.create_local_server()
    try:
        assert server.target.startswith(b"grpc://127.0.0.1:")
        assert not server.target.endswith(b":0")
        assert server.server_def.job_name == "local"
        with tf.Graph().as_default(), tf.Session(server.target) as session:
            (device,) = [d for d in session.list_devices() if d.device_type == "CPU"]
            assert device.name == "/job:local/replica:0/task:0/device:CPU:0"
            with tf.device("/job:local/task:0"):
                v = tf.Variable([1.0, 2.0])
            session.run(v.initializer)
            assert session.run(v * 2.0).tolist() == [2, 4]
    finally:
        server.stop()


def test_a_server_of_its_own_that_starts_later():
    server = tf.train.Server.create_local_server(start=False)
    try:
        timer = threading.Timer(0.2, server.start)
        timer.start()
        with tf.Graph().as_default(), tf.Session(server.target) as session:
            assert session.run(tf.constant(1.0)) == 1
        timer.join()
    finally:
        server.stop()


@pytest.fixture
def apart():
    """Two servers, each of which knows only itself, and their addresses."""
    addresses = free_addresses(2)
    each = [tf.train.Server({"worker": {i: a}}, "worker", i) for i, a in enumerate(addresses)]
    yield each, addresses
    for server in each:
        server.stop()


def test_a_session_can_bring_its_own_cluster(apart):
    (first, _), addresses = apart
    spec = tf.train.ClusterSpec({"worker": addresses})
    with tf.Graph().as_default():
        with tf.device("/job:worker/task:1"):
            y = tf.constant([1.0, 2.0]) * 3.0
        with tf.device("/job:worker/task:0"):
            z = tf.identity(y) + 1.0
        with tf.device("/job:worker/task:1"):
            back = tf.identity(z) * 2.0  # the second server has to reach the first one, too
        config = tf.ConfigProto(cluster_def=spec.as_cluster_def())
        with tf.Session(first.target, config=config) as session:
            assert session.run(back).tolist() == [8, 14]
            assert len(session.list_devices()) == 2
        with tf.Session(first.target) as session:  # without it there is one task
            assert len(session.list_devices()) == 1


def test_a_clusters_addresses_are_compared(apart):
    (first, _), addresses = apart
    elsewhere = ["127.0.0.1:1", addresses[1]]
    for jobs, text in (
        ({"worker": elsewhere}, f"is at {addresses[0]} here, and at 127.0.0.1:1 there"),
        ({"worker": {1: addresses[1]}}, "it lacks /job:worker/replica:0/task:0"),
        ({"other": addresses}, "under the name it was started with"),
    ):
        config = tf.ConfigProto(cluster_def=tf.train.ClusterSpec(jobs).as_cluster_def())
        with pytest.raises(tf.errors.InvalidArgumentError, match="cluster_def") as caught:
            tf.Session(first.target, graph=tf.Graph(), config=config)
        assert text in str(caught.value)


def test_a_session_does_not_wait_for_a_task_with_another_key(monkeypatch):
    ps, worker = free_addresses(2)
    started = []
    try:
        for job, key in (("ps", b"1" * 32), ("worker", b"2" * 32)):
            for module in peers, client:
                monkeypatch.setattr(module, "configured_key", lambda key=key: key)
            started.append(tf.train.Server({"ps": [ps], "worker": [worker]}, job, 0))
        with pytest.raises(tf.errors.FailedPreconditionError, match="have different keys"):
            tf.Session(started[1].target, graph=tf.Graph())
    finally:
        for server in started:
            server.stop()


def test_a_session_that_may_not_wait_for_long():
    config = tf.ConfigProto(operation_timeout_in_ms=300)
    (nobody,) = free_addresses(1)
    with pytest.raises(tf.errors.DeadlineExceededError, match=f"no server at {nobody}"):
        tf.Session(f"grpc://{nobody}", graph=tf.Graph(), config=config)


def test_filters_choose_the_tasks_of_a_session(cluster):
    config = tf.ConfigProto(device_filters=["/job:ps/task:1"])
    with tf.Graph().as_default():
        with tf.device("/job:ps/task:0"):
            there = tf.constant(1.0) * 2.0
        with tf.Session(cluster["worker0"].target, config=config) as session:
            assert {d.name for d in session.list_devices()} == {WORKER, PS1}
            with pytest.raises(tf.errors.InvalidArgumentError, match="Cannot assign a device"):
                session.run(there)


# -- Clients ---------------------------------------------------------------------------------------

CLIENT = """
import headrace as tf
from headrace.python.client.timeline import Timeline
from headrace.python.framework.function import Defun
with tf.device("/job:ps/task:0"):
    v = tf.get_variable("of_clients", [], tf.int32, initializer=tf.zeros_initializer())
    queue = tf.FIFOQueue(99, tf.int32, [], shared_name="clients_done")
add, put = v.assign_add(1, use_locking=True), queue.enqueue({number})
with tf.Session({target!r}) as session:
    for _ in range(50):
        session.run(add)
    session.run(put)
print("done", flush=True)
"""


def test_clients_in_several_processes_at_once(cluster):
    target = cluster["worker0"].target.decode()
    with tf.Graph().as_default():
        with tf.device("/job:ps/task:0"):
            v = tf.get_variable("of_clients", [], tf.int32, initializer=tf.zeros_initializer())
            queue = tf.FIFOQueue(99, tf.int32, [], shared_name="clients_done")
        element = queue.dequeue()
        with tf.Session(target) as session:
            session.run(v.initializer)
            each = [process.start(CLIENT.format(number=i, target=target)) for i in range(3)]
            assert sorted(session.run(element) for _ in each) == [0, 1, 2]
            assert [process.finish(client) for client in each] == ["done"] * 3
            assert session.run(v) == 150
    task = cluster["worker0"]._task
    until(lambda: not task._master._sessions)


# -- What runs where -------------------------------------------------------------------------------


def test_functions_travel_with_their_partitions(session):
    @Defun(tf.float32)
    def twice(x):
        return x * 2.0

    @Defun(tf.float32)
    def four_times(x):
        return twice(twice(x))

    x = tf.placeholder(tf.float32, [])
    with tf.device("/job:ps/task:0"):
        y = four_times(x)
    with tf.device("/job:ps/task:1"):
        z = twice(y)
    assert session.run(z, {x: 3.0}) == 24
    with tf.device("/job:ps/task:0"):  # one that is new to the cluster
        w = tf.map_fn(twice, tf.stack([x, z]))
    assert session.run(w, {x: 1.0}).tolist() == [2, 16]


def test_rows_are_gathered_and_updated_where_the_parameters_are(cluster, session):
    spec = tf.train.ClusterSpec(cluster["worker0"].server_def.cluster)
    setter = tf.train.replica_device_setter(cluster=spec, worker_device="/job:worker/task:0")
    start = np.arange(40, dtype=np.float32).reshape(10, 4)
    with tf.device(setter):
        table = tf.get_variable(
            "table", initializer=start, partitioner=tf.fixed_size_partitioner(2)
        )
        ids = tf.placeholder(tf.int64, [None])
        rows = tf.nn.embedding_lookup(table, ids, partition_strategy="div")
        train = tf.train.GradientDescentOptimizer(1.0).minimize(tf.reduce_sum(rows))
    session.run(tf.global_variables_initializer())
    options, metadata = tf.RunOptions(output_partition_graphs=True), tf.RunMetadata()
    found, _ = session.run([rows, train], {ids: [1, 7, 3]}, options, metadata)
    np.testing.assert_array_equal(found, start[[1, 7, 3]])
    devices = {}
    for graph in metadata.partition_graphs:
        for node in graph.node:
            if not node.name.startswith("gradients/"):
                devices.setdefault(node.op, set()).add(node.device)
    assert devices["VariableV2"] == devices["GatherV2"] == devices["ScatterSub"] == {PS0, PS1}
    assert devices["DynamicPartition"] == {WORKER}
    shards = [tf.get_default_graph().get_tensor_by_name(f"table/part_{i}:0") for i in range(2)]
    start[[1, 7, 3]] -= 1
    np.testing.assert_array_equal(np.concatenate(session.run(shards)), start)


def test_partitioned_variables_are_spread_and_assembled(cluster, session):
    spec = tf.train.ClusterSpec(cluster["worker0"].server_def.cluster)
    with tf.device(tf.train.replica_device_setter(cluster=spec)):
        v = tf.get_variable(
            "spread",
            [5, 2],
            initializer=tf.ones_initializer(),
            partitioner=tf.fixed_size_partitioner(2),
        )
        total = tf.reduce_sum(v)
    session.run(tf.global_variables_initializer())
    assert [part.device for part in v] == ["/job:ps/task:0", "/job:ps/task:1"]
    assert session.run(total) == 10


def test_barriers_on_another_task(session):
    with tf.device("/job:ps/task:1"):
        barrier = tf.raw_ops.Barrier(component_types=[tf.float32, tf.string], shapes=[[2], []])
        halves = [
            tf.raw_ops.BarrierInsertMany(
                handle=barrier, keys=["b", "a"], values=values, component_index=i
            )
            for i, values in enumerate(([[1.0, 2.0], [3.0, 4.0]], ["two", "one"]))
        ]
        _, keys, values = tf.raw_ops.BarrierTakeMany(
            handle=barrier, num_elements=2, component_types=[tf.float32, tf.string]
        )
        ready = tf.raw_ops.BarrierReadySize(handle=barrier)
    with tf.device("/job:worker"):
        taken = [tf.identity(keys), *(tf.identity(each) for each in values)]
    session.run(halves[0])
    assert session.run(ready) == 0
    results = []
    thread = threading.Thread(target=lambda: results.append(session.run(taken)))
    thread.start()
    session.run(halves[1])
    thread.join(30)
    ((names, numbers, texts),) = results
    assert names.tolist() == [b"b", b"a"] and texts.tolist() == [b"two", b"one"]
    assert numbers.tolist() == [[1, 2], [3, 4]]


def test_readers_on_another_task(session, tmp_path):
    for i in range(2):
        (tmp_path / f"{i}.txt").write_text(f"{i} first\n{i} second\n")
    with tf.device("/job:ps/task:0"):
        names = tf.FIFOQueue(9, tf.string, [], shared_name="names")
        reader = tf.TextLineReader()
        key, line = reader.read(names)
        produced = reader.num_records_produced()
    with tf.device("/job:worker"):
        words = tf.string_split([line]).values
    session.run(names.enqueue_many([[str(tmp_path / f"{i}.txt") for i in range(2)]]))
    session.run(names.close())
    lines = [session.run([key, words]) for _ in range(4)]
    assert [each.tolist() for _, each in lines] == [
        [b"0", b"first"],
        [b"0", b"second"],
        [b"1", b"first"],
        [b"1", b"second"],
    ]
    assert lines[3][0].endswith(b"1.txt:2")
    assert session.run(produced) == 4
    with pytest.raises(tf.errors.OutOfRangeError, match="closed"):
        session.run(line)


def test_tensors_that_are_awaited_hold_no_threads(cluster, session):
    """A thousand tensors of another task, each of which waits for an element of its queue."""
    count = 1000
    with tf.device("/job:ps/task:0"):
        queue = tf.FIFOQueue(count, tf.int32, [])
        elements = [queue.dequeue() for _ in range(count)]
    with tf.device("/job:worker"):
        here = [tf.identity(element) for element in elements]
        total = tf.add_n(here)
    put = queue.enqueue_many([np.arange(count)])
    threads = threading.active_count()
    results = []
    thread = threading.Thread(target=lambda: results.append(session.run(total)))
    thread.start()
    state = cluster["worker0"]._task._state
    until(lambda: any(r.step and len(r.step.waiting()) == count for r in state._running.values()))
    assert threading.active_count() < threads + 10  # the client's, and those of the pool
    session.run(put)
    thread.join(30)
    assert results == [sum(range(count))]


# -- Registrations ---------------------------------------------------------------------------------


def test_eight_variants_of_a_step_are_kept_until_the_session_is_closed(cluster):
    states = [cluster[name]._task._state for name in ("ps0", "worker0")]
    before = [set(state._graphs) for state in states]
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [None])
        with tf.device("/job:ps/task:0"):
            y = x * 2.0
        with tf.device("/job:worker"):
            z = tf.reduce_sum(y)
        with tf.Session(cluster["worker0"].target) as session:
            for size in (*range(1, 13), 1):
                assert session.run(z, {x: np.ones(size)}) == 2 * size
            for state, known in zip(states, before, strict=True):
                until(lambda s=state, k=known: len(set(s._graphs) - k) == 8)
    for state, known in zip(states, before, strict=True):
        until(lambda s=state, k=known: set(s._graphs) <= k)


# -- Aborts ----------------------------------------------------------------------------------------


def test_a_failure_reaches_all_tasks_of_the_step_and_no_others(cluster, session):
    x = tf.placeholder(tf.float32, [])
    with tf.device("/job:ps/task:0"):
        empty = tf.FIFOQueue(1, tf.float32, [])
        waits = empty.dequeue()
        put = empty.enqueue(2.0)
    with tf.device("/job:ps/task:1"):
        checked = tf.check_numerics(x, "not a number")
        other = tf.FIFOQueue(1, tf.float32, [])
        apart = other.dequeue()
        release = other.enqueue(5.0)
    with tf.device("/job:worker"):
        both = waits + checked
    session.run(put)
    assert session.run(both, {x: 1.0}) == 3
    results = []
    running = [cluster[name]._task._worker.running for name in ("ps0", "ps1", "worker0")]
    until(lambda: not running[1]())  # the client need not have waited for the end there
    thread = threading.Thread(target=lambda: results.append(session.run(apart)))
    thread.start()
    until(running[1])
    with pytest.raises(tf.errors.InvalidArgumentError, match="not a number"):
        session.run(both, {x: np.nan})  # ends, though ps 0 waits for what never comes
    assert [len(r()) for r in running] == [0, 1, 0]  # the other step goes on
    session.run(put)  # nothing was taken, and all tasks are usable
    assert session.run(both, {x: 1.0}) == 3
    session.run(release)
    thread.join(30)
    assert results == [5]


# -- Elements of queues ----------------------------------------------------------------------------


def late(session, fetches):
    with pytest.raises(tf.errors.DeadlineExceededError):
        session.run(fetches, options=tf.RunOptions(timeout_in_ms=150))


@pytest.mark.parametrize("second", ["/job:ps/task:0", "/job:ps/task:1", "/job:worker"])
@pytest.mark.parametrize("receiver", ["/job:ps/task:0", "/job:worker"])
def test_a_cancelled_step_puts_back_what_it_has_taken(cluster, session, second, receiver):
    """It takes from one queue, sends the element, and is cancelled while it waits for another."""
    with tf.device("/job:ps/task:0"):
        queue = tf.FIFOQueue(9, tf.int32, [])
        taken = [queue.dequeue(), queue.dequeue_many(2)]
    with tf.device(receiver):
        received = [tf.identity(each) + 0 for each in taken]
    with tf.device(second):
        other = tf.FIFOQueue(9, tf.int32, [])
        last = other.dequeue()
    with tf.device("/job:worker"):
        total = tf.add_n([received[0], tf.reduce_sum(received[1]), last])
    size, put = queue.size(), other.enqueue(100)
    session.run(queue.enqueue_many([[1, 2, 3, 4]]))
    states = [cluster[name]._task._state for name in ("ps0", "ps1", "worker0")]
    for _ in range(3):
        late(session, total)
        until(lambda: session.run(size) == 4)
        assert not any(state._held for state in states)
    session.run(put)
    assert session.run(total) == 106
    assert session.run(queue.dequeue()) == 4
    until(lambda: not any(state._held for state in states))


def test_an_element_that_another_task_has_used_does_not_return(session):
    with tf.device("/job:ps/task:0"):
        queue = tf.FIFOQueue(9, tf.int32, [])
        taken, size = queue.dequeue(), queue.size()
    with tf.device("/job:ps/task:1"):
        v = tf.Variable(0)
        written = v.assign(taken)
    with tf.control_dependencies([written]), tf.device("/job:worker"):
        last = tf.FIFOQueue(9, tf.int32, []).dequeue()
    session.run([v.initializer, queue.enqueue_many([[7, 8]])])
    devices.late(
        lambda t: session.run(last, options=tf.RunOptions(timeout_in_ms=t)),
        in_time=lambda error: session.run(v) != 0,
    )
    assert session.run([v, size]) == [7, 1]


def test_a_client_that_dies_leaves_the_elements(cluster):
    target = cluster["worker0"].target.decode()
    client = process.start(f"""
import headrace as tf
with tf.device("/job:ps/task:0"):
    queue = tf.FIFOQueue(9, tf.int32, [], shared_name="of_the_dead")
with tf.device("/job:worker"):
    both = queue.dequeue() + tf.FIFOQueue(9, tf.int32, []).dequeue()
session = tf.Session({target!r})
session.run(queue.enqueue(7))
print("runs", flush=True)
session.run(both)
""")
    assert client.stdout.readline() == "runs\n"
    with tf.Graph().as_default(), tf.Session(target) as session:
        with tf.device("/job:ps/task:0"):
            queue = tf.FIFOQueue(9, tf.int32, [], shared_name="of_the_dead")
        size, element = queue.size(), queue.dequeue()
        until(lambda: session.run(size) == 0)
        client.kill()
        client.communicate()
        until(lambda: session.run(size) == 1)
        assert session.run(element) == 7


# -- Traces ----------------------------------------------------------------------------------------

AN_HOUR_AHEAD = """
import sys, time
clock, nanoseconds = time.time, time.time_ns
time.time = lambda: clock() + 3600
time.time_ns = lambda: nanoseconds() + 3600 * 10**9
import headrace as tf
server = tf.train.Server({cluster!r}, "ps", 0)
print("up", flush=True)
server.join()
"""


def test_one_timeline_though_a_clock_is_an_hour_ahead():
    addresses = free_addresses(2)
    cluster = {"ps": addresses[:1], "worker": addresses[1:]}
    ps = process.start(AN_HOUR_AHEAD.format(cluster=cluster))
    server = tf.train.Server(cluster, "worker", 0)
    try:
        assert ps.stdout.readline() == "up\n"
        with tf.Graph().as_default(), tf.Session(server.target) as session:
            x = tf.placeholder(tf.float32, [3])
            with tf.device("/job:worker"):
                first = tf.exp(x, name="first")
            with tf.device("/job:ps"):
                second = tf.exp(first, name="second")
            with tf.device("/job:worker"):
                third = tf.exp(second, name="third")
            for _ in range(3):
                metadata = tf.RunMetadata()
                options = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE)
                began = time.time()
                session.run(third, {x: [1, 2, 3]}, options, metadata)
                ended = time.time()
    finally:
        server.stop()
        ps.kill()
        ps.communicate()
    nodes = [n for d in metadata.step_stats.dev_stats for n in d.node_stats]
    starts = {n.node_name: n.all_start_micros / 1e6 for n in nodes}
    assert began - 1 < min(starts.values()) and max(starts.values()) < ended + 1
    assert starts["first"] < starts["third"]
    assert {"_Send", "_Recv"} <= {n.timeline_label.split(" = ")[-1].split("(")[0] for n in nodes}
    shown = Timeline(metadata.step_stats).generate_chrome_trace_format()
    assert "task:0/device:CPU:0" in shown and "/job:ps" in shown


# -- Graphs of clients -----------------------------------------------------------------------------


def damaged_graphs():
    unknown, cycle, dangling = tf.GraphDef(), tf.GraphDef(), tf.GraphDef()
    unknown.node.add(name="a", op="NoSuchOp")
    cycle.node.add(name="a", op="Neg", input=["b"]).attr["T"].type = 1
    cycle.node.add(name="b", op="Neg", input=["a"]).attr["T"].type = 1
    dangling.node.add(name="a", op="Neg", input=["nothing:0"]).attr["T"].type = 1
    shape = tf.GraphDef()
    shape.node.add(name="a", op="MatMul", input=["c", "c"]).attr["T"].type = 1
    constant = shape.node.add(name="c", op="Const")
    constant.attr["dtype"].type = 1
    constant.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(3.0))
    return {"unknown": unknown, "cycle": cycle, "dangling": dangling, "shape": shape}


@pytest.mark.parametrize("damage", [*damaged_graphs(), "bytes"])
def test_a_damaged_graph_is_refused_and_the_server_stays(session, damage):
    x = tf.constant([1.0, 2.0])
    assert session.run(x + 1.0).tolist() == [2, 3]
    graph = damaged_graphs().get(damage)
    client = session._remote
    with pytest.raises(tf.errors.InvalidArgumentError, match="the client's graph"):
        if graph is not None:
            client._extend(graph, anew=False)
        else:
            number, opened = next(client._numbers), client._session
            client._ask(say.ExtendGraph(number, opened, 0, b"\xff" * 100))
    assert session.run(x + 2.0).tolist() == [3, 4]


# -- Steps whose sizes only they know --------------------------------------------------------------


def sharded_training(rows, device=lambda name: tf.device(name)):
    """Return the initializer, the training step and the variables of embeddings on two tasks."""
    first = np.random.RandomState(0).uniform(-1, 1, [40, rows]).astype(np.float32)
    parts = []
    for i, name in enumerate((PS0, PS1)):
        with device(name):
            made = tf.Variable(first[20 * i : 20 * i + 20], use_resource=True, dtype=tf.float32)
            parts.append(made)
    with device(WORKER):
        ids = tf.random.uniform([300], 0, 40, tf.int64, seed=3)
        found = tf.nn.embedding_lookup(parts, ids, partition_strategy="div")
        loss = tf.reduce_sum(tf.square(found - 1.0))
        train = tf.train.GradientDescentOptimizer(0.01).minimize(loss)
    return tf.global_variables_initializer(), train, parts


@pytest.mark.parametrize("rows", [3, 256])  # rows that travel in a frame, and in shared memory
def test_a_step_that_turns_out_brief_runs_in_the_loop_and_computes_the_same(
    session, monkeypatch, rows
):
    lines = []

    class Seen(running.MeasuredStep):
        def start(self):
            lines.append(threading.current_thread())
            return super().start()

    monkeypatch.setattr(pace, "_BRIEF", float("inf"))
    monkeypatch.setattr(running, "MeasuredStep", Seen)
    tf.set_random_seed(1)
    init, train, parts = sharded_training(rows)
    session.run(init)
    for _ in range(12):
        session.run(train)
    found = session.run([part.read_value() for part in parts])
    assert len(lines) >= 9 and len(set(lines)) == 3  # a loop of each task
    with tf.Graph().as_default(), tf.Session() as alone:
        tf.set_random_seed(1)
        init, train, parts = sharded_training(rows, lambda name: tf.device("/cpu:0"))
        alone.run(init)
        for _ in range(12):
            alone.run(train)
        wanted = alone.run([part.read_value() for part in parts])
    for got, want in zip(found, wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
