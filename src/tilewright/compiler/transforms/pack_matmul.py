"""Matrix products with the right operand in panels.

The packed operand is read in the order the kernel multiplies; packing a constant costs nothing
at run time (`fold_constants`), packing a computed operand is a kernel of its own.  A product with
one right matrix for the whole batch becomes a single product with all rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, Final, final

from tilewright.base import dtypes, symbolic
from tilewright.base.dtypes import HALVES, f32, f64
from tilewright.base.record import record
from tilewright.base.symbolic import Dim
from tilewright.compiler.graph.editor import Editor
from tilewright.compiler.graph.ir import Node, Value
from tilewright.compiler.graph.schema import Trait
from tilewright.compiler.ops.block_products import NIBBLE, places_by_bytes, places_in_order
from tilewright.compiler.ops.contract import lies_in_panels
from tilewright.compiler.ops.contraction import (
    BYTE_PRODUCTS,
    WORD_BITS,
    WORD_PRODUCTS,
    WordProduct,
)
from tilewright.compiler.ops.shapes import element_count
from tilewright.compiler.passes import Emitter, Rewrites, merge_rewrites, need
from tilewright.compiler.transforms.block_weights import (
    BlockWeights,
    block_weights,
    packed_operands,
    rounded_rows,
)
from tilewright.compiler.transforms.byte_words import (
    are_whole,
    as_they_lie,
    in_f32,
    left_elements,
    product_of_words,
    summed_in_f32,
    whole,
    words,
)
from tilewright.compiler.transforms.contract_forms import product_in_panels
from tilewright.compiler.transforms.legalize_convolution import ChoosePanel
from tilewright.compiler.transforms.matching import is_constant, maker, picks_one, reached
from tilewright.compiler.transforms.movement_rewrites import VIEW_REWRITES
from tilewright.compiler.transforms.rewrite_pass import RewritePass
from tilewright.compiler.transforms.short_weights import (
    ALL_WIDE,
    ShortWeights,
    short_weights,
)
from tilewright.compiler.transforms.spread_images import ChooseGap

_MANY_ROWS: Final = 16
"""Rows of a product from which widening its panels in every tile takes longer than reading them twice as wide."""
_RANK: Final = 2
_WIDE_PANEL_BITS: Final = 2048
"""Of a row of a panel, half of which is two of the widest vectors: of narrower ones little is padding."""


@final
@record(kw_only=True)
class PackMatmul(RewritePass):
    """Write `matmul` as `pack_panels` and `contract`.

    A left operand of 16-bit floats becomes f32 once, since a tile reads each of its elements
    once per panel; the panels stay as they are, a conversion of theirs serves a tile of rows.
    Sums are f32 in either form.  Rows of a left operand that would crowd one set of a cache have a gap behind each, where a product makes
    them for this one alone: it stores them so.  Known weights of f32 whose values 16 bits hold are panels of 16 bits where rows are few, or may be.

    Requires: nothing.  Ensures: the left operand of a product with a single right matrix has
    rank 2; `matmul` remains where `choose_panel` gives 0, and where a computed right operand is
    used for fewer than `least_rows` rows; a product with one column of floats is the sum of each
    row times that column.
    """

    ensures: ClassVar[frozenset[str]] = frozenset({"packed"})
    choose_panel: ChoosePanel
    choose_gap: ChooseGap | None = None
    least_rows: int = 2
    products: frozenset[str] = frozenset()
    short: ShortWeights = ALL_WIDE

    def rewrites(self) -> Rewrites:
        """Sums for one column, else flatten, then pack."""
        return merge_rewrites(
            VIEW_REWRITES,
            {
                "matmul": (
                    self.in_blocks,
                    one_column,
                    flatten_rows,
                    self.summed_in_f32,
                    self.packed,
                )
            },
        )

    def in_blocks(self, node: Node, emit: Emitter) -> Value | None:
        """A product with weights that are integers in blocks reads them as words."""
        a, b = node.operand(0), node.operand(1)
        need(b.type.rank == 2 and node.attributes["dtype"] is None)
        need(a.type.dtype in (*HALVES, f32))
        weights = block_weights(b)
        if a.type.rank > 2:
            return flatten_rows(node, emit)
        depth, columns = b.type.shape
        each = WORD_BITS // weights.bits
        in_bytes = self._in_bytes(node, weights)
        # Memory decides, so panels are those of one row: a prompt and the words behind it read the same weights, and
        # tiles of many rows take parts of a panel.
        panel = self.choose_panel((1,), columns, weights.depth // each, f32, each)
        need(panel)
        left = emit.cast(a, f32)
        missing = weights.depth - depth
        if missing != 0:
            left = emit.op("pad", [left], {"pads": (0, 0, 0, missing)})
        attributes: dict[str, object] = {"columns": (columns,), "bits": weights.bits}
        if in_bytes:
            packed = packed_operands(weights, places_by_bytes(weights.bits), panel, emit)
            found = rounded_rows(left, weights, emit)
            parts = [found.words, found.factor, found.sums, *packed]
            result = emit.op("matmul_byte_blocks", parts, attributes)
        else:
            packed = packed_operands(weights, places_in_order(weights.bits), panel, emit)
            attributes["mantissa"] = weights.mantissa
            # Floats of 8 bits are made in one way on all machines, which share their kernels then.
            attributes["by_bytes"] = not weights.mantissa and "moved_bytes" in self.products
            result = emit.op("matmul_blocks", [left, *packed], attributes)
        return emit.cast(result, a.type.dtype)

    def _in_bytes(self, node: Node, weights: BlockWeights) -> bool:
        """Whether rows may be bytes, and machines multiply such weights by bytes sooner than by floats."""
        if node.attributes["rounds_to"] is not dtypes.i8 or weights.mantissa:
            return False
        if weights.bits == NIBBLE:
            return "small_bytes" in self.products
        return not self.products.isdisjoint(BYTE_PRODUCTS)

    def packed(self, node: Node, emit: Emitter) -> Value | None:
        """`a @ b` is a product of `a` and pack_panels(b)."""
        a, b = node.operand(0), node.operand(1)
        *_, rows, depth = a.type.shape
        columns = b.type.shape[-1]
        if isinstance(rows, int) and rows < self.least_rows and not _is_known(b):
            return None  # packing would read and write all that is read once
        many = not isinstance(rows, int) or rows >= self.least_rows
        widens = a.type.dtype in HALVES and many
        kind = product_of_words(node, self.products)
        if kind and are_whole(depth, WORD_PRODUCTS[kind].elements):
            return self._in_words(node, kind, emit)
        left = in_f32(a, emit) if widens else a
        left, row = self._spread(left, emit)
        panel = self.choose_panel((rows,), columns, depth, left.type.dtype, **row)
        need(panel)
        b = as_they_lie(b)
        if self._has_time_to_widen(rows):
            short = short_weights(b, self.short.dtypes, emit)
            if short is not b and not isinstance(rows, int):
                # As for blocks: a prompt and the words behind it read the same weights.
                panel = self.choose_panel((1,), columns, depth, left.type.dtype) or panel
            b = short
        if b.type.dtype is dtypes.bf16 and isinstance(rows, int) and rows >= _MANY_ROWS:
            b = emit.cast(b, dtypes.f32)
        rest: dict[str, object] = {}
        if _may_lie(b, panel, left):
            # Of an open number of columns few may be left, or all be few: a panel of them would be mostly padding.
            rest = {"least": panel // 2 + 1}
        panels = _panels(b, panel, emit, **rest)
        dtype = node.attributes["dtype"]
        if dtype is None and b.type.dtype is not left.type.dtype:
            dtype = left.type.dtype
        shape = left.type.shape
        form = product_in_panels(shape, panels.type.shape, columns, dtype=dtype, **rest)
        result = emit.op("contract", [left, panels, b] if rest else [left, panels], form)
        return emit.cast(result, node.result.type.dtype)

    def _spread(self, left: Value, emit: Emitter) -> tuple[Value, dict[str, int]]:
        """A left operand whose rows crowd no cache, and what `choose_panel` is to know of that.

        Who makes the rows stores them with a gap behind each, where a product does so for this reader alone.
        """
        if self.choose_gap is None or left.type.rank != _RANK:
            return left, {}
        rows, depth = left.type.shape
        gap = self.choose_gap((rows,), depth, 1, left.type.dtype)
        if not gap or not isinstance(depth, int) or not _is_stored_for_reader(left, emit):
            return left, {}
        pads = (*(0,) * (2 * _RANK - 1), gap)
        return emit.op("pad", [left], {"pads": pads}), {"row": depth + gap}

    def _has_time_to_widen(self, rows: Dim) -> bool:
        """Whether a tile widens what it reads while memory brings it: rows are few, or tiles of rows of open number are tall."""
        return rows < _MANY_ROWS if isinstance(rows, int) else self.short.with_open_rows

    def summed_in_f32(self, node: Node, emit: Emitter) -> Value | None:
        """A product of bf16 whose sums are f32."""
        return summed_in_f32(node, emit, self.products)

    def _in_words(self, node: Node, kind: str, emit: Emitter) -> Value | None:
        """A product of words, as many elements of the depth to a step as fill one."""
        row = WORD_PRODUCTS[kind]
        a, b = node.operand(0), whole(node.operand(1), -2, emit, row.right_bits)
        *_, rows, _ = a.type.shape
        *_, depth, columns = b.type.shape
        steps = symbolic.floordiv(depth, row.elements)
        panel = self.choose_panel((rows,), columns, steps, dtypes.i32)
        need(panel)
        panels = _panels_of_words(b, panel, row, emit)
        left = words(left_elements(node, row, emit), emit, row.left_bits)
        form = product_in_panels(left.type.shape, panels.type.shape, columns, product=kind)
        return emit.op("contract", [left, panels], form)


def _is_stored_for_reader(value: Value, emit: Emitter) -> bool:
    """Whether a product in panels makes a matrix, or what each of its elements is made of, for one reader: it stores it as that wants."""
    edit = emit.edit
    if edit.sole_user(value) is None:
        return False
    # The product, and what is computed of its elements before the matrix is there.
    made, work = set[Node](), [value]
    products: list[Node] = []
    while work:
        node = work.pop().node
        if node is None or node in made:
            continue
        if lies_in_panels(node.attributes):
            products.append(node)
        elif node.has(Trait.ELEMENTWISE) or node.has(Trait.VIEW):
            size = element_count(node.result.type.shape)
            operands = node.present_operands
            work += [x for x in operands if element_count(x.type.shape) == size]
        else:
            continue
        made.add(node)
    return any(_leads_only_to(value, product, made, edit) for product in products)


def _leads_only_to(value: Value, node: Node, made: set[Node], edit: Editor) -> bool:
    """Whether all that reads `node`, and all that reads that, is among `made`, until there is `value`."""

    def readers(current: Node) -> Iterable[Node]:
        return () if current is value.node else edit.users(current.result)

    return all(
        current in made and (current is value.node or not edit.is_output(current.result))
        for current in reached([node], readers)
    )


def _panels(b: Value, panel: int, emit: Emitter, **others: object) -> Value:
    """The panels of a right operand; filters of Winograd's are made as such, which spares a copy of them all."""
    filters = maker(b, "winograd_filter")
    if filters is not None and not filters.number("panel"):
        attributes = {**filters.attributes, "panel": panel}
        return emit.op("winograd_filter", filters.operands, attributes)
    return emit.op("pack_panels", [b], {"panel": panel, **others})


def _panels_of_words(b: Value, panel: int, row: WordProduct, emit: Emitter) -> Value:
    """Panels of words of rows; rows that lie as columns are words where they lie."""
    turned = maker(b, "transpose")
    if turned is not None and not _is_known(b):
        rank = b.type.rank
        perm = (*range(rank - 2), rank - 1, rank - 2)
        if turned.ints("perm") == perm:
            lying = words(turned.operand(), emit, row.right_bits)
            columns = emit.op("transpose", [lying], {"perm": perm})
            return emit.op("pack_panels", [columns], {"panel": panel})
    return emit.op("pack_panels", [b], {"panel": panel, "words": row.right_bits})


def _may_lie(b: Value, panel: int, left: Value) -> bool:
    """Whether a few columns behind the panels are as well read where they lie."""
    columns, dtype = b.type.shape[-1], b.type.dtype
    if isinstance(columns, int) or symbolic.is_multiple(columns, panel):
        return False
    if dtype is not left.type.dtype or dtype.bits < f32.bits:
        return False
    wide = panel * dtype.bits >= _WIDE_PANEL_BITS
    # A matrix that several others meet is read often enough for a panel.
    return wide and _lies_in_memory(b) and not _meets_several(b, left)


def _meets_several(b: Value, left: Value) -> bool:
    """Whether one right matrix is multiplied by several left ones."""
    stacked, other = left.type.shape[:-2], b.type.shape[:-2]
    aligned = (1,) * (len(stacked) - len(other)) + other[-len(stacked) or len(other) :]
    return any(y == 1 != x for x, y in zip(stacked, aligned, strict=True))


def _lies_in_memory(value: Value) -> bool:
    """Whether a kernel that packs a matrix could not make it, so that it is stored for others to read."""
    node = value.node
    while node is not None and node.has(Trait.VIEW):
        node = node.operand().node
    return node is None or not (node.has(Trait.MOVEMENT) or node.has(Trait.ELEMENTWISE))


def _is_known(value: Value) -> bool:
    """Whether folding makes the value a constant or a row of one: it is that, moved or converted."""
    if is_constant(value) or (picks_one(value) and is_constant(_stack_of(value))):
        return True
    node = maker(value, "transpose", "reshape", "mul", "cast", "slice")
    return node is not None and all(_is_known(v) for v in node.present_operands)


def _stack_of(row: Value) -> Value:
    assert row.node is not None, "picked"
    return row.node.operand()


def one_column(node: Node, emit: Emitter) -> Value | None:
    """`a @ column` sums the rows of `a * column`, along which memory is contiguous.

    A panel would be all padding but for one column.  16-bit floats would be rounded before the sum.
    """
    a, b = node.operand(0), node.operand(1)
    need(b.type.shape[-1] == 1 and a.type.dtype in (f32, f64))
    row = emit.reshape(b, (*b.type.shape[:-2], 1, b.type.shape[-2]))
    product = emit.op("mul", [a, row])
    return emit.op("reduce_sum", [product], {"axes": (-1,), "keepdims": True})


def flatten_rows(node: Node, emit: Emitter) -> Value | None:
    """A batch of rows times one matrix is one product."""
    a, b = node.operand(0), node.operand(1)
    need(all(d == 1 for d in b.type.shape[:-2]))
    need(a.type.rank >= max(b.type.rank, 3))
    matrix = emit.reshape(b, b.type.shape[-2:])
    rows = element_count(a.type.shape[:-1])
    flat = emit.reshape(a, (rows, a.type.shape[-1]))
    result = emit.op("matmul", [flat, matrix], node.attributes)
    return emit.reshape(result, node.result.type.shape)
