"""Every example runs, says what its title promises, and stays short enough to be read."""

from __future__ import annotations

import runpy
import sys
import warnings
from pathlib import Path

import pytest

from fakes.language_models import speaking_form

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
NUMBERED = sorted(EXAMPLES.glob("[0-9]*.py"))
READABLE_LINES = 110

# What each prints that it could not print if it had gone wrong.
SAYS = {
    "02_dynamic_shapes.py": (
        "x: f32[batch, tokens, 64]",
        "batch 8, 64 tokens → (8, 64, 64)",
        "fixed: one arena of",
        "half fixed: x is rows, 16, 64",
        "refused: input 'x': got f32[1, 5, 63]",
        "refused: input 'x': got f64[1, 5, 64]",
    ),
    "03_look_inside.py": (
        "graph @main<rows: 1..>",
        "# reduction",
        "accumulators",
        " lanes]",
        "define hidden i32 @tw_",
    ),
    "04_profile.py": ("GFLOP/s", "attention", "layer_norm"),
    "05_save_load_threads.py": (
        "equal to the model: True",
        "equal with one thread: True",
        "16 calls from 4 threads are equal: True",
        "equal on the virtual machine: True",
    ),
    "06_custom_graph.py": ("rms_norm(%", "kernels: ", "difference to the oracle: "),
    "07_host_fallback.py": (
        "op 'ngram_counts' has no kernel",
        "steps: dispatch mul_0, host ngram_counts, dispatch mul",
        "[[1. 4. 0.]",
        "op 'MakeItBetter' is not supported\nhint: give it a meaning: tilewright.onnx_operators.register_function or .register_operator",
    ),
    "08_async_calls.py": (
        "futures: True",
        "the loop went on meanwhile: True",
        "asyncio: True",
        "a failure arrives where the result is asked for: input 'x'",
    ),
    "09_byoc_onnxruntime.py": (
        "steps: call onnxruntime_matmul_add_relu, dispatch softmax",
        "compiled: True",
        "from a file, engine plan: True",
        "from a file, engine vm: True",
        "graph executor: True",
        "exported library: True",
    ),
    "10_byoc_c_kernel.py": (
        "call c_swish_mul_sigmoid_mul",
        "the same numbers: True",
        "from a file, engine plan: True",
        "from a file, engine vm: True",
        "graph executor: True",
        "exported library: True",
    ),
}


def run(name: str, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", [name, *arguments])
    monkeypatch.setenv("COLUMNS", "200")
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")


@pytest.mark.slow
@pytest.mark.parametrize("name", SAYS)
def test_it_prints_what_it_shows(
    name: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    run(name, monkeypatch)
    printed = capfd.readouterr().out
    assert [text for text in SAYS[name] if text not in printed] == []
    assert "False" not in printed


def test_no_numbered_example_is_left_out() -> None:
    with_a_test_of_its_own = {
        "01_sentence_similarity.py",
        "11_language_model.py",
        "12_pytorch.py",
    }
    assert {path.name for path in NUMBERED} == {*SAYS, *with_a_test_of_its_own}


@pytest.mark.parametrize("path", NUMBERED, ids=lambda p: p.name)
def test_it_is_short(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= READABLE_LINES


def test_the_difference_to_the_oracle_is_rounding(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    run("06_custom_graph.py", monkeypatch)
    (line,) = [x for x in capfd.readouterr().out.splitlines() if "to the oracle" in x]
    assert float(line.rpartition(" ")[2]) < 1e-5


def test_looking_inside_takes_the_name_of_a_kernel(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    run("03_look_inside.py", monkeypatch, "softmax")
    assert "naive: 'softmax' as its ops declare it" in capfd.readouterr().out
    with pytest.raises(SystemExit, match="there is no kernel 'conv'"):
        run("03_look_inside.py", monkeypatch, "conv")


@pytest.mark.slow
def test_a_language_model_speaks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("jinja2")
    monkeypatch.setenv("TILEWRIGHT_CACHE", "0")
    path = tmp_path / "tiny.gguf"
    path.write_bytes(speaking_form(context=1024).data())
    run("11_language_model.py", monkeypatch, str(path))
    printed = capfd.readouterr().out
    assert "tiny: 272 tokens, room for 1024" in printed
    assert "tokens that were read before: " in printed
    assert "before: 0" not in printed


@pytest.mark.needs_torch
@pytest.mark.filterwarnings("ignore")  # torch's own about its internals
def test_a_module_of_torch_gives_what_it_gives_in_eager_mode(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    run("12_pytorch.py", monkeypatch)
    found = [
        float(line.rpartition(" ")[2])
        for line in capfd.readouterr().out.splitlines()
        if "largest difference to eager mode" in line
    ]
    assert len(found) == 4
    assert max(found) < 1e-5


def test_the_fallback_warns_where_it_is_compiled() -> None:
    example = runpy.run_path(str(EXAMPLES / "07_host_fallback.py"))
    import tilewright as tw
    from tilewright.base.diagnostics import TilewrightWarning

    with pytest.warns(TilewrightWarning, match="'ngram_counts' has no kernel"):
        tw.compile(example["build"]("TfIdfVectorizer"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tw.compile(example["build"]("TfIdfVectorizer"))
