"""What stands between the two products of a network.  Called by `networks`.

Source: Shazeer, GLU Variants Improve Transformer, 2020; So et al., Primer, 2021 (squares); OpenAI, gpt-oss model card, 2025
(ends of gate and values); Huang and Schlag, Deriving Activation Functions Using Integration, 2025 (xIELU).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

from tilewright.base import dtypes
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.tensor import Tensor

_END: Final = 7.0
_STEEPNESS: Final = 1.702


@final
@dataclass(frozen=True, slots=True)
class Xielu:
    """How steep the activation of a layer is: of squares above 0, of exponentials below `end`, of itself."""

    above: float
    below: float
    straight: float
    end: float


def activated(
    e: NodeMaker,
    kind: str,
    gate: Tensor,
    values: Tensor | None,
    slopes: Xielu | None = None,
) -> Tensor:
    """What comes through: `values` as far as their gate lets them, or the gate itself where there are none.

    Args:
        e: writes the nodes.
        kind: as in `Architecture.activation`.
        gate: f32[.., inner].
        values: of the same shape.
        slopes: of `xielu`.
    """
    if slopes is not None:
        return _xielu(e, gate, slopes)
    if kind == "capped_swish":
        return _capped_swish(e, gate, values)
    opened = _opened(e, kind, gate)
    return opened if values is None else e.op("mul", opened, values)


def _opened(e: NodeMaker, kind: str, gate: Tensor) -> Tensor:
    if kind == "silu":
        return e.op("silu", gate)
    if kind == "squared_relu":
        positive = e.op("relu", gate)
        return e.op("mul", positive, positive)
    return e.op("gelu", gate, approximate="tanh" if kind == "gelu" else "none")


def _capped_swish(e: NodeMaker, gate: Tensor, values: Tensor | None) -> Tensor:
    end, least, one, steep = (
        e.scalar(n, dtypes.f32) for n in (_END, -_END, 1.0, _STEEPNESS)
    )
    gate = e.op("min", gate, end)
    opened = e.op("mul", gate, e.op("sigmoid", e.op("mul", gate, steep)))
    if values is None:
        return opened
    return e.op("mul", opened, e.op("add", e.op("clip", values, least, end), one))


def _xielu(e: NodeMaker, x: Tensor, slopes: Xielu) -> Tensor:
    zero, one, above, below, straight, end = (
        e.scalar(n, dtypes.f32)
        for n in (0.0, 1.0, slopes.above, slopes.below, slopes.straight, slopes.end)
    )
    risen = e.op("mul", e.op("mul", x, x), above)
    decay = e.op("sub", e.op("exp", e.op("min", x, end)), one)
    fallen = e.op("mul", e.op("sub", decay, x), below)
    curved = e.op("where", e.op("greater", x, zero), risen, fallen)
    return e.op("add", curved, e.op("mul", x, straight))
