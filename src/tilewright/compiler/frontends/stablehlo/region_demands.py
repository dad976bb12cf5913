"""What the specification demands of the regions of operations, on numbers of the types of their operands.

Source: StableHLO specification, "reduce" (C6), "sort" (C5), "select_and_scatter" (C9, C10) and their like, and
`is_promotable`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from tilewright.base.errors import ModelError
from tilewright.base.text import plural
from tilewright.compiler.frontends.stablehlo.call import Call
from tilewright.compiler.frontends.stablehlo.demands import (
    Demand,
    each_is_same,
    fits,
    handed_over,
    kind_of,
    tensor_of,
)
from tilewright.compiler.frontends.stablehlo.elements import bits_of
from tilewright.compiler.frontends.stablehlo.tree import (
    Block,
    Element,
    QuantizedType,
    TensorType,
    Type,
    Value,
)

RETURNS: Final = ("func.return", "return", "sdy.return", "stablehlo.return")
"""What a block ends with."""


def block_of(call: Call, index: int) -> Block:
    """The one block of a region, which ends by returning.  Raises: ModelError for another."""
    region = call.region(index)
    if len(region.blocks) != 1 or not region.blocks[0].operations:
        raise ModelError(f"region {index} is no block of operations")
    (block,) = region.blocks
    if block.operations[-1].name not in RETURNS:
        raise ModelError(
            f"region {index} ends with '{block.operations[-1].name}'",
            hint="its last statement is stablehlo.return with what the region gives",
        )
    return block


def returned(block: Block) -> tuple[Type, ...]:
    """The types of what a block returns."""
    return tuple(value.type for value in block.operations[-1].operands)


def promotes(one: Element, other: Element) -> bool:
    """Whether elements become those of a type of the same kind that is as wide or wider."""
    if isinstance(one, QuantizedType) and isinstance(other, QuantizedType):
        same = one.expressed == other.expressed and kind_of(one.storage) == kind_of(
            other.storage
        )
        return same and bits_of(one.storage) <= bits_of(other.storage)
    if one == other:
        return True
    return kind_of(one) == kind_of(other) != "b" and bits_of(one) < bits_of(other)


def _number(type_: Type, name: str) -> Element:
    found = tensor_of(type_, name)
    if found.shape:
        raise ModelError(f"{name} is {type_}, expected a number")
    return found.element


def _arguments(block: Block) -> list[Element]:
    return [_number(v.type, f"argument '{v.name}'") for v in block.arguments]


def combines(index: int = 0, *, count: int | None = None, starts: bool = False) -> Demand:
    """A region that makes one number of two for each input, of the type of its elements or a wider one.

    Inputs are the first `count` operands, the first half where they have `starts`, or all; results have what the
    region makes.
    """

    def check(call: Call) -> None:
        operands = [value.type for value in call.operation.operands]
        inputs = operands[: len(operands) // 2 if starts else count]
        combined(call, index, inputs, call.operation.results)

    return check


def combined(
    call: Call, index: int, inputs: Sequence[Type], results: Sequence[Value]
) -> None:
    """Raise ModelError unless a region combines the elements of `inputs`, and results are what it makes."""
    block = block_of(call, index)
    given = _arguments(block)
    made = [_number(t, f"what region {index} returns") for t in returned(block)]
    if len(given) != 2 * len(inputs) or len(made) != len(inputs):
        raise ModelError(
            f"region {index} makes {plural(len(made), 'number')} of {len(given)},"
            f" expected {len(inputs)} of {2 * len(inputs)}"
        )
    for place, (input_, result) in enumerate(zip(inputs, made, strict=True)):
        own = tensor_of(input_, f"operand {place}").element
        pair = (given[place], given[place + len(inputs)])
        if any(element != result for element in pair) or not promotes(own, result):
            raise ModelError(
                f"region {index} makes {result} of {pair[0]} and {pair[1]} for elements {own},"
                " expected one type for all",
                hint="both arguments and what is returned have the type of the elements,"
                " or a wider one of the same kind",
            )
    _results_are(results, made)


def _results_are(results: Sequence[Value], made: Sequence[Element]) -> None:
    if len(results) != len(made):
        raise ModelError(f"has {plural(len(results), 'result')}, expected {len(made)}")
    for place, (value, element) in enumerate(zip(results, made, strict=True)):
        found = tensor_of(value.type, f"result {place}").element
        if found != element:
            raise ModelError(
                f"result {place} has elements {found}, the region makes {element}, expected one type"
            )


def region(
    index: int, arguments: Callable[[Call], Sequence[Element]], result: str
) -> Demand:
    """A region on numbers of the types that `arguments` says, which gives one number of a type, of any if empty."""

    def check(call: Call) -> None:
        block, expected = block_of(call, index), list(arguments(call))
        given = _arguments(block)
        if given != expected:
            said, wanted = (", ".join(map(str, each)) for each in (given, expected))
            raise ModelError(f"region {index} takes ({said}), expected ({wanted})")
        made = [_number(t, f"what region {index} returns") for t in returned(block)]
        if len(made) != 1 or (result and str(made[0]) != result):
            said = ", ".join(map(str, made))
            raise ModelError(
                f"region {index} returns ({said}), expected one {result or 'number'}"
            )

    return check


def elements_of(call: Call) -> list[Element]:
    """The elements of every operand."""
    return [tensor_of(v.type, "an operand").element for v in call.operation.operands]


def starts_fit(call: Call) -> None:
    """As many starts as inputs, which are of one shape, each a number of the elements of its input or of its region.

    The specification demands the elements of the input; its verifier takes whatever becomes what the region makes.
    """
    types = [tensor_of(v.type, "an operand") for v in call.operation.operands]
    count = len(types) // 2
    if len(types) % 2:
        raise ModelError("has an input without a start, or none")
    made = returned(block_of(call, 0))
    for place, (input_, start) in enumerate(zip(types[:count], types[count:], strict=True)):
        own = tensor_of(made[place], "a result").element if place < len(made) else None
        fitting = start.element == input_.element or (
            own is not None and promotes(start.element, own)
        )
        if start.shape or not fitting:
            raise ModelError(
                f"input {place} is {input_}, its start {start}, expected a number of its elements",
                hint="convert or reshape the start first",
            )
    one_shape_of(types[:count])


def one_shape_of(types: Sequence[TensorType]) -> None:
    """Raise ModelError unless tensors may be of one shape."""
    for place, type_ in enumerate(types):
        for other in types[:place]:
            if not fits(type_, other):
                raise ModelError(f"inputs are {other} and {type_}, expected one shape")


def _types(values: Sequence[Value]) -> list[Type]:
    return [value.type for value in values]


def carries(call: Call) -> None:
    """Both regions of a loop take what it carries, and the second one gives it."""
    each_is_same(call)
    operands = _types(call.operation.operands)
    for index, part in enumerate(call.operation.regions):
        for block in part.blocks:
            handed_over(operands, _types(block.arguments), "gives", f"region {index} takes")
    gives_results(call, 1)


def gives_results(call: Call, first: int = 0) -> None:
    """What regions from one on return are the results."""
    results = _types(call.operation.results)
    for index, part in enumerate(call.operation.regions[first:], first):
        for block in part.blocks:
            if block.operations and block.operations[-1].name in RETURNS:
                handed_over(
                    returned(block), results, f"region {index} returns", "the result is"
                )
