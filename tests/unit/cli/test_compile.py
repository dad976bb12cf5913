"""`tilewright compile`: a file in, an artifact out, and what it consists of."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from fakes.command_line import tilewright
from tilewright.base import knobs
from tilewright.base.target import Target
from tilewright.formats.artifact import Artifact, extract
from tilewright.formats.vmfb import read_archive


def artifact_of(path: Path) -> Artifact:
    return extract(read_archive(path.read_bytes(), str(path)), str(path))


def test_the_summary_tells_what_the_artifact_holds(mlp_onnx: Path, tmp_path: Path) -> None:
    path = tmp_path / "out.vmfb"
    done = tilewright("compile", mlp_onnx, "-o", path)
    assert done.code == 0
    assert done.out.startswith(f"{path}  (")
    assert done.row("inputs") == "x: f32[5, 20]"
    assert done.row("outputs") == "y: f32[5, 7]"
    assert done.row("kernels").endswith("steps per run")
    assert str(Target.host()) in done.row("code")
    assert done.row("weights").endswith("KiB")
    assert "generate code" in done.row("time")
    assert tw.load(path)(np.zeros((5, 20), np.float32)).shape == (5, 7)


def test_without_a_name_the_artifact_lies_beside_the_model(
    mlp_onnx: Path, tmp_path: Path
) -> None:
    model = tmp_path / "model.onnx"
    model.write_bytes(mlp_onnx.read_bytes())
    assert tilewright("compile", model).code == 0
    assert (tmp_path / "model.vmfb").is_file()


def test_quiet_prints_nothing(mlp_onnx: Path, tmp_path: Path) -> None:
    done = tilewright("compile", mlp_onnx, "-q", "-o", tmp_path / "m.vmfb")
    assert (done.code, done.out, done.err) == (0, "", "")


def test_the_memory_plan_lists_every_tensor(mlp_onnx: Path, tmp_path: Path) -> None:
    done = tilewright("compile", mlp_onnx, "-o", tmp_path / "m.vmfb", "--memory")
    table = done.out[done.out.index("memory plan") :].splitlines()
    assert table[1].split() == ["tensor", "kind", "bytes", "steps", "offset"]
    kinds = {line.split()[1] for line in table[2:]}
    assert kinds == {"input", "output", "constant", "transient"}
    assert "lower bound of any plan: " in done.err


def test_sizes_that_depend_on_a_call_are_said_to(
    dynamic_onnx: Path, tmp_path: Path
) -> None:
    done = tilewright("compile", dynamic_onnx, "-o", tmp_path / "m.vmfb", "--memory")
    assert done.row("inputs") == "x: f32[batch, 20]"
    assert done.row("activations") == "depends on the call's shapes"
    assert "28*batch" in done.out


def test_several_levels_are_several_codes(mlp_onnx: Path, tmp_path: Path) -> None:
    path = tmp_path / "m.vmfb"
    done = tilewright("compile", mlp_onnx, "-o", path, "--target=x86_64", "--levels=v2,v3")
    assert done.code == 0
    assert [v.arch for v in artifact_of(path).variants] == ["x86_64"] * 2
    assert done.out.count("\ncode ") == 2


def test_sources_stay_out_on_request(mlp_onnx: Path, tmp_path: Path) -> None:
    path = tmp_path / "m.vmfb"
    tilewright("compile", mlp_onnx, "-o", path, "-q")
    assert "graph" in artifact_of(path).sources
    tilewright("compile", mlp_onnx, "-o", path, "-q", "--no-sources")
    assert not artifact_of(path).sources


def test_inputs_may_be_fixed_in_shape_or_value(scale_onnx: Path, tmp_path: Path) -> None:
    path = tmp_path / "m.vmfb"
    done = tilewright(
        "compile", scale_onnx, "-o", path,
        "--input-shape=x=4,3", "--input-value=scale=3xf32=1 2 3",
    )  # fmt: skip
    assert done.row("inputs") == "x: f32[4, 3]"
    y, _ = tw.load(path)(np.ones((4, 3), np.float32))
    np.testing.assert_array_equal(y[0], [2, 3, 4])


@pytest.mark.slow
def test_machine_code_is_taken_from_the_cache(mlp_onnx: Path, tmp_path: Path) -> None:
    tilewright("compile", mlp_onnx, "-o", tmp_path / "m.vmfb", "-q")
    again = tilewright("compile", mlp_onnx, "-o", tmp_path / "m.vmfb")
    count = again.row("kernels").split()[0]
    assert again.row("from cache") == f"{count} of {count} kernels"
    fresh = tilewright("compile", mlp_onnx, "-o", tmp_path / "m.vmfb", "--no-cache")
    assert "from cache" not in fresh.out


def test_the_model_is_never_written_over(mlp_onnx: Path, tmp_path: Path) -> None:
    model = tmp_path / "m.onnx"
    model.write_bytes(mlp_onnx.read_bytes())
    named, soft, hard = (tmp_path / f"{name}.vmfb" for name in ("m", "soft", "hard"))
    named.write_bytes(model.read_bytes())
    soft.symlink_to(model)
    hard.hardlink_to(model)
    for arguments in ([named], [model, "-o", soft], [model, "-o", hard]):
        done = tilewright("compile", *arguments)
        assert done.code == 1
        assert "is an input, which writing there would destroy" in done.err
    assert "compiled already (tilewright run)" in tilewright("compile", named).err
    refused = tilewright("compile", model, "-o", model).err
    assert "no format '.onnx'" in refused
    assert ".vmfb (an archive for" in refused
    assert model.read_bytes() == named.read_bytes() == mlp_onnx.read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize(
    "target",
    [
        "riscv64 -mcpu=generic-rv64v",
        pytest.param("aarch64", marks=pytest.mark.slow),
        pytest.param("riscv64", marks=pytest.mark.slow),
    ],
)
def test_code_for_other_processors_is_made_without_a_word_of_llvm(
    mlp_onnx: Path, tmp_path: Path, target: str
) -> None:
    path = tmp_path / "m.vmfb"
    done = subprocess.run(
        [sys.executable, "-m", "tilewright", "compile", mlp_onnx, "-o", path,
         "--target", target, "--no-cache"],
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert artifact_of(path).variants[0].target == str(Target.parse(target))


@pytest.mark.slow
def test_a_library_is_written_with_its_header_and_weights_beside(
    mlp_onnx: Path, tmp_path: Path
) -> None:
    library, header, weights = (tmp_path / name for name in ("net.so", "n.h", "w.irpa"))
    done = tilewright(
        "compile", mlp_onnx, "-o", library, f"--header={header}", f"--weights={weights}"
    )
    assert done.code == 0, done.err
    assert "int net_create(" in header.read_text()
    assert library.read_bytes()[:4] == b"\x7fELF"
    assert weights.read_bytes()[:4] == b"IRPA"
    done = tilewright("compile", mlp_onnx, "-o", tmp_path / "other.a", "--header")
    assert done.code == 0, done.err
    assert "int other_create(" in (tmp_path / "other.h").read_text()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["-o", "net.dll"], "the code is for linux, the file is called '.dll'"),
        (["-o", "net.so", "--target=aarch64-macos"], "the code is for macos"),
        (["-o", "net.vmfb", "--header=n.h"], "only libraries have a header"),
        (["-o", "net.ll", "--weights=w.irpa"], "kernels have no weights"),
        (["-o", "net.so", "--weights=w.bin"], "no file of weights is called '.bin'"),
    ],
)
def test_what_cannot_be_written_is_said_before_the_work(
    mlp_onnx: Path,
    tmp_path: Path,
    options: list[str],
    problem: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    done = tilewright("compile", mlp_onnx, "--target=x86_64", *options)
    assert done.code == 1
    assert problem in done.err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["out.xyz", "out.vmfb.zip"])
def test_the_suffix_decides_the_format(mlp_onnx: Path, tmp_path: Path, name: str) -> None:
    done = tilewright("compile", mlp_onnx, "-o", tmp_path / name)
    assert done.code == 1
    assert "expected one that says what to write" in done.err
    assert "hint: formats: .vmfb (an archive" in done.err
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no FIFOs")
def test_what_is_no_regular_file_is_written_to(mlp_onnx: Path, tmp_path: Path) -> None:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(path.read_bytes()))
    reader.start()
    done = tilewright("compile", mlp_onnx, "-o", path)
    reader.join(30)
    assert done.code == 0, done.err
    assert path.is_fifo()
    piped = subprocess.run(
        [sys.executable, "-m", "tilewright", "compile", mlp_onnx, "-o", "-"],
        capture_output=True,
        check=True,
    )
    assert [read_archive(data, "m").name for data in (*read, piped.stdout)] == [
        "module"
    ] * 2


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            ["--levels=v9"],
            "error: unknown level 'v9', expected v1 v2 v3 v4 or an x86-64 CPU",
        ),
        (["--target=z80"], "error: unknown architecture 'z80'"),
        (["--input-shape=x"], "error: --input-shape 'x': expected NAME=D,D,…"),
        (["--input-shape=q=1"], "error: input_shapes names 'q'"),
        (["--input-value=x"], "error: --input-value 'x': expected NAME=VALUE"),
        (["--input-value=x=2xf32=a"], "error: '2xf32=a': bad value"),
    ],
)
def test_requests_that_cannot_be_met_write_nothing(
    mlp_onnx: Path, tmp_path: Path, arguments: list[str], text: str
) -> None:
    path = tmp_path / "m.vmfb"
    done = tilewright("compile", mlp_onnx, "-o", path, *arguments)
    assert done.code == 1
    assert done.err.startswith(text)
    assert done.out == ""
    assert list(tmp_path.iterdir()) == []


def test_an_output_needs_a_folder_that_exists(mlp_onnx: Path, tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    done = tilewright("compile", mlp_onnx, "-o", missing / "m.vmfb")
    assert (done.code, done.err) == (1, f"error: {missing}: no such folder\n")
    assert not missing.exists()


def test_a_failing_compilation_leaves_the_old_artifact(tmp_path: Path) -> None:
    model, path = tmp_path / "m.onnx", tmp_path / "m.vmfb"
    model.write_bytes(b"not a model")
    path.write_bytes(b"old")
    assert tilewright("compile", model, "-o", path).code == 1
    assert path.read_bytes() == b"old"


@pytest.mark.slow
def test_target_c_writes_sources_where_there_is_no_compiler(
    mlp_onnx: Path, tmp_path: Path
) -> None:
    with knobs.override(cc="none"):
        done = tilewright("compile", mlp_onnx, "--target=c", "-o", tmp_path / "net.c")
    assert done.code == 0, done.err
    assert done.row("code").startswith("as source for c ")
    written = [path.read_text() for path in tmp_path.glob("net.library/*code*.c")]
    assert ["matmul" in text for text in written] == [True]
    done = tilewright("compile", mlp_onnx, "--target=c", "-o", tmp_path / "net.ll")
    assert done.code == 1
    assert "kernels of target 'c' are not written as '.ll'" in done.err
    assert "hint: texts: .c .s" in done.err
