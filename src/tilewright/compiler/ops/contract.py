"""Sums of products of two operands as kernels want them: one op, told by index maps.

`matmul`, `conv` and their like say what a model means.  `contract` says where operands lie: in panels, with
channels last, as words of four bytes.  An axis is a loop; a map says which element each operand gives at a step of all
loops, as sums of axes times numbers.  A convolution of stride 2 in panels of 16 filters is

    axes: n, oh, ow, p, l       sums: kh, kw, c
    left: n, 2*oh + kh, 2*ow + kw, c
    right: p, kh, kw, c, l      result: n, oh, ow, 16*p + l

Sizes of axes are those of the dimensions that they index alone.  What falls behind the end of the result, such as the
columns that fill the last panel, is not stored.

A last panel of fewer than `least` columns may be left out: then the matrix is the operand `rest`, whose columns behind
the panels are read where they lie.

Source: the index maps are those of `linalg.generic` (MLIR) with two operands and one sum.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import string
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, cast, final

import numpy as np

from tilewright.base import symbolic
from tilewright.base.dtypes import NUMERIC, DType
from tilewright.base.errors import ModelError, TilewrightError
from tilewright.base.record import record
from tilewright.base.symbolic import Dim, Expr
from tilewright.compiler.graph.schema import Attributes, TensorType
from tilewright.compiler.kernel.builder import KernelBuilder, Source
from tilewright.compiler.kernel.ir import Expression
from tilewright.compiler.ops.bodies import Operands, Results, given, maybe
from tilewright.compiler.ops.contraction import (
    CONTRACTION,
    PRODUCT,
    accumulator_dtype,
    elements_of,
    product,
    settled,
    widened,
    word_product,
)
from tilewright.compiler.ops.declaration import Types, attr, declare, operand, optional
from tilewright.compiler.ops.shapes import check_at_most, check_same, element_count, need

Map = tuple[Dim, ...]
_MAPS: Final = ("axes", "sums", "left", "right", "result")


@final
@record
class IndexMaps:
    """Which loops there are, and what they read and write.

    Attributes:
        axes: loops whose every step has a sum of its own, the outermost first.
        sums: loops that add to a sum, the outermost first.
        left, right, result: an index for each dimension, made of the names of axes.
    """

    axes: tuple[str, ...]
    sums: tuple[str, ...]
    left: Map
    right: Map
    result: Map

    def attributes(self) -> dict[str, object]:
        """As attributes of the op."""
        return {
            "axes": ", ".join(self.axes),
            "sums": ", ".join(self.sums),
            "left": _written(self.left),
            "right": _written(self.right),
            "result": _written(self.result),
        }


def _written(indices: Map) -> str:
    # Sums print in brackets, which between commas say nothing.
    return ", ".join(str(index).removeprefix("(").removesuffix(")") for index in indices)


def axis(name: str) -> Expr:
    """A loop, as maps name it."""
    return symbolic.symbol(name)


def maps_of(attributes: Attributes) -> IndexMaps:
    """The maps in a node's attributes.  Raises: ModelError for what are none."""
    return _read(*(cast("str", attributes[name]) for name in _MAPS))


def _has_maps(attributes: Attributes) -> bool:
    """Whether attributes are those of a contraction: other ops have axes, too."""
    return all(name in attributes for name in _MAPS)


@functools.lru_cache(maxsize=512)
def _read(axes: str, sums: str, left: str, right: str, result: str) -> IndexMaps:
    maps = IndexMaps(
        _read_names(axes), _read_names(sums), *map(_read_map, (left, right, result))
    )
    names = (*maps.axes, *maps.sums)
    if len(set(names)) != len(names) or len(names) >= len(_LETTERS):
        raise ModelError(f"contract: '{axes}' and '{sums}' are no loops")
    read = {name for index in (*maps.left, *maps.right) for name, _ in _terms(index)}
    stored = {name for index in maps.result for name, _ in _terms(index)}
    if read != set(names):
        raise ModelError(
            f"contract: operands are read at {sorted(read)}, loops are {sorted(names)}"
        )
    if not stored <= set(maps.axes):
        raise ModelError(
            f"contract: results lie at {sorted(stored)}, axes are {sorted(maps.axes)}"
        )
    return maps


_LETTERS: Final = string.ascii_letters


def _read_names(text: str) -> tuple[str, ...]:
    return tuple(filter(None, map(str.strip, text.split(","))))


def _read_map(text: str) -> Map:
    try:
        return tuple(symbolic.parse(part) for part in text.split(","))
    except TilewrightError as error:
        raise ModelError(f"contract: '{text}' is no index map: {error.message}") from error


@functools.lru_cache(maxsize=512)
def _terms(index: Dim) -> tuple[tuple[str, int], ...]:
    """The axes of an index with their factors.  Raises: ModelError for one that is no sum of axes."""
    found: list[tuple[str, int]] = []
    rest = index
    for name in sorted(s.name for s in symbolic.symbols(index)):
        split = symbolic.linear(rest, name)
        if split is None or not isinstance(split[0], int) or split[0] < 1:
            raise ModelError(f"contract: '{index}' is no sum of axes times numbers")
        found.append((name, split[0]))
        rest = split[1]
    if not isinstance(rest, int) or rest < 0:
        raise ModelError(f"contract: '{index}' is no sum of axes times numbers")
    return tuple(found)


def _constant(index: Dim) -> int:
    return symbolic.evaluate(index, dict.fromkeys((n for n, _ in _terms(index)), 0))


def axis_sizes(
    maps: IndexMaps, left: Sequence[Dim], right: Sequence[Dim], result: Sequence[Dim]
) -> dict[str, Dim]:
    """How often each loop runs.  Rows of the left operand may be longer than the sum: nobody reads what is behind it.

    Raises: ModelError for ranks that do not fit, sizes that differ, a loop without a size, reads behind an end.
    """
    shapes = ((maps.right, right), (maps.left, left), (maps.result, result))
    for indices, shape in shapes:
        if len(indices) != len(shape):
            raise ModelError(
                f"contract: {len(indices)} indices for {len(shape)} dimensions"
            )
    sizes: dict[str, Dim] = {}
    for indices, shape in shapes:
        for index, size in zip(indices, shape, strict=True):
            name = str(index)
            if isinstance(index, int) or _terms(index) != ((name, 1),):
                continue
            if indices is maps.left and name in maps.sums and name in sizes:
                continue  # how far it is read is checked below
            check_same(f"the sizes of axis '{name}'", sizes.setdefault(name, size), size)
    for name in (*maps.axes, *maps.sums):
        if name not in sizes:
            raise ModelError(f"contract: no operand says how often '{name}' runs")
    _check_reads(maps, sizes, left, right)
    _check_places(maps, sizes)
    return sizes


def _check_reads(
    maps: IndexMaps, sizes: Mapping[str, Dim], left: Sequence[Dim], right: Sequence[Dim]
) -> None:
    reads = (*zip(maps.left, left, strict=True), *zip(maps.right, right, strict=True))
    for index, size in reads:
        end: Dim = 1 + _constant(index)
        for name, factor in _terms(index):
            end = end + (sizes[name] - 1) * factor
        if all(sizes[name] != 0 for name, _ in _terms(index)):
            check_at_most(f"elements that contract reads by '{index}'", end, size)


def _check_places(maps: IndexMaps, sizes: Mapping[str, Dim]) -> None:
    placed = [name for index in maps.result for name, _ in _terms(index)]
    lost = [name for name in maps.axes if name not in placed and sizes[name] != 1]
    if lost or len(set(placed)) != len(placed):
        raise ModelError(
            f"contract: results of '{' '.join(lost or placed)}' have no places"
        )


def lies_in_panels(attributes: Attributes) -> bool:
    """Whether the columns of the right operand are grouped, a group each a last axis.

    False for the attributes of other ops.
    """
    if not _has_maps(attributes):
        return False
    maps = maps_of(attributes)
    columns, lane = _terms(maps.result[-1]), maps.right[-1]
    return len(columns) > 1 and (str(lane), 1) in columns


def shares_no_element(attributes: Attributes) -> bool:
    """Whether an element of the left operand meets one column alone, as in a depthwise convolution.

    False for the attributes of other ops.
    """
    if not _has_maps(attributes):
        return False
    maps = maps_of(attributes)
    left = {name for index in maps.left for name, _ in _terms(index)}
    right = {name for index in maps.right for name, _ in _terms(index)}
    return not (right & set(maps.axes)) - left


def multiplies_rows(attributes: Attributes) -> bool:
    """Whether rows of a matrix are multiplied as they lie, by panels.  False for the attributes of other ops."""
    if not lies_in_panels(attributes):
        return False
    maps = maps_of(attributes)
    is_matrix = len(maps.left) == 2 and len(maps.sums) == 1
    return is_matrix and maps.left == (axis(maps.axes[0]), axis(maps.sums[0]))


def _title(attributes: Attributes) -> str:
    """What the maps make of it, in the words of models."""
    maps = maps_of(attributes)
    if any(_has_window(index, maps) for index in maps.right):
        return "conv_planar"
    if not any(_has_window(index, maps) for index in maps.left):
        return "matmul"
    shared = {name for name, _ in _terms(maps.right[-1])}
    own = {name for index in maps.left for name, _ in _terms(index)}
    return "depthwise_conv" if shared <= own else "conv"


def _has_window(index: Dim, maps: IndexMaps) -> bool:
    """Whether an operand is read at places of the result moved by steps of a sum."""
    names = {name for name, _ in _terms(index)}
    return bool(names & set(maps.axes)) and bool(names & set(maps.sums))


def _cut(
    maps: IndexMaps, sizes: Mapping[str, Dim], shape: Sequence[Dim]
) -> Iterator[tuple[Dim, Dim]]:
    """(place, end) pairs: a sum is stored where all places lie in front of their ends.

    Places are mixed radix: what the smaller axes of an index say stays below the factor of the next one.  Of two with
    one factor (lanes, and groups of one column) the inner axis is the smaller.
    """
    inside = list(reversed(maps.axes))
    for index, size in zip(maps.result, shape, strict=True):
        moving = [term for term in _terms(index) if sizes[term[0]] != 1]
        if not moving:
            continue
        digits = sorted(moving, key=lambda term: (term[1], inside.index(term[0])))
        place, span = cast("Dim", _constant(index)), cast("Dim", 1)
        for (name, factor), end in zip(
            digits, [*(f for _, f in digits[1:]), size], strict=True
        ):
            place = place + axis(name) * factor
            if (sizes[name] - 1) * factor + span != end:
                yield place, end
            span = end


# --- columns behind the panels -------------------------------------------------------------------


def _panel_axis(maps: IndexMaps) -> int:
    """The dimension of the right operand along which its panels lie."""
    lane = str(maps.right[-1])
    others = [axis(name) for name, _ in _terms(maps.result[-1]) if name != lane]
    if len(others) != 1 or maps.right.count(others[0]) != 1:
        raise ModelError("contract: a rest needs columns in panels")
    return maps.right.index(others[0])


def _rest_map(maps: IndexMaps) -> Map:
    """Where an element of a matrix lies whose panels are the right operand."""
    at = _panel_axis(maps)
    return (*maps.right[:at], *maps.right[at + 1 : -1], maps.result[-1])


def _all_panels(
    attributes: Attributes,
    right: TensorType | Source,
    result: Sequence[Dim],
    rest: TensorType | Source | None,
) -> Sequence[Dim]:
    """The shape that the right operand would have if the rest were panels, too.

    Raises: ModelError unless it is the panels of the rest with `least` columns, both of one type.
    """
    if rest is None:
        return right.shape
    least, maps = cast("int", attributes["least"]), maps_of(attributes)
    at, width = _panel_axis(maps), right.shape[-1]
    wanted = (*right.shape[:at], *right.shape[at + 1 : -1], result[-1])
    fits = rest.dtype is right.dtype and len(wanted) == len(rest.shape)
    if not isinstance(width, int) or not fits or not 1 <= least <= width:
        raise ModelError(
            f"contract: {right} are no panels of {rest}, at least {least} columns"
        )
    count = symbolic.floordiv(result[-1] + width - least, width)
    check_same("the panels", count, right.shape[at])
    for size, found in zip(wanted, rest.shape, strict=True):
        check_same("a size of the rest of the right operand", size, found)
    whole = symbolic.ceildiv(result[-1], width)
    return (*right.shape[:at], whole, *right.shape[at + 1 :])


# --- the row ---------------------------------------------------------------------------------


def _infer(types: Types, attributes: Attributes) -> tuple[TensorType, ...]:
    left, right = need(types, 0), need(types, 1)
    rest = types[2] if len(types) > 2 else None
    shape = cast("tuple[Dim, ...]", attributes["shape"])
    panels = _all_panels(attributes, right, shape, rest)
    axis_sizes(maps_of(attributes), left.shape, panels, shape)
    words, stated = word_product(attributes), cast("DType | None", attributes["dtype"])
    if words is not None and (left.dtype, right.dtype) != words.words:
        wanted = " and ".join(map(str, words.words))
        raise ModelError(f"contract: words are {wanted}, got {left} and {right}")
    dtype = left.dtype if words is None else words.result
    return (TensorType(stated or dtype, shape),)


def _sizes_in(
    types: Sequence[TensorType], result: TensorType, attributes: Attributes
) -> dict[str, Dim]:
    rest = types[2] if len(types) > 2 else None
    panels = _all_panels(attributes, types[1], result.shape, rest)
    return axis_sizes(maps_of(attributes), types[0].shape, panels, result.shape)


def _work(
    types: Sequence[TensorType], results: Sequence[TensorType], attributes: Attributes
) -> Dim:
    sizes = _sizes_in(types, results[0], attributes)
    steps = element_count([sizes[name] for name in maps_of(attributes).sums])
    words = word_product(attributes)
    each = 1 if words is None else words.elements
    return 2 * each * steps * results[0].element_count


def _body(
    b: KernelBuilder, attributes: Attributes, operands: Operands, results: Results
) -> None:
    left, right, (result,) = given(operands, 0), given(operands, 1), results
    rest, maps = maybe(operands, 2), maps_of(attributes)
    panels = _all_panels(attributes, right, result.shape, rest)
    sizes = axis_sizes(maps, left.shape, panels, result.shape)
    extents = tuple(sizes[name] for name in maps.axes)
    sums = accumulator_dtype(left.dtype, result.dtype)
    total = b.temporary(sums, extents, "acc")
    with b.nest(extents, maps.axes) as outer:
        b.store(total, outer, 0)
        with b.reduce([sizes[name] for name in maps.sums], maps.sums) as inner:
            at = dict(zip((*maps.axes, *maps.sums), (*outer, *inner), strict=True))
            x = b.read(left, _indices(maps.left, at))
            y = _right_element(b, attributes, operands, at)
            b.accumulate("add", total, outer, product(b, attributes, x, y, sums))
    with b.nest(extents, maps.axes) as outer:
        at = dict(zip(maps.axes, outer, strict=True))
        with contextlib.ExitStack() as guards:
            for place, end in _cut(maps, sizes, result.shape):
                (here,) = _indices((place,), at)
                guards.enter_context(b.when(b.lt(b.index(here), b.index(end))))
            b.write(result, _indices(maps.result, at), b.load(total, outer))


def _right_element(
    b: KernelBuilder, attributes: Attributes, operands: Operands, at: Mapping[str, Dim]
) -> Expression:
    """An element of a panel, or of the columns behind all: which it is depends on the panel alone."""
    right, rest, maps = given(operands, 1), maybe(operands, 2), maps_of(attributes)
    if rest is None:
        return b.read(right, _indices(maps.right, at))
    end, least = b.index(rest.shape[-1]), cast("int", attributes["least"])
    lane, column = _indices((maps.right[-1], maps.result[-1]), at)
    is_packed = b.le(b.index(column - lane + least), end)
    packed = b.read(right, _indices(maps.right, at), is_packed)
    lying = b.read(rest, _indices(_rest_map(maps), at), b.lt(b.index(column), end))
    return b.select(is_packed, packed, lying)


def _indices(indices: Map, at: Mapping[str, Dim]) -> Map:
    return tuple(symbolic.substitute(index, at) for index in indices)


# --- the oracle ------------------------------------------------------------------------------


def _oracle(
    left: np.ndarray,
    right: np.ndarray,
    rest: np.ndarray | None = None,
    /,
    **attributes: object,
) -> np.ndarray:
    maps, dtype = maps_of(attributes), cast("DType | None", attributes["dtype"])
    shape = cast("tuple[int, ...]", attributes["shape"])
    if rest is not None:
        right = _with_rest(maps, right, rest)
    sizes = cast("dict[str, int]", axis_sizes(maps, left.shape, right.shape, shape))
    extra: tuple[str, ...] = ()
    words = word_product(attributes)
    if words is not None:
        left, right = elements_of(left, words.left), elements_of(right, words.right)
        extra, dtype = ("element",), words.result
    wide = _summed(maps, sizes, widened(left, dtype), widened(right, dtype), extra)
    total = settled(wide, left, dtype)
    result = np.zeros(shape, total.dtype)
    places = np.meshgrid(
        *(np.arange(sizes[name]) for name in maps.axes), indexing="ij", sparse=True
    )
    at = dict(zip(maps.axes, places, strict=True))
    kept = np.ones(total.shape, bool)
    for place, end in _cut(maps, sizes, shape):
        kept &= np.asarray(_at(place, at)) < end
    where = (np.broadcast_to(_at(index, at), total.shape)[kept] for index in maps.result)
    result[tuple(where)] = total[kept]
    return result


def _with_rest(maps: IndexMaps, right: np.ndarray, rest: np.ndarray) -> np.ndarray:
    """All panels: those there are, and one of the columns behind them."""
    at, width = _panel_axis(maps), right.shape[-1]
    behind = rest[..., right.shape[at] * width :]
    if not behind.shape[-1]:
        return right
    last = np.zeros((*rest.shape[:-1], width), rest.dtype)
    last[..., : behind.shape[-1]] = behind
    return np.concatenate([right, np.expand_dims(last, at)], at)


def _at(index: Dim, at: Mapping[str, np.ndarray]) -> np.ndarray:
    """The values of an index where its axes have those values."""
    terms = (at[name] * factor for name, factor in _terms(index))
    return np.asarray(sum(terms, start=np.asarray(_constant(index))))


def _summed(
    maps: IndexMaps,
    sizes: Mapping[str, int],
    x: np.ndarray,
    y: np.ndarray,
    extra: tuple[str, ...],
) -> np.ndarray:
    """The sums at all places of the axes.

    Taps, which move along a dimension that another axis goes along, too, are taken one by one: memory does not grow with the
    window.  `extra` axes are the last ones of both arrays, and summed over.
    """
    taps = tuple(dict.fromkeys(_taps(maps)))
    total = np.zeros([sizes[name] for name in maps.axes], x.dtype)
    names = (*maps.axes, *maps.sums, *extra)
    letters = dict(zip(names, _LETTERS, strict=False))
    result = "".join(letters[name] for name in maps.axes)
    for values in itertools.product(*(range(sizes[name]) for name in taps)):
        at = dict(zip(taps, values, strict=True))
        views, texts = [], []
        for array, indices in ((x, maps.left), (y, maps.right)):
            view, loops = _view(array, indices, at, sizes)
            views.append(view)
            texts.append("".join(letters[name] for name in (*loops, *extra)))
        total += np.einsum(f"{texts[0]},{texts[1]}->{result}", *views, optimize=True)
    return total


def _taps(maps: IndexMaps) -> Iterator[str]:
    for index in (*maps.left, *maps.right):
        terms = _terms(index)
        if len(terms) > 1:
            yield from (name for name, _ in terms if name in maps.sums)


def _view(
    array: np.ndarray, indices: Map, taps: Mapping[str, int], sizes: Mapping[str, int]
) -> tuple[np.ndarray, tuple[str, ...]]:
    """The elements that a map reads while taps stand still, without a copy, and the loops over them.

    `axis_sizes` has checked that they lie in the array.
    """
    strides: dict[str, int] = {}
    offset = [0] * array.ndim
    for dimension, index in enumerate(indices):
        offset[dimension] = _constant(index)
        for name, factor in _terms(index):
            if name in taps:
                offset[dimension] += taps[name] * factor
            else:
                step = array.strides[dimension] * factor
                strides[name] = strides.get(name, 0) + step
    loops = tuple(strides)
    extra = range(len(indices), array.ndim)
    shape = (*(sizes[name] for name in loops), *(array.shape[i] for i in extra))
    if 0 in shape:
        return np.zeros(shape, array.dtype), loops
    steps = (*strides.values(), *(array.strides[i] for i in extra))
    start = array[tuple(slice(at, None) for at in offset)]
    return np.lib.stride_tricks.as_strided(start, shape, steps, writeable=False), loops


# Parts of test cases: the maps of products in panels of 4 columns, and of convolutions.
_PRODUCT: Final = "axes=m,p,l sums=k left=m,k right=p,k,l result=m,4*p+l"
_BATCH: Final = "axes=b,m,p,l sums=k left=b,m,k result=b,m,4*p+l"
_IMAGE: Final = "axes=n,h,w,g,p,l sums=y,x,c right=g,p,y,x,c,l"
_PANELS: Final = "left=n,h+y,w+x,c result=n,h,w,4*p+l"
_CHANNELS: Final = "axes=n,h,w,c sums=y,x right=y,x,c result=n,h,w,c"

contract: Final = declare(
    name="contract",
    summary="Sums of products of elements that index maps pick: packed matrix products and convolutions",
    operands=(
        operand("left", NUMERIC),
        operand("right", NUMERIC),
        optional("rest", NUMERIC),
    ),
    attributes=(
        attr("axes", "string"),
        attr("sums", "string"),
        attr("left", "string"),
        attr("right", "string"),
        attr("result", "string"),
        attr("shape", "dims"),
        PRODUCT,
        attr("dtype", "dtype", None),
        attr("least", "int", 1),
    ),
    infer=_infer,
    evaluate=_oracle,
    body=_body,
    traits=CONTRACTION,
    work=_work,
    title=_title,
    cases=(
        f"[3,5] [2,5,4]; {_PRODUCT} shape=(3,7)",
        f"[3,5] [2,5,4]; {_PRODUCT} shape=(3,8)",
        f"[0,5] [2,5,4]; {_PRODUCT} shape=(0,7)",
        f"[3,5] [1,5,4] [5,6]; {_PRODUCT} shape=(3,6) least=3",
        f"[3,5] [2,5,4] [5,7]; {_PRODUCT} shape=(3,7) least=3",
        f"[3,5] [0,5,4] [5,3]; {_PRODUCT} shape=(3,3) least=4",
        f"[2,3,4] [2,1,4,4] [2,4,6]; {_BATCH} right=b,p,k,l shape=(2,3,6) least=4",
        f"[2,3,5] [1,5,4]; {_BATCH} right=p,k,l shape=(2,3,3)",
        f"[2,3,4] [2,2,4,4]; {_BATCH} right=b,p,k,l shape=(2,3,6)",
        f"f32[3,5] f16[2,5,4]; {_PRODUCT} shape=(3,7)",
        f"u8[3,5]:count(255) i8[2,5,4]:index(127); {_PRODUCT} shape=(3,7) dtype=i32",
        f"i32[3,5]:words i32[2,5,4]:words; {_PRODUCT} shape=(3,7) product=bytes",
        f"i32[3,5]:words i16[2,5,4]:words; {_PRODUCT} shape=(3,7) product=extended",
        f"i32[3,5]:words i32[2,5,4]:words; {_PRODUCT} shape=(3,7) product=shorts",
        f"i32[3,5]:=1065369472,-1082146944,16384,1073758208 i32[2,5,4]:=1065369472,1077952640,-2147434496; {_PRODUCT} shape=(3,7) product=pairs",
        f"[1,5,6,3] [1,2,3,3,3,4]; {_IMAGE} {_PANELS} shape=(1,3,4,7)",
        f"f32[1,5,6,3] f16[1,2,3,3,3,4]; {_IMAGE} {_PANELS} shape=(1,3,4,7)",
        f"[2,7,6,3] [1,1,3,2,3,8]; {_IMAGE} left=n,2*h+y,w+x,c result=n,h,w,8*p+l shape=(2,3,5,8)",
        f"[1,7,7,2] [1,1,3,3,2,4]; {_IMAGE} left=n,h+2*y,w+2*x,c result=n,h,w,4*p+l shape=(1,3,3,3)",
        f"[1,5,5,6] [2,2,3,3,3,4]; {_IMAGE} left=n,h+y,w+x,3*g+c result=n,h,w,6*g+4*p+l shape=(1,3,3,12)",
        f"[1,5,5,6] [2,1,3,3,3,4]; {_IMAGE} left=n,h+y,w+x,3*g+c result=n,h,w,g+4*p+l shape=(1,3,3,2)",
        f"u8[1,5,6,3]:count(255) i8[1,2,3,3,3,4]:index(127); {_IMAGE} {_PANELS} shape=(1,3,4,7) dtype=i32",
        f"i32[1,5,6,3]:words i32[1,2,3,3,3,4]:words; {_IMAGE} {_PANELS} shape=(1,3,4,7) product=bytes",
        f"i32[1,5,6,3]:words i16[1,2,3,3,3,4]:words; {_IMAGE} {_PANELS} shape=(1,3,4,7) product=extended",
        f"[1,5,6,3] [3,3,3]; {_CHANNELS} left=n,h+y,w+x,c shape=(1,3,4,3)",
        f"[2,7,7,5] [3,2,5]; {_CHANNELS} left=n,2*h+y,2*w+x,c shape=(2,3,3,5)",
        f"[1,9,7,1] [3,3,1]; {_CHANNELS} left=n,h+2*y,w+2*x,c shape=(1,5,3,1)",
        f"u8[1,5,6,3]:count(255) i16[3,3,3]:index(255); {_CHANNELS} left=n,h+y,w+x,c shape=(1,3,4,3) dtype=i32",
        "[1,7,3] [3,3]; axes=n,h,c sums=y left=n,h+y,c right=y,c result=n,h,c shape=(1,5,3)",
        "[3,3,3,2] [1,3,119]; axes=n,f,p sums=c,y,x left=c,y,x,f right=n,c,p+17*y+x result=n,f,p shape=(1,2,83)",
        "[4,3,1] [1,4,40]; axes=n,f,p sums=c,y left=c,y,f right=n,c,2+p+3*y result=n,f,p shape=(1,1,31)",
    ),
    source="linalg.generic (MLIR)",
)

OPS: Final = (contract,)
