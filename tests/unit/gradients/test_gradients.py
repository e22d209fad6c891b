"""tf.gradients: paths, sums, starts and stops, sparse rows, second order, overrides."""

import numpy as np
import pytest

import headrace as tf


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as g:
        yield g


def run(fetches, feeds=None):
    with tf.Session() as session:
        return session.run(fetches, feeds)


def test_paths_add_up_in_one_add_n(graph):
    x = tf.constant(3.0)
    (g,) = tf.gradients(x * x + 2 * x + tf.square(x), x)
    assert run(g) == 2 * 3 + 2 + 2 * 3
    assert g.op.type == "AddN"


def test_several_ys_are_summed():
    x = tf.constant([1.0, 2.0])
    (g,) = tf.gradients([x * 2, x * 3], x)
    np.testing.assert_array_equal(run(g), [5, 5])


def test_no_path_is_none_or_zero():
    x, y = tf.constant([1.0, 2.0]), tf.constant(2.0)
    assert tf.gradients(x, y) == [None]
    (g,) = tf.gradients(x, y, unconnected_gradients="zero")
    assert run(g) == 0
    with pytest.raises(ValueError, match="unconnected_gradients"):
        tf.gradients(x, y, unconnected_gradients="nonsense")


def test_grad_ys():
    x = tf.constant([1.0, 2.0])
    (g,) = tf.gradients(x * x, x, grad_ys=[tf.constant([10.0, 1.0])])
    np.testing.assert_array_equal(run(g), [20, 4])
    with pytest.raises(ValueError, match="grad_ys"):
        tf.gradients(x, x, grad_ys=[1.0, 2.0])
    # Whatever fits the ops on the way passes.
    (g,) = tf.gradients(tf.reduce_sum(x), x, grad_ys=tf.ones([1]))
    np.testing.assert_array_equal(run(g), [1, 1])
    (g,) = tf.gradients(tf.reshape(x, [2, 1]), x, grad_ys=[[3.0, 4.0]])
    np.testing.assert_array_equal(run(g), [3, 4])
    with pytest.raises(ValueError, match="2 and 3"):
        tf.gradients(x * 2, x, grad_ys=[tf.constant([1.0, 2.0, 3.0])])


def test_stop_gradients_are_constants():
    a = tf.constant(2.0)
    b = 3 * a
    assert run(tf.gradients(a + b, [a, b], stop_gradients=[a, b])) == [1, 1]
    c = tf.stop_gradient(b)
    assert run(tf.gradients(a + c, a)[0]) == 1


def test_y_may_be_x():
    x = tf.constant([1.0, 2.0])
    np.testing.assert_array_equal(run(tf.gradients(x, x)[0]), [1, 1])


def test_broadcast_inputs_get_sums():
    x = tf.placeholder(tf.float32, [None, 1])
    y = tf.placeholder(tf.float32, [None])
    gx, gy = tf.gradients(x * y, [x, y])
    feeds = {x: [[1], [2]], y: [3, 4, 5]}
    np.testing.assert_array_equal(run(gx, feeds), [[12], [12]])
    np.testing.assert_array_equal(run(gy, feeds), [3, 3, 3])


def test_second_and_third_order():
    x = tf.constant(2.0)
    y = x * x * x
    orders = [y]
    for _ in range(3):
        orders.append(tf.gradients(orders[-1], x)[0])
    assert run(orders) == [8, 12, 12, 6]


def test_hessians():
    x = tf.constant([1.0, 2.0])
    (h,) = tf.hessians(x[0] * x[0] * x[1], x)
    np.testing.assert_allclose(run(h), [[4, 2], [2, 0]])


def test_gather_gives_rows_and_they_add_up():
    table = tf.constant(np.ones((5, 2), np.float32))
    picked = tf.gather(table, [1, 1, 3])
    (g,) = tf.gradients(picked * picked, table)
    assert isinstance(g, tf.IndexedSlices)
    dense = run(tf.convert_to_tensor(g))
    np.testing.assert_array_equal(dense[:, 0], [0, 4, 0, 2, 0])
    (both,) = tf.gradients([picked, tf.gather(table, [0])], table)
    assert isinstance(both, tf.IndexedSlices)
    np.testing.assert_array_equal(run(tf.convert_to_tensor(both))[:, 1], [1, 2, 0, 1, 0])
    (mixed,) = tf.gradients([picked, table * 2], table)
    np.testing.assert_array_equal(run(tf.convert_to_tensor(mixed))[:, 0], [2, 4, 2, 3, 2])


@pytest.mark.parametrize("method", [None, 0, 1, 2])
def test_aggregation_methods_agree(method):
    x = tf.constant([1.0, 2.0])
    (g,) = tf.gradients([x * 2, x * x, tf.exp(x)], x, aggregation_method=method)
    np.testing.assert_allclose(run(g), 2 + 2 * np.array([1, 2]) + np.exp([1, 2]), rtol=1e-6)


def test_bad_aggregation_method():
    x = tf.constant(1.0)
    with pytest.raises(ValueError, match="aggregation_method"):
        tf.gradients(x, x, aggregation_method=9)


def test_colocation_puts_gradients_with_their_ops(graph):
    x = tf.constant(1.0, name="x")
    y = tf.square(x, name="y")
    before = graph.version
    tf.gradients(y, x, colocate_gradients_with_ops=True)
    made = graph.get_operations()[before:]
    assert all(op.colocation_groups() == [b"loc:@y"] for op in made if "y_grad" in op.name)


def test_gate_gradients_makes_them_wait(graph):
    x, y = tf.constant(2.0), tf.constant(3.0)
    gx, gy = tf.gradients(x * y, [x, y], gate_gradients=True)
    assert gx.op.control_inputs == gy.op.control_inputs != []
    assert run([gx, gy]) == [3, 2]


def test_outputs_that_nothing_uses_count_as_zero():
    x = tf.constant([1.0, 2.0, 3.0, 4.0])
    a, _ = tf.split(x, 2)
    np.testing.assert_array_equal(run(tf.gradients(a * a, x)[0]), [2, 4, 0, 0])


def test_integers_stop_gradients():
    x = tf.constant(2.5)
    assert tf.gradients(tf.cast(tf.cast(x, tf.int32), tf.float32), x) == [None]


def test_registered_gradients_and_override(graph):
    @tf.RegisterGradient("TestOverrideDouble")
    def _double(op, grad):
        return grad * 10

    x = tf.constant(1.0)
    with graph.gradient_override_map({"Identity": "TestOverrideDouble"}):
        y = tf.identity(x)
    assert run(tf.gradients(y, x)[0]) == 10
    with pytest.raises(KeyError, match="two gradient"):
        tf.RegisterGradient("TestOverrideDouble")(_double)
    with pytest.raises(KeyError, match="two gradient"):
        tf.NotDifferentiable("Mul")


def test_an_unknown_gradient_says_what_to_do(graph):
    x = tf.constant(1.0)
    with graph.gradient_override_map({"Identity": "NobodyRegisteredThis"}):
        y = tf.identity(x, name="y")
    with pytest.raises(LookupError, match=r"operation 'y'.*RegisterGradient"):
        tf.gradients(y, x)


def test_a_wrong_count_of_gradients_is_reported(graph):
    @tf.RegisterGradient("TestWrongCount")
    def _wrong(op, grad):
        return grad, grad

    x = tf.constant(1.0)
    with graph.gradient_override_map({"Identity": "TestWrongCount"}):
        y = tf.identity(x)
    with pytest.raises(ValueError, match="Num gradients 2"):
        tf.gradients(y, x)


def test_custom_gradient():
    @tf.custom_gradient
    def log1pexp(x):
        e = tf.exp(x)

        def grad(dy):
            return dy * (1 - 1 / (1 + e))

        return tf.log(1 + e), grad

    x = tf.constant(100.0)
    y = log1pexp(x)
    assert run(tf.gradients(y, x)[0]) == 1
    with pytest.raises(ValueError, match="keyword"):
        log1pexp(x=x)


def test_custom_gradient_with_several_values():
    @tf.custom_gradient
    def swap(x, y):
        return [y, x], lambda dy, dx: (100 * dx, 10 * dy)

    x, y = tf.constant(1.0), tf.constant(2.0)
    a, b = swap(x, y)
    assert run(tf.gradients(2 * a + 3 * b, [x, y])) == [300, 20]


def test_errors_in_gradients_name_the_forward_op():
    x = tf.placeholder(tf.float32, name="x")
    y = tf.matmul(x, tf.ones([3, 2]), name="forward")
    (g,) = tf.gradients(
        y, x, grad_ys=[tf.placeholder_with_default(np.ones((2, 5), "f"), [None, None])]
    )
    with pytest.raises(tf.errors.InvalidArgumentError) as e:
        run(g, {x: np.ones((2, 3))})
    assert "for 'forward', made at" in str(e.value)


def _scalar(name, value, **options):
    return tf.get_variable(name, initializer=tf.constant(value), **options)


@pytest.mark.parametrize("resource", [True, False])
@pytest.mark.parametrize(
    "body",
    [
        lambda x, v: tf.assign(x, v),
        lambda x, v: tf.assign_add(x, v),
        lambda x, v: x * v,
        lambda x, v: tf.cond(v > 0, lambda: x + v, lambda: v),
        lambda x, v: tf.round(v),
    ],
)
def test_gradients_pass_through_a_function_with_variables(body, resource):
    x, z = _scalar("x", 2.0, use_resource=resource), _scalar("z", 3.0, use_resource=True)
    y = tf.grad_pass_through(lambda v: body(x, v))(z**2)
    of_z, of_x = tf.gradients(y, [z, x])
    assert of_x is None
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        assert session.run(of_z) == 6


def _with_custom_gradient(body, variables):
    def with_variables(dy, variables=None):
        return dy * 10, [tf.constant(7.0) for _ in variables]

    @tf.custom_gradient
    def function(v):
        return body(v), with_variables if variables else lambda dy: dy * 10

    return function


@pytest.mark.parametrize("resource", [True, False])
@pytest.mark.parametrize(
    ("body", "is_read"),
    [
        (lambda x, v: x * v, True),
        (lambda x, v: x.read_value() * v, True),
        (lambda x, v: tf.cond(v > 0, lambda: x * v, lambda: v), True),
        (lambda x, v: tf.cast(tf.is_variable_initialized(x), tf.float32) * v, False),
        (lambda x, v: tf.tuple([v], control_inputs=[tf.group(x.assign(2.0))])[0], None),
    ],
)
def test_custom_gradients_know_the_variables_that_are_read(body, is_read, resource):
    if is_read is None:  # a resource variable's assign also reads it, for its value
        is_read = resource
    x, z = _scalar("x", 2.0, use_resource=resource), _scalar("z", 3.0, use_resource=True)
    with pytest.raises(TypeError, match=r"keyword argument 'variables'|use_resource=True"):
        _with_custom_gradient(lambda v: body(x, v), not is_read)(z**2)
    y = _with_custom_gradient(lambda v: body(x, v), is_read)(z**2)
    found = tf.gradients(y, [z, x])
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        assert session.run(found[0]) == 60
        assert session.run(found[1]) == 7 if is_read else found[1] is None


def test_a_function_with_a_custom_gradient_makes_resource_variables():
    function = _with_custom_gradient(lambda v: tf.Variable(2.0) * v, False)
    with pytest.raises(TypeError, match="must be `ResourceVariable`s"):
        function(tf.constant(1.0))
