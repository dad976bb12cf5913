"""Nests of loops whose bodies are tried in more than one way: none doubles the reading at every level."""

from __future__ import annotations

import pytest

from fakes import onnx_models
from tilewright.base.errors import ModelError
from tilewright.compiler.frontends.onnx import load
from tilewright.compiler.frontends.onnx.importer import Importer

HEAD = """graph (float[3] x) => (float[3] y) {
    n = Constant<value_int = TRIPS>()
    big = Constant<value_float = 1e30>()
"""
INNERMOST = "w0 = LEAF(v0)"
LOOP = """w{0} = Loop(n, , v{0}) <body = b{1} (int64 i{1}, bool c{1}, float[3] v{1})
      => (bool d{1}, float[3] w{1}) {{ {2} s{1} = ReduceSum<keepdims = 0>(w{1}) d{1} = Less(s{1}, big) }}>"""


def nest(depth: int, leaf: str, trips: int) -> str:
    text = INNERMOST.replace("LEAF", leaf)
    for level in range(1, depth + 1):
        text = LOOP.format(level, level - 1, text)
    end = f"\n    v{depth} = Identity(x) {text} y = Neg(w{depth}) }}"
    return HEAD.replace("TRIPS", str(trips)) + end


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The bodies that are read, in order."""
    found: list[object] = []
    subgraph = Importer._subgraph

    def noting(importer: Importer, graph: object, *rest: object) -> object:
        found.append(graph)
        return subgraph(importer, graph, *rest)

    monkeypatch.setattr(Importer, "_subgraph", noting)
    return found


@pytest.mark.parametrize(("leaf", "trips"), [("Neg", 2), ("Missing", 100), ("Missing", 2)])
def test_loops_that_cannot_be_written_out_are_not_tried_at_every_level(
    leaf: str, trips: int, read: list[object]
) -> None:
    counts: list[int] = []
    for depth in (7, 14):
        read.clear()
        model = onnx_models.parse(nest(depth, leaf, trips))
        if leaf == "Missing":
            with pytest.raises(ModelError, match="op 'Missing'"):
                load(model)
        else:
            load(model)
        counts.append(len(read))
    assert counts[1] <= 10 * counts[0], counts
