"""What `import headrace` costs (nothing is loaded before it's used), and what it keeps to."""

import importlib
import os
import pickle
import subprocess
import sys

import pytest

import headrace as tf
from headrace.core.export import on_first_use

LIBRARIES = ("train", "layers", "summary", "estimator", "compile", "cli")


def imported(code):
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    return result.stdout.split()


def test_import_loads_the_core_alone():
    modules = imported("import headrace, sys; print(*sys.modules)")
    heavy = {
        "google.protobuf",
        "llvmlite",
        "scipy",
        "tqdm",
        "rich",
        "opt_einsum",
        "sklearn",
        "absl",
        "unittest",
    }
    heavy |= {"absl", "click", "optree", "asyncio", "multiprocessing"}
    assert not heavy & set(modules)
    rooms = [m.split(".")[1] for m in modules if m.startswith("headrace.")]
    assert not {*LIBRARIES} & {*rooms}
    assert rooms.count("api") <= 2  # tf itself and tf.compat
    assert len(modules) < 600


def test_memory_is_small():
    # Not ru_maxrss, which a child process starts with what its parent had.
    code = "import headrace; print(open('/proc/self/status').read().split('VmRSS:')[1].split()[0])"
    assert int(imported(code)[0]) < 64 * 1024


def test_what_is_asked_for_is_loaded():
    code = (
        "import headrace as tf, sys; tf.nn.relu; print('headrace.layers' in sys.modules); "
        "tf.nn.dynamic_rnn; print('headrace.layers' in sys.modules, 'dynamic_rnn' in vars(tf.nn))"
    )
    assert imported(code) == ["False", "True", "True"]


@pytest.mark.parametrize(
    "statement",
    [
        "import headrace.train as train; train.Saver",
        "from headrace import train; train.Saver",
        "import headrace.api.contrib.slim as slim; slim.conv2d",
        "from headrace.api.train import Saver",
        "from headrace import *; train.Saver; GraphDef; placeholder",
        "import headrace as tf; tf.compat.v1.train.Saver",
        "import headrace as tf, importlib; importlib.reload(tf); tf.train.Saver",
        "import headrace as tf, importlib; importlib.reload(tf.train); tf.train.Saver",
    ],
)
def test_ways_to_a_name(statement):
    imported(statement)


def test_every_name_is_there_and_listed():
    def walk(module):
        assert set(module.__all__) <= set(dir(module))
        for name in module.__all__:
            value = getattr(module, name)
            if getattr(value, "__name__", "") == f"{module.__name__}.{name}":
                walk(value)

    walk(importlib.import_module("headrace.api"))
    assert all(getattr(tf, name) is getattr(tf.api, name) for name in tf.__all__)
    assert {"__version__", "placeholder", "train", "GraphDef"} <= set(dir(tf))


def test_threads_may_ask_at_once():
    code = (
        "import sys, threading, headrace as tf; sys.setswitchinterval(1e-6); found = []; "
        "ask = lambda: found.append((tf.train.Saver, tf.layers.dense, tf.estimator.Estimator)); "
        "threads = [threading.Thread(target=ask) for _ in range(16)]; "
        "[t.start() for t in threads]; [t.join() for t in threads]; "
        "print(len(found), len(set(found)))"
    )
    assert imported(code) == ["16", "1"]


def test_imported_graphs_find_what_saves_them(tmp_path):
    """The functions of collections are registered by rooms that only the import may have loaded."""
    path = os.fspath(tmp_path / "graph.meta")
    with tf.Graph().as_default():
        queue = tf.FIFOQueue(3, "float32")
        tf.train.add_queue_runner(tf.train.QueueRunner(queue, [queue.enqueue(1.0)]))
        tf.get_variable("v", [])
        tf.train.export_meta_graph(path)
    code = (
        f"import headrace as tf; print(type(tf.train.import_meta_graph({path!r})).__name__); "
        "print(*[type(r).__name__ for r in tf.get_collection('queue_runners')])"
    )
    assert imported(code) == ["Saver", "QueueRunner"]


def test_what_is_pickled_by_name_comes_back():
    assert pickle.loads(pickle.dumps(tf.train.AdamOptimizer)) is tf.train.AdamOptimizer
    assert pickle.loads(pickle.dumps(tf.nn.relu)) is tf.nn.relu


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


def test_a_home_that_is_gone_is_not_a_missing_name():
    get, _ = on_first_use(__name__, {"name": "headrace.nowhere:name"})
    with pytest.raises(ModuleNotFoundError, match="nowhere"):
        get("name")


def test_rooms_do_not_hide_public_names():
    code = (
        "import headrace, importlib, sys; del sys.modules['headrace.gradients']; "
        "room = importlib.import_module('headrace.gradients'); "
        "print(callable(headrace.gradients), room.__name__)"
    )
    assert imported(code) == ["True", "headrace.gradients"]
