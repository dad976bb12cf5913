"""Rows for the special functions of CHLO: gamma, error and Bessel functions, zeta.

Source: CHLO, per operation in the row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tilewright.compiler.frontends.kit.bessel import bessel_i1e
from tilewright.compiler.frontends.kit.special_functions import (
    complementary_error,
    digamma,
    inverse_error,
    log_gamma,
    polygamma,
    zeta,
)
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.kit.wide import Wide
from tilewright.compiler.frontends.stablehlo.call import Call
from tilewright.compiler.frontends.stablehlo.demands import (
    pointwise,
)
from tilewright.compiler.frontends.stablehlo.row import Build, Row, row


def _one(function: Callable[[Wide], Wide]) -> Build:
    def build(call: Call) -> Tensor:
        x = call.tensor(0)
        return function(Wide.of(call.maker, x)).rounded(x.dtype)

    return build


def _two(function: Callable[[Wide, Wide], Wide]) -> Build:
    def build(call: Call) -> Tensor:
        x, y = call.tensor(0), call.tensor(1)
        found = function(Wide.of(call.maker, x), Wide.of(call.maker, y))
        return found.rounded(x.dtype)

    return build


ROWS: Final[tuple[Row, ...]] = (
    row("chlo.bessel_i1e", _one(bessel_i1e), pointwise=True, demands=pointwise(1, "f")),
    row("chlo.digamma", _one(digamma), pointwise=True, demands=pointwise(1, "f")),
    row("chlo.erf_inv", _one(inverse_error), pointwise=True, demands=pointwise(1, "f")),
    row("chlo.erfc", _one(complementary_error), pointwise=True, demands=pointwise(1, "f")),
    row("chlo.lgamma", _one(log_gamma), pointwise=True, demands=pointwise(1, "f")),
    row("chlo.polygamma", _two(polygamma), pointwise=True, demands=pointwise(2, "f")),
    row("chlo.zeta", _two(zeta), pointwise=True, demands=pointwise(2, "f")),
)
