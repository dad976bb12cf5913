"""What holds a kernel up: one cause, a sentence with its figures, and what would help."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tilewright.api.profiling import KernelRow
from tilewright.api.profiling.causes import Cause, Observation, findings_of
from tilewright.api.profiling.roofline import Roofline
from tilewright.base.outcome import Outcome

LIMITS = Roofline(4, 100e9, 10e9, (("L3", 25e9), ("L2", 50e9), ("L1", 100e9)))
ALONE = replace(LIMITS, threads=1)


def row(
    time_ns: int, *, flops: int = 0, size_bytes: int = 0, outcome: Outcome = Outcome.TILED
) -> KernelRow:
    return KernelRow("k", 1, flops, size_bytes, time_ns, outcome, ("node",))


BUSY = Observation(row=row(1_000_000, flops=90_000_000), pieces=8, came=4)
BELOW = Observation(row=row(1_000_000, flops=30_000_000), pieces=8, came=4, busy=0.95)
CASES = (
    (replace(BUSY, row=row(1_000_000, outcome=Outcome.HOST)), Cause.HOST, "in Python"),
    (replace(BUSY, row=row(1_000_000, outcome=Outcome.CALL)), Cause.CALL, "code generator"),
    (
        replace(BUSY, row=row(1_000_000, outcome=Outcome.GENERIC)),
        Cause.NO_LANES,
        "without vectors",
    ),
    (
        replace(BUSY, row=row(3_000, outcome=Outcome.GENERIC)),
        Cause.START,
        "A run takes 3.00 µs",
    ),
    (
        replace(BELOW, row=row(3_000, flops=180_000), pieces=1),
        Cause.START,
        "A run takes 3.00 µs",
    ),
    (BUSY, Cause.COMPUTE, "run at 90 % of"),
    (
        replace(BUSY, row=row(1_000_000, size_bytes=9_000_000)),
        Cause.MEMORY,
        "It moves 8.6 MiB, at 90 % of what memory",
    ),
    (
        replace(BUSY, row=row(1_000_000, size_bytes=9_000_000), weight_bytes=8_000_000),
        Cause.MEMORY,
        "It reads 7.6 MiB of weights",
    ),
    (
        replace(BUSY, row=row(1_000_000, size_bytes=24_000_000)),
        Cause.CACHE,
        "96 % of what the L3 cache delivers",
    ),
    (replace(BELOW, pieces=1), Cause.PIECES, "1 piece, so 3 of 4 threads"),
    (replace(BELOW, came=2), Cause.ABSENT, "2 of 4 threads did all of it"),
    (replace(BELOW, busy=0.6), Cause.UNEVEN, "work 60 % of the time"),
    (BELOW, Cause.BELOW, "nearest to compute and reaches 30 % of it"),
    (replace(BELOW, pieces=0, came=0), Cause.BELOW, "nearest to compute"),
)


@pytest.mark.parametrize(("seen", "cause", "words"), CASES, ids=lambda v: str(v)[:20])
def test_a_kernel_has_the_cause_that_its_facts_show(
    seen: Observation, cause: Cause, words: str
) -> None:
    (finding,) = findings_of([seen], LIMITS, model="m.onnx", dims={"batch": 3})
    assert finding.cause is cause
    assert words in finding.reason
    assert bool(finding.advice) == (cause is not Cause.CALL)
    assert 0 <= finding.could_save_ns <= finding.time_ns


def test_what_is_at_a_limit_or_too_short_has_nothing_to_win() -> None:
    done = {Cause.COMPUTE, Cause.MEMORY, Cause.CACHE, Cause.START, Cause.CALL}
    for seen, cause, _ in CASES:
        (finding,) = findings_of([seen], LIMITS, model="m.onnx", dims={})
        assert (finding.could_save_ns == 0) == (cause in done)
    (finding,) = findings_of([BELOW], LIMITS, model="m.onnx", dims={})
    assert finding.could_save_ns == 700_000


def test_one_thread_waits_for_nobody() -> None:
    seen = replace(BELOW, pieces=1, came=1, busy=0.5)
    (finding,) = findings_of([seen], ALONE, model="m.onnx", dims={})
    assert finding.cause is Cause.BELOW


@pytest.mark.parametrize(
    ("model", "advice"),
    [
        ("m.onnx", "tilewright tune m.onnx --kernel k --threads 4 --dim batch=3"),
        ("m.vmfb", "tilewright tune, on the model that this was compiled from"),
    ],
)
def test_commands_name_the_model_the_kernel_and_the_sizes(model: str, advice: str) -> None:
    (finding,) = findings_of([BELOW], LIMITS, model=model, dims={"batch": 3})
    assert advice in finding.advice
    assert any(f"inspect {model} --output=kernel --kernel=k" in a for a in finding.advice)
