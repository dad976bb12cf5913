"""Convolutions in the forms that kernels are written for.

Padding becomes a `pad` in front, which fuses into the producer's store; 1x1 becomes a matmul;
the rest becomes `contract`, with a filter for each channel or with weights in panels;
a transposed convolution becomes several ordinary ones (`split_phases`).
How wide a panel is, the caller says (`choose_panel`): the target is not known here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, Final, final

from tilewright.base import dtypes, symbolic
from tilewright.base.dtypes import HALVES, DType
from tilewright.base.record import record
from tilewright.base.symbolic import Dim
from tilewright.compiler.graph.ir import Node, Value
from tilewright.compiler.ops.contraction import WORD_PRODUCTS, per_word
from tilewright.compiler.ops.shapes import element_count
from tilewright.compiler.passes import Emitter, Rewrites, merge_rewrites, need
from tilewright.compiler.transforms.byte_words import (
    as_they_lie,
    in_f32,
    left_elements,
    product_of_words,
    summed_in_f32,
    whole,
    words,
)
from tilewright.compiler.transforms.contract_forms import (
    Window,
    convolution_in_panels,
    depthwise_convolution,
    grouped_convolution,
)
from tilewright.compiler.transforms.fold_scales import bias_apart
from tilewright.compiler.transforms.matching import fixed
from tilewright.compiler.transforms.movement_rewrites import VIEW_REWRITES
from tilewright.compiler.transforms.planar_convolution import as_planar, can_be_planar
from tilewright.compiler.transforms.rewrite_pass import RewritePass
from tilewright.compiler.transforms.split_blocks import split_blocks
from tilewright.compiler.transforms.split_phases import split_phases
from tilewright.compiler.transforms.spread_images import ChooseGap, spread_image

# (extents of the loops over rows, columns, depth, dtype, products in a step of the depth: 1 where that is not
# said) -> columns per panel; 0 leaves the right operand as it is
ChoosePanel = Callable[..., int]
_SMALLEST_PANEL = 4
_MANY: Final = 1 << 10
_MOST_REPEATS: Final = 4
"""Filters for every channel up to which repeating the channels costs less than narrow panels."""


@final
@record(kw_only=True)
class LegalizeConvolution(RewritePass):
    """Write convolutions as padding and one of three forms.

    Requires: channels-last.  Ensures: no `conv` and no float `conv_transpose` remains; what they
    became reads input that is padded; weights are packed by nodes that `fold_constants` folds.
    """

    requires: ClassVar[frozenset[str]] = frozenset({"channels-last"})
    ensures: ClassVar[frozenset[str]] = frozenset({"convolutions-legal"})
    choose_panel: ChoosePanel
    choose_gap: ChooseGap | None = None
    products: frozenset[str] = frozenset()

    def rewrites(self) -> Rewrites:
        """Bias and padding apart, then the form."""
        form = (
            bias_apart, self.with_places_in_lanes, pad_apart, as_matmul, as_depthwise, single_filter,
            self.summed_in_f32, self.as_packed,
        )  # fmt: skip
        split = {"conv_transpose": (split_phases,), "col2im": (split_blocks,)}
        return merge_rewrites(VIEW_REWRITES, {"conv": form, **split})

    def with_places_in_lanes(self, node: Node, emit: Emitter) -> Value | None:
        """A convolution whose filters would leave lanes empty, which its places fill."""
        need(can_be_planar(node) and node.attributes["dtype"] is None)
        x, w = node.operand(0).type, node.operand(1).type
        dtype = dtypes.f32 if x.dtype in HALVES else x.dtype
        lanes = self.choose_panel((_MANY,), 1, element_count(w.shape[1:]), dtype)
        filters = fixed(w.shape[0])
        need(lanes)
        columns = 1 if _has_single_filter(node) else -(-filters // lanes) * lanes
        return as_planar(node, emit, lanes, columns)

    def summed_in_f32(self, node: Node, emit: Emitter) -> Value | None:
        """A convolution of bf16 whose sums are f32."""
        return summed_in_f32(node, emit, self.products) if _is_legal(node) else None

    def as_packed(self, node: Node, emit: Emitter) -> Value | None:
        """A convolution with weights in panels."""
        need(_is_legal(node))
        x, w = node.operand(0), node.operand(1)
        groups, _, depth, kernel = _weight_shape(node)
        rows = node.result.type.shape[:-1]
        count = _filters_of_a_group(node)
        taps = element_count(kernel) * depth
        kind = product_of_words(node, self.products)
        if kind and (groups == 1 or symbolic.mod(depth, WORD_PRODUCTS[kind].elements) == 0):
            return self._in_words(node, kind, rows, emit)
        # Halves are multiplied as f32, and converted once: a tile reads each element once per panel and tap.
        if x.type.dtype in HALVES:
            x = in_f32(x, emit)
        w = emit.cast(w, dtypes.f32) if w.type.dtype is dtypes.bf16 else w
        if self._leaves_lanes_empty(groups, count, depth, x.type.dtype):
            result = _side_by_side(node, x, w, emit)
        else:
            x, window = spread_image(node, x, _window(node), self.choose_gap, emit)
            row = {} if x.type.shape[-1] == depth * groups else {"row": x.type.shape[-1]}
            panel = self.choose_panel(rows, count, taps, x.type.dtype, **row)
            packed = _pack(as_they_lie(w), groups, count, panel or _SMALLEST_PANEL, emit)
            dtype = node.attributes["dtype"]
            result = _in_panels(node, x, packed, emit, window, dtype=dtype)
        return emit.cast(result, node.result.type.dtype)

    def _leaves_lanes_empty(
        self, groups: int, filters: Dim, depth: Dim, dtype: DType
    ) -> bool:
        """Whether the filters of a group fill at most half a vector, and those of several groups all of it.

        Their channels, which then are picked out of vectors, lie near each other.
        """
        if groups == 1 or not isinstance(filters, int) or not isinstance(depth, int):
            return False
        if filters == 1 or filters & (filters - 1) or depth > 2 * filters:
            return False
        lanes = self.choose_panel((_MANY,), 1, depth, dtype)
        return 2 * filters <= lanes <= groups * filters

    def _in_words(self, node: Node, kind: str, rows: Sequence[Dim], emit: Emitter) -> Value:
        """A convolution of words: as many channels of a tap to a step as fill one."""
        row = WORD_PRODUCTS[kind]
        x, w = left_elements(node, row, emit), node.operand(1)
        w = whole(w, 1, emit, row.right_bits)
        groups = node.number("groups")
        count = _filters_of_a_group(node)
        steps = symbolic.floordiv(element_count(w.type.shape[1:]), row.elements)
        panel = self.choose_panel(rows, count, steps, dtypes.i32) or _SMALLEST_PANEL
        packed = _pack(w, groups, count, panel, emit, words_of=row.right_bits)
        left = words(x, emit, row.left_bits)
        return _in_panels(node, left, packed, emit, _window(node), product=kind)


def _in_panels(
    node: Node,
    x: Value,
    packed: Value,
    emit: Emitter,
    window: Window,
    **attributes: object,
) -> Value:
    """The convolution that `node` is, of packed weights and an image that `window` reads."""
    filters = node.operand(1).type.shape[0]
    form = convolution_in_panels(
        x.type.shape, packed.type.shape, filters, window,
        groups=node.number("groups"), **attributes,
    )  # fmt: skip
    return emit.op("contract", [x, packed], form)


def _window(node: Node) -> Window:
    return Window(node.ints("strides"), node.ints("dilations"))


def _is_legal(node: Node) -> bool:
    channels_last = node.attributes["layout"] == "NHWC"
    plain = node.optional_operand(2) is None and not any(node.ints("pads"))
    return channels_last and plain


def _weight_shape(node: Node) -> tuple[int, Dim, Dim, tuple[Dim, ...]]:
    """Groups, filters, channels per group and kernel of a conv node."""
    filters, depth, *kernel = node.operand(1).type.shape
    return node.number("groups"), filters, depth, tuple(kernel)


def _filters_of_a_group(node: Node) -> Dim:
    """How many filters a group has.  Raises: NoMatchError where only a call knows that of several groups."""
    groups, filters, *_ = _weight_shape(node)
    return filters if groups == 1 else fixed(filters) // groups


def pad_apart(node: Node, emit: Emitter) -> Value | None:
    """A padded convolution is a pad by zero and a convolution."""
    x, pads = node.operand(), node.ints("pads")
    need(node.attributes["layout"] == "NHWC" and any(pads))
    rank = x.type.rank - 2
    amounts = (0, *pads[:rank], 0, 0, *pads[rank:], 0)
    padded = emit.op("pad", [x], {"pads": amounts})
    return emit.op("conv", [padded, *node.operands[1:]], {**node.attributes, "pads": ()})


def as_matmul(node: Node, emit: Emitter) -> Value | None:
    """A 1x1 convolution of stride 1 is a matmul of pixels and channels."""
    groups, filters, depth, kernel = _weight_shape(node)
    strided = any(s != 1 for s in node.ints("strides"))
    need(_is_legal(node) and groups == 1 and not strided)
    need(all(k == 1 for k in kernel))
    x, w = node.operand(0), node.operand(1)
    rows = element_count(x.type.shape[:-1])
    flat = emit.reshape(x, (rows, depth))
    table = emit.reshape(w, (filters, depth))
    columns = emit.op("transpose", [table], {"perm": (1, 0)})
    attributes = {"dtype": node.attributes["dtype"]}
    result = emit.op("matmul", [flat, columns], attributes)
    return emit.reshape(result, node.result.type.shape)


def as_depthwise(node: Node, emit: Emitter) -> Value | None:
    """A convolution whose filters see one channel each; channels with several are repeated."""
    groups, filters, depth, _ = _weight_shape(node)
    times = fixed(filters) // groups
    need(_is_legal(node) and depth == 1 and times <= _MOST_REPEATS)
    need(groups != 1 or times == 1)
    x, w = node.operand(0), node.operand(1)
    if times > 1:
        *places, _ = x.type.shape
        single = emit.reshape(x, (*places, groups, 1))
        several = emit.op("broadcast_to", [single], {"shape": (*places, groups, times)})
        x = emit.reshape(several, (*places, filters))
    return _depthwise(node, x, w, emit)


def _depthwise(node: Node, x: Value, w: Value, emit: Emitter) -> Value:
    """`x` with one filter for each channel, whose weights stand in `w` in their order."""
    *_, channels = x.type.shape
    kernel = w.type.shape[2:]
    plain = emit.reshape(w, (channels, *kernel))
    last = emit.op("transpose", [plain], {"perm": (*range(1, len(kernel) + 1), 0)})
    dtype = node.attributes["dtype"]
    form = depthwise_convolution(x.type.shape, last.type.shape, _window(node), dtype=dtype)
    return emit.op("contract", [x, last], form)


def single_filter(node: Node, emit: Emitter) -> Value | None:
    """A convolution with one filter for each group of several channels is a sum over these of a depthwise one.

    Lanes run along the channels of all groups; a panel of one column would leave all lanes but one empty.  16-bit
    floats are rounded after the sum.
    """
    need(_is_legal(node) and _has_single_filter(node))
    x, w = node.operand(0), node.operand(1)
    if x.type.dtype in HALVES:
        x, w = (emit.cast(value, dtypes.f32) for value in (x, w))
    each, groups = _depthwise(node, x, w, emit), node.number("groups")
    if groups > 1:
        *places, _ = each.type.shape
        each = emit.reshape(each, (*places, groups, w.type.shape[1]))
    last = {"axes": (each.type.rank - 1,), "keepdims": groups == 1}
    return emit.cast(emit.op("reduce_sum", [each], last), node.result.type.dtype)


def _side_by_side(node: Node, x: Value, w: Value, emit: Emitter) -> Value:
    """The convolution with the filters of several groups side by side in lanes."""
    groups, filters, depth, kernel = _weight_shape(node)
    rank = len(kernel)
    last = emit.op("transpose", [w], {"perm": (*range(2, rank + 2), 1, 0)})
    each = symbolic.floordiv(filters, groups)
    table = emit.reshape(last, (*kernel, depth, groups, each))
    form = grouped_convolution(
        x.type.shape, table.type.shape, _window(node), dtype=node.attributes["dtype"]
    )
    return emit.op("contract", [x, table], form)


def _has_single_filter(node: Node) -> bool:
    """Whether each group of a convolution has one filter, over one channel or so many that all of them fill lanes."""
    groups, filters, depth, _ = _weight_shape(node)
    if filters != groups or not isinstance(depth, int):
        return False
    return depth == 1 or groups * depth >= _SMALLEST_PANEL


def _pack(
    w: Value, groups: int, count: Dim, panel: int, emit: Emitter, *, words_of: int = 0
) -> Value:
    """Weights [G*count, C, kernel…] as [G, P, kernel…, C, panel]; with `words_of` so many bits, channels of those."""
    _, depth, *kernel = w.type.shape
    spatial = range(3, 3 + len(kernel))
    grouped = emit.reshape(w, (groups, count, depth, *kernel))
    rows = emit.op("transpose", [grouped], {"perm": (0, *spatial, 2, 1)})
    taps = element_count(kernel) * depth
    matrix = emit.reshape(rows, (groups, taps, count))
    panels = emit.op("pack_panels", [matrix], {"panel": panel, "words": words_of})
    if words_of:
        depth = symbolic.floordiv(depth, per_word(w.type.dtype, words_of))
    shape = (groups, panels.type.shape[1], *kernel, depth, panel)
    return emit.reshape(panels, shape)
