"""`run` and `inspect` of libraries."""

from __future__ import annotations

import lzma
import shutil
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from fakes import small_models
from fakes.command_line import tilewright
from fakes.native_kernel import needs_x86
from tilewright.base.dtypes import f32
from tilewright.base.symbolic import symbol
from tilewright.compiler.graph.schema import TensorType
from tilewright.compiler.ops.builder import GraphBuilder

GOLDEN = Path(__file__).parents[2] / "golden" / "libraries"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("library") / "net.so"
    tw.compile(small_models.scale_and_shift()).export_library(path)
    return path


@pytest.mark.slow
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


@pytest.fixture
def library_of_tvm(tmp_path: Path) -> Path:
    """relu(x @ w), compiled by TVM 0.27 for Linux on x86-64."""
    path = tmp_path / "mlp.so"
    path.write_bytes(lzma.decompress((GOLDEN / "tvm_0_27_mlp.so.xz").read_bytes()))
    return path


@needs_x86
def test_run_calls_a_function_of_a_library_of_tvm(
    library_of_tvm: Path, tmp_path: Path
) -> None:
    words = ("--input=w=8x4xf32=2", "--input=x=2x8xf32=1")
    printed = tilewright("run", library_of_tvm, *words)
    assert printed.out == "result[0]: hal.buffer_view\n2x4xf32=[16 16 16 16][16 16 16 16]\n"
    place = tmp_path / "y.npy"
    written = tilewright(
        "run", library_of_tvm, "--function=main", *words, f"--output=result_0=@{place}"
    )
    assert written.code == 0, written.err
    np.testing.assert_array_equal(np.load(place), np.full((2, 4), 16, np.float32))
    assert "input w of main" in tilewright("inspect", library_of_tvm).out


@needs_x86
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--random",), "does not say what its inputs are"),
        ((), "expected 2 (x, w)"),
        (("--function=nope",), "has no function 'nope'"),
        (("--threads=1",), "--threads is not for TVM's libraries"),
        (("--input=2x7xf32=1", "--input=8x4xf32=2"), "size 7 on axis 1, expected 8"),
        (
            ("--input=2x8xf32=1", "--input=8x4xf32=2", "--output=z=@z.npy"),
            "no output 'z'",
        ),
    ],
    ids=["random", "no inputs", "function", "threads", "size", "output"],
)
def test_what_a_library_of_tvm_does_not_take_is_said(
    words: tuple[str, ...], said: str, library_of_tvm: Path
) -> None:
    done = tilewright("run", library_of_tvm, *words)
    assert done.code == 1
    assert said in done.err.replace("\n", " ")


def test_a_function_of_a_library_of_ours_is_not_chosen(library: Path) -> None:
    done = tilewright("run", library, "--function=main", "--random")
    assert done.code == 1
    assert "--function is not for libraries of Tilewright" in done.err


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


@pytest.fixture(scope="module")
def two_inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library whose inputs share a size that calls decide."""
    builder = GraphBuilder()
    kind = TensorType(f32, (symbol("rows", 1), 4))
    builder.output("y", builder.add(builder.input("a", kind), builder.input("b", kind)))
    path = tmp_path_factory.mktemp("library") / "net.so"
    tw.build(builder.graph).export_library(path)
    return path


@pytest.mark.slow
def test_sizes_keep_their_names(two_inputs: Path) -> None:
    lines = tilewright("inspect", two_inputs).out.splitlines()
    assert lines[-3:] == [
        f"{subject}: f32[rows, 4]" for subject in ("input a", "input b", "output y")
    ]
    done = tilewright("run", two_inputs, "--random", "--dim", "rows=3")
    assert done.code == 0, done.err
    assert "3x4xf32" in done.out


def test_a_library_runs_on_as_many_threads_as_asked(library: Path) -> None:
    done = tilewright("run", library, "--threads=1", "--random")
    assert done.code == 0, done.err


def test_libraries_are_held_to_a_signature(library: Path, tmp_path: Path) -> None:
    pytest.importorskip("cryptography", reason="the extra 'sign' is not installed")
    tw.generate_key(tmp_path / "maker.key")
    copy = tmp_path / "net.so"
    shutil.copyfile(library, copy)
    key = f"--trusted-key={tmp_path / 'maker.key.pub'}"
    for words in (["run", "--random"], ["inspect"]):
        done = tilewright(words[0], copy, key, *words[1:])
        assert done.code == 1
        assert "is not signed" in done.err
    tw.sign(copy, tmp_path / "maker.key")
    for words in (["run", "--random"], ["inspect"]):
        done = tilewright(words[0], copy, key, *words[1:])
        assert done.code == 0, done.err


def test_options_that_libraries_do_not_take_are_named_as_they_are_typed(
    library: Path,
) -> None:
    done = tilewright("run", library, "--executable-plugin=x.so", "--random")
    assert "--executable-plugin is not for libraries" in done.err
    done = tilewright("run", library, "--module=other.vmfb", "--random")
    assert "--module is not for libraries" in done.err


@pytest.mark.parametrize("suffix", [".s", ".ll"])
@pytest.mark.parametrize("verb", ["run", "inspect"])
def test_texts_of_kernels_alone_are_refused_as_what_they_are(
    verb: str, suffix: str, tmp_path: Path
) -> None:
    path = tmp_path / f"net{suffix}"
    path.write_text("; nothing that can be called\n" if suffix == ".ll" else ".text\n")
    done = tilewright(verb, path)
    assert done.code == 1
    assert "holds kernels without the host side that calls them" in done.err
