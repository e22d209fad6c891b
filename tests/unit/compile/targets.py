"""Run kernels that are written for other processors: in this process if its own can run them, for
ARM's NEON under qemu-user, where it's there (Debian: qemu-user, gcc-aarch64-linux-gnu).
"""

from __future__ import annotations

import ctypes
import functools
import platform
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from headrace._src.compile.ahead.objects import all_targets
from headrace._src.compile.ahead.targets import target_for
from headrace._src.compile.codegen.kernel_spec import COUNTER_STRIDE, generate
from headrace._src.compile.native.machine_code import aligned, assemble, load
from headrace._src.devices.target import LEVELS, Target, for_level, host

__all__ = ["NEON", "TARGETS", "emulator", "run_on"]

NEON = target_for("aarch64", "neoverse-n1")
_KERNEL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


def emulator() -> tuple[str, str] | None:
    """The compiler and the emulator for ARM; None where they aren't installed, or not needed."""
    names = ("aarch64-linux-gnu-gcc", "qemu-aarch64")
    there = all(map(shutil.which, names)) and platform.machine() != "aarch64"
    return names if there else None


def _targets() -> dict[str, Target]:
    """The processors whose code can be run here, other than this one."""
    below = list(LEVELS)[: list(LEVELS).index(host().level) + 1] if host().level else []
    found = {level: for_level(level, host().triple) for level in below}
    if platform.machine() == "aarch64" or emulator():
        found["neon"] = NEON
    return found


TARGETS = _targets()


def run_on(target: Target, spec: Any, arrays: Sequence[np.ndarray]) -> None:
    """Run a kernel that is written for `target` on arrays, by one thread."""
    all_targets()
    text = generate(spec, "kernel", target, serial=True)
    if target.triple.startswith("aarch64") and platform.machine() != "aarch64":
        _emulate(assemble(text, target, jit=False), spec, arrays)
        return
    address = load([assemble(text, target)], ["kernel"])["kernel"]
    scratch = aligned(max(64, spec.scratch(1)))
    counters = np.zeros(max(1, spec.counters) * COUNTER_STRIDE, np.int64)
    table = np.array([x.ctypes.data for x in (*arrays, scratch, counters)], np.uint64)
    _KERNEL(address)(table.ctypes.data, 0, 1)


# Reads the number of buffers, then of each its size and its bytes; gives the bytes back.
_MAIN = """\
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
void kernel(void **, int64_t, int64_t);
int main(void) {
  int64_t count, sizes[64];
  void *table[64];
  if (fread(&count, 8, 1, stdin) != 1 || count > 64) return 1;
  for (int64_t i = 0; i < count; i++) {
    if (fread(&sizes[i], 8, 1, stdin) != 1) return 2;
    table[i] = aligned_alloc(4096, (sizes[i] + 8191) / 4096 * 4096);
    if (!table[i] || fread(table[i], 1, sizes[i], stdin) != (size_t)sizes[i]) return 3;
  }
  kernel(table, 0, 1);
  for (int64_t i = 0; i < count; i++)
    if (fwrite(table[i], 1, sizes[i], stdout) != (size_t)sizes[i]) return 4;
  return 0;
}
"""


@functools.cache
def _main() -> bytes:
    """The program around a kernel, compiled but not linked."""
    found = emulator()
    assert found is not None
    with tempfile.TemporaryDirectory() as folder:
        source, result = Path(folder, "main.c"), Path(folder, "main.o")
        source.write_text(_MAIN)
        subprocess.run([found[0], "-O1", "-c", str(source), "-o", str(result)], check=True)
        return result.read_bytes()


def _emulate(code: bytes, spec: Any, arrays: Sequence[np.ndarray]) -> None:
    found = emulator()
    assert found is not None
    room = [bytes(max(64, spec.scratch(1))), bytes(max(1, spec.counters) * COUNTER_STRIDE * 8)]
    buffers = [*(a.tobytes() for a in arrays), *room]
    given = b"".join(
        [struct.pack("<q", len(buffers)), *(struct.pack("<q", len(b)) + b for b in buffers)]
    )
    with tempfile.TemporaryDirectory() as folder:
        parts = [Path(folder, "main.o"), Path(folder, "kernel.o")]
        for path, data in zip(parts, (_main(), code), strict=True):
            path.write_bytes(data)
        binary = str(Path(folder, "program"))
        subprocess.run([found[0], "-static", *map(str, parts), "-lm", "-o", binary], check=True)
        done = subprocess.run([found[1], binary], input=given, capture_output=True, timeout=240)
    assert done.returncode == 0, (done.returncode, done.stderr)
    at = 0
    for array in arrays:
        array[...] = np.frombuffer(done.stdout, array.dtype, array.size, at).reshape(array.shape)
        at += array.nbytes
