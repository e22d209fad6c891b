"""From text to machine code in this process. In: LLVM assembly. Out: addresses of functions."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy as np

from headrace.compile.kernel import BARRIER, COUNTER_STRIDE, Kernel, generate
from headrace.compile.target import Target, host

__all__ = ["assemble", "load", "run_kernel"]

_lock = threading.Lock()
_engines: list[Any] = []  # machine code lives as long as its engine


@cache
def _llvm() -> Any:
    """The LLVM library, prepared once per process."""
    import llvmlite.binding as llvm

    # The machine scheduler hoists the broadcasts of a GEMM kernel and spills them: three times
    # slower. Our code comes in the order in which it should run.
    llvm.set_option("headrace", "-enable-misched=0")
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    openmp = openmp_library()
    barrier = openmp.GOMP_barrier if openmp is not None else _nothing
    llvm.add_symbol(BARRIER, _address(barrier))
    return llvm


@ctypes.CFUNCTYPE(None)
def _nothing() -> None:
    """A barrier for teams of one."""


def openmp_library() -> ctypes.CDLL | None:
    """GNU OpenMP's runtime, shared with oneDNN; None where there is none."""
    from headrace.devices.onednn import library

    with library._openmp_environment():
        try:
            return ctypes.CDLL("libgomp.so.1", mode=ctypes.RTLD_GLOBAL)
        except OSError:
            return None


def _address(function: Any) -> int:
    address = ctypes.cast(function, ctypes.c_void_p).value
    assert address is not None
    return address


def assemble(text: str, target: Target | None = None, jit: bool = True) -> bytes:
    """Compile a module to an object file. Safe to call from several threads."""
    llvm = _llvm()
    target = target or host()
    context = llvm.create_context()
    module = llvm.parse_assembly(text, context)
    module.verify()
    machine = llvm.Target.from_triple(target.triple).create_target_machine(
        cpu=target.cpu,
        features=target.features,
        opt=3,
        reloc="default" if jit else "pic",
        codemodel="jitdefault" if jit else "default",
        jit=jit,
    )
    return machine.emit_object(module)


def load(objects: Sequence[bytes], symbols: Sequence[str]) -> dict[str, int]:
    """Link object files into this process; returns the addresses of `symbols`."""
    llvm = _llvm()
    with _lock:
        machine = llvm.Target.from_triple(host().triple).create_target_machine(jit=True)
        engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
        for data in objects:
            engine.add_object_file(llvm.ObjectFileRef.from_data(data))
        engine.finalize_object()
        _engines.append(engine)
        return {s: engine.get_function_address(s) for s in symbols}


_addresses: dict[str, int] = {}


def addresses(specs: Sequence[Kernel]) -> list[int]:
    """Compile what is not compiled yet, on all cores; returns the kernels' addresses."""
    missing = list(dict.fromkeys(s for s in specs if repr(s) not in _addresses))
    if missing:
        symbols = [f"kernel_{len(_addresses) + i}" for i in range(len(missing))]
        texts = [generate(s, n, host()) for s, n in zip(missing, symbols, strict=True)]
        _llvm()
        with ThreadPoolExecutor(2) as pool:
            objects = list(pool.map(assemble, texts))
        found = load(objects, symbols)
        for spec, symbol in zip(missing, symbols, strict=True):
            _addresses[repr(spec)] = found[symbol]
    return [_addresses[repr(s)] for s in specs]


_BODY = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_KERNEL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


def run_kernel(spec: Kernel, arrays: Sequence[np.ndarray], threads: int = 2) -> None:
    """Run one kernel on arrays, for tests and for timing candidates."""
    prepared_kernel(spec, arrays, threads)()


def prepared_kernel(spec: Kernel, arrays: Sequence[np.ndarray], threads: int = 2) -> Any:
    """A function that runs one kernel on these arrays, with little overhead."""
    (address,) = addresses([spec])
    scratch = aligned(max(64, spec.scratch(threads)))
    counters = np.zeros(max(1, spec.counters) * COUNTER_STRIDE, np.int64)
    table = np.array([a.ctypes.data for a in (*arrays, scratch, counters)], np.uint64)
    kernel = _KERNEL(address)
    openmp = openmp_library() if threads > 1 else None
    if openmp is None:

        def run_alone() -> None:
            counters[:] = 0
            kernel(table.ctypes.data, 0, 1)

        run_alone.keep = (arrays, scratch)  # type: ignore[attr-defined]
        return run_alone
    body = _team_body()
    data = np.array([address, table.ctypes.data], np.uint64)

    def run() -> None:
        counters[:] = 0
        openmp.GOMP_parallel(ctypes.c_void_p(body), ctypes.c_void_p(data.ctypes.data), threads, 0)

    run.keep = (arrays, scratch, counters, table)  # type: ignore[attr-defined]
    return run


@cache
def _team_body() -> int:
    """What each thread of a parallel region runs: the kernel at data[0] with arguments data[1]."""
    from headrace.compile.emit import I32, I64, PTR, VOID, Module

    llvm, openmp = _llvm(), openmp_library()
    for name in ("omp_get_thread_num", "omp_get_num_threads"):
        llvm.add_symbol(name, _address(getattr(openmp, name)))
    module = Module(host())
    f = module.function("team_body", [PTR], internal=False)
    kernel, table = (f.load(PTR, f.parameters[0], i) for i in range(2))
    thread = f.convert("sext", f.call("omp_get_thread_num", I32), I64)
    threads = f.convert("sext", f.call("omp_get_num_threads", I32), I64)
    f.call_pointer(kernel, VOID, table, thread, threads)
    f.finish()
    return load([assemble(str(module))], ["team_body"])["team_body"]


def aligned(size: int, dtype: Any = np.uint8) -> np.ndarray:
    """`size` zeroed bytes that start at a cache line (a page, when large), as `dtype`."""
    align = 4096 if size >= 65536 else 64
    raw = np.zeros(size + align, np.uint8)
    start = -raw.ctypes.data % align
    return raw[start : start + size].view(dtype)
