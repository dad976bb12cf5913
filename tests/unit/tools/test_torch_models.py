"""tools/torch_models.py says on its page what was tried, by which means, and what was left out."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
from torch_families import LEFT_OUT

pytestmark = pytest.mark.needs_torch
ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def torch_models() -> Iterator[Any]:
    """The tool: a benchmark has the same name."""
    path = ROOT / "tools" / "torch_models.py"
    spec = importlib.util.spec_from_file_location("torch_models_of_tools", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch = pytest.MonkeyPatch()
    # Its dataclasses ask for their module by name.
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    yield module
    monkeypatch.undo()


def test_a_page_of_recorded_results_runs_no_model(
    torch_models: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    rows, page = tmp_path / "rows.json", tmp_path / "page.md"
    bert, vit = ["encoder", "right", 2e-7], ["network of images", "off", 2e-3]
    rows.write_text(json.dumps({"BertModel": bert, "ViT style": vit}))
    given = ["--recorded", "--oracles", "--results", str(rows), "--page", str(page)]
    monkeypatch.setattr(torch_models, "run", lambda *_, **__: pytest.fail("a model ran"))
    monkeypatch.setattr(sys, "argv", ["torch_models", *given])
    torch_models.main()
    found = page.read_text()
    assert "1 of 2 architectures that we chose" in found
    assert "computed by the oracles of the graph's ops, not by compiled code" in found
    assert "no sample of anything: 1 classes of transformers" in found
    assert "| ViT style | network of images | off | 2.0e-03 |" in found


def test_the_page_names_what_was_tried_and_left_out() -> None:
    page = (ROOT / "docs" / "torch-models.md").read_text()
    table = page.partition("## Tried and left out")[2]
    assert all(f"| {name} | {reason} |" in table for name, reason in LEFT_OUT.items())
