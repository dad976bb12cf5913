"""A tensor while a model is imported.

It is a graph value, a constant or known contents, and becomes a graph value only when an op needs it as
data, so shape arithmetic leaves no trace in the graph.  Not a graph value (`compiler.graph.ir.Value`);
made by `node_maker`.
"""

from __future__ import annotations

from typing import final

from tilewright.base.dtypes import DType
from tilewright.base.record import record
from tilewright.base.symbolic import Dim
from tilewright.compiler.graph.contents import Contents
from tilewright.compiler.graph.ir import Value
from tilewright.compiler.graph.schema import Array, TensorType


@final
@record(eq=False, frozen=False)
class Tensor:
    """One tensor; at least one of `value`, `array` and `contents` says what it holds.

    `stand_in` marks the result of a node with a problem, known by type only.
    """

    type: TensorType
    name: str = ""
    value: Value | None = None
    array: Array | None = None
    contents: Contents | None = None
    stand_in: bool = False

    @property
    def dtype(self) -> DType:
        return self.type.dtype

    @property
    def shape(self) -> tuple[Dim, ...]:
        return self.type.shape

    @property
    def rank(self) -> int:
        return self.type.rank
