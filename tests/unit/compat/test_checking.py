"""`headrace check`: what a program uses and Headrace lacks."""

import subprocess
import sys

PROGRAM = """\
import tensorflow as tf, numpy as np
import tensorflow.contrib.slim as s
from tensorflow.contrib import ffmpeg
from tensorflow.python.ops import nn_ops as ops, no_such_module
from tensorflow.nn import *
slim = tf.contrib.slim
flags = tf.app.flags
print tf.mul(2, 3), slim.conv2d, ops.softmax
def f(tf_like):
    x = slim.no_such_layer(1)
    y = tf.contrib.ffmpeg.decode_audio(x)
    return tf.reduce_sum(x, keep_dims=True, no_such_argument=1), y, np.float
tf.GraphKeys.NO_SUCH_KEY
tf.Session().no_such_method
tf.concat(concat_dim=0, values=[])
slim = np
slim.another
"""


def check(*paths):
    command = [sys.executable, "-m", "headrace", "check", *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    return done.returncode, done.stdout.splitlines(), done.stderr


def test_a_program(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(PROGRAM)
    (tmp_path / "broken.py").write_text("x = = 1\n")
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden" / "other.py").write_text("import tensorflow.no_such\n")
    status, lines, errors = check(tmp_path)
    assert status == 1 and errors == ""
    broken, *found, last = lines
    assert broken == f"{tmp_path / 'broken.py'}:1: neither Python 3 nor 2: invalid syntax"
    places = [line.removeprefix(f"{script}:").split(": ")[:2] for line in found]
    unknown = "is not a name of TensorFlow 1.15, nor an old one that Headrace knows"
    assert places == [
        ["3,11", "tf.contrib.ffmpeg is not in Headrace yet"],
        ["4", f"tf.python.ops.no_such_module {unknown}"],
        ["10", f"tf.contrib.slim.no_such_layer {unknown}"],
        ["12", "tf.reduce_sum has no argument 'no_such_argument' in Headrace"],
        ["13", f"tf.GraphKeys.NO_SUCH_KEY {unknown}"],
    ]
    assert last == "2 files: 15 symbols of TensorFlow used, 5 missing"


def test_a_program_that_needs_nothing(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("import tensorflow as tf\ntf.nn.relu(tf.ones([2]))\n")
    assert check(script)[:2] == (0, ["1 file: 3 symbols of TensorFlow used, 0 missing"])
