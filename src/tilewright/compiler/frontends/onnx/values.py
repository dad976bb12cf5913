"""What an ONNX name stands for while a model is imported.

A `Tensor` is a graph value, a constant or known contents; it becomes a graph value only when an
op needs it as data, so shape arithmetic leaves no trace in the graph.  Sequences and optionals
exist at import time only.  Not graph values (`compiler.graph.ir.Value`); made by `node_maker`, bound
to names by the importer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from tilewright.base.dtypes import DType
from tilewright.base.symbolic import Dim
from tilewright.compiler.graph.contents import Contents
from tilewright.compiler.graph.ir import Value
from tilewright.compiler.graph.schema import Array, TensorType


@final
@dataclass(slots=True, eq=False)
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


@final
@dataclass(frozen=True, slots=True, eq=False)
class TensorSequence:
    """An ONNX sequence whose length is known; items may differ in shape."""

    items: tuple[Tensor, ...]
    dtype: DType | None = None


@final
@dataclass(frozen=True, slots=True, eq=False)
class Nothing:
    """An ONNX optional without a value."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class Unknown:
    """A result of a node with a problem; consumers are skipped, not blamed."""


Held = Tensor | TensorSequence | Nothing
Operand = Held | Unknown
