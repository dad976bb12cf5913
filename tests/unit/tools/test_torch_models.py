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
from torch_families import FAMILIES, LEFT_OUT

torch = pytest.importorskip("torch")

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
    assert "Of 2 architectures that we chose" in found
    assert "by compiled code, 1 give what eager mode gives" in found
    assert "computed by the oracles of the graph's ops, not by compiled code" in found
    assert "no sample of anything: 1 classes of transformers" in found
    assert "| ViT style | network of images | off | 2.0e-03 |" in found


def test_the_page_names_what_was_tried_and_left_out() -> None:
    page = (ROOT / "docs" / "torch-models.md").read_text()
    table = page.partition("## Tried and left out")[2]
    assert all(f"| {name} | {reason} |" in table for name, reason in LEFT_OUT.items())


@pytest.mark.parametrize(
    ("off", "lost", "is_near"),
    [
        (1e-7, 1e3, True),
        (-1e-2, 1e3, False),
        (1e-7, 1e5, False),
        (float("nan"), 1e3, False),
    ],
)
def test_what_is_nearer_to_f64_than_eager_mode_is_right(
    torch_models: Any, off: float, lost: float, is_near: bool
) -> None:
    class Cancelling(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return (x + lost) - lost  # f32 loses digits here

    module, x = Cancelling().eval(), torch.linspace(0.1, 0.9, 9)
    named = {"x": x}
    assert torch_models.error_of(module(x), x) > 1e-5
    assert torch_models.is_nearer(x + off, module(x), module, (), named) is is_near


def test_a_family_has_random_numbers_where_it_says_so() -> None:
    family = next(f for f in FAMILIES if f.drawn)
    named = dict(family.model().named_parameters())
    drawn = [p for name, p in named.items() if family.drawn in name]
    assert drawn
    assert all(float(p.detach().abs().min()) > 0 for p in drawn)


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore")  # torch's own about its internals
@pytest.mark.parametrize("family", FAMILIES[::3], ids=lambda family: family.name)
def test_an_architecture_of_the_page_gives_what_eager_mode_gives(
    torch_models: Any, family: Any
) -> None:
    torch.manual_seed(0)
    word, *_ = torch_models.run(family.model, family.inputs(), oracles=True)
    assert word in ("right", "nearer")
