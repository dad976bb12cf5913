"""`load_module`: libraries, objects, archives and tars, and every kind of file that is none."""

from __future__ import annotations

import errno
import gc
import io
import lzma
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import tilewright as tw
from fakes.ffi_library import blob_source, compile_object, compiler, make_library
from fakes.small_models import mlp
from tilewright.base.c_compiler.toolchain import find_toolchain
from tilewright.base.errors import ArchiveError, InputError, UserError
from tilewright.formats.elf.shared_library import read_shared_library
from tilewright.formats.library_blob import LibraryBlob, SavedModule
from tilewright.runtime import load_module

GOLDEN = Path(__file__).parents[3] / "golden" / "libraries"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("libraries")
    make_library(made)
    subprocess.run(["ar", "rcs", made / "net.a", made / "lib0.o"], check=True)
    with tarfile.open(made / "net.tar", "w") as archive:
        archive.add(made / "lib0.o", "lib0.o")
    with tarfile.open(made / "packed.tar", "w:gz") as archive:
        archive.add(made / "lib0.o", "kernels/lib0.o")
    with tarfile.open(made / "sources.tar", "w") as archive:
        archive.add(made / "lib0.o", "lib0.o")
        data = b"int __tvm_ffi_none(void* a, void* b, int c, void* d) { return 0; }\n"
        entry = tarfile.TarInfo("more.c")
        entry.size = len(data)
        archive.addfile(entry, io.BytesIO(data))
    return made


@pytest.mark.thinned(3)
@pytest.mark.parametrize(
    "name", ["net.so", "lib0.o", "net.a", "net.tar", "packed.tar", "sources.tar"]
)
def test_every_form_of_a_library_loads_to_the_same_functions(
    folder: Path, name: str
) -> None:
    module = load_module(folder / name)
    assert module.kind == "library"
    assert {"add", "call", "fail", "twice"} <= set(module.function_names())
    assert module["add"](20, 22) == 42
    assert module.get_property_mask() & 2
    array = np.arange(6, dtype=np.float32)
    module["twice"](array)
    np.testing.assert_array_equal(array, 2 * np.arange(6))


def test_a_program_is_no_library(tmp_path: Path) -> None:
    source, program = tmp_path / "main.c", tmp_path / "program"
    source.write_text("int main(void) { return 0; }\n")
    subprocess.run([compiler(), "-pie", "-fPIE", source, "-o", program], check=True)
    with pytest.raises(
        ArchiveError, match="hint: it is a program: run it, or export a lib"
    ):
        load_module(program)


def test_a_library_whose_name_is_no_utf8_is_refused_with_the_name(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"n\xff.so")
    make_library(tmp_path).rename(path)
    with pytest.raises(
        ArchiveError, match="loads no library whose name is not UTF-8"
    ) as caught:
        load_module(path)
    assert str(caught.value).encode()  # it can be printed


def test_temporary_files_that_find_no_room_are_said_with_their_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    data = tmp_path / "net.tar"
    with tarfile.open(data, "w") as archive:
        archive.add(compile_object(tmp_path), "lib0.o")
    monkeypatch.setattr("tilewright.runtime.library.load._unpack", full)
    place = tempfile.gettempdir()
    with pytest.raises(
        UserError, match=f"{place}: cannot write temporary files: No space"
    ) as caught:
        load_module(data)
    assert caught.value.hint == "name a folder with room: TMPDIR"


def test_what_a_file_is_called_does_not_matter(folder: Path, tmp_path: Path) -> None:
    for name in ("net.so", "net.tar", "lib0.o"):
        (tmp_path / "no_suffix").unlink(missing_ok=True)
        (tmp_path / "no_suffix").write_bytes((folder / name).read_bytes())
        assert load_module(tmp_path / "no_suffix")["add"](1, 1) == 2


def test_a_library_that_was_written_again_is_the_new_one(tmp_path: Path) -> None:
    values = []
    for value in (1, 2, 3):
        source = (
            "typedef struct { int type, zero; long value; } any;\n"
            "int __tvm_ffi_f(void* a, void* b, int c, any* r) "
            f"{{ r->type = 1; r->zero = 0; r->value = {value}; return 0; }}\n"
        )
        made = make_library(tmp_path, source=source, name=f"made{value}.so")
        made.rename(tmp_path / "net.so")
        values.append(load_module(tmp_path / "net.so")["f"]())
    assert values == [1, 2, 3]


def test_nothing_stays_in_the_temporary_folder(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    modules = [load_module(folder / name) for name in ("net.tar", "lib0.o", "net.a")]
    assert list(tmp_path.iterdir()) == []
    assert [module["add"](1, 2) for module in modules] == [3, 3, 3]
    broken = folder / "broken.o"
    broken.write_bytes((folder / "lib0.o").read_bytes()[:200])
    with pytest.raises(UserError, match="cannot be linked"):
        load_module(broken)
    assert list(tmp_path.iterdir()) == []


def test_a_tar_with_more_than_objects_keeps_its_files_while_it_is_used(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tarfile.open(tmp_path / "net.tar", "w") as archive:
        archive.add(folder / "lib0.o", "lib0.o")
        archive.add(folder / "lib0.o", "net.weights")
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(place))
    module = load_module(tmp_path / "net.tar")
    assert len(list(place.glob("*/net.weights"))) == 1
    del module
    gc.collect()
    assert list(place.iterdir()) == []


def test_an_artifact_is_a_module_of_kind_vm(tmp_path: Path) -> None:
    tw.compile(mlp(), jobs=1).save(tmp_path / "mlp.vmfb")
    module = load_module(tmp_path / "mlp.vmfb", threads=1)
    assert module.kind == "vm"
    session = tw.load(tmp_path / "mlp.vmfb")
    ((_, dtype, shape),) = session.inputs
    x = np.ones([d if isinstance(d, int) else 3 for d in shape], dtype.numpy)
    np.testing.assert_array_equal(np.from_dlpack(module["main"](x)), session(x))


@pytest.mark.parametrize("name", ["net.c", "net.ll", "net"])
def test_an_artifact_has_no_sources_to_export(tmp_path: Path, name: str) -> None:
    tw.compile(mlp(), jobs=1).save(tmp_path / "mlp.vmfb")
    with pytest.raises(UserError, match="of kind 'vm' have no sources") as caught:
        load_module(tmp_path / "mlp.vmfb").export_library(tmp_path / name)
    assert (caught.value.hint or "").startswith("compile the model again")


@pytest.mark.parametrize("weights", [None, "w.irpa"])
def test_an_artifact_has_the_functions_of_a_build(
    tmp_path: Path, weights: str | None
) -> None:
    factory = tw.build(mlp(), jobs=1)
    path = tmp_path / "mlp.vmfb"
    factory.export_library(path, weights=None if weights is None else tmp_path / weights)
    module = load_module(path, threads=1)
    assert module["get_graph_json"]() == factory.graph_json
    params = module["get_graph_params"]()
    assert set(params) == set(factory.params)
    for name, array in factory.params.items():
        np.testing.assert_array_equal(np.from_dlpack(params[name]), array)
    debug = tw.debug_executor.GraphModuleDebug(module["debug_create"]("default", tw.cpu(0)))
    assert len(debug.node_names) > 3


def test_functions_of_a_library_of_tvm_are_those_of_its_machine(tmp_path: Path) -> None:
    data = lzma.decompress((GOLDEN / "tvm_0_27_mlp.so.xz").read_bytes())
    path = tmp_path / "mlp.so"
    path.write_bytes(data)
    module = load_module(path)
    with pytest.raises(InputError, match="has no function 'main'") as caught:
        module["main"]
    assert "tilewright.VirtualMachine(module, tilewright.cpu(0))" in str(caught.value)


def test_a_library_of_tvm_names_the_kind_that_is_missing(tmp_path: Path) -> None:
    data = lzma.decompress((GOLDEN / "tvm_0_27_mlp.so.xz").read_bytes())
    path = tmp_path / "mlp.so"
    path.write_bytes(data.replace(b"relax.VMExecutable", b"relax.XXExecutable"))
    with pytest.raises(
        InputError, match=r"a module of kind 'relax.XXExecutable'"
    ) as caught:
        load_module(path)
    assert "register_module_kind('relax.XXExecutable', load)" in str(caught.value)


# --- files that are none ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b"hello, world\n" * 9, "is text, expected a library"),
        (b"MZ" + bytes(600), "for Windows"),
        (b"\xcf\xfa\xed\xfe" + bytes(600), "for macOS"),
        (b"\0asm" + bytes(600), "WebAssembly"),
        (b"\x7fELF", "truncated ELF"),
        (bytes(5000), "of an unknown format"),
        (b"\x1f\x8b" + bytes(100), "damaged gzip"),
    ],
)  # fmt: skip
def test_a_foreign_file_is_called_what_it_is(
    tmp_path: Path, content: bytes, said: str
) -> None:
    path = tmp_path / "net.so"
    path.write_bytes(content)
    with pytest.raises(ArchiveError, match=said) as caught:
        load_module(path)
    assert str(caught.value).startswith(str(path))


def test_folders_pipes_and_absent_files_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.so")
    for path, said in (
        (tmp_path, "is a folder"),
        (tmp_path / "pipe.so", "is a device or a pipe"),
        (tmp_path / "none.so", "no such file"),
    ):
        with pytest.raises(ArchiveError, match=said):
            load_module(path)
    with pytest.raises(UserError):
        load_module(cast("Any", 3))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "net.so"
    path.write_bytes(b"x")
    path.chmod(0)
    with pytest.raises(ArchiveError, match="cannot read the file"):
        load_module(path)


def test_a_library_for_another_machine_is_refused(folder: Path, tmp_path: Path) -> None:
    data = bytearray((folder / "net.so").read_bytes())
    data[18:20] = (183 if data[18] != 183 else 62).to_bytes(2, "little")
    (tmp_path / "net.so").write_bytes(data)
    with pytest.raises(ArchiveError, match=r"is a library for .*, this machine is"):
        load_module(tmp_path / "net.so")


@pytest.mark.parametrize("name", ["lib0.o", "net.a", "net.tar", "packed.tar"])
@pytest.mark.parametrize(
    ("begin", "machine"),
    [(None, "aarch64"), (b"\x64\x86", "Windows"), (b"\xcf\xfa\xed\xfe", "macOS")],
)
def test_objects_for_another_machine_are_called_so(
    folder: Path, tmp_path: Path, name: str, begin: bytes | None, machine: str
) -> None:
    data = bytearray((folder / "lib0.o").read_bytes())
    if begin is None:
        data[18:20] = (183 if data[18] != 183 else 62).to_bytes(2, "little")
        machine = "aarch64" if data[18] == 183 else "x86_64"
    else:
        data[: len(begin)] = begin
    (tmp_path / "lib0.o").write_bytes(data)
    if name.endswith(".a"):
        # names of 16 characters and more go into a member of their own
        other = tmp_path / "a_source_with_a_long_name.txt"
        other.write_bytes(b"odd")
        files = [other, tmp_path / "lib0.o"]
        subprocess.run(["ar", "rcs", tmp_path / name, *files], check=True)
    elif name.endswith(".tar"):
        mode = "w:gz" if name == "packed.tar" else "w"
        with tarfile.open(tmp_path / name, cast("Any", mode)) as archive:
            archive.add(tmp_path / "lib0.o", "lib0.o")
    elif begin is not None:
        pytest.skip("one object of another system is told by its first bytes alone")
    with pytest.raises(ArchiveError, match=f"holds objects for {machine}, this machine is"):
        load_module(tmp_path / name)


def test_archives_of_macos_have_long_names_in_front_of_files(tmp_path: Path) -> None:
    names = [b"__.SYMDEF SORTED".ljust(20, b"\0"), b"lib0.o".ljust(8, b"\0")]
    contents = [b"\0" * 8, b"\xcf\xfa\xed\xfe" + bytes(28)]
    members = [
        f"#1/{len(name)}".encode().ljust(48)
        + str(len(name) + len(content)).encode().ljust(10)
        + b"`\n"
        + name
        + content
        for name, content in zip(names, contents, strict=True)
    ]
    (tmp_path / "net.a").write_bytes(b"!<arch>\n" + b"".join(members))
    with pytest.raises(ArchiveError, match="holds objects for macOS, this machine is"):
        load_module(tmp_path / "net.a")


def test_a_library_that_was_cut_is_refused_at_any_length(
    folder: Path, tmp_path: Path
) -> None:
    data = (folder / "net.so").read_bytes()
    path = tmp_path / "net.so"
    headers = read_shared_library(data).file_bytes
    for length in (*range(0, headers, 397), headers - 1):
        path.write_bytes(data[:length])
        with pytest.raises(ArchiveError):
            load_module(path)


def test_a_library_that_lacks_a_symbol_is_refused_before_a_call(tmp_path: Path) -> None:
    source = (
        "int nobody_has_this(void);\n"
        "int __tvm_ffi_f(void* a, void* b, int c, void* d) { return nobody_has_this(); }\n"
    )
    path = make_library(tmp_path, source=source)
    with pytest.raises(ArchiveError, match="undefined symbol: nobody_has_this"):
        load_module(path)


def test_a_symbol_that_is_no_text_is_shown(tmp_path: Path) -> None:
    source = (
        "int nobody_has_this(void);\n"
        "int __tvm_ffi_f(void* a, void* b, int c, void* d) { return nobody_has_this(); }\n"
    )
    path = make_library(tmp_path, source=source)
    path.write_bytes(
        path.read_bytes().replace(b"nobody_has_this", b"nobody_\xcd\xff\xff_this")
    )
    # From Python 3.14 on the system's words are text as names of files are, whose other bytes a stream writes.
    shown = r"undefined symbol: nobody_(\\xcd\\xff\\xff|\udccd\udcff\udcff)_this"
    with pytest.raises(ArchiveError, match=shown):
        load_module(path)


def test_a_library_of_old_tvm_is_refused_with_what_to_do(tmp_path: Path) -> None:
    source = "const char __tvm_dev_mblob[16]; void* __tvm_module_ctx;\n"
    path = make_library(tmp_path, source=source)
    with pytest.raises(ArchiveError, match=r"library of TVM up to 0.20") as caught:
        load_module(path)
    assert "compile the model again" in str(caught.value)


def test_a_damaged_blob_is_refused_before_the_library_is_mapped(tmp_path: Path) -> None:
    source = blob_source(LibraryBlob((SavedModule("_lib"),), ((),))).replace(
        "{", "{255,255,", 1
    )
    path = make_library(tmp_path, source=source)
    with pytest.raises(ArchiveError, match="blob at byte 8 needs"):
        load_module(path)


def test_a_tar_without_objects_says_what_it_has(tmp_path: Path) -> None:
    path = tmp_path / "net.tar"
    with tarfile.open(path, "w") as archive:
        archive.addfile(tarfile.TarInfo("readme.txt"))
    with pytest.raises(ArchiveError, match="has no objects") as caught:
        load_module(path)
    assert "it has readme.txt" in str(caught.value)


def test_an_object_that_is_no_linkers_food_is_an_error(tmp_path: Path) -> None:
    compiler()
    (tmp_path / "x.o").write_bytes(b"\x7fELF\2\1\1" + bytes(9) + b"\1\0\x3e\0" + bytes(500))
    with pytest.raises(UserError, match="cannot be linked"):
        load_module(tmp_path / "x.o")


@pytest.mark.parametrize("name", ["empty.a", "kernels.a", "kernels.o", "kernels.tar"])
def test_objects_without_functions_are_no_library(tmp_path: Path, name: str) -> None:
    built = compile_object(tmp_path, "int add(int a, int b) { return a + b; }")
    path = tmp_path / name
    if name == "empty.a":
        path.write_bytes(b"!<arch>\n")
    elif name == "kernels.a":
        find_toolchain().archive(path, [built])
    elif path.suffix == ".tar":
        with tarfile.open(path, "w") as archive:
            archive.add(built, "kernels.o")
    else:
        built.replace(path)
    with pytest.raises(ArchiveError, match="holds no packed function") as caught:
        load_module(path)
    assert str(path) in str(caught.value)
    assert "export the model as .so" in str(caught.value)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="what is mapped is asked of /proc")
def test_a_library_goes_with_its_last_function_when_it_is_asked_to(tmp_path: Path) -> None:
    path = make_library(tmp_path, name="gone.so")
    program = (
        "import sys\n"
        "from tilewright.runtime import load_module\n"
        "import pathlib, gc\n"
        f"path = {str(path)!r}\n"
        "mapped = lambda: path in pathlib.Path('/proc/self/maps').read_text()\n"
        "f = load_module(path, keep_module_alive=False)['add']\n"
        "assert mapped() and f(1, 2) == 3\n"
        "del f; gc.collect(); assert not mapped()\n"
        "load_module(path); gc.collect(); assert mapped()\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".o", ".a", ".tar"])
def test_weights_beside_objects_are_found(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when all that is left of the module is its function, and it is first called then."""
    path = tmp_path / f"net{suffix}"
    tw.build(mlp(), target="x86_64").export_library(path, weights=tmp_path / "net.irpa")
    x = np.random.default_rng(2).random((5, 20), np.float32)
    monkeypatch.chdir(tmp_path)
    main = load_module(path.name)["main"]
    gc.collect()
    monkeypatch.chdir("/")
    expected: Any = np.asarray(tw.compile(mlp(), jobs=1)(x))
    np.testing.assert_allclose(cast("Any", np.from_dlpack(main(x))), expected, 1e-4)


@pytest.mark.slow
def test_the_command_in_exported_sources_is_right_in_any_folder(tmp_path: Path) -> None:
    compiler()
    path = tmp_path / "my net.c"
    tw.build(mlp(), target="x86_64").export_library(path)
    command = path.read_text().splitlines()[0].removeprefix("// ").replace("app.c", "")
    subprocess.run(
        f"{command} -shared -fPIC -o net.so", shell=True, cwd=tmp_path, check=True
    )
    assert "main" in load_module(tmp_path / "net.so").function_names()
