"""Control flow of a model as nodes with regions: branches, loops, rows that a loop stacks.

A branch runs alone, unless both are so small and plain that computing them costs less than asking which; a loop
is a loop.  Whether it should rather be written out is the front end's question, with `worth_unrolling` for an
answer.  Called by the rows of front ends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, cast

import numpy as np

from tilewright.base import dtypes
from tilewright.base.symbolic import Dim, symbol, symbols
from tilewright.compiler.frontends.kit.assumptions import bound_names
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.region import Region
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.graph.ir import Graph, Node
from tilewright.compiler.graph.schema import Array, TensorType, Trait
from tilewright.compiler.ops.shapes import element_count

UNROLLED_NODES: Final = 256
"""A loop is written out up to so many nodes: small kernels then fuse across trips."""
_CHEAP_NODES: Final = 8
_CHEAP_ELEMENTS: Final = 1 << 14
_PLAIN: Final = Trait.ELEMENTWISE | Trait.CONSTANT | Trait.VIEW

Branch = Callable[[], list[Tensor]]
Trip = Callable[[list[Tensor]], list[Tensor]]


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
    if all(_is_cheap(region.graph) for region in regions) and _same_types(*results):
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
    for region, made in zip(regions, results, strict=True):
        refuse_inner_sizes(region.graph, [t.type for t in made])
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


def refuse_inner_sizes(graph: Graph, types: Sequence[TensorType]) -> None:
    """Raise UnsupportedError for results whose size is known only while the region runs."""
    inner = bound_names(graph)
    for type_ in types:
        if any(s.name in inner for dim in type_.shape for s in symbols(dim)):
            raise UnsupportedError(
                f"a result of type {type_} has a size that data decides inside of control flow",
                hint="compute what decides the size before the branch or loop, or pad the result to a known one",
            )


def fresh_symbol(e: NodeMaker, stem: str, low: int = 0, high: int | None = None) -> Dim:
    """A symbol that no other size of the model is called."""
    return symbol(e.fresh_name(stem), low, high)


def read_sizes(
    e: NodeMaker, values: Tensor, stem: str = "size", high: int | None = None
) -> tuple[Dim, ...]:
    """The elements of a small tensor of integers, as sizes; the host reads those that are not known."""
    count = element_count(values.shape)
    if not isinstance(count, int):
        raise UnsupportedError("how many sizes there are depends on data")
    held = _joined_elements(values) or [None] * count
    unknown = [place for place, size in enumerate(held) if size is None]
    if not unknown:
        return tuple(size for size in held if size is not None)
    if len(unknown) < count:
        values = e.op("gather", values, e.constant(np.array(unknown)), axis=0)
    sizes = [fresh_symbol(e, stem, 0, high) for _ in unknown]
    e.bind_sizes(e.cast(values, dtypes.i64), sizes)
    fresh = iter(sizes)
    return tuple(next(fresh) if size is None else size for size in held)


def _joined_elements(values: Tensor) -> list[Dim | None] | None:
    """The elements of a vector that is joined of known and other pieces; None: it is no such vector."""
    node = None if values.value is None else values.value.node
    if node is None or node.op != "concat" or values.rank != 1:
        return None
    found: list[Dim | None] = []
    for piece in node.present_operands:
        count = element_count(piece.type.shape)
        if not isinstance(count, int):
            return None
        found += _piece_elements(piece.node, count)
    return found


def _piece_elements(node: Node | None, count: int) -> Sequence[Dim | None]:
    """Sizes that stand in the graph; a negative one is none, and is refused where it is read."""
    if node is not None and node.op == "constant":
        numbers = np.reshape(cast("Array", node.attributes["value"]), -1).tolist()
        return [number if number >= 0 else None for number in numbers]
    if node is not None and node.op == "shape_tensor":
        return cast("tuple[Dim, ...]", node.attributes["values"])
    return [None] * count


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
    valid = e.op("reduce_sum", hits, axes=(0,), keepdims=True)
    e.bind_sizes(valid, [fresh_symbol(e, "known", 1, 1)])
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
            refuse_inner_sizes(region.graph, types[-1])
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


def loop(
    e: NodeMaker,
    state: Sequence[Tensor],
    go_on: Callable[[list[Tensor]], Tensor],
    trip: Trip,
) -> list[Tensor]:
    """What a loop carries, when it ends.

    Args:
        e: writes the nodes.
        state: what it begins with.
        go_on: whether there is another trip, a scalar.
        trip: the next state, of the same types.

    Raises: UnsupportedError where a type changes from trip to trip.
    """
    types = [t.type for t in state]
    with e.region(types) as condition:
        going = go_on(list(condition.inputs))
        condition.graph.outputs = [e.value(e.reshape(going, ()))]
    with e.region(types) as body:
        made = trip(list(body.inputs))
        for place, (before, after) in enumerate(zip(types, made, strict=True)):
            if before != after.type:
                raise UnsupportedError(
                    f"value {place + 1} that a loop carries is {before}, then {after.type}",
                    hint="carry it in its largest size, or give the number of trips as a constant",
                )
        body.graph.outputs = [e.value(t) for t in made]
    return e.flow("while", state, [condition, body], types, carried=len(types))


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
