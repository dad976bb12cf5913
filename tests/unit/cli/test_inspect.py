"""`tilewright inspect`: an artifact at every level, and modules of other compilers."""

from __future__ import annotations

import importlib
import io
import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from fakes.command_line import tilewright
from tilewright.base import knobs
from tilewright.base.target import Target

ARCHIVES = Path(__file__).resolve().parents[2] / "golden" / "archives"


def test_the_metadata_names_what_is_inside(scale_vmfb: Path) -> None:
    done = tilewright("inspect", scale_vmfb)
    assert done.code == 0
    assert done.row("module").startswith("module, bytecode version ")
    assert "tensor<?x3xf32>" in done.out
    assert done.row("made by").startswith("tilewright ")
    assert str(Target.host()) in done.row("code")
    assert done.row("activations") == "0 B"
    assert "dispatch" in done.row("steps")
    assert done.row("levels") == "graph kernel llvm naive"


def test_activations_of_dynamic_models_depend_on_the_call(
    dynamic_onnx: Path, tmp_path: Path
) -> None:
    path = tmp_path / "m.vmfb"
    tilewright("compile", dynamic_onnx, "-o", path, "-q")
    assert tilewright("inspect", path).row("activations") == "by call"


@pytest.mark.parametrize(
    ("level", "text"),
    [
        ("graph", "graph @"),
        ("naive", "for "),
        ("kernel", "for "),
        ("llvm", "define "),
        ("asm", "ret"),
        ("bytecode", "vm.func @main("),
        ("plan", "plan of "),
    ],
)
def test_every_level_is_printed(scale_vmfb: Path, level: str, text: str) -> None:
    done = tilewright("inspect", scale_vmfb, f"--output={level}")
    assert done.code == 0
    assert text in done.out
    assert done.err == ""


SQUARES = """func.func @main(%a: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %0 = stablehlo.multiply %a, %a : tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}
"""


@pytest.mark.parametrize("level", ["graph", "kernel", "plan", "metadata"])
def test_any_model_that_is_compiled_can_be_looked_into(tmp_path: Path, level: str) -> None:
    path = tmp_path / "squares.MLIR"
    path.write_text(SQUARES)
    done = tilewright("inspect", path, f"--output={level}")
    assert done.code == 0, done.err
    assert "4, 8" in done.out or "4x8" in done.out


def kernels_of(path: Path) -> list[str]:
    text = tilewright("inspect", path, "--output=kernel").out
    return re.findall(r"^kernel (\w+)\(", text, re.MULTILINE)


def test_provenance_and_parts_are_json(scale_vmfb: Path) -> None:
    found = json.loads(tilewright("inspect", scale_vmfb, "--output=provenance").out)
    build = found["predicate"]["buildDefinition"]
    assert build["externalParameters"]["targets"] == [str(Target.host())]
    bill = json.loads(tilewright("inspect", scale_vmfb, "--output=sbom").out)
    assert bill["bomFormat"] == "CycloneDX"
    path = ARCHIVES / "iree-3.13.0-add_vmvx.vmfb"
    for level in ("provenance", "sbom"):
        done = tilewright("inspect", path, f"--output={level}")
        assert done.code == 1
        assert f"the archive has no {level}" in done.err


def test_one_kernel_may_be_picked(scale_vmfb: Path) -> None:
    names = kernels_of(scale_vmfb)
    assert len(names) >= 2
    done = tilewright("inspect", scale_vmfb, "--output=kernel", f"--kernel={names[1]}")
    assert f"kernel {names[1]}(" in done.out
    assert f"kernel {names[0]}(" not in done.out


def test_an_unknown_kernel_is_named_with_the_closest(scale_vmfb: Path) -> None:
    name = kernels_of(scale_vmfb)[0]
    done = tilewright("inspect", scale_vmfb, "--output=llvm", f"--kernel={name}x")
    assert done.code == 1
    assert done.err.startswith(
        f"error: the artifact has no kernel '{name}x'\nhint: did you mean"
    )


def test_a_kernel_like_no_other_lists_those_there_are(scale_vmfb: Path) -> None:
    names = kernels_of(scale_vmfb)
    done = tilewright("inspect", scale_vmfb, "--output=asm", "--kernel=zzz")
    assert done.code == 1
    assert done.err == (
        f"error: the artifact has no kernel 'zzz'\nhint: kernels: {' '.join(names)}\n"
    )


def test_levels_that_were_left_out_say_how_to_keep_them(
    mlp_onnx: Path, tmp_path: Path
) -> None:
    path = tmp_path / "m.vmfb"
    tilewright("compile", mlp_onnx, "-o", path, "-q", "--no-sources")
    for level in ("graph", "kernel", "asm"):
        done = tilewright("inspect", path, f"--output={level}")
        assert done.code == 1
        assert done.err == (
            f"error: the artifact has no level '{level}'\n"
            "hint: compile without --no-sources to keep them\n"
        )
    assert tilewright("inspect", path).row("levels") == "left out"
    assert tilewright("inspect", path, "--output=plan").code == 0


def test_modules_of_other_compilers_have_metadata_and_bytecode() -> None:
    path = ARCHIVES / "iree-3.13.0-add_vmvx.vmfb"
    done = tilewright("inspect", path)
    assert done.code == 0
    assert done.row("needs").startswith("hal ")
    assert "made by" not in done.out
    assert "vm.func" in tilewright("inspect", path, "--output=bytecode").out
    done = tilewright("inspect", path, "--output=plan")
    assert done.code == 1
    assert "no Tilewright manifest" in done.err


def test_files_that_are_no_archives_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "bad.vmfb"
    for data in (b"", b"12345678" * 4):
        path.write_bytes(data)
        done = tilewright("inspect", path)
        assert done.code == 1
        assert done.err.startswith(f"error: {path}: ")


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, Path.touch, None])
@pytest.mark.parametrize("level", ["provenance", "metadata"])
@pytest.mark.parametrize("suffix", [".so", ".vmfb", ".onnx", ".o"])
def test_what_is_no_file_is_refused(
    tmp_path: Path, make: Callable[[Path], object] | None, level: str, suffix: str
) -> None:
    path = tmp_path / f"odd{suffix}"
    if make is not None:
        make(path)
    done = tilewright("inspect", path, f"--output={level}")
    assert done.code == 1
    assert done.err.startswith(f"error: {path}: ") or suffix == ".onnx", done.err


def test_a_model_is_compiled_and_looked_into(mlp_onnx: Path, mlp_vmfb: Path) -> None:
    done = tilewright("inspect", mlp_onnx, "--output=graph")
    assert done.code == 0, done.err
    assert done.out == tilewright("inspect", mlp_vmfb, "--output=graph").out


@pytest.mark.thinned(3)
@pytest.mark.parametrize("level", ["graph", "kernel", "llvm", "asm", "bytecode"])
def test_a_terminal_gets_colours_and_the_same_text(
    level: str, mlp_vmfb: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = tilewright("inspect", mlp_vmfb, f"--output={level}").out
    module = importlib.import_module("tilewright.cli.inspect")
    for no_color in (False, True):
        stream = io.StringIO()
        terminal = Console(
            file=stream, force_terminal=True, no_color=no_color, width=80, highlight=False,
            color_system="standard",
        )  # fmt: skip
        monkeypatch.setattr(module, "out", terminal)
        assert tilewright("inspect", mlp_vmfb, f"--output={level}").code == 0
        shown = stream.getvalue()
        assert bool(re.search(r"\x1b\[(?:\d+;)*[39][0-7][;m]", shown)) is not no_color
        assert re.sub(r"\x1b\[[0-9;]*m", "", shown).split() == plain.split()


def test_kernels_of_a_model_are_shown_in_c_without_a_compiler(mlp_onnx: Path) -> None:
    with knobs.override(cc="none"):
        done = tilewright("inspect", mlp_onnx, "--output=c")
    assert done.code == 0, done.err
    assert "#include <stdint.h>" in done.out


def test_every_stage_of_a_model_is_shown_and_others_are_refused(
    mlp_onnx: Path, mlp_vmfb: Path
) -> None:
    stage = "--stage=vectorize"
    done = tilewright("inspect", mlp_onnx, "--target=x86_64-v3", stage)
    assert done.code == 0, done.err
    assert "8 lanes" in done.out
    done = tilewright("inspect", mlp_onnx, "--target=c", "--stage=vectorise")
    assert "back end 'c' has no stage 'vectorise'" in done.err
    assert "hint: did you mean 'vectorize'?" in done.err
    done = tilewright("inspect", mlp_vmfb, stage)
    assert "--stage is for models" in done.err


@pytest.mark.parametrize("kernel", [(), ("--kernel=zzz",)])
def test_a_level_of_another_language_lists_those_there_are_and_says_how_to_get_it(
    mlp_vmfb: Path, kernel: tuple[str, ...]
) -> None:
    done = tilewright("inspect", mlp_vmfb, "--output=c", *kernel)
    assert done.code == 1
    assert done.err == (
        "error: the artifact has no level 'c'\nhint: levels: graph kernel llvm naive; "
        "C is that of code made through it: compile the model with --target=c\n"
    )


def test_code_made_through_c_says_that_it_has_no_llvm_ir(mlp_onnx: Path) -> None:
    done = tilewright("inspect", mlp_onnx, "--target=c", "--output=llvm")
    assert done.err.startswith("error: the artifact has no level 'llvm'\nhint: levels: c ")
    assert "compile the model without --target=c" in done.err
