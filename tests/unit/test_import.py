"""What `import headrace` costs (nothing heavy is loaded before it's used), and what it lacks."""

import subprocess
import sys

import pytest

import headrace as tf


def imported(code):
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    return result.stdout.split()


def test_heavy_things_load_on_use():
    code = "import headrace, sys; print(*sys.modules)"
    modules = set(imported(code))
    heavy = {"google.protobuf", "llvmlite", "scipy", "tqdm", "rich", "opt_einsum", "sklearn"}
    assert not heavy & modules


def test_memory_is_small():
    # Not ru_maxrss, which a child process starts with what its parent had.
    code = "import headrace; print(open('/proc/self/status').read().split('VmRSS:')[1].split()[0])"
    assert int(imported(code)[0]) < 100 * 1024


def test_a_missing_name_is_told_as_the_user_wrote_it():
    with pytest.raises(
        AttributeError, match=r"^module 'headrace' has no attribute 'plaecholder'$"
    ) as e:
        _ = tf.plaecholder
    assert (e.value.name, e.value.obj) == ("plaecholder", tf)  # for "Did you mean: 'placeholder'?"
    assert not hasattr(tf, "plaecholder")


def test_rooms_do_not_hide_public_names():
    code = (
        "import headrace, importlib, sys; del sys.modules['headrace.gradients']; "
        "room = importlib.import_module('headrace.gradients'); "
        "print(callable(headrace.gradients), room.__name__)"
    )
    assert imported(code) == ["True", "headrace.gradients"]
