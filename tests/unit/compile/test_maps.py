"""Maps against their NumPy meaning: sizes, types, strides, positions, threads."""

from __future__ import annotations

import numpy as np
import pytest

from headrace._src.compile.codegen.iteration_spaces import Access
from headrace._src.compile.codegen.loop_programs import show
from headrace._src.compile.kernels.rows.map_kernel import Map
from headrace._src.compile.native.machine_code import run_kernel
from headrace._src.devices.target import host
from headrace._src.lowering.pointwise import Pointwise, record
from tests.unit.compile.arrays import TYPES, dense, numbers, seen


def copy_of(dtype: str) -> Pointwise:
    return Pointwise((dtype,), (), (0,))


def check(spec: Map, arrays: list[np.ndarray], outputs: list[np.ndarray], threads: int = 2) -> None:
    """Run a map and compare with the program's evaluation on views."""
    run_kernel(spec, [*arrays, *outputs], threads)
    views = [seen(a, spec.extents, s) for a, s in zip(arrays, spec.inputs, strict=True)]
    positions = np.indices(spec.extents)
    expected = spec.program.evaluate(*views, indices=positions)
    for got, want, access in zip(outputs, expected, spec.outputs, strict=True):
        found = seen(got, spec.extents, access)
        np.testing.assert_array_equal(found, np.broadcast_to(want, spec.extents))


@pytest.mark.parametrize("size", [0, 1, 3, 15, 16, 17, 31, 63, 64, 65, 1000, 50_000])
@pytest.mark.parametrize("rows", [1, 3, 17])
def test_sizes_and_broadcasting(rows, size):
    program = record(lambda e, x, y, z: e.max(x * 2.0 + y, z), ["float32"] * 3)
    inputs = (dense("float32", rows, size), Access("float32", (0, 1)), Access("float32", (1, 0)))
    spec = Map((rows, size), program, inputs, (dense("float32", rows, size),))
    x, y, z = numbers("float32", rows, size), numbers("float32", size), numbers("float32", rows)
    check(spec, [x, y, z], [numbers("float32", rows, size, seed=1)])


@pytest.mark.parametrize("dtype", TYPES)
def test_types(dtype):
    program = record(lambda e, x, y: (e.max(x, y), e.eq(x, y)), [dtype] * 2)
    spec = Map((5, 77), program, (dense(dtype, 5, 77),) * 2,
               (dense(dtype, 5, 77), dense("bool", 5, 77)))  # fmt: skip
    check(
        spec,
        [numbers(dtype, 5, 77), numbers(dtype, 5, 77, seed=1)],
        [numbers(dtype, 5, 77, seed=2), numbers("bool", 5, 77)],
    )


@pytest.mark.parametrize("dtype", ["bool", "int16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (2, 40), (16, 16), (17, 33), (24, 300), (70, 9)])
def test_transposed(shape, dtype):
    rows, columns = shape
    spec = Map(shape, copy_of(dtype), (Access(dtype, (1, rows)),), (dense(dtype, *shape),))
    check(spec, [numbers(dtype, columns, rows)], [numbers(dtype, *shape, seed=1)])


def test_transposed_beside_others():
    program = record(lambda e, x, y, b: x * y + b, ["float32"] * 3)
    inputs = (Access("float32", (1, 45)), dense("float32", 45, 90), Access("float32", (1, 0)))
    spec = Map((45, 90), program, inputs, (dense("float32", 45, 90),))
    arrays = [numbers("float32", 90, 45), numbers("float32", 45, 90), numbers("float32", 45)]
    check(spec, arrays, [numbers("float32", 45, 90, seed=1)])


@pytest.mark.parametrize("shape", [(2, 5, 7, 3), (3, 4, 50, 32), (2, 40, 40, 64)])
def test_channels_first(shape):
    n, h, w, c = shape
    spec = Map((n, c, h, w), copy_of("float32"), (Access("float32", (h * w * c, 1, w * c, c)),),
               (dense("float32", n, c, h, w),))  # fmt: skip
    check(spec, [numbers("float32", *shape)], [numbers("float32", n, c, h, w, seed=1)])


@pytest.mark.parametrize("pixels", [1, 7, 49, 3000])
def test_blocked_channels(pixels):
    spec = Map((2, 3, pixels, 16), copy_of("float32"),
               (Access("float32", (pixels * 48, 16, 48, 1)),),
               (dense("float32", 2, 3, pixels, 16),))  # fmt: skip
    x, y = numbers("float32", 2, pixels, 48), numbers("float32", 2, 3, pixels, 16)
    check(spec, [x], [y])


@pytest.mark.parametrize("dtype", ["int8", "float32", "float64"])
def test_strided_and_reversed(dtype):
    access = Access(dtype, (60, -2), 59)
    spec = Map((4, 29), copy_of(dtype), (access,), (dense(dtype, 4, 29),))
    check(spec, [numbers(dtype, 4, 60)], [numbers(dtype, 4, 29)])


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_strided_output(dtype):
    """Every third element is written, what is between them stays."""
    out = numbers(dtype, 4, 120, seed=1)
    before = out.copy()
    spec = Map((4, 40), copy_of(dtype), (dense(dtype, 4, 40),), (Access(dtype, (120, 3), 1),))
    check(spec, [numbers(dtype, 4, 40)], [out])
    out[:, 1::3] = before[:, 1::3]
    np.testing.assert_array_equal(out, before)


def test_positions():
    program = record(lambda e, x: (e.eq(e.index(1), x), e.index(0)), ["int64"])
    spec = Map((6, 35), program, (Access("int64", (1, 0)),),
               (dense("bool", 6, 35), dense("int64", 6, 35)))  # fmt: skip
    check(spec, [np.arange(6) * 7], [numbers("bool", 6, 35), numbers("int64", 6, 35)])


def test_positions_of_large_blocks():
    program = record(lambda e: e.cast(e.index(0), "float32"), [])
    spec = Map((200_000,), program, (), (dense("float32", 200_000),))
    check(spec, [], [numbers("float32", 200_000)])


def test_scalar_space():
    program = record(lambda e, x: e.exp(x * 0.0), ["float32"])
    spec = Map((), program, (Access("float32", ()),), (Access("float32", ()),))
    check(spec, [numbers("float32", 1)], [numbers("float32", 1, seed=1)])


def test_in_place():
    program = record(lambda e, w, g: w - g * 0.5, ["float32"] * 2)
    spec = Map((1003,), program, (dense("float32", 1003),) * 2, (dense("float32", 1003),))
    w, g = numbers("float32", 1003), numbers("float32", 1003, seed=1)
    expected = w - g * np.float32(0.5)
    run_kernel(spec, [w, g, w])
    np.testing.assert_array_equal(w, expected)


@pytest.mark.parametrize("shift", [0, 1])
def test_streamed_stores(shift):
    """Large outputs go past the caches if they are aligned, and are right if they aren't."""
    spec = Map((3001,), copy_of("float32"), (dense("float32", 3001),), (dense("float32", 3001),), 1)
    assert "stream" in show(spec.loops(host()))
    check(spec, [numbers("float32", 3001)], [numbers("float32", 3002, seed=1)[shift:][:3001]])


def test_one_thread_and_many():
    program = record(lambda e, x: e.tanh(x), ["float32"])
    spec = Map((300, 100), program, (dense("float32", 300, 100),), (dense("float32", 300, 100),))
    x = numbers("float32", 300, 100)
    results = []
    for threads in (1, 2, 5):
        out = numbers("float32", 300, 100, seed=threads)
        run_kernel(spec, [x, out], threads)
        results.append(out)
    assert all(np.array_equal(r, results[0]) for r in results)


def test_bad_accesses_are_refused():
    with pytest.raises(ValueError, match="another rank"):
        Map((3, 4), copy_of("float32"), (Access("float32", (1,)),), (dense("float32", 3, 4),))
    with pytest.raises(ValueError, match="don't fit the program"):
        Map((3,), copy_of("float32"), (dense("float64", 3),), (dense("float32", 3),))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "bool", "int8"])
def test_last_lane_alone_leaves_its_neighbour(dtype):
    """LLVM would store too much of a last lane that was narrowed in a register."""
    program = record(lambda e, x: e.cast(x, dtype), ["float32"])
    out = numbers(dtype, 18, seed=1)
    neighbour = out[17]
    spec = Map((17,), program, (dense("float32", 17),), (dense(dtype, 17),))
    check(spec, [numbers("float32", 17)], [out])
    assert out[17] == neighbour
