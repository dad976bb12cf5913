"""What the specification demands of operations, one function per kind of demand; rows list theirs.

A demand is checked before its row builds anything, on the types and attributes that the module states: what the
types leave open (`?`) is held against the values by the row.  Not the types of tensors by themselves, which their
readers check.

Source: StableHLO specification, "Constraints" of every operation, and "Types on functions" for promotion.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from tilewright.base.errors import ModelError
from tilewright.base.text import plural
from tilewright.compiler.frontends.stablehlo.assumed_sizes import assumed_equal
from tilewright.compiler.frontends.stablehlo.call import Call, part_of
from tilewright.compiler.frontends.stablehlo.held import dims_of
from tilewright.compiler.frontends.stablehlo.tree import (
    ComplexType,
    Element,
    QuantizedType,
    ScalarType,
    TensorType,
    TupleType,
    Type,
)

Demand = Callable[[Call], None]
"""Raises ModelError where an operation is not as it must be."""

_KINDS: Final = {
    "b": "truth values", "s": "signed integers", "u": "unsigned integers", "f": "floats",
    "c": "complex numbers", "q": "quantized numbers", "Q": "numbers quantized along an axis",
}  # fmt: skip
"""Kinds of elements, by the letter that rows use."""
ANY: Final = "bsufcq"
_CONVERT: Final = "convert one of them first, with stablehlo.convert"
_SPREAD: Final = (
    "nothing broadcasts by itself: repeat an operand first, with stablehlo.broadcast_in_dim"
)


def kind_of(element: Type) -> str:
    """The letter of a kind of elements."""
    match element:
        case ScalarType(name):
            if name == "i1":
                return "b"
            return "u" if name[0] == "u" else "s" if name[0] in "is" else "f"
        case ComplexType():
            return "c"
        case QuantizedType():
            return "q" if element.axis is None and not element.blocks else "Q"
        case _:
            return ""


# --- types that are held against each other ----------------------------------------------------


def tensors(call: Call, places: Sequence[int], *, results: bool) -> list[TensorType]:
    """The types of operands, of those at `places` if any are named, and of results."""
    operation = call.operation
    given = operation.operands
    if places:
        given = tuple([given[place] for place in places if place < len(given)])
    found: list[TensorType] = []
    for value in (*given, *operation.results) if results else given:
        if not isinstance(value.type, TensorType):
            name = _name(call, places, len(found))
            raise ModelError(f"{name} is {value.type}, expected a tensor")
        found.append(value.type)
    return found


def _name(call: Call, places: Sequence[int], index: int) -> str:
    """What to call one of `tensors`."""
    count = len(call.operation.operands)
    there = [place for place in places or range(count) if place < count]
    if index < len(there):
        return f"operand {there[index]}"
    return f"result {index - len(there)}"


def tensor_of(type_: Type, name: str) -> TensorType:
    """A tensor.  Raises: ModelError for what is none."""
    if not isinstance(type_, TensorType):
        raise ModelError(f"{name} is {type_}, expected a tensor")
    return type_


def baseline(element: Element) -> Element:
    """Elements without what quantized ones stand for: their scales and zero points."""
    if not isinstance(element, QuantizedType):
        return element
    return QuantizedType(element.storage, element.expressed, (), ())


def fits(one: TensorType, other: TensorType) -> bool:
    """Whether two tensors may have one shape: what is open in one may be anything within its bound."""
    if one.shape is None or other.shape is None or one.shape == other.shape:
        return True
    if len(one.shape) != len(other.shape):
        return False
    return all(_fit(*pair) for pair in zip(_sizes(one), _sizes(other), strict=True))


def alike(one: Type, other: Type) -> bool:
    """Whether two types are one, but for what one of them leaves open."""
    if isinstance(one, TensorType) and isinstance(other, TensorType):
        return one.element == other.element and fits(one, other)
    if isinstance(one, TupleType) and isinstance(other, TupleType):
        pairs = zip(one.items, other.items, strict=False)
        return len(one.items) == len(other.items) and all(alike(*pair) for pair in pairs)
    return one == other


def handed_over(
    given: Sequence[Type], taken: Sequence[Type], giver: str, taker: str
) -> None:
    """Raise ModelError where a value is given as one type and taken as another; how many there are is not looked at."""
    for place, (one, other) in enumerate(zip(given, taken, strict=False)):
        if not alike(one, other):
            raise ModelError(
                f"{giver} {one} as value {place}, {taker} {other}, expected one type",
                hint="write one type on both sides, or convert the value first",
            )


def _sizes(type_: TensorType) -> list[tuple[int | None, int | None]]:
    """Of every dimension the size and the bound, where there is one."""
    shape = type_.shape or ()
    return list(zip(shape, type_.bounds or (None,) * len(shape), strict=True))


def _fit(one: tuple[int | None, int | None], other: tuple[int | None, int | None]) -> bool:
    for (size, _), (own, bound) in ((one, other), (other, one)):
        if size is not None and own is None:
            return bound is None or size <= bound
    return one[0] == other[0]


def one_element(*places: int, results: bool = True) -> Demand:
    """Operands (at `places`, or all) and results have elements of one type; scales may differ."""

    def check(call: Call) -> None:
        types = tensors(call, places, results=results)
        first = types[0].element
        for index, type_ in enumerate(types):
            own = type_.element
            if own != first and baseline(own) != baseline(first):
                names = _name(call, places, 0), _name(call, places, index)
                raise ModelError(
                    f"{names[0]} has elements {first}, {names[1]} {own}, expected one type",
                    hint=_CONVERT,
                )

    return check


def one_shape(*places: int, results: bool = True) -> Demand:
    """Operands (at `places`, or all) and results have one shape."""

    def check(call: Call) -> None:
        types = tensors(call, places, results=results)
        shape = types[0].shape
        for type_ in types:
            if type_.shape != shape:
                break
        else:
            if shape is not None and None not in shape:
                return
        _shapes_fit(call, places, types)

    return check


def _shapes_fit(call: Call, places: Sequence[int], types: Sequence[TensorType]) -> None:
    """Raise ModelError unless these `tensors` may have one shape; of sizes that are open that is asked of every call."""
    for index, first in enumerate(types):
        for behind, type_ in enumerate(types[index + 1 :], index + 1):
            if not fits(first, type_):
                names = _name(call, places, index), _name(call, places, behind)
                raise ModelError(
                    f"{names[0]} is {first}, {names[1]} {type_}, expected one shape",
                    hint=_SPREAD,
                )
    if any(None in (type_.shape or ()) for type_ in types):
        _sizes_agree(call, places)


def _sizes_agree(call: Call, places: Sequence[int]) -> None:
    """Ask of every call that operands whose types leave sizes open have one shape."""
    shapes = [dims_of(call.held(n)) for n in places or range(len(call.operands))]
    for shape in shapes[1:]:
        for size, other in zip(shapes[0], shape, strict=True):
            if not assumed_equal(call.maker, size, other):
                raise ModelError(f"operands have {size} and {other} elements", hint=_SPREAD)


SAME_SHAPE: Final = one_shape()


def elements(kinds: str, *places: int) -> Demand:
    """Operands (at `places`, or all) have elements of these kinds."""

    def check(call: Call) -> None:
        for index, type_ in enumerate(tensors(call, places, results=False)):
            if kind_of(type_.element) not in kinds:
                raise _other_kind(_name(call, places, index), type_, kinds)

    return check


def gives(kinds: str, *places: int) -> Demand:
    """Results (at `places`, or all) have elements of these kinds."""

    def check(call: Call) -> None:
        values = call.operation.results
        for place in places or range(len(values)):
            name = f"result {place}"
            type_ = tensor_of(values[place].type, name)
            if kind_of(type_.element) not in kinds:
                raise _other_kind(name, type_, kinds)

    return check


def _other_kind(name: str, type_: TensorType, kinds: str) -> ModelError:
    expected = " or ".join(_KINDS[kind] for kind in kinds)
    return ModelError(
        f"{name} has elements {type_.element}, expected {expected}",
        hint="convert it first, with stablehlo.convert or stablehlo.uniform_dequantize",
    )


def rank(count: int, *places: int) -> Demand:
    """Operands at `places` have so many dimensions."""

    def check(call: Call) -> None:
        for index, type_ in enumerate(tensors(call, places, results=False)):
            if type_.shape is not None and len(type_.shape) != count:
                raise ModelError(
                    f"{_name(call, places, index)} is {type_}, expected {plural(count, 'dimension')}",
                    hint="give it another shape first, with stablehlo.reshape",
                )

    return check


def integer_numbers(first: int) -> Demand:
    """The operands from one on are single integers of one type."""

    def check(call: Call) -> None:
        places = range(first, len(call.operation.operands))
        if places:
            elements("su", *places)(call)
            rank(0, *places)(call)
            one_element(*places, results=False)(call)

    return check


def takes(operands: int, results: int = 1, regions: int = 0) -> Demand:
    """So many operands, results and regions."""
    expected = {"operand": operands, "result": results, "region": regions}
    counts = (operands, results, regions)

    def check(call: Call) -> None:
        own = call.operation
        found = (len(own.operands), len(own.results), len(own.regions))
        if found != counts:
            for count, (noun, wanted) in zip(found, expected.items(), strict=True):
                _count(count, wanted, noun)

    return check


def takes_some(operands: int = 1, regions: int = 0) -> Demand:
    """At least so many operands, and so many regions."""

    def check(call: Call) -> None:
        count = len(call.operation.operands)
        if count < operands:
            raise ModelError(
                f"has {plural(count, 'operand')}, expected at least {operands}"
            )
        _count(len(call.operation.regions), regions, "region")

    return check


def _count(found: int, expected: int, noun: str) -> None:
    if found != expected:
        raise ModelError(f"has {plural(found, noun)}, expected {expected}")


def pointwise(count: int, kinds: str) -> tuple[Demand, ...]:
    """So many operands of the same kind, shape and type of elements as the result."""
    apart = (elements(kinds), one_element())

    def check(call: Call) -> None:
        types = tensors(call, (), results=True)
        first = types[0].element
        for type_ in types:
            if type_.element is not first and type_.element != first:
                break
        else:
            if kind_of(first) in kinds:
                return
        for demand in apart:
            demand(call)

    return (takes(count), check, SAME_SHAPE)


def predicate(count: int, kinds: str) -> tuple[Demand, ...]:
    """So many operands of one type, and truth values of their shape."""
    return (
        takes(count), elements(kinds), one_element(results=False), SAME_SHAPE, gives("b"),
    )  # fmt: skip


# --- parts of complex numbers, elements that are moved -------------------------------------------


def of_parts(*, joined: bool) -> Demand:
    """One side has complex numbers whose parts the other side has; `joined`: the result has."""

    def check(call: Call) -> None:
        operand, *_, result = tensors(call, (), results=True)
        whole, parts = (result, operand) if joined else (operand, result)
        if part_of(whole.element) != parts.element:
            raise ModelError(
                f"operand 0 has elements {operand.element}, the result {result.element},"
                " expected complex numbers and their parts"
            )

    return check


def part(call: Call) -> None:
    """The result has the parts of complex elements, or the same real ones."""
    operand, result = tensors(call, (), results=True)
    own = operand.element
    expected = own.part if isinstance(own, ComplexType) else baseline(own)
    if baseline(result.element) != expected:
        raise ModelError(
            f"operand 0 has elements {own}, the result {result.element}, expected {expected}"
        )


def keeps(*places: int, turns: bool = False) -> Demand:
    """Operands (at `places`, or all) and results have the same elements, with the same scales.

    `turns`: the axis that numbers are quantized along may be another one.
    """

    def check(call: Call) -> None:
        types = tensors(call, places, results=True)
        first = types[0].element
        for index, type_ in enumerate(types):
            own = type_.element
            if own is not first and not are_same(first, own, turns=turns):
                names = _name(call, places, 0), _name(call, places, index)
                raise ModelError(
                    f"{names[0]} has elements {first}, {names[1]} {own}, expected the same,"
                    " as elements are only moved",
                    hint="convert them first, with stablehlo.convert or stablehlo.uniform_quantize",
                )

    return check


def are_same(one: Element, other: Element, *, turns: bool) -> bool:
    """Whether elements are the same; `turns`: but for the axis that they are quantized along."""
    if turns and kind_of(one) == "Q" == kind_of(other):
        return baseline(one) == baseline(other)
    return one == other


# --- attributes --------------------------------------------------------------------------------


def axes(name: str, *, ordered: bool = False) -> Demand:
    """A list of dimensions of operand 0, none twice, in their order where that counts."""

    def check(call: Call) -> None:
        found = call.integers(name, ())
        type_ = tensor_of(call.operation.operands[0].type, "operand 0")
        count = len(type_.shape or ())
        if type_.shape is not None and any(not 0 <= axis < count for axis in found):
            raise ModelError(
                f"{name} {list(found)} do not fit {type_}, expected 0 to {count - 1}"
            )
        _each_once(name, found, ordered=ordered)

    return check


def _each_once(name: str, found: Sequence[int], *, ordered: bool) -> None:
    if len(set(found)) != len(found):
        raise ModelError(f"{name} {list(found)} name a dimension twice")
    if ordered and list(found) != sorted(found):
        raise ModelError(f"{name} {list(found)} are not in order")


def once(*names: str, ordered: bool = False, field: str = "") -> Demand:
    """Lists of dimensions, none of which is named twice in all of them."""

    def check(call: Call) -> None:
        fields = call.fields(field) if field else call.operation.attributes
        found = [n for name in names for n in _listed(fields.get(name))]
        _each_once(" and ".join(names), found, ordered=ordered)

    return check


def _listed(found: object) -> list[int]:
    return [getattr(n, "value", n) for n in found] if isinstance(found, tuple) else []


# --- operands that results are like ------------------------------------------------------------


def _pairs(call: Call) -> Iterator[tuple[int, Type, Type]]:
    operands, results = call.operation.operands, call.operation.results
    for place, (value, result) in enumerate(zip(operands, results, strict=False)):
        yield place, value.type, result.type


def each_kept(call: Call) -> None:
    """Every result has the elements of its operand."""
    for place, operand, result in _pairs(call):
        one, other = (tensor_of(t, f"value {place}") for t in (operand, result))
        if one.element != other.element:
            raise ModelError(
                f"operand {place} has elements {one.element}, its result {other.element}, expected the same"
            )


def each_is_same(call: Call) -> None:
    """Every result is of the type of its operand, but for what one of them leaves open."""
    if len(call.operation.operands) != len(call.operation.results):
        raise ModelError(
            f"has {plural(len(call.operation.operands), 'operand')} and"
            f" {plural(len(call.operation.results), 'result')}, expected as many"
        )
    for place, operand, result in _pairs(call):
        if not alike(operand, result):
            raise ModelError(
                f"operand {place} is {operand}, its result {result}, expected one type"
            )
