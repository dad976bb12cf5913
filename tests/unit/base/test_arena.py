"""Packing of lifetimes into one arena."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.base import arena
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


def place_by_looking_at_all(requests: list[Block], order: list[int]) -> tuple[int, ...]:
    """The placement as it is defined: for each block the tightest gap between all those it lives with."""
    places: dict[int, tuple[int, int]] = {}
    for index in order:
        block, size = requests[index], align(requests[index].size_bytes)
        neighbours = sorted(
            place
            for other, place in places.items()
            if requests[other].first <= block.last and block.first <= requests[other].last
        )
        gaps, cursor = [], 0
        for start, end in neighbours:
            if start - cursor >= size:
                gaps.append((start - cursor, cursor))
            cursor = max(cursor, end)
        if size:
            begin = min(gaps)[1] if gaps else cursor
            places[index] = (begin, begin + size)
    return tuple(places.get(index, (0, 0))[0] for index in range(len(requests)))


@given(blocks, st.sampled_from([0, 1, 16, 10**6]))
def test_every_way_to_look_for_neighbours_gives_the_same_places(
    requests: list[Block], looking_for_one: int
) -> None:
    order = sorted(range(len(requests)), key=lambda i: (-requests[i].size_bytes, i))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arena, "_LOOKING_FOR_ONE", looking_for_one)
        packing = arena._pack_in_order(requests, order)
    assert packing.offsets == place_by_looking_at_all(requests, order)


def test_short_lives_are_looked_up_not_searched_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Counted, since a test asserts no time."""
    met: list[int] = []

    def best_gap(size: int, rows: list[tuple[int, int, int, int]]) -> int:
        met.append(len(rows))
        return max((end for _, end, _, _ in rows), default=0)

    monkeypatch.setattr(arena, "_best_gap", best_gap)
    requests = [Block(64 * (1 + i % 7), i, i + 3) for i in range(2000)]
    searched: list[int] = []
    search = arena._Placed._search

    def counted(self: arena._Placed, first: int, begun: int) -> list[tuple[int, ...]]:
        found = search(self, first, begun)
        searched.append(len(found))
        return found

    monkeypatch.setattr(arena._Placed, "_search", counted)
    arena._pack_in_order(requests, list(range(2000)))
    assert max(met) == 3
    assert len(searched) > 1500
