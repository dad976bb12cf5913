"""The limits of this machine: measured by our own kernels, in a plausible range."""

from __future__ import annotations

from tilewright.api.profiling.roofline import Roofline, measure


def are_plausible(limits: Roofline) -> bool:
    rates = [rate for _, rate in limits.caches]
    return (
        1e9 < limits.flops < 1e13
        and 1e8 < limits.read_bytes < 1e12
        and all(0.5 * limits.read_bytes < rate < 1e13 for rate in rates)
    )


def test_the_limits_are_those_of_a_machine_of_our_time() -> None:
    for turn in range(5):  # another process may take the processor during one of the rates
        limits = measure(1, seconds=0.05)
        assert limits.threads == 1
        assert set(dict(limits.caches)) <= {"L1", "L2", "L3"}
        if are_plausible(limits):
            break
        assert turn < 4, limits


def test_rates_are_put_beside_the_farthest_level_that_is_as_fast() -> None:
    limits = Roofline(2, 1e12, 10.0, (("L3", 8.0), ("L2", 40.0)))
    assert limits.level_of(5.0) == ("memory", 0.5)
    assert limits.level_of(10.0) == ("memory", 1.0)
    assert limits.level_of(20.0) == ("L2", 0.5)
    assert limits.level_of(80.0) == ("L2", 2.0)
    assert Roofline(1, 1e12, 10.0).level_of(20.0) == ("memory", 2.0)
