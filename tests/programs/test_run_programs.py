"""Programs in the style of 2015 to 2019, for TensorFlow 0.8 to 1.15 and Python 2 and 3, run as they
are by `headrace run`. They were written before it was known what works.
"""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parent / "run"

# Program -> the beginning of its last line, and a part of its notices.
EXPECTED = {
    "arguments_011.py": ("v [0.0, 0.0]", "names and arguments of TensorFlow 0.x"),
    "autoencoder_slim.py": ("True", "sklearn.cross_validation is sklearn.model_selection now"),
    "char_rnn_08.py": ("13", "module cPickle is pickle now"),
    "freeze.py": ("True", ""),
    "multi_gpu_py2.py": ("0.", "there is no GPU for '/gpu:0'"),
    "policy_gradient_py2.py": ("['b', 'a'] True 3 -4 3.5 [0, 2, 4]", "print statements"),
    "python2_misc.py": ("[1] 3 1 True 2.0", "translated in memory"),
    "slim_resnet.py": ("Total bytes of variables: 18388", ""),
    "softmax_regression.py": ("0.", "the 1797 digits of scikit-learn stand in"),
    "source_tree.py": ("[1, 2, 3]", ""),
    "tfrecords.py": ("[0 0]", "ndarray.tostring has gone; tobytes is called"),
    "word2vec_basic.py": ("", "took inputs before labels before TensorFlow 1.0"),
}


def test_every_program_is_expected():
    assert sorted(path.name for path in PROGRAMS.glob("*.py")) == sorted(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_program(name, tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "headrace", "run", str(PROGRAMS / name)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    last, notices = EXPECTED[name]
    assert done.stdout.splitlines()[-1].startswith(last)
    assert notices in done.stderr
    kinds = [line for line in done.stderr.splitlines() if line.startswith("headrace: ")]
    assert len(kinds) == len(set(kinds))
