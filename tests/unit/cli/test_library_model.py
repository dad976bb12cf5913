"""`run` and `inspect` of libraries."""

from __future__ import annotations

from pathlib import Path

import pytest

import tilewright as tw
from fakes import small_models
from fakes.command_line import tilewright


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("library") / "net.so"
    tw.compile(small_models.scale_and_shift()).export_library(path)
    return path


def test_run_takes_inputs_by_name_and_prints_as_it_does_of_an_archive(
    library: Path, tmp_path: Path
) -> None:
    archive = tmp_path / "net.vmfb"
    tw.compile(small_models.scale_and_shift()).save(archive)
    words = ("--input=scale=3xf32=1 2 3", "--input=x=2x3xf32=1 -2 3 4 5 6")
    printed = [tilewright("run", path, *words).out for path in (library, archive)]
    assert printed[0] == printed[1]
    assert printed[0].startswith("result[0]: hal.buffer_view\n2x3xf32=[2 0 10][5 11 19]")


def test_an_input_that_does_not_fit_is_named(library: Path) -> None:
    done = tilewright("run", library, "--input=2x3xf32=1", "--input=4xf32=1")
    assert done.code == 1
    assert "scale" in done.err


def test_an_option_that_a_library_does_not_take_is_an_error(library: Path) -> None:
    done = tilewright("run", library, "--engine=vm", "--random")
    assert done.code == 1
    assert "--engine is not for libraries" in done.err


def test_inspect_shows_modules_functions_and_signature(library: Path) -> None:
    done = tilewright("inspect", library)
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    assert lines[0] == "module of kind 'library'"
    assert {"  main", "  default", "  get_graph_json"} <= set(lines)
    assert lines[-4].startswith("input x: f32[")


def test_inspect_of_a_library_has_one_level(library: Path) -> None:
    done = tilewright("inspect", library, "--output=asm")
    assert done.code == 1
    assert "a library has no level 'asm'" in done.err
