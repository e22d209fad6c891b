"""Shares of a space: they cover every byte once, and are nearly equal."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace._src.collectives.shares import ALIGN, TensorPiece, cut, pieces, place, share

sizes = st.lists(st.integers(0, 5000), min_size=1, max_size=8)


def test_tensors_begin_at_cache_lines():
    assert place([4, 64, 65, 0, 1]) == ((0, 64, 128, 256, 256), 320)


@given(sizes, st.integers(1, 9))
def test_shares_cover_every_byte_once(sizes, count):
    starts, total = place(sizes)
    seen = [bytearray(size) for size in sizes]
    for index in range(count):
        low, high = share(total, count, index)
        assert low % ALIGN == high % ALIGN == 0
        for tensor, start, stop in pieces(starts, sizes, low, high):
            assert start % ALIGN == 0
            for at in range(start, stop):
                seen[tensor][at] += 1
    assert all(byte == 1 for tensor in seen for byte in tensor)


@pytest.mark.parametrize("count", [2, 3, 4])
def test_shares_are_nearly_equal(count):
    _, total = place([100 << 10, 3, 50 << 10])
    found = [high - low for low, high in (share(total, count, i) for i in range(count))]
    assert max(found) - min(found) <= ALIGN


def test_cut_makes_small_pieces():
    assert cut(iter([TensorPiece(0, 0, 100), TensorPiece(2, 64, 256)]), 128) == [
        TensorPiece(0, 0, 100),
        TensorPiece(2, 64, 192),
        TensorPiece(2, 192, 256),
    ]
