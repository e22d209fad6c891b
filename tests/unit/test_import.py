"""What `import headrace` costs: nothing heavy is loaded before it's used."""

import subprocess
import sys


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
