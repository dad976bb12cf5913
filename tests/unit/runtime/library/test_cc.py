"""The functions that link, under TVM's names."""

from __future__ import annotations

import ctypes
import shutil
from pathlib import Path

import pytest

from tilewright.base.c_compiler.toolchain import find_toolchain
from tilewright.runtime.library import cc


@pytest.fixture
def source(tmp_path: Path) -> str:
    path = tmp_path / "answer.c"
    path.write_text(
        "#ifndef ANSWER\n#define ANSWER 1\n#endif\nint answer(void) { return ANSWER; }\n"
    )
    return str(path)


def answer_of(library: Path) -> int:
    return ctypes.CDLL(str(library)).answer()


def test_a_shared_library_is_made(source: str, tmp_path: Path) -> None:
    cc.create_shared(str(tmp_path / "a.so"), [source], options=["-DANSWER=7"])
    assert answer_of(tmp_path / "a.so") == 7


def test_a_cross_compiler_adds_its_options_and_files(source: str, tmp_path: Path) -> None:
    fcompile = cc.cross_compiler("cc", options=["-DANSWER=9"], add_files=[source])
    fcompile(str(tmp_path / "a.so"), [])
    assert answer_of(tmp_path / "a.so") == 9
    assert fcompile.output_format == "so"
    assert fcompile.get_target_triple is not None
    assert fcompile.get_target_triple() == cc.get_target_by_dump_machine("cc")()


def test_options_of_one_call_are_not_those_of_the_next(source: str, tmp_path: Path) -> None:
    fcompile = cc.cross_compiler("cc")
    fcompile(str(tmp_path / "a.so"), [source], options=["-DANSWER=9"])
    fcompile(str(tmp_path / "b.so"), [source])
    assert [answer_of(tmp_path / name) for name in ("a.so", "b.so")] == [9, 1]


def test_what_a_function_made_is_handed_on() -> None:
    def link(output: str, objects: list[str], options: list[str]) -> object:
        return output, objects, options

    vars(link)["output_format"] = "img"
    fcompile = cc.cross_compiler(link, options=["-a"])
    assert fcompile("net.img", ["x.o"], ["-b"]) == ("net.img", ["x.o"], ["-a", "-b"])
    assert fcompile.output_format == "img"


def test_a_static_library_and_a_program_are_made(source: str, tmp_path: Path) -> None:
    main = tmp_path / "main.c"
    main.write_text("int answer(void); int main(void) { return answer(); }\n")
    objects = find_toolchain().compile([Path(source)], tmp_path)
    cc.create_staticlib(str(tmp_path / "libanswer.a"), str(objects[0]))
    cc.create_executable(str(tmp_path / "app"), [str(main), str(tmp_path / "libanswer.a")])
    assert (tmp_path / "app").stat().st_mode & 0o100


def test_a_compiler_may_have_words_behind_its_name_and_spaces_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = cc.get_target_by_dump_machine("cc")()
    if plain is None:
        pytest.skip("needs a C compiler")
    assert cc.get_target_by_dump_machine("cc -O2")() == plain
    triple = cc.cross_compiler("cc -O2").get_target_triple
    assert triple is not None
    assert triple() == plain
    compiler = tmp_path / "my compiler"
    compiler.symlink_to(str(shutil.which("cc")))
    monkeypatch.setenv("TILEWRIGHT_CC", f"'{compiler}' -O2")
    assert cc.get_target_by_dump_machine(cc.get_cc())() == plain
