"""Trees of modules as files of every form, linked by the system's compiler."""

from __future__ import annotations

import ctypes
import io
import subprocess
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

import tilewright as tw
from fakes.linked_modules import LinkedModule, SavedModule, SourceModule
from tilewright.base.c_compiler.toolchain import find_toolchain
from tilewright.base.errors import UserError
from tilewright.base.target import Target
from tilewright.formats.library_blob import SYMBOL, read_blob
from tilewright.runtime.library import cc
from tilewright.runtime.library.c_module import CSourceModule
from tilewright.runtime.library.forms import FORMS
from tilewright.runtime.native.compiled_library import show_imported_functions
from tilewright.runtime.packed.ffi import tvm_ffi

CALLER = "int net_answer(void); int main(void) { return net_answer(); }\n"


def run_main(path: Path) -> object:
    return tvm_ffi.load_module(str(path))["main"]()


def call(tmp_path: Path, *inputs: Path, caller: str = CALLER) -> int:
    """What a program of C that is linked with `inputs` gets."""
    source = tmp_path / "caller.c"
    source.write_text(caller)
    find_toolchain().link_executable(tmp_path / "caller", [source, *inputs])
    return subprocess.run([tmp_path / "caller"], check=False).returncode


def test_a_shared_library_runs_where_only_tvm_ffi_is(tmp_path: Path) -> None:
    LinkedModule().export_library(tmp_path / "net.so")
    assert run_main(tmp_path / "net.so") == 42


@pytest.mark.slow
def test_names_begin_as_the_file_does_or_as_they_are_told(tmp_path: Path) -> None:
    module = LinkedModule()
    module.export_library(tmp_path / "libsmall-net.v2.a")
    module.export_library(tmp_path / "x.a", name="other")
    assert [options.name for options in module.asked] == ["small_net", "other"]


@pytest.mark.slow
def test_only_what_is_linked_again_has_a_core_under_names_of_its_own(
    tmp_path: Path,
) -> None:
    module = LinkedModule()
    for form in ("net.so", "net.a", "net.o", "net.tar"):
        module.export_library(tmp_path / form)
    module.export_library(tmp_path / "mine.so", fcompile=lambda path, files: None)
    closed = [options.is_closed for options in module.asked]
    assert closed == [True, False, False, False, False]


@pytest.mark.parametrize("form", ["net.o", "net.a"])
def test_objects_and_archives_are_linked_with_a_program(tmp_path: Path, form: str) -> None:
    LinkedModule().export_library(tmp_path / form)
    assert call(tmp_path, tmp_path / form) == 42


def test_a_tar_holds_objects_in_one_order_and_of_one_time(tmp_path: Path) -> None:
    LinkedModule().export_library(tmp_path / "net.tar")
    LinkedModule().export_library(tmp_path / "again.tar", name="net")
    first = (tmp_path / "net.tar").read_bytes()
    with tarfile.open(fileobj=io.BytesIO(first)) as archive:
        assert archive.getnames() == ["answer.o", "entry.o"]
        archive.extractall(tmp_path / "unpacked", filter="data")
    cc.create_shared(
        str(tmp_path / "a.so"), [str(p) for p in (tmp_path / "unpacked").iterdir()]
    )
    assert run_main(tmp_path / "a.so") == 42
    assert first == (tmp_path / "again.tar").read_bytes()


def test_modules_that_no_linker_takes_go_into_the_blob(tmp_path: Path) -> None:
    module = LinkedModule()
    module.import_module(SavedModule(b"\0some bytes\xff"))
    module.export_library(tmp_path / "net.so")
    library = ctypes.CDLL(str(tmp_path / "net.so"))
    size = ctypes.c_uint64.in_dll(library, SYMBOL).value
    data = bytes((ctypes.c_char * (size + 8)).in_dll(library, SYMBOL).raw)
    saved = read_blob(data).modules
    assert [(m.kind, m.data and bytes(m.data)) for m in saved] == [
        ("_lib", None),
        ("fake_saved", b"\0some bytes\xff"),
    ]


def test_a_module_of_c_is_compiled(tmp_path: Path) -> None:
    module = SourceModule("int net_answer(void) { return 7; }\n")
    module.export_library(tmp_path / "net.o")
    assert call(tmp_path, tmp_path / "net.o") == 7


def test_a_given_function_links_and_its_result_is_returned(tmp_path: Path) -> None:
    seen: dict[str, object] = {}

    def fcompile(file: str, objects: Sequence[str], **kwargs: object) -> str:
        seen.update(kwargs, file=file, names=[Path(o).name for o in objects])
        assert all(Path(o).is_file() for o in objects)
        return "made"

    path = tmp_path / "net.img"
    made = LinkedModule().export_library(path, fcompile=fcompile, options=["-x"], more=1)
    assert made == "made"
    assert seen == {
        "file": str(path), "names": ["answer.o", "entry.o"], "options": ["-x"], "more": 1
    }  # fmt: skip


@pytest.mark.slow
def test_a_cross_compiler_of_ours_compiles_the_sources_too(tmp_path: Path) -> None:
    LinkedModule().export_library(tmp_path / "net.so", cc.cross_compiler("gcc"))
    assert run_main(tmp_path / "net.so") == 42


def test_addons_are_linked_as_well(tmp_path: Path) -> None:
    extra = tmp_path / "extra.c"
    extra.write_text("int extra(void) { return 3; }\n")
    LinkedModule().export_library(tmp_path / "net.so", addons=[str(extra)])
    assert ctypes.CDLL(str(tmp_path / "net.so")).extra() == 3


@pytest.mark.slow
def test_addons_in_c_are_objects_in_an_archive_whatever_they_are_called(
    tmp_path: Path,
) -> None:
    extra = tmp_path / "answer.c"  # as a file of the model
    extra.write_text("int extra(void) { return 3; }\n")
    path = tmp_path / "net.a"
    LinkedModule().export_library(path, addons=[str(extra)])
    assert call(tmp_path, path) == 42
    found = call(
        tmp_path, path, caller="int extra(void); int main(void) { return extra(); }"
    )
    assert found == 3


def test_a_workspace_keeps_what_was_made_on_the_way(tmp_path: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    LinkedModule().export_library(tmp_path / "net.so", workspace_dir=folder)
    assert {"answer.c", "answer.o", "entry.o"} <= {p.name for p in folder.iterdir()}


def test_the_header_is_written_where_it_is_wanted(tmp_path: Path) -> None:
    LinkedModule().export_library(tmp_path / "net.so", header=tmp_path / "n.h")
    assert (tmp_path / "n.h").read_text() == "int net_answer(void);\n"


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("net.sox", "there is no format '.sox'"),
        ("net.dll", "the code is for linux, the file is called '.dll'"),
        ("net.exe", "the code is for linux, the file is called '.exe'"),
        ("net.ll", "no module has kernels to write as '.ll'"),
        ("net.vmfb", "an archive holds a model, the module is of kind 'fake_graph'"),
    ],
)
def test_what_cannot_be_written_is_said_before_the_work(
    tmp_path: Path, name: str, problem: str
) -> None:
    with pytest.raises(UserError, match=problem) as caught:
        LinkedModule(Target.parse("x86_64")).export_library(tmp_path / name)
    if problem.startswith("there is no format"):  # whatever it may have been meant for
        assert all(f"{form or 'none'} (" in str(caught.value.hint) for form in FORMS)
    assert list(tmp_path.iterdir()) == []


def test_a_word_that_nothing_takes_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no option 'optoins'"):
        LinkedModule().export_library(tmp_path / "net.so", optoins=["-O3"])


def test_two_models_are_no_library(tmp_path: Path) -> None:
    root = LinkedModule()
    root.import_module(LinkedModule())
    with pytest.raises(UserError, match="two models cannot become one library"):
        root.export_library(tmp_path / "net.so")


@pytest.mark.parametrize("before", [None, "older"])
def test_a_header_appears_with_its_library_or_not_at_all(
    tmp_path: Path, before: str | None
) -> None:
    header = tmp_path / "n.hpp"
    if before is not None:
        header.write_text(before)

    def fail(*_: object, **__: object) -> None:
        raise UserError("the disk is full")

    with pytest.raises(UserError, match="the disk is full"):
        LinkedModule().export_library(tmp_path / "net.so", fail, header=header)
    found = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert found == ({} if before is None else {"n.hpp": before})


def test_a_header_is_not_written_over_its_library(tmp_path: Path) -> None:
    path = tmp_path / "net.so"
    with pytest.raises(UserError, match=r"both the library and its header\nhint: .*net\.h"):
        LinkedModule().export_library(path, header=tmp_path / "." / "net.so")
    assert not path.exists()


def test_what_links_is_a_function(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^fcompile is 3, expected a function"):
        LinkedModule().export_library(tmp_path / "net.so", fcompile=cast("Any", 3))


@pytest.mark.parametrize(
    ("form", "given", "words"),
    [
        ("net.so", {"header": 5}, "header is 5, expected the path"),
        ("net.so", {"weights": 5}, "weights is 5, expected the path"),
        ("net.so", {"options": "-lm"}, "options is '-lm', expected a sequence of words"),
        ("net.so", {"options": 5}, "options is 5, expected a sequence of words"),
        ("net.ll", {"header": "net.h"}, "which has no header"),
        ("net.s", {"weights": "net.irpa"}, "which has no weights"),
        ("net.vmfb", {"header": "net.h"}, "which has no header"),
        ("net.vmfb", {"addons": ["more.o"]}, "which has no addons"),
    ],
)
def test_what_a_form_cannot_take_is_said_before_the_work(
    form: str, given: dict[str, Any], words: str, tmp_path: Path
) -> None:
    module = LinkedModule()
    with pytest.raises(UserError, match=words):
        module.export_library(tmp_path / form, **given)
    assert module.asked == []
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "options", "problem"),
    [
        ("net.vmfb", {"header": "n.h"}, "which has no header"),
        ("net.ll", {"weights": "w.irpa"}, "which has no weights"),
        ("net.a", {"options": ["-O3"]}, "which has no options"),
        ("net.c", {"cc": "gcc"}, "which has no cc"),
        ("net", {"system_lib": True}, "which has no system_lib"),
        ("net.so", {"c_symbol_prefix": "n_"}, "hint: export one: system_lib=True"),
        ("net.a", {"system_lib": True, "c_symbol_prefix": "1-"}, "beginning of a name in C"),
        ("net.so", {"fpack_imports": 3}, "^fpack_imports is 3, expected a function"),
        ("net.so", {"options": "-O3"}, "options is '-O3', expected a sequence"),
    ],
)  # fmt: skip
def test_no_option_is_left_aside_in_silence(
    tmp_path: Path, name: str, options: dict[str, Any], problem: str
) -> None:
    module = LinkedModule(Target.parse("x86_64"))
    with pytest.raises(UserError, match=problem):
        module.export_library(tmp_path / name, **options)
    assert list(tmp_path.iterdir()) == []


def test_a_given_function_says_what_objects_are_called_and_what_it_needs(
    tmp_path: Path,
) -> None:
    seen: list[str] = []

    class Linker:
        object_format = "obj"
        need_system_lib = True

        def __call__(self, file: str, objects: Sequence[str]) -> None:
            seen.extend(Path(o).name for o in objects)

    module = LinkedModule()
    with pytest.raises(UserError, match="system libraries only"):
        module.export_library(tmp_path / "net.img", fcompile=Linker())
    module.export_library(tmp_path / "net.img", fcompile=Linker(), system_lib=True)
    assert seen == ["answer.obj", "entry.obj", "system_library.obj"]
    Linker.object_format = "bc"
    with pytest.raises(UserError, match=r"fcompile\.object_format is 'bc', expected 'o'"):
        module.export_library(tmp_path / "net.img", fcompile=Linker(), system_lib=True)


def test_a_users_function_packs_what_is_not_linked(tmp_path: Path) -> None:
    module = LinkedModule()
    module.import_module(SavedModule())
    seen: list[object] = []

    def pack(root: object, is_system_lib: bool, prefix: str, folder: str) -> str:
        seen.extend([root, is_system_lib, prefix])
        source = Path(folder) / "mine.c"
        source.write_text("int packed(void) { return 9; }\n")
        return str(source)

    module.export_library(tmp_path / "net.so", fpack_imports=pack)
    library = ctypes.CDLL(str(tmp_path / "net.so"))
    assert library.packed() == 9
    assert not hasattr(library, SYMBOL)
    assert seen == [module, False, ""]
    with pytest.raises(UserError, match="fpack_imports returned the name of no file"):
        module.export_library(tmp_path / "net.so", fpack_imports=lambda *_: "nowhere.o")


@pytest.mark.slow
def test_a_system_library_enters_its_functions_when_it_is_loaded(tmp_path: Path) -> None:
    module = LinkedModule()
    module.import_module(SavedModule(kind="tilewright.test_export_saved"))
    path = tmp_path / "net.so"
    module.export_library(path, system_lib=True, c_symbol_prefix="test_export_")
    show_imported_functions()
    library = ctypes.CDLL(str(path))
    assert hasattr(library, f"test_export_{SYMBOL}")
    name = "ffi.Module.load_from_bytes.tilewright.test_export_saved"
    saved = tvm_ffi.system_lib("test_export_none_")
    tw.register_global_func(name, lambda _: saved)
    root = tvm_ffi.system_lib("test_export_")
    assert root["main"]() == 42
    assert len(root.imports) == 1


def test_a_function_called_link_files_is_no_method(tmp_path: Path) -> None:
    source = (
        "int __tvm_ffi_link_files(void* s, const void* a, int n, void* r) { return 0; }\n"
    )
    module = CSourceModule(source, ["link_files"])
    module.export_library(tmp_path / "net.so")
    assert "link_files" in tw.runtime.load_module(tmp_path / "net.so").function_names()
