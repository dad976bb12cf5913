"""Compilers of the system: which one is taken, and what becomes of its mistakes."""

from __future__ import annotations

import errno
import os
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tilewright.base import knobs
from tilewright.base.c_compiler.commands import TEMPORARY, run_all
from tilewright.base.c_compiler.toolchain import (
    Toolchain,
    find_ir_toolchain,
    find_toolchain,
    named_toolchain,
    temporary_files,
)
from tilewright.base.errors import UserError
from tilewright.base.target import Target

SOURCE = "int answer(void) { return 42; }\n"
HOST = Target.host()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "answer.c"
    path.write_text(SOURCE)
    return path


@pytest.fixture
def fake_compiler(tmp_path: Path) -> Path:
    """A compiler that says much and fails."""
    path = tmp_path / "fake-cc"
    path.write_text("#!/bin/sh\nfor i in $(seq 50); do echo line $i >&2; done\nexit 3\n")
    path.chmod(0o755)
    return path


def test_the_compiler_of_the_knob_is_taken(fake_compiler: Path) -> None:
    fake_compiler.write_text(f"#!/bin/sh\necho {HOST.arch}-{HOST.os}\n")
    with knobs.override(cc=f"{fake_compiler} -m64"):
        assert find_toolchain().command == (str(fake_compiler), "-m64")


def test_a_named_compiler_is_passed_over_for_a_machine_that_it_makes_no_code_for(
    fake_compiler: Path,
) -> None:
    fake_compiler.write_text("#!/bin/sh\necho aarch64-linux-gnu\n")
    with knobs.override(cc=str(fake_compiler)):
        assert find_toolchain().command[0] != str(fake_compiler)
        assert find_toolchain(Target.parse("aarch64")).command == (str(fake_compiler),)


def test_a_compiler_says_which_machine_it_is_for(fake_compiler: Path) -> None:
    fake_compiler.write_text("#!/bin/sh\necho riscv64-linux-gnu\n")
    assert named_toolchain(str(fake_compiler)).arch == "riscv64"


@pytest.mark.parametrize(
    ("version", "is_taken"),
    [
        ("Debian clang version 14.0.6", False),
        ("Ubuntu clang version 15.0.7", True),
        ("clang version 20.1.0 (https://github.com/llvm/llvm-project)", True),
        ("Apple clang version 16.0.0 (clang-1600.0.26.6)", True),
        ("gcc (Debian 12.2.0-14) 12.2.0", False),
    ],
)
def test_llvm_ir_goes_to_a_compiler_that_knows_pointers_of_one_type(
    version: str, is_taken: bool, fake_compiler: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clang of Debian 12 was taken before Zig's, and refused every pointer."""
    text = (
        f"#!/bin/sh\n[ $1 = --version ] && echo '{version}' || echo {HOST.arch}-{HOST.os}\n"
    )
    clang = fake_compiler.rename(fake_compiler.with_name("clang"))
    clang.write_text(text)
    monkeypatch.setenv("PATH", str(clang.parent), prepend=os.pathsep)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    if is_taken:
        assert find_ir_toolchain().command == ("clang",)
        return
    with pytest.raises(UserError, match="no compiler that takes LLVM IR"):
        find_ir_toolchain()


def test_a_knob_that_names_no_compiler_is_an_error_with_a_hint() -> None:
    with knobs.override(cc="no-such-cc"), pytest.raises(UserError) as caught:
        find_toolchain()
    assert str(caught.value).startswith("TILEWRIGHT_CC: there is no compiler 'no-such-cc'")
    assert "tilewright[cross]" in str(caught.value)


def test_without_any_compiler_the_error_says_how_to_get_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match="no C compiler for 'x86_64-windows'") as caught:
        find_toolchain(Target.parse("x86_64-windows"))
    assert "pip install 'tilewright[cross]'" in str(caught.value)


def test_a_failing_compiler_is_quoted_with_its_last_lines(
    fake_compiler: Path, source: Path, tmp_path: Path
) -> None:
    toolchain = find_toolchain(cc=str(fake_compiler))
    with pytest.raises(UserError) as caught:
        toolchain.link_shared(tmp_path / "out.so", [source])
    text = str(caught.value)
    assert f"'{fake_compiler}' ended with status 3" in text
    assert "line 50" in text
    assert "line 31\n" in text
    assert "line 30\n" not in text
    assert f"command: {fake_compiler} -shared" in text
    assert not (tmp_path / "out.so").exists()


def test_a_compiler_that_cannot_be_run_is_an_error(source: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot run '/nowhere/cc'"):
        find_toolchain(cc="/nowhere/cc").link_shared(tmp_path / "out.so", [source])


def test_an_old_file_stays_as_it_was_when_linking_fails(
    fake_compiler: Path, source: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out.so"
    output.write_bytes(b"old")
    with pytest.raises(UserError):
        find_toolchain(cc=str(fake_compiler)).link_shared(output, [source])
    assert output.read_bytes() == b"old"


@pytest.mark.slow
def test_a_library_and_a_program_may_be_run(source: Path, tmp_path: Path) -> None:
    toolchain = find_toolchain()
    toolchain.link_shared(tmp_path / "answer.so", [source])
    program = tmp_path / "main.c"
    program.write_text("int answer(void); int main(void) { return answer(); }\n")
    objects = toolchain.compile([source], tmp_path)
    toolchain.archive(tmp_path / "libanswer.a", objects)
    toolchain.link_executable(tmp_path / "app", [program, tmp_path / "libanswer.a"])
    assert subprocess.run([tmp_path / "app"], check=False).returncode == 42
    assert (tmp_path / "answer.so").stat().st_mode & stat.S_IXUSR


def test_objects_are_joined_into_one(source: Path, tmp_path: Path) -> None:
    toolchain = find_toolchain()
    other = tmp_path / "other.c"
    other.write_text("int other(void) { return 1; }\n")
    toolchain.merge(tmp_path / "both.o", toolchain.compile([source, other], tmp_path))
    symbols = (tmp_path / "both.o").read_bytes()
    assert b"\0answer\0" in symbols
    assert b"\0other\0" in symbols


def test_the_same_sources_give_the_same_bytes_in_every_folder(tmp_path: Path) -> None:
    toolchain = find_toolchain()
    made: list[bytes] = []
    for name in ("first", "second"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "answer.c").write_text(SOURCE)
        objects = toolchain.compile([folder / "answer.c"], folder)
        toolchain.archive(folder / "answer.a", objects)
        toolchain.link_shared(folder / "answer.so", objects)
        made.append(
            (folder / "answer.a").read_bytes() + (folder / "answer.so").read_bytes()
        )
    assert made[0] == made[1]


@pytest.fixture
def driver(tmp_path: Path) -> Path:
    """A compiler with the name of Zig that makes an empty file, and keeps the words of its last call in `words` beside it."""
    said, driver = tmp_path / "words", tmp_path / "zig"
    driver.write_text(
        f'#!/bin/sh\necho "$@" > {said}\nwhile [ "$1" != -o ]; do shift; done; : > "$2"\n'
    )
    driver.chmod(0o755)
    return driver


def test_objects_of_zig_carry_nothing_for_debuggers(
    source: Path, driver: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "made"
    folder.mkdir()
    zig = Toolchain(command=(str(driver), "cc"), arch=HOST.arch, os=HOST.os)
    zig.compile([source], folder, ["-g"])
    words = (tmp_path / "words").read_text().split()
    assert words.index("-g0") < words.index("-g"), "who asks for them gets them"


@pytest.mark.parametrize("link", [Toolchain.link_shared, Toolchain.link_executable])
def test_zig_links_nothing_of_sanitizers(
    driver: Path, tmp_path: Path, link: Callable[..., None]
) -> None:
    """It would compile that first; only where no level of optimization is said."""
    zig = Toolchain(command=(str(driver), "cc"), arch=HOST.arch, os=HOST.os)
    link(zig, tmp_path / "out", ["a.o"], ["-O0"])
    words = (tmp_path / "words").read_text().split()
    assert words.index("-O2") < words.index("-O0"), "who wants another level gets it"
    system = Toolchain(
        command=(str(driver.rename(tmp_path / "cc")),), arch=HOST.arch, os=HOST.os
    )
    link(system, tmp_path / "out", ["a.o"])
    assert "-O2" not in (tmp_path / "words").read_text().split()


@pytest.mark.slow
def test_an_interrupt_leaves_no_file_and_no_folder(tmp_path: Path) -> None:
    slow = tmp_path / "slow-cc"
    slow.write_text("#!/bin/sh\nsleep 60\n")
    slow.chmod(0o755)
    (tmp_path / "temporary").mkdir()
    script = (
        "from tilewright.base.c_compiler.toolchain import find_toolchain\n"
        f"find_toolchain(cc={str(slow)!r}).link_shared({str(tmp_path / 'out.so')!r}, [])\n"
    )
    environment = {**os.environ, "TMPDIR": str(tmp_path / "temporary")}
    child = subprocess.Popen(
        [sys.executable, "-c", script], env=environment, stderr=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 30
    while not list((tmp_path / "temporary").iterdir()) and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(0.1)
    child.send_signal(signal.SIGINT)
    assert child.wait(30) != 0
    assert list((tmp_path / "temporary").iterdir()) == []
    assert not (tmp_path / "out.so").exists()


def test_a_named_compiler_that_says_no_machine_is_the_one_that_is_called() -> None:
    with knobs.override(cc="false"):
        assert find_toolchain().command == ("false",)


@pytest.mark.parametrize("words", ["", " ", 3])
def test_words_that_call_no_compiler_are_refused(words: object) -> None:
    with pytest.raises(
        UserError, match=r"^cc is .*expected the words that call a compiler"
    ):
        find_toolchain(cc=words)  # type: ignore[arg-type]


def test_a_compiler_that_writes_nothing_is_an_error(source: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="ended without an error and wrote no file"):
        find_toolchain(cc="true").link_shared(tmp_path / "out.so", [source])


@pytest.mark.parametrize(
    ("code", "hint"), [(errno.EAGAIN, "end other processes"), (errno.EMFILE, "close files")]
)
def test_a_compiler_that_is_there_is_not_to_be_installed(
    monkeypatch: pytest.MonkeyPatch, code: int, hint: str
) -> None:
    """The system has no process for it."""

    def none_left(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(subprocess, "Popen", none_left)
    with pytest.raises(UserError, match=f"cannot run 'cc': {os.strerror(code)}") as told:
        run_all([["cc", "--version"]])
    assert "install" not in str(told.value)
    assert f"hint: {hint}" in str(told.value)


def test_a_file_too_many_is_no_matter_of_temporary_folders() -> None:
    with pytest.raises(OSError, match="Too many open files"), temporary_files():  # noqa: PT012
        place = f"{tempfile.gettempdir()}/{TEMPORARY}x"
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), place)


def test_what_is_no_program_is_no_compiler(tmp_path: Path) -> None:
    file = tmp_path / "cc"
    file.write_text("no program\n")
    file.chmod(0o755)
    for name in (str(file), str(file / "cc")):
        with pytest.raises(UserError, match=r"cannot run '.*\nhint: install a C compiler"):
            run_all([[name, "--version"]])
