"""What the documents show is true: README's program runs, the demo learns."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


def run(*arguments):
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=True, cwd=ROOT
    ).stdout


def test_the_program_of_the_readme():
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    numbers = [float(n) for n in re.findall(r"-?\d+\.\d*", run("-c", code))]
    assert abs(numbers[0] - 3) < 0.2
    assert abs(numbers[1] - 1) < 0.2


def test_the_demo_reads_digits():
    output = run("examples/digits.py", "--epochs", "12")
    accuracy = float(re.search(r"Test accuracy ([\d.]+)%", output)[1])
    assert accuracy >= 96
    assert "What to try next" in output
