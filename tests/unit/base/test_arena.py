"""Packing of lifetimes into one arena."""

from hypothesis import given
from hypothesis import strategies as st

from tilewright.base.arena import ALIGNMENT_BYTES, Block, align, pack, peak_bytes

blocks = st.lists(
    st.builds(
        lambda size, first, length: Block(size, first, first + length),
        st.integers(0, 5000),
        st.integers(0, 12),
        st.integers(0, 6),
    ),
    max_size=25,
)


@given(blocks)
def test_blocks_that_live_together_never_overlap(requests: list[Block]) -> None:
    packing = pack(requests)
    for i, a in enumerate(requests):
        for j, b in enumerate(requests[:i]):
            together = a.first <= b.last and b.first <= a.last
            apart = (
                packing.offsets[i] + a.size_bytes <= packing.offsets[j]
                or packing.offsets[j] + b.size_bytes <= packing.offsets[i]
            )
            assert apart or not together or 0 in (a.size_bytes, b.size_bytes)


@given(blocks)
def test_the_arena_holds_every_block_and_is_not_below_the_peak(
    requests: list[Block],
) -> None:
    packing = pack(requests)
    assert packing.size_bytes >= peak_bytes(requests)
    for offset, block in zip(packing.offsets, requests, strict=True):
        assert offset % ALIGNMENT_BYTES == 0
        assert (
            offset + align(block.size_bytes) <= packing.size_bytes or not block.size_bytes
        )


def test_a_chain_needs_two_buffers_whatever_its_length() -> None:
    chain = [Block(1024, i, i + 1) for i in range(50)]
    assert pack(chain).size_bytes == 2048


def test_another_order_is_tried_where_the_largest_first_leaves_a_gap() -> None:
    """By size the two small blocks, which never end up side by side, need 512 bytes."""
    requests = [Block(128, 2, 4), Block(256, 3, 6), Block(256, 1, 1), Block(128, 0, 2)]
    assert pack(requests).size_bytes == peak_bytes(requests) == 384


@given(blocks)
def test_the_same_blocks_are_packed_the_same_way(requests: list[Block]) -> None:
    assert pack(requests) == pack(list(requests))
