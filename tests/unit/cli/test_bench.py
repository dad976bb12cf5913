"""`tilewright bench`: latency, rates, kernels beside their limits."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from fakes.command_line import tilewright
from tilewright.cli.kernel_table import bar
from tilewright.runtime.session import Session

QUICK = ("--repeat=5", "--warmup=1", "--threads=1")


@pytest.mark.slow
def test_the_report_has_latency_histogram_and_kernels(mlp_vmfb: Path) -> None:
    done = tilewright("bench", mlp_vmfb, *QUICK)
    assert done.code == 0
    assert done.out.startswith(f"{mlp_vmfb}  (1 thread, 5 calls)\n")
    for name in ("min", "median", "p90", "p99", "max"):
        assert done.row(name).split()[1] in ("ns", "µs", "ms", "s")
    assert done.row("arithmetic").endswith("GFLOP")
    assert done.row("FMA peak").endswith("GFLOP/s")
    assert done.row("streaming read").endswith("GB/s")
    table = done.out[done.out.index("\nkernels\n") :].splitlines()
    assert table[2].split()[:5] == ["kernel", "runs", "as", "calls", "time"]
    assert "tiled" in done.out
    limits = {word for line in table[3:] for word in line.split()}
    assert limits & {"compute", "memory", "cache", "start"}
    counts = done.out[done.out.index("calls by duration") : done.out.index("\nkernels\n")]
    assert sum(int(line.split()[-1]) for line in counts.splitlines()[1:] if line) == 5


def test_json_has_the_same_numbers(scale_vmfb: Path) -> None:
    done = tilewright("bench", scale_vmfb, *QUICK, "--dim=batch=10", "--json")
    report = json.loads(done.out)
    assert report["model"] == str(scale_vmfb)
    assert (report["threads"], report["calls"]) == (1, 5)
    assert list(report["latency_ns"]) == ["min", "median", "p90", "p99", "max"]
    assert report["latency_ns"]["min"] <= report["latency_ns"]["max"]
    assert report["peak_flops"] > 0
    assert report["flops"] == sum(k["flops"] for k in report["kernels"]) > 0
    # x is read twice (scale and shift, transpose), y and z are written, scale is read.
    assert report["bytes"] == 4 * (4 * 30 + 3)
    assert {"name", "outcome", "calls", "flops", "bytes", "ns", "limit", "share"} == set(
        report["kernels"][0]
    )


@pytest.mark.parametrize("engine", ["plan", "vm"])
def test_outcomes_are_those_of_the_plan_in_both_engines(
    scale_vmfb: Path, engine: str
) -> None:
    done = tilewright(
        "bench", scale_vmfb, *QUICK, "--dim=batch=10", "--json", f"--engine={engine}"
    )
    rows = json.loads(done.out)["kernels"]
    outcomes = {row["name"]: row["outcome"] for row in rows}
    assert set(outcomes.values()) - {None} == {"pointwise"}


def test_limits_and_kernels_may_be_left_out(scale_onnx: Path) -> None:
    done = tilewright("bench", scale_onnx, *QUICK, "--no-limits", "--kernels=1")
    assert done.code == 0
    assert "FMA peak" not in done.out
    assert "… 1 more" in done.out
    report = json.loads(
        tilewright("bench", scale_onnx, *QUICK, "--no-limits", "--json").out
    )
    assert report["peak_flops"] is None
    assert "limit" not in report["kernels"][0]


def test_the_memory_of_calls_is_shown_beside_its_cap(mlp_vmfb: Path) -> None:
    options = (*QUICK, "--no-limits", "--device=local-task://?memory=64M")
    done = tilewright("bench", mlp_vmfb, *options)
    assert done.row("memory of calls").endswith("of 64.0 MiB at the peak")
    memory = json.loads(tilewright("bench", mlp_vmfb, *options, "--json").out)["memory"]
    assert memory["capacity_bytes"] == 64 << 20
    assert 0 < memory["peak_bytes"] < 64 << 20


def test_inputs_may_be_given(scale_vmfb: Path) -> None:
    values = ("--input=7x3xf32=1", "--input=3xf32=2", "--no-limits")
    assert tilewright("bench", scale_vmfb, *QUICK, *values).code == 0
    done = tilewright("bench", scale_vmfb, *QUICK, values[0], "--no-limits")
    assert (done.code, done.err) == (1, "error: got 1 inputs, expected 2: x, scale\n")
    twice = (*values, "--input=x=7x3xf32=1")
    done = tilewright("bench", scale_vmfb, *QUICK, *twice)
    assert done.err == "error: input 'x' is given by position and by name\n"


@pytest.mark.parametrize(
    ("argument", "text"),
    [
        ("--dim=batch", "error: --dim 'batch': expected NAME=NUMBER\n"),
        ("--dim=batch=-1", "error: --dim 'batch=-1': expected NAME=NUMBER\n"),
        (
            "--dim=bach=2",
            "error: no input has a dimension 'bach'\nhint: did you mean 'batch'?\n",
        ),
        (
            "--dim=q=2",
            "error: no input has a dimension 'q'\nhint: dynamic dimensions: batch\n",
        ),
    ],
)
def test_dimensions_that_are_none_are_named(
    scale_vmfb: Path, argument: str, text: str
) -> None:
    done = tilewright("bench", scale_vmfb, *QUICK, argument)
    assert (done.code, done.err) == (1, text)


def test_bars_are_never_invisible_and_never_too_long() -> None:
    assert bar(0) == ""
    assert bar(1e-9) == "▏"
    assert bar(0.5) == "█" * 12
    assert bar(1) == "█" * 24
    assert [bar((i + 0.01) / 192)[-1] for i in range(1, 8)] == list("▏▎▍▌▋▊▉")


@pytest.mark.parametrize("as_json", [False, True])
def test_an_interrupt_keeps_what_was_measured(
    mlp_vmfb: Path, as_json: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Session.__call__
    calls = 0

    def interrupted(session: Session, *arrays: object) -> object:
        nonlocal calls
        calls += 1
        if calls == 3 + 7 + 1:  # those that warm up, those that are kept
            signal.raise_signal(signal.SIGINT)
        return run(session, *arrays)

    monkeypatch.setattr(Session, "__call__", interrupted)
    json_option = ["--json"] if as_json else []
    done = tilewright("bench", mlp_vmfb, "--seconds", 600, "--no-limits", *json_option)
    assert done.code == 130
    assert done.err == "interrupted: kernels were not measured\n"
    if as_json:
        assert json.loads(done.out)["calls"] == 7
        return
    assert "7 calls)" in done.out
    assert done.row("median").endswith("s")
    assert "calls by duration" in done.out
