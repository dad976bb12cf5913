"""What a nest looks like: loops by role, strides, the contraction inside, costs.

Observation only; the rules decide with it.  Dimensions that are not known count as `GUESS` where a
number is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, final

from tilewright.base import symbolic
from tilewright.base.dtypes import f32
from tilewright.base.symbolic import Dim, Symbol
from tilewright.base.target import Target
from tilewright.compiler.kernel.ir import (
    Binary,
    Buffer,
    Cast,
    Comment,
    Expression,
    Fma,
    For,
    If,
    Kernel,
    Load,
    Statement,
    Store,
    Unary,
    children,
    walk,
)
from tilewright.compiler.kernel.rewrite import (
    dim_symbols,
    expression_dims,
    loops,
    payloads,
    statement_expressions,
    stores,
    subexpressions,
)
from tilewright.compiler.schedule.accesses import update_operator

GUESS: Final = 128
"""What a dimension known only at run time is taken for."""
NS_PER_BYTE: Final = 0.04
"""What memory takes to bring a byte to one core."""
_HEAVY: Final = frozenset({"exp", "log", "sin", "cos", "tanh", "erf", "sigmoid"})


def estimate(dim: Dim) -> int:
    """A likely value of `dim`; a product of open sizes (images times words) is no power of one."""
    if isinstance(dim, int):
        return dim
    value = symbolic.substitute(dim, likely_sizes(symbolic.symbols(dim)))
    return value if isinstance(value, int) else GUESS


def likely_sizes(found: Iterable[Symbol]) -> dict[str, Dim]:
    """A likely value of each size, for all that stand in one product."""
    sizes = tuple(found)
    open_sizes = sum(s.upper is None or s.upper > GUESS for s in sizes)
    each = GUESS if open_sizes < 2 else round((2 * GUESS) ** (1 / open_sizes))
    env: dict[str, Dim] = {}
    for s in sizes:
        high = each if s.upper is None else min(each, s.upper)
        env[s.name] = max(high, s.lower or 0)
    return env


def top_nests(kernel: Kernel) -> list[For]:
    """The loops at the top of a kernel."""
    return [s for s in kernel.body if isinstance(s, For)]


def parallel_chain(outer: For) -> tuple[For, ...]:
    """`outer` and the loops perfectly nested in it, up to the first reduction."""
    found: list[For] = []
    statement: Statement | None = outer
    while isinstance(statement, For) and not statement.reduction:
        found.append(statement)
        real = [s for s in statement.body if not isinstance(s, Comment)]
        statement = real[0] if len(real) == 1 else None
    return tuple(found)


def flat(buffer: Buffer, indices: Sequence[Dim]) -> Dim:
    """The row-major position of an element."""
    position: Dim = 0
    for extent, index in zip(buffer.shape, indices, strict=True):
        position = position * extent + index
    return position


def stride(access: Load | Store, name: str) -> Dim | None:
    """How far apart in memory successive iterations of a loop touch; None if not regular."""
    part = symbolic.linear(flat(access.buffer, access.indices), name)
    return None if part is None else part[0]


def depends(access: Load | Store, name: str) -> bool:
    """Whether the element touched depends on a loop."""
    return any(s.name == name for index in access.indices for s in dim_symbols(index))


def strip_casts(value: Expression) -> Expression:
    """`value` without conversions around it."""
    while isinstance(value, Cast):
        value = value.operand
    return value


@final
@dataclass(frozen=True, slots=True)
class Contraction:
    """`total += left * right` in a nest of parallel loops.

    Attributes:
        reductions: the loops of the sum, outermost first.
        lane: the parallel loop along which the right operand is contiguous (or would be after
            packing, if `contiguous` is False).
        rows: loops that only the left operand has.
        panels: loops that only the right operand has, without `lane`.
        batches: loops that both or none have.
    """

    left: Load
    right: Load
    total: Store
    reductions: tuple[For, ...]
    lane: For
    rows: tuple[For, ...]
    panels: tuple[For, ...]
    batches: tuple[For, ...]
    contiguous: bool

    @property
    def depth(self) -> int:
        """Products per element, estimated."""
        count = 1
        for loop in self.reductions:
            count *= estimate(loop.extent)
        return count


def find_contraction(chain: Sequence[For]) -> Contraction | None:
    """The one sum of products in the innermost body of `chain`."""
    if not chain:
        return None
    sums = [s for s in loops(chain[-1].body) if s.reduction]
    outer = [s for s in chain[-1].body if isinstance(s, For)]
    if len(outer) != 1 or not sums or outer[0] is not sums[0]:
        return None
    reductions = _reduction_chain(outer[0])
    body = [s for s in reductions[-1].body if not isinstance(s, Comment)]
    if (
        len(body) != 1
        or not isinstance(body[0], Store)
        or update_operator(body[0]) != "add"
    ):
        return None
    operands = _factors(body[0])
    if operands is None:
        return None
    for right, left in (operands, operands[::-1]):
        found = _roles(chain, reductions, body[0], left, right)
        if found is not None:
            return found
    return None


def _reduction_chain(outer: For) -> tuple[For, ...]:
    found = [outer]
    while True:
        body = [s for s in found[-1].body if not isinstance(s, Comment)]
        if len(body) != 1 or not isinstance(body[0], For):
            return tuple(found)
        found.append(body[0])


def _factors(store: Store) -> tuple[Load, Load] | None:
    """The two loads whose product is added, as (second, first)."""
    value = store.value
    if isinstance(value, Fma):
        parts: tuple[Expression, Expression] = (value.a, value.b)
    elif isinstance(value, Binary):
        product = strip_casts(value.right)
        if not isinstance(product, Binary) or product.op != "mul":
            product = strip_casts(value.left)
        if not isinstance(product, Binary) or product.op != "mul":
            return None
        parts = (product.left, product.right)
    else:
        return None
    a, b = strip_casts(parts[0]), strip_casts(parts[1])
    return (b, a) if isinstance(a, Load) and isinstance(b, Load) else None


def _roles(
    chain: Sequence[For],
    reductions: tuple[For, ...],
    total: Store,
    left: Load,
    right: Load,
) -> Contraction | None:
    only_right = [
        s for s in chain if depends(right, s.var.name) and not depends(left, s.var.name)
    ]
    if not only_right or right.mask is not None:
        return None
    unit = [s for s in only_right if stride(right, s.var.name) == 1]
    lane = unit[-1] if unit else only_right[-1]
    rows = [
        s for s in chain if depends(left, s.var.name) and not depends(right, s.var.name)
    ]
    panels = [s for s in only_right if s is not lane]
    known = {*rows, *only_right}
    batches = [s for s in chain if s not in known]
    return Contraction(
        left=left,
        right=right,
        total=total,
        reductions=reductions,
        lane=lane,
        rows=tuple(rows),
        panels=tuple(panels),
        batches=tuple(batches),
        contiguous=bool(unit),
    )


# --- costs -----------------------------------------------------------------------------------


def cost(value: Expression) -> int:
    """Rough cycles to compute a value once per vector; loads are free."""
    total = 0
    for part in subexpressions(value):
        if isinstance(part, Unary) and part.op in _HEAVY:
            total += 20
        elif isinstance(part, Binary) and part.op in ("div", "mod", "pow"):
            total += 10 if part.op != "pow" else 50
        elif isinstance(part, Binary | Unary | Fma):
            total += 1
    return total


def written_size(value: Expression) -> int:
    """The nodes of an expression written out: parts that are shared count wherever they stand.

    What is printed and what code is made for; it may be exponential in the nodes that there are.
    """
    return _written_out(value, lambda _: 1, {})


def written_uses(body: Sequence[Statement], buffer: Buffer) -> int:
    """How often a buffer is read in a body written out."""
    memo: dict[int, int] = {}

    def reads(part: Expression) -> int:
        return int(isinstance(part, Load) and part.buffer is buffer)

    return sum(
        _written_out(root, reads, memo)
        for statement in walk(body)
        for root in statement_expressions(statement)
    )


def _written_out(
    root: Expression, weight: Callable[[Expression], int], memo: dict[int, int]
) -> int:
    """The weights of all parts, shared ones each time.  `memo` is that of one `weight`."""
    stack = [root]
    while stack:
        part = stack[-1]
        below = [*children(part), *(p for d in expression_dims(part) for p in payloads(d))]
        open_parts = [p for p in below if id(p) not in memo]
        if open_parts:
            stack.extend(open_parts)
            continue
        memo[id(part)] = weight(part) + sum(memo[id(p)] for p in below)
        stack.pop()
    return memo[id(root)]


def body_cost(body: Iterable[Statement]) -> int:
    """The costs of every store's value."""
    return sum(cost(s.value) for s in stores(tuple(body)))


def trip_count(names: Iterable[For]) -> int:
    """How often the innermost of nested loops runs, estimated."""
    count = 1
    for loop in names:
        count *= max(1, estimate(loop.extent))
    return count


def steps_in(body: Iterable[Statement]) -> int:
    """Most steps that loops nested in a body take, estimated."""
    most = 1
    for statement in body:
        if isinstance(statement, For):
            most = max(most, max(1, estimate(statement.extent)) * steps_in(statement.body))
        elif isinstance(statement, If):
            most = max(most, steps_in(statement.body))
    return most


def short_axis(target: Target) -> int:
    """Elements up to which a row is too short for lanes of its own; rows side by side fill them.

    As many as the code generator picks out of whole vectors (`MAX_WIDE_STRIDE`), and no more than
    half a vector.  One number for all types: the order of a sum goes by it.
    """
    return max(4, min(8, target.vector_lanes(f32) // 2))


def unroll_size(loop: For) -> int:
    """Statements that a loop becomes when everything constant in it is written out."""
    count = 0
    for statement in loop.body:
        if isinstance(statement, For):
            inner = unroll_size(statement)
            count += inner if isinstance(statement.extent, int) else inner + 1
        elif isinstance(statement, If):
            count += sum(1 for _ in stores(statement.body))
        else:
            count += 1
    return count * (loop.extent if isinstance(loop.extent, int) else 1)


def sites(body: Sequence[Statement], buffer: Buffer) -> list[tuple[tuple[For, ...], Load]]:
    """Every load of a buffer with the loops around it."""
    found: list[tuple[tuple[For, ...], Load]] = []

    def visit(statements: Sequence[Statement], around: tuple[For, ...]) -> None:
        for statement in statements:
            for root in statement_expressions(statement):
                found.extend(
                    (around, part)
                    for part in subexpressions(root)
                    if isinstance(part, Load) and part.buffer is buffer
                )
            if isinstance(statement, For):
                visit(statement.body, (*around, statement))
            elif isinstance(statement, If):
                visit(statement.body, around)

    visit(body, ())
    return found


def by_name(items: Iterable[For]) -> Mapping[str, For]:
    """Loops by the name of their variable."""
    return {loop.var.name: loop for loop in items}
