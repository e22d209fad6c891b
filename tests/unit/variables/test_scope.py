"""Variable scopes: names, reuse, inherited settings and errors, as TensorFlow 1.15.5 has them."""

import pytest

import headrace as tf


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def scope_names():
    """Open many scopes, the default-named ones again and again; what each is called."""
    names = []

    def default(name):
        return tf.variable_scope(None, name)

    with tf.variable_scope("o"):
        for _ in range(2):
            with default("a") as s:
                names.append(s.name)
                for _ in range(2):
                    with default("b") as q:
                        names.append(q.name)
        with tf.variable_scope("a") as s:
            names.append(s.name)
        with default("a") as kept:
            names.append(kept.name)
    with tf.variable_scope("o"), default("a") as s:
        names.append(s.name)
    for _ in range(2):
        with tf.variable_scope(kept):
            for _ in range(2):
                with default("b") as q:
                    names.append((q.name, q.original_name_scope))
    return names


def test_default_names_are_unique_within_their_scope():
    assert scope_names() == [
        *("o/a", "o/a/b", "o/a/b_1", "o/a_1", "o/a_1/b", "o/a_1/b_1"),
        *("o/a", "o/a_2", "o/a"),
        *(("o/a_2/b", "a_2/b/"), ("o/a_2/b_1", "a_2/b_1/")),
        *(("o/a_2/b", "a_2_1/b/"), ("o/a_2/b_1", "a_2_1/b_1/")),
    ]


def test_reuse_is_inherited():
    auto = tf.AUTO_REUSE
    with tf.variable_scope("kept") as kept:
        pass
    with tf.variable_scope("a", reuse=True):
        with tf.variable_scope("b", reuse=False) as inner:
            assert inner.reuse is True
        with tf.variable_scope("b", reuse=auto) as inner:
            assert inner.reuse is auto
    with tf.variable_scope("a", reuse=auto), tf.variable_scope("b") as inner:
        assert inner.reuse is auto
        with tf.variable_scope(kept) as again:
            assert again.reuse is False and again.name == "kept"


def test_sharing():
    with tf.variable_scope("s") as scope:
        v = tf.get_variable("v", [2])
        scope.reuse_variables()
        assert tf.get_variable("v") is v
    with tf.variable_scope("s", reuse=True):
        assert tf.get_variable("v", [2], tf.float32) is v
    with tf.variable_scope("s", reuse=tf.AUTO_REUSE):
        assert tf.get_variable("v") is v
        assert tf.get_variable("new", [1]).name == "s/new:0"


def test_settings_are_inherited_and_replaced():
    ones, zeros = tf.ones_initializer(), tf.zeros_initializer()

    def clip(x):
        return x

    outer = tf.variable_scope("a", initializer=ones, dtype=tf.float64, constraint=clip)
    with outer, tf.variable_scope("b", initializer=zeros, caching_device="/cpu:0") as scope:
        assert (scope.name, scope.original_name_scope) == ("a/b", "a/b/")
        assert (scope.initializer, scope.dtype, scope.constraint) == (zeros, tf.float64, clip)
        v = tf.get_variable("v", [1])
        assert v.constraint is clip and v.value().device == "/device:CPU:0"
        scope.set_dtype(tf.int32)
        scope.set_initializer(ones)
        assert tf.get_variable("w", [1]).dtype.base_dtype is tf.int32
        assert scope.global_variables() == scope.get_collection("variables") == [v, *_others(v)]
    assert tf.get_variable_scope().name == ""


def _others(v):
    return [u for u in tf.global_variables() if u is not v]


def test_a_scope_of_another_graph():
    other = tf.Graph()
    with other.as_default():
        x = tf.constant(1.0)
    with tf.variable_scope("s", values=[x]):
        assert tf.get_variable("v", [1]).graph is other


def test_scopes_are_left_after_errors():
    with pytest.raises(KeyError), tf.variable_scope("s"):
        raise KeyError
    assert tf.get_variable_scope().name == "" and tf.constant(1.0).name == "Const:0"


def test_the_same_scope_object_nests():
    scope = tf.variable_scope("s")
    with scope, scope:
        assert tf.get_variable("v", [1]).name == "s/s/v:0"


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((None,), TypeError, "If default_name is None then name_or_scope is required"),
        ((3,), TypeError, "must be a string or VariableScope"),
        ({"name_or_scope": "a", "reuse": 3}, ValueError, "must be True or False or None"),
        (
            {"name_or_scope": None, "default_name": "a", "reuse": True},
            ValueError,
            "cannot be used without a name_or_scope",
        ),
        ({"name_or_scope": "a", "auxiliary_name_scope": 3}, TypeError, "`True` or `False`"),
    ],
)
def test_bad_scopes(arguments, error, message):
    with pytest.raises(error, match=message):
        if isinstance(arguments, dict):
            tf.variable_scope(**arguments)
        else:
            tf.variable_scope(*arguments)


# -- Errors of get_variable ------------------------------------------------------------------------


def test_made_twice():
    tf.get_variable("w", [1])
    with pytest.raises(ValueError, match=r"(?s)w already exists.*test_scope.py:\d+ .*\"w\", \[1\]"):
        tf.get_variable("w", [1])


def test_reused_but_not_there():
    with tf.variable_scope("s", reuse=True), pytest.raises(ValueError, match="s/w does not exist"):
        tf.get_variable("w", [1])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"shape": [2]}, r"specified shape \(2,\) and found shape \(1,\)"),
        ({"dtype": tf.int32}, "specified dtype int32 and found dtype float32_ref"),
    ],
)
def test_shared_with_other_properties(arguments, message):
    tf.get_variable("w", [1])
    with tf.variable_scope("", reuse=True), pytest.raises(ValueError, match=message):
        tf.get_variable("w", **arguments)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({}, ValueError, "The initializer passed is not valid"),
        ({"shape": [None, 2]}, ValueError, "The initializer passed is not valid"),
        ({"shape": [2], "initializer": [1.0, 2.0]}, ValueError, "do not specify shape"),
        ({"dtype": tf.int32, "initializer": [1.0]}, ValueError, "explicit dtype .* don't match"),
        ({"shape": [2], "dtype": tf.complex64}, ValueError, "An initializer for variable w of"),
        ({"shape": [2], "custom_getter": 3}, ValueError, "custom_getter which is not callable"),
        ({"shape": [2], "partitioner": 3}, ValueError, "Partitioner must be callable"),
        ({"shape": [2], "regularizer": 3}, TypeError, "not callable"),
    ],
)
def test_bad_arguments(arguments, error, message):
    with pytest.raises(error, match=message):
        tf.get_variable("w", **arguments)


def test_local_variables_are_not_trained():
    assert tf.get_local_variable("l", [1]).trainable is False
    with pytest.raises(ValueError, match="can't be trainable"):
        tf.get_local_variable("m", [1], trainable=True)


# -- Custom getters --------------------------------------------------------------------------------


def test_custom_getters_nest():
    calls = []

    def outer(getter, name, *args, **kwargs):
        calls.append(("outer", name, sorted(kwargs)))
        return getter(name, *args, **kwargs)

    def inner(getter, name, *args, **kwargs):
        calls.append(("inner", name))
        return getter(name + "_x", *args, **kwargs)

    with (
        tf.variable_scope("s", custom_getter=outer),
        tf.variable_scope("t", custom_getter=inner),
    ):
        assert tf.get_variable("w", [1]).name == "s/t/w_x:0"
        own = tf.get_variable("w", [1], custom_getter=lambda getter, **k: getter(**k))
        assert own.name == "s/t/w:0"
    assert calls[0] == ("inner", "s/t/w") and calls[1][:2] == ("outer", "s/t/w_x")
    assert calls[1][2] == [
        *("aggregation", "caching_device", "collections", "constraint", "dtype", "initializer"),
        *("partitioner", "regularizer", "reuse", "shape", "synchronization", "trainable"),
        *("use_resource", "validate_shape"),
    ]


def test_a_custom_getter_may_be_told_only_what_it_takes():
    def getter_without_constraint(
        getter,
        name,
        shape,
        dtype,
        initializer,
        regularizer,
        reuse,
        trainable,
        collections,
        caching_device,
        partitioner,
        validate_shape,
        use_resource,
        synchronization,
        aggregation,
    ):
        return getter(name, shape=shape)

    with tf.variable_scope("s", custom_getter=getter_without_constraint):
        assert tf.get_variable("w", [1]).name == "s/w:0"


# -- Templates -------------------------------------------------------------------------------------


def test_template():
    made = tf.make_template(
        "t", lambda: (tf.get_variable("w", [1]), tf.Variable(1.0, trainable=False))
    )
    assert made.variables == [] and made.variable_scope is None and made.name == "t"
    (w, first), (again, second) = made(), made()
    assert w is again and first is not second
    assert made.variable_scope.name == made.var_scope.name == "t"
    assert made.variable_scope_name == "t/"
    assert made.trainable_variables == [w] and made.variables == made.weights
    assert made.non_trainable_variables[0] is first


def test_template_makes_no_trainable_variables_later():
    made = tf.make_template("t", lambda: tf.Variable(1.0))
    made()
    with pytest.raises(ValueError, match="Trainable variable created"):
        made()


def test_template_errors_say_where_it_was_made():
    def fails():
        raise KeyError("missing")

    with pytest.raises(KeyError) as caught:
        tf.make_template("t", fails)()
    assert "test_scope.py" in caught.value.__notes__[0]


def test_a_scope_without_a_name_scope_keeps_the_one_that_is_open():
    with tf.variable_scope("outer"):
        with tf.variable_scope("inner", auxiliary_name_scope=False) as inner:
            assert inner.original_name_scope == "outer/"
            assert tf.no_op().name == "outer/NoOp"
        with tf.variable_scope(inner) as again:
            assert again.original_name_scope == "outer/"
        with tf.variable_scope(None, "made", auxiliary_name_scope=False) as made:
            assert (made.name, made.original_name_scope) == ("outer/made", "outer/")
    with tf.name_scope("names"), tf.variable_scope("", auxiliary_name_scope=False) as empty:
        assert empty.original_name_scope == "names/"
    with tf.variable_scope("top", auxiliary_name_scope=False) as top:
        assert top.original_name_scope == ""


def test_scopes_close_in_the_order_of_their_nesting():
    outer, inner = tf.variable_scope("a"), tf.variable_scope("b")
    outer.__enter__()
    inner.__enter__()
    with pytest.raises(RuntimeError, match=r"Improper nesting of variable_scope\."):
        outer.__exit__(None, None, None)
    assert tf.get_variable_scope().name == "a/b"
    inner.__exit__(None, None, None)
    outer.__exit__(None, None, None)
    assert tf.get_variable_scope().name == ""
