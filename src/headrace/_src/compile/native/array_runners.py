"""Run kernels on arrays, whatever their sizes. In: a spec. Out: a function of contiguous arrays."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import numpy as np

from headrace._src.compile.codegen.kernel_spec import Kernel, meetings_of
from headrace._src.compile.native import machine_code
from headrace._src.devices.buffers import address

__all__ = ["runner", "team_runner"]

_SMALL = 1 << 18  # operations: one thread does fewer in less time than a team needs to start


def runner(spec: Kernel) -> Callable[..., None]:
    """The function that runs a kernel on contiguous arrays, whatever their sizes."""
    (function,) = machine_code.addresses([spec])
    none = (ctypes.c_uint64 * 1)()  # neither scratch nor counters
    assert not spec.counters and not meetings_of(spec)

    def run(*arrays: np.ndarray) -> None:
        rest = ctypes.addressof(none)
        machine_code.run_team(function, [*map(address, arrays), rest, rest])

    return run


def team_runner(spec: Kernel) -> Callable[..., None]:
    """Return the function that runs a kernel on contiguous arrays, by one thread if it's little."""
    (function,) = machine_code.addresses([spec])
    alone = ctypes.CFUNCTYPE(None, *machine_code.KERNEL_TYPES)(function)
    none = (ctypes.c_uint64 * 1)()  # neither scratch nor counters
    assert not spec.counters and not meetings_of(spec)

    def run(work: int, *arrays: np.ndarray) -> None:
        rest = ctypes.addressof(none)
        pointers = [*map(address, arrays), rest, rest]
        if work >= _SMALL:
            machine_code.run_team(function, pointers)
            return
        table = (ctypes.c_uint64 * len(pointers))(*pointers)
        alone(ctypes.addressof(table), 0, 1, 0)

    return run
