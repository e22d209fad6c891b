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
    code = (
        "import headrace, resource; "
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)"
    )
    assert int(imported(code)[0]) < 100
