"""What an ONNX name stands for while a model is imported: a tensor, what exists only then, or what the host holds.

Made by rows, bound to names by the importer.
"""

from __future__ import annotations

from typing import final

from tilewright.base.dtypes import DType
from tilewright.base.record import record
from tilewright.base.symbolic import Dim
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.graph.schema import Array


@final
@record(eq=False)
class TensorSequence:
    """An ONNX sequence whose length is known; items may differ in shape."""

    items: tuple[Tensor, ...]
    dtype: DType | None = None


@final
@record(eq=False)
class StackedSequence:
    """An ONNX sequence whose length a call decides: items of one type, one after the other along the first axis of `items`.

    Attributes:
        decided_by: the tensors that decide how many there are.
    """

    items: Tensor
    decided_by: tuple[Tensor, ...] = ()


@final
@record(eq=False)
class JoinedSequence:
    """An ONNX sequence whose length, and the size of whose items along one axis, a call decides.

    Attributes:
        items: one after the other along that axis.
        sizes: i64, how much of it each item has.
        axis: of the items.
        decided_by: the tensors that decide how many there are.
    """

    items: Tensor
    sizes: Tensor
    axis: int
    decided_by: tuple[Tensor, ...] = ()


@final
@record(eq=False)
class Nothing:
    """An ONNX optional without a value."""


@final
@record(eq=False)
class ChosenOptional:
    """An ONNX optional of which data decides whether it has a value.

    Attributes:
        is_there: a truth value, a scalar.
        value: a tensor of some elements where it is not there.
        decided_by: the tensors that decide it.
    """

    is_there: Tensor
    value: Tensor
    decided_by: tuple[Tensor, ...] = ()


@final
@record(eq=False)
class Unknown:
    """A result of a node with a problem; consumers are skipped, not blamed."""


@final
@record(eq=False)
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


Held = (
    Tensor
    | TensorSequence
    | StackedSequence
    | JoinedSequence
    | Nothing
    | ChosenOptional
    | HostValue
)
Operand = Held | Unknown
