"""What an ONNX name stands for while a model is imported: a tensor, or what exists only then.

Made by rows, bound to names by the importer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from tilewright.base.dtypes import DType
from tilewright.compiler.frontends.kit.tensor import Tensor


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
