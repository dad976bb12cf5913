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
from tilewright.cli.trace_events import Command, trace_events

ARCHIVES = Path(__file__).resolve().parents[2] / "golden" / "archives"


def test_the_table_names_every_kernel(mlp_vmfb: Path) -> None:
    kernels = tilewright("inspect", mlp_vmfb, "--output=plan").out
    done = tilewright("profile", mlp_vmfb, "--calls=2")
    assert done.code == 0, done.err
    assert "commands" in done.out
    rows = json.loads(tilewright("profile", mlp_vmfb, "--calls=1", "--format=json").out)
    assert rows
    for row in rows:
        assert row["kernel"] in done.out
        assert row["kernel"] in kernels or row["kernel"] in {"copy", "fill"}
        assert row["ns"] > 0
        assert row["outcome"] in {"tiled", "rows"}
        assert row["calls"] >= 1
    assert sum(row["flops"] for row in rows) > 0


def test_csv_has_the_columns_of_json(mlp_vmfb: Path) -> None:
    text = tilewright("profile", mlp_vmfb, "--calls=1", "--format=csv").out
    records = list(csv.DictReader(io.StringIO(text)))
    assert {"kernel", "outcome", "calls", "ns", "flops", "bytes"} == set(records[0])
    assert all(int(record["ns"]) > 0 for record in records)


def test_the_trace_is_a_timeline_without_gaps(dynamic_onnx: Path, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    done = tilewright(
        "profile", dynamic_onnx, "--dim=batch=3", "--calls=3", f"--trace={path}"
    )
    assert done.code == 0, done.err
    assert str(path) in done.err
    events = json.loads(path.read_text())["traceEvents"]
    calls = [e for e in events if e.get("cat") == "call"]
    commands = [e for e in events if e["ph"] == "X" and e.get("cat") != "call"]
    assert len(calls) == 3
    assert len(commands) == 3 * calls[0]["args"]["commands"]
    end = 0.0
    for event in commands:
        assert event["ts"] == pytest.approx(end, abs=1e-6)
        end = event["ts"] + event["dur"]
    assert calls[-1]["ts"] + calls[-1]["dur"] == pytest.approx(end)
    dispatches = [e for e in commands if e["cat"] == "dispatch"]
    assert all(len(e["args"]["grid"]) == 3 for e in dispatches)
    assert any(e["args"]["flops"] > 0 for e in dispatches)


def test_tracks_have_names() -> None:
    trace = trace_events(
        "m", "local", [[Command("k", "dispatch", 1500, {"grid": [1, 1, 1]})]]
    )
    names = [e["args"]["name"] for e in trace["traceEvents"] if e["ph"] == "M"]  # type: ignore[index]
    assert names == ["tilewright m", "calls", "local"]
    assert trace["traceEvents"][3]["dur"] == 1.5  # type: ignore[index]


@pytest.mark.skipif(describe().arch != "x86_64", reason="x86-64 code")
def test_a_module_of_iree_is_profiled_too(tmp_path: Path) -> None:
    path = tmp_path / "mlp.vmfb"
    data = (ARCHIVES / "iree-3.13.0-mlp_cpu.vmfb.xz").read_bytes()
    path.write_bytes(lzma.decompress(data))
    done = tilewright("profile", path, "--function=mlp", "--calls=1", "--format=json")
    assert done.code == 0, done.err
    assert any("mlp" in row["kernel"] for row in json.loads(done.out))


def test_an_unknown_folder_is_an_error(mlp_vmfb: Path, tmp_path: Path) -> None:
    done = tilewright("profile", mlp_vmfb, "--calls=1", f"--trace={tmp_path}/no/where.json")
    assert done.code == 1
    assert done.err == f"error: {tmp_path}/no: no such folder\n"
    assert "Traceback" not in done.err


def test_the_timeline_never_overwrites_what_is_profiled(mlp_vmfb: Path) -> None:
    before = mlp_vmfb.read_bytes()
    done = tilewright("profile", mlp_vmfb, "--trace", mlp_vmfb)
    assert done.code == 1
    assert "is an input, which writing there would destroy" in done.err
    assert mlp_vmfb.read_bytes() == before
    assert tilewright("profile", mlp_vmfb, "--trace", "/dev/null").code == 0
