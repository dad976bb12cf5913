"""What an ONNX name stands for while a model is imported: a tensor, what exists only then, or what the host holds.

Made by rows, bound to names by the importer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from tilewright.base.dtypes import DType
from tilewright.base.symbolic import Dim
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.graph.schema import Array


@final
@dataclass(frozen=True, slots=True, eq=False)
class TensorSequence:
    """An ONNX sequence whose length is known; items may differ in shape."""

    items: tuple[Tensor, ...]
    dtype: DType | None = None


@final
@dataclass(frozen=True, slots=True, eq=False)
class StackedSequence:
    """An ONNX sequence whose length a call decides: items of one type, one after the other along the first axis of `items`.

    Attributes:
        decided_by: the tensors that decide how many there are.
    """

    items: Tensor
    decided_by: tuple[Tensor, ...] = ()


@final
@dataclass(frozen=True, slots=True, eq=False)
class Nothing:
    """An ONNX optional without a value."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class Unknown:
    """A result of a node with a problem; consumers are skipped, not blamed."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class HostValue:
    """What no kernel sees: strings, maps, and what the host makes of results.

    Attributes:
        name: its key among the values of a call.
        shape: of a tensor of strings; None where only a call knows it.
        late: whether it is made after the compiled part.
        constant: its elements, where the model holds them.
    """

    name: str
    shape: tuple[Dim, ...] | None = None
    late: bool = False
    constant: Array | None = None


Held = Tensor | TensorSequence | StackedSequence | Nothing | HostValue
Operand = Held | Unknown
