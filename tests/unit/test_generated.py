"""Generated files are what their generators would write now."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.mark.parametrize("name", ["generate_api", "generate_reference", "generate_protos"])
def test_is_fresh(name):
    script = ROOT / "scripts" / name
    result = subprocess.run(
        [sys.executable, script, "--check"], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
