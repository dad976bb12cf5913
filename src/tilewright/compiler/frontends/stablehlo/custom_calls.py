"""Rows for custom calls whose names are known.

They are notes of programs of several devices about placement, conditions on sizes, and operations that older
exports have no name for.  A custom call of another name is refused with it.

Source: JAX, `jax.export` and its list of stable custom calls; StableHLO specification, "custom_call".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from tilewright.base.errors import ModelError
from tilewright.base.text import did_you_mean
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.stablehlo.call import Call
from tilewright.compiler.frontends.stablehlo.dynamic_calls import (
    CALLS as DYNAMIC_CALLS,
)
from tilewright.compiler.frontends.stablehlo.elementwise import ROWS as ELEMENTWISE
from tilewright.compiler.frontends.stablehlo.held import Held
from tilewright.compiler.frontends.stablehlo.lapack import CALLS as LAPACK
from tilewright.compiler.frontends.stablehlo.row import Row, row
from tilewright.compiler.frontends.stablehlo.sorting import ROWS as SORTING
from tilewright.compiler.frontends.stablehlo.sparse import CALLS as SPARSE
from tilewright.compiler.frontends.stablehlo.special_functions import ROWS as SPECIAL
from tilewright.compiler.frontends.stablehlo.tree import Attribute

Results = Held | Sequence[Held]

_ABOUT_THE_CALL: Final = (
    "api_version", "backend_config", "called_computations", "has_side_effect",
    "indices_of_shape_operands", "operand_layouts",
    "output_operand_aliases", "result_layouts", "result_tilings", "sdy.sharding",
)  # fmt: skip


def _same(call: Call) -> list[Held]:
    """A note about where values shall lie."""
    return list(call.operands)


def _nothing(_: Call) -> Sequence[Held]:
    """A note about operands, without a result."""
    return ()


_CALLS: Final[dict[str, Callable[[Call], Results]]] = {
    "LayoutConstraint": _same,
    "SPMDFullToShardShape": _same,
    "SPMDShardToFullShape": _same,
    "Sharding": _same,
    "annotate_device_placement": _same,
    "xla.sdy.FuncResultSharding": _same,
    "xla.sdy.GlobalToLocalShape": _same,
    "xla.sdy.LocalToGlobalShape": _same,
    "xla.sdy.ShardingGroup": _nothing,
    **DYNAMIC_CALLS,
    **LAPACK,
    **SPARSE,
}
_BY_ROW: Final = {
    entry.name: entry
    for entry in (*ELEMENTWISE, *SORTING, *SPECIAL)
    if entry.name.startswith("chlo.")
}


def _custom_call(call: Call) -> Results:
    name = call.text("call_target_name")
    attributes = call.attribute("mhlo.attributes")
    call.attribute("mhlo.version")
    if name in _CALLS:
        return _CALLS[name](call)
    entry = _BY_ROW.get(name.replace("mhlo.", "chlo.").replace("topk", "top_k"))
    if entry is None or not name.startswith("mhlo."):
        known = (*_CALLS, *(n.replace("chlo.", "mhlo.") for n in _BY_ROW))
        raise UnsupportedError(
            f"custom call '{name}' is not supported", hint=did_you_mean(name, known)
        )
    given = attributes if isinstance(attributes, dict) else {}
    if not all(isinstance(key, str) for key in given):
        raise ModelError("attributes of a custom call are damaged")
    named: dict[str, Attribute] = dict(given)
    operation = replace(call.operation, name=entry.name, attributes=named)
    return entry.build(Call(operation, call.operands, call.maker, call.services))


ROWS: Final[tuple[Row, ...]] = (row("custom_call", _custom_call, ignores=_ABOUT_THE_CALL),)
