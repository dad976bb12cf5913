"""The limits of this machine: measured by our own kernels, in a plausible range."""

from __future__ import annotations

from tilewright.cli.roofline import measure


def test_the_limits_are_those_of_a_machine_of_our_time() -> None:
    limits = measure(1, seconds=0.05)
    assert limits.threads == 1
    assert 1e9 < limits.flops < 1e13
    assert 1e8 < limits.read_bytes < 1e12
