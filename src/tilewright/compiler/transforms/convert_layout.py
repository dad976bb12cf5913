"""Channels last: image ops run on N…C, transposes stand at the border and cancel in between.

Every op with a layout becomes its N…C form between two transposes.  The one behind it is then
pushed down through everything that can run on permuted axes, until it meets the one in front of
the next such op, and both vanish.  1-D convolutions become 2-D ones of height 1.  Weights keep
their order (packing is `legalize_convolution`).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import ClassVar, Final, final

from tilewright.base.record import record
from tilewright.compiler.graph.ir import Graph, Node, Value
from tilewright.compiler.graph.schema import Trait
from tilewright.compiler.passes import (
    Emitter,
    PassContext,
    PassResult,
    Rewrites,
    given,
    merge_rewrites,
    need,
)
from tilewright.compiler.transforms.matching import (
    dim_groups,
    inverse,
    is_constant,
    made,
    maker,
    permuted,
    splat_of,
    to_channels_first,
    to_channels_last,
)
from tilewright.compiler.transforms.movement_rewrites import VIEW_REWRITES
from tilewright.compiler.transforms.rewrite_pass import RewritePass


@final
@record(kw_only=True)
class ConvertLayout(RewritePass):
    """Run convolutions, pooling, resizing and what is between them on channels-last tensors.

    Requires: simplified.  Ensures: no `conv` or `conv_transpose` in NCHW, none of rank 3;
    transposes between them only where some op cannot run on permuted axes.
    """

    requires: ClassVar[frozenset[str]] = frozenset({"simplified"})
    ensures: ClassVar[frozenset[str]] = frozenset({"channels-last"})

    def rewrites(self) -> Rewrites:
        """Ops with a layout, and what their transposes go through."""
        return _REWRITES

    def run(self, graph: Graph, context: PassContext) -> PassResult:
        """Nothing to do without a convolution or pooling."""
        if not any("layout" in node.attributes for node in graph.nodes):
            return PassResult(modified=False)
        return RewritePass.run(self, graph, context)


# --- ops with a layout -----------------------------------------------------------------------


def conv_to_2d(node: Node, emit: Emitter) -> Value | None:
    """A 1-D convolution is a 2-D one of height 1."""
    if not _is_convolution(node) or node.attributes["layout"] != "NCHW":
        return None
    x, w = node.operand(0), node.operand(1)
    need(x.type.rank == 3)
    n, c, width = x.type.shape
    tall_x = emit.reshape(x, (n, c, 1, width))
    rows, columns, taps = w.type.shape
    tall_w = emit.reshape(w, (rows, columns, 1, taps))
    operands = [tall_x, tall_w, *node.operands[2:]]
    result = emit.op(node.op, operands, attributes_in_2d(node))
    return emit.reshape(result, node.result.type.shape)


def attributes_in_2d(node: Node) -> dict[str, object]:
    """What a 1-D convolution says of its window, for one of height 1."""
    attributes = dict(node.attributes)
    for name, unit in (("strides", 1), ("dilations", 1), ("output_padding", 0)):
        if node.ints(name) if name in attributes else ():
            attributes[name] = (unit, *node.ints(name))
    if node.ints("pads"):
        begin, end = node.ints("pads")
        attributes["pads"] = (0, begin, 0, end)
    return attributes


def to_nhwc(node: Node, emit: Emitter) -> Value | None:
    """An op with a layout, on transposed data."""
    if node.attributes.get("layout") != "NCHW" or len(node.results) != 1:
        return None
    x = node.operand()
    rank = x.type.rank
    need(rank >= 3)
    source = channels_last_source(x)
    need(source is not None or _is_better_last(node, emit))
    if source is None:
        source = emit.op("transpose", [x], {"perm": to_channels_last(rank)})
    attributes = {**node.attributes, "layout": "NHWC"}
    result = emit.op(node.op, [source, *node.operands[1:]], attributes)
    return channels_first(result, emit)


def _is_better_last(node: Node, emit: Emitter) -> bool:
    """Whether channels-first data is worth moving; a channel that is a row is well where it is."""
    if _is_convolution(node):
        return True
    is_row = node.has(Trait.ROWWISE)
    return not is_row and any(map(_is_convolution, emit.edit.graph.nodes))


def _is_convolution(node: Node) -> bool:
    return node.has(Trait.CONTRACTION) and "layout" in node.attributes


def channels_last_source(value: Value) -> Value | None:
    """`x` when `value` is x, channels last, seen channels first."""
    node = maker(value, "transpose")
    if node is None or value.type.rank < 3:
        return None
    return (
        node.operand() if node.ints("perm") == to_channels_first(value.type.rank) else None
    )


def channels_first(value: Value, emit: Emitter) -> Value:
    """A channels-last value, seen channels first."""
    return emit.op("transpose", [value], {"perm": to_channels_first(value.type.rank)})


# --- sinking through ops ---------------------------------------------------------------------


def _as_channels_last(value: Value, rank: int, emit: Emitter) -> Value | None:
    """`value`, an operand next to channels-first data of `rank`, for channels-last data.

    None when that would move real data of some size.
    """
    if all(d == 1 for d in value.type.shape):
        return value
    ones = [1] * (rank - value.type.rank)
    padded = emit.reshape(value, (*ones, *value.type.shape))
    source = channels_last_source(padded)
    if source is not None:
        return source
    perm = to_channels_last(rank)
    long_axes = [p for p in perm if padded.type.shape[p] != 1]
    moves_nothing = long_axes == sorted(long_axes)
    known = is_constant(value) or splat_of(value) is not None
    if not known and not moves_nothing:
        return _moved_already(padded, perm, emit)
    return emit.op("transpose", [padded], {"perm": perm})


def _moved_already(value: Value, perm: tuple[int, ...], emit: Emitter) -> Value | None:
    """The same data in channels-last order, where some other op asked for it before."""
    for user in emit.edit.users(value):
        if user.op == "transpose" and user.ints("perm") == perm:
            return user.result
    return None


def sink(node: Node, emit: Emitter) -> Value | None:
    """f(first(x), …) is first(g(x, …)), where g is f with the attributes that its row gives."""
    layout = node.schema.layout
    if layout is None or len(node.results) != 1:
        return None
    operands = _sources(node, emit, aligned=layout.aligned)
    if operands is None:
        return None
    # Where axis i of channels-first data stands in channels-last data.
    ranked = node.result if layout.aligned else node.operand()
    place = to_channels_first(ranked.type.rank)
    attributes = given(layout.moved(node.operand_types, node.attributes, place))
    result = emit.op(node.op, operands, attributes)
    lost = layout.reduced(node.attributes, len(place)) if layout.reduced else ()
    moved = _as_before(result, [p for a, p in enumerate(place) if a not in lost], emit)
    return moved if moved.type == node.result.type else None


def _sources(node: Node, emit: Emitter, *, aligned: bool) -> list[Value | None] | None:
    """The operands, channels last: all that are `aligned`, else the first."""
    if not aligned:
        source = None if not node.operands else channels_last_source(node.operand())
        return None if source is None else [source, *node.operands[1:]]
    if not any(channels_last_source(v) for v in node.present_operands):
        return None
    rank = node.result.type.rank
    operands: list[Value | None] = []
    for value in node.operands:
        fits = value is not None and value.type.rank <= rank
        converted = _as_channels_last(value, rank, emit) if value and fits else None
        need(value is None or converted is not None)
        operands.append(converted)
    return operands


def _as_before(result: Value, places: Sequence[int], emit: Emitter) -> Value:
    """A result whose axes lie in the order of `places`, with the axes in order."""
    perm = tuple(sorted(places).index(p) for p in places)
    if perm == tuple(range(len(perm))):
        return result
    return emit.op("transpose", [result], {"perm": perm})


def sink_reshape(node: Node, emit: Emitter) -> Value | None:
    """reshape(first(x)) is a permutation of reshape(x) when no group of axes is torn apart."""
    source = given(channels_last_source(node.operand()))
    perm = to_channels_first(source.type.rank)
    groups = given(dim_groups(node.operand().type.shape, node.result.type.shape))
    placed: list[tuple[int, tuple[int, ...]]] = []
    at = 0
    for mine, theirs in groups:
        places = [perm[a] for a in mine if node.operand().type.shape[a] != 1]
        need(not any(b != a + 1 for a, b in pairwise(places)))
        at = places[0] if places else at
        placed.append((at, theirs))
    placed.sort(key=lambda entry: entry[0])
    order = [axis for _, axes in placed for axis in axes]
    shape = permuted(node.result.type.shape, order)
    back = inverse(order)
    block = is_channel_block(back)
    need(block or back == tuple(range(len(back))))
    result = emit.reshape(source, shape)
    return result if not block else emit.op("transpose", [result], {"perm": back})


def is_channel_block(perm: Sequence[int]) -> bool:
    """Whether the permutation moves trailing axes, in order, behind the first axis."""
    rank = len(perm)
    return any(
        tuple(perm) == (0, *range(rank - c, rank), *range(1, rank - c))
        for c in range(1, rank - 1)
    )


def shuffle_channels(node: Node, emit: Emitter) -> Value | None:
    """A permutation within the channel axes happens before they are moved in front."""
    outer = made(node.operand(), "transpose")
    need(is_channel_block(outer.ints("perm")))
    block, perm = outer.ints("perm"), node.ints("perm")
    rank, count = len(perm), _block_size(block)
    need(count >= 2 and perm[0] == 0)
    need(perm[count + 1 :] == tuple(range(count + 1, rank)))
    start = rank - count
    inner = (*range(start), *(start + p - 1 for p in perm[1 : count + 1]))
    moved = emit.op("transpose", [outer.operand()], {"perm": inner})
    return emit.op("transpose", [moved], {"perm": block})


def _block_size(block: Sequence[int]) -> int:
    return len(block) - block[1]


def merge_channel_block(node: Node, emit: Emitter) -> Value | None:
    """A reshape that merges the channel axes of a moved block happens before the move."""
    outer = made(node.operand(), "transpose")
    need(is_channel_block(outer.ints("perm")))
    block, shape = outer.ints("perm"), node.result.type.shape
    size, rank = _block_size(block), len(block)
    need(dim_groups(node.operand().type.shape, shape) is not None and size >= 2)
    need(len(shape) == rank - size + 1)
    x = outer.operand()
    target = (*x.type.shape[: rank - size], shape[1])
    merged_first = (x.type.shape[0], shape[1], *x.type.shape[1 : rank - size])
    need(merged_first == shape)
    return channels_first(emit.reshape(x, target), emit)


_REWRITES: Final[Rewrites] = merge_rewrites(
    {"transpose": (shuffle_channels,), "reshape": (merge_channel_block, sink_reshape)},
    VIEW_REWRITES,
    {"*": (conv_to_2d, to_nhwc, sink)},
)
