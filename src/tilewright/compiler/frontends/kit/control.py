"""Control flow of a model as nodes with regions: branches, loops, rows that a loop stacks.

A branch runs alone, unless both are so small and plain that computing them costs less than asking which; a loop
is a loop.  Whether it should rather be written out is the front end's question, with `worth_unrolling` for an
answer.  Called by the rows of front ends.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Final, final

import numpy as np

from tilewright.base import dtypes
from tilewright.base.errors import DOES_NOT_HOLD
from tilewright.base.record import record
from tilewright.base.symbolic import Dim, bounds, names_in, symbol, symbols
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.region import Region
from tilewright.compiler.frontends.kit.stated_sizes import joined_elements
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.graph.ir import Graph
from tilewright.compiler.graph.schema import TensorType, Trait
from tilewright.compiler.ops.shapes import element_count

UNROLLED_NODES: Final = 256
"""A loop is written out up to so many nodes: small kernels then fuse across trips."""
_CHEAP_NODES: Final = 8
_CHEAP_ELEMENTS: Final = 1 << 14
_CHEAP_DEPTH: Final = 6
"""What is written once more at every level is written twice as often at each."""
_PLAIN: Final = Trait.ELEMENTWISE | Trait.CONSTANT | Trait.VIEW

Branch = Callable[[], list[Tensor]]
Trip = Callable[[list[Tensor]], list[Tensor]]
Checkpoint = Callable[[], Callable[[], None]]
_Classes = dict[tuple[int, int], Dim]
"""By place and axis of a carried value: the symbol of a size that changes."""


def worth_unrolling(trips: int, nodes: int) -> bool:
    """Whether a loop of `trips` trips over `nodes` nodes is written out."""
    return trips <= 1 or trips * max(nodes, 1) <= UNROLLED_NODES


def conditional(
    e: NodeMaker, condition: Tensor, then: Branch, otherwise: Branch
) -> list[Tensor]:
    """The results of one of two branches.

    Raises: UnsupportedError where they cannot be results of one operation.
    """
    condition = e.reshape(condition, ())
    regions: list[Region] = []
    results: list[list[Tensor]] = []
    for branch in (then, otherwise):
        with e.region() as region:
            made = branch()
            region.graph.outputs = [e.value(t) for t in made]
        regions.append(region)
        results.append(made)
    _check_pairs(*results)
    inner = [region.graph.bound_names() for region in regions]
    if any(
        mentions(t.shape, names)
        for made, names in zip(results, inner, strict=True)
        for t in made
    ):
        types, sizes = _joined_types(e, *results, inner=inner[0] | inner[1])
        return e.flow("if", [condition], regions, types, sizes=sizes)
    is_cheap = e.depth < _CHEAP_DEPTH and all(_is_cheap(r.graph) for r in regions)
    if is_cheap and _same_types(*results):
        pairs = zip(then(), otherwise(), strict=True)
        return [a if a is b else e.op("where", condition, a, b) for a, b in pairs]
    types = [TensorType(a.dtype, a.shape) for a in results[0]]
    if not _same_types(*results):
        types = _either_types(e, condition, regions, results)
    return e.flow("if", [condition], regions, types)


def _check_pairs(then: Sequence[Tensor], otherwise: Sequence[Tensor]) -> None:
    if len(then) != len(otherwise):
        raise UnsupportedError("the branches have different numbers of results")
    for a, b in zip(then, otherwise, strict=True):
        if a.dtype != b.dtype or a.rank != b.rank:
            raise UnsupportedError(
                f"the result is {a.type} or {b.type}, depending on data",
                hint="give both branches results of one rank and type, or the condition as a constant",
            )


def mentions(sizes: Sequence[Dim], names: Collection[str]) -> bool:
    """Whether one of the sizes has a symbol of these names."""
    return any(s.name in names for dim in sizes for s in symbols(dim))


def _joined_types(
    e: NodeMaker,
    then: Sequence[Tensor],
    otherwise: Sequence[Tensor],
    *,
    inner: frozenset[str],
) -> tuple[list[TensorType], tuple[Dim, ...]]:
    """Types of which the sizes are symbols where branches differ or only they know them; those symbols."""
    found: dict[tuple[Dim, Dim], Dim] = {}
    types: list[TensorType] = []
    for a, b in zip(then, otherwise, strict=True):
        shape: list[Dim] = []
        for pair in zip(a.shape, b.shape, strict=True):
            if pair[0] == pair[1] and not mentions(pair, inner):
                shape.append(pair[0])
                continue
            if pair not in found:
                found[pair] = fresh_symbol(e, "branch", *_either_bounds(*pair))
            shape.append(found[pair])
        types.append(TensorType(a.dtype, tuple(shape)))
    return types, tuple(found.values())


def _either_bounds(one: Dim, other: Dim) -> tuple[int, int | None]:
    """What is known of a size that is one of two."""
    lows, highs = zip(bounds(one), bounds(other), strict=True)
    low = min(max(low or 0, 0) for low in lows)
    return low, None if None in highs else max(h for h in highs if h is not None)


def _same_types(then: Sequence[Tensor], otherwise: Sequence[Tensor]) -> bool:
    return all(a.type == b.type for a, b in zip(then, otherwise, strict=True))


def _is_cheap(graph: Graph) -> bool:
    """Whether computing all of it is nothing beside reading a condition back."""
    nodes = [n for n in graph if Trait.CONSTANT not in n.schema.traits]
    if len(nodes) > _CHEAP_NODES or not all(n.schema.traits & _PLAIN for n in nodes):
        return False
    total: Dim = 0
    for value in (*graph.outputs, *(v for n in nodes for v in n.results)):
        total = total + value.type.element_count
    return isinstance(total, int) and total <= _CHEAP_ELEMENTS


def _either_types(
    e: NodeMaker,
    condition: Tensor,
    regions: Sequence[Region],
    results: Sequence[Sequence[Tensor]],
) -> list[TensorType]:
    """Types whose sizes depend on which branch runs: the condition is a size, too, 0 or 1."""
    chosen = fresh_symbol(e, "branch", 0, 1)
    e.bind_sizes(e.cast(condition, dtypes.i64), [chosen])
    types = [
        TensorType(
            a.dtype,
            tuple(
                p if p == q else chosen * p + (1 - chosen) * q
                for p, q in zip(a.shape, b.shape, strict=True)
            ),
        )
        for a, b in zip(*results, strict=True)
    ]
    for region, made in zip(regions, results, strict=True):
        e.retype(region, made, types)
    return types


def refuse_inner_sizes(inner: Collection[str], types: Sequence[TensorType]) -> None:
    """Raise UnsupportedError for results with a size that is known only while a region runs."""
    for type_ in types:
        if mentions(type_.shape, inner):
            raise UnsupportedError(
                f"a result of type {type_} has a size that data decides inside of control flow",
                hint="compute what decides the size before the branch or loop, or pad the result to a known one",
            )


def as_declared(e: NodeMaker, result: Tensor, declared: TensorType | None) -> Tensor:
    """A result of a region whose sizes data decides in there, as of the sizes that its model declares for it.

    A run that has others fails.  What the region does not decide is left as it is.
    """
    if declared is None or not e.is_inside or declared.rank != result.rank:
        return result
    inner = e.graph.bound_names()
    sizes: list[Dim] = list(result.shape)
    for axis, (own, said) in enumerate(zip(result.shape, declared.shape, strict=True)):
        if isinstance(said, int) and mentions((own,), inner):
            require(e, e.dim(own), said, "declared")
            sizes[axis] = said
    return e.as_type(result, TensorType(result.dtype, tuple(sizes)))


def fresh_symbol(e: NodeMaker, stem: str, low: int = 0, high: int | None = None) -> Dim:
    """A symbol that no other size of the model is called."""
    return symbol(e.fresh_name(stem), low, high)


def read_sizes(
    e: NodeMaker,
    values: Tensor,
    stem: str = "size",
    high: int | None = None,
    *,
    low: int = 0,
    note: str = "",
) -> tuple[Dim, ...]:
    """The elements of a small tensor of integers, as sizes; the host reads those that are not known.

    A run in which one of them is not from `low` to `high` fails and names the node, and behind it the `note`.
    """
    count = element_count(values.shape)
    if not isinstance(count, int):
        raise UnsupportedError("how many sizes there are depends on data")
    held = [
        None if isinstance(size, int) and size < low else size
        for size in joined_elements(values) or [None] * count
    ]
    unknown = [place for place, size in enumerate(held) if size is None]
    if not unknown:
        return tuple(size for size in held if size is not None)
    if len(unknown) < count:
        values = e.op("gather", values, e.constant(np.array(unknown)), axis=0)
    sizes = [fresh_symbol(e, stem, low, high) for _ in unknown]
    e.bind_sizes(e.cast(values, dtypes.i64), sizes, note)
    fresh = iter(sizes)
    return tuple(next(fresh) if size is None else size for size in held)


def read_signed(e: NodeMaker, values: Tensor, stem: str) -> list[Dim]:
    """The elements of a small vector of integers that may be negative; the host reads those that are not known.

    What is read is a size, so it is read how far each is above zero, and how far below.
    """
    held = joined_elements(values)
    if held is None:
        count = element_count(values.shape)
        if not isinstance(count, int):
            raise UnsupportedError("how many numbers there are depends on data")
        held = [None] * count
    places = [place for place, number in enumerate(held) if number is None]
    unknown = e.op(
        "gather", e.cast(values, dtypes.i64), e.constant(np.array(places)), axis=0
    )
    zero = e.scalar(0, dtypes.i64)
    above, below = (
        e.op("max", side, zero) for side in (unknown, e.op("sub", zero, unknown))
    )
    sizes = read_sizes(e, e.concat([above, below], 0), stem)
    pairs = zip(sizes[: len(places)], sizes[len(places) :], strict=True)
    fresh = iter([more - less for more, less in pairs])
    return [next(fresh) if number is None else number for number in held]


def require(e: NodeMaker, value: Tensor, number: int, stem: str, note: str = "") -> None:
    """The one element of `value` has to be `number`, or the call fails and names the node, and behind it the `note`."""
    held = e.reshape(e.cast(value, dtypes.i64), (1,))
    e.bind_sizes(held, [fresh_symbol(e, stem, number, number)], note)


def expect(e: NodeMaker, condition: Tensor, words: str = "") -> None:
    """The condition has to hold, or the call fails and names the node and, in `words`, what was asked of it."""
    told = f" ({words})" if words else ""
    require(e, condition, 1, "condition", f"{told}{DOES_NOT_HOLD}")


def agree(e: NodeMaker, size: Dim, expected: Dim, stem: str = "size") -> None:
    """What data makes of a size has to be `expected`, or the call fails and names the node."""
    if isinstance(expected, int) and not isinstance(size, int):
        require(e, e.dims((size,)), expected, stem)
    else:
        e.assume(size, expected)


def switch(
    e: NodeMaker,
    code: Tensor,
    values: Sequence[int],
    branch: Callable[[int], list[Tensor]],
) -> list[Tensor]:
    """The results of the branch for the value that `code`, a scalar, has; another value fails the call.

    Sizes that differ from branch to branch are looked up by the code, and read.

    Raises: UnsupportedError where they cannot be results of one operation.
    """
    if not values:
        raise UnsupportedError("no value is possible")
    types = _types_of_branches(e, values, branch)
    hits = e.cast(
        e.op("equal", e.reshape(code, (1,)), e.constant(np.array(values))), dtypes.i64
    )
    hit = e.op("reduce_sum", hits, axes=(0,), keepdims=True)
    expect(e, hit, f"one of {', '.join(map(str, values))}")
    wanted = [
        _type_of_hit(e, hits, [own[i] for own in types]) for i in range(len(types[0]))
    ]

    def leaf(place: int) -> list[Tensor]:
        made = branch(values[place])
        return [e.as_type(t, w) for t, w in zip(made, wanted, strict=True)]

    def chain(place: int) -> list[Tensor]:
        if place == len(values) - 1:
            return leaf(place)
        regions: list[Region] = []
        for make in (lambda: leaf(place), lambda: chain(place + 1)):
            with e.region() as region:
                region.graph.outputs = [e.value(t) for t in make()]
            regions.append(region)
        is_it = e.op("equal", e.reshape(code, ()), e.scalar(values[place], code.dtype))
        return e.flow("if", [is_it], regions, wanted)

    return chain(0)


def _types_of_branches(
    e: NodeMaker, values: Sequence[int], branch: Callable[[int], list[Tensor]]
) -> list[list[TensorType]]:
    types: list[list[TensorType]] = []
    for value in values:
        with e.region() as region:
            types.append([t.type for t in branch(value)])
            refuse_inner_sizes(region.graph.bound_names(), types[-1])
    return types


def _type_of_hit(e: NodeMaker, hits: Tensor, types: Sequence[TensorType]) -> TensorType:
    """The type of the branch that has a 1 among `hits`; sizes in which branches differ are read.

    A polynomial of all branches would be exact, too, but the elements of six such sizes are a product of millions of terms.
    """
    first = types[0]
    if any(t.dtype != first.dtype or t.rank != first.rank for t in types):
        listed = " or ".join(dict.fromkeys(str(t) for t in types))
        raise UnsupportedError(f"the result is {listed}, depending on data")
    columns = [*zip(*(t.shape for t in types), strict=True)]
    open_axes = [axis for axis, sizes in enumerate(columns) if len(set(sizes)) > 1]
    if not open_axes:
        return first
    picked = [e.op("mul", hits, e.dims(columns[axis])) for axis in open_axes]
    totals = [e.op("reduce_sum", sizes, axes=(0,), keepdims=True) for sizes in picked]
    known = [size for axis in open_axes for size in columns[axis] if isinstance(size, int)]
    is_known = len(known) == len(open_axes) * len(types)
    found = read_sizes(e, e.concat(totals, 0), "branch", max(known) if is_known else None)
    shape = [*first.shape]
    for axis, size in zip(open_axes, found, strict=True):
        shape[axis] = size
    return TensorType(first.dtype, tuple(shape))


@final
@record
class Carried:
    """What a loop carries, and the trip that says so.

    Attributes:
        types: as every trip sees it.
        growth: for each size that changes from trip to trip what it begins with, and what a trip makes of it.
        body: the trip, a region that is closed.
        undo: lets the import forget the trip.
    """

    types: list[TensorType]
    growth: dict[Dim, tuple[Dim, Dim]]
    body: Region
    undo: Callable[[], None]

    @property
    def inner_sizes(self) -> frozenset[str]:
        """The names of sizes that mean nothing outside of a trip."""
        return self.body.graph.bound_names() | names_in(self.growth)


def write_trip(
    e: NodeMaker,
    state: Sequence[Tensor],
    trip: Trip,
    checkpoint: Checkpoint | None = None,
    *,
    is_certain: bool = False,
) -> Carried:
    """A trip of a loop, written until its types are those of the next one, too.

    Sizes that begin equal and change in the same way are one symbol.

    Args:
        e: writes the nodes.
        state: what the loop begins with.
        trip: the next state.
        checkpoint: remembers where an import is; what that gives goes back there.
        is_certain: there is a first trip.

    Raises: UnsupportedError where a rank or an element type changes from trip to trip.
    """
    first = [t.type for t in state]
    classes: _Classes = {}
    while True:
        types = [
            type_.with_shape(
                tuple(classes.get((place, axis), d) for axis, d in enumerate(type_.shape))
            )
            for place, type_ in enumerate(first)
        ]
        undo = _nothing if checkpoint is None else checkpoint()
        with e.region(types, is_certain=is_certain) as body:
            pairs = zip(trip(list(body.inputs)), types, strict=True)
            results = [_as_expected(e, body, t, before) for t, before in pairs]
            body.graph.outputs = [e.value(t) for t in results]
        made = [value.type for value in body.graph.outputs]
        _check_carried(first, made)
        found = _split(e, (first, types, made), classes)
        if found == classes:
            growth = {
                size: (first[place].shape[axis], made[place].shape[axis])
                for (place, axis), size in classes.items()
            }
            return Carried(types, growth, body, undo)
        undo()
        classes = found


def _as_expected(e: NodeMaker, body: Region, result: Tensor, before: TensorType) -> Tensor:
    """A result whose sizes a trip expects to be what they were, as of that type."""
    if result.rank != before.rank:
        return result
    shape = [
        old if (new, old) in body.expected or (old, new) in body.expected else new
        for new, old in zip(result.shape, before.shape, strict=True)
    ]
    return e.as_type(result, TensorType(result.dtype, tuple(shape)))


def _nothing() -> None:
    pass


def _check_carried(first: Sequence[TensorType], made: Sequence[TensorType]) -> None:
    for place, (before, after) in enumerate(zip(first, made, strict=True)):
        if before.dtype != after.dtype or before.rank != after.rank:
            raise UnsupportedError(
                f"value {place + 1} that a loop carries is {before}, then {after}",
                hint="give it one rank and type, or the number of trips as a constant",
            )


def _split(
    e: NodeMaker,
    types: tuple[Sequence[TensorType], Sequence[TensorType], Sequence[TensorType]],
    classes: _Classes,
) -> _Classes:
    """The classes of sizes that change: more of them, and those apart that a trip makes different.

    `types` are those before the first trip, at the beginning of a trip, and behind it.
    """
    groups: dict[tuple[Dim | None, Dim, Dim], list[tuple[int, int]]] = {}
    for place, (first, before, after) in enumerate(zip(*types, strict=True)):
        sizes = zip(first.shape, before.shape, after.shape, strict=True)
        for axis, (start, now, following) in enumerate(sizes):
            held = classes.get((place, axis))
            if held is not None:
                groups.setdefault((held, start, following), []).append((place, axis))
            elif now != following:
                groups.setdefault((None, start, 0), []).append((place, axis))
    taken: set[Dim] = set()
    found: _Classes = {}
    for (held, _, _), members in groups.items():
        size = fresh_symbol(e, "trip") if held is None or held in taken else held
        taken.add(size)
        found |= dict.fromkeys(members, size)
    return found


def loop(
    e: NodeMaker,
    state: Sequence[Tensor],
    go_on: Callable[[list[Tensor]], Tensor],
    trip: Trip,
    *,
    checkpoint: Checkpoint | None = None,
    trips: Callable[[], Dim | None] | None = None,
    is_certain: bool = False,
) -> list[Tensor]:
    """What a loop carries, when it ends; sizes may change from trip to trip.

    Args:
        e: writes the nodes.
        state: what it begins with.
        go_on: whether there is another trip, a scalar.
        trip: the next state.
        checkpoint: remembers where an import is; what that gives goes back there.
        trips: how many there will be, where that is known; asked behind the trip.
        is_certain: there is a first trip.

    Raises: UnsupportedError where a rank or an element type changes from trip to trip.
    """
    carried = write_trip(e, state, trip, checkpoint, is_certain=is_certain)
    with e.region(carried.types, is_certain=True) as condition:
        going = go_on(list(condition.inputs))
        condition.graph.outputs = [e.value(e.reshape(going, ()))]
    count = None if trips is None else trips()
    ends: dict[Dim, Dim] = {}
    open_ends: list[Dim] = []
    for size in carried.growth:
        end = _size_at_end(size, carried, count)
        if end is None:
            end = fresh_symbol(e, "end")
            open_ends.append(end)
        ends[size] = end
    return e.flow(
        "while",
        state,
        [condition, carried.body],
        [t.with_shape(tuple(ends.get(d, d) for d in t.shape)) for t in carried.types],
        carried=len(carried.types),
        sizes=tuple(open_ends),
        trip_sizes=tuple(carried.growth),
    )


def counted(
    e: NodeMaker,
    count: Dim,
    state: Sequence[Tensor],
    trip: Callable[[Tensor, list[Tensor]], list[Tensor]],
    *,
    begin: int = 0,
    is_certain: bool = False,
) -> list[Tensor]:
    """What a loop carries behind its trips from `begin` to `count`, which is none of them.

    Args:
        e: writes the nodes.
        count: the end.
        state: what it begins with.
        trip: of the number of a trip and the state the next one.
        begin: the number of the first trip.
        is_certain: there is a first trip.

    Raises: UnsupportedError where a rank or an element type changes from trip to trip.
    """

    def go_on(values: list[Tensor]) -> Tensor:
        return e.op("less", values[0], e.dim(count))

    def next_of(values: list[Tensor]) -> list[Tensor]:
        step, *held = values
        made = trip(step, held)
        return [e.op("add", step, e.scalar(1, dtypes.i64)), *made]

    start = [e.scalar(begin, dtypes.i64), *state]
    _, *ended = loop(e, start, go_on, next_of, is_certain=is_certain)
    return ended


def _size_at_end(size: Dim, carried: Carried, trips: Dim | None) -> Dim | None:
    """The size after so many trips that each add the same; None: nobody knows."""
    start, following = carried.growth[size]
    added = following - size
    if trips is None or mentions((added,), carried.inner_sizes):
        return None
    return start + trips * added


def row_at(e: NodeMaker, x: Tensor, place: Tensor, axis: int) -> Tensor:
    """The slice of `x` at `place`, a scalar in range, along an axis that goes."""
    return e.op("gather", x, inside(e, place, x.shape[axis]), axis=axis)


def inside(e: NodeMaker, place: Tensor, size: Dim) -> Tensor:
    """`place`, which is in range: so that everybody sees it, and nobody checks."""
    last = e.op("sub", e.dim(size), e.scalar(1, dtypes.i64))
    return e.op("min", e.op("max", place, e.scalar(0, dtypes.i64)), last)


def with_row(e: NodeMaker, stack: Tensor, place: Tensor, row: Tensor) -> Tensor:
    """`stack` with `row` at `place`, in range, of its first axis."""
    where = e.reshape(inside(e, place, stack.shape[0]), (1, 1))
    return e.op("scatter_nd", stack, where, e.unsqueeze(row, (0,)))
