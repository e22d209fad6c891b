"""Device functions of replicas. The expected devices are TensorFlow 1.15.5's."""

import pytest

import headrace as tf
from headrace._src.core import proto

CLUSTER = {"ps": ["p0:1", "p1:1"], "worker": ["w0:1", "w1:1"]}


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as g:
        yield g


def variable(name, shape=(2,), **how):
    return tf.get_variable(name, shape, initializer=tf.zeros_initializer(), **how)


def devices(setter, outer="", **how):
    with tf.device(outer), tf.device(setter):
        made = [variable("a", **how), variable("b", **how), tf.constant(1.0, name="c")]
        with tf.device("/job:x/cpu:1"):
            made += [variable("d", **how), tf.add(made[2], 1.0, name="e")]
        with tf.device("/job:ps/cpu:1"):
            made.append(variable("f", **how))
        with tf.device("/task:4"):
            made += [variable("g", **how), tf.no_op("h")]
    return {thing.name.split(":")[0]: thing.device for thing in made}


MERGED = {
    "a": "/job:ps/task:0",
    "b": "/job:ps/task:1",
    "c": "/job:worker",
    "d": "/job:x/device:CPU:1",
    "e": "/job:x/device:CPU:1",
    "f": "/job:ps/task:2/device:CPU:1",
    "g": "/job:ps/task:4",
    "h": "/job:worker/task:4",
}


@pytest.mark.parametrize("use_resource", [False, True])
def test_variables_go_to_parameter_servers_in_turn(graph, use_resource):
    setter = tf.train.replica_device_setter(ps_tasks=3)
    assert devices(setter, use_resource=use_resource) == MERGED
    user = "a/Read/ReadVariableOp" if use_resource else "a/read"
    assert graph.get_operation_by_name(user).device == "/job:ps/task:0"


def test_devices_are_merged_only_on_request():
    setter = tf.train.replica_device_setter(ps_tasks=3, merge_devices=False)
    own = {"f": "/job:ps/device:CPU:1", "g": "/task:4", "h": "/task:4"}
    assert devices(setter) == MERGED | own


def test_outer_scopes_fill_what_is_left_open():
    found = devices(tf.train.replica_device_setter(ps_tasks=2), "/job:o/gpu:3")
    assert found["a"] == "/job:ps/task:0/device:GPU:3"
    assert found["c"] == "/job:worker/device:GPU:3"
    assert found["f"] == "/job:ps/task:0/device:CPU:1"


def test_devices_of_servers_and_workers():
    found = devices(tf.train.replica_device_setter(2, "/job:ps/cpu:0", "/job:worker/task:7/gpu:0"))
    assert found["b"] == "/job:ps/task:1/device:CPU:0"
    assert found["c"] == "/job:worker/task:7/device:GPU:0"
    assert found["e"] == "/job:x/task:7/device:CPU:1"
    assert found["g"] == "/job:ps/task:4/device:CPU:0"


def cluster_def():
    found = proto.ClusterDef()
    for name, addresses in CLUSTER.items():
        job = found.job.add(name=name)
        for i, address in enumerate(addresses):
            job.tasks[i] = address
    return found


class Spec:
    def as_dict(self):
        return CLUSTER


@pytest.mark.parametrize("make", [lambda: CLUSTER, cluster_def, Spec])
def test_a_cluster_tells_the_number_of_servers(make):
    found = devices(tf.train.replica_device_setter(cluster=make()))
    assert [found[name] for name in "abf"] == [
        "/job:ps/task:0",
        "/job:ps/task:1",
        "/job:ps/task:0/device:CPU:1",
    ]


def test_without_servers_there_is_no_function():
    assert tf.train.replica_device_setter() is None
    assert tf.train.replica_device_setter(cluster={"worker": ["a:1"]}) is None
    assert tf.train.replica_device_setter(cluster={"ps": []}) is None


def test_other_ops_and_jobs():
    found = devices(tf.train.replica_device_setter(2, ps_ops=["Const"]))
    assert (found["a"], found["c"]) == ("/job:worker", "/job:ps/task:0")
    assert found["f"] == "/job:ps/device:CPU:1"
    params = {"params": ["a:1", "b:1"]}
    setter = tf.train.replica_device_setter(ps_device="/job:params", cluster=params)
    with tf.Graph().as_default():
        found = devices(setter)
    assert (found["b"], found["f"]) == ("/job:params/task:1", "/job:ps/device:CPU:1")


def test_wrong_arguments():
    with pytest.raises(TypeError, match="`cluster` must be a dictionary"):
        tf.train.replica_device_setter(cluster=3)
    with pytest.raises(TypeError, match="ps_strategy must be callable"):
        tf.train.replica_device_setter(2, ps_strategy=3)


def test_the_greedy_strategy_balances_bytes():
    training = tf.contrib.training
    greedy = training.GreedyLoadBalancingStrategy(3, training.byte_size_load_fn)
    sizes = [10, 1, 2, 9, 1, 1, 1, 30, 3]
    chosen = [greedy(variable(f"v{i}", [n]).op) for i, n in enumerate(sizes)]
    assert chosen == [0, 1, 2, 1, 2, 2, 2, 2, 0]
    assert training.byte_size_load_fn(variable("v", [3, 5], dtype=tf.float64).op) == 120
    assert training.byte_size_load_fn(variable("r", [3, 5], use_resource=True).op) == 1
    with pytest.raises(ValueError, match="not fully defined"):
        training.byte_size_load_fn(tf.placeholder(tf.float32).op)
    with pytest.raises(ValueError, match="a single output"):
        training.byte_size_load_fn(tf.no_op())


def test_the_random_strategy_hashes_names():
    a, b = tf.no_op("a"), tf.no_op("b/c")
    seeded = tf.contrib.training.RandomStrategy(1000003, seed=42)
    assert (seeded(a), seeded(b)) == (489173, 442751)
    assert tf.contrib.training.RandomStrategy(1000003)(a) == 855541


def test_variables_choose_their_devices():
    framework = tf.contrib.framework
    op = tf.no_op()
    chooser = framework.VariableDeviceChooser(2, replica=1)
    assert [chooser(op) for _ in range(3)] == [
        f"/job:ps/replica:1/task:{i}/device:CPU:0" for i in (0, 1, 0)
    ]
    assert framework.VariableDeviceChooser(device_index=1)(op) == "/device:CPU:1"
    assert framework.VariableDeviceChooser(device_type=None)(op) == ""
    spread = framework.VariableDeviceChooser(num_tasks=2)
    made = [framework.model_variable(f"m{i}", shape=[2], device=spread) for i in range(3)]
    assert [v.device for v in made] == [f"/job:ps/task:{i}/device:CPU:0" for i in (0, 1, 0)]
