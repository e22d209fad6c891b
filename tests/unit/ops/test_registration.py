"""Ops, kernels and devices that other packages register."""

import subprocess
import sys
import textwrap
import threading

import pytest

from headrace._src.ops.base import registration

PACKAGE = '''
import numpy as np
import headrace as tf

runs = []


class Toy(tf.Device):
    """A device that counts."""


tf.register_device("TOY", Toy, count=2)


@tf.register_op(
    "ToyScale",
    "x: T -> y: T",
    "T: {float32|float64}; factor: float = 2.0",
    kernel=lambda x, *, factor: x * x.dtype.type(factor),
    shape=lambda x: x,
    gradient=lambda op, dy: dy * op.get_attr("factor"),
)
def toy_scale(x, factor=2.0, name=None):
    """Return x times a factor."""


@tf.register_kernel("ToyScale", "TOY")
def _scale(x, *, factor):
    runs.append("ToyScale")
    return x * x.dtype.type(factor)


@tf.register_kernel("Square", "TOY")
def _square(x):
    runs.append("Square")
    return x * x
'''

OPTIONS = {
    "an op that is used by name alone": """
        with tf.Session() as session:  # loads the plugin
            graph = tf.GraphDef()
            graph.node.add(name="c", op="Const").attr["dtype"].type = tf.float32.as_datatype_enum
            graph.node[0].attr["value"].tensor.CopyFrom(tf.make_tensor_proto([1.0, 2.0]))
            node = graph.node.add(name="y", op="ToyScale", input=["c"])
            node.attr["T"].type = tf.float32.as_datatype_enum
            node.attr["factor"].f = 3.0
            (y,) = tf.import_graph_def(graph, name="", return_elements=["y:0"])
            assert y.shape == (2,)
            assert session.run(y).tolist() == [3.0, 6.0]
        """,
    "its shape, gradient and compiled surroundings": """
        import toy
        x = tf.placeholder(tf.float32, [None, 3])
        y = toy.toy_scale(tf.exp(x), factor=4.0)
        assert y.shape.as_list() == [None, 3]
        (dx,) = tf.gradients(tf.reduce_sum(y * 2.0), [x])
        config = tf.ConfigProto()
        config.graph_options.optimizer_options.global_jit_level = tf.OptimizerOptions.ON_1
        with tf.Session(config=config) as session:
            for _ in range(3):
                found = session.run(dx, {x: [[0.0, 0.0, 1.0]]})
            np.testing.assert_allclose(found, 8 * np.exp([[0, 0, 1]]), rtol=1e-6)
        """,
    "kernels of a registered device": """
        import toy
        x = tf.placeholder(tf.float32, [1])
        with tf.device("/device:TOY:1"):
            y = tf.square(x, name="y")
        z = y + 1.0
        with tf.Session(config=tf.ConfigProto(allow_soft_placement=True)) as session:
            names = [device.name for device in session.list_devices()]
            assert [name.rsplit("/", 1)[1] for name in names] == [
                "device:CPU:0", "device:TOY:0", "device:TOY:1"]
            assert session.list_devices()[2].device_type == "TOY"
            for _ in range(3):
                assert session.run(z, {x: [3.0]}).tolist() == [10.0]
        assert toy.runs == ["Square"] * 3
        """,
    "an op without a kernel for its device": """
        import toy
        with tf.device("/device:TOY:0"):
            y = tf.exp(tf.square(2.0), name="lonely")
        try:
            tf.Session().run(y)
        except tf.errors.InvalidArgumentError as error:
            assert "No OpKernel was registered" in str(error)
        else:
            raise AssertionError
        """,
    "a preferred kernel that declines": """
        import toy
        seen = []

        @tf.register_kernel("Tanh", "CPU")
        def tanh(x):
            seen.append(x.size)
            return np.full_like(x, 7) if x.size == 2 else NotImplemented

        x = tf.placeholder(tf.float32, [None])
        y = tf.tanh(x) + 0.0
        with tf.Session() as session:
            for _ in range(3):
                assert session.run(y, {x: [1, 2]}).tolist() == [7, 7]
            np.testing.assert_allclose(session.run(y, {x: [1.0]}), np.tanh([1.0]), rtol=1e-6)
        assert seen == [2, 2, 2, 1]
        """,
    "mistakes": """
        import toy
        def refused(call, *words):
            try:
                call()
            except (ValueError, tf.errors.NotFoundError) as error:
                assert all(word in str(error) for word in words), error
            else:
                raise AssertionError

        refused(lambda: tf.register_device("TOY"), "registered twice")
        refused(lambda: tf.register_kernel("Square", "MOON"), "MOON", "register_device")
        refused(lambda: tf.register_kernel("NoSuchOp")(lambda x: x), "NoSuchOp")
        refused(lambda: tf.register_op("Square", "x: float -> y: float", kernel=abs)(abs_), "twice")
        """,
}


@pytest.fixture
def plugin(tmp_path):
    (tmp_path / "toy.py").write_text(PACKAGE)
    info = tmp_path / "toy-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toy\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[headrace]\ntoy = toy\n")
    return tmp_path


@pytest.mark.parametrize("use", OPTIONS)
def test_a_package_outside_the_tree_registers(plugin, use):
    program = "import numpy as np\nimport headrace as tf\ndef abs_(x, name=None): ''\n"
    program += textwrap.dedent(OPTIONS[use])
    code = f"import sys; sys.path.insert(0, {str(plugin)!r})\n{program}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr


class Point:
    """An entry point that `load` loads."""

    def __init__(self, load):
        self.load = load


@pytest.fixture
def points(monkeypatch):
    """Entry points of this test; none is loaded."""
    given = []
    monkeypatch.setattr(registration, "_state", None)
    monkeypatch.setattr(registration, "_done", [])
    monkeypatch.setattr(registration, "_entry_points", lambda: iter(given))
    return given


def test_a_package_that_fails_is_loaded_again_and_others_are_not(points):
    calls = []

    def fails_once():
        calls.append("second")
        if calls.count("second") == 1:
            raise ImportError("a missing library")

    points += [Point(lambda: calls.append("first")), Point(fails_once)]
    with pytest.raises(ImportError, match="a missing library"):
        registration.load_plugins()
    registration.load_plugins()
    registration.load_plugins()
    assert calls == ["first", "second", "second"]


def test_a_second_thread_waits_until_packages_are_loaded(points):
    calls, begun, go_on = [], threading.Event(), threading.Event()

    def slow():
        begun.set()
        go_on.wait(30)
        registration.load_plugins()  # a package that makes a session while it is loaded
        calls.append("loaded")

    def second():
        registration.load_plugins()
        calls.append("second thread")

    points.append(Point(slow))
    threads = [threading.Thread(target=registration.load_plugins)]
    threads[0].start()
    assert begun.wait(30)
    threads.append(threading.Thread(target=second))
    threads[1].start()
    threads[1].join(0.1)
    go_on.set()
    for thread in threads:
        thread.join(30)
    assert calls == ["loaded", "second thread"]
