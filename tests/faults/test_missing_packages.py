"""Headrace in an environment that has neither llvmlite nor oneDNN."""

import os
import subprocess

import pytest

from tests import environments


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A function that runs Python there: in, its arguments; out, the completed process."""
    python = environments.without(
        tmp_path_factory.mktemp("environment"), "llvmlite", "onednn-cpu-gomp"
    )
    kept = {k: v for k, v in os.environ.items() if not k.startswith("HEADRACE_")}
    source = os.path.dirname(os.path.dirname(environments.__file__)) + "/src"

    def run(*arguments, **environment):
        return subprocess.run(
            [python, *arguments],
            env={**kept, "PYTHONPATH": source, "COLUMNS": "200", **environment},
            capture_output=True,
            text=True,
            timeout=240,
        )

    return run


TRAINING = """
import numpy as np
import headrace as tf

images = tf.placeholder(tf.float32, [None, 8, 8, 2])
h = tf.layers.max_pooling2d(tf.layers.conv2d(images, 4, 3, activation=tf.nn.relu), 2, 2)
logits = tf.layers.dense(tf.layers.flatten(h), 3)
loss = tf.losses.sparse_softmax_cross_entropy(tf.constant([0, 1, 2, 0]), logits)
step = tf.train.AdamOptimizer(0.01).minimize(loss)
with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    values = np.random.RandomState(0).rand(4, 8, 8, 2)
    losses = [session.run([loss, step], {images: values})[0] for _ in range(30)]
assert losses[-1] < 0.7 * losses[0], losses
print("trained")
"""


@pytest.mark.parametrize("jit", ["second", "always"])
def test_a_model_trains_and_one_line_says_that_it_is_interpreted(run, jit):
    done = run("-W", "error", "-c", TRAINING, HEADRACE_JIT=jit)
    assert (done.returncode, done.stdout) == (0, "trained\n"), done.stderr
    (line,) = done.stderr.splitlines()
    assert line.endswith(
        "graphs are interpreted, not compiled: llvmlite is not installed (pip install llvmlite)"
    )


def test_a_model_trains_silently_when_nothing_was_to_be_compiled(run):
    done = run("-W", "error", "-c", TRAINING, HEADRACE_JIT="off", HEADRACE_NO_ONEDNN="1")
    assert (done.returncode, done.stdout, done.stderr) == (0, "trained\n", "")


def test_the_doctor_names_what_to_install(run):
    done = run("-m", "headrace", "doctor")
    assert done.returncode == 1 and not done.stderr
    assert "pip install llvmlite" in done.stdout
    assert "install onednn-cpu-gomp" in done.stdout


def test_the_command_that_compiles_names_what_to_install(run, tmp_path):
    model = tmp_path / "model.pb"
    model.write_bytes(b"")
    out = tmp_path / "model.o"
    done = run("-m", "headrace", "compile", str(model), "--target", "x86_64", "-o", str(out))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "Error: llvmlite is not installed (pip install llvmlite)\n"
    assert not out.exists()
