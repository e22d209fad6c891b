"""What users read after the commonest mistakes, in full: what happened, where, what to do."""

import re
import textwrap

import numpy as np
import pytest

import headrace as tf
from headrace._src.session.graph_growth_warning import GraphGrowthWarning


@pytest.fixture
def session():
    with tf.Graph().as_default(), tf.Session() as s:
        yield s


def text(caught):
    """The message, with this file's path and line numbers made constant."""
    return re.sub(r"\S*test_messages\.py:\d+", "train.py:7", str(caught.value))


def full(message):
    return textwrap.dedent(message).strip()


def test_shapes_that_do_not_fit_a_product(session):
    x = tf.placeholder(tf.float32, [None, 784])
    w = tf.ones([128, 10])
    with pytest.raises(ValueError, match="Dimensions must be equal") as caught:
        tf.matmul(x, w, name="logits")
    assert text(caught) == full("""
        Dimensions must be equal, but are 784 and 128 for 'logits' (op: 'MatMul') with input shapes: [?,784], [128,10].
          made at train.py:7   tf.matmul(x, w, name="logits")
    """)  # noqa: E501


def test_shapes_that_do_not_fit_while_running(session):
    x = tf.placeholder(tf.float32)
    y = tf.add(x, tf.ones([3]), name="shifted")
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        session.run(y, {x: np.ones(4)})
    assert text(caught) == full("""
        Add 'shifted': Incompatible shapes: [4] vs. [3]
          made at train.py:7   y = tf.add(x, tf.ones([3]), name="shifted")
          inputs: Placeholder:0 float32[4], ones:0 float32[3]
          feeds: Placeholder:0 float32[4]
    """)


def test_a_feed_of_the_wrong_shape(session):
    x = tf.placeholder(tf.float32, [None, 3], name="x")
    with pytest.raises(ValueError, match="Cannot feed") as caught:
        session.run(x * 2, {x: np.ones((2, 4))})
    assert text(caught) == full("""
        Cannot feed value of shape (2, 4) for Tensor 'x:0', which has shape '(?, 3)'
          'x' was made at train.py:7   x = tf.placeholder(tf.float32, [None, 3], name="x")
    """)


def test_a_feed_of_the_wrong_type(session):
    x = tf.placeholder(tf.float32, name="x")
    with pytest.raises(ValueError, match="Cannot feed") as caught:
        session.run(x * 2, {x: ["one", "two"]})
    assert text(caught) == full("""
        Cannot feed ['one', 'two'] for Tensor 'x:0' of type float32: could not convert string to float: 'one'
          'x' was made at train.py:7   x = tf.placeholder(tf.float32, name="x")
    """)  # noqa: E501


def test_a_variable_without_a_value(session):
    w = tf.Variable(1.0, name="weights")
    with pytest.raises(tf.errors.FailedPreconditionError) as caught:
        session.run(w * 2)
    assert text(caught) == full("""
        Attempting to use uninitialized value weights
          made at train.py:7   w = tf.Variable(1.0, name="weights")
          give it a value first: session.run(tf.global_variables_initializer()), or restore it
    """)


def test_a_resource_variable_without_a_value(session):
    w = tf.Variable(1.0, name="weights", use_resource=True)
    with pytest.raises(tf.errors.FailedPreconditionError) as caught:
        session.run(w.value())
    assert text(caught) == full("""
        Error while reading resource variable weights from Container: localhost. This could mean that the variable was uninitialized. Not found: localhost/weights does not exist.
          made at train.py:7   session.run(w.value())
          give it a value first: session.run(tf.global_variables_initializer()), or restore it
    """)  # noqa: E501


def test_a_placeholder_that_is_not_fed(session):
    images = tf.placeholder(tf.float32, [None, 3], name="images")
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        session.run(images * 2)
    assert text(caught) == full("""
        You must feed a value for placeholder tensor 'images' with dtype float and shape [?,3]
          made at train.py:7   images = tf.placeholder(tf.float32, [None, 3], name="images")
          session.run(..., feed_dict={'images:0': value}); the key may be the tensor
    """)


def test_tensors_of_two_graphs(session):
    a = tf.constant(1.0, name="a")
    with tf.Graph().as_default():
        b = tf.constant(2.0, name="b")
    with pytest.raises(ValueError, match="same graph") as caught:
        a + b
    assert text(caught) == full("""
        Tensor("b:0", shape=(), dtype=float32) must be from the same graph as Tensor("a:0", shape=(), dtype=float32).
          'a' was made at train.py:7   a = tf.constant(1.0, name="a")
          'b' was made at train.py:7   b = tf.constant(2.0, name="b")
    """)  # noqa: E501
    with pytest.raises(ValueError, match="not an element") as caught:
        session.run(b)
    assert text(caught) == full("""
        Fetch argument <tf.Tensor 'b:0' shape=() dtype=float32> cannot be interpreted as a Tensor. (Tensor Tensor("b:0", shape=(), dtype=float32) is not an element of this graph.)
          'b' was made at train.py:7   b = tf.constant(2.0, name="b")
    """)  # noqa: E501


def test_types_that_do_not_match(session):
    x = tf.placeholder(tf.float32)
    labels = tf.placeholder(tf.int32, name="labels")
    with pytest.raises(TypeError) as caught:
        tf.multiply(x, labels)
    assert text(caught) == full("""
        Input 'y' of 'Mul' Op has type int32 that does not match type float32 of argument 'x'. No type is converted silently: use tf.cast.
          'labels' was made at train.py:7   labels = tf.placeholder(tf.int32, name="labels")
    """)  # noqa: E501
    with pytest.raises(TypeError) as caught:
        tf.nn.softmax(labels)
    assert text(caught) == full("""
        Value passed to parameter 'logits' has DataType int32 not in list of allowed values: float16, bfloat16, float32, float64 (op: 'Softmax')
          'labels' was made at train.py:7   labels = tf.placeholder(tf.int32, name="labels")
    """)  # noqa: E501


def test_a_variable_that_exists_already(session):
    tf.get_variable("w", [1])
    with pytest.raises(ValueError, match="already exists") as caught:
        tf.get_variable("w", [1])
    assert text(caught) == full("""
        Variable w already exists, disallowed. Did you mean to set reuse=True or reuse=tf.AUTO_REUSE in VarScope? Originally defined at:

          train.py:7   tf.get_variable("w", [1])
    """)  # noqa: E501


def test_fetching_nothing(session):
    loss, train_op = tf.constant(1.0), None
    with pytest.raises(TypeError, match="Fetch argument") as caught:
        session.run([loss, train_op])
    assert text(caught) == (
        "Fetch argument None has invalid type <class 'NoneType'>: a fetch is a tensor, an "
        "operation, a name, or a list or dict of these. Did a function that builds the graph "
        "return nothing?"
    )


def test_names_that_do_not_exist(session):
    tf.constant(1.0, name="accuracy")
    with pytest.raises(ValueError, match="Fetch argument") as caught:
        session.run("acuracy:0")
    assert text(caught) == (
        "Fetch argument 'acuracy:0' cannot be interpreted as a Tensor. (The name 'acuracy:0' "
        "refers to a Tensor which does not exist. The operation, 'acuracy', does not exist in the "
        "graph. Did you mean 'accuracy'?)"
    )
    with pytest.raises(TypeError, match="feed_dict key") as caught:
        session.run("accuracy:0", {"accuracy": 1.0})
    assert text(caught) == (
        "Cannot interpret feed_dict key as Tensor: The name 'accuracy' refers to an Operation, not "
        'a Tensor. Tensor names must be of the form "<op_name>:<output_index>". Did you mean '
        '"accuracy:0"?'
    )


def test_a_graph_that_grows(session):
    x = tf.constant(1.0)
    with pytest.warns(GraphGrowthWarning) as caught:
        for _ in range(30):
            session.run(tf.identity(x))
    message = re.sub(r"\S*test_messages\.py:\d+", "train.py:7", str(caught[0].message))
    assert message == (
        "the graph grew before each of the last 20 runs, most recently by 1 operations made at "
        "train.py:7   session.run(tf.identity(x)). Build the graph once, before the loop, and feed "
        "what changes; tf.get_default_graph().finalize() turns this mistake into an error."
    )


def test_an_exception_in_a_python_function(session):
    def load(x):
        raise ValueError("no such row")

    y = tf.py_func(load, [tf.constant(1.0)], tf.float32, name="loaded")
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        session.run(y)
    assert text(caught) == full("""
        ValueError: no such row
          made at train.py:7   y = tf.py_func(load, [tf.constant(1.0)], tf.float32, name="loaded")
          raised at train.py:7   raise ValueError("no such row")
    """)
    assert isinstance(caught.value.__cause__, ValueError)


def test_the_calls_that_made_an_operation_are_shown(session):
    def dense(x):
        return tf.matmul(x, tf.ones([3, 4]), name="product")

    def model(depth):
        return model(depth - 1) if depth else dense(x)

    x = tf.placeholder(tf.float32, [None, None])
    for depth, repeated in (0, 0), (1, 1), (9, 3):
        y = model(depth)
        with pytest.raises(tf.errors.InvalidArgumentError) as caught:
            session.run(y, {x: np.ones((2, 2))})
        _, made, *calls = text(caught).splitlines()[: -len(caught.value.details)]
        assert made == '  made at train.py:7   return tf.matmul(x, tf.ones([3, 4]), name="product")'
        line = "    called from train.py:7   return model(depth - 1) if depth else dense(x)"
        assert calls[: repeated + 1] == [line] * (repeated + 1)
        assert calls[repeated + 1 :] == (
            ["    called from train.py:7   y = model(depth)"] if depth < 9 else []
        )


def test_an_exception_deep_in_a_python_function_shows_its_calls(session):
    def find(row):
        return {}[row]

    def load(x):
        return find(int(x))

    y = tf.py_func(load, [tf.constant(1.0)], tf.float32, name="loaded")
    with pytest.raises(tf.errors.UnknownError) as caught:
        session.run(y)
    assert text(caught) == full("""
        KeyError: 1
          made at train.py:7   y = tf.py_func(load, [tf.constant(1.0)], tf.float32, name="loaded")
          raised at train.py:7   return {}[row]
            called from train.py:7   return find(int(x))
    """)


def test_a_finalized_graph(session):
    session.graph.finalize()
    with pytest.raises(RuntimeError) as caught:
        tf.constant(1.0)
    assert text(caught) == full("""
        Graph is finalized and cannot be modified.
          modified at train.py:7   tf.constant(1.0)
          finalized at train.py:7   session.graph.finalize()
    """)


def test_a_closed_session(session):
    x = tf.constant(1.0)
    call = session.make_callable(x)
    session.close()
    for use in (lambda: session.run(x), call, lambda: session.partial_run("handle", x)):
        with pytest.raises(RuntimeError) as caught:
            use()
        first, *lines = text(caught).splitlines()
        assert first == "Attempted to use a closed Session."
        assert lines[0].startswith("  used at train.py:7   ")
        assert lines[-1] == "  closed at train.py:7   session.close()"


def test_a_closed_monitored_session(session):
    x = tf.constant(1.0)
    with tf.train.MonitoredSession() as monitored:
        monitored.run(x)
    with pytest.raises(RuntimeError) as caught:
        monitored.run(x)
    assert text(caught) == full("""
        Attempted to use a closed Session.
          used at train.py:7   monitored.run(x)
          closed at train.py:7   with tf.train.MonitoredSession() as monitored:
    """)


def test_variables_that_are_there_twice(session):
    v = tf.Variable(1.0, name="v")
    with pytest.raises(ValueError, match="At least two variables have the same name: v") as caught:
        tf.train.Saver([v, v])
    assert text(caught).splitlines()[1:] == [
        """  'v' was made at train.py:7   v = tf.Variable(1.0, name="v")"""
    ]
    tf.train.create_global_step()
    with pytest.raises(ValueError, match='"global_step" already exists') as caught:
        tf.train.create_global_step()
    assert text(caught).splitlines()[1].startswith("  'global_step' was made at train.py:7   ")
    partitioner = tf.fixed_size_partitioner(2)
    tf.get_variable("p", [4], partitioner=partitioner)
    with pytest.raises(ValueError, match="p already exists") as caught:
        tf.get_variable("p", [4], partitioner=partitioner)
    assert text(caught).splitlines()[1].startswith("  'p/part_0' was made at train.py:7   ")


def test_branches_that_differ(session):
    p = tf.placeholder(tf.bool)

    def one():
        return tf.constant(1.0)

    def two():
        return tf.constant(1), tf.constant(2)

    with pytest.raises(ValueError, match="Incompatible return values of true_fn") as caught:
        tf.cond(p, one, two)
    assert text(caught).splitlines()[-3:] == [
        "  true_fn: train.py:7   def one():",
        "  false_fn: train.py:7   def two():",
        "  called at train.py:7   tf.cond(p, one, two)",
    ]
    with pytest.raises(ValueError, match="must have the same type: float32, int32") as caught:
        tf.cond(p, one, lambda: 2)
    assert text(caught).splitlines()[-1] == "  called at train.py:7   tf.cond(p, one, lambda: 2)"


def test_a_loop_that_returns_other_variables(session):
    def body(i):
        return i, i

    with pytest.raises(ValueError, match="don't have the same nested structure") as caught:
        tf.while_loop(lambda i: i < 3, body, [0])
    assert text(caught).splitlines()[-2:] == [
        "  body: train.py:7   def body(i):",
        "  called at train.py:7   tf.while_loop(lambda i: i < 3, body, [0])",
    ]


def test_a_node_name_that_is_taken(session):
    tf.constant(1.0, name="a")
    with pytest.raises(ValueError, match="Duplicate node name") as caught:
        tf.constant(1.0, name="a/")
    assert text(caught) == full("""
        Duplicate node name in graph: 'a'
          'a' was made at train.py:7   tf.constant(1.0, name="a")
    """)


def test_an_error_in_a_gradient_names_the_forward_operation(session):
    x = tf.placeholder(tf.float32)
    y = tf.check_numerics(x, "bad loss")
    wrong = tf.constant(np.nan)
    d = tf.gradients(y, x, grad_ys=[wrong])
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        session.run(d, {x: 1})
    assert text(caught) == full("""
        Not a number (NaN) or infinity (Inf) values detected in gradient. bad loss : Tensor had NaN values
          made at train.py:7   d = tf.gradients(y, x, grad_ys=[wrong])
          for 'CheckNumerics', made at train.py:7   y = tf.check_numerics(x, "bad loss")
    """)  # noqa: E501


def test_a_device_that_does_not_exist(session):
    with tf.device("/gpu:0"):
        a = tf.constant(1.0, name="a")
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        session.run(a)
    assert text(caught) == full("""
        Cannot assign a device for operation a: node a was explicitly assigned to /device:GPU:0 but available devices are [ /job:localhost/replica:0/task:0/device:CPU:0 ]. Make sure the device specification refers to a valid device, or set allow_soft_placement in the session's ConfigProto.
          made at train.py:7   a = tf.constant(1.0, name="a")
    """)  # noqa: E501


def test_our_own_frames_are_folded_away(session):
    x = tf.placeholder(tf.float32)
    y = tf.add(x, tf.ones([3]))
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        session.run(y, {x: np.ones(4)})
    assert [frame.name for frame in caught.traceback] == [
        "test_our_own_frames_are_folded_away",
        "run",
    ]
    assert caught.value.__cause__ is None
    with pytest.raises(ValueError, match="must be equal") as caught:
        tf.multiply(tf.ones([2]), tf.ones([3]))
    assert [frame.name for frame in caught.traceback][-1] == "build_op"
