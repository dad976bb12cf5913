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
from tilewright.compiler.program.ir import (
    Allocate,
    Branch,
    Copy,
    Entry,
    ExpectSizes,
    FlowStep,
    Jump,
    KernelSignature,
    Label,
    ReadSizes,
    Rebind,
    Step,
    Storage,
)
from tilewright.compiler.program.updates import updates_of


class Blocks(Protocol):
    """What emits the nodes of a region: `build`."""

    entries: dict[Value, Entry]
    outputs: dict[Value, Entry]
    states: set[Value]  # what is written where a loop will carry it
    steps: list[Step]

    def emit(self, node: Node) -> None:
        """Append the steps of a node."""
        ...

    def signature_of(self, node: Node) -> KernelSignature | None:
        """The kernel of a node, if it has one."""
        ...

    def unique(self, name: str) -> str:
        """A name that no other step has."""
        ...


def emit_read(blocks: Blocks, node: Node) -> None:
    """The step of a `bind_sizes`."""
    (source,) = node.present_operands
    blocks.steps.append(ReadSizes(blocks.entries[source], node.bound_sizes, node.location))


def emit_expectation(blocks: Blocks, node: Node) -> None:
    """The step of an `expect_sizes`."""
    sides = (cast("tuple[Dim, ...]", node.attributes[side]) for side in ("left", "right"))
    blocks.steps.append(ExpectSizes(tuple(zip(*sides, strict=True)), node.location))


def emit_if(blocks: Blocks, node: Node) -> None:
    """One branch or the other; both write the results of the node, or hand their memory over to them."""
    condition, *captured = (blocks.entries[v] for v in node.present_operands)
    name = blocks.unique("branch")
    results = [_place(blocks, value, name, node.bound_sizes) for value in node.results]
    otherwise, done = Label(f"{name}_else"), Label(f"{name}_end")
    blocks.steps.append(Branch(condition, otherwise))
    _emit_branch(blocks, node, 0, captured, results)
    blocks.steps += [Jump(done), otherwise]
    _emit_branch(blocks, node, 1, captured, results)
    blocks.steps.append(done)


def _place(blocks: Blocks, value: Value, name: str, bound: Sequence[Symbol]) -> Entry:
    entry = blocks.outputs.get(value)
    if _depends_on(value.type, bound):
        entry = _block(value.type, value.name or name)
    if entry is None:
        storage = Storage("transient", value.type.size_bytes, value.name or name)
        entry = Entry(storage, value.type)
    blocks.entries[value] = entry
    return entry


def _emit_branch(
    blocks: Blocks,
    node: Node,
    index: int,
    captured: Sequence[Entry],
    results: Sequence[Entry],
) -> None:
    region = node.regions[index]
    blocks.entries.update(zip(region.inputs, captured, strict=True))
    pairs = list(zip(region.outputs, results, strict=True))
    moved = [pair for pair in pairs if _depends_on(pair[1].type, node.bound_sizes)]
    kept = [pair for pair in pairs if pair not in moved]
    for value, target in kept:
        _write_directly(blocks, origin_of(value), target)
    _reserve_blocks(blocks, [value for value, _ in moved])
    _emit_nodes(blocks, region)
    for value, target in kept:
        source = blocks.entries[value]
        if source.storage is not target.storage:
            blocks.steps.append(Copy(source, target))
    _hand_over(blocks, node, region, moved)


def _write_directly(blocks: Blocks, origin: Value, target: Entry) -> None:
    """Let the maker of `origin` write to `target`, unless it writes elsewhere already."""
    node = origin.node
    fixed = Trait.CONSTANT | Trait.PART  # these have bytes already
    if node is None or node.schema.traits & fixed or origin in blocks.outputs:
        return
    blocks.outputs[origin] = Entry(target.storage, origin.type)


def _emit_nodes(blocks: Blocks, region: Graph) -> None:
    reserve_states(blocks, region)
    for node in region:
        blocks.emit(node)


def reserve_states(blocks: Blocks, graph: Graph) -> None:
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
            if made_here and uses[value] == 1 and value not in blocks.outputs:
                kept = blocks.outputs.get(result)
                storage = Storage("transient", value.type.size_bytes, value.name or "state")
                blocks.outputs[value] = kept or Entry(storage, value.type)
                blocks.states.add(value)


def origin_of(value: Value) -> Value:
    """The value whose bytes `value` shows through views."""
    while value.node is not None and Trait.VIEW in value.node.schema.traits:
        source = value.node.operands[0]
        if source is None:
            break
        value = source
    return value


def emit_while(blocks: Blocks, node: Node) -> None:
    """The carried storages, then: condition, branch out, body, back."""
    count = len(node.results)
    operands = [blocks.entries[v] for v in node.present_operands]
    name = blocks.unique("loop")
    go_on, body = node.regions
    states = _states(blocks, node, name)
    inside = [*states, *operands[count:]]
    head, done = Label(name), Label(f"{name}_end")
    blocks.steps.append(head)
    blocks.entries.update(zip(go_on.inputs, inside, strict=True))
    _emit_nodes(blocks, go_on)
    blocks.steps.append(Branch(blocks.entries[go_on.outputs[0]], done))
    blocks.entries.update(zip(body.inputs, inside, strict=True))
    moved: list[tuple[Value, Entry]] = []
    for index, target in enumerate(states):
        if _depends_on(target.type, node.trip_sizes):
            moved.append((body.outputs[index], target))
        elif _may_write_state(blocks, body, index):
            _write_directly(blocks, origin_of(body.outputs[index]), target)
    _reserve_blocks(blocks, [value for value, _ in moved])
    _emit_nodes(blocks, body)
    _carry(blocks, body, states, [target for _, target in moved])
    _hand_over(blocks, node, body, moved)
    blocks.steps += [Jump(head), done]
    _leave(blocks, node, states)


def _states(blocks: Blocks, node: Node, name: str) -> list[Entry]:
    """Where a loop carries its values, which hold the first ones when this returns."""
    carried, given = node.regions[1].inputs, node.present_operands
    states: list[Entry] = []
    moved: list[tuple[Value, Entry]] = []
    for value, inner, result in zip(given, carried, node.results, strict=False):
        if _depends_on(inner.type, node.trip_sizes):
            states.append(_block(inner.type, result.name or f"{name}_state"))
            moved.append((value, states[-1]))
        else:
            states.append(_state(blocks, value, result, name))
    _hand_over(blocks, node, None, moved)
    return states


def _leave(blocks: Blocks, node: Node, states: Sequence[Entry]) -> None:
    """The results of a loop lie where it carried them; sizes that changed have names that change no more."""
    carried = zip(node.results, node.regions[1].inputs, strict=False)
    types = ((result.type, inner.type) for result, inner in carried)
    found = _values_of(types, node.bound_sizes)
    if found:
        rows = tuple(found), tuple(found.values())
        blocks.steps.append(Rebind(*rows, location=node.location))
    for result, state in zip(node.results, states, strict=True):
        blocks.entries[result] = Entry(state.storage, result.type)


def _state(blocks: Blocks, value: Value, result: Value, name: str) -> Entry:
    """Where a loop carries a value: holds the first one when this returns."""
    first, kept = blocks.entries[value], blocks.outputs.get(result)
    if value in blocks.states:
        return Entry(first.storage, result.type)
    target = kept or Entry(
        Storage("transient", result.type.size_bytes, result.name or f"{name}_state"),
        result.type,
    )
    blocks.steps.append(Copy(first, target))
    return target


def _depends_on(type_: TensorType, sizes: Sequence[Symbol]) -> bool:
    """Whether one of the symbols is in the shape of a type."""
    return any(symbol in sizes for dim in type_.shape for symbol in symbols(dim))


def _block(type_: TensorType, name: str) -> Entry:
    return Entry(Storage("block", type_.size_bytes, name), type_)


def allocate(blocks: Blocks, target: Entry) -> None:
    """Give a block memory in time: before the steps in a row that come last, so that they stay in a row."""
    place = len(blocks.steps)
    while place and not isinstance(blocks.steps[place - 1], FlowStep):
        place -= 1
    blocks.steps.insert(place, Allocate(target))


def _reserve_blocks(blocks: Blocks, values: Sequence[Value]) -> None:
    """Let the makers of what a region yields write memory that can be handed over."""
    for value in values:
        origin = origin_of(value)
        node = origin.node
        fixed = Trait.CONSTANT | Trait.PART | Trait.BRANCH | Trait.LOOP
        if node is None or node.schema.traits & fixed or origin in blocks.outputs:
            continue
        blocks.outputs[origin] = _block(origin.type, value.name or "next")


def _hand_over(
    blocks: Blocks,
    node: Node,
    region: Graph | None,
    moved: Sequence[tuple[Value, Entry]],
) -> None:
    """Let storages take over what a region made, or a copy of what it did not make; no region: of all values."""
    own = set(() if region is None else region.nodes)
    taken: set[Storage] = set()
    moves: list[tuple[Entry, Entry]] = []
    for value, target in moved:
        source = blocks.entries[value]
        is_own = source.storage.kind == "block" and origin_of(value).node in own
        if not is_own or source.storage in taken:
            aside = _block(value.type, target.storage.name)
            allocate(blocks, aside)
            blocks.steps.append(Copy(source, aside))
            source = aside
        taken.add(source.storage)
        moves.append((source, target))
    if moves:
        types = ((target.type, value.type) for value, target in moved)
        values = _values_of(types, node.trip_sizes or node.bound_sizes)
        rows = tuple(values), tuple(values.values())
        blocks.steps.append(Rebind(*rows, tuple(moves), node.location))


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


def _may_write_state(blocks: Blocks, body: Graph, index: int) -> bool:
    """Whether the body may write its next value over the one before.

    True when the last reader of the old value is before the maker of the new one, or is the maker, whose
    kernel may overwrite that operand.
    """
    state, maker = body.inputs[index], origin_of(body.outputs[index]).node
    if maker is None or maker.schema.traits & (Trait.CONSTANT | Trait.PART):
        return False
    shown = {state}
    for node in body:
        if Trait.VIEW in node.schema.traits and node.operands[0] in shown:
            shown.update(node.results)
    if any(value in shown for value in body.outputs):
        return False
    if sum(origin_of(v).node is maker for v in body.outputs) > 1:
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
        last == order[maker] and _overwrites(blocks, maker, shown, body.outputs[index])
    )


def _overwrites(blocks: Blocks, maker: Node, shown: set[Value], output: Value) -> bool:
    signature = blocks.signature_of(maker)
    operands = list(maker.present_operands)
    places = [i for i, value in enumerate(operands) if value in shown]
    if signature is None or len(places) != 1:
        return False
    result = origin_of(output).index
    return (places[0], result) in updates_of(maker) or (
        places[0],
        len(operands) + result,
    ) in signature.overwrites


def _carry(
    blocks: Blocks, body: Graph, states: Sequence[Entry], moved: Sequence[Entry]
) -> None:
    """Copy what the body made to where the next trip looks, but for states whose memory moves.

    What is carried elsewhere is copied aside first.
    """
    carried = {entry.storage for entry in states}
    moves: list[tuple[Entry, Entry]] = []
    for value, target in zip(body.outputs, states, strict=True):
        source = blocks.entries[value]
        if source.storage is target.storage or target in moved:
            continue
        if source.storage in carried:
            aside = Entry(
                Storage("transient", value.type.size_bytes, "carried"), value.type
            )
            blocks.steps.append(Copy(source, aside))
            source = aside
        moves.append((source, target))
    blocks.steps += [Copy(source, target) for source, target in moves]
