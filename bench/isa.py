"""Narrow every contender to one instruction set, and see in a profile that it is.

    python bench/isa.py --isa avx2 --only mlp,alexnet       the registers that each contender uses

On a processor with AVX-512, `bench/training.py --isa avx2` runs everybody as on one without. The
environment of each process does that. This script shows whether it did: it trains, interrupts the
process some thousand times a second (perf), and prints how many of the samples lie at instructions
on 512-bit, 256-bit and 128-bit registers. Needs `perf` and `objdump`.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

# What each library reads: Headrace; PyTorch's own kernels, and the vectors of what torch.compile
# generates; oneDNN, in PyTorch and TensorFlow; MKL; XLA, in JAX and TensorFlow; NumPy's OpenBLAS.
# YNNPACK, which XLA calls for products, takes the widest registers that there are: without it XLA
# does its products itself.
NARROWED = {
    "host": {},
    "avx2": {
        "HEADRACE_TARGET": "x86-64-v3",
        "ATEN_CPU_CAPABILITY": "avx2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
        "XLA_FLAGS": "--xla_cpu_max_isa=AVX2 --xla_cpu_experimental_ynn_fusion_type=",
        "OPENBLAS_CORETYPE": "Haswell",
    },
}
PLACES = 300  # the most frequent ones are looked at: each costs a call of objdump
WIDTHS = {"zmm": 512, "ymm": 256, "xmm": 128}


def narrow(isa: str) -> None:
    """Narrow this process's children."""
    for name, value in NARROWED[isa].items():
        both = name == "XLA_FLAGS" and os.environ.get(name)
        os.environ[name] = f"{os.environ[name]} {value}" if both else value


# -- The profile -----------------------------------------------------------------------------------


def profile(pid: int, seconds: float) -> Counter[int]:
    """Samples of a running process by the width of the register that the instruction there uses;
    0 for instructions without vectors.
    """
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        data = f"{folder}/perf.data"
        command = ["perf", "record", "-q", "-e", "cpu-clock", "-F", "2000", "-o", data]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        subprocess.run([*command, "-p", str(pid), "sleep", str(seconds)], check=True, **quiet)
        asked = ["perf", "script", "-i", data, "-F", "ip"]
        text = subprocess.check_output(asked, text=True, stderr=subprocess.DEVNULL)
        places = Counter(int(line, 16) for line in text.split())
        return _widths(pid, places, Path(folder) / "code")


def _widths(pid: int, places: Counter[int], code: Path) -> Counter[int]:
    found: Counter[int] = Counter()
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for place, count in places.most_common(PLACES):
            if place >= 1 << 47:  # in the kernel
                continue
            try:
                memory.seek(place)
                code.write_bytes(memory.read(16))
            except OSError:
                continue
            shown = subprocess.check_output(
                ["objdump", "-D", "-b", "binary", "-m", "i386:x86-64", "--stop-address=1", code],
                text=True,
            )
            names = re.findall(r"[xyz]mm", shown)
            found[max((WIDTHS[n] for n in names), default=0)] += count
    return found


def main() -> int:
    from models import MODELS
    from race import HEADRACE, PYTHONS, Contender, Track, peers

    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--isa", choices=NARROWED, default="avx2")
    parser.add_argument("--only", default="mlp,alexnet", help="works")
    parser.add_argument("--seconds", type=float, default=3)
    options = parser.parse_args()
    narrow(options.isa)
    wide = False
    for name in options.only.split(","):
        model = MODELS[name]
        for label in [HEADRACE, *peers(model, PYTHONS)]:
            with tempfile.TemporaryDirectory(prefix="bench-") as caches:
                contender = Contender(Track(label), model, Path(caches))
                step = min(contender.run(3), default=1.0)
                contender.start(max(3, int(1.5 * options.seconds / step)))
                found = profile(contender.pid, options.seconds)
                contender.close()
            total = max(1, found.total())
            shares = ", ".join(f"{w}-bit {found[w] / total:.0%}" for w in (512, 256, 128))
            print(f"{model.title}: {label}: {found.total()} samples: {shares}", flush=True)
            wide |= options.isa == "avx2" and found[512] > 0.01 * total
    return 1 if wide else 0


if __name__ == "__main__":
    sys.exit(main())
