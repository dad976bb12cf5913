"""The kernel IR: what one kernel computes, as loops over buffers.

Numeric semantics: integers wrap; `div` on integers truncates toward zero and `mod` takes the sign
of the dividend (`floormod` the divisor's); shifts by the width or more are undefined; floats follow
IEEE 754 in the type of the expression, except that a sum in a loop marked `reduction` may be
reassociated and `mul` + `add` may be contracted to `fma` where a schedule says so.  `max`/`min`
propagate NaN.  Comparison yields `bool` (i8 0/1 in memory).  Casts float -> integer truncate and
saturate, NaN gives 0.  Indices are mathematical integers (`base.symbolic.Dim`) that fit i64.

A kernel is a 3-D grid of independent workgroups (the loops of kind GRID_*, outermost) over
parameters (bindings), `dims` (u32 push constants) and local buffers.  All nodes are frozen: a
schedule primitive returns a new kernel.  Loop variables and buffers are unique within a kernel:
variables by name, buffers by identity.

From naive to machine: `lowering` builds naive nests (every loop SERIAL, multi-dimensional
indices), `schedule` rewrites them, `lowering` flattens, vectorizes and unrolls, `codegen` prints.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import final

from tilewright.base import dtypes
from tilewright.base.dtypes import DType
from tilewright.base.outcome import Verdict
from tilewright.base.symbolic import Dim, Symbol


class Space(enum.Enum):
    """Where a buffer lives."""

    DEVICE = "device"  # a binding of the kernel, or a slice of the program's memory
    WORKGROUP = "workgroup"  # local memory of one workgroup
    REGISTER = "register"  # must vanish into SSA values once loops over it are unrolled
    CONSTANT = "constant"  # small read-only table inside the kernel (see `Buffer.data`)


@final
@dataclass(frozen=True, slots=True, eq=False)
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


class Expression:
    """A value of one `dtype` in `lanes` lanes (1 = scalar)."""

    __slots__ = ()
    dtype: DType
    lanes: int


@final
@dataclass(frozen=True, slots=True, eq=False)
class Const(Expression):
    """A number; `value` is a Python int, float or bool."""

    value: float
    dtype: DType
    lanes: int = 1


@final
@dataclass(frozen=True, slots=True, eq=False)
class Index(Expression):
    """An integer expression of loop variables and dims used as a value (i64 by default).

    After vectorization, lane `l` has the value `dim + l * stride`.
    """

    dim: Dim
    dtype: DType = dtypes.i64
    lanes: int = 1
    stride: int = 0


@final
@dataclass(frozen=True, slots=True, eq=False)
class Load(Expression):
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
    def dtype(self) -> DType:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.buffer.dtype


@final
@dataclass(frozen=True, slots=True, eq=False)
class Unary(Expression):
    """A function of one operand.

    `op` is one of neg abs exp log sqrt rsqrt floor ceil round trunc sin cos tanh erf not is_nan
    sigmoid (`round` is half to even; `not` is logical on bool and bitwise on integers).
    """

    op: str
    operand: Expression
    dtype: DType
    lanes: int = 1


@final
@dataclass(frozen=True, slots=True, eq=False)
class Binary(Expression):
    """add sub mul div mod floormod min max pow and or xor shl shr copysign scale.

    `copysign` is the magnitude of the left with the sign of the right, `scale` left * 2**right of a
    whole float, rounded once; both of floats.
    """

    op: str
    left: Expression
    right: Expression
    dtype: DType
    lanes: int = 1


@final
@dataclass(frozen=True, slots=True, eq=False)
class Fma(Expression):
    """`a * b + c` with one rounding."""

    a: Expression
    b: Expression
    c: Expression
    dtype: DType
    lanes: int = 1


@final
@dataclass(frozen=True, slots=True, eq=False)
class Compare(Expression):
    """eq ne lt le gt ge; ordered on floats except `ne`, which is true on NaN."""

    op: str
    left: Expression
    right: Expression
    lanes: int = 1
    dtype: DType = dtypes.bool_


@final
@dataclass(frozen=True, slots=True, eq=False)
class Select(Expression):
    """`if_true` where `condition`, else `if_false`.

    Both are evaluated, loads included, except that a masked load never touches memory (guard
    out-of-range loads with `mask`).
    """

    condition: Expression
    if_true: Expression
    if_false: Expression
    dtype: DType
    lanes: int = 1


@final
@dataclass(frozen=True, slots=True, eq=False)
class Cast(Expression):
    """Conversion of value; to bool means `!= 0`."""

    operand: Expression
    dtype: DType
    lanes: int = 1


@final
@dataclass(frozen=True, slots=True, eq=False)
class Bitcast(Expression):
    """The same bits read as a type of the same bytes; neither of them bool."""

    operand: Expression
    dtype: DType
    lanes: int = 1


@final
@dataclass(frozen=True, slots=True, eq=False)
class Splat(Expression):
    """A scalar in every lane."""

    operand: Expression
    lanes: int
    dtype: DType


@final
@dataclass(frozen=True, slots=True, eq=False)
class Horizontal(Expression):
    """Combine the lanes of a vector into a scalar with add, mul, min or max."""

    op: str
    operand: Expression
    dtype: DType
    lanes: int = 1


@final
@dataclass(frozen=True, slots=True, eq=False)
class Transposed(Expression):
    """Lane `l` is element `column` of `rows[l]`: a column of a square block, read row by row."""

    rows: tuple[Expression, ...]
    column: int
    dtype: DType
    lanes: int


@final
@dataclass(frozen=True, slots=True, eq=False)
class Argument(Expression):
    """What a `Function` was called with at `position`: a scalar, found in its body only."""

    position: int
    dtype: DType
    lanes: int = 1


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
@dataclass(frozen=True, slots=True, eq=False)
class Call(Expression):
    """A function applied to every lane of its operands.

    As the first choice of a `Select`, or cast there, it need run only if some lane chooses it.
    """

    function: Function
    operands: tuple[Expression, ...]
    lanes: int = 1

    @property
    def dtype(self) -> DType:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.function.dtype


# --- statements ------------------------------------------------------------------------------


class LoopKind(enum.Enum):
    """How a loop runs."""

    SERIAL = "serial"
    GRID_X = "grid.x"  # one iteration per workgroup along x; outermost loops only
    GRID_Y = "grid.y"
    GRID_Z = "grid.z"
    UNROLL = "unroll"  # constant extent; expanded by lowering/unroll
    VECTOR = "vector"  # constant extent; turned into lanes by lowering/vectorize


class Statement:
    """Base of what a body consists of."""

    __slots__ = ()


Body = tuple[Statement, ...]


@final
@dataclass(frozen=True, slots=True, eq=False)
class Store(Statement):
    """`buffer[indices] = value`; lanes and mask as in `Load`."""

    buffer: Buffer
    indices: tuple[Dim, ...]
    value: Expression
    stride: int = 1
    mask: Expression | None = None


@final
@dataclass(frozen=True, slots=True, eq=False)
class For(Statement):
    """`for var in 0 .. extent`.  `reduction`: iterations combine into the same elements."""

    var: Symbol
    extent: Dim
    body: Body
    kind: LoopKind = LoopKind.SERIAL
    reduction: bool = False


@final
@dataclass(frozen=True, slots=True, eq=False)
class If(Statement):
    """Run `body` when the scalar bool `condition` holds."""

    condition: Expression
    body: Body


@final
@dataclass(frozen=True, slots=True, eq=False)
class Prefetch(Statement):
    """Bring the line of `buffer[indices]` into cache level `level` (1, 2 or 3): a hint.

    Nothing is computed or changed, so an evaluator or code generator may leave it out, and the
    index may lie outside the buffer.
    """

    buffer: Buffer
    indices: tuple[Dim, ...]
    level: int = 2


@final
@dataclass(frozen=True, slots=True, eq=False)
class Comment(Statement):
    """A remark that survives printing; no effect."""

    text: str


class Access(enum.Enum):
    """What a kernel does with the memory behind a parameter."""

    READ = "read"
    WRITE = "write"
    READ_WRITE = "read_write"


@final
@dataclass(frozen=True, slots=True, eq=False)
class Parameter:
    """One binding of a kernel, in binding order."""

    buffer: Buffer
    access: Access


@final
@dataclass(frozen=True, slots=True, eq=False)
class Kernel:
    """One kernel.  `dims` are the push constants in order; `trace` is what schedules did.

    `verdict` is what that came to: None before scheduling.
    """

    name: str
    parameters: tuple[Parameter, ...]
    dims: tuple[Symbol, ...]
    locals: tuple[Buffer, ...]
    body: Body
    trace: tuple[object, ...] = ()
    notes: tuple[str, ...] = field(default=())
    verdict: Verdict | None = None


def walk(body: Sequence[Statement]) -> list[Statement]:
    """Every statement of `body` in order, outer before inner."""
    found: list[Statement] = []
    for statement in body:
        found.append(statement)
        if isinstance(statement, (For, If)):
            found.extend(walk(statement.body))
    return found


def children(value: Expression) -> tuple[Expression, ...]:
    """The direct operands of an expression (a load's mask, not its indices)."""
    if isinstance(value, Binary | Compare):
        return (value.left, value.right)
    if isinstance(value, Unary | Cast | Bitcast | Splat | Horizontal):
        return (value.operand,)
    if isinstance(value, Fma):
        return (value.a, value.b, value.c)
    if isinstance(value, Select):
        return (value.condition, value.if_true, value.if_false)
    if isinstance(value, Transposed):
        return value.rows
    if isinstance(value, Call):
        return value.operands
    if isinstance(value, Load) and value.mask is not None:
        return (value.mask,)
    return ()
