"""The table of what of IREE runs here says what the tests saw, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import compatibility
from tilewright.formats.bytecode.isa import OPCODES


def seen(folder: Path, suite: str, name: str, outcome: str, **more: object) -> None:
    (folder / suite).mkdir(parents=True, exist_ok=True)
    row = {"outcome": outcome, "detail": "x" * 999, **more}
    (folder / suite / f"{name}.json").write_text(json.dumps(row), encoding="utf-8")


CONTENTS = {
    "bytecode": "17.0",
    "modules": {"hal": 7},
    "formats": ["embedded-elf-x86_64"],
    "opcodes": ["add.i32"],
    "imports": ["hal.devices.get"],
}


def test_later_runs_are_merged_and_can_be_alone(tmp_path: Path) -> None:
    folder, results = tmp_path / "seen", tmp_path / "results.json"
    seen(folder, "programs", "one", "equal", **CONTENTS)
    compatibility.collect(folder, results)
    (folder / "programs" / "one.json").unlink()
    seen(folder, "programs", "two", "refused")
    merged = compatibility.collect(folder, results)
    assert list(merged["programs"]["cases"]) == ["one", "two"]
    assert merged["programs"]["opcodes"] == ["add.i32"]
    assert json.loads(results.read_text()) == merged
    alone = compatibility.collect(folder, results, fresh=True)
    assert list(alone["programs"]["cases"]) == ["two"]


def test_the_page_counts_every_outcome_and_names_what_differs(tmp_path: Path) -> None:
    folder, results = tmp_path / "seen", tmp_path / "results.json"
    seen(folder, "onnx-llvm-cpu", "good", "equal", **CONTENTS)
    refusal = {"reason": "ONNX operator without a lowering", "subject": "Loop"}
    seen(folder, "onnx-llvm-cpu", "refused", "refused", **refusal)
    seen(folder, "onnx-llvm-cpu", "bad", "different", **CONTENTS)
    seen(folder, "onnx-llvm-cpu", "stuck", "not run by IREE")
    seen(folder, "onnx-llvm-cpu", "chance", "undefined")
    seen(folder, "our-models", "mlp", "equal", **CONTENTS)
    seen(folder, "releases", "3.10.0 vmvx add", "equal", **CONTENTS)
    seen(folder, "releases", "3.9.0 vmvx add", "different", **CONTENTS)
    compatibility.collect(folder, results)
    page = compatibility.page("note", results)
    assert "| ONNX node cases, llvm-cpu | 5 | 1 | 1 | 1 | 1 | 1 |" in page
    assert "| ONNX operator without a lowering | 1 | `Loop` 1 |" in page
    assert "`bad`: different: xxx" in page
    assert "x" * (compatibility.REASON_LENGTH + 1) not in page
    assert "| `mlp` | - | equal |" in page
    old, new = (page.index(f"| {release} | 17.0 | 7 |") for release in ("3.9.0", "3.10.0"))
    assert old < new
    assert "vmvx add | 0 of 1 |" in page
    assert "vmvx add | all equal |" in page
    assert f"1 of {len(OPCODES)} opcodes: `add.i32`" in page


def test_the_page_of_nothing_says_so(tmp_path: Path) -> None:
    results = tmp_path / "results.json"
    results.write_text("{}")
    page = compatibility.page("note", results)
    assert "ONNX node cases, vmvx | 0 | 0 | 0 | 0 | 0 | 0 |" in page
    assert "Formats of executables: none" in page
