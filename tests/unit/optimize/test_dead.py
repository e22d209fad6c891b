"""Unneeded nodes are removed; effects, random ops and unused feeds stay."""

import pytest

import headrace as tf
from headrace._src.ops.base.define import build
from headrace._src.optimize.dead import remove_dead
from tests.unit.optimize.flows import after, flow, node, types


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def test_what_only_a_shape_needed_goes():
    x = tf.placeholder(tf.float32, [None, 2])
    heavy = tf.matmul(x, tf.ones([2, 5]))
    assert types(after(remove_dead, flow(tf.shape(heavy), {x: (3, 2)}))) == []


def test_effects_and_random_ops_stay():
    noise = tf.random_uniform([3], seed=1)
    v = tf.Variable(tf.zeros([3]), use_resource=False)
    kept = types(after(remove_dead, flow(build("Shape", input=tf.assign(v, noise)))))
    assert "RandomUniform" in kept
    assert "Assign" in kept


def test_a_placeholder_that_nobody_fed_is_told_even_if_needless():
    x = tf.placeholder(tf.float32, [2], name="x")
    size = build("Size", input=x)
    with tf.Session() as session, pytest.raises(tf.errors.InvalidArgumentError, match="must feed"):
        session.run(size)


def test_nodes_that_only_wait_are_dissolved():
    v = tf.Variable(0.0, use_resource=False)
    writes = [tf.assign_add(v, 1.0, name=f"w{i}").op for i in range(2)]
    both = tf.group(*writes, name="both")
    with tf.control_dependencies([both]):
        last = tf.no_op(name="last")
    made = after(remove_dead, flow([], targets=[last]))
    assert types(made) == ["VariableV2", "AssignAdd", "AssignAdd"]
    assert {n.name for n in made.targets} == {"w0", "w1"}


def test_a_hub_that_joins_several_stays_while_others_wait_for_it():
    v = tf.Variable(0.0, use_resource=False)
    hub = tf.group(*[tf.assign_add(v, 1.0, name=f"w{i}") for i in range(2)], name="hub")
    with tf.control_dependencies([hub]):
        y = tf.py_func(lambda: 1.0, [], tf.double, name="y")
    made = after(remove_dead, flow(y))
    assert [c.name for c in node(made, "y").controls] == ["hub"]
