"""Blocks marked `python test` or `sh test` in the pages are run: what a page shows is how it works now.

Python of one page shares its names.  Of shell blocks the lines that begin with `tilewright` are run.  Both
find a model of their own in the current folder: `model.onnx`, x: f32[batch, 20] -> y: f32[batch, 7], and an
input for it, `x.npy`.
"""

from __future__ import annotations

import inspect
import re
import shlex
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import tilewright as tw
from conformance.ops.test_cases import agree, node_of
from fakes.command_line import tilewright
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
WRITTEN = (ROOT / "README.md", *DOCS.rglob("*.md"))
BLOCK = re.compile(r"^```(python|sh) test\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAGES = sorted(p for p in WRITTEN if BLOCK.search(p.read_text(encoding="utf-8")))


def blocks(page: Path) -> list[tuple[int, str, str]]:
    """Every marked block: the line it begins in, its language, its text."""
    text = page.read_text(encoding="utf-8")
    return [(text[: m.start(2)].count("\n"), m[1], m[2]) for m in BLOCK.finditer(text)]


def run_commands(block: str) -> None:
    """Run the lines of a shell block that call `tilewright`."""
    for line in block.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if words[:1] == ["tilewright"]:
            in_time = words[1] == "bench" and "--seconds" not in words
            done = tilewright(*words[1:], *(["--seconds", "0.1"] if in_time else []))
            assert done.code == 0, f"{line}\n{done.out}{done.err}"


def run_page(page: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Run the blocks of a page in order; ops and rows they declare are entered as they appear."""
    module = ModuleType(f"page_{page.stem.replace('-', '_')}")
    monkeypatch.setitem(sys.modules, module.__name__, module)  # where dataclasses look
    names: dict[str, Any] = vars(module)
    for line, language, block in blocks(page):
        if language == "sh":
            run_commands(block)
            continue
        code = compile("\n" * line + block, str(page), "exec")
        exec(code, names)
        for value in list(names.values()):
            if isinstance(value, OpDecl) and catalogue.find(value.name) is not value:
                monkeypatch.setitem(catalogue._TABLE, value.name, value)
            if isinstance(value, Row):
                monkeypatch.setitem(table._ROWS, (value.domain, value.name), [value])
    return module


@pytest.mark.sampled(5)
@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_the_blocks_of_a_page_run(
    page: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    save(mlp("batch"), tmp_path / "model.onnx")
    np.save(tmp_path / "x.npy", np.ones((4, 20), np.float32))
    monkeypatch.chdir(tmp_path)
    found = run_page(page, monkeypatch)
    for name, value in list(vars(found).items()):
        if name.startswith("test_"):
            wants = inspect.signature(value).parameters
            value(**({"tmp_path": tmp_path} if "tmp_path" in wants else {}))


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
