"""Kernels stay within their buffers, which begin and end at inaccessible memory. The kernels run in
a separate process, since a violation kills it.
"""

import subprocess
import sys
from pathlib import Path

import pytest

SPECS = (
    "products",
    "small_batches",
    "winograd",
    "pointwise_convolutions",
    "pools",
    "loops",
    "rows",
)


@pytest.mark.parametrize("family", SPECS)
def test_kernels_stay_within_their_buffers(family):
    script = Path(__file__).with_name("bounds.py")
    run = subprocess.run([sys.executable, str(script), family], capture_output=True, text=True)
    assert run.returncode == 0, f"{run.stdout[-500:]}\n{run.stderr[-500:]}"
    assert run.stdout.rstrip().endswith("all within")
