"""State over steps: what readers see, what writers refuse, and where it lives."""

import threading

import numpy as np
import pytest

import headrace as tf
from headrace._src.devices.resources import reset_containers
from headrace._src.ops.base.define import b

KINDS = pytest.mark.parametrize("use_resource", [False, True], ids=["ref", "resource"])


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph
    reset_containers()


def initialised():
    session = tf.Session()
    session.run(tf.global_variables_initializer())
    return session


@KINDS
def test_fetched_values_never_change(use_resource):
    v = tf.Variable(np.zeros(4, np.float32), use_resource=use_resource)
    add = v.assign_add(np.ones(4, np.float32))
    scatter = tf.scatter_add(v, [1, 1], [5.0, 5.0])
    session = initialised()
    fetched = [session.run(t) for t in (v, v.value(), add, scatter, v[1:], v)]
    expected = [[0] * 4, [0] * 4, [1] * 4, [1, 11, 1, 1], [11, 1, 1], [1, 11, 1, 1]]
    for value, right in zip(fetched, expected, strict=True):
        np.testing.assert_array_equal(value, right)
        value[...] = -7  # and what a caller does to it is the caller's
    np.testing.assert_array_equal(session.run(v), [1, 11, 1, 1])


@KINDS
def test_reads_are_ordered_by_control_dependencies(use_resource):
    v = tf.Variable([1.0, 2.0], use_resource=use_resource)
    before = v.read_value()
    with tf.control_dependencies([before]):
        change = v.assign_add([10.0, 10.0], read_value=False)
    with tf.control_dependencies([change]):
        later = v.read_value()
    # Fetching a reference variable returns its memory, as it is at the end of the step.
    got = initialised().run([before, later])
    np.testing.assert_array_equal(got, [[1, 2] if use_resource else [11, 12], [11, 12]])


def test_what_was_computed_from_a_reference_stays():
    v = tf.Variable([1.0, 2.0], use_resource=False)
    before = v.read_value() + 0.0
    with tf.control_dependencies([before]):
        change = v.assign_add([10.0, 10.0], read_value=False)
    with tf.control_dependencies([change]):
        later = v.read_value()
    np.testing.assert_array_equal(initialised().run([before, later]), [[1, 2], [11, 12]])


@KINDS
def test_many_threads_lose_no_update(use_resource):
    v = tf.Variable(0, use_resource=use_resource)
    add = v.assign_add(1, read_value=False)
    session = initialised()
    threads = [
        threading.Thread(target=lambda: [session.run(add) for _ in range(50)]) for _ in range(4)
    ]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert session.run(v) == 200


@KINDS
def test_assigned_arrays_stay_the_callers(use_resource):
    v = tf.Variable(np.zeros(3, np.float32), use_resource=use_resource)
    x = tf.placeholder(tf.float32, [3])
    assign, add = v.assign(x), v.assign_add([1.0, 1.0, 1.0])
    session = initialised()
    fed = np.float32([1, 2, 3])
    session.run(assign, {x: fed})
    session.run(add)
    np.testing.assert_array_equal(fed, [1, 2, 3])
    fed[:] = 0
    np.testing.assert_array_equal(session.run(v), [2, 3, 4])


# -- Errors of a step ------------------------------------------------------------------------------


def test_uninitialized_reference():
    v = tf.Variable([1.0], name="w")
    with tf.Session() as session:
        for fetch in (v, v + 1.0, v.assign_add([1.0]), tf.scatter_add(v, [0], [1.0])):
            with pytest.raises(tf.errors.FailedPreconditionError, match="uninitialized value w"):
                session.run(fetch)


def test_uninitialized_resource():
    v = tf.Variable([1.0], name="w", use_resource=True)
    with tf.Session() as session:
        with pytest.raises(tf.errors.FailedPreconditionError, match="resource variable w"):
            session.run(v)
        for fetch in (v.assign_add([1.0]), v.sparse_read([0]), v.scatter_nd_add([[0]], [1.0])):
            with pytest.raises(tf.errors.NotFoundError, match="localhost/w"):
                session.run(fetch)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda v, x: tf.assign(v, x), r"lhs shape= \[3\] rhs shape= \[2\]"),
        (lambda v, x: tf.assign_add(v, x), "Parameters and update must be the same size"),
        (lambda v, x: tf.scatter_add(v, [7], [1.0]), r"indices\[0\] = 7 is not in \[0, 3\)"),
        (lambda v, x: tf.scatter_nd_add(v, [[7]], [1.0]), r"= \[7\] does not index into shape"),
        (lambda v, x: v[1:].assign(x[:1]), r"l-value shape \[2\] does not match r-value shape"),
    ],
)
def test_bad_changes_leave_the_variable_alone(change, message):
    v = tf.Variable([1.0, 2.0, 3.0])
    x = tf.placeholder(tf.float32, None)
    op = change(v, x)
    session = initialised()
    with pytest.raises(
        (tf.errors.InvalidArgumentError, tf.errors.UnimplementedError), match=message
    ):
        session.run(op, {x: [1.0, 2.0]})
    np.testing.assert_array_equal(session.run(v), [1, 2, 3])


def test_bad_changes_of_resources():
    v = tf.Variable([1.0, 2.0, 3.0], use_resource=True)
    x = tf.placeholder(tf.float32, None)
    session = initialised()
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"with shape \[3\] using .* \[2\]"):
        session.run(v.assign_add(x), {x: [1.0, 2.0]})
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"indices\[0\] = 7 is not in"):
        session.run(v.sparse_read([7]))
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"does not index into param shape"):
        session.run(v.gather_nd([[7]]))


@KINDS
def test_count_up_to(use_resource):
    i = tf.Variable(0, use_resource=use_resource)
    count = i.count_up_to(3)
    session = initialised()
    assert [session.run(count) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(tf.errors.OutOfRangeError, match="Reached limit of 3"):
        session.run(count)
    assert session.run(i) == 3


def test_changing_a_fed_reference_is_an_error():
    v = tf.Variable([1.0])
    session = initialised()
    assert session.run(v * 2.0, {v: [5.0]}) == 10.0
    with pytest.raises(tf.errors.InvalidArgumentError, match="was fed"):
        session.run(v.assign([2.0]), {v: [5.0]})


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda v: v.assign([1.0]), "Dimension 0 in both shapes must be equal, but are 2 and 1"),
        (lambda v: v.assign_add(1.0), "Shapes must be equal rank, but are 1 and 0"),
        (lambda v: tf.scatter_add(v, [0, 1], [1.0]), "Dimension 0 in both shapes"),
        (lambda v: tf.scatter_nd_add(v, [[0], [1]], [1.0]), "The outer 1 dimensions of indices"),
    ],
)
def test_static_shapes_are_checked(build, message):
    with pytest.raises(ValueError, match=message):
        build(tf.Variable([1.0, 2.0]))


def test_static_shapes_of_resources_are_checked():
    v = tf.Variable([1.0, 2.0], use_resource=True)
    with pytest.raises(ValueError, match="Shapes must be equal rank, but are 1 and 0"):
        v.assign_add(1.0)
    with pytest.raises(ValueError, match="incompatible"):
        v.assign([1.0])
    with pytest.raises(ValueError, match=r"wrong dtype\. Expected float32 got int32"):
        b.read_variable_op(v.handle, tf.int32)


# -- Temporary variables, destroyed ones, shapes ---------------------------------------------------


def test_temporary_variable():
    t = b.temporary_variable([2], tf.float32, var_name="t")
    t = tf.assign_add(tf.assign(t, [1.0, 2.0]), [1.0, 1.0])
    with tf.Session() as session:
        value = session.run(b.destroy_temporary_variable(t, "t"))
        np.testing.assert_array_equal(value, [2, 3])
        with pytest.raises(tf.errors.NotFoundError, match="'u'"):
            session.run(b.destroy_temporary_variable(t, "u"))


def test_destroyed_resource():
    v = tf.Variable([1.0], use_resource=True)
    destroy = b.destroy_resource_op(v.handle, ignore_lookup_error=False)
    session = initialised()
    assert session.run(v.is_initialized())
    session.run(destroy)
    assert not session.run(v.is_initialized())
    with pytest.raises(tf.errors.NotFoundError):
        session.run(destroy)
    session.run(b.destroy_resource_op(v.handle))


def test_shape_of_a_resource():
    v = tf.Variable(np.zeros([2, 3]), use_resource=True)
    shape = b.variable_shape(v.handle)
    assert b.reshape(tf.zeros([6]), shape).shape.as_list() == [None, None]  # as in TensorFlow
    assert initialised().run(b.variable_shape(v.handle, tf.int64)).tolist() == [2, 3]


@pytest.mark.parametrize("batch_dims", [0, 1])
def test_gradient_of_resource_gather(batch_dims):
    v = tf.Variable(np.arange(12.0).reshape(2, 3, 2), use_resource=True)
    indices = tf.constant([[1, 1], [0, 1]])
    rows = b.resource_gather(v.handle, indices, tf.float64, batch_dims=batch_dims)
    (gradient,) = tf.gradients(rows, v)
    expected = np.zeros([2, 3, 2])
    for i, row in enumerate([[1, 1], [0, 1]]):
        for j in row:
            expected[(i, j) if batch_dims else j] += 1
    np.testing.assert_array_equal(initialised().run(tf.convert_to_tensor(gradient)), expected)


# -- Containers ------------------------------------------------------------------------------------


@KINDS
def test_the_default_container_is_per_session(use_resource):
    v = tf.Variable(1.0, use_resource=use_resource)
    first, second = initialised(), initialised()
    first.run(v.assign(5.0))
    assert first.run(v) == 5 and second.run(v) == 1


@KINDS
def test_named_containers_are_shared(use_resource):
    def build():
        with tf.container("shared"):
            return tf.Variable(1.0, name="v", use_resource=use_resource)

    v = build()
    first = initialised()
    first.run(v.assign(5.0))
    with tf.Session() as second:
        assert second.run(v) == 5
    with tf.Graph().as_default():
        other = build()
        with tf.Session() as third:
            assert third.run(other) == 5
            third.run(other.assign(6.0))
    assert first.run(v) == 6
    first.close()  # closing a session leaves shared state alone
    with tf.Session() as fourth:
        assert fourth.run(v) == 6
        tf.Session.reset("", ["shared"])
        with pytest.raises(tf.errors.FailedPreconditionError):
            fourth.run(v)


def test_reset_of_one_container_spares_the_others():
    variables = []
    for name in ("one", "two"):
        with tf.container(name):
            variables.append(tf.Variable(1.0))
    session = initialised()
    tf.Session.reset("", ["one"])
    with pytest.raises(tf.errors.FailedPreconditionError):
        session.run(variables[0])
    assert session.run(variables[1]) == 1


@pytest.mark.parametrize(("value", "message"), [(1, "int32"), ([1.0, 2.0], r"\[2\]")])
def test_graphs_that_disagree_on_a_shared_variable(value, message):
    with tf.container("shared"):
        tf.Variable(1.0, name="v")
    initialised()
    with tf.Graph().as_default(), tf.container("shared"):
        other = tf.Variable(value, name="v")
        with (
            tf.Session() as session,
            pytest.raises(tf.errors.InvalidArgumentError, match=f"shared/v.*{message}"),
        ):
            session.run(other.initializer)


def test_graphs_that_disagree_on_a_shared_resource():
    with tf.container("shared"):
        tf.Variable(1.0, name="v", use_resource=True)
    initialised()
    with tf.Graph().as_default(), tf.container("shared"):
        other = tf.Variable(1, name="v", use_resource=True)
        with (
            tf.Session() as session,
            pytest.raises(tf.errors.InvalidArgumentError, match="wrong dtype"),
        ):
            session.run(other.initializer)
