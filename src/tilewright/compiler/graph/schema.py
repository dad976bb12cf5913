"""What the graph IR knows about an op: its signature, types, oracle and traits.

The schema is the part of a declaration (`compiler/ops`) that the graph needs to build, verify,
print, fold and evaluate a node.  How the op becomes a kernel is not here: bodies live in `ops`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from tilewright.base.dtypes import DType
from tilewright.base.symbolic import Dim

Array = np.ndarray[tuple[int, ...], np.dtype[np.generic]]


@final
@dataclass(frozen=True, slots=True)
class TensorType:
    """Element type and shape of a tensor; dimensions may be symbolic.

    `str` prints `f32[N, 3, 224, 224]`; a scalar is `f32[]`.
    """

    dtype: DType
    shape: tuple[Dim, ...]

    @property
    def rank(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def is_static(self) -> bool:
        """Whether every dimension is a number."""
        return all(isinstance(d, int) for d in self.shape)

    @property
    def element_count(self) -> Dim:
        """The product of the dimensions."""
        count: Dim = 1
        for dim in self.shape:
            count = count * dim
        return count

    @property
    def size_bytes(self) -> Dim:
        """The bytes of all elements, sub-byte types one byte each."""
        return self.element_count * self.dtype.itemsize

    def with_shape(self, shape: Sequence[Dim]) -> TensorType:
        """The same element type with another shape."""
        return TensorType(self.dtype, tuple(shape))

    def with_dtype(self, dtype: DType) -> TensorType:
        """The same shape with another element type."""
        return TensorType(dtype, self.shape)

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


class Trait(enum.Flag):
    """What passes may assume about an op."""

    NONE = 0
    PURE = enum.auto()  # no effect besides its results; may be folded, merged, dropped
    ELEMENTWISE = enum.auto()  # result[i] depends on the operands at (broadcast) i alone
    COMMUTATIVE = enum.auto()  # the first two operands may be swapped
    IDEMPOTENT = enum.auto()  # f(f(x)) = f(x)
    MOVEMENT = enum.auto()  # results are operand elements (or a fill) at other places
    VIEW = enum.auto()  # result has the bytes of operand 0 in the same order (reshape)
    REDUCTION = enum.auto()
    ROWWISE = enum.auto()  # several passes over independent rows (softmax, layer_norm)
    CONTRACTION = enum.auto()  # sum of products (matmul, conv)
    CONSTANT = enum.auto()
    # The region is code of its own, which takes the operands and yields the results, type by type:
    # passes do not enter it.
    SEALED = enum.auto()
    # Nobody uses the result, which says what of the call's data is out of range: the run's host
    # side reads it at the end.  Kept, and never merged or folded.
    GUARD = enum.auto()


@final
@dataclass(frozen=True, slots=True)
class OperandSpec:
    """One formal operand; `like` names an earlier operand whose dtype it must share."""

    name: str
    dtypes: tuple[DType, ...]
    optional: bool = False
    variadic: bool = False
    like: str | None = None


@final
@dataclass(frozen=True, slots=True)
class AttributeSpec:
    """One attribute.  `kind` is one of the ATTRIBUTE_KINDS; `required` if there is no default.

    kinds: int float string bool dtype dims (tuple of Dim) ints (tuple of int)
    floats (tuple of float) array (numpy).
    """

    name: str
    kind: str
    default: object = None
    required: bool = False


Attributes = Mapping[str, object]
# (operand types, None where an optional one is absent; attributes) -> result types
Infer = Callable[[Sequence["TensorType | None"], Attributes], tuple["TensorType", ...]]
# (operand arrays; attributes with symbolic dims already numbers) -> result arrays
Evaluate = Callable[[Sequence["Array | None"], Attributes], tuple[Array, ...]]


@final
@dataclass(frozen=True, slots=True, eq=False)
class OpSchema:
    """The signature of one op; `name` identifies it."""

    name: str
    summary: str
    operands: tuple[OperandSpec, ...]
    attributes: tuple[AttributeSpec, ...]
    result_names: tuple[str, ...]
    infer: Infer
    evaluate: Evaluate
    traits: Trait
    region_count: int = 0
    source: str = ""

    def complete(self, attributes: Attributes) -> dict[str, object]:
        """`attributes` plus the defaults of those that are not given."""
        defaults = {s.name: s.default for s in self.attributes if not s.required}
        return defaults | dict(attributes)
