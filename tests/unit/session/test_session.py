"""Sessions: fetches, feeds, partial execution, errors, threads, partial runs."""

import collections
import threading
import warnings

import numpy as np
import pytest

import headrace as tf
from headrace._src.session.graph_growth_warning import GraphGrowthWarning
from tests.unit.session.devices import until_cancelled


@pytest.fixture
def graph():
    with tf.Graph().as_default() as g:
        yield g


@pytest.fixture
def session(graph):
    with tf.Session(graph=graph) as s:
        yield s


def test_any_nesting_of_fetches(session):
    a, b = tf.constant(1.0, name="a"), tf.constant([2.0, 3.0])
    Point = collections.namedtuple("Point", ["x", "y"])
    ordered = collections.OrderedDict([("q", a), ("p", [b])])
    got = session.run({"t": (a, [b, "a:0"]), "n": Point(a, b), "o": ordered, "op": b.op})
    assert got["t"][0] == 1
    assert isinstance(got["t"], tuple)
    assert got["t"][1][1] == 1
    assert isinstance(got["n"], Point)
    assert list(got["o"]) == ["q", "p"]
    np.testing.assert_array_equal(got["o"]["p"][0], [2, 3])
    assert got["op"] is None
    assert session.run([]) == []


@pytest.mark.parametrize("bad", [None, 3, object(), [None]])
def test_what_can_not_be_fetched(session, bad):
    tf.constant(1)
    with pytest.raises(TypeError, match="Fetch argument"):
        session.run(bad)


def test_names_that_do_not_exist(session):
    tf.constant(1)
    with pytest.raises(ValueError, match="cannot be interpreted as a Tensor"):
        session.run("nothing:0")
    with pytest.raises(TypeError, match="Cannot interpret feed_dict key"):
        session.run(tf.constant(1), {"nothing:0": 1})


def test_any_tensor_can_be_fed_and_cuts_the_graph(session):
    x = tf.placeholder("float32", [2])
    y = tf.multiply(x, 3.0)
    z = tf.multiply(y, 2.0)
    np.testing.assert_array_equal(session.run(z, {y: [1, 2]}), [2, 4])
    np.testing.assert_array_equal(session.run(y, {y: [5, 6]}), [5, 6])


def test_unfed_placeholders_name_themselves_and_their_line(session):
    x = tf.placeholder("float32", [None, 3], name="images")
    with pytest.raises(tf.errors.InvalidArgumentError, match="placeholder tensor 'images'") as e:
        session.run(tf.multiply(x, 2.0))
    assert "test_session.py" in str(e.value)
    assert e.value.op is x.op
    assert e.value.error_code == 3


def test_feeds_are_checked(session):
    x = tf.placeholder("float32", [None, 3], name="x")
    y = tf.identity(x)
    with pytest.raises(
        ValueError, match=r"shape \(2, 4\) for Tensor 'x:0', which has shape '\(\?, 3\)'"
    ):
        session.run(y, {x: np.zeros((2, 4))})
    with pytest.raises(ValueError, match="x:0"):
        session.run(y, {x: "text"})
    with pytest.raises(TypeError, match=r"cannot be a tf.Tensor"):
        session.run(y, {x: tf.constant(1.0)})
    with pytest.raises(
        TypeError, match=r"not compatible with Tensor type|out of bounds|Cannot feed"
    ):
        i = tf.placeholder("int8", [])
        session.run(tf.identity(i), {i: 1000})


def test_feeding_does_not_copy_and_fetching_gives_private_memory(session):
    x = tf.placeholder("float32", [3])
    seen = []
    y = tf.py_func(lambda v: seen.append(v) or v, [x], tf.float32)
    value = np.ones(3, np.float32)
    got = session.run([x, x, y], {x: value})
    for array in got:
        assert not np.shares_memory(array, value)
    assert not np.shares_memory(got[0], got[1]) or got[0] is got[1]
    c = tf.constant([1.0, 2.0])
    first = session.run(c)
    first[:] = 7
    np.testing.assert_array_equal(session.run(c), [1, 2])


def test_partial_execution(session):
    ran = []
    a = tf.py_func(lambda: ran.append("a") or np.float32(1), [], tf.float32)
    tf.py_func(lambda: ran.append("b") or np.float32(1), [], tf.float32)
    session.run(tf.identity(a))
    assert ran == ["a"]


def test_control_dependencies_order_the_step(session, graph):
    ran = []
    first = tf.py_func(lambda: ran.append(1), [], [])
    with graph.control_dependencies([first]):
        second = tf.py_func(lambda: ran.append(2), [], [])
    session.run(second)
    assert ran == [1, 2]


def test_buffers_are_freed_after_their_last_reader(session):
    import weakref

    alive = []

    class Probe(np.ndarray):
        pass

    def make():
        array = np.zeros(4, np.float32).view(Probe)
        alive.append(weakref.ref(array))
        return array

    source = tf.py_func(make, [], tf.float32)
    used = tf.multiply(source, 2.0)
    check = tf.py_func(lambda v: np.float32(alive[0]() is not None), [used], tf.float32)
    assert session.run(check) == 0


def test_make_callable(session):
    x = tf.placeholder("float32", [])
    run = session.make_callable(tf.multiply(x, 2.0), [x])
    assert run(3) == 6
    with pytest.raises(TypeError, match="takes 1 values"):
        run()
    with pytest.raises(ValueError, match="Cannot feed"):
        run([1, 2])


def test_partial_run(session):
    a, b = tf.placeholder("float32", []), tf.placeholder("float32", [])
    first = tf.multiply(a, 2.0)
    second = tf.multiply(first, b)
    handle = session.partial_run_setup([first, second], [a, b])
    assert session.partial_run(handle, first, {a: 3}) == 6
    with pytest.raises(tf.errors.InvalidArgumentError, match="already been fetched"):
        session.partial_run(handle, first)
    with pytest.raises(tf.errors.InvalidArgumentError, match="already been fed"):
        session.partial_run(handle, second, {a: 3})
    with pytest.raises(tf.errors.InvalidArgumentError, match="not specified"):
        session.partial_run(handle, second, {first: 3})
    assert session.partial_run(handle, second, {b: 10}) == 60
    with pytest.raises(tf.errors.InvalidArgumentError, match="Must run 'setup'"):
        session.partial_run(handle, second)
    handle = session.partial_run_setup([first, second], [a, b])
    with pytest.raises(tf.errors.InvalidArgumentError, match="it needs Placeholder_1:0"):
        session.partial_run(handle, second, {a: 1})
    with pytest.raises(tf.errors.InvalidArgumentError, match="Must run 'setup'"):
        session.partial_run("no such handle", first)


def test_partial_run_runs_effects_once(session):
    ran = []
    a = tf.placeholder("float32", [])
    x = tf.py_func(lambda: ran.append(1) or np.float32(5), [], tf.float32)
    y = tf.multiply(x, a)
    handle = session.partial_run_setup([x, y], [a])
    assert session.partial_run(handle, x) == 5
    assert session.partial_run(handle, y, {a: 2}) == 10
    assert ran == [1]


def test_errors_of_kernels_are_tensorflows_with_the_users_line(session):
    x = tf.placeholder("float32", name="x")
    y = tf.multiply(x, tf.constant([1.0, 2.0, 3.0]), name="product")
    with pytest.raises(tf.errors.InvalidArgumentError, match="Mul 'product'") as e:
        session.run(y, {x: [1, 2]})
    assert "made at" in str(e.value)
    assert "test_session.py" in str(e.value)
    assert e.value.node_def.name == "product"
    np.testing.assert_array_equal(session.run(y, {x: [2]}), [2, 4, 6])


def test_python_exceptions_are_the_cause(session):
    def fail():
        raise ZeroDivisionError("no way")

    with pytest.raises(tf.errors.UnknownError, match="no way") as e:
        session.run(tf.py_func(fail, [], tf.float32))
    assert isinstance(e.value.__cause__, ZeroDivisionError)


def test_many_threads_run_at_once(session):
    x = tf.placeholder("float32", [4])
    y = tf.multiply(tf.multiply(x, x), 2.0)
    wrong = []

    def work(k):
        value = np.full(4, k, np.float32)
        for _ in range(100):
            if not np.array_equal(session.run(y, {x: value}), 2 * value * value):
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(12)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_closed_and_empty_sessions(graph):
    session = tf.Session()
    with pytest.raises(RuntimeError, match="graph is empty"):
        session.run("x:0")
    x = tf.constant(1)
    session.run(x)
    session.close()
    with pytest.raises(RuntimeError, match="closed Session"):
        session.run(x)


def test_eval_and_run_use_the_default_session(graph):
    x = tf.constant(2.0)
    with pytest.raises(ValueError, match="No default session"):
        x.eval()
    with tf.Session():
        assert x.eval() == 2
        assert x.op.run() is None
    other = tf.Session(graph=tf.Graph())
    with pytest.raises(ValueError, match="different from the session's"):
        x.eval(session=other)


def test_interactive_session_is_the_default_until_it_closes(graph):
    session = tf.InteractiveSession()
    assert tf.constant(3.0).eval() == 3
    session.close()
    with pytest.raises(ValueError, match="No default session"):
        tf.constant(3.0).eval()


def test_device_requests(graph):
    with graph.device("/gpu:0"):
        x = tf.constant(1.0)
    with pytest.raises(tf.errors.InvalidArgumentError, match="Cannot assign a device"):
        tf.Session().run(x)
    assert tf.Session(config=tf.ConfigProto(allow_soft_placement=True)).run(x) == 1


def test_two_processors(graph):
    two = tf.Session(config=tf.ConfigProto(device_count={"CPU": 2}))
    assert len(two.list_devices()) == 2
    with graph.device("/cpu:1"):
        y = tf.constant(2.0)
    assert two.run(y) == 2


def test_every_operation_must_have_a_device(graph):
    """Not only those that are run, unless the session is to place only these."""
    session, x = tf.Session(), tf.constant(2.0)
    assert session.run(x) == 2
    with graph.device("/device:GPU:0"):
        other = tf.constant(1.0, name="other")
    for _ in range(2):
        with pytest.raises(tf.errors.InvalidArgumentError, match="for operation other: node other"):
            session.run(x)
    pruned = tf.GraphOptions(place_pruned_graph=True)
    for config in (tf.ConfigProto(allow_soft_placement=True), tf.ConfigProto(graph_options=pruned)):
        assert tf.Session(config=config).run(x) == 2
    with pytest.raises(tf.errors.InvalidArgumentError, match="Cannot assign a device"):
        tf.Session(config=tf.ConfigProto(graph_options=pruned)).run(other)
    interactive = tf.InteractiveSession()
    assert interactive.run(x) == 2
    interactive.close()
    other.op._set_device("/device:CPU:0")
    assert session.run(x) == 2


def test_log_device_placement(graph, capsys):
    x = tf.constant(1.0, name="placed")
    tf.Session(config=tf.ConfigProto(log_device_placement=True)).run(x)
    assert "placed: (Const): /job:localhost" in capsys.readouterr().err


def test_run_metadata_and_deadline(session):
    fed = tf.placeholder(tf.float32, [2])
    x = tf.multiply(fed, 3.0, name="traced")
    metadata = tf.RunMetadata()
    full = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE, output_partition_graphs=True)
    np.testing.assert_array_equal(session.run(x, {fed: [1, 2]}, full, metadata), [3, 6])
    nodes = {n.node_name: n for n in metadata.step_stats.dev_stats[0].node_stats}
    assert nodes["traced"].output[0].tensor_description.shape.dim[0].size == 2
    assert {n.name for n in metadata.partition_graphs[0].node} >= {"traced"}

    slow = tf.identity(tf.py_func(lambda: until_cancelled() or np.float32(1), [], tf.float32))
    with pytest.raises(tf.errors.DeadlineExceededError):
        session.run(slow, options=tf.RunOptions(timeout_in_ms=10))
    assert session.run(slow) == 1


def test_a_graph_that_grows_in_a_loop_is_reported_once(session):
    x = tf.constant(1.0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(50):
            session.run(tf.multiply(x, 2.0))
    grown = [w for w in caught if issubclass(w.category, GraphGrowthWarning)]
    assert len(grown) == 1
    assert "session.run(tf.multiply(x, 2.0))" in str(grown[0].message)
    assert grown[0].filename == __file__


def test_a_stable_graph_is_not_reported(session):
    ys = [tf.multiply(tf.constant(1.0), 2.0) for _ in range(60)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for y in ys:
            session.run(y)


def test_registered_types_can_be_fetched_and_fed(session):
    from headrace._src.session.fetches import register_session_run_conversion_functions

    class Pair:
        def __init__(self, a, b):
            self.a, self.b = a, b

    register_session_run_conversion_functions(
        Pair,
        lambda p: ([p.a, p.b], lambda values: tuple(values)),
        lambda p, values: list(zip((p.a, p.b), values, strict=True)),
    )
    pair = Pair(tf.placeholder("float32", []), tf.placeholder("float32", []))
    assert session.run(pair, {pair: (1, 2)}) == (1, 2)
    with pytest.raises(ValueError, match="already been registered"):
        register_session_run_conversion_functions(Pair, None)


def test_changed_graphs_get_new_plans(session, graph):
    x = tf.multiply(tf.constant(2.0), 3.0)
    assert session.run(x) == 6
    x.op._update_input(1, tf.constant(5.0))
    assert session.run(x) == 10
