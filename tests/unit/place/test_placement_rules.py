"""Which device an operation gets. Every expectation was read from TensorFlow 1.15.5's
log_device_placement, in a session with four CPUs.
"""

import pytest

import headrace as tf
from headrace._src.core.errors import InvalidArgumentError
from headrace._src.devices.device import local_devices
from headrace._src.place.constraints import Placement

CPUS = local_devices({"CPU": 4})
R = tf.raw_ops


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as g:
        yield g


def on(number):
    return tf.device(f"/cpu:{number}")


def places(soft=False):
    """Return the number of the CPU of each operation of the default graph."""
    graph = tf.get_default_graph()
    placement = Placement(graph, CPUS, soft)
    placement.extend()
    return {op.name: int(placement.device(op.name)[-1]) for op in graph.get_operations()}


def value(name="x", place=1):
    with on(place):
        return tf.negative(tf.placeholder(tf.float32, name=f"{name}0"), name=name)


# -- Constants and placeholders follow their users -------------------------------------------------


def test_a_constant_follows_its_only_users():
    c, p = tf.constant(1.0, name="c"), tf.placeholder(tf.float32, name="p")
    with tf.device("/job:localhost"):
        partly = tf.constant(1.0, name="partly")
    with on(0):
        fixed = tf.constant(1.0, name="fixed")
    with on(1):
        for t in (c, c, p, partly, fixed):
            tf.negative(t)
    found = places()
    assert (found["c"], found["p"], found["partly"], found["fixed"]) == (1, 1, 1, 0)


def test_users_on_several_devices_are_not_followed():
    c = tf.constant(1.0, name="c")
    with on(1):
        tf.identity(c)
    tf.identity(c)
    d = tf.constant(1.0, name="d")
    with on(1):
        tf.identity(d)
    with tf.control_dependencies([d]):
        tf.no_op()
    found = places()
    assert (found["c"], found["d"]) == (0, 0)


def test_control_edges_count_as_uses():
    c, d = tf.constant(1.0, name="c"), tf.constant(1.0, name="d")
    with on(1), tf.control_dependencies([c]):
        tf.no_op()
    with on(1), tf.control_dependencies([d]):
        tf.constant(2.0)  # another constant, whose device is decided later
    found = places()
    assert (found["c"], found["d"]) == (1, 0)


def test_the_first_of_colocated_constants_decides():
    a = tf.constant(1.0, name="a")
    with tf.colocate_with(a):
        b = tf.constant(2.0, name="b")
    with on(1):
        tf.negative(b)
    assert (places()["a"], places()["b"]) == (0, 0)
    with on(1):
        tf.negative(a)
    assert (places()["a"], places()["b"]) == (1, 1)


# -- Shapes follow their tensors -------------------------------------------------------------------


def test_shape_rank_and_size_follow_their_input():
    x = value()
    s = tf.shape(x, name="s")
    tf.rank(x, name="r")
    tf.size(x, name="z")
    R.Shape(input=s, name="ss")
    tf.shape_n([x, x], name="sn")
    tf.identity(x, name="i")
    tf.zeros_like(x, name="zl")
    n = tf.no_op("n")
    with tf.control_dependencies([n]):
        tf.shape(x, name="later")
    found = places()
    assert [found[name] for name in ("s", "r", "z", "ss", "later")] == [1] * 5
    assert [found[name] for name in ("sn", "i", "zl", "n")] == [0] * 4


def test_the_shape_of_a_placeholder_does_not_follow():
    with on(1):
        p = tf.placeholder(tf.float32, name="p")
    tf.shape(p, name="s")
    assert places()["s"] == 0


def test_a_group_follows_if_its_first_operation_does():
    a = tf.constant(1.0, name="a")
    x = value()
    with tf.colocate_with(a):
        tf.shape(x, name="s")
        tf.no_op("n")
    found = places()
    assert (found["a"], found["s"], found["n"]) == (1, 1, 1)


# -- Handles ---------------------------------------------------------------------------------------


def test_operations_on_a_resource_variable_are_with_it():
    with on(1):
        v = tf.get_variable("v", [2], use_resource=True, initializer=tf.zeros_initializer())
    v.assign_add([1.0, 2.0], name="up")
    tf.negative(v.read_value(), name="neg")
    passed = tf.identity(v.handle, name="passed")
    R.ReadVariableOp(resource=passed, dtype=tf.float32, name="again")
    found = places()
    assert [found[n] for n in ("v", "up", "passed", "again", "v/Assign")] == [1] * 5
    assert found["v/Initializer/zeros"] == 1
    assert found["neg"] == 0


def test_handles_pass_through_branches_and_loops():
    with on(1):
        v = tf.get_variable("v", [2], use_resource=True, initializer=tf.zeros_initializer())
    p = tf.placeholder(tf.bool, name="p")
    tf.cond(p, lambda: v.read_value() * 2.0, lambda: v.read_value() + 1.0)
    tf.while_loop(lambda i: i < 3, lambda i: i + tf.cast(v.read_value()[0], tf.int32), [0])
    found = places()
    assert found["cond/Read/ReadVariableOp/Switch"] == found["cond/Read/ReadVariableOp"] == 1
    assert found["while/Read/ReadVariableOp/Enter"] == found["while/Read/ReadVariableOp"] == 1
    assert found["cond/mul"] == found["while/Switch"] == found["while/Cast"] == 0


def test_queues_and_tables():
    with on(1):
        q = tf.FIFOQueue(3, tf.float32, shapes=[[]], name="q")
        table = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer([1, 2], [3, 4]), -1, name="t"
        )
    q.enqueue(1.0, name="e")
    q.dequeue(name="d")
    table.lookup(tf.constant([1], name="k"), name="look")
    found = places()
    names = ["q", "e", "e/component_0", "d", "t", "k", "look/LookupTableFindV2"]
    assert [found[n] for n in names] == [1] * len(names)


def test_a_maker_follows_its_users():
    q = tf.FIFOQueue(3, tf.float32, shapes=[[]], name="q")
    with on(1):
        q.enqueue(1.0, name="e")
    q.dequeue(name="d")
    array = tf.TensorArray(tf.float32, 3, name="array")
    array.write(0, value()).read(0, name="r")
    found = places()
    assert [found[n] for n in ("q", "e", "d", "array", "array/size")] == [1] * 5
    assert [found[n] for n in ("TensorArrayWrite/TensorArrayWriteV3", "r")] == [1, 1]


def test_tensor_lists_stay_in_one_place():
    # TensorFlow would leave `push` and `len` on CPU:0: here lists belong to a step, as arrays do.
    with on(1):
        x = tf.constant([], tf.int32)
        new = R.EmptyTensorList(element_shape=x, max_num_elements=3, element_dtype=tf.float32)
    pushed = R.TensorListPushBack(input_handle=new, tensor=1.0, name="push")
    R.TensorListLength(input_handle=pushed, name="len")
    found = places()
    assert (found["push"], found["len"]) == (1, 1)


def test_slots_are_with_their_variables():
    with on(1):
        v = tf.get_variable("v", [2], use_resource=False, initializer=tf.zeros_initializer())
        w = tf.get_variable("w", [2], use_resource=True, initializer=tf.zeros_initializer())
    tf.train.AdamOptimizer(0.1).minimize(tf.reduce_sum(v * w))
    found = places()
    names = ["v/Adam", "v/Adam_1/Assign", "w/Adam", "w/Adam_1/Assign", "beta1_power"]
    names += ["Adam/update_v/ApplyAdam", "Adam/update_w/ResourceApplyAdam", "Adam/mul"]
    assert [found[n] for n in names] == [1] * len(names)
    assert found["mul"] == found["gradients/mul_grad/Mul"] == 0


def test_gradients_are_with_their_operations_on_request():
    with on(1):
        x = tf.placeholder(tf.float32, [2, 2], name="x")
        y = tf.matmul(x, x, name="y")
    z = tf.reduce_sum(y * y, name="z")
    tf.gradients(z, x, colocate_gradients_with_ops=True, name="with")
    tf.gradients(z, x, name="apart")
    found = places()
    assert found["with/y_grad/MatMul"] == found["with/y_grad/MatMul_1"] == 1
    assert found["with/mul_grad/Mul"] == 0
    assert found["apart/y_grad/MatMul"] == 0


def test_gradients_are_summed_on_each_device_first(graph):
    v = tf.get_variable("v", [2], initializer=tf.zeros_initializer())
    losses = []
    for i in range(5):
        with on(i % 2):
            losses.append(tf.reduce_sum(tf.exp(v * float(i + 1))))
    tf.gradients(tf.add_n(losses), v, colocate_gradients_with_ops=True, name="g")
    sums = [op for op in graph.get_operations() if op.name.startswith("g/AddN")]
    found = [([t.op.name for t in op.inputs], op.device, op.colocation_groups()) for op in sums]
    products = [f"g/mul{(i and f'_{i}') or ''}_grad/Mul" for i in range(5)]
    assert found == [
        (products[::2], "/device:CPU:0", [b"loc:@mul"]),
        (products[1::2], "/device:CPU:1", [b"loc:@mul_1"]),
        (["g/AddN", "g/AddN_1"], "", [b"loc:@v"]),
    ]
    apart = tf.gradients(losses[0] + losses[1], v, name="apart")[0].op
    assert (apart.type, apart.device) == ("AddN", "")


def test_colocation_scopes():
    with on(1):
        a = tf.no_op("a")
    with on(2), tf.colocate_with(a):
        b = tf.no_op("b")
    d = tf.no_op("d")
    with tf.colocate_with(d), tf.colocate_with(a, ignore_existing=True):
        tf.no_op("e")
    with tf.colocate_with(b), on(1):
        tf.no_op("f")
    assert places() == {"a": 1, "b": 1, "d": 0, "e": 1, "f": 1}


# -- Requests that contradict each other -----------------------------------------------------------


@pytest.mark.parametrize("soft", [False, True])
def test_who_takes_a_handle_yields_to_its_maker(soft):
    with on(1):
        v = tf.Variable(1.0, name="v", use_resource=True)
        q = tf.FIFOQueue(3, tf.float32, shapes=[[]], name="q")
    free = tf.FIFOQueue(3, tf.float32, shapes=[[]], name="free")
    with on(2):
        R.AssignVariableOp(resource=v.handle, value=tf.constant(2.0, name="c"), name="as")
        q.enqueue(1.0, name="e")
        free.enqueue(1.0, name="first")
    with on(3):
        free.enqueue(1.0, name="second")
    found = places(soft)
    assert [found[n] for n in ("v", "as", "c", "q", "e")] == [1, 1, 2, 1, 1]
    assert [found[n] for n in ("free", "first", "second", "second/component_0")] == [2, 2, 2, 3]


@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("use_resource", [False, True])
def test_two_makers_must_agree(soft, use_resource):
    with on(1):
        v = tf.Variable(1.0, name="v", use_resource=use_resource)
    with on(2):
        w = tf.Variable(1.0, name="w", use_resource=use_resource)
    apply = R.ResourceApplyMomentum if use_resource else R.ApplyMomentum
    var, accum = (x.handle if use_resource else x._ref() for x in (v, w))
    apply(var=var, accum=accum, lr=1.0, grad=1.0, momentum=1.0, name="m")
    with pytest.raises(InvalidArgumentError) as error:
        places(soft)
    message = str(error.value)
    assert "Cannot colocate nodes w and v: Cannot place the graph because a reference" in message
    assert "incompatible resource devices: /device:CPU:2 vs /device:CPU:1" in message
    assert "'m' takes a reference or a handle from 'w'" in message
    assert '"/cpu:1"' not in message and "'v' was made at" in message


def colocated(*requests):
    first = None
    for name, request in zip("abc", requests, strict=False):
        with tf.colocate_with(first, ignore_existing=first is None):
            op = tf.no_op(name)
        op._set_device(request)
        first = first or op


@pytest.mark.parametrize(
    ("requests", "what"),
    [
        (("/cpu:1", "/cpu:2"), "ids: '/device:CPU:2' and '/device:CPU:1'"),
        (("/cpu:1", "/gpu:0"), "types: '/device:GPU:0' and '/device:CPU:1'"),
        (("/job:localhost", "/job:ps"), "jobs: '/job:ps' and '/job:localhost'"),
    ],
)
def test_colocated_operations_must_agree(requests, what):
    colocated(*requests)
    with pytest.raises(InvalidArgumentError, match="Cannot colocate nodes b and a") as error:
        places()
    assert f"Cannot merge devices with incompatible {what}" in str(error.value)
    assert "'b' is colocated with 'a' (loc:@a)" in str(error.value)
    assert error.value.op.name == "b"


@pytest.mark.parametrize(
    ("requests", "number"),
    [
        (("/cpu:1", "/cpu:2"), 0),
        (("/cpu:1", "/gpu:0"), 0),
        (("/cpu:1", "/cpu:2", "/cpu:3"), 3),
        (("/gpu:1",), 0),
        (("/cpu:7",), 0),
        (("/device:FOO:0",), 0),
    ],
)
def test_soft_placement_drops_types_and_indices(requests, number):
    colocated(*requests)
    assert set(places(soft=True).values()) == {number}


@pytest.mark.parametrize("request_", ["/job:ps/task:1/cpu:1", "/task:1"])
@pytest.mark.parametrize("soft", [False, True])
def test_soft_placement_keeps_jobs_and_tasks(request_, soft):
    with tf.device(request_):
        tf.no_op("a")
    with pytest.raises(InvalidArgumentError, match="Cannot assign a device for operation a"):
        places(soft)


@pytest.mark.parametrize("use_resource", [False, True])
def test_soft_placement_prefers_the_request_of_a_maker(use_resource):
    with on(1):
        v = tf.Variable(1.0, name="v", use_resource=use_resource)
    with tf.colocate_with(v.op):
        tf.no_op("n")._set_device("/cpu:2")
    assert {places(soft=True)[name] for name in ("v", "n")} == {1}
    with pytest.raises(InvalidArgumentError, match="Cannot colocate nodes n and v"):
        places()


def test_rules_choose_among_what_soft_placement_allows():
    x = value()
    with tf.device("/gpu:1"):
        tf.shape(x, name="s")
        c = tf.constant(1.0, name="c")
    with on(1):
        tf.negative(c)
    found = places(soft=True)
    assert (found["s"], found["c"]) == (1, 1)


def test_a_request_that_is_no_name():
    with tf.device(lambda op: "nonsense"):
        tf.no_op("a")
    with pytest.raises(InvalidArgumentError, match="Malformed device specification 'nonsense' in"):
        places()
