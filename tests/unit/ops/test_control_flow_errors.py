"""What tf.cond, tf.case, tf.switch_case and tf.while_loop refuse, and how they say so."""

import pytest

import headrace as tf


@pytest.fixture(autouse=True)
def fresh_graph():
    with tf.Graph().as_default():
        yield


def one():
    return tf.constant(1.0)


def true():
    return tf.constant(True)


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda: tf.cond(True, one, one), TypeError, "pred must not be a Python bool"),
        (lambda: tf.cond(true(), one), TypeError, "false_fn argument required"),
        (lambda: tf.cond(true(), one, 1), TypeError, "false_fn must be callable"),
        (lambda: tf.cond(true(), one, one, fn1=one), TypeError, "true_fn and fn1 may not be set"),
        (lambda: tf.cond(true(), lambda: None, one), ValueError, "true_fn must have a return"),
        (lambda: tf.cond(true(), one, lambda: None), ValueError, "false_fn must have a return"),
        (lambda: tf.cond(true(), list, list), ValueError, "at least one result"),
        (lambda: tf.cond(true(), one, lambda: [1.0, 2.0]), ValueError, "same nested structure"),
        (lambda: tf.cond(true(), lambda: (1, 2), lambda: [1, 2]), TypeError, "same sequence type"),
        (lambda: tf.cond(true(), one, lambda: 1), ValueError, "same type: float32, int32"),
        (lambda: tf.cond(true(), tf.no_op, one), ValueError, "same type: bool, float32"),
        (lambda: tf.cond(tf.constant([True, False]), one, one), ValueError, "scalar"),
        (lambda: tf.cond(tf.constant(1), one, one), TypeError, "int32"),
        (lambda: tf.case(1), TypeError, "fns must be a list, tuple, or dict"),
        (lambda: tf.case([]), ValueError, "at least one pair"),
        (lambda: tf.case([1]), TypeError, "must be a 2-tuple"),
        (lambda: tf.case([(True, one)]), TypeError, "pred must be a Tensor, got: True"),
        (lambda: tf.case([(true(), 1)]), TypeError, "fn for pred Const:0 must be callable"),
        (lambda: tf.case([(true(), one)], default=1), TypeError, "false_fn must be callable"),
        (lambda: tf.switch_case(0, [one]), TypeError, "branch_index must a Tensor"),
        (lambda: tf.switch_case(one(), [one]), TypeError, "branch_index must an integer Tensor"),
        (lambda: tf.switch_case(tf.constant(0), 3), TypeError, "must be a list, tuple, or dict"),
        (lambda: tf.switch_case(tf.constant(0), [one, 1]), TypeError, "must be a 2-tuple"),
        (
            lambda: tf.switch_case(tf.constant(0), {0: one, 2: one}),
            ValueError,
            r"contiguous range of \[0 to 2\) but found \{0,2\}",
        ),
    ],
)
def test_branches(build, error, message):
    with pytest.raises(error, match=message):
        build()


def grow(x):
    return tf.concat([x, x], 0)


def yes(*_):
    return True


def same(x):
    return x


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((1, same, [0]), TypeError, "cond must be callable"),
        ((yes, 1, [0]), TypeError, "body must be callable"),
        ((yes, same, []), ValueError, "No loop variables provided"),
        ((yes, same, [0], None, 0), TypeError, "parallel_iterations must be a positive integer"),
        ((yes, lambda x: (x, x), [0]), ValueError, "same nested structure"),
        ((yes, lambda x: None, [0]), ValueError, "None values not supported"),
        ((yes, lambda x: 1.0, [0]), TypeError, "type int32, but has type float32 after one"),
        ((lambda x: x, same, [0]), TypeError, "int32"),
        ((lambda x: tf.constant([True]), same, [0]), ValueError, "scalar"),
        ((yes, grow, [[1.0]]), ValueError, r"with shape \(1,\), but has shape \(2,\) after one"),
        (
            (yes, same, [[1.0]], [tf.TensorShape([3])]),
            ValueError,
            r"enters the loop with shape \(1,\), but the specified shape invariant is \(3,\)",
        ),
        ((yes, same, [[1.0]], [tf.TensorShape([1])] * 2), ValueError, "same nested structure"),
    ],
)
def test_loops(arguments, error, message):
    variables = [tf.constant(v) if isinstance(v, list) else v for v in arguments[2]]
    with pytest.raises(error, match=message):
        tf.while_loop(*arguments[:2], variables, *arguments[3:])


def test_a_limit_is_a_scalar():
    with pytest.raises(ValueError, match=r"maximum_iterations must be a scalar, saw shape: \(2,\)"):
        tf.while_loop(yes, same, [0], maximum_iterations=[1, 2])


@pytest.mark.parametrize("function", [tf.map_fn, tf.scan, tf.foldl, tf.foldr])
def test_functions_over_rows(function):
    with pytest.raises(TypeError, match="fn must be callable"):
        function(1, tf.ones([2]))
    with pytest.raises(ValueError, match="elems must be a 1\\+ dimensional Tensor, not a scalar"):
        function(same, tf.ones([]))
    assert tf.get_variable_scope().caching_device is None


def test_asserts_in_branches_fail_only_if_taken():
    x = tf.placeholder(tf.float32, [])

    def checked():
        with tf.control_dependencies([tf.Assert(x > 2, ["too small:", x])]):
            return tf.identity(x)

    y = tf.cond(x > 1, checked, lambda: -x)
    with tf.Session() as session:
        assert session.run(y, {x: 0.5}) == -0.5
        assert session.run(y, {x: 3.0}) == 3.0
        with pytest.raises(tf.errors.InvalidArgumentError, match="too small"):
            session.run(y, {x: 1.5})


def test_case_checks_its_predicates_at_run_time():
    x = tf.placeholder(tf.float32, [])
    pairs = [(x > 1, lambda: x), (x > 2, lambda: -x)]
    exclusive, chosen = tf.case(pairs, lambda: 0.0, exclusive=True), tf.case(pairs)
    with tf.Session() as session:
        assert session.run([exclusive, chosen], {x: 1.5}) == [1.5, 1.5]
        with pytest.raises(tf.errors.InvalidArgumentError, match="exclusive=True"):
            session.run(exclusive, {x: 3.0})
        with pytest.raises(tf.errors.InvalidArgumentError, match="None of conditions"):
            session.run(chosen, {x: 0.0})
