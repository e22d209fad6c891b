"""The cost of `import headrace` (nothing is loaded before it's used), and its rules."""

import functools
import importlib
import os
import pickle
import subprocess
import sys

import pytest

import headrace as tf
from headrace._src.api._homes import OPS
from headrace._src.core.export import on_first_use
from headrace._src.core.missing import tensorflow_names


def run(code):
    """Return the output of a fresh process."""
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    return result.stdout.split()


def test_import_loads_little():
    alone = set(run("import numpy, ml_dtypes, sys; print(*sys.modules)"))
    # Not ru_maxrss, which a child process starts with what its parent had.
    code = "print(open('/proc/self/status').read().split('VmRSS:')[1].split()[0])"
    kilobytes, *modules = run(f"import headrace, sys; {code}; print(*sys.modules)")
    ours = [m for m in modules if m not in alone]
    rooms = {m.split(".")[2] for m in ours if m.startswith("headrace._src.")}
    assert rooms == {
        "api",
        "core",
        "graph",
        "lowering",
        "ops",
    }
    assert len(ours) < 50
    others = {m for m in ours if m.split(".")[0] != "headrace"}
    assert others <= {"__future__", "copy", "dataclasses", "threading"}
    assert int(kilobytes) < 48 * 1024


def test_what_is_asked_for_is_loaded():
    code = (
        "import headrace as tf, sys; has = lambda m: print(f'headrace._src.{m}' in sys.modules); "
        "tf.nn.relu; has('ops.nn.activation_ops'); has('layers'); tf.nn.dynamic_rnn; "
        "has('layers'); tf.get_default_graph().create_op('IdentityReaderV2', []); "
        "has('ops.io.reader_ops'); has('train')"
    )
    assert run(code) == ["True", "False", "True", "True", "False"]


def test_ways_to_a_name():
    code = (
        "import headrace.train as train; train.Saver; import headrace as tf; "
        "from headrace import layers; layers.dense; from headrace.train import Saver; "
        "import headrace.contrib.slim as slim; slim.conv2d; tf.compat.v1.train.Saver; "
        "from headrace.train import AdamOptimizer; from headrace.contrib import rnn; rnn.LSTMCell; "
        "import headrace.compat.v1 as v1; assert v1 is tf; from headrace.compat import v1 as w; "
        "assert w is tf; from headrace.python.framework import ops; assert ops.Graph is tf.Graph; "
        "import importlib; importlib.reload(tf); tf.gradients(tf.zeros([]), [tf.zeros([])]); "
        "importlib.reload(tf.train).Saver; print(tf.train.Saver is Saver)"
    )
    assert run(code) == ["True"]
    run("from headrace import *; train.Saver, GraphDef, placeholder")


def test_every_name_is_there_and_listed():
    def walk(module):
        assert set(dir(module)) == set(module.__all__)
        for name in module.__all__:
            value = getattr(module, name)
            if getattr(value, "__name__", "") == f"{module.__name__}.{name}":
                walk(value)

    walk(tf)


def test_every_op_is_there_before_its_family():
    code = (
        "import headrace as tf; from headrace._src.graph.definition import definitions; "
        "print(len(definitions()), len(dir(tf.raw_ops)), 'CTCLoss' in definitions())"
    )
    count = str(len(OPS))  # this process may have ops of other tests
    assert run(code) == [count, count, "True"]


def test_threads_may_ask_at_once():
    code = (
        "import sys, threading, headrace as tf; sys.setswitchinterval(1e-6); found = []; "
        "ask = lambda: found.append((tf.train.Saver, tf.layers.dense, tf.matmul, tf.Session)); "
        "threads = [threading.Thread(target=ask) for _ in range(16)]; "
        "[t.start() for t in threads]; [t.join() for t in threads]; "
        "print(len(found), len(set(found)))"
    )
    assert run(code) == ["16", "1"]


def test_imported_graphs_find_what_saves_them(tmp_path):
    """The functions of collections are registered by rooms that nothing else may have loaded."""
    path = os.fspath(tmp_path / "graph.meta")
    with tf.Graph().as_default():
        queue = tf.FIFOQueue(3, "float32")
        tf.train.add_queue_runner(tf.train.QueueRunner(queue, [queue.enqueue(1.0)]))
        tf.get_variable("v", [])
        tf.train.export_meta_graph(path)
    code = (
        f"import headrace as tf; print(type(tf.train.import_meta_graph({path!r})).__name__); "
        "print(*[type(r).__name__ for r in tf.get_collection('queue_runners')], "
        "*tf.global_variables())"
    )
    assert run(code)[:3] == ["Saver", "QueueRunner", "<tf.Variable"]


def test_what_is_pickled_by_name_comes_back():
    for value in (tf.train.AdamOptimizer, tf.nn.relu, tf.errors.OpError, tf.float32):
        assert pickle.loads(pickle.dumps(value)) is value


def test_a_missing_name_is_told_as_the_user_wrote_it():
    with pytest.raises(
        AttributeError, match=r"^module 'headrace' has no attribute 'plaecholder'$"
    ) as e:
        _ = tf.plaecholder
    assert (e.value.name, e.value.obj) == ("plaecholder", tf)  # for "Did you mean: 'placeholder'?"
    assert not hasattr(tf, "plaecholder")
    with pytest.raises(AttributeError, match="has no attribute 'Sever'") as e:
        _ = tf.train.Sever
    assert (e.value.name, e.value.obj) == ("Sever", tf.train)


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("data", "tf.train.batch"),
        ("keras.Model", "tf.layers"),
        ("GradientTape", "tf.Session"),
        ("distribute", "parameter servers"),
        ("contrib.graph_editor", "of tf.contrib"),
        ("contrib.layers.bow_encoder", "of tf.contrib"),
        ("raw_ops.DecodeWav", "tf.signal"),
        ("compat.v1.GradientTape", "tf.Session"),
    ],
)
def test_a_name_that_tensorflow_has_is_said_to_be_missing(name, instead):
    *spaces, last = name.split(".")
    owner = functools.reduce(getattr, spaces, tf)
    with pytest.raises(AttributeError, match=r" is not in Headrace yet: ") as caught:
        getattr(owner, last)
    message = str(caught.value)
    assert message.startswith(f"tf.{name.removeprefix('compat.v1.')} is not") and instead in message
    # Without an object Python suggests no other name, which might mean the opposite.
    assert (caught.value.name, caught.value.obj) == (last, None)
    assert not hasattr(owner, last)


def test_an_op_that_tensorflow_has_is_said_to_be_missing():
    for op_type in ("DecodeWav", "FakeQuantWithMinMaxVars", "ResizeBilinear"):
        if op_type in OPS:
            continue
        graph = tf.GraphDef()
        graph.node.add(name="a", op=op_type)
        with tf.Graph().as_default(), pytest.raises(tf.errors.NotFoundError) as caught:
            tf.import_graph_def(graph)
        message = str(caught.value)
        assert f"tf.raw_ops.{op_type} is not in Headrace yet: " in message
        assert "Did you mean" not in message
    with tf.Graph().as_default() as graph, pytest.raises(tf.errors.NotFoundError) as caught:
        graph.create_op("MatMull", [])
    assert "Did you mean MatMul" in str(caught.value)


def test_missing_names_are_read_when_one_is_asked_for():
    code = (
        "import headrace as tf, sys; "
        "has = lambda: print('headrace._src.core.missing' in sys.modules); "
        "tf.nn.relu; getattr(tf, '__path__', 0); has(); hasattr(tf, 'data'); has()"
    )
    assert run(code) == ["False", "True"]


def test_tensorflow_names_hold_what_is_here():
    names = tensorflow_names()
    assert sum(map(len, names.values())) > 4500
    for space in ("nn", "math", "losses", "metrics", "linalg", "strings"):
        assert set(getattr(tf, space).__all__) <= names[f"tf.{space}"]
    assert {"AUTO_REUSE", "train", "zeros_like"} <= names["tf"]


def test_a_home_that_is_gone_is_not_a_missing_name():
    get, _ = on_first_use(__name__, {"name": "headrace.nowhere:name"})
    with pytest.raises(ModuleNotFoundError, match="nowhere"):
        get("name")


def test_rooms_do_not_hide_public_names():
    importlib.import_module("headrace._src.gradients.gradients")
    assert tf.gradients.__name__ == "gradients" and callable(tf.gradients)
