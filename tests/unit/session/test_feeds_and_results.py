"""What goes into a step and what comes out: every dtype, unusual arrays, private memory."""

import array
import collections

import ml_dtypes
import numpy as np
import pytest

import headrace as tf


@pytest.fixture
def session():
    with tf.Graph().as_default(), tf.Session() as s:
        yield s


NUMBERS = ["float16", "bfloat16", "float32", "float64", "complex64", "complex128", "bool"]
NUMBERS += ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]


@pytest.mark.parametrize("name", NUMBERS)
def test_every_dtype_goes_through_a_step(session, name):
    x = tf.placeholder(name)
    vector, scalar = session.run([tf.identity(x), tf.identity(x[0])], {x: [1, 0]})
    expected = np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)
    assert vector.dtype == expected
    assert vector.tolist() == [1, 0]
    assert type(scalar) is expected.type


def test_strings_are_bytes_in_object_arrays(session):
    x = tf.placeholder(tf.string)
    y = tf.identity(x)
    for value in (["a", b"b"], np.array(["a", "b"]), np.array(["a", b"b"], object)):
        got = session.run(y, {x: value})
        assert got.dtype == object
        assert got.tolist() == [b"a", b"b"]
    assert session.run(y, {x: "é"}) == "é".encode()
    assert session.run(y, {x: np.array("z")}) == b"z"


def test_a_fed_tensor_is_fetched_as_an_array_of_any_rank(session):
    x = tf.placeholder(tf.float32)
    got = session.run(x, {x: 3})
    assert isinstance(got, np.ndarray)
    assert got.shape == ()
    assert isinstance(session.run(tf.identity(x), {x: 3}), np.float32)


class Matrix(np.ndarray):
    """As np.matrix: an array whose product is another one."""

    def __array_ufunc__(self, *args, **kwargs):
        raise AssertionError("a subclass reached a kernel")


BASE = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.mark.parametrize(
    "value",
    [
        BASE.T,
        np.asfortranarray(BASE),
        BASE.astype(">f4"),
        BASE[:, ::2],
        BASE[::-1],
        np.broadcast_to(np.float32(2), (3, 2)),
        BASE.copy().view(Matrix),
        np.ma.masked_array([1.0, 2.0], [0, 1], np.float32),
        np.float32(3),
        np.array(3),
        [np.float32(1), 2],
        [np.ones(2), np.zeros(2)],
        memoryview(BASE),
        range(3),
        True,
    ],
    ids=lambda v: type(v).__name__,
)
def test_unusual_values_are_plain_arrays_inside(session, value):
    x = tf.placeholder(tf.float32)
    got = session.run(tf.multiply(x, x), {x: value})
    plain = np.array(np.asarray(value), np.float32)
    assert type(got) in (np.ndarray, np.float32)
    np.testing.assert_array_equal(got, plain * plain)


def test_read_only_arrays_can_be_fed_and_results_can_be_written(session):
    x = tf.placeholder(tf.float32)
    value = np.ones(3, np.float32)
    value.flags.writeable = False
    for fetch in (x, tf.identity(x), tf.reshape(x, [3, 1])):
        got = session.run(fetch, {x: value})
        got[0] = 7
    assert value.tolist() == [1, 1, 1]


def test_floats_fed_to_integers_are_truncated(session):
    x = tf.placeholder(tf.int32)
    y = tf.identity(x)
    assert session.run(y, {x: [1.7, -1.7]}).tolist() == [1, -1]
    assert session.run(y, {x: np.float64(2.9)}) == 2


@pytest.mark.parametrize(
    ("dtype", "value", "kind"),
    [
        ("float32", None, TypeError),
        ("string", None, TypeError),
        ("string", [1], TypeError),
        ("int8", 300, TypeError),
        ("uint8", [-1], TypeError),
        ("float32", [[1], [1, 2]], ValueError),
        ("float32", "text", ValueError),
        ("float32", object(), TypeError),
        ("float32", {}, TypeError),
    ],
)
def test_what_can_not_be_fed_is_refused_with_the_tensors_name_and_line(session, dtype, value, kind):
    x = tf.placeholder(dtype, name="images")
    with pytest.raises(kind, match=r"Cannot feed .* for Tensor 'images:0' of type") as e:
        session.run(tf.identity(x), {x: value})
    assert "test_feeds_and_results.py" in str(e.value)


@pytest.mark.parametrize("key", [3, None, "nothing:0", "x", object()])
def test_keys_that_are_no_tensors(session, key):
    x = tf.placeholder(tf.float32, name="x")
    with pytest.raises(TypeError, match="Cannot interpret feed_dict key"):
        session.run(x, {key: 1})
    with pytest.raises(TypeError, match="Cannot interpret feed_dict key"):
        session.run(x, {x.op: 1})


Pair = collections.namedtuple("Pair", "left right")


@pytest.mark.parametrize(
    ("make", "values"),
    [
        (lambda a, b, c: (a, b, c), [1, 2, 3]),
        (lambda a, b, c: (a, (b, (c,))), (1, [2, (3,)])),
        (lambda a, b, c: Pair(a, Pair("b:0", c)), Pair(1, (2, 3))),
        (lambda a, b, c: tf.nn.rnn_cell.LSTMStateTuple(a, (b, c)), {"x": 1, "y": [2, 3]}),
    ],
)
def test_keys_that_are_nests(session, make, values):
    a, b, c = (tf.zeros([], name=name) for name in "abc")
    total = a + 10 * b + 100 * c
    for _ in range(3):
        assert session.run(total, {make(a, b, c): values}) == 321
    assert session.run(total, {Pair(a, b): (1, 2), c: 3}) == 321
    handle = session.partial_run_setup(total, [a, b, c])
    assert session.partial_run(handle, total, {make(a, b, c): values}) == 321


def test_nests_of_another_size_or_with_a_key_twice_are_refused(session):
    a, b = tf.zeros([2], name="a"), tf.zeros([2], name="b")
    for value in ([np.ones(2)], np.ones((2, 2)), ([1, 2], [3, 4])):
        with pytest.raises(ValueError, match="Key had 2 elements, but value had"):
            session.run(a, {(a, b): value})
    with pytest.raises(ValueError, match="is not unique"):
        session.run(a, {(a, (b,)): (np.ones(2), [np.ones(2)]), a: np.ones(2)})
    with pytest.raises(TypeError, match="Cannot interpret feed_dict key"):
        session.run(a, {(a, 3): (np.ones(2), np.ones(2))})


def test_a_sparse_placeholder_of_known_shape_is_fed_without_it(session):
    known = tf.sparse_placeholder(tf.float32, shape=[7, 9, 2])
    total = tf.sparse.reduce_sum(known)
    parts = (np.array([[3, 2, 0]]), np.array([1.0]))
    assert session.run(total, {known: parts}) == 1
    assert session.run(total, {known: tf.SparseTensorValue(*parts, np.array([7, 9, 2]))}) == 1
    unknown = tf.sparse_placeholder(tf.float32)
    with pytest.raises(tf.errors.InvalidArgumentError, match="feed a value for placeholder"):
        session.run(tf.sparse.reduce_sum(unknown), {unknown: parts})


def test_tensors_that_the_session_keeps_are_fed_by_their_handles(session):
    a = tf.constant(10.0) * 5.0
    handle = session.run(tf.get_session_handle(a))
    assert session.run(a * a, {a: handle}) == 2500
    assert session.run(a * a, {"mul:0": handle}) == 2500
    whole, vector = tf.placeholder(tf.int32), tf.placeholder(tf.float32, [2])
    with pytest.raises(tf.errors.InvalidArgumentError, match="to be int32 but float32 is provided"):
        session.run(whole + 1, {whole: handle})
    with pytest.raises(ValueError, match="Cannot feed value of shape"):
        session.run(vector + 1, {vector: handle})
    text = tf.placeholder(tf.string)
    kept = session.run(tf.get_session_handle(tf.constant("abc")))
    assert session.run(tf.identity(text), {text: kept}) == b"abc"
    handle.delete()
    with pytest.raises(tf.errors.InvalidArgumentError, match="is not in the session store"):
        session.run(a * a, {a: handle})


def test_feeds_by_name_by_variable_and_by_parts(session):
    x = tf.placeholder(tf.float32, name="x")
    v = tf.Variable([1.0, 2.0])
    r = tf.Variable([1.0, 2.0], use_resource=True)
    slices = tf.IndexedSlices(tf.constant([[1.0]]), tf.constant([0]))
    sparse = tf.SparseTensor([[0, 1]], [2.0], [3, 4])
    session.run(tf.global_variables_initializer())
    assert session.run(x * 2, {"x:0": 2}) == 4
    assert session.run(v * 2, {v: [5, 6]}).tolist() == [10, 12]
    assert session.run(r, {r: [5, 6]}).tolist() == [5, 6]
    assert session.run(v).tolist() == [1, 2]
    assert session.run(slices.indices * 2, {slices: ([[3.0]], [5])}).tolist() == [10]
    got = session.run(sparse, {sparse: ([[1, 1]], [7.0], [2, 2])})
    assert isinstance(got, tf.SparseTensorValue)
    assert got.values.tolist() == [7]


def test_the_last_of_two_keys_for_one_tensor_counts(session):
    x = tf.placeholder(tf.float32, name="x")
    y = x * 1
    for _ in range(2):
        assert session.run(y, {x: 1, "x:0": 2}) == 2
        assert session.run(y, {"x:0": 2, x: 1}) == 1


def test_a_defaultdict_of_feeds_is_not_asked_for_other_keys(session):
    x = tf.placeholder(tf.float32, name="x")
    feeds = collections.defaultdict(float, {"x:0": 4})
    assert session.run(x * 1, feeds) == 4
    assert list(feeds) == ["x:0"]


def test_results_are_the_callers_own(session):
    """Nothing that a caller does to a result shows in a variable, a constant or a later result."""
    v = tf.Variable([1.0, 2.0])
    r = tf.Variable([1.0, 2.0], use_resource=True)
    c = tf.constant([1.0, 2.0])
    session.run(tf.global_variables_initializer())
    fetches = [v, v.value(), tf.identity(v), r, r.read_value(), c, tf.reshape(c, [2, 1]), c[:]]
    fetches += [tf.transpose(tf.reshape(v, [1, 2])), tf.stop_gradient(r), tf.expand_dims(v, 0)]
    first = session.run(fetches)
    for i, a in enumerate(first):
        for b in first[i + 1 :]:
            assert not np.shares_memory(a, b)
        a[...] = 99
    for value in session.run(fetches):
        assert value.ravel().tolist() == [1, 2]


def test_results_of_assignments_are_private_too(session):
    v = tf.Variable([1.0, 2.0])
    session.run(v.initializer)
    got = session.run(v.assign_add([1.0, 1.0]))
    got[:] = 99
    assert session.run(v).tolist() == [2, 3]
    before = session.run(v)
    session.run(v.assign([7.0, 8.0]))
    assert before.tolist() == [2, 3]


def test_results_do_not_share_the_memory_of_what_was_fed(session):
    x = tf.placeholder(tf.float32)
    buffer = array.array("f", [1, 2])
    for fetch in (x, tf.identity(x), tf.reshape(x, [2, 1]), x[:1]):
        for value in (buffer, memoryview(buffer), np.frombuffer(buffer, np.float32)):
            got = session.run(fetch, {x: value})
            got[...] = 9
            assert list(buffer) == [1, 2]


@pytest.mark.parametrize("level", [-1, 0])
def test_waiting_for_a_placeholder_that_is_fed(level):
    options = tf.OptimizerOptions(opt_level=level)
    config = tf.ConfigProto(graph_options=tf.GraphOptions(optimizer_options=options))
    with tf.Graph().as_default(), tf.Session(config=config) as session:
        x = tf.placeholder(tf.float32, [])
        with tf.control_dependencies([x]):
            y = tf.constant(1.0) + 2.0
        assert session.run(y, {x: 5.0}) == 3
        with pytest.raises(tf.errors.InvalidArgumentError, match="You must feed"):
            session.run(y)
