"""Clusters on Ray, with several Ray nodes in a network namespace of their own: servers and scripts
run there, and go on when a server or a whole node is killed.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile

import pytest

from tests.faults.ray.nodes import ENVIRONMENT

ALONE = ["unshare", "--map-root-user", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]


def has_namespaces():
    """Return whether this machine lets us have a network namespace."""
    if not (shutil.which("unshare") and shutil.which("ip")):
        return False
    return subprocess.run([*ALONE, "true"], capture_output=True).returncode == 0


@pytest.mark.timeout(280)
def test_servers_and_scripts_survive_the_death_of_a_node(tmp_path):
    if not has_namespaces():
        pytest.skip(
            "Ray was left out: this machine allows no network namespaces, and Ray listens "
            "on every address of its host"
        )
    for name in ("home", "checkpoints"):
        (tmp_path / name).mkdir()
    temporary = tempfile.mkdtemp(prefix="hr")  # the paths of Ray's sockets have to be short
    environment = {
        **os.environ,
        **ENVIRONMENT,
        "HOME": str(tmp_path / "home"),
        "RAY_TMPDIR": temporary,
    }
    command = [sys.executable, "-m", "tests.faults.ray.nodes", str(tmp_path / "checkpoints")]
    try:
        done = subprocess.run(
            [*ALONE, *command], env=environment, capture_output=True, text=True, timeout=260
        )
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    printed = done.stdout + done.stderr
    assert done.returncode == 0, printed
    assert "served" in printed
    assert "ps 0 is lost; Ray starts it again" in printed
    before, after = map(int, re.search(r"restored after step (\d+), at (\d+)", printed).groups())
    assert before >= 15 and after <= before + 2, printed
    assert (after - 1) % 10 in (0, 1), printed  # right after a checkpoint
    assert "trained: True" in printed
    assert "exit code 0" in printed
