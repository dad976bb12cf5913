"""Expressions of sizes that ours have no word for."""

from __future__ import annotations

import pytest

from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.torch.sizes import Sizes

sympy = pytest.importorskip("sympy")
pytestmark = pytest.mark.needs_torch


def test_an_expression_is_refused_as_it_is_written_whatever_its_text() -> None:
    expression = sympy.Function("f")(sympy.Symbol("{rows}"))
    with pytest.raises(UnsupportedError, match=r"the size 'f\(\{rows\}\)'"):
        Sizes({}, {}).expression(expression)
