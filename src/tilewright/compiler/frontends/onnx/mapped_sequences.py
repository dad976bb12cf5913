"""A map over sequences whose length a call decides, written as the loop that it stands for.

Each trip takes the items at its number, computes the body and appends its results to sequences that begin empty; how
such sequences pass through a loop, and what their items may be, is the loop's matter (`control`, `forms`).  Called by
`sequences`.

Source: ONNX operator reference (SequenceMap, the function body of its schema).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from onnx import GraphProto, ValueInfoProto, helper

from tilewright.compiler.frontends.onnx.attributes import text_of
from tilewright.compiler.frontends.onnx.call import Call
from tilewright.compiler.frontends.onnx.values import (
    Held,
    JoinedSequence,
    StackedSequence,
    TensorSequence,
)


def by_loop(call: Call, body: GraphProto, operands: Sequence[Held]) -> list[Held]:
    """The sequences of what `body` makes of the items of `operands`; tensors among them are the same in every trip.

    Raises: UnsupportedError for items that no loop gathers.
    """
    # No name of the body begins like the names that are made here.
    stem = "map"
    while any(name.startswith(stem) for name in _names(body)):
        stem += "_"
    graph = GraphProto(name=body.name)
    given = [f"{stem}.operand.{place}" for place in range(len(operands))]
    graph.input.extend(ValueInfoProto(name=name) for name in given)
    # By place: a body may give one value twice.
    places = range(len(body.output))
    count, empty = f"{stem}.count", [f"{stem}.empty.{place}" for place in places]
    graph.node.append(helper.make_node("SequenceLength", given[:1], [count]))
    graph.node.extend(helper.make_node("SequenceEmpty", [], [name]) for name in empty)
    made = [f"{stem}.made.{place}" for place in places]
    loop = helper.make_node("Loop", [count, "", *empty], made)
    loop.attribute.append(helper.make_attribute("body", _trip(stem, body, operands)))
    graph.node.append(loop)
    graph.output.extend(ValueInfoProto(name=name) for name in made)
    return call.inline(graph, operands)


def _trip(stem: str, body: GraphProto, operands: Sequence[Held]) -> GraphProto:
    """A trip of the loop: the items, the nodes of the body, and one item more in each sequence."""
    trip = GraphProto(name=body.name)
    trip.initializer.extend(body.initializer)
    trip.sparse_initializer.extend(body.sparse_initializer)
    number, goes_on = f"{stem}.number", f"{stem}.goes_on"
    trip.input.extend([ValueInfoProto(name=number), ValueInfoProto(name=goes_on)])
    again = f"{stem}.again"
    trip.node.append(helper.make_node("Identity", [goes_on], [again]))
    trip.output.append(ValueInfoProto(name=again))
    for place, (value, held) in enumerate(zip(body.input, operands, strict=True)):
        operand = f"{stem}.operand.{place}"
        if isinstance(held, TensorSequence | StackedSequence | JoinedSequence):
            node = helper.make_node("SequenceAt", [operand, number], [value.name])
        else:
            node = helper.make_node("Identity", [operand], [value.name])
        trip.node.append(node)
    trip.node.extend(body.node)
    for place, output in enumerate(body.output):
        before, after = (f"{stem}.{when}.{place}" for when in ("before", "after"))
        trip.input.append(ValueInfoProto(name=before))
        trip.node.append(helper.make_node("SequenceInsert", [before, output.name], [after]))
        trip.output.append(ValueInfoProto(name=after))
    return trip


def _names(graph: GraphProto) -> Iterator[str]:
    """All names of a graph and of the graphs in it."""
    values = (*graph.input, *graph.output, *graph.initializer)
    yield from (text_of(value.name) for value in values)
    for node in graph.node:
        yield from (text_of(name) for name in (*node.input, *node.output))
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _names(attribute.g)
