"""Candidates for a matrix product. In: a shape. Out: specs, likely the fastest first.

All specs of a list take the same buffers: a, b, then the epilogue's operands and outputs. Timing
decides which is the fastest; without it the first is taken.
"""

from __future__ import annotations

from dataclasses import replace

from headrace._src.compile.codegen.cache_lines import LINE
from headrace._src.compile.codegen.epilogue import Epilogue
from headrace._src.compile.codegen.kernel_spec import Kernel
from headrace._src.compile.kernels.gemm.fully_connected import small_batch, small_batch_backward
from headrace._src.compile.kernels.gemm.gemm import (
    Gemm,
    PackB,
    gemm,
    nothing,
    rounding,
)
from headrace._src.compile.kernels.gemm.gemm_blocking import (
    BLOCK_COLUMNS,
    WHOLE,
    panel_depth,
)
from headrace._src.compile.kernels.gemm.gemm_narrow import narrow_product
from headrace._src.compile.kernels.gemm.gemm_onednn import OneDnnGemm
from headrace._src.compile.kernels.gemm.gemm_pack import panel_count
from headrace._src.compile.kernels.onednn_calls import Foreign
from headrace._src.devices import onednn
from headrace._src.devices.target import SIZES, Target, host

__all__ = ["candidates", "packed_gemm"]

FEW_ROWS = 64  # rows of a batch for which reading the weights takes as long as computing
MANY = 128
PACKED = 1 << 17  # bytes of a B that is copied quickly
STRIPE = 8  # tiles beside each other that read a transposed matrix together


def candidates(
    m: int,
    n: int,
    k: int,
    transpose_a: bool = False,
    transpose_b: bool = False,
    dtype: str = "float32",
    epilogue: Epilogue | None = None,
    *,
    rounds_a: str = "",
    rounds_b: str = "",
    threads: int = 2,
    target: Target | None = None,
) -> list[Kernel | Foreign]:
    """Specs for epilogue(op(A) op(B)); `rounds_a`, `rounds_b`: the type to whose precision an
    operand is rounded.
    """
    rounds = rounds_a, rounds_b
    if any(rounds) and dtype != "float32":
        raise ValueError(f"float32 is rounded to {rounds_a or rounds_b}, not {dtype}")
    epilogue = epilogue or nothing(dtype)
    divided = _divided(
        m, n, k, (transpose_a, transpose_b), dtype, epilogue, rounds, threads, target
    )
    if divided:
        return [*divided]
    found: list[Kernel | Foreign] = []
    if SIZES[dtype] >= 4 and not rounds_a:
        found += _small_batches(
            m, n, k, (transpose_a, transpose_b), dtype, epilogue, rounds_b, threads, target
        )
    ways = _ways(m, n, k, transpose_a, transpose_b, dtype, rounds, (target or host()).l2)
    for a, b in ways:
        found.append(
            gemm(
                m, n, k, transpose_a, transpose_b, dtype, epilogue, a=a, b=b,
                prologue_a=rounding(rounds_a), prologue_b=rounding(rounds_b), threads=threads,
                target=target,
            )
        )  # fmt: skip
    plain = dtype == "float32" and epilogue == nothing(dtype) and not any(rounds)
    if plain and target is None and onednn.available():
        found.append(OneDnnGemm(m, n, k, transpose_a, transpose_b))
    return found


def _divided(
    m: int,
    n: int,
    k: int,
    transposed: tuple[bool, bool],
    dtype: str,
    epilogue: Epilogue,
    rounds: tuple[str, str],
    threads: int,
    target: Target | None,
) -> list[Gemm] | list[Kernel]:
    """Return the kernels for a product that fits into the cores' own caches, if matrices can be
    divided into equal parts of their columns. No other division is tried: all products of a network
    should divide their work alike, and timing them one by one would not show that.
    """
    target = target or host()
    size = SIZES[dtype]
    columns = _vectors(target) * target.lanes(dtype)
    if threads < 2 or m <= FEW_ROWS or size < 4:
        return []
    if (m * k + k * n + m * n) * size > threads * target.l2:
        return []
    if n % (threads * columns) == 0:
        return _by_columns(m, n, k, transposed, dtype, epilogue, rounds, threads, target)
    # The dimension that was divided by columns is A's k, or m if it's transposed.
    divided = (m if transposed[0] else k) % (threads * columns) == 0
    if divided and not transposed[1] and not any(rounds):
        narrow = narrow_product(m, n, k, transposed[0], dtype, epilogue, target=target)
        return [] if narrow is None else [narrow]
    return []


def _vectors(target: Target) -> int:
    """How many vectors a row of a large product's tile has."""
    return 4 if target.registers >= 32 else 2


def _by_columns(
    m: int,
    n: int,
    k: int,
    transposed: tuple[bool, bool],
    dtype: str,
    epilogue: Epilogue,
    rounds: tuple[str, str],
    threads: int,
    target: Target,
) -> list[Gemm]:
    """Each thread has a part of the columns. It copies the rows of an A that is rounded, too: what
    another core has written would take longer to read.
    """
    size, vectors = SIZES[dtype], _vectors(target)
    columns = vectors * target.lanes(dtype)
    # A small B is better packed, except where A is copied already. One that is rounded is so once,
    # not for each tile: panel by panel, or in a packed copy, which may fill the core's cache.
    packs = transposed[1] or (not transposed[0] and n // threads * k * size <= PACKED)
    apart = "stripes" if rounds[1] else "direct"
    ways = ["pack" if packs else apart]
    # A row of a narrow panel is one line, and the next one is often in the same few sets of the
    # cache, or in another page: processors differ in what that costs.
    if columns * size <= LINE and not transposed[1]:
        ways.append(apart if packs else "pack")
    found = []
    for b in ways:
        spec = gemm(
            m, n, k, *transposed, dtype, epilogue,
            a="stripes" if transposed[0] or rounds[0] else "direct", b=b,
            tile=((target.registers - 2 - vectors) // vectors, columns),
            depth=panel_depth(columns * size, target), prologue_a=rounding(rounds[0]),
            prologue_b=rounding(rounds[1]), target=target,
        )  # fmt: skip
        tiles = STRIPE if transposed[0] else panel_count(m, spec.rows)
        panels = n // (threads * columns)
        found.append(replace(spec, tiles=tiles, panels=panels, share="columns"))
    return found


def _small_batches(
    m: int,
    n: int,
    k: int,
    transposed: tuple[bool, bool],
    dtype: str,
    epilogue: Epilogue,
    rounds: str,
    threads: int,
    target: Target | None,
) -> list[Kernel | Foreign]:
    """Kernels for few rows and large weights, as they stand in a layer: X W, dY W^T, X^T dY."""
    size, cached = SIZES[dtype], (target or host()).l2
    if transposed == (False, False) and m <= FEW_ROWS and n * k * size > cached:
        return [small_batch(m, n, k, dtype, epilogue, parts=threads, rounds=rounds, target=target)]
    if transposed == (False, True) and m <= FEW_ROWS and n * k * size > cached:
        return [small_batch_backward(m, k, n, dtype, None, epilogue, rounds=rounds, target=target)]
    if transposed == (True, False) and not rounds and k <= FEW_ROWS and m * n * size > cached:
        stream = "full" not in epilogue.operands and m * n * size > (target or host()).streamed
        spec = small_batch_backward(k, n, m, dtype, epilogue, None, stream=stream, target=target)
        return [spec]
    return []


def _ways(
    m: int,
    n: int,
    k: int,
    transpose_a: bool,
    transpose_b: bool,
    dtype: str,
    rounds: tuple[str, str],
    cached: int,
) -> list[tuple[str, str]]:
    """Return which operands to pack and which to read in place, the likely best choice first; a
    core's own cache holds `cached` bytes. An operand that is rounded is so once if it's packed.
    """
    size = SIZES[dtype]
    if size < 4:
        return [("pack", "pack")]
    # Packing pays for a matrix that is used often, or whose rows lie far apart.
    ways_a = ["direct", "pack"]
    if transpose_a and n >= MANY:
        ways_a = ["pack", "direct"] if m * k * size <= cached else ["pack"]
        # What few blocks read isn't worth packing for all threads: each copies it while it
        # multiplies what it has copied before. A k that isn't split leaves no time for that.
        if m * k * size > cached:
            stripes_first = n <= BLOCK_COLUMNS or k > WHOLE
            ways_a = ["stripes", "pack"] if stripes_first else ["pack", "stripes"]
    ways_b = ["pack", "direct"] if n * k * size <= cached else ["pack"]
    if m <= FEW_ROWS and n * k * size > cached:
        ways_b = ["direct"]
    elif m <= 2 * MANY and "direct" in ways_b:
        ways_b = ["direct", "pack"]
    if rounds[0]:
        ways_a = [a for a in ways_a if a != "direct"]
    if transpose_b or (rounds[1] and "pack" in ways_b):
        ways_b = ["pack"]
    firsts = [(a, ways_b[0]) for a in ways_a]
    return [*firsts, *((ways_a[0], b) for b in ways_b[1:])]


def packed_gemm(
    m: int,
    n: int,
    k: int,
    transpose_a: bool = False,
    transpose_b: bool = False,
    dtype: str = "float32",
    epilogue: Epilogue | None = None,
    *,
    target: Target | None = None,
) -> tuple[PackB, Gemm]:
    """Return the packing of B and the product with a packed B, for a B that products share."""
    a = "direct" if SIZES[dtype] >= 4 and not transpose_a else "pack"
    spec = gemm(m, n, k, transpose_a, False, dtype, epilogue, a=a, b="packed", target=target)
    return PackB(n, k, transpose_b, dtype, spec.columns), spec
