"""How a matrix product is divided. In: its size and the register tile. Out: the stretch of k that
is multiplied at a time, and the tiles of a block down and across.
"""

from __future__ import annotations

from headrace._src.compile.kernels.gemm.gemm_pack import panel_count
from headrace._src.devices.target import Target

__all__ = [
    "BLOCK_COLUMNS",
    "FEW_ROWS",
    "WHOLE",
    "block_height",
    "block_size",
    "even_block",
    "group_size",
    "panel_depth",
    "stretch",
]

# A block's rows of A stay in L2, with the sums of its columns if k is split. Rows that are copied
# may be more: others can compete for few of its sets.
BLOCK_ROWS, COPIED_ROWS, BLOCK_COLUMNS = 96, 144, 512
BLOCKS = 4  # at least this many for each thread
WHOLE = 768  # a k that isn't split if panels are wide
WIDE = 256  # bytes of a panel's row
FEW_ROWS, FEW_ROWS_DEPTH = 64, 128


def stretch(m: int, k: int, columns: int, size: int, a: str, target: Target) -> int:
    """How much of k to multiply at a time, if B has panels of `columns` elements of `size` bytes: a
    panel stays in the first-level cache while the tiles of a block are multiplied by it. A stripe
    of A and the next one, which is fetched meanwhile, take a quarter of the second-level cache.
    """
    if m <= FEW_ROWS:
        return FEW_ROWS_DEPTH
    if a == "stripes" and k > WHOLE:
        return target.l2 // 8 // (COPIED_ROWS * size)
    if k <= WHOLE and columns * size >= WIDE:
        return k
    return panel_depth(columns * size, target)


def panel_depth(row: int, target: Target) -> int:
    """How many rows of `row` bytes a panel has that stays in the first-level cache beside the rows
    of A. With wide rows that would be a short stretch of k, so these may fill the cache.
    """
    return target.l1 // row if row >= WIDE else target.l1 // 2 // row


def block_height(rows: int, copied: bool) -> int:
    """About how many tiles of `rows` rows a block has down; `copied`: whether A is."""
    return max(1, (COPIED_ROWS if copied else BLOCK_ROWS) // rows)


def even_block(count: int, size: int) -> int:
    """The size of parts of about `size` that are equal but for rounding."""
    return -(-count // max(1, round(count / size)))


def block_size(
    product: tuple[int, int],
    tile: tuple[int, int],
    height: int,
    split: bool,
    threads: int,
) -> tuple[int, int]:
    """Tiles down (about `height`) and across in a block: few enough for the cache, many blocks for
    the threads. If k isn't split, rows of A stay in the cache while all of B passes by.
    """
    tiles, panels = (panel_count(*sizes) for sizes in zip(product, tile, strict=True))
    if product[0] <= FEW_ROWS:
        down, across, wanted = tiles, 1, 2
    else:
        down = even_block(tiles, height)
        across = even_block(panels, max(1, BLOCK_COLUMNS // tile[1])) if split else panels
        wanted = BLOCKS * threads
        if across == panels and tiles >= down * wanted:
            down = _fair_block(tiles, down, threads)
    while -(-tiles // down) * -(-panels // across) < wanted and (across > 1 or down > 1):
        if across > 1:
            across = -(-across // 2)
        else:
            down = -(-down // 2)
    return down, across


def group_size(
    product: tuple[int, int], block: tuple[int, int], sums: int, threads: int, target: Target
) -> int:
    """Panels of a group of columns: one group for each thread; more if there were too few blocks to
    help with, or if the `sums` of a block, so many bytes for each panel, didn't fit into the cache.
    """
    down, panels = (panel_count(*sizes) for sizes in zip(product, block, strict=True))
    fits = max(1, target.l2 * 2 // 3 // sums) if sums else panels
    groups = threads * max(-(-BLOCKS // down), -(-panels // (threads * fits)))
    return -(-panels // groups)


def _fair_block(count: int, size: int, threads: int) -> int:
    """Return the size of parts, about `size`, for which threads that claim them in turn finish at
    about the same time.
    """

    def longest(size: int) -> int:
        parts, rest = divmod(count, size)
        rounds, more = divmod(parts, threads)
        return rounds * size + (size if more else rest)

    sizes = range(max(1, size * 3 // 4), size * 5 // 4 + 1)
    return min(sizes, key=lambda s: (longest(s), abs(s - size)))
