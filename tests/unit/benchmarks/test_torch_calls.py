"""The benchmark of calls runs every contender of a module."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.needs_torch, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(name="calls")
def _calls() -> Any:
    return importlib.import_module("benchmarks.torch_calls")


def test_the_least_of_all_rounds_counts(
    calls: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter([5.0, 7.0, 2.0, 4.0, 9.0, 3.0])

    def spent(call: Any) -> float:
        call()
        return next(times)

    monkeypatch.setattr(torch, "compile", lambda module, **_: module)
    monkeypatch.setattr(calls, "spent_us", spent)
    found = calls.contest(calls.Affine(), torch.zeros(3), 2)
    assert found == {"ours": 4.0, "inductor": 7.0, "eager": 2.0}


def test_every_case_computes_what_it_says(calls: Any) -> None:
    for make, shape in calls.CASES.values():
        x = torch.randn(shape)
        results = make()(x)
        assert isinstance(results, tuple) or results.shape[0] == shape[0]
