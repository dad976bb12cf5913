"""The benchmark of torch's models fails where a model is wrong, fails, or misses a bar."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytestmark = [pytest.mark.needs_torch, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(name="contest")
def _contest() -> Any:
    return importlib.import_module("benchmarks.torch_models")


@pytest.mark.parametrize("found", [[1.0, 2.1], [1.0, float("nan")]])
def test_a_result_that_is_wrong_is_an_error(contest: Any, found: list[float]) -> None:
    with pytest.raises(AssertionError, match=r"bert: onnx is .* from eager mode"):
        contest.check("bert", "onnx", torch.tensor(found), torch.tensor([1.0, 2.0]))


@pytest.mark.parametrize(
    ("rows", "missed"),
    [
        ([{"ours": 0.5, "onnx": 1.0, "inductor": 1.0}], 0),
        ([{"ours": 0.9, "onnx": 1.0, "inductor": 1.0}], 1),
        ([{"ours": 2.0, "onnx": 1.0, "inductor": 1.0}], 2),
        ([{"ours": 0.5, "onnx": 1.0}, {"ours": 4.0, "onnx": 1.0}], 1),
        ([], 0),
    ],
)
def test_bars_are_held_by_the_geometric_mean(
    contest: Any, rows: list[dict[str, float]], missed: int
) -> None:
    assert contest.bars_missed(rows) == missed


def test_the_status_counts_models_that_failed_and_bars(
    contest: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = {"resnet-50": {"ours": 2.0, "onnx": 1.0}}
    monkeypatch.setattr(contest, "_in_a_process", lambda name, _: rows.get(name))
    arguments = ["torch_models", "--only", "resnet", "bert-base"]
    monkeypatch.setattr(contest.sys, "argv", arguments)
    assert contest.main() == 2 + 1  # modernbert-base and bert-base
