"""The verifiers of a Dataflow find the faults of flows that are broken on purpose."""

from dataclasses import replace

import pytest

import headrace as tf
from headrace._src.core.errors import InternalError
from headrace._src.graph.dataflow import Backedge, Dataflow, rebuild
from headrace._src.graph.verify_flow import verify_dataflow, verify_reads
from headrace._src.optimize.prune import prune
from headrace._src.optimize.reads import read_variables
from headrace._src.optimize.reread_references import reread
from headrace._src.optimize.states import verify_order
from tests.unit.optimize.flows import flow, node

CPUS = [f"/job:localhost/replica:0/task:0/device:CPU:{i}" for i in range(2)]


@pytest.fixture(autouse=True)
def own_graph():
    with tf.Graph().as_default():
        yield


def written():
    """A step that reads a variable, writes it, and reads it again."""
    v = tf.Variable([1.0, 2.0], name="v", use_resource=False)
    first = tf.negative(v._ref(), name="first")
    with tf.control_dependencies([first]):
        write = tf.assign_add(v, [3.0, 3.0], name="write")
    with tf.control_dependencies([write]):
        last = tf.negative(v._ref(), name="last")
    return [first, last]


def without_controls(made, name):
    """The flow in which one node waits for nothing."""

    def change(old, inputs, controls):
        return old.moved(inputs, () if old.name == name else controls)

    return rebuild(made, change)


@pytest.mark.parametrize("name", ["write", "last/read_0"])
def test_the_order_of_reads_and_writes(name):
    made = flow(written())
    verify_order(made)
    with pytest.raises(InternalError, match="nothing orders"):
        verify_order(without_controls(made, name))


def test_two_reads_need_no_order():
    v = tf.Variable([1.0, 2.0], name="v", use_resource=False)
    verify_order(flow([tf.negative(v._ref()), tf.square(v._ref())]))


def test_the_order_inside_of_a_loop():
    v = tf.Variable(1.0, name="v", use_resource=True)

    def body(i):
        with tf.control_dependencies([v.assign(v * 2.0)]):
            return i + 1

    loop = tf.while_loop(lambda i: i < 3, body, [0])
    verify_order(flow([loop]))


def test_values_where_references_are_wanted_and_the_other_way_round():
    made = prune(written(), [], [])
    with pytest.raises(InternalError, match="first wants a value, and is given v:0"):
        verify_reads(made)
    made = read_variables(made)
    verify_reads(made)
    read = node(made, "first/read_0")

    def change(old, inputs, controls):
        given = (made_read[0].outputs[0], inputs[1]) if old.name == "write" else inputs
        new = old.moved(given, controls)
        if old is read:
            made_read.append(new)
        return new

    made_read = []
    with pytest.raises(InternalError, match="write wants a reference, and is given first/read_0:0"):
        verify_reads(rebuild(made, change))


def test_a_reference_is_used_where_its_variable_is():
    made = prune(written(), [], [])

    def place(old, inputs, controls):
        return old.moved(inputs, controls, CPUS[old.name == "write"])

    with pytest.raises(InternalError, match=r"write on .*CPU:1 takes .* v:0 on .*CPU:0"):
        verify_dataflow(rebuild(made, place))


def loop_flow():
    return prune([tf.while_loop(lambda i: i < 3, lambda i: i + 1, [0])], [], [])


def test_what_is_passed_back_comes_from_a_next_iteration():
    made = loop_flow()
    verify_dataflow(made)
    (back,) = made.returns
    assert isinstance(back, Backedge)
    other = node(made, "while/add").outputs[0]
    with pytest.raises(InternalError, match="can't be passed back"):
        verify_dataflow(replace(made, returns={back: other}))
    with pytest.raises(InternalError, match="before it is made"):
        verify_dataflow(replace(made, returns={}))


def test_nodes_in_a_wrong_order_and_twice():
    made = loop_flow()
    for nodes in (made.nodes[::-1], (*made.nodes, made.nodes[0])):
        with pytest.raises(InternalError, match=r"before it is made|stands twice"):
            verify_dataflow(replace(made, nodes=nodes))


def test_a_node_owns_its_values():
    made = prune([tf.negative(tf.constant(1.0, name="c"), name="n")], [], [])
    c, n = made.nodes
    copy = c.moved((), ())
    stranger = n.moved((copy.outputs[0],), ())
    with pytest.raises(InternalError, match="before it is made"):
        verify_dataflow(Dataflow((c, stranger), (), (stranger.outputs[0],), ()))


def test_a_carried_reference_reads_as_one():
    v = tf.Variable(1.0, name="v", use_resource=False)

    def body(i):
        with tf.control_dependencies([tf.assign(v, v * 2.0)]):
            return i + 1

    made = reread(prune([tf.while_loop(lambda i: i < 3, body, [0])], [], []))
    verify_dataflow(made)
    verify_reads(read_variables(made))
