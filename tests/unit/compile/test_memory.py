"""The arena: buffers that live together never overlap, and the packing stays near the peak."""

from hypothesis import given
from hypothesis import strategies as st

from headrace._src.compile.plan.pack_arena import ALIGNMENT, Lifetime, live_peak, pack

lifetimes = st.lists(
    st.builds(
        lambda size, first, length: Lifetime(size, first, first + length),
        st.integers(1, 200_000),
        st.integers(0, 20),
        st.integers(0, 8),
    ),
    max_size=30,
)


@given(lifetimes)
def test_buffers_that_live_together_do_not_overlap(lives):
    offsets, total = pack(lives)
    for i, (a, x) in enumerate(zip(lives, offsets, strict=True)):
        assert x % ALIGNMENT == 0
        assert x + a.size <= total
        for b, y in zip(lives[:i], offsets, strict=False):
            together = a.first <= b.last and b.first <= a.last
            assert not together or x + a.size <= y or y + b.size <= x


@given(lifetimes)
def test_no_packing_is_below_the_live_peak(lives):
    assert pack(lives)[1] >= live_peak(lives)


def test_a_chain_of_equal_buffers_needs_two():
    lives = [Lifetime(1 << 20, i, i + 1) for i in range(50)]
    assert pack(lives)[1] == 2 << 20


def test_nothing_needs_no_memory():
    assert pack([]) == ([], 0)
    assert live_peak([]) == 0
