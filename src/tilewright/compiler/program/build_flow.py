"""Regions of control flow as steps: blocks, branches, and storages that loops carry.

The values of a region live where everything lives, in storages of the program: what a region takes is where the
operand is, what it yields is written where the node's result is.  A carried value has one storage for all trips;
the body writes its next value there directly, where nobody reads the one before any more.

Called by `build`, which emits the nodes inside.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, cast

from tilewright.base.symbolic import Dim, symbols
from tilewright.compiler.graph.ir import Graph, Node, Value
from tilewright.compiler.graph.schema import Trait
from tilewright.compiler.program.ir import (
    Branch,
    Copy,
    Entry,
    Jump,
    KernelSignature,
    Label,
    ReadSizes,
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
    dims = cast("tuple[Dim, ...]", node.attributes["sizes"])
    sizes = tuple(symbol for dim in dims for symbol in symbols(dim))
    blocks.steps.append(ReadSizes(blocks.entries[source], sizes, node.location))


def emit_if(blocks: Blocks, node: Node) -> None:
    """One branch or the other; both write the results of the node."""
    condition, *captured = (blocks.entries[v] for v in node.present_operands)
    name = blocks.unique("branch")
    results = [_place(blocks, value, name) for value in node.results]
    otherwise, done = Label(f"{name}_else"), Label(f"{name}_end")
    blocks.steps.append(Branch(condition, otherwise))
    _emit_branch(blocks, node.regions[0], captured, results)
    blocks.steps += [Jump(done), otherwise]
    _emit_branch(blocks, node.regions[1], captured, results)
    blocks.steps.append(done)


def _place(blocks: Blocks, value: Value, name: str) -> Entry:
    entry = blocks.outputs.get(value)
    if entry is None:
        storage = Storage("transient", value.type.size_bytes, value.name or name)
        entry = Entry(storage, value.type)
    blocks.entries[value] = entry
    return entry


def _emit_branch(
    blocks: Blocks, region: Graph, captured: Sequence[Entry], results: Sequence[Entry]
) -> None:
    blocks.entries.update(zip(region.inputs, captured, strict=True))
    for value, target in zip(region.outputs, results, strict=True):
        _write_directly(blocks, origin_of(value), target)
    _emit_nodes(blocks, region)
    for value, target in zip(region.outputs, results, strict=True):
        source = blocks.entries[value]
        if source.storage is not target.storage:
            blocks.steps.append(Copy(source, target))


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
        for value, result in zip(node.present_operands, node.results, strict=False):
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
    states = [
        _state(blocks, value, result, name)
        for value, result in zip(node.present_operands, node.results, strict=False)
    ]
    inside = [*states, *operands[count:]]
    go_on, body = node.regions
    head, done = Label(name), Label(f"{name}_end")
    blocks.steps.append(head)
    blocks.entries.update(zip(go_on.inputs, inside, strict=True))
    _emit_nodes(blocks, go_on)
    blocks.steps.append(Branch(blocks.entries[go_on.outputs[0]], done))
    blocks.entries.update(zip(body.inputs, inside, strict=True))
    for index, target in enumerate(states):
        if _may_write_state(blocks, body, index):
            _write_directly(blocks, origin_of(body.outputs[index]), target)
    _emit_nodes(blocks, body)
    _carry(blocks, body, states)
    blocks.steps += [Jump(head), done]
    blocks.entries.update(zip(node.results, states, strict=True))


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


def _carry(blocks: Blocks, body: Graph, states: Sequence[Entry]) -> None:
    """Move what the body made to where the next trip looks; what is carried elsewhere moves aside first."""
    carried = {entry.storage for entry in states}
    moves: list[tuple[Entry, Entry]] = []
    for value, target in zip(body.outputs, states, strict=True):
        source = blocks.entries[value]
        if source.storage is target.storage:
            continue
        if source.storage in carried:
            aside = Entry(
                Storage("transient", value.type.size_bytes, "carried"), value.type
            )
            blocks.steps.append(Copy(source, aside))
            source = aside
        moves.append((source, target))
    blocks.steps += [Copy(source, target) for source, target in moves]
