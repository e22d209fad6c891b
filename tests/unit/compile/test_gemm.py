"""Matrix products against NumPy in float64: odd sizes, transposes, epilogues, updates in place."""

import ctypes
from dataclasses import replace
from functools import partial

import ml_dtypes
import numpy as np
import pytest

from headrace._src.compile.codegen.epilogue import Epilogue
from headrace._src.compile.codegen.kernel_spec import COUNTER_STRIDE
from headrace._src.compile.kernels.gemm.gemm import Gemm, PackB, gemm, nothing
from headrace._src.compile.native.machine_code import addresses, aligned, run_kernel
from headrace._src.devices.target import for_level, host
from headrace._src.lowering.pointwise import record

SIZES = [(1, 1, 1), (2, 3, 5), (7, 31, 17), (13, 67, 61), (37, 19, 300), (64, 48, 32), (53, 113, 2)]
TOLERANCE = {"float32": 3e-6, "float64": 1e-14}


def operand(rng, rows, columns, transposed, dtype="float32"):
    shape = (columns, rows) if transposed else (rows, columns)
    return rng.standard_normal(shape).astype(dtype)


def product(a, b, transpose_a, transpose_b):
    a, b = a.astype(np.float64), b.astype(np.float64)
    return (a.T if transpose_a else a) @ (b.T if transpose_b else b)


def assert_close(found, expected, dtype="float32"):
    scale = max(1.0, float(np.abs(expected).max()))
    np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCE[dtype] * scale)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("transposes", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_product(size, transposes, threads):
    m, n, k = size
    rng = np.random.default_rng(m * n)
    a, b = operand(rng, m, k, transposes[0]), operand(rng, k, n, transposes[1])
    c = np.full((m, n), np.nan, np.float32)
    run_kernel(gemm(m, n, k, *transposes, depth=48), [a, b, c], threads)
    assert_close(c, product(a, b, *transposes))


@pytest.mark.parametrize("transposes", [(False, False), (True, False), (False, True), (True, True)])
def test_many_blocks(transposes):
    m, n, k = 401, 419, 601
    rng = np.random.default_rng(5)
    a, b = operand(rng, m, k, transposes[0]), operand(rng, k, n, transposes[1])
    c = np.full((m, n), np.nan, np.float32)
    spec = gemm(m, n, k, *transposes, a="pack" if transposes[0] else "direct", depth=256)
    assert spec._size.down > 1 and spec._size.across > 1 and spec._size.split
    run_kernel(spec, [a, b, c])
    assert_close(c, product(a, b, *transposes))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("panels", [1, 2, 8])  # for some numbers a thread has nothing to do
@pytest.mark.parametrize("transposes", [(False, False), (True, False), (False, True), (True, True)])
def test_columns_of_each_thread(transposes, panels, threads):
    m, n, k = 61, 83, 100
    rng = np.random.default_rng(7)
    a, b = operand(rng, m, k, transposes[0]), operand(rng, k, n, transposes[1])
    spec = gemm(
        m, n, k, *transposes, a="stripes" if transposes[0] else "pack", tile=(5, 16), depth=48
    )
    c = np.full((m, n), np.nan, np.float32)
    run_kernel(replace(spec, share="columns", tiles=3, panels=panels), [a, b, c], threads)
    assert_close(c, product(a, b, *transposes))


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("panels", [1, 2, 8])
@pytest.mark.parametrize("transposes", [(False, False), (True, False), (False, True), (True, True)])
def test_groups_of_columns(transposes, panels, threads):
    m, n, k = 61, 339, 100
    rng = np.random.default_rng(7)
    a, b = operand(rng, m, k, transposes[0]), operand(rng, k, n, transposes[1])
    spec = gemm(
        m, n, k, *transposes, a="stripes" if transposes[0] else "pack", tile=(5, 16), depth=48
    )
    c = np.full((m, n), np.nan, np.float32)
    run_kernel(replace(spec, share="groups", tiles=3, panels=panels), [a, b, c], threads)
    assert_close(c, product(a, b, *transposes))


def test_threads_help_with_groups_that_are_packed():
    """All groups are taken. Of the first, only the first block is multiplied by now; the panels of
    the second aren't packed.
    """
    m, n, k = 60, 64, 50
    rng = np.random.default_rng(8)
    a, b = operand(rng, m, k, False), operand(rng, k, n, False)
    spec = replace(gemm(m, n, k, a="direct", tile=(5, 16)), share="groups", tiles=3, panels=2)
    assert spec._size.down == 4 and spec._size.across == 2
    c, scratch = np.zeros((m, n), np.float32), aligned(spec.scratch(2))
    counters = np.zeros((spec.counters, COUNTER_STRIDE), np.int64)
    table = np.array([x.ctypes.data for x in (a, b, c, scratch, counters)], np.uint64)
    (address,) = addresses([spec])
    share = ctypes.CFUNCTYPE(None, ctypes.c_void_p, *[ctypes.c_int64] * 3)(address)
    share(table.ctypes.data, 0, 2, 0)
    expected = product(a, b, False, False)
    assert_close(c, expected)
    c[:], counters[:], counters[1:3, 0] = np.nan, 0, (2, 1)
    share(table.ctypes.data, 1, 2, 0)
    assert_close(c[15:, :32], expected[15:, :32])
    assert np.isnan(c[:15]).all() and np.isnan(c[:, 32:]).all()


def test_where_columns_are_divided_into_groups():
    """Where B doesn't fit into a core's cache, into as many groups as there are threads, or more if
    these have few blocks.
    """
    chosen = partial(
        gemm, target=replace(for_level("x86-64-v3"), caches=(1 << 15, 1 << 20, 1 << 25))
    )
    for m, groups in ((700, 2), (2048, 2), (300, 4), (100, 8)):
        spec = chosen(m, 2600, 650, a="direct")
        assert spec.share == "groups" and spec._size.across == groups
        assert spec._size.down * groups >= 8
    long = chosen(512, 20000, 2048, True, a="stripes")
    assert long.share == "groups" and long._size.across % 2 == 0
    assert long._size.split and long._size.sums * 4 < 1 << 20
    assert chosen(700, 256, 650).share == chosen(700, 2600, 650, threads=1).share == "claim"
    assert chosen(700, 2600, 650, b="packed").share == chosen(20, 2600, 650).share == "claim"


@pytest.mark.parametrize("m", [1500, 2048, 3000, 5000])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_threads_end_together(m, threads):
    """Threads that take blocks in turn have as much to do, but for a few percent."""
    spec = gemm(m, 512, 512, a="direct", threads=threads)
    tiles, blocks = -(-m // spec.rows), spec._size.down
    assert blocks >= 4 * threads and spec._size.across == 1
    loads = [0] * threads
    for block in range(blocks):
        loads[block % threads] += min(spec.tiles, tiles - block * spec.tiles)
    assert sum(loads) == tiles
    assert max(loads) <= 1.05 * tiles / threads + 1


@pytest.mark.parametrize(("level", "whole"), [("x86-64-v3", 256), ("x86-64-v4", 700)])
def test_only_a_long_sum_is_divided(level, whole):
    """Its panels stay in the first-level cache; wide ones would be too short for much of it."""
    target = for_level(level)
    assert not gemm(200, 200, whole, target=target)._size.split
    spec = gemm(200, 200, 2048, target=target)
    assert spec._size.split and spec.depth * spec.columns * 4 <= target.l1


@pytest.mark.parametrize("k", [1, 3, 4, 6, 17])
@pytest.mark.parametrize("m", [3, 6])
def test_a_rest_of_the_rows_that_are_multiplied_together(m, k):
    rng = np.random.default_rng(7)
    a, b = operand(rng, m, k, False, "float32"), operand(rng, k, 40, False, "float32")
    c = np.full((m, 40), np.nan, "float32")
    run_kernel(gemm(m, 40, k), [a, b, c])
    assert_close(c, product(a, b, False, False))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_stripe_and_the_next_one_leave_room_in_the_cache(dtype):
    spec = gemm(2000, 512, 4096, True, dtype=dtype, a="stripes")
    assert spec._size.split
    assert 2 * spec._stripe * np.dtype(dtype).itemsize <= 0.4 * host().l2


@pytest.mark.parametrize("m", [5, 61, 200])  # the last panel and the last row are short
@pytest.mark.parametrize("k", [50, 100, 1003])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_stripes(m, k, dtype):
    rng = np.random.default_rng(5)
    a, b = operand(rng, m, k, True, dtype), operand(rng, k, 40, False, dtype)
    c = np.full((m, 40), np.nan, dtype)
    for depth in (0, 48):
        run_kernel(gemm(m, 40, k, True, dtype=dtype, a="stripes", depth=depth), [a, b, c])
        assert_close(c, product(a, b, True, False), dtype)


@pytest.mark.parametrize("dtype", ["float64", "bfloat16", "float16"])
@pytest.mark.parametrize("transposes", [(False, True), (True, False)])
def test_types(dtype, transposes):
    m, n, k = 29, 43, 71
    rng = np.random.default_rng(0)
    stored = np.dtype(ml_dtypes.bfloat16) if dtype == "bfloat16" else np.dtype(dtype)
    a, b = operand(rng, m, k, transposes[0], stored), operand(rng, k, n, transposes[1], stored)
    expected = product(a, b, *transposes)
    c, wide = np.empty((m, n), stored), np.empty((m, n), "d" if dtype == "float64" else "f")
    run_kernel(gemm(m, n, k, *transposes, dtype=dtype), [a, b, c])
    run_kernel(gemm(m, n, k, *transposes, dtype, nothing(wide.dtype.name)), [a, b, wide])
    assert_close(wide, expected, wide.dtype.name)
    np.testing.assert_array_equal(c, wide.astype(stored))


@pytest.mark.parametrize("transpose_a", [False, True])
@pytest.mark.parametrize("size", [(5, 7, 9), (41, 70, 150), (1, 33, 40)], ids=str)
def test_operands_in_place(size, transpose_a):
    m, n, k = size
    rng = np.random.default_rng(1)
    a, b = operand(rng, m, k, transpose_a), operand(rng, k, n, False)
    c = np.full((m, n), np.nan, np.float32)
    run_kernel(gemm(m, n, k, transpose_a, a="direct", b="direct", depth=64), [a, b, c])
    assert_close(c, product(a, b, transpose_a, False))


@pytest.mark.parametrize("transpose_b", [False, True])
def test_b_packed_once(transpose_b):
    m, n, k = 20, 130, 65
    rng = np.random.default_rng(2)
    a, b = operand(rng, m, k, False), operand(rng, k, n, transpose_b)
    spec = gemm(m, n, k, b="packed", depth=32)
    pack = PackB(n, k, transpose_b, "float32", spec.columns)
    packed, c = aligned(pack.packed_bytes, np.float32), np.empty((m, n), np.float32)
    run_kernel(pack, [b, packed])
    run_kernel(spec, [a, packed, c])
    assert_close(c, product(a, b, False, transpose_b))


def heavy_program(e, g, w, v, rate):
    return e.tanh(g) * w, e.sigmoid(v) - rate


def long_program(e, g, w, v, rate):
    """As many steps as an optimizer has: too long to be written out for each vector."""
    v2 = v * 0.9 + g
    for i in range(20):
        w = w - rate * v2 * (1.0 / (i + 1))
    return w, v2


@pytest.mark.parametrize("depth", [32, 256])
@pytest.mark.parametrize(
    ("function", "outputs"),
    [(lambda e, g, w, v, rate: (w - rate * g, v + g), 2), (long_program, 2), (heavy_program, 2)],
)
def test_update_in_place(function, outputs, depth):
    m, n, k = 37, 53, 70
    rng = np.random.default_rng(3)
    a, b = operand(rng, m, k, True), operand(rng, k, n, False)
    w, v, rate = operand(rng, m, n, False), operand(rng, m, n, False), np.array([0.1], np.float32)
    program = record(function, ["float32"] * 4)
    expected = program.evaluate(product(a, b, True, False), w.astype("d"), v.astype("d"), rate)
    spec = gemm(m, n, k, True, epilogue=Epilogue(program, ("full", "full", "scalar")), depth=depth)
    assert spec.arguments == (
        "a", "b", "full0", "full1", "scalar2", "out:result0", "out:result1",
    )  # fmt: skip
    run_kernel(spec, [a, b, w, v, rate, w, v])
    assert_close(w, expected[0])
    assert_close(v, expected[1])
    assert outputs == len(expected)


def test_bias_and_prologues():
    m, n, k = 19, 35, 43
    rng = np.random.default_rng(4)
    a, mask, b = operand(rng, m, k, False), operand(rng, m, k, False), operand(rng, k, n, False)
    scales, bias = operand(rng, 1, n, False)[0], operand(rng, 1, n, False)[0]
    times = record(lambda e, x, y: x * y, ["float32"] * 2)
    plus = record(lambda e, x, y: x + y, ["float32"] * 2)
    spec = gemm(
        m, n, k,
        epilogue=Epilogue(plus, ("channel",)),
        prologue_a=Epilogue(times, ("full",)),
        prologue_b=Epilogue(times, ("channel",)),
    )  # fmt: skip
    assert spec.arguments == ("a", "a_full0", "b", "b_channel0", "channel0", "out:result0")
    c = np.empty((m, n), np.float32)
    run_kernel(spec, [a, mask, b, scales, bias, c])
    assert_close(c, product(a * mask, b * scales, False, False) + bias)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"m": 0}, "empty"),
        ({"dtype": "int32"}, "not int32"),
        ({"b": "direct", "transpose_b": True}, "in place"),
        ({"a": "direct", "dtype": "bfloat16"}, "in place"),
        ({"b": "packed", "transpose_b": True}, "transposed"),
        ({"depth": 8}, "multiple of 16"),
        ({"a": "packed"}, "no such way to read A"),
        ({"b": "rows"}, "no such way to read B"),
        ({"b": "packed", "share": "groups"}, "groups of columns"),
        ({"share": "rows"}, "share the work"),
    ],
)
def test_bad_specs(fields, message):
    given = {"m": 2, "n": 2, "k": 40, "transpose_a": False, "transpose_b": False}
    given |= {"dtype": "float32", "epilogue": gemm(1, 1, 1).epilogue, "rows": 2, "columns": 16}
    given |= {"depth": 40, "tiles": 1, "panels": 1}
    with pytest.raises(ValueError, match=message):
        Gemm(**(given | fields))
