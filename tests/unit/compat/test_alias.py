"""`tensorflow` in a process with the alias. Each test is a program in a process of its own."""

import subprocess
import sys
import textwrap
from pathlib import Path


def run(text, **options):
    """Run a program that begins with the alias, and return its lines."""
    code = "import headrace.as_tensorflow\n" + textwrap.dedent(text)
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        **options,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_modules_and_names():
    lines = run(
        """
        import importlib.metadata, inspect, pickle, sys
        import headrace
        import tensorflow as tf
        import tensorflow.compat.v1 as v1, tensorflow.contrib.slim as slim, tensorflow_core
        from tensorflow.contrib import layers, rnn
        from tensorflow.contrib.layers.python.layers import utils, layers as inner
        from tensorflow.contrib.slim.python.slim import learning
        from tensorflow.core.framework import graph_pb2, types_pb2
        from tensorflow.core.protobuf import config_pb2
        from tensorflow.python.framework import ops
        from tensorflow.python.ops import array_ops, rnn_cell, seq2seq
        from tensorflow_core.python.ops import math_ops
        from tensorflow_estimator.python.estimator import estimator
        from tensorflow.models.rnn import rnn as old_rnn
        assert tf.nn.relu is headrace.nn.relu and tf.Tensor is headrace.Tensor
        assert v1 is tf and tensorflow_core is tf and tf.contrib.slim is slim
        assert inner.fully_connected is headrace.contrib.layers.fully_connected
        assert learning.create_train_op is headrace.contrib.slim.learning.create_train_op
        assert graph_pb2.GraphDef is tf.GraphDef and config_pb2.ConfigProto is tf.ConfigProto
        assert types_pb2.DT_FLOAT == 1 and ops.Graph is tf.Graph
        assert array_ops.concat is tf.concat is not headrace.concat
        assert math_ops is sys.modules["tensorflow.python.ops.math_ops"]
        assert estimator.Estimator is headrace.estimator.Estimator
        assert rnn_cell.GRUCell is tf.nn.rnn_cell.GRUCell and callable(old_rnn.rnn)
        assert callable(seq2seq.rnn_decoder) and callable(tf.nn.seq2seq.rnn_decoder)
        assert (tf.__version__, tf.VERSION) == ("1.15.5", "1.15.5") and tf.__file__
        assert importlib.metadata.version("tensorflow-gpu") == "1.15.5"
        names = {}
        exec("from tensorflow.contrib.rnn import *; from tensorflow.train import *", names)
        assert "GRUCell" in names and "AdamOptimizer" in names
        assert "mul" in dir(tf) and "mul" not in dir(headrace) and "nn" in dir(tf)
        assert pickle.loads(pickle.dumps(tf.nn.relu)) is tf.nn.relu
        assert inspect.getmodule(run := lambda: 0) is sys.modules["__main__"]
        print("fine")
        """
    )
    assert lines == ["fine"]


def test_modules_of_the_source_tree():
    """Every path below `tensorflow.python` that programs use is there, by `import x.y as z` and by
    `from x import *`; its names are those of `headrace.python`, and old ones.
    """
    lines = run(
        f"""
        import importlib, sys
        sys.path.insert(0, {str(Path(__file__).parents[3])!r})
        from tests.unit.test_python_modules import LACKING, used_names
        wanted = {{}}
        for path in used_names():
            if not any(f"{{path}}.".startswith(f"{{part}}.") for part in LACKING):
                module, _, name = path.rpartition(".")
                wanted.setdefault(module, set()).add(name)
        count = same = 0
        for short, names in wanted.items():
            ours = importlib.import_module(f"headrace.python.{{short}}".rstrip("."))
            theirs, path = {{}}, f"tensorflow.python.{{short}}".rstrip(".")
            exec(f"import {{path}} as z\\nfrom {{path}} import *", theirs)
            assert theirs["z"].__name__.startswith("tensorflow."), path
            for name in names:
                exec(f"from {{path}} import {{name}}", theirs)
                assert name.startswith("_") or name in dir(theirs["z"]), (path, name)
                found = getattr(ours, name)
                if type(found) is not type(sys):
                    count += 1
                    same += theirs[name] is found
        print(count > 100, same / count > 0.9)
        """
    )
    assert lines == ["True True"]


def test_what_is_missing_says_so():
    lines = run(
        """
        import tensorflow as tf
        def attempt(statement):
            try:
                exec(statement)
            except (ImportError, AttributeError) as error:
                print(type(error).__name__, str(error).split(":")[0])
        attempt("import tensorflow.contrib.ffmpeg")
        attempt("from tensorflow.contrib import ffmpeg")
        attempt("from tensorflow.contrib.ffmpeg.python import nothing")
        attempt("tf.contrib.ffmpeg")
        attempt("from tensorflow.nn import no_such")
        attempt("import tensorflow.no_such")
        attempt("from tensorflow.contrib.layers.python.layers.utils import no_such")
        attempt("from tensorflow.python.ops.nn_ops import no_such")
        attempt("tf.no_such")
        attempt("from tensorflow.contrib.slim.nets import vgg")
        attempt("from tensorflow.contrib.learn.python.learn.estimators import model_fn")
        attempt("tf.contrib.learn.python.learn.estimators")
        """
    )
    assert lines == [
        "ModuleNotFoundError tf.contrib.ffmpeg is not in Headrace yet",
        "ModuleNotFoundError tf.contrib.ffmpeg is not in Headrace yet",
        "ModuleNotFoundError tf.contrib.ffmpeg is not in Headrace yet",
        "AttributeError tf.contrib.ffmpeg is not in Headrace yet",
        "ImportError cannot import name 'no_such' from 'tensorflow.nn' "
        f"({lines[4].partition('(')[2]}",
        "ModuleNotFoundError No module named 'tensorflow.no_such'",
        "ModuleNotFoundError tf.contrib.layers.python.layers.utils.no_such is not in Headrace yet",
        "ImportError cannot import name 'no_such' from 'tensorflow.python.ops.nn_ops' "
        "(unknown location)",
        "AttributeError module 'headrace' has no attribute 'no_such'",
        "ModuleNotFoundError tf.contrib.slim.nets is not in Headrace yet",
        "ModuleNotFoundError tf.contrib.learn.python.learn.estimators is not in Headrace yet",
        "AttributeError tf.contrib.learn.python.learn.estimators is not in Headrace",
    ]


def test_an_installed_tensorflow_is_not_touched(tmp_path):
    package = tmp_path / "tensorflow"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('the installed one')\n")
    info = tmp_path / "tensorflow-2.21.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tensorflow\nVersion: 2.21.0\n")
    text = """
    import importlib.metadata, sys
    sys.path.insert(0, {!r})
    import tensorflow as tf
    print(tf.__version__, importlib.metadata.version("tensorflow"))
    """
    assert run(text.format(str(tmp_path))) == ["1.15.5 1.15.5"]
    code = "import sys; sys.modules['tensorflow'] = sys; import headrace.as_tensorflow"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "tensorflow is already imported in this process" in done.stderr


def test_old_devices_and_placement():
    lines = run(
        """
        import tensorflow as tf
        with tf.device("/gpu:0"):
            x = tf.mul(tf.constant(2.0), 3.0)
        options = tf.GPUOptions(per_process_gpu_memory_fraction=0.3, allow_growth=True)
        config = tf.ConfigProto(gpu_options=options, allow_soft_placement=False)
        for session in tf.Session(config=config), tf.Session():
            print(session.run(x))
        """
    )
    assert lines == ["6.0", "6.0"]


def test_children_have_the_alias():
    lines = run(
        """
        import subprocess, sys
        child = "import tensorflow as tf, time; print(tf.pack([1]).op.type, time.clock() > 0)"
        subprocess.run([sys.executable, "-c", child], check=True)
        child = "import sys; print('headrace' in sys.modules, 'numpy' in sys.modules)"
        subprocess.run([sys.executable, "-c", child], check=True)
        child = "import numpy as np, sys; print(np.int, sys.modules['numpy'] is np)"
        subprocess.run([sys.executable, "-W", "error", "-c", child], check=True)
        child = "import cPickle; print(cPickle.__name__)"
        subprocess.run([sys.executable, "-c", child], check=True)
        """
    )
    assert lines == ["Const True", "False False", "<class 'int'> True", "pickle"]


def test_children_know_the_modules_that_have_gone():
    from headrace._src import compat
    from headrace._src.compat.mends.moved import MADE, MOVED

    path = Path(compat.__file__).parent / "for_children" / "sitecustomize.py"
    text = path.read_text(encoding="utf-8")
    for name in {name.partition(".")[0] for name in (*MADE, *MOVED)} - {"pandas"}:
        assert name in text.replace('"', " ").split(), name
