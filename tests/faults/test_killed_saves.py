"""A process that is killed while it saves loses nothing that was saved before."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run(module):
    result = subprocess.run(
        [sys.executable, "-m", f"tests.faults.{module}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert result.returncode == 0, result.stderr
    return int(result.stdout)


def test_bundles_are_whole_or_absent():
    assert run("killed_bundles") > 200


def test_a_program_always_goes_on_from_the_latest_checkpoint():
    assert run("killed_savers") > 100


def test_a_monitored_session_resumes_at_the_latest_checkpoint():
    assert run("killed_sessions") > 10


def test_a_program_ends_as_if_it_had_never_died():
    assert run("killed_training") > 20
