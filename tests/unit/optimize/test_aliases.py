"""Copies of reference variables that are used after a write."""

import pytest

import headrace as tf
from headrace._src.optimize.prune import prune
from headrace._src.optimize.reread_references import reread


@pytest.fixture(autouse=True)
def own_graph():
    with tf.Graph().as_default():
        yield


@pytest.fixture
def step():
    """A variable, its copy, a write after the copy, and a user of the copy after the write."""
    v = tf.Variable([1.0, 2.0], name="v", use_resource=False)
    copy = v.value()
    with tf.control_dependencies([copy]):
        write = tf.assign_add(v, [3.0, 3.0], name="write")
    with tf.control_dependencies([write]):
        user = tf.multiply(copy, 10.0, name="user")
    return v, copy, write, user


def test_a_user_after_a_write_gets_the_reference(step):
    _, copy, _, user = step
    before = tf.negative(copy, name="before")
    found = reread(prune([user, before], [], []))
    nodes = {n.name: n for n in found.nodes}
    assert nodes["user"].inputs[0] is nodes["write"].inputs[0]
    assert "user:0 float32[2] = Mul(v:0, user/y:0)" in str(found)


def test_nothing_is_read_again_without_a_path_from_a_write(step):
    _, copy, write, user = step
    unordered = tf.negative(copy)
    for fetches, feeds in (([unordered, write], []), ([user], [copy])):
        plain = prune(fetches, [], feeds)
        assert reread(plain) is plain


def test_a_write_that_gives_other_memory():
    v = tf.Variable([1.0, 2.0], use_resource=False)
    copy = v.value()
    with tf.control_dependencies([tf.assign(v, [3.0], validate_shape=False)]):
        user = copy * 10.0
    plain = prune([user], [], [])
    assert reread(plain) is plain


@pytest.mark.parametrize("runs", [1, 4])  # interpreted, then compiled
def test_steps(step, runs):
    v, _, _, user = step
    with tf.Session() as session:
        session.run(v.initializer)
        for i in range(runs):
            assert session.run(user).tolist() == [10 * (4 + 3 * i), 10 * (5 + 3 * i)]


def test_steps_as_they_are(step):
    v, copy, _, user = step
    fed = tf.placeholder(tf.float32, [])
    last = user + fed
    with tf.Session() as session:
        session.run(v.initializer)
        handle = session.partial_run_setup([copy, last], [fed])
        assert session.partial_run(handle, copy).tolist() == [1, 2]
        assert session.partial_run(handle, last, {fed: 1.0}).tolist() == [41, 51]


def test_what_is_read_after_a_change_of_shape():
    x = tf.placeholder(tf.float32, [None])
    v = tf.Variable([1.0, 2.0, 3.0], use_resource=False)
    with tf.control_dependencies([tf.assign(v, x, validate_shape=False)]):
        doubled = v.read_value() * 2.0
    assert doubled.shape == (3,)  # as declared
    with tf.Session() as session:
        session.run(v.initializer)
        assert session.run(doubled, {x: [4.0, 5.0]}).tolist() == [8, 10]


def carried(*fetches):
    """The values that are references where the client's tensors are not."""
    nodes = reread(prune(list(fetches), [], [])).nodes
    pairs = [(v, t) for n in nodes for v, t in zip(n.outputs, n.origin.outputs, strict=True)]
    return {v.name for v, t in pairs if v.dtype != t.dtype}


def test_what_enters_a_loop_that_writes_is_carried():
    v = tf.Variable(1.0, name="v", use_resource=False)
    w = tf.Variable(1.0, name="w", use_resource=False)

    def body(i):
        with tf.control_dependencies([tf.assign(v, v * w)]):
            return i + 1

    assert carried(tf.while_loop(lambda i: i < 3, body, [0])) == {"while/mul/Enter:0"}


def test_a_side_of_a_branch_that_excludes_the_write_reads_once():
    v = tf.Variable(1.0, name="v", use_resource=False)
    p = tf.placeholder(tf.bool, [])
    write = tf.cond(p, lambda: tf.assign_add(v, 1.0), lambda: tf.constant(0.0))
    mean = tf.cond(p, lambda: tf.constant(2.0), lambda: tf.identity(v))
    with tf.control_dependencies([write]):
        other = tf.cond(p, lambda: tf.constant(3.0), lambda: v * 2.0)
        step = prune([mean * 2.0, other], [], [])
    assert reread(step) is step


def test_the_second_of_two_writes_is_seen():
    v = tf.Variable(1.0, name="v", use_resource=False)
    with tf.control_dependencies([tf.assign(v, 2.0)]):
        copy = v.read_value()
    with tf.control_dependencies([copy]):
        write = tf.assign(v, 3.0)
    with tf.control_dependencies([write]):
        user = copy * 10.0
    with tf.Session() as session:
        session.run(v.initializer)
        assert session.run(user) == 30
