"""Regions of control flow as steps: blocks, branches, and storages that loops carry.

The values of a region live where everything lives, in storages of the program: what a region takes is where the
operand is, what it yields is written where the node's result is.  A carried value has one storage for all trips;
the body writes its next value there directly, where nobody reads the one before any more.  What has a size that is
known only inside is written to a block of memory of its own, which the result, or the next trip, takes over.

Called by `build`, which emits the nodes inside.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Protocol, cast

from tilewright.base.symbolic import Dim, Expr, Symbol, symbols
from tilewright.compiler.graph.ir import Graph, Node, Value
from tilewright.compiler.graph.schema import TensorType, Trait
from tilewright.compiler.program import ir
from tilewright.compiler.program.updates import updates_of


class StepBuilder(Protocol):
    """What emits the nodes of a region: `build`."""

    entries: dict[Value, ir.Entry]
    outputs: dict[Value, ir.Entry]
    states: set[Value]  # what is written where a loop will carry it
    steps: list[ir.Step]

    def emit(self, node: Node) -> None:
        """Append the steps of a node."""
        ...

    def signature_of(self, node: Node) -> ir.KernelSignature | None:
        """The kernel of a node, if it has one."""
        ...

    def unique(self, name: str) -> str:
        """A name that no other step has."""
        ...


def emit_read(build: StepBuilder, node: Node) -> None:
    """The step of a `bind_sizes`."""
    (source,) = node.present_operands
    build.steps.append(ir.ReadSizes(build.entries[source], node.bound_sizes, node.location))


def emit_expectation(build: StepBuilder, node: Node) -> None:
    """The step of an `expect_sizes`."""
    sides = (cast("tuple[Dim, ...]", node.attributes[side]) for side in ("left", "right"))
    build.steps.append(ir.ExpectSizes(tuple(zip(*sides, strict=True)), node.location))


def emit_if(build: StepBuilder, node: Node) -> None:
    """One branch or the other; both write the results of the node, or hand their memory over to them."""
    condition, *captured = (build.entries[v] for v in node.present_operands)
    name = build.unique("branch")
    results = [_place(build, value, name, node.bound_sizes) for value in node.results]
    otherwise, done = ir.Label(f"{name}_else"), ir.Label(f"{name}_end")
    build.steps.append(ir.Branch(condition, otherwise))
    _emit_branch(build, node, 0, captured, results)
    build.steps += [ir.Jump(done), otherwise]
    _emit_branch(build, node, 1, captured, results)
    build.steps.append(done)


def _place(
    build: StepBuilder, value: Value, name: str, bound: Sequence[Symbol]
) -> ir.Entry:
    entry = build.outputs.get(value)
    if _depends_on(value.type, bound):
        entry = ir.Entry.alone("block", value.type, value.name or name)
    if entry is None:
        entry = ir.Entry.alone("transient", value.type, value.name or name)
    build.entries[value] = entry
    return entry


def _emit_branch(
    build: StepBuilder,
    node: Node,
    index: int,
    captured: Sequence[ir.Entry],
    results: Sequence[ir.Entry],
) -> None:
    region = node.regions[index]
    build.entries.update(zip(region.inputs, captured, strict=True))
    pairs = list(zip(region.outputs, results, strict=True))
    moved = [pair for pair in pairs if _depends_on(pair[1].type, node.bound_sizes)]
    kept = [pair for pair in pairs if pair not in moved]
    for value, target in kept:
        _write_directly(build, value.origin, target)
    _reserve_blocks(build, [value for value, _ in moved])
    _emit_nodes(build, region)
    for value, target in kept:
        source = build.entries[value]
        if source.storage is not target.storage:
            build.steps.append(ir.Copy(source, target))
    _hand_over(build, node, region, moved)


def _write_directly(build: StepBuilder, origin: Value, target: ir.Entry) -> None:
    """Let the maker of `origin` write to `target`, unless it writes elsewhere already."""
    node = origin.node
    fixed = Trait.CONSTANT | Trait.PART  # these have bytes already
    if node is None or node.schema.traits & fixed or origin in build.outputs:
        return
    build.outputs[origin] = ir.Entry(target.storage, origin.type)


def _emit_nodes(build: StepBuilder, region: Graph) -> None:
    reserve_states(build, region)
    for node in region:
        build.emit(node)


def reserve_states(build: StepBuilder, graph: Graph) -> None:
    """Let what only a loop reads, as the first value that it carries, be written where the loop carries it."""
    uses: dict[Value, int] = {}
    for value in (*graph.outputs, *(v for node in graph for v in node.present_operands)):
        uses[value] = uses.get(value, 0) + 1
    for node in graph:
        if Trait.LOOP not in node.schema.traits:
            continue
        carried = node.regions[1].inputs
        for value, result, inner in zip(
            node.present_operands, node.results, carried, strict=False
        ):
            if _depends_on(inner.type, node.trip_sizes):
                continue
            maker = value.node
            made_here = maker is not None and not maker.schema.traits & (
                Trait.CONSTANT | Trait.VIEW | Trait.PART
            )
            if made_here and uses[value] == 1 and value not in build.outputs:
                kept = build.outputs.get(result)
                own = ir.Entry.alone("transient", value.type, value.name or "state")
                build.outputs[value] = kept or own
                build.states.add(value)


def emit_while(build: StepBuilder, node: Node) -> None:
    """The carried storages, then: condition, branch out, body, back."""
    count = len(node.results)
    operands = [build.entries[v] for v in node.present_operands]
    name = build.unique("loop")
    go_on, body = node.regions
    states = _states(build, node, name)
    inside = [*states, *operands[count:]]
    head, done = ir.Label(name), ir.Label(f"{name}_end")
    build.steps.append(head)
    build.entries.update(zip(go_on.inputs, inside, strict=True))
    _emit_nodes(build, go_on)
    build.steps.append(ir.Branch(build.entries[go_on.outputs[0]], done))
    build.entries.update(zip(body.inputs, inside, strict=True))
    moved: list[tuple[Value, ir.Entry]] = []
    for index, target in enumerate(states):
        if _depends_on(target.type, node.trip_sizes):
            moved.append((body.outputs[index], target))
        elif _may_write_state(build, body, index):
            _write_directly(build, body.outputs[index].origin, target)
    _reserve_blocks(build, [value for value, _ in moved])
    _emit_nodes(build, body)
    _carry(build, body, states, [target for _, target in moved])
    _hand_over(build, node, body, moved)
    build.steps += [ir.Jump(head), done]
    _leave(build, node, states)


def _states(build: StepBuilder, node: Node, name: str) -> list[ir.Entry]:
    """Where a loop carries its values, which hold the first ones when this returns."""
    carried, given = node.regions[1].inputs, node.present_operands
    states: list[ir.Entry] = []
    moved: list[tuple[Value, ir.Entry]] = []
    for value, inner, result in zip(given, carried, node.results, strict=False):
        if _depends_on(inner.type, node.trip_sizes):
            states.append(
                ir.Entry.alone("block", inner.type, result.name or f"{name}_state")
            )
            moved.append((value, states[-1]))
        else:
            states.append(_state(build, value, result, name))
    _hand_over(build, node, None, moved)
    return states


def _leave(build: StepBuilder, node: Node, states: Sequence[ir.Entry]) -> None:
    """The results of a loop lie where it carried them; sizes that changed have names that change no more."""
    carried = zip(node.results, node.regions[1].inputs, strict=False)
    types = ((result.type, inner.type) for result, inner in carried)
    found = _values_of(types, node.bound_sizes)
    if found:
        rows = tuple(found), tuple(found.values())
        build.steps.append(ir.Rebind(*rows, location=node.location))
    for result, state in zip(node.results, states, strict=True):
        build.entries[result] = ir.Entry(state.storage, result.type)


def _state(build: StepBuilder, value: Value, result: Value, name: str) -> ir.Entry:
    """Where a loop carries a value: holds the first one when this returns."""
    first, kept = build.entries[value], build.outputs.get(result)
    if value in build.states:
        return ir.Entry(first.storage, result.type)
    own = ir.Entry.alone("transient", result.type, result.name or f"{name}_state")
    target = kept or own
    build.steps.append(ir.Copy(first, target))
    return target


def _depends_on(type_: TensorType, sizes: Sequence[Symbol]) -> bool:
    """Whether one of the symbols is in the shape of a type."""
    return any(symbol in sizes for dim in type_.shape for symbol in symbols(dim))


def allocate(build: StepBuilder, target: ir.Entry) -> None:
    """Give a block memory in time: before the steps in a row that come last, so that they stay in a row."""
    place = len(build.steps)
    while place and not isinstance(build.steps[place - 1], ir.FlowStep):
        place -= 1
    build.steps.insert(place, ir.Allocate(target))


def _reserve_blocks(build: StepBuilder, values: Sequence[Value]) -> None:
    """Let the makers of what a region yields write memory that can be handed over."""
    for value in values:
        origin = value.origin
        node = origin.node
        fixed = Trait.CONSTANT | Trait.PART | Trait.BRANCH | Trait.LOOP
        if node is None or node.schema.traits & fixed or origin in build.outputs:
            continue
        build.outputs[origin] = ir.Entry.alone("block", origin.type, value.name or "next")


def _hand_over(
    build: StepBuilder,
    node: Node,
    region: Graph | None,
    moved: Sequence[tuple[Value, ir.Entry]],
) -> None:
    """Let storages take over what a region made, or a copy of what it did not make; no region: of all values."""
    own = set(() if region is None else region.nodes)
    taken: set[ir.Storage] = set()
    moves: list[tuple[ir.Entry, ir.Entry]] = []
    for value, target in moved:
        source = build.entries[value]
        is_own = source.storage.kind == "block" and value.origin.node in own
        if not is_own or source.storage in taken:
            aside = ir.Entry.alone("block", value.type, target.storage.name)
            allocate(build, aside)
            build.steps.append(ir.Copy(source, aside))
            source = aside
        taken.add(source.storage)
        moves.append((source, target))
    if moves:
        types = ((target.type, value.type) for value, target in moved)
        values = _values_of(types, node.trip_sizes or node.bound_sizes)
        rows = tuple(values), tuple(values.values())
        build.steps.append(ir.Rebind(*rows, tuple(moves), node.location))


def _values_of(
    types: Iterable[tuple[TensorType, TensorType]], wanted: Collection[Symbol]
) -> dict[Symbol, Dim]:
    """What symbols that are a dimension of the first type of a pair are in the second; the first pair that says it counts."""
    found: dict[Symbol, Dim] = {}
    for named, given in types:
        for name, dim in zip(named.shape, given.shape, strict=True):
            for symbol in symbols(name).intersection(wanted):
                if name == Expr.of_atom(symbol):
                    found.setdefault(symbol, dim)
    return found


def _may_write_state(build: StepBuilder, body: Graph, index: int) -> bool:
    """Whether the body may write its next value over the one before.

    True when the last reader of the old value is before the maker of the new one, or is the maker, whose
    kernel may overwrite that operand.
    """
    state, maker = body.inputs[index], body.outputs[index].origin.node
    if maker is None or maker.schema.traits & (Trait.CONSTANT | Trait.PART):
        return False
    shown = {state}
    for node in body:
        if Trait.VIEW in node.schema.traits and node.operands[0] in shown:
            shown.update(node.results)
    if any(value in shown for value in body.outputs):
        return False
    if sum(v.origin.node is maker for v in body.outputs) > 1:
        return False
    order = {node: place for place, node in enumerate(body.nodes)}
    readers = [
        order[node]
        for node in body
        if Trait.VIEW not in node.schema.traits
        and any(v in shown for v in node.present_operands)
    ]
    last = max(readers, default=-1)
    if maker.regions and Trait.SEALED not in maker.schema.traits:
        return last < order[maker]
    return last < order[maker] or (
        last == order[maker] and _overwrites(build, maker, shown, body.outputs[index])
    )


def _overwrites(build: StepBuilder, maker: Node, shown: set[Value], output: Value) -> bool:
    signature = build.signature_of(maker)
    operands = list(maker.present_operands)
    places = [i for i, value in enumerate(operands) if value in shown]
    if signature is None or len(places) != 1:
        return False
    result = output.origin.index
    return (places[0], result) in updates_of(maker) or (
        places[0],
        len(operands) + result,
    ) in signature.overwrites


def _carry(
    build: StepBuilder, body: Graph, states: Sequence[ir.Entry], moved: Sequence[ir.Entry]
) -> None:
    """Copy what the body made to where the next trip looks, but for states whose memory moves.

    What is carried elsewhere is copied aside first.
    """
    carried = {entry.storage for entry in states}
    moves: list[tuple[ir.Entry, ir.Entry]] = []
    for value, target in zip(body.outputs, states, strict=True):
        source = build.entries[value]
        if source.storage is target.storage or target in moved:
            continue
        if source.storage in carried:
            aside = ir.Entry.alone("transient", value.type, "carried")
            build.steps.append(ir.Copy(source, aside))
            source = aside
        moves.append((source, target))
    build.steps += [ir.Copy(source, target) for source, target in moves]
