"""ConfigProto, RunOptions and RunMetadata: honoured, or refused."""

import subprocess
import sys

import pytest

import headrace as tf
from headrace._src.core import errors, proto


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as g:
        yield g


def test_what_is_no_configuration():
    with pytest.raises(TypeError, match=r"config must be a tf\.ConfigProto"):
        tf.Session(config={"a": 1})
    with pytest.raises(TypeError, match=r"graph must be a tf\.Graph"):
        tf.Session(graph=3)
    with pytest.raises(TypeError, match="target must be a string"):
        tf.Session(3)
    with pytest.raises(TypeError, match="list of names"):
        tf.Session.reset("", "container")


def test_devices_by_count():
    config = tf.ConfigProto(device_count={"CPU": 3, "GPU": 0})
    with tf.Session(config=config) as session:
        assert [d.name[-5:] for d in session.list_devices()] == ["CPU:0", "CPU:1", "CPU:2"]
        with tf.device("/cpu:2"):
            assert session.run(tf.constant(1)) == 1


def test_hints_change_nothing():
    config = tf.ConfigProto(
        inter_op_parallelism_threads=1,
        use_per_session_threads=True,
        gpu_options=proto.GPUOptions(allow_growth=True),
        graph_options=proto.GraphOptions(place_pruned_graph=True),
    )
    with tf.Session(config=config) as session:
        x = tf.ones([4, 4])
        assert session.run(tf.matmul(x, x)).tolist() == [[4.0] * 4] * 4


def test_the_first_session_that_asks_decides_on_the_threads_of_native_kernels():
    code = """
import headrace as tf
from headrace._src.devices.onednn import library
for count in (1, 3):
    tf.Session(config=tf.ConfigProto(intra_op_parallelism_threads=count))
print(library.library().num_threads if library.available() else 1)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert result.stdout.split() == [b"1"]


def test_what_is_refused():
    with pytest.raises(errors.InvalidArgumentError, match="intra_op_parallelism_threads"):
        tf.Session(config=tf.ConfigProto(intra_op_parallelism_threads=-1))
    cluster = proto.ConfigProto()
    cluster.cluster_def.job.add().name = "worker"
    with pytest.raises(errors.InvalidArgumentError, match="cluster_def is for sessions of a"):
        tf.Session(config=cluster)
    c = tf.constant(1)
    with tf.Session() as session:
        with pytest.raises(TypeError, match=r"options must be a tf\.RunOptions"):
            session.run(c, options=3)
        with pytest.raises(TypeError, match=r"run_metadata must be a tf\.RunMetadata"):
            session.run(c, run_metadata=3)
        watched = tf.RunOptions()
        watched.debug_options.debug_tensor_watch_opts.add().node_name = "c"
        with pytest.raises(errors.UnimplementedError, match="debugger"):
            session.run(c, options=watched)


def test_traces_and_graphs_of_a_run():
    metadata = tf.RunMetadata()
    options = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE, output_partition_graphs=True)
    x = tf.placeholder(tf.float32, [2], name="x")
    y = tf.negative(x, name="y")
    with tf.Session() as session:
        assert session.run(y, {x: [1, 2]}, options, metadata).tolist() == [-1, -2]
        call = session.make_callable(y, [x], accept_options=True)
        assert call([3, 4], options=options, run_metadata=tf.RunMetadata()).tolist() == [-3, -4]
    (stats,) = metadata.step_stats.dev_stats
    assert [n.node_name for n in stats.node_stats] == ["y"]
    assert [n.name for n in metadata.partition_graphs[0].node] == ["y"]


def test_the_sessions_graph_need_not_be_the_default_one(graph):
    a = tf.constant(1.0)
    with tf.Graph().as_default() as other:
        b = tf.constant(2.0)
        with tf.Session(graph=graph) as session:
            assert tf.get_default_graph() is graph
            assert session.run(a) == 1
            assert a.eval() == 1
            with pytest.raises(ValueError, match="different from the session's graph"):
                b.eval()
        assert tf.get_default_graph() is other


def test_interactive_sessions_nest_and_close_in_any_order(graph):
    first = tf.InteractiveSession()
    with pytest.warns(UserWarning, match="An interactive session is already active"):
        second = tf.InteractiveSession()
    assert tf.get_default_session() is second
    first.close()
    assert tf.get_default_session() is second
    assert tf.constant(3).eval() == 3
    second.close()
    second.close()
    assert tf.get_default_session() is None
    tf.InteractiveSession().close()  # the only one again


@pytest.mark.parametrize("target", ["INVALID", b"INVALID", "local"])
def test_unknown_targets(target):
    with pytest.raises(errors.NotFoundError, match="No session factory registered"):
        tf.Session(target)


def test_graph_def_with_shapes(graph):
    tf.constant([[1, 2]])
    for asked in (True, False):
        options = tf.GraphOptions(infer_shapes=asked)
        session = tf.Session(config=tf.ConfigProto(graph_options=options))
        assert ("_output_shapes" in session.graph_def.node[0].attr) == asked


def test_costs_are_measured_in_the_runs_that_were_asked_for(graph):
    x = tf.placeholder(tf.float32, [None], name="x")
    y = tf.multiply(tf.tanh(x, name="t"), 3.0, name="y")
    options = tf.GraphOptions(build_cost_model=2, build_cost_model_after=1)
    session = tf.Session(config=tf.ConfigProto(graph_options=options))
    found = []
    for _ in range(7):
        metadata = tf.RunMetadata()
        session.run(y, {x: [1.0, 2.0]}, run_metadata=metadata)
        found.append(metadata.HasField("cost_graph"))
        if found[-1]:
            last = metadata.cost_graph.node[-1]
            assert last.output_info[0].size == 8
            assert [d.size for d in last.output_info[0].shape.dim] == [2]
    assert found == [False, False, True, False, True, False, True]
    assert session.run(y, {x: [0.0]}) == [0.0]
    metadata = tf.RunMetadata()
    every = tf.ConfigProto(graph_options=tf.GraphOptions(build_cost_model=1))
    tf.Session(config=every).run(tf.constant(1.0) + 2.0, run_metadata=metadata)
    assert metadata.HasField("cost_graph")


def test_run_metadata_are_of_the_last_run(graph):
    c = tf.placeholder_with_default(1, []) + 1
    metadata = tf.RunMetadata()
    with tf.Session() as session:
        traced = tf.RunOptions(output_partition_graphs=True, trace_level=tf.RunOptions.FULL_TRACE)
        session.run(c, options=traced, run_metadata=metadata)
        assert len(metadata.partition_graphs) == 1
        session.run(c, run_metadata=metadata)
        assert metadata == tf.RunMetadata()
        session.run(c, options=traced, run_metadata=metadata)
        session.run(c, options=traced, run_metadata=metadata)
        assert len(metadata.partition_graphs) == 1
        assert len(metadata.step_stats.dev_stats) == 1


def test_devices_say_which_they_are(graph):
    first, again = tf.Session().list_devices()[0], tf.Session().list_devices()[0]
    assert first.name == "/job:localhost/replica:0/task:0/device:CPU:0"
    assert first.memory_limit_bytes > 0
    assert isinstance(first.incarnation, int)
    assert first.incarnation == again.incarnation


def test_named_containers_outlive_sessions_until_they_are_reset(graph):
    with graph.container("kept"):
        v = tf.Variable(1.0, name="v")
    own = tf.Variable(1.0, name="own")
    with tf.Session() as session:
        session.run([v.initializer, own.initializer])
    with tf.Session() as session:
        assert session.run(v) == 1
        with pytest.raises(errors.FailedPreconditionError):
            session.run(own)
        tf.Session.reset("", ["kept"])
        with pytest.raises(errors.FailedPreconditionError):
            tf.Session().run(v)
