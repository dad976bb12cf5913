"""Artifacts as modules."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from fakes.small_models import mlp
from tilewright.runtime import load_module
from tilewright.runtime.session import Session


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("vm") / "net.vmfb"
    tw.build(mlp()).export_library(made)
    return made


def test_the_graph_is_told_without_a_session(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = load_module(path)
    monkeypatch.setattr(Session, "from_bytes", None)
    assert module["get_graph_json"]() == tw.build(mlp()).graph_json


def test_a_device_that_there_is_not_is_refused_before_a_session_is_made(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = load_module(path)
    monkeypatch.setattr(Session, "from_bytes", None)
    with pytest.raises(tw.UserError, match="there is one host, not 'cpu:5'"):
        module["default"](tw.cpu(5))


def test_its_executor_runs(path: Path) -> None:
    x = np.ones((5, 20), np.float32)
    net = tw.graph_executor.GraphModule(load_module(path)["default"](tw.cpu(0)))
    net.run(x=x)
    np.testing.assert_array_equal(net.get_output(0), tw.compile(mlp())(x))
