"""Run one family's kernels on buffers between inaccessible pages (see test_bounds)."""

from __future__ import annotations

import ctypes
import mmap
import sys
from math import prod

import numpy as np

from headrace._src.compile.codegen.epilogue import NOTHING
from headrace._src.compile.codegen.iteration_spaces import Access
from headrace._src.compile.codegen.kernel_spec import COUNTER_STRIDE
from headrace._src.compile.kernels.conv.conv_1x1 import Conv1x1, Conv1x1BackwardFilter
from headrace._src.compile.kernels.conv.winograd.winograd_backward import WinogradBackwardFilter
from headrace._src.compile.kernels.conv.winograd.winograd_filter import WinogradFilter
from headrace._src.compile.kernels.conv.winograd.winograd_forward import WinogradForward
from headrace._src.compile.kernels.gemm.fully_connected import small_batch, small_batch_backward
from headrace._src.compile.kernels.gemm.gemm import gemm
from headrace._src.compile.kernels.gemm.gemm_narrow import narrow_product
from headrace._src.compile.kernels.images.conv_geometry import Geometry
from headrace._src.compile.kernels.images.pooling_loops import MaxPool, MaxPoolGradient
from headrace._src.compile.kernels.rows.list_rows import (
    HEADER,
    CheckMarks,
    PutRow,
    TakeRow,
    ZeroRows,
)
from headrace._src.compile.kernels.rows.map_kernel import Map
from headrace._src.compile.kernels.rows.reduce_kernel import ReduceKernel
from headrace._src.compile.native import machine_code
from headrace._src.lowering.pointwise import record

PAGE = mmap.PAGESIZE
_KERNEL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
_protect = ctypes.CDLL(None).mprotect
_protect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_kept: list[mmap.mmap] = []


def guarded(size: int) -> int:
    """The address of `size` bytes that end right before a page that may not be touched."""
    room = -(-size // PAGE) * PAGE
    block = mmap.mmap(-1, room + 2 * PAGE)
    _kept.append(block)
    base = np.frombuffer(block, np.uint8).ctypes.data
    for at in (base, base + PAGE + room):
        if _protect(at, PAGE, 0):
            raise OSError("mprotect failed")
    return base + PAGE + room - size


def run(spec, sizes) -> None:
    """Run a kernel with a team of one."""
    print(spec, flush=True)
    scratch = -(-max(64, spec.scratch(1)) // 64) * 64
    counters = max(1, spec.counters) * COUNTER_STRIDE * 8
    table = [guarded(s) for s in (*sizes, scratch, counters)]
    words = np.array(table, np.uint64)
    (address,) = machine_code.addresses([spec], serial=True)
    _KERNEL(address)(words.ctypes.data, 0, 1)


def products() -> None:
    for m, n, k in ((1, 1, 1), (7, 33, 5), (49, 384, 83), (128, 10, 256)):
        for ta in (False, True):
            for tb in (False, True):
                run(gemm(m, n, k, ta, tb), [4 * m * k, 4 * k * n, 4 * m * n])
    for ta in (False, True):
        narrow = narrow_product(128, 3, 256, ta)
        assert narrow is not None
        run(narrow, [4 * 128 * 256, 4 * 256 * 3, 4 * 128 * 3])


def small_batches() -> None:
    for m, n, k in ((1, 40, 31), (7, 384, 832), (16, 1000, 64)):
        x, y, w = 4 * m * k, 4 * m * n, 4 * k * n
        run(small_batch(m, n, k), [x, w, y])
        run(small_batch_backward(m, n, k, update=NOTHING, data=NOTHING), [x, y, w, w, x])


def _sizes(g: Geometry) -> tuple[int, int, int]:
    x = 4 * g.batch * g.height * g.width * g.channels
    y = 4 * g.batch * g.out_height * g.out_width * g.filters
    return x, y, 4 * prod(g.kernel) * g.channels * g.filters


def winograd() -> None:
    for c, k, h, r in ((16, 32, 5, 3), (48, 16, 9, 3), (64, 48, 14, 3), (32, 16, 7, 5)):
        g = Geometry.of(2, h, h, c, k, (r, r), pads=((r // 2,) * 2, (r // 2,) * 2))
        x, y, w = _sizes(g)
        for m, accurate in ((4, False), (4 if r == 3 else 2, True)):
            for backward in (False, True):
                transform = WinogradFilter(c, k, m, r, accurate, backward)
                u = 4 * transform.layout.size
                run(transform, [w, u])
                kernel = WinogradForward(g.backward_data() if backward else g, m, accurate)
                run(kernel, [y, u, x] if backward else [x, u, y])
            run(WinogradBackwardFilter(g, m, accurate), [x, y, w])


def pointwise_convolutions() -> None:
    for c, k, h in ((16, 32, 5), (384, 384, 7), (64, 256, 9), (480, 208, 3), (112, 288, 4)):
        g = Geometry.of(2, h, h, c, k, (1, 1))
        x, y, w = _sizes(g)
        run(Conv1x1(g), [x, w, y])
        run(Conv1x1(g.backward_data(), transposed=True), [y, w, x])
        run(Conv1x1BackwardFilter(g), [x, y, w])


def pools() -> None:
    for h, size, stride in ((7, 3, 2), (8, 2, 2), (5, 3, 1)):
        g = Geometry.of(2, h, h, 32, 32, (size, size), (stride, stride))
        x, y, _ = _sizes(g)
        run(MaxPool(g, argmax=True), [x, y, y // 4])
        run(MaxPoolGradient(g), [y, y // 4, x])


def loops() -> None:
    add = record(lambda e, x, y: x + y, ["float32", "float32"])
    same = record(lambda e, x: x, ["float32"])
    for n in (1, 3, 17, 1000):
        row = Access("float32", (n, 1))
        run(Map((3, n), add, (row, Access("float32", (0, 1))), (row,)), [12 * n, 4 * n, 12 * n])
        turned = Access("float32", (1, 3))
        run(Map((3, n), same, (turned,), (row,)), [12 * n, 12 * n])
        for kept, reduced, strides in (((3,), (n,), (n, 1)), ((n,), (3,), (1, n))):
            x, y = Access("float32", strides), Access("float32", (1,))
            spec = ReduceKernel(kept, reduced, same, ("sum",), same, (x,), (), (y,))
            run(spec, [12 * n, 4 * kept[0]])


def rows() -> None:
    """All indices are 0, as memory is at first; a stack is empty when it's popped, and one that
    grows has no room.
    """
    for n in (1, 3, 17, 1025):
        row, top, flag = 4 * n, 16, 8
        for how in ("set", "add"):
            run(PutRow(1, n, "float32", how), [row, 4, row, 1, flag])
        for how in ("get", "clear", "sum"):
            run(TakeRow(1, n, "float32", how), [row, 4, 1, row, flag])
        run(PutRow(1, n, "float32", "push"), [row, row, top, flag])
        run(TakeRow(1, n, "float32", "pop"), [row, top, row, flag])
        run(PutRow(0, n, "float32", "push"), [row, HEADER, top, flag])
        run(TakeRow(0, n, "float32", "pop"), [HEADER, top, row, flag])
        run(ZeroRows(0, n, "float32"), [top, HEADER, top, flag])
        run(CheckMarks(n, 1), [n, flag])


if __name__ == "__main__":
    globals()[sys.argv[1]]()
    print("all within")
