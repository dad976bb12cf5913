"""Blocks marked `python test` or `sh test` in the pages are run: what a page shows is how it works now.

Python of one page shares its names.  Of shell blocks the lines that begin with `tilewright` are run.  Both
find a model of their own in the current folder: `model.onnx`, x: f32[batch, 20] -> y: f32[batch, 7], the same
compiled, `model.vmfb`, and an input for it, `x.npy`, which is `x` for Python; beside these modules of IREE's
compiler (`_ARCHIVES`) and a language model of random weights, `model.gguf`.

`python test torch` stands for a block that needs the package, too; such a page is run once more, with all of
its Python.  What a block of these takes from its reader (a module, a folder with a model) is in `_SUPPLIED`.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import re
import shlex
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import tilewright as tw
from conformance.ops.test_cases import agree, node_of
from fakes.command_line import tilewright
from fakes.language_models import speaking_form
from fakes.small_models import mlp, save
from tilewright.compiler.frontends.onnx import table
from tilewright.compiler.frontends.onnx.row import Row
from tilewright.compiler.kernel.evaluator import evaluate
from tilewright.compiler.kernel.verifier import verify
from tilewright.compiler.lowering.build_kernel import build_kernel
from tilewright.compiler.ops import cases, catalogue
from tilewright.compiler.ops.declaration import OpDecl

ROOT = Path(__file__).resolve().parents[3]
DOCS = ROOT / "docs"
GOLDEN = ROOT / "tests" / "golden" / "archives"
WRITTEN = (ROOT / "README.md", *DOCS.rglob("*.md"))
BLOCK = re.compile(
    r"^```(python|sh) test(?: ([a-z]+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True)
class Block:
    """A marked block: the line it begins in, its language, the package that it needs, its text."""

    line: int
    language: str
    package: str | None
    text: str


@functools.cache
def blocks(page: Path) -> tuple[Block, ...]:
    """Every marked block of a page."""
    text = page.read_text(encoding="utf-8")
    return tuple(
        Block(text[: m.start(3)].count("\n"), m[1], m[2], m[3])
        for m in BLOCK.finditer(text)
    )


def pages_with(package: str | None) -> list[Path]:
    """The pages that have a block for this package, or for none."""
    return sorted(p for p in WRITTEN if any(b.package == package for b in blocks(p)))


PAGES = pages_with(None)


def run_commands(block: str) -> None:
    """Run the lines of a shell block that call `tilewright`."""
    for line in block.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if words[:1] == ["tilewright"]:
            in_time = words[1] == "bench" and "--seconds" not in words
            done = tilewright(*words[1:], *(["--seconds", "0.1"] if in_time else []))
            assert done.code == 0, f"{line}\n{done.out}{done.err}"


def run_page(
    page: Path,
    monkeypatch: pytest.MonkeyPatch,
    package: str | None = None,
    supplied: Mapping[str, Any] | None = None,
) -> ModuleType:
    """Run the blocks of a page in order; ops and rows they declare are entered as they appear.

    With a `package` its blocks are run, too, and no commands.
    """
    module = ModuleType(f"page_{page.stem.replace('-', '_')}")
    monkeypatch.setitem(sys.modules, module.__name__, module)  # where dataclasses look
    names: dict[str, Any] = vars(module)
    names.update(supplied or {})
    for block in blocks(page):
        if block.package not in {None, package}:
            continue
        if block.language == "sh":
            if package is None:
                run_commands(block.text)
            continue
        text = "\n" * block.line + block.text
        code = compile(
            text, str(page), "exec", dont_inherit=True
        )  # a reader has no future import
        exec(code, names)
        for value in list(names.values()):
            if isinstance(value, OpDecl) and catalogue.find(value.name) is not value:
                monkeypatch.setitem(catalogue._TABLE, value.name, value)
            if isinstance(value, Row):
                monkeypatch.setitem(table._ROWS, (value.domain, value.name), [value])
    return module


_ARCHIVES: Mapping[str, str] = {
    "stranger.vmfb": "iree-3.13.0-half_vmvx.vmfb",
    "library.vmfb": "iree-3.13.0-library_vmvx.vmfb",
    "app.vmfb": "iree-3.13.0-caller_vmvx.vmfb",
}


@pytest.fixture
def supplied(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Any]:
    """A folder with the files that pages speak of, and the names that they take for granted."""
    save(mlp("batch"), tmp_path / "model.onnx")
    tw.compile(tmp_path / "model.onnx").save(tmp_path / "model.vmfb")
    for name, archive in _ARCHIVES.items():
        (tmp_path / name).write_bytes((GOLDEN / archive).read_bytes())
    (tmp_path / "model.gguf").write_bytes(speaking_form().data())
    x = np.ones((4, 20), np.float32)
    np.save(tmp_path / "x.npy", x)
    monkeypatch.chdir(tmp_path)
    return {"x": x}


def supply_module(names: dict[str, Any]) -> None:
    """A module of PyTorch and its input."""
    torch = importlib.import_module("torch")
    names.update(module=torch.nn.Linear(20, 7), x=torch.ones(4, 20), torch=torch)


def supply_text_model(names: dict[str, Any]) -> None:
    """A folder with a model of transformers, and a prompt."""
    torch = importlib.import_module("torch")
    transformers = importlib.import_module("transformers")
    sizes = transformers.LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128,
    )  # fmt: skip
    transformers.LlamaForCausalLM(sizes).save_pretrained("folder")
    names.update(prompt=torch.tensor([[1, 2, 3]]))


_SUPPLIED: Mapping[str, Callable[[dict[str, Any]], None]] = {
    "README": supply_module,
    "compile-pytorch": supply_text_model,
}


@pytest.mark.sampled(5)
@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_the_blocks_of_a_page_run(
    page: Path,
    supplied: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    found = run_page(page, monkeypatch, None, supplied)
    own = tmp_path / "of_the_tests"
    own.mkdir()
    for name, value in list(vars(found).items()):
        if name.startswith("test_"):
            wants = inspect.signature(value).parameters
            value(**({"tmp_path": own} if "tmp_path" in wants else {}))


def run_with(
    package: str, page: Path, supplied: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> dict[str, Any]:
    """Run a page with the package and with what it takes from its reader; the names that it leaves."""
    if page.stem in _SUPPLIED:
        _SUPPLIED[page.stem](supplied)
    return vars(run_page(page, monkeypatch, package, supplied))


@pytest.mark.needs_torch
@pytest.mark.filterwarnings("ignore")  # torch's own, and those that a page speaks of
@pytest.mark.parametrize("page", pages_with("torch"), ids=lambda p: p.stem)
def test_the_blocks_of_a_page_run_with_torch(
    page: Path, supplied: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = run_with("torch", page, supplied, monkeypatch)
    x, torch = found["x"], found["torch"]
    with torch.no_grad():
        torch.testing.assert_close(found["fast"](x), found["module"](x))
        assert found["fast"](x).shape == found["module"](x).shape


@pytest.mark.nightly
@pytest.mark.parametrize("page", pages_with("jax"), ids=lambda p: p.stem)
def test_the_blocks_of_a_page_run_with_jax(
    page: Path, supplied: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    jax = pytest.importorskip("jax")
    pytest.importorskip("jax.export")
    found = run_with("jax", page, supplied, monkeypatch)
    assert isinstance(found["y"], jax.Array)
    np.testing.assert_allclose(found["y"], np.full((3, 5), 0.2), rtol=1e-6)


def test_every_package_of_a_block_has_a_test() -> None:
    assert {b.package for page in WRITTEN for b in blocks(page)} == {None, "torch", "jax"}


def test_the_pages_that_promise_it_have_blocks() -> None:
    assert {
        "add-an-op", "add-a-pass", "add-a-cli-verb", "write-a-module-kind", "README"
    } <= {page.stem for page in PAGES}  # fmt: skip


@pytest.mark.parametrize("name", ["soft_cap", "mean_square"])
def test_an_op_of_the_page_passes_its_own_cases(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_page(DOCS / "how-to" / "add-an-op.md", monkeypatch)
    row = catalogue.lookup(name)
    ran = 0
    for case in cases.instances(row):
        node = node_of(case)
        expected = row.schema.evaluate(case.operands, case.attributes)
        kernel = build_kernel(node, name)
        verify(kernel)
        outputs = [np.zeros(v.type.shape, v.type.dtype.numpy) for v in node.results]
        evaluate(kernel, [*(a for a in case.operands if a is not None), *outputs])
        for actual, wanted in zip(outputs, expected, strict=True):
            agree(actual, wanted, str(case))
        ran += 1
    assert ran >= len(row.cases)


def test_the_onnx_row_of_the_page_imports_and_compiles(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run_page(DOCS / "how-to" / "add-an-op.md", monkeypatch)
    node = helper.make_node("SoftCap", ["x"], ["y"], domain="com.example", cap=2.0)
    x, y = (
        helper.make_tensor_value_info(n, TensorProto.FLOAT, ["rows", 3]) for n in ("x", "y")
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.example", 1)]
    graph = helper.make_graph([node], "g", [x], [y])
    model = tw.compile(helper.make_model(graph, opset_imports=opsets))
    inputs = np.array([[-100, 0, 1]], np.float32)
    np.testing.assert_allclose(model(inputs), 2 * np.tanh(inputs / 2), rtol=1e-6)


def test_python_in_the_pages_at_least_compiles() -> None:
    for page in WRITTEN:
        text = page.read_text(encoding="utf-8")
        for found in re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
            assert compile(found[1], str(page), "exec").co_names, found[1]
