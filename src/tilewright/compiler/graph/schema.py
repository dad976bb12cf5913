"""What the graph IR knows about an op: its signature, types, oracle and traits.

The schema is the part of a declaration (`compiler/ops`) that the graph needs to build, verify,
print, fold and evaluate a node.  How the op becomes a kernel is not here: bodies live in `ops`.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, final

import numpy as np

from tilewright.base.dtypes import DType
from tilewright.base.record import record
from tilewright.base.symbolic import Dim
from tilewright.compiler.graph.contents import Follow

Array = np.ndarray[tuple[int, ...], np.dtype[np.generic]]


@final
@record
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
        return math.prod(self.shape)

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
    STRIDED = enum.auto()  # a contraction that may read its right operand through moves
    PICKS = enum.auto()  # data picks slices of the first operand
    CONSTANT = enum.auto()
    # The region is code of its own, which takes the operands and yields the results, type by type:
    # passes do not enter it.
    SEALED = enum.auto()
    KERNEL = enum.auto()  # the region is one kernel
    CALL = enum.auto()  # the region says what a function from outside computes
    PART = enum.auto()  # the result is bytes of operand 0 in a row; operand 1 says which
    # Nobody uses the result, which says what of the call's data is out of range: the run's host
    # side reads it at the end.  Kept, and never merged or folded.
    GUARD = enum.auto()
    BRANCH = enum.auto()  # one of two regions runs, as the first operand says
    LOOP = enum.auto()  # region 1 runs again as long as region 0 says so
    # No result: symbols of later types are the elements of the operand, read back once by the host.
    # Kept, and before every node whose types have such a symbol.
    BINDS = enum.auto()
    # No operand, no result: pairs of sizes that must agree where it stands.  Kept.
    AGREES = enum.auto()


class Role(enum.Enum):
    """The part of a node in a kernel; the value is the `kind` attribute of an anchor's kernel.

    A row says which one its op plays; `transforms.fusion_classes` says where a node plays another.
    """

    FREE = "free"  # costs nothing: repeated wherever it is used
    VIEW = "view"  # the same bytes under another shape
    POINTWISE = "pointwise"
    MAP = "movement"  # reads operand elements at computed places, one nest
    SAMPLING = "sampling"  # computes each element from several at other places: done where it is read, if only once
    PLACE = "placement"  # writes operand elements at other places, several nests
    CONTRACTION = "contraction"
    ATTENTION = "attention"  # two products around a softmax; rows of the first operand
    ROWS = "rows"
    REDUCTION = "reduction"
    POOLING = "pooling"
    PACKING = "packing"
    ALONE = "alone"  # a kernel of its own
    HOST = "host"  # no kernel
    NONE = "none"  # constants, control flow


@final
@record
class OperandSpec:
    """One formal operand; `like` names an earlier operand whose dtype it must share."""

    name: str
    dtypes: tuple[DType, ...]
    optional: bool = False
    variadic: bool = False
    like: str | None = None


@final
@record
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

IN_PLACE: Final = "in_place"
"""The attribute of ops that can write over their first operand: its elements stand in the result already."""
# (operand types, None where an optional one is absent; attributes) -> result types
Infer = Callable[[Sequence["TensorType | None"], Attributes], tuple["TensorType", ...]]
# (attributes, shape of operand 0, indices of a result's element) -> its indices in operand 0
Places = Callable[[Attributes, tuple[Dim, ...], Sequence[Dim]], Sequence[Dim]]
# (attributes, shape of operand 0) -> whether a constant border that stands apart is put around it
AddsBorder = Callable[[Attributes, tuple[Dim, ...]], bool]
# (types of the present operands, types of the results, attributes) -> arithmetic operations
Work = Callable[[Sequence["TensorType"], Sequence["TensorType"], Attributes], Dim]


class Range(NamedTuple):
    """`low .. high`, both included; None: no bound."""

    low: Dim | None
    high: Dim | None


UNKNOWN: Final = Range(None, None)


@final
@record
class Asked:
    """A result in whose range somebody is interested, and what a rule may ask.

    Attributes:
        column: the place on the last axis that is meant; None: all of it.  A rule may pass that
            over: what holds for all elements holds for some.
        operand_range: the range of an operand (by position), or of a column of it.
    """

    operands: Sequence[TensorType | None]
    attributes: Attributes
    result: TensorType
    column: int | None
    operand_range: Callable[[int, int | None], Range]

    def of(self, operand: int, column: int | None = None) -> Range:
        """The range of an operand, or of a column of its last axis."""
        return self.operand_range(operand, column)


Ranges = Callable[[Asked], Range]
# (operand types, attributes, where each axis of operand 0 went) -> the attributes then, or None
Moved = Callable[
    [Sequence["TensorType | None"], Attributes, Sequence[int]], "Attributes | None"
]


@final
@record
class Layout:
    """How an op runs where the axes of operands stand in another order: its results' do then, too.

    Attributes:
        moved: the attributes for such operands; None where it cannot run on them.
        aligned: whether the axes of all operands move, not only the first's.
        reduced: the axes of operand 0, of some rank, that the result lacks.
    """

    moved: Moved
    aligned: bool = False
    reduced: Callable[[Attributes, int], frozenset[int]] | None = None


# (types of the present operands, type of the first result, attributes) -> pairs of dimensions
Equalities = Callable[
    [Sequence["TensorType"], TensorType, Attributes], Iterable[tuple[Dim, Dim]]
]
# (operand arrays; attributes with symbolic dims already numbers) -> result arrays
Evaluate = Callable[[Sequence["Array | None"], Attributes], tuple[Array, ...]]


@final
@record(eq=False)
class OpSchema:
    """The signature of one op and what passes ask of it; `name` identifies it.

    Attributes:
        role: the part it plays in a kernel.
        places: where each element of the result stands in the first operand, if sizes and
            attributes alone decide that.
        adds_border: whether it puts a constant border around the first operand that stands apart from it.
        work: what is counted as its arithmetic, where its traits do not say.
        ranges: between which numbers the results lie, given the operands; None: unknown.
        layout: how it runs on operands with other orders of axes; None: not at all.
        equal_sizes: the sizes that it takes to be equal, where types do not prove it.
        contents: how the elements of the only result follow from those of operands that are known in part.
        title: what people call it with these attributes, in names of kernels; None: by its name.
    """

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
    role: Role = Role.ALONE
    places: Places | None = None
    adds_border: AddsBorder | None = None
    work: Work | None = None
    ranges: Ranges | None = None
    layout: Layout | None = None
    equal_sizes: Equalities | None = None
    title: Callable[[Attributes], str] | None = None
    contents: Follow | None = None

    def complete(self, attributes: Attributes) -> dict[str, object]:
        """`attributes` plus the defaults of those that are not given."""
        defaults = {s.name: s.default for s in self.attributes if not s.required}
        return defaults | dict(attributes)
