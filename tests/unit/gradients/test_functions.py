"""Functions of the graph: variables, recursion, derivatives, libraries in GraphDefs."""

import numpy as np
import pytest

import headrace as tf
from headrace._src.gradients.function_gradients import Defun
from headrace._src.ops.control import functional


@pytest.fixture(autouse=True)
def own_graph():
    with tf.Graph().as_default():
        yield


def run(fetches, feeds=None):
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        return session.run(fetches, feeds)


def test_types_of_a_call_choose_the_function():
    @Defun()
    def double(x):
        return x * 2

    assert run([double(tf.constant(1)), double(tf.constant(1.5))]) == [2, 3]
    assert len(tf.get_default_graph().as_graph_def().library.function) == 2


def test_equal_functions_have_equal_names():
    def made():
        @Defun(tf.float32)
        def f(x):
            return x + 1.0

        return f

    assert made().name == made().name
    assert run([made()(1.0), made()(2.0)]) == [2, 3]


def test_a_function_is_used_in_several_graphs():
    @Defun(tf.float32, func_name="Used")
    def f(x):
        return x + 1.0

    for _ in range(2):
        with tf.Graph().as_default() as graph:
            assert run(f(1.0)) == 2
            assert [x.signature.name for x in graph.as_graph_def().library.function] == ["Used"]


def test_variables_are_made_outside():
    @Defun(tf.float32, func_name="Makes")
    def f(x):
        return x * tf.get_variable("v", initializer=3.0)

    with tf.variable_scope("layer"):
        y = f(2.0)
    assert [v.op.name for v in tf.trainable_variables()] == ["layer/v"]
    assert run(y) == 6


def test_bodies_depend_on_shapes_as_steps_do():
    @Defun(tf.float32, func_name="Sums")
    def f(x):
        return tf.reduce_sum(tf.square(x), axis=0)

    x = tf.placeholder("float32", [None, 2])
    y = f(x)
    with tf.Session() as session:
        for n in (1, 3, 1, 3, 2):
            assert session.run(y, {x: np.ones((n, 2))}).tolist() == [n, n]


def test_second_and_third_derivative():
    @Defun(tf.float32, func_name="Inner1")
    def inner(x):
        return x * x

    @Defun(tf.float32, func_name="Outer1")
    def outer(x):
        return inner(x) * x * x + x

    y = x = tf.constant(2.0)
    derivatives = [y := outer(x)] + [y := tf.gradients(y, x)[0] for _ in range(3)]
    np.testing.assert_allclose(run(derivatives), [18, 33, 48, 48], rtol=1e-6)


def test_gradients_that_are_sparse_inside():
    @Defun(tf.float32, func_name="Gathers")
    def f(table):
        return tf.gather(table, [1, 1, 0])

    table = tf.constant([[1.0], [2.0], [3.0]])
    assert run(tf.gradients(f(table), table))[0].tolist() == [[1], [2], [0]]


@pytest.mark.parametrize(("value", "expected"), [(3.0, 2.0), (-3.0, -6.0)])
def test_gradients_of_branches(value, expected):
    @Defun(tf.float32, func_name="ThenBranch")
    def then(x):
        return x * 2.0

    @Defun(tf.float32, func_name="ElseBranch")
    def other(x):
        return x * x

    x = tf.constant(value)
    (y,) = functional.If(x > 0, [x], then, other)
    (z,) = tf.raw_ops.Case(
        branch_index=tf.cast(x < 0, "int32"), input=[x], Tout=["float32"], branches=[then, other]
    )
    assert run([tf.gradients(y, x), tf.gradients(z, x)]) == [[expected], [expected]]


def test_gradients_of_loops():
    cond = Defun(tf.int32, tf.float32, func_name="Goes1")(lambda i, x: i < 3)
    body = Defun(tf.int32, tf.float32, func_name="Goes2")(lambda i, x: (i + 1, x * x))
    step = Defun(tf.int32, tf.float32, func_name="Steps")(lambda i, x: x * tf.cast(i, tf.float32))
    x = tf.constant(1.5)
    _, power = functional.While([0, x], cond, body)
    (product,) = functional.For(4, 0, -1, [x], step)
    found = run([power, product, *tf.gradients(power, x), *tf.gradients(product, x)])
    np.testing.assert_allclose(found, [1.5**8, 36, 8 * 1.5**7, 24], rtol=1e-6)


def test_a_tensor_that_a_loop_is_given_twice_has_one_gradient():
    @Defun(tf.int32, tf.float32, tf.float32)
    def cond(i, y, factor):
        return i < 3

    @Defun(tf.int32, tf.float32, tf.float32)
    def body(i, y, factor):
        return i + 1, y * factor, factor

    x = tf.constant(2.0)
    _, power, _ = functional.While([0, x, x], cond, body)
    assert run([power, *tf.gradients(power, x)]) == [16, 32]


def factorial():
    @Defun(tf.int32, func_name="Factorial")
    def f(n):
        def again():
            (rest,) = tf.raw_ops.PartitionedCall(args=[n - 1], Tout=["int32"], f="Factorial")
            return n * rest

        return tf.cond(n <= 1, lambda: tf.constant(1), again)

    return f


def test_a_function_that_calls_itself():
    assert run(factorial()(10)) == 3628800


def test_a_function_that_calls_itself_for_ever():
    with tf.Session() as session:
        with pytest.raises(tf.errors.ResourceExhaustedError, match="calls deep"):
            session.run(factorial()(1000))
        assert session.run(factorial()(3)) == 6  # and the session is as it was


def test_libraries_go_through_graph_defs():
    @Defun(tf.float32, tf.float32, func_name="OwnGradient2")
    def g(x, dy):
        return dy * 100.0

    @Defun(tf.float32, func_name="Inner2", grad_func=g)
    def inner(x):
        return x * x

    @Defun(tf.float32, func_name="Outer2")
    def outer(x):
        a, b = tf.split(inner(x), 2)
        return a + b, tf.shape(x)

    x = tf.constant([1.0, 2.0], name="x")
    outer(x, name="call")
    message = tf.get_default_graph().as_graph_def()
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(message, name="")
        assert graph.as_graph_def() == message
        y, x = (graph.get_tensor_by_name(n) for n in ("call:0", "x:0"))
        values = run([y, "call:1", *tf.gradients(y, x)])
        assert [v.tolist() for v in values] == [[5], [2], [100, 100]]


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda f: f.ret.clear(), "nothing is returned as 'mul'"),
        (lambda f: f.node_def[0].input.__setitem__(0, "y:z:0"), "neither an argument nor"),
        (lambda f: setattr(f.node_def[0], "op", "NoSuchOp"), "not registered 'NoSuchOp'"),
        (lambda f: f.signature.attr.add(name="T", type="type"), "only functions whose types"),
    ],
)
def test_functions_that_are_none(spoil, message):
    @Defun(tf.float32, func_name="Spoiled")
    def f(x):
        return x * x

    f(1.0, name="call")
    graph_def = tf.get_default_graph().as_graph_def()
    spoil(graph_def.library.function[0])
    with (
        tf.Graph().as_default(),
        tf.Session() as session,
        pytest.raises((ValueError, tf.errors.OpError), match=message),
    ):
        tf.import_graph_def(graph_def, name="")
        session.run("call:0")


def test_mistakes():
    one = Defun(tf.float32, func_name="One")(lambda x: x)
    with pytest.raises(ValueError, match="Expected number of arguments: 1, received: 2"):
        one(1.0, 2.0)
    with pytest.raises(ValueError, match="requested dtype float32"):
        one(tf.constant(1))
    with pytest.raises(ValueError, match="more arguments than"):
        Defun(tf.float32)(lambda x, y: x)
    with pytest.raises(ValueError, match="can not return None"):
        Defun(tf.float32)(lambda x: (x, None))(1.0)
    with pytest.raises(ValueError, match="op with the same name"):
        Defun(tf.float32, func_name="MatMul")(lambda x: x)(1.0)
    with pytest.raises(ValueError, match="another function called 'One'"):
        one(1.0)
        Defun(tf.float32, func_name="One")(lambda x: x + 1.0)(1.0)
    with pytest.raises(ValueError, match="out_names"):
        Defun(tf.float32, out_names=["a", "b"])(lambda x: x)(1.0)
    with pytest.raises(ValueError, match="Unknown keyword arguments"):
        Defun(x=tf.float32)
    outside = tf.constant(1.0)
    captures = Defun(tf.float32, func_name="Captures2")(lambda x: x + outside)
    with pytest.raises(ValueError, match="of the graph around it"):
        functional.If(True, [1.0], captures, captures)
    with tf.Session() as session, pytest.raises(tf.errors.NotFoundError, match="Nowhere is not"):
        session.run(tf.raw_ops.PartitionedCall(args=[1.0], Tout=["float32"], f="Nowhere"))


def test_errors_inside_name_the_line_of_the_body():
    @Defun(tf.int32, func_name="Divides")
    def f(x):
        return 1 // x

    with tf.Session() as session, pytest.raises(tf.errors.InvalidArgumentError) as caught:
        session.run(f(tf.placeholder_with_default(0, [])))
    assert "return 1 // x" in str(caught.value)


def test_random_numbers_inside_are_others_than_outside():
    @Defun(func_name="Draws")
    def f():
        return tf.random_uniform([2], seed=3)

    inside, outside = f(), tf.random_uniform([2], seed=4)
    assert inside.op.graph.get_operations()[-1].name == "random_uniform"
    alone = run(outside)
    with tf.Session() as session:
        session.run(inside)  # its op is called random_uniform too
        np.testing.assert_array_equal(session.run(outside), alone)


# -- In the place of their calls -------------------------------------------------------------------


def types_of(*fetches, feed):
    """The types of the nodes of a step's optimised form, parts included; a scalar is fed."""
    from headrace._src.graph.structured import parts_of
    from headrace._src.pipeline.passes import Options, optimise, prepare

    def nodes(flow):
        for node in flow.nodes:
            if node.constant is None:
                yield node.type
                for part in parts_of(node).values():
                    yield from nodes(part)

    step = prepare(fetches, [], [feed], Options())
    return set(nodes(optimise(step, [()], Options())))


def test_calls_become_their_bodies():
    @Defun(tf.float32, func_name="Inner3")
    def inner(x):
        return tf.exp(x)

    @Defun(tf.float32, func_name="Outer3")
    def outer(x):
        return tf.tanh(inner(x)) + inner(x + 1.0)

    x = tf.placeholder("float32", [])
    y = outer(x) * outer(2.0 * x)
    assert types_of(y, feed=x) == {"Exp", "Tanh", "AddV2", "Mul"}
    plain = [tf.tanh(tf.exp(v)) + tf.exp(v + 1.0) for v in (x, 2.0 * x)]
    np.testing.assert_allclose(*run([y, plain[0] * plain[1]], {x: 0.5}), rtol=1e-6)
    assert "SymbolicGradient" not in types_of(*tf.gradients(y, x), feed=x)


def test_functional_loops_and_branches_become_structured():
    cond = Defun(tf.int32, tf.float32, func_name="Goes3")(lambda i, x: i < 5)
    body = Defun(tf.int32, tf.float32, func_name="Goes4")(lambda i, x: (i + 1, x * 2.0))
    x = tf.placeholder("float32", [])
    loop = functional.While([tf.cast(x, "int32"), x], cond, body)
    then = Defun(tf.float32, func_name="Goes5")(tf.exp)
    other = Defun(tf.float32, func_name="Goes6")(tf.tanh)
    branch = functional.If(x > 2.0, [x], then, other)
    assert {"_While", "_If", "Tanh", "Less"} <= types_of(*loop, *branch, feed=x)
    values = run([*loop, *branch], {x: 3.0})
    np.testing.assert_allclose(values, [5, 12, np.exp(3.0)], rtol=1e-6)


def test_what_asks_to_stay_a_call_is_one():
    @Defun(tf.float32, func_name="Stays", noinline=True)
    def stays(x):
        return x * 2.0

    x = tf.placeholder("float32", [])
    y = stays(x)
    assert types_of(y, feed=x) == {"Stays"}
    assert run(y, {x: 3.0}) == 6


def test_effects_of_bodies_keep_their_order():
    v = tf.get_variable("v", initializer=1.0, use_resource=True)

    @Defun(tf.float32, func_name="AddsTo")
    def add(x):
        tf.raw_ops.AssignAddVariableOp(resource=v.handle, value=x)
        return v.read_value()

    seen = []
    print_first = tf.py_func(lambda: seen.append(1), [], [])
    with tf.control_dependencies([print_first]):
        first = add(2.0)
    with tf.control_dependencies([first]):
        second = add(v.read_value() * 10.0)
    with tf.control_dependencies([second]):
        last = v.read_value()
    assert run([first, second, last]) == [3, 33, 33]
    assert seen == [1]
