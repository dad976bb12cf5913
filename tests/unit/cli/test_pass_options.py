"""`compile` with options about passes and schedules."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fakes.command_line import tilewright


def test_the_graph_is_printed_around_passes(mlp_onnx: Path, tmp_path: Path) -> None:
    done = tilewright(
        *("compile", mlp_onnx, "-q", "-o", tmp_path / "m.vmfb"),
        *("--print-ir-before=fuse-kernels", "--print-ir-after=FuseKernels"),
    )
    assert done.code == 0
    heads = [line for line in done.err.splitlines() if line.startswith("// -----")]
    assert heads == [
        "// ----- before fuse-kernels -----",
        "// ----- after fuse-kernels -----",
    ]
    assert "fused(" in done.err


def test_times_and_dumps_are_of_every_pass(mlp_onnx: Path, tmp_path: Path) -> None:
    done = tilewright(
        *("compile", mlp_onnx, "-q", "-o", tmp_path / "m.vmfb"),
        *("--print-pass-times", f"--dump-ir={tmp_path / 'ir'}"),
    )
    assert done.code == 0
    assert "fuse-kernels " in done.err
    names = sorted(path.name for path in (tmp_path / "ir").iterdir())
    assert names[0] == "000-input.twir"
    assert names[-1].endswith("-fuse-kernels.twir")


def test_passes_are_left_out_or_run_whatever_the_level(
    mlp_onnx: Path, tmp_path: Path
) -> None:
    plain = ("compile", mlp_onnx, "-q", "-o", tmp_path / "m.vmfb", "--print-pass-times")
    done = tilewright(*plain, "--disabled-pass=fold-scales", "--opt-level=1")
    assert "fold-scales" not in done.err
    assert "fuse-kernels" not in done.err
    done = tilewright(*plain, "--required-pass=fuse-kernels", "--opt-level=1")
    assert "fuse-kernels" in done.err
    done = tilewright(
        *plain, "--pass-config=fuse-kernels.most_nodes=1", "--dump-ir", tmp_path
    )
    assert done.code == 0


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ("--disabled-pass=fold", "there is no pass 'fold'"),
        ("--print-ir-before=fold", "--print-ir-before: there is no pass 'fold'"),
        ("--disabled-pass=split-concat", "pass 'split-concat' cannot be disabled"),
        ("--pass-config=a=b", "config: there is no key 'a'"),
        ("--pass-config=a", "--pass-config 'a': expected KEY=VALUE"),
        ("--pass-config=split-concat.most_operands=999", "expected a number from 2 to 48"),
        ("--schedules=nothing.json", "nothing.json"),
    ],
)
def test_what_there_is_not_is_named(
    option: str, text: str, mlp_onnx: Path, tmp_path: Path
) -> None:
    done = tilewright("compile", mlp_onnx, "-o", tmp_path / "m.vmfb", option)
    assert done.code != 0
    assert text in done.err


def test_schedules_come_from_a_file(mlp_onnx: Path, tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text(json.dumps({"*": []}))
    done = tilewright(
        "compile", mlp_onnx, "-o", tmp_path / "m.vmfb", "--no-cache", f"--schedules={path}"
    )
    assert done.code == 0
    assert "user schedule" in done.row("run as")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "no JSON"),
        ("[]", "expected an object of traces"),
        ('{"none": []}', "no kernel is called 'none'"),
        ('{"*": 3}', "a step of a trace is"),
        ('{"*": [["fly", {}]]}', "unknown primitive 'fly'"),
        ('{"*": [["split", {"loop": "nowhere", "factor": 2}]]}', "no loop 'nowhere'"),
        ('{"*": [["split", {"far": 2}]]}', "step 0"),
    ],
)
def test_files_that_are_no_schedules_are_refused(
    text: str, message: str, mlp_onnx: Path, tmp_path: Path
) -> None:
    path = tmp_path / "mine.json"
    path.write_text(text)
    done = tilewright("compile", mlp_onnx, "-o", tmp_path / "m.vmfb", f"--schedules={path}")
    assert done.code != 0
    assert message in done.err
