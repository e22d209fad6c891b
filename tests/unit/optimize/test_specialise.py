"""Shapes flow, shape arithmetic becomes constants, reads and orders become explicit."""

import numpy as np
import pytest

import headrace as tf
from headrace._src.graph.operation import Operation
from tests.unit.optimize.flows import flow, node, types


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def test_shapes_flow_from_the_feeds():
    x = tf.placeholder(tf.float32, [None, 4])
    y = tf.matmul(x, tf.ones([4, 2]))
    made = flow(tf.reduce_sum(y, 1), {x: (3, 4)})
    assert [str(v.type) for v in made.fetches] == ["float32[3]"]
    assert str(flow(y, {x: None}).fetches[0].type) == "float32[?,2]"


def test_shape_arithmetic_is_constant():
    x = tf.placeholder(tf.float32, [None, None])
    rows = tf.shape(x)[0]
    target = tf.stack([rows * tf.shape(x)[1], 1])
    made = flow(tf.reshape(x, target, name="y"), {x: (2, 3)})
    assert types(made) == ["Reshape"]
    assert node(made, "y").constant_input(1).tolist() == [6, 1]
    assert node(made, "y").types[0].sizes == (6, 1)


def test_large_values_are_left_to_the_step():
    made = flow(tf.fill([100, 100], 1.0))
    assert types(made) == ["Fill"]
    assert made.fetches[0].type.sizes == (100, 100)


def test_what_depends_on_data_stays_unknown_in_part():
    x = tf.placeholder(tf.float32, [None, 3])
    found = tf.where(x > 0, name="found")
    made = flow(tf.reduce_sum(found), {x: (2, 3)})
    assert str(node(made, "found").types[0]) == "int64[?,2]"
    assert node(made, "Sum").types[0].sizes == ()


def test_a_rule_that_refuses_leaves_the_error_to_the_kernel():
    x, y = tf.placeholder(tf.float32, [None, None]), tf.placeholder(tf.float32, [None, None])
    made = flow(tf.matmul(x, y), {x: (2, 3), y: (4, 5)})
    assert made.fetches[0].type.sizes is None


def test_a_promised_shape_is_checked_then_relied_upon():
    x = tf.placeholder(tf.string, [])
    pixels = tf.decode_raw(x, tf.uint8)
    pixels.set_shape([4])
    total = tf.reduce_sum(tf.cast(pixels, tf.int32))
    made = flow(tf.reshape(pixels, [2, 2]), {x: ()})
    assert types(made) == ["DecodeRaw", "EnsureShape", "Reshape"]
    with tf.Session() as session:
        assert session.run(total, {x: b"\x01\x02\x03\x04"}) == 10
        with pytest.raises(tf.errors.InvalidArgumentError, match="not compatible with expected"):
            session.run(total, {x: b"\x01\x02\x03"})


def test_static_shapes_from_a_value_that_is_fed_mean_nothing():
    x = tf.placeholder(tf.float32, [6])
    size = tf.constant([2, 3])
    y = tf.reshape(x, size)
    with tf.Session() as session:
        assert session.run(y, {x: np.zeros(6), size: [3, 2]}).shape == (3, 2)


def test_a_fed_output_cuts_the_graph_and_leaves_the_others():
    x = tf.placeholder(tf.float32, [4], name="x")
    a, b = tf.split(x, 2, name="halves")
    made = flow([a, b], {x: (4,), a: (2,)})
    assert made.fetches[0] is made.feeds[1].value
    assert made.fetches[1] is node(made, "halves").outputs[1]


def test_a_placeholder_with_default_is_settled():
    x = tf.placeholder(tf.float32, [None])
    y = tf.placeholder_with_default(x, [None])
    assert flow(y, {x: (5,)}).fetches[0].type.sizes == (5,)
    assert flow(y, {y: (7,)}).fetches[0].type.sizes == (7,)


# -- Reading and order -----------------------------------------------------------------------------


def test_reading_through_a_reference_is_a_node():
    v = tf.Variable([1.0, 2.0], use_resource=False, name="v")
    made = flow(tf.negative(v._ref(), name="y"))
    assert types(made) == ["VariableV2", "_Read", "Neg"]
    (read,) = [n for n in made.nodes if n.type == "_Read"]
    assert read.types[0].sizes == (2,)
    assert isinstance(read.origin, Operation)
    assert read.origin.name == "y"


def names(nodes):
    return {n.name for n in nodes}


def test_reads_and_writes_of_a_variable_keep_the_order_of_the_program():
    v = tf.Variable([1.0, 2.0], use_resource=False, name="v")
    first = tf.negative(v._ref(), name="first")
    write = tf.assign(v, [3.0, 4.0], name="write")
    second = tf.negative(v._ref(), name="second")
    again = tf.assign_add(v, [1.0, 1.0], name="again")
    made = flow([first, second], targets=[write.op, again.op])
    assert names(node(made, "write").controls) == {"first/read_0"}
    assert names(node(made, "second/read_0").controls) == {"write"}
    assert names(node(made, "again").controls) == {"write", "second/read_0"}


def test_handles_lead_to_the_state_they_name():
    a = tf.Variable(1.0, use_resource=True, name="a")
    b = tf.Variable(2.0, use_resource=True, name="b")
    write = a.assign(5.0, read_value=False)
    read_a, read_b = a.read_value(), b.read_value()
    made = flow([read_a, read_b], targets=[write])
    reads = {n.inputs[0].producer.name: n for n in made.nodes if n.type == "ReadVariableOp"}
    assert names(reads["a"].controls) == {write.name}
    assert not reads["b"].controls


def test_effects_on_the_world_stay_in_order():
    x = tf.placeholder(tf.float32, [])
    checks = [tf.Assert(x > i, [x], name=f"check{i}") for i in range(3)]
    made = flow([], {x: ()}, targets=reversed(checks))
    last = node(made, "check2/AssertGuard/Merge")
    assert names(last.controls) == {"check1/AssertGuard/Merge"}


def test_random_ops_need_no_order():
    a, b = tf.random_uniform([2], name="a"), tf.random_uniform([2], name="b")
    made = flow([a, b])
    assert not any(n.controls for n in made.nodes)


def test_a_variable_that_may_get_another_shape_is_of_unknown_shape():
    v = tf.Variable([1.0, 2.0], use_resource=False)
    x = tf.placeholder(tf.float32, [None])
    before = tf.negative(v._ref(), name="before")
    write = tf.assign(v, x, validate_shape=False)
    with tf.control_dependencies([write]):
        after = tf.negative(v._ref(), name="after")
    made = flow([before, after], {x: (3,)})
    assert node(made, "before").types[0].sizes == (2,)
    assert node(made, "after").types[0].sizes is None


def test_a_handles_shape_is_not_told_after_it_may_have_changed():
    v = tf.Variable([1.0, 2.0], use_resource=True)
    x = tf.placeholder(tf.float32, None)
    before = tf.raw_ops.VariableShape(input=v.handle, name="before")
    write = tf.raw_ops.AssignVariableOp(resource=v.handle, value=x)
    with tf.control_dependencies([write]):
        after = tf.raw_ops.VariableShape(input=v.handle, name="after")
    made = flow([before, after], {x: (3,)})
    assert node(made, "before").constant[0].tolist() == [2]
    assert node(made, "after").constant is None
