"""Sessions on the tasks of a cluster do what sessions of one process do."""

import threading

import numpy as np
import pytest

import headrace as tf
from headrace._src.distributed.client import MasterClient
from headrace._src.gradients.function_gradients import Defun
from headrace._src.transport import stream
from tests.through_servers import servers
from tests.unit.session.devices import late

WORKER, PS = "/job:worker/replica:0/task:0", "/job:ps/replica:0/task:0"


@pytest.fixture(scope="module")
def cluster():
    with servers(ps=1, worker=1) as started:
        yield started


@pytest.fixture
def session(cluster):
    config = tf.ConfigProto(isolate_session_state=True)
    with tf.Graph().as_default() as graph:
        made = tf.Session(cluster["worker0"].target, graph=graph, config=config)
        yield made
        made.close()


def on_ps():
    return tf.device("/job:ps")


def on_worker():
    return tf.device("/job:worker")


# -- Values ----------------------------------------------------------------------------------------

VALUES = {
    "scalar": (np.float32(3), tf.float32),
    "empty": (np.zeros([0, 3], np.float32), tf.float32),
    "string": (b"text", tf.string),
    "strings": (np.array([b"a", b"", "\u00e9".encode()], object), tf.string),
    "bool": (np.array([True, False]), tf.bool),
    "complex": (np.array([1 + 2j], np.complex64), tf.complex64),
    "bfloat16": ([1.5, 2.0], tf.bfloat16),
}


@pytest.mark.parametrize("value, dtype", VALUES.values(), ids=VALUES)
def test_values_cross_and_come_back(session, value, dtype):
    x = tf.placeholder(dtype, np.shape(value))
    with on_ps():
        there = tf.identity(x)
    with on_worker():
        back = tf.identity(there)
    got = session.run(back, {x: value})
    np.testing.assert_array_equal(got, np.asarray(value, dtype.as_numpy_dtype))
    assert np.shape(got) == np.shape(value)


def test_a_fetched_array_is_the_callers(session):
    x = tf.placeholder(tf.float32, [2])
    fed, doubled = session.run([x, x * 2], {x: [1, 2]})
    fed += 1
    doubled += 1
    assert doubled.tolist() == [3, 5]


def test_handles_of_resources_are_fetched_and_fed(session):
    with on_ps():
        queue = tf.FIFOQueue(3, tf.float32, shapes=[()])
    session.run(queue.enqueue(2.0))
    handle = session.run(queue.queue_ref)
    assert handle.device.startswith(PS)
    assert session.run(queue.size(), {queue.queue_ref: handle}) == 1


def test_tensors_that_the_session_keeps(session):
    with on_ps():
        kept = session.run(tf.get_session_handle(tf.constant([1.0, 2.0]) * 2))
    assert kept.eval().tolist() == [2, 4]
    x = tf.placeholder(tf.float32, [2])
    assert session.run(x + 1, {x: kept}).tolist() == [3, 5]
    holder, tensor = tf.get_session_tensor(kept.handle, tf.float32)
    assert session.run(tensor, {holder: kept.handle}).tolist() == [2, 4]
    kept.delete()
    with pytest.raises(tf.errors.InvalidArgumentError, match="not in the session store"):
        kept.eval()


ELEMENTS = {
    "numbers": ([np.float32([1, 2]), np.float32([3, 4])], [2], tf.float32),
    "strings": ([np.array([b"a", b""], object)], [2], tf.string),
    "scalars": ([np.float32(1), np.float32(2)], [], tf.bfloat16),
    "none": ([], [2], tf.float32),
}


@pytest.mark.parametrize("elements, shape, dtype", ELEMENTS.values(), ids=ELEMENTS)
def test_lists_of_tensors_cross_and_come_back(session, elements, shape, dtype):
    with on_worker():
        made = tf.raw_ops.EmptyTensorList(
            element_shape=np.int32(shape), max_num_elements=3, element_dtype=dtype
        )
        for each in elements:
            made = tf.raw_ops.TensorListPushBack(input_handle=made, tensor=tf.constant(each, dtype))
        made = tf.identity(made)
    with on_ps():
        length = tf.raw_ops.TensorListLength(input_handle=made)
        there = tf.identity(made)
    fetched, count = session.run([there, length])
    assert count == len(elements)
    assert (fetched.dtype, fetched.limit, fetched.sizes) == (dtype, 3, tuple(shape))
    for got, wanted in zip(fetched.elements(), elements, strict=True):
        np.testing.assert_array_equal(got, np.asarray(wanted, dtype.as_numpy_dtype))
    assert session.run(length, {made: fetched}) == count


def test_lists_in_lists_and_elements_that_are_not_set(session):
    with on_worker():
        inner = tf.raw_ops.TensorListReserve(
            element_shape=[2], num_elements=3, element_dtype=tf.float32
        )
        outer = tf.raw_ops.EmptyTensorList(
            element_shape=np.int32([]), max_num_elements=-1, element_dtype=tf.variant
        )
        outer = tf.raw_ops.TensorListPushBack(input_handle=outer, tensor=inner)
    with on_ps():
        _, popped = tf.raw_ops.TensorListPopBack(
            input_handle=outer, element_shape=np.int32([]), element_dtype=tf.variant
        )
        zeros = tf.raw_ops.TensorListStack(
            input_handle=popped, element_shape=[2], element_dtype=tf.float32
        )
    assert session.run(zeros).tolist() == [[0, 0]] * 3


def test_gradients_of_loops_on_two_tasks_cross(session):
    """A loop's saved values are lists, which its gradient loop needs."""
    x = tf.placeholder(tf.float32, [])
    with on_worker():
        _, y = tf.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, y * y), [0, x])
    with on_ps():
        (slope,) = tf.gradients(y * 2.0, x)
    assert session.run(slope, {x: 1.5}) == pytest.approx(2 * 8 * 1.5**7)


# -- Errors ----------------------------------------------------------------------------------------


def test_an_error_has_the_operation_and_its_line(session):
    x = tf.placeholder(tf.float32, [2])
    with on_ps():
        wrong = tf.reshape(x, tf.cast(x, tf.int32), name="wrong")
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        session.run(wrong, {x: [3, 4]})
    assert caught.value.op is wrong.op
    assert "test_remote_sessions.py" in str(caught.value)
    assert "feeds: Placeholder:0 float32[2]" in str(caught.value)


def test_a_variable_without_a_value(session):
    v = tf.Variable(1.0)
    with pytest.raises(tf.errors.FailedPreconditionError, match="global_variables_initializer"):
        session.run(v)


def test_a_deadline_names_what_is_waited_for(session):
    with on_ps():
        queue = tf.FIFOQueue(3, tf.float32, shapes=[()])
    element = queue.dequeue(name="take")
    error = late(lambda t: session.run(element, options=tf.RunOptions(timeout_in_ms=t)))
    assert "'take' waited for an element" in str(error) and error.op is element.op
    session.run(queue.enqueue(1.0))
    assert session.run(element) == 1


def test_an_operation_without_a_device(session):
    with tf.device("/job:ps/task:7"):
        x = tf.constant(1.0, name="nowhere")
    with pytest.raises(tf.errors.InvalidArgumentError, match="for operation nowhere"):
        session.run(x)


def test_the_cause_of_an_error_travels(session):
    def fails(x):
        raise FileNotFoundError(2, "not here")

    with on_ps():
        y = tf.py_func(fails, [tf.constant(1.0)], tf.float32)
    with pytest.raises(tf.errors.UnknownError) as caught:
        session.run(y)
    cause = caught.value.__cause__
    assert type(cause) is FileNotFoundError and cause.args == (2, "not here")


def test_accesses_that_nothing_orders_are_reported_with_their_lines(session, caplog):
    with on_ps():
        v = tf.Variable(1.0, name="counted")
        w = tf.Variable(1.0)
    step = tf.group(w.assign(v.read_value() * 2.0), v.assign_add(1.0))
    session.run([v.initializer, w.initializer])
    for _ in range(3):
        session.run(step)
    (record,) = [r for r in caplog.records if "nothing orders" in r.message]
    assert "'counted'" in record.message and "unless one of them has to wait" in record.message
    assert "test_remote_sessions.py" in record.message


# -- State -----------------------------------------------------------------------------------------


def test_sessions_share_variables_unless_they_are_isolated(cluster):
    target = cluster["worker0"].target
    with tf.Graph().as_default():
        v = tf.Variable(1.0, name="shared_by_sessions")
        with tf.Session(target) as first, tf.Session(target) as second:
            first.run(v.initializer)
            first.run(v.assign_add(1.0))
            assert second.run(v) == 2
        isolated = tf.ConfigProto(isolate_session_state=True)
        with tf.Session(target, config=isolated) as alone:
            assert not alone.run(tf.is_variable_initialized(v))
        tf.Session.reset(target)
        with tf.Session(target) as third:
            assert not third.run(tf.is_variable_initialized(v))


def test_containers_are_reset_by_name(cluster):
    target = cluster["worker0"].target
    with tf.Graph().as_default():
        with tf.container("one"), on_ps():
            a = tf.Variable(1.0, name="in_one")
        with tf.container("two"):
            b = tf.Variable(1.0, name="in_two")
        with tf.Session(target) as session:
            session.run([a.initializer, b.initializer])
            tf.Session.reset(target, ["one"])
            is_initialized = [tf.is_variable_initialized(v) for v in (a, b)]
            assert session.run(is_initialized) == [False, True]
    tf.Session.reset(target)


def test_a_variable_that_got_another_shape(session):
    v = tf.Variable([1.0, 2.0], use_resource=True)
    x = tf.placeholder(tf.float32, None)
    total = tf.reduce_sum(v.read_value() * 1.0)
    grow = tf.raw_ops.AssignVariableOp(resource=v.handle, value=x)
    session.run(v.initializer)
    assert session.run(total) == 3
    session.run(grow, {x: [1.0, 2.0, 3.0]})
    assert session.run(total) == 6


def test_tables_and_savers_on_a_task(session, tmp_path):
    with on_ps():
        v = tf.Variable([1.0, 2.0], name="v")
        table = tf.contrib.lookup.HashTable(
            tf.contrib.lookup.KeyValueTensorInitializer(["a", "b"], [1, 2], tf.string, tf.int32), 0
        )
    found = table.lookup(tf.constant(["b", "c"]))
    saver = tf.train.Saver()
    session.run([v.initializer, tf.tables_initializer()])
    assert session.run(found).tolist() == [2, 0]
    path = saver.save(session, str(tmp_path / "model"))
    session.run(v.assign([0.0, 0.0]))
    saver.restore(session, path)
    assert session.run(v).tolist() == [1, 2]


# -- Control flow and functions --------------------------------------------------------------------


def test_loops_and_branches_span_tasks(session):
    x = tf.placeholder(tf.float32, [])

    def body(i, a):
        with on_ps():
            b = a * 2
        with on_worker():
            return i + 1, b + 1

    _, result = tf.while_loop(lambda i, _: i < 3, body, [0, x])
    with on_ps():
        chosen = tf.cond(x > 0, lambda: result + 1, lambda: -result)
    assert session.run(chosen, {x: 1.0}) == 16
    assert session.run(chosen, {x: -2.0}) == 9
    (gradient,) = tf.gradients(result, [x])
    assert session.run(gradient, {x: 1.0}) == 8


def test_python_functions_run_in_their_process(session):
    x = tf.placeholder(tf.float32, [])
    with on_ps():
        y = tf.py_func(lambda v: v + np.float32(1), [x], tf.float32)
    assert session.run(y, {x: 2.0}) == 3


def test_a_function_is_sent_once(session, monkeypatch):
    sent = []
    extend = MasterClient._extend

    def noted(self, change, anew):
        sent.append([each.signature.name for each in change.library.function])
        extend(self, change, anew)

    monkeypatch.setattr(MasterClient, "_extend", noted)

    @Defun(tf.float32, func_name="twice")
    def twice(x):
        return x * 2.0

    @Defun(tf.float32, func_name="more")
    def more(x):
        return twice(x) + 1.0

    first = twice(tf.constant(1.0))
    assert session.run(first) == 2
    second = more(first)
    assert session.run(second) == 5
    assert session.run(twice(second)) == 10
    assert sent == [["twice"], ["more"], []]


# -- Runs ------------------------------------------------------------------------------------------


def test_partial_runs(session):
    a, b = tf.placeholder(tf.float32, []), tf.placeholder(tf.float32, [])
    v = tf.Variable(0.0)
    with on_ps():
        first = a + 1
        count = v.assign_add(1.0)
    second = first * b
    session.run(v.initializer)
    handle = session.partial_run_setup([first, second, count, count.op], [a, b])
    assert session.partial_run(handle, [first, count], {a: 2.0}) == [3, 1]
    with pytest.raises(tf.errors.InvalidArgumentError, match="can't be computed"):
        session.partial_run(handle, second)
    assert session.partial_run(handle, [second, count.op], {b: 5.0}) == [15, None]
    with pytest.raises(tf.errors.InvalidArgumentError, match="setup"):
        session.partial_run(handle, second)
    assert session.run(v) == 1


def test_a_partial_run_that_fails_is_over(session):
    x = tf.placeholder(tf.float32, [2])
    wrong = tf.reshape(x, tf.cast(x, tf.int32), name="wrong")
    handle = session.partial_run_setup([wrong], [x])
    with pytest.raises(tf.errors.InvalidArgumentError, match="Input to reshape"):
        session.partial_run(handle, wrong, {x: [3, 4]})
    with pytest.raises(tf.errors.InvalidArgumentError, match="setup"):
        session.partial_run(handle, wrong)


def test_callables_and_graphs_that_grow(session):
    x = tf.placeholder(tf.float32, [None])
    call = session.make_callable(x + 1, [x])
    assert call([1, 2]).tolist() == [2, 3]
    y = x * 2
    assert session.run(y, {x: [1, 2, 3]}).tolist() == [2, 4, 6]
    x.op._set_attr("_note", tf.AttrValue(s=b"changed"))
    assert session.run(y, {x: [4]}).tolist() == [8]
    assert call([5]).tolist() == [6]


def test_a_trace_has_the_devices_of_all_tasks(session):
    x = tf.placeholder(tf.float32, [3])
    with on_ps():
        a = tf.tanh(x, name="on_ps")
    with on_worker():
        b = tf.exp(a, name="on_worker")
    options = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE, output_partition_graphs=True)
    metadata = tf.RunMetadata()
    session.run(b, {x: [1, 2, 3]}, options, metadata)
    seen = {d.device: {n.node_name for n in d.node_stats} for d in metadata.step_stats.dev_stats}
    assert "on_ps" in seen[f"{PS}/device:CPU:0"]
    assert "on_worker" in seen[f"{WORKER}/device:CPU:0"]
    nodes = {n.name: n.device for g in metadata.partition_graphs for n in g.node}
    assert nodes["on_ps"] == f"{PS}/device:CPU:0"
    assert nodes["on_ps/to_CPU_0/send"] == nodes["on_ps"]
    assert nodes["on_ps/to_CPU_0/recv"] == nodes["on_worker"]


def test_the_client_prints_placements(cluster, capfd):
    config = tf.ConfigProto(log_device_placement=True)
    with tf.Graph().as_default():
        with on_ps():
            x = tf.constant(1.0, name="placed")
        with tf.Session(cluster["worker0"].target, config=config) as session:
            session.run(x)
    assert f"placed: (Const): {PS}/device:CPU:0" in capfd.readouterr().err


def test_closing_cancels_a_step_of_another_thread(cluster):
    failed = []
    with tf.Graph().as_default():
        with on_ps():
            queue = tf.FIFOQueue(3, tf.float32, shapes=[()])
        element, size = queue.dequeue(), queue.size()
        session = tf.Session(cluster["worker0"].target)
        session.run(size)

        def run():
            try:
                session.run(element)
            except (tf.errors.CancelledError, RuntimeError) as error:
                failed.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        session.close()
        thread.join(10)
    assert len(failed) == 1


def test_what_only_one_process_can_do_is_refused(cluster, session, tmp_path):
    tf.Variable(1.0)
    session.run(tf.global_variables_initializer())
    saver = tf.train.Saver(exact_resume=True)
    with pytest.raises(tf.errors.FailedPreconditionError, match="exact_resume"):
        saver.save(session, str(tmp_path / "model"))
    config = tf.ConfigProto(graph_options=tf.GraphOptions(build_cost_model=1))
    with pytest.raises(tf.errors.UnimplementedError, match="build_cost_model"):
        tf.Session(cluster["worker0"].target, config=config)


# -- Bytes -----------------------------------------------------------------------------------------


@pytest.fixture
def sent(monkeypatch):
    """The bytes of the frames that the links of this process send, with what is in slabs."""
    sizes = []
    encode = stream.encode

    def counted(frame, *args):
        made = encode(frame, *args)
        tensors = sum(getattr(tensor, "nbytes", 0) for tensor in frame.tensors)
        sizes.append(max(sum(map(len, made)), tensors))
        return made

    monkeypatch.setattr(stream, "encode", counted)
    return sizes


def test_a_step_of_a_large_graph_sends_little(session, sent):
    x = tf.placeholder(tf.float32, [4])
    there, here = x, x
    for _ in range(1250):
        with on_ps():
            there = tf.tanh(there + 1.0)
        with on_worker():
            here = tf.tanh(here + 1.0)
    result = there + here
    assert len(session.graph.get_operations()) > 5000
    for _ in range(4):
        session.run(result, {x: [1, 2, 3, 4]})
    sent.clear()
    for _ in range(10):
        session.run(result, {x: [1, 2, 3, 4]})
    assert sum(sent) / 10 < 2 * 1024


def test_constants_travel_once(session, sent):
    with on_ps():
        large = tf.constant(np.arange(100_000, dtype=np.float32))
    x = tf.placeholder(tf.float32, [])
    total = tf.reduce_sum(large[:3]) + x
    assert session.run(total, {x: 1.0}) == 4
    assert max(sent) > 400_000
    sent.clear()
    assert session.run(total, {x: 2.0}) == 5
    assert session.run(total * 2, {x: 2.0}) == 10
    assert session.run(total, {x: 1.0}) == 4
    assert sum(size > 400_000 for size in sent) <= 1  # the registration of the new step
