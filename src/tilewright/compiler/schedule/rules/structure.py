"""What a nest looks like: loops by role, the contraction inside, how much code it would be written out.

Observation only; the rules decide with it.  Where a number is needed, dimensions that are not known are
estimated (`analysis.sizes`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final, final

from tilewright.base import symbolic
from tilewright.base.dtypes import f32
from tilewright.base.record import record
from tilewright.base.symbolic import Dim, Symbol
from tilewright.compiler.analysis.accesses import update_operator
from tilewright.compiler.analysis.sizes import estimate
from tilewright.compiler.analysis.strides import depends, stride
from tilewright.compiler.kernel import ir
from tilewright.compiler.kernel.dot_products import ADDING, TILES
from tilewright.compiler.kernel.fields import parts
from tilewright.compiler.kernel.rewrite import (
    buffers_of,
    loads,
    loops,
    only_statement,
    stores,
    subexpressions,
)
from tilewright.compiler.schedule.machine_model import MachineModel
from tilewright.compiler.schedule.primitives.reduction import terms_of
from tilewright.compiler.schedule.tree import chain as perfect_nest
from tilewright.compiler.schedule.tree import loads_with_paths

FEW: Final = (2, 3, 4)
"""Elements side by side, as coordinates and colours, that fill no vector and have code of their own."""


def top_nests(kernel: ir.Kernel) -> list[ir.For]:
    """The loops at the top of a kernel."""
    return [s for s in kernel.body if isinstance(s, ir.For)]


def guarded_nests(kernel: ir.Kernel) -> list[ir.For]:
    """The loops that only guards at the top of a kernel are around."""
    found: list[ir.For] = []
    level: list[ir.Statement] = [s for s in kernel.body if isinstance(s, ir.If)]
    while level:
        inside = [s for guard in level if isinstance(guard, ir.If) for s in guard.body]
        found += [s for s in inside if isinstance(s, ir.For)]
        level = [s for s in inside if isinstance(s, ir.If)]
    return found


def parallel_chain(outer: ir.For) -> tuple[ir.For, ...]:
    """`outer` and the loops perfectly nested in it, up to the first reduction."""
    found: list[ir.For] = []
    statement: ir.Statement | None = outer
    while isinstance(statement, ir.For) and not statement.reduction:
        found.append(statement)
        statement = only_statement(statement.body)
    return tuple(found)


def strip_casts(value: ir.Expression) -> ir.Expression:
    """`value` without conversions around it."""
    while isinstance(value, ir.Cast):
        value = value.operand
    return value


def chosen_load(value: ir.Expression) -> ir.Expression:
    """`value` without conversions; of two loads between which a test chooses the first, where it is chosen."""
    value = strip_casts(value)
    if isinstance(value, ir.Select):
        first, second = strip_casts(value.if_true), strip_casts(value.if_false)
        if isinstance(first, ir.Load) and isinstance(second, ir.Load):
            return ir.Load(first.buffer, first.indices)
    return value


@final
@record
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

    left: ir.Load
    right: ir.Load
    total: ir.Store
    reductions: tuple[ir.For, ...]
    lane: ir.For
    rows: tuple[ir.For, ...]
    panels: tuple[ir.For, ...]
    batches: tuple[ir.For, ...]
    contiguous: bool

    @property
    def products(self) -> int:
        """Products of one step: numbers of the left operand that meet one word of the right."""
        left = self.left.buffer
        found = {
            part.indices
            for part in subexpressions(self.total.value)
            if isinstance(part, ir.Load) and part.buffer is left
        }
        return max(1, len(found))

    @property
    def multiplies_words(self) -> bool:
        """Whether a step adds the products of the elements of two words, in one instruction where there is one."""
        return any(
            isinstance(part, ir.Call) and part.function.name in ADDING
            for part in subexpressions(self.total.value)
        )

    @property
    def tile_instruction(self) -> str:
        """The instruction that does a step for some rows and columns at once, where machines have it; or ""."""
        for part in subexpressions(self.total.value):
            if isinstance(part, ir.Call) and part.function.name in TILES:
                return TILES[part.function.name].name
        return ""

    @property
    def rest(self) -> ir.Load | None:
        """What a test chooses in the place of the right operand, in panels that are not whole; None without a test."""
        for part in subexpressions(self.total.value):
            if isinstance(part, ir.Select) and chosen_load(part) is not part:
                other = strip_casts(part.if_false)
                return other if isinstance(other, ir.Load) else None
        return None

    @property
    def depth(self) -> int:
        """Steps of the sum, estimated."""
        return math.prod(estimate(loop.extent) for loop in self.reductions)


def groups_around(chain: Sequence[ir.For], lane: ir.For, lanes: int) -> ir.For | None:
    """The loop around a few filters of a group that fills vectors with those of the groups behind it.

    What has filters goes on where those of a group end, and what has none, channels, is picked out of a vector or two.
    """
    at, extent = chain.index(lane), lane.extent
    if at == 0 or not isinstance(extent, int) or extent < 2:
        return None
    if 2 * extent > lanes or lanes % extent:
        return None
    around, body = chain[at - 1], chain[-1].body
    for access in (*stores(body), *loads(body)):
        if access.buffer.space is not ir.Space.DEVICE:
            continue
        far, near = (stride(access, x.var.name) for x in (around, lane))
        if far == near == 0:
            continue  # one number for all of them
        if not (near == 1 and far == extent) and not (
            near == 0 and is_from_1_to(far, 2 * extent)
        ):
            return None
    return around


def is_from_1_to(number: Dim | None, most: int) -> bool:
    """Whether a stride or an extent is a known number from 1 to `most`."""
    return isinstance(number, int) and 1 <= number <= most


def find_contraction(chain: Sequence[ir.For]) -> Contraction | None:
    """The one sum of products in the innermost body of `chain`."""
    if not chain:
        return None
    sums = [s for s in loops(chain[-1].body) if s.reduction]
    outer = [s for s in chain[-1].body if isinstance(s, ir.For)]
    if len(outer) != 1 or not sums or outer[0] is not sums[0]:
        return None
    reductions = perfect_nest(outer[0])
    store = only_statement(reductions[-1].body)
    if not isinstance(store, ir.Store) or update_operator(store) != "add":
        return None
    operands = _factors(store, reductions[-1])
    if operands is None:
        return None
    found = [
        roles
        for right, left in (operands, operands[::-1])
        if (roles := _roles(chain, reductions, store, left, right)) is not None
    ]
    # Of two words either may be the row's: the columns' are those that lie as results do.
    if len(found) > 1 and not found[0].contiguous and _lies_as_results(found[1], chain):
        return found[1]
    return found[0] if found else None


def _lies_as_results(found: Contraction, chain: Sequence[ir.For]) -> bool:
    """Whether the right operand and what is written are contiguous along the same loop."""
    written = [x for x in stores(chain[-1].body) if x.buffer.space is ir.Space.DEVICE]
    lane = found.lane.var.name
    return found.contiguous and any(stride(x, lane) == 1 for x in written)


def _factors(store: ir.Store, step: ir.For | None = None) -> tuple[ir.Load, ir.Load] | None:
    """The two loads whose product is added, as (second, first); `step` is the innermost loop of the sum."""
    value = store.value
    if not isinstance(value, ir.Binary):
        return None
    found = _product(value.right) or _product(value.left)
    if found is None:
        return None
    a, b = map(chosen_load, found)
    if isinstance(a, ir.Load) and isinstance(b, ir.Load):
        return b, a
    return _factors_of_word(a, b, step) or _factors_of_word(b, a, step)


def _factors_of_word(
    total: ir.Expression, scale: ir.Expression, step: ir.For | None
) -> tuple[ir.Load, ir.Load] | None:
    """What is multiplied where a step is the sum of some products, `total`, times a number of many steps.

    Products of the bytes in words cannot be mistaken for that number, so it may be one of each step, or a product.
    """
    is_of_words = any(
        isinstance(part, ir.Call) and part.function.name in ADDING
        for part in subexpressions(total)
    )
    if not is_of_words and not _is_of_many_steps(scale, step):
        return None
    first, *more = terms_of(total)
    product = _product(first) if more else None
    if product is None:
        return None
    for x, y in (product, product[::-1]):
        left = strip_casts(x)
        words = [part for part in subexpressions(y) if isinstance(part, ir.Load)]
        if step is not None:
            words = [load for load in words if depends(load, step.var.name)]
        if isinstance(left, ir.Load) and len({load.buffer for load in words}) == 1:
            return words[0], left
    return None


def _is_of_many_steps(scale: ir.Expression, step: ir.For | None) -> bool:
    """Whether a factor is a number that is loaded for many steps of the sum, or such a number times a constant."""
    if (
        isinstance(scale, ir.Binary)
        and scale.op == "mul"
        and isinstance(scale.right, ir.Const)
    ):
        scale = scale.left
    return isinstance(scale, ir.Load) and (
        step is None or not depends(scale, step.var.name)
    )


def _product(value: ir.Expression) -> tuple[ir.Expression, ir.Expression] | None:
    """What is multiplied: two numbers, or the bytes of two words."""
    product = strip_casts(value)
    if isinstance(product, ir.Binary) and product.op == "mul":
        return product.left, product.right
    if isinstance(product, ir.Call) and product.function.name in ADDING:
        return product.operands[0], product.operands[1]
    return None


def sums_of_products(loop: ir.For) -> list[ir.Store]:
    """The stores inside of a loop that add a product of two loads to what a reduction sums up."""
    found = (only_statement(x.body) for x in loops((loop,)) if x.reduction)
    return [x for x in found if isinstance(x, ir.Store) and is_sum_of_products(x)]


def is_sum_of_products(store: ir.Store) -> bool:
    """Whether a store adds the product of two loads."""
    return update_operator(store) == "add" and _factors(store) is not None


def _roles(
    chain: Sequence[ir.For],
    reductions: tuple[ir.For, ...],
    total: ir.Store,
    left: ir.Load,
    right: ir.Load,
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


# --- how much there is ------------------------------------------------------------------------


def written_size(value: ir.Expression) -> int:
    """The nodes of an expression written out: parts that are shared count wherever they stand.

    What is printed and what code is made for; it may be exponential in the nodes that there are.
    """
    return _written_out(value, lambda _: 1, {})


def written_uses(body: Sequence[ir.Statement], buffer: ir.Buffer) -> int:
    """How often a buffer is read in a body written out."""
    memo: dict[int, int] = {}

    def reads(part: ir.Expression) -> int:
        return int(isinstance(part, ir.Load) and part.buffer is buffer)

    return sum(
        _written_out(root, reads, memo)
        for statement in ir.walk([s for s in body if buffer in buffers_of(s)])
        for root in parts(statement)
    )


def _written_out(
    root: ir.Expression, weight: Callable[[ir.Expression], int], memo: dict[int, int]
) -> int:
    """The weights of all parts, shared ones each time.  `memo` is that of one `weight`."""
    stack = [root]
    while stack:
        part = stack[-1]
        below = parts(part)
        open_parts = [p for p in below if id(p) not in memo]
        if open_parts:
            stack.extend(open_parts)
            continue
        memo[id(part)] = weight(part) + sum(memo[id(p)] for p in below)
        stack.pop()
    return memo[id(root)]


def numbers_of(size: Dim, numbers: Sequence[int] = FEW) -> list[int]:
    """Of some numbers those that a size which only a call knows may be, each for code of its own."""
    if not isinstance(symbolic.only_atom(size), Symbol):
        return []
    low, high = symbolic.bounds(size)
    return [n for n in numbers if (low or 0) <= n <= (n if high is None else high)]


def short_axis(machine: MachineModel) -> int:
    """Elements up to which a row is too short for lanes of its own; rows side by side fill them.

    As many as the code generator picks out of whole vectors (`MAX_WIDE_STRIDE`), and no more than
    half a vector.  One number for all types: the order of a sum goes by it.
    """
    return max(4, min(8, machine.lanes(f32) // 2))


def sites(
    body: Sequence[ir.Statement], buffer: ir.Buffer
) -> list[tuple[tuple[ir.For, ...], ir.Load]]:
    """Every load of a buffer with the loops around it."""
    return [
        (tuple(s for s in path if isinstance(s, ir.For)), load)
        for path, _, load in loads_with_paths(body, buffer)
    ]
