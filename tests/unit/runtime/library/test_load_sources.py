"""Sources that are loaded: exports in C, single files of C, assembly and LLVM IR, and folders of strangers."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import tilewright as tw
from fakes.ffi_library import SOURCE, compiler
from fakes.small_models import mlp
from tilewright.base.c_compiler import toolchain
from tilewright.base.errors import ArchiveError, UserError
from tilewright.base.host import architecture
from tilewright.compiler.printers.c_text.function import FLAGS
from tilewright.runtime import load_module
from tilewright.runtime.library import load_sources

SEVEN = (
    "typedef struct { int type, zero; long value; } any;\n"
    "int __tvm_ffi_seven(void* a, void* b, int c, any* r) "
    "{ r->type = 1; r->zero = 0; r->value = 7; return 0; }\n"
)
SEVEN_IR = """\
target triple = "MACHINE-unknown-unknown-eabi-elf"
define i32 @__tvm_ffi_seven(ptr %self, ptr %arguments, i32 %count, ptr %result) {
  store i32 1, ptr %result
  %zero = getelementptr i8, ptr %result, i64 4
  store i32 0, ptr %zero
  %value = getelementptr i8, ptr %result, i64 8
  store i64 7, ptr %value
  ret i32 0
}
"""


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The kernels of a model in C: `k.c` and `k.library`."""
    path = tmp_path_factory.mktemp("exported") / "k.c"
    cast("Any", tw.build(mlp(), target="x86_64")).lib.export_library(path)
    return path.parent


@pytest.fixture
def folder(exported: Path, tmp_path: Path) -> Path:
    shutil.copytree(exported, tmp_path / "made")
    return tmp_path / "made"


@pytest.mark.slow
@pytest.mark.parametrize("weights", [None, "w.irpa"])
def test_an_export_in_c_computes_what_the_model_does(
    tmp_path: Path, weights: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler()
    path = tmp_path / "my net.c"
    place = None if weights is None else tmp_path / weights
    tw.build(mlp(), target="x86_64").export_library(path, weights=place)
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.chdir(tmp_path)
    module = load_module(path.name)
    monkeypatch.chdir("/")
    x = np.random.default_rng(2).random((5, 20), np.float32)
    expected: Any = np.asarray(tw.compile(mlp(), jobs=1)(x))
    np.testing.assert_allclose(
        cast("Any", np.from_dlpack(module["main"](x))), expected, 1e-4
    )
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.slow
def test_kernels_alone_in_c_are_functions(folder: Path) -> None:
    compiler()
    assert any("matmul" in name for name in load_module(folder / "k.c").function_names())


def test_one_file_of_c_or_assembly_is_a_library(tmp_path: Path) -> None:
    (tmp_path / "seven.c").write_text(SEVEN)
    subprocess.run(
        [compiler(), "-S", "-fPIC", "-O1", "seven.c", "-o", "-code.s"],
        cwd=tmp_path,
        check=True,
    )
    (tmp_path / "UP.C").write_text(SEVEN)
    for name in ("seven.c", "-code.s", "UP.C"):
        assert load_module(tmp_path / name)["seven"]() == 7


def test_a_source_finds_the_headers_of_tvm_ffi(tmp_path: Path) -> None:
    compiler()
    (tmp_path / "net.c").write_text(SOURCE)
    assert load_module(tmp_path / "net.c")["add"](20, 22) == 42


@pytest.mark.slow
def test_llvm_ir_is_a_library(tmp_path: Path) -> None:
    pytest.importorskip("ziglang")
    path = tmp_path / "seven.ll"
    path.write_text(SEVEN_IR.replace("MACHINE", architecture()))
    assert load_module(path)["seven"]() == 7


def test_llvm_ir_without_a_compiler_for_it_says_how_to_get_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "seven.ll").write_text(SEVEN_IR.replace("MACHINE", architecture()))
    monkeypatch.setattr(toolchain, "_takes_ir", lambda _: False)
    monkeypatch.setattr(toolchain.shutil, "which", lambda name: name != "clang" or None)
    monkeypatch.setattr(toolchain.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(UserError, match="no compiler that takes LLVM IR") as caught:
        load_module(tmp_path / "seven.ll")
    assert (
        caught.value.hint
        == "install clang 15 or later, or: pip install 'tilewright[cross]'"
    )


def test_llvm_ir_for_another_machine_is_refused(tmp_path: Path) -> None:
    other = "aarch64" if architecture() != "aarch64" else "x86_64"
    (tmp_path / "seven.ll").write_text(SEVEN_IR.replace("MACHINE", other))
    with pytest.raises(ArchiveError, match=f"is LLVM IR for {other}, this machine is"):
        load_module(tmp_path / "seven.ll")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("net.c", r"no folder 'net\.library' lies beside it"),
        ("net.ll", "kernels without the host side"),
        ("net.s", "kernels without the host side"),
    ],
)
def test_a_source_without_functions_says_what_to_write_instead(
    tmp_path: Path, name: str, said: str
) -> None:
    (tmp_path / name).write_text("int x;\n")
    with pytest.raises(ArchiveError, match=said) as caught:
        load_module(tmp_path / name)
    assert "export the model as .so" in str(caught.value)


def test_the_kernels_of_a_model_as_text_are_no_library(tmp_path: Path) -> None:
    factory = tw.build(mlp(), target="x86_64")
    for name in ("net.ll", "net.s"):
        factory.export_library(tmp_path / name)
        with pytest.raises(ArchiveError, match="kernels without the host side"):
            load_module(tmp_path / name)


def test_what_a_compiler_refuses_is_said_with_the_file(tmp_path: Path) -> None:
    compiler()
    (tmp_path / "net.c").write_text("int __tvm_ffi_f(\n")
    with pytest.raises(
        UserError, match=r"net\.c: cannot be compiled: '.*' ended"
    ) as caught:
        load_module(tmp_path / "net.c")
    assert "__tvm_ffi_f" in str(caught.value)


def test_a_file_that_is_no_text_is_no_source(tmp_path: Path) -> None:
    for content in (b"", b"MZ" + bytes(600)):
        (tmp_path / "net.c").write_bytes(content)
        with pytest.raises(
            ArchiveError, match="expected a library, objects or an artifact"
        ):
            load_module(tmp_path / "net.c")


def test_a_program_at_a_fixed_address_is_run_not_loaded(tmp_path: Path) -> None:
    (tmp_path / "main.c").write_text("int main(void) { return 0; }\n")
    words = [compiler(), "-no-pie", "main.c", "-o", "program"]
    subprocess.run(words, cwd=tmp_path, check=True)
    with pytest.raises(
        ArchiveError, match="hint: it is a program: run it, or export a lib"
    ):
        load_module(tmp_path / "program")


# --- folders of strangers -----------------------------------------------------------------------


def _link(place: Path) -> None:
    (place.parent.parent / "secret.c").write_text("int x = 1;\n")
    place.symlink_to(place.parent.parent / "secret.c")


@pytest.mark.skipif(sys.platform == "win32", reason="pipes and links of POSIX")
@pytest.mark.parametrize(
    ("name", "make", "said"),
    [
        ("x.c", _link, "is no plain file"),
        ("x.c", os.mkfifo, "is no plain file"),
        ("more", lambda place: place.symlink_to("core"), "is no plain file"),
        ("core/deep", Path.mkdir, "is no plain file"),
        ("-fplugin=x.c", Path.touch, "has a name that no export writes"),
        ("@x.c", Path.touch, "has a name that no export writes"),
        ("x;y.c", Path.touch, "has a name that no export writes"),
        ("a\nb.c", Path.touch, "has a name that no export writes"),
        ("core/-o.c", Path.touch, "has a name that no export writes"),
    ],
)  # fmt: skip
def test_a_folder_with_anything_but_plain_files_is_refused_before_a_compiler_runs(
    folder: Path,
    name: str,
    make: Callable[[Path], None],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def reached(*_: object, **__: object) -> None:
        raise AssertionError

    make(folder / "k.library" / name)
    monkeypatch.setattr(toolchain.Toolchain, "compile", reached)
    with pytest.raises(ArchiveError, match=said) as caught:
        load_module(folder / "k.c")
    assert "\n" not in str(caught.value).split("hint:")[0].strip()


@pytest.mark.parametrize("make", [Path.touch, lambda place: place.symlink_to("other")])
def test_what_lies_beside_under_the_name_must_be_a_folder(
    folder: Path, make: Callable[[Path], None]
) -> None:
    (folder / "k.library").rename(folder / "other")
    make(folder / "k.library")
    with pytest.raises(ArchiveError, match=r"k\.library: is no folder"):
        load_module(folder / "k.c")


@pytest.mark.slow
def test_a_folder_that_lacks_a_unit_is_refused_before_a_call(folder: Path) -> None:
    compiler()
    next((folder / "k.library").glob("k_code_*.c")).unlink()
    with pytest.raises(ArchiveError, match="undefined symbol"):
        load_module(folder / "k.c")


def test_kernels_are_compiled_as_their_code_generator_wants_it() -> None:
    assert set(FLAGS) <= set(load_sources._EXPORT_FLAGS)
