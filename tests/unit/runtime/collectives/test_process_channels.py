"""Groups of one process: who finds whom by a name, and what is left of names that nobody uses."""

from __future__ import annotations

from tilewright.runtime.collectives import process_channels
from tilewright.runtime.collectives.process_channels import ProcessChannels


def test_ranks_with_one_name_meet_and_a_rank_that_comes_again_opens_the_next_group() -> (
    None
):
    channels = ProcessChannels()
    first = channels.open_group("meeting", 0, 2)
    assert channels.open_group("meeting", 1, 2) is first
    second = channels.open_group("meeting", 1, 2)
    assert second is not first
    assert channels.open_group("meeting", 0, 2) is second
    assert channels.open_group("meeting", 0, 3) not in (first, second)


def test_names_are_forgotten_with_their_groups() -> None:
    channels = ProcessChannels()
    kept = [channels.open_group(f"kept {index}", 0, 2) for index in range(5)]
    for index in range(500):
        channels.open_group(f"name {index}", 0, 2)
    assert len(process_channels._GROUPS) < 30  # pyright: ignore[reportPrivateUsage]
    for index, group in enumerate(kept):
        assert channels.open_group(f"kept {index}", 1, 2) is group
