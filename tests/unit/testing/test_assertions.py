"""tf.test.TestCase: assertions pass and fail as in TensorFlow 1.15.5, with its messages."""

import random
from collections import namedtuple

import numpy as np
import pytest

import headrace as tf

Pair = namedtuple("Pair", "left right")


@pytest.fixture
def case():
    class Case(tf.test.TestCase):
        def runTest(self):
            pass

    made = Case()
    made.setUp()
    yield made
    made.doCleanups()
    tf.reset_default_graph()


def fails(call, *args, message, **kwargs):
    with pytest.raises(AssertionError) as caught:
        call(*args, **kwargs)
    assert message in str(caught.value)


def test_close(case):
    case.assertAllClose([1.0, 2.0], [1.0, 2.0000001])
    case.assertAllClose([1.0, np.nan], [1.0, np.nan])
    case.assertAllClose(1.0, 1.1, rtol=0.2)
    case.assertAllClose({"a": Pair([1.0], (2.0, 3.0))}, {"a": Pair([1.0], (2.0, 3.0))})
    case.assertAllClose([[1.0, 2.0], [3.0]], [[1.0, 2.0], [3.0]])
    fails(case.assertAllClose, [1.0, 2.0], [1.0, 2.5], message="not close dif = [0.5]")
    fails(case.assertAllClose, {"a": {"b": 1.0}}, {"a": {"b": 2.0}}, message="a[a][b] is different")
    fails(case.assertAllClose, [[1.0, 2.0], [3.0]], [[1.0, 2.0], [4.0]], message="a[1] is differ")
    fails(case.assertAllClose, [1.0], [1.0, 2.0], message="Shape mismatch: expected (1,), got (2,)")
    fails(case.assertAllClose, {"a": 1}, {"b": 1}, message="mismatched keys")
    with pytest.raises(ValueError, match="Can't compare dict to non-dict"):
        case.assertAllClose({"a": 1}, [1])
    fails(case.assertNotAllClose, [1.0], [1.0], message="close at all elements")


def test_tolerances_by_type(case):
    half = np.float16([1.0]), np.float16([1.001])
    case.assertAllCloseAccordingToType(*half)
    fails(case.assertAllClose, *half, message="not close")
    doubles = np.float64([1.0]), np.float64([1.001])
    fails(case.assertAllCloseAccordingToType, *doubles, message="not close")


def test_equal(case):
    case.assertAllEqual([1, 2], [1, 2])
    case.assertAllEqual([np.nan, 1.0], [np.nan, 1.0])
    fails(case.assertAllEqual, [[1, 2]], [[1, 3]], message="not equal rhs = [3]")
    fails(case.assertAllEqual, 1, 2, msg="because", message="because")
    fails(case.assertAllEqual, [b"a"], ["a"], message="not equal")
    fails(case.assertNotAllEqual, [1], [1], message="The two values are equal")


def test_tensors_are_evaluated(case):
    case.assertAllEqual(tf.constant([1, 2]), [1, 2])
    case.assertAllClose([tf.constant(1.0), 2.0], [1.0, tf.constant(2.0)])
    assert case.evaluate({"a": tf.constant(3)}) == {"a": 3}
    case.assertShapeEqual(np.zeros((2, 3)), tf.zeros([2, 3]))
    fails(case.assertShapeEqual, np.zeros((2, 3)), tf.zeros([2, 4]), message="not equal")
    case.assertDTypeEqual(tf.constant(1.0), tf.float32)
    fails(case.assertDTypeEqual, np.float32(1), np.float64, message="float64")


def test_ranges_and_sets(case):
    case.assertAllGreater([2, 3], 1)
    case.assertAllLessEqual([2, 3], 3)
    fails(case.assertAllGreaterEqual, [1.0, 0.0], 1, message="0.0 not greater than or equal to 1")
    fails(case.assertAllLess, [1.0, 2.0], 2, message="2.0 not less than 2")
    message = "1 of the 2 element(s) are outside the range [0, 3)"
    fails(case.assertAllInRange, [1.0, 3.0], 0, 3, open_upper_bound=True, message=message)
    fails(case.assertAllInRange, [[1.0, 3.0]], 0, 2, message="  [0, 1] : 3.0")
    fails(case.assertAllInRange, ["a"], 0, 2, message="does not have an ordered numeric type")
    fails(case.assertAllInSet, [1, 3], {1, 2}, message="not in the set {1, 2}: [3]")


def test_near(case):
    case.assertArrayNear([1.0, 2.0], [1.1, 2.1], 0.2)
    fails(case.assertNear, 1.0, 2.0, 0.5, message="1.000000 != 2.000000 +/- 0.500000")
    fails(case.assertNDArrayNear, np.ones(2), np.zeros(2), 1, message="the difference is 1.41")


def test_sessions(case):
    with case.session() as one, case.session() as other:
        assert one is not other and tf.get_default_session() is other
        assert tf.constant(1).device == "/device:CPU:0"
    with case.session(use_gpu=True):
        assert tf.constant(1).device == ""
    with case.cached_session() as one, case.test_session() as other:
        assert one is other
    message = "The graph used to get the cached session is different"
    with pytest.raises(ValueError, match=message), case.cached_session(graph=tf.Graph()):
        pass
    graph = tf.Graph()
    with case.test_session(graph=graph) as session:
        assert session.graph is graph is tf.get_default_graph()


def test_each_test_starts_from_the_same(case):
    def drawn():
        case.setUp()
        with case.session() as session:
            return session.run(tf.random_uniform([2])).tolist(), np.random.rand(), random.random()

    assert drawn() == drawn()
    np.testing.assert_allclose(drawn()[0], [0.3869294, 0.36002624], rtol=1e-6)  # TensorFlow's
    assert drawn()[1:] == (0.18463433217903202, 0.3499765785632496)


def test_errors_of_operations(case):
    x, y = tf.placeholder_with_default([1.0, 2.0], [None]), tf.placeholder(tf.float32, [None])
    with case.session() as session:
        with case.assertRaisesOpError("Incompatible shapes"):
            session.run(x + y, {y: [1.0, 2.0, 3.0]})
        with pytest.raises(AssertionError), case.assertRaisesOpError("not in the message"):
            session.run(x + y, {y: [1.0, 2.0, 3.0]})
    unmet = case.assertRaisesWithPredicateMatch(ValueError, "text")
    with pytest.raises(AssertionError, match="ValueError not raised"), unmet:
        pass
    with case.assertRaisesWithPredicateMatch(ValueError, lambda e: "b" in str(e)):
        raise ValueError("abc")


def test_messages_devices_and_old_names(case):
    case.assertProtoEquals('node { name: "a" }', tf.GraphDef(node=[tf.NodeDef(name="a")]))
    fails(case.assertProtoEquals, 'node { name: "a" }', tf.GraphDef(), message='name: "a"')
    case.assertDeviceEqual("/cpu:0", "/device:CPU:0")
    fails(case.assertDeviceEqual, "/job:a", "/job:b", message="Devices /job:a and /job:b are not")
    case.assertEquals(1, 1)
    case.assertItemsEqual([1, 2], [2, 1])
    with case.assertRaisesRegexp(ValueError, "b"):
        raise ValueError("abc")


def test_threads_speak_up(case):
    def bad():
        raise ValueError("in a thread")

    got = []
    fine = case.checkedThread(got.append, args=(3,))
    fine.start()
    fine.join()
    assert got == [3] and not fine.is_alive()
    thread = case.checkedThread(bad)
    thread.start()
    fails(thread.join, message="Error in checkedThread: in a thread")
    forgotten = case.checkedThread(lambda: None)
    forgotten.start()
    fails(case.tearDown, message="A checked thread was not joined.")


def test_temporary_directories(case):
    place = case.get_temp_dir()
    assert place == case.get_temp_dir() and place.startswith(tf.test.get_temp_dir())
    assert tf.gfile.ListDirectory(place) == []
