"""Writes kernels: buffers with fresh names, naive loop nests, stores, reductions.

The helper that op bodies and tests use to emit a kernel; it produces naive code only (SERIAL
loops, multi-dimensional indices, one lane).  Schedules rewrite kernels, they do not use this.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import final

from tilewright.base import dtypes, symbolic
from tilewright.base.dtypes import DType
from tilewright.base.errors import InternalError
from tilewright.base.record import record
from tilewright.base.symbolic import Dim, Symbol
from tilewright.compiler.kernel import ir
from tilewright.compiler.kernel.expressions import Expressions, binary, cast, const
from tilewright.compiler.kernel.rewrite import FreshNames, body_symbols, buffers_read

Indices = Sequence[Dim]


@final
@record(eq=False)
class Immediate:
    """A tensor whose elements are all `value`: read like a buffer, becomes a constant."""

    value: float
    dtype: DType
    shape: tuple[Dim, ...]


Source = ir.Buffer | Immediate


def compute_dtype(dtype: DType) -> DType:
    """The type arithmetic happens in: f32 for the 16-bit floats, else the type itself."""
    return dtypes.f32 if dtype in dtypes.HALVES else dtype


class KernelBuilder(Expressions):
    """Builds one kernel statement by statement.

    >>> from tilewright.base.dtypes import f32
    >>> b = KernelBuilder("double")
    >>> x, y = b.parameter("x", f32, (4,)), b.result("y", f32, (4,))
    >>> with b.nest((4,)) as (i,):
    ...     b.store(y, (i,), b.mul(b.load(x, (i,)), 2))
    >>> kernel = b.build()
    """

    def __init__(self, name: str, dims: Sequence[Symbol] = ()) -> None:
        self.name: str = name
        self._dims: dict[str, Symbol] = {s.name: s for s in dims}
        self._parameters: list[ir.Parameter] = []
        self._locals: list[ir.Buffer] = []
        self._names: FreshNames = FreshNames(self._dims)
        self._open: list[list[ir.Statement]] = [[]]

    # --- buffers -------------------------------------------------------------------------

    def parameter(
        self,
        name: str,
        dtype: DType,
        shape: Indices,
        access: ir.AccessMode = ir.AccessMode.READ,
    ) -> ir.Buffer:
        """The next binding."""
        self._reserve(shape)
        buffer = ir.Buffer(self._names.fresh(name), dtype, tuple(shape))
        self._parameters.append(ir.Parameter(buffer, access))
        return buffer

    def result(self, name: str, dtype: DType, shape: Indices) -> ir.Buffer:
        """The next binding, written by the kernel."""
        return self.parameter(name, dtype, shape, ir.AccessMode.WRITE)

    def temporary(self, dtype: DType, shape: Indices, name: str = "t") -> ir.Buffer:
        """An intermediate in the program's memory, until a schedule moves or inlines it."""
        self._reserve(shape)
        buffer = ir.Buffer(self._names.fresh(name), dtype, tuple(shape))
        self._locals.append(buffer)
        return buffer

    def table(
        self, values: Sequence[float], dtype: DType, shape: Indices, name: str = "table"
    ) -> ir.Buffer:
        """A small read-only array inside the kernel."""
        buffer = ir.Buffer(
            self._names.fresh(name), dtype, tuple(shape), ir.Space.CONSTANT, tuple(values)
        )
        self._locals.append(buffer)
        return buffer

    def _reserve(self, shape: Indices) -> None:
        """Dimension symbols keep their names; loop variables stay away from them."""
        for dim in shape:
            for symbol in symbolic.symbols(dim):
                if symbol.name not in self._dims:
                    self._dims[symbol.name] = symbol
                    self._names.fresh(symbol.name)

    # --- control -------------------------------------------------------------------------

    @contextmanager
    def loop(
        self, extent: Dim, name: str = "i", *, reduction: bool = False
    ) -> Generator[Dim, None, None]:
        """One loop; yields its variable (0 without a loop when the extent is 1)."""
        with self.nest((extent,), (name,), reduction=reduction) as (var,):
            yield var

    @contextmanager
    def nest(
        self, shape: Indices, names: Sequence[str] | None = None, *, reduction: bool = False
    ) -> Generator[tuple[Dim, ...], None, None]:
        """Nested loops over `shape`; yields the variables, 0 for extents of 1."""
        names = names or ()
        variables: list[Dim] = []
        opened: list[tuple[Symbol, Dim]] = []
        for position, extent in enumerate(shape):
            if extent == 1:
                variables.append(0)
                continue
            stem = names[position] if position < len(names) else _stem(position, reduction)
            upper = symbolic.bounds(extent)[1]
            var = Symbol(self._names.fresh(stem), 0, None if upper is None else upper - 1)
            opened.append((var, extent))
            variables.append(symbolic.Expr.of_atom(var))
            self._open.append([])
        yield tuple(variables)
        for var, extent in reversed(opened):
            body = tuple(self._open.pop())
            self._emit(ir.For(var, extent, body, reduction=reduction))

    def reduce(self, extents: Indices, names: Sequence[str] | None = None):
        """Nested reduction loops: `with b.reduce((k,)) as (k,): b.accumulate(...)`."""
        return self.nest(extents, names, reduction=True)

    @contextmanager
    def when(self, condition: ir.Expression) -> Generator[None, None, None]:
        """A guarded region; nothing is emitted for a condition that is surely false."""
        self._open.append([])
        yield
        body = tuple(self._open.pop())
        if not isinstance(condition, ir.Const):
            self._emit(ir.If(condition, body))
        elif condition.value:
            for statement in body:
                self._emit(statement)

    def _emit(self, statement: ir.Statement) -> None:
        self._open[-1].append(statement)

    # --- memory --------------------------------------------------------------------------

    def load(
        self, source: Source, indices: Indices, mask: ir.Expression | None = None
    ) -> ir.Expression:
        """`source[indices]`; 0 where `mask` is false."""
        if len(indices) != len(source.shape):
            raise InternalError(f"{len(indices)} indices into {source!r}")
        if isinstance(mask, ir.Const):
            if not mask.value:
                return const(0, source.dtype)
            mask = None
        if isinstance(source, Immediate):
            value = const(source.value, source.dtype)
            return value if mask is None else self.select(mask, value, 0)
        return ir.Load(source, tuple(indices), mask=mask)

    def read(
        self, source: Source, indices: Indices, mask: ir.Expression | None = None
    ) -> ir.Expression:
        """Like `load`, widened to the compute type (f16, bf16 -> f32)."""
        return cast(self.load(source, indices, mask), compute_dtype(source.dtype))

    def store(
        self, buffer: ir.Buffer, indices: Indices, value: ir.Expression | float
    ) -> None:
        """`buffer[indices] = value`, of the buffer's dtype."""
        if not isinstance(value, ir.Expression):
            value = const(value, buffer.dtype)
        if value.dtype is not buffer.dtype:
            raise InternalError(f"store of {value.dtype} into {buffer!r}")
        if len(indices) != len(buffer.shape):
            raise InternalError(f"{len(indices)} indices into {buffer!r}")
        self._emit(ir.Store(buffer, tuple(indices), value))

    def write(self, buffer: ir.Buffer, indices: Indices, value: ir.Expression) -> None:
        """Like `store`, with the value converted to the buffer's dtype."""
        self.store(buffer, indices, cast(value, buffer.dtype))

    def accumulate(
        self, op: str, buffer: ir.Buffer, indices: Indices, value: ir.Expression
    ) -> None:
        """`buffer[indices] = buffer[indices] op value` (the running value on the left)."""
        self.store(buffer, indices, binary(op, ir.Load(buffer, tuple(indices)), value))

    def within(self, index: Dim, low: Dim, high: Dim) -> ir.Expression:
        """`low <= index < high`, decided now where bounds decide it."""
        return self.and_(
            self.ge(self.index(index), self.index(low)),
            self.lt(self.index(index), self.index(high)),
        )

    # --- the result ----------------------------------------------------------------------

    def build(self) -> ir.Kernel:
        """The kernel so far; `dims` are the symbols used, by name."""
        if len(self._open) != 1:
            raise InternalError(
                f"kernel '{self.name}' has {len(self._open) - 1} open loops"
            )
        body: ir.Body = tuple(self._open[0])
        return ir.Kernel(
            self.name, self._access(body), self._used_dims(body), tuple(self._locals), body
        )

    def _used_dims(self, body: ir.Body) -> tuple[Symbol, ...]:
        if not self._dims:
            return ()
        used = {s.name for s in body_symbols(body)}
        for buffer in (*(p.buffer for p in self._parameters), *self._locals):
            used |= symbolic.names_in(buffer.shape)
        return tuple(self._dims[n] for n in sorted(self._dims) if n in used)

    def _access(self, body: ir.Body) -> tuple[ir.Parameter, ...]:
        """Results that later nests read back are READ_WRITE."""
        read = buffers_read(body)
        return tuple(
            ir.Parameter(p.buffer, ir.AccessMode.READ_WRITE)
            if p.access is ir.AccessMode.WRITE and p.buffer in read
            else p
            for p in self._parameters
        )


def _stem(position: int, reduction: bool) -> str:
    return f"r{position}" if reduction else f"i{position}"
