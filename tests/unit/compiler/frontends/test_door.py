"""Which front end a model goes to."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fakes.small_models import mlp
from tilewright.base.errors import ModelError, UserError
from tilewright.compiler.compile_options import CompileOptions
from tilewright.compiler.frontends.door import FRONT_ENDS, Shaping, front_end_of
from tilewright.compiler.frontends.stablehlo import bytecode_file
from tilewright.compiler.pipeline import coverage, import_model
from tilewright.formats import gguf

TEXT = "// comment\nmodule @m {\n func.func @main(%a: tensor<2xf32>) -> tensor<2xf32> {\n return %a : tensor<2xf32> } }"


def test_suffixes_belong_to_one_front_end() -> None:
    suffixes = [suffix for each in FRONT_ENDS for suffix in each.suffixes]
    assert len(suffixes) == len(set(suffixes))


def test_a_file_is_known_by_its_suffix_else_by_its_contents(tmp_path: Path) -> None:
    named, bare = tmp_path / "a.mlir", tmp_path / "a.txt"
    bare.write_text(TEXT)
    assert front_end_of(named).name == "StableHLO"
    assert front_end_of(bare).name == "StableHLO"
    assert front_end_of(TEXT.encode()).name == "StableHLO"
    source = tmp_path / "net.c"  # both may begin with a comment
    source.write_text("// the model\n#include <stdint.h>\n")
    with pytest.raises(ModelError, match="hint: it is a library"):
        front_end_of(source).load(source, Shaping())
    assert front_end_of(mlp().SerializeToString()).name == "ONNX"
    assert front_end_of(mlp()).name == "ONNX"
    assert front_end_of(tmp_path / "missing").name == "ONNX"


def test_contents_are_known_by_the_bytes_that_their_readers_look_for() -> None:
    for magic, name in ((bytecode_file.MAGIC, "StableHLO"), (gguf.MAGIC, "GGUF")):
        assert front_end_of(magic + bytes(8)).name == name


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no FIFOs")
def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    """Nobody writes into it: to open it for reading would take for ever."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ModelError, match="is a device or a pipe, expected a file"):
        coverage(tmp_path / "pipe", CompileOptions(targets=()))


@pytest.mark.parametrize(
    "head",
    [
        "// " + "a long comment " * 40 + "\n\n",
        "#loc1 = loc(unknown)\n" * 30,
        "!t = tensor<2xf32>\n",
        "\n  \t",
    ],
)
def test_a_text_is_known_whatever_stands_before_its_module(head: str) -> None:
    assert front_end_of((head + TEXT).encode()).name == "StableHLO"


def test_a_module_is_imported_and_covered() -> None:
    graph, files, checks, _ = import_model(TEXT.encode(), CompileOptions(targets=()))
    assert [v.name for v in graph.inputs] == ["a"]
    assert (files, checks) == ((), ())
    report = coverage(TEXT.encode(), CompileOptions(targets=()), quick=True)
    assert report.supported
    assert "opset" not in str(report)


def test_shapes_are_not_given_to_a_module_from_outside() -> None:
    options = CompileOptions(targets=(), input_shapes={"a": (2,)})
    with pytest.raises(
        UserError, match=r"is for ONNX and GGUF models\nhint: .* stand in it"
    ):
        import_model(TEXT.encode(), options)


def test_damaged_bytecode_of_mlir_says_where(tmp_path: Path) -> None:
    path = tmp_path / "a.mlir"
    path.write_bytes(b"ML\xefR\x01\xff")
    with pytest.raises(ModelError, match=r"a\.mlir: byte 5: a text does not end"):
        import_model(path, CompileOptions(targets=()))


@pytest.mark.slow
def test_only_the_front_end_of_a_model_is_loaded(tmp_path: Path) -> None:
    """Together they are a third of the compiler, which else every process would load."""
    file = tmp_path / "model.mlir"
    file.write_text(TEXT)
    code = (
        "import sys, tilewright as tw\n"
        f"tw.coverage({str(file)!r}, quick=True)\n"
        "names = (n.split('.') for n in sys.modules)\n"
        "print(sorted({n[3] for n in names if n[1:3] == ['compiler', 'frontends'] and len(n) > 3}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.split("\n")[-2] == "['door', 'kit', 'stablehlo']"
