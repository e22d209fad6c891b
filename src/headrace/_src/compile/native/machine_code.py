"""Compile and link code in this process. In: LLVM assembly. Out: addresses of functions.

A *unit* of code is a module with one external function. Its identity is a string that determines
its text (for a kernel, the repr of its spec). A unit is compiled once per process, and later
processes find it on disk (see `cache`).

State: `_addresses` of linked units and the engines that hold their machine code, for the life of
the process, under `_lock`. A fork waits for the lock, so that a child never inherits LLVM in the
middle of an operation.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache as once
from typing import Any

import numpy as np

from headrace._src.compile.codegen.emit import I32, I64, PTR, VOID, Module, Reg
from headrace._src.compile.codegen.kernel_spec import COUNTER_STRIDE, Kernel, generate, meetings_of
from headrace._src.compile.codegen.support_functions import SUPPORT, support_module
from headrace._src.compile.native import code_cache
from headrace._src.core.config import settings
from headrace._src.core.locks import RLock
from headrace._src.core.progress import counted
from headrace._src.devices import onednn, openmp
from headrace._src.devices.target import NATIVE, Target, host

__all__ = [
    "KERNEL_TYPES",
    "addresses",
    "aligned",
    "assemble",
    "available",
    "code_size",
    "link",
    "load",
    "machine_of",
    "prepared_kernel",
    "run_kernel",
    "run_team",
    "why_not",
]

_log = logging.getLogger("headrace")
_lock = RLock()
_engines: list[Any] = []
_addresses: dict[str, int] = {}
# A kernel's arguments: addresses, which share of how many, and after which meeting.
KERNEL_TYPES = (ctypes.c_void_p, *[ctypes.c_int64] * 3)
_KERNEL = ctypes.CFUNCTYPE(None, *KERNEL_TYPES)

_llvms_lock = contextlib.ExitStack()  # llvmlite's, while this process forks


def _before_fork() -> None:
    """Wait until no other thread is in LLVM: in the child, nobody would let go of its lock."""
    _lock.acquire()
    library = getattr(sys.modules.get("llvmlite.binding.ffi"), "lib", None)
    if library is not None:
        _llvms_lock.enter_context(library._lock)


def _after_fork() -> None:
    _llvms_lock.close()
    _lock.release()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)


@once
def why_not() -> str | None:
    """None when code can be generated and run in this process, else the reason in one line."""
    try:
        machine_of(host())
    except ImportError as error:
        if error.name == "llvmlite":
            return "llvmlite is not installed (pip install llvmlite)"
        return f"llvmlite cannot be imported: {error}"
    except (OSError, RuntimeError) as error:
        return f"llvmlite cannot be used: {' '.join(str(error).split())}"
    return None


@once
def available() -> bool:
    """Return whether clusters can be compiled. What is missing for that, or for full speed, is
    logged once, in one line.
    """
    reason = why_not()
    if reason is not None:
        _log.warning("graphs are interpreted, not compiled: %s", reason)
    elif not settings().no_onednn and not onednn.available():
        _log.warning("some kernels are slower than they could be: %s", onednn.why_not())
    return reason is None


@once
def _llvm() -> Any:
    """The LLVM library, prepared once per process."""
    import llvmlite.binding as llvm  # an optional dependency, which takes long to load

    # The machine scheduler hoists the broadcasts of a GEMM kernel and spills them, which is three
    # times slower. Our code is already in the order in which it should run.
    llvm.set_option("headrace", "-enable-misched=0")
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    found = openmp.library()
    for name in ("GOMP_parallel", "GOMP_barrier", "omp_get_thread_num", "omp_get_num_threads"):
        define(name, getattr(found, name) if found else _nothing, llvm)
    define("syscall", ctypes.CDLL(None).syscall, llvm)
    return llvm


@once
def machine_of(target: Target) -> tuple[str, str]:
    """LLVM's names of a processor and of its features; of this machine's, all that it has."""
    llvm = _llvm()
    if target.cpu != NATIVE:
        return target.cpu, target.features
    features = llvm.get_host_cpu_features().flatten()
    # LLVM prefers 256-bit vectors on some AVX-512 processors; our code says what it wants.
    wide = ",-prefer-256-bit" if target.has("avx512f") else ""
    return llvm.get_host_cpu_name(), features + wide


@ctypes.CFUNCTYPE(None)
def _nothing() -> None:
    """The barrier where there is no OpenMP: a team of one thread has nothing to wait for."""


def define(name: str, function: Any, llvm: Any = None) -> None:
    """Define a name by which generated code calls a C function."""
    address = ctypes.cast(function, ctypes.c_void_p).value
    assert address is not None
    (llvm or _llvm()).add_symbol(name, address)


# -- Compiling -------------------------------------------------------------------------------------


def assemble(text: str, target: Target | None = None, jit: bool = True) -> bytes:
    """Compile a module to an object file. Several threads can do so at the same time."""
    llvm = _llvm()
    target = target or host()
    context = llvm.create_context()
    module = llvm.parse_assembly(text, context)
    module.verify()
    cpu, features = machine_of(target)
    machine = llvm.Target.from_triple(target.triple).create_target_machine(
        cpu=cpu,
        features=features,
        opt=3,
        reloc="default" if jit else "pic",
        codemodel="jitdefault" if jit else "default",
        jit=jit,
    )
    return _emit_object(machine, module)


def _emit_object(machine: Any, module: Any) -> bytes:
    """Do what machine.emit_object does without llvmlite's global lock: modules in contexts of their
    own may be compiled at the same time.
    """
    emit = _unlocked("LLVMPY_TargetMachineEmitToMemory")
    message = ctypes.c_char_p()
    memory = emit(machine, module, 1, ctypes.byref(message))
    if not memory:
        raise RuntimeError(f"LLVM cannot compile a module: {message.value!r}")
    try:
        start = _unlocked("LLVMPY_GetBufferStart")(memory)
        return ctypes.string_at(start, _unlocked("LLVMPY_GetBufferSize")(memory))
    finally:
        _unlocked("LLVMPY_DisposeMemoryBuffer")(memory)


_SIGNATURES = {
    "LLVMPY_TargetMachineEmitToMemory": (
        ctypes.c_void_p,
        [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.POINTER(ctypes.c_char_p)],
    ),
    "LLVMPY_GetBufferStart": (ctypes.c_void_p, [ctypes.c_void_p]),
    "LLVMPY_GetBufferSize": (ctypes.c_size_t, [ctypes.c_void_p]),
    "LLVMPY_DisposeMemoryBuffer": (None, [ctypes.c_void_p]),
}


@once
def _unlocked(name: str) -> Any:
    function = getattr(ctypes.CDLL(_llvm().ffi.lib._name), name)
    function.restype, function.argtypes = _SIGNATURES[name]
    return function


def load(objects: Sequence[bytes], symbols: Sequence[str]) -> dict[str, int]:
    """Link object files into this process; returns the addresses of `symbols`."""
    _define_support()
    return _load(objects, symbols)


@once
def _define_support() -> None:
    """Define the functions that LLVM calls where the processor has no instruction."""
    text = support_module(host())
    if text is not None:
        for name, address in _load([assemble(text)], SUPPORT).items():
            _llvm().add_symbol(name, address)


def _load(objects: Sequence[bytes], symbols: Sequence[str]) -> dict[str, int]:
    llvm = _llvm()
    with _lock:
        machine = llvm.Target.from_triple(host().triple).create_target_machine(jit=True)
        engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
        for data in objects:
            engine.add_object_file(llvm.ObjectFileRef.from_data(data))
        engine.finalize_object()
        _engines.append(engine)
        return {s: engine.get_function_address(s) for s in symbols}


def link(units: Mapping[str, Callable[[str], str]]) -> list[int]:
    """Return the addresses of units of code. `units` gives, by identity, functions from a symbol to
    the unit's text; they are called only for units that are neither in this process nor on disk.
    """
    with _lock:
        missing = [name for name in units if name not in _addresses]
        if missing:
            keys = {name: code_cache.key(name) for name in missing}
            kept = {name: code_cache.store().get("objects", k) for name, k in keys.items()}
            objects = {name: data for name, data in kept.items() if data is not None}
            fresh = [name for name in missing if name not in objects]
            texts = ((name, units[name](_symbol(keys[name]))) for name in fresh)
            for name, data in _assemble_all(texts):
                objects[name] = data
                code_cache.store().put("objects", keys[name], data)
            found = load(list(objects.values()), [_symbol(k) for k in keys.values()])
            _addresses.update({name: found[_symbol(k)] for name, k in keys.items()})
        return [_addresses[name] for name in units]


def _symbol(key: str) -> str:
    return f"headrace_{key}"


def _assemble_all(texts: Iterable[tuple[str, str]]) -> Iterator[tuple[str, bytes]]:
    """Compile named texts on all cores, the first while the next ones are still generated."""
    pool = ThreadPoolExecutor(host().cores)
    try:
        pending = [(name, pool.submit(assemble, text)) for name, text in texts]
        for name, result in counted("generating code", pending):
            yield name, result.result()
    finally:  # after Ctrl-C, don't wait for jobs that have not begun
        pool.shutdown(cancel_futures=True)


def addresses(specs: Sequence[Kernel], *, serial: bool = False) -> list[int]:
    """Return the kernels' addresses; compile those that are missing, on all cores.

    serial: kernels for one thread, without barriers and atomic counters
    """
    prefix = "serial " if serial else ""

    def unit(spec: Kernel) -> Callable[[str], str]:
        return lambda symbol: generate(spec, symbol, host(), serial=serial)

    names = [prefix + repr(spec) for spec in specs]
    units = {name: unit(spec) for name, spec in zip(names, specs, strict=True)}
    found = dict(zip(units, link(units), strict=True))
    return [found[name] for name in names]


def code_size(spec: Kernel, *, serial: bool = False) -> int:
    """Return the bytes of a kernel's machine code; compile it if it isn't cached."""
    llvm = _llvm()
    identity = ("serial " if serial else "") + repr(spec)
    key = code_cache.key(identity)
    data = code_cache.store().get("objects", key)
    if data is None:
        data = assemble(generate(spec, _symbol(key), host(), serial=serial))
    sections = llvm.ObjectFileRef.from_data(data).sections()
    return sum(section.size() for section in sections if section.is_text())


# -- One kernel ------------------------------------------------------------------------------------


def run_team(function: int, pointers: Sequence[int]) -> None:
    """Run a kernel without meetings, given by its address, on a table of pointers with all
    available threads.
    """
    table = (ctypes.c_uint64 * len(pointers))(*pointers)
    found = openmp.library()
    if found is None:
        _KERNEL(function)(ctypes.addressof(table), 0, 1, 0)
        return
    (body,) = link({"team body": _team_body})
    data = (ctypes.c_uint64 * 3)(function, ctypes.addressof(table), 1)
    found.GOMP_parallel(ctypes.c_void_p(body), data, openmp.thread_count(), 0)


# -- One kernel on given arrays, for tests and for timing candidates -------------------------------


def run_kernel(spec: Kernel, arrays: Sequence[np.ndarray], threads: int = 2) -> None:
    """Run one kernel on arrays."""
    prepared_kernel(spec, arrays, threads)()


def prepared_kernel(spec: Kernel, arrays: Sequence[np.ndarray], threads: int = 2) -> Any:
    """A function that runs one kernel on these arrays, with little overhead."""
    (address,) = addresses([spec])
    scratch = aligned(max(64, spec.scratch(threads)))
    counters = np.zeros(max(1, spec.counters) * COUNTER_STRIDE, np.int64)
    table = np.array([a.ctypes.data for a in (*arrays, scratch, counters)], np.uint64)
    kernel, meetings = _KERNEL(address), meetings_of(spec)
    found = openmp.library() if threads > 1 else None
    if found is None:

        def run_alone() -> None:
            counters[:] = 0
            for meeting in range(meetings + 1):
                kernel(table.ctypes.data, 0, 1, meeting)

        run_alone.keep = (arrays, scratch)  # type: ignore[attr-defined]
        return run_alone
    (body,) = link({"team body": _team_body})
    data = np.array([address, table.ctypes.data, meetings + 1], np.uint64)

    def run() -> None:
        counters[:] = 0
        found.GOMP_parallel(ctypes.c_void_p(body), ctypes.c_void_p(data.ctypes.data), threads, 0)

    run.keep = (arrays, scratch, counters, table)  # type: ignore[attr-defined]
    return run


def _team_body(symbol: str) -> str:
    """Write the body of a parallel region: each thread runs the kernel at data[0] with the
    arguments data[1], in data[2] parts with a barrier between them.
    """
    module = Module(host())
    f = module.function(symbol, [PTR], internal=False)
    kernel, table = (f.load(PTR, f.parameters[0], i) for i in range(2))
    thread = f.convert("sext", f.call("omp_get_thread_num", I32), I64)
    threads = f.convert("sext", f.call("omp_get_num_threads", I32), I64)

    def part(meeting: Reg) -> None:
        f.when(f.icmp("ne", meeting, 0), lambda: f.call("GOMP_barrier", VOID))
        f.call_pointer(kernel, VOID, table, thread, threads, meeting)

    f.loop(0, f.load(I64, f.parameters[0], 2), part)
    f.finish()
    return str(module)


def aligned(size: int, dtype: Any = np.uint8) -> np.ndarray:
    """`size` zeroed bytes that start at a cache line (a page, when large), as `dtype`."""
    align = 4096 if size >= 65536 else 64
    raw = np.zeros(size + align, np.uint8)
    start = -raw.ctypes.data % align
    return raw[start : start + size].view(dtype)
