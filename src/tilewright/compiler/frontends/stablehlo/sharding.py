"""Rows for notes about how a program is spread over machines: of one that runs on one, they change nothing.

Artifacts that hold them cast between the types of VHLO and those of MLIR, which are the same to us.

Source: Shardy, the sdy dialect; MLIR's builtin dialect.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tilewright.compiler.frontends.stablehlo.call import Call
from tilewright.compiler.frontends.stablehlo.held import Held
from tilewright.compiler.frontends.stablehlo.row import Row, row


def _same(call: Call) -> Sequence[Held]:
    return list(call.operands)


def _nothing(_: Call) -> Sequence[Held]:
    return ()


ROWS: Final[tuple[Row, ...]] = (
    row("builtin.unrealized_conversion_cast", _same, keeps=True),
    row("sdy.propagation_barrier", _same, keeps=True, ignores=("allowed_direction",)),
    row("sdy.reshard", _same, keeps=True, ignores=("sharding",)),
    row("sdy.sharding_constraint", _same, keeps=True, ignores=("sharding",)),
    row("sdy.sharding_group", _nothing, keeps=True, ignores=("group_id",)),
)
