"""Readings of /proc tell foreign work from our own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from figures.limits import Limits
from figures.machine import (
    Load,
    foreign_share,
    process_tree,
    read_process_seconds,
    tree_memory_bytes,
)


def load(wall_s: float, busy_s: float, own_s: float) -> Load:
    return Load(wall_s=wall_s, busy_s=busy_s, own_s=own_s)


@pytest.mark.parametrize(
    ("after", "share"),
    [
        (load(1, 1, 1), 0.0),
        (load(1, 1, 0.5), 0.5),
        (load(1, 0.2, 0.5), 0.0),
        (load(1, 9, 0), 1.0),
        (load(0, 0, 0), 0.0),
    ],
)
def test_the_foreign_share_is_what_others_used(after: Load, share: float) -> None:
    assert foreign_share(load(0, 0, 0), after, 1) == pytest.approx(share)


def test_a_process_that_is_gone_used_nothing() -> None:
    assert read_process_seconds(2**22 + 1) == 0.0


def test_the_tree_holds_children_and_their_memory() -> None:
    program = (
        "import sys; x = bytearray(50_000_000); print('up', flush=True); sys.stdin.read()"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert child.stdout is not None
        child.stdout.readline()
        assert child.pid in process_tree(os.getpid())
        assert 50e6 < tree_memory_bytes(child.pid) < 200e6
    finally:
        child.communicate()


@pytest.mark.slow
def test_the_limits_are_those_of_a_processor_and_not_of_an_optimised_away_loop() -> None:
    limits = Limits(1)
    assert 1e9 < limits.fma_flops(0.02) < 1e12
    assert 1e8 < limits.tile_flops(0.02) < 1.05 * limits.fma_flops(0.02)
    assert 1e8 < limits.read_bytes(0.05) < 1e12
