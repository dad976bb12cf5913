"""Runs any kernel on numpy arrays: naive, scheduled, vectorized or flattened.

The oracle of lowering.  Loops whose iterations surely touch different elements are run as one
numpy axis, the others one iteration at a time, so results are those of the serial program.
Registers and workgroup memory start poisoned and are private to each workgroup; an access out of
bounds is an error.  Not a performance tool.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, assert_never, final

import numpy as np

from tilewright.base import symbolic
from tilewright.base.dtypes import DType
from tilewright.base.errors import InternalError
from tilewright.base.symbolic import Atom, Dim, Opaque, Operation, Symbol
from tilewright.compiler.kernel import ir, numerics, primitives
from tilewright.compiler.kernel.grid import GRID_KINDS as _GRID
from tilewright.compiler.kernel.grid import THREAD_KINDS, thread_chain
from tilewright.compiler.kernel.independence import is_independent
from tilewright.compiler.kernel.instructions.meaning import meaning
from tilewright.compiler.kernel.rewrite import Rewriter
from tilewright.compiler.kernel.text import expression_text
from tilewright.compiler.kernel.threads import SharedAccesses, run_threads

Values = np.ndarray[Any, np.dtype[Any]]
Mask = Values | None

# More simultaneous iterations than this are not run as one array.
_AXIS_LIMIT: Final = 1 << 22


@np.errstate(all="ignore")
def evaluate(
    kernel: ir.Kernel, arrays: Sequence[np.ndarray], dims: Mapping[str, int] | None = None
) -> None:
    """Run `kernel` in place on one array per parameter.

    Raises: InternalError for a wrong array, an access out of bounds or unknown dims.
    """
    env = dict(dims or {})
    missing = [s.name for s in kernel.dims if s.name not in env]
    if missing:
        raise InternalError(f"kernel '{kernel.name}' needs values for {missing}")
    run = _Run(kernel, arrays, env)
    run.body(_specialised(kernel.body, env), None)
    run.copy_back()


def _specialised(body: Sequence[ir.Statement], dims: Mapping[str, Dim]) -> ir.Body:
    """`body` with sizes as numbers and the variables of loops bounded by their extents.

    A loop that never runs goes before anybody looks inside: indices there may divide by an extent of 0.
    """
    rewriter = Rewriter(dims=dims)
    result: list[ir.Statement] = []
    for statement in body:
        if isinstance(statement, ir.If):
            condition = rewriter.expression(statement.condition)
            result.append(ir.If(condition, _specialised(statement.body, dims)))
        elif isinstance(statement, ir.For):
            extent, name = rewriter.dim(statement.extent), statement.var.name
            if extent == 0:
                continue
            high = symbolic.bounds(extent)[1]
            var = Symbol(name, 0, None if high is None else max(high - 1, 0))
            inner = _specialised(statement.body, {**dims, name: symbolic.Expr.of_atom(var)})
            result.append(replace(statement, var=var, extent=extent, body=inner))
        else:
            result.extend(rewriter.statement(statement))
    return tuple(result)


@final
@dataclass(slots=True)
class _Storage:
    """Where a buffer lives: a contiguous array, one copy per private axis in front."""

    array: Values
    shape: tuple[int, ...]
    private: int


@final
class _Run:
    """The state of one evaluation."""

    def __init__(
        self, kernel: ir.Kernel, arrays: Sequence[np.ndarray], env: dict[str, int]
    ) -> None:
        self.kernel: ir.Kernel = kernel
        self.axes: int = max(1, _depth(kernel.body))
        self.env: dict[str, Any] = dict(env)
        self.vector_size: int = 1
        self.axis_count: int = 0
        self.grid_axes: list[tuple[str, int]] = []
        self.storage: dict[ir.Buffer, _Storage] = {}
        self.copies: list[tuple[np.ndarray, Values]] = []
        self.values: dict[int, Any] = {}
        self.watch: SharedAccesses | None = None
        self.has_threads: bool = any(
            isinstance(s, ir.For) and s.kind in THREAD_KINDS for s in ir.walk(kernel.body)
        )
        self.arguments: tuple[Values, ...] = ()
        self.meanings: dict[int, tuple[ir.Intrinsic, ir.Expression]] = {}
        self.independent: dict[int, bool] = {}
        if len(arrays) != len(kernel.parameters):
            raise self.fail(f"takes {len(kernel.parameters)} arrays, got {len(arrays)}")
        for parameter, array in zip(kernel.parameters, arrays, strict=True):
            self._bind(parameter.buffer, array)
        self.allocate(*ir.Space)

    def fail(self, message: str) -> InternalError:
        """The error that says so of the kernel."""
        return InternalError(f"kernel '{self.kernel.name}': {message}")

    # --- memory --------------------------------------------------------------------------

    def _shape(self, buffer: ir.Buffer) -> tuple[int, ...]:
        numbers = {n: v for n, v in self.env.items() if isinstance(v, int)}
        return tuple(symbolic.evaluate(dim, numbers) for dim in buffer.shape)

    def _bind(self, buffer: ir.Buffer, array: np.ndarray) -> None:
        shape = self._shape(buffer)
        if array.dtype != buffer.dtype.numpy or array.size != math.prod(shape):
            raise self.fail(
                f"parameter {buffer!r} got {array.dtype}{list(array.shape)}, expected {list(shape)}"
            )
        dense = np.ascontiguousarray(array)
        if dense is not array and array.ndim > 0:
            self.copies.append((array, dense))
        self.storage[buffer] = _Storage(dense.reshape(shape), shape, 0)

    def copy_back(self) -> None:
        for array, dense in self.copies:
            if array.flags.writeable:
                array[...] = dense.reshape(array.shape)

    def _allocate(self, buffer: ir.Buffer) -> None:
        shape = self._shape(buffer)
        if buffer.data is not None:
            data = np.asarray(buffer.data).astype(buffer.dtype.numpy).reshape(shape)
            self.storage[buffer] = _Storage(data, shape, 0)
            return
        lead = (
            tuple(n for _, n in self.grid_axes) if buffer.space in ir.LOCAL_SPACES else ()
        )
        array = np.full(lead + shape, _poison(buffer.dtype), buffer.dtype.numpy)
        self.storage[buffer] = _Storage(array, shape, len(lead))

    def allocate(self, *spaces: ir.Space) -> None:
        """Local buffers in some spaces, poisoned."""
        for buffer in self.kernel.locals:
            if buffer.space in spaces:
                self._allocate(buffer)

    def _slots(
        self,
        buffer: ir.Buffer,
        indices: Sequence[Dim],
        lanes: int,
        stride: int,
        mask: Mask,
        subject: str,
    ) -> tuple[Values, tuple[Any, ...]]:
        """The array to index and its index arrays, checked against the bounds."""
        found = self.storage.get(buffer)
        if found is None:
            raise self.fail(f"unknown buffer {buffer!r}")
        array, shape = found.array, found.shape
        if len(indices) == 1 and len(shape) != 1:
            shape = (math.prod(shape),)
            array = array.reshape(array.shape[: found.private] + shape)
        if len(indices) != len(shape):
            raise self.fail(f"{len(indices)} indices into {buffer!r}")
        positions: list[Any] = [self.dim(i, lanes) for i in indices]
        if lanes > 1 and positions:
            positions[-1] = positions[-1] + _steps(lanes, stride)
        for axis, extent in enumerate(shape):
            positions[axis] = self._checked(positions[axis], extent, mask, buffer, subject)
        if self.watch is not None:
            self.watch.record(
                buffer, positions, array.shape, mask, is_store="store" in subject
            )
        if not found.private:
            return array, tuple(positions)
        private = [self.env[name] for name, _ in self.grid_axes[: found.private]]
        return array, (*(_lane_axis(p) if lanes > 1 else p for p in private), *positions)

    def _checked(
        self, position: Any, extent: int, mask: Mask, buffer: ir.Buffer, subject: str
    ) -> Any:
        if isinstance(position, int) and 0 <= position < extent:
            return position
        # Without a sign, positions below 0 are beyond every extent.
        unsigned = np.asarray(position, np.int64).view(np.uint64)
        if np.maximum.reduce(unsigned, axis=None, initial=0) < extent:
            return position
        outside = np.asarray((position < 0) | (position >= extent))
        if not outside.any():
            return position
        if mask is not None:
            position = np.where(mask, position, 0)
            outside = outside & mask
        if outside.any():
            bad = int(np.broadcast_to(position, np.shape(outside))[outside].flat[0])
            raise self.fail(f"{subject} {buffer!r} at index {bad} of {extent}")
        return position

    # --- indices -------------------------------------------------------------------------

    def dim(self, dim: Dim, lanes: int = 1) -> Any:
        """An index as a number, or an array over the parallel axes (then lanes, if several)."""
        if isinstance(dim, int):
            return dim
        # An array without axes, such as an element that was loaded, is one number: adding makes it one.
        total: Any = dim.constant
        for monomial, factor in dim.terms:
            term: Any = self._atom(monomial[0], lanes)
            for atom in monomial[1:]:
                term = term * self._atom(atom, lanes)
            if factor != 1:
                term = term * factor
            total = total + term
        return total

    def _atom(self, atom: Atom, lanes: int) -> Any:
        if isinstance(atom, Symbol):
            value = self.env.get(atom.key)
            if value is None:
                raise self.fail(f"'{atom.name}' is not in scope")
            return value if lanes == 1 else _lane_axis(value)
        if isinstance(atom, Operation):
            left, right = self.dim(atom.left, lanes), self.dim(atom.right, lanes)
            if atom.op == "floordiv":
                return left // right
            if atom.op == "mod":
                return left % right
            return np.minimum(left, right) if atom.op == "min" else np.maximum(left, right)
        if isinstance(atom, Opaque) and isinstance(atom.payload, ir.Expression):
            index = np.asarray(self.value(atom.payload)).astype(np.int64)
            return index if lanes == atom.payload.lanes else _lane_axis(index)
        raise self.fail(f"index atom '{atom}' has no value")

    # --- expressions ---------------------------------------------------------------------

    def value(self, e: ir.Expression) -> Values:
        """The value of `e`: a scalar or parallel axes, then lanes if there are several."""
        known = self.values.get(id(e))
        if known is None:
            known = self._value(e)
            self.values[id(e)] = known
        return known

    def _value(self, e: ir.Expression) -> Values:  # noqa: C901, PLR0911, PLR0912 - one per kind
        match e:
            case ir.Const():
                return _spread(numerics.array(e.value, e.dtype), e.lanes)
            case ir.Index():
                return self._index(e)
            case ir.Load():
                return self._load(e)
            case ir.Unary():
                return numerics.unary(e.op, self.value(e.operand), e.dtype)
            case ir.Binary():
                left, right = self.value(e.left), self.value(e.right)
                return numerics.binary(e.op, left, right, e.dtype)
            case ir.Fma():
                a, b, c = self.value(e.a), self.value(e.b), self.value(e.c)
                return numerics.fma(a, b, c, e.dtype)
            case ir.Compare():
                return numerics.compare(e.op, self.value(e.left), self.value(e.right))
            case ir.Select():
                condition = self.value(e.condition)
                return np.where(condition, self.value(e.if_true), self.value(e.if_false))
            case ir.Cast():
                return numerics.cast(self.value(e.operand), e.dtype)
            case ir.Bitcast():
                value = self.value(e.operand)
                return numerics.bitcast(value, e.dtype, e.operand.lanes, e.lanes)
            case ir.Splat():
                return _spread(self.value(e.operand), e.lanes)
            case ir.Horizontal():
                return numerics.horizontal(e.op, self.value(e.operand), e.dtype)
            case ir.Transposed():
                columns = [self.value(row)[..., e.column] for row in e.rows]
                return np.stack(np.broadcast_arrays(*columns), axis=-1)
            case ir.Permuted():
                return self.value(e.operand)[..., list(e.order)]
            case ir.Call():
                return self._call(e)
            case ir.Intrinsic():
                return self._intrinsic(e)
            case ir.Argument():
                return self.arguments[e.position]
            case _:
                assert_never(e)

    def _call(self, e: ir.Call) -> Values:
        operands = tuple(self.value(operand) for operand in e.operands)
        body = e.function.body
        if body is None:
            return primitives.compute(e.function, operands)
        # Arguments have other values in every call, and so has what is made of them.
        outside = self.values, self.arguments
        self.values, self.arguments = {}, operands
        try:
            return self.value(body)
        finally:
            self.values, self.arguments = outside

    def _intrinsic(self, e: ir.Intrinsic) -> Values:
        """What the instruction means; kept, since values are known by the identity of expressions."""
        known = self.meanings.get(id(e))
        if known is None:
            known = self.meanings[id(e)] = (e, meaning(e.instruction, e.operands))
        return self.value(known[1])

    def _index(self, e: ir.Index) -> Values:
        value = np.asarray(self.dim(e.dim, e.lanes), np.int64)
        if e.lanes > 1:
            value = value + _steps(e.lanes, e.stride)
        return value.astype(e.dtype.numpy)

    def _load(self, e: ir.Load) -> Values:
        mask = self.active(e.mask, e.lanes)
        array, slots = self._slots(
            e.buffer, e.indices, e.lanes, e.stride, mask, "load from"
        )
        if mask is not None and array.size == 0:
            return _spread(np.zeros((), array.dtype), e.lanes)
        value = np.asarray(array[slots])
        return value if mask is None else np.where(mask, value, np.zeros((), array.dtype))

    def active(self, mask: ir.Expression | None, lanes: int) -> Mask:
        """The mask of an access: its own and that of the guards around it."""
        guard = self.guard
        if guard is not None and lanes > 1:
            guard = guard[..., None]
        if mask is None:
            return guard
        own = self.value(mask)
        return own if guard is None else own & guard

    # --- statements ----------------------------------------------------------------------

    guard: Mask = None

    def body(self, body: Sequence[ir.Statement], guard: Mask) -> None:
        """Run statements where `guard` holds (None: everywhere)."""
        for statement in body:
            self.guard = guard
            match statement:
                case ir.Store():
                    self._store(statement)
                case ir.For():
                    self._loop(statement, guard)
                case ir.If():
                    self._if(statement, guard)
                case ir.Prefetch():
                    pass
                case ir.Barrier():
                    raise self.fail("a barrier outside of a workgroup's threads")
                case _:
                    assert_never(statement)

    def _if(self, statement: ir.If, guard: Mask) -> None:
        self.values.clear()
        condition = self.value(statement.condition)
        inner = np.asarray(condition if guard is None else condition & guard)
        if inner.any():
            self.body(statement.body, None if inner.all() else inner)

    def _store(self, s: ir.Store) -> None:
        self.values.clear()
        lanes = s.value.lanes
        value = self.value(s.value)
        mask = self.active(s.mask, lanes)
        array, slots = self._slots(s.buffer, s.indices, lanes, s.stride, mask, "store to")
        if value.dtype != array.dtype:
            raise self.fail(
                f"store of {value.dtype} ({expression_text(s.value)}) to {s.buffer!r}"
            )
        if mask is None:
            array[slots] = value
            return
        places = np.broadcast_shapes(*(np.shape(p) for p in slots))
        shape = np.broadcast_shapes(np.shape(mask), places)
        if shape == places and mask.all():
            array[slots] = value
            return
        chosen = np.broadcast_to(mask, shape)
        where = tuple(
            p if places and np.ndim(p) == 0 else np.broadcast_to(p, shape)[chosen]
            for p in slots
        )
        array[where] = np.broadcast_to(value, shape)[chosen]

    def _loop(self, loop: ir.For, guard: Mask) -> None:
        self.values.clear()
        if loop.kind in THREAD_KINDS:
            run_threads(self, thread_chain(loop))
            return
        extent = self.dim(loop.extent)
        if isinstance(extent, int | np.integer):
            if extent <= 0:
                return
            if self._parallel(loop, int(extent)):
                self._run_axis(loop, int(extent), guard)
            else:
                self._run_serial(loop, int(extent), guard)
            return
        # The extent differs between parallel iterations: run to the longest, guarded.
        for step in range(int(np.max(extent, initial=0))):
            self.env[loop.var.name] = step
            inside = np.asarray(step < extent)
            self.body(loop.body, inside if guard is None else inside & guard)
        self.env.pop(loop.var.name, None)

    def _parallel(self, loop: ir.For, extent: int) -> bool:
        if self.vector_size * extent > _AXIS_LIMIT:
            return False
        if self.has_threads and self.watch is None:  # around threads, not inside one
            return False
        known = self.independent.get(id(loop))
        if known is None:
            known = is_independent(
                loop, private=ir.LOCAL_SPACES if loop.kind in _GRID else ()
            )
            self.independent[id(loop)] = known
        return known

    def _run_axis(self, loop: ir.For, extent: int, guard: Mask) -> None:
        shape = [1] * self.axes
        shape[self.axis_count] = extent
        name = loop.var.name
        self.env[name] = np.arange(extent, dtype=np.int64).reshape(shape)
        self.axis_count += 1
        self.vector_size *= extent
        grid = loop.kind in _GRID
        if grid:
            self.grid_axes.append((name, extent))
            self.allocate(*ir.LOCAL_SPACES)
        self.body(loop.body, guard)
        if grid:
            self.grid_axes.pop()
        self.axis_count -= 1
        self.vector_size //= extent
        del self.env[name]

    def _run_serial(self, loop: ir.For, extent: int, guard: Mask) -> None:
        grid = loop.kind in _GRID
        # Workgroups run in any order: backwards finds those that rely on the order.
        for step in range(extent - 1, -1, -1) if grid else range(extent):
            self.env[loop.var.name] = step
            if grid:
                self.allocate(*ir.LOCAL_SPACES)
            self.body(loop.body, guard)
        del self.env[loop.var.name]


def _depth(body: Sequence[ir.Statement]) -> int:
    nests = (statement for statement in body if isinstance(statement, ir.For | ir.If))
    return max((isinstance(x, ir.For) + _depth(x.body) for x in nests), default=0)


@functools.cache
def _steps(lanes: int, stride: int) -> Values:
    """The distances of a vector's elements from its first."""
    steps = np.arange(lanes, dtype=np.int64) * stride
    steps.flags.writeable = False
    return steps


def _lane_axis(position: Any) -> Any:
    return (
        position[..., None]
        if isinstance(position, np.ndarray) and position.ndim
        else position
    )


def _spread(value: Values, lanes: int) -> Values:
    if lanes == 1:
        return value
    return np.broadcast_to(value[..., None], (*value.shape, lanes))


def _poison(dtype: DType) -> Any:
    """A value that shows when it is read before it is written."""
    if dtype.is_float:
        return np.asarray(np.nan).astype(dtype.numpy)
    return numerics.array(0x5A5A5A5A5A5A5A5A, dtype) if dtype.is_integer else np.True_
