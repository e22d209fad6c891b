"""Load oneDNN (3.x, built for OpenMP). In: settings. Out: a `Library`, or the reason why not.

The library is looked for at the first use, never at import, and the outcome is kept for the life of
the process. `library()` returns the loaded `Library` or raises `Unsupported`, on which callers fall
back to their NumPy kernel.

State: `_outcome` (None before the first use, then a `Library` or a one-line reason), under `_lock`.
Invariant: a child made by fork never enters oneDNN if its parent had loaded it: GNU OpenMP's
threads do not survive the fork and the child's first parallel region would wait for them forever.
"""

import ctypes
import os
import sys
from collections.abc import Callable
from ctypes import POINTER, c_char, c_float, c_int, c_int64, c_size_t, c_uint, c_void_p
from typing import Any

from headrace._src.core.config import settings
from headrace._src.core.locks import Lock
from headrace._src.devices import openmp

# Constants from the C headers (dnnl_types.h, dnnl_common_types.h); stable across 3.x.
CPU = 1
IN_ORDER = 1
SCRATCHPAD_USER = 1
BF16, F32 = 2, 3
TAG_ANY = 1
BLOCKED_TAGS = {4: 84, 8: 102, 16: 78}  # aBcd4b, aBcd8b, aBcd16b
FORWARD_TRAINING, FORWARD_INFERENCE = 64, 96
CONVOLUTION_DIRECT = 1
POOLING_MAX, POOLING_AVERAGE = 0x1FF, 0x3FF  # the average leaves padding out, as TensorFlow does
SOFTMAX, LOG_SOFTMAX = 0x30000, 0x30001
QUERY_NAME = 8
QUERY_SRC, QUERY_DIFF_SRC, QUERY_WEIGHTS, QUERY_DIFF_WEIGHTS = 129, 130, 131, 132
QUERY_DST, QUERY_DIFF_DST, QUERY_WORKSPACE, QUERY_SCRATCHPAD = 133, 134, 135, 136
ARG_SRC, ARG_DST, ARG_WEIGHTS, ARG_WORKSPACE, ARG_SCRATCHPAD = 1, 17, 33, 64, 80
ARG_DIFF_SRC, ARG_DIFF_DST, ARG_DIFF_WEIGHTS = 129, 145, 161
ARG_BIAS, ARG_DIFF_BIAS = 41, 169
ELTWISE_RELU = 0x20

_STATUS = (
    "success",
    "out_of_memory",
    "invalid_arguments",
    "unimplemented",
    "last_impl_reached",
    "runtime_error",
    "not_required",
)

# These functions are too short to be worth releasing the GIL and waiting for it again.
_KEEPS_GIL = {"dnnl_memory_set_data_handle", "omp_set_num_threads"}

# The instruction sets that oneDNN may use on a processor of a level.
_ISAS = {"x86-64-v2": 0x1, "x86-64-v3": 0x7, "x86-64-v4": 0x27}
_ISA_NAMES = {
    0x0: "any", 0x1: "SSE41", 0x3: "AVX", 0x7: "AVX2", 0xF: "AVX2_VNNI", 0x1F: "AVX2_VNNI_2",
    0x27: "AVX512_CORE", 0x67: "AVX512_CORE_VNNI", 0xE7: "AVX512_CORE_BF16",
    0x1EF: "AVX10_1_512", 0xFEF: "AVX10_1_512_AMX", 0x1FEF: "AVX10_1_512_AMX_FP16",
}  # fmt: skip

_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "dnnl_set_max_cpu_isa": (c_int, [c_int]),
    "dnnl_get_effective_cpu_isa": (c_int, []),
    "omp_set_num_threads": (None, [c_int]),
    "dnnl_engine_create": (c_int, [POINTER(c_void_p), c_int, c_size_t]),
    "dnnl_stream_create": (c_int, [POINTER(c_void_p), c_void_p, c_uint]),
    "dnnl_stream_destroy": (c_int, [c_void_p]),
    "dnnl_primitive_attr_create": (c_int, [POINTER(c_void_p)]),
    "dnnl_primitive_attr_set_scratchpad_mode": (c_int, [c_void_p, c_int]),
    "dnnl_primitive_attr_clone": (c_int, [POINTER(c_void_p), c_void_p]),
    "dnnl_primitive_attr_destroy": (c_int, [c_void_p]),
    "dnnl_primitive_attr_set_post_ops": (c_int, [c_void_p, c_void_p]),
    "dnnl_post_ops_create": (c_int, [POINTER(c_void_p)]),
    "dnnl_post_ops_destroy": (c_int, [c_void_p]),
    "dnnl_post_ops_append_eltwise": (c_int, [c_void_p, c_int, c_float, c_float]),
    "dnnl_primitive_desc_query": (c_int, [c_void_p, c_int, c_int, c_void_p]),
    "dnnl_memory_desc_create_with_strides": (
        c_int,
        [POINTER(c_void_p), c_int, POINTER(c_int64), c_int, POINTER(c_int64)],
    ),
    "dnnl_memory_desc_create_with_tag": (
        c_int,
        [POINTER(c_void_p), c_int, POINTER(c_int64), c_int, c_int],
    ),
    "dnnl_memory_desc_destroy": (c_int, [c_void_p]),
    "dnnl_memory_desc_equal": (c_int, [c_void_p, c_void_p]),
    "dnnl_memory_desc_get_size": (c_size_t, [c_void_p]),
    "dnnl_memory_create": (c_int, [POINTER(c_void_p), c_void_p, c_void_p, c_void_p]),
    "dnnl_memory_set_data_handle": (c_int, [c_void_p, c_void_p]),
    "dnnl_memory_destroy": (c_int, [c_void_p]),
    "dnnl_primitive_desc_query_md": (c_void_p, [c_void_p, c_int, c_int]),
    "dnnl_primitive_desc_destroy": (c_int, [c_void_p]),
    "dnnl_primitive_create": (c_int, [POINTER(c_void_p), c_void_p]),
    "dnnl_primitive_execute": (c_int, [c_void_p, c_void_p, c_int, c_void_p]),
    "dnnl_primitive_destroy": (c_int, [c_void_p]),
    "dnnl_reorder_primitive_desc_create": (c_int, [POINTER(c_void_p)] + [c_void_p] * 5),
    "dnnl_convolution_forward_primitive_desc_create": (
        c_int,
        [POINTER(c_void_p), c_void_p, c_int, c_int] + [c_void_p] * 9,
    ),
    "dnnl_convolution_backward_data_primitive_desc_create": (
        c_int,
        [POINTER(c_void_p), c_void_p, c_int] + [c_void_p] * 9,
    ),
    "dnnl_convolution_backward_weights_primitive_desc_create": (
        c_int,
        [POINTER(c_void_p), c_void_p, c_int] + [c_void_p] * 10,
    ),
    "dnnl_pooling_forward_primitive_desc_create": (
        c_int,
        [POINTER(c_void_p), c_void_p, c_int, c_int] + [c_void_p] * 8,
    ),
    "dnnl_pooling_backward_primitive_desc_create": (
        c_int,
        [POINTER(c_void_p), c_void_p, c_int] + [c_void_p] * 9,
    ),
    "dnnl_sgemm": (
        c_int,
        [c_char, c_char, c_int64, c_int64, c_int64, c_float, c_void_p, c_int64, c_void_p, c_int64]
        + [c_float, c_void_p, c_int64],
    ),
    "dnnl_matmul_primitive_desc_create": (c_int, [POINTER(c_void_p)] + [c_void_p] * 6),
    "dnnl_softmax_forward_primitive_desc_create": (
        c_int,
        [POINTER(c_void_p), c_void_p, c_int, c_int, c_void_p, c_void_p, c_int, c_void_p],
    ),
}


class Unsupported(Exception):
    """oneDNN does not support the request, or is missing; the caller uses its NumPy kernel."""


def check(status: int, what: str) -> None:
    """Turn a oneDNN status other than success into `Unsupported`."""
    if status:
        name = _STATUS[status] if status < len(_STATUS) else f"status {status}"
        raise Unsupported(f"oneDNN: {what}: {name}")


class Library:
    """The loaded shared library, with its one engine and the attributes common to all primitives.

    functions: entry points by their C names, with argument types declared; OpenMP's are among them
    num_threads: how many threads a primitive may use
    engine: the CPU engine
    attr: primitive attributes: the caller provides scratchpads, so that several threads may execute
        one primitive at once
    """

    def __init__(self, path: str):
        openmp.library()  # before the path's dependencies load it without our settings
        with openmp.environment():  # in case the path brings an OpenMP of its own
            cdll = ctypes.CDLL(path)
        self.functions: dict[str, Callable[..., Any]] = {}
        keeping_gil = ctypes.PyDLL(path)
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(keeping_gil if name in _KEEPS_GIL else cdll, name)
            function.restype, function.argtypes = result, arguments
            self.functions[name] = function
        self._narrow()
        self.num_threads: int = openmp.thread_count()
        self.engine = self.new("dnnl_engine_create", CPU, 0)
        self.attr = self.new("dnnl_primitive_attr_create")
        self.call("dnnl_primitive_attr_set_scratchpad_mode", self.attr, SCRATCHPAD_USER)

    def _narrow(self) -> None:
        """Keep to the instruction sets of HEADRACE_TARGET; without it ONEDNN_MAX_CPU_ISA counts."""
        level = settings().target
        if level in _ISAS:
            self.call("dnnl_set_max_cpu_isa", _ISAS[level])

    @property
    def instructions(self) -> str:
        """The name of the instruction sets that primitives may use, as ONEDNN_MAX_CPU_ISA says."""
        isa = self.functions["dnnl_get_effective_cpu_isa"]()
        return _ISA_NAMES.get(isa, hex(isa))

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function that returns a status."""
        check(self.functions[name](*arguments), name)

    def new(self, name: str, *arguments: Any) -> int:
        """Call a function whose first parameter receives a handle, and return that handle."""
        handle = c_void_p()
        self.call(name, ctypes.byref(handle), *arguments)
        if handle.value is None:
            raise Unsupported(f"oneDNN: {name}: returned no handle")
        return handle.value


_lock = Lock()
_outcome: Library | str | None = None


def _load() -> Library | str:
    config = settings()
    if config.no_onednn:
        return "oneDNN is switched off by configuration"
    if openmp.forked():
        return f"oneDNN cannot be used: {openmp.why_not()}"
    path = config.dnnl or os.path.join(sys.prefix, "lib", "libdnnl.so.3")
    if not os.path.exists(path):
        return f"oneDNN not found at {path} (install onednn-cpu-gomp or set HEADRACE_DNNL)"
    try:
        return Library(path)
    except (OSError, AttributeError, Unsupported) as error:
        return f"oneDNN at {path} cannot be used: {' '.join(str(error).split())}"


def _get() -> Library | str:
    global _outcome
    if _outcome is None:
        with _lock:
            if _outcome is None:
                _outcome = _load()
    return _outcome


def library() -> Library:
    """Return the loaded library; raise `Unsupported` with the reason when there is none."""
    outcome = _get()
    if isinstance(outcome, str):
        raise Unsupported(outcome)
    return outcome


def available() -> bool:
    """Return whether oneDNN can be used in this process; load it if that was not tried yet."""
    return why_not() is None


def why_not() -> str | None:
    """Return None when oneDNN can be used, else the reason in one line."""
    outcome = _get()
    return outcome if isinstance(outcome, str) else None


def usable_handles(lib: Library) -> bool:
    """Return whether handles made with `lib` may still be destroyed (not in a forked child)."""
    return _outcome is lib


def _after_fork_in_child() -> None:
    global _lock, _outcome
    _lock = Lock()  # another thread of the parent may have held it
    if isinstance(_outcome, Library):
        _outcome = "oneDNN was loaded before this process was forked, and OpenMP's threads are lost"


os.register_at_fork(after_in_child=_after_fork_in_child)
