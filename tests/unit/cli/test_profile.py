"""`tilewright profile`: the table, its other forms, and the timeline."""

from __future__ import annotations

import csv
import io
import json
import lzma
from pathlib import Path

import pytest

from fakes.command_line import tilewright
from tilewright.base.host import describe
from tilewright.base.outcome import Outcome

ARCHIVES = Path(__file__).resolve().parents[2] / "golden" / "archives"


@pytest.mark.slow
def test_the_table_names_every_kernel(mlp_vmfb: Path) -> None:
    kernels = tilewright("inspect", mlp_vmfb, "--output=plan").out
    done = tilewright("profile", mlp_vmfb, "--calls=2", "--no-limits")
    assert done.code == 0, done.err
    assert "commands" in done.out
    rows = json.loads(tilewright("profile", mlp_vmfb, "--calls=1", "--format=json").out)
    assert rows
    for row in rows:
        assert row["kernel"] in done.out
        assert row["kernel"] in kernels or row["kernel"] in {"copy", "fill"}
        assert row["ns"] > 0
        assert row["outcome"] in {outcome.value for outcome in Outcome}
        assert row["calls"] >= 1
        assert row["limit"] in {"compute", "memory", "L3", "L2", "L1", "start"}
        assert row["nodes"]
    assert sum(row["flops"] for row in rows) > 0


def test_csv_has_the_columns_of_json(mlp_vmfb: Path) -> None:
    text = tilewright("profile", mlp_vmfb, "--calls=1", "--format=csv").out
    records = list(csv.DictReader(io.StringIO(text)))
    assert list(records[0]) == [
        "kernel", "outcome", "calls", "ns", "flops", "bytes", "limit", "of_limit", "nodes",
    ]  # fmt: skip
    assert all(0 <= float(record["of_limit"]) <= 1 for record in records)
    assert all(int(record["ns"]) > 0 for record in records)


def test_the_trace_is_a_timeline_of_when_things_ran(
    dynamic_onnx: Path, tmp_path: Path
) -> None:
    path = tmp_path / "trace.json"
    done = tilewright(
        "profile", dynamic_onnx, "--dim=batch=3", "--calls=3", "--no-limits",
        f"--trace={path}",
    )  # fmt: skip
    assert done.code == 0, done.err
    assert str(path) in done.err
    events = json.loads(path.read_text())["traceEvents"]
    timed = [e for e in events if e["ph"] == "X"]
    calls = [e for e in timed if e["cat"] == "call"]
    commands = [e for e in timed if e["cat"] != "call" and "flops" in e["args"]]
    threads = [e for e in timed if e not in calls and e not in commands]
    assert len(calls) == 3
    assert len(commands) == 3 * calls[0]["args"]["commands"]
    assert min(e["ts"] for e in timed) == 0
    end = 0.0
    for event in commands:  # one after the other, with what lies between them
        assert event["ts"] >= end - 1e-6
        end = event["ts"] + event["dur"]
    assert threads
    for event in threads:  # within the command that they ran some of
        (whole,) = [c for c in commands if 0 <= event["ts"] - c["ts"] <= c["dur"]]
        assert whole["name"] == event["name"]
        assert event["ts"] + event["dur"] <= whole["ts"] + whole["dur"] + 1e-3
    dispatches = [e for e in commands if e["cat"] == "dispatch"]
    assert all(len(e["args"]["grid"]) == 3 for e in dispatches)
    assert any(e["args"]["flops"] > 0 for e in dispatches)
    assert all(e["args"]["nodes"] for e in dispatches)


@pytest.mark.skipif(describe().arch != "x86_64", reason="x86-64 code")
def test_a_module_of_iree_is_profiled_too(tmp_path: Path) -> None:
    path = tmp_path / "mlp.vmfb"
    data = (ARCHIVES / "iree-3.13.0-mlp_cpu.vmfb.xz").read_bytes()
    path.write_bytes(lzma.decompress(data))
    done = tilewright(
        "profile", path, "--function=mlp", "--calls=1", "--no-limits", "--format=json"
    )
    assert done.code == 0, done.err
    assert any("mlp" in row["kernel"] for row in json.loads(done.out))


def test_an_unknown_folder_is_an_error(mlp_vmfb: Path, tmp_path: Path) -> None:
    done = tilewright(
        "profile", mlp_vmfb, "--no-limits", f"--trace={tmp_path}/no/where.json"
    )
    assert done.code == 1
    assert done.err == f"error: {tmp_path}/no: no such folder\n"
    assert "Traceback" not in done.err


def test_the_timeline_never_overwrites_what_is_profiled(mlp_vmfb: Path) -> None:
    before = mlp_vmfb.read_bytes()
    done = tilewright("profile", mlp_vmfb, "--no-limits", "--trace", mlp_vmfb)
    assert done.code == 1
    assert "is an input, which writing there would destroy" in done.err
    assert mlp_vmfb.read_bytes() == before
    assert tilewright("profile", mlp_vmfb, "--no-limits", "--trace", "/dev/null").code == 0
