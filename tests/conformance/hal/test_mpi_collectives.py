"""Collectives between processes: a worker per rank, started by `mpiexec`."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from fakes.mpi_ranks import needs_mpi
from fakes.mpi_ranks import run_ranks as run_commands

WORKER = Path(__file__).parents[2] / "fakes" / "mpi_worker.py"

pytestmark = [pytest.mark.slow, needs_mpi]


def run_ranks(case: str, count: int, device: str = "local-sync") -> tuple[str, int]:
    """What the ranks of a case print, and the exit status."""
    command = [sys.executable, str(WORKER), case]
    uri = f"{device}://?collectives=mpi"
    return run_commands([command] * count, TILEWRIGHT_TEST_DEVICE=uri)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("case", ["everything", "pairs", "commands"])
def test_collectives_do_what_they_should(case: str, count: int) -> None:
    text, status = run_ranks(case, count, "local-task" if count == 2 else "local-sync")
    assert (status, text.count(": ok")) == (0, count), text


@pytest.mark.parametrize("case", ["split", "ranks", "identifier"])
def test_groups_of_some_ranks(case: str) -> None:
    text, status = run_ranks(case, 3)
    assert (status, text.count(": ok")) == (0, 3), text
    if case == "ranks":
        assert (
            len(re.findall(r"rank 0 of 4, but for MPI this process is rank \d of 3", text))
            == 3
        )


def test_ranks_that_disagree_are_told() -> None:
    text, status = run_ranks("disagreement", 3)
    assert (status, text.count(": ok")) == (0, 3), text
    for rank in range(3):
        assert re.search(
            rf"^{rank}: rank 2 wants all_reduce product of f32, 4 el", text, re.MULTILINE
        )
        assert re.search(
            rf"^{rank}: rank 1 wants .* 4 elements, .*; rank 0 .*, 3, 0", text, re.MULTILINE
        )
        assert re.search(
            rf"^{rank}: rank 1 wants to split the channel, rank 0 to run",
            text,
            re.MULTILINE,
        )
        assert re.search(
            rf"^{rank}: send_recv: rank 0 receives from 1, which sends", text, re.MULTILINE
        )
    for rank in range(2):
        assert re.search(
            rf"^{rank}: rank 1 wants recv of f32, 3 el.*send of f32, 2", text, re.MULTILINE
        )


def test_a_rank_that_fails_fails_the_others() -> None:
    text, status = run_ranks("failure", 3)
    assert (status, text.count(": ok")) == (0, 3), text
    for rank in (0, 2):
        told = (
            rf"^{rank}: .*another participant failed: rank 1: the disk is full \(ABORTED\)$"
        )
        assert len(re.findall(told, text, re.MULTILINE)) == 2


@pytest.mark.parametrize("case", ["leaving", "exception"])
def test_a_rank_that_leaves_is_not_waited_for(case: str) -> None:
    text, status = run_ranks(case, 3)
    assert (status == 0) == (case == "leaving"), text
    told = r"^{}: MPI group 'default' of 3: .*rank (\d) has left \(ABORTED\)"
    left = {rank: re.findall(told.format(rank), text, re.MULTILINE) for rank in (0, 2)}
    expected = 2 if case == "leaving" else 1
    assert {rank: len(found) for rank, found in left.items()} == {
        0: expected,
        2: expected,
    }, text
    # The other one may have heard of the third rank first, which heard of rank 1, was done and left.
    assert "1" in left[0] + left[2], text
