"""The hook that `test_recovery` has on in all processes does notice."""

import os
import signal
import subprocess
import sys

import pytest

from tests.faults.clusters.unpickling import forbid_unpickling, noted


@pytest.mark.parametrize(
    "program",
    [
        "import pickle; pickle.loads(pickle.dumps(3))",
        "import io, pickle; pickle._Unpickler(io.BytesIO(pickle.dumps(OSError))).load()",
        "import marshal; marshal.loads(marshal.dumps(3))",
        "import pickle; pickle.Unpickler(None)",
    ],
)
def test_the_hook_ends_a_process_that_unpickles(tmp_path, program):
    environment = {**os.environ, "PYTHONPATH": forbid_unpickling(tmp_path)}
    ended = subprocess.run([sys.executable, "-c", program], env=environment, timeout=240)
    assert ended.returncode == -signal.SIGKILL
    assert noted(tmp_path, "unpickled") == noted(tmp_path, "watched") != set()
