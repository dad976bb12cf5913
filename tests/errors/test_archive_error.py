"""What a file that is no artifact says."""

import re
from pathlib import Path

import pytest

import tilewright as tw
from fakes.small_models import mlp
from tilewright.base.errors import ArchiveError
from tilewright.formats.vmfb import ModuleBuilder, write_archive

_ELF = b"\x7fELF\2\1\1" + b"\0" * 9


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "none.vmfb"
    with pytest.raises(ArchiveError) as caught:
        tw.load(path)
    assert str(caught.value) == f"{path}: cannot read the file: No such file or directory"


def test_a_folder_is_called_so(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError) as caught:
        tw.load(tmp_path)
    assert str(caught.value) == f"{tmp_path}: cannot read the file: Is a directory"


def test_a_model_that_is_not_compiled_yet_says_how(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(b"12345678" * 10)
    with pytest.raises(ArchiveError) as caught:
        tw.load(path)
    assert str(caught.value) == (
        f"{path}: is an ONNX model, expected a .vmfb\n"
        "hint: compile it first: tilewright.compile or tilewright compile"
    )


@pytest.mark.parametrize(
    ("name", "data", "problem", "hint"),
    [
        ("net.so", _ELF + b"\3\0\x3e\0", "an ELF shared library for x86_64", "load_module"),
        ("net", _ELF + b"\3\0\xb7\0", "an ELF shared library for aarch64", "load_module"),
        ("net.o", _ELF + b"\1\0\x3e\0", "an ELF object for x86_64", "load_module"),
        ("net.vmfb", _ELF + b"\2\0\x3e\0", "an ELF program for x86_64", "run it"),
        ("net.a", b"!<arch>\n", "an archive of objects", "load_module"),
        ("net.C", b"int f(void);", "the source of a library", "load_module"),
        ("m.MLIR", b"module {}", "a StableHLO module", "tilewright compile"),
        ("m.gguf", b"GGUF", "a language model (GGUF)", "tilewright generate"),
        ("w.irpa", b"IRPA", "a file of weights", "parameters=[...]"),
        ("core.so", _ELF + b"\4\0\x3e\0", "an ELF core dump for x86_64", "None"),
        ("net.dll", b"MZ" + bytes(99), "a file for Windows (PE)", "another system"),
        ("a.tar", b"PK\3\4" + bytes(99), "an archive (zip)", "None"),
        ("a", b"PK\3\4" + bytes(99), "an archive (zip)", "None"),
        ("m.PT2", b"PK\3\4" + bytes(99), "a file of PyTorch", "tilewright.compile"),
        ("a.tar", b"hello", "text", "None"),
    ],
)
def test_a_file_of_another_kind_says_who_takes_it(
    name: str, data: bytes, problem: str, hint: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(ArchiveError) as caught:
        tw.load(path)
    assert caught.value.message == f"is {problem}, expected a .vmfb"
    assert hint in str(caught.value.hint)


def test_an_artifact_loads_whatever_it_is_called(tmp_path: Path) -> None:
    for name in ("m.onnx", "m.so", "m"):
        tw.compile(mlp()).save(tmp_path / "m.vmfb")
        (tmp_path / "m.vmfb").rename(tmp_path / name)
        assert tw.load(tmp_path / name).inputs[0].name == "x"


@pytest.mark.parametrize(
    ("name", "problem", "hint"),
    [
        ("m.onnx", "an ONNX model", "tilewright compile"),
        ("m.gguf", "a language model (GGUF)", "tilewright generate"),
        ("m.vmfb", "text", "load_module takes .so, .o, .a"),
        ("m.VMFB", "text", "load_module takes .so, .o, .a"),
        ("m.tar", "text", "load_module takes .so, .o, .a"),
        ("m.so", "text", "load_module takes .so, .o, .a"),
        ("m.txt", "text", "load_module takes .so, .o, .a"),
    ],
)
def test_a_file_that_is_no_library_says_who_takes_it(
    name: str, problem: str, hint: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_bytes(b"hello" * 20)
    with pytest.raises(ArchiveError) as caught:
        tw.runtime.load_module(path)
    assert caught.value.message == (
        f"is {problem}, expected a library, objects or an artifact"
    )
    assert hint in str(caught.value.hint)


@pytest.mark.parametrize(
    ("name", "data", "problem", "hint"),
    [
        ("core.so", _ELF + b"\4\0\x3e\0", "an ELF core dump for x86_64", "load_module takes"),
        ("net", _ELF + b"\2\0\x3e\0", "an ELF program for x86_64", "run it"),
        ("net.DLL", b"MZ" + bytes(99), "a file for Windows (PE)", "another system"),
        ("net.so", b"\xcf\xfa\xed\xfe" + bytes(99), "a file for macOS (Mach-O)", "another system"),
        ("a.tar", b"PK\3\4" + bytes(99), "an archive (zip)", "load_module takes"),
    ],
)  # fmt: skip
def test_load_module_and_load_call_a_refused_file_the_same(
    name: str, data: bytes, problem: str, hint: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    for load in (tw.load, tw.runtime.load_module):
        with pytest.raises(ArchiveError, match="expected") as caught:
            load(path)
        assert caught.value.message.startswith(f"is {problem}, ")
    assert hint in str(caught.value.hint)


def test_no_hint_sends_a_file_to_who_refuses_it(tmp_path: Path) -> None:
    for begin in (b"hello", b"PK\3\4", b"MZ", b"\0asm", _ELF + b"\4\0\x3e\0", b"\xff" * 9):
        for suffix in (".so", ".dylib", ".o", ".lib", ".tar", ".s"):
            path = tmp_path / f"net{suffix}"
            path.write_bytes(begin)
            with pytest.raises(ArchiveError) as caught:
                tw.load(path)
            if begin != b"hello" or suffix != ".s":
                assert "load_module loads it" not in str(caught.value.hint)


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "empty.vmfb"
    path.touch()
    with pytest.raises(ArchiveError, match=r"empty\.vmfb: "):
        tw.load(path)


def test_bytes_that_are_no_archive_are_called_so(tmp_path: Path) -> None:
    path = tmp_path / "bad.vmfb"
    path.write_bytes(b"12345678" * 10)
    with pytest.raises(ArchiveError) as caught:
        tw.load(path)
    assert str(caught.value) == (
        f"{path}: is no .vmfb archive: file identifier is b'1234', expected b'IREE'"
    )


def test_a_truncated_artifact_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "half.vmfb"
    write_archive(ModuleBuilder("module").finish(), path)
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(ArchiveError, match=r"half\.vmfb: "):
        tw.load(path)


@pytest.mark.parametrize("part", [0.02, 0.5, 0.999])
def test_a_file_that_was_not_copied_whole_is_called_cut(
    part: float, tmp_path: Path
) -> None:
    path = tmp_path / "m.vmfb"
    tw.compile(mlp()).save(path)
    data = path.read_bytes()
    cut = data[: int(part * len(data))]
    path.write_bytes(cut)
    with pytest.raises(ArchiveError) as caught:
        tw.load(path)
    has, whole = re.findall(r"it has (\d+) of at least (\d+) bytes", str(caught.value))[0]
    assert int(has) == len(cut)
    assert int(has) < int(whole) <= len(data)
    assert caught.value.hint == "get the file again, whole"
