"""The kernel IR: what one kernel computes, as loops over buffers.

Numeric semantics: integers wrap; `div` on integers truncates toward zero and `mod` takes the sign
of the dividend (`floormod` the divisor's); shifts by the width or more are undefined; floats follow
IEEE 754 in the type of the expression, except that a sum in a loop marked `reduction` may be
reassociated and `mul` + `add` may be contracted to `fma` where a schedule says so.  `max`/`min`
propagate NaN.  Comparison yields `bool` (i8 0/1 in memory).  Casts float -> integer truncate and
saturate, NaN gives 0.  Indices are mathematical integers (`base.symbolic.Dim`) that fit i64.

A kernel is a 3-D grid of independent workgroups (the loops of kind GRID_*, outermost) over
parameters (bindings), `dims` (u32 push constants) and local buffers.  What is inside of loops of kind
THREAD_* is run by every thread of a workgroup at once; they share its WORKGROUP buffers, and each has
REGISTER buffers of its own.  All nodes are frozen: a schedule primitive returns a new kernel.
Loop variables, by name, and buffers, by identity, are unique within a kernel.

From naive to machine: `lowering` builds naive nests (every loop SERIAL, multi-dimensional
indices), `schedule` rewrites them, `lowering` flattens, vectorizes and unrolls, `printers` print.

A new kind of node is a class here and a member of `Expression` or `Statement`: what its fields hold
follows from their types (`fields`), and the type checker names the places that must learn what it
means, which are the evaluator and the printers.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, final

from tilewright.base import dtypes
from tilewright.base.dtypes import DType
from tilewright.base.outcome import Verdict
from tilewright.base.record import record
from tilewright.base.symbolic import Dim, Symbol


class Space(enum.Enum):
    """Where a buffer lives."""

    DEVICE = "device"  # a binding of the kernel, or a slice of the program's memory
    WORKGROUP = "workgroup"  # local memory of one workgroup, which its threads share
    REGISTER = "register"  # must vanish into SSA values once loops over it are unrolled
    CONSTANT = "constant"  # small read-only table inside the kernel (see `Buffer.data`)


LOCAL_SPACES: Final = (Space.REGISTER, Space.WORKGROUP)
"""Where temporaries of a workgroup lie, which others have their own of."""


@final
@record(eq=False)
class Buffer:
    """A dense row-major array.  Compared by identity.

    Shapes: `shape` in elements; dims may use the kernel's dimension symbols.
    """

    name: str
    dtype: DType
    shape: tuple[Dim, ...]
    space: Space = Space.DEVICE
    data: tuple[float, ...] | None = None

    def __repr__(self) -> str:
        return f"{self.name}: {self.dtype}[{', '.join(map(str, self.shape))}]@{self.space.value}"


# --- expressions -----------------------------------------------------------------------------
# Every kind has a `dtype` and `lanes` (1 = scalar), and says in `problem` what is wrong with the types of
# its operands, None if nothing is.  Buffers, masks and indices are the verifier's.

UNARY_OPS: Final = (
    "neg", "abs", "exp", "exp_nonpositive", "log", "sqrt", "rsqrt", "sin", "cos", "tanh", "erf",
    "normal_cdf", "sigmoid", "floor", "ceil", "round", "trunc", "not", "is_nan",
)  # fmt: skip
BINARY_OPS: Final = (
    "add", "sub", "mul", "div", "mod", "floormod", "min", "max", "pow", "and", "or", "xor",
    "shl", "shr", "copysign", "scale",
)  # fmt: skip
COMPARE_OPS: Final = ("eq", "ne", "lt", "le", "gt", "ge")
COMBINING_OPS: Final = ("add", "mul", "min", "max", "and", "or", "xor")


@final
@record(eq=False)
class Const:
    """A number; `value` is a Python int, float or bool."""

    value: float
    dtype: DType
    lanes: int = 1

    def problem(self) -> str | None:
        """Nothing: a number has no operands."""
        return None


@final
@record(eq=False)
class Index:
    """An integer expression of loop variables and dims used as a value (i64 by default).

    After vectorization, lane `l` has the value `dim + l * stride`.
    """

    dim: Dim
    dtype: DType = dtypes.i64
    lanes: int = 1
    stride: int = 0

    def problem(self) -> str | None:
        """What is wrong with the type."""
        return None if self.dtype.is_integer else f"an index of {self.dtype}"


@final
@record(eq=False)
class Load:
    """`buffer[indices]`.  After flattening there is one index.

    With `lanes > 1`, lane `l` reads at `index + l * stride`; lanes where `mask` is false read 0
    and touch no memory.  An opaque atom of the index may hold a vector of as many lanes: lane `l`
    then uses its value in lane `l`.
    """

    buffer: Buffer
    indices: tuple[Dim, ...]
    lanes: int = 1
    stride: int = 1
    mask: Expression | None = None

    @property
    def dtype(self) -> DType:
        return self.buffer.dtype

    def problem(self) -> str | None:
        """Nothing: its types are those of the buffer."""
        return None


@final
@record(eq=False)
class Unary:
    """A function of one operand.

    `op` is one of `UNARY_OPS` (`exp_nonpositive` is exp of what is known to be at most 0; `normal_cdf`
    is (1 + erf(x / sqrt(2))) / 2; `round` is half to even; `not` is logical on bool and bitwise on integers).
    """

    op: str
    operand: Expression
    dtype: DType
    lanes: int = 1

    def problem(self) -> str | None:
        """What is wrong with the operator or the types."""
        if self.op not in UNARY_OPS:
            return f"unknown operator '{self.op}'"
        if self.op == "is_nan":
            return None if self.dtype is dtypes.bool_ else "is_nan gives bool"
        return _disagreement(self, self.operand)


@final
@record(eq=False)
class Binary:
    """add sub mul div mod floormod min max pow and or xor shl shr copysign scale.

    `copysign` is the magnitude of the left with the sign of the right, `scale` left * 2**right of a
    whole float, rounded once; both of floats.
    """

    op: str
    left: Expression
    right: Expression
    dtype: DType
    lanes: int = 1

    def problem(self) -> str | None:
        """What is wrong with the operator or the types."""
        if self.op not in BINARY_OPS:
            return f"unknown operator '{self.op}'"
        return _disagreement(self, self.left, self.right)


@final
@record(eq=False)
class Fma:
    """`a * b + c` with one rounding."""

    a: Expression
    b: Expression
    c: Expression
    dtype: DType
    lanes: int = 1

    def problem(self) -> str | None:
        """What is wrong with the types."""
        return _disagreement(self, self.a, self.b, self.c)


@final
@record(eq=False)
class Compare:
    """eq ne lt le gt ge; ordered on floats except `ne`, which is true on NaN."""

    op: str
    left: Expression
    right: Expression
    lanes: int = 1
    dtype: DType = dtypes.bool_

    def problem(self) -> str | None:
        """What is wrong with the operator or the types."""
        if self.op not in COMPARE_OPS:
            return f"unknown comparison '{self.op}'"
        if self.left.dtype is not self.right.dtype:
            return f"operands {self.left.dtype} and {self.right.dtype}"
        return _other_lanes(self, self.left, self.right)


@final
@record(eq=False)
class Select:
    """`if_true` where `condition`, else `if_false`.

    Both are evaluated, loads included, except that a masked load never touches memory (guard
    out-of-range loads with `mask`).
    """

    condition: Expression
    if_true: Expression
    if_false: Expression
    dtype: DType
    lanes: int = 1

    def problem(self) -> str | None:
        """What is wrong with the types."""
        condition = self.condition
        if not condition.dtype.is_bool or condition.lanes != self.lanes:
            return f"condition of {condition.dtype} x {condition.lanes}"
        return _disagreement(self, self.if_true, self.if_false)


@final
@record(eq=False)
class Cast:
    """Conversion of value; to bool means `!= 0`."""

    operand: Expression
    dtype: DType
    lanes: int = 1

    def problem(self) -> str | None:
        """What is wrong with the lanes."""
        return _other_lanes(self, self.operand)


@final
@record(eq=False)
class Bitcast:
    """The same bits as lanes that fill as many bytes, low bits first; neither type is bool."""

    operand: Expression
    dtype: DType
    lanes: int = 1

    def problem(self) -> str | None:
        """What is wrong with the types."""
        source, lanes = self.operand.dtype, self.operand.lanes
        fits = self.dtype.itemsize * self.lanes == source.itemsize * lanes
        if not fits or self.dtype.is_bool or source.is_bool:
            return f"bits of {source} x {lanes} as {self.dtype} x {self.lanes}"
        return None


@final
@record(eq=False)
class Splat:
    """A scalar in every lane."""

    operand: Expression
    lanes: int
    dtype: DType

    def problem(self) -> str | None:
        """What is wrong with the types."""
        good = self.operand.lanes == 1 and self.dtype is self.operand.dtype
        return None if good else "bad splat"


@final
@record(eq=False)
class Horizontal:
    """Combine the lanes of a vector into a scalar with one of `COMBINING_OPS`."""

    op: str
    operand: Expression
    dtype: DType
    lanes: int = 1

    def problem(self) -> str | None:
        """What is wrong with the operator or the types."""
        good = self.lanes == 1 and self.dtype is self.operand.dtype
        return None if good and self.op in COMBINING_OPS else "bad horizontal"


@final
@record(eq=False)
class Transposed:
    """Lane `l` is element `column` of `rows[l]`: a column of a square block, read row by row."""

    rows: tuple[Expression, ...]
    column: int
    dtype: DType
    lanes: int

    def problem(self) -> str | None:
        """What is wrong with the shape or the types."""
        if len(self.rows) != self.lanes or not 0 <= self.column < self.lanes:
            return f"column {self.column} of {len(self.rows)} rows"
        return _disagreement(self, *self.rows)


@final
@record(eq=False)
class Permuted:
    """Lane `l` is lane `order[l]` of a vector; some may be taken several times, others never."""

    operand: Expression
    order: tuple[int, ...]
    dtype: DType
    lanes: int

    def problem(self) -> str | None:
        """What is wrong with the order or the type."""
        if len(self.order) != self.lanes or self.lanes < 2:
            return f"{len(self.order)} places for {self.lanes} lanes"
        outside = [place for place in self.order if not 0 <= place < self.operand.lanes]
        if outside:
            return f"lane {outside[0]} of {self.operand.lanes}"
        same = self.dtype is self.operand.dtype
        return None if same else f"operand of {self.operand.dtype}, expected {self.dtype}"


@final
@record(eq=False)
class Argument:
    """What a `Function` was called with at `position`: a scalar, found in its body only."""

    position: int
    dtype: DType
    lanes: int = 1

    def problem(self) -> str | None:
        """That it stands outside of a function: the bodies of those are not looked into."""
        return "an argument outside of a function"


@final
@dataclass(frozen=True, slots=True)
class Function:
    """A function of scalars, for what is rare or cannot be stated as an expression.

    Without a body it is one of `kernel.primitives`; with one, an expression over `Argument`s.
    """

    name: str
    parameters: tuple[DType, ...]
    dtype: DType
    body: Expression | None = field(default=None, compare=False)


@final
@record(eq=False)
class Call:
    """A function applied to every lane of its operands.

    As the first choice of a `Select`, or cast there, it need run only if some lane chooses it.
    """

    function: Function
    operands: tuple[Expression, ...]
    lanes: int = 1

    @property
    def dtype(self) -> DType:
        return self.function.dtype

    def problem(self) -> str | None:
        """What is wrong with the operands."""
        return _wrong_operands(self, self.function.parameters)


@final
@record(eq=False)
class Intrinsic:
    """An instruction applied to every lane of its operands, or to every tile of lanes."""

    instruction: Instruction
    operands: tuple[Expression, ...]
    lanes: int = 1

    @property
    def dtype(self) -> DType:
        return self.instruction.dtype

    def problem(self) -> str | None:
        """What is wrong with the operands or the number of lanes."""
        row = self.instruction
        if self.lanes % row.tile_lanes:
            return (
                f"{self.lanes} lanes of '{row}', expected whole tiles of {row.tile_lanes}"
            )
        return _wrong_operands(self, row.operands)


Expression = (
    Load | Fma | Binary | Const | Index | Splat | Cast | Select | Compare | Unary | Bitcast
    | Horizontal | Transposed | Permuted | Call | Intrinsic | Argument
)  # fmt: skip
"""Every kind of expression.  A `match` over them ends in `assert_never`."""


def _disagreement(value: Expression, *operands: Expression) -> str | None:
    """What differs between the type or lanes of `value` and of its operands."""
    wrong = [x.dtype for x in operands if x.dtype is not value.dtype]
    if wrong:
        return f"operand of {wrong[0]}, expected {value.dtype}"
    return _other_lanes(value, *operands)


def _wrong_operands(value: Call | Intrinsic, expected: tuple[DType, ...]) -> str | None:
    given = tuple(x.dtype for x in value.operands)
    if given != expected:
        return f"operands {given}, expected {expected}"
    return _other_lanes(value, *value.operands)


def _other_lanes(value: Expression, *operands: Expression) -> str | None:
    wrong = [x.lanes for x in operands if x.lanes != value.lanes]
    return f"operand with {wrong[0]} lanes, expected {value.lanes}" if wrong else None


# --- statements ------------------------------------------------------------------------------


class LoopKind(enum.Enum):
    """How a loop runs."""

    SERIAL = "serial"
    GRID_X = "grid.x"  # one iteration per workgroup along x; outermost loops only
    GRID_Y = "grid.y"
    GRID_Z = "grid.z"
    THREAD_X = (
        "thread.x"  # one iteration per thread of a workgroup, which run at once (`Barrier`)
    )
    THREAD_Y = "thread.y"
    THREAD_Z = "thread.z"
    UNROLL = "unroll"  # constant extent; expanded by lowering/unroll
    VECTOR = "vector"  # constant extent; turned into lanes by lowering/vectorize


@final
@record(eq=False)
class Store:
    """`buffer[indices] = value`; lanes and mask as in `Load`."""

    buffer: Buffer
    indices: tuple[Dim, ...]
    value: Expression
    stride: int = 1
    mask: Expression | None = None


@final
@record(eq=False)
class For:
    """`for var in 0 .. extent`.  `reduction`: iterations combine into the same elements."""

    var: Symbol
    extent: Dim
    body: Body
    kind: LoopKind = LoopKind.SERIAL
    reduction: bool = False


@final
@record(eq=False)
class If:
    """Run `body` when the scalar bool `condition` holds."""

    condition: Expression
    body: Body


@final
@record(eq=False)
class Prefetch:
    """Bring the line of `buffer[indices]` into cache level `level` (1, 2 or 3): a hint.

    Nothing is computed or changed, so an evaluator or code generator may leave it out, and the
    index may lie outside the buffer.
    """

    buffer: Buffer
    indices: tuple[Dim, ...]
    level: int = 2


@final
@record(eq=False)
class Barrier:
    """Threads of a workgroup go on when all have come here, and then see what each has stored.

    Between two barriers no thread may touch an element of device or workgroup memory that another one
    writes.  All threads come to the same barriers, whatever conditions and loops are around.
    """


Statement = Store | For | If | Prefetch | Barrier
"""Every kind of statement."""
Body = tuple[Statement, ...]


def walk(body: Sequence[Statement]) -> list[Statement]:
    """Every statement of `body` in order, outer before inner."""
    found: list[Statement] = []
    _walk(body, found)
    return found


def _walk(body: Sequence[Statement], found: list[Statement]) -> None:
    for statement in body:
        found.append(statement)
        if isinstance(statement, (For, If)):
            _walk(statement.body, found)


# --- instructions ------------------------------------------------------------------------------


Shifts = tuple[tuple[str, int], ...]
"""Operations on every unit of a packed operand, first one first: LLVM's verb and the number beside it."""


@final
@record(kw_only=True)
class Form:
    """An instruction of a machine in one width, and how the printers write it.

    Attributes:
        lanes: results that it computes at a time.
        features: what the target must have.
        unit: LLVM's type of an element of the packed operands; shorter ones are extended with their sign.
        llvm: the intrinsic; it takes the operands, but for the first where `adds`.
        c: a C expression of the operands `a`, `b` and `c`.
        adds: whether the first operand is added afterwards, by another instruction.
        table: constants that it looks its results up in; it takes them before the packed operands.
        order: for each byte of the result the byte of the packed operand, or 0x80 for none; it takes them behind that.
        rounds: what is done to the packed operands before, once for every time that the instruction is
            applied; the results are added.
        joins: where its results are 16-bit numbers, the intrinsic that adds the two of a word, each times one.
    """

    lanes: int
    features: frozenset[str]
    unit: str
    llvm: str
    c: str
    adds: bool = False
    table: tuple[float, ...] = ()
    order: tuple[int, ...] = ()
    rounds: tuple[tuple[Shifts, ...], ...] = ()
    joins: str = ""


@final
@record(eq=False, kw_only=True)
class Instruction:
    """What machines compute in one step, in every lane alone or in tiles of lanes.  Compared by identity.

    Attributes:
        parameters: what one lane is given: the first of shape [], which is the result, too; of the
            others all elements side by side in one word of 32 bits, or of 16, the first in the low bits.
            Where the first has a shape, its elements are that many lanes, row by row, and as many words
            hold the elements of each other one.
        body: what it computes, exactly: loops over the parameters.
        replaces: the loops that it may take the place of, if those compute something else; then
            `caution` says what differs.
        forms: the widths that machines have.
    """

    name: str
    parameters: tuple[Buffer, ...]
    body: Body
    forms: tuple[Form, ...]
    replaces: Body | None = None
    caution: str = ""

    def __str__(self) -> str:
        return self.name

    @property
    def dtype(self) -> DType:
        """The type of the result."""
        return self.parameters[0].dtype

    @property
    def operands(self) -> tuple[DType, ...]:
        """The types of the operands: packed ones are words."""
        total, *packed = self.parameters
        return total.dtype, *(self._word(x) for x in packed)

    @property
    def tile_lanes(self) -> int:
        """Lanes that are computed of the same words: 1 where each lane stands alone."""
        return _elements(self.parameters[0])

    def _word(self, parameter: Buffer) -> DType:
        """The type of what one lane is given for a packed parameter."""
        bits = _elements(parameter) * parameter.dtype.bits // self.tile_lanes
        return {16: dtypes.i16, 32: dtypes.i32}[bits]


def _elements(parameter: Buffer) -> int:
    count = 1
    for extent in parameter.shape:
        assert isinstance(extent, int), "rows have no symbols"
        count *= extent
    return count


# --- kernels -----------------------------------------------------------------------------------


class AccessMode(enum.Enum):
    """What a kernel does with the memory behind a parameter."""

    READ = "read"
    WRITE = "write"
    READ_WRITE = "read_write"
    FIXED = "fixed"  # reads numbers that the model fixes and nothing writes (`numerics.is_plain_number`, where f32)

    @property
    def reads(self) -> bool:
        """Whether the kernel looks at what is there."""
        return self is not AccessMode.WRITE

    @property
    def writes(self) -> bool:
        """Whether the kernel changes it."""
        return self in (AccessMode.WRITE, AccessMode.READ_WRITE)


@final
@record(eq=False)
class Parameter:
    """One binding of a kernel, in binding order."""

    buffer: Buffer
    access: AccessMode


@final
@dataclass(frozen=True, slots=True, eq=False)
class Kernel:
    """One kernel.  `dims` are the push constants in order; `trace` is what schedules did, `verdict` what that came to."""

    name: str
    parameters: tuple[Parameter, ...]
    dims: tuple[Symbol, ...]
    locals: tuple[Buffer, ...]
    body: Body
    trace: tuple[object, ...] = ()
    notes: tuple[str, ...] = field(default=())
    verdict: Verdict | None = None

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """Those of the parameters, then the temporaries."""
        return (*(p.buffer for p in self.parameters), *self.locals)
