"""Ops that put elements in order: the k largest along an axis.

How the kernel selects.  Every element gets an integer key that grows with its rank (NaN counts as
the largest number, -0 equals 0).  For a handful of elements, each one is inserted into a short list
when it beats the last entry.  Else the key of the k-th element is found by halving the range of keys,
with a count of the larger ones at every step; the elements above it and the first ones equal to it
are taken, in order, and each gets its place by counting those before it.  Where few are taken of a long
line, it is gone over once, for the largest key of every block: that of the k-th block is a key that k elements
reach, and only blocks that reach it are looked at again.  Nothing depends on the values but which of these
elements are taken, so there is no bad input.  Where k is large, the selected elements are put in order by
merging runs of growing length instead.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final, cast, final

import numpy as np

from tilewright.base import dtypes, symbolic
from tilewright.base.dtypes import NUMERIC, DType, i32, i64
from tilewright.base.errors import ModelError
from tilewright.base.record import record
from tilewright.base.symbolic import Dim
from tilewright.compiler.graph.schema import Attributes, TensorType
from tilewright.compiler.kernel import numerics
from tilewright.compiler.kernel.builder import KernelBuilder, Source
from tilewright.compiler.kernel.ir import Buffer, Expression
from tilewright.compiler.ops.bodies import (
    Operands,
    Results,
    given,
    order_key,
    picking_nest,
)
from tilewright.compiler.ops.declaration import (
    IndexRange,
    OpDecl,
    Types,
    attr,
    declare,
    operand,
)
from tilewright.compiler.ops.shapes import first, normal_axis

_Way = Callable[[], None]
_SHORT: Final = 8
"""Lists of up to so many entries are kept in registers."""
_SHORT_ROW: Final = 512
"""Longer lines are searched by halving even for short lists."""
_BLOCK: Final = 64
"""Elements that are passed over together when none of them is taken."""
_FEW_OF: Final = 4
"""Blocks to each element that is taken, from which on blocks without one are left out."""
_FEW: Final = 256
"""More elements than these are not few among those of a line of unknown size, for which there is no code of its own."""
_RUN: Final = 32
"""Entries (or twice as many) that are put in order by counting before runs are merged."""
_LONGEST: Final = 1 << 31
"""No line is longer: places are i32."""
_RANKED: Final = 256
"""Up to so many selected elements get their places by counting."""


@final
@record
class _Line:
    """One line of x along the axis, and where its results go.

    `may_end` says that there may be more results than elements: calls report that, and here nothing
    foreign is read.
    """

    b: KernelBuilder
    x: Source
    axis: int
    outer: tuple[Dim, ...]
    largest: bool
    may_end: bool
    values: Buffer
    indices: Buffer

    @property
    def size(self) -> Dim:
        return self.x.shape[self.axis]

    def place(self, position: Dim) -> tuple[Dim, ...]:
        return (*self.outer[: self.axis], position, *self.outer[self.axis :])

    def key(self, position: Dim) -> Expression:
        b = self.b
        return order_key(b, b.read(self.x, self.place(position)), largest=self.largest)

    def put(self, position: Dim, source: Expression) -> None:
        """Result `position` is the element at `source`."""
        b = self.b
        source = b.cast(source, i64)
        b.store(self.indices, self.place(position), source)
        if self.may_end:
            source = b.min(b.max(source, 0), b.index(self.size - 1))
        value = b.load(self.x, self.place(b.as_index(source)))
        b.store(self.values, self.place(position), value)


# --- a short list in registers ---------------------------------------------------------------


def _insert(line: _Line, count: int) -> None:
    """Every element is compared with the last entry; those that beat it move up to their place."""
    b, outer, shape = line.b, line.outer, _outer_shape(line)
    keys = [b.temporary(line.key(0).dtype, shape, "best") for _ in range(count)]
    places = [b.temporary(i32, shape, "where") for _ in range(count)]
    for key, place in zip(keys, places, strict=True):
        b.store(key, outer, 0)
        b.store(place, outer, 0)
    with b.loop(line.size, "i") as i:
        key = line.key(i)
        beaten = [
            b.or_(b.gt(key, b.load(entry, outer)), b.le(b.index(i), b.index(t)))
            for t, entry in enumerate(keys)
        ]
        with b.when(beaten[-1]):
            _shift(line, keys, places, key, i, beaten)
    for position, place in enumerate(places):
        line.put(position, b.load(place, outer))


def _shift(
    line: _Line,
    keys: Sequence[Buffer],
    places: Sequence[Buffer],
    key: Expression,
    here: Dim,
    beaten: Sequence[Expression],
) -> None:
    """Put an entry behind those it does not beat; from the last one on, so that each is read before it is overwritten."""
    # The key, which decides, is overwritten after its place.
    b, outer = line.b, line.outer
    for t in range(len(keys) - 1, -1, -1):
        for entries, new in ((places, b.index(here, i32)), (keys, key)):
            mine = b.load(entries[t], outer)
            above = b.load(entries[t - 1], outer) if t else new
            moved = b.select(beaten[t - 1], above, new) if t else new
            b.store(entries[t], outer, b.select(beaten[t], moved, mine))


def _outer_shape(line: _Line) -> tuple[Dim, ...]:
    shape = line.x.shape
    return (*shape[: line.axis], *shape[line.axis + 1 :])


# --- halving the range of keys ---------------------------------------------------------------


@final
@record
class _Entries:
    """Keys and where they come from, `size` of them per line, in memory for a few more."""

    keys: Buffer
    places: Buffer
    size: Dim


def _entries(line: _Line, size: Dim, room: Dim) -> _Entries:
    b, shape = line.b, (*_outer_shape(line), room)
    dtype = line.key(0).dtype
    return _Entries(b.temporary(dtype, shape, "key"), b.temporary(i32, shape, "at"), size)


def _select(line: _Line, count: Dim) -> None:
    """Find the key of the last element taken, take what is not below it, and put it in order."""
    taken = _entries(line, count, _rounded(count, 2 * _RUN))
    take, take_all = partial(_take, line, taken), partial(_take_all, line, taken)
    is_known = isinstance(line.size, int) and isinstance(count, int)
    if count == line.size:
        take_all()
    elif is_known or (isinstance(count, int) and count <= _RANKED):
        take()
    else:
        size, number = (line.b.index(n) for n in (line.size, count))
        _either(line.b, line.b.eq(size, number), take_all, take)
    if isinstance(count, int) and count <= _RANKED:
        _put_by_rank(line, taken)
    else:
        _sort(line, taken)


def _rounded(size: Dim, unit: int) -> Dim:
    return symbolic.ceildiv(size, unit) * unit


def _lowest(dtype: DType) -> int:
    return -(1 << (dtype.bits - 1))


def _take_all(line: _Line, taken: _Entries) -> None:
    b, outer = line.b, line.outer
    with b.loop(line.size, "i") as i:
        b.store(taken.keys, (*outer, i), line.key(i))
        b.store(taken.places, (*outer, i), b.index(i, i32))


def _take(line: _Line, taken: _Entries) -> None:
    """The elements above the bound and, in order, as many equal to it as there is room for."""
    b, outer, shape = line.b, line.outer, _outer_shape(line)
    padded = _rounded(line.size, _BLOCK)
    keys = b.temporary(taken.keys.dtype, (*shape, padded), "keys")
    with b.loop(line.size, "i") as i:
        b.store(keys, (*outer, i), line.key(i))
    with b.loop(padded - line.size, "i") as i:
        b.store(keys, (*outer, line.size + i), _lowest(keys.dtype))
    count = taken.size
    take = partial(_take_among, line, taken, keys)
    if not isinstance(count, int) or (count > _FEW and not isinstance(line.size, int)):
        take(few=False)
    else:
        most = (_FEW_OF * count - 1) * _BLOCK
        _by_length(line, most, partial(take, few=True), partial(take, few=False))


def _take_among(line: _Line, taken: _Entries, keys: Buffer, *, few: bool) -> None:
    """Take what reaches the bound; where these are `few`, most blocks have none of them."""
    b, outer, shape = line.b, line.outer, _outer_shape(line)
    near = _near(line, keys, taken.size) if few else None
    if near is None:
        ends = [_extreme(line, keys, op, line.size) for op in ("min", "max")]
        bound = _bound(line, taken.size, line.size, (ends[0], ends[1]), _Row(line, keys))
    else:
        bound = _bound(line, taken.size, line.size, (near.least, near.most), near)
    room = b.temporary(i32, shape, "room")
    b.store(room, outer, b.index(taken.size, i32))
    (near or _Row(line, keys)).each(
        lambda key: b.accumulate(
            "add", room, outer, b.neg(b.cast(b.gt(key, b.load(bound, outer)), i32))
        )
    )
    filled = b.temporary(i32, shape, "filled")
    b.store(filled, outer, 0)
    with _blocks_with(line, keys, bound, near) as block, b.loop(_BLOCK, "i") as i:
        _append(line, taken, keys, (bound, room, filled), block * _BLOCK + i)


@contextmanager
def _blocks_with(
    line: _Line, keys: Buffer, bound: Buffer, near: _Near | None
) -> Generator[Dim]:
    """The blocks in which a key reaches the bound, in order."""
    b, outer = line.b, line.outer
    if near is not None:
        with near.blocks() as block:
            yield block
        return
    most = b.temporary(keys.dtype, _outer_shape(line), "most")
    with b.loop(symbolic.ceildiv(line.size, _BLOCK), "block") as block:
        b.store(most, outer, _lowest(keys.dtype))
        with b.reduce((_BLOCK,), ("n",)) as (n,):
            b.accumulate("max", most, outer, b.load(keys, (*outer, block * _BLOCK + n)))
        with b.when(b.ge(b.load(most, outer), b.load(bound, outer))):
            yield block


@final
@record
class _Row:
    """All keys of a line."""

    line: _Line
    keys: Buffer

    def each(self, use: Callable[[Expression], None]) -> None:
        """Let `use` accumulate something of every key."""
        b, outer = self.line.b, self.line.outer
        with b.reduce((self.keys.shape[-1],), ("n",)) as (n,):
            use(b.load(self.keys, (*outer, n)))


@final
@record
class _Near:
    """The blocks of a line that may have an element that is taken.

    `which` are the first `count` of them, in order; `least` is a key that as many elements reach as are taken, `most` the
    largest.
    """

    line: _Line
    keys: Buffer
    which: Buffer
    count: Buffer
    least: Buffer
    most: Buffer

    @contextmanager
    def blocks(self) -> Generator[Dim]:
        """A loop over them."""
        b, outer = self.line.b, self.line.outer
        with b.loop(b.as_index(b.cast(b.load(self.count, outer), i64)), "near") as t:
            yield b.as_index(b.cast(b.load(self.which, (*outer, t)), i64))

    def each(self, use: Callable[[Expression], None]) -> None:
        """Let `use` accumulate something of every key in them."""
        b, outer = self.line.b, self.line.outer
        with self.blocks() as block, b.reduce((_BLOCK,), ("n",)) as (n,):
            use(b.load(self.keys, (*outer, block * _BLOCK + n)))


def _near(line: _Line, keys: Buffer, count: Dim) -> _Near:
    """Where the largest keys of as many blocks as elements are taken lie, all that are taken lie."""
    b, outer, shape = line.b, line.outer, _outer_shape(line)
    blocks = symbolic.ceildiv(line.size, _BLOCK)
    tops = b.temporary(keys.dtype, (*shape, blocks), "tops")
    with b.loop(blocks, "block") as block:
        b.store(tops, (*outer, block), _lowest(keys.dtype))
        with b.reduce((_BLOCK,), ("n",)) as (n,):
            key = b.load(keys, (*outer, block * _BLOCK + n))
            b.accumulate("max", tops, (*outer, block), key)
    ends = [_extreme(line, tops, op, blocks) for op in ("min", "max")]
    least = _bound(line, count, blocks, (ends[0], ends[1]), _Row(line, tops), "least")
    which = b.temporary(i32, (*shape, blocks), "which")
    found = b.temporary(i32, shape, "found")
    b.store(found, outer, 0)
    with b.loop(blocks, "block") as block:
        reaches = b.ge(b.load(tops, (*outer, block)), b.load(least, outer))
        with b.when(reaches):
            end = b.as_index(b.cast(b.load(found, outer), i64))
            b.store(which, (*outer, end), b.index(block, i32))
            b.store(found, outer, b.add(b.load(found, outer), 1))
    return _Near(line, keys, which, found, least, ends[1])


def _append(
    line: _Line,
    taken: _Entries,
    keys: Buffer,
    state: tuple[Buffer, Buffer, Buffer],
    at: Dim,
) -> None:
    b, outer = line.b, line.outer
    bound, room, filled = state
    key, limit = b.load(keys, (*outer, at)), b.load(bound, outer)
    left = b.load(room, outer)
    equal = b.and_(b.eq(key, limit), b.gt(left, 0))
    with b.when(b.or_(b.gt(key, limit), equal)):
        end = b.as_index(b.cast(b.load(filled, outer), i64))
        b.store(taken.keys, (*outer, end), key)
        b.store(taken.places, (*outer, end), b.index(at, i32))
        b.store(filled, outer, b.add(b.load(filled, outer), 1))
        b.store(room, outer, b.sub(left, b.cast(equal, i32)))


def _bound(
    line: _Line,
    count: Dim,
    total: Dim,
    ends: tuple[Buffer, Buffer],
    among: _Row | _Near,
    name: str = "bound",
) -> Buffer:
    """The largest key that at least `count` of `total` reach, bit by bit from the highest.

    `ends`: a key that enough reach, and the largest; bits that these decide need no count.
    """
    b, outer, shape = line.b, line.outer, _outer_shape(line)
    dtype = among.keys.dtype
    bound = b.temporary(dtype, shape, name)
    reached = b.temporary(i32, shape, "reached")
    b.store(bound, outer, _lowest(dtype))
    with b.loop(dtype.bits, "bit") as bit:
        last = b.const(dtype.bits - 1, dtype)
        step = b.shl(b.const(1, dtype), b.sub(last, b.index(bit, dtype)))
        tried = b.xor(b.load(bound, outer), step)
        all_reach = b.le(tried, b.load(ends[0], outer))
        b.store(reached, outer, b.select(all_reach, b.index(total, i32), 0))
        undecided = b.and_(b.not_(all_reach), b.le(tried, b.load(ends[1], outer)))
        with b.when(undecided):
            b.store(reached, outer, 0)
            among.each(
                lambda key: b.accumulate(
                    "add", reached, outer, b.cast(b.ge(key, tried), i32)
                )
            )
        enough = b.ge(b.load(reached, outer), b.index(count, i32))
        b.store(bound, outer, b.select(enough, tried, b.load(bound, outer)))
    return bound


def _extreme(line: _Line, keys: Buffer, op: str, size: Dim) -> Buffer:
    """The smallest or largest of the first `size` keys."""
    b, outer = line.b, line.outer
    end = b.temporary(keys.dtype, _outer_shape(line), op)
    b.store(end, outer, numerics.identity(op, keys.dtype))
    with b.reduce((size,), ("n",)) as (n,):
        b.accumulate(op, end, outer, b.load(keys, (*outer, n)))
    return end


# --- putting entries in order ----------------------------------------------------------------


def _rank(line: _Line, entries: _Entries, start: Dim, size: Dim, position: Dim) -> Dim:
    """How many of the `size` entries from `start` on come before the one at `position`."""
    b, outer = line.b, line.outer
    rank = b.temporary(i32, _outer_shape(line), "rank")
    mine = b.load(entries.keys, (*outer, start + position))
    b.store(rank, outer, 0)
    with b.reduce((size,), ("r",)) as (r,):
        other = b.load(entries.keys, (*outer, start + r))
        before = b.lt(b.index(r), b.index(position))
        ahead = b.or_(b.gt(other, mine), b.and_(b.eq(other, mine), before))
        b.accumulate("add", rank, outer, b.cast(ahead, i32))
    return b.as_index(b.cast(b.load(rank, outer), i64))


def _put_by_rank(line: _Line, entries: _Entries) -> None:
    b = line.b
    with b.loop(entries.size, "s") as s:
        rank = _rank(line, entries, 0, entries.size, s)
        line.put(rank, b.load(entries.places, (*line.outer, s)))


def _sort(line: _Line, entries: _Entries) -> None:
    """Runs put in order by rank, then merged two and two."""
    b, outer = line.b, line.outer
    room = entries.keys.shape[-1]
    with b.loop(room - entries.size, "i") as i:
        b.store(entries.keys, (*outer, entries.size + i), _lowest(entries.keys.dtype))
        b.store(entries.places, (*outer, entries.size + i), 0)
    first_, second = _entries(line, room, room), _entries(line, room, room)
    most = symbolic.bounds(room)[1] or _LONGEST
    doublings = ((most - 1) // _RUN).bit_length()
    # Every two passes bring the entries back to where they were.
    size = _RUN << doublings % 2
    with b.loop(symbolic.floordiv(room, size), "run") as run, b.loop(size, "s") as s:
        rank = _rank(line, entries, run * size, size, s)
        _move(line, entries, run * size + s, first_, run * size + rank)
    width = b.temporary(i64, _outer_shape(line), "width")
    b.store(width, outer, size)
    with (
        b.loop(doublings // 2, "pass"),
        b.when(b.lt(b.load(width, outer), b.index(room))),
    ):
        for source, target in ((first_, second), (second, first_)):
            _merge_runs(line, source, target, b.load(width, outer))
            b.store(width, outer, b.mul(b.load(width, outer), 2))
    with b.loop(entries.size, "s") as s:
        line.put(s, b.load(first_.places, (*outer, s)))


def _move(line: _Line, source: _Entries, at: Dim, target: _Entries, to: Dim) -> None:
    b, outer = line.b, line.outer
    b.store(target.keys, (*outer, to), b.load(source.keys, (*outer, at)))
    b.store(target.places, (*outer, to), b.load(source.places, (*outer, at)))


def _merge_runs(line: _Line, source: _Entries, target: _Entries, width: Expression) -> None:
    """Every two neighbouring runs of `width` entries (the last ones may be shorter) as one."""
    b, outer = line.b, line.outer
    shape, size = _outer_shape(line), b.index(source.size)
    *heads, step = [b.temporary(i64, shape, n) for n in ("left", "right", "step")]
    pair = b.mul(width, 2)
    pairs = b.div(b.sub(b.add(size, pair), 1), pair)
    with b.loop(b.as_index(pairs), "pair") as number:
        start = b.mul(b.index(number), pair)
        middle = b.min(b.add(start, width), size)
        end = b.min(b.add(start, pair), size)
        b.store(heads[0], outer, start)
        b.store(heads[1], outer, middle)
        with b.loop(b.as_index(b.sub(end, start)), "t") as t:
            left, right = (b.load(head, outer) for head in heads)
            last = b.sub(size, 1)
            at = [b.as_index(b.min(head, last)) for head in (left, right)]
            keys = [b.load(source.keys, (*outer, i)) for i in at]
            own = b.or_(b.ge(right, end), b.ge(keys[0], keys[1]))
            from_left = b.and_(b.lt(left, middle), own)
            b.store(step, outer, b.cast(from_left, i64))
            taken = b.load(step, outer)
            picked = b.as_index(b.min(b.select(b.ne(taken, 0), left, right), last))
            _move(line, source, picked, target, b.as_index(b.add(start, b.index(t))))
            b.store(heads[0], outer, b.add(left, taken))
            b.store(heads[1], outer, b.add(right, b.sub(1, taken)))


# --- the op ----------------------------------------------------------------------------------


def _top_k_infer(types: Types, attributes: Attributes) -> tuple[TensorType, ...]:
    x = first(types)
    axis = normal_axis(cast("int", attributes["axis"]), x.rank)
    if x.rank == 0:
        raise ModelError("top_k of a scalar")
    (count,) = cast("tuple[Dim, ...]", attributes["k"])
    size = x.shape[axis]
    if isinstance(count, int) and isinstance(size, int) and count > size:
        raise ModelError(f"top_k takes {count} of the {size} elements along axis {axis}")
    shape = (*x.shape[:axis], count, *x.shape[axis + 1 :])
    return (x.with_shape(shape), TensorType(i64, shape))


def _taken(types: Types, attributes: Attributes) -> tuple[IndexRange, ...]:
    x = first(types)
    axis = normal_axis(cast("int", attributes["axis"]), x.rank)
    (count,) = cast("tuple[Dim, ...]", attributes["k"])
    size = x.shape[axis]
    return (IndexRange(None, axis, size, 0, size, number=count),)


def _top_k_oracle(
    x: np.ndarray,
    *,
    k: tuple[int],
    axis: int,
    largest: bool,
    sorted: bool,  # noqa: A002
) -> tuple[np.ndarray, np.ndarray]:
    del sorted  # always sorted, which is allowed
    # Equal elements keep their order; NaN counts as the largest.
    wide = x.astype(np.float64) if dtypes.from_numpy(x.dtype).is_float else x
    keys = np.flip(wide, axis) if largest else wide
    order = np.argsort(keys, axis, kind="stable")
    if largest:
        order = x.shape[axis] - 1 - np.flip(order, axis)
    picks = np.take(order, np.arange(k[0]), axis)
    return np.take_along_axis(x, picks, axis), picks


def _top_k_body(
    b: KernelBuilder, attributes: Attributes, operands: Operands, results: Results
) -> None:
    x, (values, indices) = given(operands, 0), results
    axis = normal_axis(cast("int", attributes["axis"]), len(x.shape))
    (count,) = cast("tuple[Dim, ...]", attributes["k"])
    largest = bool(attributes["largest"])
    may_end = not symbolic.proves_less(count - 1, x.shape[axis])
    sizes = x.shape[axis : axis + 1] if may_end else ()
    with picking_nest(b, (*x.shape[:axis], *x.shape[axis + 1 :]), sizes) as outer:
        line = _Line(b, x, axis, outer, largest, may_end, values, indices)
        _take_largest(line, count)


def _take_largest(line: _Line, count: Dim) -> None:
    """In the way that suits the length of a line."""
    select = partial(_select, line, count)
    if isinstance(count, int) and count <= _SHORT:
        _by_length(line, _SHORT_ROW, select, partial(_insert, line, count))
    else:
        select()


def _by_length(line: _Line, most: int, long: _Way, short: _Way) -> None:
    """What suits lines of more than so many elements, or others; where only a call knows that, there is code for either."""
    b, (low, high) = line.b, symbolic.bounds(line.size)
    if low is not None and low > most:
        long()
    elif high is not None and high <= most:
        short()
    else:
        _either(b, b.gt(b.index(line.size), b.index(most)), long, short)


def _either(b: KernelBuilder, condition: Expression, then: _Way, otherwise: _Way) -> None:
    """Code for either case of what only a call knows."""
    for case, find in ((condition, then), (b.not_(condition), otherwise)):
        with b.when(case):
            find()


top_k: Final = declare(
    name="top_k",
    summary="The k largest (smallest) elements along `axis` and where they are, sorted",
    operands=(operand("x", NUMERIC),),
    attributes=(
        attr("k", "dims"), attr("axis", "int", -1), attr("largest", "bool", default=True),
        attr("sorted", "bool", default=True),
    ),
    results=("values", "indices"),
    infer=_top_k_infer,
    evaluate=_top_k_oracle,
    body=_top_k_body,
    indices=_taken,
    cases=(
        "[3,7]; k=(2,)", "f32[5,3]; k=(3,) axis=0 largest=False",
        "[2,41]; k=(11,)", "f32[2,41]; k=(41,) largest=False",
        "f32[70,2]; k=(9,) axis=0", "f32[1,520]; k=(3,)",
        "f32[270]; k=(260,)", "f32[2,9]:=1,nan,inf,-inf,0,-0,nan,1,2; k=(8,)",
        "f32[2,9]:=1,nan,inf,-inf,0,-0,nan,1,2; k=(9,) largest=False", "f32[130]:=0; k=(65,)",
        "i64[40]:=-9223372036854775808,5,-1; k=(30,)", "f32[1]; k=(1,)",
        "f32[5]; k=(0,)", "f32[0,5]; k=(2,)",
    ),
    source="ONNX TopK, opset 11",
)  # fmt: skip

OPS: Final[tuple[OpDecl, ...]] = (top_k,)
