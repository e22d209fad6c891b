"""The examples of several devices run, and compute what one device computes."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
EXAMPLES = {
    "model_parallel_lstm": "--layers 3 --devices 3 --units 8 --time 5 --rows 4 --steps 6",
    "towers": "--towers 4 --rows 16 --inputs 6 --units 8 --steps 6",
    "pipeline": "--devices 3 --threads 4 --layers 4 --units 8 --rows 4 --parts 6 --batches 4",
    "queue_barriers": "--workers 3 --steps 12 --rows 12",
}


def run(name, arguments, **environment):
    command = [sys.executable, str(ROOT / "examples" / f"{name}.py"), *arguments.split()]
    given = {"env": {**os.environ, **environment}, "cwd": ROOT}
    return subprocess.run(command, capture_output=True, text=True, check=True, **given).stdout


@pytest.mark.parametrize(
    ("name", "more"), [*((name, "") for name in EXAMPLES), ("model_parallel_lstm", " --loops")]
)
def test_the_losses_are_those_of_one_device(name, more):
    output = run(name, EXAMPLES[name] + more)
    (apart,) = re.findall(r"difference of the losses: (\S+)", output)
    assert float(apart) < 1e-5
    assert len(set(re.findall(r"(?:loss|to) (\d+\.\d+)", output))) > 1  # it trains


def test_every_layer_has_its_device():
    output = run("model_parallel_lstm", EXAMPLES["model_parallel_lstm"])
    assert re.findall(r"layer (\d) is on /cpu:(\d)", output) == [("0", "0"), ("1", "1"), ("2", "2")]


def test_downpour_learns_without_waiting():
    output = run("downpour", "--workers 2 --steps 100 --fetch 5 --push 4")
    (updates,) = re.findall(r"2 workers made (\d+) updates", output)
    assert int(updates) == 2 * (100 // 4)
    ((before, after),) = re.findall(r"loss from (\S+) to (\S+)", output)
    assert float(after) < 0.6 * float(before)


def test_a_long_loop_trains_where_its_values_exceed_memory(tmp_path):
    arguments = f"--time 2000 --steps 3 --limit_mb 120 --folder {tmp_path}"
    output = run("long_loop", arguments, HEADRACE_NUM_THREADS="2")  # each takes memory
    assert "in memory, with the limit: ResourceExhaustedError: " in output
    in_memory, in_file = map(int, re.findall(r": (-?\d+) MB more", output))
    assert in_memory > 200 and in_file < 120
    losses = re.findall(r"loss (\S+) to (\S+)", output)
    assert len(losses) == 2 and losses[0] == losses[1]
    assert float(losses[0][1]) < float(losses[0][0])
    assert "difference of the losses: 0.0\n" in output
